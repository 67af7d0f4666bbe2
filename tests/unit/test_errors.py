"""A wrong argument is refused before anything is computed, in words that say what was got and what is needed."""

import inspect
import re

import numpy as np
import pytest
import torch

import attn_tutor.numpy as an
import attn_tutor.torch as at

ARRAY = {an: "numpy.ndarray", at: "torch.Tensor"}
MAKES = {an: "numpy.asarray", at: "torch.as_tensor"}


@pytest.fixture(params=[an, at], ids=["numpy", "torch"])
def lib(request):
    return request.param


@pytest.fixture
def ones(lib):
    """Ones of a given shape, in the array type of this half."""
    return lambda *shape: native(lib, np.ones(shape))


def native(lib, x):
    return torch.tensor(x) if lib is at and isinstance(x, np.ndarray) else x


def refused(error, message):
    return pytest.raises(error, match="^" + re.escape(message) + "$")


def no_array(lib, where, name, got):
    return f"{where}: {name} must be a {ARRAY[lib]}, got {got}; {MAKES[lib]}({name}) makes one"


# What every function with a shape signature refuses


def arrays_of(lib, args):
    return {name: native(lib, x) for name, x in args.items()}


def test_lists(lib, inputs, shaped):
    args = arrays_of(lib, inputs(shaped))
    for name, x in args.items():
        if isinstance(x, int):
            continue
        with refused(TypeError, no_array(lib, shaped, name, "list")):
            # By position: what is given by name is always looked at twice.
            getattr(lib, shaped)(*(args | {name: x.tolist()}).values())


def test_arrays_of_the_other_half(lib, inputs, shaped):
    args = inputs(shaped)
    other = at if lib is an else an
    first = next(iter(args))
    with refused(TypeError, no_array(lib, shaped, first, ARRAY[other])):
        getattr(lib, shaped)(**arrays_of(other, args))


def test_complex_numbers(lib, inputs, shaped):
    args = arrays_of(lib, inputs(shaped))
    name = next(iter(args))
    with pytest.raises(
        TypeError,
        match=rf"^{shaped}: {name} has dtype (torch\.)?complex128; it needs real numbers$",
    ):
        getattr(lib, shaped)(**args | {name: args[name] * 1j})


def test_too_few_axes(lib, inputs, shaped):
    signature = getattr(lib, shaped).__shapes__
    for name, x in inputs(shaped).items():
        if isinstance(x, np.ndarray) and x.ndim > 1 and shaped != "softmax":
            args = arrays_of(lib, inputs(shaped) | {name: x[0]})
            got = ",".join(map(str, x[0].shape)) + "," * (x.ndim == 2)
            message = rf"{re.escape(f'{shaped}: {name} has shape ({got}) but needs (…,')}.*\); {re.escape(signature)}"
            with pytest.raises(ValueError, match=message):
                getattr(lib, shaped)(**args)


@pytest.mark.parametrize(
    "name",
    [n for n in at.__all__ if "),(" in getattr(getattr(at, n), "__shapes__", "")],
)
def test_batch_axes_that_do_not_broadcast(lib, inputs, name):
    first, *_, last = (
        key for key, x in inputs(name).items() if isinstance(x, np.ndarray)
    )
    args = arrays_of(lib, inputs(name, batch={first: (2,), last: (4, 3)}))
    message = re.escape(f"{name}: batch axes do not broadcast: {first} has (2,), ")
    with pytest.raises(ValueError, match=rf"^{message}.*{last} has \(4,3\); .*->"):
        getattr(lib, name)(**args)


def test_lengths_that_differ(lib, inputs, shaped):
    """Whatever axis two arguments share, a difference is named with both arguments and both lengths."""
    args = inputs(shaped)
    fn = getattr(lib, shaped)
    cores = [
        core.split(",")
        for core in re.findall(r"\((.+?)\)", fn.__shapes__.split("->")[0])
    ]
    first = {}
    for name, core in zip(inspect.signature(fn).parameters, cores, strict=False):
        for axis, letter in enumerate(core):
            owner, size = first.setdefault(letter, (name, args[name].shape[axis]))
            if owner == name:
                continue
            longer = np.repeat(args[name], 2, axis=axis)
            message = f"{shaped}: {name} has {letter}={2 * size} but {owner} has {letter}={size}; {fn.__shapes__}."
            with pytest.raises(ValueError, match="^" + re.escape(message)):
                fn(**arrays_of(lib, args | {name: longer}))


