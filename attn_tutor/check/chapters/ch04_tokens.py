"""Chapter 4: attention as a whole, and a sequence that attends to itself."""

from collections.abc import Callable
from typing import Any

import numpy as np

import attn_tutor.numpy as an
from attn_tutor.check.chapters.inputs import (
    LN3,
    Array,
    column,
    numbers,
    pool,
    pooling,
    weights_of,
)
from attn_tutor.check.exercise import Exercise

draw = numbers(4)
Layer = Callable[[Array], Array]
ALLOWED = draw(2, 3, 5) < 0.5
ALLOWED[0, 0] = False  # a query that sees nothing


attention = Exercise(4,
    "attention(Q, K, V, mask): masked_softmax(QKᵀ/√d, mask) V, True = may attend, 0 for a query that sees nothing; "
    "(…, n, d), (…, m, d), (…, m, d_v), (…, n, m) → (…, n, d_v)",
    an.attention, lambda draw: [
        (column(1), column(LN3, 0), column(4, 8), np.array([[True, True]])),
        (column(1), column(LN3, 0, 0), column(4, 8, 5), np.array([[True, True, False]])),
        (np.ones((1, 4)), np.eye(4)[:2], np.eye(4)[:2], np.array([[True, True]])),
        (column(1), column(LN3, 0), column(4, 8), np.array([[False, False]])),
        (draw(3, 7), draw(5, 7), draw(5, 7), ALLOWED[1]), (draw(3, 7), draw(5, 7), draw(5, 11), ALLOWED[0]),
        (draw(2, 3, 7), draw(2, 5, 7), draw(2, 5, 11), ALLOWED),
        (column(1, -1), column(1000, 999), column(4, 8), np.ones((2, 2), bool))
    ], weights=lambda draw: (draw(3, 7), draw(5, 7), np.eye(5), ALLOWED[1]))  # fmt: skip


def masked(Q: Array, K: Array, V: Array, mask: Array, *, hide: Callable[[Array, Array], Array] = lambda S,
           mask: np.where(mask, S, -np.inf), empty: bool = True, **options: Any) -> Array:  # fmt: skip
    """Attention as one writes it: hide scores, pool, put empty rows to 0."""
    output = pool(Q, K, V, hide=lambda S: hide(S, mask), **options)
    return np.where(mask.any(-1, keepdims=True), output, 0) if empty else output


def hidden(hide: Callable[[Array, Array], Array]) -> list[dict[str, Any]]:
    """A way to hide scores, by who looks after an empty row and by who does not."""
    return [dict(hide=hide), dict(hide=hide, empty=False)]


attention.knows(
    *pooling(),
    ("inverted mask", hidden(lambda S, mask: np.where(mask, -1e9, S)),
     "Your queries see the forbidden keys, and those alone. True means “may attend” here, so that the large negative "
     "number goes where the mask is False, ~mask."),
    ("mask ignored", hidden(lambda S, mask: S), "Forbidden keys have their share in the output: the mask is not used."),
    ("mask added as numbers", hidden(lambda S, mask: S + mask),
     "You add the mask to the scores as 0 and 1: forbidden keys keep their weight, permitted ones get e times as much. "
     "(scaled_dot_product_attention adds a mask of floats, and hides by a boolean one.) Put −∞ where it is False."),
    ("score set to 0", hidden(lambda S, mask: S * mask),
     "You set forbidden scores to 0, and exp(0) is 1: the key still gets weight. Put −∞ in its place."),
    ("NaN for a query that sees nothing", dict(empty=False),
     "This is the line of the textbooks. Where nothing is permitted all scores are −∞, and softmax makes NaN of them: "
     "such a query gets 0."),
    ("a large negative number for −∞", dict(hide=lambda S, mask: np.where(mask, S, -1e9), empty=False),
     "You put a number such as −1e9 in place of forbidden scores. A query that sees nothing then averages all "
     "forbidden values alike. Its output must be 0."),
    ("inverted mask", lambda Q, K, V, mask: an.attention(Q, K, V, ~mask),
     "Your queries see the forbidden keys, and those alone. True means “may attend” here, as for a boolean mask of "
     "scaled_dot_product_attention: hand over the mask, not ~mask."),
    ("all values averaged for a query that sees nothing",
     lambda Q, K, V, mask: np.where(mask.any(-1, keepdims=True), an.attention(Q, K, V, mask), an.attention(Q, K, V)),
     "A query that sees nothing gets an average of forbidden values, as if the mask were lifted for it. Its output "
     "must be 0."),
    ("K used for V", lambda Q, K, V, mask: an.attention(Q, K, K, mask),
     "You sum the keys, not the values. Keys say where to look; what is handed over are the values: weights @ V."),
    ("value zeroed, score not masked", lambda Q, K, V, mask: weights_of(an.scaled_dot_score(Q, K)) * mask @ V,
     "You multiply the weights by the mask after softmax: forbidden keys had their share in the sum, so the output "
     "shrinks towards 0. Mask the scores *before* softmax."),
    by_hand=masked,
)  # fmt: skip

