"""Chapter 7: gradients by differences, and by hand."""

from collections.abc import Callable

import numpy as np

from attn_tutor.check.chapters.inputs import LN3, Array, numbers, weights_of
from attn_tutor.check.exercise import Exercise

draw = numbers(7)

Gradients = tuple[Array, ...]


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


def entry_not_moved_back(f: Scalar, x: Array) -> Array:
    x, found = x.copy(), np.empty(x.shape)
    for i in np.ndindex(x.shape):
        x[i] += 1e-5
        up = f(x)
        x[i] -= 2e-5
        found[i] = (up - f(x)) / 2e-5
    return found


numerical_gradient.knows(
    ("one-sided differences", [one_sided(sign * 10.0**-k) for sign in (1, -1) for k in range(3, 7)],
     "You compare f(x + h) with f(x). That is off by about h/2 times the second derivative. Take as much on the other "
     "side, (f(x + h) − f(x − h)) / 2h: the second derivative cancels."),
    ("a step that is too large", [central_by(step) for step in (0.5, 0.1, 0.05, 0.01)],
     "Your step is too large: the error of central differences grows with its square. About 10⁻⁵ is best in float64."),
    ("divided by h in place of 2h", lambda f, x: 2 * central(f, x),
     "Your gradient is twice too large. From x − h to x + h it is a way of 2h."),
    ("not divided by 2h", lambda f, x: 2e-5 * central(f, x),
     "You return the difference and do not divide it by the way, 2h."),
    ("all entries moved at once", lambda f, x: np.full(x.shape, central(f, x).sum()),
     "You move all entries together: every entry gets the sum of the gradient. Move one, and leave the others."),
    ("an entry not moved back", entry_not_moved_back,
     "You move an entry to x − h and go on from there: later entries are taken at another point. Put the old value "
     "back before you move the next."),
    ("a step that is too small", lambda f, x: differences(f, x, 1e-17, -1e-17, 2e-17),
     "Your step is lost when it is added: in float64 1 + 10⁻¹⁷ is 1, so that the difference is 0. Take a step near the "
     "cube root of the precision, about 10⁻⁵."),
)  # fmt: skip

log_softmax_vjp = Exercise(
    7,
    "log_softmax_vjp(scores, g): the gradient by the scores, where g is that by log softmax(scores); "
    "(…, n, m), (…, n, m) → (…, n, m)",
    lambda scores, g: g - weights_of(scores) * g.sum(-1, keepdims=True),
    lambda draw: [
        (np.array([[LN3, 0.0]]), np.array([[1.0, 0.0]])),
        (np.array([[1000.0, 999.0]]), np.array([[-2.0, 1.0]])),
        (draw(3, 5), draw(3, 5)),
        (draw(3, 5).astype(np.float32), draw(3, 5).astype(np.float32)),
        (draw(2, 3, 5), draw(2, 3, 5)),
        (np.array([[-1000.0, -999.0]]), np.array([[-2.0, 1.0]])),
    ],
)


def gradient_of_softmax(scores: Array, g: Array) -> Array:
    p = weights_of(scores)
    return p * (g - (p * g).sum(-1, keepdims=True))


def no_maximum_subtracted(scores: Array, g: Array) -> Array:
    e = np.exp(scores)
    return g - e / e.sum(-1, keepdims=True) * g.sum(-1, keepdims=True)