def test_missing_arguments_are_reported_by_python(lib, ones):
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'V'"):
        lib.attention(ones(2, 3), ones(2, 3))
    with pytest.raises(TypeError, match="multiple values for argument 'Q'"):
        lib.attention(ones(2, 3), ones(2, 3), ones(2, 3), Q=ones(2, 3))


def test_other_widths_are_pointed_to_the_right_function(lib, ones):
    message = (
        "scaled_dot_score: K has d=4 but Q has d=3; (n,d),(m,d)->(n,m). "
        "Queries and keys of different width: use bilinear_score or additive_score."
    )
    with refused(ValueError, message):
        lib.scaled_dot_score(ones(2, 3), ones(2, 4))
    for name in (
        "dot_score",
        "gaussian_score",
        "attention",
        "gaussian_kernel",
        "attention_weights",
    ):
        args = (ones(2, 3), ones(2, 4), ones(2, 1))[: 3 if name == "attention" else 2]
        with pytest.raises(ValueError, match="use bilinear_score or additive_score"):
            getattr(lib, name)(*args)


# Masks


def speaker(lib, name):
    """Which function checks the mask of another."""
    inner = {"multi_head_weights": "attention_weights"}
    inner |= {"sink_attention": "partial_attention"}
    outer = ["self_attention", "cross_attention", "multi_head_attention"]
    outer += ["latent_attention", *["bilinear_attention"] * (lib is at)]
    return (inner | dict.fromkeys(outer, "attention")).get(name, name)


def scores_of(name):
    return {
        "masked_softmax": "(11,)",
        "self_attention": "(7,7)",
        "multi_head_attention": "(2,7,11)",
        "multi_head_weights": "(2,7,11)",
        "latent_attention": "(2,7,11)",
    }.get(name, "(7,11)")


def test_masks_of_numbers(lib, inputs, masked):
    args = arrays_of(lib, inputs(masked))
    for dtype in ("float32", "int64", "uint8"):
        mask = native(lib, np.ones((1, 1), dtype))
        to_bool = "bool()" if lib is at else "astype(bool)"
        instead = f"mask.{to_bool} makes one of ones and zeros"
        if dtype == "float32":
            instead = "what is added to the scores is a bias="
        with refused(
            TypeError,
            f"{speaker(lib, masked)}: masks are boolean, True = may attend; got {dtype}; {instead}",
        ):
            getattr(lib, masked)(**args, mask=mask)


def test_masks_of_too_many_or_too_few_axes(lib, ones):
    X = ones(3, 7, 5)
    with pytest.raises(
        ValueError, match=r"axis for heads is too many: mask\[..., 0, :, :\]"
    ):
        lib.attention(X, X, X, native(lib, np.ones((3, 1, 7, 7), bool)))
    with pytest.raises(
        ValueError, match=r"axis for heads is too many: bias\[..., 0, :, :\]"
    ):
        lib.attention(X, X, X, bias=ones(3, 1, 1, 7))
    with pytest.raises(
        ValueError, match=r"One row for each sequence is mask\[:, None, :\]"
    ):
        lib.attention(X, X, X, native(lib, np.ones((3, 7), bool)))


@pytest.mark.parametrize(
    "word", ["is_causal", "attn_mask", "key_padding_mask", "enable_gqa"]
)
def test_words_of_others(lib, ones, word):
    ours = {"is_causal": "causal", "enable_gqa": "n_kv_heads"}.get(word, "mask")
    for given in ((ones(2, 3),) * 3, ()):
        named = {} if given else dict.fromkeys("QKV", ones(2, 3))
        with pytest.raises(TypeError, match=f"attention: {word} is .*{ours}"):
            lib.attention(*given, **named, **{word: True})


@pytest.mark.parametrize("word", ["is_causal", "attn_mask", "key_padding_mask"])
def test_words_of_others_in_layers(word):
    X = torch.ones(2, 3, 4)
    for layer in (
        at.MultiHeadAttention(4, 2),
        at.SelfAttention(4, 4),
        at.AdditiveAttention(4, 4, 4),
        at.BilinearAttention(4, 4),
        at.Block(4, 2),
    ):
        with pytest.raises(TypeError, match=f"{type(layer).__name__}: {word} is "):
            layer(X, X, X, **{word: True})


