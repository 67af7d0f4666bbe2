"""Chapter 9: what stands around attention in a transformer, what it learns from, and how it writes."""

import numpy as np

from attn_tutor.check.chapters.inputs import Array, weights_of
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
