"""Attention in plain torch operations: softmax over tiles of keys, so that no (n, m) matrix is ever stored.

A row of weights needs the sum over all its keys, but that sum can be kept while it grows: the online softmax of
Milakov & Gimelshein (2018). Rabe & Staats (2021) and Dao et al. (2022) build attention on it, and its gradient.
The public functions call torch's fused kernel, which does the same in compiled code; here it can be read.
"""

import itertools
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from attn_tutor.torch.scoring import default_scale

Place = tuple[int | slice, ...]  # an index for each axis

# A tile of 2¹⁹ scores keeps torch's threads busy and stays in a processor's cache: 512 queries and 128 keys of eight
# heads, or more queries of fewer heads. Narrow ones waste little on the diagonal of a causal mask.
SCORES, QUERIES, KEYS = 2**19, 512, 128
# Scores of at most this size need no maximum: 2^score keeps all its digits, and no sum of it overflows.
HARMLESS = {torch.float32: 60.0, torch.float64: 500.0}


def tiled_attention(
    Q: torch.Tensor,
    K: torch.Tensor,
    V: torch.Tensor,
    mask: torch.Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> torch.Tensor:
    """The number of ``attend(scaled_dot_score(Q, K, scale), V, mask)``, a tile at a time.

    Arguments as :func:`attention`, but what is hidden must already be finite.
    """
    n, m, d_v = Q.shape[-2], K.shape[-2], V.shape[-1]
    dtype = V.dtype
    wide = torch.promote_types(dtype, torch.float32)  # sums in float16 are poor
    # exp(s) = 2^(s · log₂ e), and torch computes powers of 2 three times as fast as those of e.
    factor = default_scale(Q.shape[-1]) if scale is None else scale
    Q, K, V = Q.to(wide) * factor * math.log2(math.e), K.to(wide), V.to(wide)
    arrays = [X for X in (Q, K, V, mask) if X is not None]
    outer = torch.broadcast_shapes(*(X.shape[:-2] for X in arrays))
    batch = outer or (1,)
    if mask is not None:
        mask = mask.expand(*batch, n, m)
    # Views, not copies; autograd adds up the gradients of what they repeat.
    Q, K, V = (X.expand(*batch, *X.shape[-2:]) for X in (Q, K, V))
    return Tiled.apply(Q, K, V, mask, causal).reshape(*outer, n, d_v).to(dtype)


class Tiled(torch.autograd.Function):
    """Attention for scores Q Kᵀ in powers of 2; its gradient computes the weights again instead of storing them."""

    @staticmethod
    def forward(
        ctx: Any,
        Q: torch.Tensor,
        K: torch.Tensor,
        V: torch.Tensor,
        mask: torch.Tensor | None,
        causal: bool,
    ) -> torch.Tensor:
        output = Q.new_empty(*Q.shape[:-1], V.shape[-1])
        level = Q.new_empty(*Q.shape[:-1], 1)
        space = Q.new_empty(SCORES)
        # |q · k| ≤ ‖q‖ ‖k‖ settles for most inputs that no score is large. NaN is not harmless.
        harmless = bool(longest(Q) * longest(K) <= HARMLESS[Q.dtype])
        for heads, block in blocks(Q, K.shape[-2]):
            whole = (*heads, block)
            # What is kept of the keys so far, for each query: Σ 2^(score − top) and Σ 2^(score − top) · value. Where
            # scores could do harm, top is the largest so far; the lowest number, unlike −∞, can be taken from −∞.
            lowest = 0 if harmless else torch.finfo(Q.dtype).min
            top = torch.full_like(level[whole], lowest)
            total, pooled = torch.zeros_like(top), torch.zeros_like(output[whole])
            for rows, keys, seen in tiles(Q, K, heads, block, mask, causal):
                q, k, v = Q[rows], K[keys], V[keys]
                # Some of the last queries, as those before see none of these keys.
                t, s, p = (X[:, -q.shape[1] :] for X in (top, total, pooled))
                shape = (*q.shape[:2], k.shape[1])
                scores = space[: math.prod(shape)].view(shape)
                torch.bmm(q, k.mT, out=scores)
                if seen is not None:
                    scores += seen.log()  # 0 or −∞; filling takes ten times as long
                if not harmless:
                    highest = torch.maximum(t, scores.amax(-1, keepdim=True))
                    # What was summed under the old top, seen from the new one.
                    shrink = (t - highest).exp2_()
                    s *= shrink
                    p *= shrink
                    t.copy_(highest)
                    scores -= highest
                weights = scores.exp2_()
                s += weights.sum(-1, keepdim=True)
                p.baddbmm_(weights, v)
            # The weights of a query are 2^(score − level); none are left of one that sees nothing.
            empty = total == 0
            level[whole] = (top + total.log2()).masked_fill_(empty, torch.inf)
            output[whole] = pooled.div_(total.masked_fill_(empty, 1))
        ctx.save_for_backward(Q, K, V, mask, output, level)
        ctx.causal = causal
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dO: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        r"""With :math:`S = QK^\top`, :math:`A = \operatorname{softmax}(S)`, :math:`O = AV`, a tile at a time:

        .. math:: dV = A^\top dO, \quad dA = dO\, V^\top, \quad dQ = dS\, K, \quad dK = dS^\top Q,
            \quad dS_{ij} = A_{ij} \Big(dA_{ij} - \sum_k A_{ik}\, dA_{ik}\Big)

        The sum over all keys is :math:`dO_i \cdot O_i`, so that no tile need wait for the others.
        """
        Q, K, V, mask, output, level = ctx.saved_tensors
        dQ, dK, dV = (X.new_zeros(X.shape) for X in (Q, K, V))
        along = (dO * output).sum(-1, keepdim=True)
        for heads, block in blocks(Q, K.shape[-2]):
            for rows, keys, seen in tiles(Q, K, heads, block, mask, ctx.causal):
                q, k, v, do = Q[rows], K[keys], V[keys], dO[rows]
                # One call for the product and what is taken from it.
                A = torch.baddbmm(-level[rows], q, k.mT)
                if seen is not None:
                    A += seen.log()
                A.exp2_()
                dV[keys] += A.mT @ do
                dS = torch.baddbmm(-along[rows], do, v.mT).mul_(A)
                dQ[rows] += dS @ k
                dK[keys] += dS.mT @ q
        # d 2^s / ds = ln 2 · 2^s
        return dQ * math.log(2), dK * math.log(2), dV, None, None


def longest(X: torch.Tensor) -> torch.Tensor:
    """The largest norm of a row."""
    norms = torch.linalg.vector_norm(X, dim=-1)
    return norms.max() if norms.numel() else norms.sum()


def blocks(Q: torch.Tensor, m: int) -> Iterator[tuple[Place, slice]]:
    """Heads and queries that share tiles."""
    *outer, inner, n, _ = Q.shape
    width = max(1, min(m, KEYS))
    heads = max(1, min(inner, SCORES // (width * max(1, min(n, QUERIES)))))
    height = SCORES // (width * heads)
    for *which, h, r in itertools.product(
        *map(range, outer), range(0, inner, heads), range(0, n, height)
    ):
        yield (*which, slice(h, h + heads)), slice(r, min(r + height, n))


def tiles(
    Q: torch.Tensor,
    K: torch.Tensor,
    heads: Place,
    block: slice,
    mask: torch.Tensor | None,
    causal: bool,
) -> Iterator[tuple[Place, Place, torch.Tensor | None]]:
    """Queries and keys of each tile in which something is seen, and what is seen, if not all."""
    n, m = Q.shape[-2], K.shape[-2]
    ahead = m - n if causal else m  # query i sees no key after i + ahead
    end = min(m, block.stop + ahead)
    for j in range(0, end, KEYS):
        start, stop = max(block.start, j - ahead), min(j + KEYS, end)
        rows, keys = (*heads, slice(start, block.stop)), (*heads, slice(j, stop))
        seen = None
        if mask is not None:
            seen = mask[(*rows, keys[-1])]
            if not seen.any():
                continue
        if stop > start + ahead + 1:  # the diagonal crosses the tile
            past = Q.new_ones(block.stop - start, stop - j, dtype=torch.bool)
            past = past.tril_(start + ahead - j)
            seen = past if seen is None else seen & past
        yield rows, keys, seen
