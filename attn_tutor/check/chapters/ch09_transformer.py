"""Chapter 9: what stands around attention in a transformer, what it learns from, and how it writes."""

from collections.abc import Callable
from typing import Any

import numpy as np

from attn_tutor.check.chapters.inputs import Array, numbers, weights_of
from attn_tutor.check.exercise import Exercise

draw = numbers(9)
EPS = 1e-5


def normed(
    X: Array,
    gain: Array,
    shift: Array,
    *,
    axis: Any = -1,
    eps: float = EPS,
    ddof: int = 0,
    centre: bool = True,
    around: bool = True,
    power: float = 0.5,
    outside: float = 0,
    after: Callable[[Array, Array, Array], Array] = lambda Y, gain, shift: (
        Y * gain + shift
    ),
) -> Array:
    """Layer norm, with what people get wrong in it as options."""
    centred = X - X.mean(axis, keepdims=True)
    squares = ((centred if around else X) ** 2).sum(axis, keepdims=True)
    variance = squares / (X.size / squares.size - ddof)
    Y = (centred if centre else X) / ((variance + eps) ** power + outside)
    return after(Y, gain, shift)


layer_norm = Exercise(
    9,
    "layer_norm(X, gain, shift): each row less its mean, over √(variance + 1e-5), times gain, plus shift; "
    "(…, n, d), (d,), (d,) → (…, n, d)",
    normed,
    [
        (np.array([[1.0, 3.0]]), np.ones(2), np.zeros(2)),
        (np.array([[1.0, 3.0], [2.0, 8.0]]), np.array([2.0, 0.5]), np.array([1.0, 0])),
        (np.array([[4.0, 4.0, 4.0]]), np.ones(3), np.zeros(3)),
        (0.004 * draw(3, 5), np.ones(5), np.zeros(5)),
        (draw(2, 3, 7) + 5, draw(7), draw(7)),
        (1e7 + draw(2, 3), np.ones(3), np.zeros(3)),
    ],
)


def norm_mistake(name: str, words: str, **changes: Any) -> None:
    layer_norm.variant(normed, name, words, **changes)


norm_mistake(
    "over the tokens",
    "You normalise each column over the tokens, so that a token's numbers depend on its neighbours, later ones too. "
    "The norm works on each row by itself: axis −1.",
    axis=-2,
)
norm_mistake(
    "over axis 1",
    "You normalise over axis 1. For one example those are the numbers of a token; in a batch (b, n, d) they are the "
    "tokens. Count from the end: axis −1.",
    axis=1,
)
norm_mistake(
    "over the whole array",
    "You take one mean and one variance of the whole array. Each row has its own: axis −1, keepdims=True.",
    axis=None,
)
norm_mistake(
    "the mean left in",
    "You divide, but do not subtract the mean of the row. (Without it and with the root of the mean square below, this "
    "is another norm, RMS norm.)",
    centre=False,
)
norm_mistake(
    "RMS norm",
    "This is RMS norm: you divide by the root of the mean square and leave the mean in. Many models use it; layer norm "
    "subtracts the mean of the row first.",
    centre=False,
    around=False,
)
norm_mistake(
    "divided by the variance",
    "You divide by the variance. Its root, the standard deviation, makes the variance of the result 1.",
    power=1,
)
norm_mistake(
    "n − 1 in the variance",
    "You divide the squares by d − 1, as torch's var does unless told (correction=0). The norm divides by d.",
    ddof=1,
)
norm_mistake(
    "no 1e-5",
    "A row of equal entries has the variance 0, and 0/0 is NaN. The 1e-5 under the root is there for it.",
    eps=0,
)
for eps in (1e-3, 1e-4, 1e-6, 1e-8, 1e-12):
    norm_mistake(
        "another number than 1e-5",
        "The number that you add to the variance is not 1e-5. For rows of small entries that makes a difference.",
        eps=eps,
    )
