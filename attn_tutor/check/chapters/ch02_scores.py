"""Chapter 2: scoring functions, their temperature, and their disguises."""

from functools import partial
from typing import Any

import numpy as np

import attn_tutor.numpy as an
from attn_tutor.check.chapters.ch01_pooling import DISTANCES, kernel
from attn_tutor.check.chapters.inputs import (
    LN3,
    Array,
    column,
    numbers,
    pool,
    pooling,
    weights_of,
)
from attn_tutor.check.exercise import Exercise, Function, Row

draw = numbers(2)

plain_attention = Exercise(2, "plain_attention(Q, K, V): softmax(QKᵀ/√d_k) V; (…, n, d_k), (…, m, d_k), (…, m, d_v) → "
    "(…, n, d_v)",
    pool, lambda draw: [(column(1), column(LN3, 0), column(4, 8)),  # weights ¾, ¼
        (np.ones((1, 4)), 2 * LN3 * np.eye(4)[:2], 4 * np.eye(2)), (draw(3, 7), draw(5, 7), draw(5, 7)),
        (draw(3, 7).astype(np.float32), draw(5, 7).astype(np.float32), draw(5, 2).astype(np.float32)),
        (draw(3, 7), draw(5, 7), draw(5, 11)), (draw(2, 3, 7), draw(2, 5, 7), draw(2, 5, 11)),
        (column(1, -1), column(1000, 999), column(4, 8))], *pooling(),
    weights=lambda draw: (draw(3, 7), draw(5, 7), np.eye(5)))  # fmt: skip

scaled_dot_score = Exercise(2, "scaled_dot_score(Q, K): QKᵀ/√d; (…, n, d), (…, m, d) → (…, n, m)",
    an.scaled_dot_score, lambda draw: [
        (np.ones((1, 4)), np.array([[1.0, 2, 3, 4], [0, 0, 0, 2]])), (draw(3, 7), draw(5, 7)),
        (draw(3, 7).astype(np.float32), draw(5, 7).astype(np.float32)), (draw(2, 3, 7), draw(2, 5, 7))],
    ("d in place of √d", lambda Q, K: Q @ K.mT / Q.shape[-1],
     "You divide by d. The spread of a dot product is √d: divided by d the scores shrink, and weights become equal."),
    ("√ of the number of queries", lambda Q, K: Q @ K.mT / Q.shape[-2] ** 0.5,
     "You divide by √n, n the number of queries. Dot products grow with the width of the vectors: Q.shape[-1]."),
    ("cosines",
     lambda Q, K: Q / np.linalg.norm(Q, axis=-1)[..., None] @ (K / np.linalg.norm(K, axis=-1)[..., None]).mT,
     "You divide each vector by its length: these are cosines. Lengths count here: divide by √d."))  # fmt: skip

bilinear_score = Exercise(2, "bilinear_score(Q, K, M): QMKᵀ; (…, n, q), (…, m, k), (q, k) → (…, n, m)",
    an.bilinear_score, lambda draw: [(np.array([[1.0, 2]]), np.array([[3.0, 4]]), np.array([[0.0, 1], [0, 0]])),
        (draw(3, 7), draw(5, 7), draw(7, 7) / 7), (draw(3, 7), draw(5, 11), draw(7, 11) / 7),
        (draw(2, 3, 7), draw(2, 5, 11), draw(7, 11) / 7)],
    ("Mᵀ in place of M", lambda Q, K, M: Q @ M.T @ K.mT,
     "Your scores are QMᵀKᵀ. M leads from queries, its rows, to keys, its columns: Q M Kᵀ."))  # fmt: skip

MORE = draw(3, 5), draw(7, 2), draw(5, 11) / 2, draw(2, 11), draw(11)
ADDITIVE = [(column(1), column(-1, 1), column(1), column(1), np.array([2.0])), MORE]


def additive(Q: Array, K: Array, W_q: Array, W_k: Array, w_v: Array, *, curve: Function = np.tanh,
             inside: bool = False) -> Array:  # fmt: skip
    z = (Q @ W_q)[..., :, None, :] + (K @ W_k)[..., None, :, :]
    return np.asarray(curve(z * w_v).sum(-1) if inside else curve(z) @ w_v)


OF_BOTH: list[Row] = [
    ("another function than tanh", [dict(curve=lambda z: z.clip(0)), dict(curve=lambda z: 1 / (1 + np.exp(-z)))],
     "You bend the hidden numbers with another function than tanh. It is tanh that is asked for, between −1 and 1."),
    ("w_v inside tanh", dict(inside=True),
     "You multiply by w_v before tanh. It weighs what comes out of tanh: tanh(…) @ w_v."),
]  # fmt: skip
additive_by_query = Exercise(2, "additive_by_query(Q, K, W_q, W_k, w_v): additive scores, one query at a time; "
    "(n, q), (m, k), (q, h), (k, h), (h,) → (n, m)",
    additive, ADDITIVE, *OF_BOTH)  # fmt: skip
