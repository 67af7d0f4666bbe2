"""Arrays to try functions on: every axis another prime, entries of order 1."""

from collections.abc import Callable
from typing import Any

import numpy as np

from attn_tutor.check.exercise import Row

Array = np.ndarray
LN3 = np.log(3.0)


def numbers(seed: int) -> Callable[..., Array]:
    """Standard normal numbers of a given shape, the same at every import."""
    rng = np.random.default_rng(seed)
    return lambda *shape: rng.normal(size=shape)


def column(*entries: float) -> Array:
    """Points on a line, a row for each."""
    return np.array(entries, dtype=float)[:, None]


def weights_of(scores: Array, axis: int = -1) -> Array:
    """Softmax, for wrong functions whose mistake lies elsewhere."""
    e = np.exp(scores - scores.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


Width = Callable[[Array, Array, Array], float]


def pool(Q: Array, K: Array, V: Array, *, width: Width = lambda Q, K, V: Q.shape[-1], late: bool = False,
         axis: int = -1, maximum: bool = True, turn: bool = False, scores_only: bool = False,
         hide: Callable[[Array], Array] = lambda scores: scores) -> Array:  # fmt: skip
    """softmax(QKᵀ/√width) V, with what people get wrong in it as options."""
    scores = hide(Q @ K.mT / (1 if late else width(Q, K, V) ** 0.5))
    if scores_only:
        return scores @ V
    e = np.exp(scores - scores.max(axis, keepdims=True) if maximum else scores)
    weights = e / e.sum(axis, keepdims=True)
    weights = weights.mT if turn else weights
    return (weights / Q.shape[-1] ** 0.5 if late else weights) @ V


POOLING: dict[
    str, tuple[dict[str, Any], str]
] = {  # option: its wrong values, with name and words
    "no √d": (
        dict(width=lambda Q, K, V: 1),
        "Your scores are not divided by √d, the root of the keys' width: weights are too sharp, and the more so the "
        "wider the vectors.",
    ),
    "d in place of √d": (
        dict(width=lambda Q, K, V: Q.shape[-1] ** 2),
        "You divide the scores by d. The spread of a dot product is √d; divided by d, all weights become equal.",
    ),
    "times √d": (
        dict(width=lambda Q, K, V: 1 / Q.shape[-1]),
        "You multiply the scores by √d, which makes large ones larger. Divide.",
    ),
    "d² in place of √d": (
        dict(width=lambda Q, K, V: Q.shape[-1] ** 4),
        "You divide the scores by d². The spread of a dot product is √d; so small, all weights become equal.",
    ),
    "the fourth root of d": (
        dict(width=lambda Q, K, V: Q.shape[-1] ** 0.5),
        "You divide the scores by the fourth root of d: queries alone, and not keys too, or a root too many. It is √d.",
    ),
    "√ of the values' width": (
        dict(width=lambda Q, K, V: V.shape[-1]),
        "You divide the scores by √d_v, the root of the values' width. The dot product runs over the width of queries "
        "and keys: √d_k.",
    ),
    "√ of the number of keys": (
        dict(width=lambda Q, K, V: K.shape[-2]),
        "You divide the scores by √m, m the number of keys. What makes dot products large is the width of the "
        "vectors, shape[-1], not their number, shape[-2].",
    ),
    "divided by √d after softmax": (
        dict(late=True),
        "You divide by √d after the softmax: your rows of weights sum to 1/√d, and are as sharp as without it. The "
        "scores are divided, before softmax.",
    ),
    "softmax over queries": (
        dict(axis=-2),
        "Your columns of weights sum to 1, not your rows: softmax runs over keys, the last axis of the scores.",
    ),
    "softmax over the first axis": (
        dict(axis=0),
        "Your softmax runs over axis 0: over the queries of one example, and over the sequences of a batch. Keys are "
        "the last axis, whatever stands in front: axis −1.",
    ),
    "softmax over axis 1 of a batch": (
        dict(axis=1),
        "Your softmax runs over axis 1. For one example those are the keys; in a batch (b, n, m) they are the queries. "
        "Count from the end: axis −1.",
    ),
    "no softmax": (
        dict(scores_only=True),
        "You multiply the scores by the values. Softmax stands between: it makes weights of each row of scores, which "
        "sum to 1.",
    ),
    "weights transposed": (
        dict(turn=True),
        "You multiply the transpose of the weights by the values. Row i of the weights belongs to query i: weights @ "
        "V.",
    ),
    "no maximum subtracted": (
        dict(maximum=False),
        "With large scores exp is infinity, and ∞/∞ is NaN; with very negative ones it is 0, and 0/0 is NaN. Subtract "
        "the largest score of each row first.",
    ),
}


def pooling(*names: str) -> list[Row]:
    """What people get wrong in pooling, as rows of a table of mistakes."""
    return [(name, *POOLING[name]) for name in names or POOLING]
