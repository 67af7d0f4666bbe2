"""What ``attn_tutor._both`` computes with, in torch: the same names as in the NumPy half."""

# ruff: noqa: F401, I001 — imported for others, and a list of words reads as lines

from typing import Any

from torch import (
    amax, amin, arange, argsort, asarray, atleast_2d, broadcast_to, concatenate, empty, float32, full,
    int64, is_grad_enabled, tile, where, zeros,
)  # fmt: skip
from torch import repeat_interleave as repeat

from attn_tutor.torch._arrays import (
    require_array,
    require_bias,
    require_boolean,
    require_fit,
    require_whole,
    value_of,
)


def needs_gradient(*arrays: Any) -> bool:
    """Whether autograd follows what is computed of these tensors."""
    return is_grad_enabled() and any(X.requires_grad for X in arrays)


def to_device(caller: str, name: str, device: Any, X: Any) -> Any:
    """The tensor on that device, once it is one."""
    require_array(caller, name, X)
    return X.to(device)


def may_hold_minus_infinity(X: Any) -> bool:
    """Whether a number is −∞, or nobody can look (compiled, vmap); a GPU is waited for."""
    least = value_of(amin, X, wait=True) if X.numel() else 0
    return least is None or least == -float("inf")
