"""Chapter 7: gradients by differences, and by hand."""

from collections.abc import Callable
from typing import Any

import numpy as np

from attn_tutor.check.chapters.inputs import LN3, Array, numbers, weights_of
from attn_tutor.check.exercise import Exercise

draw = numbers(7)
Gradients = Any  # a tuple of arrays


Scalar = Callable[[Array], float]


def differences(f: Scalar, x: Array, step: float, far: float, over: float) -> Array:
    """For each entry, (f at x + step − f at x + far) / over."""

    def difference(i: tuple[int, ...]) -> float:
        up, down = x.copy(), x.copy()
        up[i] += step
        down[i] += far
        return (f(up) - f(down)) / over

    return np.array([difference(i) for i in np.ndindex(x.shape)]).reshape(x.shape)


def central(f: Scalar, x: Array) -> Array:
    return differences(f, x, 1e-5, -1e-5, 2e-5)


def cube_of_the_sum(x: Array) -> float:
    return float(x.sum() ** 3)


def sum_of_sizes(x: Array) -> float:
    return float(abs(x).sum())


def sum_of_cubes(x: Array) -> float:
    return float((x**3).sum())


def largest_share(x: Array) -> float:
    return float(weights_of(3 * x.ravel())[0])


numerical_gradient = Exercise(
    7,
    "numerical_gradient(f, x): ∂f/∂x by central differences, an entry at a time; f takes an array like x to a number; "
    "(…) → (…)",
    central,
    lambda draw: [
        (sum_of_cubes, np.array([1.0, 2.0])),
        (cube_of_the_sum, np.array([1.0, 2.0])),
        (largest_share, draw(3)),
        (cube_of_the_sum, draw(2, 3) + 1),
        (sum_of_cubes, draw(2, 3, 5)),
        (sum_of_sizes, np.zeros(2)),  # whoever looks to one side alone finds a slope
    ],
    tolerance=1e-6,
)


def one_sided(step: float) -> Callable[[Scalar, Array], Array]:
    return lambda f, x: differences(f, x, step, 0, step)


def central_by(step: float) -> Callable[[Scalar, Array], Array]:
    return lambda f, x: differences(f, x, step, -step, 2 * step)


numerical_gradient.knows(
    ("one-sided differences", [one_sided(sign * 10.0**-k) for sign in (1, -1) for k in range(3, 7)],
     "You compare f(x + h) with f(x). That is off by about h/2 times the second derivative. Take as much on the other "
     "side, (f(x + h) − f(x − h)) / 2h: the second derivative cancels."),
    ("a step that is too large", [central_by(step) for step in (0.5, 0.1, 0.05, 0.01)],
     "Your step is too large: the error of central differences grows with its square. About 10⁻⁵ is best in float64."),
    ("divided by h in place of 2h", lambda f, x: 2 * central(f, x),
     "Your gradient is twice too large. From x − h to x + h it is a way of 2h."),
    ("all entries moved at once", lambda f, x: np.full(x.shape, central(f, x).sum()),
     "You move all entries together: every entry gets the sum of the gradient. Move one, and leave the others."),
)  # fmt: skip

log_softmax_vjp = Exercise(7,
    "log_softmax_vjp(scores, g): the gradient by the scores, where g is that by log softmax(scores); "
    "(…, n, m), (…, n, m) → (…, n, m)",
    lambda scores, g: g - weights_of(scores) * g.sum(-1, keepdims=True), lambda draw: [
        (np.array([[LN3, 0.0]]), np.array([[1.0, 0.0]])), (np.array([[1000.0, 999.0]]), np.array([[-2.0, 1.0]])),
        (draw(3, 5), draw(3, 5)), (draw(3, 5).astype(np.float32), draw(3, 5).astype(np.float32)),
        (draw(2, 3, 5), draw(2, 3, 5)), (np.array([[-1000.0, -999.0]]), np.array([[-2.0, 1.0]]))
    ])  # fmt: skip
log_softmax_vjp.knows(
    ("the gradient of softmax", lambda scores, g: (p := weights_of(scores)) * (g - (p * g).sum(-1, keepdims=True)),
     "You return p(g − g·p), the gradient of softmax. The logarithm divides by p: ∂ log p_i / ∂s_j = δ_ij − p_j, so "
     "that it is g_j − p_j Σ_i g_i."),
    ("g not summed", lambda scores, g: g * (1 - weights_of(scores)),
     "You return g(1 − p), entry by entry. Every log p_i falls when s_j rises: p_j times the sum of the whole row of g "
     "goes off."),
    ("added in place of subtracted", lambda scores, g: g + weights_of(scores) * g.sum(-1, keepdims=True),
     "You add p Σ g. It is subtracted: every log p_i falls when another score rises."),
    ("the mean of g in place of its sum", lambda scores, g: g - weights_of(scores) * g.mean(-1, keepdims=True),
     "You take the mean of g over the keys. What goes off is p times the *sum* of g."),
    ("one sum for all rows", lambda scores, g: g - weights_of(scores) * g.sum(),
     "You sum g over the whole array. Each row has a softmax of its own: .sum(-1, keepdims=True)."),
)  # fmt: skip


