"""Chapter 9: what stands around attention in a transformer, what it learns from, and how it writes."""

from collections.abc import Callable
from typing import Any

import numpy as np

from attn_tutor.check.chapters.inputs import Array, numbers, weights_of
from attn_tutor.check.exercise import Exercise

draw = numbers(9)
EPS = 1e-5


def normed(X: Array, gain: Array, shift: Array, *, axis: Any = -1, eps: float = EPS, ddof: int = 0,
           centre: bool = True, around: bool = True, power: float = 0.5, outside: float = 0,
           after: Callable[[Array, Array, Array], Array] = lambda Y, gain,
           shift: (Y * gain + shift)) -> Array:  # fmt: skip
    """Layer norm, with what people get wrong in it as options."""
    centred = X - X.mean(axis, keepdims=True)
    squares = ((centred if around else X) ** 2).sum(axis, keepdims=True)
    variance = squares / (X.size / squares.size - ddof)
    Y = (centred if centre else X) / ((variance + eps) ** power + outside)
    return after(Y, gain, shift)


layer_norm = Exercise(9,
    "layer_norm(X, gain, shift): each row less its mean, over √(variance + 1e-5), times gain, plus shift; "
    "(…, n, d), (d,), (d,) → (…, n, d)",
    normed, lambda draw: [
        (np.array([[1.0, 3.0]]), np.ones(2), np.zeros(2)),
        (np.array([[1.0, 3.0], [2.0, 8.0]]), np.array([2.0, 0.5]), np.array([1.0, 0])),
        (np.array([[4.0, 4.0, 4.0]]), np.ones(3), np.zeros(3)), (0.004 * draw(3, 5), np.ones(5), np.zeros(5)),
        (draw(2, 3, 7) + 5, draw(7), draw(7)), (1e7 + draw(2, 3), np.ones(3), np.zeros(3))
    ])  # fmt: skip


def variance_as_e_x2_minus_e_x_2(X: Array, gain: Array, shift: Array) -> Array:
    mean = X.mean(-1, keepdims=True)
    variance = (X**2).mean(-1, keepdims=True) - mean**2
    return (X - mean) / np.sqrt(variance + EPS) * gain + shift


layer_norm.knows(
    ("over the tokens", dict(axis=-2),
     "You normalise each column over the tokens, so that a token's numbers depend on its neighbours, later ones too. "
     "The norm works on each row by itself: axis −1."),
    ("over axis 1", dict(axis=1),
     "You normalise over axis 1. For one example those are the numbers of a token; in a batch (b, n, d) they are the "
     "tokens. Count from the end: axis −1."),
    ("over the whole array", dict(axis=None),
     "You take one mean and one variance of the whole array. Each row has its own: axis −1, keepdims=True."),
    ("RMS norm", dict(centre=False, around=False),
     "This is RMS norm: you divide by the root of the mean square and leave the mean in. Many models use it; layer "
     "norm subtracts the mean of the row first."),
    ("divided by the variance", dict(power=1),
     "You divide by the variance. Its root, the standard deviation, makes the variance of the result 1."),
    ("n − 1 in the variance", dict(ddof=1),
     "You divide the squares by d − 1, as torch's var does unless told (correction=0). The norm divides by d."),
    ("no 1e-5", dict(eps=0),
     "A row of equal entries has the variance 0, and 0/0 is NaN. The 1e-5 under the root is there for it."),
    ("another number than 1e-5", dict(eps=0.001),
     "The number that you add to the variance is not 1e-5. For rows of small entries that makes a difference."),
    ("another number than 1e-5", dict(eps=0.0001),
     "The number that you add to the variance is not 1e-5. For rows of small entries that makes a difference."),
    ("another number than 1e-5", dict(eps=1e-06),
     "The number that you add to the variance is not 1e-5. For rows of small entries that makes a difference."),
    ("another number than 1e-5", dict(eps=1e-08),
     "The number that you add to the variance is not 1e-5. For rows of small entries that makes a difference."),
    ("another number than 1e-5", dict(eps=1e-12),
     "The number that you add to the variance is not 1e-5. For rows of small entries that makes a difference."),
    ("1e-5 outside the root", dict(eps=0, outside=EPS),
     "You add 1e-5 after the root. It belongs under it: for rows of small entries that is another number."),
    ("shift before the gain", dict(after=lambda Y, gain, shift: (Y + shift) * gain),
     "You add the shift before you multiply by the gain. First times gain, then plus shift."),
    ("the gain twice", dict(after=lambda Y, gain, shift: (Y * gain + shift) * gain),
     "You multiply by the gain twice, the second time with the shift: F.layer_norm may have done it already."),
    ("no gain", dict(after=lambda Y, gain, shift: Y + shift), "You do not multiply by the gain."),
    ("the shift subtracted", dict(after=lambda Y, gain, shift: Y * gain - shift),
     "You subtract the shift. It is added."),
    ("variance as E[x²] − E[x]²", variance_as_e_x2_minus_e_x_2,
     "You compute the variance as E[x²] − E[x]². Where the mean is large these are two large numbers that nearly "
     "cancel, and what is left is rounding, at times below 0. Subtract the mean first, then take the mean of the "
     "squares."),
    by_hand=normed,
)  # fmt: skip