log_softmax_vjp.knows(
    ("the gradient of softmax", gradient_of_softmax,
     "You return p(g − g·p), the gradient of softmax. The logarithm divides by p: ∂ log p_i / ∂s_j = δ_ij − p_j, so "
     "that it is g_j − p_j Σ_i g_i."),
    ("g not summed", lambda scores, g: g * (1 - weights_of(scores)),
     "You return g(1 − p), entry by entry. Every log p_i falls when s_j rises: p_j times the sum of the whole row of g "
     "goes off."),
    ("the weighted mean subtracted", lambda scores, g: g - (weights_of(scores) * g).sum(-1, keepdims=True),
     "You subtract g·p, the same number for every key. What goes off is the sum of g, times the key's own weight."),
    ("added in place of subtracted", lambda scores, g: g + weights_of(scores) * g.sum(-1, keepdims=True),
     "You add p Σ g. It is subtracted: every log p_i falls when another score rises."),
    ("the mean of g in place of its sum", lambda scores, g: g - weights_of(scores) * g.mean(-1, keepdims=True),
     "You take the mean of g over the keys. What goes off is p times the *sum* of g."),
    ("one sum for all rows", lambda scores, g: g - weights_of(scores) * g.sum(),
     "You sum g over the whole array. Each row has a softmax of its own: .sum(-1, keepdims=True)."),
    ("normalised over queries", lambda scores, g: g - weights_of(scores, -2) * g.sum(-2, keepdims=True),
     "You took softmax, and the sum of g, over queries (axis −2). It is the row that sums to 1: axis −1."),
    ("wrong sign", lambda scores, g: weights_of(scores) * g.sum(-1, keepdims=True) - g,
     "Every sign is the other way round: g − p Σ g, not p Σ g − g."),
    ("no maximum subtracted", no_maximum_subtracted,
     "exp(1000) is infinity, and ∞/∞ is NaN. The weights need the maximum of their row subtracted in the backward pass "
     "as in the forward pass."),
)  # fmt: skip


def bilinear(Q: Array, K: Array, M: Array, g: Array) -> Gradients:
    return g @ K @ M.T, g.T @ Q @ M, Q.T @ g @ K


bilinear_score_vjp = Exercise(
    7,
    "bilinear_score_vjp(Q, K, M, g): dQ, dK, dM for the scores Q M Kᵀ, whose gradient is g; "
    "(n, q), (m, k), (q, k), (n, m) → (n, q), (m, k), (q, k)",
    bilinear,
    lambda draw: [
        (draw(1, 2), draw(1, 2), draw(2, 2), np.ones((1, 1))),
        (draw(3, 2), draw(3, 2), draw(2, 2), draw(3, 3)),
        (draw(3, 2), draw(5, 7), draw(2, 7), draw(3, 5)),
    ],
)


def m_transposed_in_dk(Q: Array, K: Array, M: Array, g: Array) -> Gradients:
    dQ, _, dM = bilinear(Q, K, M, g)
    return dQ, g.T @ Q @ M.T, dM


def g_not_transposed_in_dk(Q: Array, K: Array, M: Array, g: Array) -> Gradients:
    dQ, _, dM = bilinear(Q, K, M, g)
    return dQ, g @ Q @ M, dM


def dm_transposed(Q: Array, K: Array, M: Array, g: Array) -> Gradients:
    dQ, dK, dM = bilinear(Q, K, M, g)
    return dQ, dK, dM.T


bilinear_score_vjp.knows(
    ("M not transposed in dQ", lambda Q, K, M, g: (g @ K @ M, *bilinear(Q, K, M, g)[1:]),
     "In dQ you multiply by M. The query went forth through M, so its gradient comes back through Mᵀ: dQ = g K Mᵀ. "
     "With q = k the shapes do not tell."),
    ("M transposed in dK", m_transposed_in_dk,
     "In dK you multiply by Mᵀ. The keys stand behind the M as Kᵀ, and S = Q M Kᵀ gives dK = gᵀ (Q M). With q = k the "
     "shapes do not tell."),
    ("g not transposed in dK", g_not_transposed_in_dk,
     "In dK you sum over keys. Key j collects from all queries, over the column j of g: dK = gᵀ Q M. With n = m the "
     "shapes do not tell."),
    ("dM transposed", dm_transposed,
     "You return the transpose of dM. A gradient has the shape of what it belongs to, (q, k): dM = Qᵀ g K."),
    ("M left out", lambda Q, K, M, g: (g @ K, g.T @ Q, Q.T @ g @ K),
     "You return g K and gᵀ Q, the gradients of the plain dot product. M stands between query and key in the backward "
     "pass too."),
)  # fmt: skip


def through_softmax(A: Array, dA: Array) -> Array:
    return A * (dA - (dA * A).sum(-1, keepdims=True))


