"""Chapter 9: what stands around attention in a transformer, what it learns from, and how it writes."""

from typing import Any

import numpy as np

from attn_tutor.check.chapters.inputs import Array, named, weights_of
from attn_tutor.check.exercise import Exercise, Function

EPS = 1e-5


def mean(x: Array) -> Array:
    return np.asarray(x.mean(-1, keepdims=True))


def normed(X: Array, gain: Array, shift: Array, *, eps: float = EPS, bessel: bool = False, centre: bool = True,
           variance: Function = lambda X: mean(X**2), power: float = 0.5, outside: float = 0,
           after: Function = lambda Y, gain, shift: Y * gain + shift) -> Array:  # fmt: skip
    """Layer norm, with what people get wrong in it as options."""
    Y = X - mean(X) if centre else X
    squares = variance(Y) * (X.shape[-1] / (X.shape[-1] - 1) if bessel else 1)
    return np.asarray(after(Y / ((squares + eps) ** power + outside), gain, shift))


layer_norm = Exercise(9, "layer_norm(X, gain, shift): each row less its mean, over √(variance + 1e-5), times gain, "
    "plus shift; (…, n, d), (d,), (d,) → (…, n, d)",
    normed, lambda draw: [(np.array([[1.0, 3.0]]), np.ones(2), np.zeros(2)),
        (np.array([[1.0, 3.0], [2.0, 8.0]]), np.array([2.0, 0.5]), np.array([1.0, 0])),
        (np.array([[4.0, 4.0, 4.0]]), np.ones(3), np.zeros(3)), (0.004 * draw(3, 5), np.ones(5), np.zeros(5)),
        (draw(2, 3, 7) + 5, draw(7), draw(7)), (1e7 + draw(2, 3), np.ones(3), np.zeros(3))],
    ("RMS norm", dict(centre=False),
     "This is RMS norm: you divide by the root of the mean square, with the mean in. Layer norm subtracts it first."),
    ("divided by the variance", dict(power=1),
     "You divide by the variance. Its root, the standard deviation, makes the variance of the result 1."),
    ("n − 1 in the variance", dict(bessel=True),
     "You divide the squares by d − 1, as torch's var does unless told (correction=0). The norm divides by d."),
    ("no 1e-5", dict(eps=0),
     "A row of equal entries has the variance 0, and 0/0 is NaN. The 1e-5 under the root is there for it."),
    ("another number than 1e-5", [dict(eps=eps) for eps in (1e-3, 1e-4, 1e-6, 1e-8, 1e-12)],
     "The number that you add to the variance is not 1e-5. For rows of small entries that makes a difference."),
    ("1e-5 outside the root", dict(eps=0, outside=EPS),
     "You add 1e-5 after the root. It belongs under it: for rows of small entries that is another number."),
    ("variance as E[x²] − E[x]²",
     lambda X, gain, shift: normed(X, gain, shift, variance=lambda _: mean(X**2) - mean(X) ** 2),
     "Your variance is E[x²] − E[x]²: two large numbers that nearly cancel, to rounding. Subtract the mean first."),
    ("the gain twice", dict(after=lambda Y, gain, shift: (Y * gain + shift) * gain),
     "You multiply by the gain twice, the second time with the shift: F.layer_norm may have done it already."),
    ("shift before the gain", dict(after=lambda Y, gain, shift: (Y + shift) * gain),
     "You add the shift before you multiply by the gain. First times gain, then plus shift."))  # fmt: skip


def wired(X: Array, attention: Function, mlp: Function, *, add: tuple[bool, bool] = (True, True), stream: bool = True,
          post: bool = False, second: Function = lambda X, Y: (Y, Y), norm: Function = normed,
          **options: Any) -> Array:  # fmt: skip
    """A block, with what people get wrong in its wiring as options."""

    def normal(X: Array) -> Array:
        return norm(X, np.ones(1), np.zeros(1), **options)

    def part(kept: Array, read: Array, compute: Function, adds: bool) -> Array:
        if post:
            return normal(kept + compute(read))
        kept = kept if stream else normal(kept)
        return np.asarray(adds * kept + compute(normal(read)))

    Y = part(X, X, attention, add[0])
    kept, read = second(X, Y)
    return part(kept, read, mlp, add[1])


HALF = named("half", lambda N: N / 2)
SAME = named("same", lambda N: N)
RUNNING = named(
    "running_mean", lambda N: np.cumsum(N, -2) / np.arange(1, N.shape[-2] + 1)[:, None]
)
RELU = named("relu", lambda N: np.maximum(N, 0))
SQUARE = named("square", lambda N: N**2)

