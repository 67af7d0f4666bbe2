"""A sink that is a learnt score: a query may leave a part of its weight with no key."""

from typing import Any

import numpy as np

from attn_tutor._checks import require_batch
from attn_tutor.numpy._arrays import (
    repeat_heads,
    require_array,
    shapes,
    silent,
    upcast_half,
)
from attn_tutor.numpy._merge import finite, partial_attention
from attn_tutor.numpy.scoring import OTHER_WIDTHS
from attn_tutor.rules import Bias, Rule, Window

__all__ = ["sink_attention"]


@shapes("(n,d),(m,d),(m,d_v)->(n,d_v)", grouped_query=True, d=OTHER_WIDTHS)
@silent
@upcast_half
def sink_attention(
    Q: np.ndarray,
    K: np.ndarray,
    V: np.ndarray,
    mask: np.ndarray | Rule | None = None,
    *,
    sink_logits: np.ndarray | float = 0.0,
    causal: bool = False,
    window: int | Window | None = None,
    bias: np.ndarray | Bias | None = None,
    scale: float | None = None,
    n_kv_heads: int | None = None,
) -> np.ndarray:
    r"""Attention in which each head has one more score, the sink's, whose value is 0: so a query may decline.

    .. math:: O_i = \frac{\sum_j \text{mask}_{ij} \exp(S_{ij})\, v_j}{\exp s + \sum_j \text{mask}_{ij} \exp S_{ij}}
        = \sigma(\ell_i - s)\, \operatorname{attention}(Q, K, V)_i, \qquad
        \ell_i = \log \sum_j \text{mask}_{ij} \exp S_{ij}

    It is :func:`merge` with attention to a key of score s and value 0. With s = 0 it is softmax-plus-one, with −∞
    plain attention. This sink is a number and no token, unlike the first tokens that ``Window(width, sinks=4)`` keeps.
    Source: OpenAI (2025), gpt-oss model card, section 2.2; with s = 0 Miller (2023); after Xiao et al. (2024).

    Args:
        Q: queries, (…, n, d).
        K: keys, (…, m, d).
        V: values, (…, m, d_v).
        mask: boolean, broadcasts to (…, n, m); True = may attend. Or a :class:`Rule`, as ``documents(ids)``.
        sink_logits: s, one for each head, (h,) or (…, h); or one number for all.
        causal: forbid each query the keys after it, aligned lower right.
        window: most keys that a query sees, its own and those just before it; needs ``causal``.
        bias: added to the scores, broadcasts to (…, n, m); or a :class:`Bias`, as ``alibi(slopes)``.
        scale: factor on the dot product; None is 1/√d.
        n_kv_heads: number of heads of keys and values, (…, n_kv_heads, m, d), each shared by h / n_kv_heads heads of Q,
            (…, h, n, d); None is one for each.

    Returns:
        Output, (…, n, d_v): each row lies in the convex hull of the permitted values and 0.

    Raises:
        ValueError: the heads of Q are no multiple of those of K.

    Example:
        >>> Q, K, V = np.array([[0.0]]), np.array([[1.0], [2.0]]), np.array([[3.0], [5.0]])
        >>> sink_attention(Q, K, V, sink_logits=np.log(np.array(2.0))).tolist()
        [[2.0]]
    """
    if n_kv_heads is not None:
        K, V = (repeat_heads(X, Q.shape[-3] // n_kv_heads) for X in (K, V))
    output, log_sum = partial_attention(
        Q, K, V, mask, causal=causal, window=window, bias=bias, scale=scale
    )
    s = for_each_head(sink_logits, log_sum)  # (…, h, 1, 1)
    return output * sigmoid(finite(log_sum) - s)


def for_each_head(s: Any, log_sum: np.ndarray) -> Any:
    """The sink's scores beside the log-sums, (…, h, n, 1), of the keys."""
    if isinstance(s, float | int | np.number):
        return s
    require_array("sink_attention", "sink_logits", s)
    require_batch("sink_attention", "sink_logits", s.shape, log_sum.shape[:-2])
    return s.astype(log_sum.dtype, copy=False)[..., None, None]


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(−x)), where nothing overflows."""
    return np.asarray(np.exp(-np.logaddexp(0, -x)))
