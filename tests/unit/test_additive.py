"""Additive attention without its (n, m, h) tensor: equal to the textbook across tiles, far out, and in its gradient."""

import warnings

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

import attn_tutor.numpy as an
import attn_tutor.torch as at
from attn_tutor.numpy.fast import additive as numpy_engine
from attn_tutor.numpy.fast import tiles as numpy_tiles
from attn_tutor.torch.fast import additive as torch_engine


@pytest.fixture(autouse=True)
def tiles(monkeypatch):
    """Also for few tokens."""
    monkeypatch.setattr(numpy_engine, "FEW", 0)


@pytest.fixture
def small_tiles(monkeypatch):
    """Tiles of 3 queries × 5 keys of 7 features, so that a few tokens make many, whole and cut."""
    for module in (numpy_engine, numpy_tiles):
        monkeypatch.setattr(module, "KEYS", 5)
    monkeypatch.setattr(numpy_engine, "SPACE", 3 * 5 * 7)
    room = 3 * 5 * 7
    monkeypatch.setattr(torch_engine, "ROOM", {"cpu": room, "cuda": room})
    monkeypatch.setattr(torch_engine, "QUERIES", 3)
    monkeypatch.setattr(torch_engine, "SCORES", 3 * 17)


@pytest.fixture
def two_queries(monkeypatch):
    """Tiles of 2 queries × 4 keys of 2 features: a quarter of what a gradcheck has."""
    monkeypatch.setattr(torch_engine, "ROOM", {"cpu": 2 * 4 * 2})
    monkeypatch.setattr(torch_engine, "QUERIES", 2)


def textbook(Q, K, V, W_q, W_k, w_v, mask=None):
    half = an if isinstance(Q, np.ndarray) else at
    return half.attend(half.additive_score(Q, K, W_q, W_k, w_v), V, mask)


def leaves(args, dtype=torch.float64):
    return [torch.from_numpy(x).to(dtype).requires_grad_() for x in args.values()]


def gradients(fn, args, **options):
    output = fn(*args, **options)
    g = torch.linspace(-1, 2, output.numel(), dtype=output.dtype).view(output.shape)
    return [output, *torch.autograd.grad(output, args, g)]


MASKS = {
    "none": None,
    "pairs": (13, 17),
    "padding": (2, 1, 17),
    "queries": (13, 1),
    "batch": (2, 13, 17),
}


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "batch", [{}, {"Q": (3, 1), "K": (2,)}, {"w_v": (2,), "V": (3, 1)}], ids=str
)
@pytest.mark.usefixtures("small_tiles")
def test_tiles_join_without_a_seam(half, close, inputs, mask_of, batch, causal, kind):
    args = inputs("additive_attention", batch, n=13, m=17, h=7)
    mask = None if MASKS[kind] is None else mask_of(*MASKS[kind])
    if mask is not None:
        mask[..., 4:5, :] = False  # an empty row
        mask[..., :6] &= mask.shape[-1] == 1  # nothing is seen in a tile of keys
    may = np.tri(13, 17, 4, dtype=bool) if causal else np.ones((13, 17), bool)
    expected = textbook(**args, mask=may if mask is None else may & mask)
    close(half.additive_attention(**args, mask=mask, causal=causal), expected)


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("causal", [False, True])
def test_few_tokens_need_no_tiles(monkeypatch, close, inputs, mask_of, causal, kind):
    args = inputs("additive_attention", {"w_v": (2,), "V": (3, 1)}, n=13, m=17, h=7)
    args["mask"] = None if MASKS[kind] is None else mask_of(*MASKS[kind])
    tiled = an.additive_attention(**args, causal=causal)
    monkeypatch.setattr(numpy_engine, "FEW", 3 * 2 * 13 * 17 * 7)
    monkeypatch.setattr(numpy_engine, "factors", None)
    close(an.additive_attention(**args, causal=causal), tiled)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_gradients_are_those_of_the_textbook(inputs, close, mask_of, masked, causal):
    """In blocks of their usual size: 112 queries, twice, and 76."""
    args = leaves(inputs("additive_attention", n=300, m=310, h=30))
    mask = torch.from_numpy(mask_of(300, 310)) if masked else None
    if masked:
        mask[7] = False
    may = at.causal_mask(300, 310) if causal else torch.ones(300, 310, dtype=torch.bool)
    expected = gradients(textbook, args, mask=may & mask if masked else may)
    found = gradients(at.additive_attention, args, mask=mask, causal=causal)
    for ours, theirs in zip(found, expected, strict=True):
        close(ours / theirs.abs().max(), theirs / theirs.abs().max())


@pytest.mark.usefixtures("two_queries")
@pytest.mark.parametrize("far", [0.0, 600.0])
def test_gradcheck_across_tiles(inputs, far):
    """Also where features are too far apart for products of exponentials."""
    args = inputs("additive_attention", n=4, m=7, h=2, d_v=1, q=2, k=2)
    args["Q"][0], args["K"][1] = far, -far
    args["W_q"], args["W_k"] = np.eye(2), np.eye(2)
    mask = torch.ones(4, 7, dtype=torch.bool)
    mask[2], mask[:, 3] = False, False
    assert gradcheck(lambda *xs: at.additive_attention(*xs, mask), leaves(args))


@pytest.mark.usefixtures("two_queries")
@pytest.mark.parametrize("block", [2, 4])
def test_gradcheck_of_dropped_weights(monkeypatch, inputs, block):
    monkeypatch.setattr(torch_engine, "QUERIES", block)

    def drop(*args):
        torch.manual_seed(0)  # the same weights each time
        return at.additive_attention(*args, dropout_p=0.4)

    args = inputs("additive_attention", n=4, m=7, h=2, d_v=1, q=2, k=2)
    assert gradcheck(drop, leaves(args))