block = Exercise(9, "block(X, attention, mlp): Y = X + attention(norm(X)), then Y + mlp(norm(Y)); norm takes from each "
    "row its mean and divides by √(variance + 1e-5); (…, n, d) → (…, n, d)",
    wired, lambda draw: [(np.array([[1.0, 3.0]]), HALF, SAME), (np.array([[6.0, 2.0], [1.0, 3.0]]), RUNNING, RELU),
        (3 * draw(5, 7) + 1, RUNNING, SQUARE), (draw(2, 3, 5), RUNNING, RELU), (0.004 * draw(3, 5), HALF, SQUARE),
        (np.full((2, 3), 4.0), HALF, SAME)],
    ("no residual connections", dict(add=(False, False)),
     "You return what the parts compute. A block adds it to what was there: Y = X + attention(norm(X)), and again."),
    ("the first addition missing", dict(add=(False, True)),
     "Your Y is what attention returns. It belongs on top of the token: Y = X + attention(norm(X))."),
    ("the second addition missing", dict(add=(True, False)),
     "You return what the MLP computes. It is added to Y: return Y + mlp(norm(Y))."),
    ("norms after the additions", dict(post=True),
     "You normalise after each addition, as in 2017. Here each part reads a norm, and the sum stays as it is."),
    ("no norms", dict(norm=lambda X, gain, shift: X),
     "Your parts read X and Y themselves. Each of them reads a normalised copy."),
    ("the normalised token kept", dict(stream=False),
     "You add to the normalised token. Only the part reads the norm; what it returns is added to X, and then to Y."),
    ("the MLP reads X", dict(second=lambda X, Y: (Y, X)),
     "Your MLP reads the norm of X. It comes after attention, and reads the norm of Y."),
    ("the MLP's result added to X", dict(second=lambda X, Y: (X, Y)),
     "You add what the MLP returns to X, so what attention found is lost. Add it to Y."),
    ("attention after the MLP", lambda X, attention, mlp: wired(X, mlp, attention),
     "Your MLP comes first. First attention adds to X, then the MLP to the result."),
    ("only the first half", lambda X, attention, mlp: X + attention(normed(X, np.ones(1), np.zeros(1))),
     "You return Y. The MLP is missing: return Y + mlp(norm(Y))."),
    ("norm over the tokens", dict(norm=lambda X, gain, shift: normed(X.mT, gain, shift).mT),
     "Your norm runs over the tokens. Each token is normalised by itself: mean and variance along the last axis."),
    ("no 1e-5", dict(eps=0),
     "A row of equal entries has the variance 0, and 0/0 is NaN. Add 1e-5 to the variance, under the root."),
    ("divided by the variance", dict(power=1),
     "You divide by the variance. Its root, the standard deviation, makes the variance of the result 1."),
    ("n − 1 in the variance", dict(bessel=True),
     "You divide the squares by d − 1, as torch's var does unless told. The norm divides by d."))  # fmt: skip


def pairs(ids: Array, starts: Array, n: int, ahead: int = 1) -> tuple[Array, Array]:
    places = starts[:, None] + np.arange(n)
    return ids[places], ids[places + ahead]


TEXT = np.array([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4])

windows = Exercise(9, "windows(ids, starts, n): n tokens from each start, and the token that follows each of them; "
    "(N,), (b,) → (b, n), (b, n)",
    pairs, [(TEXT[:5], np.array([1]), 2), (TEXT, np.array([4]), 5), (TEXT, np.array([11, 2, 7]), 5),
        (TEXT, np.array([1, 11, 5, 3, 9, 2]), 7)],
    ("targets are the inputs", lambda ids, starts, n: pairs(ids, starts, n, 0),
     "Your targets are the inputs: a model learns to copy them. The target is the next token."))  # fmt: skip


def log_p(logits: Array, targets: Array) -> Array:
    top = logits.max(-1, keepdims=True)
    logs = logits - top - np.log(np.exp(logits - top).sum(-1, keepdims=True))
    return np.take_along_axis(logs, targets[..., None], -1)[..., 0]


next_token_loss = Exercise(9, "next_token_loss(logits, targets): mean of −ln softmax(logits)[target] over all tokens; "
    "(…, n, V), (…, n) → one number",
    lambda logits, targets: -log_p(logits, targets).mean(), lambda draw: [
        (np.array([[np.log(3.0), 0.0]]), np.array([0])), (np.array([[np.log(3.0), 0.0], [0.0, 0.0]]), np.array([1, 0])),
        (draw(5, 3), np.array([0, 2, 1, 1, 0])), (draw(2, 3, 7), np.array([[0, 6, 3], [5, 5, 1]])),
        (np.array([[0.0, 1000.0], [1000.0, 0.0]]), np.array([0, 0]))],
    ("the sum, not the mean", [lambda logits, targets: -log_p(logits, targets).sum(),
                               lambda logits, targets: -log_p(logits, targets).sum(-1).mean()],
     "You add up the losses of the tokens. A mean over all tokens, of all sequences, does not depend on their number."),
    ("the sign", lambda logits, targets: log_p(logits, targets).mean(),
     "Your loss is negative: the logarithm of a probability is below 0, and the loss is minus that."),
    ("ln of 0", lambda logits, targets: -np.log(np.take_along_axis(weights_of(logits), targets[..., None], -1)).mean(),
     "Your loss is infinite: softmax rounded a probability to 0 before ln. Take x − max − ln Σ exp(x − max)."),
    ("softmax twice", lambda logits, targets: -log_p(weights_of(logits), targets).mean(),
     "You take softmax twice: F.cross_entropy takes it itself, of logits, and you hand it probabilities."),
    ("no softmax", lambda logits, targets: -np.take_along_axis(logits, targets[..., None], -1).mean(),
     "You average minus the logits of the targets. A logit is no log-probability: take ln softmax first."),
    ("shifted once more", lambda logits, targets: -(x := log_p(logits[..., :-1, :], targets[..., 1:])).sum() / x.size,
     "You shift targets against logits. They are already the next tokens: row i of the logits belongs to targets[i]."),
    ("no logarithm", lambda logits, targets: 1 - np.exp(log_p(logits, targets)).mean(),
     "You average 1 − p, the probability of a wrong token. The loss is −ln p."))  # fmt: skip
