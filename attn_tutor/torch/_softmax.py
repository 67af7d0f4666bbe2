"""From scores to weights: softmax, masked softmax, and plain normalisation."""

import torch

from attn_tutor.torch._arrays import require_boolean, require_fit, shapes

__all__ = ["masked_softmax", "normalize", "softmax"]


@shapes("(m)->(m)")
def softmax(x: torch.Tensor, axis: int = -1) -> torch.Tensor:
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
        >>> softmax(torch.tensor([1000.0, 1000.0])).tolist()
        [0.5, 0.5]
    """
    return torch.softmax(x, axis)  # subtracts the maximum itself


@shapes("(m)->(m)")
def masked_softmax(
    scores: torch.Tensor, mask: torch.Tensor | None = None
) -> torch.Tensor:
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
        >>> masked_softmax(torch.tensor([[2.0, 2.0, 9.0]]), torch.tensor([[True, True, False]])).tolist()
        [[0.5, 0.5, 0.0]]
    """
    if mask is None:
        return softmax(scores)
    require_boolean("masked_softmax", mask, scores.device)
    require_fit("masked_softmax", "mask", mask.shape, scores.shape)
    scores = torch.where(mask, scores, -torch.inf)  # a forbidden key scores −∞ …
    empty = (scores == -torch.inf).all(-1, keepdim=True)
    weights = softmax(scores.masked_fill(empty, 0))  # of −∞ alone it would be NaN
    return torch.where(mask & ~empty, weights, 0)  # … and exp(−∞) = 0


@shapes("(m)->(m)")
def normalize(weights: torch.Tensor) -> torch.Tensor:
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
        >>> normalize(torch.tensor([[3.0, 1.0], [0.0, 0.0]])).tolist()
        [[0.75, 0.25], [0.0, 0.0]]
    """
    # A sum of many keys would overflow in half precision.
    wide = torch.promote_types(weights.dtype, torch.float32)
    total = weights.sum(-1, keepdim=True, dtype=wide)
    shares = (weights / torch.where(total == 0, 1, total)).to(weights.dtype)
    return torch.where(total == 0, 0, shares)
