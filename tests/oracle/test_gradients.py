"""Gradients: autograd against finite differences, nothing from behind a mask, and the hand-derived ones of NumPy."""

import inspect

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

import attn_tutor.numpy as an
import attn_tutor.torch as at


def leaves(args, device="cpu"):
    """Arrays as tensors that want a gradient; the rest as it is."""
    return {
        name: torch.from_numpy(x).to(device).requires_grad_()
        if isinstance(x, np.ndarray)
        else x
        for name, x in args.items()
    }


def gradients(name, args, cotangent=None, **options):
    """Output and the gradient of each tensor of ``args``, for a cotangent of our choice (ones unless told)."""
    args = leaves(args)
    output = getattr(at, name)(**args, **options)
    wanted = {key: x for key, x in args.items() if isinstance(x, torch.Tensor)}
    cotangent = (
        torch.ones_like(output) if cotangent is None else torch.from_numpy(cotangent)
    )
    found = torch.autograd.grad(output, list(wanted.values()), cotangent)
    return output.detach(), dict(zip(wanted, found, strict=True))


def small(name):
    """Short axes: finite differences cost a call for each entry."""
    sizes = dict(
        n=3, m=4, d=2, d_v=3, q=2, k=3, h=2, d_in=3, d_k=2, d_x=3, d_y=2, d_q=3, d_o=2
    )
    return sizes | {"split_heads": {"d": 4}, "rotary": {"d": 4}}.get(name, {})


def check(fn, args):
    names = [name for name, x in args.items() if isinstance(x, torch.Tensor)]
    others = {name: x for name, x in args.items() if name not in names}
    return gradcheck(
        lambda *xs: fn(**dict(zip(names, xs, strict=True)), **others),
        [args[name] for name in names],
        fast_mode=False,
    )


def test_autograd(device, inputs, shaped):
    args = leaves(inputs(shaped, **small(shaped)), device)
    if shaped == "boxcar_kernel":  # is flat but for its edges
        assert not at.boxcar_kernel(**args).requires_grad
    else:
        assert check(getattr(at, shaped), args)


def hole(name):
    """A mask over 3 queries and 4 keys with an empty row and a key that nobody sees."""
    mask = torch.tensor(
        [[True, True, False, False], [False] * 4, [True, False, False, True]]
    )
    return {"self_attention": mask[:, :3], "masked_softmax": mask[2]}.get(name, mask)


def test_autograd_around_masks(device, inputs, masked):
    for causal in (False, True):
        if causal and "causal" not in inspect.signature(getattr(at, masked)).parameters:
            continue
        options = {"mask": hole(masked).to(device)} | (
            {"causal": True} if causal else {}
        )
        args = leaves(inputs(masked, **small(masked)), device)
        assert check(lambda o=options, **given: getattr(at, masked)(**given, **o), args)


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_no_gradient_is_nan_on_its_way(inputs, masked):
    """NaN that a later step clears still stops who looks for the cause of another with detect_anomaly."""
    args = leaves(inputs(masked, **small(masked)))
    with torch.autograd.detect_anomaly():
        getattr(at, masked)(**args, mask=hole(masked)).sum().backward()


def test_autograd_of_causal_rows_that_see_nothing(device, inputs, causal):
    args = leaves(inputs(causal, **small(causal) | {"n": 4, "m": 3}), device)
    assert check(lambda **given: getattr(at, causal)(**given, causal=True), args)


def test_scale_and_bandwidth_may_be_learnt(device, inputs):
    args = leaves(inputs("attention", **small("attention")), device)
    number = torch.tensor(0.7, dtype=torch.float64, device=device, requires_grad=True)
    assert check(at.gaussian_attention, args | {"bandwidth": number})
    assert check(at.attention, args | {"scale": number})
    del args["V"]
    assert check(at.attention_weights, args | {"scale": number})


@pytest.mark.parametrize(
    "name", ["triangular_kernel", "epanechnikov_kernel", "gaussian_kernel"]
)
def test_gradient_of_a_kernel_where_query_and_key_agree_is_zero(name):
    """The triangle has an edge there; any slope between its two sides would do, NaN would not."""
    Q = torch.tensor([[1.0, 2.0]], requires_grad=True)
    getattr(at, name)(Q, torch.tensor([[1.0, 2.0]])).sum().backward()
    assert torch.equal(Q.grad, torch.zeros(1, 2))


def test_gradient_of_an_empty_window_is_zero():
    """The second query is out of reach of every key."""
    Q = torch.tensor([[0.0], [9.0]], requires_grad=True)
    K, V = torch.tensor([[0.5], [-0.25]]), torch.tensor([[4.0], [8.0]])
    at.nadaraya_watson(Q, K, V, at.triangular_kernel).sum().backward()
    assert Q.grad.isfinite().all() and Q.grad[0].any() and not Q.grad[1].any()
    weights = torch.tensor([[3.0, 1.0], [0.0, 0.0]], requires_grad=True)
    (at.normalize(weights) * torch.tensor([1.0, 2.0])).sum().backward()
    assert torch.equal(weights.grad, torch.tensor([[-0.0625, 0.1875], [0.0, 0.0]]))


