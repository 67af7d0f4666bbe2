"""Chapter 7: gradients by differences, and by hand."""

from collections.abc import Callable

import numpy as np

import attn_tutor.numpy as an
from attn_tutor.check.exercise import Exercise
from attn_tutor.check.inputs import LN3, Array, numbers, weights_of

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


def sum_of_cubes(x: Array) -> float:
    return float((x**3).sum())


def largest_share(x: Array) -> float:
    return float(weights_of(3 * x.ravel())[0])


numerical_gradient = Exercise(
    7,
    "numerical_gradient(f, x): ∂f/∂x by central differences, an entry at a time; f takes an array like x to a number; "
    "(…) → (…)",
    central,
    [
        (sum_of_cubes, np.array([1.0, 2.0])),
        (cube_of_the_sum, np.array([1.0, 2.0])),
        (largest_share, draw(3)),
        (cube_of_the_sum, draw(2, 3) + 1),
        (sum_of_cubes, draw(2, 3, 5)),
    ],
    tolerance=1e-6,
)


def one_sided(step: float) -> Callable[[Scalar, Array], Array]:
    def wrong(f: Scalar, x: Array) -> Array:
        """You compare f(x + h) with f(x). That is off by about h/2 times the second derivative. Take as much on the
        other side, (f(x + h) − f(x − h)) / 2h: the second derivative cancels."""
        return differences(f, x, step, 0, step)

    return wrong


for step in (1e-3, 1e-4, 1e-5, -1e-3, -1e-4, -1e-5):
    numerical_gradient.mistake("one-sided differences")(one_sided(step))


def large(step: float) -> Callable[[Scalar, Array], Array]:
    def wrong(f: Scalar, x: Array) -> Array:
        """Your step is too large: the error of central differences grows with its square. About 10⁻⁵ is best in
        float64."""
        return differences(f, x, step, -step, 2 * step)

    return wrong


for step in (0.5, 0.1, 0.05, 0.01):
    numerical_gradient.mistake("a step that is too large")(large(step))


@numerical_gradient.mistake("divided by h in place of 2h")
def _(f: Scalar, x: Array) -> Array:
    """Your gradient is twice too large. From x − h to x + h it is a way of 2h."""
    return 2 * central(f, x)


@numerical_gradient.mistake("not divided by 2h")
def _(f: Scalar, x: Array) -> Array:
    """You return the difference and do not divide it by the way, 2h."""
    return 2e-5 * central(f, x)


@numerical_gradient.mistake("all entries moved at once")
def _(f: Scalar, x: Array) -> Array:
    """You move all entries together: every entry gets the sum of the gradient. Move one, and leave the others."""
    return np.full(x.shape, central(f, x).sum())


@numerical_gradient.mistake("an entry not moved back")
def _(f: Scalar, x: Array) -> Array:
    """You move an entry to x − h and go on from there: later entries are taken at another point. Put the old value
    back before you move the next."""
    x, found = x.copy(), np.empty(x.shape)
    for i in np.ndindex(x.shape):
        x[i] += 1e-5
        up = f(x)
        x[i] -= 2e-5
        found[i] = (up - f(x)) / 2e-5
    return found


@numerical_gradient.mistake("a step that is too small")
def _(f: Scalar, x: Array) -> Array:
    """Your step is lost when it is added: in float64 1 + 10⁻¹⁷ is 1, so that the difference is 0. Take a step near the
    cube root of the precision, about 10⁻⁵."""
    return differences(f, x, 1e-17, -1e-17, 2e-17)


log_softmax_vjp = Exercise(
    7,
    "log_softmax_vjp(scores, g): the gradient by the scores, where g is that by log softmax(scores); "
    "(…, n, m), (…, n, m) → (…, n, m)",
    lambda scores, g: g - weights_of(scores) * g.sum(-1, keepdims=True),
    [
        (np.array([[LN3, 0.0]]), np.array([[1.0, 0.0]])),
        (np.array([[1000.0, 999.0]]), np.array([[-2.0, 1.0]])),
        (draw(3, 5), draw(3, 5)),
        (draw(3, 5).astype(np.float32), draw(3, 5).astype(np.float32)),
        (draw(2, 3, 5), draw(2, 3, 5)),
        (np.array([[-1000.0, -999.0]]), np.array([[-2.0, 1.0]])),
    ],
)


