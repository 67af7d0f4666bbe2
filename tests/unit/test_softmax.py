"""The table of positions far out; softmax of any shape, of wide sums, beside a NaN, and its memory."""

import tracemalloc

import numpy as np
import pytest
import torch

import attn_tutor.numpy as an
import attn_tutor.torch as at

HALVES = [an, at]


def as_half(half, x):
    return torch.from_numpy(x) if half is at else x


def direct(n, d, base=10000.0):
    """Every sine and cosine on its own."""
    angles = np.arange(n)[:, None] * base ** (-np.arange(0, d, 2) / max(d, 1))
    pairs = np.stack([np.sin(angles), np.cos(angles)], -1)  # (n, ⌈d/2⌉, 2)
    return pairs.reshape(n, 2 * angles.shape[1])[:, :d]


# The table of positions


@pytest.mark.parametrize(("d", "base"), [(6, 10000.0), (7, 10000.0), (5, 3.0)])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_table_far_out(d, base, dtype):
    """To what a double leaves of an angle of 10⁵, some 10⁻¹¹."""
    n = 100_003
    expected = direct(n, d, base)
    there = at.sinusoidal_encoding(n, d, base, dtype=getattr(torch, dtype)).numpy()
    assert there.dtype == dtype
    assert abs(there - expected).max() < (3e-11 if dtype == "float64" else 3e-7)
    assert abs(an.sinusoidal_encoding(n, d, base) - expected).max() < 3e-11


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_rounds_once(dtype):
    table = at.sinusoidal_encoding(5003, 6, dtype=dtype).double().numpy()
    half_a_step = (
        torch.finfo(dtype).eps / 4
    )  # below 1, where numbers lie twice as close
    assert abs(table - direct(5003, 6)).max() < half_a_step + 3e-7


# Masked softmax


def textbook(scores, mask):
    """In one piece, in double precision."""
    e = np.where(mask, np.exp(np.where(mask, scores, 0).astype(float)), 0)
    total = e.sum(-1, keepdims=True)
    return e / np.where(total == 0, 1, total)


SHAPES = [  # of the scores and of the mask
    ((101,), (101,)),
    ((7, 101), (7, 1)),
    ((3, 7, 101), (7, 101)),
    ((3, 1, 7, 101), (5, 1, 101)),
    ((7, 101), (3, 5, 7, 101)),
    ((3, 7, 0), (3, 7, 0)),
    ((0, 7, 101), (7, 101)),
]


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize(("shape", "masked"), SHAPES)
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_masks_that_broadcast_either_way(half, shape, masked, dtype, draw, close):
    scores = draw(*shape).astype(dtype)
    mask = np.random.default_rng(0).random(masked) < 0.6
    weights = half.masked_softmax(as_half(half, scores), as_half(half, mask))
    assert str(weights.dtype).endswith(dtype)
    close(weights, textbook(scores, mask))


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_permitted_nan_spoils_its_row_alone(half, bad, draw, close):
    """And no forbidden key of that row: a weight of 0 there keeps the NaN out of gradients of values."""
    scores, mask = draw(5, 7), np.tri(5, 7, 2, dtype=bool)
    expected = textbook(scores, mask)
    scores[1, 2] = scores[2, 6] = bad  # permitted; forbidden
    expected[1, mask[1]] = np.nan
    found = half.masked_softmax(as_half(half, scores), as_half(half, mask))
    if bad == np.inf and half is at:
        found = found.where(~found.isnan() | torch.from_numpy(mask), torch.nan)
    close(found, expected)


def test_wide_sums_behind_a_mask(close):
    """70,000 keys of weight 1: their sum is more than float16 holds."""
    weights = an.masked_softmax(
        np.zeros((2, 70_001), np.float16), np.arange(70_001) < 70_000
    )
    close(70_000 * weights[:, :-1].astype(np.float32), np.ones((2, 70_000)), "float16")


@pytest.mark.parametrize("masked", [(101, 103), (16, 101, 103)])
def test_masked_softmax_makes_one_array_of_the_size_of_its_scores(masked, draw):
    scores, mask = draw(16, 101, 103), np.ones(masked, bool)
    an.masked_softmax(scores[:1], mask[..., :1, :][:1])  # what is imported late
    tracemalloc.start()
    weights = an.masked_softmax(scores, mask)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert weights.nbytes < peak < 1.2 * weights.nbytes


def test_softmax_makes_one_array_of_the_size_of_its_scores(draw):
    x = draw(16, 101, 103)
    tracemalloc.start()
    weights = an.softmax(x)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert weights.nbytes < peak < 1.2 * weights.nbytes