def test_heads_that_do_not_share(lib, ones):
    Q, K, tokens = ones(2, 6, 7, 5), ones(2, 3, 7, 5), ones(7, 5)
    with pytest.raises(ValueError, match="do not broadcast.*give n_kv_heads"):
        lib.attention(Q, K, K)
    for args, n_kv_heads, words in (
        ((Q, K, K), 2, r"K has shape \(2,3,7,5\); n_kv_heads=2 needs Q"),
        ((Q, K, K[:, :2]), 3, r"V has shape \(2,2,7,5\); n_kv_heads=3 needs Q"),
        ((Q[:, :5], K, K), 3, "heads of Q=5 does not split into n_kv_heads=3"),
        ((tokens, tokens, tokens), 1, r"Q has shape \(7,5\); n_kv_heads=1 needs Q"),
    ):
        with pytest.raises(ValueError, match=f"attention: {words}"):
            lib.attention(*args, n_kv_heads=n_kv_heads)
    with pytest.raises(TypeError, match="n_kv_heads must be a whole number"):
        lib.attention(Q, K, K, n_kv_heads=True)
    square = native(lib, np.ones((6, 7), bool))
    with pytest.raises(ValueError, match=r"scores, \(2,6,7,7\)"):
        lib.attention(Q, K, K, square, n_kv_heads=3)


def test_masks_that_are_hardly_meant(lib, ones):
    X, tell = ones(3, 3, 5), native
    square = tell(lib, np.ones((3, 3), bool))
    with pytest.raises(ValueError, match="row for each sequence or for each query"):
        lib.check_mask(X, X, square)
    for mask in (square[:, None], square[None], None):
        assert lib.check_mask(X, X, mask) is mask
    assert lib.check_mask(X[:1], X[:1], square) is square
    padding = tell(lib, np.array([[True, False], [True, True]])[:, None])
    two, none = ones(2, 4, 5), tell(lib, np.array([4, 0]))
    assert lib.check_mask(two, two[:, :2], padding, causal=True) is padding
    for wrong in (~padding, lib.valid(none)):
        keys = two[:, :2] if wrong is not two else two
        with pytest.raises(ValueError, match="no query sees any key in 1 of 2 seq"):
            lib.check_mask(two, keys, wrong)
    with pytest.raises(TypeError, match="masks are boolean"):
        lib.check_mask(X, X, ones(3, 1, 3))


def test_rules_that_do_not_fit(lib, ones):
    X = ones(3, 7, 5)
    ids = native(lib, np.arange(6))
    with pytest.raises(
        ValueError, match="a rule's array has 6 tokens, but there are 7"
    ):
        lib.attention(X, X, X, lib.documents(ids))
    two = native(lib, np.array([1, 2]))
    with pytest.raises(
        ValueError, match=r"batch axes \(2,\), which do not broadcast to \(3,\)"
    ):
        lib.attention(X, X, X, lib.valid(two))
    for rule in (lib.documents, lib.valid, lib.prefix):
        for wrong in (ones(3), [1, 2]):
            with pytest.raises(TypeError, match="must be whole numbers in an array"):
                rule(wrong)
    with pytest.raises(ValueError, match="ids has shape"):
        lib.documents(native(lib, np.array(3)))
    with pytest.raises(ValueError, match="alibi: slopes must be 1 or more, got 0"):
        lib.alibi(0)
    with pytest.raises(TypeError, match="alibi: slopes are real numbers, got"):
        lib.alibi(native(lib, np.array([True])))
    for wrong, error in (
        ((0,), ValueError),
        ((2.0,), TypeError),
        ((2, -1), ValueError),
    ):
        with pytest.raises(error, match="Window: "):
            lib.Window(*wrong)


def test_masks_that_are_no_arrays(lib, inputs, masked):
    args = arrays_of(lib, inputs(masked))
    with refused(TypeError, no_array(lib, speaker(lib, masked), "mask", "list")):
        getattr(lib, masked)(**args, mask=[[True]])


