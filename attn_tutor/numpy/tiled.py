"""The engine behind attention: softmax over tiles of keys, so that no (n, m) matrix is ever stored.

A row of weights needs the sum over all its keys, but that sum can be kept while it grows: the online softmax of
Milakov & Gimelshein (2018). Rabe & Staats (2021) and Dao et al. (2022) build attention on it.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from attn_tutor._checks import broadcast
from attn_tutor._parallel import in_parallel, threads
from attn_tutor.numpy.scoring import default_scale

# A tile of scores fits a processor's cache. Tall ones keep the interpreter out of the way and narrow ones waste little
# on the diagonal of a causal mask.
QUERIES, KEYS = 1024, 256
CORNER = np.tri(KEYS, dtype=bool)  # what a tile on the diagonal sees is cut from it
# Scores of at most this size need no maximum: their exp keeps all its digits, and no sum of it overflows.
HARMLESS = {"float32": 44.0, "float64": 350.0}


def tiled_attention(
    Q: np.ndarray,
    K: np.ndarray,
    V: np.ndarray,
    mask: np.ndarray | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> np.ndarray:
    """The number of ``attend(scaled_dot_score(Q, K, scale), V, mask)``, a tile at a time.

    Arguments as :func:`attention`, but what is hidden must already be finite.
    """
    n, m, d_v = Q.shape[-2], K.shape[-2], V.shape[-1]
    dtype = wide = Q.dtype
    if not dtype == K.dtype == V.dtype or dtype.itemsize < 4:
        dtype = np.result_type(Q, K, V)
        wide = np.promote_types(dtype, np.float32)  # sums in float16 are poor
        Q, K, V = (X.astype(wide) for X in (Q, K, V))
    # A number of the same dtype: a wider one would widen, and slow, all that follows.
    factor = wide.type(default_scale(Q.shape[-1]) if scale is None else scale)

    arrays = [Q, K, V] if mask is None else [Q, K, V, mask]
    batch = broadcast(*[X.shape[:-2] for X in arrays])
    assert batch is not None  # the callers have checked
    together = QUERIES * KEYS // max(1, n * m)  # heads that share a tile
    if math.prod(batch) <= together:  # all of them
        seen = np.tri(n, m, m - n, dtype=bool) if causal else mask
        output = _at_once(Q * factor, K, V, seen)
        return output if dtype == wide else output.astype(dtype)

    # |q · k| ≤ ‖q‖ ‖k‖ settles for most inputs that no score is large. NaN is not harmless.
    bound = _longest(Q) * _longest(K) * abs(factor)
    harmless = bool(bound <= HARMLESS.get(wide.name, 0))
    if mask is not None:
        arrays[-1] = np.broadcast_to(mask, (*mask.shape[:-2], n, m))
    arrays = [np.broadcast_to(X, (*batch, *X.shape[-2:])) for X in arrays]
    output = np.empty((*batch, n, d_v), dtype)
    heads: list[Any] = list(np.ndindex(*batch))
    step = min(QUERIES, max(256, n * len(heads) // (4 * threads())))
    results = output
    if together > 1:
        *arrays, results = (X.reshape(-1, *X.shape[-2:]) for X in [*arrays, output])
        heads = [slice(i, i + together) for i in range(0, len(heads), together)]

    def work(tasks: Iterator[tuple[Any, slice]]) -> None:
        # This thread's tile, no larger than needed: the system is slow to hand out new pages.
        space = np.empty(max(1, together) * min(step, n) * min(KEYS, m), wide)
        for head, rows in tasks:
            q, k, v, *masks = (X[head] for X in arrays)
            q = q[..., rows, :] * factor
            masks = [mask[..., rows, :] for mask in masks]
            pool = _Pool((*q.shape[:-1], d_v), wide, harmless)
            # The last key that the first of these queries sees, if they see only so far.
            last = rows.start + m - n if causal else m
            for first, keys, seen in _tiles(q.shape[-2], m, masks, last):
                shape = (*q.shape[:-2], q.shape[-2] - first, keys.stop - keys.start)
                scores = space[: math.prod(shape)].reshape(shape)
                np.matmul(q[..., first:, :], k[..., keys, :].mT, out=scores)
                pool.add(scores, v[..., keys, :], seen, first)
            pool.average(out=results[head][..., rows, :])

    rows = [slice(i, min(i + step, n)) for i in range(0, n, step)]
    # Causal: the longest first, so that the threads end together.
    in_parallel(work, [(head, each) for each in reversed(rows) for head in heads])
    return output


def _at_once(
    Q: np.ndarray, K: np.ndarray, V: np.ndarray, seen: np.ndarray | None
) -> np.ndarray:
    """The textbook in its fewest passes, for a single tile."""
    scores = Q @ K.mT
    if seen is not None:
        scores = np.where(seen, scores, -np.inf)
    # ufuncs themselves, because decoding asks for little else: max() and sum() take a microsecond more.
    top = np.maximum.reduce(scores, -1, keepdims=True, initial=-np.inf)
    if seen is not None:
        top[top == -np.inf] = 0  # −∞ − 0 is what it was, −∞ − (−∞) would be NaN
    scores -= top
    weights = np.exp(scores, out=scores)
    total = np.add.reduce(weights, -1, keepdims=True)
    if seen is not None or not K.shape[-2]:
        total[total == 0] = 1
    output = weights @ V
    output /= total
    return output


def _longest(X: np.ndarray) -> np.floating:
    """The largest norm of a row."""
    return np.sqrt(np.einsum("...d,...d->...", X, X).max(initial=0))


def _tiles(
    n: int, m: int, masks: list[np.ndarray], last: int
) -> Iterator[tuple[int, slice, np.ndarray | None]]:
    """The first query and the keys of each tile, and which keys its first queries see; the others see all.

    Query i sees no key after last + i.
    """
    for j in range(0, min(m, last + n), KEYS):
        keys = slice(j, min(j + KEYS, m, last + n))
        first = max(0, j - last)  # the queries before it see none of these keys
        seen = None
        for mask in masks:
            seen = mask[..., keys]
        # Where the tile crosses the diagonal, so many queries do not see all of it.
        some = min(n - first, keys.stop - 1 - last - first)
        if some > 0:
            seen = CORNER[last + first - j :][:some, : keys.stop - j]
        if seen is None or seen.all():
            yield first, keys, None
        elif seen.any():
            yield first, keys, seen


class _Pool:
    """What is kept of the keys so far: Σ exp(score) and Σ exp(score) · value of each query.

    Both are scaled by exp(−top), where top is the largest score so far, or 0 where no score can do harm.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, harmless: bool) -> None:
        one_each = (*shape[:-1], 1)
        self.top = None if harmless else np.full(one_each, -np.finfo(dtype).max)
        self.total = np.zeros(one_each, dtype)
        self.pooled = np.zeros(shape, dtype)
        self.product = np.empty(shape, dtype)

    def add(
        self,
        scores: np.ndarray,
        v: np.ndarray,
        seen: np.ndarray | None,
        first: int = 0,
    ) -> None:
        """Take in more keys, for the queries from ``first`` on; the scores are overwritten."""
        total, pooled, product = (
            X[..., first:, :] for X in (self.total, self.pooled, self.product)
        )
        if self.top is None:
            weights = np.exp(scores, out=scores)
            if seen is not None:
                weights[..., : seen.shape[-2], :] *= seen
        else:
            if seen is not None:
                some = scores[..., : seen.shape[-2], :]
                some[...] = np.where(seen, some, -np.inf)
            top = self.top[..., first:, :]
            old = top.copy()
            np.maximum(top, scores.max(-1, keepdims=True, initial=-np.inf), out=top)
            # What was summed under the old top, seen from the new one.
            shrink = np.exp(old - top)
            total *= shrink
            pooled *= shrink
            scores -= top
            weights = np.exp(scores, out=scores)
        # A product with ones sums faster than sum().
        total += weights @ np.ones((v.shape[-2], 1), v.dtype)
        pooled += np.matmul(weights, v, out=product)

    def average(self, out: np.ndarray) -> np.ndarray:
        # The sum of a query that saw no key is 0, and so is its average; any other sum is far from tiny.
        tiny = np.finfo(self.total.dtype).tiny
        return np.divide(self.pooled, np.maximum(self.total, tiny), out=out)
