"""Attention = score → masked softmax → weighted sum, as the formula says it and without storing the weights."""

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from attn_tutor._checks import require_positive, require_scale
from attn_tutor.geometry import Rule, Slopes, Window
from attn_tutor.numpy._arrays import shapes
from attn_tutor.numpy.fast.additive import tiled_additive
from attn_tutor.numpy.fast.attention import capped, tiled_attention
from attn_tutor.numpy.kernels import gaussian_kernel
from attn_tutor.numpy.scoring import OTHER_WIDTHS, scaled_dot_score
from attn_tutor.numpy.softmax import masked_softmax, normalize
from attn_tutor.numpy.visibility import Visibility, attend_by

FAR = 1e4  # bandwidths; the square of so many is off by 10⁻⁸

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
def attend(
    scores: np.ndarray, V: np.ndarray, mask: np.ndarray | None = None
) -> np.ndarray:
    r"""The last two steps of attention: masked softmax of the scores, then the weighted sum of the values.

    .. math:: O = \operatorname{softmax}_{\text{mask}}(S)\, V

    Source: Vaswani et al. (2017), Eq. 1, from the scores on.

    Args:
        scores: before softmax, (…, n, m), from any scoring function.
        V: values, (…, m, d_v).
        mask: boolean, broadcasts to the scores; True = may attend. None permits every key.

    Returns:
        Output, (…, n, d_v): each row lies in the convex hull of the permitted values, and is 0 if there are none.

    Raises:
        TypeError: an argument is not an array of this half, or the mask is not boolean.
        ValueError: the shapes do not fit.

    Example:
        >>> attend(np.array([[7.0, 7.0]]), np.array([[1.0, 0.0], [0.0, 4.0]])).tolist()
        [[0.5, 2.0]]
    """

    def core(_: np.ndarray, V: np.ndarray, see: Visibility) -> np.ndarray:
        return masked_softmax(scores, see.dense()) @ V  # which hides scores itself

    return attend_by("attend", core, scores[..., :0], V, mask=mask)


@shapes("(n,d),(m,d)->(n,m)", d=OTHER_WIDTHS)
def attention_weights(
    Q: np.ndarray,
    K: np.ndarray,
    mask: np.ndarray | Rule | None = None,
    *,
    causal: bool = False,
    window: int | Window | None = None,
    bias: np.ndarray | Slopes | None = None,
    scale: float | None = None,
    softcap: float | None = None,
) -> np.ndarray:
    r"""The weights of scaled dot-product attention: how much of each value each query draws.

    .. math:: A = \operatorname{softmax}_{\text{mask}}\!\left(\frac{Q K^\top}{\sqrt{d}}\right)

    Source: Vaswani et al. (2017), Eq. 1, without the values.

    Args:
        Q: queries, (…, n, d).
        K: keys, (…, m, d).
        mask: boolean, broadcasts to (…, n, m); True = may attend. Or rules, as ``documents(ids) & valid(lengths)``.
            None permits every key.
        causal: also forbid each query the keys after it, aligned lower right (see :func:`causal_mask`).
        window: most keys that a query sees, its own and those just before it; needs ``causal``. :class:`Window` adds
            sinks. None sets no limit.
        bias: added to the scores, broadcasts to (…, n, m); or ``alibi(slopes)``. None adds nothing.
        scale: factor on the dot product; None is 1/√d.
        softcap: c, with which the scores are c·tanh(scores/c) before mask and bias; None caps none.

    Returns:
        Weights, (…, n, m); each row sums to 1, or to 0 if nothing is permitted.

    Raises:
        TypeError: an argument is not an array of this half, or the mask is not boolean.
        ValueError: the shapes do not fit.

    Example:
        >>> attention_weights(np.array([[3.0, 3.0]]), np.array([[1.0, 0.0], [0.0, 1.0]])).tolist()
        [[0.5, 0.5]]
    """
    require_scale("attention_weights", scale)
    core = partial(weights_of, scale=scale, softcap=softcap)
    said: Any = {"mask": mask, "causal": causal, "window": window, "bias": bias}
    return attend_by("attention_weights", core, Q, K, **said)


