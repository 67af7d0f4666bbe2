"""Chapter 9: what stands around attention in a transformer, what it learns from, and how it writes."""

import numpy as np

import attn_tutor.numpy as an
from attn_tutor.check.exercise import Exercise
from attn_tutor.check.inputs import Array, numbers, weights_of

draw = numbers(9)
EPS = 1e-5


def normed(X: Array, gain: Array, shift: Array, eps: float = EPS) -> Array:
    centred = X - X.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps) * gain + shift


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
    ],
)


@layer_norm.mistake("over the tokens")
def _(X: Array, gain: Array, shift: Array) -> Array:
    """You normalise each column over the tokens, so that a token's numbers depend on its neighbours, later ones too.
    The norm works on each row by itself: axis −1."""
    centred = X - X.mean(-2, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-2, keepdims=True) + EPS) * gain + shift


@layer_norm.mistake("the mean left in")
def _(X: Array, gain: Array, shift: Array) -> Array:
    """You divide, but do not subtract the mean of the row. (Without it and with the root of the mean square below,
    this is another norm, RMS norm.)"""
    return X / np.sqrt(X.var(-1, keepdims=True) + EPS) * gain + shift


@layer_norm.mistake("RMS norm")
def _(X: Array, gain: Array, shift: Array) -> Array:
    """This is RMS norm: you divide by the root of the mean square and leave the mean in. Many models use it; layer
    norm subtracts the mean of the row first."""
    return X / np.sqrt((X**2).mean(-1, keepdims=True) + EPS) * gain + shift


@layer_norm.mistake("divided by the variance")
def _(X: Array, gain: Array, shift: Array) -> Array:
    """You divide by the variance. Its root, the standard deviation, makes the variance of the result 1."""
    centred = X - X.mean(-1, keepdims=True)
    return centred / ((centred**2).mean(-1, keepdims=True) + EPS) * gain + shift


@layer_norm.mistake("n − 1 in the variance")
def _(X: Array, gain: Array, shift: Array) -> Array:
    """You divide the squares by d − 1, as torch's var does unless told (correction=0). The norm divides by d."""
    centred = X - X.mean(-1, keepdims=True)
    variance = X.var(-1, keepdims=True, ddof=1)
    return centred / np.sqrt(variance + EPS) * gain + shift


@layer_norm.mistake("no 1e-5")
def _(X: Array, gain: Array, shift: Array) -> Array:
    """A row of equal entries has the variance 0, and 0/0 is NaN. The 1e-5 under the root is there for it."""
    return normed(X, gain, shift, 0.0)


@layer_norm.mistake("1e-5 outside the root")
def _(X: Array, gain: Array, shift: Array) -> Array:
    """You add 1e-5 after the root. It belongs under it: for rows of small entries that is another number."""
    centred = X - X.mean(-1, keepdims=True)
    return centred / (X.std(-1, keepdims=True) + EPS) * gain + shift


@layer_norm.mistake("shift before the gain")
def _(X: Array, gain: Array, shift: Array) -> Array:
    """You add the shift before you multiply by the gain. First times gain, then plus shift."""
    return (normed(X, np.ones_like(gain), np.zeros_like(shift)) + shift) * gain


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


@next_token_loss.mistake("softmax over the tokens")
def _(logits: Array, targets: Array) -> float:
    """You normalise over the tokens of the text, not over the vocabulary: softmax runs along the last axis."""
    return -log_p_over_tokens(logits, targets).mean()


def log_p_over_tokens(logits: Array, targets: Array) -> Array:
    top = logits.max(-2, keepdims=True)
    logs = logits - top - np.log(np.exp(logits - top).sum(-2, keepdims=True))
    return np.take_along_axis(logs, targets[..., None], -1)[..., 0]


def best(logits: Array, k: int) -> Array:
    """The k largest of each row; no two are equal here."""
    return logits >= np.sort(logits)[..., [-k]]


top_k = Exercise(
    9,
    "top_k(logits, k, temperature): probabilities softmax(logits / temperature) of the k largest logits, all others 0; "
    "(…, V) → (…, V)",
    lambda logits, k, temperature: an.masked_softmax(
        logits / temperature, best(logits, k)
    ),
    [
        (np.log([[3.0, 1.0, 2.0]]), 2, 1.0),
        (np.log([[3.0, 1.0, 2.0]]), 1, 0.5),
        (draw(3, 7), 7, 2.0),
        (draw(3, 7), 3, 0.7),
        (draw(2, 5, 11), 4, 1.7),
        (np.array([[1000.0, 999.0, 0.0]]), 2, 1.0),
    ],
)


@top_k.mistake("not divided again")
def _(logits: Array, k: int, temperature: float) -> Array:
    """You take the softmax first and then put the others to 0: what is left does not sum to 1. Put −∞ in their place
    *before* the softmax, or divide by the sum."""
    return np.where(best(logits, k), weights_of(logits / temperature), 0)


@top_k.mistake("0 in place of −∞")
def _(logits: Array, k: int, temperature: float) -> Array:
    """You set the other logits to 0, and exp 0 is 1: they are still drawn. Set them to −∞."""
    return weights_of(np.where(best(logits, k), logits, 0) / temperature)


@top_k.mistake("times the temperature")
def _(logits: Array, k: int, temperature: float) -> Array:
    """You multiply by the temperature, so that a high one makes the text tamer. Logits are divided by it."""
    return an.masked_softmax(logits * temperature, best(logits, k))


@top_k.mistake("temperature ignored")
def _(logits: Array, k: int, temperature: float) -> Array:
    """The temperature is not used."""
    return an.masked_softmax(logits, best(logits, k))


@top_k.mistake("temperature after the softmax")
def _(logits: Array, k: int, temperature: float) -> Array:
    """You divide the probabilities by the temperature, and they no longer sum to 1. It divides the logits."""
    return an.masked_softmax(logits, best(logits, k)) / temperature


@top_k.mistake("one too many")
def _(logits: Array, k: int, temperature: float) -> Array:
    """You keep k + 1 tokens: the threshold is the k-th largest logit, and those equal to it or above stay."""
    kept = best(logits, min(k + 1, logits.shape[-1]))
    return an.masked_softmax(logits / temperature, kept)


@top_k.mistake("the k smallest")
def _(logits: Array, k: int, temperature: float) -> Array:
    """You keep the least likely tokens: sort the other way."""
    return an.masked_softmax(logits / temperature, best(-logits, k))
