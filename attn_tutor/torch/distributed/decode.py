"""Decoding from a cache of keys and values of which every process holds a part."""

import torch
import torch.distributed as dist

from attn_tutor.torch.distributed.merge import merge, partial_attention
from attn_tutor.torch.distributed.parts import by_groups, groups
from attn_tutor.torch.distributed.peers import Group, waiting

__all__ = ["decode_attention"]

HERE = "decode_attention"


@torch.no_grad()
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
    n_groups = groups(HERE, Q, K, V)
    if n_groups:
        Q, K, V, mask = by_groups(n_groups, Q, K, V, mask)
    mine = torch.cat(partial_attention(Q, K, V, mask, scale=scale), -1)
    parts = [torch.empty_like(mine) for _ in range(dist.get_world_size(group))]
    with waiting(HERE, "while all gave their parts", group):
        dist.all_gather(parts, mine, group=group)
    output, log_sum = parts[0].tensor_split([-1], -1)
    for part in parts[1:]:
        output, log_sum = merge(output, log_sum, *part.tensor_split([-1], -1))
    output = output.to(Q.dtype)
    return output.flatten(-4, -3) if n_groups else output
