"""Checks of memory and speed: whether all scores are stored, and whether a fused kernel can be had."""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch.utils._python_dispatch import TorchDispatchMode

from attn_tutor.failures.finding import Finding

__all__ = ["falls_back", "stores_scores"]

FUSED = [
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.CUDNN_ATTENTION,
]


class Largest(TorchDispatchMode):
    """Watches what each operation makes, and keeps the largest tensor whose last two axes are n and m."""

    def __init__(self, n: int, m: int) -> None:
        super().__init__()
        self.axes, self.bytes, self.name = (n, m), 0, ""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **kwargs or {})
        for x in out if isinstance(out, tuple | list) else [out]:
            scores = isinstance(x, Tensor) and x.shape[-2:] == self.axes
            if scores and x.is_floating_point() and x.nbytes > self.bytes:
                self.bytes, self.name = x.nbytes, func.overloadpacket.__name__
        return out


def stores_scores(
    attention: Callable[..., Any], Q: Tensor, K: Tensor, V: Tensor
) -> Finding:
    r"""Whether all n · m scores stand in memory at once.

    .. math:: \text{bytes} = 4 \cdot b \cdot h \cdot n \cdot m \quad \text{in float32}

    Every operation is watched, on whatever device, and the tensor is counted rather than the memory.

    Args:
        attention: takes Q, K and V.
        Q: queries, (b, h, n, d).
        K: keys, (b, h, m, d), with m another number than n and d.
        V: values, (b, h, m, d_v).

    Returns:
        A finding, true if an operation makes a tensor of real numbers with the last axes n and m.

    Raises:
        ValueError: n, m and d are not three numbers, so that a tensor of scores could not be told.

    Example:
        >>> Q, K = torch.rand(1, 2, 13, 4), torch.rand(1, 2, 11, 4)
        >>> stores_scores(lambda Q, K, V: (Q @ K.mT).softmax(-1) @ V, Q, K, K).cause
        'scores are stored'
        >>> bool(stores_scores(scaled_dot_product_attention, Q, K, K))
        False
    """
    n, m, d = Q.shape[-2], K.shape[-2], Q.shape[-1]
    if len({n, m, d, V.shape[-1]}) < (3 if d == V.shape[-1] else 4):
        raise ValueError(f"stores_scores: n={n}, m={m} and d={d} must differ")
    with Largest(n, m) as seen, torch.no_grad():
        attention(Q, K, V)
    if not seen.bytes:
        return Finding("stores_scores")
    says = f"{seen.name} makes a tensor of {seen.bytes:,} bytes; four times as many tokens need sixteen times as much."
    return Finding("stores_scores", "scores are stored", says)


def falls_back(
    Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None, **options: Any
) -> Finding:
    """Whether torch's ``scaled_dot_product_attention`` has no fused kernel for these arguments, and takes the slow one.

    Args:
        Q: queries, (b, h, n, d).
        K: keys, (b, h, m, d).
        V: values, (b, h, m, d_v).
        mask: torch's ``attn_mask``.
        options: others that torch's function takes, such as ``dropout_p``.

    Returns:
        A finding, true if none of torch's fused kernels will run, with the reasons that torch gives.

    Example:
        >>> Q, V = torch.rand(1, 2, 5, 8), torch.rand(1, 2, 5, 4)
        >>> falls_back(Q, Q, V).cause
        'slow kernel'
    """
    with (
        warnings.catch_warnings(record=True) as heard,
        sdpa_kernel(FUSED),
        torch.no_grad(),
    ):
        warnings.simplefilter("always")
        try:
            scaled_dot_product_attention(Q, K, V, mask, **options)
        except RuntimeError as error:
            reasons = [str(w.message).split(" (Triggered")[0] for w in heard]
            says = " ".join([str(error).splitlines()[0], *reasons])
            return Finding("falls_back", "slow kernel", says)
    return Finding("falls_back")