@shapes("(n,d),(m,d),(m,d_v)->(n,d_v)", shared=True, d=OTHER_WIDTHS)
def attention(
    Q: np.ndarray,
    K: np.ndarray,
    V: np.ndarray,
    mask: np.ndarray | Rule | None = None,
    *,
    causal: bool = False,
    window: int | Window | None = None,
    bias: np.ndarray | Slopes | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    n_kv_heads: int | None = None,
) -> np.ndarray:
    r"""Scaled dot-product attention, without storing the weights.

    .. math:: O = \operatorname{softmax}_{\text{mask}}\!\left(\frac{Q K^\top}{\sqrt{d}}\right) V

    The number is that of ``attend(scaled_dot_score(Q, K, scale), V, mask)``, but no (n, m) matrix of scores or
    weights is built. In the torch half, second derivatives need
    ``torch.nn.attention.sdpa_kernel(SDPBackend.MATH)`` around the call, as other kernels have none; derivatives along a
    direction take it themselves. Source: Vaswani et al. (2017), Eq. 1.

    Args:
        Q: queries, (…, n, d).
        K: keys, (…, m, d).
        V: values, (…, m, d_v).
        mask: boolean, broadcasts to (…, n, m); True = may attend. Or rules, as ``documents(ids) & valid(lengths)``.
            None permits every key.
        causal: also forbid each query the keys after it, aligned lower right (see :func:`causal_mask`).
        window: most keys that a query sees, its own and those just before it; needs ``causal``. :class:`Window` adds
            sinks. None sets no limit.
        bias: added to the scores, broadcasts to (…, n, m); or ``alibi(slopes)``. None adds nothing.
        scale: factor on the dot product; None is 1/√d.
        softcap: c, with which the scores are c·tanh(scores/c) before mask and bias; None caps none.
        n_kv_heads: number of heads of keys and values, (…, n_kv_heads, m, d), each shared by h / n_kv_heads heads of Q,
            (…, h, n, d); None is one for each.

    Returns:
        Output, (…, n, d_v): each row lies in the convex hull of the permitted values, and is 0 if there are none.
        NaN or infinity reaches only queries that are permitted to see it; where something is hidden, as NaN.
        A mask that hides a whole sequence, often an inverted one, is found by :func:`check_mask`.

    Raises:
        TypeError: an argument is not an array of this half, or the mask is not boolean.
        ValueError: the shapes do not fit, or the heads of Q are no multiple of those of K.

    Example:
        >>> Q, K, V = np.array([[1.0, 1.0]]), np.array([[2.0, 0.0], [0.0, 2.0]]), np.array([[4.0], [8.0]])
        >>> attention(Q, K, V).tolist()
        [[6.0]]
    """
    require_scale("attention", scale)
    core = partial(tiled_attention, scale=scale, softcap=softcap)
    said: Any = {"mask": mask, "causal": causal, "window": window, "bias": bias}
    return attend_by("attention", core, Q, K, V, groups=n_kv_heads, **said)


@shapes("(n,q),(m,k),(m,d_v),(q,k)->(n,d_v)")
def bilinear_attention(
    Q: np.ndarray,
    K: np.ndarray,
    V: np.ndarray,
    M: np.ndarray,
    mask: np.ndarray | Rule | None = None,
    *,
    causal: bool = False,
    window: int | Window | None = None,
    bias: np.ndarray | Slopes | None = None,
) -> np.ndarray:
    r"""Attention with the bilinear score: a dot product in disguise.

    .. math:: O = \operatorname{softmax}_{\text{mask}}(Q M K^\top)\, V

    QM is a matrix of queries in the space of the keys, so :func:`attention` does the rest with scale 1.
    Source: Luong et al. (2015), "general" in section 3.1.

    Args:
        Q: queries, (…, n, q).
        K: keys, (…, m, k).
        V: values, (…, m, d_v).
        M: learnt matrix, (q, k).
        mask: boolean, broadcasts to (…, n, m); True = may attend. Or rules, as ``documents(ids) & valid(lengths)``.
            None permits every key.
        causal: also forbid each query the keys after it, aligned lower right (see :func:`causal_mask`).
        window: most keys that a query sees, its own and those just before it; needs ``causal``. :class:`Window` adds
            sinks. None sets no limit.
        bias: added to the scores, broadcasts to (…, n, m); or ``alibi(slopes)``. None adds nothing.

    Returns:
        Output, (…, n, d_v): each row lies in the convex hull of the permitted values, and is 0 if there are none.

    Raises:
        TypeError: an argument is not an array of this half, or the mask is not boolean.
        ValueError: the shapes do not fit.

    Example:
        >>> Q, K, M = np.array([[1.0]]), np.array([[2.0, 0.0], [0.0, 2.0]]), np.array([[3.0, 3.0]])
        >>> bilinear_attention(Q, K, np.array([[4.0], [8.0]]), M).tolist()
        [[6.0]]
    """

    def core(Q: Any, K: Any, V: Any, see: Visibility) -> np.ndarray:
        return tiled_attention(Q @ M, K, V, see, 1.0)

    said: Any = {"mask": mask, "causal": causal, "window": window, "bias": bias}
    return attend_by("bilinear_attention", core, Q, K, V, **said)


