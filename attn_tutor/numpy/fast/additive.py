"""The engine of additive attention: tiles in which no tanh is left, so that no (n, m, h) tensor is ever stored.

tanh(a + b) = 1 − 2 / (1 + exp(2a) exp(2b)). The exponentials are taken once a query and once a key, and the 1 adds the
same number to every score of a query, which softmax drops. A product, a sum and a quotient remain for each query, key
and feature.
"""

import math
import threading
from typing import Any

import numpy as np

from attn_tutor._checks import broadcast
from attn_tutor.numpy.fast.tiles import KEYS, Problem, pool
from attn_tutor.numpy.softmax import masked_softmax
from attn_tutor.numpy.visibility import Visibility

# Numbers in a tile of features × queries × keys, 4 MiB in float32: less would make the
# interpreter most of the work, and more would leave the processor's cache. With few
# queries, little of it lies beyond the diagonal of a causal mask.
SPACE, QUERIES = 2**20, 64
# Up to so many entries of the (n, m, h) tensor, building it is quicker than what tiles need.
FEW = 2**18
# exp(2 · REACH) is finite and exp(−2 · REACH) not yet subnormal; tanh beyond ±FLAT is ±1 in this precision.
REACH = {"float32": 43.0, "float64": 350.0}
FLAT = {"float32": 10.0, "float64": 20.0}


def tiled_additive(
    a: np.ndarray,
    b: np.ndarray,
    w: np.ndarray,
    V: np.ndarray,
    see: Visibility,
) -> np.ndarray:
    """Softmax of the scores w · tanh(a + b) + bias, times V, a tile at a time.

    a: (…, n, h), b: (…, m, h), w: (…, h), V: (…, m, d_v), in one dtype, float32 or wider; what is hidden must be
    finite.
    """
    n, m, h, d_v = *a.shape[-2:-1], *b.shape[-2:], V.shape[-1]
    w = w[..., None, :]
    batch = broadcast(*(X.shape[:-2] for X in (a, b, w, V, *see.arrays.values())))
    assert batch is not None  # the callers have checked
    size = math.prod(batch)
    if size * n * m * h <= FEW:
        S = (np.tanh(a[..., None, :] + b[..., None, :, :]) @ w[..., None])[..., 0]
        added = see.added(slice(0, n), slice(0, m))
        S = S if added is None else S + added.astype(S.dtype, copy=False)
        return masked_softmax(S, see.dense()) @ V

    def laid_out(X: np.ndarray) -> np.ndarray:
        """With one batch axis."""
        X = np.broadcast_to(X, (*batch, *X.shape[-2:]))
        return X.reshape(size, *X.shape[-2:])

    x, y, product = factors(a, b)
    x, y, weights, V = (laid_out(X) for X in (x, y, -2 * w, V))
    # A score is at most Σ 2|w| in size, once its constant part Σ w is left out.
    reach = np.abs(weights).sum(-1, keepdims=True) + np.zeros((n, 1), V.dtype)
    see = see.map(laid_out)
    # 1 + x·y and a + b are both products of rank 2, (x, 1)·(y, 1) and (a, 1)·(1, b), which
    # a matrix product computes faster than NumPy multiplies and adds.
    x, y = x.mT, y.mT  # (B, h, n), (B, h, m)
    column = [y, np.ones_like(y)] if product else [np.ones_like(y), y]
    # (B, h, n, 2), (B, h, 2, m)
    x, y = np.stack([x, np.ones_like(x)], -1), np.stack(column, -2)

    # Elements of the batch share a tile if they are small, or else queries do.
    most = max(1, SPACE // (h * min(KEYS, m)))
    together, height = max(1, most // n), min(most, QUERIES)
    # A tile for each thread: the system is slow to hand out new pages.
    own = threading.local()

    def score(group: slice, rows: slice, keys: slice, scores: np.ndarray) -> None:
        if not hasattr(own, "space"):
            own.space = np.empty(together * h * height * min(KEYS, m), V.dtype)
        g, r, k = scores.shape
        tile = own.space[: g * h * r * k].reshape(g, h, r, k)
        np.matmul(x[group][..., rows, :], y[group][..., keys], out=tile)
        if product:
            np.divide(1, tile, out=tile)
        else:
            np.tanh(tile, out=tile)
            tile *= -0.5
        scores[...] = (weights[group] @ tile.reshape(g, h, r * k)).reshape(g, r, k)

    out = np.empty((size, n, d_v), V.dtype)
    keys = np.ones((size, m, 1), V.dtype)
    problem = Problem(score, V, see, (reach, keys), out, KEYS)
    groups: list[Any] = [slice(i, i + together) for i in range(0, size, together)]
    pool(problem, groups, together, height)
    return out.reshape(*batch, n, d_v)


def factors(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray, bool]:
    """exp(2a), exp(2b) and True, both shifted and cut so that they are finite; a, b and False where that cannot be.

    Added to a feature of all queries and taken from that of all keys, a shift changes no a + b. Let it bring the keys
    within REACH − FLAT of 0. Where a then lies beyond REACH, a + b lies beyond FLAT for every key, and still does
    when a is cut off at REACH: tanh is as flat as before. The same holds with queries and keys exchanged. So one of
    the two must fit in a window of width 2 (REACH − FLAT), in each feature; else only tanh itself is safe.
    """
    reach, flat = REACH.get(a.dtype.name, 43.0), FLAT.get(a.dtype.name, 10.0)
    with np.errstate(invalid="ignore"):  # ∞ − ∞ is NaN, which fits no window
        (shift_a, a_fits), (shift_b, b_fits) = (window(X, reach - flat) for X in (a, b))
    if not (a_fits | b_fits).all():
        return a, b, False
    shift = np.where(b_fits, shift_b, -shift_a)
    x, y = (a + shift).clip(-reach, reach), (b - shift).clip(-reach, reach)
    return np.exp(2 * x), np.exp(2 * y), True


def window(X: np.ndarray, radius: float) -> tuple[np.ndarray, np.ndarray]:
    """What to take from each feature so that it lies within ±radius, 0 where it does already, and where that works."""
    rows = X.reshape(math.prod(X.shape[:-1]), X.shape[-1])
    low, high = rows.min(0, initial=np.inf), rows.max(0, initial=-np.inf)
    shift = np.zeros_like(low).clip(high - radius, low + radius)
    return shift, high - low <= 2 * radius
