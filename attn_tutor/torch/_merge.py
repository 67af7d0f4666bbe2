"""Attention to some of the keys, and the theorem by which such parts become the whole."""

import torch

from attn_tutor.rules import Bias, Rule, Window
from attn_tutor.torch._arrays import shapes, upcast_half
from attn_tutor.torch._attention import added, weighted_sum
from attn_tutor.torch._engine.blocks import by_blocks
from attn_tutor.torch._engine.visibility import dense_visibility
from attn_tutor.torch._softmax import masked_softmax
from attn_tutor.torch.scoring import OTHER_WIDTHS, scaled_dot_score

__all__ = ["merge", "partial_attention"]


@shapes("(n,d),(m,d),(m,d_v)->(n,d_v),(n,1)", d=OTHER_WIDTHS)
@upcast_half
@by_blocks()
def partial_attention(
    Q: torch.Tensor,
    K: torch.Tensor,
    V: torch.Tensor,
    mask: torch.Tensor | Rule | None = None,
    *,
    causal: bool = False,
    window: int | Window | None = None,
    bias: torch.Tensor | Bias | None = None,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
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
        >>> Q, K, V = torch.tensor([[0.0]]), torch.tensor([[1.0], [2.0]]), torch.tensor([[3.0], [5.0]])
        >>> output, log_sum = partial_attention(Q, K, V)
        >>> output.tolist(), torch.exp(log_sum).tolist()
        ([[4.0]], [[2.0]])
    """
    scores = scaled_dot_score(Q, K, scale)  # (…, n, m)
    where = "partial_attention"
    visible, B = dense_visibility(where, scores, mask, causal, window, bias)
    scores = added(scores, B)
    output = weighted_sum(masked_softmax(scores, visible), V, visible)  # (…, n, d_v)
    if visible is None:
        return output, torch.logsumexp(scores, -1, keepdim=True)
    empty = ~visible.any(-1, keepdim=True)  # (…, n, 1)
    scores = torch.where(visible, scores, -torch.inf).masked_fill(empty, 0)
    log_sum = torch.logsumexp(scores, -1, keepdim=True)  # (…, n, 1)
    return output, log_sum.masked_fill(empty, -torch.inf)


@shapes("(n,d_v),(n,1),(n,d_v),(n,1)->(n,d_v),(n,1)")
def merge(
    output: torch.Tensor,
    log_sum: torch.Tensor,
    other: torch.Tensor,
    other_log_sum: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
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
        >>> zero = torch.tensor([[0.0]])
        >>> merge(torch.tensor([[2.0]]), zero, torch.tensor([[6.0]]), zero)[0].tolist()
        [[4.0]]
    """
    both = torch.logaddexp(log_sum, other_log_sum)
    safe = finite(both)
    first, second = torch.exp(log_sum - safe), torch.exp(other_log_sum - safe)
    return first * output + second * other, both


def finite(log_sum: torch.Tensor) -> torch.Tensor:
    """0 in place of −∞: what is subtracted from −∞ must be finite, lest it give NaN."""
    return torch.where(log_sum == -torch.inf, 0, log_sum)
