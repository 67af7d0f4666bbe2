"""One engine for every score: it calls a function's own body on blocks of queries, each with the keys that it sees.

So no (n, m) array is stored, what a learner reads is what runs, and a key that no query of a block sees costs nothing.
"""

import contextlib
import functools
import inspect
import math
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np

from attn_tutor._checks import Shape, require_fit, require_scale
from attn_tutor.numpy._arrays import require_array, require_bias, require_boolean
from attn_tutor.rules import Bias, Rule, checked_rule, permitted_by_both, read_mask

TILE = 2**18  # numbers that a block holds, so that it stays in a processor's cache
ROWS = 256  # queries of a block at most
Index = slice | np.ndarray


class Visibility(NamedTuple):
    """Which of m keys n queries see, and what is added to their scores."""

    n: int
    m: int
    rule: Rule | None
    mask: np.ndarray | None  # broadcasts to (…, n, m), as the bias
    bias: np.ndarray | Bias | None

    @classmethod
    def read(
        cls,
        where: str,
        shape: Shape,
        mask: Any = None,
        causal: bool = False,
        window: Any = None,
        bias: Any = None,
    ) -> Self:
        """What a call on scores (…, n, m) is given, checked."""
        *batch, n, m = shape
        rule, mask = read_mask(where, n, mask, causal, window)
        rule = rule and checked_rule(
            where, rule, (*batch,), n, m, partial(_ready, where)
        )
        if mask is not None:
            require_boolean(where, mask)
            require_fit(where, "mask", mask.shape, shape)
            mask = np.atleast_2d(mask)
        if bias is not None and not isinstance(bias, Bias):
            require_bias(where, bias)
            require_fit(where, "bias", bias.shape, shape)
            bias = np.atleast_2d(bias)
            if (hides := np.isneginf(bias)).any():  # a key with score −∞ is not seen
                mask = permitted_by_both(mask, ~hides)
        return cls(n, m, rule, mask, bias)

    def positions(self) -> np.ndarray:
        """Where the queries stand: the last query at the last key, (n, 1)."""
        return np.arange(self.m - self.n, self.m, dtype=np.int32)[:, None]

    def keys(self, rows: slice) -> Index:
        """Which keys these queries see, and maybe some more."""
        if self.rule is None:
            return slice(0, self.m)
        offset = self.m - self.n
        first, last = rows.start + offset, rows.stop - 1 + offset
        keys = self.rule.keys(first, last, self.m) or [slice(0, 0)]
        if len(keys) == 1:
            return keys[0]
        return np.concatenate([np.arange(x.start, x.stop) for x in keys])

    def mask_and_bias(self, rows: slice, keys: Index) -> tuple[Any, Any]:
        """Mask and bias of these queries and keys, which broadcast to (…, rows, keys); None where there is none."""
        i, j = self.positions()[rows], np.arange(self.m, dtype=np.int32)[keys]
        mask, bias = self.mask, self.bias
        if mask is not None:
            mask = part_of(mask, "nm", rows, keys, shared=True)
        if self.rule is not None:
            pairs = np.atleast_2d(self.rule.pairs(i, j))
            mask = permitted_by_both(mask, pairs)
        if isinstance(bias, Bias):
            may_hide = bias.may_hide
            bias = np.atleast_2d(bias.added(i, j))
            if may_hide:
                mask = permitted_by_both(mask, bias != -np.inf)
        elif bias is not None:
            bias = part_of(bias, "nm", rows, keys, shared=True)
        return mask, bias

    @property
    def dense(self) -> tuple[Any, Any]:
        """Mask and bias of all queries and keys."""
        return self.mask_and_bias(slice(None), slice(None))


def _ready(where: str, X: Any) -> np.ndarray:
    require_array(where, "a rule's array", X)
    return X


def part_of(
    X: np.ndarray, core: Any, rows: slice, keys: Index, shared: bool = False
) -> np.ndarray:
    """The part of an array, whose last axes have these letters, of some queries (n) and keys (m).

    ``shared``: an axis of length 1 is the same for all.
    """
    sizes = X.shape[X.ndim - len(core) :]
    index = [{"n": rows, "m": keys}.get(letter, slice(None)) for letter in core]
    if shared:
        index = [
            slice(None) if k == 1 else x for x, k in zip(index, sizes, strict=True)
        ]
    return X[(..., *index)]