norm_mistake(
    "1e-5 outside the root",
    "You add 1e-5 after the root. It belongs under it: for rows of small entries that is another number.",
    eps=0,
    outside=EPS,
)
norm_mistake(
    "shift before the gain",
    "You add the shift before you multiply by the gain. First times gain, then plus shift.",
    after=lambda Y, gain, shift: (Y + shift) * gain,
)
norm_mistake(
    "the gain twice",
    "You multiply by the gain twice, the second time with the shift: F.layer_norm may have done it already.",
    after=lambda Y, gain, shift: (Y * gain + shift) * gain,
)
norm_mistake(
    "no gain",
    "You do not multiply by the gain.",
    after=lambda Y, gain, shift: Y + shift,
)
norm_mistake(
    "no shift",
    "You do not add the shift at the end.",
    after=lambda Y, gain, shift: Y * gain,
)
norm_mistake(
    "the shift subtracted",
    "You subtract the shift. It is added.",
    after=lambda Y, gain, shift: Y * gain - shift,
)


@layer_norm.mistake("variance as E[x²] − E[x]²")
def _(X: Array, gain: Array, shift: Array) -> Array:
    """You compute the variance as E[x²] − E[x]². Where the mean is large these are two large numbers that nearly
    cancel, and what is left is rounding, at times below 0. Subtract the mean first, then take the mean of the
    squares."""
    mean = X.mean(-1, keepdims=True)
    variance = (X**2).mean(-1, keepdims=True) - mean**2
    return (X - mean) / np.sqrt(variance + EPS) * gain + shift


def pairs(ids: Array, starts: Array, n: int, ahead: int = 1) -> tuple[Array, Array]:
    places = starts[:, None] + np.arange(n)
    return ids[places], ids[places + ahead]


TEXT = np.array([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4])
windows = Exercise(
    9,
    "windows(ids, starts, n): n tokens from each start, and the token that follows each of them; "
    "(N,), (b,) → (b, n), (b, n)",
    pairs,
    [
        (TEXT[:5], np.array([1]), 2),
        (TEXT, np.array([4]), 5),
        (TEXT, np.array([11, 2, 7]), 5),
        (TEXT, np.array([1, 11, 5, 3, 9, 2]), 7),
    ],
)


@windows.mistake("targets are the inputs")
def _(ids: Array, starts: Array, n: int) -> tuple[Array, Array]:
    """Your targets are the inputs themselves. A model learns to copy them, its loss falls to 0, and it cannot write.
    The target of a token is the one after it."""
    return pairs(ids, starts, n, 0)


@windows.mistake("one token too far")
def _(ids: Array, starts: Array, n: int) -> tuple[Array, Array]:
    """You ask for the token after the next one. Inputs start at s, targets at s + 1."""
    return pairs(ids, starts, n, 2)


@windows.mistake("targets one step back")
def _(ids: Array, starts: Array, n: int) -> tuple[Array, Array]:
    """Your targets are the tokens *before* the inputs: the shift goes the wrong way."""
    return pairs(ids, starts, n, -1)


@windows.mistake("targets rolled round")
def _(ids: Array, starts: Array, n: int) -> tuple[Array, Array]:
    """You roll each window, so that its last target is its own first token. Read n + 1 tokens, then drop the last for
    the inputs and the first for the targets."""
    inputs, _ = pairs(ids, starts, n)
    return inputs, np.roll(inputs, -1, -1)


@windows.mistake("starts ignored")
def _(ids: Array, starts: Array, n: int) -> tuple[Array, Array]:
    """Your windows follow one another from the first token on. They begin where `starts` says."""
    return pairs(ids, np.arange(len(starts)), n)


def log_p(logits: Array, targets: Array) -> Array:
    top = logits.max(-1, keepdims=True)
    logs = logits - top - np.log(np.exp(logits - top).sum(-1, keepdims=True))
    return np.take_along_axis(logs, targets[..., None], -1)[..., 0]


next_token_loss = Exercise(
    9,
    "next_token_loss(logits, targets): mean of −ln softmax(logits)[target] over all tokens; "
    "(…, n, V), (…, n) → one number",
    lambda logits, targets: -log_p(logits, targets).mean(),
    [
        (np.array([[np.log(3.0), 0.0]]), np.array([0])),
        (np.array([[np.log(3.0), 0.0], [0.0, 0.0]]), np.array([1, 0])),
        (draw(5, 3), np.array([0, 2, 1, 1, 0])),
        (draw(2, 3, 7), np.array([[0, 6, 3], [5, 5, 1]])),
        (np.array([[0.0, 1000.0], [1000.0, 0.0]]), np.array([0, 0])),
    ],
)


