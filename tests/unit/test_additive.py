"""Additive attention without its (n, m, h) tensor: the textbook's number far out, in its gradients, and transformed."""

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import attn_tutor.numpy as an
import attn_tutor.torch as at


def textbook(Q, K, V, W_q, W_k, w_v, mask=None):
    """A tanh for each feature of each pair."""
    half, xp = (an, np) if isinstance(Q, np.ndarray) else (at, torch)
    pairs = (Q @ W_q)[..., :, None, :] + (K @ W_k)[..., None, :, :]
    scores = (xp.tanh(pairs) * w_v[..., None, None, :]).sum(-1)
    return half.attend(scores, V, mask)


def leaves(args, dtype=torch.float64):
    return [torch.from_numpy(x).to(dtype).requires_grad_() for x in args.values()]


def gradients(fn, args, **options):
    output = fn(*args, **options)
    g = torch.linspace(-1, 2, output.numel(), dtype=output.dtype).view(output.shape)
    return [output, *torch.autograd.grad(output, args, g)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_gradients_are_those_of_the_textbook(inputs, close, mask_of, masked, causal):
    args = leaves(inputs("additive_attention", n=150, m=160, h=30))
    mask = torch.from_numpy(mask_of(150, 160)) if masked else None
    if masked:
        mask[7] = False
    may = at.causal_mask(150, 160) if causal else torch.ones(150, 160, dtype=torch.bool)
    expected = gradients(textbook, args, mask=may & mask if masked else may)
    found = gradients(at.additive_attention, args, mask=mask, causal=causal)
    for ours, theirs in zip(found, expected, strict=True):
        close(ours / theirs.abs().max(), theirs / theirs.abs().max())


@pytest.mark.parametrize("far", [0.0, 600.0])
def test_gradcheck(inputs, far):
    """Of first and second order, and where features are too far apart for products of exponentials."""
    args = inputs("additive_attention", n=4, m=7, h=2, d_v=1, q=2, k=2)
    args["Q"][0], args["K"][1] = far, -far
    args["W_q"], args["W_k"] = np.eye(2), np.eye(2)
    mask = torch.ones(4, 7, dtype=torch.bool)
    mask[2], mask[:, 3] = False, False

    def fn(*xs):
        return at.additive_attention(*xs, mask)

    assert gradcheck(fn, leaves(args))
    assert gradgradcheck(fn, leaves(args))


def test_gradcheck_of_dropped_weights(inputs):
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


# Compiled, transformed


@pytest.mark.slow
def test_compiles_as_one_graph(inputs, close):
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
