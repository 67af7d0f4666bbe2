"""Chapter 7: gradients by differences, and by hand."""

from typing import Any

import numpy as np

from attn_tutor.check.chapters.inputs import LN3, Array, named, numbers, weights_of
from attn_tutor.check.exercise import Exercise, Function

draw = numbers(7)


def differences(f: Function, x: Array, *, step: float = 1e-5, far: float = -1e-5) -> Array:  # fmt: skip
    """For each entry, f at x + step less f at x + far, over what lies between."""

    def difference(i: tuple[int, ...]) -> Any:
        up, down = x.copy(), x.copy()
        up[i] += step
        down[i] += far
        return (f(up) - f(down)) / (step - far)

    return np.array([difference(i) for i in np.ndindex(x.shape)]).reshape(x.shape)


CUBES = named("sum of cubes", lambda x: (x**3).sum())
CUBE = named("cube of the sum", lambda x: x.sum() ** 3)

numerical_gradient = Exercise(7, "numerical_gradient(f, x): ∂f/∂x by central differences, an entry at a time; f takes "
    "an array like x to a number; (…) → (…)",
    differences, lambda draw: [(CUBES, np.array([1.0, 2.0])), (CUBE, np.array([1.0, 2.0])),
        (named("largest share", lambda x: weights_of(3 * x.ravel())[0]), draw(3)),
        (CUBE, draw(2, 3) + 1), (CUBES, draw(2, 3, 5)),
        (named("sum of sizes", lambda x: abs(x).sum()), np.zeros(2)),  # to one side alone it has a slope
    ],
    ("one-sided differences", [dict(step=sign * 10.0**-k, far=0) for sign in (1, -1) for k in range(3, 7)],
     "You compare f(x + h) with f(x): that is off by h/2 times the second derivative. Take as much on the other side."),
    ("a step that is too large", [dict(step=h, far=-h) for h in (0.5, 0.1, 0.05, 0.01)],
     "Your step is too large: the error of central differences grows with its square. About 10⁻⁵ is best in float64."),
    ("all entries moved at once", lambda f, x: np.full(x.shape, differences(f, x).sum()),
     "You move all entries together: every entry gets the sum of the gradient. Move one, and leave the others."),
    tolerance=1e-6)  # fmt: skip

log_softmax_vjp = Exercise(7, "log_softmax_vjp(scores, g): the gradient by the scores, where g is that by log "
    "softmax(scores); (…, n, m), (…, n, m) → (…, n, m)",
    lambda scores, g: g - weights_of(scores) * g.sum(-1, keepdims=True), lambda draw: [
        (np.array([[LN3, 0.0]]), np.array([[1.0, 0.0]])), (np.array([[1000.0, 999.0]]), np.array([[-2.0, 1.0]])),
        (draw(3, 5), draw(3, 5)), (draw(3, 5).astype(np.float32), draw(3, 5).astype(np.float32)),
        (draw(2, 3, 5), draw(2, 3, 5)), (np.array([[-1000.0, -999.0]]), np.array([[-2.0, 1.0]]))],
    ("the gradient of softmax", lambda scores, g: (p := weights_of(scores)) * (g - (p * g).sum(-1, keepdims=True)),
     "You return p(g − g·p), the gradient of softmax. The logarithm divides by p, so that it is g_j − p_j Σ_i g_i."),
    ("g not summed", lambda scores, g: g * (1 - weights_of(scores)),
     "You return g(1 − p), entry by entry. Every log p_i falls when s_j rises: subtract p_j times the sum of g's row."),
    ("added in place of subtracted", lambda scores, g: g + weights_of(scores) * g.sum(-1, keepdims=True),
     "You add p Σ g. It is subtracted: every log p_i falls when another score rises."),
    ("the mean of g in place of its sum", lambda scores, g: g - weights_of(scores) * g.mean(-1, keepdims=True),
     "You take the mean of g over the keys. What goes off is p times the *sum* of g."))  # fmt: skip