@log_softmax_vjp.mistake("the gradient of softmax")
def _(scores: Array, g: Array) -> Array:
    """You return p(g − g·p), the gradient of softmax. The logarithm divides by p: ∂ log p_i / ∂s_j = δ_ij − p_j, so
    that it is g_j − p_j Σ_i g_i."""
    p = weights_of(scores)
    return p * (g - (p * g).sum(-1, keepdims=True))


@log_softmax_vjp.mistake("g not summed")
def _(scores: Array, g: Array) -> Array:
    """You return g(1 − p), entry by entry. Every log p_i falls when s_j rises: p_j times the sum of the whole row of g
    goes off."""
    return g * (1 - weights_of(scores))


@log_softmax_vjp.mistake("the weighted mean subtracted")
def _(scores: Array, g: Array) -> Array:
    """You subtract g·p, the same number for every key. What goes off is the sum of g, times the key's own weight."""
    return g - (weights_of(scores) * g).sum(-1, keepdims=True)


@log_softmax_vjp.mistake("the mean of g in place of its sum")
def _(scores: Array, g: Array) -> Array:
    """You take the mean of g over the keys. What goes off is p times the *sum* of g."""
    return g - weights_of(scores) * g.mean(-1, keepdims=True)


@log_softmax_vjp.mistake("one sum for all rows")
def _(scores: Array, g: Array) -> Array:
    """You sum g over the whole array. Each row has a softmax of its own: .sum(-1, keepdims=True)."""
    return g - weights_of(scores) * g.sum()


@log_softmax_vjp.mistake("normalised over queries")
def _(scores: Array, g: Array) -> Array:
    """You took softmax, and the sum of g, over queries (axis −2). It is the row that sums to 1: axis −1."""
    return g - weights_of(scores, -2) * g.sum(-2, keepdims=True)


@log_softmax_vjp.mistake("wrong sign")
def _(scores: Array, g: Array) -> Array:
    """Every sign is the other way round: g − p Σ g, not p Σ g − g."""
    return weights_of(scores) * g.sum(-1, keepdims=True) - g


@log_softmax_vjp.mistake("no maximum subtracted")
def _(scores: Array, g: Array) -> Array:
    """exp(1000) is infinity, and ∞/∞ is NaN. The weights need the maximum of their row subtracted in the backward pass
    as in the forward pass."""
    e = np.exp(scores)
    return g - e / e.sum(-1, keepdims=True) * g.sum(-1, keepdims=True)


def bilinear(Q: Array, K: Array, M: Array, g: Array) -> Gradients:
    return g @ K @ M.T, g.T @ Q @ M, Q.T @ g @ K


bilinear_score_vjp = Exercise(
    7,
    "bilinear_score_vjp(Q, K, M, g): dQ, dK, dM for the scores Q M Kᵀ, whose gradient is g; "
    "(n, q), (m, k), (q, k), (n, m) → (n, q), (m, k), (q, k)",
    bilinear,
    [
        (draw(1, 2), draw(1, 2), draw(2, 2), np.ones((1, 1))),
        (draw(3, 2), draw(3, 2), draw(2, 2), draw(3, 3)),
        (draw(3, 2), draw(5, 7), draw(2, 7), draw(3, 5)),
    ],
)


@bilinear_score_vjp.mistake("M not transposed in dQ")
def _(Q: Array, K: Array, M: Array, g: Array) -> Gradients:
    """In dQ you multiply by M. The query went forth through M, so its gradient comes back through Mᵀ: dQ = g K Mᵀ. With
    q = k the shapes do not tell."""
    return g @ K @ M, *bilinear(Q, K, M, g)[1:]


@bilinear_score_vjp.mistake("M transposed in dK")
def _(Q: Array, K: Array, M: Array, g: Array) -> Gradients:
    """In dK you multiply by Mᵀ. The keys stand behind the M as Kᵀ, and S = Q M Kᵀ gives dK = gᵀ (Q M). With q = k the
    shapes do not tell."""
    dQ, _, dM = bilinear(Q, K, M, g)
    return dQ, g.T @ Q @ M.T, dM


