"""Work shared among threads: NumPy lets go of the interpreter's lock while it computes."""

import functools
import math
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any

import numpy as np

# Bytes of rows that stay in a processor's cache; of 2¹⁶ to 2²¹ about the fastest for softmax.
BLOCK = 2**20


def in_parallel(work: Callable[[Iterator[Any]], None], tasks: list[Any]) -> None:
    """Call ``work`` with one iterator over the tasks in as many threads as can run, each task going to one of them."""
    more = min(threads(), len(tasks)) - 1
    shared = iter(tasks)  # next() on it is one step for the interpreter
    if more < 1:
        return work(shared)
    errors: list[BaseException] = []

    def share() -> None:
        try:
            work(shared)
        except BaseException as error:  # a thread has nobody to raise it to
            errors.append(error)

    # Bare threads: a pool of them costs a call on 512 tokens 4 % more.
    others = [threading.Thread(target=share) for _ in range(more)]
    with one_blas_thread():
        for other in others:
            other.start()
        share()
        for other in others:
            other.join()
    if errors:
        raise errors[0]


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

    def blocks(tasks: Iterator[tuple[slice, ...]]) -> None:
        for block in tasks:
            work(*(x[block] for x in views))

    in_parallel(blocks, list(product(*cuts)))
    return out


def threads() -> int:
    """As many as BLAS may use now, so that who limits BLAS limits us."""
    libraries = _blas().lib_controllers if _blas() else []
    return max((library.num_threads for library in libraries), default=1)


_lock = threading.Lock()
_users = 0
_limit: Any = None


@functools.cache
def _blas() -> Any:
    """Who sets its threads; None without threadpoolctl, and then we have one thread, and BLAS keeps its own."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    return ThreadpoolController().select(user_api="blas")


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """BLAS without threads of its own, which lose on small products; as it was when the last user is done."""
    global _users, _limit
    with _lock:
        if _users == 0:
            _limit = _blas().limit(limits=1)
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                _limit.restore_original_limits()


def _start_anew() -> None:
    """In a forked process: its parent's other threads, which may have held the lock or the limit, are not there."""
    global _lock, _users
    _lock = threading.Lock()
    if _users:
        _users = 0
        _limit.restore_original_limits()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_start_anew)
