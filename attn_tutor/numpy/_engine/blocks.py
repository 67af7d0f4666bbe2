"""One engine for every score: it calls a function's own body on blocks of queries, each with the keys that it sees.

So no (n, m) array is stored, what a learner reads is what runs, and a key that no query of a block sees costs nothing.
"""

import contextlib
import functools
import math
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from attn_tutor._both.definition import (
    Definition,
    batch_of,
    called_by,
    index_of,
    sizes_of,
)
from attn_tutor._checks import Shape, require_scale
from attn_tutor.numpy._arrays import repeat_heads
from attn_tutor.numpy._engine.visibility import Visibility

BLOCK = 2**19  # numbers of a block at most, so that they stay in a processor's cache
ROWS = 128  # queries of a block at most
LOCK = threading.Lock()  # of whoever computes in threads


def by_blocks(
    per_pair: str | None = None, name: str | None = None
) -> Callable[[Any], Any]:
    """Let the engine call a body; for each query and key it holds numbers along the axis ``per_pair``, or one.

    The body's arrays come first, queries, then keys, and it takes ``mask`` and ``bias``; ``@shapes`` stands outside.
    """
    return lambda body: called_by(run, body, per_pair, name=name)


def run(
    definition: Definition,
    arrays: list[np.ndarray],
    mask: Any = None,
    causal: bool = False,
    window: Any = None,
    bias: Any = None,
    n_kv_heads: int | None = None,
    **options: Any,
) -> Any:
    """What the body gives, some queries and batch elements at a time, in threads."""
    body, cores, where = definition.body, definition.cores, definition.name
    dtype = np.result_type(*arrays)
    require_scale(where, options.get("scale"))
    if n_kv_heads is not None:
        times = arrays[0].shape[-3] // n_kv_heads
        arrays[1:] = [repeat_heads(X, times) for X in arrays[1:]]
    sizes, batch = sizes_of(arrays, cores), batch_of(arrays, cores)
    n, m = sizes["n"], sizes["m"]
    visibility = Visibility.read(
        where, (*batch, n, m), "cpu", mask, causal, window, bias
    )
    # Arrays of a rule or a bias may have batch axes that Q, K and V lack.
    corner = visibility.mask_and_bias(slice(0, min(n, 1)), slice(0, min(m, 1)))
    batch = np.broadcast_shapes(batch, *(X.shape[:-2] for X in corner if X is not None))

    batch_axes = batch or (1,)
    numbers = sizes.get(definition.per_pair or "", 1)
    height, elements = size_of_blocks(visibility, numbers, math.prod(batch_axes))
    if (
        height < n and not definition.per_pair
    ):  # BLAS is slow at a few rows times a transposed matrix: K.mT is none
        arrays[1] = np.ascontiguousarray(arrays[1].mT).mT
    arrays = [
        np.broadcast_to(
            X.astype(dtype, copy=False), batch_axes + X.shape[X.ndim - len(core) :]
        )
        for X, core in zip(arrays, cores, strict=True)
    ]
    results = [
        np.empty(batch_axes + tuple(sizes[letter] for letter in core), dtype)
        for core in definition.outputs
    ]
    parts_of_batch = [*slices(batch_axes, elements)]

    def compute(start: int) -> None:
        rows = slice(start, min(start + height, n))
        keys = visibility.keys(rows)
        tiles = [
            X if X is None else np.broadcast_to(X, batch_axes + X.shape[-2:])
            for X in visibility.mask_and_bias(rows, keys)
        ]
        for part in parts_of_batch:
            tile_mask, tile_bias = (X if X is None else X[part] for X in tiles)
            inputs = [
                X[part][index_of(X, core, rows, keys)]
                for X, core in zip(arrays, cores, strict=True)
            ]
            with np.errstate(over="ignore", invalid="ignore"):  # of what is hidden
                output = body(*inputs, mask=tile_mask, bias=tile_bias, **options)
            output = output if isinstance(output, tuple) else (output,)
            for X, block in zip(results, output, strict=True):
                X[part][..., rows, :] = block

    in_threads(compute, range(0, n, height))
    results = [X.reshape(batch + X.shape[len(batch_axes) :]) for X in results]
    return tuple(results) if len(results) > 1 else results[0]


def size_of_blocks(
    visibility: Visibility, numbers: int, elements: int
) -> tuple[int, int]:
    """Queries and batch elements of a block, where a pair has so many numbers."""
    n, m = visibility.n, visibility.m
    last = visibility.keys(slice(max(0, n - 64), n))  # which see the most
    per_query = numbers * np.arange(m)[last].size or 1
    height = min(n, ROWS, BLOCK // per_query)
    if n > height or n * per_query * elements > 2 * BLOCK:  # enough for all threads
        height = min(height, n // 4)
    height = max(1, height)
    # Half a block for batch elements: small arrays come from memory that was used just before.
    return height, max(1, BLOCK // 2 // (per_query * height))


def slices(batch: Shape, count: int) -> Iterator[tuple[Any, ...]]:
    """Indices of all batch elements, so many along the last axis at a time."""
    *outer, heads = batch
    for at in np.ndindex(*outer):
        for k in range(0, heads, count):
            yield *at, slice(k, k + count)


def in_threads(work: Callable[[Any], None], tasks: Any) -> None:
    """Call ``work`` on each task, in as many threads as BLAS may use now, while BLAS uses one itself."""
    from concurrent.futures import ThreadPoolExecutor  # slow to import

    blas = _blas()
    controllers = blas.lib_controllers if blas else []
    count = min(len(tasks), max((x.num_threads for x in controllers), default=1))
    # Two calls at once, or one inside the other, would take more threads than there are processors.
    if count < 2 or not LOCK.acquire(blocking=False):
        for task in tasks:
            work(task)
        return
    try:
        with blas.limit(limits=1), ThreadPoolExecutor(count) as pool:
            [*pool.map(work, tasks)]
    finally:
        LOCK.release()


@functools.cache
def _blas() -> Any:
    """Who sets the threads of BLAS; None without threadpoolctl."""
    with contextlib.suppress(ImportError):
        from threadpoolctl import ThreadpoolController

        return ThreadpoolController().select(user_api="blas")
    return None
