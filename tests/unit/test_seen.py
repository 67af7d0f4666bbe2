"""Token by token, in chunks and all at once are one number: a cache knows how many tokens it has seen."""

import numpy as np
import pytest
import torch

import attn_tutor.torch as at
from attn_tutor.geometry import Window

N = 13
CUTS = {"one by one": [1] * N, "chunks": [4, 1, 5, 3], "at once": [N]}
WINDOWS = [None, Window(4), Window(4, sinks=2), Window(1, sinks=1), Window(20)]


def kept(window):
    if window is None:
        return {}
    return {"window": window.width, "sinks": window.sinks}


@pytest.mark.parametrize("sizes", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("positions", [None, "rotary", "alibi"])
@torch.no_grad()
def test_a_block(positions, window, sizes):
    torch.manual_seed(3)
    options = {"causal": True, "positions": positions, "dtype": torch.float64}
    block = at.Block(16, 4, window=window, n_kv_heads=2, **options)
    X = torch.randn(2, N, 16, dtype=torch.float64)
    expected = block(X)
    cache = at.KVCache(**kept(window))
    found = torch.cat([block(part, cache=cache) for part in X.split(sizes, 1)], 1)
    torch.testing.assert_close(found, expected)
    assert cache.n_seen == N
    assert window is None or len(cache) <= window.width - 1 + window.sinks + max(sizes)


@pytest.mark.parametrize("sizes", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize("sinks", [0, 2])
@torch.no_grad()
def test_a_cache_lends_its_window_to_a_block(sinks, sizes):
    """A block without a window, or with the same and no sinks, sees what the cache keeps, however tokens come."""
    torch.manual_seed(3)
    X = torch.randn(2, N, 16)
    options = {"causal": True, "positions": "rotary"}
    whole = at.Block(16, 4, window=Window(4, sinks=sinks), **options)
    for window in (None, 4):
        block = at.Block(16, 4, window=window, **options)
        block.load_state_dict(whole.state_dict())
        cache = at.KVCache(window=4, sinks=sinks)
        found = torch.cat([block(part, cache=cache) for part in X.split(sizes, 1)], 1)
        torch.testing.assert_close(found, whole(X))


@torch.no_grad()
def test_a_cache_that_keeps_too_little():
    block = at.Block(8, 2, causal=True, window=Window(5, sinks=1))
    for narrow in (at.KVCache(window=4, sinks=1), at.KVCache(window=5)):
        with pytest.raises(
            ValueError, match=r"make it with KVCache\(window=5, sinks=1"
        ):
            block(torch.ones(3, 8), cache=narrow)


@pytest.mark.parametrize("window", [None, 4, Window(4, sinks=2)], ids=str)
@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "alibi", None])
@torch.no_grad()
def test_a_language_model(positions, window):
    torch.manual_seed(3)
    made = {"positions": positions, "window": window, "dtype": torch.float64}
    model = at.LanguageModel(11, 16, 4, 2, **made)
    ids = torch.randint(11, (2, N))
    expected = model(ids)
    for sizes in CUTS.values():
        options = kept(Window(window) if isinstance(window, int) else window)
        caches = [at.KVCache(**options) for _ in model.blocks]
        found = torch.cat([model(part, caches) for part in ids.split(sizes, 1)], 1)
        torch.testing.assert_close(found, expected)
    written = model.generate(ids, 5)
    assert torch.equal(written, model.generate(ids, 5, cached=False))


@pytest.mark.parametrize("sizes", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize("window", WINDOWS[1:], ids=str)
def test_rotated_keys_in_both_halves(half, close, draw, window, sizes):
    Q, K, V = draw(2, N, 4), draw(2, N, 4), draw(2, N, 3)
    rule = half.Window(window.width, sinks=window.sinks)
    turned = half.rotary(Q), half.rotary(K)
    expected = half.attention(*turned, V, causal=True, window=rule)
    cache, rows = half.module.KVCache(**kept(window)), []
    edges = np.cumsum([0, *sizes])
    for start, stop in zip(edges, edges[1:], strict=False):
        positions = np.arange(cache.n_seen, cache.n_seen + stop - start)
        assert positions[0] == start
        q, k = (half.rotary(X[:, start:stop], positions) for X in (Q, K))
        keys, values = cache.append(half.give(k), half.give(V[:, start:stop]))
        rows.append(half.attention(q, half.back(keys), half.back(values), causal=True, window=rule))  # fmt: skip
    close(np.concatenate(rows, 1), expected)


@torch.no_grad()
def test_a_layer_with_cache_and_bias():
    torch.manual_seed(3)
    layer = at.MultiHeadAttention(16, 4, causal=True, n_kv_heads=2)
    X, cache = torch.randn(2, N, 16), at.KVCache()
    expected = layer(X, bias=at.alibi(4))
    torch.testing.assert_close(expected, layer(X, bias=at.alibi_bias(4, N)))
    parts = [layer(x, cache=cache, bias=at.alibi(4)) for x in X.split([3, 4, 6], 1)]
    torch.testing.assert_close(torch.cat(parts, 1), expected)
    output, weights = layer(X, bias=at.alibi(4), need_weights=True)
    torch.testing.assert_close(output, expected)
    assert weights.shape == (2, 4, N, N)
