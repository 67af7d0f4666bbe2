"""Arrays to try functions on: every axis another prime, entries of order 1."""

from collections.abc import Callable

import numpy as np

from attn_tutor.check.exercise import Function, Row

Array = np.ndarray
LN3 = np.log(3.0)


def numbers(seed: int) -> Callable[..., Array]:
    """Standard normal numbers of a given shape, the same at every import."""
    rng = np.random.default_rng(seed)
    return lambda *shape: rng.normal(size=shape)


def column(*entries: float) -> Array:
    """Points on a line, a row for each."""
    return np.array(entries, dtype=float)[:, None]


def named(name: str, fn: Function) -> Function:
    """A function that is an argument of a case, as it is shown there."""
    fn.__name__ = name
    return fn


def weights_of(scores: Array, axis: int = -1) -> Array:
    """Softmax, for wrong functions whose mistake lies elsewhere."""
    e = np.exp(scores - scores.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def pool(Q: Array, K: Array, V: Array, *, width: Function = lambda Q, K, V: Q.shape[-1], late: bool = False,
         axis: int = -1, turn: bool = False, scores_only: bool = False,
         hide: Function = lambda scores: scores) -> Array:  # fmt: skip
    """softmax(QKᵀ/√width) V, with what people get wrong in it as options."""
    scores = hide(Q @ K.mT / (1 if late else width(Q, K, V) ** 0.5))
    if scores_only:
        return scores @ V
    weights = weights_of(scores, axis)
    weights = weights.mT if turn else weights
    return (weights / Q.shape[-1] ** 0.5 if late else weights) @ V


POOLING: list[Row] = [  # what people get wrong in pooling
    ("no √d", dict(width=lambda Q, K, V: 1),
     "Your scores are not divided by √d, the root of the keys' width: weights are too sharp. Divide before softmax."),
    ("d in place of √d", dict(width=lambda Q, K, V: Q.shape[-1] ** 2),
     "You divide the scores by d. The spread of a dot product is √d; divided by d, all weights become equal."),
    ("√ of the values' width", dict(width=lambda Q, K, V: V.shape[-1]),
     "You divide by the root of the values' width. The dot product runs over queries and keys: √d_k, their width."),
    ("√ of the number of keys", dict(width=lambda Q, K, V: K.shape[-2]),
     "You divide by √m, m the number of keys. Dot products grow with the width of the vectors: K.shape[-1]."),
    ("divided by √d after softmax", dict(late=True),
     "You divide by √d after the softmax, so that rows of weights sum to 1/√d. Divide the scores, before softmax."),
    ("softmax over queries", dict(axis=-2),
     "Your columns of weights sum to 1, not your rows: softmax runs over keys, the last axis of the scores."),
    ("no softmax", dict(scores_only=True),
     "You multiply the scores by the values. Softmax stands between: it makes weights of each row, which sum to 1."),
    ("weights transposed", dict(turn=True),
     "You multiply the transpose of the weights by the values. Row i of them belongs to query i: weights @ V."),
]  # fmt: skip


def pooling(*names: str) -> list[Row]:
    return [row for row in POOLING if not names or row[0] in names]
