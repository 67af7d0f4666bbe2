"""The engine behind attention: torch's fused kernel, with the conventions of this package."""

import math

import torch
from torch.nn.functional import pad, scaled_dot_product_attention

from attn_tutor._shapes import broadcast
from attn_tutor.torch.masks import causal_mask, some, surely
from attn_tutor.torch.scoring import default_scale


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
    n, m, d, d_v = Q.shape[-2], K.shape[-2], Q.shape[-1], V.shape[-1]
    if scale is None:
        scale = default_scale(d)
    elif isinstance(scale, torch.Tensor) or scale <= 0:
        # Some kernels hide a score as scale · (−inf), so that their own must be above 0.
        Q, scale = Q * scale, 1.0
    if causal and n != m:  # the kernel's own flag is aligned upper left
        mask, causal = causal_mask(n, m, device=Q.device), False
    arrays = (Q, K, V) if mask is None else (Q, K, V, mask)
    batch = broadcast(*(X.shape[:-2] for X in arrays))
    assert batch is not None  # the callers have checked

    def four_axes(X: torch.Tensor) -> torch.Tensor:
        if X.shape[:-2] == batch and 0 < len(batch) < 3:  # the usual case, and quick
            return X if len(batch) == 2 else X[None]
        *outer, inner = batch or (1,)
        return X.expand(*batch, *X.shape[-2:]).reshape(
            math.prod(outer), inner, *X.shape[-2:]
        )

    def widened(X: torch.Tensor) -> torch.Tensor:
        """Filled up with zeros, which change nothing: the fast kernels want one width."""
        return pad(X, (0, max(d, d_v) - X.shape[-1])) if d != d_v else X

    empty = None
    if mask is not None:
        empty = ~some(mask, -1)
        if surely(~empty.any()):
            empty = None
        else:  # The kernel needs something to attend to; the last line takes it away again, gradient included.
            mask = mask | empty
        mask = mask.expand(*mask.shape[:-1], m)
        # Its axes of length 1 stay: the kernel makes floats of all that it is given.
        if len(batch) > 2 and mask.ndim > 3:
            mask = mask.expand(*batch[:-1], *mask.shape[-3:])
        heads = mask.shape[-3:-2] or (1,)
        mask = mask.reshape(math.prod(mask.shape[:-3]), *heads, *mask.shape[-2:])
    output = scaled_dot_product_attention(
        four_axes(widened(Q)),
        four_axes(widened(K)),
        four_axes(widened(V)),
        mask,
        dropout_p,
        is_causal=causal,
        scale=scale,
    )
    output = output[..., :d_v].reshape(*batch, n, d_v)
    return output if empty is None else output.masked_fill(empty, 0)
