"""The engine behind attention: torch's fused kernel, with the conventions of this package."""

import math
from collections.abc import Callable

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import pad, scaled_dot_product_attention

from attn_tutor._checks import broadcast
from attn_tutor.torch._arrays import forward_mode, transformed
from attn_tutor.torch.scoring import default_scale
from attn_tutor.torch.visibility import Visibility

ROWS = 128  # of a block at least: with fewer, the calls would be most of the work


def fused_attention(
    Q: torch.Tensor,
    K: torch.Tensor,
    V: torch.Tensor,
    see: Visibility,
    scale: float | torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    dropout_p: float = 0.0,
) -> torch.Tensor:
    """The number of ``attend(scaled_dot_score(Q, K, scale) + bias, V, see.dense())``, from the fastest kernel at hand.

    What is hidden must already be finite. A query that sees nothing gets any number: :func:`finish` knows which.
    """
    n, m, d, d_v = Q.shape[-2], K.shape[-2], Q.shape[-1], V.shape[-1]
    if bias is None and worth_blocks(see):
        return in_blocks(Q, K, V, see, scale, dropout_p)
    if scale is None:
        scale = default_scale(d)
    elif isinstance(scale, torch.Tensor) or scale <= 0:
        # Some kernels hide a score as scale · (−inf), so that their own must be above 0.
        Q, scale = Q * scale, 1.0
    # The kernel's own flag is aligned upper left, and rules out a bias.
    causal = False
    if see.last == 0 and see.mask is None and see.window is None and bias is None:
        causal = True
    if not causal and not (see.everything and bias is None):
        # Faster than what the kernel makes of a mask.
        bias = see.numbers(bias, Q.dtype)
    arrays = (X for X in (Q, K, V, bias) if X is not None)
    batch = broadcast(*(X.shape[:-2] for X in arrays))
    assert batch is not None  # the callers have checked
    *outer, inner = batch or (1,)

    def four_axes(X: torch.Tensor) -> torch.Tensor:
        if X.shape[:-2] == batch and 0 < len(batch) < 3:  # the usual case, and quick
            return X if len(batch) == 2 else X[None]
        *_, heads, rows, width = (1, *X.shape)
        X = X.expand(*outer, heads, rows, width)
        # Keys that several heads share are shown to each, not copied.
        return X.reshape(math.prod(outer), heads, rows, width).expand(-1, inner, -1, -1)

    # Zeros change nothing, and the fast kernels want one width.
    if d < d_v:
        Q, K = (pad(X, (0, d_v - d)) for X in (Q, K))
    elif d_v < d:
        V = pad(V, (0, d - d_v))

    if bias is not None:
        # Axes of length 1 stay.
        if len(batch) > 2 and math.prod(bias.shape[:-3]) > 1:
            bias = bias.expand(*outer, *bias.shape[-3:])
        *_, heads, rows, _ = (1, *bias.shape)
        bias = bias.reshape(math.prod(bias.shape[:-3]), heads, rows, m)
    pool: Callable[..., torch.Tensor] = scaled_dot_product_attention
    if forward_mode():  # of torch's kernels, the textbook's alone has that
        pool = sdpa_kernel(SDPBackend.MATH)(pool)
    output = pool(
        four_axes(Q),
        four_axes(K),
        four_axes(V),
        bias,
        dropout_p,
        is_causal=causal,
        scale=scale,
    )
    if not (torch.compiler.is_compiling() or transformed()):
        kernel = output.grad_fn
        if kernel is not None and kernel.name().startswith("ScaledDotProduct"):
            kernel.register_prehook(_first_derivatives_alone)
    if d_v < d:
        output = output[..., :d_v]
    return output.reshape(*batch, n, d_v)


def worth_blocks(see: Visibility) -> bool:
    """Whether most keys lie outside most windows; not for a compiler, whose graph would fit one length only."""
    if torch.compiler.is_compiling() or see.window is None:
        return False
    # Otherwise queries come before the first key, or the last keys were padding and are cut off.
    aligned = see.last == see.m - see.n >= 0
    return aligned and see.n > 2 * max(see.window, ROWS)


def in_blocks(
    Q: torch.Tensor,
    K: torch.Tensor,
    V: torch.Tensor,
    see: Visibility,
    scale: float | torch.Tensor | None,
    dropout_p: float,
) -> torch.Tensor:
    """A block of queries at a time, with the keys beside them and the block before: no window reaches further."""
    height = max(see.window or 0, ROWS)
    sizes = [min(height, see.n - i) for i in range(0, see.n, height)]
    before = min(see.last, height)  # the first queries see keys that come before them
    parts = see.last - before, before, *sizes
    keys, values = (X.split(parts, -2)[1:] for X in (K, V))
    outputs = []
    for i, q in enumerate(Q.split(sizes, -2)):
        k, v = (torch.cat(X[i : i + 2], -2) for X in (keys, values))
        n, m = q.shape[-2], k.shape[-2]
        first, stop = i * height, i * height + n + see.last
        mask = see.part(slice(first, first + n), slice(stop - m, stop))
        here = Visibility(n, m, Q.device, mask, causal=True, window=see.window)
        outputs += [fused_attention(q, k, v, here, scale, dropout_p=dropout_p)]
    return torch.cat(outputs, -2)


def _first_derivatives_alone(gradients: tuple[torch.Tensor, ...]) -> None:
    """Say in words what the kernel would say in its own, later."""
    if torch.is_grad_enabled():  # as it is in a backward pass with create_graph=True
        raise NotImplementedError(
            "attention: torch's fused kernel has no second derivatives. Wrap the call of attention in "
            "`with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):`, whose kernel has them"
        )
