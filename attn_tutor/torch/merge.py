"""Attention to some of the keys, and the theorem by which such parts become the whole."""

from functools import partial
from typing import Any

import torch

from attn_tutor.geometry import Rule, Slopes, Window
from attn_tutor.torch._arrays import require_scale, shapes
from attn_tutor.torch.fast.attention import fused_attention, join, textbook
from attn_tutor.torch.scoring import OTHER_WIDTHS, default_scale
from attn_tutor.torch.visibility import Visibility, attend_by, finish, hide

__all__ = ["merge", "partial_attention"]


@shapes("(n,d),(m,d),(m,d_v)->(n,d_v),(n,1)", d=OTHER_WIDTHS)
def partial_attention(
    Q: torch.Tensor,
    K: torch.Tensor,
    V: torch.Tensor,
    mask: torch.Tensor | Rule | None = None,
    *,
    causal: bool = False,
    window: int | Window | None = None,
    bias: torch.Tensor | Slopes | None = None,
    scale: float | None = None,
    softcap: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    r"""Attention to some of the keys, and what it takes to :func:`merge` it with attention to others.

    .. math:: O = \operatorname{softmax}_{\text{mask}}(S)\, V, \qquad
        \ell_i = \log \sum_j \text{mask}_{ij} \exp S_{ij}, \qquad S = Q K^\top / \sqrt{d}

    Source: Dao et al. (2022), section 3.1, whose two numbers a query are one here, their log-sum.

    Args:
        Q: queries, (…, n, d).
        K: keys, (…, m, d).
        V: values, (…, m, d_v).
        mask: boolean, broadcasts to (…, n, m); True = may attend. Or rules, as ``documents(ids) & valid(lengths)``.
            None permits every key.
        causal: also forbid each query the keys after it, aligned lower right; see :func:`attn_tutor.torch.causal_mask`.
        window: most keys that a query sees, its own and those just before it; needs ``causal``.
            :class:`attn_tutor.torch.Window` adds sinks. None sets no limit.
        bias: added to the scores, broadcasts to (…, n, m); or ``alibi(slopes)``. None adds nothing.
        scale: factor on the dot product; None is 1/√d.
        softcap: c, with which the scores are c·tanh(scores/c) before mask and bias; None caps none.

    Returns:
        Output, (…, n, d_v), and log-sums, (…, n, 1); a query that sees none of these keys gets 0 and −∞. Both
        are single where the arguments are in half precision, so that merging rounds nothing.

    Raises:
        TypeError: an argument is not an array of this half, or the mask is not boolean.
        ValueError: the shapes do not fit.

    Example:
        >>> Q, K, V = torch.tensor([[0.0]]), torch.tensor([[1.0], [2.0]]), torch.tensor([[3.0], [5.0]])
        >>> output, log_sum = partial_attention(Q, K, V)
        >>> output.tolist(), torch.exp(log_sum).tolist()
        ([[4.0]], [[2.0]])
    """
    require_scale("partial_attention", scale)
    core = partial(fused_attention, scale=scale, softcap=softcap, log_sums=True)
    said: Any = {"mask": mask, "causal": causal, "window": window, "bias": bias}
    wide = torch.promote_types(Q.dtype, torch.float32)
    given = (X.to(wide) for X in (Q, K, V))
    return attend_by("partial_attention", core, *given, **said)


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

    Raises:
        TypeError: an argument is not an array of this half.
        ValueError: the shapes do not fit.

    Example:
        >>> zero = torch.tensor([[0.0]])
        >>> merge(torch.tensor([[2.0]]), zero, torch.tensor([[6.0]]), zero)[0].tolist()
        [[4.0]]
    """
    return join(output, log_sum, other, other_log_sum)


def part(
    Q: torch.Tensor,
    K: torch.Tensor,
    V: torch.Tensor,
    see: Visibility,
    scale: float | torch.Tensor | None,
    grown: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output and log-sums of arguments that are checked; ``grown`` is what dropout multiplies the weights by."""
    Q, K, V, spoiled = hide(see, Q, K, V)
    S = Q * (default_scale(Q.shape[-1]) if scale is None else scale) @ K.mT
    output, log_sum = textbook(S, V, see.dense(), grown)
    return finish(output, spoiled), log_sum
