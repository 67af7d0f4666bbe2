"""From a name to the product and the softmax in a few hops: each body is at most fifteen statements."""

import ast
import inspect
import sys
import textwrap
from types import FunctionType

import pytest

import attn_tutor.numpy as an
import attn_tutor.torch as at

ENDS = {"exp", "softmax", "scaled_dot_product_attention"}  # of NumPy or torch
CHECKS = "require", "_require", "look", "for_heads"
MASKED = [x for x in an.__all__ if "mask" in inspect.signature(getattr(an, x)).parameters]  # fmt: skip
CALLS = [(half, x) for half in (an, at) for x in MASKED if x != "check_mask" and hasattr(half, x)]  # fmt: skip


def parsed(fn):
    tree = ast.parse(textwrap.dedent(inspect.getsource(fn))).body[0]
    return tree.body[1:] if ast.get_docstring(tree) else tree.body


def walk(fn, hops):
    """Adds the functions of ours on the way, each once; says whether a softmax of NumPy's or torch's is at its end."""
    hops.append(fn)
    module, ends = vars(sys.modules[fn.__module__]), False
    for x in (x.func for part in parsed(fn) for x in ast.walk(part) if isinstance(x, ast.Call)):  # fmt: skip
        theirs = isinstance(x, ast.Attribute)
        name = x.attr if theirs else getattr(x, "id", "")
        ours = inspect.unwrap(module.get(name, len))
        if theirs or not getattr(ours, "__module__", "").startswith("attn_"):
            ends |= name in ENDS
        elif isinstance(ours, FunctionType) and ours not in hops and not name.startswith(CHECKS):  # fmt: skip
            ends |= walk(ours, hops)
    return ends


@pytest.mark.parametrize(("half", "name"), [*CALLS, (at, "MultiHeadAttention")])
def test_few_hops_lead_from_a_name_to_the_softmax(half, name):
    fn, hops = getattr(half, name), []
    fn = inspect.unwrap(fn if isinstance(fn, FunctionType) else fn.forward)
    lines = [x for part in parsed(fn) for x in ast.walk(part) if isinstance(x, ast.stmt)]  # fmt: skip
    assert walk(fn, hops), "no softmax at the end"
    files = {x.__module__ for x in hops}
    most = 22 if "Head" in name or "head" in name or "latent" in name else 15
    print(name, len(lines), len(files), *(f"{x.__module__}.{x.__name__}" for x in hops))
    assert len(lines) <= 15 and len(hops) <= most and len(files) <= 7
