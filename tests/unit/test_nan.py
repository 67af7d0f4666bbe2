"""One law for every public function: a NaN reaches all queries that see it, and no other.

Whatever rules say together, in one block as in many, forward as in the gradient.
"""

import inspect
import re
import warnings

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from test_visibility import combined, dense, rule

import attn_tutor.numpy as an
import attn_tutor.torch as at

NAMES = [
    name
    for name in at.__all__
    if not getattr(getattr(at, name), "__shapes__", "->()").endswith("->()")
]
POINTWISE = ("_score", "_kernel")  # an entry depends on one query and one key
ALL = {"mask", "causal", "window"}
FIXTURES = [HealthCheck.function_scoped_fixture]


@st.composite
def problems(draw):
    """Queries and keys, now and then more than fit a block; and words, causality, a window and a mask about them."""
    more = 130 * (draw(st.integers(0, 15)) == 15)
    n, m = draw(st.integers(2, 9)) + more, draw(st.integers(2, 9)) + more
    causal = draw(st.booleans())
    window = draw(st.none() | st.integers(1, 9)) if causal else None
    words = draw(st.none() | combined(m, own=n <= m))
    mask = None
    if draw(st.booleans()):
        shape = draw(st.sampled_from([(n, m), (1, m)]))
        mask = np.random.default_rng(draw(st.integers(0, 99))).random(shape) < 0.6
    return n, m, causal, window, words, mask


def visible(problem):
    """The same as one mask, (n, m)."""
    n, m, causal, window, words, mask = problem
    found = np.ones((n, m), bool) if mask is None else np.broadcast_to(mask, (n, m))
    said = [words, ("window", window, 2) if window else ("causal",) if causal else None]
    for one in filter(None, said):
        found = found & dense(one, n, m)
    return found


def options_of(half, problem, taken):
    """The arguments that say it; a mask beside a rule is a rule by its places."""
    n, m, causal, window, words, mask = problem
    options = {"causal": causal} if "causal" in taken else {}
    if "window" in taken:
        options["window"] = window and half.Window(window, sinks=2)
    if "mask" in taken:
        mask = torch.from_numpy(mask) if half is at and mask is not None else mask
        if words:
            options["mask"] = rule(half, words)
            if mask is not None:
                rows = len(mask)
                options["mask"] &= half.Rule(lambda i, j: mask[(i - m + n) % rows, j])
        else:
            options["mask"] = mask
    return options


def called(half, name, args, options):
    give = torch.from_numpy if half is at else np.asarray
    ready = {k: give(X) if isinstance(X, np.ndarray) else X for k, X in args.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        found = getattr(half, name)(*ready.values(), **options)
    return np.asarray(found[0] if isinstance(found, tuple) else found)


def limited(problem, taken, tokens):
    """What of it a function can be told; where queries are keys there are as many."""
    n, m, causal, window, words, mask = problem
    if "m" not in tokens and n != m:
        n = m = min(n, m)
        words, mask = None, None if mask is None else mask[:n, :m]
    if "window" not in taken:
        window, words = None, None
    if "causal" not in taken:
        causal = False
    return n, m, causal, window, words, mask if "mask" in taken else None


def reached(name, letter, problem, row):
    """The outputs that may depend on a row of queries or of keys."""
    n = problem[0]
    itself, seen = np.arange(n) == row, visible(problem)
    if name == "delta_rule":
        return np.arange(n) >= row if letter == "keys" else itself
    if name == "self_attention":  # a row is a key and asks as well
        return seen[:, row] | itself & seen.any(1)
    if letter == "keys":
        return seen[:, row]
    return itself & seen.any(1)


def taken_by(name):
    return inspect.signature(getattr(at, name)).parameters


def roles(name):
    """Of each argument that has a row for each token, whether it is that of a query or of a key."""
    cores = re.findall(r"\((.*?)\)", getattr(at, name).__shapes__.split("->")[0])
    letters = dict(zip(taken_by(name), (core.split(",") for core in cores), strict=False))  # fmt: skip
    if letters.keys() == {"x"} or letters[next(iter(letters))] == ["m"]:
        return dict.fromkeys(
            letters, "queries"
        )  # rows by themselves, along the last axis
    found = {x: "queries" for x, core in letters.items() if "n" in core[:-1] + core[:1]}
    found |= {x: "keys" for x, core in letters.items() if core[0] == "m"}
    if name == "delta_rule":
        found |= dict.fromkeys(["K", "V", "beta"], "keys")
    return found


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=20, suppress_health_check=FIXTURES)
@given(problem=problems(), data=st.data())
def test_a_nan_reaches_those_who_see_it(name, inputs, problem, data):
    """In whatever argument it stands: the rows that see it are NaN, the others are what they were."""
    taken, letters = taken_by(name), roles(name)
    signature = getattr(at, name).__shapes__
    rows_alone = signature == "(m)->(m)"
    problem = limited(problem, taken, {"m"} if ",(m" in signature else set())
    if "scores" in taken or rows_alone:  # (n, m), of which an entry is hidden
        problem = *problem[:4], None, problem[5]
    n, m, *_ = problem
    args = inputs(name, (n,) if rows_alone else (), n=n, m=m)
    where = data.draw(st.sampled_from([*letters]))
    spoilt = {x: X.copy() if isinstance(X, np.ndarray) else X for x, X in args.items()}
    axis = -1 if spoilt[where].ndim == 1 else -2
    row = data.draw(st.integers(0, spoilt[where].shape[axis] - 1))
    sees = reached(name, letters[where], problem, row)
    if where == "scores" or rows_alone:
        j = data.draw(st.integers(0, m - 1))
        spoilt[where][row, j] = np.nan
        sees = sees & visible(problem)[:, j] if "mask" in taken else sees
    else:
        np.moveaxis(spoilt[where], axis, 0)[row] = np.nan
    for half in (an, at):
        options = options_of(half, problem, taken)
        clean, found = (called(half, name, X, options) for X in (args, spoilt))
        by_row, before = (np.moveaxis(X, -2, 0).reshape(n, -1) for X in (found, clean))
        if name.endswith(POINTWISE):
            column = [row] if letters[where] == "keys" else slice(None)
            assert np.isnan(by_row[sees][:, column]).all()
            by_row[:, column] = before[:, column] = 0
            np.testing.assert_allclose(by_row[~sees], before[~sees])
            if letters[where] == "keys":
                np.testing.assert_allclose(by_row, before)
            continue
        lost = ~np.isnan(by_row[sees])
        # What is hidden keeps its weight of 0.
        weights = name == "masked_softmax" or name.endswith("_weights")
        assert not (lost.all(-1) if weights else lost).any()
        np.testing.assert_allclose(by_row[~sees], before[~sees], rtol=1e-10, atol=1e-12)


