"""What ``attn_tutor._both`` computes with, in NumPy: the same names as in the torch half."""

# ruff: noqa: F401, I001 — imported for others, and a list of words reads as lines

from typing import Any

from numpy import (
    amax, arange, argsort, asarray, atleast_2d, broadcast_to, concatenate, empty, float32, full,
    int64, isneginf, repeat, tile, where, zeros,
)  # fmt: skip

from attn_tutor._checks import require_fit
from attn_tutor.numpy._arrays import (
    require_array,
    require_bias,
    require_boolean,
    require_whole,
)


def needs_gradient(*arrays: Any) -> bool:
    """Never: NumPy has no autograd."""
    return False


def to_device(caller: str, name: str, device: Any, X: Any) -> Any:
    """The array itself, once it is one of this half."""
    require_array(caller, name, X)
    return X


def may_hold_minus_infinity(X: Any) -> bool:
    """Whether a number is −∞."""
    return bool(isneginf(X).any())
