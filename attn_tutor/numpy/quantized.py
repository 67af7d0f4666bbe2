"""Numbers in eight bits, for caches that hold twice as many tokens."""

import numpy as np

from attn_tutor.numpy._arrays import require_array
from attn_tutor.numpy._softmax import ratio

__all__ = ["quantize"]


def quantize(X: np.ndarray, axis: int = -1) -> tuple[np.ndarray, np.ndarray]:
    r"""Round to 8-bit whole numbers, with one scale for each row (or column).

    .. math:: \text{codes} = \operatorname{round}(X / s), \qquad s = \max |X| / 127,
        \qquad X \approx s \cdot \text{codes}

    No entry is off by more than s/2. Keys have columns of very different size, and do better with a scale for each
    column of a block (``axis=-2``); values with one for each row. Source: Dettmers et al. (2022), section 2,
    absmax quantisation; keys by column: Liu et al. (2024), KIVI.

    Args:
        X: keys or values, (…, m, d), finite.
        axis: along which the numbers share a scale; −1 gives one for each row, −2 one for each column.

    Returns:
        Codes between −127 and 127, int8, in the shape of X; and scales, (…, m, 1) or (…, 1, d), single where X is
        in half precision, which would round them too coarsely. ``codes * scales`` is X again, rounded.

    Raises:
        TypeError: X is not an array of this half, or not of floating-point numbers.
        ValueError: X is not finite.

    Example:
        >>> codes, scales = quantize(np.array([[-254.0, 100.0]]))
        >>> codes.tolist(), scales.tolist()
        ([[-127, 50]], [[2.0]])
    """
    require_array("quantize", "X", X)
    if X.dtype.kind != "f":
        raise TypeError(f"quantize: X must hold floating-point numbers, got {X.dtype}")
    if not np.isfinite(X).all():
        raise ValueError("quantize: X holds NaN or infinity, which have no 8-bit code")
    X = X.astype(np.result_type(X, np.float32), copy=False)
    scales = np.abs(X).max(axis, keepdims=True, initial=0) / 127
    return np.rint(ratio(X, scales)).clip(-127, 127).astype(np.int8), scales
