"""Kernels: weights that fall with the distance between query and key. Not yet normalised."""

import torch

from attn_tutor._checks import require_positive
from attn_tutor.torch._arrays import shapes
from attn_tutor.torch.scoring import OTHER_WIDTHS, gaussian_score

__all__ = [
    "boxcar_kernel",
    "epanechnikov_kernel",
    "gaussian_kernel",
    "triangular_kernel",
]


@shapes("(n,d),(m,d)->(n,m)", d=OTHER_WIDTHS)
def gaussian_kernel(
    Q: torch.Tensor, K: torch.Tensor, bandwidth: float = 1.0
) -> torch.Tensor:
    r"""Weights that fall smoothly with distance and never reach 0.

    .. math:: w_{ij} = \exp\bigl(-\tfrac12 u_{ij}^2\bigr), \qquad u_{ij} = \lVert q_i - k_j \rVert / \sigma

    Source: Nadaraya (1964) and Watson (1964); σ is the bandwidth.

    Args:
        Q: queries, (…, n, d).
        K: keys, (…, m, d).
        bandwidth: σ, in the units of Q and K; above 0.

    Returns:
        Weights, (…, n, m), in [0, 1] (far out they round to 0); 1 where query and key agree.

    Example:
        >>> gaussian_kernel(torch.tensor([[1.0]]), torch.tensor([[1.0], [1000.0]])).tolist()
        [[1.0, 0.0]]
    """
    require_positive("gaussian_kernel", "bandwidth", bandwidth)
    return torch.exp(gaussian_score(Q, K, bandwidth))


@shapes("(n,d),(m,d)->(n,m)", d=OTHER_WIDTHS)
def boxcar_kernel(
    Q: torch.Tensor, K: torch.Tensor, bandwidth: float = 1.0
) -> torch.Tensor:
    r"""Weight 1 within the bandwidth, its edge included, and 0 outside.

    .. math:: w_{ij} = [\, u_{ij} \le 1 \,], \qquad u_{ij} = \lVert q_i - k_j \rVert / \sigma

    Source: Nadaraya (1964) and Watson (1964), with a uniform window; σ is the bandwidth.

    Args:
        Q: queries, (…, n, d).
        K: keys, (…, m, d).
        bandwidth: σ, in the units of Q and K; above 0.

    Returns:
        Weights, (…, n, m), each 0 or 1.

    Example:
        >>> boxcar_kernel(torch.tensor([[0.0]]), torch.tensor([[0.5], [1.0], [1.5]])).tolist()
        [[1.0, 1.0, 0.0]]
    """
    require_positive("boxcar_kernel", "bandwidth", bandwidth)
    u = _distance(Q, K, bandwidth).detach()
    return torch.where(u.isnan(), u, (u <= 1).to(Q.dtype))


@shapes("(n,d),(m,d)->(n,m)", d=OTHER_WIDTHS)
def triangular_kernel(
    Q: torch.Tensor, K: torch.Tensor, bandwidth: float = 1.0
) -> torch.Tensor:
    r"""Weights that fall along a straight line and reach 0 at the bandwidth.

    .. math:: w_{ij} = \max(0,\, 1 - u_{ij}), \qquad u_{ij} = \lVert q_i - k_j \rVert / \sigma

    Source: Nadaraya (1964) and Watson (1964), with a triangular window; σ is the bandwidth. Some texts call this
    the Epanechnikov kernel; that one is :func:`epanechnikov_kernel`.

    Args:
        Q: queries, (…, n, d).
        K: keys, (…, m, d).
        bandwidth: σ, in the units of Q and K; above 0.

    Returns:
        Weights, (…, n, m), in [0, 1].

    Example:
        >>> triangular_kernel(torch.tensor([[0.0]]), torch.tensor([[0.25], [1.5]])).tolist()
        [[0.75, 0.0]]
    """
    require_positive("triangular_kernel", "bandwidth", bandwidth)
    return (1 - _distance(Q, K, bandwidth)).clip(0)


@shapes("(n,d),(m,d)->(n,m)", d=OTHER_WIDTHS)
def epanechnikov_kernel(
    Q: torch.Tensor, K: torch.Tensor, bandwidth: float = 1.0
) -> torch.Tensor:
    r"""Weights that fall along a parabola and reach 0 at the bandwidth.

    .. math:: w_{ij} = \tfrac34 \max(0,\, 1 - u_{ij}^2), \qquad u_{ij} = \lVert q_i - k_j \rVert / \sigma

    Source: Epanechnikov (1969); σ is the bandwidth. The factor ¾, which makes the area 1 on the line, cancels
    when the weights are normalised.

    Args:
        Q: queries, (…, n, d).
        K: keys, (…, m, d).
        bandwidth: σ, in the units of Q and K; above 0.

    Returns:
        Weights, (…, n, m), in [0, ¾].

    Example:
        >>> epanechnikov_kernel(torch.tensor([[0.0]]), torch.tensor([[0.0], [0.5], [1.5]])).tolist()
        [[0.75, 0.5625, 0.0]]
    """
    require_positive("epanechnikov_kernel", "bandwidth", bandwidth)
    return 0.75 * (1 - _distance(Q, K, bandwidth) ** 2).clip(0)


def _distance(Q: torch.Tensor, K: torch.Tensor, bandwidth: float) -> torch.Tensor:
    """u, the distance in units of the bandwidth; from differences, so that nothing cancels."""
    difference = Q[..., :, None, :] - K[..., None, :, :]  # (…, n, m, d)
    return torch.linalg.vector_norm(difference, dim=-1) / bandwidth
