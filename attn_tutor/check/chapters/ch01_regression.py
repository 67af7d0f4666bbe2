"""Chapter 1: a straight line around each query."""

import numpy as np

import attn_tutor.numpy as an
from attn_tutor.check.chapters.inputs import Array, column, numbers
from attn_tutor.check.exercise import Exercise

draw = numbers(11)


def line_weights(w: Array, X: Array, row: int = 0) -> Array:
    """A row of (XᵀWX)⁻¹XᵀW, for weights w, (1, m), on the diagonal of W."""
    XtW = X.T * w
    return (np.linalg.inv(XtW @ X) @ XtW)[[row]]


def with_ones(K: Array) -> Array:
    return np.concatenate([np.ones((len(K), 1), K.dtype), K], axis=-1)


local_line_weights = Exercise(1,
    "local_line_weights(q, K, bandwidth): weights by which a straight line, fitted around the query with Gaussian "
    "kernel weights, averages the values at the query; (1, d), (m, d) → (1, m)",
    lambda q, K, bandwidth: line_weights(an.gaussian_kernel(q, K, bandwidth), with_ones(K - q)),
    lambda draw: [
        (column(1), column(0, 1, 2, 4), 1.0), (column(9), column(0, 1, 2, 4), 5.0), (draw(1, 2), draw(7, 2), 1.5),
        (draw(1, 3), draw(11, 3), 2.3)
    ])  # fmt: skip
local_line_weights.knows(
    ("every key counts alike", lambda q, K, bandwidth: line_weights(np.ones((1, len(K))), with_ones(K - q)),
     "You fit one straight line to all keys. Around the query, key j counts with its kernel weight: XᵀWX, not XᵀX."),
    ("read off at the origin", lambda q, K, bandwidth: line_weights(an.gaussian_kernel(q, K, bandwidth), with_ones(K)),
     "The line is right, but you read it off at the key 0. Measure the keys from the query, K − q, or multiply by [1, "
     "q]."),
)  # fmt: skip
