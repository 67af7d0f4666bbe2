"""Which query may attend to which key: boolean masks, True = may attend."""

import functools
from typing import Any

import torch

from attn_tutor._checks import broadcast, require_size
from attn_tutor.torch._arrays import glance, require_array, require_mask, some

BLOCK = 64  # keys: kernels are a tenth slower where the last block is not full
Device = torch.device | str | int | None

__all__ = ["causal_mask", "padding_mask"]


def causal_mask(n: int, m: int | None = None, *, device: Device = None) -> torch.Tensor:
    r"""Permit each query the keys up to its own position.

    .. math:: \text{mask}_{ij} = [\, j \le i + m - n \,]

    The mask is aligned lower right: the last query sees every key, as decoding with a cache needs, where the n
    queries are the newest of m tokens. With n > m the first n − m queries see nothing. The ``is_causal`` flag
    of torch's ``scaled_dot_product_attention`` is aligned upper left instead; for n = m both agree.
    Source: Vaswani et al. (2017), section 3.2.3, for n = m.

    Args:
        n: number of queries.
        m: number of keys; None means n.
        device: where the result lives; None is torch's default.

    Returns:
        Boolean mask, (n, m); True = may attend.

    Raises:
        TypeError: n or m is not a whole number.
        ValueError: n or m is negative.

    Example:
        >>> causal_mask(2, 3).tolist()
        [[True, True, False], [True, True, True]]
    """
    m = n if m is None else m
    require_size("causal_mask", "n", n)
    require_size("causal_mask", "m", m)
    return torch.ones(n, m, dtype=torch.bool, device=device).tril(m - n)


def padding_mask(
    valid_lens: torch.Tensor, m: int, *, device: Device = None
) -> torch.Tensor:
    r"""Permit the first ``valid_lens`` of m keys: the rest is padding.

    .. math:: \text{mask}_{bij} = [\, j < \text{valid\_lens}_{b} \,]
        \quad\text{or}\quad [\, j < \text{valid\_lens}_{bi} \,]

    Source: Zhang et al., Dive into Deep Learning, section 11.3, whose ``valid_lens`` this takes.

    Args:
        valid_lens: whole numbers between 0 and m: one for each sequence of a batch, (b,), or one for each query,
            (b, n).
        m: number of keys.
        device: where the result lives; None is that of ``valid_lens``.

    Returns:
        Boolean mask, (b, 1, m) or (b, n, m); True = may attend.

    Raises:
        TypeError: the lengths are not whole numbers in an array, or m is not one.
        ValueError: a length is negative or above m, or ``valid_lens`` has neither 1 nor 2 axes.

    Example:
        >>> padding_mask(torch.tensor([1, 3]), 3).tolist()
        [[[True, False, False]], [[True, True, True]]]
    """
    require_size("padding_mask", "m", m)
    require_array("padding_mask", "valid_lens", valid_lens)
    if (
        valid_lens.dtype == torch.bool
        or valid_lens.is_floating_point()
        or valid_lens.is_complex()
    ):
        raise TypeError(
            f"padding_mask: valid_lens must be whole numbers, got {valid_lens.dtype}"
        )
    if valid_lens.ndim not in (1, 2):
        raise ValueError(
            f"padding_mask: valid_lens has shape {tuple(valid_lens.shape)} but needs (b,) or (b,n)"
        )
    if ((valid_lens < 0) | (valid_lens > m)).any():
        raise ValueError(
            f"padding_mask: lengths must lie in 0 … m={m}, got {valid_lens.min()} … {valid_lens.max()}"
        )
    valid_lens = valid_lens.to(device) if device is not None else valid_lens
    lens = valid_lens[:, None] if valid_lens.ndim == 1 else valid_lens  # (b, 1 or n)
    return torch.arange(m, device=lens.device) < lens[..., None]  # (b, 1 or n, m)


# What follows serves the other modules of this half.


