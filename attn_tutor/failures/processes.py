"""Checks of work that several processes share, run on this machine's processor."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attn_tutor.failures.finding import Finding
from attn_tutor.torch._attention import attention
from attn_tutor.torch.distributed import run
from attn_tutor.torch.masks import causal_mask
from attn_tutor.torch.multi_head import split_heads

__all__ = [
    "counts_places_anew",
    "cuts_heads_apart",
    "differs_in_processes",
    "lacks_softmax_gradient",
    "waits_for_ever",
]

Work = Callable[[int, int], Any]


def differs_in_processes(work: Work, size: int = 2) -> Finding:
    """Whether several processes give another answer than one.

    Args:
        work: takes the rank and the number of processes and returns an array or a number.
        size: number of processes.

    Returns:
        A finding, true if rank 0 of several answers otherwise than one process alone.

    Raises:
        RuntimeError: a process fails.

    Example:
        >>> def work(rank, size):
        ...     x = torch.ones(1)
        ...     torch.distributed.all_reduce(x)
        ...     return x
        >>> differs_in_processes(work).cause
        'processes differ'
    """
    alone, shared = (torch.as_tensor(run(work, p)[0]).double() for p in (1, size))
    gap = (alone - shared).abs().max().item()
    if gap <= 1e-5 * max(1.0, alone.abs().max().item()):
        return Finding("differs_in_processes")
    says = f"The answer of {size} processes is off by up to {gap:.2f}."
    return Finding("differs_in_processes", "processes differ", says)


def waits_for_ever(exchange: Work) -> Finding:
    """Whether two processes that swap a number do not get each other's.

    Args:
        exchange: takes the rank and the number of processes, sends its rank to the next process and returns what it
            receives, or something else once it has waited too long.

    Returns:
        A finding, true if the two do not return 1 and 0.

    Raises:
        RuntimeError: a process fails.

    Example:
        >>> waits_for_ever(lambda rank, size: torch.distributed.barrier()).cause
        'processes wait'
    """
    received = run(exchange, 2)
    if received == [1, 0]:
        return Finding("waits_for_ever")
    says = f"Two processes swap their ranks and receive {received}."
    return Finding("waits_for_ever", "processes wait", says)


def cuts_heads_apart(cut: Callable[[Tensor, int, int], Tensor]) -> Finding:
    """Whether the parts of a fused matrix of queries, keys and values are not those of whole heads.

    Args:
        cut: takes a matrix (d, 3 d), the rank and the number of processes, and returns that rank's columns.

    Returns:
        A finding, true if the heads of two parts are other heads than those of the whole.

    Example:
        >>> cuts_heads_apart(lambda W, rank, size: W.chunk(size, -1)[rank]).cause
        'heads cut apart'
    """
    generator = torch.Generator().manual_seed(0)
    X, W = (
        torch.randn(5, 8, generator=generator),
        torch.randn(8, 24, generator=generator),
    )

    def heads(W: Tensor, n_heads: int) -> Tensor:
        Q, K, V = (split_heads(x, n_heads) for x in (X @ W).chunk(3, -1))
        return attention(Q, K, V)  # (h, n, d_h)

    parts = torch.cat([heads(cut(W, rank, 2), 2) for rank in range(2)])
    wrong = ~torch.isclose(parts, heads(W, 4), atol=1e-5).flatten(1).all(1)
    if not wrong.any():
        return Finding("cuts_heads_apart")
    says = f"Of 4 heads {int(wrong.sum())} are other heads on two processes."
    return Finding("cuts_heads_apart", "heads cut apart", says)


def counts_places_anew(mask: Callable[[int, int, int], Any]) -> Finding:
    """Whether the masks of all pairs of processes together are another mask than the causal one.

    Args:
        mask: takes the rank whose queries and the rank whose keys are meant, and the number of tokens of each; returns
            booleans (block, block), True where a query may attend. Tokens lie in order, block after block.

    Returns:
        A finding, true if a query sees the future or misses the past.

    Example:
        >>> counts_places_anew(lambda rank, owner, block: causal_mask(block)).cause
        'local positions'
    """
    tiles = [[torch.as_tensor(mask(r, o, 2)) for o in range(3)] for r in range(3)]
    whole = torch.cat([torch.cat(row, 1) for row in tiles])
    wrong = int((whole != causal_mask(6)).sum())
    if not wrong:
        return Finding("counts_places_anew")
    says = f"Of 36 pairs of tokens {wrong} are masked wrongly over three processes."
    return Finding("counts_places_anew", "local positions", says)


def lacks_softmax_gradient(gradient: Any) -> Finding:
    r"""Whether the gradient of a loss with respect to logits does not sum to 0.

    .. math:: L = g(\operatorname{softmax}(s)) \implies \sum_j \frac{\partial L}{\partial s_j} = 0

    Softmax does not see a shift of all logits, so no loss on it has a gradient in that direction.

    Args:
        gradient: with respect to the logits of one token, (vocabulary,).

    Returns:
        A finding, true if the sum is not 0.

    Example:
        >>> lacks_softmax_gradient(torch.tensor([0.0, -1.0, 0.0])).cause
        'gradient without softmax'
    """
    total = torch.as_tensor(gradient).double().sum().item()
    if abs(total) < 1e-5:
        return Finding("lacks_softmax_gradient")
    says = f"The gradient sums to {total:.2f}."
    return Finding("lacks_softmax_gradient", "gradient without softmax", says)