def by_blocks(per_pair: str = "1") -> Callable[[Any], Any]:
    """Let the engine call a body, which holds numbers along the axis ``per_pair`` for each query and key.

    The body's arrays come first, queries, then keys, and it takes ``mask`` and ``bias``; ``@shapes`` stands outside.
    """

    def decorate(body: Callable[..., Any]) -> Callable[..., Any]:
        names = [*inspect.signature(body).parameters]

        @functools.wraps(body)
        def call(*args: Any, **options: Any) -> Any:
            inputs, outputs = vars(call)["__axes__"]
            options = dict(**dict(zip(names, args, strict=False)), **options)
            arrays = [options.pop(name) for name in names[: len(inputs)]]
            if groups := options.pop("n_kv_heads", None):
                h = arrays[0].shape[-3]
                arrays[1:] = [repeat_heads(X, h // groups) for X in arrays[1:]]
            return run(body, arrays, inputs, outputs, per_pair, **options)

        return call

    return decorate


def run(
    body: Callable[..., Any],
    arrays: list[np.ndarray],
    inputs: list[tuple[str, ...]],
    outputs: list[tuple[str, ...]],
    per_pair: str,
    mask: Any = None,
    causal: bool = False,
    window: Any = None,
    bias: Any = None,
    **options: Any,
) -> Any:
    """What the body gives, some queries and batch elements at a time, in threads."""
    cores = [
        X.shape[X.ndim - len(core) :] for X, core in zip(arrays, inputs, strict=True)
    ]
    sizes = {"1": 1}
    for core, shape in zip(inputs, cores, strict=True):
        sizes |= zip(core, shape, strict=True)
    batch = np.broadcast_shapes(
        *(X.shape[: X.ndim - len(core)] for X, core in zip(arrays, inputs, strict=True))
    )
    n, m = sizes["n"], sizes["m"]
    require_scale(body.__name__, options.get("scale"))
    visibility = Visibility.read(
        body.__name__, (*batch, n, m), mask, causal, window, bias
    )
    tiles = visibility.mask_and_bias(slice(0, min(n, 1)), slice(0, min(m, 1)))
    batch = np.broadcast_shapes(batch, *(X.shape[:-2] for X in tiles if X is not None))
    *outer, heads = full = batch or (1,)
    dtype = np.result_type(*arrays)
    arrays = [
        np.broadcast_to(X.astype(dtype, copy=False), (*full, *core))
        for X, core in zip(arrays, cores, strict=True)
    ]
    results = [
        np.empty((*full, *(sizes[letter] for letter in core)), dtype)
        for core in outputs
    ]

    last = slice(max(0, n - 64), n)
    floats_per_query = sizes[per_pair] * np.arange(m)[visibility.keys(last)].size or 1
    height = max(1, min(n, ROWS, TILE // floats_per_query))
    if (
        n > height or n * floats_per_query * math.prod(full) > 4 * TILE
    ):  # enough for all threads
        height = max(1, min(height, n // 4))
    together = max(1, TILE // (floats_per_query * height))
    chunks = [
        (*at, slice(k, k + together))
        for at in np.ndindex(*outer)
        for k in range(0, heads, together)
    ]

    def compute(start: int) -> None:
        rows = slice(start, min(start + height, n))
        keys = visibility.keys(rows)
        tiles = [
            X if X is None else np.broadcast_to(X, (*full, *X.shape[-2:]))
            for X in visibility.mask_and_bias(rows, keys)
        ]
        for chunk in chunks:
            mask, bias = (X if X is None else X[chunk] for X in tiles)
            parts = [
                part_of(X[chunk], core, rows, keys)
                for X, core in zip(arrays, inputs, strict=True)
            ]
            with np.errstate(
                over="ignore", invalid="ignore"
            ):  # what is hidden may overflow
                result = body(*parts, mask=mask, bias=bias, **options)
            for X, part in zip(
                results, result if len(results) > 1 else [result], strict=True
            ):
                X[chunk][..., rows, :] = part

    in_threads(compute, range(0, n, height))
    results = [X.reshape(*batch, *X.shape[len(full) :]) for X in results]
    return tuple(results) if len(results) > 1 else results[0]


def in_threads(work: Callable[[Any], None], tasks: Any) -> None:
    """Call ``work`` on each task, in as many threads as BLAS may use now, while BLAS uses one itself."""
    from concurrent.futures import ThreadPoolExecutor  # slow to import

    blas = _blas()
    count = (
        min(len(tasks), max((x.num_threads for x in blas.lib_controllers), default=1))
        if blas
        else 1
    )
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


LOCK = threading.Lock()


@functools.cache
def _blas() -> Any:
    """Who sets the threads of BLAS; None without threadpoolctl."""
    with contextlib.suppress(ImportError):
        from threadpoolctl import ThreadpoolController

        return ThreadpoolController().select(user_api="blas")
    return None


def repeat_heads(X: np.ndarray, times: int) -> np.ndarray:
    """Each head so many times in a row, (…, g, m, d) -> (…, g·times, m, d)."""
    return X if times == 1 else np.repeat(X, times, -3)
