"""The pieces of additive attention that take the time, for callers that are compiled."""

import functools
import warnings
from typing import Any

import torch


@functools.cache
def compiled_pieces() -> tuple[Any, Any] | None:
    """The same pieces without tiles: the compiler's loops keep what they need in registers. None without a compiler."""

    @functools.partial(torch.compile, dynamic=True)
    def score(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (w[:, None] / (1 + x[:, :, None] * y[:, None])).sum(-1)

    @functools.partial(torch.compile, dynamic=True)
    def pull(x: torch.Tensor, y: torch.Tensor, dS: torch.Tensor) -> torch.Tensor:
        r = 1 / (1 + x[:, :, None] * y[:, None])
        return (dS[..., None] * (r - r * r)).sum(2)

    @functools.partial(torch.compile, dynamic=True)
    def pull_both(x: torch.Tensor, y: torch.Tensor, dS: torch.Tensor) -> Any:
        r = 1 / (1 + x[:, :, None] * y[:, None])
        weighted = dS[..., None] * r
        return (weighted - weighted * r).sum(2), weighted.sum(2)

    def gradient(x: torch.Tensor, y: torch.Tensor, dS: torch.Tensor) -> Any:
        da, dw = pull_both(x, y, dS)
        # A sum over queries is quicker as one over keys, of all exchanged.
        return da, pull(y, x, dS.mT.contiguous()), dw.sum(1, keepdim=True)

    try:
        score(*(torch.ones(2, 3, 5), torch.ones(2, 7, 5), torch.ones(2, 1, 5)))
    except (
        Exception
    ) as error:  # whatever is missing: a compiler, its headers, a place to write
        reason = str(error).strip().splitlines()[0]
        warnings.warn(
            f"additive_attention: computes without a compiler, as torch.compile finds none that works: {reason}",
            stacklevel=2,
        )
        return None
    return score, gradient