@shapes("(n,d),(m,d),(m,d_v)->(n,d_v)", d=OTHER_WIDTHS)
def gaussian_attention(
    Q: np.ndarray,
    K: np.ndarray,
    V: np.ndarray,
    mask: np.ndarray | Rule | None = None,
    *,
    causal: bool = False,
    window: int | Window | None = None,
    bias: np.ndarray | Slopes | None = None,
    bandwidth: float = 1.0,
) -> np.ndarray:
    r"""Attention with the Gaussian score: another dot product in disguise.

    .. math::
        -\frac{\lVert q - k \rVert^2}{2\sigma^2}
        = \frac{1}{\sigma^2} \begin{pmatrix} q & 1 \end{pmatrix}
          \begin{pmatrix} k & -\tfrac12 \lVert k \rVert^2 \end{pmatrix}^{\!\top} - \frac{\lVert q \rVert^2}{2\sigma^2}

    The last term is the same for every key, so softmax drops it, and queries and keys one entry wider give the
    rest to :func:`attention`. Both are centred on a key first: a shift changes no distance, and without it
    large terms would cancel far from the origin. Where keys are far apart these products are taken in double; only
    what the torch half cannot look at, on a GPU or compiled, stays single, and at r bandwidths from the first key a
    score is then off by about 10⁻⁷ r².
    Source: Nadaraya (1964) and Watson (1964) with a Gaussian kernel.

    Args:
        Q: queries, (…, n, d).
        K: keys, (…, m, d).
        V: values, (…, m, d_v).
        mask: boolean, broadcasts to (…, n, m); True = may attend. Or rules, as ``documents(ids) & valid(lengths)``.
            None permits every key.
        causal: also forbid each query the keys after it, aligned lower right (see :func:`causal_mask`).
        window: most keys that a query sees, its own and those just before it; needs ``causal``. :class:`Window` adds
            sinks. None sets no limit.
        bias: added to the scores, broadcasts to (…, n, m); or ``alibi(slopes)``. None adds nothing.
        bandwidth: σ, in the units of Q and K; above 0.

    Returns:
        Output, (…, n, d_v): each row lies in the convex hull of the permitted values, and is 0 if there are none.

    Raises:
        TypeError: an argument is not an array of this half, or the mask is not boolean.
        ValueError: the shapes do not fit, or the bandwidth is not above 0.

    Example:
        >>> Q, K, V = np.array([[1.0]]), np.array([[0.0], [2.0]]), np.array([[4.0], [8.0]])
        >>> gaussian_attention(Q, K, V).tolist()
        [[6.0]]
    """
    require_positive("gaussian_attention", "bandwidth", bandwidth)

    def core(Q: Any, K: Any, V: Any, see: Visibility) -> np.ndarray:
        wide_Q, wide_K = as_dot_product(Q, K, bandwidth, see)
        output = tiled_attention(wide_Q, wide_K, V, see, 1.0)
        return output.astype(np.result_type(Q, K, V), copy=False)

    said: Any = {"mask": mask, "causal": causal, "window": window, "bias": bias}
    return attend_by("gaussian_attention", core, Q, K, V, **said)


