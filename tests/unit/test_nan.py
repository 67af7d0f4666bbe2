"""One law for every public function that attends: a NaN reaches all queries that see it, and no other.

Whatever rules say together, in one piece as in blocks, forward as in the gradient.
"""

import inspect
import warnings
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from test_visibility import dense

import attn_tutor.numpy as an
import attn_tutor.torch as at
from attn_tutor.geometry import Rule
from attn_tutor.numpy.fast import tiles
from attn_tutor.torch.fast import attention as engine

KEYED = {"self_attention": ["X"], "latent_attention": ["C", "R"]}
NAMES = [
    name
    for name in at.__all__
    if hasattr(getattr(at, name), "__shapes__")
    and "window" in inspect.signature(getattr(at, name)).parameters
    and not getattr(at, name).__shapes__.endswith("->()")
]
FIXTURES = [HealthCheck.function_scoped_fixture]
SMALL = {"PAIRS": 60, "FEW": 8, "SHORT": 4, "ROWS": 3, "KEYS": 4}


@st.composite
def problems(draw):
    """Rules, queries and keys, and where the NaN stands."""
    n, m = draw(st.integers(2, 9)), draw(st.integers(2, 9))
    causal, said = draw(st.booleans()), {}
    window = draw(st.none() | st.integers(1, 9)) if causal else None
    sinks = draw(st.integers(0, 3)) if window else 0
    for name in ("valid", "prefix"):
        if draw(st.booleans()):
            said[name] = np.array(draw(st.integers(0, m)))
    mask = None
    if draw(st.booleans()):
        shape = draw(st.sampled_from([(n, m), (1, m)]))
        mask = np.random.default_rng(draw(st.integers(0, 99))).random(shape) < 0.6
    return n, m, causal, window, sinks, said, mask


def told(half, problem):
    """The arguments that say it."""
    _, _, causal, window, sinks, said, mask = problem
    give = torch.from_numpy if half is at else np.asarray
    rules = {name: give(X) for name, X in said.items()}
    if mask is not None:
        rules["mask"] = give(mask)
    wide = None if window is None else half.Window(window, sinks)
    return {"mask": Rule(**rules) if rules else None, "causal": causal, "window": wide}


def called(half, name, args, options, small):
    give = torch.from_numpy if half is at else np.asarray
    ready = {k: give(X) if isinstance(X, np.ndarray) else X for k, X in args.items()}
    side = {"KEYS": SMALL["KEYS"]}
    with warnings.catch_warnings(), patch.dict(vars(engine), SMALL if small else {}):
        warnings.simplefilter("ignore", RuntimeWarning)
        with patch.dict(vars(tiles), side if small else {}):
            found = getattr(half, name)(**ready, **options)
    return np.asarray(found[0] if isinstance(found, tuple) else found)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("half", [an, at], ids=["numpy", "torch"])
@settings(max_examples=60, suppress_health_check=FIXTURES)
@given(problem=problems(), data=st.data())
def test_a_nan_reaches_those_who_see_it(half, name, inputs, problem, data):
    n, m, *rest = problem
    if name == "self_attention":
        n = m = min(n, m)
        *rules, said, mask = rest
        said = {k: np.array(min(X, m)) for k, X in said.items()}
        problem = n, m, *rules, said, None if mask is None else mask[:n, :m]
    args = inputs(name, n=n, m=m)
    key, small = data.draw(st.integers(0, m - 1)), data.draw(st.booleans())
    keyed = [x for x in KEYED.get(name, ["K", "V"]) if x in args]
    where = data.draw(st.lists(st.sampled_from(keyed), min_size=1, unique=True))
    spoilt = dict(args)
    for x in where:
        spoilt[x] = args[x].copy()
        spoilt[x][key] = np.nan
    sees = dense(*problem)[:, key]
    if name == "self_attention" and dense(*problem)[key].any():
        sees = sees | (np.arange(n) == key)  # it asks as well
    options = told(half, problem)
    clean, found = (called(half, name, X, options, small) for X in (args, spoilt))
    by_row = np.moveaxis(found, -2, 0).reshape(n, -1)
    assert np.isnan(by_row[sees]).all()
    hidden = by_row[~sees]
    expected = np.moveaxis(clean, -2, 0).reshape(n, -1)[~sees]
    np.testing.assert_allclose(hidden, expected, rtol=1e-10, atol=1e-12)


@settings(max_examples=150, suppress_health_check=FIXTURES)
@given(problem=problems(), key=st.integers(0, 8), small=st.booleans())
def test_no_gradient_of_those_who_do_not_see_it(inputs, problem, key, small):
    """Of the others each gets the gradient that it has without the NaN, in both halves."""
    n, m, *_ = problem
    key %= m
    args = inputs("attention", n=n, m=m)
    sees = dense(*problem)[:, key]
    g = np.random.default_rng(3).normal(size=(n, args["V"].shape[-1]))
    assume(not sees.all())  # where nothing is hidden, a NaN is left to spread
    g[sees] = 0
    spoilt = {k: X.copy() for k, X in args.items()}
    spoilt["K"][key] = spoilt["V"][key] = np.nan
    expected = an.attention_vjp(*args.values(), g, **told(an, problem))
    found = an.attention_vjp(*spoilt.values(), g, **told(an, problem))
    leaves = [torch.from_numpy(X).requires_grad_() for X in spoilt.values()]
    with patch.dict(vars(engine), SMALL if small else {}):
        output = at.attention(*leaves, **told(at, problem))
        more = torch.autograd.grad(output, leaves, torch.from_numpy(g))
    for right, one, other in zip(expected, found, more, strict=True):
        np.testing.assert_allclose(one, right, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(other.numpy(), right, rtol=1e-9, atol=1e-12)
