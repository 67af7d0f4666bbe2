"""Where a token stands: encodings added to tokens, rotations of queries and keys, biases on scores."""

from collections.abc import Mapping
from typing import Any

import torch

from attn_tutor._both import rates as both
from attn_tutor._checks import require_pairs, require_positions, require_positive
from attn_tutor.torch._arrays import require_array, require_size, shapes
from attn_tutor.torch.masks import Device

__all__ = ["alibi_bias", "rotary", "rotary_rates", "sinusoidal_encoding"]


def sinusoidal_encoding(
    n: int,
    d: int,
    base: float = 10000.0,
    *,
    device: Device = None,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    r"""Positions as points on circles that turn at different speeds.

    .. math:: P_{p,\,2i} = \sin\frac{p}{\text{base}^{2i/d}}, \qquad P_{p,\,2i+1} = \cos\frac{p}{\text{base}^{2i/d}}

    Positions p start at 0. The even columns are i = 0 … ⌈d/2⌉ − 1; for odd d the last sine has no cosine.
    Angles are taken in double precision, so that far positions are right. Source: Vaswani et al. (2017), section 3.5.

    Args:
        n: number of positions.
        d: width.
        base: sets the longest wavelength, about 2π·base positions; above 0.
        device: where the result lives; None is torch's default.
        dtype: of the result; None is torch's default.

    Returns:
        Encoding, (n, d), in [−1, 1]; the product of two rows depends on their distance alone (for even d).

    Example:
        >>> (1000 * sinusoidal_encoding(2, 3)).round().tolist()
        [[0.0, 1000.0, 0.0], [841.0, 540.0, 2.0]]
    """
    require_size("sinusoidal_encoding", "n", n)
    require_size("sinusoidal_encoding", "d", d)
    exact = _exact(device)
    rates = _rates("sinusoidal_encoding", d, base, exact)
    angles = torch.arange(n, device=exact)[:, None] * rates  # (n, ⌈d/2⌉)
    P = torch.empty(n, d, device=device, dtype=dtype)
    P[:, 0::2] = torch.sin(angles)
    P[:, 1::2] = torch.cos(angles[:, : d // 2])
    return P


@shapes("(n,d)->(n,d)")
def rotary(
    X: torch.Tensor,
    positions: torch.Tensor | None = None,
    base: float = 10000.0,
    *,
    rates: torch.Tensor | None = None,
    factor: float = 1.0,
    interleaved: bool = True,
) -> torch.Tensor:
    r"""Turn each pair of entries of a query or key by an angle that grows with its position.

    .. math:: \begin{pmatrix} y_{2i} \\ y_{2i+1} \end{pmatrix} =
        \begin{pmatrix} \cos\theta & -\sin\theta \\ \sin\theta & \cos\theta \end{pmatrix}
        \begin{pmatrix} x_{2i} \\ x_{2i+1} \end{pmatrix}, \qquad \theta = p\,\omega_i,
        \quad \omega_i = \text{base}^{-2i/d}

    The dot product of two rotated vectors depends on their positions through the difference alone. Pairs are
    neighbours (2i, 2i+1), as in the paper, or, half-split as Llama in ``transformers`` has them, (i, i + r/2) among
    the r entries that turn. Source: Su et al. (2021), section 3.2.2.

    A model that was trained on short texts reads longer ones with slower rates; :func:`rotary_rates` has those of a
    checkpoint.

    Args:
        X: queries or keys, (…, n, d), with d even unless ``rates`` are given.
        positions: position p of each row, broadcasts to (…, n); None is 0 … n − 1.
        base: sets the slowest turn; above 0.
        rates: ω in place of the base's, radians a position, one a pair, (r/2,) with r ≤ d; entries from r on stay as
            they are (partial rotary). Far positions need them in double precision.
        factor: what the entries that turn are multiplied by; above 0. With it in queries and keys, scores grow by its
            square.
        interleaved: pairs are neighbours; False is half-split.

    Returns:
        Rotated rows, (…, n, d), each of unchanged length where ``factor`` is 1.

    Example:
        >>> rotary(torch.tensor([[1000.0, 0.0], [1000.0, 0.0]])).round().tolist()
        [[1000.0, 0.0], [540.0, 841.0]]
        >>> rotary(torch.tensor([[0.0] * 3, [1000.0, 0.0, 7.0]]), rates=torch.tensor([1.0])).round().tolist()
        [[0.0, 0.0, 0.0], [540.0, 841.0, 7.0]]
    """
    d = X.shape[-1]
    positions = _positions(positions, X)
    if rates is None:
        rates = _rates("rotary", d, base, positions.device)
    require_array("rotary", "rates", rates)
    require_pairs("rotary", rates.shape, d)
    require_positive("rotary", "factor", factor)
    r = 2 * len(rates)
    angles = positions[..., None] * rates.to(positions)  # (…, n, r/2)
    cos, sin = ((factor * f(angles)).to(X) for f in (torch.cos, torch.sin))
    if interleaved:
        x, y, axis = X[..., 0:r:2], X[..., 1:r:2], -1  # (…, n, r/2) both
    else:
        x, y, axis = X[..., : r // 2], X[..., r // 2 : r], -2
    pairs = torch.stack([x * cos - y * sin, x * sin + y * cos], axis)
    turned = pairs.flatten(-2)  # (…, n, r)
    rest = X[..., r:].expand(*turned.shape[:-1], d - r)
    return torch.cat([turned, rest], -1) if r < d else turned


def rotary_rates(
    settings: Mapping[str, Any], d: int, n: int | None = None
) -> tuple[torch.Tensor, float]:
    r"""Rates and factor for :func:`rotary` by the settings of a checkpoint, which may stretch them to longer texts.

    .. math:: \omega_i' = \gamma_i\, \omega_i + (1 - \gamma_i)\, \omega_i / s, \qquad \omega_i = \text{base}^{-2i/d}

    A model was trained on L tokens, where pair i turns :math:`r_i = L \omega_i / 2\pi` times, and is to read s L.
    ``rope_type`` says which pairs slow down:

    - "linear": all, γ = 0 (Chen et al., 2023, section 2.3).
    - "dynamic": the base grows to :math:`\text{base} \cdot (s n / L - s + 1)^{d/(d-2)}` in texts of n > L tokens, so
      that the fastest pair keeps its rate (bloc97, 2023; Peng et al., 2024, section 3.3).
    - "llama3": γ rises with r_i from 0 at ``low_freq_factor`` to 1 at ``high_freq_factor``. This is Peng et al. (2024),
      Eq. 18 to 20, without their factor; Llama 3.1 came with it.
    - "yarn": γ falls with i, from 1 at the pair that turns ``beta_fast`` times to 0 at the one that turns ``beta_slow``
      times, whole pairs unless ``truncate`` is false; and the factor is 0.1 ln s + 1. So it is in the programs of Peng
      et al.; in their paper γ rises with r_i.
    - "longrope": :math:`\omega_i' = \omega_i / \lambda_i` with λ from ``long_factor`` where n > L, else from
      ``short_factor``, and the factor is :math:`\sqrt{1 + \ln s / \ln L}` (Ding et al., 2024).

    Source: as named, and ``modeling_rope_utils`` of ``transformers``, whose numbers these are.

    Args:
        settings: ``config.json`` as a dict, or its ``rope_parameters`` alone where they hold all that is needed.
        d: width of a head, of which ``partial_rotary_factor`` may turn a part.
        n: length of the longest text, for "dynamic" and "longrope"; None is at most L. Keys that are cached keep the
            rates with which they came.

    Returns:
        Rates in double precision, one a pair, (r/2,), and the factor for queries and for keys, 1 for most types.

    Raises:
        TypeError: the settings are no dict.
        ValueError: a setting is missing, or the type is another one.

    Example:
        >>> rates, factor = rotary_rates({"rope_type": "linear", "rope_theta": 16.0, "factor": 2.0}, 4)
        >>> rates.tolist(), factor
        ([0.5, 0.125], 1.0)
    """
    rates, factor = both.rotary_rates(settings, d, n)
    return torch.tensor(rates, dtype=torch.float64), factor


def alibi_bias(
    n_heads: int,
    n: int,
    m: int | None = None,
    *,
    device: Device = None,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    r"""A penalty on the score that grows with the distance between query and key, at a different rate in each head.

    .. math:: B_{hij} = -\lambda_h\, \lvert i + m - n - j \rvert, \qquad \lambda_h = 2^{-8 (h+1) / \text{n\_heads}}

    Heads h, queries i and keys j count from 0, and the last query stands at the last key. If ``n_heads`` is no power
    of 2, the slopes are those of the next lower power, then every second one of twice that power.
    Source: Press et al. (2022), section 3; they use it with a causal mask, where the distance is never negative.

    Args:
        n_heads: number of heads, at least 1.
        n: number of queries.
        m: number of keys; None means n.
        device: where the result lives; None is torch's default.
        dtype: of the result; None is torch's default.

    Returns:
        Bias, (h, n, m), 0 or less, to be added to the scores.

    Example:
        >>> alibi_bias(2, 2).tolist()
        [[[0.0, -0.0625], [-0.0625, 0.0]], [[0.0, -0.00390625], [-0.00390625, 0.0]]]
    """
    m = n if m is None else m
    require_size("alibi_bias", "n_heads", n_heads, least=1)
    require_size("alibi_bias", "n", n)
    require_size("alibi_bias", "m", m)
    exact = _exact(device)  # half precision cannot count beyond 2048
    i, j = (torch.arange(start, m, device=exact) for start in (m - n, 0))
    distance = (i[:, None] - j).abs()  # (n, m)
    slopes = torch.tensor(alibi_slopes(int(n_heads)), dtype=torch.float64, device=exact)
    dtype = dtype or torch.get_default_dtype()
    return (slopes[:, None, None] * -distance).to(device, dtype)


def alibi_slopes(n_heads: int) -> list[float]:
    """A geometric sequence from 2^(−8/h) to 2^(−8), filled up where h is no power of 2."""
    # The largest power of 2 that is not above n_heads.
    power = 1 << n_heads.bit_length() - 1
    slopes = [2 ** (-8 * (h + 1) / power) for h in range(power)]
    if power == n_heads:
        return slopes
    return slopes + alibi_slopes(2 * power)[0::2][: n_heads - power]


def _rates(where: str, d: int, base: float, device: Device) -> torch.Tensor:
    """Angle a position, for each pair, (⌈d/2⌉,)."""
    require_positive(where, "base", base)
    even = torch.arange(0, d, 2, device=device, dtype=torch.float64)
    return float(base) ** (-even / d)


def _exact(device: Device) -> torch.device:
    """Where positions are computed in double precision: Apple's GPUs have none."""
    # The default device has a name of its own, but no compiler follows that.
    device = torch.empty(0).device if device is None else torch.device(device)
    return torch.device("cpu") if device.type == "mps" else device


def _positions(positions: torch.Tensor | None, X: torch.Tensor) -> torch.Tensor:
    if positions is None:
        return torch.arange(X.shape[-2], dtype=torch.float64, device=_exact(X.device))
    require_array("rotary", "positions", positions)
    require_positions("rotary", positions.shape, X.shape[:-1])
    return positions.to(_exact(X.device), torch.float64)
