"""Rules of who sees whom, alone and in pairs: ours beside SDPA with a matrix and FlexAttention.

Each rule is said three times: for our functions, as FlexAttention's test of two indices, and as what it adds to scores.
"""

import warnings
from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from itertools import combinations
from typing import Any, NamedTuple

import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa

from attn_tutor.bench.case import HEADS, WIDTH, Case, Contestants
from attn_tutor.bench.case import Contestant as Who
from attn_tutor.bench.limits import products

DOCUMENT, SINKS, SPAN = 1000, 4, 256


class Said(NamedTuple):
    """A rule in a case of so many tokens."""

    ours: dict[str, Any]  # arguments of attention
    seen: Callable[[Any, Any], Any] | None = None  # of query i and key j
    score: Callable[[Any, Any, Any, Any], Any] | None = None  # of score, head, i and j


def causal(i: Any, j: Any) -> Any:
    return j <= i


def rules(case: Case) -> dict[str, Callable[[], Said]]:
    lib, give, n = case.lib, case.give, case.n
    on: Any = {"device": case.device}
    eighth = max(1, n // 8)
    ids, lambdas = (
        torch.arange(n, **on) // DOCUMENT,
        0.5 ** torch.arange(1, HEADS + 1, **on),
    )
    row, waves = torch.arange(n, **on) % 7 > 0, torch.sin(torch.arange(n, **on) * 1.0)

    def window(i: Any, j: Any) -> Any:
        return (j <= i) & (j > i - SPAN)

    def number(x: int) -> Any:
        return give(torch.tensor(x, **on))

    return {
        "causal": lambda: Said({"causal": True}, causal),
        "window": lambda: Said({"causal": True, "window": SPAN}, window),
        "sinks": lambda: Said(
            {"causal": True, "window": lib.Window(SPAN, SINKS)},
            lambda i, j: window(i, j) | (j < SINKS) & (j <= i),
        ),
        "documents": lambda: Said(
            {"mask": lib.documents(give(ids))}, lambda i, j: ids[i] == ids[j]
        ),
        "valid": lambda: Said(
            {"mask": lib.valid(number(n - eighth))}, lambda i, j: j < n - eighth
        ),
        "prefix": lambda: Said(
            {"mask": lib.prefix(number(eighth))},
            lambda i, j: (j <= i) | (j < eighth),
        ),
        "alibi": lambda: Said(
            {"bias": lib.alibi(give(lambdas)), "causal": True},
            causal,
            lambda s, h, i, j: s - lambdas[h] * abs(i - j),
        ),
        "row-mask": lambda: Said({"mask": give(row)}, lambda i, j: row[j]),
        "row-bias": lambda: Said(
            {"bias": give(waves)}, None, lambda s, h, i, j: s + waves[j]
        ),
    }


NAMES = [*rules(Case("causal", "torch", 8))]
# Pairs that are left out: two are one argument, or each says what the other does.
NEVER = [{"alibi", "row-bias"}, {"window", "sinks"}]
NEVER += [{"prefix", other} for other in ("causal", "window", "sinks")]
PAIRS = [pair for pair in combinations(NAMES, 2) if {*pair} not in NEVER]


def as_rule(lib: Any, mask: Any) -> Any:
    """A row of booleans, one for each key, as a rule, which combines with others."""
    return mask if isinstance(mask, lib.Rule) else lib.Rule(lambda i, j: mask[j])


def attention(case: Case, names: tuple[str, ...]) -> Contestants:
    """Under all of these rules together."""
    lib, n = case.lib, case.n
    Q, K, V = (case.draw(1, HEADS, n, WIDTH) for _ in range(3))
    q, k, v = map(torch.as_tensor, (Q, K, V))
    said = [rules(case)[name]() for name in sorted(names, key=NAMES.index)]
    ours: dict[str, Any] = {}
    for one in said:
        for key, value in one.ours.items():
            if key == "mask" and key in ours:
                value = as_rule(lib, ours[key]) & as_rule(lib, value)
            ours[key] = value
    seen = [one.seen for one in said if one.seen]
    if "prefix" in names:  # which takes the place of causality
        ours.pop("causal", None)
        seen = [test for test in seen if test is not causal]
    scores = [one.score for one in said if one.score]

    def sees(b: Any, h: Any, i: Any, j: Any) -> Any:
        found = i >= 0
        for test in seen:
            found = found & test(i, j)
        return found

    def scored(score: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        for change in scores:
            score = change(score, h, i, j)
        return score

    i, j = torch.arange(n, device=case.device)[:, None], torch.arange(n, device=case.device)  # fmt: skip
    heads = torch.arange(HEADS, device=case.device)[:, None, None]

    @cache
    def matrices() -> tuple[torch.Tensor, torch.Tensor]:
        mask = sees(0, heads, i, j).expand(n, n)
        zeros = torch.zeros((), dtype=q.dtype, device=case.device)
        added = scored(zeros, 0, heads, i, j).expand(HEADS, n, n)
        return mask, added.masked_fill(~mask, -torch.inf)

    def textbook() -> Any:
        mask, _ = matrices()
        S = scored(torch.as_tensor(lib.scaled_dot_score(Q, K)), 0, heads, i, j)
        return lib.attend(S if case.half == "torch" else case.give(S), V, case.give(mask))  # fmt: skip

    def with_matrix() -> torch.Tensor:
        mask, added = matrices()
        return sdpa(q, k, v, added if "bias" in ours else mask)

    def flex(compiled: bool) -> torch.Tensor:
        with warnings.catch_warnings(action="ignore"):  # not compiled, it warns
            found: torch.Tensor = flexible(compiled)(q, k, v)
        return found

    @cache
    def flexible(compiled: bool) -> Any:
        module = import_module("torch.nn.attention.flex_attention")
        block = module.create_block_mask(sees, None, None, n, n, case.device)
        pool = torch.compile(module.flex_attention) if compiled else module.flex_attention  # fmt: skip
        return partial(pool, score_mod=scored if scores else None, block_mask=block)

    square = 4 * HEADS * n * n
    yield Who("ours", "attention", lambda: lib.attention(Q, K, V, **ours))
    yield Who("textbook", "attend(scaled_dot_score(…))", textbook, square)
    yield Who("peer", "torch SDPA with a matrix", with_matrix, square)
    trains = case.device != "cpu" or not case.backward  # FlexAttention, that is
    if trains:
        yield Who("peer", "FlexAttention", partial(flex, False), square)
    if trains and case.compiled:
        yield Who("peer", "FlexAttention, compiled", partial(flex, True))
    count = n * n
    if seen:  # row by row: all at once would be a matrix
        count = sum(int(sees(0, 0, row, j).sum()) for row in i)
    yield products(case, count)