def layer(
    X: Array,
    W_q: Array,
    W_k: Array,
    W_v: Array,
    g: Array,
    *,
    forth: float = 0.5,
    back: float = 0.5,
    jacobian: Callable[[Array, Array], Array] = through_softmax,
    paths: tuple[int, int, int] = (1, 1, 1),
    share: float = 1,
    turned: Callable[[Array], Array] = np.transpose,
    crossed: Callable[[Array], Array] = np.transpose,
    values: Callable[[Array], Array] = np.transpose,
) -> Gradients:
    """Backwards through self-attention, with what people get wrong in it as options."""
    Q, K, V = X @ W_q, X @ W_k, X @ W_v
    A = weights_of(Q @ K.T / Q.shape[-1] ** forth)
    dS = jacobian(A, g @ V.T) / Q.shape[-1] ** back
    dQ, dK, dV = dS @ K, crossed(dS) @ Q, values(A) @ g
    parts = zip(paths, (dQ, dK, dV), (W_q, W_k, W_v), strict=True)
    dX = share * sum(taken * (dY @ turned(W)) for taken, dY, W in parts)
    return dX, X.T @ dQ, X.T @ dK, X.T @ dV


self_attention_vjp = Exercise(
    7,
    "self_attention_vjp(X, W_q, W_k, W_v, g): dX, dW_q, dW_k, dW_v for self_attention without a mask; "
    "(n, d_in), (d_in, d_k), (d_in, d_k), (d_in, d_v), (n, d_v) → the shapes of the first four",
    layer,
    lambda draw: [
        (draw(2, 1), *draw(3, 1, 1), draw(2, 1)),
        (draw(5, 3), *draw(3, 3, 3), draw(5, 3)),
        (draw(7, 5), *draw(2, 5, 3), draw(5, 2), draw(7, 2)),
    ],
)

ADD = "X is used three times, and what comes back adds up: dQ W_qᵀ + dK W_kᵀ + dV W_vᵀ."


def gradients_of_queries_and_keys_exchanged(
    X: Array, W_q: Array, W_k: Array, W_v: Array, g: Array
) -> Gradients:
    dX, dW_q, dW_k, dW_v = layer(X, W_q, W_k, W_v, g)
    return dX, dW_k, dW_q, dW_v


self_attention_vjp.knows(
    ("the queries' path alone", dict(paths=(1, 0, 0)), f"Your dX has only what comes through the queries. {ADD}"),
    ("the keys' path alone", dict(paths=(0, 1, 0)), f"Your dX has only what comes through the keys. {ADD}"),
    ("the values' path alone", dict(paths=(0, 0, 1)),
     f"Your dX has only what comes through the values, as if the weights were fixed. {ADD}"),
    ("the queries' path missing", dict(paths=(0, 1, 1)),
     f"Your dX lacks what comes through the queries, dQ W_qᵀ. {ADD}"),
    ("the keys' path missing", dict(paths=(1, 0, 1)), f"Your dX lacks what comes through the keys, dK W_kᵀ. {ADD}"),
    ("the values' path missing", dict(paths=(1, 1, 0)),
     "Your dX lacks what comes through the values, dV W_vᵀ. X decides not only who reads whom, but what is read."),
    ("the mean of the paths", dict(share=1 / 3),
     "Your dX is a third of what it should be. Gradients of several uses are added, not averaged."),
    ("projections not transposed", dict(turned=np.asarray),
     "In dX you multiply by W. What went forth through W comes back through Wᵀ. With d_in = d_k the shapes do not "
     "tell."),
    ("dS not transposed in dK", dict(crossed=np.asarray),
     "In dK you sum over keys. Key j collects from all queries, over the column j of dS: dK = dSᵀ Q."),
    ("weights not transposed in dV", dict(values=np.asarray),
     "In dV you multiply by A. Value j went to all queries by the column j of A, and comes back by it: dV = Aᵀ g."),
    ("√d forgotten", dict(forth=0, back=0),
     "Your scores, and your gradients, lack the factor 1/√d. It counts twice: inside the softmax, and in dQ and dK."),
    ("√d not in the backward pass", dict(back=0),
     "Your weights are right, but dQ and dK lack the factor 1/√d: the scores are divided by √d, and so is what comes "
     "back through them."),
    ("√d only in the backward pass", dict(forth=0),
     "You divide what comes back by √d, but not the scores: the weights themselves are too sharp."),
    ("the softmax left out", dict(jacobian=lambda A, dA: dA),
     "You go back through the weights as if they were the scores. Between them stands softmax, with its own Jacobian: "
     "dS = A (dA − Σ dA A), row by row."),
    ("the diagonal of softmax alone", dict(jacobian=lambda A, dA: A * (1 - A) * dA),
     "You go back through softmax as if each weight followed its own score alone. All weights of a row share one sum: "
     "dS = A (dA − Σ dA A)."),
    ("the common part of softmax missing", dict(jacobian=lambda A, dA: A * dA),
     "dS = A dA lacks what all weights of a row share: dS = A (dA − Σ dA A), the sum over the row."),
    by_hand=layer,
)  # fmt: skip
self_attention_vjp.knows(
    ("the gradients of queries and keys exchanged", gradients_of_queries_and_keys_exchanged,
     "What you return for W_q belongs to W_k, and the other way round: dQ = s dS K, dK = s dSᵀ Q."),
)  # fmt: skip


