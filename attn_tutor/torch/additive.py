"""The engine behind additive attention: tiles in which no tanh is left, so that no (n, m, h) tensor is ever stored.

tanh(a + b) = 1 − 2r with r = 1 / (1 + exp(2a) exp(2b)). The exponentials are taken once a query and once a key, and the
1 adds the same number to every score of a query, which softmax drops. A product, a sum and a quotient remain for each
query, key and feature. The gradient needs r alone too, dr/da = dr/db = −2 (r − r²), and computes it again.
"""

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from attn_tutor.torch.additive_compiled import compiled_pieces
from attn_tutor.torch.softmax import masked_softmax

# Tiles of one block of queries and one of keys; a GPU is only filled by larger ones.
QUERIES, KEYS = {"cpu": 32}, 512
# How many scores a compiled piece computes at once; it stores no tile of h × n × m.
SCORES = 2**20
# exp(2 · REACH) is finite and exp(−2 · REACH) not yet subnormal; tanh beyond ±FLAT is ±1 in this precision.
REACH = {torch.float32: 43.0, torch.float64: 350.0}
FLAT = {torch.float32: 10.0, torch.float64: 20.0}


class Problem(NamedTuple):
    """What is computed, with one batch axis; some of it may be seen, or kept by dropout."""

    a: torch.Tensor  # (B, n, h)
    b: torch.Tensor  # (B, m, h)
    w: torch.Tensor  # (B, 1, h)
    V: torch.Tensor  # (B, m, d_v)
    mask: torch.Tensor | None  # (B, n or 1, m)
    kept: torch.Tensor | None  # (B, n, m)
    dropout_p: float
    causal: bool
    compiled: bool


def pool(P: Problem) -> tuple[torch.Tensor, torch.Tensor]:
    """Weighted sums of the values, (B, n, d_v); and (B, n) numbers that only Triton's kernels keep for the gradient."""
    x, y, product = factors(P.a, P.b)
    output = P.V.new_empty(*P.a.shape[:-1], P.V.shape[-1])
    score, _ = pieces(product, P.compiled)
    for group, rows, keys, seen in blocks(P):
        A = masked_softmax(score(x[group, rows], y[group, keys], -2 * P.w[group]), seen)
        if P.kept is not None:
            A = A * P.kept[group, rows, keys] / (1 - P.dropout_p)
        output[group, rows] = A @ P.V[group, keys]
    return output, P.a.new_zeros(P.a.shape[:-1])


def pool_gradient(
    g: torch.Tensor, output: torch.Tensor, _: torch.Tensor, P: Problem
) -> tuple[torch.Tensor, ...]:
    """The gradients of a, b, w and V for the cotangent g of the output."""
    x, y, product = factors(P.a, P.b)
    da, db, dw, dV = (torch.zeros_like(X) for X in P[:4])
    score, gradient = pieces(product, P.compiled)
    along = (g * output).sum(-1, keepdim=True)
    for group, rows, keys, seen in blocks(P):
        q, k, gr = x[group, rows], y[group, keys], g[group, rows]
        A = masked_softmax(score(q, k, -2 * P.w[group]), seen)
        dropped, dA = A, gr @ P.V[group, keys].mT
        if P.kept is not None:
            grown = P.kept[group, rows, keys] / (1 - P.dropout_p)
            dropped, dA = A * grown, dA * grown
        dV[group, keys] += dropped.mT @ gr
        dS = dA.sub_(along[group, rows]).mul_(A)
        parts = gradient(q, k, dS)
        da[group, rows] += parts[0]
        db[group, keys] += parts[1]
        dw[group] += parts[2]
    return 4 * P.w * da, 4 * P.w * db, -2 * dw, dV


def factors(
    a: torch.Tensor, b: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, bool]:
    """exp(2a), exp(2b) and True, both shifted and cut so that they are finite; a, b and False where that cannot be.

    Added to a feature of all queries and taken from that of all keys, a shift changes no a + b. Let it bring the keys
    within REACH − FLAT of 0. Where a then lies beyond REACH, a + b lies beyond FLAT for every key, and still does
    when a is cut off at REACH: tanh is as flat as before. The same holds with queries and keys exchanged. So one of
    the two must fit in a window of width 2 (REACH − FLAT), in each feature; else only tanh itself is safe.
    """
    if not a.numel() or not b.numel():
        return a, b, False
    reach, flat = REACH[a.dtype], FLAT[a.dtype]
    (shift_a, a_fits), (shift_b, b_fits) = (window(X, reach - flat) for X in (a, b))
    if not (a_fits | b_fits).all():
        return a, b, False
    shift = torch.where(b_fits, shift_b, -shift_a)
    x, y = (a + shift).clamp(-reach, reach), (b - shift).clamp(-reach, reach)
    return torch.exp(2 * x), torch.exp(2 * y), True


