"""All checks that fit a model, or a function of queries, keys and values, one after another, with a report."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from attn_tutor.failures.attentions import (
    Attention,
    breaks_on_empty_row,
    differs_from_formula,
    reads_hidden_keys,
    wrong_corner,
)
from attn_tutor.failures.calls import (
    changes_in_eval,
    gives_nan,
    has_no_row,
    loses_order,
    runs_out_of_positions,
)
from attn_tutor.failures.finding import Finding, explain
from attn_tutor.failures.leaks import leaks_future, mixes_sentences
from attn_tutor.failures.pads import misplaces_words, reads_pads
from attn_tutor.failures.program import Model, Side, titled, uncut

__all__ = ["check_all", "check_attention"]

QUIET = {  # what says no more of a bug that has a name already
    "reads_hidden_keys": {"mask hides nothing"},
    "wrong_corner": {"another formula"},
    "reads_pads": set[str](),
    "misplaces_words": set[str](),
}
NEEDS_MORE = (
    "not asked: the formula (check_attention), a cache (differs_step_by_step), labels (misses_the_next_token), …\n"
    "    the list of checks: python -m attn_tutor.failures"
)


def report(
    checks: Mapping[str, Callable[[], Finding]],
    explain: Callable[[Exception, str], Finding] = explain,
) -> list[Finding]:
    found: list[Finding] = []
    for name, check in checks.items():
        before = {x.check for x in found}
        # A bug that is there without a mask is there with one. Outputs of a model that reads pads move for that alone.
        alone, _, padded = name.partition(" with ")
        reads = "reads_pads" in before and (name == "misplaces_words" or padded)
        if reads or padded and alone in before:
            continue
        try:
            result = check()
        except Exception as error:  # of the reader's program
            result = explain(error, name)
            if any(result.cause == x.cause and result.says == x.says for x in found):
                continue
        known = {x.cause for x in found} - {"another formula"}
        if known and name in QUIET and result.cause in known | QUIET[name]:
            continue
        print(result)
        found += [result] if result else []
        if result.cause in ("state between calls", "random in eval"):
            print("    what follows may come of that")
    return found


def check_all(
    model: Model,
    tokens: Any,
    *,
    causal: bool = True,
    pads: Side | None = None,
    length: int | None = None,
) -> list[Finding]:
    """Run the checks that need only a model and tokens, and print what each has found and where to read about it.

    The model is called in evaluation and in training mode; a module in half precision is asked for NaN as it is, and
    for the rest as a copy in float32, since a leak may be smaller than rounding. With pads, what was asked without a
    mask is asked with one, too. The model's mode, its buffers, the gradients of its parameters and the random states of
    torch, NumPy and Python are afterwards what they were; plain attributes are not looked after.
    The first 12 tokens of the first 4 sentences are used; for leaks of the future all of them (:func:`leaks_future`).

    Args:
        model: takes tokens and returns a tensor (b, n, …), or a tuple, dict or object that has one, as Hugging Face's
            ``.logits``. With pads it takes a mask as well, as in :func:`reads_pads`.
        tokens: ids (b, n), or vectors (b, n, d); a few sentences that the model could meet.
        causal: whether no output may depend on a later token.
        pads: the side on which its batches have pads, for the checks that need some; None leaves them out.
        length: tokens of the longest text that it is to read; None leaves the check out.

    Returns:
        The findings that are true: an empty list if all is well.

    Raises:
        ValueError: there is only one sentence or token, or all tokens are the same.

    Example:
        >>> found = check_all(lambda X: X + X.sum(1, keepdim=True), torch.rand(2, 5, 3))
        changes_in_eval: no
        gives_nan: no
        mixes_sentences: no
        leaks_future: future is read
            Every output depends on every token: no mask or one that hides nothing, a first query without keys,
            a mask after the softmax, a softmax over queries, a norm over tokens, or layers of reshaped heads.
            read “Loss goes to zero and generated text is nonsense” in book/failure_gallery.ipynb
        not asked: the formula (check_attention), a cache (differs_step_by_step), labels (misses_the_next_token), …
            the list of checks: python -m attn_tutor.failures
        >>> [finding.cause for finding in found]
        ['future is read']
    """
    tokens, nan = uncut(tokens), partial(gives_nan, model)
    ids = not tokens.is_floating_point()
    if isinstance(model, nn.Module):
        half = {p.dtype for p in model.parameters()} & {torch.float16, torch.bfloat16}
        if half:
            nan, model = partial(nan_in_half, model), copy.deepcopy(model).float()
            tokens = tokens if ids else tokens.float()
    checks: list[Callable[..., Finding]] = [changes_in_eval, gives_nan, mixes_sentences]
    checks += [leaks_future] if causal else []
    checks += [loses_order] if ids else []
    calls = {check.__name__: partial(check, model, tokens) for check in checks}
    calls["gives_nan"] = partial(nan, tokens)
    checks.remove(gives_nan)
    if pads is not None:
        calls["gives_nan with pads"] = partial(nan, tokens, pads)
        calls["reads_pads"] = partial(reads_pads, model, tokens, pads, causal=causal)
        calls["misplaces_words"] = partial(misplaces_words, model, tokens, pads)
        for check in checks:
            either = partial(either_side, check, model, tokens, pads)
            calls[titled(check.__name__, pads)] = either
    if length is not None:
        check = partial(runs_out_of_positions, model, tokens, length)
        calls["runs_out_of_positions"] = check
    found = report(calls, partial(blame, model, tokens))
    print(NEEDS_MORE)
    return found


def nan_in_half(model: nn.Module, tokens: Tensor, pads: Side | None = None) -> Finding:
    """As the model is, in half precision; in float32 where this machine cannot."""
    dtype = next(p.dtype for p in model.parameters() if p.is_floating_point())
    X = tokens.to(dtype) if tokens.is_floating_point() else tokens
    try:
        return gives_nan(model, X, pads)
    except RuntimeError as error:
        if "not implemented for" not in str(error):
            raise
        return gives_nan(copy.deepcopy(model).float(), tokens, pads)


def either_side(
    check: Callable[..., Finding], model: Model, tokens: Any, pads: Side
) -> Finding:
    """A check with pads on the model's own side, and on the other, where an error, or lost order, is no bug."""
    found = check(model, tokens, pads)
    if found or check is loses_order:
        return found
    try:
        return check(model, tokens, "left" if pads == "right" else "right")
    except Exception:
        return found


