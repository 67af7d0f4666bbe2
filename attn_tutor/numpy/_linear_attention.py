"""Attention without softmax: what all keys hold is summed up once, in a state of fixed size."""

from collections.abc import Callable

import numpy as np

from attn_tutor._checks import broadcast
from attn_tutor.numpy._arrays import require_array, shapes
from attn_tutor.numpy._softmax import ratio

__all__ = ["delta_rule", "elu_features", "linear_attention"]

CHUNK = 64  # queries whose scores are formed at once, as many as a head is wide


@shapes("(n,d)->(n,d)")
def elu_features(X: np.ndarray) -> np.ndarray:
    r"""Positive features of queries and keys for :func:`linear_attention`.

    .. math:: \phi(x) = \operatorname{elu}(x) + 1 = \begin{cases} x + 1 & x > 0 \\ \exp x & x \le 0 \end{cases}

    Source: Katharopoulos et al. (2020), Eq. 7.

    Args:
        X: queries or keys, (…, n, d).

    Returns:
        Features, (…, n, d), none negative.

    Example:
        >>> elu_features(np.array([[0.0, 2.0]])).tolist()
        [[1.0, 3.0]]
    """
    return np.where(X > 0, X + 1, np.exp(np.minimum(X, 0)))


@shapes("(n,d),(m,d),(m,d_v)->(n,d_v)")
def linear_attention(
    Q: np.ndarray,
    K: np.ndarray,
    V: np.ndarray,
    *,
    causal: bool = False,
    feature_map: Callable[[np.ndarray], np.ndarray] = elu_features,
) -> np.ndarray:
    r"""Attention whose weights are products of features, so that time and memory grow linearly with the length.

    .. math:: O_i = \frac{\phi(Q_i)^\top \sum_j \phi(K_j) V_j^\top}{\phi(Q_i)^\top \sum_j \phi(K_j)}

    The sums do not depend on the query. Causally they run over j ≤ i + m − n: chunk by chunk, a state holds what
    all earlier chunks add. Source: Katharopoulos et al. (2020), Eq. 5 and 9; in chunks: Hua et al. (2022).

    Args:
        Q: queries, (…, n, d).
        K: keys, (…, m, d).
        V: values, (…, m, d_v).
        causal: forbid each query the keys after it, aligned lower right.
        feature_map: takes queries or keys, (…, n, d), to features, (…, n, f), none negative.

    Returns:
        Output, (…, n, d_v): each row lies in the convex hull of the values seen, and is 0 if there are none.

    Example:
        >>> Q, K, V = np.array([[0.0]]), np.array([[0.0], [2.0]]), np.array([[4.0], [8.0]])
        >>> linear_attention(Q, K, V).tolist()
        [[7.0]]
    """
    dtype = np.result_type(V, np.float32)  # sums of half precision would overflow
    q, k = (_features(feature_map, X).astype(dtype) for X in (Q, K))
    ones = np.ones((*V.shape[:-1], 1), dtype)
    V1 = np.concatenate([V, ones], -1)  # the last column sums the weights
    pooled = _of_the_past(q, k, V1) if causal else q @ (k.mT @ V1)
    return ratio(pooled[..., :-1], pooled[..., -1:]).astype(V.dtype, copy=False)


def _of_the_past(q: np.ndarray, k: np.ndarray, V: np.ndarray) -> np.ndarray:
    """Each query's sum over the keys up to its own, the last query at the last key."""
    before = max(0, k.shape[-2] - q.shape[-2])  # keys that every query sees
    blind = max(0, q.shape[-2] - k.shape[-2])  # queries that see none
    state = k[..., :before, :].mT @ V[..., :before, :]  # (…, f, d_v + 1)
    pooled = [np.nan_to_num(q[..., :blind, :]) @ (0 * state)]
    q, k, V = q[..., blind:, :], k[..., before:, :], V[..., before:, :]
    for i in range(0, q.shape[-2], CHUNK):
        q_c, k_c, V_c = (X[..., i : i + CHUNK, :] for X in (q, k, V))
        lost = ~np.isfinite(V_c)  # seen from its own query on; and 0 · NaN is NaN
        part = np.tril(q_c @ k_c.mT) @ np.where(lost, 0, V_c) + q_c @ state
        pooled.append(np.where(np.logical_or.accumulate(lost, -2), np.nan, part))
        state = state + k_c.mT @ np.where(lost, np.nan, V_c)
    return np.concatenate(pooled, -2)


@shapes("(n,d),(n,d),(n,d_v),(n)->(n,d_v)")
def delta_rule(
    Q: np.ndarray, K: np.ndarray, V: np.ndarray, beta: np.ndarray
) -> np.ndarray:
    r"""Linear attention that corrects what its state holds under a key, where plain sums only add.

    .. math:: S_t = S_{t-1} + \beta_t\, \bar k_t (v_t - S_{t-1}^\top \bar k_t)^\top, \qquad o_t = S_t^\top q_t,
        \qquad \bar k = k / \lVert k \rVert

    With β = 1 the state answers the key just written with its value exactly; with β = 0 it stays as it is.
    Source: Schlag et al. (2021), section 4.2; keys of length 1 as in Yang et al. (2024).

    Args:
        Q: queries, (…, n, d).
        K: keys, (…, n, d); only their direction matters.
        V: values, (…, n, d_v).
        beta: how much of the old answer to replace at each token, usually between 0 and 1, (…, n).

    Returns:
        Output, (…, n, d_v); row t depends on the tokens up to t.

    Example:
        >>> K, V = np.array([[2.0], [3.0]]), np.array([[4.0], [8.0]])
        >>> delta_rule(np.array([[1.0], [1.0]]), K, V, np.array([1.0, 1.0])).tolist()
        [[4.0], [8.0]]
    """
    dtype = np.result_type(V, np.float32)
    length = np.linalg.norm(K.astype(dtype), axis=-1, keepdims=True)
    K = ratio(K.astype(dtype), length)
    batch = broadcast(*(X.shape[:-2] for X in (Q, K, V)), beta.shape[:-1]) or ()
    state = np.zeros((*batch, K.shape[-1], V.shape[-1]), dtype)
    out = np.empty((*batch, *V.shape[-2:]), V.dtype)
    for t in range(V.shape[-2]):
        q, k, v = (X[..., t : t + 1, :] for X in (Q, K, V))  # (…, 1, d or d_v)
        error = v - k @ state
        state += beta[..., t, None, None] * (k.mT @ error)
        out[..., t : t + 1, :] = q @ state
    return out


def _features(
    feature_map: Callable[[np.ndarray], np.ndarray], X: np.ndarray
) -> np.ndarray:
    F = feature_map(X)
    require_array("linear_attention", "what feature_map returns", F)
    if F.shape[:-1] != X.shape[:-1]:
        raise ValueError(
            f"linear_attention: feature_map made {F.shape} of {X.shape}; it must keep the rows"
        )
    if (F < 0).any():
        raise ValueError(
            "linear_attention: some features are negative, so a sum of weights may be 0; take a feature_map such as "
            "elu_features"
        )
    return F
