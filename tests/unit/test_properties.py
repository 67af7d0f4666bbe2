"""Laws that hold for any input: sums, hulls, shifts, permutations, silence of what is masked, relative position."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import attn_tutor.numpy as an

numbers = st.floats(-3, 3, width=32)
sizes = st.integers(1, 6)


@st.composite
def rows(draw, elements=numbers):
    """Scores (…, n, m) and a mask for them, often with rows that permit nothing."""
    shape = draw(st.tuples(sizes, sizes))
    return draw(arrays(float, shape, elements=elements)), draw(arrays(bool, shape))


@st.composite
def problems(draw, square=False):
    """Q, K, V and a mask."""
    n, m, d, d_v = (draw(sizes) for _ in range(4))
    m = n if square else m
    Q, K, V = (
        draw(arrays(float, shape, elements=numbers))
        for shape in ((n, d), (m, d), (m, d_v))
    )
    return Q, K, V, draw(arrays(bool, (n, m)))


# Weights


@given(rows(elements=st.floats(-1e4, 1e4)))
def test_rows_sum_to_one_or_to_zero(half, close, problem):
    scores, mask = problem
    weights = half.masked_softmax(scores, mask)
    assert (weights >= 0).all()
    assert not weights[~mask].any()
    close(weights.sum(-1), mask.any(-1).astype(float))
    close(half.softmax(scores).sum(-1), np.ones(len(scores)))
    close(half.normalize(weights * 3).sum(-1), mask.any(-1).astype(float))


@given(rows(), st.sampled_from([1e4, -1e4, 1.0, 300.0]))
def test_a_shift_of_all_scores_changes_nothing(half, problem, shift):
    scores, mask = problem
    scores = np.round(scores * 64) / 64  # sums with the shift are then exact
    shifted = half.masked_softmax(scores + shift, mask)
    np.testing.assert_array_equal(shifted, half.masked_softmax(scores, mask))
    np.testing.assert_array_equal(half.softmax(scores + shift), half.softmax(scores))


@given(rows())
def test_softmax_may_run_along_any_axis(half, close, problem):
    scores, _ = problem
    cube = np.stack([scores, -scores])
    for axis in (0, 1, 2, -3):
        expected = np.moveaxis(
            half.softmax(np.moveaxis(cube, axis, -1).copy()), -1, axis
        )
        close(half.softmax(cube, axis), expected)


@given(problems(), st.sampled_from([0.5, 1.0, 2.5]))
def test_kernels_are_symmetric_bounded_and_fall_with_distance(half, problem, bandwidth):
    Q, K, _, _ = problem
    distances = np.linalg.norm(Q[:, None] - K, axis=-1)
    order = np.argsort(distances, axis=None)
    for name, peak in (
        ("gaussian", 1),
        ("boxcar", 1),
        ("triangular", 1),
        ("epanechnikov", 0.75),
    ):
        kernel = getattr(half, f"{name}_kernel")
        weights = kernel(Q, K, bandwidth)
        np.testing.assert_array_equal(weights, kernel(K, Q, bandwidth).T)
        assert (weights >= 0).all() and (weights <= peak).all()
        assert (np.diff(weights.ravel()[order]) <= 1e-12).all()
        np.testing.assert_array_equal(
            np.diag(kernel(Q, Q, bandwidth)), np.full(len(Q), peak)
        )
        if name != "gaussian":
            assert not weights[distances > bandwidth * 1.000001].any()


# Output


def within_hull(output, V, mask):
    """Between the least and the greatest permitted value, coordinate by coordinate; 0 where none is permitted."""
    for row, may in zip(output, mask, strict=True):
        low, high = (V[may].min(0), V[may].max(0)) if may.any() else (0, 0)
        assert (row >= low - 1e-9).all() and (row <= high + 1e-9).all()


@given(problems(), st.booleans())
def test_output_lies_in_the_hull_of_the_permitted_values(half, problem, causal):
    Q, K, V, mask = problem
    may = mask & an.causal_mask(*mask.shape) if causal else mask
    within_hull(half.attention(Q, K, V, mask, causal=causal), V, may)
    within_hull(half.gaussian_attention(Q, K, V, mask, causal=causal), V, may)
    within_hull(half.nadaraya_watson(Q, K, V), V, np.ones_like(mask))


@given(problems(), st.randoms(use_true_random=False))
def test_permutations(half, close, problem, random):
    """Queries in another order give outputs in that order; keys and values in another order change nothing."""
    Q, K, V, mask = problem
    i, j = (random.sample(range(size), size) for size in mask.shape)
    for name in ("attention", "gaussian_attention"):
        attend = getattr(half, name)
        close(attend(Q[i], K, V, mask[i]), attend(Q, K, V, mask)[i])
        close(attend(Q, K[j], V[j], mask[:, j]), attend(Q, K, V, mask))


@given(problems(square=True), st.randoms(use_true_random=False))
def test_self_attention_is_equivariant(half, close, problem, random):
    X, W, _, mask = problem
    W = W[: X.shape[1]] if len(W) >= X.shape[1] else np.resize(W, (X.shape[1], 2))
    i = random.sample(range(len(X)), len(X))
    close(
        half.self_attention(X[i], W, -W, W, mask[i][:, i]),
        half.self_attention(X, W, -W, W, mask)[i],
    )


@given(problems())
def test_fast_functions_are_their_textbook_lines(half, close, problem):
    Q, K, V, mask = problem
    M = Q.T @ Q
    w = np.ones((Q.shape[1], 2)) / 2
    attend = half.attend
    close(half.attention(Q, K, V, mask), attend(half.scaled_dot_score(Q, K), V, mask))
    bilinear = half.bilinear_score(Q / 3, K / 3, M / 9)
    close(
        half.bilinear_attention(Q / 3, K / 3, V, M / 9, mask), attend(bilinear, V, mask)
    )
    close(
        half.gaussian_attention(Q, K, V, mask),
        attend(half.gaussian_score(Q, K), V, mask),
    )
    scores = half.additive_score(Q, K, w, -w, w[0])
    close(half.additive_attention(Q, K, V, w, -w, w[0], mask), attend(scores, V, mask))
    close(
        half.attention_weights(Q, K, mask),
        half.masked_softmax(half.scaled_dot_score(Q, K), mask),
    )
    close(half.gaussian_attention(Q, K, V), half.nadaraya_watson(Q, K, V))


@given(problems(square=True))
def test_merge_undoes_split(half, problem):
    X = np.hstack([problem[0]] * 6)
    for heads in (1, 2, 3, 6):
        np.testing.assert_array_equal(half.merge_heads(half.split_heads(X, heads)), X)


# Masked entries are silent: NaN, infinities and huge numbers, in every function with a mask

GARBAGE = [np.nan, np.inf, -np.inf, 1e30, -1e30]
OWN = {  # the arguments that store a key, where they are not K and V
    "masked_softmax": ["scores"],
    "attend": ["scores", "V"],
    "self_attention": ["X"],
    "cross_attention": ["Y"],
    "latent_attention": ["C", "R"],
}


@pytest.fixture
def problem_of(inputs):
    """Arguments of a function with a mask, the same with garbage in one key, and the numbers of queries and keys."""

    def make(masked, key, garbage, n=7, m=11):
        m = n if masked == "self_attention" else m
        args = inputs(
            masked, n=n, m=m, batch=(n,) if masked == "masked_softmax" else ()
        )
        spoilt = dict(args)
        for name in set(OWN.get(masked, ["K", "V"])) & args.keys():
            spoilt[name] = args[name].copy()
            spoilt[name][(slice(None), key) if name == "scores" else key] = garbage
        return args, spoilt, n, m

    return make


def agree(fn, args, spoilt, queries, **options):
    clean, dirty = fn(**args, **options), fn(**spoilt, **options)
    np.testing.assert_allclose(
        dirty[..., queries, :], clean[..., queries, :], rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("garbage", [*GARBAGE, np.finfo(float).max])
def test_a_key_hidden_from_all_is_silent(half, problem_of, mask_of, masked, garbage):
    args, spoilt, n, m = problem_of(masked, 4, garbage)
    mask = mask_of(n, m)
    mask[:, 4] = False
    queries = (
        np.arange(n) != 4 if masked == "self_attention" else slice(None)
    )  # the token itself still asks
    with warnings.catch_warnings():
        if masked == "self_attention" and garbage == np.finfo(float).max:
            warnings.simplefilter(
                "ignore", RuntimeWarning
            )  # and its own query overflows
        agree(getattr(half, masked), args, spoilt, queries, mask=mask)


@pytest.mark.filterwarnings(
    "ignore::RuntimeWarning"
)  # numbers that overflow for those who may see them
@pytest.mark.parametrize("garbage", GARBAGE)
def test_a_key_hidden_from_some_is_silent_to_them(half, problem_of, masked, garbage):
    args, spoilt, n, m = problem_of(masked, 6, garbage)
    mask = np.ones((n, m), bool)
    mask[[2, 5], 6] = False
    agree(getattr(half, masked), args, spoilt, [2, 5], mask=mask)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # likewise
@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize(("n", "m"), [(7, 7), (7, 11), (11, 7)])
def test_the_future_is_silent(half, problem_of, causal, garbage, n, m):
    args, spoilt, n, m = problem_of(causal, -1, garbage, n, m)
    fn = getattr(half, causal)
    agree(fn, args, spoilt, slice(n - 1), causal=True)
    agree(fn, args, spoilt, slice(n - 1), causal=True, mask=np.ones((n, m), bool))


@pytest.mark.parametrize("garbage", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_warns_nobody(half, problem_of, masked, garbage):
    """It is cleared before it is computed with, even where some may see it; scores alone are taken as they are."""
    args, spoilt, n, m = problem_of(masked, 6, garbage)
    spoilt |= {name: args[name] for name in args if name == "scores"}
    mask = np.ones((n, m), bool)
    mask[2, 6] = False
    assert np.isfinite(getattr(half, masked)(**spoilt, mask=mask)[..., 2, :]).all()


@pytest.mark.filterwarnings(
    "ignore:invalid value encountered in subtract"
)  # ∞ − ∞, in a score that is seen
@pytest.mark.parametrize("garbage", [np.nan, np.inf])
def test_who_may_see_what_is_not_finite_gets_nan(half, problem_of, masked, garbage):
    """Hiding it from those who may see it would be a lie."""
    _, spoilt, n, m = problem_of(masked, 6, garbage)
    mask = np.zeros((n, m), bool)
    mask[:, 0] = mask[[1, 3], 6] = True
    seen = np.isnan(getattr(half, masked)(**spoilt, mask=mask))
    assert seen[..., [1, 3], 0].all() and not seen[..., [0, 2, 4, 5], :].any()


@pytest.mark.parametrize("garbage", [np.nan, np.inf])
@pytest.mark.parametrize(
    "name",
    [
        "attention",
        "gaussian_attention",
        "additive_attention",
        "cross_attention",
        "attention_weights",
        "multi_head_attention",
    ],
)
def test_a_query_that_sees_nothing_gives_zero_whatever_it_holds(
    half, inputs, name, garbage
):
    args = inputs(name)
    next(iter(args.values()))[2] = garbage
    mask = np.arange(7)[:, None] != 2
    output = getattr(half, name)(**args, mask=mask)
    assert not output[..., 2, :].any() and np.isfinite(output).all()


@pytest.mark.parametrize("garbage", GARBAGE)
def test_heads_with_masks_of_their_own(half, close, inputs, garbage):
    """A key seen in the first head alone says nothing in the weights of the second."""
    args = inputs("multi_head_weights")
    mask = np.ones((2, 7, 11), bool)
    mask[1, :, 4] = False
    spoilt = args | {"K": args["K"].copy()}
    spoilt["K"][4] = garbage
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "overflow encountered")
        (weights,) = half.multi_head_weights(**spoilt, mask=mask[None])
    close(weights[1], half.multi_head_weights(**args, mask=mask[None])[0, 1])
    if not np.isfinite(garbage):
        assert np.isnan(weights[0]).all()


def test_scores_of_minus_infinity_are_a_mask_too(half, close, draw):
    """Biases such as −∞ above the diagonal work beside a mask."""
    scores, V = draw(7, 11), draw(11, 3)
    scores[:, 2] = -np.inf
    mask = np.ones((7, 11), bool)
    mask[:, 3] = False
    both = mask.copy()
    both[:, 2] = False
    close(half.attend(scores, V, mask), half.attend(np.where(both, scores, 0), V, both))


# Far from the origin


@pytest.mark.parametrize("far", [1e6, -1e6])
@pytest.mark.parametrize(
    "options",
    [{}, {"causal": True}, {"mask": True}, {"mask": True, "causal": True}],
    ids=str,
)
def test_gaussian_attention_far_from_the_origin(half, draw, mask_of, far, options):
    """A shift of queries and keys alike changes no distance. Scores of size 1e12 must not cancel to get there."""
    Q, K, V = draw(3, 7, 2) + far, draw(3, 11, 2) + far, draw(3, 11, 3)
    if "mask" in options:
        options = options | {"mask": mask_of(3, 7, 11)}
    distant = half.gaussian_attention(Q, K, V, **options)
    near = half.gaussian_attention(Q - far, K - far, V, **options)  # subtracts exactly
    np.testing.assert_allclose(distant, near, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    "name",
    ["gaussian_score", "gaussian_kernel", "triangular_kernel", "epanechnikov_kernel"],
)
def test_distances_far_from_the_origin(half, draw, close, name):
    Q, K = draw(7, 2) + 1e6, draw(11, 2) + 1e6
    close(getattr(half, name)(Q, K), getattr(half, name)(Q - 1e6, K - 1e6))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_far_first_key_costs_the_numpy_half_no_accuracy(dtype):
    """It is the key that all are centred on. The others are as near to each other as before."""
    Q, K = np.array([[0.5]], dtype), np.array([[1e4], [0], [1], [2]], dtype)
    V = np.array([[9], [1], [2], [4]], dtype)
    expected = an.softmax(np.array([[-0.125, -0.125, -1.125]])) @ V[1:]
    output = an.gaussian_attention(Q, K, V)
    np.testing.assert_allclose(output, expected, rtol=np.finfo(dtype).eps * 4)


def test_a_later_key_costs_no_accuracy(half, close, draw):
    """Causally the first keys are near, the last one very far: earlier queries cannot tell."""
    Q, K, V = draw(7, 2), draw(7, 2), draw(7, 3)
    near = half.gaussian_attention(Q, K, V, causal=True)
    K[-1] = 1e9
    close(half.gaussian_attention(Q, K, V, causal=True)[:-1], near[:-1])


# Positions


@given(st.integers(0, 10**5), st.integers(-50, 50), st.integers(1, 4))
def test_rotary_keeps_length_and_relative_position(half, start, shift, pairs):
    rng = np.random.default_rng(pairs)
    q, k = rng.normal(size=(2, 3, 2 * pairs))
    positions = np.arange(3) + start + 50
    turned = half.rotary(q, positions)
    np.testing.assert_allclose(
        np.linalg.norm(turned, axis=-1), np.linalg.norm(q, axis=-1), rtol=1e-12
    )
    here = turned @ half.rotary(k, positions).T
    there = half.rotary(q, positions + shift) @ half.rotary(k, positions + shift).T
    np.testing.assert_allclose(here, there, atol=1e-9)


@given(st.integers(1, 4), st.integers(0, 3), st.booleans(), st.integers(0, 99))
def test_rotary_is_a_matrix_of_rotations(half, pairs, rest, interleaved, seed):
    """Entries that have no pair stay bit for bit as they are."""
    rng = np.random.default_rng(seed)
    X, positions = rng.normal(size=(3, 2 * pairs + rest)), rng.uniform(-99, 99, (2, 3))
    rates = rng.uniform(-1, 3, pairs)
    turned = half.rotary(X, positions, rates=rates, interleaved=interleaved)
    for batch, row in np.ndindex(2, 3):
        R = np.eye(len(X[0]))
        for i, angle in enumerate(positions[batch, row] * rates):
            pair = [2 * i, 2 * i + 1] if interleaved else [i, i + pairs]
            c, s = np.cos(angle), np.sin(angle)
            R[np.ix_(pair, pair)] = [[c, -s], [s, c]]
        np.testing.assert_allclose(turned[batch, row], R @ X[row], rtol=0, atol=1e-12)
    assert (turned[..., 2 * pairs :] == X[:, 2 * pairs :]).all()


def test_rotary_counts_from_zero_unless_told(half, draw, close):
    X = draw(2, 7, 6)
    close(half.rotary(X), half.rotary(X, np.arange(7)))
    close(half.rotary(X), half.rotary(X, np.stack([np.arange(7)] * 2).astype(float)))
    close(half.rotary(X)[:, 3:4], half.rotary(X[:, 3:4], np.array(3)))
    assert half.rotary(X[0], np.array([[0.0] * 7, [1.0] * 7])).shape == (2, 7, 6)


def test_rotary_far_out_in_single_precision(half, draw):
    """Angles of position 100,000 are taken in double precision, so that single precision is as good as it can be."""
    X = draw(1, 8)
    exact = half.rotary(X, np.array([100_000]))
    single = half.rotary(X.astype(np.float32), np.array([100_000]))
    np.testing.assert_allclose(single, exact, rtol=0, atol=1e-6)


@given(st.integers(1, 40), st.integers(0, 20), st.sampled_from([2, 6, 10]))
def test_products_of_encodings_depend_on_distance_alone(half, start, distance, d):
    table = half.sinusoidal_encoding(start + distance + 1, d).astype(float)
    np.testing.assert_allclose(
        table[0] @ table[distance], table[start] @ table[start + distance], atol=2e-6
    )


def test_encodings_far_out_in_single_precision(half):
    """Position 100,000 in float32: from angles in double precision, as NumPy's longdouble confirms."""
    d, p = 16, 100_000
    angles = p / np.longdouble(10_000) ** (np.arange(0, d, 2, dtype=np.longdouble) / d)
    row = half.sinusoidal_encoding(p + 1, d)[-1]
    np.testing.assert_allclose(
        row[0::2], np.sin(angles).astype(float), rtol=0, atol=1e-7
    )
    np.testing.assert_allclose(
        row[1::2], np.cos(angles).astype(float), rtol=0, atol=1e-7
    )


@pytest.mark.parametrize("axes", [(), (1,), (5,)])
def test_a_bias_of_few_axes(half, draw, close, axes):
    Q, K, bias = draw(3, 4), draw(5, 4), draw(*axes) if axes else np.array(0.3)
    whole = np.broadcast_to(bias, (3, 5)).copy()
    close(
        half.attention_weights(Q, K, bias=bias),
        half.attention_weights(Q, K, bias=whole),
    )
    close(half.attention(Q, K, K, bias=bias), half.attention(Q, K, K, bias=whole))
