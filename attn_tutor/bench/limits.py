"""The work that nobody can leave out, alone: what no program can be faster than.

A machine has one limit, whichever half is measured; torch comes closest to it, with all its threads.
"""

from collections.abc import Callable

import torch

from attn_tutor.bench.case import Case

Call = Callable[[], object]
QUERIES, KEYS = 256, 512  # a tile of scores that stays in a processor's cache


def products(
    case: Case, heads: int, d: int, causal: bool = False, projections: int = 0
) -> Call:
    """The matrix products of attention: two, or with the backward pass seven; and of n × (h·d) projections."""
    # Forward Q Kᵀ and A V. Backward the scores again, dO Vᵀ, and products for dV, dQ and dK.
    kinds = (3, 4) if case.backward else (1, 1)
    n, wide = case.n, heads * d
    projected = projections * (3 if case.backward else 1)
    if case.device == "cuda":
        # One square product with as many multiply-adds: the rate that the card really reaches.
        pairs = n * (n + 1) // 2 if causal else n * n
        work = sum(kinds) * heads * pairs * d + projected * n * wide**2
        X = case.tensor(*2 * (-(-round(work ** (1 / 3)) // 128) * 128,))
        return lambda: X @ X
    Q, K, V = (case.tensor(heads, n, d) for _ in range(3))
    X, W = case.tensor(n, wide), case.tensor(wide, wide)
    attend = _in_tiles(Q, K, V, causal, kinds)

    def call() -> None:
        for _ in range(projected):
            X @ W
        attend()

    return call


def _tiles(n: int, causal: bool) -> list[tuple[slice, slice]]:
    rows = (slice(i, min(i + QUERIES, n)) for i in range(0, n, QUERIES))
    return [
        (row, slice(j, min(j + KEYS, row.stop if causal else n)))
        for row in rows
        for j in range(0, row.stop if causal else n, KEYS)
    ]


def _in_tiles(
    Q: torch.Tensor,
    K: torch.Tensor,
    V: torch.Tensor,
    causal: bool,
    kinds: tuple[int, int],
) -> Call:
    """A tile of every head at once: torch gives each of its threads some heads."""
    tasks = _tiles(Q.shape[-2], causal)
    scores, output = Q.new_empty(len(Q), QUERIES, KEYS), torch.empty_like(Q)

    def call() -> None:
        for rows, keys in tasks:
            tile = scores[:, : rows.stop - rows.start, : keys.stop - keys.start]
            for _ in range(kinds[0]):
                torch.bmm(Q[:, rows], K[:, keys].mT, out=tile)
            for _ in range(kinds[1]):
                torch.bmm(tile, V[:, keys], out=output[:, : tile.shape[1]])

    return call


def reciprocals(case: Case, count: int) -> Call:
    """As many reciprocals, over and over the same numbers in the cache; twice for a backward pass that recomputes."""
    count *= 2 if case.backward else 1
    if case.device == "cuda":
        # A chain on a few numbers: no time goes into moving them.
        length, X = 256, case.tensor(-(-count // 256)).abs() + 1

        @torch.compile
        def chain(x: torch.Tensor) -> torch.Tensor:
            for _ in range(length):
                x = 1 / x
            return x

        return lambda: chain(X)
    tile = min(count, 2**18)
    X = case.tensor(tile).abs() + 1

    def call() -> None:
        for _ in range(0, count, tile):
            X.reciprocal_()

    return call


def moved(case: Case, numbers: int) -> Call:
    """Reading and writing so many numbers in all: a copy of half as many."""
    source = case.tensor(max(1, numbers // 2))
    target = torch.empty_like(source)
    return lambda: target.copy_(source)