def pairs(ids: Array, starts: Array, n: int, ahead: int = 1) -> tuple[Array, Array]:
    places = starts[:, None] + np.arange(n)
    return ids[places], ids[places + ahead]


TEXT = np.array([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4])
windows = Exercise(9, "windows(ids, starts, n): n tokens from each start, and the token that follows each of them; "
    "(N,), (b,) → (b, n), (b, n)",
    pairs, [
        (TEXT[:5], np.array([1]), 2), (TEXT, np.array([4]), 5), (TEXT, np.array([11, 2, 7]), 5),
        (TEXT, np.array([1, 11, 5, 3, 9, 2]), 7)
    ])  # fmt: skip
windows.knows(
    ("targets are the inputs", lambda ids, starts, n: pairs(ids, starts, n, 0),
     "Your targets are the inputs themselves. A model learns to copy them, its loss falls to 0, and it cannot write. "
     "The target of a token is the one after it."),
    ("one token too far", lambda ids, starts, n: pairs(ids, starts, n, 2),
     "You ask for the token after the next one. Inputs start at s, targets at s + 1."),
)  # fmt: skip


def log_p(logits: Array, targets: Array) -> Array:
    top = logits.max(-1, keepdims=True)
    logs = logits - top - np.log(np.exp(logits - top).sum(-1, keepdims=True))
    return np.take_along_axis(logs, targets[..., None], -1)[..., 0]


next_token_loss = Exercise(9, "next_token_loss(logits, targets): mean of −ln softmax(logits)[target] over all tokens; "
    "(…, n, V), (…, n) → one number",
    lambda logits, targets: -log_p(logits, targets).mean(), lambda draw: [
        (np.array([[np.log(3.0), 0.0]]), np.array([0])), (np.array([[np.log(3.0), 0.0], [0.0, 0.0]]), np.array([1, 0])),
        (draw(5, 3), np.array([0, 2, 1, 1, 0])), (draw(2, 3, 7), np.array([[0, 6, 3], [5, 5, 1]])),
        (np.array([[0.0, 1000.0], [1000.0, 0.0]]), np.array([0, 0]))
    ])  # fmt: skip
next_token_loss.knows(
    ("the sum, not the mean", lambda logits, targets: -log_p(logits, targets).sum(),
     "You add up the losses of the tokens. Their mean does not depend on how long a text or how large a batch is."),
    ("mean over sequences only", lambda logits, targets: -log_p(logits, targets).sum(-1).mean(),
     "You add up over the tokens of a sequence and average over sequences. Average over all tokens."),
    ("the sign", lambda logits, targets: log_p(logits, targets).mean(),
     "Your loss is negative: the logarithm of a probability is below 0, and the loss is minus that."),
    ("bits", lambda logits, targets: -log_p(logits, targets).mean() / np.log(2),
     "You take logarithms to base 2: a loss in bits. Here it is in nats, with the natural logarithm."),
    ("ln of 0", lambda logits, targets: -np.log(np.take_along_axis(weights_of(logits), targets[..., None], -1)).mean(),
     "Your loss is infinite where the others are finite: softmax rounded a probability to 0 before its logarithm was "
     "taken. Use ln softmax(x) = x − max − ln Σ exp(x − max)."),
    ("softmax twice", lambda logits, targets: -log_p(weights_of(logits), targets).mean(),
     "You take softmax twice: F.cross_entropy takes it itself, of logits, and you hand it probabilities. Those lie "
     "between 0 and 1, so that the loss cannot fall far."),
    ("no softmax", lambda logits, targets: -np.take_along_axis(logits, targets[..., None], -1).mean(),
     "You average minus the logits of the targets. A logit is no log-probability: ln softmax(x) = x − max − ln Σ exp(x "
     "− max)."),
    ("shifted once more",
     lambda logits, targets: -(logs := log_p(logits[..., :-1, :], targets[..., 1:])).sum() / logs.size,
     "You shift targets against logits. The targets that you get are already the next tokens: row i of the logits "
     "belongs to targets[i]."),
    ("no logarithm", lambda logits, targets: 1 - np.exp(log_p(logits, targets)).mean(),
     "You average 1 − p, the probability of a wrong token. The loss is −ln p."),
)  # fmt: skip