EYE = np.eye(2)

self_attention = Exercise(4,
    "self_attention(X, W_q, W_k, W_v): softmax(QKᵀ/√d_k) V with Q = X W_q, K = X W_k, V = X W_v; "
    "(…, n, d_in), (d_in, d_k), (d_in, d_k), (d_in, d_v) → (…, n, d_v)",
    an.self_attention, lambda draw: [
        (EYE, EYE, np.array([[1.0, 2], [0, 0]]), np.array([[4.0, 0], [0, 8]])), (draw(3, 7), *draw(3, 7, 7) / 7**0.5),
        (draw(3, 7), *draw(2, 7, 5) / 2, draw(7, 2)), (draw(2, 3, 7), *draw(2, 7, 5) / 2, draw(7, 11)),
        (1e3 * EYE, EYE, EYE, np.array([[4.0, 0], [0, 8]])),
        (column(1000, 999), column(1), column(-1e-3), column(0.004))
    ], weights=lambda draw: (np.eye(5), *draw(2, 5, 3), np.eye(5)))  # fmt: skip


def projected(X: Array, W_q: Array, W_k: Array, W_v: Array, *, project: Callable[[Array, Array], Array] = np.matmul,
              **options: Any) -> Array:  # fmt: skip
    return pool(*(project(X, W) for W in (W_q, W_k, W_v)), **options)


self_attention.knows(
    *pooling(),
    ("W.T in place of W", dict(project=lambda X, W: X @ W.T),
     "You multiply by W.T. A linear layer of torch stores its matrix transposed and computes X @ W.T; here W_q has the "
     "shape (d_in, d_k): X @ W_q. With square matrices only the numbers tell."),
    ("a causal mask", dict(hide=lambda S: np.where(np.tri(S.shape[-1], dtype=bool), S, -np.inf)),
     "You hide later tokens from each token. No mask is asked for here: every token sees all."),
    ("a token does not see itself", dict(hide=lambda S: np.where(np.eye(S.shape[-1], dtype=bool), -np.inf, S)),
     "You hide each token from itself, the diagonal of the scores. Every token sees all, itself too."),
    ("the weights returned", lambda X, W_q, W_k, W_v: an.attention_weights(X @ W_q, X @ W_k),
     "You return the weights. They are to be multiplied by the values, X W_v."),
    ("tokens used for V", lambda X, W_q, W_k, W_v: an.attention(X @ W_q, X @ W_k, X),
     "You sum the tokens themselves. Values are projected like queries and keys: V = X W_v."),
    ("√ of the tokens' width", lambda X, W_q, W_k, W_v: projected(X, W_q, W_k, W_v, width=lambda *_: X.shape[-1]),
     "You divide by √d_in, of the tokens. The dot product runs over the width of queries and keys: √d_k, Q.shape[-1]. "
     "They differ as soon as W_q is not square."),
    ("queries and keys swapped", lambda X, W_q, W_k, W_v: projected(X, W_k, W_q, W_v),
     "Your scores are KQᵀ: row i holds what all queries ask of token i. Rows are queries: QKᵀ."),
    by_hand=projected,
)  # fmt: skip


def steps(x: Array, K: Array, V: Array, W_q: Array, W_k: Array, W_v: Array, *,
          project: Callable[[Array, Array], Array] = np.matmul,
          **options: Any) -> tuple[Array, Array, Array]:  # fmt: skip
    K, V = np.vstack([K, project(x, W_k)]), np.vstack([V, project(x, W_v)])
    return pool(project(x, W_q)[None, :], K, V, **options)[0], K, V


