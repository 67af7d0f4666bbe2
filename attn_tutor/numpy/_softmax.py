"""From scores to weights: softmax, masked softmax, and plain normalisation."""

import numpy as np

from attn_tutor._checks import require_fit
from attn_tutor.numpy._arrays import require_boolean, shapes, silent

__all__ = ["masked_softmax", "normalize", "softmax"]


@shapes("(m)->(m)")
def softmax(x: np.ndarray, axis: int = -1) -> np.ndarray:
    r"""Turn real numbers into positive weights that sum to 1 along an axis.

    .. math:: p_i = \frac{\exp(x_i - \max_j x_j)}{\sum_k \exp(x_k - \max_j x_j)}

    Subtracting the maximum changes nothing in exact arithmetic and keeps ``exp`` from overflowing.
    Source: Bridle (1990); the maximum as in any numerical library.

    Args:
        x: real numbers, any shape with at least one axis.
        axis: the axis that sums to 1.

    Returns:
        Weights in the shape and dtype of x; each lies in [0, 1], and they sum to 1 along ``axis``.

    Raises:
        TypeError: x is not an array of this half, or not real.
        ValueError: x has no axis to normalise over.

    Example:
        >>> softmax(np.array([1000.0, 1000.0])).tolist()
        [0.5, 0.5]
    """
    e = _single(x) - x.max(axis, keepdims=True, initial=-np.inf)
    # In place, as the division: each new array would cost a third more.
    np.exp(e, out=e)
    e /= e.sum(axis, keepdims=True)
    return e.astype(x.dtype, copy=False)


@shapes("(m)->(m)")
@silent
def masked_softmax(scores: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
    r"""Softmax over the permitted keys of each query; forbidden keys get weight 0.

    .. math:: A_{ij} = \frac{\text{mask}_{ij} \exp S_{ij}}{\sum_k \text{mask}_{ik} \exp S_{ik}},
        \qquad \tfrac{0}{0} = 0

    A query with no permitted key gets weights 0. What stands in a forbidden score, NaN included, does not matter.
    Source: Vaswani et al. (2017), section 3.2.3; the convention for the empty row is ours.

    Args:
        scores: before softmax, (…, m); usually (…, n, m), a row for each query.
        mask: boolean, broadcasts to the scores; True = may attend. None permits every key.

    Returns:
        Weights in the shape of the scores (and of the mask's batch axes); each row sums to 1, or to 0 if nothing
        is permitted.

    Raises:
        TypeError: scores are not an array of this half, or the mask is not boolean.
        ValueError: the mask does not broadcast to the scores.

    Example:
        >>> masked_softmax(np.array([[2.0, 2.0, 9.0]]), np.array([[True, True, False]])).tolist()
        [[0.5, 0.5, 0.0]]
    """
    if mask is None:
        return softmax(scores)
    require_boolean("masked_softmax", mask)
    require_fit("masked_softmax", "mask", mask.shape, scores.shape)
    wide = np.where(mask, _single(scores), -np.inf)  # a forbidden key scores −∞ …
    lowest = np.finfo(wide.dtype).min  # and not −∞, since −∞ − (−∞) is NaN
    wide -= wide.max(-1, keepdims=True, initial=lowest)
    weights = np.exp(wide, out=wide)  # … and exp(−∞) = 0
    total = weights.sum(-1, keepdims=True)
    ratio(weights, total, out=weights)
    if np.isnan(total).any():  # of a permitted NaN, which spoils no forbidden key
        weights = np.where(mask, weights, 0)
    return weights.astype(scores.dtype, copy=False)


@shapes("(m)->(m)")
def normalize(weights: np.ndarray) -> np.ndarray:
    r"""Divide non-negative weights by their sum.

    .. math:: A_{ij} = \frac{w_{ij}}{\sum_k w_{ik}}, \qquad \tfrac{0}{0} = 0

    Source: Nadaraya (1964) and Watson (1964), the quotient of their estimator.

    Args:
        weights: non-negative, (…, m).

    Returns:
        Weights of the same shape; each row sums to 1, or to 0 if all of it is 0 (an empty window).

    Raises:
        TypeError: weights are not an array of this half.

    Example:
        >>> normalize(np.array([[3.0, 1.0], [0.0, 0.0]])).tolist()
        [[0.75, 0.25], [0.0, 0.0]]
    """
    wide = _single(weights)
    return ratio(wide, wide.sum(-1, keepdims=True)).astype(weights.dtype, copy=False)


def ratio(
    part: np.ndarray, total: np.ndarray, out: np.ndarray | None = None
) -> np.ndarray:
    """part / total, where 0/0 is 0: a query that sees no key draws nothing from any."""
    return np.divide(part, total + (total == 0), out=out, casting="same_kind")


def _single(x: np.ndarray) -> np.ndarray:
    """Half precision as single: its sums would overflow."""
    return x.astype(np.result_type(x, np.float32), copy=False)
