"""The engine behind additive attention: tiles in which no tanh is left, so that no (n, m, h) tensor is ever stored.

tanh(a + b) = 1 − 2 / (1 + exp(2a) exp(2b)). The exponentials are taken once a query and once a key, and the 1 adds the
same number to every score of a query, which softmax drops. A product, a sum and a quotient remain for each query, key
and feature.
"""

import math
from collections.abc import Iterator

import numpy as np

from attn_tutor._parallel import in_parallel
from attn_tutor.numpy.softmax import masked_softmax

# A tile of h × queries × keys takes 4 MiB in float32: less would make the interpreter
# most of the work, and more would leave the processor's cache.
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
    mask: np.ndarray | None = None,
    causal: bool = False,
) -> np.ndarray:
    """Softmax of the scores w · tanh(a + b), times V, a tile at a time.

    a: (…, n, h), b: (…, m, h), w: (…, h), V: (…, m, d_v), in one dtype, float32 or wider; what is hidden must already
    be finite. mask: (…, n or 1, m or 1), and not together with causal.
    """
    n, m, h, d_v = *a.shape[-2:-1], *b.shape[-2:], V.shape[-1]
    w = w[..., None, :]
    arrays = [a, b, w, V]
    if mask is not None:
        arrays.append(np.broadcast_to(mask, (*mask.shape[:-1], m)))
    batch = np.broadcast_shapes(*(X.shape[:-2] for X in arrays))
    size = math.prod(batch)
    if size * n * m * h <= FEW:
        if causal:
            mask = np.tri(n, m, m - n, dtype=bool)
        S = np.tanh(a[..., None, :] + b[..., None, :, :]) @ w[..., None]
        return masked_softmax(S[..., 0], mask) @ V

    x, y, product = factors(a, b)
    arrays[:3] = x, y, -2 * w
    x, y, *arrays = (
        np.broadcast_to(X, (*batch, *X.shape[-2:])).reshape(size, *X.shape[-2:])
        for X in arrays
    )
    # 1 + x·y and a + b are both products of rank 2, (x, 1)·(y, 1) and (a, 1)·(1, b), which
    # a matrix product computes faster than NumPy multiplies and adds.
    x, y = x.mT, y.mT  # (B, h, n), (B, h, m)
    column = [y, np.ones_like(y)] if product else [np.ones_like(y), y]
    # (B, h, n, 2), (B, h, 2, m)
    arrays = [np.stack([x, np.ones_like(x)], -1), np.stack(column, -2), *arrays]
    output = np.empty((size, n, d_v), x.dtype)
    together = max(1, SPACE // max(1, n * m * h))  # elements of the batch in one tile

    def work(tasks: Iterator[tuple[slice, slice]]) -> None:
        space = np.empty(max(SPACE, QUERIES * h), x.dtype)  # this thread's tile
        # A product that overflows has a quotient of 0, as it should.
        with np.errstate(over="ignore", under="ignore"):
            for group, rows in tasks:
                q, k, weights, v, *masks = (X[group] for X in arrays)
                keys, seen = visible(masks[0] if masks else None, causal, rows, n, m)
                S = scores(q[:, :, rows], k[..., keys], weights, product, space)
                if seen is not None:
                    S = np.where(seen, S, -np.inf)
                top = S.max(-1, keepdims=True, initial=-np.inf)
                S -= np.where(top == -np.inf, 0, top)  # an empty row stays at −∞
                E = np.exp(S, out=S)
                total = E.sum(-1, keepdims=True)
                pooled = E @ v[:, keys]
                output[group, rows] = pooled / np.where(total == 0, 1, total)

    groups = [slice(i, i + together) for i in range(0, size, together)]
    rows = [slice(i, min(i + QUERIES, n)) for i in range(0, n, QUERIES)]
    # Causal: the longest first, so that the threads end together.
    in_parallel(work, [(group, each) for each in reversed(rows) for group in groups])
    return output.reshape(*batch, n, d_v)


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


def visible(
    mask: np.ndarray | None, causal: bool, rows: slice, n: int, m: int
) -> tuple[slice, np.ndarray | None]:
    """The keys between the first and the last that some of these queries see, and who sees which; None: all do."""
    if causal:
        last = max(0, rows.stop + m - n)
        return slice(last), np.tri(
            rows.stop - rows.start, last, rows.start + m - n, dtype=bool
        )
    if mask is None:
        return slice(m), None
    seen = mask[:, rows] if mask.shape[1] > 1 else mask
    some = np.flatnonzero(seen.any((0, 1)))
    keys = slice(some[0], some[-1] + 1) if len(some) else slice(0)
    return keys, seen[..., keys]


def scores(
    x: np.ndarray, y: np.ndarray, weights: np.ndarray, product: bool, space: np.ndarray
) -> np.ndarray:
    """Σ −2w / (1 + x·y): (g, h, R, 2), (g, h, 2, m), (g, 1, h) -> (g, R, m); short of one number for each query."""
    (g, h, R, _), m = x.shape, y.shape[-1]
    S = np.empty((g, R, m), x.dtype)
    step = max(1, SPACE // max(1, g * h * R))
    for j in range(0, m, step):
        k = y[..., j : j + step]
        width = k.shape[-1]
        tile = space[: g * h * R * width].reshape(g, h, R * width)
        np.matmul(x, k, out=tile.reshape(g, h, R, width))
        if product:
            np.divide(1, tile, out=tile)
        else:
            np.tanh(tile, out=tile)
            tile *= -0.5
        S[..., j : j + step] = (weights @ tile).reshape(g, R, width)
    return S
