"""What is faster than the textbook is equal to it: decoding with a cache, tables, and the ways to torch's fused kernel.

How fast is for ``attn_tutor.bench`` to say; here work is counted, never time.
"""

import tracemalloc

import numpy as np
import pytest
import torch

import attn_tutor.numpy as an
import attn_tutor.torch as at

HALVES = [an, at]


def as_half(half, x):
    return torch.from_numpy(x) if half is at else x


# KVCache


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("max_len", [None, 13])
def test_decoding_is_attention_over_the_whole(half, max_len, draw, close):
    Q, K, V = (as_half(half, draw(2, 3, 13, d)) for d in (5, 5, 7))
    cache, rows = half.KVCache(max_len), []
    for start, stop in ((0, 4), (4, 5), (5, 6), (6, 11), (11, 13)):
        new = slice(start, stop)
        keys, values = cache.append(K[..., new, :], V[..., new, :])
        rows.append(half.attention(Q[..., new, :], keys, values, causal=True))
        assert len(cache) == keys.shape[-2] == stop
    whole = half.attention(Q, K, V, causal=True)
    close(np.concatenate(rows, -2), whole, "float64")


@pytest.mark.parametrize("half", HALVES)
def test_earlier_views_stay(half, draw, close):
    K, V = as_half(half, draw(11, 5)), as_half(half, draw(11, 3))
    cache = half.KVCache()
    views = [cache.append(K[i : i + 1], V[i : i + 1]) for i in range(11)]
    for i, (keys, values) in enumerate(views):
        close(keys, K[: i + 1])
        close(values, V[: i + 1])


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize(("max_len", "most"), [(None, 2 * 257), (300, 300)])
def test_the_room_doubles(half, max_len, most, draw):
    """257 tokens one by one move to a larger room 9 times, and copy fewer than 2 · 257 rows."""
    cache, row = half.KVCache(max_len), as_half(half, draw(1, 3))
    places, copied = [], 0
    for _ in range(257):
        keys, values = cache.append(row, row)
        place = keys.data_ptr() if half is at else keys.ctypes.data
        if places and place != places[-1]:
            copied += len(cache) - 1
        places.append(place)
    assert len(set(places)) <= 10 and copied < 2 * 257
    room = keys.untyped_storage().nbytes() if half is at else keys.base.nbytes
    assert room <= most * row.nbytes


@pytest.mark.parametrize("half", HALVES)
def test_what_a_cache_refuses(half, draw):
    row = as_half(half, draw(2, 1, 5))
    for wrong, error in ((-1, ValueError), (2.0, TypeError)):
        with pytest.raises(error, match="KVCache: max_len must be "):
            half.KVCache(wrong)
    cache = half.KVCache(max_len=2)
    cache.append(row, row)
    with pytest.raises(ValueError, match="V has n=2 but K has n=1"):
        cache.append(row, as_half(half, draw(2, 2, 5)))
    float32 = row.astype(np.float32) if half is an else row.float()
    with pytest.raises(
        ValueError, match=r"KVCache: K is 2 … 5 \S*float32.* but .* 2 … 5 \S*float64"
    ):
        cache.append(float32, float32)
    for name, K, V in (("K", row[:1], row), ("V", row, row[..., :3])):
        with pytest.raises(ValueError, match=f"KVCache: {name} is .* but the cache"):
            cache.append(K, V)
    with pytest.raises(TypeError, match="K must be a"):
        cache.append([[1.0]], row)
    cache.append(row, row)
    with pytest.raises(ValueError, match="KVCache: 3 tokens are more than max_len=2"):
        cache.append(row, row)
    assert len(cache) == 2  # what is refused changes nothing


def test_a_cache_keeps_no_gradient(draw):
    row = torch.from_numpy(draw(1, 3)).requires_grad_()
    with pytest.raises(ValueError, match="decode under torch.no_grad()"):
        at.KVCache().append(row.detach(), row)
    with torch.no_grad():
        assert not at.KVCache().append(row, row)[0].requires_grad


# The table of positions


@pytest.mark.parametrize(("d", "base"), [(6, 10000.0), (7, 10000.0), (5, 3.0)])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_table_far_out(d, base, dtype, draw):
    """Against sines of angles, to what a double leaves of an angle of 10⁵: 10⁻¹¹."""
    n = 100_003
    angles = np.arange(n)[:, None] * base ** (-np.arange(0, d, 2) / d)
    pairs = np.stack([np.sin(angles), np.cos(angles)], -1)  # (n, ⌈d/2⌉, 2)
    expected = pairs.reshape(n, -1)[:, :d]
    there = at.sinusoidal_encoding(n, d, base, dtype=getattr(torch, dtype)).numpy()
    assert there.dtype == dtype
    assert abs(there - expected).max() < (5e-11 if dtype == "float64" else 3e-7)
    assert abs(an.sinusoidal_encoding(n, d, base) - expected).max() < 5e-11


@pytest.mark.parametrize("n", [1, 2, 3, 4, 8, 9, 15, 16, 17])
def test_table_of_every_length(n, close):
    """Squares and their neighbours, where the last block of rows is full, begun or missing."""
    for half in HALVES:
        table, longer = half.sinusoidal_encoding(n, 5), half.sinusoidal_encoding(101, 5)
        assert table.shape == (n, 5)
        close(table, longer[:n], "float32" if half is at else None)


def test_few_rows_of_the_table_are_sines(monkeypatch):
    counted, exp = [], np.exp
    monkeypatch.setattr(np, "exp", lambda x: counted.append(x.size) or exp(x))
    an.sinusoidal_encoding(10_007, 6)
    assert 0 < sum(counted) <= 3 * 2 * 101


# Masked softmax in place


def test_masked_softmax_makes_one_array_of_the_size_of_its_scores(draw, mask_of):
    """The mask of a batch, shared by 16 heads: neither it nor anything else of size counts."""
    scores, mask = draw(16, 101, 103), mask_of(101, 103)
    tracemalloc.start()
    weights = an.masked_softmax(scores, mask)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert weights.nbytes < peak < 1.4 * weights.nbytes