@bilinear_score_vjp.mistake("g not transposed in dK")
def _(Q: Array, K: Array, M: Array, g: Array) -> Gradients:
    """In dK you sum over keys. Key j collects from all queries, over the column j of g: dK = gᵀ Q M. With n = m the
    shapes do not tell."""
    dQ, _, dM = bilinear(Q, K, M, g)
    return dQ, g @ Q @ M, dM


@bilinear_score_vjp.mistake("dM transposed")
def _(Q: Array, K: Array, M: Array, g: Array) -> Gradients:
    """You return the transpose of dM. A gradient has the shape of what it belongs to, (q, k): dM = Qᵀ g K."""
    dQ, dK, dM = bilinear(Q, K, M, g)
    return dQ, dK, dM.T


@bilinear_score_vjp.mistake("M left out")
def _(Q: Array, K: Array, M: Array, g: Array) -> Gradients:
    """You return g K and gᵀ Q, the gradients of the plain dot product. M stands between query and key in the backward
    pass too."""
    return g @ K, g.T @ Q, Q.T @ g @ K


@bilinear_score_vjp.mistake("g left out")
def _(Q: Array, K: Array, M: Array, g: Array) -> Gradients:
    """Your gradients do not depend on g: you differentiated the sum of the scores. Each score counts as much as g
    says."""
    return bilinear(Q, K, M, np.ones_like(g))


def layer(X: Array, W_q: Array, W_k: Array, W_v: Array, g: Array) -> Gradients:
    dQ, dK, dV = an.attention_vjp(X @ W_q, X @ W_k, X @ W_v, g)
    dX = dQ @ W_q.T + dK @ W_k.T + dV @ W_v.T
    return dX, X.T @ dQ, X.T @ dK, X.T @ dV


self_attention_vjp = Exercise(
    7,
    "self_attention_vjp(X, W_q, W_k, W_v, g): dX, dW_q, dW_k, dW_v for self_attention without a mask; "
    "(n, d_in), (d_in, d_k), (d_in, d_k), (d_in, d_v), (n, d_v) → the shapes of the first four",
    layer,
    [
        (draw(2, 1), *draw(3, 1, 1), draw(2, 1)),
        (draw(5, 3), *draw(3, 3, 3), draw(5, 3)),
        (draw(7, 5), *draw(2, 5, 3), draw(5, 2), draw(7, 2)),
    ],
)


@self_attention_vjp.mistake("the queries' path alone")
def _(X: Array, W_q: Array, W_k: Array, W_v: Array, g: Array) -> Gradients:
    """Your dX has only what comes through the queries. X is used three times, and what comes back adds up:
    dQ W_qᵀ + dK W_kᵀ + dV W_vᵀ."""
    dQ, _, _ = an.attention_vjp(X @ W_q, X @ W_k, X @ W_v, g)
    return dQ @ W_q.T, *layer(X, W_q, W_k, W_v, g)[1:]


@self_attention_vjp.mistake("the values' path alone")
def _(X: Array, W_q: Array, W_k: Array, W_v: Array, g: Array) -> Gradients:
    """Your dX has only what comes through the values, as if the weights were fixed. They depend on X twice, through the
    queries and through the keys: add dQ W_qᵀ + dK W_kᵀ."""
    _, _, dV = an.attention_vjp(X @ W_q, X @ W_k, X @ W_v, g)
    return dV @ W_v.T, *layer(X, W_q, W_k, W_v, g)[1:]


@self_attention_vjp.mistake("the values' path missing")
def _(X: Array, W_q: Array, W_k: Array, W_v: Array, g: Array) -> Gradients:
    """Your dX lacks what comes through the values, dV W_vᵀ. X decides not only who reads whom, but what is read."""
    dX, *rest = layer(X, W_q, W_k, W_v, g)
    _, _, dV = an.attention_vjp(X @ W_q, X @ W_k, X @ W_v, g)
    return dX - dV @ W_v.T, *rest