@next_token_loss.mistake("the sum, not the mean")
def _(logits: Array, targets: Array) -> float:
    """You add up the losses of the tokens. Their mean does not depend on how long a text or how large a batch is."""
    return -log_p(logits, targets).sum()


@next_token_loss.mistake("mean over sequences only")
def _(logits: Array, targets: Array) -> float:
    """You add up over the tokens of a sequence and average over sequences. Average over all tokens."""
    return -log_p(logits, targets).sum(-1).mean()


@next_token_loss.mistake("the sign")
def _(logits: Array, targets: Array) -> float:
    """Your loss is negative: the logarithm of a probability is below 0, and the loss is minus that."""
    return log_p(logits, targets).mean()


@next_token_loss.mistake("bits")
def _(logits: Array, targets: Array) -> float:
    """You take logarithms to base 2: a loss in bits. Here it is in nats, with the natural logarithm."""
    return -log_p(logits, targets).mean() / np.log(2)


@next_token_loss.mistake("perplexity")
def _(logits: Array, targets: Array) -> float:
    """You return e to the loss, the perplexity."""
    return np.exp(-log_p(logits, targets).mean())


@next_token_loss.mistake("logarithm of the mean")
def _(logits: Array, targets: Array) -> float:
    """You average the probabilities and then take the logarithm. Each token's logarithm comes first: a text's
    probability is a product, not a sum."""
    return -np.log(np.exp(log_p(logits, targets)).mean())


@next_token_loss.mistake("ln of 0")
def _(logits: Array, targets: Array) -> float:
    """Your loss is infinite where the others are finite: softmax rounded a probability to 0 before its logarithm was
    taken. Use ln softmax(x) = x − max − ln Σ exp(x − max)."""
    p = np.take_along_axis(weights_of(logits), targets[..., None], -1)
    return -np.log(p).mean()


@next_token_loss.mistake("softmax twice")
def _(logits: Array, targets: Array) -> float:
    """You take softmax twice: F.cross_entropy takes it itself, of logits, and you hand it probabilities. Those lie
    between 0 and 1, so that the loss cannot fall far."""
    return -log_p(weights_of(logits), targets).mean()


@next_token_loss.mistake("no softmax")
def _(logits: Array, targets: Array) -> float:
    """You average minus the logits of the targets. A logit is no log-probability: ln softmax(x) = x − max − ln Σ
    exp(x − max)."""
    return -np.take_along_axis(logits, targets[..., None], -1).mean()


@next_token_loss.mistake("shifted once more")
def _(logits: Array, targets: Array) -> float:
    """You shift targets against logits. The targets that you get are already the next tokens: row i of the logits
    belongs to targets[i]."""
    logs = log_p(logits[..., :-1, :], targets[..., 1:])
    return -logs.sum() / logs.size


@next_token_loss.mistake("no logarithm")
def _(logits: Array, targets: Array) -> float:
    """You average 1 − p, the probability of a wrong token. The loss is −ln p."""
    return 1 - np.exp(log_p(logits, targets)).mean()


@next_token_loss.mistake("no logarithm")
def _(logits: Array, targets: Array) -> float:
    """You average probabilities. The loss is −ln p."""
    return -np.exp(log_p(logits, targets)).mean()


@next_token_loss.mistake("softmax over the tokens")
def _(logits: Array, targets: Array) -> float:
    """You normalise over the tokens of the text, not over the vocabulary: softmax runs along the last axis."""
    return -log_p_over_tokens(logits, targets).mean()


def log_p_over_tokens(logits: Array, targets: Array) -> Array:
    top = logits.max(-2, keepdims=True)
    logs = logits - top - np.log(np.exp(logits - top).sum(-2, keepdims=True))
    return np.take_along_axis(logs, targets[..., None], -1)[..., 0]
