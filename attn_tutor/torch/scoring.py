"""Scoring functions: how well does a key answer a query? A score is what goes into softmax."""

from typing import Any

import torch

from attn_tutor._checks import require_positive
from attn_tutor.torch._arrays import require_scale, shapes

__all__ = [
    "additive_score",
    "bilinear_score",
    "dot_score",
    "gaussian_score",
    "scaled_dot_score",
]

OTHER_WIDTHS = (
    "Queries and keys of different width: use bilinear_score or additive_score."
)


@shapes("(n,d),(m,d)->(n,m)", d=OTHER_WIDTHS)
def dot_score(Q: torch.Tensor, K: torch.Tensor) -> torch.Tensor:
    r"""The dot product of each query with each key.

    .. math:: S_{ij} = q_i \cdot k_j, \qquad S = Q K^\top

    Source: Luong et al. (2015), "dot" in section 3.1.

    Args:
        Q: queries, (…, n, d).
        K: keys, (…, m, d).

    Returns:
        Scores, (…, n, m). For independent entries of mean 0 and variance 1 their variance is d.

    Example:
        >>> dot_score(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0], [0.0, 1.0]])).tolist()
        [[11.0, 2.0]]
    """
    return Q @ K.mT


@shapes("(n,d),(m,d)->(n,m)", d=OTHER_WIDTHS)
def scaled_dot_score(
    Q: torch.Tensor, K: torch.Tensor, scale: float | None = None
) -> torch.Tensor:
    r"""The dot product of each query with each key, scaled so that its variance does not grow with d.

    .. math:: S = \frac{Q K^\top}{\sqrt{d}}

    Source: Vaswani et al. (2017), Eq. 1, where our d is their :math:`d_k`.

    Args:
        Q: queries, (…, n, d).
        K: keys, (…, m, d).
        scale: factor on the dot product; None is 1/√d.

    Returns:
        Scores, (…, n, m). For independent entries of mean 0 and variance 1 their variance is 1.

    Example:
        >>> scaled_dot_score(torch.tensor([[1.0, 1.0, 1.0, 1.0]]), torch.tensor([[1.0, 2.0, 3.0, 4.0]])).tolist()
        [[5.0]]
    """
    scale = resolved_scale("scaled_dot_score", scale, Q.shape[-1])
    # Scaled before the product, which in float16 could overflow.
    return Q * scale @ K.mT


@shapes("(n,q),(m,k),(q,k)->(n,m)")
def bilinear_score(Q: torch.Tensor, K: torch.Tensor, M: torch.Tensor) -> torch.Tensor:
    r"""A dot product between spaces: M carries each query to the space of the keys.

    .. math:: S_{ij} = q_i^\top M k_j, \qquad S = Q M K^\top

    Source: Luong et al. (2015), "general" in section 3.1, with our M for their :math:`W_a`.

    Args:
        Q: queries, (…, n, q).
        K: keys, (…, m, k).
        M: learnt matrix, (q, k).

    Returns:
        Scores, (…, n, m). With M the identity they are dot products.

    Example:
        >>> bilinear_score(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0]]), torch.tensor([[1.0], [10.0]])).tolist()
        [[63.0]]
    """
    return Q @ M @ K.mT


@shapes("(n,q),(m,k),(q,h),(k,h),(h)->(n,m)")
def additive_score(
    Q: torch.Tensor,
    K: torch.Tensor,
    W_q: torch.Tensor,
    W_k: torch.Tensor,
    w_v: torch.Tensor,
) -> torch.Tensor:
    r"""A small network with one hidden layer compares each query with each key.

    .. math:: S_{ij} = w_v \cdot \tanh(q_i W_q + k_j W_k)

    Source: Bahdanau et al. (2015), appendix A.1.2, where our :math:`W_q, W_k, w_v` are :math:`W_a, U_a, v_a`,
    applied on the left to column vectors. There is no bias, so that the score is odd:
    S(−q, −k) = −S(q, k). A constant 1 appended to each query makes the last row of W_q one.

    Args:
        Q: queries, (…, n, q).
        K: keys, (…, m, k).
        W_q: learnt projection of queries, (q, h).
        W_k: learnt projection of keys, (k, h).
        w_v: learnt output weights, (h,).

    Returns:
        Scores, (…, n, m), each between −Σ|w_v| and Σ|w_v|.

    Example:
        >>> Q, K, W = torch.tensor([[1.0]]), torch.tensor([[-1.0], [99.0]]), torch.tensor([[1.0]])
        >>> additive_score(Q, K, W, W, torch.tensor([2.0])).tolist()
        [[0.0, 2.0]]
    """
    return tanh_score(Q @ W_q, K @ W_k, w_v)


def tanh_score(a: torch.Tensor, b: torch.Tensor, w_v: torch.Tensor) -> torch.Tensor:
    """The additive score of projected queries, (…, n, h), and keys, (…, m, h)."""
    hidden = torch.tanh(a[..., :, None, :] + b[..., None, :, :])  # (…, n, m, h)
    return (hidden @ w_v[..., None, :, None])[..., 0]  # (…, n, m, h) @ (…, 1, h, 1)


@shapes("(n,d),(m,d)->(n,m)", d=OTHER_WIDTHS)
def gaussian_score(
    Q: torch.Tensor, K: torch.Tensor, bandwidth: float = 1.0
) -> torch.Tensor:
    r"""Minus half the squared distance, in units of the bandwidth: its softmax is the Gaussian kernel, normalised.

    .. math:: S_{ij} = -\frac{\lVert q_i - k_j \rVert^2}{2 \sigma^2}

    Source: the exponent of the kernel in Nadaraya (1964) and Watson (1964); σ is the bandwidth.

    Args:
        Q: queries, (…, n, d).
        K: keys, (…, m, d).
        bandwidth: σ, in the units of Q and K; above 0.

    Returns:
        Scores, (…, n, m), each 0 or less. Taken from differences, so that nothing cancels far from the origin.

    Example:
        >>> gaussian_score(torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 4.0]])).tolist()
        [[-12.5]]
    """
    require_positive("gaussian_score", "bandwidth", bandwidth)
    difference = Q[..., :, None, :] - K[..., None, :, :]  # (…, n, m, d)
    return -((difference / bandwidth) ** 2).sum(-1) / 2


def resolved_scale(where: str, scale: Any, d: int) -> Any:
    """A function's scale: 1/√d where none is given; vectors of width 0 have dot product 0 at any."""
    require_scale(where, scale)
    if scale is not None:
        return scale
    return d**-0.5 if d else 1.0
