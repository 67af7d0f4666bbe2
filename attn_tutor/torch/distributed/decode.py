"""Decoding from a cache of keys and values of which every process holds a part."""

import functools

import torch

from attn_tutor.torch._arrays import require_boolean
from attn_tutor.torch.distributed.parts import grouped, heads
from attn_tutor.torch.distributed.peers import Group, gather
from attn_tutor.torch.merge import merge, partial_attention

__all__ = ["decode_attention"]

HERE = "decode_attention"


@torch.no_grad()
@heads
def decode_attention(
    Q: torch.Tensor,
    K: torch.Tensor,
    V: torch.Tensor,
    mask: torch.Tensor | None = None,
    *,
    scale: float | None = None,
    group: Group = None,
) -> torch.Tensor:
    r"""Attention of the same queries, in all processes, to keys and values of which each process holds a part.

    .. math:: O = \text{merge of } \operatorname{attention}(Q, K_r, V_r) \text{ over the processes } r

    For a cache that is too long for one machine: what travels is d_v + 1 numbers a query and process, whatever the
    length of the cache. Which process holds which tokens does not matter. It has no gradient.
    Source: Dao et al. (2023), *Flash-Decoding*, with processes for its blocks.

    Args:
        Q: queries, (…, n, d), or (…, h, n, d) with heads; the same in all processes.
        K: this process's part of the keys, (…, m_local, d); of h_kv heads, where h_kv divides h. It may be empty.
        V: the values that belong to them, (…, m_local, d_v).
        mask: boolean, broadcasts to (…, n, m_local); True = may attend. None permits every key.
        scale: factor on the dot product; None is 1/√d.
        group: the processes; None is all.

    Returns:
        Output, (…, n, d_v), the same in all processes; a query with nothing to attend to gets 0.

    Raises:
        TypeError: an argument is not an array of this half, or the mask is not boolean.
        ValueError: the shapes do not fit.
        RuntimeError: another process is lost, or silent for longer than the time-out of the group.

    Example:
        >>> from attn_tutor.torch.distributed import run
        >>> def attend(rank, size):
        ...     V = torch.tensor([[1.0 + rank], [3.0 + rank]])
        ...     return decode_attention(torch.zeros(1, 1), 0 * V, V).item()
        >>> run(attend, 2)
        [2.5, 2.5]
    """
    if mask is not None:
        require_boolean(HERE, mask, Q.device)  # nobody knows the places of the keys
    mine = partial_attention(*grouped(HERE, Q, K, V, mask), scale=scale)
    what = "while all gave their parts"
    parts = gather(HERE, what, torch.cat(mine, -1), group)
    pairs = (X.tensor_split([-1], -1) for X in parts)
    output, _ = functools.reduce(lambda one, other: merge(*one, *other), pairs)
    return output.to(Q.dtype).flatten(-4, -3)
