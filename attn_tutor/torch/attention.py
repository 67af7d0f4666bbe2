"""Attention = score → masked softmax → weighted sum, as the formula says it and without storing the weights."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.nn.functional import pad

from attn_tutor._checks import require_chance, require_positive
from attn_tutor.geometry import Rule, Slopes, Window
from attn_tutor.torch._arrays import in_full, look, require_scale, shapes
from attn_tutor.torch.fast.additive import additive_pool
from attn_tutor.torch.fast.attention import fused_attention
from attn_tutor.torch.fast.attention import scores as scores_of
from attn_tutor.torch.kernels import gaussian_kernel
from attn_tutor.torch.scoring import OTHER_WIDTHS, default_scale
from attn_tutor.torch.softmax import masked_softmax, normalize
from attn_tutor.torch.visibility import Visibility, around, attend_by

# Scores of at most this size are as good in single precision as those of differences.
FAR = 256

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
    scores: torch.Tensor, V: torch.Tensor, mask: torch.Tensor | None = None
) -> torch.Tensor:
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
        >>> attend(torch.tensor([[7.0, 7.0]]), torch.tensor([[1.0, 0.0], [0.0, 4.0]])).tolist()
        [[0.5, 2.0]]
    """

    def core(_: torch.Tensor, V: torch.Tensor, see: Visibility) -> torch.Tensor:
        return masked_softmax(scores, see.dense()) @ V  # which hides scores itself

    return attend_by("attend", core, scores[..., :0], V, mask=mask, short=False)


