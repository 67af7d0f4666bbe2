"""torch's kernels for scaled dot-product attention: softmax(Q Kᵀ/√d) V without the matrix of weights."""

import contextlib
import math

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import pad, scaled_dot_product_attention

from attn_tutor._checks import Shape, broadcast
from attn_tutor.torch._arrays import transformed
from attn_tutor.torch._engine.flex import flex, flexible
from attn_tutor.torch._engine.visibility import Visibility
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
    dtype, d, d_v = Q.dtype, Q.shape[-1], V.shape[-1]
    by_flex = not dropout_p and Q.ndim < 5 and flexible(visibility)
    mask, B = (None, None) if visibility.is_causal or by_flex else visibility.dense
    if B is not None:
        if dtype.itemsize < 4:  # half precision would round the bias too coarsely
            Q, K, V = Q.float(), K.float(), V.float()
        B = B.to(Q.dtype)
        mask = B if mask is None else torch.where(mask, B, -torch.inf)
    if scale is None:
        scale = resolved_scale("attention", None, d)
    else:  # kernels take no scale of 0 or less, and no tensor
        Q, scale = scale * Q, 1.0
    if d != d_v:  # zeros change no product, and the fast kernels want one width
        Q, K, V = (pad(X, (0, max(d, d_v) - X.shape[-1])) for X in (Q, K, V))

    # A rule's arrays may have batch axes that Q, K and V lack.
    first_pair = visibility.mask_and_bias(slice(0, 1), slice(0, 1)) if by_flex else ()
    batch, kv_batch = batch_axes(n_kv_heads, Q, K, V, mask, *first_pair)
    q, k, v = four_axes(Q, batch), four_axes(K, kv_batch), four_axes(V, kv_batch)
    gqa = n_kv_heads is not None
    if by_flex:
        output = flex(q, k, v, visibility, scale, gqa)
    else:
        mask = None if mask is None else mask_axes(mask, batch)
        output = sdpa(q, k, v, mask, dropout_p, visibility.is_causal, scale, gqa)
    return output.reshape(*batch, *output.shape[-2:])[..., :d_v].to(dtype)


def sdpa(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    dropout_p: float,
    causal: bool,
    scale: float,
    gqa: bool,
) -> torch.Tensor:
    """torch's own choice among its kernels."""
    # All but one have no second derivatives, and none along a direction.
    only = SDPBackend.MATH if transformed(q, k, v) else None
    with sdpa_kernel(only) if only else contextlib.nullcontext():
        return scaled_dot_product_attention(
            q, k, v, mask, dropout_p, causal, scale=scale, enable_gqa=gqa
        )


def batch_axes(
    n_kv_heads: int | None, Q: torch.Tensor, *others: torch.Tensor | None
) -> tuple[Shape, Shape]:
    """Those of the output, and those of keys and values, which may have fewer heads."""
    shapes = [X.shape[:-2] for X in (Q, *others) if X is not None]
    if n_kv_heads is None:
        batch = broadcast(*shapes) or ()
        return batch, batch
    outer = broadcast(*(shape[:-1] for shape in shapes)) or ()
    return (*outer, Q.shape[-3]), (*outer, n_kv_heads)


def mask_axes(mask: torch.Tensor, batch: Shape) -> torch.Tensor:
    """A mask with two batch axes; what is the same for all stays one, since kernels write out the whole of it."""
    if math.prod(mask.shape[:-2]) == 1:
        return mask.reshape(1, 1, *mask.shape[-2:])
    return four_axes(mask, batch)


def four_axes(X: torch.Tensor, batch: Shape) -> torch.Tensor:
    """With two batch axes, as the fast kernels want."""
    if X.ndim == 4 and len(batch) == 2 and X.shape[:-2] == batch:  # the usual case
        return X
    *outer, heads = batch or (1,)
    X = X.expand(*outer, heads, *X.shape[-2:])
    return X.reshape(math.prod(outer), heads, *X.shape[-2:])
