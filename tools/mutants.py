"""Require the tests to catch wrong implementations, the kind that people make; a survivor is a test that is missing.

Each replaces one function of one half, in every module that has it, while the tests of the package run.

python tools/mutants.py              all of them
python tools/mutants.py causal       those with the word in their names
"""

import contextlib
import functools
import importlib
import inspect
import io
import multiprocessing
import os
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import attn_tutor.numpy as an
import attn_tutor.torch as at
from attn_tutor.rules import First, Rule, Window

ROOT = Path(__file__).resolve().parents[1]
QUICK = [
    "test_nan.py",
    "test_other_functions.py",
    "test_properties.py",
    "test_definitions.py",
    "test_parity.py",
    "test_textbook.py",
    "test_golden.py",
]
TESTS = sorted(
    ROOT.glob("tests/[uo]*/test_*.py"),
    key=lambda path: (path.name in QUICK and -QUICK.index(path.name) - 1, path),
)  # files that catch most go first
SLOW_TO_IMPORT = ["attn_tutor.numpy", "attn_tutor.torch", "hypothesis", "nbclient"]
xp: Any  # numpy or torch, whichever half is wrong
lib: Any  # attn_tutor's half of that name


class Wrong(NamedTuple):
    name: str
    where: str  # what it replaces: a public name, or module.name
    fn: Callable[..., Any]  # called with the right function, then all its arguments
    halves: tuple[str, ...] = ("numpy", "torch")


def triangle(n: int, m: int, k: int = 0) -> Any:
    return xp.tril(xp.ones((n, m)), k) > 0


def softmax_without_maximum(right: Any, x: Any, axis: int) -> Any:
    e = xp.exp(x)
    return e / e.sum(axis, keepdims=True)


def forgets(*names: str) -> Callable[..., Any]:
    """As if these arguments had not been given."""

    def forgetful(right: Any, *args: Any, **options: Any) -> Any:
        return right(*args, **{k: v for k, v in options.items() if k not in names})

    return forgetful


def either_mask_or_causal(right: Any, *args: Any, **options: Any) -> Any:
    options["causal"] &= args[-1] is None
    return right(*args, **options)


def wider_window(right: Any, *args: Any, **options: Any) -> Any:
    window = options["window"]
    if isinstance(window, Window):
        options["window"] = Window(window.width + 1, window.sinks)
    elif window is not None:
        options["window"] = window + 1
    return right(*args, **options)


def heads_in_turn(right: Any, X: Any, times: int) -> Any:
    return xp.concatenate([X] * times, -3)  # 0 1 0 1, not 0 0 1 1


