"""torch's kernels for scaled dot-product attention: softmax(Q Kᵀ/√d) V without the matrix of weights."""

import contextlib
import math

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import pad, scaled_dot_product_attention

from attn_tutor._checks import broadcast, require_chance
from attn_tutor.torch._arrays import transformed
from attn_tutor.torch.blocks import Visibility
from attn_tutor.torch.flex import flex, flexible
from attn_tutor.torch.scoring import resolved_scale


def fused(
    visibility: Visibility,
    Q: torch.Tensor,
    K: torch.Tensor,
    V: torch.Tensor,
    *,
    scale: float | None = None,
    n_kv_heads: int | None = None,
    dropout_p: float = 0.0,
) -> torch.Tensor:
    """What ``attention`` gives, from torch's own kernels, with this package's conventions of shapes and masks."""
    require_chance("attention", "dropout_p", dropout_p)
    d, d_v = Q.shape[-1], V.shape[-1]
    own_scale, scale = scale, resolved_scale("attention", scale, d)
    if own_scale is not None:  # kernels take no scale of 0 or less, and no tensor
        Q, scale = scale * Q, 1.0
    if d != d_v:  # zeros change no product, and the fast kernels want one width
        Q, K, V = (pad(X, (0, max(d, d_v) - X.shape[-1])) for X in (Q, K, V))
    output = by_kernel(Q, K, V, visibility, scale, dropout_p, n_kv_heads)
    return output[..., :d_v]


def by_kernel(
    Q: torch.Tensor,
    K: torch.Tensor,
    V: torch.Tensor,
    visibility: Visibility,
    scale: float,
    dropout_p: float,
    n_kv_heads: int | None,
) -> torch.Tensor:
    """The kernel for these arrays, all of one width, called with two batch axes."""
    dtype = Q.dtype
    by_flex = not dropout_p and Q.ndim < 5 and flexible(visibility)
    visible, B = (None, None) if visibility.is_causal or by_flex else visibility.dense
    if B is not None:
        if dtype.itemsize < 4:  # half precision would round the bias too coarsely
            Q, K, V = Q.float(), K.float(), V.float()
        B = B.to(Q.dtype)
        visible = B if visible is None else torch.where(visible, B, -torch.inf)

    shapes = [X.shape[:-2] for X in (Q, K, V, visible) if X is not None]
    if n_kv_heads is None:
        batch = shared = broadcast(*shapes) or ()
    else:
        outer = broadcast(*(shape[:-1] for shape in shapes)) or ()
        batch, shared = (*outer, Q.shape[-3]), (*outer, n_kv_heads)
    q, k, v = four_axes(Q, batch), four_axes(K, shared), four_axes(V, shared)
    mask = None if visible is None else four_axes(visible, batch)
    gqa = n_kv_heads is not None
    # Other kernels have no second derivatives, and none along a direction.
    only = SDPBackend.MATH if transformed(Q, K, V) else None
    with sdpa_kernel(only) if only else contextlib.nullcontext():
        if by_flex:
            output = flex(q, k, v, visibility, scale, gqa)
        else:
            output = scaled_dot_product_attention(
                q,
                k,
                v,
                mask,
                dropout_p,
                visibility.is_causal,
                scale=scale,
                enable_gqa=gqa,
            )
    output = output.reshape(*batch, *output.shape[-2:])
    return output if B is None else output.to(dtype)


def four_axes(X: torch.Tensor, batch: tuple[int, ...]) -> torch.Tensor:
    """With two batch axes, as the fast kernels want."""
    if X.shape[:-2] == batch and len(batch) == 2:  # the usual case
        return X
    *outer, heads = batch or (1,)
    X = X.expand(*outer, heads, *X.shape[-2:])
    return X.reshape(math.prod(outer), heads, *X.shape[-2:])
