"""The kinds of attention, each beside its textbook line, what else one might call, and its limit.

What has to be built or imported first is, at the first call; a package that is not there is left out then.
"""

from functools import cache
from importlib import import_module
from typing import Any

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention as sdpa

from attn_tutor.bench.case import HEADS, HIDDEN, MODEL, WIDTH, Case, Contestants
from attn_tutor.bench.case import Contestant as Who
from attn_tutor.bench.limits import products, reciprocals, traffic


def attention(
    case: Case, causal: bool = False, window: int | None = None, biased: bool = False
) -> Contestants:
    lib, n = case.lib, case.n
    Q, K, V = (case.draw(1, HEADS, n, WIDTH) for _ in range(3))
    q, k, v = map(torch.as_tensor, (Q, K, V))
    width = min(window or n, n)
    seen = bias = mask = B = None
    if causal:
        ones = torch.ones(n, n, dtype=torch.bool, device=case.device)
        seen = ones.tril().triu(1 - width)
        mask = case.give(seen)
    if biased:
        bias = torch.as_tensor(lib.alibi_bias(HEADS, n)).to(q)
        B = case.give(bias)
    ours = {"causal": causal, "window": window, "bias": B}
    yield Who("ours", "attention", lambda: lib.attention(Q, K, V, **ours))

    def textbook() -> Any:
        scores = lib.scaled_dot_score(Q, K)
        return lib.attend(scores if B is None else scores + B, V, mask)

    yield Who("textbook", "attend(scaled_dot_score(…))", textbook, 4 * HEADS * n * n)
    plain = window is None and not biased
    given = {"is_causal": causal} if plain else {"attn_mask": bias if biased else seen}
    yield Who("peer", "torch SDPA", lambda: sdpa(q, k, v, **given))
    if case.compiled:
        flex = cache(lambda: flex_attention(case, width if causal else None, bias))
        yield Who("peer", "FlexAttention", lambda: flex()(q, k, v))
    if plain:
        x = cache(lambda: import_module("x_transformers.attend").Attend)
        flash = cache(lambda: x()(causal=causal, flash=True))
        yield Who("peer", "x-transformers", lambda: flash()(q, k, v)[0])
        keras = cache(lambda: import_module("keras").ops.dot_product_attention)
        swapped = [X.swapaxes(1, 2) for X in (q, k, v)]
        yield Who("peer", "keras", lambda: keras()(*swapped, is_causal=causal))
    yield products(case, n * width - causal * width * (width - 1) // 2)
    if case.device == "cuda":
        yield traffic(case, 4 * HEADS * n * WIDTH)


def flex_attention(case: Case, width: int | None, bias: torch.Tensor | None) -> Any:
    """With a causal window so wide, or with a bias."""
    flex, n = import_module("torch.nn.attention.flex_attention"), case.n
    options: dict[str, Any] = {}
    if width is not None:
        options["block_mask"] = flex.create_block_mask(
            lambda b, h, i, j: (i >= j) & (i - j < width), None, None, n, n, case.device
        )
    if bias is not None:
        options["score_mod"] = lambda score, b, h, i, j: score + bias[h, i, j]
    compiled = torch.compile(flex.flex_attention)
    return lambda q, k, v: compiled(q, k, v, **options)


def gaussian(case: Case) -> Contestants:
    lib, n = case.lib, case.n
    Q, K, V = (case.draw(1, HEADS, n, WIDTH) for _ in range(3))
    q, k, v = map(torch.as_tensor, (Q, K, V))
    wide = WIDTH**0.25  # as bandwidth: scores of order 1 from keys √d apart

    def textbook() -> Any:
        return lib.attend(lib.gaussian_score(Q, K, wide), V)

    def distances() -> torch.Tensor:
        return (torch.cdist(q, k).square() / (-2 * wide**2)).softmax(-1) @ v

    fast = lib.gaussian_attention
    yield Who("ours", "gaussian_attention", lambda: fast(Q, K, V, bandwidth=wide))
    cube = 2 * HEADS * n * n * WIDTH
    yield Who("textbook", "attend(gaussian_score(…))", textbook, cube)
    yield Who("peer", "torch cdist and softmax", distances, 4 * HEADS * n * n)
    yield Who("peer", "torch SDPA, another score", lambda: sdpa(q, k, v))
    yield products(case, n * n)


def bilinear(case: Case) -> Contestants:
    lib, n = case.lib, case.n
    Q, K, V = (case.draw(1, HEADS, n, WIDTH) for _ in range(3))
    M = case.draw(WIDTH, WIDTH, scale=1 / WIDTH)
    q, k, v, m = map(torch.as_tensor, (Q, K, V, M))

    def textbook() -> Any:
        return lib.attend(lib.bilinear_score(Q, K, M), V)

    fast = lib.bilinear_attention
    yield Who("ours", "bilinear_attention", lambda: fast(Q, K, V, M))
    yield Who("textbook", "attend(bilinear_score(…))", textbook, 4 * HEADS * n * n)
    yield Who("peer", "torch SDPA of QM", lambda: sdpa(q @ m, k, v, scale=1.0))
    yield products(case, n * n)


def multi_head(case: Case) -> Contestants:
    """Self-attention with its four projections."""
    lib, n = case.lib, case.n
    X = case.draw(1, n, MODEL)
    x = torch.as_tensor(X)
    layer = nn.MultiheadAttention(MODEL, HEADS, batch_first=True).to(x)
    theirs = (*layer.in_proj_weight.chunk(3), layer.out_proj.weight)
    W = [case.give(w.detach().T.contiguous()) for w in theirs]
    if case.half == "torch":
        W = [w.requires_grad_(case.backward) for w in W]
        mine = lib.MultiHeadAttention.from_torch(layer)
        yield Who("ours", "MultiHeadAttention", lambda: mine(X))
    else:
        fast = lib.multi_head_attention
        yield Who("ours", "multi_head_attention", lambda: fast(X, X, X, *W, HEADS))

    def textbook() -> Any:
        Q, K, V = (lib.split_heads(X @ w, HEADS) for w in W[:3])
        return lib.merge_heads(lib.attend(lib.scaled_dot_score(Q, K), V)) @ W[3]

    name = "nn.MultiheadAttention"
    yield Who("textbook", "heads with attend", textbook, 4 * HEADS * n * n)
    yield Who("peer", name, lambda: layer(x, x, x, need_weights=False)[0])
    other = cache(lambda: import_module("x_transformers").Attention)
    shape = {"heads": HEADS, "dim_head": WIDTH, "flash": True}
    flash = cache(lambda: other()(MODEL, **shape).to(x))
    yield Who("peer", "x-transformers", lambda: flash()(x))
    keras = cache(lambda: import_module("keras").layers.MultiHeadAttention)
    built = cache(lambda: keras()(HEADS, WIDTH, dtype=case.dtype))
    yield Who("peer", "keras", lambda: built()(x, x))
    yield products(case, n * n, projections=4)


def additive(case: Case) -> Contestants:
    lib, n = case.lib, case.n
    Q, K, V = (case.draw(1, n, WIDTH) for _ in range(3))
    W = [
        case.draw(*shape, scale=1 / 8) for shape in [(WIDTH, HIDDEN)] * 2 + [(HIDDEN,)]
    ]
    cube = (4 if case.backward else 2) * n * n * HIDDEN

    def textbook() -> Any:
        return lib.attend(lib.additive_score(Q, K, *W), V)

    ours = lib.additive_attention
    yield Who("ours", "additive_attention", lambda: ours(Q, K, V, *W))
    yield Who("textbook", "attend(additive_score(…))", textbook, cube)
    q, k, v = map(torch.as_tensor, (Q, K, V))
    d2l = cache(lambda: import_module("d2l.torch").AdditiveAttention)
    lazy = cache(lambda: d2l()(HIDDEN, 0.0).to(q))
    yield Who("peer", "d2l", lambda: lazy()(q, k, v, None), cube)
    yield reciprocals(case, n * n * HIDDEN)
