"""Chapter 4: attention as a whole, and a sequence that attends to itself."""

from typing import Any

import numpy as np

import attn_tutor.numpy as an
from attn_tutor.check.chapters.inputs import (
    LN3,
    Array,
    column,
    named,
    numbers,
    pool,
    pooling,
)
from attn_tutor.check.exercise import Exercise, Function

draw = numbers(4)
ALLOWED = draw(2, 3, 5) < 0.5
ALLOWED[0, 0] = False  # a query that sees nothing


def masked(Q: Array, K: Array, V: Array, mask: Array, *, hide: Function = lambda S, mask: np.where(mask, S, -np.inf),
           empty: bool = True, **options: Any) -> Array:  # fmt: skip
    """Attention as one writes it: hide scores, pool, put empty rows to 0."""
    output = pool(Q, K, V, hide=lambda S: hide(S, mask), **options)
    return np.where(mask.any(-1, keepdims=True), output, 0) if empty else output


attention = Exercise(4, "attention(Q, K, V, mask): masked_softmax(QKᵀ/√d, mask) V, True = may attend, 0 for a query "
    "that sees nothing; (…, n, d), (…, m, d), (…, m, d_v), (…, n, m) → (…, n, d_v)",
    masked, lambda draw: [(column(1), column(LN3, 0), column(4, 8), np.array([[True, True]])),
        (column(1), column(LN3, 0, 0), column(4, 8, 5), np.array([[True, True, False]])),
        (np.ones((1, 4)), np.eye(4)[:2], np.eye(4)[:2], np.array([[True, True]])),
        (column(1), column(LN3, 0), column(4, 8), np.array([[False, False]])),
        (draw(3, 7), draw(5, 7), draw(5, 7), ALLOWED[1]), (draw(3, 7), draw(5, 7), draw(5, 11), ALLOWED[0]),
        (draw(2, 3, 7), draw(2, 5, 7), draw(2, 5, 11), ALLOWED),
        (column(1, -1), column(1000, 999), column(4, 8), np.ones((2, 2), bool))], *pooling(),
    ("inverted mask",
     [lambda Q, K, V, mask: an.attention(Q, K, V, ~mask),
      *(dict(hide=lambda S, mask: np.where(mask, -1e9, S), empty=empty) for empty in (True, False))],
     "Your queries see the forbidden keys, and those alone. True means “may attend”: hide where the mask is False."),
    ("score set to 0", [dict(hide=np.multiply, empty=empty) for empty in (True, False)],
     "You set forbidden scores to 0, and exp(0) is 1: the key still gets weight. Put −∞ in its place."),
    ("NaN for a query that sees nothing", dict(empty=False),
     "This is the line of the textbooks. Where nothing is permitted softmax of −∞ alone is NaN: such a query gets 0."),
    ("all values averaged for a query that sees nothing",
     [lambda Q, K, V, mask: np.where(mask.any(-1, keepdims=True), an.attention(Q, K, V, mask), an.attention(Q, K, V)),
      dict(hide=lambda S, mask: np.where(mask, S, -1e9), empty=False)],
     "A query that sees nothing averages forbidden values, of all keys alike with −1e9 for −∞. Its output must be 0."),
    weights=lambda draw: (draw(3, 7), draw(5, 7), np.eye(5), ALLOWED[1]))  # fmt: skip

EYE = np.eye(2)


def projected(X: Array, *W: Array, project: Function = np.matmul, seen: Function | None = None,
              tokens_width: bool = False, **options: Any) -> Array:  # fmt: skip
    if seen:
        options["hide"] = lambda S: np.where(seen(S.shape[-1]), S, -np.inf)
    if tokens_width:
        options["width"] = lambda *_: X.shape[-1]
    return pool(*(project(X, each) for each in W), **options)


self_attention = Exercise(4, "self_attention(X, W_q, W_k, W_v): softmax(QKᵀ/√d_k) V with Q = X W_q, K = X W_k, V = X "
    "W_v; (…, n, d_in), (d_in, d_k), (d_in, d_k), (d_in, d_v) → (…, n, d_v)",
    projected, lambda draw: [(EYE, EYE, np.array([[1.0, 2], [0, 0]]), np.array([[4.0, 0], [0, 8]])),
        (draw(3, 7), *draw(3, 7, 7) / 7**0.5), (draw(3, 7), *draw(2, 7, 5) / 2, draw(7, 2)),
        (draw(2, 3, 7), *draw(2, 7, 5) / 2, draw(7, 11)), (1e3 * EYE, EYE, EYE, np.array([[4.0, 0], [0, 8]])),
        (column(1000, 999), column(1), column(-1e-3), column(0.004))], *pooling(),
    ("W.T in place of W", dict(project=lambda X, W: X @ W.T),
     "You multiply by W.T, as a linear layer of torch stores its matrix. Here W_q has the shape (d_in, d_k): X @ W_q."),
    ("a causal mask", dict(seen=np.tri),
     "You hide later tokens from each token. No mask is asked for here: every token sees all."),
    ("a token does not see itself", dict(seen=lambda n: 1 - np.eye(n)),
     "You hide each token from itself, the diagonal of the scores. Every token sees all, itself too."),
    ("the weights returned", lambda X, W_q, W_k, W_v: an.attention_weights(X @ W_q, X @ W_k),
     "You return the weights. They are to be multiplied by the values, X W_v."),
    ("√ of the tokens' width", dict(tokens_width=True),
     "You divide by √d_in, the tokens' width. The dot product runs over the width of queries and keys: √d_k."),
    ("queries and keys swapped", lambda X, W_q, W_k, W_v: projected(X, W_k, W_q, W_v),
     "Your scores are KQᵀ: row i holds what all queries ask of token i. Rows are queries: QKᵀ."),
    weights=lambda draw: (np.eye(5), *draw(2, 5, 3), np.eye(5)))  # fmt: skip


