"""Where queries, keys and values come from: learnt projections of one sequence, or of two."""

import numpy as np

from attn_tutor.numpy._arrays import shapes, silent
from attn_tutor.numpy._attention import attention
from attn_tutor.rules import Bias, Rule, Window

__all__ = ["cross_attention", "self_attention"]


@shapes("(n,d_in),(d_in,d_k),(d_in,d_k),(d_in,d_v)->(n,d_v)")
@silent
def self_attention(
    X: np.ndarray,
    W_q: np.ndarray,
    W_k: np.ndarray,
    W_v: np.ndarray,
    mask: np.ndarray | Rule | None = None,
    *,
    causal: bool = False,
    window: int | Window | None = None,
    bias: np.ndarray | Bias | None = None,
) -> np.ndarray:
    r"""Each token attends to all tokens of its own sequence.

    .. math:: O = \operatorname{softmax}_{\text{mask}}\!\left(\frac{Q K^\top}{\sqrt{d_k}}\right) V,
        \qquad Q = X W_q,\quad K = X W_k,\quad V = X W_v

    "Self" means one source, not one matrix: the three projections differ. Source: Vaswani et al. (2017),
    section 3.2.3 with Eq. 1; tokens are rows.

    Args:
        X: tokens, (…, n, d_in).
        W_q: learnt projection to queries, (d_in, d_k).
        W_k: learnt projection to keys, (d_in, d_k).
        W_v: learnt projection to values, (d_in, d_v).
        mask: boolean, broadcasts to (…, n, n); True = may attend. Or a :class:`Rule`, as ``documents(ids)``.
        causal: forbid each token the tokens after it.
        window: most keys that a query sees, its own and those just before it; needs ``causal``.
        bias: added to the scores, broadcasts to (…, n, n); or a :class:`Bias`, as ``alibi(slopes)``.

    Returns:
        Output, (…, n, d_v): a new vector for each token, 0 where nothing is permitted.

    Example:
        >>> X, zero, W_v = np.array([[1.0], [3.0]]), np.array([[0.0]]), np.array([[10.0]])
        >>> self_attention(X, zero, zero, W_v).tolist()
        [[20.0], [20.0]]
        >>> self_attention(X, zero, zero, W_v, causal=True).tolist()
        [[10.0], [20.0]]
    """
    Q, K, V = X @ W_q, X @ W_k, X @ W_v  # (…, n, d_k) twice, (…, n, d_v)
    return attention(Q, K, V, mask, causal=causal, window=window, bias=bias)


@shapes("(n,d_x),(m,d_y),(d_x,d_k),(d_y,d_k),(d_y,d_v)->(n,d_v)")
@silent
def cross_attention(
    X: np.ndarray,
    Y: np.ndarray,
    W_q: np.ndarray,
    W_k: np.ndarray,
    W_v: np.ndarray,
    mask: np.ndarray | Rule | None = None,
    *,
    bias: np.ndarray | Bias | None = None,
) -> np.ndarray:
    r"""Each token of one sequence attends to the tokens of another.

    .. math:: O = \operatorname{softmax}_{\text{mask}}\!\left(\frac{Q K^\top}{\sqrt{d_k}}\right) V,
        \qquad Q = X W_q,\quad K = Y W_k,\quad V = Y W_v

    Source: Vaswani et al. (2017), section 3.2.3, "encoder-decoder attention"; tokens are rows.

    Args:
        X: the tokens that ask, (…, n, d_x).
        Y: the tokens that answer, (…, m, d_y).
        W_q: learnt projection to queries, (d_x, d_k).
        W_k: learnt projection to keys, (d_y, d_k).
        W_v: learnt projection to values, (d_y, d_v).
        mask: boolean, broadcasts to (…, n, m); True = may attend. Or a :class:`Rule`, as ``documents(ids)``.
        bias: added to the scores, broadcasts to (…, n, m); or a :class:`Bias`, as ``alibi(slopes)``.

    Returns:
        Output, (…, n, d_v): a vector for each token of X, 0 where nothing is permitted.

    Example:
        >>> X, Y = np.array([[5.0]]), np.array([[1.0], [3.0]])
        >>> zero, W_v = np.array([[0.0]]), np.array([[10.0]])
        >>> cross_attention(X, Y, zero, zero, W_v).tolist()
        [[20.0]]
    """
    Q, K, V = X @ W_q, Y @ W_k, Y @ W_v  # (…, n, d_k), (…, m, d_k), (…, m, d_v)
    return attention(Q, K, V, mask, bias=bias)
