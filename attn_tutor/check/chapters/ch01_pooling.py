"""Chapter 1: kernels, their normalisation, pooling with them, and a straight line around each query."""

from functools import partial

import numpy as np

import attn_tutor.numpy as an
from attn_tutor.check.chapters.inputs import Array, column, numbers
from attn_tutor.check.exercise import Exercise, Function, Row

draw = numbers(1)

NEAR = [
    (column(0), column(0, 1, 2), 2.0), (column(0), column(1, 2, 3), 1.0),  # u is 0, ½ and 1, then 1, 2 and 3
    (np.array([[0.0, 0.0]]), np.array([[3.0, 4.0], [6.0, 8.0]]), 5.0), (draw(3, 2), draw(5, 2), 1.7),
    (draw(3, 7).astype(np.float32), draw(5, 7).astype(np.float32), 3.1), (draw(2, 3, 7), draw(2, 5, 7), 2.9),
]  # fmt: skip


def distance(Q: Array, K: Array) -> Array:
    return np.linalg.norm(Q[..., :, None, :] - K[..., None, :, :], axis=-1)


def kernel(Q: Array, K: Array, h: float, *, curve: Function, far: Function = distance,
           width: Function = float) -> Array:  # fmt: skip
    """A function of u = distance/bandwidth, with what people get wrong in u as options."""
    return np.asarray(curve(far(Q, K) / width(h)), Q.dtype)


DISTANCES: list[Row] = [
    ("absolute differences added", dict(far=lambda Q, K: np.abs(Q[..., :, None, :] - K[..., None, :, :]).sum(-1)),
     "You add up absolute differences of coordinates. The distance is Euclidean: the root of the sum of squares."),
    ("the mean of the squares", dict(far=lambda Q, K: distance(Q, K) / Q.shape[-1] ** 0.5),
     "You average the squared differences over the coordinates. The distance is the root of their sum: no mean."),
]  # fmt: skip

gaussian_kernel = Exercise(1,
    "gaussian_kernel(Q, K, bandwidth): exp(-u²/2), u = distance/bandwidth; (…, n, d), (…, m, d) → (…, n, m)",
    partial(kernel, curve=lambda u: np.exp(-(u**2) / 2)),
    [*NEAR, (column(1e8), column(1e8 + 1, 1e8 + 2, 1e8 + 3, 1e8 + 4), 1.0)], *DISTANCES,
    ("without the ½", dict(curve=lambda u: np.exp(-(u**2))),
     "Your weights are exp(-u²), the Gaussian is exp(-u²/2): without the ½ its bell is narrower, by the factor √2."),
    ("bandwidth not squared", dict(width=np.sqrt),
     "You divide the squared distance by 2σ. It is measured in bandwidths before it is squared: divide by 2σ²."),
    ("already normalised", lambda Q, K, h: an.normalize(an.gaussian_kernel(Q, K, h)),
     "Your rows sum to 1. A kernel gives raw weights, 1 where query and key agree: dividing is the next step."),
    ("distance not squared", dict(curve=lambda u: np.exp(-u / 2)),
     "Your weights are exp(-u/2). The Gaussian takes the square of the distance: exp(-u²/2)."))  # fmt: skip

boxcar_kernel = Exercise(1,
    "boxcar_kernel(Q, K, bandwidth): 1 where the distance is at most the bandwidth, else 0; → (…, n, m)",
    partial(kernel, curve=lambda u: u <= 1), NEAR, *DISTANCES,
    ("the edge left out", dict(curve=lambda u: u < 1),
     "A key at exactly one bandwidth is in the window: u ≤ 1, where you have u < 1."))  # fmt: skip

triangular_kernel = Exercise(1,
    "triangular_kernel(Q, K, bandwidth): max(0, 1 − u), u = distance/bandwidth; → (…, n, m)",
    partial(kernel, curve=lambda u: (1 - u).clip(0)), NEAR, *DISTANCES,
    ("absolute value in place of max(0, …)", dict(curve=lambda u: np.abs(1 - u)),
     "Outside the window your weights grow again: |1 − u|. Where 1 − u is negative the weight is 0: max(0, 1 − u)."),
    ("negative outside the window", dict(curve=lambda u: 1 - u),
     "Beyond the bandwidth 1 − u is negative, and a weight must not be: take max(0, 1 − u)."),
    ("a parabola", dict(curve=lambda u: (1 - u**2).clip(0)),
     "Your weights are 1 − u², a parabola. The triangle falls along a straight line: 1 − u, no square."))  # fmt: skip

epanechnikov_kernel = Exercise(1,
    "epanechnikov_kernel(Q, K, bandwidth): ¾ max(0, 1 − u²), u = distance/bandwidth; → (…, n, m)",
    partial(kernel, curve=lambda u: 0.75 * (1 - u**2).clip(0)), NEAR, *DISTANCES,
    ("1 − u squared", dict(curve=lambda u: 0.75 * (1 - u).clip(0) ** 2),
     "You square 1 − u. It is u that is squared: ¾ max(0, 1 − u²), a parabola with its top at 0."),
    ("negative outside the window", dict(curve=lambda u: 0.75 * (1 - u**2)),
     "Beyond the bandwidth 1 − u² is negative, and a weight must not be: take max(0, 1 − u²)."))  # fmt: skip


def shares(weights: Array, *, ε: float = 0, least: float = 0, power: int = 1,
           empty: Function = np.zeros_like) -> Array:  # fmt: skip
    total = np.maximum((weights**power).sum(-1, keepdims=True) ** (1 / power), least)
    return np.where(total + ε == 0, empty(weights), weights / (total + ε))