def shared(
    Q: Array,
    K: Array,
    V: Array,
    g: Array,
    *,
    spread: Callable[[Array, int], Array] = lambda x, size: x.repeat(size, 0),
    gather: Callable[[Array, int], Array] = lambda x, size: x.reshape(
        -1, size, *x.shape[1:]
    ).sum(1),
    back: bool = True,
) -> Gradients:
    """Backwards through heads that share keys, with what people get wrong in it as options."""
    size = len(Q) // len(K)
    K, V = spread(K, size), spread(V, size)
    A = weights_of(Q @ K.mT / Q.shape[-1] ** 0.5)
    dS = through_softmax(A, g @ V.mT) / (Q.shape[-1] ** 0.5 if back else 1)
    return dS @ K, gather(dS.mT @ Q, size), gather(A.mT @ g, size)


grouped_attention_vjp = Exercise(
    7,
    "grouped_attention_vjp(Q, K, V, g): dQ, dK, dV where query head i reads key head ⌊i h_kv / h⌋, no mask; "
    "(h, n, d), (h_kv, m, d), (h_kv, m, d_v), (h, n, d_v) → the shapes of the first three",
    shared,
    lambda draw: [
        (draw(2, 1, 1), draw(1, 2, 1), draw(1, 2, 1), np.ones((2, 1, 1))),
        (draw(6, 5, 3), draw(2, 7, 3), draw(2, 7, 2), draw(6, 5, 2)),
        (draw(4, 3, 2), draw(2, 5, 2), draw(2, 5, 3), draw(4, 3, 3)),
        (draw(3, 5, 2), draw(3, 7, 2), draw(3, 7, 2), draw(3, 5, 2)),
    ],
)


def one_of_the_group(k: int) -> Callable[[Array, int], Array]:
    return lambda x, size: x.reshape(-1, size, *x.shape[1:])[:, k]


def turn_about(x: Array, size: int) -> Array:
    return x.reshape(size, -1, *x.shape[1:]).sum(0)


ADD_HEADS = "A key that several heads read gets the sum of what comes back from each."

grouped_attention_vjp.knows(
    ("the mean of the group", dict(gather=lambda x, size: x.reshape(-1, size, *x.shape[1:]).mean(1)),
     f"Your dK and dV are too small by the number of heads that share a key. {ADD_HEADS}"),
    ("the first head of the group alone", dict(gather=one_of_the_group(0)),
     f"Your dK and dV are those of the first head of each group. {ADD_HEADS}"),
    ("the last head of the group alone", dict(gather=one_of_the_group(-1)),
     f"Your dK and dV are those of the last head of each group, as if each head wrote over the one before. "
     f"{ADD_HEADS}"),
    ("heads take turns", dict(spread=lambda x, size: np.tile(x, (size, *[1] * (x.ndim - 1))), gather=turn_about),
     "You give query head i the key head i mod h_kv. Neighbours share: heads 0, 1, … of the first group read key head "
     "0. Repeat each head (repeat, repeat_interleave), not the whole row of them (tile)."),
    ("added up over the wrong heads", dict(gather=turn_about),
     "On the way forth neighbours share a key head, on the way back you add up every h_kv-th head. Reshape to (h_kv, "
     "size, …) and sum over the second axis."),
    ("√d not in the backward pass", dict(back=False),
     "Your weights are right, but dQ and dK lack the factor 1/√d: the scores are divided by √d, and so is what comes "
     "back through them."),
    by_hand=shared,
)  # fmt: skip


