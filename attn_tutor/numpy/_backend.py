"""What ``attn_tutor._both`` computes with, in NumPy: the same names as in the torch half."""

# ruff: noqa: F401, I001 — imported for others, and a list of words reads as lines

from typing import Any

from numpy import (
    amax, arange, argsort, asarray, broadcast_to, concatenate, empty, float32, full, int64,
    repeat, tile, where, zeros,
)  # fmt: skip

from attn_tutor.numpy._arrays import require_array, require_whole


def needs_gradient(*arrays: Any) -> bool:
    """Never: NumPy has no autograd."""
    return False