@self_attention_vjp.mistake("the keys' path missing")
def _(X: Array, W_q: Array, W_k: Array, W_v: Array, g: Array) -> Gradients:
    """Your dX lacks what comes through the keys, dK W_kᵀ. X is used three times, and all three come back."""
    dX, *rest = layer(X, W_q, W_k, W_v, g)
    _, dK, _ = an.attention_vjp(X @ W_q, X @ W_k, X @ W_v, g)
    return dX - dK @ W_k.T, *rest


@self_attention_vjp.mistake("the queries' path missing")
def _(X: Array, W_q: Array, W_k: Array, W_v: Array, g: Array) -> Gradients:
    """Your dX lacks what comes through the queries, dQ W_qᵀ. X is used three times, and all three come back."""
    dX, *rest = layer(X, W_q, W_k, W_v, g)
    dQ, _, _ = an.attention_vjp(X @ W_q, X @ W_k, X @ W_v, g)
    return dX - dQ @ W_q.T, *rest


@self_attention_vjp.mistake("the mean of the paths")
def _(X: Array, W_q: Array, W_k: Array, W_v: Array, g: Array) -> Gradients:
    """Your dX is a third of what it should be. Gradients of several uses are added, not averaged."""
    dX, *rest = layer(X, W_q, W_k, W_v, g)
    return dX / 3, *rest


@self_attention_vjp.mistake("projections not transposed")
def _(X: Array, W_q: Array, W_k: Array, W_v: Array, g: Array) -> Gradients:
    """In dX you multiply by W. What went forth through W comes back through Wᵀ. With d_in = d_k the shapes do not
    tell."""
    dQ, dK, dV = an.attention_vjp(X @ W_q, X @ W_k, X @ W_v, g)
    return dQ @ W_q + dK @ W_k + dV @ W_v, X.T @ dQ, X.T @ dK, X.T @ dV


@self_attention_vjp.mistake("√d forgotten")
def _(X: Array, W_q: Array, W_k: Array, W_v: Array, g: Array) -> Gradients:
    """Your scores, and your gradients, lack the factor 1/√d. It counts twice: inside the softmax, and in dQ and dK."""
    dQ, dK, dV = an.attention_vjp(X @ W_q, X @ W_k, X @ W_v, g, scale=1.0)
    return dQ @ W_q.T + dK @ W_k.T + dV @ W_v.T, X.T @ dQ, X.T @ dK, X.T @ dV


@self_attention_vjp.mistake("√d not in the backward pass")
def _(X: Array, W_q: Array, W_k: Array, W_v: Array, g: Array) -> Gradients:
    """Your weights are right, but dQ and dK lack the factor 1/√d: the scores are divided by √d, and so is what comes back
    through them."""
    dQ, dK, dV = an.attention_vjp(X @ W_q, X @ W_k, X @ W_v, g)
    dQ, dK = (x * W_q.shape[-1] ** 0.5 for x in (dQ, dK))
    return dQ @ W_q.T + dK @ W_k.T + dV @ W_v.T, X.T @ dQ, X.T @ dK, X.T @ dV


@self_attention_vjp.mistake("the softmax left out")
def _(X: Array, W_q: Array, W_k: Array, W_v: Array, g: Array) -> Gradients:
    """You go back through the scores as if the weights were the scores. Between them stands softmax, with its own
    Jacobian: dS = A (dA − Σ dA A), row by row."""
    Q, K, V = X @ W_q, X @ W_k, X @ W_v
    scale = Q.shape[-1] ** -0.5
    A, dS = weights_of(Q @ K.T * scale), g @ V.T * scale
    dQ, dK, dV = dS @ K, dS.T @ Q, A.T @ g
    return dQ @ W_q.T + dK @ W_k.T + dV @ W_v.T, X.T @ dQ, X.T @ dK, X.T @ dV


@self_attention_vjp.mistake("the gradients of queries and keys exchanged")
def _(X: Array, W_q: Array, W_k: Array, W_v: Array, g: Array) -> Gradients:
    """What you return for W_q belongs to W_k, and the other way round: dQ = s dS K, dK = s dSᵀ Q."""
    dX, dW_q, dW_k, dW_v = layer(X, W_q, W_k, W_v, g)
    return dX, dW_k, dW_q, dW_v
