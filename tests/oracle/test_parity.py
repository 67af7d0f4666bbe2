"""Both halves give the same numbers, in every dtype, for every layout of batch axes, and leave their inputs alone."""

import inspect
import itertools

import numpy as np
import pytest
import torch

import attn_tutor.numpy as an
import attn_tutor.torch as at

UNSHAPED = {  # functions of sizes rather than arrays; those with a shape signature are all compared
    "causal_mask": [(2, 5), (5, 2), (3,), (0, 4), (4, 0)],
    "alibi_bias": [(8, 5), (6, 5, 7), (1, 7, 5), (12, 3), (2, 0, 3)],
    "sinusoidal_encoding": [(7, 6), (7, 5), (7, 1), (0, 4), (4, 0), (5, 8, 30.0)],
}


def lengths(name):
    """The axis letters of a function's arguments that may be any number."""
    if name in ("split_heads", "rotary"):
        return ["n"]  # heads or pairs fix the other
    left = getattr(an, name).__shapes__.split("->")[0]
    letters = sorted(
        set(left.replace("(", "").replace(")", "").split(",")) - set("abcer") - {""}
    )
    return letters or ["n", "m"]


def test_cuda():
    """With a CUDA device every test that takes a device runs on it too."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    assert at.causal_mask(2, device="cuda").is_cuda


@pytest.mark.parametrize("name", UNSHAPED)
def test_functions_of_sizes(halves, close, name):
    for args in UNSHAPED[name]:
        here, there = (getattr(half, name)(*args) for half in halves)
        close(there, here)


def test_functions_of_sizes_take_dtype_and_device(close, device):
    for name, dtype in itertools.product(
        ("alibi_bias", "sinusoidal_encoding"), (torch.float64, torch.bfloat16)
    ):
        for args in UNSHAPED[name]:
            there = getattr(at, name)(*args, device=device, dtype=dtype)
            assert (there.dtype, there.device.type) == (dtype, device)
            close(there, getattr(an, name)(*args))
    lens = torch.tensor([1, 3])
    assert at.padding_mask(lens, 5, device=device).device.type == device
    assert at.causal_mask(5, device=device).device.type == device


def test_unless_told_the_results_have_the_default_dtype():
    assert (
        at.alibi_bias(2, 3).dtype == at.sinusoidal_encoding(3, 2).dtype == torch.float32
    )
    assert an.alibi_bias(2, 3).dtype == an.sinusoidal_encoding(3, 2).dtype == np.float64


def test_padding_mask(halves, close, draw):
    for lens in (
        np.array([0, 3, 7]),
        np.array([[0, 7], [3, 1]], dtype=np.uint8),
        np.zeros(0, dtype=np.int32),
    ):
        here, there = (half.padding_mask(lens, 7) for half in halves)
        close(there, here)


def test_float64(halves, close, inputs, shaped):
    args = inputs(shaped)
    here, there = (getattr(half, shaped)(**args) for half in halves)
    assert here.dtype == there.dtype == np.float64
    close(there, here)


@pytest.mark.parametrize("first", [0, 1, 2])
def test_batch_axes_broadcast_like_numpy(halves, close, inputs, shaped, first):
    """Each argument in turn gets batch axes that the others lack, have as 1, or share."""
    names = list(inputs(shaped))
    patterns = [(3, 1), (2,), (), (1, 2), (3, 2)]
    batch = {name: patterns[(i + first) % 5] for i, name in enumerate(names)}
    args = inputs(shaped, batch=batch)
    here, there = (getattr(half, shaped)(**args) for half in halves)
    close(there, here)
    # and each slice is what the function gives for it alone
    arrays = {name: x for name, x in args.items() if isinstance(x, np.ndarray)}
    others = {name: x for name, x in args.items() if name not in arrays}
    outer = np.broadcast_shapes(*(batch[name] for name in arrays))
    for index in np.ndindex(outer):
        alone = {
            name: np.broadcast_to(x, (*outer, *x.shape[len(batch[name]) :]))[index]
            for name, x in arrays.items()
        }
        close(here[index], getattr(an, shaped)(**alone, **others))


def test_axes_of_length_zero(halves, close, inputs, shaped):
    for letter in lengths(shaped):
        args = inputs(shaped, **{letter: 0})
        here, there = (getattr(half, shaped)(**args) for half in halves)
        close(there, here)
        assert np.isfinite(here).all(), letter
    args = inputs(shaped, batch=(0, 2))
    here, there = (getattr(half, shaped)(**args) for half in halves)
    close(there, here)


def test_no_keys_at_all_give_zero(half, inputs, masked):
    output = getattr(half, masked)(**inputs(masked, m=0))
    if masked != "self_attention":  # whose keys are its queries
        assert output.size == 0 or not output.any()


@pytest.mark.parametrize(("n", "m"), [(0, 5), (5, 0), (0, 0)])
def test_masks_over_axes_of_length_zero(halves, close, inputs, causal, n, m):
    m = n if causal == "self_attention" else m
    args = inputs(causal, n=n, m=m)
    for shape, flag in itertools.product([(n, m), (1, 1), (m,)], [False, True]):
        mask = np.ones(shape, bool)
        here, there = (
            getattr(half, causal)(**args, mask=mask, causal=flag) for half in halves
        )
        close(there, here)
        assert m or not here.any()


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_lower_precision(halves, close, inputs, shaped, dtype):
    args = {
        name: x.astype(dtype) if isinstance(x, np.ndarray) else x
        for name, x in inputs(shaped).items()
    }
    exact = getattr(an, shaped)(
        **{
            k: x.astype(float) if isinstance(x, np.ndarray) else x
            for k, x in args.items()
        }
    )
    for half in halves:
        output = getattr(half, shaped)(**args)
        assert output.dtype == dtype
        close(output, exact)


def test_bfloat16(device, close, inputs, shaped):
    args = {
        name: torch.from_numpy(x).to(device, torch.bfloat16)
        if isinstance(x, np.ndarray)
        else x
        for name, x in inputs(shaped).items()
    }
    output = getattr(at, shaped)(**args)
    assert (output.dtype, output.device.type) == (torch.bfloat16, device)
    exact = {
        name: x.double().cpu().numpy() if isinstance(x, torch.Tensor) else x
        for name, x in args.items()
    }
    close(output, getattr(an, shaped)(**exact))


def test_numpy_promotes_mixed_dtypes(close, inputs):
    args = inputs("attention")
    mixed = args | {"V": args["V"].astype(np.float32)}
    assert an.attention(**mixed).dtype == np.float64
    mixed = {name: x.astype(np.float32) for name, x in args.items()} | {
        "K": args["K"].astype(np.float16)
    }
    assert an.attention(**mixed).dtype == np.float32


def test_integers_count_as_real_numbers(halves, close, inputs, shaped):
    whole = {
        name: np.rint(2 * x).astype(int) if isinstance(x, np.ndarray) else x
        for name, x in inputs(shaped).items()
    }
    real = {
        name: x.astype(float) if isinstance(x, np.ndarray) else x
        for name, x in whole.items()
    }
    # By position: what is given by name is always looked at twice.
    here, there = (getattr(half, shaped)(*whole.values()) for half in halves)
    assert here.dtype == np.float64
    assert there.dtype == np.float32  # torch's default
    close(here, getattr(an, shaped)(**real))
    close(there, here)
    truth = {
        name: x > 0 if isinstance(x, np.ndarray) else x for name, x in whole.items()
    }
    assert getattr(an, shaped)(**truth).dtype == np.float64


def test_inputs_are_left_as_they_were(half, inputs, mask_of, shaped):
    """Masked and causal where they can be, with something not finite to clear."""
    args = inputs(shaped, batch=(2,))
    extras = {}
    parameters = inspect.signature(getattr(an, shaped)).parameters
    if "mask" in parameters:
        extras["mask"] = np.arange(2 * 7).reshape(2, 1, 7)[..., :1] > 3
        if "n_heads" in parameters:
            extras["mask"] = extras["mask"][:, None]
        next(reversed([x for x in args.values() if isinstance(x, np.ndarray)]))[
            0, 0
        ] = np.nan
    if "causal" in parameters:
        extras["causal"] = True
    given = args | extras
    arrays = [x for x in given.values() if isinstance(x, np.ndarray)]
    before = [x.tobytes() for x in arrays]
    native = {
        name: half.give(x) for name, x in given.items()
    }  # on the CPU these share memory with the arrays
    getattr(half.module, shaped)(**native)
    assert [x.tobytes() for x in arrays] == before
    for name, x in native.items():
        if isinstance(x, torch.Tensor):
            assert x.cpu().numpy().tobytes() == given[name].tobytes()


def test_read_only_and_strided_inputs(close, inputs, shaped):
    args = inputs(shaped)
    expected = getattr(an, shaped)(**args)
    for name, x in args.items():
        if isinstance(x, np.ndarray):
            wide = np.repeat(np.asfortranarray(x), 2, axis=0)[::2]
            wide.flags.writeable = False
            args[name] = wide
    close(getattr(an, shaped)(**args), expected)
    tensors = {
        name: torch.tensor(x).mT.contiguous().mT
        if isinstance(x, np.ndarray) and x.ndim > 1
        else torch.tensor(x)
        if isinstance(x, np.ndarray)
        else x
        for name, x in args.items()
    }
    close(getattr(at, shaped)(**tensors), expected)


def test_kernels_of_the_reader_may_weigh(halves, close, draw):
    """nadaraya_watson takes any kernel of the same three arguments."""
    Q, K, V = draw(7, 2), draw(11, 2), draw(11, 3)
    expected = an.nadaraya_watson(Q, K, V, an.epanechnikov_kernel, 1.5)
    for half in halves:
        kernel = half.module.epanechnikov_kernel
        close(
            half.nadaraya_watson(
                Q, K, V, lambda Q, K, bandwidth, k=kernel: 8 * k(Q, K, bandwidth), 1.5
            ),
            expected,
        )


def test_a_mask_may_bring_batch_axes_of_its_own(halves, close, inputs, mask_of, masked):
    args = inputs(masked, batch=(7,) if masked == "masked_softmax" else ())
    m = 7 if masked == "self_attention" else 11
    # Three axes are already one mask for each sequence where there are heads.
    batch = (3,) if "n_heads" in args else (3, 2)
    mask = mask_of(*batch, 7, m)
    here, there = (getattr(half, masked)(**args, mask=mask) for half in halves)
    close(there, here)
    for b in range(3):
        close(here[b], getattr(an, masked)(**args, mask=mask[b]))


@pytest.mark.parametrize("allowed", [True, False])
def test_a_mask_may_be_a_single_truth(halves, close, inputs, masked, allowed):
    args = inputs(masked)
    for half in halves:
        output = getattr(half, masked)(**args, mask=np.array(allowed))
        close(output, getattr(an, masked)(**args) if allowed else np.zeros_like(output))
