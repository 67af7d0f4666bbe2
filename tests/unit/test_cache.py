"""A cache of keys and values: token by token, in chunks and all at once are one number; what it keeps and refuses."""

import itertools

import numpy as np
import pytest
import torch

import attn_tutor.numpy as an
import attn_tutor.torch as at

HALVES = pytest.mark.parametrize("half", [an, at], ids=["numpy", "torch"])


def as_half(half, x):
    return torch.from_numpy(x) if half is at else x


# Token by token, in chunks and all at once are one number

N = 13
CUTS = {"one by one": [1] * N, "chunks": [4, 1, 5, 3], "at once": [N]}
WINDOWS = [
    None,
    an.Window(4),
    an.Window(4, sinks=2),
    an.Window(1, sinks=1),
    an.Window(20),
]


def kept(window):
    return {} if window is None else {"window": window.width, "sinks": window.sinks}


@pytest.mark.parametrize("sizes", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("positions", [None, "rotary", "alibi"])
@pytest.mark.parametrize("n_kv_heads", [4, 2, 1])
@torch.no_grad()
def test_a_block_with_a_cache(positions, window, sizes, n_kv_heads):
    torch.manual_seed(3)
    options = {"causal": True, "positions": positions, "dtype": torch.float64}
    block = at.Block(16, 4, window=window, n_kv_heads=n_kv_heads, **options)
    X = torch.randn(2, N, 16, dtype=torch.float64)
    cache = at.KVCache(**kept(window))
    found = torch.cat([block(part, cache=cache) for part in X.split(sizes, 1)], 1)
    torch.testing.assert_close(found, block(X))
    assert cache.n_seen == N
    assert window is None or len(cache) <= window.width - 1 + window.sinks + max(sizes)


@pytest.mark.parametrize("sizes", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize("sinks", [0, 2])
@pytest.mark.parametrize("positions", [None, "rotary", "alibi"])
@torch.no_grad()
def test_a_cache_lends_its_window_to_a_block(positions, sinks, sizes):
    """A block without a window, or with the same and no sinks, sees what the cache keeps, however tokens come."""
    torch.manual_seed(3)
    X = torch.randn(2, N, 16)
    options = {"causal": True, "positions": positions}
    whole = at.Block(16, 4, window=at.Window(4, sinks=sinks), **options)
    for window in (None, 4):
        block = at.Block(16, 4, window=window, **options)
        block.load_state_dict(whole.state_dict())
        cache = at.KVCache(window=4, sinks=sinks)
        found = torch.cat([block(part, cache=cache) for part in X.split(sizes, 1)], 1)
        torch.testing.assert_close(found, whole(X))


@torch.no_grad()
def test_a_cache_that_keeps_too_little():
    block = at.Block(8, 2, causal=True, window=at.Window(5, sinks=1))
    for narrow in (at.KVCache(window=4, sinks=1), at.KVCache(window=5)):
        with pytest.raises(
            ValueError, match=r"make it with KVCache\(window=5, sinks=1"
        ):
            block(torch.ones(3, 8), cache=narrow)


@pytest.mark.parametrize("window", [None, 4, at.Window(4, sinks=2)], ids=str)
@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "alibi", None])
@torch.no_grad()
def test_a_language_model_with_caches(positions, window):
    torch.manual_seed(3)
    model = at.LanguageModel(
        11, 16, 4, 2, positions=positions, window=window, dtype=torch.float64
    )
    ids = torch.randint(11, (2, N))
    expected = model(ids)
    wide = at.Window(window) if isinstance(window, int) else window
    for sizes in CUTS.values():
        caches = [at.KVCache(**kept(wide)) for _ in model.blocks]
        found = torch.cat(
            [model(part, caches=caches) for part in ids.split(sizes, 1)], 1
        )
        torch.testing.assert_close(found, expected)
    written = model.generate(ids, 5)
    assert torch.equal(written, model.generate(ids, 5, cached=False))


MORE = {
    "alibi": lambda m: {"bias": at.alibi(4)},
    "a length per sequence": lambda m: {"mask": at.valid(torch.tensor([9, 13]))},
    "a length per head": lambda m: {
        "mask": at.valid(torch.tensor([[9, 3, 7, 5], [13, 1, 13, 2]]))
    },
    "every second key": lambda m: {"mask": at.Rule(lambda i, j: (i - j) % 2 == 0)},
    "a mask of keys": lambda m: {"mask": (torch.arange(13) % 5 != 1)[:m]},
    "a prefix": lambda m: {"mask": at.First(3)},
}


