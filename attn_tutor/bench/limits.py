"""The work that nobody can leave out, alone: what no program can be faster than.

A machine has one limit, whichever half is measured; torch comes closest to it, with all its threads.
"""

import torch

from attn_tutor.bench.case import HEADS, MODEL, WIDTH, Case, Contestant


def products(case: Case, pairs: int, projections: int = 0) -> Contestant:
    """As many multiply-adds as attention has that looks at so many pairs of a query and a key, in one square product:
    the rate that the machine really reaches. Its own products are narrow, and slower.
    """
    # Forward Q Kᵀ and A V. Backward the scores again, dO Vᵀ, and products for dV, dQ and dK.
    work = (7 if case.backward else 2) * HEADS * pairs * WIDTH
    work += (3 if case.backward else 1) * projections * case.n * MODEL**2
    side = max(1, round(work ** (1 / 3) / 16)) * 16  # kernels like whole blocks
    X = torch.as_tensor(case.draw(side, side))
    return Contestant("limit", "its multiply-adds alone", lambda: X @ X)


def reciprocals(case: Case, count: int) -> Contestant:
    """As many reciprocals, over and over the same numbers in the cache; twice for a backward pass that recomputes."""
    count *= 2 if case.backward else 1
    # A GPU makes a chain of them on a few numbers, so that no time goes into moving these.
    tile = -(-count // 256) if case.device == "cuda" else min(count, 2**18)
    X = torch.as_tensor(case.draw(tile)).abs() + 1

    def chain() -> torch.Tensor:
        x = X
        for _ in range(0, count, tile):
            x = 1 / x if case.device == "cuda" else x.reciprocal_()
        return x

    call = torch.compile(chain) if case.device == "cuda" else chain
    return Contestant("limit", "its reciprocals alone", call)


def traffic(case: Case, numbers: int) -> Contestant:
    """Reading and writing so many numbers in all: a copy of half as many."""
    source = torch.as_tensor(case.draw(max(1, numbers // 2)))
    target = torch.empty_like(source)
    return Contestant(
        "limit", "reading and writing alone", lambda: target.copy_(source)
    )
