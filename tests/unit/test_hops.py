"""How far it is from a name to its formula: read from the sources."""

import ast
import inspect
import textwrap

import pytest

import attn_tutor.numpy as an
import attn_tutor.torch as at

ENDS = {"softmax", "masked_softmax", "scaled_dot_product_attention"}
NAMES = """attend attention attention_weights bilinear_attention gaussian_attention additive_attention
self_attention cross_attention multi_head_attention multi_head_weights latent_attention masked_softmax
partial_attention sink_attention attention_vjp MultiHeadAttention"""
CALLS = [(lib, x) for lib in (an, at) for x in NAMES.split() if hasattr(lib, x)]
# What stands on attention itself is one hop further from its formula.
COMPOSED = """additive_attention bilinear_attention self_attention cross_attention multi_head_attention
multi_head_weights latent_attention sink_attention attention_vjp MultiHeadAttention"""


def body_of(fn):
    fn = inspect.unwrap(fn.forward if inspect.isclass(fn) else fn)
    tree = ast.parse(textwrap.dedent(inspect.getsource(fn))).body[0]
    return fn, tree.body[1:] if ast.get_docstring(tree) else tree.body


def path(fn, before=()):
    """The functions of ours from a name to the softmax, by the shortest way."""
    fn, body = body_of(fn)
    calls = [x.func for part in body for x in ast.walk(part) if isinstance(x, ast.Call)]
    names = [x.id for x in calls if isinstance(x, ast.Name)]
    here = (*before, fn)
    if ENDS & {*names, fn.__name__} or fn.__name__ == "partial_attention":
        return here
    ours = (fn.__globals__.get(name) for name in names)
    ways = [
        path(x, here)
        for x in ours
        if inspect.isfunction(x) and "attn_tutor" in x.__module__ and len(here) < 4
    ]
    return min((way for way in ways if way), key=len, default=None)


@pytest.mark.parametrize(("lib", "name"), CALLS)
def test_a_name_shows_its_formula(lib, name):
    fn, body = body_of(getattr(lib, name))
    statements = [x for part in body for x in ast.walk(part) if isinstance(x, ast.stmt)]
    way = path(fn)
    print(name, len(statements), *(f"{x.__module__}.{x.__name__}" for x in way))
    composed = name in COMPOSED.split()
    assert len(statements) <= 15
    assert len(way) <= 2 + composed and len({x.__module__ for x in way}) <= 1 + composed