def permitted(
    where: str,
    mask: torch.Tensor | None,
    causal: bool,
    Q: torch.Tensor,
    *keyed: torch.Tensor,
) -> tuple[torch.Tensor | None, bool]:
    """Check the mask of a public function and join it with causality: (mask, causal), never both."""
    n, m = Q.shape[-2], keyed[0].shape[-2]
    if mask is None:
        return None, causal and n > 1  # a lone query is the newest: it sees all
    batch = broadcast(*(X.shape[:-2] for X in (Q, *keyed)))
    assert batch is not None  # the shapes are checked
    require_mask(where, mask, (*batch, n, m), Q.device)
    mask = torch.atleast_2d(mask)
    return mask & causal_mask(n, m, device=mask.device) if causal else mask, False


def trimmed(mask: torch.Tensor | None, *keyed: torch.Tensor) -> tuple[Any, ...]:
    """Without the last keys if a mask of one row, as lengths make it, hides them from all: padding costs nothing."""
    if mask is None or mask.shape[-2:] != (1, m := keyed[0].shape[-2]):
        return mask, *keyed
    stop = glance(_length, mask)
    if stop is None or stop > m - BLOCK:
        return mask, *keyed
    stop = -(-stop // BLOCK) * BLOCK
    return mask[..., :stop], *(X[..., :stop, :] for X in keyed)


def _length(mask: torch.Tensor) -> torch.Tensor:
    """How many keys there are up to the last that some query sees."""
    seen = some(mask.reshape(-1, mask.shape[-1]), 0)
    return (seen * torch.arange(1, mask.shape[-1] + 1)).max()


def shield(
    mask: torch.Tensor | None, causal: bool, Q: torch.Tensor, *keyed: torch.Tensor
) -> tuple[Any, ...]:
    """Clear what is hidden before it is multiplied: a weight of 0 comes too late, as 0 · NaN is NaN.

    Rows of Q and of the arrays that belong to the keys are set to 0 where they are not finite, or where no query
    may see them. The last array returned, (…, n, 1), marks the queries that had a right to what was not finite,
    for :func:`spoil`; it is None where nothing is hidden.
    """
    if (mask is None and not causal) or _tame(Q, *keyed):
        return Q, *keyed, None
    n = Q.shape[-2]
    asks = torch.isfinite(Q).all(-1, keepdim=True)  # (…, n, 1)
    # (…, m)
    kept = functools.reduce(
        torch.logical_and, (torch.isfinite(X).all(-1) for X in keyed)
    )
    spoiled = _sees(~kept, n, mask) | ~asks & _sees(torch.ones_like(kept), n, mask)
    if mask is not None:
        kept = kept & some(mask, -2)[..., 0, :]
    return (
        torch.where(asks, Q, 0),
        *(torch.where(kept[..., None], X, 0) for X in keyed),
        spoiled,
    )


def _tame(*arrays: torch.Tensor) -> bool:
    """Whether nothing hidden can do harm, as norms show faster than a look at each number.

    What is finite gets a weight of exactly 0 unless a dot product overflows, and that is at most a product of norms.
    """
    # A set, because tokens that attend to themselves are one tensor given twice.
    norms = (glance(torch.linalg.vector_norm, X.detach()) for X in {*arrays})
    return all(norm is not None and norm < 1e15 for norm in norms)


def spoil(output: torch.Tensor, spoiled: torch.Tensor | None) -> torch.Tensor:
    """Give NaN to the queries that were permitted to see one."""
    return output if spoiled is None else output.masked_fill(spoiled, torch.nan)


def _sees(keys: torch.Tensor, n: int, mask: torch.Tensor | None) -> torch.Tensor:
    """Which of n queries may attend to a marked key, (…, m) -> (…, n, 1); no mask means causal."""
    if mask is not None:
        return (mask & keys[..., None, :]).any(-1, keepdim=True)
    nothing = keys.new_zeros(*keys.shape[:-1], n)
    # Aligned lower right: query i sees keys up to i + m - n.
    so_far = keys.cumsum(-1) > 0
    return torch.concatenate([nothing, so_far], -1)[..., keys.shape[-1] :, None]
