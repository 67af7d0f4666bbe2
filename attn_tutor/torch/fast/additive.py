"""The engine behind additive attention: tiles in which no tanh is left, so that no (n, m, h) tensor is ever stored.

tanh(a + b) = 1 − 2r with r = 1 / (1 + exp(2a) exp(2b)). The exponentials are taken once a query and once a key, and the
1 adds the same number to every score of a query, which softmax drops. A product, a sum and a quotient remain for each
query, key and feature. The gradient needs r alone too, dr/da = dr/db = −2 (r − r²), and computes it again.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from attn_tutor.torch.additive_compiled import compiled_pieces
from attn_tutor.torch.softmax import masked_softmax

# Numbers in a tile of queries × features × keys, and queries in it where keys are many; a GPU needs larger ones.
ROOM, QUERIES = {"cpu": 2**20}, 32
# How many scores a compiled piece computes at once; it stores no such tile.
SCORES = 2**20
# How many weights are kept for the gradient; more are computed again.
STORED = 2**22
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
    graded: bool  # a gradient may follow


def stored_width(P: Problem) -> int:
    """How many numbers of each query are kept for the gradient: all its weights, or none."""
    (B, n, _), m = P.a.shape, P.b.shape[1]
    return m if P.graded and B * n * m <= STORED else 0


def pool(P: Problem) -> tuple[torch.Tensor, torch.Tensor]:
    """Weighted sums of the values, (B, n, d_v), and what is kept for the gradient, (B, n, m or 0)."""
    most, x, y, score, _ = pieces(P)
    w = -2 * P.w
    output = P.V.new_empty(*P.a.shape[:-1], P.V.shape[-1])
    weights = P.a.new_empty(*P.a.shape[:-1], stored_width(P))
    for group, rows, keys, seen in blocks(P, most):
        A = softmax_of(score(x[group, rows], y[group, keys], w[group]), seen)
        if A.shape == weights.shape:
            weights = A
        elif weights.shape[-1]:
            weights[group, rows, keys] = A
        if P.kept is not None:
            A = A * P.kept[group, rows, keys] / (1 - P.dropout_p)
        output[group, rows] = A @ P.V[group, keys]
    return output, weights


def pool_gradient(
    g: torch.Tensor, output: torch.Tensor, weights: torch.Tensor, P: Problem
) -> tuple[torch.Tensor, ...]:
    """The gradients of a, b, w and V for the cotangent g of the output."""
    most, x, y, score, gradient = pieces(P)
    w = -2 * P.w
    da, db, dw, dV = (torch.zeros_like(X) for X in (x, y, w, P.V))
    along = (g * output).sum(-1, keepdim=True)
    for group, rows, keys, seen in blocks(P, most):
        q, k, gr = x[group, rows], y[group, keys], g[group, rows]
        A = weights[group, rows, keys]
        if not A.numel():
            A = softmax_of(score(q, k, w[group]), seen)
        dropped, dA = A, gr @ P.V[group, keys].mT
        if P.kept is not None:
            grown = P.kept[group, rows, keys] / (1 - P.dropout_p)
            dropped, dA = A * grown, dA * grown
        dV[group, keys].baddbmm_(dropped.mT, gr)
        dS = dA.sub_(along[group, rows]).mul_(A)
        da[group, rows], db_more, dw_more = gradient(q, k, dS)
        db[group, keys] += db_more
        dw[group] += dw_more
    return -2 * w * da, -2 * w * db, -2 * dw, dV


def softmax_of(S: torch.Tensor, seen: torch.Tensor | None) -> torch.Tensor:
    """Weights, in the place of the scores where it can be: to get new memory takes longer than to fill it."""
    return torch.softmax(S, -1, out=S) if seen is None else masked_softmax(S, seen)


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
    low, high = X.amin((0, 1)), X.amax((0, 1))
    shift = torch.zeros_like(low).clamp(high - radius, low + radius)
    return shift, high - low <= 2 * radius


def blocks(
    P: Problem, most: int
) -> Iterator[tuple[slice, slice, slice, torch.Tensor | None]]:
    """Elements of the batch, their queries, the keys between the first and last seen, and who sees which."""
    (B, n, _), m = P.a.shape, P.b.shape[1]
    together = max(1, most // max(1, n))
    for i in range(0, B, together):
        group = slice(i, i + together)
        for r in range(0, n, most):
            rows = slice(r, min(r + most, n))
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


# The pieces that take the time: scores, and then the gradient of their Σ dS · S. One block of queries, (g, R, h), and
# their keys, (g, m, h), give scores (g, R, m), short of one number for each query.


def pieces(P: Problem) -> tuple[int, torch.Tensor, torch.Tensor, Any, Any]:
    """How many queries a block has, what stands for queries and keys, and the two functions of blocks of them."""
    x, y, product = factors(P.a, P.b)
    _, m, h = P.b.shape
    if product and P.compiled and (fast := compiled_pieces()):
        return max(1, SCORES // max(1, m)), x, y, *fast
    tile = Tile(P, product)
    return tile.most, x, y.mT.contiguous().mT, tile.scores, tile.gradient


class Tile:
    """r of a block and some keys, or r − 1/2 where tanh gives it, for every feature: (g, R, h, keys). All tiles take
    the same space, since the system is slow to hand out new pages.

    Threads share all steps by queries. A step shared otherwise would send the tile from core to core, which takes up
    to ten times as long as the step.
    """

    def __init__(self, P: Problem, product: bool) -> None:
        (B, n, h), m = P.a.shape, P.b.shape[1]
        self.product = product
        room = ROOM.get(P.a.device.type, 2**24) // max(1, h)
        # Few keys leave room for more queries, and many are cut.
        self.most = max(QUERIES, room // max(1, m))
        self.keys = max(1, room // self.most)
        size = min(B * n, self.most) * h * min(self.keys, m)
        self.spaces = P.a.new_empty(2, size)
        # As a row, not as a number: torch's loops are faster so.
        self.one = P.a.new_ones(min(self.keys, m))
        self.filled = False  # with r of the last block and all its keys

    def cut(
        self, x: torch.Tensor, y: torch.Tensor
    ) -> Iterator[tuple[slice, torch.Tensor, torch.Tensor]]:
        """Keys, and space for their r and for as many numbers more."""
        m = y.shape[1]
        for j in range(0, m, self.keys):
            keys = slice(j, min(j + self.keys, m))
            shape = *x.shape, keys.stop - j
            r, q = (space[: math.prod(shape)].view(shape) for space in self.spaces)
            yield keys, r, q

    def fill(self, r: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x, y = x[..., None], y.mT[:, None]
        if self.product:
            one = self.one[: r.shape[-1]]
            return torch.addcmul(one, x, y, out=r).reciprocal_()
        return torch.add(x, y, out=r).tanh_().mul_(-0.5)

    def scores(self, x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        S = x.new_empty(*x.shape[:-1], y.shape[1])
        for keys, r, _ in self.cut(x, y):
            S[..., keys] = (w[:, None] @ self.fill(r, x, y[:, keys]))[:, :, 0]
        self.filled = y.shape[1] <= self.keys
        return S

    def gradient(
        self, x: torch.Tensor, y: torch.Tensor, dS: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """Σ dS (r − r²) over keys, the same over queries, and Σ dS r over both: (g, R, h), (g, m, h), (g, 1, h)."""
        da, db = torch.zeros_like(x), torch.empty_like(y)
        dw = x.new_zeros(len(x), 1, x.shape[-1])
        for keys, r, q in self.cut(x, y):
            if not self.filled:
                self.fill(r, x, y[:, keys])
            part = dS[:, :, None, keys]
            torch.mul(part, r, out=q)
            dw += q.sum(3).sum(1, keepdim=True)
            # r − r² = 1/4 − (r − 1/2)²
            torch.addcmul(q if self.product else part / 4, q, r, value=-1, out=q)
            da += q.sum(3)
            threads = math.gcd(x.shape[1], torch.get_num_threads())
            split = q.view(len(q), threads, -1, *q.shape[2:])
            db[:, keys] = split.sum(2).sum(1).mT
        return da, db, dw
