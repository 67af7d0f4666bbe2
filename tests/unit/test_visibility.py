"""Who sees whom: a rule is what its words say, pair by pair, and leaves out no key that a query sees."""

import functools
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import attn_tutor.numpy as an
import attn_tutor.torch as at


class Dilated(an.Rule):
    """Every third key up to the query's own, 12 in all."""

    def __init__(self):
        pass

    def pairs(self, i, j):
        return (j <= i) & (j > i - 36) & ((i - j) % 3 == 0)

    def keys(self, first, last, m):
        return [x for x in [slice(max(0, first - 35), min(last + 1, m))] if x.start < x.stop]  # fmt: skip


class Islands(an.Rule):
    """The keys of one's own block of 10, wherever they stand in it."""

    def __init__(self):
        pass

    def pairs(self, i, j):
        return i // 10 == j // 10

    def keys(self, first, last, m):
        start, stop = max(0, first // 10 * 10), min(last // 10 * 10 + 10, m)
        return [slice(start, stop)] if start < stop else []


SEES = {  # what a query at i sees of the key at j, in plain words and whole numbers
    "causal": lambda i, j: j <= i,
    "window": lambda i, j, width, sinks: j <= i and (i - j < width or j < sinks),
    "first": lambda i, j, count: j < count,
    "prefix": lambda i, j, count: j < count or j <= i,
    "documents": lambda i, j, *ids: ids[i] == ids[j],
    "dilated": lambda i, j: 0 <= i - j < 36 and (i - j) % 3 == 0,
    "islands": lambda i, j: i // 10 == j // 10,
    "odd": lambda i, j: (i - j) % 2 == 1,
    "and": lambda i, j, a, b: sees(a, i, j) and sees(b, i, j),
    "or": lambda i, j, a, b: sees(a, i, j) or sees(b, i, j),
}
MAKE = {  # the rule that says it
    "causal": lambda half: half.Causal(),
    "window": lambda half, width, sinks: half.Window(width, sinks),
    "first": lambda half, count: half.valid(array(half, count)),
    "prefix": lambda half, count: half.prefix(array(half, count)),
    "documents": lambda half, *ids: half.documents(array(half, ids)),
    "dilated": lambda half: Dilated(),
    "islands": lambda half: Islands(),
    "odd": lambda half: half.Rule(lambda i, j: (i - j) % 2 == 1),
    "and": lambda half, a, b: rule(half, a) & rule(half, b),
    "or": lambda half, a, b: rule(half, a) | rule(half, b),
}


def sees(words, i, j):
    return SEES[words[0]](i, j, *words[1:])


@functools.cache
def dense(words, n, m):
    """Pair by pair, without a thought of memory; the last query stands at the last key."""
    pairs = [sees(words, i + m - n, j) for i in range(n) for j in range(m)]
    mask = np.array(pairs, bool).reshape(n, m)
    mask.flags.writeable = False  # it is kept
    return mask


def rule(half, words):
    return MAKE[words[0]](half, *words[1:])


def array(half, x):
    return torch.tensor(x) if half is at else np.array(x)


def single(m, own):
    """One rule for m keys; ``own`` where each query is one of them, so that documents have numbers for it."""
    ids = st.lists(st.integers(0, 3), min_size=m, max_size=m)
    kinds = [
        *(st.just((name,)) for name in ("causal", "dilated", "islands", "odd")),
        st.tuples(st.just("window"), st.integers(1, m + 2), st.integers(0, 5)),
        st.tuples(st.sampled_from(["first", "prefix"]), st.integers(0, m)),
    ]
    whole = ids.map(lambda x: ("documents", *sorted(x)))
    torn = ids.map(lambda x: ("documents", *x))
    return st.one_of(*kinds, *([whole, torn] if own else []))


def combined(m, own):
    """One to three rules, joined by & and |."""
    one = single(m, own)
    two = st.tuples(st.sampled_from(["and", "or"]), one, one)
    return one | two | st.tuples(st.sampled_from(["and", "or"]), one, two)


@st.composite
def problems(draw, most=40):
    """Words, and numbers of queries and keys."""
    n, m = draw(st.integers(1, most)), draw(st.integers(1, most))
    return draw(combined(m, own=n <= m)), n, m


@pytest.mark.parametrize("half", [an, at], ids=["numpy", "torch"])
@given(problem=problems(), edges=st.tuples(st.integers(0, 39), st.integers(0, 39)))
def test_a_rule_is_what_its_words_say(half, problem, edges):
    words, n, m = problem
    whole, found = dense(words, n, m), rule(half, words)
    arange = torch.arange if half is at else np.arange
    pairs = found.pairs(arange(m - n, m)[:, None], arange(m))
    np.testing.assert_array_equal(np.broadcast_to(pairs, (n, m)), whole)
    first, last = sorted(min(x, n - 1) for x in edges)
    slices = found.keys(first + m - n, last + m - n, m)
    assert all(0 <= x.start < x.stop <= m for x in slices)
    assert all(a.stop <= b.start for a, b in itertools.pairwise(slices))
    outside = np.ones(m, bool)
    for x in slices:
        outside[x] = False
    assert not whole[first : last + 1, outside].any()


def test_rules_leave_keys_out():
    """Else the law above would hold for one that leaves out nothing."""
    ids = np.repeat(np.arange(10), 100)
    for one, most in (
        (an.Causal(), 500),
        (an.Window(20, sinks=4), 123),
        (an.Window(20, sinks=4) & an.Causal(), 123),
        (an.First(3) | an.Window(20), 122),
        (an.First(30), 30),
        (an.documents(ids), 100),
        (an.documents(ids) & an.Window(10), 100),
        (Dilated(), 135),
        (Islands() | an.First(2), 102),
    ):
        assert 0 < sum(x.stop - x.start for x in one.keys(400, 499, 1000)) <= most, one


def test_rules_combine_with_rules_only(half):
    for other in (half.give(np.ones((3, 3), bool)), 3, None):
        with pytest.raises(TypeError, match="a rule combines with rules"):
            half.module.Causal() & other
        with pytest.raises(TypeError, match="a rule combines with rules"):
            half.module.Causal() | other


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("size", [1.0, 30.0], ids=["small scores", "large scores"])
@pytest.mark.parametrize("n", [5, 700, 1300])
def test_a_hidden_key_changes_no_bit(n, size, dtype):
    """The last of n causal tokens is moved far away: the rows before it stay as they are, to the bit."""
    rng = np.random.default_rng(n)
    Q, K, V = (size * rng.normal(size=(2, n, 5)).astype(dtype) for _ in range(3))
    before = an.attention(Q, K, V, causal=True)
    far_K, far_V = K.copy(), V.copy()
    far_K[:, -1] = 9 * Q[:, -1]
    far_V[:, -1] -= 30
    after = an.attention(Q, far_K, far_V, causal=True)
    np.testing.assert_array_equal(after[:, :-1], before[:, :-1])
    assert (after[:, -1] != before[:, -1]).all()
    mask = np.ones((n, n), bool)
    mask[: n // 2, -1] = False
    before, after = (an.attention(Q, *KV, mask) for KV in ((K, V), (far_K, far_V)))
    np.testing.assert_array_equal(after[:, : n // 2], before[:, : n // 2])