def fused_heads_in_turn(right: Any, q: Any, k: Any, v: Any, *rest: Any) -> Any:
    if rest[-1]:
        k, v = (heads_in_turn(None, X, q.shape[-3] // X.shape[-3]) for X in (k, v))
    return right(q, k, v, *rest[:-1], False)


def scaled(right: Any, scale: Any, q: Any, *rest: Any) -> Any:
    return right(q, *rest[:-2], scale, rest[-1])


def scale_of_the_padded_width(right: Any, q: Any, *rest: Any) -> Any:
    return scaled(right, max(q.shape[-1], 1) ** -0.5, q, *rest)


def scaled_twice(right: Any, q: Any, *rest: Any) -> Any:
    return scaled(right, rest[-2] / max(q.shape[-1], 1) ** 0.5, q, *rest)


def biasless(right: Any, q: Any, k: Any, v: Any, mask: Any, *rest: Any) -> Any:
    added = mask is not None and mask.dtype != torch.bool
    return right(q, k, v, mask > -torch.inf if added else mask, *rest)


def one_key_short(right: Any, self: Any, rows: slice) -> Any:
    keys = right(self, rows)
    if self.rule is None or not isinstance(keys, slice):
        return keys
    return slice(keys.start + 1, max(keys.start + 1, keys.stop))


def one_key_late(right: Any, self: Any, rows: slice) -> Any:
    keys = right(self, rows)
    if self.rule is None or not isinstance(keys, slice):
        return keys
    return slice(max(0, keys.start - 1), max(0, keys.stop - 1))


def one_span(right: Any, self: Any, rows: slice) -> Any:
    keys = right(self, rows)  # of sinks and a window, the window
    return keys if isinstance(keys, slice) else keys[len(keys) // 2 :]


def bias_of_the_first_rows(right: Any, self: Any, rows: slice, keys: Any) -> Any:
    first = rows if rows.stop is None else slice(0, rows.stop - rows.start)
    return right(self, rows, keys)[0], right(self, first, keys)[1]


def mask_of_the_first_rows(right: Any, self: Any, rows: slice, keys: Any) -> Any:
    first = rows if rows.stop is None else slice(0, rows.stop - rows.start)
    return right(self, first, keys)[0], right(self, rows, keys)[1]


def mask_lost_beside_a_rule(right: Any, self: Any, rows: slice, keys: Any) -> Any:
    return right(self if self.rule is None else self._replace(mask=None), rows, keys)


def last_block_with_the_keys_before(right: Any, self: Any) -> Any:
    blocks = list(right(self))
    if len(blocks) > 1:
        blocks[-1] = blocks[-1][0], blocks[-2][1]
    return iter(blocks)


def gradients_of_all_rows_but_one(right: Any, ctx: Any, *g: Any) -> Any:
    return right(ctx, *(xp.cat([X[..., :-1, :], 0 * X[..., -1:, :]], -2) for X in g))


def dropped_anew(right: Any, ctx: Any, *g: Any) -> Any:
    ctx.random = torch.get_rng_state()
    return right(ctx, *g)


def scale_of_the_model(
    right: Any, Q: Any, K: Any, V: Any, W_q: Any, *rest: Any, **options: Any
) -> Any:
    n_heads = rest[3]
    return right(Q, K, V, W_q / n_heads**0.5, *rest, **options)


def reshape_only(right: Any, X: Any, n_heads: int) -> Any:
    *batch, n, d = X.shape
    return X.reshape(*batch, n_heads, n, d // n_heads)


def sines_then_cosines(right: Any, n: int, d: int, *rest: Any, **options: Any) -> Any:
    P = right(n, d, *rest, **options)
    return xp.concatenate([P[:, 0::2], P[:, 1::2]], -1)


def exponent_off_by_two(right: Any, n: int, d: int, base: float, **options: Any) -> Any:
    return right(n, d + 2, base ** ((d + 2) / d) if d else base, **options)[:, 2:]


def unnormalised_past(
    right: Any, Q: Any, K: Any, V: Any, causal: bool, feature_map: Any
) -> Any:
    if not causal:
        return right(Q, K, V, causal=False, feature_map=feature_map)
    weights = xp.tril(feature_map(Q) @ feature_map(K).mT, K.shape[-2] - Q.shape[-2])
    return weights @ V


# A table reads as lines.
# fmt: off
SHARED = ("both",)  # what the halves share is replaced for both
LISTED = [
    Wrong("no √d", "scaled_dot_score", lambda f, Q, K, scale: f(Q, K, 1.0 if scale is None else scale)),
    Wrong("1/d in place of 1/√d", "scaled_dot_score", lambda f, Q, K, scale: f(Q, K, 1 / max(1, Q.shape[-1]) if scale is None else scale)),
    Wrong("a scale that is given is ignored", "scaled_dot_score", lambda f, Q, K, scale: f(Q, K)),
    Wrong("cosine in place of the product", "dot_score", lambda f, Q, K: f(Q / (Q * Q).sum(-1)[..., None] ** 0.5, K / (K * K).sum(-1)[..., None] ** 0.5)),
    Wrong("additive score without tanh", "additive_score", lambda f, Q, K, W_q, W_k, w_v: (((Q @ W_q)[..., :, None, :] + (K @ W_k)[..., None, :, :]) @ w_v)),
    Wrong("bilinear score scaled by √d", "bilinear_score", lambda f, Q, K, M: f(Q, K, M / K.shape[-1] ** 0.5)),
    Wrong("Gaussian without ½", "gaussian_score", lambda f, *args, **options: 2 * f(*args, **options)),
    Wrong("bandwidth not squared", "gaussian_score", lambda f, Q, K, bandwidth: f(Q, K, bandwidth**0.5)),
    Wrong("boxcar without its edge", "boxcar_kernel", lambda f, Q, K, bandwidth: f(Q, K, bandwidth * (1 - 1e-7))),
    Wrong("triangular in place of Epanechnikov", "epanechnikov_kernel", lambda f, Q, K, bandwidth: 0.75 * lib.triangular_kernel(Q, K, bandwidth)),
    Wrong("kernel not normalised", "nadaraya_watson", lambda f, Q, K, V, kernel, bandwidth: (kernel(Q, K, bandwidth) @ V)),
    Wrong("upper-left causal", "causal_mask", lambda f, n, m, **on: triangle(n, n if m is None else m)),
    Wrong("causal without the query's own position", "causal_mask", lambda f, n, m, **on: triangle(n, n if m is None else m, (n if m is None else m) - n - 1)),
    Wrong("causal upside down", "causal_mask", lambda f, *args, **on: ~f(*args, **on)),
    Wrong("inverted padding", "padding_mask", lambda f, *args, **on: ~f(*args, **on)),
    Wrong("padding off by one", "padding_mask", lambda f, *args, **on: xp.roll(f(*args, **on), 1, -1)),
    Wrong("softmax on the wrong axis", "softmax", lambda f, x, axis: f(x, -2 if axis == -1 and x.ndim > 1 else axis)),
    Wrong("no maximum subtracted", "softmax", softmax_without_maximum),
    Wrong("inverted mask", "masked_softmax", lambda f, scores, mask: f(scores, None if mask is None else ~mask)),
    Wrong("masked weight zeroed but not renormalised", "masked_softmax", lambda f, scores, mask: f(scores) * (1 if mask is None else mask)),
    Wrong("−9 in place of −∞", "masked_softmax", lambda f, scores, mask: f(scores if mask is None else xp.where(mask, scores, -9.0))),
    Wrong("uniform where nothing is permitted", "masked_softmax", lambda f, scores, mask: f(scores if mask is None else xp.where(mask, scores, -1e4))),
    Wrong("division by a sum of 0", "normalize", lambda f, weights: weights / weights.sum(-1)[..., None]),
    Wrong("masked value zeroed but not renormalised", "attend", lambda f, scores, V, mask, **on: f(scores, V, mask, **on) if mask is None or isinstance(mask, Rule) else (lib.softmax(scores) * mask) @ V),
    Wrong("parts merged by halves", "merge", lambda f, output, log_sum, other, other_log_sum: ((output + other) / 2, xp.logaddexp(log_sum, other_log_sum))),
    Wrong("the first part not shrunk", "merge", lambda f, output, log_sum, other, other_log_sum: (output + xp.exp(other_log_sum - xp.logaddexp(log_sum, other_log_sum)) * other, xp.logaddexp(log_sum, other_log_sum))),
    Wrong("log-sum without the scale", "partial_attention", lambda f, *args, scale, **on: (f(*args, scale=scale, **on)[0], f(*args, scale=1.0, **on)[1])),
    Wrong("sink logits lost", "sink_attention", forgets("sink_logits")),
    Wrong("the sink's sign turned", "sink_attention", lambda f, *args, sink_logits, **on: f(*args, sink_logits=-sink_logits, **on)),
    Wrong("mask lost", "attend", lambda f, scores, V, mask, **on: f(scores, V, **on)),
    Wrong("causal lost when masked", "attention", either_mask_or_causal),
    Wrong("causal lost when masked", "attention_weights", either_mask_or_causal),
    Wrong("causal lost", "attention", forgets("causal")),
    Wrong("scale lost", "attention", forgets("scale")),
    Wrong("bias lost", "attention", forgets("bias")),
    Wrong("bias lost", "additive_attention", forgets("bias")),
    Wrong("bias lost", "multi_head_attention", forgets("bias")),
    Wrong("dropout lost", "attention", forgets("dropout_p"), ("torch",)),
    Wrong("window off by one", "attention", wider_window),
    Wrong("window off by one", "attention_weights", wider_window),
    Wrong("window off by one", "additive_attention", wider_window),
    Wrong("bandwidth lost", "gaussian_attention", forgets("bandwidth")),
    Wrong("mask lost", "additive_attention", lambda f, *args, **options: f(*args[:6], **options)),
    Wrong("values of the queries' sequence", "cross_attention", lambda f, X, Y, *rest, **options: f(X, X, *rest, **options)),
    Wrong("view in place of transpose", "split_heads", reshape_only),
    Wrong("view in place of transpose back", "merge_heads", lambda f, X: X.reshape(*X.shape[:-3], X.shape[-2], -1)),
    Wrong("√d of the model's width", "multi_head_attention", scale_of_the_model),
    Wrong("exponent off by two", "sinusoidal_encoding", exponent_off_by_two),
    Wrong("positions from 1", "sinusoidal_encoding", lambda f, n, *rest, **options: f(n + 1, *rest, **options)[1:]),
    Wrong("all sines before all cosines", "sinusoidal_encoding", sines_then_cosines),
    Wrong("rotated backwards", "rotary", lambda f, X, positions, base, **options: f(X, -xp.arange(X.shape[-2]) if positions is None else -positions, base, **options)),
    Wrong("positions lost", "rotary", lambda f, X, positions, base, **options: f(X, None, base, **options)),
    Wrong("neighbours where halves are meant", "rotary", forgets("interleaved")),
    Wrong("rates that end too early", "rotary", lambda f, X, positions, base, rates=None, **options: f(X, positions, base, rates=rates if rates is None else rates[:-1], **options)),
    Wrong("favours what is far", "alibi_bias", lambda f, *args, **options: -f(*args, **options)),
    Wrong("slopes in reverse", "alibi_bias", lambda f, *args, **options: xp.flip(f(*args, **options), (0,))),
    Wrong("newest first", "cache.KVCache.append", lambda f, self, K, V: tuple(xp.flip(X, (-2,)) for X in f(self, K, V))),
    Wrong("sinks dropped", "cache.KVCache._drop", lambda f, self, sinks, recent: f(self, 0, sinks + recent)),
    Wrong("packed documents see each other alone", "document_mask", lambda f, documents: ~f(documents)),
    Wrong("all tokens one document", "documents", lambda f, ids: f(ids * 0)),
    Wrong("one key too many is valid", "valid", lambda f, lengths: f(lengths + 1)),
    Wrong("no prefix", "prefix", lambda f, lengths: f(lengths * 0)),
    Wrong("favours what is far", "alibi", lambda f, slopes: f(-f(slopes).slopes)),
    Wrong("a hidden sequence goes unseen", "_checks.require_one_meaning", lambda f, *args: None, SHARED),
    Wrong("the key of one's own is hidden", "rules.Causal.pairs", lambda f, self, i, j: j < i, SHARED),
    Wrong("the key of one's own is not computed", "rules.Causal.keys", lambda f, self, first, last, m: f(self, first, last - 1, m), SHARED),
    Wrong("one key too many", "rules.Window.pairs", lambda f, self, i, j: f(Window(self.width + 1, self.sinks), i, j), SHARED),
    Wrong("sinks lost", "rules.Window.pairs", lambda f, self, i, j: f(Window(self.width), i, j), SHARED),
    Wrong("sinks are seen from before them", "rules.Window.pairs", lambda f, self, i, j: f(self, i, j) | (j < self.sinks), SHARED),
    Wrong("the oldest key is not computed", "rules.Window.keys", lambda f, self, first, last, m: f(self, first + 1, last, m), SHARED),
    Wrong("sinks are not computed", "rules.Window.keys", lambda f, self, first, last, m: f(Window(self.width), first, last, m), SHARED),
    Wrong("one key too many", "rules.First.pairs", lambda f, self, i, j: f(self, i, j - 1), SHARED),
    Wrong("the last key is not computed", "rules.First.keys", lambda f, self, first, last, m: [slice(x.start, x.stop - 1) for x in f(self, first, last, m)], SHARED),
    Wrong("the keys of the shortest", "rules.First.keys", lambda f, self, first, last, m: f(First(self.count.min()), first, last, m) if hasattr(self.count, "shape") and self.count.shape else f(self, first, last, m), SHARED),
    Wrong("the keys of the first query alone", "rules.Documents.keys", lambda f, self, first, last, m: f(self, first, first, m), SHARED),
    Wrong("either in place of both", "rules.Both.pairs", lambda f, self, i, j: self.a.pairs(i, j) | self.b.pairs(i, j), SHARED),
    Wrong("the keys of one span", "rules.Both.keys", lambda f, self, first, last, m: f(self, first, last, m)[-1:], SHARED),
    Wrong("both in place of either", "rules.Either.pairs", lambda f, self, i, j: self.a.pairs(i, j) & self.b.pairs(i, j), SHARED),
    Wrong("the keys of one side", "rules.Either.keys", lambda f, self, first, last, m: self.a.keys(first, last, m), SHARED),
    Wrong("one array for all sequences", "rules.First.map", lambda f, self, change: f(First(self.count.reshape(-1)[0] + 0 * self.count) if getattr(self.count, "ndim", 0) else self, change), SHARED),
    Wrong("slopes fall towards the query", "rules.Slopes.added", lambda f, self, i, j: -f(self, i, j), SHARED),
    Wrong("two readings go unseen", "_both.visibility.checked_rule", lambda f, where, rule, batch, n, m, ready: rule.map(lambda X, own: ready(X)), SHARED),
    Wrong("mask lost when causal", "_both.visibility.read_mask", lambda f, where, n, mask, causal, window: f(where, n, None if causal else mask, causal, window), SHARED),
    Wrong("a lone query sees no window", "_both.visibility.read_mask", lambda f, where, n, mask, causal, window: f(where, n, mask, causal and n != 1, None if n == 1 else window), SHARED),
    Wrong("a mask for each sequence is one for each head", "_both.visibility.for_heads", lambda f, where, mask, queries, keys: mask, SHARED),
    Wrong("who sees whom is not heard", "_engine.blocks.Visibility.read", lambda f, *args: f(*args[:-4])),
    Wrong("a tile is seen whole", "_engine.blocks.Visibility.mask_and_bias", lambda f, self, rows, keys: (None, f(self, rows, keys)[1])),
    Wrong("the keys of the block's first query", "_engine.blocks.Visibility.keys", lambda f, self, rows: f(self, slice(rows.start, rows.start + 1))),
    Wrong("upper-left positions", "_engine.blocks.Visibility.positions", lambda f, self, rows: f(self, rows) - (self.m - self.n)),
    Wrong("a block's first key lost", "_engine.blocks.Visibility.keys", one_key_short),
    Wrong("a block's keys off by one", "_engine.blocks.Visibility.keys", one_key_late),
    Wrong("sinks are cut away", "_engine.blocks.Visibility.keys", one_span),
    Wrong("bias of the first rows for all", "_engine.blocks.Visibility.mask_and_bias", bias_of_the_first_rows),
    Wrong("mask of the first rows for all", "_engine.blocks.Visibility.mask_and_bias", mask_of_the_first_rows),
    Wrong("mask lost beside a rule", "_engine.blocks.Visibility.mask_and_bias", mask_lost_beside_a_rule),
    Wrong("a bias of −∞ hides nothing", "_engine.blocks.Visibility.read", lambda f, *args: f(*args)._replace(mask=f(*args[:-1]).mask)),
    Wrong("the last block dropped", "_engine.blocks.in_threads", lambda f, work, tasks: f(work, tasks[:-1] if len(tasks) > 1 else tasks), ("numpy",)),
    Wrong("shared keys in turn, not in groups", "_arrays.repeat_heads", heads_in_turn),
    Wrong("the last block with the keys of the one before", "_engine.blocks.Cut.blocks", last_block_with_the_keys_before, ("torch",)),
    Wrong("a row lost on the way back", "_engine.blocks.Blocks.backward", gradients_of_all_rows_but_one, ("torch",)),
    Wrong("dropped anew on the way back", "_engine.blocks.Blocks.backward", dropped_anew, ("torch",)),
    Wrong("learnt slopes get no gradient", "_engine.blocks.Visibility.learnt_as_array", lambda f, self: self, ("torch",)),
    Wrong("0 · NaN leaks from what is hidden", "_engine.hidden.harmless", lambda f, *arrays: torch.tensor(True), ("torch",)),
    Wrong("0 · NaN leaks from what is hidden", "_engine.hidden.zero_bad_rows", lambda f, arrays, *rest: (arrays, f(arrays, *rest)[1]), ("torch",)),
    Wrong("a NaN that is seen is lost", "_engine.hidden.zero_bad_rows", lambda f, *args: (f(*args)[0], torch.tensor(False)), ("torch",)),
    Wrong("NaN for all queries", "_engine.hidden.zero_bad_rows", lambda f, *args: (f(*args)[0], f(*args)[1] | True), ("torch",)),
    Wrong("0 · NaN leaks from what is hidden", "_attention.weighted_sum", lambda f, weights, V, visible: weights @ V),
    Wrong("a NaN that is seen is lost", "_attention.weighted_sum", lambda f, weights, V, visible: weights @ xp.nan_to_num(V)),
    Wrong("bias lost", "_attention.added", lambda f, scores, bias: scores),
    Wrong("scale lost", "_engine.fused.sdpa", lambda f, *args: scaled(f, 1.0, *args), ("torch",)),
    Wrong("scaled twice", "_engine.fused.sdpa", scaled_twice, ("torch",)),
    Wrong("√ of the padded width", "_engine.fused.sdpa", scale_of_the_padded_width, ("torch",)),
    Wrong("bias lost", "_engine.fused.sdpa", biasless, ("torch",)),
    Wrong("shared keys in turn, not in groups", "_engine.fused.sdpa", fused_heads_in_turn, ("torch",)),
    Wrong("tanh of half the sum", "scoring.shifted_tanh_score", lambda f, a, b, w_v: f(a / 2, b / 2, w_v), ("numpy",)),
    Wrong("an empty part makes NaN", "_merge.finite", lambda f, log_sum: log_sum),
    Wrong("normaliser lost when causal", "linear_attention", unnormalised_past),
    Wrong("weights of the newest key alone", "delta_rule", lambda f, Q, K, V, beta: (Q * K).sum(-1)[..., None] * V * beta[..., None]),
    Wrong("positions of the first keys", "latent_attention", lambda f, X, C, R, *rest, **options: f(X, C, lib.rotary(R, xp.arange(R.shape[-2]) * 0 + X.shape[-2] - R.shape[-2]), *rest, **options)),
    Wrong("one scale for all rows", "quantize", lambda f, X, axis: (f(X, axis)[0], f(X, axis)[1] * 0 + abs(X).max() / 127)),
    Wrong("no guess is refused", "accept_draft", lambda f, target, draft, tokens, uniform: xp.concatenate([tokens, f(target, draft, tokens, uniform)[-1:]])),
    Wrong("softmax as if elementwise", "softmax_vjp", lambda f, weights, g: weights * (1 - weights) * g, ("numpy",)),
    Wrong("gradients without the scale", "attention_vjp", lambda f, Q, *rest, **options: tuple(x * Q.shape[-1] ** power for x, power in zip(f(Q, *rest, **options), (0.5, 0.5, 0), strict=True)), ("numpy",)),
    Wrong("one too narrow", "beam_search", lambda f, step, prefix, end, max_len, beam_width: f(step, prefix, end, max_len, max(1, beam_width - 1))),
    Wrong("stops one symbol early", "greedy_search", lambda f, step, prefix, end, max_len: f(step, prefix, end, max(1, max_len - 1))),
    Wrong("end does not count", "translation_loss", lambda f, model, batch: f(model, (*batch[:2], batch[2][:, :-1])), ("torch",)),
]
# fmt: on
# ruff: noqa: E501 — a mutant is easier to read on one line


def place(wrong: Wrong, half: str) -> tuple[Any, str]:
    """The module or class that holds the function, and its name there."""
    package = "attn_tutor" if half == "both" else f"attn_tutor.{half}"
    *path, name = f"{package}.{wrong.where}".split(".")
    *room, last = path
    if last[0].isupper():  # a class
        return getattr(importlib.import_module(".".join(room)), last), name
    return importlib.import_module(".".join(path)), name


def install(wrong: Wrong, half: str) -> None:
    """Put it into every module of the package that has the right one; those that load later take it from there."""
    global xp, lib
    xp, lib = (torch, at) if half == "torch" else (np, an)
    holder, name = place(wrong, half)
    right = getattr(holder, name)
    signature = inspect.signature(right)

    @functools.wraps(right)  # the same signature and docstring
    def changed(*args: Any, **options: Any) -> Any:
        given = signature.bind(*args, **options)
        given.apply_defaults()
        return wrong.fn(right, *given.args, **given.kwargs)

    static = isinstance(
        inspect.getattr_static(holder, name), (staticmethod, classmethod)
    )
    setattr(holder, name, staticmethod(changed) if static else changed)
    for module in [m for key, m in sys.modules.items() if key.startswith("attn_tutor")]:
        for alias in [key for key, value in vars(module).items() if value is right]:
            setattr(module, alias, changed)


def failing(tests: list[str]) -> str | None:
    """The first that fails; None if all pass."""
    failed: list[str] = []

    class Reports:
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.failed:
                failed.append(report.nodeid)

    options = ["-x", "-q", "-p", "no:cacheprovider", "--assert=plain"]
    with contextlib.redirect_stdout(io.StringIO()) as said:
        status = pytest.main([*options, *tests], plugins=[Reports()])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise RuntimeError(said.getvalue())  # an error of collection, say
    return failed[0] if failed else None


def killer(number: int, half: str) -> str | None:
    """The test that catches it, in this process, which is a fresh one."""
    os.environ["CI"] = "true"  # the same examples each time
    install(LISTED[number], half)
    return next(filter(None, (failing([str(file)]) for file in TESTS)), None)


def main() -> int:
    word, started = " ".join(sys.argv[1:]), monotonic()
    os.chdir(ROOT)
    chosen = [
        (number, half)
        for number, wrong in enumerate(LISTED)
        for half in wrong.halves
        if word in f"{half}.{wrong.where}: {wrong.name}"
    ]
    killers = []
    fresh = multiprocessing.get_context("forkserver")
    fresh.set_forkserver_preload(SLOW_TO_IMPORT)
    with fresh.Pool(2, maxtasksperchild=1) as pool:
        tried = [pool.apply_async(killer, one) for one in chosen]
        for (number, half), result in zip(chosen, tried, strict=True):
            wrong, by = LISTED[number], result.get()
            state = f"killed by {by}" if by else "SURVIVED"
            print(f"{half}.{wrong.where}: {wrong.name}: {state}", flush=True)
            killers += [by] if by else []
    seconds = monotonic() - started
    print(f"{len(killers)} of {len(chosen)} killed in {seconds:.0f} s")
    if killers and (wrong_test := failing(sorted(set(killers)))):
        sys.exit(f"{wrong_test} fails on the right code too")
    return 0 if len(killers) == len(chosen) else 1


if __name__ == "__main__":
    import mutants  # by the name that the processes know

    sys.exit(mutants.main())