def test_masks_that_do_not_fit(lib, inputs, masked):
    args = arrays_of(lib, inputs(masked))
    for shape in ((6,), (4, 1), (3, 1, 6)):
        text = ",".join(map(str, shape)) + "," * (len(shape) == 1)
        if "n_heads" in args and len(shape) == 3:  # one for each sequence
            text = text.replace(",", ",1,", 1)
        scores = scores_of(masked)
        message = f"{speaker(lib, masked)}: mask has shape ({text}) but must broadcast to the scores, {scores}."
        with pytest.raises(ValueError, match="^" + re.escape(message)):
            getattr(lib, masked)(**args, mask=native(lib, np.ones(shape, bool)))


def test_a_mask_makes_no_queries_and_no_keys(lib, ones):
    mask = native(lib, np.ones((5, 3), bool))
    for Q, K in ((ones(1, 2), ones(3, 2)), (ones(5, 2), ones(1, 2))):
        with pytest.raises(
            ValueError,
            match="^attention: mask has shape .5,3. but must broadcast to the scores",
        ):
            lib.attention(Q, K, K, mask)


def test_batch_axes_of_mask_and_values(lib, ones):
    mask = native(lib, np.ones((3, 7, 11), bool))
    message = (
        "attention: mask has shape (3,7,11) but must broadcast to the scores, (2,7,11)."
    )
    with refused(ValueError, message):
        lib.attention(ones(7, 5), ones(11, 5), ones(2, 11, 3), mask)


def test_a_mask_with_heads_that_could_be_two_things(lib, ones):
    W, W_o = ones(4, 6), ones(6, 4)

    def masked(batch, shape):
        X, mask = ones(*batch, 5, 4), native(lib, np.ones(shape, bool))
        return lib.multi_head_attention(X, X, X, W, W, W, W_o, 3, mask)

    for batch, shape in [
        ((), (3, 1, 5)),
        ((3, 3), (3, 3, 5, 5)),
        ((2, 3), (1, 3, 1, 5)),
    ]:
        got = ",".join(map(str, shape))
        each = "mask[..., None, :, :]" if batch else "Q[None]"
        message = (
            f"multi_head_attention: a mask of shape ({got}) could be one for each sequence or one for each head. "
            f"Write {each} for one for each sequence, mask[None] for one for each head"
        )
        with refused(ValueError, message):
            masked(batch, shape)
    for batch, shape in [
        ((3,), (3, 1, 5)), ((3,), (3, 3, 5, 5)), ((2, 3), (2, 3, 1, 5, 5)), ((2, 3), (1, 1, 3, 5, 5)), ((), (2, 1, 5)),
    ]:  # fmt: skip
        masked(batch, shape)  # clear enough
    message = "mask has shape (2,1,1,5) but must broadcast to the scores, (4,3,5,5)."
    with refused(ValueError, f"attention: {message}"):
        masked((4,), (2, 1, 5))


@pytest.mark.parametrize(
    "name", ["attention", "additive_attention", "multi_head_attention"]
)
def test_windows(lib, inputs, name):
    args = arrays_of(lib, inputs(name))
    fn, name = getattr(lib, name), speaker(lib, name)
    with refused(
        ValueError,
        f"{name}: window=3 is how many keys a query sees up to its own; it needs causal=True",
    ):
        fn(**args, window=3)
    with refused(ValueError, f"{name}: window must be 1 or more, got 0"):
        fn(**args, causal=True, window=0)
    with refused(TypeError, f"{name}: window must be a whole number, got float"):
        fn(**args, causal=True, window=2.0)


@pytest.mark.parametrize(
    "name", ["attention", "additive_attention", "multi_head_attention"]
)
def test_biases_of_scores(lib, inputs, name):
    args = arrays_of(lib, inputs(name))
    fn, scores = getattr(lib, name), scores_of(name)
    name = speaker(lib, name)
    with refused(
        TypeError,
        f"{name}: a bias is added to the scores and holds numbers, got bool; give it as mask=",
    ):
        fn(**args, bias=native(lib, np.ones((7, 11), bool)))
    with refused(TypeError, no_array(lib, name, "bias", "float")):
        fn(**args, bias=0.5)
    with refused(
        ValueError,
        f"{name}: bias has shape (11,7) but must broadcast to the scores, {scores}.",
    ):
        fn(**args, bias=native(lib, np.ones((11, 7))))