def bilinear(Q: Array, K: Array, M: Array, g: Array, *, turned: bool = False) -> Any:  # fmt: skip
    return g @ K @ M.T, g.T @ Q @ (M.T if turned else M), Q.T @ g @ K


bilinear_score_vjp = Exercise(7, "bilinear_score_vjp(Q, K, M, g): dQ, dK, dM for the scores Q M Kᵀ, whose gradient is "
    "g; (n, q), (m, k), (q, k), (n, m) → (n, q), (m, k), (q, k)",
    bilinear, lambda draw: [(draw(1, 2), draw(1, 2), draw(2, 2), np.ones((1, 1))),
        (draw(3, 2), draw(3, 2), draw(2, 2), draw(3, 3)), (draw(3, 2), draw(5, 7), draw(2, 7), draw(3, 5))],
    ("M transposed in dK", dict(turned=True),
     "In dK you multiply by Mᵀ. S = Q M Kᵀ gives dK = gᵀ (Q M): with q = k the shapes do not tell."))  # fmt: skip


def through_softmax(A: Array, dA: Array) -> Array:
    return A * (dA - (dA * A).sum(-1, keepdims=True))


def layer(X: Array, W_q: Array, W_k: Array, W_v: Array, g: Array, *, back: float = 0.5,
          jacobian: Function = through_softmax, paths: tuple[int, ...] = (1, 1, 1),
          crossed: Function = np.transpose) -> Any:  # fmt: skip
    """Backwards through self-attention, with what people get wrong in it as options."""
    Q, K, V = X @ W_q, X @ W_k, X @ W_v
    A = weights_of(Q @ K.T / Q.shape[-1] ** 0.5)
    dS = jacobian(A, g @ V.T) / Q.shape[-1] ** back
    dQ, dK, dV = dS @ K, crossed(dS) @ Q, A.T @ g
    parts = zip(paths, (dQ, dK, dV), (W_q, W_k, W_v), strict=True)
    dX = sum(taken * (dY @ W.T) for taken, dY, W in parts)
    return dX, X.T @ dQ, X.T @ dK, X.T @ dV


self_attention_vjp = Exercise(7, "self_attention_vjp(X, W_q, W_k, W_v, g): dX, dW_q, dW_k, dW_v for self_attention "
    "without a mask; (n, d_in), (d_in, d_k), (d_in, d_k), (d_in, d_v), (n, d_v) → the shapes of the first four",
    layer, lambda draw: [(draw(2, 1), *draw(3, 1, 1), draw(2, 1)), (draw(5, 3), *draw(3, 3, 3), draw(5, 3)),
        (draw(7, 5), *draw(2, 5, 3), draw(5, 2), draw(7, 2))],
    ("the queries' path alone", dict(paths=(1, 0, 0)),
     "Your dX has only what comes through the queries. Three paths add up: dQ W_qᵀ + dK W_kᵀ + dV W_vᵀ."),
    ("the keys' path missing", dict(paths=(1, 0, 1)),
     "Your dX lacks what comes through the keys, dK W_kᵀ. Three paths add up: dQ W_qᵀ + dK W_kᵀ + dV W_vᵀ."),
    ("the values' path missing", dict(paths=(1, 1, 0)),
     "Your dX lacks what comes through the values, dV W_vᵀ. X decides not only who reads whom, but what is read."),
    ("the softmax left out", dict(jacobian=lambda A, dA: dA),
     "You go back through weights as if they were scores. Softmax stands between: dS = A (dA − Σ dA A), row by row."),
    ("√d not in the backward pass", dict(back=0),
     "Your dQ and dK lack the factor 1/√d: the scores are divided by √d, and so is what comes back through them."),
    ("dS not transposed in dK", dict(crossed=np.asarray),
     "In dK you sum over keys. Key j collects from all queries, over the column j of dS: dK = dSᵀ Q."))  # fmt: skip


