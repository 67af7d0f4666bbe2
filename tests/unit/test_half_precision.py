"""float16 and bfloat16 where they are weakest: large scores, long sums, far positions, and overflow behind a mask."""

import inspect

import numpy as np
import pytest
import torch

import attn_tutor.numpy as an
import attn_tutor.torch as at

HALVES = [("numpy", "float16"), ("torch", "float16"), ("torch", "bfloat16")]


@pytest.fixture(params=HALVES, ids="-".join)
def coarse(request, device):
    """Call a function in half precision; hand back its result, and that of NumPy in float64 for the same inputs."""
    half, dtype = request.param
    if half == "numpy" and device != "cpu":
        pytest.skip("NumPy computes on the CPU")

    def call(name, *arrays, **options):
        tensors = [
            torch.from_numpy(x).to(device, getattr(torch, dtype)) for x in arrays
        ]
        exact = [x.double().cpu().numpy() for x in tensors]  # after rounding
        masks = {
            k: torch.from_numpy(x).to(device) if isinstance(x, np.ndarray) else x
            for k, x in options.items()
        }
        if half == "numpy":
            output = getattr(an, name)(
                *(x.astype(np.float16) for x in exact), **options
            )
        else:
            output = getattr(at, name)(*tensors, **masks)
        assert str(output.dtype).endswith(dtype)
        return output, getattr(an, name)(*exact, **options)

    return call


def test_an_empty_row_needs_no_large_constant(coarse, close, draw, mask_of):
    """A constant such as −1e6 does not exist in float16, and one such as −1e4 loses to scores below it."""
    mask = mask_of(7, 11)
    mask[2] = False
    output, exact = coarse("masked_softmax", 50 * draw(7, 11) - 30_000, mask=mask)
    close(output, exact)
    assert not output[2].any() and not exact[~mask].any()
    output, exact = coarse("attention", draw(7, 5), draw(11, 5), draw(11, 3), mask=mask)
    close(output, exact)
    assert not output[2].any()


def test_dot_products_beyond_the_range_of_float16(coarse, close, draw):
    """300 · 300 overflows float16, but its softmax is plain: the scale comes before the product, or sums are wider."""
    Q, K, V = np.full((1, 4), 300.0), np.array([[300.0] * 4, [299.0] * 4]), draw(2, 3)
    output, exact = coarse("attention", Q, K, V)
    close(output, exact)
    scores, exact = coarse(
        "scaled_dot_score", np.full((1, 64), 60.0), np.full((2, 64), 60.0)
    )
    close(scores, exact)  # 64 · 60² / 8 = 28,800 fits; 64 · 60² = 230,400 does not


def test_long_sums(coarse, close, draw):
    """5000 weights of 1/5000: a running sum in half precision would stop growing at 2048."""
    output, exact = coarse(
        "attention", np.zeros((1, 4)), draw(5000, 4), np.ones((5000, 3))
    )
    close(output, exact)
    weights, _ = coarse("softmax", np.zeros((1, 5000)))
    close(5000 * weights, np.ones((1, 5000)))


def test_sums_beyond_the_range_of_float16(coarse, close):
    """70,000 keys of weight 1: their sum is more than float16 holds."""
    weights, exact = coarse("normalize", np.ones((1, 70_000)))
    close(weights * 60_000, exact * 60_000)
    weights, exact = coarse("softmax", np.zeros((1, 70_000)))
    close(weights * 60_000, exact * 60_000)


@pytest.mark.parametrize("options", [{}, {"causal": True}], ids=str)
def test_gaussian_attention_over_wide_keys(coarse, close, draw, options):
    """Half the squared norm, 200 and more, would be rounded by whole units in bfloat16."""
    K = np.linspace(-20, 20, 67)[:, None]
    output, exact = coarse("gaussian_attention", K + 0.2, K, np.cos(K), **options)
    close(output, exact)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the last token itself overflows
@pytest.mark.parametrize(
    "name",
    ["self_attention", "multi_head_attention", "bilinear_attention", "attention"],
)
def test_overflow_of_a_projection_stays_in_the_future(coarse, inputs, name):
    """60,000 is finite in float16, its projection is not; 0 · ∞ would carry it into the past as NaN."""
    args = inputs(
        name, n=7, m=7, **({"c": 6, "e": 6} if name == "multi_head_attention" else {})
    )
    if name == "multi_head_attention":
        args["n_heads"] = 2
    heads = {"n_heads": args.pop("n_heads")} if "n_heads" in args else {}
    keyed = ["X"] if name == "self_attention" else ["K", "V"]
    calm, _ = coarse(name, *args.values(), causal=True, **heads)
    for arg in keyed:
        args[arg][-1] = 60_000
    spoilt, _ = coarse(name, *args.values(), causal=True, **heads)
    assert (spoilt[:-1] == calm[:-1]).all()


def test_far_positions(close, device):
    """Half precision counts whole numbers to 2048 or 256 only; positions are counted in double precision."""
    for dtype in (torch.float16, torch.bfloat16):
        table = at.sinusoidal_encoding(5000, 6, dtype=dtype, device=device)
        close(table, an.sinusoidal_encoding(5000, 6))
        bias = at.alibi_bias(8, 1, 100_000, dtype=dtype, device=device)
        exact = an.alibi_bias(8, 1, 100_000)
        close(bias, np.where(abs(exact) > torch.finfo(dtype).max, -np.inf, exact))
        X = torch.ones(1, 8, dtype=dtype, device=device)
        for options in {}, {"interleaved": False}, {"rates": np.array([1.0, 0.3])}:
            exact = an.rotary(np.ones((1, 8)), np.array([5001]), **options)
            options = {k: torch.as_tensor(x, device=device) for k, x in options.items()}
            close(at.rotary(X, torch.tensor([5001], device=device), **options), exact)
    turned = an.rotary(np.ones((1, 8), np.float16), np.array([5001]))
    close(turned, an.rotary(np.ones((1, 8)), np.array([5001])))


def test_all_forms_take_an_empty_row_and_garbage(
    coarse, close, inputs, mask_of, masked
):
    """Masked, causal where possible, with NaN behind the mask."""
    args = inputs(masked, n=7, m=7, batch=(7,) if masked == "masked_softmax" else ())
    others = {k: args.pop(k) for k in list(args) if not isinstance(args[k], np.ndarray)}
    mask = mask_of(7, 7)
    mask[2] = mask[:, 4] = False
    if "causal" in inspect.signature(getattr(an, masked)).parameters:
        others["causal"] = True
    for arg in ("K", "V", "Y"):
        if arg in args:
            args[arg][4] = np.nan
    output, exact = coarse(masked, *args.values(), mask=mask, **others)
    assert np.isfinite(exact).all()
    close(output, exact)


def test_weights_in_half_precision_do_not_overflow(half):
    rng = np.random.default_rng(3)
    Q = (200 * rng.normal(size=(6, 16))).astype(np.float16)
    found = half.attention_weights(Q, Q)
    assert found.dtype == np.float16 and np.isfinite(found).all()
    wide = half.attention_weights(Q.astype(np.float32), Q.astype(np.float32))
    np.testing.assert_allclose(found, wide, atol=1e-3)