def blame(model: Model, tokens: Any, error: Exception, check: str) -> Finding:
    """What an error of the model speaks of: an index past a table may be a token, or a position."""
    found = explain(error, check)
    if found.cause == "position past the table" and has_no_row(model, tokens):
        return replace(found, cause="token past the table")
    return found


def check_attention(
    attention: Attention,
    *,
    masked: bool = False,
    causal: bool = False,
    scale: float | None = None,
    heads: int | None = 4,
    kv_heads: int | None = None,
) -> list[Finding]:
    """Run the checks of a function of queries, keys and values; masks are tried only if ``masked``.

    Args:
        attention: takes Q, K, V, and a boolean mask (n, m) if ``masked``, True where a query may attend.
        masked: whether to hand over masks.
        causal: whether it is causal by itself. The last queries alone are then compared with all, too.
        scale: of the scores, if it is not 1/√d.
        heads: Q is (b, h, n, d); None makes it (b, n, d).
        kv_heads: heads of K and V, if fewer.

    Returns:
        The findings that are true: an empty list if all is well.

    Example:
        >>> found = check_attention(lambda Q, K, V: (Q @ K.mT).softmax(-1) @ V)
        differs_from_formula: no √d
            Its numbers are those of the formula with this mistake.
            read “Missing scale, no sqrt of d” in book/failure_gallery.ipynb
    """
    checks: list[Callable[..., Finding]] = [wrong_corner] if causal else []
    checks += [reads_hidden_keys, breaks_on_empty_row] if masked else []
    formula = partial(differs_from_formula, attention, masked=masked, causal=causal)
    calls: dict[str, Callable[[], Finding]] = {
        "differs_from_formula": partial(
            formula, scale=scale, heads=heads, kv_heads=kv_heads
        )
    }

    def shared(Q: Tensor, K: Tensor, V: Tensor, *mask: Tensor) -> Tensor:
        """With fewer heads of keys, and a mask that hides nothing if one is meant to be there."""
        K, V = (X if kv_heads is None else X[:, :kv_heads] for X in (K, V))
        every = torch.ones(Q.shape[-2], K.shape[-2], dtype=torch.bool)
        return attention(Q, K, V, *(mask or [every] * masked))

    for check in checks:
        calls[check.__name__] = partial(check, shared, heads=heads)
    return report(calls)
