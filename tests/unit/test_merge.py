"""Attention to parts of the keys, merged, beside attention to all of them; both give two arrays each."""

import functools
import itertools

import numpy as np
import pytest
import torch

import attn_tutor.torch as at

NOTHING = slice(0, 0)
CUTS = [NOTHING, slice(0, 6), slice(6, 7), slice(7, 13)]


@pytest.fixture
def problem(draw, mask_of):
    """Keys shared by two heads; query 3 sees no key, and query 1 none of the first six."""
    mask = mask_of(2, 7, 13)
    mask[:, 3] = mask[:, 1, :6] = False
    return draw(2, 7, 5), draw(13, 5), draw(13, 3), mask


def parts_of(half, Q, K, V, mask):
    return [half.partial_attention(Q, K[x], V[x], mask[..., x]) for x in CUTS]


def test_parts_merge_in_any_order(half, close, problem):
    expected = half.attention(*problem)
    for a, b, c, d in itertools.permutations(parts_of(half, *problem)):
        close(half.merge(*half.merge(*half.merge(*a, *b), *c), *d)[0], expected)
        close(half.merge(*half.merge(*a, *b), *half.merge(*c, *d))[0], expected)


def test_two_parts_without_keys_are_one_without_nan(half, problem):
    none = parts_of(half, *problem)[0]
    output, log_sum = half.merge(*none, *none)
    assert (output == 0).all() and output.shape == (2, 7, 3)
    assert (log_sum == -np.inf).all()


def test_scores_may_be_of_any_size(half, close, problem):
    """exp(1000) overflows; 1000 in every score changes no weight."""
    Q, K, V, mask = problem
    wide_Q = np.concatenate([Q, np.full((2, 7, 1), 1000.0)], -1)
    wide_K = np.hstack([K, np.ones((13, 1))])
    first, second = (
        half.partial_attention(wide_Q, wide_K[x], V[x], mask[..., x], scale=1.0)
        for x in (slice(0, 6), slice(6, 13))
    )
    found, log_sum = half.merge(*first, *second)
    expected = half.attention(Q, K, V, mask, scale=1.0)
    close(found.astype("float32"), expected.astype("float32"))
    sees = mask.any(-1, keepdims=True)
    assert (np.abs(log_sum[sees] - 1000) < 20).all() and (log_sum[~sees] < 0).all()


def test_what_is_not_finite_reaches_those_who_may_see_it(half, problem):
    Q, K, V, mask = problem
    K = K.copy()
    K[8] = np.nan
    parts = parts_of(half, Q, K, V, mask)
    output, _ = functools.reduce(lambda a, b: half.merge(*a, *b), parts)
    assert (np.isnan(output).all(-1) == mask[..., 8]).all()
    assert mask[..., 8].any() and not mask[..., 8].all()


def test_half_precision_comes_back_single(half, close, problem):
    """The parts are rounded once, when they are whole."""
    Q, K, V, mask = problem
    Q, K, V = (X.astype("float16") for X in (Q, K, V))
    _, a, b, c = parts_of(half, Q, K, V, mask)
    output, log_sum = half.merge(*half.merge(*a, *b), *c)
    assert output.dtype == log_sum.dtype == "float32"
    close(output, half.attention(Q, K, V, mask).astype("float32"), "float16")


def test_gradients_of_merged_parts_are_those_of_the_whole(problem, close):
    """Also where a query sees nothing, of one part or of all: no NaN comes back from −∞."""
    *arrays, mask = map(torch.from_numpy, problem)

    def merged(Q, K, V):
        parts = parts_of(at, Q, K, V, mask)
        return functools.reduce(lambda a, b: at.merge(*a, *b), parts)[0]

    def gradients(fn):
        leaves = [X.clone().requires_grad_() for X in arrays]
        return torch.autograd.grad(fn(*leaves).square().sum(), leaves)

    expected = gradients(lambda Q, K, V: at.attention(Q, K, V, mask))
    for x, y in zip(gradients(merged), expected, strict=True):
        close(x, y)


def test_halves_agree(halves, close, problem):
    a, b = (parts_of(half, *problem) for half in halves)
    for one, other in zip(a, b, strict=True):
        for x, y in zip(one, other, strict=True):
            close(x, y)
    for x, y in zip(*(h.merge(*a[1], *a[3]) for h in halves), strict=True):
        close(x, y)


def test_what_does_not_fit_is_refused_in_words(half):
    Q, K, V = np.zeros((2, 3)), np.zeros((5, 4)), np.zeros((5, 1))
    with pytest.raises(ValueError, match="partial_attention: K has d=4 but Q has d=3"):
        half.partial_attention(Q, K, V)
    with pytest.raises(TypeError, match="partial_attention: .*boolean"):
        half.partial_attention(Q, K[:, :3], V, np.ones((2, 5)))
    with pytest.raises(TypeError, match="partial_attention: scale must be one number"):
        half.partial_attention(Q, K[:, :3], V, scale="big")
    with pytest.raises(ValueError, match="merge: other has n=5 but output has n=2"):
        half.merge(Q, Q[:, :1], K[:, :3], K[:, :1])