@pytest.mark.parametrize("sizes", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("more", MORE)
@torch.no_grad()
def test_a_layer_with_a_cache_and_more(more, window, sizes):
    """One number, or a refusal where a cache has dropped tokens that a rule counts."""
    torch.manual_seed(3)
    layer = at.MultiHeadAttention(
        16, 4, causal=True, n_kv_heads=2, window=window, dtype=torch.float64
    )
    X, cache = torch.randn(2, N, 16, dtype=torch.float64), at.KVCache(**kept(window))
    expected, seen = layer(X, **MORE[more](N)), 0
    for part in X.split(sizes, 1):
        seen += part.shape[1]
        try:
            found = layer(part, cache=cache, **MORE[more](seen))
        except ValueError as refused:
            assert "MultiHeadAttention" in str(refused) or "attention" in str(refused)
            assert len(cache) < seen and more != "alibi", "nothing was dropped"
            return
        torch.testing.assert_close(found, expected[:, seen - part.shape[1] : seen])


# A memory, as of cross-attention, comes once


@pytest.mark.parametrize("sizes", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize("more", ["nothing", "a mask", "lengths", "a bias", "sink logits"])  # fmt: skip
@torch.no_grad()
def test_a_memory_in_a_cache(more, sizes, close):
    torch.manual_seed(3)
    layer = at.MultiHeadAttention(
        16, 4, kdim=6, vdim=6, n_kv_heads=2, sink_logits=more == "sink logits", dtype=torch.float64
    )  # fmt: skip
    X, memory = torch.randn(2, N, 16).double(), torch.randn(2, 7, 6).double()
    options = {
        "a mask": {"mask": torch.rand(2, 1, 7) < 0.6},
        "lengths": {"mask": at.valid(torch.tensor([3, 7]))},
        "a bias": {"bias": torch.randn(4, 1, 7).double()},
    }.get(more, {})
    expected, weights = layer(X, memory, **options, need_weights=True)
    cache, rows, start = at.KVCache(), [], 0
    for part in X.split(sizes, 1):
        new = memory if start == 0 else memory[:, :0]
        output, found = layer(part, new, cache=cache, **options, need_weights=True)
        assert len(cache) == cache.n_seen == 7
        rows.append(output)
        close(found, weights[:, :, start : start + part.shape[1]])
        start += part.shape[1]
    close(torch.cat(rows, 1), expected)
    cache.reorder(torch.tensor([1, 1, 0]))  # as a beam does
    if more not in ("a mask", "lengths"):
        beams = X[[1, 1, 0]], memory[[1, 1, 0], :0]
        close(layer(*beams, cache=cache, **options), expected[[1, 1, 0]])


@torch.no_grad()
def test_a_memory_that_comes_twice_or_would_be_cut_is_refused():
    layer = at.MultiHeadAttention(8, 2)
    X, memory, cache = torch.ones(2, 1, 8), torch.ones(2, 7, 8), at.KVCache()
    layer(X, memory, cache=cache)
    words = "^MultiHeadAttention: K brings 7 tokens for 1 queries, but the cache holds 7 already"
    for K, V in ((memory, None), (memory, memory)):
        with pytest.raises(ValueError, match=words):
            layer(X, K, V, cache=cache)
    assert len(cache) == 7  # what is refused changes nothing
    words = "the cache keeps 3 tokens, the memory has 7; KVCache.. keeps all"
    with pytest.raises(ValueError, match=words):
        layer(X, memory, cache=at.KVCache(window=3))
    # Of a causal layer, keys are the tokens themselves, and queries may be the last of them.
    causal = at.MultiHeadAttention(8, 2, causal=True)
    cache, Y = at.KVCache(), torch.randn(2, 9, 8)
    causal(Y[:, :4], cache=cache)
    last = causal(Y[:, -1:], Y[:, 4:], cache=cache)
    torch.testing.assert_close(last, causal(Y)[:, -1:])


@pytest.mark.parametrize("sizes", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_turned_keys_in_a_cache(half, close, draw, window, sizes):
    Q, K, V = draw(2, N, 4), draw(2, N, 4), draw(2, N, 3)
    turned = half.rotary(Q), half.rotary(K)
    expected = half.attention(*turned, V, causal=True, window=window)
    cache, rows = half.module.KVCache(**kept(window)), []
    edges = np.cumsum([0, *sizes])
    for start, stop in itertools.pairwise(edges):
        positions = np.arange(cache.n_seen, cache.n_seen + stop - start)
        assert positions[0] == start
        q, k = (half.rotary(X[:, start:stop], positions) for X in (Q, K))
        keys, values = cache.append(half.give(k), half.give(V[:, start:stop]))
        rows.append(
            half.attention(
                q, half.back(keys), half.back(values), causal=True, window=window
            )
        )
    close(np.concatenate(rows, 1), expected)


@pytest.mark.parametrize("sizes", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize("window", [None, an.Window(4), an.Window(4, sinks=2)], ids=str)
def test_latents_in_a_cache(half, close, inputs, window, sizes):
    args = inputs("latent_attention", (2,), n=N, m=N)
    args["R"] = half.rotary(args["R"])
    options = {"causal": True, "window": window}
    expected = half.latent_attention(**args, **options)
    cache, rows = half.module.KVCache(), []
    for start, stop in itertools.pairwise(np.cumsum([0, *sizes])):
        C, R = cache.append(*(half.give(args[x][:, start:stop]) for x in "CR"))
        now = args | {
            "X": args["X"][:, start:stop],
            "C": half.back(C),
            "R": half.back(R),
        }
        rows.append(half.latent_attention(**now, **options))
    close(np.concatenate(rows, 1), expected)


# What it keeps, and what it refuses


@HALVES
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


@HALVES
def test_earlier_views_stay(half, draw, close):
    K, V = as_half(half, draw(11, 5)), as_half(half, draw(11, 3))
    cache = half.KVCache()
    views = [cache.append(K[i : i + 1], V[i : i + 1]) for i in range(11)]
    for i, (keys, values) in enumerate(views):
        close(keys, K[: i + 1])
        close(values, V[: i + 1])


@HALVES
def test_an_empty_cache_is_a_cache(half):
    cache = half.KVCache()
    assert cache and len(cache) == cache.n_seen == 0


@HALVES
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


@HALVES
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


@HALVES
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


@HALVES
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