@pytest.mark.parametrize("scale", ["a", [1, 2]])
def test_scales_that_are_no_number(lib, ones, scale):
    kind = type(scale).__name__
    for name, arrays in (("attention", 3), ("attention_weights", 2)):
        with refused(TypeError, f"{name}: scale must be one number, got {kind}"):
            getattr(lib, name)(*[ones(2, 2)] * arrays, scale=scale)


def test_no_arrays_at_all(lib):
    """Python's own words: not an IndexError of the checks."""
    with pytest.raises(TypeError, match="missing 3 required positional arguments"):
        lib.attention()
    with pytest.raises(TypeError, match="unexpected keyword argument 'query'"):
        lib.attention(query=1)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        lib.softmax()


def test_masked_arrays_and_matrices():
    X = np.ones((2, 2))
    with refused(
        TypeError,
        "softmax: x is a masked array, whose own mask would be lost; give x.data, and mask=",
    ):
        an.softmax(np.ma.masked_equal(X, 1))
    message = "attention: K is a numpy.matrix, whose products have two axes; numpy.asarray(K) makes an array"
    with pytest.warns(PendingDeprecationWarning), refused(TypeError, message):
        an.attention(X, np.matrix(X), X)


# Numbers


@pytest.mark.parametrize("bandwidth", [0, -1.0, float("nan"), float("inf")])
@pytest.mark.parametrize(
    "name",
    [
        "gaussian_score",
        "gaussian_kernel",
        "boxcar_kernel",
        "triangular_kernel",
        "epanechnikov_kernel",
        "gaussian_attention",
        "nadaraya_watson",
    ],
)
def test_bandwidths(lib, inputs, name, bandwidth):
    inner = "gaussian_score" if name == "gaussian_attention" else name
    with refused(
        ValueError, f"{inner}: bandwidth must be above 0 and finite, got {bandwidth}"
    ):
        getattr(lib, name)(**arrays_of(lib, inputs(name)), bandwidth=bandwidth)


@pytest.mark.parametrize(
    ("bandwidth", "got"), [("1", "str"), (np.ones(2), "numpy.ndarray")]
)
def test_a_bandwidth_is_one_number(lib, inputs, bandwidth, got):
    args = arrays_of(lib, inputs("gaussian_score"))
    with refused(TypeError, f"gaussian_score: bandwidth must be one number, got {got}"):
        lib.gaussian_score(**args, bandwidth=bandwidth)


@pytest.mark.parametrize("base", [0, -1.0, float("nan")])
def test_bases(lib, ones, base):
    with refused(
        ValueError, f"sinusoidal_encoding: base must be above 0 and finite, got {base}"
    ):
        lib.sinusoidal_encoding(3, 4, base)
    with refused(ValueError, f"rotary: base must be above 0 and finite, got {base}"):
        lib.rotary(ones(3, 4), base=base)


@pytest.mark.parametrize(
    ("name", "sizes", "least"),
    [
        ("causal_mask", ("n", "m"), (0, 0)),
        ("sinusoidal_encoding", ("n", "d"), (0, 0)),
        ("alibi_bias", ("n_heads", "n", "m"), (1, 0, 0)),
    ],
)
def test_sizes(lib, name, sizes, least):
    fn, good = getattr(lib, name), dict.fromkeys(sizes, 2)
    for size, minimum in zip(sizes, least, strict=True):
        with refused(
            ValueError, f"{name}: {size} must be {minimum} or more, got {minimum - 1}"
        ):
            fn(**good | {size: minimum - 1})
        for wrong, kind in ((2.0, "float"), ("2", "str"), (True, "bool")):
            with refused(
                TypeError, f"{name}: {size} must be a whole number, got {kind}"
            ):
                fn(**good | {size: wrong})
        fn(**good | {size: np.int64(2)})  # NumPy's whole numbers are whole numbers
        with refused(
            TypeError, f"{name}: {size} must be a whole number, got numpy.ndarray"
        ):
            fn(**good | {size: np.array(2.5)})


