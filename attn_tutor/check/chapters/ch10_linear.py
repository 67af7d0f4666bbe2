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


causal_linear_attention = Exercise(
    10,
    "causal_linear_attention(Q, K, V): the weight of key j for query i is φ(qᵢ) · φ(kⱼ) divided by the sum of these "
    "over j ≤ i, with φ(x) = elu(x) + 1; (n, d), (n, d), (n, d_v) → (n, d_v)",
    _linear_attention,
    lambda draw: [
        (column(1), column(5), column(4)),
        (column(1, 2), column(1, 3), column(3, 6)),
        (draw(3, 5), draw(3, 5), draw(3, 2)),
        (3 * draw(7, 2), 3 * draw(7, 2), draw(7, 5)),
    ],
)


def sum_over_all_keys_below_the_line(Q: Array, K: Array, V: Array) -> Array:
    kernel = phi(Q) @ phi(K).T
    return np.tril(kernel) @ V / kernel.sum(-1, keepdims=True)


def divided_by_the_number_of_keys(Q: Array, K: Array, V: Array) -> Array:
    seen = np.arange(1, len(Q) + 1)[:, None]
    return np.tril(phi(Q) @ phi(K).T) @ V / seen


def softmax(Q: Array, K: Array, V: Array) -> Array:
    S = Q @ K.T
    return averages(np.tril(np.exp(S - S.max(-1, keepdims=True))), V)


def softmax_of_scaled_scores(Q: Array, K: Array, V: Array) -> Array:
    S = Q @ K.T / np.sqrt(Q.shape[-1])
    return averages(np.tril(np.exp(S - S.max(-1, keepdims=True))), V)


causal_linear_attention.knows(
    ("not causal", lambda Q, K, V: averages(phi(Q) @ phi(K).T, V),
     "Each query reads the whole text, the future too. Add key i to the sums, then answer query i, then go on."),
    ("the sum over all keys below the line", sum_over_all_keys_below_the_line,
     "You divide by the sum over all keys, those of the future too, so that the weights of early queries add up to "
     "less than 1. The total grows along with the pooled values: j ≤ i in both."),
    ("not divided", lambda Q, K, V: np.tril(phi(Q) @ phi(K).T) @ V,
     "You return the pooled values alone. The weights must add up to 1: divide by φ(qᵢ) · Σ φ(kⱼ)."),
    ("divided by the number of keys", divided_by_the_number_of_keys,
     "You divide by how many keys there are. Divide by the sum of their kernel values, φ(qᵢ) · Σ φ(kⱼ)."),
    ("no φ for the queries", lambda Q, K, V: averages(np.tril(Q @ phi(K).T), V),
     "You leave φ out at the queries. Then a weight can be negative, and the sum below the line can be 0."),
    ("no φ for the keys", lambda Q, K, V: averages(np.tril(phi(Q) @ K.T), V),
     "You leave φ out at the keys. Then a weight can be negative, and the sum below the line can be 0."),
    ("elu without the 1", lambda Q, K, V: averages(np.tril((phi(Q) - 1) @ (phi(K) - 1).T), V),
     "Your φ is elu itself, which goes down to −1. It is elu(x) + 1, which is always above 0."),
    ("relu in place of elu", lambda Q, K, V: averages(np.tril((np.maximum(Q, 0) + 1) @ (np.maximum(K, 0) + 1).T), V),
     "Your φ is max(0, x) + 1, which is 1 for all x below 0. elu(x) + 1 is eˣ there, and tells them apart."),
    ("softmax", softmax,
     "This is softmax of the dot products. Its exponential of a score is what linear attention replaces by φ(qᵢ) · "
     "φ(kⱼ)."),
    ("softmax of scaled scores", softmax_of_scaled_scores,
     "This is softmax attention. Its exponential of a score is what linear attention replaces by φ(qᵢ) · φ(kⱼ), and no "
     "scale is asked for."),
)  # fmt: skip
