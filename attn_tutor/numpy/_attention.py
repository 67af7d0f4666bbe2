"""Attention: score each key, softmax over the keys that a query may see, weighted sum of their values.

Each body below is its formula, and gives the number by itself. ``by_blocks`` calls it on blocks of queries.
"""

from collections.abc import Callable

import numpy as np

from attn_tutor._checks import require_positive, require_scale
from attn_tutor.numpy._arrays import repeat_heads, shapes, silent, upcast_half
from attn_tutor.numpy._engine.blocks import by_blocks
from attn_tutor.numpy._engine.visibility import dense_visibility
from attn_tutor.numpy._softmax import masked_softmax, normalize
from attn_tutor.numpy.kernels import gaussian_kernel
from attn_tutor.numpy.scoring import (
    OTHER_WIDTHS,
    bilinear_score,
    gaussian_score,
    scaled_dot_score,
    shifted_tanh_score,
)
from attn_tutor.rules import Bias, Rule, Window

__all__ = [
    "additive_attention",
    "attend",
    "attention",
    "attention_weights",
    "bilinear_attention",
    "gaussian_attention",
    "nadaraya_watson",
]


@shapes("(n,m),(m,d_v)->(n,d_v)")
@silent
def attend(
    scores: np.ndarray,
    V: np.ndarray,
    mask: np.ndarray | Rule | None = None,
    *,
    causal: bool = False,
    window: int | Window | None = None,
    bias: np.ndarray | Bias | None = None,
) -> np.ndarray:
    r"""The last two steps of attention: masked softmax of the scores, then the weighted sum of the values.

    .. math:: O = \operatorname{softmax}_{\text{mask}}(S + B)\, V

    Source: Vaswani et al. (2017), Eq. 1, from the scores on.

    Args:
        scores: before softmax, (…, n, m), from any scoring function.
        V: values, (…, m, d_v).
        mask: boolean, broadcasts to (…, n, m); True = may attend. Or a :class:`Rule`, a function of positions, as
            ``documents(ids) & valid(lengths)``. None permits every key.
        causal: forbid each query the keys after it. The last query is at the last key, so that with n < m the queries
            are the newest tokens ("aligned lower right", see :func:`causal_mask`).
        window: most keys that a query sees, its own and those just before it; needs ``causal``.
        bias: added to the scores, broadcasts to (…, n, m); or a :class:`Bias`, a function of positions, as
            ``alibi(slopes)``. A key with bias −∞ is hidden.

    Returns:
        Output, (…, n, d_v): each row lies in the convex hull of the permitted values, and is 0 if there are none.
        NaN or infinity reaches only queries that may see it, as NaN.

    Example:
        >>> attend(np.array([[7.0, 7.0]]), np.array([[1.0, 0.0], [0.0, 4.0]])).tolist()
        [[0.5, 2.0]]
    """
    visible, B = dense_visibility("attend", scores, mask, causal, window, bias)
    weights = masked_softmax(added(scores, B), visible)  # (…, n, m)
    return weighted_sum(weights, V, visible)  # (…, n, d_v)


@shapes("(n,d),(m,d)->(n,m)", d=OTHER_WIDTHS)
@silent
@upcast_half
def attention_weights(
    Q: np.ndarray,
    K: np.ndarray,
    mask: np.ndarray | Rule | None = None,
    *,
    causal: bool = False,
    window: int | Window | None = None,
    bias: np.ndarray | Bias | None = None,
    scale: float | None = None,
) -> np.ndarray:
    r"""The weights of scaled dot-product attention: how much of each value each query draws.

    .. math:: A = \operatorname{softmax}_{\text{mask}}\!\left(\frac{Q K^\top}{\sqrt{d}}\right)

    Source: Vaswani et al. (2017), Eq. 1, without the values.

    Args:
        Q: queries, (…, n, d).
        K: keys, (…, m, d).
        mask: boolean, broadcasts to (…, n, m); True = may attend. Or a :class:`Rule`, as ``documents(ids)``.
        causal: forbid each query the keys after it, aligned lower right.
        window: most keys that a query sees, its own and those just before it; needs ``causal``.
        bias: added to the scores, broadcasts to (…, n, m); or a :class:`Bias`, as ``alibi(slopes)``.
        scale: factor on the dot product; None is 1/√d.

    Returns:
        Weights, (…, n, m); each row sums to 1, or to 0 if nothing is permitted.

    Example:
        >>> attention_weights(np.array([[3.0, 3.0]]), np.array([[1.0, 0.0], [0.0, 1.0]])).tolist()
        [[0.5, 0.5]]
    """
    where = "attention_weights"
    require_scale(where, scale)
    scores = scaled_dot_score(Q, K, scale)  # (…, n, m)
    visible, B = dense_visibility(where, scores, mask, causal, window, bias)
    return masked_softmax(added(scores, B), visible)


