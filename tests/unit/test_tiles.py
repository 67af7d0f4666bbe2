"""The NumPy engine: the textbook's number at every edge of a tile, from several threads, and tidy."""

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import attn_tutor.numpy as an
from attn_tutor.numpy.fast import threads, tiles
from attn_tutor.numpy.fast.attention import KEYS, QUERIES

Close = Callable[..., None]


def draw(*shape: int, size: float = 1.0, dtype: str = "float64") -> np.ndarray:
    return (size * np.random.default_rng(sum(shape)).normal(size=shape)).astype(dtype)


def inputs(
    n: int, m: int, batch: tuple[int, ...] = (), **how: object
) -> tuple[np.ndarray, ...]:
    return tuple(draw(*batch, *shape, **how) for shape in ((n, 5), (m, 5), (m, 3)))


# One tile, one row and one column more, several of both, several heads in a tile.
SIZES = [
    (1, QUERIES * KEYS + 1),
    (QUERIES, KEYS),
    (QUERIES + 1, KEYS),
    (QUERIES, KEYS + 1),
    (QUERIES - 1, 2 * KEYS + 7),
    (2 * QUERIES + 3, KEYS - 1),
]


@pytest.mark.parametrize("size", [1.0, 40.0], ids=["harmless", "large"])
@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize(("n", "m"), SIZES)
def test_is_the_textbook_at_the_edges_of_tiles(
    n: int, m: int, causal: bool, size: float, close: Close
) -> None:
    Q, K, V = inputs(n, m, size=size)
    mask = an.causal_mask(n, m) if causal else None
    expected = an.attend(an.scaled_dot_score(Q, K), V, mask)
    close(an.attention(Q, K, V, causal=causal), expected)


MASKS = {
    "random": lambda n, m: draw(n, m) < 0.3,
    "padding": lambda n, m: np.arange(m)[None] < m // 3,
    "a head each": lambda n, m: draw(2, 1, n, m) < 0.3,
    "empty rows": lambda n, m: (draw(n, m) < 0) & (np.arange(n)[:, None] % 3 > 0),
    "nothing": lambda n, m: np.zeros((n, m), bool),
    "queries": lambda n, m: np.arange(n)[:, None] % 3 > 0,
    "late": lambda n, m: np.arange(m)[None] > m - 3,
}


@pytest.mark.parametrize("size", [1.0, 40.0], ids=["harmless", "large"])
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize(("n", "m"), [(7, 11), (97, 101), (QUERIES + 5, KEYS + 3)])
def test_masks(
    n: int, m: int, mask: Callable[[int, int], np.ndarray], size: float, close: Close
) -> None:
    Q, K, V = inputs(n, m, (3,), size=size)
    seen = mask(n, m)
    expected = an.attend(an.scaled_dot_score(Q, K), V, seen)
    close(an.attention(Q, K, V, seen), expected)


@pytest.mark.parametrize("narrow", [0, 1, 2])
@pytest.mark.parametrize(("n", "m"), [(7, 11), (QUERIES + 5, KEYS + 3)])
def test_mixed_precisions_give_the_widest(
    n: int, m: int, narrow: int, close: Close
) -> None:
    arrays = list(inputs(n, m))
    arrays[narrow] = arrays[narrow].astype("float32")
    Q, K, V = (X.astype(float) for X in arrays)
    found = an.attention(*arrays)
    assert found.dtype == float
    close(found, an.attend(an.scaled_dot_score(Q, K), V))


@pytest.mark.parametrize("n", [7, 97, QUERIES + 5])
def test_batch_axes_broadcast(n: int, close: Close) -> None:
    Q, K, V = draw(2, 1, n, 5), draw(7, n, 5), draw(2, 7, n, 3)
    expected = an.attend(an.scaled_dot_score(Q, K), V)
    close(an.attention(Q, K, V), expected)


@pytest.mark.parametrize(("size", "allowed"), [(1.0, 2e-6), (6.0, 1e-5)])
@pytest.mark.parametrize("n", [97, 2 * QUERIES + 1])
def test_single_precision_is_as_accurate_as_the_textbook(
    n: int, size: float, allowed: float
) -> None:
    exact = inputs(n, KEYS + 300, (2,), size=size)
    Q, K, V = single = [X.astype("float32") for X in exact]
    textbook = an.attend(an.scaled_dot_score(Q, K), V)
    truth = an.attention(*(X.astype("float64") for X in single))
    errors = [output - truth for output in (an.attention(Q, K, V), textbook)]
    assert np.abs(errors[0]).max() < allowed * np.abs(truth).max()
    error, usual = (np.sqrt((error**2).mean()) for error in errors)
    assert error < 1.25 * usual  # the largest one is a matter of chance


@pytest.mark.parametrize(("queries", "keys"), [(0.2, 300.0), (300.0, 0.2)])
def test_either_side_may_be_large(queries: float, keys: float, close: Close) -> None:
    n, m = QUERIES + 1, KEYS + 1
    Q, K, V = draw(n, 5, size=queries), draw(m, 5, size=keys), draw(m, 3)
    close(an.attention(Q, K, V), an.attend(an.scaled_dot_score(Q, K), V))


SLOPES = {"gentle": [0.5, 0.1], "steep": [300.0, 0.0], "both ways": [-0.2, 1.0]}


