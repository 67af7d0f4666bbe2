"""Chapter 1: kernels, their normalisation, and pooling with them."""

from collections.abc import Callable

import numpy as np

import attn_tutor.numpy as an
from attn_tutor.check.chapters.inputs import Array, column, numbers
from attn_tutor.check.compare import Function
from attn_tutor.check.exercise import Exercise, Row

draw = numbers(1)

NEAR = [
    (column(0), column(0, 1, 2), 2.0),  # u is 0, ½ and 1
    (column(0), column(1, 2, 3), 1.0),
    (np.array([[0.0, 0.0]]), np.array([[3.0, 4.0], [6.0, 8.0]]), 5.0),  # u is 1 and 2
    (draw(3, 2), draw(5, 2), 1.7),
    (draw(3, 7).astype(np.float32), draw(5, 7).astype(np.float32), 3.1),
    (draw(2, 3, 7), draw(2, 5, 7), 2.9),
]


def distance(Q: Array, K: Array) -> Array:
    return np.linalg.norm(Q[..., :, None, :] - K[..., None, :, :], axis=-1)


gaussian_kernel = Exercise(1,
    "gaussian_kernel(Q, K, bandwidth): exp(-u²/2), u = distance/bandwidth; (…, n, d), (…, m, d) → (…, n, m)",
    an.gaussian_kernel, [*NEAR, (column(1e8), column(1e8 + 1, 1e8 + 2, 1e8 + 3, 1e8 + 4), 1.0)])  # fmt: skip
gaussian_kernel.knows(
    ("without the ½", lambda Q, K, bandwidth: np.exp(-((distance(Q, K) / bandwidth) ** 2)),
     "Your weights are exp(-u²). The Gaussian has exp(-u²/2): without the ½ the bell is narrower, as if the bandwidth "
     "were divided by √2."),
    ("bandwidth not squared", lambda Q, K, bandwidth: np.exp(-(distance(Q, K) ** 2) / (2 * bandwidth)),
     "You divide the squared distance by 2σ. It is the distance that is measured in bandwidths: divide by σ before you "
     "square, or by 2σ² after."),
    ("distance not squared", lambda Q, K, bandwidth: np.exp(-distance(Q, K) / bandwidth / 2),
     "Your weights are exp(-u/2). The Gaussian takes the square of the distance: exp(-u²/2)."),
    ("already normalised",
     lambda Q, K, bandwidth: (w := np.exp(-(distance(Q, K) / bandwidth) ** 2 / 2)) / w.sum(-1, keepdims=True),
     "Your rows sum to 1. A kernel gives raw weights, 1 where query and key agree; dividing by their sum is the next "
     "step, `normalize`."),
)  # fmt: skip


def city_blocks(Q: Array, K: Array) -> Array:
    return np.abs(Q[..., :, None, :] - K[..., None, :, :]).sum(-1)


def root_mean_square(Q: Array, K: Array) -> Array:
    return distance(Q, K) / Q.shape[-1] ** 0.5


def distances(profile: Callable[[Array, float], Array]) -> list[Row]:
    """Mistakes in the distance, the same in each kernel; the profile is the kernel of a distance and a bandwidth."""

    def of(other: Callable[[Array, Array], Array]) -> Function:
        return lambda Q, K, h: profile(other(Q, K), h).astype(Q.dtype)

    return [
        ("absolute differences added", of(city_blocks),
         "You add up the absolute differences of the coordinates. The distance is Euclidean: the root of the sum of "
         "squares."),
        ("the mean of the squares", of(root_mean_square),
         "You take the mean of the squared differences over the coordinates. The distance is the root of their *sum*: "
         "with a mean it would not grow with the width."),
    ]  # fmt: skip


gaussian_kernel.knows(*distances(lambda r, h: np.exp(-((r / h) ** 2) / 2)))

boxcar_kernel = Exercise(1,
    "boxcar_kernel(Q, K, bandwidth): 1 where the distance is at most the bandwidth, else 0; → (…, n, m)",
    an.boxcar_kernel, NEAR)  # fmt: skip
boxcar_kernel.knows(*distances(lambda r, h: r <= h))


boxcar_kernel.knows(
    ("½ inside the window", lambda Q, K, bandwidth: np.where(distance(Q, K) <= bandwidth, 0.5, 0).astype(Q.dtype),
     "You give ½ to what is in the window, as a density does whose area is 1. Here it is 1: a common factor cancels "
     "when the weights are normalised."),
    ("the edge left out", lambda Q, K, bandwidth: np.where(distance(Q, K) < bandwidth, 1, 0).astype(Q.dtype),
     "A key at exactly one bandwidth is in the window: u ≤ 1, where you have u < 1."),
    ("bandwidth as the whole width",
     lambda Q, K, bandwidth: np.where(distance(Q, K) <= bandwidth / 2, 1, 0).astype(Q.dtype),
     "Your window ends at half a bandwidth. The bandwidth is a radius: from the query to the edge."),
)  # fmt: skip