def masked(
    Q: Array,
    K: Array,
    V: Array,
    mask: Array,
    g: Array,
    *,
    forth: Callable[[Array, Array], Array] = lambda S, mask: np.where(mask, S, -np.inf),
    clear: bool = True,
    clear_q: bool = True,
    clear_g: bool = True,
    empty: Callable[[Array, Array], Array] = lambda A, mask: np.where(mask, A, 0),
    back: Callable[[Array, Array], Array] = lambda dA, mask: dA,
) -> Gradients:
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

masked_attention_vjp = Exercise(
    7,
    "masked_attention_vjp(Q, K, V, mask, g): dQ, dK, dV; True may be read, what no query reads may be NaN, a query "
    "with nothing to read may be NaN, as may its g; neither gets or sends a gradient (0); (n, d), (m, d), (m, d_v), "
    "(n, m), (n, d_v) → shapes of the first three",
    masked,
    lambda draw: [
        (draw(3, 2), draw(5, 2), draw(5, 7), np.ones((3, 5), bool), draw(3, 7)),
        (draw(3, 2), draw(5, 2), draw(5, 7), padded, draw(3, 7)),
        (draw(3, 2), draw(3, 2), draw(3, 5), np.tri(3, dtype=bool), draw(3, 5)),
        (draw(3, 2), draw(3, 2), draw(3, 5), some, draw(3, 5)),
        (draw(3, 7), draw(5, 7), pads, padded, draw(3, 2)),
        (
            np.where(reads, draw(3, 2), np.nan),
            *draw(2, 3, 2),
            some,
            np.where(reads, draw(3, 2), np.nan),
        ),
    ],
)

masked_attention_vjp.knows(
    ("the mask not used", dict(forth=lambda S, mask: S, empty=lambda A, mask: A),
     "You go back through attention without the mask. A weight that is 0 on the way forth lets nothing back."),
    ("masked after softmax", dict(forth=lambda S, mask: S),
     "You clear the weights after softmax: the others no longer sum to 1, and the gradient of softmax does not hold. "
     "Clear the scores."),
    ("the mask on the way back alone",
     dict(forth=lambda S, mask: S, empty=lambda A, mask: A, back=lambda dA, mask: np.where(mask, dA, 0)),
     "Your weights know nothing of the mask; you only clear dA. The mask belongs into the scores, and the way back "
     "then needs none: where a weight is 0, so is its gradient."),
    ("NaN not cleared", dict(clear=False),
     "A hidden value is NaN, and 0 · NaN is NaN: it enters the mean r of every row, and so every query and key. Put 0 "
     "in the place of what nobody may read before the product."),
    ("a query with nothing to read", dict(empty=lambda A, mask: A),
     "A row of scores that are all −∞ has no softmax: 0/0 is NaN. Put 0 in its place, so that the query sends nothing "
     "back."),
    ("NaN of an idle query not cleared", dict(clear_q=False),
     "A query with nothing to read is NaN, and 0 · NaN is NaN: through dSᵀ Q it enters every key. Put 0 in its place "
     "before the product."),
    ("NaN of an idle query's g not cleared", dict(clear_g=False),
     "The g of a query with nothing to read is NaN, and 0 · NaN is NaN: through Aᵀ g it enters every value. Put 0 in "
     "its place before the product."),
    ("an even share for a query with nothing to read",
     dict(forth=lambda S, mask: np.where(mask, S, -1000000000.0), empty=lambda A, mask: A, clear_g=False),
     "With a large negative number in place of −∞ a query with nothing to read spreads its weight over all keys, and "
     "hands its gradient to values that it may not read."),
    ("True hides", dict(forth=lambda S, mask: np.where(mask, -np.inf, S), empty=lambda A, mask: np.where(mask, 0, A)),
     "You read the mask the other way round. True may be read."),
    by_hand=masked,
)  # fmt: skip