def shared(Q: Array, K: Array, V: Array, g: Array, *, gather: Function = np.sum) -> Any:  # fmt: skip
    """Backwards through heads that share keys."""
    group = len(K), len(Q) // len(K)
    K, V = (x.repeat(group[1], 0) for x in (K, V))
    A = weights_of(Q @ K.mT / Q.shape[-1] ** 0.5)
    dS = through_softmax(A, g @ V.mT) / Q.shape[-1] ** 0.5
    shares = dS.mT @ Q, A.mT @ g
    return dS @ K, *(gather(x.reshape(*group, *x.shape[1:]), 1) for x in shares)


grouped_attention_vjp = Exercise(7,
    "grouped_attention_vjp(Q, K, V, g): dQ, dK, dV where query head i reads key head ⌊i h_kv / h⌋, h a multiple of "
    "h_kv, no mask; (h, n, d), (h_kv, m, d), (h_kv, m, d_v), (h, n, d_v) → the shapes of the first three",
    shared, lambda draw: [(draw(2, 1, 1), draw(1, 2, 1), draw(1, 2, 1), np.ones((2, 1, 1))),
        (draw(6, 5, 3), draw(2, 7, 3), draw(2, 7, 2), draw(6, 5, 2)),
        (draw(4, 3, 2), draw(2, 5, 2), draw(2, 5, 3), draw(4, 3, 3)),
        (draw(3, 5, 2), draw(3, 7, 2), draw(3, 7, 2), draw(3, 5, 2))],
    ("the mean of the group", dict(gather=np.mean),
     "Your dK and dV are too small: a key that several heads read gets the sum of what comes back."))  # fmt: skip


def masked(Q: Array, K: Array, V: Array, mask: Array, g: Array, *, clear: bool = True) -> Any:  # fmt: skip
    """Backwards through masked attention; what takes no part may be NaN and is cleared first."""
    idle = ~mask.any(1, keepdims=True)  # queries that may read no key
    Q = np.where(idle, 0, Q)
    if clear:
        g = np.where(idle, 0, g)
        K, V = (np.where(mask.any(0, keepdims=True).T, x, 0) for x in (K, V))
    scale = Q.shape[-1] ** -0.5
    A = np.where(mask, weights_of(np.where(mask, scale * Q @ K.T, -1e300)), 0)
    dS = through_softmax(A, g @ V.T)
    return scale * dS @ K, scale * dS.T @ Q, A.T @ g


padded = np.array([[True, True, False, True, False]] * 3)
some = np.array([[True, False, True], [False, False, False], [True, True, True]])
pads = np.where(padded[0][:, None], draw(5, 2), np.nan)
reads = some.any(1, keepdims=True)

masked_attention_vjp = Exercise(7, "masked_attention_vjp(Q, K, V, mask, g): dQ, dK, dV; True may be read, what no "
    "query reads may be NaN, a query with nothing to read may be NaN, as may its g; neither gets or sends a gradient "
    "(0); (n, d), (m, d), (m, d_v), (n, m), (n, d_v) → shapes of the first three",
    masked, lambda draw: [(draw(3, 2), draw(5, 2), draw(5, 7), np.ones((3, 5), bool), draw(3, 7)),
        (draw(3, 2), draw(5, 2), draw(5, 7), padded, draw(3, 7)),
        (draw(3, 2), draw(3, 2), draw(3, 5), np.tri(3, dtype=bool), draw(3, 5)),
        (draw(3, 2), draw(3, 2), draw(3, 5), some, draw(3, 5)), (draw(3, 7), draw(5, 7), pads, padded, draw(3, 2)),
        (np.where(reads, draw(3, 2), np.nan), *draw(2, 3, 2), some, np.where(reads, draw(3, 2), np.nan))],
    ("NaN not cleared", dict(clear=False),
     "A value that nobody reads, or an idle query's g, is NaN, and 0 · NaN is NaN. Put 0 there first."))  # fmt: skip
