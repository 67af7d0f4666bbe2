"""Attention by heads: an exchange gives each process all tokens of some heads."""

import math
from typing import Any

import torch
import torch.distributed as dist

from attn_tutor._checks import require_divisible
from attn_tutor.rules import Rule, Window
from attn_tutor.torch._attention import attention
from attn_tutor.torch.distributed.parts import heads, of_heads, parts
from attn_tutor.torch.distributed.peers import Group, waiting

__all__ = ["ulysses_attention"]

HERE = "ulysses_attention"


@heads
def ulysses_attention(
    Q: torch.Tensor,
    K: torch.Tensor,
    V: torch.Tensor,
    mask: torch.Tensor | Rule | None = None,
    *,
    causal: bool = False,
    window: int | Window | None = None,
    scale: float | None = None,
    layout: str = "zigzag",
    group: Group = None,
) -> torch.Tensor:
    r"""Attention of tokens that are spread over processes: each gets all tokens of some heads for a while.

    Heads have nothing to do with one another, so that between two exchanges of all with all each process attends as if
    it were alone, with the fastest kernel, and with the same work. The number is that of attention in one process, and
    so are the gradients. The arguments that are not listed here are those of :func:`ring_attention`, and so are the
    errors. Source: Jacobs et al. (2023), *DeepSpeed Ulysses*.

    Args:
        Q: queries of this process, (…, h, n_local, d); the number of processes divides h.
        K: keys of this process, (…, h_kv, m_local, d); the number of processes divides h_kv, or h_kv divides it.
        V: values of this process, (…, h_kv, m_local, d_v).

    Returns:
        Output for the queries of this process, (…, h, n_local, d_v); a query with nothing to attend to gets 0.

    Raises:
        ValueError: the heads do not split over the processes.

    Example:
        >>> from attn_tutor.torch.distributed import run, zigzag
        >>> def attend(rank, size):
        ...     V = torch.tensor([[1.0], [3.0], [5.0], [7.0]])[zigzag(4, size)[rank]]
        ...     V = torch.stack([V, -V])  # two heads
        ...     return ulysses_attention(0 * V, 0 * V, V, causal=True).flatten(1).tolist()
        >>> run(attend, 2)
        [[[1.0, 4.0], [-1.0, -4.0]], [[2.0, 3.0], [-2.0, -3.0]]]
    """
    P = parts(HERE, Q, K, mask, causal, window, layout, group, scale=scale)
    size, h, h_kv = len(P.keys), Q.shape[-3], K.shape[-3]
    require_divisible(HERE, "heads of Q", h, "processes", size)
    if h_kv % size:  # too few for all: some processes share one
        require_divisible(HERE, "processes", size, "heads of K", h_kv)
        K, V = (X.repeat_interleave(size // h_kv, -3) for X in (K, V))
    h_local = h // size
    if isinstance(mask, Rule):
        mask = of_heads(mask, slice(P.rank * h_local, (P.rank + 1) * h_local))
    elif P.mask is not None:
        n_heads = max([size, *P.mask.shape[-3:-2]])
        rows = P.mask.expand(*P.mask.shape[:-3], n_heads, *P.mask.shape[-2:])
        [rows] = to_heads([rows.to(torch.uint8)], [P.queries], group)
        mask = rows.bool()
    Q, K, V = to_heads([Q, K, V], [P.queries, P.keys, P.keys], group)
    O = attention(
        Q, K, V, mask, causal=causal, window=window, scale=scale, n_kv_heads=K.shape[-3]
    )  # fmt: skip
    return to_tokens(O, P.queries, group)


def to_heads(
    arrays: list[torch.Tensor], places: list[list[torch.Tensor]], group: Group
) -> list[torch.Tensor]:
    """All heads of some tokens to all tokens of some heads, (…, h, n_local, d) -> (…, h / size, n, d), all at once."""
    size, rank, kinds = len(places[0]), dist.get_rank(group), len(arrays)
    chunks = [X.chunk(size, -3) for X in arrays]
    sent = [X[to] for to in range(size) for X in chunks]
    shapes = [
        (*X[rank].shape[:-2], len(x[source]), X[rank].shape[-1])
        for source in range(size)
        for X, x in zip(chunks, places, strict=True)
    ]
    parts = exchange(sent, shapes, group)
    return [
        torch.cat(parts[kind::kinds], -2)[..., torch.cat(x).argsort(), :]
        for kind, x in enumerate(places)
    ]


def to_tokens(
    X: torch.Tensor, places: list[torch.Tensor], group: Group
) -> torch.Tensor:
    """The way back, (…, h / size, n, d) -> (…, h, n_local, d)."""
    sent = [X[..., x, :] for x in places]
    shape = sent[dist.get_rank(group)].shape
    return torch.cat(exchange(sent, [shape] * len(places), group), -3)


def exchange(
    sent: list[torch.Tensor], shapes: list[Any], group: Group
) -> list[torch.Tensor]:
    """As many tensors to each process, in the order of their ranks, as from each; the latter have these shapes."""
    lengths = [math.prod(shape) for shape in shapes]
    counts = (  # of numbers to each process, and from each
        torch.tensor(x).view(dist.get_world_size(group), -1).sum(-1).tolist()
        for x in ([X.numel() for X in sent], lengths)
    )
    X = torch.cat([X.flatten() for X in sent])
    Y: torch.Tensor = _Exchange.apply(X, *counts, group)
    parts = zip(Y.split(lengths), shapes, strict=True)
    return [y.view(shape) for y, shape in parts]


class _Exchange(torch.autograd.Function):
    """So many numbers to each process, and so many from each; gradients take the way back."""

    @staticmethod
    def forward(
        ctx: Any, X: torch.Tensor, sent: list[int], taken: list[int], group: Group
    ) -> torch.Tensor:
        ctx.back = taken, sent, group
        Y = X.new_empty(sum(taken))
        with waiting(HERE, "while all exchanged tokens for heads", group):
            dist.all_to_all_single(Y, X, taken, sent, group=group)
        return Y

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> tuple[Any, ...]:
        return _Exchange.apply(g.contiguous(), *ctx.back), None, None, None