# Far out

FAR = {  # queries and keys, before what is drawn is added; and how widely that is spread
    "one window": (0, 0, 1),
    "a window beside the origin": (1e4, -1e4, 1),
    "wide queries, narrow keys": (np.linspace(-2e4, 0, 23)[:, None], 1e4, 1),
    "narrow queries, wide keys": (1e4, np.linspace(-2e4, 0, 29)[:, None], 1),
    "both wide": (0, 0, 5e3),
    "every sum flat": (200, 200, 1),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("place", FAR)
def test_sums_of_any_size(half, draw, close, place, dtype):
    """exp(2 · 10⁴) is too much for any float; tanh is not. Inputs are rounded first, so that sums agree."""
    q, k, spread = FAR[place]
    args = (q + spread * draw(23, 3), k + spread * draw(29, 3), draw(29, 2))
    args = [x.astype(dtype) for x in (*args, np.eye(3), np.eye(3), draw(3))]
    exact = [x.astype(float) for x in args]
    close(half.additive_attention(*args), textbook(*exact))
    expected, found = (
        gradients(fn, [torch.from_numpy(x).requires_grad_() for x in given])
        for fn, given in ((textbook, exact), (at.additive_attention, args))
    )
    for ours, theirs in zip(found, expected, strict=True):
        top = theirs.abs().max().clip(1)
        close(ours / top, theirs / top)


def test_products_are_used_unless_both_sides_are_wide(draw):
    """Otherwise the tests above could all pass with tanh."""
    for place, (q, k, spread) in FAR.items():
        a, b = q + spread * draw(23, 3), k + spread * draw(29, 3)
        product = place != "both wide"
        assert numpy_engine.factors(a, b)[2] == product
        pair = (torch.from_numpy(x)[None] for x in (a, b))
        assert torch_engine.factors(*pair)[2] == product


# Compiled, transformed


@pytest.mark.slow
def test_compiles_as_one_graph(monkeypatch, inputs, close):
    monkeypatch.setattr(torch_engine, "loops", lambda: None)
    args = leaves(inputs("additive_attention"))
    compiled = torch.compile(at.additive_attention, fullgraph=True, backend="aot_eager")
    everything = torch.ones(7, 11, dtype=torch.bool)
    for options in ({}, {"causal": True}, {"mask": everything}):
        for ours, plain in zip(
            gradients(compiled, args, **options),
            gradients(at.additive_attention, args, **options),
            strict=True,
        ):
            close(ours, plain)


@pytest.mark.slow
@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("far", [1, 100])
def test_compiled_loops(inputs, close, mask_of, far, causal):
    """The loops that a compiled caller gets, without the compiler around them; far out it gets those of others."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if not torch_engine.loops():
            pytest.skip("no compiler works here")
    given = inputs("additive_attention", n=13, m=17, h=8)
    # Far out some exp(2a + 2b) is infinite.
    args = leaves(given | {"Q": far * given["Q"], "K": far * given["K"]})
    mask = torch.from_numpy(mask_of(13, 17))
    plain = gradients(at.additive_attention, args, mask=mask, causal=causal)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.compiler, "is_compiling", lambda: True)
        found = gradients(at.additive_attention, args, mask=mask, causal=causal)
    for ours, theirs in zip(found, plain, strict=True):
        close(ours, theirs)


def test_without_a_compiler_it_says_so_and_computes(monkeypatch, inputs, close):
    def broken(fn, **_):
        def call(*args):
            raise RuntimeError("no C++ compiler\nand a long report")

        return call

    monkeypatch.setattr(torch, "compile", broken)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    args = inputs("additive_attention", h=8)
    torch_engine.loops.cache_clear()
    try:
        with pytest.warns(UserWarning, match=r"no compiler works: no C\+\+ compiler$"):
            output = at.additive_attention(*leaves(args))
        close(at.additive_attention(*leaves(args)), output)  # once is enough
    finally:
        torch_engine.loops.cache_clear()
    close(output, textbook(**args))


def test_transforms_of_torch_func(inputs, close):
    args = [x.detach() for x in leaves(inputs("additive_attention"))]
    batched = [torch.stack([x, x / 2, x / 3], 1) for x in args[:3]]
    dims = (1, 1, 1, None, None, None)

    def loss(fn):
        return lambda *xs: fn(*xs).square().sum()

    def every(fn):
        return [
            torch.func.grad(loss(fn), argnums=(0, 1, 5))(*args),
            torch.func.jacrev(fn, argnums=1)(*args),
            torch.vmap(fn, dims)(*batched, *args[3:]),
            torch.vmap(torch.func.grad(loss(fn)), dims)(*batched, *args[3:]),
        ]

    leaves_of = torch.utils._pytree.tree_leaves
    ours, theirs = leaves_of(every(at.additive_attention)), leaves_of(every(textbook))
    for x, y in zip(ours, theirs, strict=True):
        close(x, y)


def test_second_derivatives_are_refused_in_words(inputs):
    args = leaves(inputs("additive_attention"))
    output = at.additive_attention(*args).square().sum()
    (first,) = torch.autograd.grad(output, args[:1], create_graph=True)
    with pytest.raises(NotImplementedError, match="no second derivatives; attend"):
        first.sum().backward()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_and_autocast(inputs, close, dtype):
    args = inputs("additive_attention")
    exact = gradients(textbook, leaves(args))
    found = gradients(at.additive_attention, leaves(args, dtype))
    mixed = torch.autocast("cpu", dtype)(at.additive_attention)
    single = gradients(mixed, leaves(args, torch.float32))
    for x, y, z in zip(exact, found, single, strict=True):
        assert y.dtype == dtype and z.dtype == torch.float32
        close(y, x)
        close(z, x)