def steps(x: Array, K: Array, V: Array, W_q: Array, W_k: Array, W_v: Array, *, project: Function = np.matmul,
          itself: bool = True, grows: bool = True, **options: Any) -> tuple[Array, Array, Array]:  # fmt: skip
    longer = np.vstack([K, project(x, W_k)]), np.vstack([V, project(x, W_v)])
    row = pool(project(x, W_q)[None, :], *(longer if itself else (K, V)), **options)[0]
    return (row, *longer) if grows else (row, K, V)


step = Exercise(4, "step(x, K, V, W_q, W_k, W_v): the output row of one new token, and K and V with its key and value "
    "at the end; (d_in,), (t, d_k), (t, d_v), … → (d_v,), (t+1, d_k), (t+1, d_v)",
    steps, lambda draw: [(np.array([1.0, 0.0]), np.empty((0, 2)), np.empty((0, 2)), EYE, EYE, 2 * EYE),
        (np.array([1.0, 0.0]), EYE[1:], 8 * EYE[1:], EYE, LN3 * 2**0.5 * EYE, 4 * EYE),
        (draw(7), draw(3, 5), draw(3, 2), *draw(2, 7, 5) / 2, draw(7, 2)),
        (np.ones(1), column(1000), column(4), column(-1), column(999), column(8)),
        (draw(5), draw(2, 5), draw(2, 5), *draw(3, 5, 5) / 2)],
    *pooling("no √d", "d in place of √d", "√ of the values' width", "√ of the number of keys"),
    ("W.T in place of W", dict(project=lambda x, W: x @ W.T),
     "You multiply by W.T, or W @ x. W_q has the shape (d_in, d_k), and rows are multiplied from the right: x @ W_q."),
    ("the new token does not see itself", dict(itself=False),
     "You attend to the old keys alone. A token sees itself too: append its key and value first, then attend."),
    ("the cache does not grow", dict(grows=False),
     "The output is right, but you return the old K and V. The next token would not see this one."))  # fmt: skip


MATRICES = draw(3, 3, 3)
# To hold under a detector: rows are tokens, (n, 3) -> (n, 3).
LAYERS = [
    named("token by token", lambda X: 3 * X),
    named("causal attention", lambda X: an.self_attention(X, *MATRICES, causal=True)),
    named("past alone", lambda X: np.cumsum(X, 0) - X),
    named("no mask", lambda X: an.self_attention(X, *MATRICES)),
    named("mean subtracted", lambda X: X - X.mean(0)),
    named("first sees second", lambda X: np.append(X[:1] + X[1:2], X[1:], 0)),
    # As after a layer norm: blind to a shift of all entries.
    named(
        "shape of the next",
        lambda X: X + np.append((Y := X - X.mean(-1, keepdims=True))[1:], 0 * Y[:1], 0),
    ),
    named("last seen by all", lambda X: X + X[-1:]),
]


def sees(layer: Function, X: Array, *, last: bool = True, later: bool = False,
         change: Function = lambda x: 2 - 3 * x**2) -> bool:  # fmt: skip
    """Whether an output changes with a later token, found by replacing each in turn."""
    for t in range(1, len(X) - (not last)):
        other = X.copy()
        other[t] = change(X[t])
        same = np.asarray(np.isclose(layer(other), layer(X)).all(-1))
        if not same[:t].all() or later and not same[t + 1 :].all():
            return True
    return False


sees_future = Exercise(4, "sees_future(layer, X): True if some row of layer(X) changes by more than rounding when a "
    "later token of this X changes; (n, d) → True or False",
    sees, lambda draw: [(layer, draw(5, 3)) for layer in LAYERS],
    ("the last token never changed", dict(last=False),
     "You never change the last token, and miss a layer in which only that one is seen too early: range(1, len(X))."),
    ("rows after the token compared too", dict(later=True),
     "You compare all other rows. Those after the changed token see their past: compare the rows *before* it."),
    ("a shift that a layer norm undoes", dict(change=lambda x: x + 1),
     "You add one number to all entries of a token: a layer norm does not notice. Put random ones there."))  # fmt: skip


def gap(layer: Function, X: Array, order: list[int], *, moved: bool = True, size: Function = np.abs,
        join: Function = np.max) -> float:  # fmt: skip
    return float(join(size(layer(X[order]) - layer(X)[order if moved else ...])))


permutation_gap = Exercise(4,
    "permutation_gap(layer, X, order): the largest difference between layer(X[order]) and layer(X)[order]; → a number",
    gap, lambda draw: [*((layer, draw(5, 3), [3, 0, 1, 4, 2]) for layer in LAYERS),
        (named("first everywhere", lambda X: X[:1] + 0 * X), -np.arange(15.0).reshape(5, 3), [3, 0, 1, 4, 2])],
    ("the output not permuted", dict(moved=False),
     "You compare layer(X[order]) with layer(X): invariance. Equivariance lets outputs move along: layer(X)[order]."),
    ("the sign kept", dict(size=lambda x: x),
     "You take the largest difference with its sign, and miss those below 0: take the absolute value first."),
    ("the mean in place of the largest", dict(join=np.mean),
     "You return the mean of the differences. It is the largest that is asked for: one wrong row is enough."),
    ("the length of the difference", dict(join=np.linalg.norm),
     "You take the norm, the root of the sum of squares. It is the largest that is asked for: abs(…).max()."),
    ("the sum in place of the largest", dict(join=np.sum),
     "You add up all differences. It is the largest one that is asked for: abs(…).max()."))  # fmt: skip