@shapes("(n,d),(m,d)->(n,m)", d=OTHER_WIDTHS)
def attention_weights(
    Q: torch.Tensor,
    K: torch.Tensor,
    mask: torch.Tensor | Rule | None = None,
    *,
    causal: bool = False,
    window: int | Window | None = None,
    bias: torch.Tensor | Slopes | None = None,
    scale: float | None = None,
    softcap: float | None = None,
) -> torch.Tensor:
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
        >>> attention_weights(torch.tensor([[3.0, 3.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])).tolist()
        [[0.5, 0.5]]
    """
    require_scale("attention_weights", scale)
    core = partial(weigh, scale=scale, softcap=softcap)
    said: Any = {"mask": mask, "causal": causal, "window": window, "bias": bias}
    return attend_by("attention_weights", core, Q, K, short=False, **said)


@shapes("(n,d),(m,d),(m,d_v)->(n,d_v)", shared=True, d=OTHER_WIDTHS)
def attention(
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
    n_kv_heads: int | None = None,
    dropout_p: float = 0.0,
) -> torch.Tensor:
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
        dropout_p: chance to drop each weight, the others growing by 1/(1 − dropout_p); 0 drops none.

    Returns:
        Output, (…, n, d_v): each row lies in the convex hull of the permitted values, and is 0 if there are none.
        NaN or infinity reaches only queries that are permitted to see it; where something is hidden, as NaN.
        A mask that hides a whole sequence, often an inverted one, is found by :func:`check_mask`.

    Raises:
        TypeError: an argument is not an array of this half, or the mask is not boolean.
        ValueError: the shapes do not fit, or the heads of Q are no multiple of those of K.

    Example:
        >>> Q, K, V = torch.tensor([[1.0, 1.0]]), torch.tensor([[2.0, 0.0], [0.0, 2.0]]), torch.tensor([[4.0], [8.0]])
        >>> attention(Q, K, V).tolist()
        [[6.0]]
    """
    require_scale("attention", scale)
    require_chance("attention", "dropout_p", dropout_p)
    options: Any = {"scale": scale, "softcap": softcap, "dropout_p": dropout_p}
    said: Any = {"mask": mask, "causal": causal, "window": window, "bias": bias}
    core = partial(fused_attention, **options)
    return attend_by("attention", core, Q, K, V, groups=n_kv_heads, **said)


@shapes("(n,q),(m,k),(m,d_v),(q,k)->(n,d_v)")
def bilinear_attention(
    Q: torch.Tensor,
    K: torch.Tensor,
    V: torch.Tensor,
    M: torch.Tensor,
    mask: torch.Tensor | Rule | None = None,
    *,
    causal: bool = False,
    window: int | Window | None = None,
    bias: torch.Tensor | Slopes | None = None,
    dropout_p: float = 0.0,
) -> torch.Tensor:
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
        dropout_p: chance to drop each weight, the others growing by 1/(1 − dropout_p); 0 drops none.

    Returns:
        Output, (…, n, d_v): each row lies in the convex hull of the permitted values, and is 0 if there are none.

    Raises:
        TypeError: an argument is not an array of this half, or the mask is not boolean.
        ValueError: the shapes do not fit.

    Example:
        >>> Q, K, M = torch.tensor([[1.0]]), torch.tensor([[2.0, 0.0], [0.0, 2.0]]), torch.tensor([[3.0, 3.0]])
        >>> bilinear_attention(Q, K, torch.tensor([[4.0], [8.0]]), M).tolist()
        [[6.0]]
    """
    require_chance("bilinear_attention", "dropout_p", dropout_p)

    def core(Q: Any, K: Any, V: Any, see: Visibility) -> torch.Tensor:
        return pool(Q @ M, K, V, see, scale=1.0, dropout_p=dropout_p)

    said: Any = {"mask": mask, "causal": causal, "window": window, "bias": bias}
    return attend_by("bilinear_attention", core, Q, K, V, **said)


@shapes("(n,d),(m,d),(m,d_v)->(n,d_v)", d=OTHER_WIDTHS)
def gaussian_attention(
    Q: torch.Tensor,
    K: torch.Tensor,
    V: torch.Tensor,
    mask: torch.Tensor | Rule | None = None,
    *,
    causal: bool = False,
    window: int | Window | None = None,
    bias: torch.Tensor | Slopes | None = None,
    bandwidth: float = 1.0,
    dropout_p: float = 0.0,
) -> torch.Tensor:
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
        dropout_p: chance to drop each weight, the others growing by 1/(1 − dropout_p); 0 drops none.

    Returns:
        Output, (…, n, d_v): each row lies in the convex hull of the permitted values, and is 0 if there are none.

    Raises:
        TypeError: an argument is not an array of this half, or the mask is not boolean.
        ValueError: the shapes do not fit, or the bandwidth is not above 0.

    Example:
        >>> Q, K, V = torch.tensor([[1.0]]), torch.tensor([[0.0], [2.0]]), torch.tensor([[4.0], [8.0]])
        >>> gaussian_attention(Q, K, V).tolist()
        [[6.0]]
    """
    require_positive("gaussian_attention", "bandwidth", bandwidth)
    require_chance("gaussian_attention", "dropout_p", dropout_p)

    def core(Q: Any, K: Any, V: Any, see: Visibility) -> torch.Tensor:
        wide_Q, wide_K, see = as_dot_product(Q, K, bandwidth, see)
        wide = wide_Q, wide_K, V.to(wide_K.dtype)
        with in_full(Q):
            output = fused_attention(*wide, see, 1.0, dropout_p=dropout_p)
        return output.to(V.dtype)

    said: Any = {"mask": mask, "causal": causal, "window": window, "bias": bias}
    return attend_by("gaussian_attention", core, Q, K, V, **said)


@shapes("(n,q),(m,k),(m,d_v),(q,h),(k,h),(h)->(n,d_v)")
def additive_attention(
    Q: torch.Tensor,
    K: torch.Tensor,
    V: torch.Tensor,
    W_q: torch.Tensor,
    W_k: torch.Tensor,
    w_v: torch.Tensor,
    mask: torch.Tensor | Rule | None = None,
    *,
    causal: bool = False,
    window: int | Window | None = None,
    bias: torch.Tensor | Slopes | None = None,
    dropout_p: float = 0.0,
) -> torch.Tensor:
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
        dropout_p: chance to drop each weight, the others growing by 1/(1 − dropout_p); 0 drops none.

    Returns:
        Output, (…, n, d_v): each row lies in the convex hull of the permitted values, and is 0 if there are none.

    Raises:
        TypeError: an argument is not an array of this half, or the mask is not boolean.
        ValueError: the shapes do not fit.

    Example:
        >>> Q, K, V = torch.tensor([[1.0]]), torch.tensor([[2.0], [2.0]]), torch.tensor([[4.0], [8.0]])
        >>> W, w_v = torch.tensor([[1.0]]), torch.tensor([3.0])
        >>> additive_attention(Q, K, V, W, W, w_v).tolist()
        [[6.0]]
    """
    require_chance("additive_attention", "dropout_p", dropout_p)
    wide = torch.promote_types(V.dtype, torch.float32)

    def core(Q: Any, K: Any, V: Any, see: Visibility) -> torch.Tensor:
        given = (X.to(wide) for X in (Q, K, V, W_q, W_k, w_v))
        q, k, v, a, b, w = given
        with in_full(V):
            return additive_pool(q @ a, k @ b, w, v, see, dropout_p).to(V.dtype)

    said: Any = {"mask": mask, "causal": causal, "window": window, "bias": bias}
    return attend_by("additive_attention", core, Q, K, V, **said)


@shapes("(n,d),(m,d),(m,d_v)->(n,d_v)", d=OTHER_WIDTHS)
def nadaraya_watson(
    Q: torch.Tensor,
    K: torch.Tensor,
    V: torch.Tensor,
    kernel: Callable[..., torch.Tensor] = gaussian_kernel,
    bandwidth: float = 1.0,
) -> torch.Tensor:
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
        >>> Q, K, V = torch.tensor([[1.0]]), torch.tensor([[0.0], [2.0]]), torch.tensor([[4.0], [8.0]])
        >>> nadaraya_watson(Q, K, V).tolist()
        [[6.0]]
    """
    require_positive("nadaraya_watson", "bandwidth", bandwidth)
    return normalize(kernel(Q, K, bandwidth)) @ V


# Steps that the public functions share once their arguments are checked.


def weigh(
    Q: torch.Tensor,
    K: torch.Tensor,
    see: Visibility,
    scale: float | None = None,
    softcap: float | None = None,
) -> torch.Tensor:
    """The weights as the formula says, (…, n, m)."""
    scale = default_scale(Q.shape[-1]) if scale is None else scale
    added = see.added(slice(0, see.n), slice(0, see.m))
    S = scores_of(Q, K, added, scale, softcap)
    return masked_softmax(S, see.dense()).to(torch.promote_types(Q.dtype, K.dtype))


def pool(
    Q: torch.Tensor,
    K: torch.Tensor,
    V: torch.Tensor,
    see: Visibility,
    groups: int | None = None,
    **options: Any,
) -> torch.Tensor:
    """Scaled dot-product attention of arguments that are checked: hidden, pooled, finished; see :func:`around`."""
    return around(partial(fused_attention, **options), see, Q, K, V, groups=groups)


def as_dot_product(
    Q: torch.Tensor,
    K: torch.Tensor,
    bandwidth: float,
    see: Visibility,
) -> tuple[torch.Tensor, torch.Tensor, Visibility]:
    """Queries and keys whose dot products, plus maybe a bias, are Gaussian scores up to a term a query."""
    # Half precision would round −‖k‖²/2 too coarsely, and single precision if it is large.
    dtype = torch.promote_types(K.dtype, torch.float32)
    q, k, norms = _centred(Q.to(dtype), K.to(dtype), bandwidth, see)
    lengths = (torch.linalg.vector_norm(X.detach(), dim=-1) for X in (q, k))
    top_q, top_k = (look(torch.max, X) or 0.0 for X in lengths)
    far = FAR if dtype == torch.float32 else FAR**4
    if not top_k * (top_q + top_k / 2) <= far:  # or NaN
        q, k, norms = _centred(Q.double(), K.double(), bandwidth, see, far=True)
    if see.ruled or see.tall or norms.requires_grad or look(torch.sum, norms) is None:
        # A bias for each query would be large, the gradient of one leaves the fast path, and so does any on a GPU.
        # Under torch.vmap nobody can tell whether a gradient is wanted.
        return pad(q, (0, 1), value=1.0), torch.cat([k, norms], -1), see
    see = see.map(lambda X: X)
    see.arrays["bias"] = norms.mT + see.arrays.get("bias", 0)
    return q, k, see


def _centred(
    Q: torch.Tensor,
    K: torch.Tensor,
    bandwidth: float,
    see: Visibility,
    far: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Queries and keys from a common centre, in bandwidths, and −‖k‖²/2 of each key, (…, m, 1)."""
    seen = see.anyone()
    if seen is not None:
        seen = seen.expand(*seen.shape[:-1], see.m)[..., None]  # (…, m, 1)
    if far and see.m:
        centre = (K if seen is None else torch.where(seen, K, torch.nan)).detach()
        centre = centre.nanmedian(-2, keepdim=True).values.nan_to_num()
    else:
        # The first key that is seen: causally, whoever sees any key sees this one,
        # so that no later key can cost it accuracy.
        first = K[..., :1, :] if seen is None else K * (seen & (seen.cumsum(-2) == 1))
        centre = first.sum(-2, keepdim=True).detach()
    # The result does not depend on the centre, so neither does its gradient.
    Q, K = (Q - centre).div_(bandwidth), (K - centre).div_(bandwidth)
    if seen is not None:
        K = K * seen
    return Q, K, (K**2).sum(-1, keepdim=True) / -2