def bilinear(Q: Array, K: Array, M: Array, g: Array) -> Gradients:
    return g @ K @ M.T, g.T @ Q @ M, Q.T @ g @ K


bilinear_score_vjp = Exercise(7,
    "bilinear_score_vjp(Q, K, M, g): dQ, dK, dM for the scores Q M Kᵀ, whose gradient is g; "
    "(n, q), (m, k), (q, k), (n, m) → (n, q), (m, k), (q, k)",
    bilinear, lambda draw: [
        (draw(1, 2), draw(1, 2), draw(2, 2), np.ones((1, 1))), (draw(3, 2), draw(3, 2), draw(2, 2), draw(3, 3)),
        (draw(3, 2), draw(5, 7), draw(2, 7), draw(3, 5))
    ])  # fmt: skip


bilinear_score_vjp.knows(
    ("M transposed in dK", lambda Q, K, M, g: (lambda dQ, _, dM: (dQ, g.T @ Q @ M.T, dM))(*bilinear(Q, K, M, g)),
     "In dK you multiply by Mᵀ. The keys stand behind the M as Kᵀ, and S = Q M Kᵀ gives dK = gᵀ (Q M). With q = k the "
     "shapes do not tell."),
    ("dM transposed", lambda Q, K, M, g: (lambda dQ, dK, dM: (dQ, dK, dM.T))(*bilinear(Q, K, M, g)),
     "You return the transpose of dM. A gradient has the shape of what it belongs to, (q, k): dM = Qᵀ g K."),
)  # fmt: skip


def through_softmax(A: Array, dA: Array) -> Array:
    return A * (dA - (dA * A).sum(-1, keepdims=True))


def layer(X: Array, W_q: Array, W_k: Array, W_v: Array, g: Array, *, forth: float = 0.5, back: float = 0.5,
          jacobian: Callable[[Array, Array], Array] = through_softmax, paths: tuple[int, int, int] = (1, 1, 1),
          share: float = 1, turned: Callable[[Array], Array] = np.transpose,
          crossed: Callable[[Array], Array] = np.transpose,
          values: Callable[[Array], Array] = np.transpose) -> Gradients:  # fmt: skip
    """Backwards through self-attention, with what people get wrong in it as options."""
    Q, K, V = X @ W_q, X @ W_k, X @ W_v
    A = weights_of(Q @ K.T / Q.shape[-1] ** forth)
    dS = jacobian(A, g @ V.T) / Q.shape[-1] ** back
    dQ, dK, dV = dS @ K, crossed(dS) @ Q, values(A) @ g
    parts = zip(paths, (dQ, dK, dV), (W_q, W_k, W_v), strict=True)
    dX = share * sum(taken * (dY @ turned(W)) for taken, dY, W in parts)
    return dX, X.T @ dQ, X.T @ dK, X.T @ dV


self_attention_vjp = Exercise(7,
    "self_attention_vjp(X, W_q, W_k, W_v, g): dX, dW_q, dW_k, dW_v for self_attention without a mask; "
    "(n, d_in), (d_in, d_k), (d_in, d_k), (d_in, d_v), (n, d_v) → the shapes of the first four",
    layer, lambda draw: [
        (draw(2, 1), *draw(3, 1, 1), draw(2, 1)), (draw(5, 3), *draw(3, 3, 3), draw(5, 3)),
        (draw(7, 5), *draw(2, 5, 3), draw(5, 2), draw(7, 2))
    ])  # fmt: skip

ADD = "X is used three times, and what comes back adds up: dQ W_qᵀ + dK W_kᵀ + dV W_vᵀ."


self_attention_vjp.knows(
    ("the queries' path alone", dict(paths=(1, 0, 0)), f"Your dX has only what comes through the queries. {ADD}"),
    ("the keys' path missing", dict(paths=(1, 0, 1)), f"Your dX lacks what comes through the keys, dK W_kᵀ. {ADD}"),
    ("the values' path missing", dict(paths=(1, 1, 0)),
     "Your dX lacks what comes through the values, dV W_vᵀ. X decides not only who reads whom, but what is read."),
    ("dS not transposed in dK", dict(crossed=np.asarray),
     "In dK you sum over keys. Key j collects from all queries, over the column j of dS: dK = dSᵀ Q."),
    ("√d not in the backward pass", dict(back=0),
     "Your weights are right, but dQ and dK lack the factor 1/√d: the scores are divided by √d, and so is what comes "
     "back through them."),
    ("the softmax left out", dict(jacobian=lambda A, dA: dA),
     "You go back through the weights as if they were the scores. Between them stands softmax, with its own Jacobian: "
     "dS = A (dA − Σ dA A), row by row."),
    by_hand=layer,
)  # fmt: skip