NO_ROWS = np.empty((0, 2))

step = Exercise(4,
    "step(x, K, V, W_q, W_k, W_v): the output row of one new token, and K and V with its key and value at the end; "
    "(d_in,), (t, d_k), (t, d_v), … → (d_v,), (t+1, d_k), (t+1, d_v)",
    steps, lambda draw: [
        (np.array([1.0, 0.0]), NO_ROWS, NO_ROWS, EYE, EYE, 2 * EYE),
        (np.array([1.0, 0.0]), EYE[1:], 8 * EYE[1:], EYE, LN3 * 2**0.5 * EYE, 4 * EYE),
        (draw(7), draw(3, 5), draw(3, 2), *draw(2, 7, 5) / 2, draw(7, 2)),
        (np.ones(1), column(1000), column(4), column(-1), column(999), column(8)),
        (draw(5), draw(2, 5), draw(2, 5), *draw(3, 5, 5) / 2)
    ])  # fmt: skip
step.knows(
    *pooling("no √d", "d in place of √d", "√ of the values' width", "√ of the number of keys",
             "divided by √d after softmax", "no softmax", "no maximum subtracted"),
    by_hand=steps,
)  # fmt: skip

Rows = tuple[Array, Array, Array]


def new_token_does_not_see_itself(x: Array, K: Array, V: Array, W_q: Array, W_k: Array,
                                  W_v: Array) -> Rows:  # fmt: skip
    _, longer_K, longer_V = steps(x, K, V, W_q, W_k, W_v)
    return an.attention((x @ W_q)[None, :], K, V)[0], longer_K, longer_V


def new_row_in_front(x: Array, K: Array, V: Array, W_q: Array, W_k: Array, W_v: Array) -> Rows:  # fmt: skip
    row, K, V = steps(x, K, V, W_q, W_k, W_v)
    return row, np.roll(K, 1, 0), np.roll(V, 1, 0)


def token_itself_in_the_cache(x: Array, K: Array, V: Array, W_q: Array, W_k: Array, W_v: Array) -> Rows:  # fmt: skip
    K, V = np.vstack([K, x]), np.vstack([V, x])
    return an.attention((x @ W_q)[None, :], K, V)[0], K, V


step.knows(
    ("W.T in place of W", dict(project=lambda x, W: x @ W.T),
     "You multiply by W.T, or W @ x. Here W_q has the shape (d_in, d_k), and rows are multiplied from the right: x @ "
     "W_q."),
    ("the new token does not see itself", new_token_does_not_see_itself,
     "You attend to the old keys alone. A token sees itself too: append its key and value first, then attend."),
    ("the cache does not grow", lambda x, K, V, W_q, W_k, W_v: (steps(x, K, V, W_q, W_k, W_v)[0], K, V),
     "The output is right, but you return the old K and V. The next token would not see this one."),
    ("the new row in front", new_row_in_front,
     "You put the new key and value in front. The sum does not care, but whoever counts positions does: append them at "
     "the end."),
    ("the token itself in the cache", token_itself_in_the_cache,
     "You append x to K and to V. What is kept are its projections, x W_k and x W_v: keeping them is what saves the "
     "work."),
    by_hand=steps,
)  # fmt: skip

# Layers to hold under a detector: rows are tokens, (n, 3) -> (n, 3).
MATRICES = draw(3, 3, 3)


def no_mask(X: Array) -> Array:
    return an.self_attention(X, *MATRICES)


def causal_attention(X: Array) -> Array:
    return an.self_attention(X, *MATRICES, causal=True)


def last_seen_by_all(X: Array) -> Array:
    return X + X[-1:]


def token_by_token(X: Array) -> Array:
    return 3 * X


def mean_subtracted(X: Array) -> Array:
    return X - X.mean(0)


def past_alone(X: Array) -> Array:
    return np.cumsum(X, 0) - X


def first_sees_second(X: Array) -> Array:
    return np.concatenate([X[:1] + X[1:2], X[1:]])


