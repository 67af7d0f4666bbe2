"""Attention by heads: an exchange gives each process all tokens of some heads."""

import math
from typing import Any

import torch
import torch.distributed as dist

from attn_tutor._checks import require_divisible
from attn_tutor.rules import Rule, Window
from attn_tutor.torch.attention import pool
from attn_tutor.torch.distributed.parts import heads, parts
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
    require_divisible(HERE, "heads of Q", Q.shape[-3], "heads of K", K.shape[-3])
    P = parts(HERE, Q, K, mask, causal, window, layout, group, scale=scale)
    size, h, h_kv = len(P.keys), Q.shape[-3], K.shape[-3]
    require_divisible(HERE, "heads of Q", h, "processes", size)
    if h_kv % size:  # too few for all: some processes share one
        require_divisible(HERE, "processes", size, "heads of K", h_kv)
        K, V = (X.repeat_interleave(size // h_kv, -3) for X in (K, V))
    rows = P.mask
    if rows is not None:
        n_heads = max(size, *rows.shape[-3:-2], 1)
        rows = rows.expand(*rows.shape[:-3], n_heads, *rows.shape[-2:])
        if P.by_row:  # queries have rows of their own: the rows of all are needed
            [rows] = to_heads([rows.to(torch.uint8)], [P.queries], group)
            rows = rows.bool()
        else:
            rows = rows.chunk(size, -3)[P.rank]
    Q, K, V = to_heads([Q, K, V], [P.queries, P.keys, P.keys], group)
    share = h // size
    see = P.see.of_heads(slice(P.rank * share, (P.rank + 1) * share))
    see.arrays |= {} if rows is None else {"mask": rows}
    heads = pool(Q, K, V, see, K.shape[-3], scale=scale)
    return to_tokens(heads, P.queries, group)


def to_heads(
    arrays: list[torch.Tensor], places: list[list[torch.Tensor]], group: Group
) -> list[torch.Tensor]:
    """All heads of some tokens to all tokens of some heads, (…, h, n_local, d) -> (…, h / size, n, d), all at once."""
    size, kinds = len(places[0]), len(arrays)
    given = [X.chunk(size, -3) for X in arrays]
    shapes = [
        (*X[0].shape[:-2], len(x[rank]), X[0].shape[-1])
        for rank in range(size)
        for X, x in zip(given, places, strict=True)
    ]
    flat = [X[rank] for rank in range(size) for X in given]
    got = _Exchange.apply(group, shapes, *flat)
    return [
        torch.cat(got[kind::kinds], -2)[..., torch.cat(x).argsort(), :]
        for kind, x in enumerate(places)
    ]


def to_tokens(
    X: torch.Tensor, places: list[torch.Tensor], group: Group
) -> torch.Tensor:
    """The way back, (…, h / size, n, d) -> (…, h, n_local, d)."""
    given = [X[..., x, :] for x in places]
    shape = given[dist.get_rank(group)].shape
    return torch.cat(_Exchange.apply(group, [shape] * len(places), *given), -3)


class _Exchange(torch.autograd.Function):
    """Some tensors to each process, by rank, and as many from each; gradients take the way back."""

    @staticmethod
    def forward(
        ctx: Any, group: Group, shapes: list[Any], *given: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        ctx.back = group, [X.shape for X in given]
        X = torch.cat([X.flatten() for X in given])
        lengths = [math.prod(shape) for shape in shapes]
        Y = X.new_empty(sum(lengths))
        kinds = len(given) // dist.get_world_size(group)
        sent, taken = (  # numbers to each process, and from each
            [sum(x[i : i + kinds]) for i in range(0, len(x), kinds)]
            for x in ([X.numel() for X in given], lengths)
        )
        with waiting(HERE, "while all exchanged tokens for heads", group):
            dist.all_to_all_single(Y, X, taken, sent, group=group)
        parts = zip(Y.split(lengths), shapes, strict=True)
        return tuple(y.view(shape) for y, shape in parts)

    @staticmethod
    def backward(ctx: Any, *g: torch.Tensor) -> tuple[Any, ...]:
        return None, None, *_Exchange.apply(*ctx.back, *g)
