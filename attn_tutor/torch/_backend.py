"""What ``attn_tutor._both`` computes with, in torch: the same names as in the NumPy half."""

# ruff: noqa: F401, I001 — imported for others, and a list of words reads as lines

from typing import Any

from torch import (
    amax, arange, argsort, asarray, broadcast_to, concatenate, empty, float32, full, int64,
    is_grad_enabled, tile, where, zeros,
)  # fmt: skip
from torch import repeat_interleave as repeat

from attn_tutor.torch._arrays import require_array, require_whole


def needs_gradient(*arrays: Any) -> bool:
    """Whether autograd follows what is computed of these tensors."""
    return is_grad_enabled() and any(X.requires_grad for X in arrays)