def shape_of_the_next(X: Array) -> Array:
    """Each token adds the next one less its mean, as after a layer norm: blind to a shift of all entries."""
    centred = X - X.mean(-1, keepdims=True)
    return X + np.concatenate([centred[1:], 0 * centred[:1]])


def first_everywhere(X: Array) -> Array:
    return X[:1] + 0 * X


LAYERS = [
    token_by_token,
    causal_attention,
    past_alone,
    no_mask,
    mean_subtracted,
    first_sees_second,
    shape_of_the_next,
    last_seen_by_all,
]


def sees(layer: Layer, X: Array) -> bool:
    """Whether an output changes with a later token, found by replacing each in turn."""
    for t in range(1, len(X)):
        other = X.copy()
        other[t] = 2 - 3 * X[t] ** 2
        if not np.array_equal(layer(other)[:t], layer(X)[:t]):
            return True
    return False


sees_future = Exercise(4,
    "sees_future(layer, X): True if some row of layer(X) changes by more than rounding when a later token of this X "
    "changes; (n, d) → True or False",
    sees, lambda draw: [(layer, draw(5, 3)) for layer in LAYERS])  # fmt: skip


def last_token_never_changed(layer: Layer, X: Array) -> bool:
    last = X[-1:]
    return sees(lambda rows: layer(np.concatenate([rows, last]))[:-1], X[:-1])


def rows_after_the_token_compared_too(layer: Layer, X: Array) -> bool:
    for t in range(len(X)):
        other, rest = X.copy(), np.arange(len(X)) != t
        other[t] = 2 - 3 * X[t] ** 2
        if not np.array_equal(layer(other)[rest], layer(X)[rest]):
            return True
    return False


def shift_that_a_layer_norm_undoes(layer: Layer, X: Array) -> bool:
    for t in range(1, len(X)):
        other = X.copy()
        other[t] += 1.0
        if not np.allclose(layer(other)[:t], layer(X)[:t]):
            return True
    return False


sees_future.knows(
    ("the last token never changed", last_token_never_changed,
     "You never change the last token, and miss a layer in which only that one is seen too early. range(1, len(X)) "
     "reaches it."),
    ("rows after the token compared too", rows_after_the_token_compared_too,
     "You compare all other rows. Those after the changed token may follow it: they see their past. Only a change in "
     "the rows *before* it tells of the future."),
    ("a shift that a layer norm undoes", shift_that_a_layer_norm_undoes,
     "You add the same number to all entries of a token. A layer that first subtracts each token's own mean does not "
     "notice. Put something random in its place."),
)  # fmt: skip

permutation_gap = Exercise(4,
    "permutation_gap(layer, X, order): the largest difference between layer(X[order]) and layer(X)[order]; → a number",
    lambda layer, X, order: np.abs(layer(X[order]) - layer(X)[order]).max(), lambda draw: [
        *((layer, draw(5, 3), [3, 0, 1, 4, 2]) for layer in LAYERS),
        (first_everywhere, -np.arange(15.0).reshape(5, 3), [3, 0, 1, 4, 2])
    ])  # fmt: skip
permutation_gap.knows(
    ("the output not permuted", lambda layer, X, order: float(np.abs(layer(X[order]) - layer(X)).max()),
     "You compare layer(X[order]) with layer(X). That asks for invariance. Equivariance lets the outputs move along: "
     "layer(X)[order]."),
    ("the sign kept", lambda layer, X, order: float((layer(X[order]) - layer(X)[order]).max()),
     "You take the largest difference with its sign, and miss those below 0: take the absolute value first."),
    ("the mean in place of the largest",
     lambda layer, X, order: float(np.abs(layer(X[order]) - layer(X)[order]).mean()),
     "You return the mean of the differences. It is the largest that is asked for: one wrong row is enough."),
    ("the sum in place of the largest", lambda layer, X, order: float(np.abs(layer(X[order]) - layer(X)[order]).sum()),
     "You add up all differences. It is the largest one that is asked for: abs(…).max()."),
    ("the length of the difference", lambda layer, X, order: float(np.linalg.norm(layer(X[order]) - layer(X)[order])),
     "You take the norm, the root of the sum of squares. It is the largest difference that is asked for: "
     "abs(…).max()."),
)  # fmt: skip
