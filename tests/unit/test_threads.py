"""NumPy's half computes in threads: one number from several callers, and BLAS left as it was."""

import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import attn_tutor.numpy as an


def draw(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape)


def inputs(n, m, *batch):
    return [draw(*batch, *shape) for shape in ((n, 5), (m, 5), (m, 3))]


def blas_threads():
    threadpoolctl = pytest.importorskip("threadpoolctl", reason="an optional extra")
    info = threadpoolctl.threadpool_info()
    return [x["num_threads"] for x in info if x["user_api"] == "blas"]


@pytest.fixture
def two_threads():
    threadpoolctl = pytest.importorskip("threadpoolctl", reason="an optional extra")
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        yield


def working(names):
    """A rule that writes down which thread looks at it."""

    def pairs(i, j):
        names.add(threading.get_ident())
        time.sleep(0.01)
        return j <= i

    return an.Rule(pairs)


def test_work_is_shared_and_blas_left_as_it_was(two_threads):
    before, names = blas_threads(), set()
    an.attention(*inputs(600, 600), working(names))
    assert len(names - {threading.get_ident()}) == 2
    assert blas_threads() == before


def test_an_error_comes_through_and_blas_is_left_as_it_was(two_threads):
    before, main = blas_threads(), threading.get_ident()

    def fails(i, j):
        if threading.get_ident() != main:
            raise ZeroDivisionError
        return j <= i

    with pytest.raises(ZeroDivisionError):
        an.attention(*inputs(600, 600), an.Rule(fails))
    assert blas_threads() == before
    names = set()
    an.attention(*inputs(600, 600), working(names))  # and the next call has both
    assert len(names) > 1


def test_calls_from_several_threads(two_threads):
    before = blas_threads()
    many = [inputs(130 + i, 140 + 2 * i, 3) for i in range(8)]
    alone = [an.attention(*arrays) for arrays in many]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda arrays: an.attention(*arrays), many))
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-13)
    assert blas_threads() == before


def test_one_thread_without_threadpoolctl(monkeypatch, close):
    from attn_tutor.numpy._engine import blocks

    monkeypatch.setitem(sys.modules, "threadpoolctl", None)  # its import fails
    monkeypatch.setattr(blocks, "_blas", blocks._blas.__wrapped__)
    names = set()
    Q, K, V = inputs(600, 600, 2)
    found = an.attention(Q, K, V, working(names))
    assert names == {threading.get_ident()}
    close(found, an.attention.__wrapped__(Q, K, V, causal=True))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_process_forked_during_a_call(two_threads):
    """Its parent's threads hold a lock and a limit, and are not there to give them back."""
    arrays, children = inputs(300, 300), []

    def forks(i, j):
        if not children:
            children.append(child := os.fork())
            if child == 0:
                an.attention(*arrays, causal=True)
                os._exit(0)
        return j <= i

    an.attention(*arrays, an.Rule(forks))
    deadline = time.monotonic() + 60
    while not (ended := os.waitpid(children[0], os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            os.kill(children[0], signal.SIGKILL)
            os.waitpid(children[0], 0)
            pytest.fail("the forked process hangs")
        time.sleep(0.01)
    assert ended[1] == 0
