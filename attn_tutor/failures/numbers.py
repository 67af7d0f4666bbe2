"""Checks of precision: of softmax in a long row, and of positions far from the start."""

from collections.abc import Callable

import torch
from torch import Tensor

from attn_tutor.failures.finding import Finding

__all__ = ["blurs_far_positions", "loses_the_sum"]


def loses_the_sum(
    softmax: Callable[[Tensor], Tensor],
    n: int = 5000,
    dtype: torch.dtype = torch.float16,
) -> Finding:
    """Whether the weights of a long row in half precision do not sum to 1.

    Args:
        softmax: takes scores (n,) and returns weights (n,).
        n: number of keys.
        dtype: of the scores.

    Returns:
        A finding, true if the sum of n equal weights is off by more than a hundredth.

    Example:
        >>> loses_the_sum(lambda s: s.exp() / torch.tensor(2048.0)).cause
        'sum in half precision'
    """
    total = softmax(torch.zeros(n, dtype=dtype)).double().sum().item()
    if abs(total - 1) <= 0.01:
        return Finding("loses_the_sum")
    says = f"The weights of {n} equal keys sum to {total:.2f}."
    return Finding("loses_the_sum", "sum in half precision", says)


def blurs_far_positions(
    encode: Callable[[Tensor, Tensor], Tensor],
    far: int = 8000,
    dtype: torch.dtype = torch.bfloat16,
) -> Finding:
    """Whether a rotary or other encoding of far positions is off in half precision.

    Args:
        encode: takes vectors (n, d) and positions (n,) and returns (n, d): the turned or added-to vectors.
        far: the first of 64 positions.
        dtype: of the vectors.

    Returns:
        A finding, true if an entry is off by more than a twentieth of the largest.

    Example:
        >>> def turn(X, p):
        ...     angle = p.to(X.dtype)[:, None]
        ...     return torch.cat([X[:, :1] * angle.cos(), X[:, :1] * angle.sin()], -1)
        >>> blurs_far_positions(turn).cause
        'far positions differ'
    """
    places = torch.arange(far, far + 64)
    X = torch.randn(64, 8, generator=torch.Generator().manual_seed(0)).to(dtype)
    right = encode(X.double(), places)
    gap = ((encode(X, places).double() - right).abs().max() / right.abs().max()).item()
    if gap < 0.05:
        return Finding("blurs_far_positions")
    says = f"At positions {far} to {far + 63} entries are off by up to {gap:.2f} of the largest."
    return Finding("blurs_far_positions", "far positions differ", says)
