"""What is faster than the textbook is equal to it: decoding with a cache, tables, and the ways to torch's fused kernel.

How fast is for ``attn_tutor.bench`` to say; here work is counted, never time.
"""

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
def test_an_empty_cache_is_a_cache(half):
    cache = half.KVCache()
    assert cache and len(cache) == cache.n_seen == 0


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


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("batch", [(4,), (4, 3)])
def test_beams_reorder_a_cache(half, batch, draw, close):
    """Sequence 1 goes on twice, sequence 2 dies out; what was given out before stays as it was."""
    K, V, later = (as_half(half, draw(*batch, n, 5)) for n in (6, 6, 2))
    cache = half.KVCache()
    before, _ = cache.append(K, V)
    order = np.array([1, 3, 1], dtype=np.int32)
    cache.reorder(as_half(half, order))
    assert len(cache) == 6
    rows = order.tolist()
    keys, values = cache.append(later[rows], later[rows])
    close(keys[..., :6, :], K[rows])
    close(values[..., :6, :], V[rows])
    close(keys[..., 6:, :], later[rows])
    close(before, K)
    with pytest.raises(ValueError, match="KVCache: K is 4 .* but the cache holds 3"):
        cache.append(later, later)


@pytest.mark.parametrize("half", HALVES)
def test_orders_that_a_cache_refuses(half, draw):
    cache = half.KVCache()
    cache.append(*(as_half(half, draw(4, 1, 5)) for _ in "KV"))
    for order in ([4], [-1], [[0]]):
        with pytest.raises(ValueError, match="below 4, the number of sequences held"):
            cache.reorder(as_half(half, np.array(order)))
    with pytest.raises(TypeError, match="^KVCache: order holds whole numbers, got"):
        cache.reorder(as_half(half, np.array([0.0])))
    with pytest.raises(TypeError, match="^KVCache: order must be a"):
        cache.reorder([0])
    alone = half.KVCache()
    alone.append(*(as_half(half, draw(1, 5)) for _ in "KV"))
    with pytest.raises(ValueError, match="below 0, the number of sequences held"):
        alone.reorder(as_half(half, np.array([0])))


def test_a_cache_compiles_into_the_graph(draw):
    K, cache = torch.from_numpy(draw(6, 3)), at.KVCache()
    step = torch.compile(cache.append, backend="eager", fullgraph=True)
    with torch.no_grad():
        keys = [step(rows, rows)[0] for rows in K.split([3, 1, 2])][-1]
    assert torch.equal(keys, K)


def test_a_cache_stays_on_its_device():
    cache, row = at.KVCache(), torch.ones(1, 3)
    cache.append(row, row)
    with pytest.raises(ValueError, match="K is … 3 torch.float32 meta but .* cpu"):
        cache.append(row.to("meta"), row.to("meta"))


def test_a_cache_keeps_no_gradient(draw):
    row = torch.from_numpy(draw(1, 3)).requires_grad_()
    with pytest.raises(ValueError, match="decode under torch.no_grad()"):
        at.KVCache().append(row.detach(), row)
    with torch.no_grad():
        assert not at.KVCache().append(row, row)[0].requires_grad
