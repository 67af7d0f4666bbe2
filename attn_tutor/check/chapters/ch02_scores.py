"""Chapter 2: scoring functions, their temperature, and their disguises."""

from collections.abc import Callable
from typing import Any

import numpy as np

import attn_tutor.numpy as an
from attn_tutor.check.chapters.ch01_pooling import distance, distances
from attn_tutor.check.chapters.inputs import LN3, Array, column, numbers, weights_of
from attn_tutor.check.compare import Function
from attn_tutor.check.exercise import Exercise, Row

draw = numbers(2)

scaled_dot_score = Exercise(2, "scaled_dot_score(Q, K): QKᵀ/√d; (…, n, d), (…, m, d) → (…, n, m)",
    an.scaled_dot_score, lambda draw: [
        (np.ones((1, 4)), np.array([[1.0, 2, 3, 4], [0, 0, 0, 2]])), (draw(3, 7), draw(5, 7)),
        (draw(3, 7).astype(np.float32), draw(5, 7).astype(np.float32)), (draw(2, 3, 7), draw(2, 5, 7))
    ])  # fmt: skip


def cosines(Q: Array, K: Array) -> Array:
    lengths = (
        np.linalg.norm(Q, axis=-1)[..., None],
        np.linalg.norm(K, axis=-1)[..., None],
    )
    return (Q / lengths[0]) @ (K / lengths[1]).mT


scaled_dot_score.knows(
    ("no √d", lambda Q, K: Q @ K.mT,
     "Your scores are QKᵀ. Their spread grows as √d, and softmax saturates: divide by √d."),
    ("d in place of √d", lambda Q, K: Q @ K.mT / Q.shape[-1],
     "You divide by d. The variance of a dot product is d, so its spread is √d; divided by d the scores shrink towards "
     "0 as d grows, and all weights become equal."),
    ("√ of the number of queries", lambda Q, K: Q @ K.mT / Q.shape[-2] ** 0.5,
     "You divide by √n, n the number of queries. What makes dot products large is the width of the vectors: "
     "Q.shape[-1], not their number, Q.shape[-2]."),
    ("cosines", cosines,
     "You divide each vector by its own length: these are cosines, between −1 and 1. Here lengths count, and the "
     "divisor is the same for all, √d."),
    ("softmax included", lambda Q, K: weights_of(Q @ K.mT / Q.shape[-1] ** 0.5),
     "Your rows sum to 1: you return weights. The score is what goes into softmax; stop one step earlier."),
    ("keys by queries", lambda Q, K: K @ Q.mT / Q.shape[-1] ** 0.5,
     "Your rows are keys and your columns are queries. Rows are queries: Q Kᵀ, not K Qᵀ."),
)  # fmt: skip

bilinear_score = Exercise(2, "bilinear_score(Q, K, M): QMKᵀ; (…, n, q), (…, m, k), (q, k) → (…, n, m)",
    an.bilinear_score, lambda draw: [
        (np.array([[1.0, 2]]), np.array([[3.0, 4]]), np.array([[0.0, 1], [0, 0]])),
        (draw(3, 7), draw(5, 7), draw(7, 7) / 7), (draw(3, 7), draw(5, 11), draw(7, 11) / 7),
        (draw(2, 3, 7), draw(2, 5, 11), draw(7, 11) / 7)
    ])  # fmt: skip
bilinear_score.knows(
    ("Mᵀ in place of M", lambda Q, K, M: Q @ M.T @ K.mT,
     "Your scores are QMᵀKᵀ. M leads from the space of queries, its rows, to that of keys, its columns: Q M Kᵀ. With a "
     "square M only the numbers tell the two apart."),
    ("divided by √d", lambda Q, K, M: Q @ M @ K.mT / K.shape[-1] ** 0.5,
     "You divide by √d. The bilinear score has no such factor: M is learnt, and finds the scale by itself."),
    ("keys by queries", lambda Q, K, M: (Q @ M @ K.mT).mT,
     "Your rows are keys and your columns are queries. Rows are queries: swap the last two axes, Q M Kᵀ."),
)  # fmt: skip

ONE = np.array([[1.0]])

ADDITIVE = [
    (ONE, column(-1, 1), ONE, ONE, np.array([2.0])),
    (draw(3, 5), draw(7, 2), draw(5, 11) / 2, draw(2, 11), draw(11)),
]

