"""A few rows at a time: what a function works over again and again stays in the processor's cache."""

import math
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np

from attn_tutor._parallel import in_parallel

BLOCK = 2**20  # bytes of rows; of 2¹⁶ to 2²¹ about the fastest for softmax


def by_rows(
    work: Callable[..., Any], *arrays: np.ndarray, out: np.ndarray
) -> np.ndarray:
    """Call ``work(*arrays, out)`` on block after block of rows, shared among threads; the arrays broadcast to ``out``.

    A row is what stands along the last axis, and is never cut.
    """
    shape = (1, *out.shape)  # a single row, too, has an axis along which to cut
    views = [*(np.broadcast_to(x, shape) for x in arrays), out[None]]
    cuts = []
    for axis, n in enumerate(shape[:-1]):
        each = out.itemsize * math.prod(shape[axis + 1 :])
        step = max(1, BLOCK // max(1, each))
        cuts.append([slice(i, i + step) for i in range(0, n, step)])

    def some(blocks: Iterator[tuple[slice, ...]]) -> None:
        for block in blocks:
            work(*(x[block] for x in views))

    in_parallel(some, list(product(*cuts)))
    return out
