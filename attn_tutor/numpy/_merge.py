"""Attention to some of the keys, and the theorem by which such parts become the whole."""

import numpy as np

from attn_tutor.numpy._arrays import shapes, upcast_half
from attn_tutor.numpy._attention import added, weighted_sum
from attn_tutor.numpy._engine.blocks import by_blocks
from attn_tutor.numpy._engine.visibility import dense_visibility
from attn_tutor.numpy._softmax import ratio
from attn_tutor.numpy.scoring import OTHER_WIDTHS, scaled_dot_score
from attn_tutor.rules import Bias, Rule, Window

__all__ = ["merge", "partial_attention"]


@shapes("(n,d),(m,d),(m,d_v)->(n,d_v),(n,1)", d=OTHER_WIDTHS)
@upcast_half
@by_blocks()
def partial_attention(
    Q: np.ndarray,
    K: np.ndarray,
    V: np.ndarray,
    mask: np.ndarray | Rule | None = None,
    *,
    causal: bool = False,
    window: int | Window | None = None,
    bias: np.ndarray | Bias | None = None,
    scale: float | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    r"""Attention to some of the keys, and what it takes to :func:`merge` it with attention to others.

    .. math:: O = \operatorname{softmax}_{\text{mask}}(S)\, V, \qquad
        \ell_i = \log \sum_j \text{mask}_{ij} \exp S_{ij}, \qquad S = Q K^\top / \sqrt{d}

    Source: Dao et al. (2022), section 3.1, whose two numbers a query are one here, their log-sum.

    Args:
        Q: queries, (…, n, d).
        K: keys, (…, m, d).
        V: values, (…, m, d_v).
        mask: boolean, broadcasts to (…, n, m); True = may attend. Or a :class:`Rule`, as ``documents(ids)``.
        causal: forbid each query the keys after it, aligned lower right.
        window: most keys that a query sees, its own and those just before it; needs ``causal``.
        bias: added to the scores, broadcasts to (…, n, m); or a :class:`Bias`, as ``alibi(slopes)``.
        scale: factor on the dot product; None is 1/√d.

    Returns:
        Output, (…, n, d_v), and log-sums, (…, n, 1); a query that sees none of these keys gets 0 and −∞. Both
        are single where the arguments are in half precision, so that merging rounds nothing.

    Example:
        >>> Q, K, V = np.array([[0.0]]), np.array([[1.0], [2.0]]), np.array([[3.0], [5.0]])
        >>> output, log_sum = partial_attention(Q, K, V)
        >>> output.tolist(), np.exp(log_sum).tolist()
        ([[4.0]], [[2.0]])
    """
    scores = scaled_dot_score(Q, K, scale)  # (…, n, m)
    where = "partial_attention"
    visible, B = dense_visibility(where, scores, mask, causal, window, bias)
    scores = added(scores, B)
    if visible is not None:
        scores = np.where(visible, scores, -np.inf)
    top = scores.max(-1, keepdims=True, initial=-np.inf)  # (…, n, 1)
    weights = np.exp(scores - finite(top))  # (…, n, m)
    total = weights.sum(-1, keepdims=True)  # (…, n, 1)
    with np.errstate(divide="ignore"):  # log 0 is −∞: no key
        return weighted_sum(ratio(weights, total), V, visible), top + np.log(total)


@shapes("(n,d_v),(n,1),(n,d_v),(n,1)->(n,d_v),(n,1)")
def merge(
    output: np.ndarray,
    log_sum: np.ndarray,
    other: np.ndarray,
    other_log_sum: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    r"""Attention to two sets of keys with none in common, from attention to each.

    .. math:: \ell = \log(e^{\ell_1} + e^{\ell_2}), \qquad O = e^{\ell_1 - \ell}\, O_1 + e^{\ell_2 - \ell}\, O_2

    Order and grouping do not matter, and a set without keys, (0, −∞), changes nothing: parts may arrive as they like.
    Source: Milakov & Gimelshein (2018), Eq. 4, in logarithms.

    Args:
        output: attention to one set, (…, n, d_v).
        log_sum: its log-sums, (…, n, 1).
        other: attention to the other set, (…, n, d_v).
        other_log_sum: its log-sums, (…, n, 1).

    Returns:
        Output, (…, n, d_v), and log-sums, (…, n, 1), of both sets together.

    Example:
        >>> zero = np.array([[0.0]])
        >>> merge(np.array([[2.0]]), zero, np.array([[6.0]]), zero)[0].tolist()
        [[4.0]]
    """
    with np.errstate(invalid="ignore"):  # as a NaN may be, that a query has seen
        both = np.logaddexp(log_sum, other_log_sum)
    safe = finite(both)
    first, second = np.exp(log_sum - safe), np.exp(other_log_sum - safe)
    return first * output + second * other, both


def finite(log_sum: np.ndarray) -> np.ndarray:
    """0 in place of −∞: what is subtracted from −∞ must be finite, lest it give NaN."""
    return np.where(log_sum == -np.inf, 0, log_sum)
