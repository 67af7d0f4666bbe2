"""The work that nobody can leave out, alone: what no program can be faster than.

A machine has one limit, whichever half is measured; torch comes closest to it, with all its threads.
"""

from collections.abc import Callable

import torch

from attn_tutor.bench.case import Case

Call = Callable[[], object]


def products(
    case: Case, heads: int, d: int, causal: bool = False, projections: int = 0
) -> Call:
    """As many multiply-adds as attention has, with its n × (h·d) projections, in one square product: the rate that the
    machine really reaches. Its own products are narrow, and slower.
    """
    # Forward Q Kᵀ and A V. Backward the scores again, dO Vᵀ, and products for dV, dQ and dK.
    kinds = 7 if case.backward else 2
    n, wide = case.n, heads * d
    projected = projections * (3 if case.backward else 1)
    pairs = n * (n + 1) // 2 if causal else n * n
    work = kinds * heads * pairs * d + projected * n * wide**2
    side = max(1, round(work ** (1 / 3) / 16)) * 16  # kernels like whole blocks
    X = case.tensor(side, side)
    return lambda: X @ X


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