def test_valid_lens(lib):
    def mask_of(lens, m=4):
        return lib.padding_mask(native(lib, np.array(lens)), m)

    with refused(ValueError, "padding_mask: lengths must lie in 0 … m=4, got 3 … 9"):
        mask_of([3, 9])
    with refused(ValueError, "padding_mask: lengths must lie in 0 … m=4, got -1 … 4"):
        mask_of([[-1, 4]])
    with refused(ValueError, "padding_mask: lengths must lie in 0 … m=4, got 5 … 5"):
        mask_of([5])
    for mask in ([[1, 1, 0, 0]], [[0, 0, 0, 1], [1, 1, 1, 1]], [[1] * 4]):
        with pytest.raises(
            ValueError, match=r"as a mask does; .* taken as it is: mask\."
        ):
            mask_of(mask)
        mask_of(mask, 5), mask_of([[0] * 4]), mask_of([[1], [0]], 1)  # lengths of 0, 1
    with pytest.raises(
        TypeError,
        match=r"^padding_mask: valid_lens must be whole numbers, got (torch\.)?float64$",
    ):
        mask_of([3.0])
    with pytest.raises(
        TypeError,
        match=r"^padding_mask: valid_lens must be whole numbers, got (torch\.)?bool$",
    ):
        mask_of([True])
    with refused(
        ValueError, "padding_mask: valid_lens has shape () but needs (b,) or (b,n)"
    ):
        mask_of(3)
    with refused(
        ValueError,
        "padding_mask: valid_lens has shape (1, 1, 1) but needs (b,) or (b,n)",
    ):
        mask_of([[[3]]])
    with refused(TypeError, no_array(lib, "padding_mask", "valid_lens", "list")):
        lib.padding_mask([3], 4)
    with refused(TypeError, "padding_mask: m must be a whole number, got float"):
        mask_of([3], 4.0)


def test_a_single_number_has_no_softmax(lib):
    with refused(
        ValueError,
        "softmax: x has shape () but needs (…,m); (m)->(m)",
    ):
        lib.softmax(native(lib, np.array(3.0)))


# Heads and positions


def test_heads_that_do_not_divide_the_width(lib, ones):
    message = "split_heads: d=7 does not split into n_heads=2 equal parts; make d a multiple of n_heads"
    with refused(ValueError, message):
        lib.split_heads(ones(3, 7), 2)
    with refused(ValueError, "split_heads: n_heads must be 1 or more, got 0"):
        lib.split_heads(ones(3, 6), 0)
    with refused(TypeError, "split_heads: n_heads must be a whole number, got float"):
        lib.split_heads(ones(3, 6), 2.0)


def test_widths_of_heads(lib, ones):
    X = ones(5, 4)

    def attend(a=6, b=6, c=6, e=6, heads=3, **others):
        return lib.multi_head_attention(
            X, X, X, ones(4, a), ones(4, b), ones(4, c), ones(e, 4), heads, **others
        )

    with pytest.raises(
        ValueError,
        match="^multi_head_attention: the width of W_q=7 does not split into n_heads=3",
    ):
        attend(a=7)
    with refused(
        ValueError,
        "multi_head_attention: W_k has 5 columns but 3 heads as wide as those of W_q need 6",
    ):
        attend(b=5)
    with refused(
        ValueError,
        "multi_head_attention: W_k has 6 columns but 1 heads as wide as those of W_q need 2",
    ):
        attend(n_kv_heads=1)
    with pytest.raises(
        ValueError,
        match="^multi_head_attention: the width of W_v=7 does not split into n_kv_heads=3",
    ):
        attend(c=7)
    with refused(
        ValueError, "multi_head_attention: W_o has 5 rows but 3 heads of width 2 need 6"
    ):
        attend(e=5)
    with pytest.raises(
        ValueError,
        match="^multi_head_attention: n_heads=3 does not split into n_kv_heads=2",
    ):
        attend(n_kv_heads=2)
    with refused(
        ValueError, "multi_head_attention: n_kv_heads must be 1 or more, got 0"
    ):
        attend(n_kv_heads=0)
    with refused(ValueError, "multi_head_attention: n_heads must be 1 or more, got 0"):
        attend(heads=0)
    with refused(
        ValueError,
        "multi_head_weights: W_k has 5 columns but 3 heads as wide as those of W_q need 6",
    ):
        lib.multi_head_weights(X, X, ones(4, 6), ones(4, 5), 3)


