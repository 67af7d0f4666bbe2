"""Many positions from few sines: a shift is a rotation."""

import math

import numpy as np

from attn_tutor.numpy.fast.threads import by_rows


def by_rotation(n: int, rates: np.ndarray) -> np.ndarray:
    """Sine and cosine side by side, at n positions and all rates, (n, 2·rates).

    Row r + k is row r, turned by k steps, so that about 2√n rows of sines are enough. A pair is the complex number
    sin a + i cos a; to turn it by the angle b is to multiply it by cos b − i sin b.
    """
    step = math.isqrt(n) + 1
    a = np.arange(0, n, step)[:, None] * rates
    b = np.arange(step)[:, None] * rates
    rows, turns = np.sin(a) + 1j * np.cos(a), np.cos(b) - 1j * np.sin(b)
    pairs = np.empty((len(rows), step, len(rates)), complex)
    by_rows(np.multiply, rows[:, None], turns, out=pairs)
    return pairs.reshape(len(rows) * step, len(rates)).view(np.float64)[:n]