triangular_kernel = Exercise(1,
    "triangular_kernel(Q, K, bandwidth): max(0, 1 − u), u = distance/bandwidth; → (…, n, m)",
    an.triangular_kernel, NEAR)  # fmt: skip
triangular_kernel.knows(*distances(lambda r, h: (1 - r / h).clip(0)))

triangular_kernel.knows(
    ("absolute value in place of max(0, …)", lambda Q, K, bandwidth: np.abs(1 - distance(Q, K) / bandwidth),
     "Outside the window your weights grow again: you take the absolute value of 1 − u, which is negative there. Such "
     "a weight is 0: max(0, 1 − u)."),
    ("negative outside the window", lambda Q, K, bandwidth: 1 - distance(Q, K) / bandwidth,
     "Beyond the bandwidth 1 − u is negative, and a weight must not be: take max(0, 1 − u)."),
    ("a parabola", lambda Q, K, bandwidth: (1 - (distance(Q, K) / bandwidth) ** 2).clip(0),
     "Your weights are 1 − u², a parabola (Epanechnikov's, up to its ¾). The triangle falls along a straight line: 1 − "
     "u."),
)  # fmt: skip

epanechnikov_kernel = Exercise(1,
    "epanechnikov_kernel(Q, K, bandwidth): ¾ max(0, 1 − u²), u = distance/bandwidth; → (…, n, m)",
    an.epanechnikov_kernel, NEAR)  # fmt: skip
epanechnikov_kernel.knows(*distances(lambda r, h: 0.75 * (1 - (r / h) ** 2).clip(0)))

epanechnikov_kernel.knows(
    ("1 − u squared", lambda Q, K, bandwidth: 0.75 * (1 - distance(Q, K) / bandwidth).clip(0) ** 2,
     "You square 1 − u. It is u that is squared: ¾ max(0, 1 − u²), a parabola with its top at 0."),
    ("without the ¾", lambda Q, K, bandwidth: (1 - (distance(Q, K) / bandwidth) ** 2).clip(0),
     "Your weights are 4/3 of what they should be. The ¾ makes the area under the kernel 1; it cancels once the "
     "weights are normalised, but belongs to the kernel."),
    ("negative outside the window", lambda Q, K, bandwidth: 0.75 * (1 - (distance(Q, K) / bandwidth) ** 2),
     "Beyond the bandwidth 1 − u² is negative, and a weight must not be: take max(0, 1 − u²)."),
)  # fmt: skip

normalize = Exercise(
    1,
    "normalize(weights): each row divided by its sum, and 0 where that is 0; (…, m) → (…, m)",
    an.normalize,
    lambda draw: [
        (np.array([[3.0, 1.0]]),),
        (np.array([[3.0, 1.0], [0.0, 0.0]]),),
        (np.abs(draw(3, 5)),),
        (np.abs(draw(3, 5)).astype(np.float32),),
        (np.abs(draw(2, 3, 5)),),
        (np.array([[0.1, 0.1, 0.2], [0.5, 0.25, 0.05]]),),
        (np.array([[3e-12, 1e-12], [0.0, 0.0]]),),  # whoever adds an ε has less than 1
    ],
)


def divided_with(ε: float) -> Function:
    return lambda weights: weights / (weights.sum(-1, keepdims=True) + ε)


def equal_weights_in_an_empty_window(weights: Array) -> Array:
    total = weights.sum(-1, keepdims=True)
    shares = weights / np.where(total == 0, 1, total)
    return np.where(total == 0, 1 / weights.shape[-1], shares)


normalize.knows(
    ("a small number added to the sum", [divided_with(ε) for ε in (1e-12, 1e-10, 1e-9, 1e-8)],
     "You add a small number ε to the sum. It spares the empty rows, but a row of small weights then sums to less than "
     "1, as far from all keys, where a Gaussian is 1e-12 everywhere. Replace the sum only where it is 0."),
    ("small sums left alone", lambda weights: weights / np.maximum(weights.sum(-1, keepdims=True), 1),
     "You divide by the sum only where it is above 1, as clamp(min=1) and maximum(sum, 1) do. A row of small weights "
     "stays small. Only a sum of 0 must be replaced."),
    ("NaN in an empty window", lambda weights: weights / weights.sum(-1, keepdims=True),
     "A row whose weights are all 0 has the sum 0, and 0/0 is NaN. Such a window is empty: its weights stay 0. Divide "
     "by 1 where the sum is 0."),
    ("equal weights in an empty window", equal_weights_in_an_empty_window,
     "Where a row sums to 0 you give every key the same weight. Nothing is near, so nothing is known: such a row stays "
     "0, and can be told from a real average."),
    ("columns in place of rows",
     lambda weights: weights / np.where((total := weights.sum(-2, keepdims=True)) == 0, 1, total),
     "Your columns sum to 1. A row belongs to a query, and its weights over the keys must: sum over axis −1."),
    ("the sum of all rows", lambda weights: weights / weights.sum(),
     "You divide by the sum of the whole array. Each query has a sum of its own: .sum(-1, keepdims=True)."),
    ("divided by the length of the row",
     lambda weights: weights / np.where((length := np.linalg.norm(weights, axis=-1, keepdims=True)) == 0, 1, length),
     "You divide each row by its length, the root of the sum of squares, as one normalises a vector. Weights must sum "
     "to 1: divide by the sum."),
)  # fmt: skip

