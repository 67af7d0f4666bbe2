"""Chapter 10, second part: attention with a state of fixed size."""

import numpy as np

from attn_tutor.check.chapters.inputs import Array, column, numbers
from attn_tutor.check.exercise import Exercise

draw = numbers(101)


def phi(x: Array) -> Array:
    """elu(x) + 1."""
    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))


def averages(kernel: Array, V: Array) -> Array:
    return kernel @ V / kernel.sum(-1, keepdims=True)


def _linear_attention(Q: Array, K: Array, V: Array) -> Array:
    return averages(np.tril(phi(Q) @ phi(K).T), V)


causal_linear_attention = Exercise(10,
    "causal_linear_attention(Q, K, V): the weight of key j for query i is φ(qᵢ) · φ(kⱼ) divided by the sum of these "
    "over j ≤ i, with φ(x) = elu(x) + 1; (n, d), (n, d), (n, d_v) → (n, d_v)",
    _linear_attention, lambda draw: [
        (column(1), column(5), column(4)), (column(1, 2), column(1, 3), column(3, 6)),
        (draw(3, 5), draw(3, 5), draw(3, 2)), (3 * draw(7, 2), 3 * draw(7, 2), draw(7, 5))
    ])  # fmt: skip
causal_linear_attention.knows(
    ("not causal", lambda Q, K, V: averages(phi(Q) @ phi(K).T, V),
     "Each query reads the whole text, the future too. Add key i to the sums, then answer query i, then go on."),
    ("elu without the 1", lambda Q, K, V: averages(np.tril((phi(Q) - 1) @ (phi(K) - 1).T), V),
     "Your φ is elu itself, which goes down to −1. It is elu(x) + 1, which is always above 0."),
    ("relu in place of elu", lambda Q, K, V: averages(np.tril((np.maximum(Q, 0) + 1) @ (np.maximum(K, 0) + 1).T), V),
     "Your φ is max(0, x) + 1, which is 1 for all x below 0. elu(x) + 1 is eˣ there, and tells them apart."),
)  # fmt: skip