# Behind a mask

BEHIND = {  # the arguments whose rows belong to keys
    "attend": ["V"],
    "attention": ["K", "V"],
    "bilinear_attention": ["K", "V"],
    "gaussian_attention": ["K", "V"],
    "additive_attention": ["K", "V"],
    "cross_attention": ["Y"],
    "attention_weights": ["K"],
    "multi_head_attention": ["K", "V"],
    "multi_head_weights": ["K"],
}


def projects(arg):
    return arg[0] in "WM"


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", BEHIND)
def test_what_a_mask_hides_reaches_no_gradient(inputs, draw, close, name, bad):
    """Whether hidden from every query or, batch by batch, from some: gradients are those of clean inputs.

    Not those of projections, which multiply hidden tokens too, and 0 · NaN is NaN.
    """
    args = inputs(
        name, batch={arg: (2,) for arg in ("Q", "X", "scores", *BEHIND[name])}
    )
    mask = torch.from_numpy(draw(2, 7, 11) < 0.3)
    mask[:, 3] = False  # a query with nothing to attend to
    mask[:, :, 4] = False  # a key hidden from all
    mask[1, :, 6] = False  # and one hidden in the second sequence
    if name.startswith("multi_head"):
        mask = mask[:, None]
    dirty = {
        key: x.copy() if isinstance(x, np.ndarray) else x for key, x in args.items()
    }
    for arg in BEHIND[name]:
        dirty[arg][:, 4] = bad
        dirty[arg][1, 6, 0] = bad
    clean, expected = gradients(name, args, mask=mask)
    cotangent = draw(*clean.shape)
    clean, expected = gradients(name, args, cotangent, mask=mask)
    output, found = gradients(name, dirty, cotangent, mask=mask)
    close(output, clean)
    for arg, gradient in found.items():
        if not projects(arg):
            close(gradient, expected[arg])
            assert gradient.isfinite().all()
    for arg in BEHIND[name]:
        assert not found[arg][:, 4].any()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize(
    "name",
    [
        "attention",
        "gaussian_attention",
        "additive_attention",
        "bilinear_attention",
        "self_attention",
        "multi_head_attention",
    ],
)
def test_gradient_of_a_query_with_nothing_to_attend_to(inputs, draw, close, name, bad):
    """Row 2 sees nothing: whatever it holds, its output is constant and its gradient 0."""
    n = m = 7
    args = inputs(name, n=n, m=m)
    mask = torch.from_numpy(draw(n, m) < 0.5)
    mask[2] = False
    mask[:, 2] = False  # of self-attention the row is a key too
    output, expected = gradients(name, args, mask=mask)
    first = next(iter(args))
    dirty = args | {first: args[first].copy()}
    dirty[first][2] = bad
    assert not output[2].any()
    again, found = gradients(name, dirty, mask=mask)
    close(again, output)
    assert not found[first][2].any()
    for arg, gradient in found.items():
        if not projects(arg):
            close(gradient, expected[arg])


@pytest.mark.parametrize(
    "name",
    [
        "attention",
        "gaussian_attention",
        "additive_attention",
        "self_attention",
        "bilinear_attention",
        "multi_head_attention",
    ],
)
def test_the_future_reaches_no_gradient_of_the_past(inputs, draw, close, name):
    """The last token is not finite; the loss is of the earlier ones."""
    args = inputs(name, n=7, m=7)
    keyed = ["X"] if name == "self_attention" else ["K", "V"]
    clean, _ = gradients(name, args, causal=True)
    cotangent = draw(*clean.shape)
    cotangent[-1] = 0
    clean, expected = gradients(name, args, cotangent, causal=True)
    dirty = {
        key: x.copy() if isinstance(x, np.ndarray) else x for key, x in args.items()
    }
    for arg in keyed:
        dirty[arg][-1] = np.nan
    output, found = gradients(name, dirty, cotangent, causal=True)
    close(output[:-1], clean[:-1])
    assert output[-1].isnan().all()  # it had a right to see
    for arg, gradient in found.items():
        if not projects(arg):
            close(gradient, expected[arg])


# By hand, in NumPy