additive_score = Exercise(2, "additive_score(Q, K, W_q, W_k, w_v): w_v · tanh(q W_q + k W_k); "
    "(…, n, q), (…, m, k), (q, h), (k, h), (h,) → (…, n, m)",
    an.additive_score, lambda draw: [
        *ADDITIVE, (draw(2, 3, 5), draw(2, 7, 2), draw(5, 11) / 2, draw(2, 11), draw(11))
    ])  # fmt: skip

additive_by_query = Exercise(2, "additive_by_query(Q, K, W_q, W_k, w_v): additive scores, one query at a time; "
    "(n, q), (m, k), (q, h), (k, h), (h,) → (n, m)",
    an.additive_score, ADDITIVE)  # fmt: skip


def pairs(Q: Array, K: Array, W_q: Array, W_k: Array) -> Array:
    """What goes into tanh, (…, n, m, h)."""
    return (Q @ W_q)[..., :, None, :] + (K @ W_k)[..., None, :, :]


def curved(curve: Callable[[Array], Array]) -> Function:
    return lambda Q, K, W_q, W_k, w_v: curve(pairs(Q, K, W_q, W_k)) @ w_v


OF_BOTH: list[Row] = [
    ("another function than tanh", [curved(f) for f in (lambda z: z.clip(0), lambda z: 1 / (1 + np.exp(-z)), np.sin)],
     "You bend the hidden numbers with another function than tanh. It is tanh that is asked for, between −1 and 1."),
    ("w_v inside tanh", lambda Q, K, W_q, W_k, w_v: np.tanh(pairs(Q, K, W_q, W_k) * w_v).sum(-1),
     "You multiply by w_v before tanh. It weighs what comes out of tanh: tanh(…) @ w_v."),
    ("averaged in place of summed", lambda Q, K, W_q, W_k, w_v: np.tanh(pairs(Q, K, W_q, W_k)) @ w_v / len(w_v),
     "You take the mean over the hidden features. w_v sums them."),
    ("a column for each query", lambda Q, K, W_q, W_k, w_v: (np.tanh(pairs(Q, K, W_q, W_k)) @ w_v).mT,
     "Your rows are keys and your columns are queries. Rows are queries: (n, m)."),
]  # fmt: skip
additive_by_query.knows(*OF_BOTH)
additive_score.knows(*OF_BOTH)


gaussian_score = Exercise(2,
    "gaussian_score(Q, K, bandwidth): −‖q − k‖²/(2 bandwidth²); (…, n, d), (…, m, d) → (…, n, m)",
    an.gaussian_score, lambda draw: [
        (column(0), column(1, 4), 2.0), (np.array([[0.0, 0.0]]), np.array([[3.0, 4.0]]), 1.0),
        (draw(3, 7), draw(5, 7), 1.7), (draw(3, 7).astype(np.float32), draw(5, 7).astype(np.float32), 1.7),
        (draw(2, 3, 7), draw(2, 5, 7), 1.7)
    ])  # fmt: skip
gaussian_score.knows(*distances(lambda r, h: -((r / h) ** 2) / 2))

gaussian_score.knows(
    ("without the ½", lambda Q, K, bandwidth: -((distance(Q, K) / bandwidth) ** 2),
     "Your scores are twice what they should be: the exponent of the Gaussian is −u²/2."),
    ("bandwidth not squared", lambda Q, K, bandwidth: -(distance(Q, K) ** 2) / (2 * bandwidth),
     "You divide by 2σ. The distance is measured in bandwidths *before* it is squared: divide by 2σ²."),
)  # fmt: skip


def mean_entropy(scores: Array) -> float:
    A = weights_of(scores)
    return float(-(A * np.log(np.maximum(A, 1e-300))).sum(-1).mean())


def temperature(scores: Array, entropy: float) -> float:
    low, high = np.log(1e-4), np.log(1e7)
    for _ in range(80):
        middle = (low + high) / 2
        too_low = mean_entropy(scores / np.exp(middle)) < entropy
        low, high = (middle, high) if too_low else (low, middle)
    return float(np.exp(low))


find_temperature = Exercise(
    2,
    "find_temperature(scores, entropy): the T, to a thousandth, at which softmax(scores / T) has this mean entropy "
    "over the rows; (n, m) → a number",
    temperature,
    lambda draw: [
        (np.array([[2 * LN3, 0.0]]), 2 * np.log(2) - 0.75 * LN3),  # weights ¾, ¼
        (4 * draw(3, 5), 0.7),
        (9 * draw(7, 11), 1.3),
    ],
    tolerance=1e-3,
)