def shared(Q: Array, K: Array, V: Array, g: Array, *, spread: Callable[[Array, int], Array] = lambda x,
           size: x.repeat(size, 0), gather: Callable[[Array, int], Array] = lambda x,
           size: x.reshape(-1, size, *x.shape[1:]).sum(1), back: bool = True) -> Gradients:  # fmt: skip
    """Backwards through heads that share keys, with what people get wrong in it as options."""
    size = len(Q) // len(K)
    K, V = spread(K, size), spread(V, size)
    A = weights_of(Q @ K.mT / Q.shape[-1] ** 0.5)
    dS = through_softmax(A, g @ V.mT) / (Q.shape[-1] ** 0.5 if back else 1)
    return dS @ K, gather(dS.mT @ Q, size), gather(A.mT @ g, size)


grouped_attention_vjp = Exercise(7,
    "grouped_attention_vjp(Q, K, V, g): dQ, dK, dV where query head i reads key head ⌊i h_kv / h⌋, h a multiple of "
    "h_kv, no mask; (h, n, d), (h_kv, m, d), (h_kv, m, d_v), (h, n, d_v) → the shapes of the first three",
    shared, lambda draw: [
        (draw(2, 1, 1), draw(1, 2, 1), draw(1, 2, 1), np.ones((2, 1, 1))),
        (draw(6, 5, 3), draw(2, 7, 3), draw(2, 7, 2), draw(6, 5, 2)),
        (draw(4, 3, 2), draw(2, 5, 2), draw(2, 5, 3), draw(4, 3, 3)),
        (draw(3, 5, 2), draw(3, 7, 2), draw(3, 7, 2), draw(3, 5, 2))
    ])  # fmt: skip


ADD_HEADS = "A key that several heads read gets the sum of what comes back from each."

grouped_attention_vjp.knows(
    ("the mean of the group", dict(gather=lambda x, size: x.reshape(-1, size, *x.shape[1:]).mean(1)),
     f"Your dK and dV are too small by the number of heads that share a key. {ADD_HEADS}"),
    by_hand=shared,
)  # fmt: skip


def masked(Q: Array, K: Array, V: Array, mask: Array, g: Array, *, forth: Callable[[Array, Array], Array] = lambda S,
           mask: np.where(mask, S, -np.inf), clear: bool = True, clear_q: bool = True, clear_g: bool = True,
           empty: Callable[[Array, Array], Array] = lambda A, mask: np.where(mask, A, 0),
           back: Callable[[Array, Array], Array] = lambda dA, mask: dA) -> Gradients:  # fmt: skip
    """Backwards through masked attention, with what people get wrong in it as options."""
    unread = ~mask.any(0, keepdims=True).T  # keys that no query may read
    idle = ~mask.any(1, keepdims=True)  # queries that may read no key
    K, V = (np.where(unread, 0, x) if clear else x for x in (K, V))
    Q = np.where(idle, 0, Q) if clear_q else Q
    g = np.where(idle, 0, g) if clear_g else g
    scale = Q.shape[-1] ** -0.5
    S = forth(scale * Q @ K.T, mask)
    top = S.max(-1, keepdims=True)
    e = np.exp(S - np.where(np.isfinite(top), top, 0))
    with np.errstate(invalid="ignore"):
        A = empty(e / e.sum(-1, keepdims=True), mask)
    dA = back(g @ V.T, mask)
    dS = through_softmax(A, dA)
    return scale * dS @ K, scale * dS.T @ Q, A.T @ g


padded = np.array([[True, True, False, True, False]] * 3)
some = np.array([[True, False, True], [False, False, False], [True, True, True]])
pads = np.where(padded[0][:, None], draw(5, 2), np.nan)
reads = some.any(1, keepdims=True)

masked_attention_vjp = Exercise(7,
    "masked_attention_vjp(Q, K, V, mask, g): dQ, dK, dV; True may be read, what no query reads may be NaN, a query "
    "with nothing to read may be NaN, as may its g; neither gets or sends a gradient (0); (n, d), (m, d), (m, d_v), "
    "(n, m), (n, d_v) → shapes of the first three",
    masked, lambda draw: [
        (draw(3, 2), draw(5, 2), draw(5, 7), np.ones((3, 5), bool), draw(3, 7)),
        (draw(3, 2), draw(5, 2), draw(5, 7), padded, draw(3, 7)),
        (draw(3, 2), draw(3, 2), draw(3, 5), np.tri(3, dtype=bool), draw(3, 5)),
        (draw(3, 2), draw(3, 2), draw(3, 5), some, draw(3, 5)), (draw(3, 7), draw(5, 7), pads, padded, draw(3, 2)),
        (np.where(reads, draw(3, 2), np.nan), *draw(2, 3, 2), some, np.where(reads, draw(3, 2), np.nan))
    ])  # fmt: skip
masked_attention_vjp.knows(
    ("NaN not cleared", dict(clear=False),
     "A hidden value is NaN, and 0 · NaN is NaN: it enters the mean r of every row, and so every query and key. Put 0 "
     "in the place of what nobody may read before the product."),
    ("NaN of an idle query's g not cleared", dict(clear_g=False),
     "The g of a query with nothing to read is NaN, and 0 · NaN is NaN: through Aᵀ g it enters every value. Put 0 in "
     "its place before the product."),
    by_hand=masked,
)  # fmt: skip
