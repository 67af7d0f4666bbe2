"""The kinds of attention, each beside its textbook line, what else one might call, and its limit."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention as sdpa

from attn_tutor.bench.case import Case
from attn_tutor.bench.contestants import (
    HEADS,
    HIDDEN,
    MODEL,
    WIDTH,
    Contestant,
    made,
    peer,
    traffic,
)
from attn_tutor.bench.limits import Call, products, reciprocals


def attention(case: Case, causal: bool = False) -> Iterator[Contestant]:
    lib, n = case.lib, case.n
    Q, K, V = (case.draw(HEADS, n, WIDTH) for _ in range(3))
    mask = case.lib.causal_mask(n, n)
    mask = (mask.to(case.device) if case.half == "torch" else mask) if causal else None
    q, k, v = (case.tensor(1, HEADS, n, WIDTH) for _ in range(3))
    yield Contestant("ours", "attention", lambda: lib.attention(Q, K, V, causal=causal))
    yield Contestant(
        "textbook",
        "attend(scaled_dot_score(…))",
        lambda: lib.attend(lib.scaled_dot_score(Q, K), V, mask),
        4 * HEADS * n * n,
    )
    yield Contestant("peer", "torch SDPA", lambda: sdpa(q, k, v, is_causal=causal))
    if case.compiled and (flex := peer("FlexAttention")):

        def compiled() -> Call:
            fast, seen = torch.compile(flex.flex_attention), None
            if causal:
                seen = flex.create_block_mask(
                    lambda b, h, i, j: i >= j, None, None, n, n, device=case.device
                )
            return lambda: fast(q, k, v, block_mask=seen)

        yield Contestant("peer", "FlexAttention", made(compiled))
    if x := peer("x-transformers"):

        def flash() -> Call:
            attend = x.attend.Attend(causal=causal, flash=True)
            return lambda: attend(q, k, v)[0]

        yield Contestant("peer", "x-transformers", made(flash))
    if keras := peer("keras"):
        swapped = [X.swapaxes(1, 2) for X in (q, k, v)]
        yield Contestant(
            "peer",
            "keras",
            lambda: keras.ops.dot_product_attention(*swapped, is_causal=causal),
        )
    if (d2l := peer("d2l")) and not causal:

        def old() -> Call:
            layer = d2l.DotProductAttention(0.0)
            return lambda: layer(q[0], k[0], v[0])

        yield Contestant("peer", "d2l", made(old), 4 * HEADS * n * n)
    alone = products(case, HEADS, WIDTH, causal)
    yield Contestant("limit", "its multiply-adds alone", alone)
    if case.device == "cuda":
        yield from traffic(case, 4 * HEADS * n * WIDTH)


def causal_attention(case: Case) -> Iterator[Contestant]:
    return attention(case, causal=True)


def gaussian(case: Case) -> Iterator[Contestant]:
    lib, n = case.lib, case.n
    Q, K, V = (case.draw(HEADS, n, WIDTH) for _ in range(3))
    q, k, v = (case.tensor(1, HEADS, n, WIDTH) for _ in range(3))
    wide = WIDTH**0.25  # as bandwidth: scores of order 1 from keys √d apart
    yield Contestant(
        "ours",
        "gaussian_attention",
        lambda: lib.gaussian_attention(Q, K, V, bandwidth=wide),
    )
    yield Contestant(
        "textbook",
        "attend(gaussian_score(…))",
        lambda: lib.attend(lib.gaussian_score(Q, K, wide), V),
        2 * HEADS * n * n * WIDTH,
    )
    yield Contestant(
        "peer",
        "torch cdist and softmax",
        lambda: (torch.cdist(q, k).square() / (-2 * wide**2)).softmax(-1) @ v,
        4 * HEADS * n * n,
    )
    yield Contestant("peer", "torch SDPA, another score", lambda: sdpa(q, k, v))
    yield Contestant("limit", "its multiply-adds alone", products(case, HEADS, WIDTH))


def bilinear(case: Case) -> Iterator[Contestant]:
    lib, n = case.lib, case.n
    Q, K, V = (case.draw(HEADS, n, WIDTH) for _ in range(3))
    M, m = case.draw(WIDTH, WIDTH) / WIDTH, case.tensor(WIDTH, WIDTH) / WIDTH
    if case.backward:
        M, m = M.detach().requires_grad_(), m.detach().requires_grad_()
    q, k, v = (case.tensor(1, HEADS, n, WIDTH) for _ in range(3))
    yield Contestant(
        "ours", "bilinear_attention", lambda: lib.bilinear_attention(Q, K, V, M)
    )
    yield Contestant(
        "textbook",
        "attend(bilinear_score(…))",
        lambda: lib.attend(lib.bilinear_score(Q, K, M), V),
        4 * HEADS * n * n,
    )
    yield Contestant("peer", "torch SDPA of QM", lambda: sdpa(q @ m, k, v, scale=1.0))
    yield Contestant("limit", "its multiply-adds alone", products(case, HEADS, WIDTH))


def multi_head(case: Case) -> Iterator[Contestant]:
    """Self-attention with its four projections."""
    lib, n = case.lib, case.n
    X, x = case.draw(n, MODEL), case.tensor(1, n, MODEL)
    layer = nn.MultiheadAttention(MODEL, HEADS, batch_first=True).to(x)
    if case.half == "torch":
        mine = lib.MultiHeadAttention.from_torch(layer)
        weights = tuple(proj.weight.mT for proj in mine.children())
        yield Contestant("ours", "MultiHeadAttention", lambda: mine(X))
    else:
        weights = tuple(case.draw(MODEL, MODEL) / MODEL**0.5 for _ in range(4))
        yield Contestant(
            "ours",
            "multi_head_attention",
            lambda: lib.multi_head_attention(X, X, X, *weights, HEADS),
        )

    def textbook() -> Any:
        Q, K, V = (lib.split_heads(X @ W, HEADS) for W in weights[:3])
        return lib.merge_heads(lib.attend(lib.scaled_dot_score(Q, K), V)) @ (weights[3])

    yield Contestant(
        "textbook", "head by head with attend", textbook, 4 * HEADS * n * n
    )
    yield Contestant(
        "peer",
        "nn.MultiheadAttention",
        lambda: layer(x, x, x, need_weights=False)[0],
    )
    if other := peer("x-transformers"):

        def flash() -> Call:
            fast = other.Attention(MODEL, heads=HEADS, dim_head=WIDTH, flash=True).to(x)
            return lambda: fast(x)

        yield Contestant("peer", "x-transformers", made(flash))
    if keras := peer("keras"):

        def functional() -> Call:
            built = keras.layers.MultiHeadAttention(HEADS, WIDTH, dtype=case.dtype)
            return lambda: built(x, x)

        yield Contestant("peer", "keras", made(functional))
    if d2l := peer("d2l"):

        def old() -> Call:
            lazy = d2l.MultiHeadAttention(MODEL, HEADS, 0.0)
            lazy(*[torch.zeros(1, 1, MODEL)] * 3, None)  # its layers take their widths
            ready = lazy.to(x)
            return lambda: ready(x, x, x, None)

        yield Contestant("peer", "d2l", made(old), 4 * HEADS * n * n)
    yield Contestant(
        "limit",
        "its multiply-adds alone",
        products(case, HEADS, WIDTH, projections=4),
    )


def additive(case: Case) -> Iterator[Contestant]:
    lib, n = case.lib, case.n
    Q, K, V = (case.draw(n, WIDTH) for _ in range(3))
    w = [case.draw(WIDTH, HIDDEN), case.draw(WIDTH, HIDDEN), case.draw(HIDDEN)]
    W_q, W_k, w_v = (x / 8 for x in w)
    if case.backward:
        W_q, W_k, w_v = (x.detach().requires_grad_() for x in (W_q, W_k, w_v))
    cube = 2 * n * n * HIDDEN * (2 if case.backward else 1)
    yield Contestant(
        "ours",
        "additive_attention",
        lambda: lib.additive_attention(Q, K, V, W_q, W_k, w_v),
    )
    if case.compiled and case.half == "torch":
        fast = torch.compile(lib.additive_attention)
        yield Contestant(
            "ours", "additive_attention, compiled", lambda: fast(Q, K, V, W_q, W_k, w_v)
        )
    yield Contestant(
        "textbook",
        "attend(additive_score(…))",
        lambda: lib.attend(lib.additive_score(Q, K, W_q, W_k, w_v), V),
        cube,
    )
    if d2l := peer("d2l"):
        q, k, v = (case.tensor(1, n, WIDTH) for _ in range(3))

        def old() -> Call:
            lazy = d2l.AdditiveAttention(HIDDEN, 0.0)
            lazy(*[torch.zeros(1, 1, WIDTH)] * 3, None)  # its layers take their widths
            ready = lazy.to(q)
            return lambda: ready(q, k, v, None)

        yield Contestant("peer", "d2l", made(old), cube)
    yield Contestant(
        "limit", "its reciprocals alone", reciprocals(case, n * n * HIDDEN)
    )