def test_rotary(lib, ones):
    with refused(
        ValueError, "rotary: d=5 is odd, but entries turn in pairs; make d even"
    ):
        lib.rotary(ones(3, 5))
    for shape in ((4,), (2, 4), (3, 1, 4)):
        with refused(
            ValueError,
            f"rotary: positions have shape {shape} but must broadcast to (3,)",
        ):
            lib.rotary(ones(3, 4), ones(*shape))
    with refused(
        ValueError, "rotary: positions have shape (3, 3) but must broadcast to (2, 3)"
    ):
        lib.rotary(ones(2, 3, 4), ones(3, 3))
    with refused(
        ValueError, "rotary: positions have shape (5,) but must broadcast to (1,)"
    ):
        lib.rotary(ones(1, 4), ones(5))
    with refused(TypeError, no_array(lib, "rotary", "positions", "range")):
        lib.rotary(ones(3, 4), range(3))
    for shape in ((3,), (1, 2), ()):
        with refused(
            ValueError,
            f"rotary: rates have shape {shape} but must be one for each pair to turn, at most (2,)",
        ):
            lib.rotary(ones(3, 4), rates=ones(*shape))
    with refused(TypeError, no_array(lib, "rotary", "rates", "list")):
        lib.rotary(ones(3, 4), rates=[1.0, 0.1])
    with refused(ValueError, "rotary: factor must be above 0 and finite, got 0"):
        lib.rotary(ones(3, 4), factor=0)


def test_rotary_rates(lib):
    rates, plain = lib.rotary_rates, {"rope_theta": 100.0}
    with refused(
        TypeError,
        "rotary_rates: settings must be a dict, got object; of a config, config.to_dict() makes one",
    ):
        rates(object(), 4)
    lacks = (
        "rotary_rates: settings lack '{}'; give all of config.json as a dict, or, where layers differ in their "
        "settings, those of one kind of layer"
    )
    for settings, key in (
        ({}, "rope_theta"),
        ({"rope_parameters": {"full_attention": plain}}, "rope_theta"),
        (plain | {"rope_type": "linear"}, "factor"),
        (plain | {"rope_scaling": {"type": "linear", "factor": None}}, "factor"),
        (plain | {"type": "dynamic", "factor": 2.0}, "max_position_embeddings"),
        (plain | {"type": "yarn", "factor": 2.0}, "max_position_embeddings"),
    ):
        with refused(ValueError, lacks.format(key)):
            rates(settings, 4)
    words = r"^rotary_rates: rope_type must be one of \('default', .*, got 'mrope'$"
    with pytest.raises(ValueError, match=words):
        rates(plain | {"type": "mrope"}, 4)
    long = {"type": "longrope", "long_factor": [1.0], "short_factor": [2.0]}
    long |= {"max_position_embeddings": 8} | plain
    with refused(
        ValueError, "rotary_rates: short_factor holds 1 numbers, but 2 pairs turn"
    ):
        rates(long, 4)
    for d, error in ((1, ValueError), (4.0, TypeError)):
        with pytest.raises(error, match="^rotary_rates: d must be"):
            rates(plain, d)
    with pytest.raises(ValueError, match="^rotary_rates: n must be 0 or more"):
        rates(plain, 4, -1)


# The torch half alone: dtypes, devices, chances, modules


def test_dtypes_that_differ():
    Q, K = torch.ones(7, 5), torch.ones(11, 5, dtype=torch.float64)
    message = (
        "dot_score: K is torch.float64 but Q is torch.float32; cast one: K.to(Q.dtype)"
    )
    with refused(TypeError, message):
        at.dot_score(Q, K)


def test_devices_that_differ():
    """The meta device holds no numbers, but it is another device on every machine."""
    X, elsewhere = torch.ones(7, 5), torch.ones(7, 5, device="meta")
    with refused(
        ValueError, "dot_score: K is on meta but Q is on cpu; move one: K.to(Q.device)"
    ):
        at.dot_score(X, elsewhere)
    mask = torch.ones(7, 7, dtype=torch.bool, device="meta")
    message = "{}: mask is on meta but the scores are on cpu; move it: mask.to('cpu')"
    with refused(ValueError, message.format("attention")):
        at.attention(X, X, X, mask)
    with refused(ValueError, message.format("masked_softmax")):
        at.masked_softmax(torch.ones(7, 7), mask)
    with refused(ValueError, message.format("attention_weights")):
        at.multi_head_weights(X, X, torch.ones(5, 4), torch.ones(5, 4), 2, mask)