normalize = Exercise(1, "normalize(weights): each row divided by its sum, and 0 where that is 0; (…, m) → (…, m)",
    shares, lambda draw: [(np.array([[3.0, 1.0]]),), (np.array([[3.0, 1.0], [0.0, 0.0]]),), (np.abs(draw(3, 5)),),
        (np.abs(draw(3, 5)).astype(np.float32),), (np.abs(draw(2, 3, 5)),),
        (np.array([[0.1, 0.1, 0.2], [0.5, 0.25, 0.05]]),),
        (np.array([[3e-12, 1e-12], [0.0, 0.0]]),),  # whoever adds an ε has less than 1
    ],
    ("a small number added to the sum", [dict(ε=ε) for ε in (1e-12, 1e-10, 1e-9, 1e-8)],
     "You add a small number ε to the sum: a row of small weights then sums to less than 1. Replace only a sum of 0."),
    ("small sums left alone", dict(least=1),
     "You divide only by sums above 1, as clamp(min=1) does. A row of small weights stays small: replace only a 0."),
    ("NaN in an empty window", dict(empty=lambda w: w / 0),
     "A row whose weights are all 0 has the sum 0, and 0/0 is NaN. Its weights stay 0: divide by 1 there."),
    ("divided by the length of the row", dict(power=2),
     "You divide each row by its length, the root of the sum of squares. Weights are divided by the sum."))  # fmt: skip


def average(Q: Array, K: Array, V: Array, kernel: Function, h: float, *,
            share: Function = an.normalize) -> Array:  # fmt: skip
    return np.asarray(share(kernel(Q, K, h)) @ V)


nadaraya_watson = Exercise(1, "nadaraya_watson(Q, K, V, kernel, bandwidth): values averaged with the weights kernel(Q, "
    "K, bandwidth); 0 for an empty window; (…, n, d), (…, m, d), (…, m, d_v) → (…, n, d_v)",
    average, lambda draw: [(column(1), column(0, 2, 3), column(6, 0, 12), an.boxcar_kernel, 1.0),
        (column(1, 9), column(0, 2, 3), column(6, 0, 12), an.boxcar_kernel, 2.0),
        (draw(3, 7), draw(5, 7), draw(5, 2), an.gaussian_kernel, 2.3),
        (draw(3, 7), draw(5, 7), draw(5, 2), an.triangular_kernel, 5.3),
        (draw(2, 3, 7), draw(2, 5, 7), draw(2, 5, 11), an.gaussian_kernel, 2.3)],
    ("weights not normalised", dict(share=lambda w: w),
     "You sum the values with raw weights, so that many near keys make much. Divide each row of weights by its sum."),
    ("NaN in an empty window", dict(share=lambda w: w / w.sum(-1, keepdims=True)),
     "Where no key is within reach all weights are 0, and 0/0 is NaN. The output is 0 there: divide by 1."),
    ("softmax of the weights", dict(share=an.softmax),
     "You take softmax of weights, as if they were scores: even a weight of 0 gets its share. Divide by their sum."),
    ("divided by the number of keys", dict(share=lambda w: w / w.shape[-1]),
     "You divide by the number of keys. An average with weights is divided by their sum, row by row."))  # fmt: skip


def nearest(q: Array, K: Array, k: int, *, closeness: Function = np.ones_like, sign: int = 1,
            rank: Function = lambda order: order.argsort()) -> Array:  # fmt: skip
    r = distance(q, K)
    w = np.where(rank((sign * r).argsort()) < k, closeness(r), 0)
    return np.asarray(w / w.sum())


neighbour_weights = Exercise(1, "neighbour_weights(q, K, k): 1/k for each of the k nearest keys, 0 for the rest, no "
    "two equally far; (1, d), (m, d) → (1, m)",
    nearest, lambda draw: [(column(1), column(0, 3, 7), 1), (column(1), column(0, 3, 7), 2),
        (draw(1, 2), draw(5, 2), 3), (draw(1, 7), draw(11, 7), 5)],
    ("ranks mistaken for keys", dict(rank=lambda order: order),
     "argsort returns which key comes first, second, …; you read it as each key's rank: weights[0, order[:k]]."),
    ("the farthest keys", dict(sign=-1),
     "You chose the k keys that are farthest. argsort puts the smallest first: sort distances, or minus the scores."),
    ("nearer keys get more",
     [dict(closeness=f) for f in (lambda r: 1 / r, lambda r: 1 / (1 + r), lambda r: np.exp(-r))],
     "The right keys, but the nearer ones get more. Each of the k has the same weight, 1/k."))  # fmt: skip


def fitted(q: Array, K: Array, bandwidth: float, *, centred: bool = True) -> Array:
    """A row of (XᵀWX)⁻¹XᵀW, with kernel weights on the diagonal of W."""
    X = np.concatenate([np.ones((len(K), 1), K.dtype), K - q * centred], axis=-1)
    XtW = X.T * an.gaussian_kernel(q, K, bandwidth)
    return (np.linalg.inv(XtW @ X) @ XtW)[:1]


local_line_weights = Exercise(1, "local_line_weights(q, K, bandwidth): weights by which a straight line, fitted around "
    "the query with Gaussian kernel weights, averages the values at the query; (1, d), (m, d) → (1, m)",
    fitted, lambda draw: [(column(1), column(0, 1, 2, 4), 1.0), (column(9), column(0, 1, 2, 4), 5.0),
        (draw(1, 2), draw(7, 2), 1.5), (draw(1, 3), draw(11, 3), 2.3)],
    ("read off at the origin", dict(centred=False),
     "The line is right, but read off at the origin. Measure keys from the query, K − q."))  # fmt: skip
