"""The tile loop: softmax over a few keys at a time, so that no (n, m) matrix of scores is ever stored.

A row of weights needs the sum over all its keys, but that sum can be kept while it grows: the online softmax of
Milakov & Gimelshein (2018). Rabe & Staats (2021) and Dao et al. (2022) keep such sums in attention.

How a row is computed depends on what its query sees and on nothing else: a hidden key changes no bit of it.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from attn_tutor.numpy.fast.threads import in_parallel, threads
from attn_tutor.numpy.softmax import share
from attn_tutor.numpy.visibility import Visibility

KEYS = 256  # of a tile: narrow ones waste little on the diagonal of a causal mask
# Scores of at most this size need no maximum: their exp keeps all its digits, and no sum of it overflows.
HARMLESS = {"float32": 44.0, "float64": 350.0}

Parts = list[tuple[slice, Any]]  # of the queries of a tile, with what each part sees


class Problem(NamedTuple):
    """What is pooled. All arrays have the same batch axes; what is hidden must be finite."""

    score: Callable[[Any, slice, slice, np.ndarray], object]  # (head, rows, keys, out)
    V: np.ndarray  # (*batch, m, d_v)
    see: Visibility
    # (*batch, n, 1) and (*batch, m, 1), whose products no score exceeds in size
    reach: tuple[np.ndarray, np.ndarray]
    out: np.ndarray  # (*batch, n, d_v), for the result
    width: int  # of a tile
    log_sum: np.ndarray | None = None  # (*batch, n, 1), for log Σ exp(score)

    def settled(self) -> bool:
        """Whether no product at all can do harm, which spares looking tile by tile."""
        highest = math.prod(X.max(initial=0) for X in self.reach)
        return bool(highest <= HARMLESS.get(self.out.dtype.name, 0))


def pool(P: Problem, heads: list[Any], together: int, height: int) -> None:
    """Softmax of the scores, times V, for each of ``heads``: elements of the batch, or slices of so many together.

    Tiles have at most ``height`` queries; blocks of as many are shared among threads.
    """
    n, m = P.see.n, P.see.m
    height = min(n, height, max(256, n * len(heads) // (4 * threads())))
    blocks = P.see.blocks(height)
    settled = P.settled()

    def work(tasks: Iterator[tuple[Any, slice]]) -> None:
        # The thread's tile, no larger than needed: the system is slow to hand out new pages.
        space = np.empty(together * height * min(P.width, m), P.out.dtype)
        # Hidden scores may overflow.
        with np.errstate(over="ignore", invalid="ignore"):
            for head, rows in tasks:
                pool_block(P, head, rows, space, settled)

    # Causal: the longest first, so that the threads end together.
    in_parallel(work, [(head, rows) for rows in reversed(blocks) for head in heads])


def pool_block(
    P: Problem, head: Any, rows: slice, space: np.ndarray, settled: bool
) -> None:
    out = P.out[head][..., rows, :]
    reach_q, reach_k = (X[head] for X in P.reach)
    sums = Sums(out)
    see = P.see.map(lambda X: X[head])
    slopes = see.arrays.get("slopes")
    falls = slopes is not None and bool((slopes >= 0).all())
    for some, keys, parts in tiles(see, rows, P.width):
        here = slice(some.start - rows.start, some.stop - rows.start)
        shape = *out.shape[:-2], some.stop - some.start, keys.stop - keys.start
        scores = space[: math.prod(shape)].reshape(shape)
        P.score(head, some, keys, scores)
        large: Any = False
        if not settled:
            large = beyond(reach_q[..., some, :], reach_k[..., keys, :], parts)
        added = level = None
        if falls and large is False and all(seen is True for _, seen in parts):
            # From the nearest key, which is seen and loses nothing.
            added, level = see.apart(some, keys) or (None, None)
        if level is None and (added := see.added(some, keys)) is not None:
            large = True
        if added is not None:
            scores += added
        sums.add(scores, P.V[head][..., keys, :], here, parts, large, level)
    if P.log_sum is not None:
        P.log_sum[head][..., rows, :] = log_sums(sums.top, sums.total)
    share(sums.pooled, sums.total, out)


def log_sums(top: np.ndarray, total: np.ndarray) -> np.ndarray:
    """log Σ exp(score) of Σ exp(score − top); −∞ of nothing."""
    with np.errstate(divide="ignore"):
        return top + np.log(total)


def tiles(
    see: Visibility, rows: slice, width: int
) -> Iterator[tuple[slice, slice, Parts]]:
    """Queries and keys of each tile in which something is seen, and what: parts of its queries, with what they see."""
    cuts = [slice(i, min(i + KEYS, rows.stop)) for i in range(rows.start, rows.stop, KEYS)]  # fmt: skip
    slopes = "slopes" in see.arrays
    for run in see.keys(rows):
        first = run.start
        # So that the diagonal crosses as few tiles as may be.
        if see.last is not None and run.stop - first > width:
            first += (rows.start + see.offset - first) % width
        edges = {run.start, *range(first, run.stop, width), run.stop}
        for keys in itertools.starmap(slice, itertools.pairwise(sorted(edges))):
            seen = [see.tile(cut, keys) for cut in cuts]
            some = [k for k, part in enumerate(seen) if part is not False]
            if not some:
                continue
            inside = range(some[0], some[-1] + 1)
            # Slopes cost little where all is seen.
            whole = [slopes and part is True for part in seen]
            for _, group in itertools.groupby(inside, whole.__getitem__):
                first, *_ = here = list(group)
                top = cuts[first].start
                parts = [(slice(cuts[k].start - top, cuts[k].stop - top), seen[k]) for k in here]  # fmt: skip
                yield slice(top, cuts[here[-1]].stop), keys, parts


def beyond(reach_q: np.ndarray, reach_k: np.ndarray, parts: Parts) -> Any:
    """Which queries may have a score that is not harmless with a key that they see; False where none has."""
    harmless = HARMLESS.get(reach_q.dtype.name, 0)
    if reach_q.max() * reach_k.max() <= harmless:  # seen or not
        return False
    highest = np.empty_like(reach_q)
    for part, seen in parts:
        visible = reach_k.mT if seen is True else np.where(seen, reach_k.mT, 0)
        highest[..., part, :] = visible.max(-1, keepdims=True)
    return ~(reach_q * highest <= harmless)  # NaN is not harmless


class Sums:
    """What is kept of the keys so far, for each query: Σ exp(score − top) and Σ exp(score − top) · value.

    top is 0 as long as no score can do harm, and from then on the largest score so far.
    """

    def __init__(self, out: np.ndarray) -> None:
        self.top = np.zeros((*out.shape[:-1], 1), out.dtype)
        self.total, self.pooled = np.zeros_like(self.top), np.zeros_like(out)
        self.product = np.empty_like(out)
        self.moved = False  # whether some top is not 0

    def add(
        self,
        scores: np.ndarray,
        v: np.ndarray,
        rows: slice,
        parts: Parts,
        large: Any,
        level: Any = None,
    ) -> None:
        """Take in the scores of some queries and more keys; the scores are overwritten.

        What is to be added to all scores of a query, its ``level``, comes last, where none of them can do harm.
        """
        hidden = [(scores[..., i, :], seen) for i, seen in parts if seen is not True]
        if level is not None:
            shift: Any = np.exp(level - self._lift(level, rows, True))
        elif self.moved or large is not False:
            for each, seen in hidden:
                each[...] = np.where(seen, each, -np.inf)
            scores -= self._lift(scores.max(-1, keepdims=True), rows, large)
        weights = np.exp(scores, out=scores)
        for each, seen in hidden:
            each *= seen  # quicker than −∞, where nothing hidden is large
        # A product with ones sums faster than sum().
        total = weights @ np.ones((v.shape[-2], 1), v.dtype)
        product = np.matmul(weights, v, out=self.product[..., rows, :])
        if level is not None:
            total *= shift
            product *= shift
        self.total[..., rows, :] += total
        self.pooled[..., rows, :] += product

    def _lift(self, highest: np.ndarray, rows: slice, large: Any) -> np.ndarray:
        """Raise top where scores are large, and see what was summed under the old one from the new one."""
        top, total = self.top[..., rows, :], self.total[..., rows, :]
        # The top of a row without any sum may be anything; the lowest number, unlike −∞, can be taken from −∞.
        old = np.where(total == 0, np.finfo(top.dtype).min, top)
        new = np.where(large | (top != 0), np.maximum(old, highest), top)
        shrink = np.exp(old - new)
        total *= shrink
        self.pooled[..., rows, :] *= shrink
        top[...] = new
        self.moved = True
        return top
