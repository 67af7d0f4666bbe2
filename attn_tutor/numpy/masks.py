"""Which query may attend to which key: boolean masks, True = may attend."""

import functools
from typing import Any

import numpy as np

from attn_tutor._checks import require_size
from attn_tutor.numpy._arrays import require_array, require_mask

__all__ = ["causal_mask", "padding_mask"]


def causal_mask(n: int, m: int | None = None) -> np.ndarray:
    r"""Permit each query the keys up to its own position.

    .. math:: \text{mask}_{ij} = [\, j \le i + m - n \,]

    The mask is aligned lower right: the last query sees every key, as decoding with a cache needs, where the n
    queries are the newest of m tokens. With n > m the first n − m queries see nothing. The ``is_causal`` flag
    of torch's ``scaled_dot_product_attention`` is aligned upper left instead; for n = m both agree.
    Source: Vaswani et al. (2017), section 3.2.3, for n = m.

    Args:
        n: number of queries.
        m: number of keys; None means n.

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
    return np.tri(n, m, m - n, dtype=bool)


def padding_mask(valid_lens: np.ndarray, m: int) -> np.ndarray:
    r"""Permit the first ``valid_lens`` of m keys: the rest is padding.

    .. math:: \text{mask}_{bij} = [\, j < \text{valid\_lens}_{b} \,]
        \quad\text{or}\quad [\, j < \text{valid\_lens}_{bi} \,]

    Source: Zhang et al., Dive into Deep Learning, section 11.3, whose ``valid_lens`` this takes.

    Args:
        valid_lens: whole numbers between 0 and m: one for each sequence of a batch, (b,), or one for each query,
            (b, n).
        m: number of keys.

    Returns:
        Boolean mask, (b, 1, m) or (b, n, m); True = may attend.

    Raises:
        TypeError: the lengths are not whole numbers in an array, or m is not one.
        ValueError: a length is negative or above m, or ``valid_lens`` has neither 1 nor 2 axes.

    Example:
        >>> padding_mask(np.array([1, 3]), 3).tolist()
        [[[True, False, False]], [[True, True, True]]]
    """
    require_size("padding_mask", "m", m)
    require_array("padding_mask", "valid_lens", valid_lens)
    if valid_lens.dtype.kind not in "iu":
        raise TypeError(
            f"padding_mask: valid_lens must be whole numbers, got {valid_lens.dtype}"
        )
    if valid_lens.ndim not in (1, 2):
        raise ValueError(
            f"padding_mask: valid_lens has shape {valid_lens.shape} but needs (b,) or (b,n)"
        )
    if np.any((valid_lens < 0) | (valid_lens > m)):
        raise ValueError(
            f"padding_mask: lengths must lie in 0 … m={m}, got {valid_lens.min()} … {valid_lens.max()}"
        )
    lens = valid_lens[:, None] if valid_lens.ndim == 1 else valid_lens  # (b, 1 or n)
    return np.arange(m) < lens[..., None]  # (b, 1 or n, m)


# What follows serves the other modules of this half.


def permitted(
    where: str, mask: np.ndarray | None, causal: bool, Q: np.ndarray, *keyed: np.ndarray
) -> tuple[np.ndarray | None, bool]:
    """Check the mask of a public function and join it with causality: (mask, causal), never both."""
    n, m = Q.shape[-2], keyed[0].shape[-2]
    if mask is None:
        return None, causal and n > 1  # a lone query is the newest: it sees all
    batch = np.broadcast_shapes(*(X.shape[:-2] for X in (Q, *keyed)))
    require_mask(where, mask, (*batch, n, m))
    return (mask & causal_mask(n, m), False) if causal else (np.atleast_2d(mask), False)


def shield(
    mask: np.ndarray | None, causal: bool, Q: np.ndarray, *keyed: np.ndarray
) -> tuple[Any, ...]:
    """Clear what is hidden before it is multiplied: a weight of 0 comes too late, as 0 · NaN is NaN.

    Rows of Q and of the arrays that belong to the keys are set to 0 where they are not finite, or where no query
    may see them. The last array returned, (…, n, 1), marks the queries that had a right to what was not finite,
    for :func:`spoil`; it is None where nothing is hidden.
    """
    if mask is None and not causal:
        return Q, *keyed, None
    # The keys that some query may see, (…, m).
    kept: Any = np.ones(1, bool) if mask is None else mask.any(-2)
    spoiled = None
    if not all(_looks_finite(X) for X in (Q, *keyed)):
        n = Q.shape[-2]
        asks = np.isfinite(Q).all(-1, keepdims=True)  # (…, n, 1)
        # (…, m)
        finite = functools.reduce(
            np.logical_and, (np.isfinite(X).all(-1) for X in keyed)
        )
        spoiled = _sees(~finite, n, mask)
        spoiled = spoiled | ~asks & _sees(np.ones_like(finite), n, mask)
        Q, kept = np.where(asks, Q, 0), kept & finite
    if not kept.all():
        keyed = tuple(np.where(kept[..., None], X, 0) for X in keyed)
    return Q, *keyed, spoiled


def spoil(output: np.ndarray, spoiled: np.ndarray | None) -> np.ndarray:
    """Give NaN to the queries that were permitted to see one."""
    return output if spoiled is None else np.where(spoiled, np.nan, output)


def _looks_finite(X: np.ndarray) -> bool:
    """False if there is NaN or infinity, and also if a sum overflows: it is quick, and a second look may follow."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(X.sum(dtype=np.result_type(X, np.float32))))


def _sees(keys: np.ndarray, n: int, mask: np.ndarray | None) -> np.ndarray:
    """Which of n queries may attend to a marked key, (…, m) -> (…, n, 1); no mask means causal."""
    if mask is not None:
        return (mask & keys[..., None, :]).any(-1, keepdims=True)
    nothing = np.zeros((*keys.shape[:-1], n), bool)
    # Aligned lower right: query i sees keys up to i + m - n.
    so_far = np.logical_or.accumulate(keys, -1)
    return np.concatenate([nothing, so_far], -1)[..., keys.shape[-1] :, None]