@shapes("(n,d),(m,d),(m,d_v)->(n,d_v)", grouped_query=True, d=OTHER_WIDTHS)
@upcast_half
@by_blocks()
def attention(
    Q: np.ndarray,
    K: np.ndarray,
    V: np.ndarray,
    mask: np.ndarray | Rule | None = None,
    *,
    causal: bool = False,
    window: int | Window | None = None,
    bias: np.ndarray | Bias | None = None,
    scale: float | None = None,
    n_kv_heads: int | None = None,
) -> np.ndarray:
    r"""Scaled dot-product attention, without storing the weights.

    .. math:: O = \operatorname{softmax}_{\text{mask}}\!\left(\frac{Q K^\top}{\sqrt{d}}\right) V

    No (n, m) matrix is stored where the body is called on blocks of queries, each with the keys that its rule leaves.
    A mask that hides a whole sequence, often an inverted one, is found by :func:`check_mask`.
    Source: Vaswani et al. (2017), Eq. 1.

    Args:
        Q: queries, (…, n, d).
        K: keys, (…, m, d).
        V: values, (…, m, d_v).
        mask: boolean, broadcasts to (…, n, m); True = may attend. Or a :class:`Rule`, as ``documents(ids)``.
        causal: forbid each query the keys after it, aligned lower right.
        window: most keys that a query sees, its own and those just before it; needs ``causal``.
        bias: added to the scores, broadcasts to (…, n, m); or a :class:`Bias`, as ``alibi(slopes)``.
        scale: factor on the dot product; None is 1/√d.
        n_kv_heads: number of heads of keys and values, (…, n_kv_heads, m, d), each shared by h / n_kv_heads heads of Q,
            (…, h, n, d); None is one for each.

    Returns:
        Output, (…, n, d_v): each row lies in the convex hull of the permitted values, and is 0 if there are none.
        NaN or infinity reaches only queries that are permitted to see it; where something is hidden, as NaN.

    Raises:
        ValueError: the heads of Q are no multiple of those of K.

    Example:
        >>> Q, K, V = np.array([[1.0, 1.0]]), np.array([[2.0, 0.0], [0.0, 2.0]]), np.array([[4.0], [8.0]])
        >>> attention(Q, K, V).tolist()
        [[6.0]]
    """
    if n_kv_heads is not None:  # by itself; the engine has done it already
        K, V = (repeat_heads(X, Q.shape[-3] // n_kv_heads) for X in (K, V))
    scores = scaled_dot_score(Q, K, scale)  # (…, n, m)
    return attend(scores, V, mask, causal=causal, window=window, bias=bias)


@shapes("(n,q),(m,k),(m,d_v),(q,k)->(n,d_v)")
@upcast_half
@by_blocks()
def bilinear_attention(
    Q: np.ndarray,
    K: np.ndarray,
    V: np.ndarray,
    M: np.ndarray,
    mask: np.ndarray | Rule | None = None,
    *,
    causal: bool = False,
    window: int | Window | None = None,
    bias: np.ndarray | Bias | None = None,
) -> np.ndarray:
    r"""Attention with the bilinear score: a dot product in disguise.

    .. math:: O = \operatorname{softmax}_{\text{mask}}(Q M K^\top)\, V

    QM lies in the space of the keys: a dot product with learnt queries, and scale 1.
    Source: Luong et al. (2015), "general" in section 3.1.

    Args:
        Q: queries, (…, n, q).
        K: keys, (…, m, k).
        V: values, (…, m, d_v).
        M: learnt matrix, (q, k).
        mask: boolean, broadcasts to (…, n, m); True = may attend. Or a :class:`Rule`, as ``documents(ids)``.
        causal: forbid each query the keys after it, aligned lower right.
        window: most keys that a query sees, its own and those just before it; needs ``causal``.
        bias: added to the scores, broadcasts to (…, n, m); or a :class:`Bias`, as ``alibi(slopes)``.

    Returns:
        Output, (…, n, d_v): each row lies in the convex hull of the permitted values, and is 0 if there are none.

    Example:
        >>> Q, K, M = np.array([[1.0]]), np.array([[2.0, 0.0], [0.0, 2.0]]), np.array([[3.0, 3.0]])
        >>> bilinear_attention(Q, K, np.array([[4.0], [8.0]]), M).tolist()
        [[6.0]]
    """
    scores = bilinear_score(Q, K, M)  # (…, n, m)
    return attend(scores, V, mask, causal=causal, window=window, bias=bias)


@shapes("(n,d),(m,d),(m,d_v)->(n,d_v)", d=OTHER_WIDTHS)
@upcast_half
@by_blocks("d")
def gaussian_attention(
    Q: np.ndarray,
    K: np.ndarray,
    V: np.ndarray,
    mask: np.ndarray | Rule | None = None,
    *,
    causal: bool = False,
    window: int | Window | None = None,
    bias: np.ndarray | Bias | None = None,
    bandwidth: float = 1.0,
) -> np.ndarray:
    r"""Attention with the Gaussian score: the nearer a key, the more it counts.

    .. math:: O = \operatorname{softmax}_{\text{mask}}(S)\, V, \qquad
        S_{ij} = -\frac{\lVert q_i - k_j \rVert^2}{2 \sigma^2}

    Scores are taken from differences, so that nothing cancels far from the origin.
    Source: Nadaraya (1964) and Watson (1964) with a Gaussian kernel.

    Args:
        Q: queries, (…, n, d).
        K: keys, (…, m, d).
        V: values, (…, m, d_v).
        mask: boolean, broadcasts to (…, n, m); True = may attend. Or a :class:`Rule`, as ``documents(ids)``.
        causal: forbid each query the keys after it, aligned lower right.
        window: most keys that a query sees, its own and those just before it; needs ``causal``.
        bias: added to the scores, broadcasts to (…, n, m); or a :class:`Bias`, as ``alibi(slopes)``.
        bandwidth: σ, in the units of Q and K; above 0.

    Returns:
        Output, (…, n, d_v): each row lies in the convex hull of the permitted values, and is 0 if there are none.

    Raises:
        ValueError: the bandwidth is not above 0.

    Example:
        >>> Q, K, V = np.array([[1.0]]), np.array([[0.0], [2.0]]), np.array([[4.0], [8.0]])
        >>> gaussian_attention(Q, K, V).tolist()
        [[6.0]]
    """
    scores = gaussian_score(Q, K, bandwidth)  # (…, n, m)
    return attend(scores, V, mask, causal=causal, window=window, bias=bias)


@shapes("(n,q),(m,k),(m,d_v),(q,h),(k,h),(h)->(n,d_v)")
@silent
@upcast_half
def additive_attention(
    Q: np.ndarray,
    K: np.ndarray,
    V: np.ndarray,
    W_q: np.ndarray,
    W_k: np.ndarray,
    w_v: np.ndarray,
    mask: np.ndarray | Rule | None = None,
    *,
    causal: bool = False,
    window: int | Window | None = None,
    bias: np.ndarray | Bias | None = None,
) -> np.ndarray:
    r"""Attention with the additive score, for queries and keys of any two widths.

    .. math:: O = \operatorname{softmax}_{\text{mask}}(S)\, V, \qquad S_{ij} = w_v \cdot \tanh(q_i W_q + k_j W_k)

    No (n, m, h) tensor is stored where blocks of queries are computed one after the other.
    Source: Bahdanau et al. (2015), section 3.1 and appendix A.1.2, where our :math:`W_q, W_k, w_v` are
    :math:`W_a, U_a, v_a`.

    Args:
        Q: queries, (…, n, q).
        K: keys, (…, m, k).
        V: values, (…, m, d_v).
        W_q: learnt projection of queries, (q, h).
        W_k: learnt projection of keys, (k, h).
        w_v: learnt output weights, (h,).
        mask: boolean, broadcasts to (…, n, m); True = may attend. Or a :class:`Rule`, as ``documents(ids)``.
        causal: forbid each query the keys after it, aligned lower right.
        window: most keys that a query sees, its own and those just before it; needs ``causal``.
        bias: added to the scores, broadcasts to (…, n, m); or a :class:`Bias`, as ``alibi(slopes)``.

    Returns:
        Output, (…, n, d_v): each row lies in the convex hull of the permitted values, and is 0 if there are none.

    Example:
        >>> Q, K, V = np.array([[1.0]]), np.array([[2.0], [2.0]]), np.array([[4.0], [8.0]])
        >>> W, w_v = np.array([[1.0]]), np.array([3.0])
        >>> additive_attention(Q, K, V, W, W, w_v).tolist()
        [[6.0]]
    """
    a, b = Q @ W_q, K @ W_k  # (…, n, h), (…, m, h)
    return tanh_attention(a, b, V, w_v, mask, causal=causal, window=window, bias=bias)


@shapes("(n,h),(m,h),(m,d_v),(h)->(n,d_v)")
@by_blocks("h", name="additive_attention")
def tanh_attention(
    a: np.ndarray,
    b: np.ndarray,
    V: np.ndarray,
    w_v: np.ndarray,
    mask: np.ndarray | Rule | None = None,
    *,
    causal: bool = False,
    window: int | Window | None = None,
    bias: np.ndarray | Bias | None = None,
) -> np.ndarray:
    """Additive attention of projected queries, (…, n, h), to projected keys, (…, m, h)."""
    scores = shifted_tanh_score(a, b, w_v)  # (…, n, m)
    return attend(scores, V, mask, causal=causal, window=window, bias=bias)


@shapes("(n,d),(m,d),(m,d_v)->(n,d_v)", d=OTHER_WIDTHS)
def nadaraya_watson(
    Q: np.ndarray,
    K: np.ndarray,
    V: np.ndarray,
    kernel: Callable[..., np.ndarray] = gaussian_kernel,
    bandwidth: float = 1.0,
) -> np.ndarray:
    r"""Kernel regression: the average of the values, weighted by a kernel of the distance.

    .. math:: O_i = \frac{\sum_j w(q_i, k_j)\, v_j}{\sum_j w(q_i, k_j)}, \qquad \tfrac{0}{0} = 0

    With the Gaussian kernel this is :func:`gaussian_attention`, up to queries so far out that every weight rounds to 0:
    their window is empty here. Source: Nadaraya (1964) and Watson (1964).

    Args:
        Q: queries, (…, n, d): where to predict.
        K: keys, (…, m, d): where values are known.
        V: values, (…, m, d_v).
        kernel: ``kernel(Q, K, bandwidth)`` gives non-negative weights, (…, n, m).
        bandwidth: σ, in the units of Q and K; above 0.

    Returns:
        Output, (…, n, d_v): each row lies in the convex hull of the values, and is 0 if its window is empty.

    Raises:
        ValueError: the bandwidth is not above 0.

    Example:
        >>> Q, K, V = np.array([[1.0]]), np.array([[0.0], [2.0]]), np.array([[4.0], [8.0]])
        >>> nadaraya_watson(Q, K, V).tolist()
        [[6.0]]
    """
    require_positive("nadaraya_watson", "bandwidth", bandwidth)
    return normalize(kernel(Q, K, bandwidth)) @ V


def added(scores: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    """Scores plus a bias, in the dtype of the scores."""
    return scores if bias is None else scores + bias.astype(scores.dtype, copy=False)


def weighted_sum(
    weights: np.ndarray, V: np.ndarray, visible: np.ndarray | None
) -> np.ndarray:
    """Weights times values; what is not finite makes NaN for queries that may see it, though 0 · NaN is NaN for all."""
    # One sum is quicker to look at than every number, and not finite where one of them is not.
    if visible is None or np.isfinite(V.sum()):
        return weights @ V
    bad_rows = ~np.isfinite(V).all(-1)  # (…, m)
    output = weights @ np.where(bad_rows[..., None], 0, V)
    nan_queries = (visible & bad_rows[..., None, :]).any(-1, keepdims=True)  # (…, n, 1)
    return np.where(nan_queries, np.nan, output)