@settings(max_examples=100, suppress_health_check=FIXTURES)
@given(problem=problems(), key=st.integers(0, 140))
def test_no_gradient_of_those_who_do_not_see_it(inputs, problem, key):
    """Of the others each gets the gradient that it has without the NaN, in both halves."""
    n, m, *_ = problem
    key %= m
    args = inputs("attention", n=n, m=m)
    sees = visible(problem)[:, key]
    g = np.random.default_rng(3).normal(size=(n, args["V"].shape[-1]))
    assume(not sees.all())  # where nothing is hidden, a NaN is left to spread
    g[sees] = 0
    spoilt = {k: X.copy() for k, X in args.items()}
    spoilt["K"][key] = spoilt["V"][key] = np.nan
    expected = an.attention_vjp(*args.values(), g, **options_of(an, problem, ALL))
    found = an.attention_vjp(*spoilt.values(), g, **options_of(an, problem, ALL))
    leaves = [torch.from_numpy(X).requires_grad_() for X in spoilt.values()]
    output = at.attention(*leaves, **options_of(at, problem, ALL))
    more = torch.autograd.grad(output, leaves, torch.from_numpy(g))
    for right, one, other in zip(expected, found, more, strict=True):
        np.testing.assert_allclose(one, right, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(other.numpy(), right, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "name",
    [
        "attention",
        "bilinear_attention",
        "attention_weights",
        "gaussian_attention",
        "self_attention",
        "multi_head_attention",
    ],
)
@pytest.mark.parametrize("which", [0, -1])
def test_a_nan_that_all_see(half, inputs, name, which):
    """Nothing is hidden: a query full of NaN, and a NaN in a key or value."""
    args = inputs(name)
    own = [x for x in args if x in "QKVX"]
    args[own[which]][2] = np.nan
    found = getattr(half, name)(*args.values())
    lost = np.isnan(found)
    assert (
        lost[..., 2, :].all()
        if which == 0
        else lost.all() or name == "attention_weights"
    )


@pytest.mark.parametrize("scale", [np.nan, np.inf])
def test_scales_that_are_not_finite(half, draw, scale):
    Q, K = draw(3, 4), draw(5, 4)
    with np.errstate(all="ignore"):
        assert np.isnan(half.attention(Q, K, K, scale=scale)).all()


def test_an_infinite_key_in_half_precision():
    Q, K = torch.ones(3, 8), torch.ones(20, 8)
    K[4] = np.inf
    given = (X.bfloat16() for X in (Q, K, K[:, :3]))
    assert at.attention(*given).isnan().all()


@pytest.mark.parametrize(
    "name",
    ["attention", "gaussian_attention", "additive_attention", "multi_head_attention"],
)
@pytest.mark.parametrize("hidden", [np.nan, np.inf])
def test_a_bias_behind_a_mask_is_silent(half, inputs, name, hidden):
    args = inputs(name, n=7, m=7)
    above = np.triu(np.ones((7, 7)), 1) > 0
    bias = np.where(above, 0.0, np.sin(np.arange(7.0)))
    fn = getattr(half, name)
    expected = fn(*args.values(), bias=bias, causal=True)
    with np.errstate(all="ignore"):
        found = fn(*args.values(), bias=np.where(above, hidden, bias), causal=True)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    bias[4, 2] = np.nan
    spoilt = fn(*args.values(), bias=bias, causal=True)
    assert np.isnan(spoilt[4]).all() and np.isfinite(np.delete(spoilt, 4, 0)).all()


@pytest.mark.parametrize("axes", [(7, 5), (20, 8)])
def test_queries_of_nothing_but_nan(half, draw, axes):
    K = draw(*axes).astype(np.float32)
    Q = np.full_like(K, np.nan)
    assert np.isnan(half.attention(Q, K, K)).all()
    eye = np.eye(axes[1], dtype=np.float32)
    assert np.isnan(half.bilinear_attention(Q, K, K, eye)).all()