@shapes("(n,q),(m,k),(m,d_v),(q,h),(k,h),(h)->(n,d_v)")
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
    bias: np.ndarray | Slopes | None = None,
) -> np.ndarray:
    r"""Attention with the additive score, for queries and keys of any two widths.

    .. math:: O = \operatorname{softmax}_{\text{mask}}(S)\, V, \qquad S_{ij} = w_v \cdot \tanh(q_i W_q + k_j W_k)

    No (n, m, h) tensor is built, and no tanh is taken of each query with each key:

    .. math:: \tanh(a + b) = 1 - \frac{2}{1 + e^{2a} e^{2b}}

    needs one exponential a query and one a key, and its 1 adds Σw_v to every score, which softmax drops. That is exact
    algebra, and rounds about as the textbook line does: with 1024 standard normal queries and keys and h = 64, the
    largest error of the output in float32 is 9·10⁻⁸, and 8·10⁻⁸ in the textbook. Exponentials that would overflow are
    shifted or cut where tanh is flat. Only if a feature is spread by more than 66 in float32 (660 in float64) among
    the queries and among the keys too, tanh itself is computed, tile by tile. In the torch half, a caller under
    ``torch.compile`` gets compiled loops where a C++ compiler is at hand; under torch.func the formula is computed as
    it stands, all features of all pairs, and elsewhere derivatives are of first order.

    Source: Bahdanau et al. (2015), section 3.1 and appendix A.1.2, where our :math:`W_q, W_k, w_v` are
    :math:`W_a, U_a, v_a`.

    Args:
        Q: queries, (…, n, q).
        K: keys, (…, m, k).
        V: values, (…, m, d_v).
        W_q: learnt projection of queries, (q, h).
        W_k: learnt projection of keys, (k, h).
        w_v: learnt output weights, (h,).
        mask: boolean, broadcasts to (…, n, m); True = may attend. Or rules, as ``documents(ids) & valid(lengths)``.
            None permits every key.
        causal: also forbid each query the keys after it, aligned lower right (see :func:`causal_mask`).
        window: most keys that a query sees, its own and those just before it; needs ``causal``. :class:`Window` adds
            sinks. None sets no limit.
        bias: added to the scores, broadcasts to (…, n, m); or ``alibi(slopes)``. None adds nothing.

    Returns:
        Output, (…, n, d_v): each row lies in the convex hull of the permitted values, and is 0 if there are none.

    Raises:
        TypeError: an argument is not an array of this half, or the mask is not boolean.
        ValueError: the shapes do not fit.

    Example:
        >>> Q, K, V = np.array([[1.0]]), np.array([[2.0], [2.0]]), np.array([[4.0], [8.0]])
        >>> W, w_v = np.array([[1.0]]), np.array([3.0])
        >>> additive_attention(Q, K, V, W, W, w_v).tolist()
        [[6.0]]
    """
    dtype = np.result_type(Q, K, V, W_q, W_k, w_v)
    wide = np.result_type(dtype, np.float32)

    def core(Q: Any, K: Any, V: Any, see: Visibility) -> np.ndarray:
        given = (X.astype(wide, copy=False) for X in (Q, K, V, W_q, W_k, w_v))
        Q, K, V, a, b, w = given
        return tiled_additive(Q @ a, K @ b, w, V, see).astype(dtype, copy=False)

    said: Any = {"mask": mask, "causal": causal, "window": window, "bias": bias}
    return attend_by("additive_attention", core, Q, K, V, **said)


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
        TypeError: an argument is not an array of this half.
        ValueError: the shapes do not fit, or the bandwidth is not above 0.

    Example:
        >>> Q, K, V = np.array([[1.0]]), np.array([[0.0], [2.0]]), np.array([[4.0], [8.0]])
        >>> nadaraya_watson(Q, K, V).tolist()
        [[6.0]]
    """
    require_positive("nadaraya_watson", "bandwidth", bandwidth)
    return normalize(kernel(Q, K, bandwidth)) @ V


def weights_of(
    Q: np.ndarray,
    K: np.ndarray,
    see: Visibility,
    scale: float | None = None,
    softcap: float | None = None,
) -> np.ndarray:
    """The core of :func:`attention_weights`: what is hidden must be finite."""
    dtype = np.result_type(Q, K)
    Q, K = (X.astype(np.result_type(dtype, np.float32), copy=False) for X in (Q, K))
    scores = capped(scaled_dot_score(Q, K, scale), softcap)
    if (added := see.added(slice(0, see.n), slice(0, see.m))) is not None:
        scores = scores + added.astype(scores.dtype, copy=False)
    return masked_softmax(scores, see.dense()).astype(dtype, copy=False)


def as_dot_product(
    Q: np.ndarray, K: np.ndarray, bandwidth: float, see: Visibility
) -> tuple[np.ndarray, np.ndarray]:
    """Queries (…, n, d+1) and keys (…, m, d+1) whose dot products are Gaussian scores, up to a term a query."""
    # Keys that spread far leave little beside −‖k‖²/2, hence float64.
    wide = np.result_type(Q, K, np.float64)
    seen = see.anyone()[..., None]  # (…, m, 1)
    # The first key that is seen: causally, whoever sees any key sees this one,
    # so that no later key can cost it accuracy.
    first = seen & (seen.cumsum(-2) == 1)
    K = np.where(seen, K, 0).astype(wide, copy=False)
    centre = np.where(first, K, 0).sum(-2, keepdims=True)
    if np.abs(K - centre).max(initial=0, where=seen) > FAR * bandwidth:
        # Unless it is far from the others: then the one in the middle.
        away = np.where(seen, K, np.nan)
        with warnings.catch_warnings(action="ignore", category=RuntimeWarning):
            centre = np.nan_to_num(np.nanmedian(away, -2, keepdims=True))
    Q, K = (Q - centre) / float(bandwidth), (K - centre) * seen / float(bandwidth)
    norms = (K**2).sum(-1, keepdims=True)
    wide_Q = np.concatenate([Q, np.ones((*Q.shape[:-1], 1), wide)], -1)
    return wide_Q, np.concatenate([K, -norms / 2], -1)