@pytest.mark.parametrize("chance", [-0.1, 1.0, float("nan")])
def test_chances(inputs, chance):
    for name in at.__all__:
        fn = getattr(at, name)
        if "dropout_p" in inspect.signature(fn).parameters:
            inner = "attention" if name == "bilinear_attention" else name
            with refused(
                ValueError, f"{inner}: dropout_p must lie in [0, 1), got {chance}"
            ):
                fn(**arrays_of(at, inputs(name)), dropout_p=chance)
    with refused(
        ValueError, f"MultiHeadAttention: dropout must lie in [0, 1), got {chance}"
    ):
        at.MultiHeadAttention(4, 2, dropout=chance)
    with refused(
        ValueError, f"PositionalEncoding: dropout must lie in [0, 1), got {chance}"
    ):
        at.PositionalEncoding(4, chance)


def test_sizes_of_modules():
    for module, sizes in (
        (at.BilinearAttention, ("d_q", "d_k")),
        (at.AdditiveAttention, ("d_q", "d_k", "d_hidden")),
        (at.SelfAttention, ("d_in", "d_k", "d_v")),
        (
            at.MultiHeadAttention,
            ("d_model", "n_heads", "kdim", "vdim", "n_kv_heads"),
        ),
    ):
        for size in sizes:
            good = dict.fromkeys(sizes, 2)
            with refused(
                ValueError, f"{module.__name__}: {size} must be 1 or more, got 0"
            ):
                module(**good | {size: 0})
            with refused(
                TypeError,
                f"{module.__name__}: {size} must be a whole number, got float",
            ):
                module(**good | {size: 2.0})
    with pytest.raises(
        ValueError, match="^MultiHeadAttention: d_model=7 does not split into n_heads=2"
    ):
        at.MultiHeadAttention(7, 2)
    with pytest.raises(
        ValueError,
        match="^MultiHeadAttention: n_heads=4 does not split into n_kv_heads=3",
    ):
        at.MultiHeadAttention(8, 4, n_kv_heads=3)
    with refused(TypeError, "PositionalEncoding: d must be a whole number, got float"):
        at.PositionalEncoding(4.0)


def test_tokens_of_another_width():
    encode = at.PositionalEncoding(4)
    with refused(
        ValueError, "PositionalEncoding: X has shape (3, 5) but needs (…, n, 4)"
    ):
        encode(torch.ones(3, 5))
    with refused(
        ValueError, "PositionalEncoding: X has shape (4,) but needs (…, n, 4)"
    ):
        encode(torch.ones(4))
    with refused(
        TypeError,
        "PositionalEncoding: X must be a torch.Tensor, got list; torch.as_tensor(X) makes one",
    ):
        encode([[1.0] * 4])


def test_layers_that_do_not_translate():
    with refused(
        TypeError, "from_torch: needs a torch.nn.MultiheadAttention, got Linear"
    ):
        at.MultiHeadAttention.from_torch(torch.nn.Linear(2, 2))
    message = "from_torch: a layer with add_bias_kv or add_zero_attn attends to a key that no token gave"
    for option in ("add_bias_kv", "add_zero_attn"):
        with refused(ValueError, message):
            at.MultiHeadAttention.from_torch(
                torch.nn.MultiheadAttention(4, 2, **{option: True})
            )
    with refused(ValueError, "to_torch: torch needs n_kv_heads = n_heads = 2, got 1"):
        at.MultiHeadAttention(4, 2, n_kv_heads=1).to_torch()


@pytest.mark.parametrize("half", [an, at], ids=["numpy", "torch"])
def test_an_argument_that_is_given_twice(half):
    X, mask = np.ones((3, 2)) if half is an else torch.ones(3, 2), None
    with pytest.raises(TypeError, match="multiple values for .*'mask'"):
        half.attention(X, X, X, mask, mask=mask)