@pytest.mark.parametrize(("causal", "window"), [(False, None), (True, None), (True, 3)])
@pytest.mark.parametrize("scale", [None, 0.3])
@pytest.mark.parametrize("kind", ["none", "pairs", "padding", "more batch axes"])
@pytest.mark.parametrize(
    "batch",
    [{}, {"Q": (3, 1), "K": (2,), "V": (1, 2)}, {"V": (2,)}, {"Q": (1,), "K": (3, 2)}],
    ids=str,
)
def test_attention_vjp(inputs, draw, close, batch, kind, scale, causal, window):
    for n, m in ((7, 11), (7, 7), (11, 7)):
        args = inputs("attention", batch=batch, n=n, m=m)
        shape = {
            "none": None,
            "pairs": (n, m),
            "padding": (2, 1, m),
            "more batch axes": (3, 2, n, m),
        }[kind]
        mask = None if shape is None else draw(*shape) < 0
        options = dict(causal=causal, window=window, scale=scale)
        g = draw(*an.attention(**args, mask=mask, **options).shape)
        mask_too = mask if mask is None else torch.from_numpy(mask)
        _, expected = gradients("attention", args, g, mask=mask_too, **options)
        found = an.attention_vjp(**args, g=g, mask=mask, **options)
        for gradient, arg in zip(found, "QKV", strict=True):
            close(gradient, expected[arg])


def test_attention_vjp_of_values_with_batch_axes_that_g_lacks(draw, close):
    """The same g stands for each of the values: all get the gradient that each would get alone."""
    Q, K, V, g = draw(7, 5), draw(11, 5), draw(3, 1, 11, 2), draw(4, 7, 2)
    _, _, dV = an.attention_vjp(Q, K, V, g)
    _, _, alone = an.attention_vjp(Q, K, V[0, 0], g)
    close(dV, np.broadcast_to(alone, V.shape))


def test_attention_vjp_sees_nothing_behind_a_mask(inputs, draw, close):
    args = inputs("attention")
    mask = draw(7, 11) < 0
    mask[:, 4] = False
    mask[3] = False
    g = draw(7, 3)
    clean = an.attention_vjp(**args, g=g, mask=mask)
    assert not clean[0][3].any() and not clean[1][4].any() and not clean[2][4].any()
    args["K"][4] = args["V"][4] = np.nan
    args["Q"][3] = np.inf
    for gradient, expected in zip(
        an.attention_vjp(**args, g=g, mask=mask), clean, strict=True
    ):
        close(gradient, expected)


def test_attention_vjp_of_a_query_that_sees_nothing_passes_nothing_on(inputs, draw):
    args = inputs("attention", n=3, m=2)  # causally, the first query sees nothing
    g = draw(3, 3)
    clean = an.attention_vjp(**args, g=g, causal=True)
    g[0] = np.nan
    for found, expected in zip(
        an.attention_vjp(**args, g=g, causal=True), clean, strict=True
    ):
        np.testing.assert_array_equal(found, expected)


def test_attention_vjp_of_a_query_that_sees_nan_is_zero(inputs, draw, close):
    args = inputs("attention", m=7)
    args["K"][6] = np.nan
    g = draw(7, 3)
    found = an.attention_vjp(**args, g=g, causal=True)
    _, expected = gradients("attention", args, g, causal=True)
    for gradient, arg in zip(found, "QKV", strict=True):
        close(gradient, expected[arg])
        assert np.isfinite(gradient).all()
    assert not found[0][6].any()


@pytest.mark.parametrize("shape", [(11,), (2, 7, 11), (0, 3), (3, 0)])
def test_softmax_vjp(draw, close, shape):
    scores = torch.from_numpy(draw(*shape)).requires_grad_()
    weights = torch.softmax(scores, -1)
    g = draw(*shape)
    (expected,) = torch.autograd.grad(weights, scores, torch.from_numpy(g))
    close(an.softmax_vjp(weights.detach().numpy(), g), expected)


def test_softmax_vjp_of_masked_weights(draw, close):
    scores, mask, g = draw(7, 11), draw(7, 11) < 0, draw(7, 11)
    mask[3] = False
    leaf = torch.from_numpy(scores).requires_grad_()
    weights = at.masked_softmax(leaf, torch.from_numpy(mask))
    (expected,) = torch.autograd.grad(weights, leaf, torch.from_numpy(g))
    found = an.softmax_vjp(an.masked_softmax(scores, mask), g)
    close(found, expected)
    assert not found[~mask].any()


@pytest.mark.parametrize(
    "batch",
    [
        {},
        {"Q": (3, 1), "K": (2,)},
        {"W_q": (2,), "K": (3, 1)},
        {"w_v": (2,)},
        {"Q": (1,), "W_k": (3, 1), "w_v": (1,)},
    ],
    ids=str,
)
def test_additive_score_vjp(inputs, draw, close, batch):
    args = inputs("additive_score", batch=batch)
    g = draw(*an.additive_score(**args).shape)
    _, expected = gradients("additive_score", args, g)
    found = an.additive_score_vjp(**args, g=g)
    for gradient, arg in zip(found, args, strict=True):
        close(gradient, expected[arg])


def test_vjps_follow_the_dtype_and_leave_their_inputs(inputs, draw):
    args = {name: x.astype(np.float32) for name, x in inputs("attention").items()}
    g = draw(7, 3).astype(np.float32)
    before = [x.tobytes() for x in (*args.values(), g)]
    assert {x.dtype for x in an.attention_vjp(**args, g=g, causal=True)} == {
        np.dtype("float32")
    }
    assert [x.tobytes() for x in (*args.values(), g)] == before
