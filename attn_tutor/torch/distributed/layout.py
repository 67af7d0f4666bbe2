"""Which tokens of a sequence each process holds."""

import torch

from attn_tutor._checks import require_size

__all__ = ["blocks", "striped", "zigzag"]


def blocks(n: int, size: int) -> list[torch.Tensor]:
    """Consecutive tokens: the first process holds the first n/size of them.

    With causal attention the first process has almost nothing to do and the last the most, so that the others wait.

    Args:
        n: number of tokens.
        size: number of processes.

    Returns:
        The positions that each process holds, ascending; lengths differ by 1 at most.

    Raises:
        ValueError: ``n`` is negative or there is no process.

    Example:
        >>> [x.tolist() for x in blocks(8, 2)]
        [[0, 1, 2, 3], [4, 5, 6, 7]]
    """
    return list(_tokens("blocks", n, size).tensor_split(size))


def striped(n: int, size: int) -> list[torch.Tensor]:
    """Every size-th token: neighbours sit in different processes.

    Source: Brandon et al. (2023), *Striped Attention*. With causal attention the work is even up to one token a query.

    Args:
        n: number of tokens.
        size: number of processes.

    Returns:
        The positions that each process holds, ascending; lengths differ by 1 at most.

    Raises:
        ValueError: ``n`` is negative or there is no process.

    Example:
        >>> [x.tolist() for x in striped(8, 2)]
        [[0, 2, 4, 6], [1, 3, 5, 7]]
    """
    return [_tokens("striped", n, size)[rank::size] for rank in range(size)]


def zigzag(n: int, size: int) -> list[torch.Tensor]:
    r"""Two pieces of 2·size for each process, one from the front and one from the back.

    .. math:: \text{process } r \text{ holds the pieces } r \text{ and } 2\,\text{size} - 1 - r

    A token that sees few keys then goes with one that sees many: causal work is the same for all. Source: the Llama 3
    team (2024), section 3.3.2, "context parallelism".

    Args:
        n: number of tokens.
        size: number of processes.

    Returns:
        The positions that each process holds, ascending; lengths differ by 2 at most.

    Raises:
        ValueError: ``n`` is negative or there is no process.

    Example:
        >>> [x.tolist() for x in zigzag(8, 2)]
        [[0, 1, 6, 7], [2, 3, 4, 5]]
    """
    pieces = _tokens("zigzag", n, size).tensor_split(2 * size)
    return [torch.cat([pieces[r], pieces[-1 - r]]) for r in range(size)]


LAYOUTS = {"blocks": blocks, "striped": striped, "zigzag": zigzag}


def held(
    where: str, layout: str, lengths: list[int], what: str = "tokens"
) -> list[torch.Tensor]:
    """The positions that each process holds, if the lengths of their parts are those of a layout."""
    if layout not in LAYOUTS:
        raise ValueError(f"{where}: layout must be one of {[*LAYOUTS]}, got {layout!r}")
    positions = LAYOUTS[layout](sum(lengths), len(lengths))
    needed = [len(x) for x in positions]
    if needed != lengths:
        raise ValueError(
            f"{where}: the processes hold {lengths} {what}, but the layout {layout!r} of {sum(lengths)} {what} "
            f"is {needed}; take positions = {layout}({sum(lengths)}, {len(lengths)})[rank]"
        )
    return positions


def _tokens(where: str, n: int, size: int) -> torch.Tensor:
    require_size(where, "n", n)
    require_size(where, "size", size, least=1)
    return torch.arange(n)