nadaraya_watson = Exercise(1,
    "nadaraya_watson(Q, K, V, kernel, bandwidth): values averaged with the weights kernel(Q, K, bandwidth); 0 for "
    "an empty window; (…, n, d), (…, m, d), (…, m, d_v) → (…, n, d_v)",
    an.nadaraya_watson, lambda draw: [
        (column(1), column(0, 2, 3), column(6, 0, 12), an.boxcar_kernel, 1.0),
        (column(1, 9), column(0, 2, 3), column(6, 0, 12), an.boxcar_kernel, 2.0),
        (draw(3, 7), draw(5, 7), draw(5, 2), an.gaussian_kernel, 2.3),
        (draw(3, 7), draw(5, 7), draw(5, 2), an.triangular_kernel, 5.3),
        (draw(2, 3, 7), draw(2, 5, 7), draw(2, 5, 11), an.gaussian_kernel, 2.3)
    ])  # fmt: skip
nadaraya_watson.knows(
    ("weights not normalised", lambda Q, K, V, kernel, bandwidth: kernel(Q, K, bandwidth) @ V,
     "You sum the values with raw weights. Where many keys are near the sum grows with their number; an average needs "
     "each row of weights divided by its sum."),
    ("NaN in an empty window",
     lambda Q, K, V, kernel, bandwidth: (w := kernel(Q, K, bandwidth)) / w.sum(-1, keepdims=True) @ V,
     "Where no key is within reach all weights are 0, and 0/0 is NaN. The output of an empty window is 0: divide by 1 "
     "there."),
    ("bandwidth used twice",
     lambda Q, K, V, kernel, bandwidth: an.normalize(kernel(Q / bandwidth, K / bandwidth, bandwidth)) @ V,
     "You divide by the bandwidth, and the kernel does so once more. Hand queries and keys over as they are."),
    ("softmax of the weights", lambda Q, K, V, kernel, bandwidth: an.softmax(kernel(Q, K, bandwidth)) @ V,
     "You take softmax of what the kernel gives. These are weights, not scores, and even a weight of 0 would get its "
     "share. Divide by their sum."),
    ("divided by the number of keys", lambda Q, K, V, kernel, bandwidth: kernel(Q, K, bandwidth) @ V / K.shape[-2],
     "You divide by the number of keys. An average with weights is divided by the sum of the weights, for each query "
     "its own."),
    ("normalised over queries", lambda Q, K, V, kernel, bandwidth: an.normalize(kernel(Q, K, bandwidth).mT).mT @ V,
     "Your columns of weights sum to 1. A query shares out its weight over the keys: normalise over axis −1."),
)  # fmt: skip

neighbour_weights = Exercise(1,
    "neighbour_weights(q, K, k): 1/k for each of the k nearest keys, 0 for the rest, no two equally far; (1, d), (m, "
    "d) → (1, m)",
    lambda q, K, k: (distance(q, K).argsort().argsort() < k) / k, lambda draw: [
        (column(1), column(0, 3, 7), 1), (column(1), column(0, 3, 7), 2), (draw(1, 2), draw(5, 2), 3),
        (draw(1, 7), draw(11, 7), 5)
    ])  # fmt: skip


def nearer(closeness: Callable[[Array], Array]) -> Function:
    def wrong(q: Array, K: Array, k: int) -> Array:
        r = distance(q, K)
        w = np.where(r.argsort().argsort() < k, closeness(r), 0)
        return w / w.sum()

    return wrong


neighbour_weights.knows(
    ("nearer keys get more", [nearer(f) for f in (lambda r: 1 / r, lambda r: 1 / (1 + r), lambda r: np.exp(-r))],
     "The right keys, but the nearer ones get more. Each of the k has the same weight, 1/k."),
    ("the farthest keys", lambda q, K, k: ((-distance(q, K)).argsort().argsort() < k) / k,
     "You chose the k keys that are farthest. argsort puts the smallest first: sort the distances, or *minus* the "
     "scores."),
    ("ranks mistaken for keys", lambda q, K, k: (distance(q, K).argsort() < k) / k,
     "argsort returns which key comes first, second, and so on; you read it as the rank of each key. Write to "
     "weights[0, order[:k]]."),
)  # fmt: skip
