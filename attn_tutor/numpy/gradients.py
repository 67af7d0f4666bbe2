"""Gradients of attention, derived by hand: vector-Jacobian products (torch has autograd for this).

Each takes g, the gradient of some loss with respect to an output, and returns the gradients with respect to the
inputs, each in the shape of its input.
"""

import numpy as np

from attn_tutor._checks import Shape
from attn_tutor.numpy._arrays import shapes, silent
from attn_tutor.numpy._attention import attention_weights
from attn_tutor.numpy.scoring import OTHER_WIDTHS, resolved_scale
from attn_tutor.rules import Bias, Rule, Window

__all__ = ["additive_score_vjp", "attention_vjp", "softmax_vjp"]


@shapes("(m),(m)->(m)")
def softmax_vjp(weights: np.ndarray, g: np.ndarray) -> np.ndarray:
    r"""Gradient through softmax, or masked softmax, over the last axis.

    .. math:: g^\top (\operatorname{diag}(p) - p p^\top) = p \odot (g - g \cdot p)

    Where a weight is 0, so is the gradient: a masked score gets none, and a row with nothing to attend to gets none
    at all.

    Args:
        weights: p, the output of the softmax, (…, m).
        g: gradient with respect to the weights, (…, m).

    Returns:
        Gradient with respect to the scores, (…, m); each row sums to 0, as softmax does not see a shift.

    Example:
        >>> softmax_vjp(np.array([0.5, 0.5]), np.array([4.0, 0.0])).tolist()
        [1.0, -1.0]
    """
    return weights * (g - (g * weights).sum(-1, keepdims=True))


@shapes("(n,d),(m,d),(m,d_v),(n,d_v)->(n,d),(m,d),(m,d_v)", d=OTHER_WIDTHS)
@silent
def attention_vjp(
    Q: np.ndarray,
    K: np.ndarray,
    V: np.ndarray,
    g: np.ndarray,
    mask: np.ndarray | Rule | None = None,
    *,
    causal: bool = False,
    window: int | Window | None = None,
    bias: np.ndarray | Bias | None = None,
    scale: float | None = None,
) -> tuple[np.ndarray, ...]:
    r"""Gradient through scaled dot-product attention.

    .. math::
        \mathrm dV = A^\top g, \qquad \mathrm dS = A \odot (g V^\top - \operatorname{rowsum}(A \odot g V^\top)),
        \qquad \mathrm dQ = s\, \mathrm dS\, K, \qquad \mathrm dK = s\, \mathrm dS^\top Q

    with weights A, scores S and scale s. What a mask hides gets gradient 0, and so does a query with nothing to
    attend to. Source: Dao et al. (2022), appendix B.2.

    Args:
        Q: queries, (…, n, d).
        K: keys, (…, m, d).
        V: values, (…, m, d_v).
        g: gradient with respect to the output of :func:`attention`, (…, n, d_v).
        mask: boolean, broadcasts to (…, n, m); True = may attend. Or a :class:`Rule`, as ``documents(ids)``.
        causal: forbid each query the keys after it, aligned lower right.
        window: most keys that a query sees, its own and those just before it; needs ``causal``.
        bias: added to the scores, broadcasts to (…, n, m); or a :class:`Bias`, as ``alibi(slopes)``.
        scale: factor on the dot product; None is 1/√d.

    Returns:
        dQ, dK, dV in the shapes of Q, K, V, summed over batch axes that were broadcast.

    Example:
        >>> Q, K, V, g = np.array([[0.0]]), np.array([[1.0], [-1.0]]), np.array([[4.0], [8.0]]), np.array([[1.0]])
        >>> dQ, dK, dV = attention_vjp(Q, K, V, g)
        >>> dQ.tolist(), dK.tolist(), dV.tolist()
        ([[-2.0]], [[0.0], [0.0]], [[0.5], [0.5]])
    """
    scale = resolved_scale("attention_vjp", scale, Q.shape[-1])
    weights = attention_weights(
        Q, K, mask, causal=causal, window=window, bias=bias, scale=scale
    )  # (…, n, m)
    # A NaN passes nothing on, neither hidden nor seen: 0 · NaN would be NaN.
    weights, q, k, v = map(_finite_rows, (weights, Q, K, V))
    g = np.where(weights.any(-1, keepdims=True), g, 0)
    d_scores = softmax_vjp(weights, g @ v.mT)  # (…, n, m)
    dQ, dK, dV = scale * d_scores @ k, scale * d_scores.mT @ q, weights.mT @ g
    return _sum_to(dQ, Q.shape), _sum_to(dK, K.shape), _sum_to(dV, V.shape)


