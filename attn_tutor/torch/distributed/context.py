"""Attention of tokens spread over processes, by whichever way sends fewer bytes."""

from typing import Literal

import torch
import torch.distributed as dist

from attn_tutor.rules import Rule, Window
from attn_tutor.torch.distributed.parts import heads
from attn_tutor.torch.distributed.peers import Group
from attn_tutor.torch.distributed.ring import ring_attention
from attn_tutor.torch.distributed.ulysses import ulysses_attention

__all__ = ["context_parallel_attention"]


@heads
def context_parallel_attention(
    Q: torch.Tensor,
    K: torch.Tensor,
    V: torch.Tensor,
    mask: torch.Tensor | Rule | None = None,
    *,
    causal: bool = False,
    window: int | Window | None = None,
    scale: float | None = None,
    layout: str = "zigzag",
    method: Literal["ring", "heads", "auto"] = "auto",
    group: Group = None,
) -> torch.Tensor:
    r"""Attention of tokens that are spread over p processes: :func:`ring_attention` or :func:`ulysses_attention`.

    .. math:: \text{ring: } \tfrac{p-1}{p}\, h_{kv}\, m\, (d + d_v), \qquad
        \text{heads: } \tfrac{p-1}{p}\, \frac{h n + h_{kv} m}{p}\, (d + d_v)

    So many numbers each process sends in a forward pass. With as many keys as queries the ring sends fewer if
    :math:`p < 1 + h/h_{kv}`, that is among few processes or with few heads of keys. Its blocks also travel while it
    computes, it holds one at a time, and the number of heads sets no bound to that of processes. Heads send less among
    many processes with many heads of keys, and use the fastest kernel on the whole sequence, but nobody computes during
    the two exchanges.

    On GPUs torch has a ring of its own, ``torch.distributed.tensor.experimental.context_parallel``, for fused kernels
    without masks; in torch 2.13 it is a prototype, and refuses causal attention on CPUs.

    Arguments that are not listed here, and errors, are those of the function that is taken.

    Args:
        method: "ring", "heads", or "auto": heads where they split over the processes and send fewer bytes.

    Returns:
        Output for the queries of this process, (…, h, n_local, d_v); a query with nothing to attend to gets 0.

    Raises:
        ValueError: there is no such method.

    Example:
        >>> from attn_tutor.torch.distributed import run, zigzag
        >>> def attend(rank, size):
        ...     V = torch.tensor([[1.0], [3.0]])[zigzag(2, size)[rank]]
        ...     return context_parallel_attention(0 * V, 0 * V, V, causal=True).flatten().tolist()
        >>> run(attend, 2)
        [[1.0], [2.0]]
    """
    h, h_kv, size = Q.shape[-3], K.shape[-3], dist.get_world_size(group)
    split = h % size == h_kv % size == 0
    ways = {"ring": ring_attention, "heads": ulysses_attention}
    ways["auto"] = ways["heads" if split and size > 1 + h / h_kv else "ring"]
    if method not in ways:
        raise ValueError(
            f"context_parallel_attention: method must be one of {[*ways]}, got {method!r}"
        )
    return ways[method](
        Q, K, V, mask, causal=causal, window=window, scale=scale, layout=layout, group=group
    )  # fmt: skip