find_temperature.knows(
    ("1/T", lambda scores, entropy: 1 / temperature(scores, entropy),
     "You return 1/T: the scores are divided by T, not multiplied."),
    ("entropy in bits", lambda scores, entropy: temperature(scores, entropy * np.log(2)),
     "You measure entropy with log2, in bits. Here it is in nats: use the natural logarithm."),
    ("the sum of the entropies", lambda scores, entropy: temperature(scores, entropy / len(scores)),
     "You add up the entropies of the rows. It is their *mean* that has the given value."),
)  # fmt: skip


def dot_products(wide: tuple[Array, Array]) -> Array:
    """the dot products of the wide queries and keys"""
    return wide[0] @ wide[1].mT


def widened(Q: Array, K: Array, bandwidth: float) -> Any:
    Q, K = Q / bandwidth, K / bandwidth
    q2, k2 = ((X**2).sum(-1, keepdims=True) / -2 for X in (Q, K))
    wide_Q = np.concatenate([Q, np.ones_like(q2), q2], -1)
    return wide_Q, np.concatenate([K, k2, np.ones_like(k2)], -1)


widen = Exercise(2, "widen(Q, K, bandwidth): wider queries and keys whose dot products are the Gaussian scores; "
    "(n, d), (m, d) → (n, D), (m, D)",
    widened, lambda draw: [
        (column(1), column(0, 2), 1.0), (column(2), column(0, 4), 2.0), (draw(3, 7), draw(5, 7), 0.5)
    ], reads=dot_products)  # fmt: skip


def ones_on_one_side(Q: Array, K: Array, bandwidth: float) -> tuple[Array, Array]:
    wide_Q, wide_K = widened(Q, K, bandwidth)
    d = Q.shape[-1]
    return wide_Q, wide_K[..., [*range(d), d + 1, d]]


def without_the_12(Q: Array, K: Array, bandwidth: float) -> tuple[Array, Array]:
    wide_Q, wide_K = widened(Q, K, bandwidth)
    wide_Q[..., -1] *= 2
    wide_K[..., -2] *= 2
    return wide_Q, wide_K


widen.knows(
    ("‖q‖² missing",
     lambda Q, K, bandwidth: (lambda wide_Q, wide_K: (wide_Q[..., :-1], wide_K[..., :-1]))(*widened(Q, K, bandwidth)),
     "The products lack −‖q‖²/2σ². Softmax would drop it, as it is the same for every key, but here the scores must be "
     "exact: one more entry, −‖q‖²/2σ² in the query and 1 in the key."),
    ("the ones on one side", ones_on_one_side,
     "Your norms meet each other, and your ones meet each other: the products hold ‖q‖²‖k‖² and 1 · 1. Each norm needs "
     "a 1 as its partner: (‖q‖², 1) in the query, (1, ‖k‖²) in the key."),
    ("divided by √bandwidth", lambda Q, K, bandwidth: widened(Q, K, bandwidth**0.5),
     "Your products are divided by the bandwidth once. The square of the distance is divided by its square: divide "
     "queries and keys each by the bandwidth itself, not by its root."),
    ("without the ½", without_the_12,
     "Your norms enter as −‖q‖² and −‖k‖². The square is ‖q‖² − 2q·k + ‖k‖²: halved, the product is q·k and the norms "
     "are −½‖q‖² and −½‖k‖²."),
)  # fmt: skip


def any_order(products: Array) -> Array:
    """the entries of each row, sorted (the order of the products is free)"""
    return np.sort(products, -1)


def with_all(K: Array) -> Array:
    a, b = np.triu_indices(K.shape[-1])
    return np.concatenate([K, K[..., a] * K[..., b]], -1)


with_products = Exercise(2,
    "with_products(K): keys with all products of two of their entries a ≤ b appended, in any order; (…, m, d) → (…, m, "
    "d + d(d+1)/2)",
    with_all, lambda draw: [(np.array([[2.0, 3.0]]),), (draw(5, 3),), (draw(2, 5, 6),)], reads=any_order)  # fmt: skip


with_products.knows(
    ("no squares",
     lambda K: np.concatenate([K, (K[..., None] * K[..., None, :])[..., *np.triu_indices(K.shape[-1], 1)]], -1),
     "The products of an entry with itself are missing: a ≤ b includes a = b. Without squares there is no ‖z‖²."),
    ("each product twice",
     lambda K: np.concatenate([K, (K[..., :, None] * K[..., None, :]).reshape(*K.shape[:-1], -1)], -1),
     "You append d² products, those with a < b twice. One of each is enough: a ≤ b."),
    ("squares alone", lambda K: np.concatenate([K, K**2], -1),
     "You append squares only. ‖z‖² of a linear z = kA needs the mixed products too."),
)  # fmt: skip