@shapes("(n,q),(m,k),(q,h),(k,h),(h),(n,m)->(n,q),(m,k),(q,h),(k,h),(h)")
def additive_score_vjp(
    Q: np.ndarray,
    K: np.ndarray,
    W_q: np.ndarray,
    W_k: np.ndarray,
    w_v: np.ndarray,
    g: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    r"""Gradient through the additive score.

    .. math::
        T_{ij} = \tanh(q_i W_q + k_j W_k), \qquad D_{ij} = g_{ij}\, w_v \odot (1 - T_{ij}^2), \qquad
        \mathrm dw_v = \sum_{ij} g_{ij} T_{ij},

    .. math::
        \mathrm dQ = \Bigl(\sum_j D_{ij}\Bigr) W_q^\top, \quad \mathrm dK = \Bigl(\sum_i D_{ij}\Bigr) W_k^\top, \quad
        \mathrm dW_q = Q^\top \sum_j D_{ij}, \quad \mathrm dW_k = K^\top \sum_i D_{ij}

    Args:
        Q: queries, (…, n, q).
        K: keys, (…, m, k).
        W_q: learnt projection of queries, (q, h).
        W_k: learnt projection of keys, (k, h).
        w_v: learnt output weights, (h,).
        g: gradient with respect to the scores, (…, n, m).

    Returns:
        dQ, dK, dW_q, dW_k, dw_v in the shapes of their inputs, summed over batch axes that were broadcast.

    Example:
        >>> one, zero = np.array([[1.0]]), np.array([[0.0]])
        >>> dQ, dK, dW_q, dW_k, dw_v = additive_score_vjp(zero, zero, one, one, np.array([2.0]), one)
        >>> dQ.tolist(), dK.tolist(), dW_q.tolist(), dW_k.tolist(), dw_v.tolist()
        ([[2.0]], [[2.0]], [[0.0]], [[0.0]], [0.0])
    """
    T = np.tanh((Q @ W_q)[..., :, None, :] + (K @ W_k)[..., None, :, :])  # (…, n, m, h)
    D = g[..., None] * w_v[..., None, None, :] * (1 - T**2)  # (…, n, m, h)
    d_query, d_key = D.sum(-2), D.sum(-3)  # (…, n, h), (…, m, h)
    return (
        _sum_to(d_query @ W_q.mT, Q.shape),
        _sum_to(d_key @ W_k.mT, K.shape),
        _sum_to(Q.mT @ d_query, W_q.shape),
        _sum_to(K.mT @ d_key, W_k.shape),
        _sum_to((g[..., None] * T).sum((-3, -2)), w_v.shape),
    )


def _finite_rows(X: np.ndarray) -> np.ndarray:
    """Rows that are not finite become 0."""
    return np.where(np.isfinite(X).all(-1, keepdims=True), X, 0)


def _sum_to(gradient: np.ndarray, shape: Shape) -> np.ndarray:
    """Sum over the batch axes along which an input of this shape was repeated; repeat along those it alone has."""
    gradient = np.broadcast_to(gradient, np.broadcast_shapes(gradient.shape, shape))
    gradient = gradient.sum(tuple(range(gradient.ndim - len(shape))))
    repeated = tuple(
        axis for axis, size in enumerate(shape) if size == 1 != gradient.shape[axis]
    )
    return gradient.sum(repeated, keepdims=True)