def window(X: torch.Tensor, radius: float) -> tuple[torch.Tensor, torch.Tensor]:
    """What to take from each feature so that it lies within ±radius, 0 where it does already, and where that works."""
    low, high = X.flatten(0, 1).aminmax(dim=0)
    shift = torch.zeros_like(low).clamp(high - radius, low + radius)
    return shift, high - low <= 2 * radius


def blocks(
    P: Problem,
) -> Iterator[tuple[slice, slice, slice, torch.Tensor | None]]:
    """Elements of the batch, their queries, the keys between the first and last seen, and who sees which."""
    (B, n, h), m = P.a.shape, P.b.shape[1]
    R = QUERIES.get(P.a.device.type, 512)
    space = R * KEYS * max(1, h)
    if P.compiled:
        R, space = max(1, SCORES // max(1, m)), SCORES * max(1, h)
    together = max(1, space // max(1, n * m * h))
    for i in range(0, B, together):
        group = slice(i, i + together)
        for r in range(0, n, R):
            rows = slice(r, min(r + R, n))
            keys, seen = slice(m), None
            if P.causal:
                keys = slice(max(0, rows.stop + m - n))
                seen = P.a.new_ones(rows.stop - r, keys.stop, dtype=torch.bool)
                seen = seen.tril(r + m - n)
            elif P.mask is not None:
                seen = P.mask[group, rows] if P.mask.shape[1] > 1 else P.mask[group]
                some = seen.any(1).any(0).nonzero()[:, 0].tolist() or [-1]
                keys = slice(max(0, some[0]), some[-1] + 1)
                seen = seen[..., keys]
            yield group, rows, keys, seen


# The pieces that take the time: scores, and the gradient of their Σ dS · S. One block of queries, (g, R, h), and the
# keys, (g, m, h), give scores (g, R, m), short of one number for each query.


def pieces(product: bool, compiled: bool) -> tuple[Any, Any]:
    if product and compiled and (fast := compiled_pieces()):
        return fast
    return (
        functools.partial(tiled_scores, product=product),
        functools.partial(tiled_gradient, product=product),
    )


def tiles(
    x: torch.Tensor, y: torch.Tensor, product: bool
) -> Iterator[tuple[slice, torch.Tensor]]:
    """r, or r − 1/2 where tanh gives it, of some keys at a time: (g, h, R, keys), each in the space of the last."""
    (g, R, h), m = x.shape, y.shape[1]
    x, y = x.mT[..., None].contiguous(), y.mT[:, :, None].contiguous()
    space = x.new_empty(g * h * R * min(m, KEYS))
    # As a row, not as a number: torch's loops are faster so.
    one = x.new_ones(min(m, KEYS))
    for j in range(0, m, KEYS):
        keys = slice(j, min(j + KEYS, m))
        size = keys.stop - j
        tile = space[: g * h * R * size].view(g, h, R, size)
        if product:
            torch.addcmul(one[:size], x, y[..., keys], out=tile).reciprocal_()
        else:
            torch.add(x, y[..., keys], out=tile).tanh_().mul_(-0.5)
        yield keys, tile


def tiled_scores(
    x: torch.Tensor, y: torch.Tensor, w: torch.Tensor, product: bool
) -> torch.Tensor:
    S = x.new_empty(*x.shape[:-1], y.shape[1])
    for keys, r in tiles(x, y, product):
        S[..., keys] = (w @ r.flatten(2)).view(S[..., keys].shape)
    return S


def tiled_gradient(
    x: torch.Tensor, y: torch.Tensor, dS: torch.Tensor, product: bool
) -> tuple[torch.Tensor, ...]:
    """Σ dS (r − r²) over keys, the same over queries, and Σ dS r over both: (g, R, h), (g, m, h), (g, 1, h)."""
    da, db = torch.zeros_like(x), torch.zeros_like(y)
    dw = x.new_zeros(len(x), 1, x.shape[-1])
    for keys, r in tiles(x, y, product):
        part = dS[..., keys]
        dw += (r.flatten(2) @ part.flatten(1)[..., None]).mT
        if product:
            r.addcmul_(r, r, value=-1)
        else:  # r − r² = 1/4 − (r − 1/2)²
            r.square_().neg_().add_(0.25)
        r *= part[:, None]
        da += r.sum(3).mT
        db[:, keys] = r.sum(2).mT
    return da, db, dw