additive_score = Exercise(2, "additive_score(Q, K, W_q, W_k, w_v): w_v · tanh(q W_q + k W_k); "
    "(…, n, q), (…, m, k), (q, h), (k, h), (h,) → (…, n, m)",
    additive, lambda draw: [*ADDITIVE, (draw(2, 3, 5), draw(2, 7, 2), draw(5, 11) / 2, draw(2, 11), draw(11))],
    *OF_BOTH)  # fmt: skip

gaussian_score = Exercise(2,
    "gaussian_score(Q, K, bandwidth): −‖q − k‖²/(2 bandwidth²); (…, n, d), (…, m, d) → (…, n, m)",
    partial(kernel, curve=lambda u: -(u**2) / 2), lambda draw: [
        (column(0), column(1, 4), 2.0), (np.array([[0.0, 0.0]]), np.array([[3.0, 4.0]]), 1.0),
        (draw(3, 7), draw(5, 7), 1.7), (draw(3, 7).astype(np.float32), draw(5, 7).astype(np.float32), 1.7),
        (draw(2, 3, 7), draw(2, 5, 7), 1.7)], *DISTANCES)  # fmt: skip


def temperature(scores: Array, entropy: float) -> float:
    low, high = np.log(1e-4), np.log(1e7)
    for _ in range(80):
        middle = (low + high) / 2
        A = weights_of(scores / np.exp(middle))
        too_low = -(A * np.log(np.maximum(A, 1e-300))).sum(-1).mean() < entropy
        low, high = (middle, high) if too_low else (low, middle)
    return float(np.exp(low))


find_temperature = Exercise(2, "find_temperature(scores, entropy): the T, to a thousandth, at which softmax(scores / "
    "T) has this mean entropy over the rows; (n, m) → a number",
    temperature, lambda draw: [(np.array([[2 * LN3, 0.0]]), 2 * np.log(2) - 0.75 * LN3),  # weights ¾, ¼
        (4 * draw(3, 5), 0.7), (9 * draw(7, 11), 1.3)],
    ("1/T", lambda scores, entropy: 1 / temperature(scores, entropy),
     "You return 1/T: the scores are divided by T, not multiplied."),
    ("entropy in bits", lambda scores, entropy: temperature(scores, entropy * np.log(2)),
     "You measure entropy with log2, in bits. Here it is in nats: use the natural logarithm."),
    ("the sum of the entropies", lambda scores, entropy: temperature(scores, entropy / len(scores)),
     "You add up the entropies of the rows. It is their *mean* that has the given value."),
    tolerance=1e-3)  # fmt: skip


def dot_products(wide: tuple[Array, Array]) -> Array:
    """the dot products of the wide queries and keys"""
    return wide[0] @ wide[1].mT


def widened(Q: Array, K: Array, bandwidth: float, *, half: float = 0.5, crossed: bool = True) -> Any:  # fmt: skip
    Q, K = Q / bandwidth, K / bandwidth
    q2, k2 = (-half * (X**2).sum(-1, keepdims=True) for X in (Q, K))
    more = (np.ones_like(k2), k2) if crossed else (k2, np.ones_like(k2))
    return np.hstack([Q, q2, np.ones_like(q2)]), np.hstack([K, *more])


widen = Exercise(2, "widen(Q, K, bandwidth): wider queries and keys whose dot products are the Gaussian scores; "
    "(n, d), (m, d) → (n, D), (m, D)",
    widened, lambda draw: [
        (column(1), column(0, 2), 1.0), (column(2), column(0, 4), 2.0), (draw(3, 7), draw(5, 7), 0.5)],
    ("the ones on one side", dict(crossed=False),
     "Your norms meet each other, and so do your ones. Each norm needs a 1 as its partner: (‖q‖², 1) and (1, ‖k‖²)."),
    ("without the ½", dict(half=1),
     "Your norms enter as −‖q‖² and −‖k‖². Half of ‖q‖² − 2q·k + ‖k‖² has the norms ½‖q‖² and ½‖k‖²."),
    reads=dot_products)  # fmt: skip


def any_order(products: Array) -> Array:
    """the entries of each row, sorted (the order of the products is free)"""
    return np.sort(products, -1)


def with_all(K: Array, *, pairs: Function = np.triu_indices) -> Array:
    a, b = pairs(K.shape[-1])
    return np.concatenate([K, K[..., a] * K[..., b]], -1)


with_products = Exercise(2, "with_products(K): keys with all products of two of their entries a ≤ b appended, in any "
    "order; (…, m, d) → (…, m, d + d(d+1)/2)",
    with_all, lambda draw: [(np.array([[2.0, 3.0]]),), (draw(5, 3),), (draw(2, 5, 6),)],
    ("no squares", dict(pairs=lambda d: np.triu_indices(d, 1)),
     "The products of an entry with itself are missing: a ≤ b includes a = b. Without squares there is no ‖z‖²."),
    ("each product twice", dict(pairs=lambda d: np.indices((d, d)).reshape(2, -1)),
     "You append d² products, those with a < b twice. One of each is enough: a ≤ b."),
    ("squares alone", dict(pairs=np.diag_indices),
     "You append squares only. ‖z‖² of a linear z = kA needs the mixed products too."),
    reads=any_order)  # fmt: skip