@pytest.mark.parametrize("size", [1.0, 40.0], ids=["harmless", "large"])
@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("hidden", ["nothing", "near", "documents", "random"])
@pytest.mark.parametrize("slopes", SLOPES.values(), ids=SLOPES)
def test_slopes(
    slopes: list[float], hidden: str, causal: bool, size: float, close: Close
) -> None:
    """Added tile by tile, also where a query does not see the keys that are nearest to it."""
    n, m = 2 * KEYS + 9, 3 * KEYS + 5
    Q, K, V = inputs(n, m, (2,), size=size)
    i, j = np.arange(n)[:, None] + m - n, np.arange(m)
    ids = np.arange(m) // 100
    mask: np.ndarray | None = {
        "near": abs(i - j) > 300,
        "documents": ids[m - n :, None] == ids,
        "random": draw(n, m) < 0,
    }.get(hidden)
    rule: object = an.documents(ids) if hidden == "documents" else mask
    bias = -np.array(slopes)[:, None, None] * abs(i - j)
    found = an.attention(Q, K, V, rule, causal=causal, bias=an.alibi(np.array(slopes)))
    seen = np.ones((n, m), bool) if mask is None else mask
    seen = seen & (j <= i) if causal else seen
    close(found, an.attend(an.scaled_dot_score(Q, K) + bias, V, seen))


def test_slopes_are_a_row_and_a_column(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor a matrix of their own, but along the diagonal: elsewhere the nearest key tells what to take from a row."""
    added = []
    whole = tiles.Visibility.added
    monkeypatch.setattr(
        tiles.Visibility,
        "added",
        lambda see, rows, keys: (
            added.append((rows.stop - rows.start) * (keys.stop - keys.start))
            or whole(see, rows, keys)
        ),
    )
    n = 8 * KEYS
    an.attention(*inputs(n, n), causal=True, bias=an.alibi(1))
    assert sum(added) == n * KEYS


# In parallel.


def test_padding_is_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    widths = []
    add = tiles.Sums.add
    monkeypatch.setattr(
        tiles.Sums,
        "add",
        lambda pool, scores, *rest: (
            widths.append(scores.shape) or add(pool, scores, *rest)
        ),
    )
    n, m = 2 * QUERIES, 4 * KEYS
    Q, K, V = inputs(n, m)
    an.attention(Q, K, V, np.arange(m)[None] < KEYS)
    assert sum(math.prod(shape) for shape in widths) == n * KEYS
    widths.clear()
    an.attention(*inputs(n, n), causal=True)
    assert sum(math.prod(shape) for shape in widths) < 0.6 * n * n


def blas_threads() -> list[int]:
    threadpoolctl = pytest.importorskip("threadpoolctl", reason="an optional extra")
    info = threadpoolctl.threadpool_info()
    return [lib["num_threads"] for lib in info if lib["user_api"] == "blas"]


@pytest.fixture
def two_threads() -> Iterator[None]:
    threadpoolctl = pytest.importorskip("threadpoolctl", reason="an optional extra")
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        yield


def test_work_is_shared_and_blas_left_as_it_was(two_threads: None) -> None:
    before, seen, both = blas_threads(), [], threading.Barrier(2, timeout=20)

    def work(tasks: object) -> None:
        both.wait()  # passes only with two threads
        seen.extend((task, *blas_threads()) for task in tasks)

    threads.in_parallel(work, list(range(5)))
    assert sorted(task for task, *_ in seen) == list(range(5))
    assert {count for _, *found in seen for count in found} == {1}
    assert blas_threads() == before


def test_an_error_comes_through_and_blas_is_left_as_it_was(two_threads: None) -> None:
    before, main = blas_threads(), threading.current_thread()

    def work(tasks: object) -> None:  # fails in the thread that is not ours
        if threading.current_thread() is not main:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        threads.in_parallel(work, list(range(5)))
    assert blas_threads() == before


def test_calls_from_several_threads(two_threads: None) -> None:
    before = blas_threads()
    many = [inputs(QUERIES + i, KEYS + 2 * i, (3,)) for i in range(8)]
    alone = [an.attention(*arrays) for arrays in many]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda arrays: an.attention(*arrays), many))
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one, other)
    assert blas_threads() == before


def test_one_thread_without_threadpoolctl(
    monkeypatch: pytest.MonkeyPatch, close: Close
) -> None:
    monkeypatch.setitem(sys.modules, "threadpoolctl", None)  # its import fails
    monkeypatch.setattr(threads, "_blas", threads._blas.__wrapped__)
    assert threads.threads() == 1
    Q, K, V = inputs(QUERIES + 1, KEYS + 1, (2,))
    close(an.attention(Q, K, V), an.attend(an.scaled_dot_score(Q, K), V))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_process_forked_during_a_call(two_threads: None) -> None:
    """Its parent's threads hold a lock and a limit, and are not there to give them back."""
    scores = draw(600, 601)
    with threads.one_blas_thread(), threads._lock:
        child = os.fork()
        if child == 0:
            an.masked_softmax(scores, scores < 1)
            os._exit(0 if blas_threads() == [2] * len(blas_threads()) else 1)
    deadline = time.monotonic() + 60
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            pytest.fail("the forked process hangs")
        time.sleep(0.01)
    assert ended[1] == 0, "its BLAS has a single thread"
