"""The engine behind attention: torch's fused kernel, with the conventions of this package."""

import math

import torch
from torch.nn.functional import scaled_dot_product_attention

from attn_tutor.torch.masks import causal_mask


def fused_attention(
    Q: torch.Tensor,
    K: torch.Tensor,
    V: torch.Tensor,
    mask: torch.Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    dropout_p: float = 0.0,
) -> torch.Tensor:
    """The number of ``attend(scaled_dot_score(Q, K, scale), V, mask)``, from the fastest kernel at hand.

    Arguments as :func:`attention`, but what is hidden must already be finite.
    """
    n, m = Q.shape[-2], K.shape[-2]
    if mask is not None or causal:
        Q, K = _bounded(Q, scale), _bounded(K, scale)
    if causal and n != m:  # the kernel's own flag is aligned upper left
        mask, causal = causal_mask(n, m, device=Q.device), False
    batch = torch.broadcast_shapes(
        Q.shape[:-2],
        K.shape[:-2],
        V.shape[:-2],
        () if mask is None else mask.shape[:-2],
    )

    def four_axes(X: torch.Tensor) -> torch.Tensor:
        *outer, inner = batch or (1,)
        return X.expand(*batch, *X.shape[-2:]).reshape(
            math.prod(outer), inner, *X.shape[-2:]
        )

    empty = None
    if mask is not None:
        empty = ~mask.any(-1, keepdim=True)
        # The kernel needs something to attend to; the last line takes it away again, gradient included.
        mask = four_axes((mask | empty).expand(*mask.shape[:-1], m))
    output = scaled_dot_product_attention(
        four_axes(Q),
        four_axes(K),
        four_axes(V),
        mask,
        dropout_p,
        is_causal=causal,
        scale=scale,
    )
    output = output.reshape(*batch, n, V.shape[-1])
    return output if empty is None else output.masked_fill(empty, 0)


def _bounded(X: torch.Tensor, scale: float | None) -> torch.Tensor:
    """Keep scores from overflowing: the kernel hides one by adding −inf, and inf − inf is NaN."""
    if X.dtype == torch.float16:
        return X  # the kernel multiplies half precision in single
    largest = torch.finfo(X.dtype).max / max(1, X.shape[-1]) / max(1, abs(scale or 0))
    return X.clamp(-(largest**0.5), largest**0.5)
