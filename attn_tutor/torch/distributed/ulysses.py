"""Attention by heads: an exchange gives each process all tokens of some heads."""

from typing import Any

import torch
import torch.distributed as dist

from attn_tutor._checks import require_divisible
from attn_tutor.torch.distributed.parts import parts
from attn_tutor.torch.distributed.peers import Group, waiting
from attn_tutor.torch.multi_head import pool_heads
from attn_tutor.torch.visibility import Visibility

__all__ = ["ulysses_attention"]

HERE = "ulysses_attention"


def ulysses_attention(
    Q: torch.Tensor,
    K: torch.Tensor,
    V: torch.Tensor,
    mask: torch.Tensor | None = None,
    *,
    causal: bool = False,
    window: int | None = None,
    scale: float | None = None,
    layout: str = "zigzag",
    group: Group = None,
) -> torch.Tensor:
    r"""Attention of tokens that are spread over processes: each gets all tokens of some heads for a while.

    Heads have nothing to do with one another, so that between two exchanges of all with all each process attends as if
    it were alone, with the fastest kernel, and with the same work. The number is that of attention in one process, and
    so are the gradients. Source: Jacobs et al. (2023), *DeepSpeed Ulysses*.

    Args:
        Q: queries of this process, (…, h, n_local, d); the number of processes divides h.
        K: keys of this process, (…, h_kv, m_local, d); the number of processes divides h_kv, or h_kv divides it.
        V: values of this process, (…, h_kv, m_local, d_v).
        mask: boolean, broadcasts to (…, h, n_local, m): the rows of this process's queries, and all m keys in the order
            of the sequence; True = may attend. None permits every key.
        causal: also forbid each query the keys after it, aligned lower right.
        window: most keys that a query sees, its own and those just before it; needs ``causal``. None sets no limit.
        scale: factor on the dot product; None is 1/√d.
        layout: which tokens a process holds: "blocks", "striped" or "zigzag", as the functions of these names say.
        group: the processes; None is all.

    Returns:
        Output for the queries of this process, (…, h, n_local, d_v); a query with nothing to attend to gets 0.

    Raises:
        TypeError: an argument is not an array of this half, or the mask is not boolean.
        ValueError: the shapes do not fit, the heads do not split, or the lengths are not those of the layout.
        RuntimeError: another process is lost, or silent for longer than the time-out of the group.

    Example:
        >>> from attn_tutor.torch.distributed import run, zigzag
        >>> def attend(rank, size):
        ...     V = torch.tensor([[1.0], [3.0], [5.0], [7.0]])[zigzag(4, size)[rank]]
        ...     V = torch.stack([V, -V])  # two heads
        ...     return ulysses_attention(0 * V, 0 * V, V, causal=True).flatten(1).tolist()
        >>> run(attend, 2)
        [[[1.0, 4.0], [-1.0, -4.0]], [[2.0, 3.0], [-2.0, -3.0]]]
    """
    size = dist.get_world_size(group)
    P = parts(HERE, (Q, K, V), mask, causal, window, scale, layout, group)
    Q, K, V, mask = P.Q, P.K, P.V, P.mask
    if min(Q.ndim, K.ndim) < 3:
        raise ValueError(f"{HERE}: Q, K and V need an axis of heads, (…, h, n, d)")
    h, h_kv = Q.shape[-3], K.shape[-3]
    require_divisible(HERE, "heads of Q", h, "processes", size)
    if h_kv % size:  # too few for all: some processes share one
        require_divisible(HERE, "processes", size, "heads of K", h_kv)
        K, V = (X.repeat_interleave(size // h_kv, -3) for X in (K, V))
    if mask is not None and P.by_row:  # the rows of all queries are needed
        heads = h if mask.ndim > 2 and mask.shape[-3] > 1 else size
        mask = mask.expand(*mask.shape[:-3], heads, *mask.shape[-2:])
        mask = to_heads(mask.to(torch.uint8), P.queries, group).bool()
    elif mask is not None and mask.ndim > 2 and mask.shape[-3] > 1:
        mask = mask.chunk(size, -3)[dist.get_rank(group)]
    Q, K, V = (
        to_heads(X, places, group)
        for X, places in ((Q, P.queries), (K, P.keys), (V, P.keys))
    )
    see = Visibility(P.see.n, P.see.m, Q.device, mask, causal, window)
    output = pool_heads(Q, K, V, see, scale=scale)
    return to_tokens(output, P.queries, group)


def to_heads(X: torch.Tensor, places: list[torch.Tensor], group: Group) -> torch.Tensor:
    """All heads of some tokens to all tokens of some heads, (…, h, n_local, d) -> (…, h / size, n, d)."""
    size, rows = len(places), X.shape[-2]
    lengths = [len(x) for x in places]
    # What goes to one process must be consecutive: (h, n_local, …, d), then all of it in one row.
    Y = X.movedim((-3, -2), (0, 1))
    h, rest = len(Y) // size, Y.shape[2:]
    given = [h * rows] * size
    taken = [h * length for length in lengths]
    Y = _Exchange.apply(Y.reshape(-1, *rest), given, taken, group)
    parts = [y.unflatten(0, (h, -1)) for y in Y.split(taken)]
    order = torch.cat(places).argsort().to(X.device)
    return torch.cat(parts, 1)[:, order].movedim((0, 1), (-3, -2))


def to_tokens(
    X: torch.Tensor, places: list[torch.Tensor], group: Group
) -> torch.Tensor:
    """The way back, (…, h / size, n, d) -> (…, h, n_local, d)."""
    h, lengths = X.shape[-3], [len(x) for x in places]
    Y = X.movedim((-3, -2), (0, 1))
    rest = Y.shape[2:]
    pieces = [Y[:, x.to(X.device)].reshape(-1, *rest) for x in places]
    rows = lengths[dist.get_rank(group)]
    given, taken = [h * length for length in lengths], [h * rows] * len(places)
    Y = _Exchange.apply(torch.cat(pieces), given, taken, group)
    return Y.reshape(h * len(places), rows, *rest).movedim((0, 1), (-3, -2))


class _Exchange(torch.autograd.Function):
    """Rows to all and from all, in the order of their ranks; gradients take the way back."""

    @staticmethod
    def forward(
        ctx: Any, X: torch.Tensor, given: list[int], taken: list[int], group: Group
    ) -> torch.Tensor:
        ctx.back = taken, given, group
        Y = X.new_empty(sum(taken), *X.shape[1:])
        with waiting(HERE, "while all exchanged tokens for heads", group):
            dist.all_to_all_single(Y, X.contiguous(), taken, given, group=group)
        return Y

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> tuple[Any, ...]:
        return _Exchange.apply(g, *ctx.back), None, None, None
