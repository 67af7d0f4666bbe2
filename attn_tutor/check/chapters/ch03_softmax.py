"""Chapter 3, first part: from scores to weights, and back through softmax."""

from collections.abc import Callable
from typing import Any

import numpy as np

import attn_tutor.numpy as an
from attn_tutor.check.chapters.inputs import LN3, Array, numbers, weights_of
from attn_tutor.check.exercise import Exercise

draw = numbers(3)

softmax = Exercise(
    3,
    "softmax(x): weights along the last axis, each row sums to 1; (…, n, m) → (…, n, m)",
    an.softmax,
    [
        (np.array([[LN3, 0.0]]),),
        (np.array([[LN3, 0.0], [0.0, 0.0]]),),
        (np.array([[1000.0, 1000.0], [0.0, 0.0]]),),
        (draw(3, 5),),
        (draw(3, 5).astype(np.float32),),
        (draw(2, 3, 5),),
        (np.array([[-1000.0, -999.0], [2000.0, 0.0]]),),
    ],
)


@softmax.mistake("no maximum subtracted")
def _(x: Array) -> Array:
    """exp(1000) is infinity, and ∞/∞ is NaN. Subtract the largest score of each row first: softmax does not see a
    shift, and exp of something ≤ 0 cannot overflow."""
    e = np.exp(x)
    return e / e.sum(-1, keepdims=True)


@softmax.mistake("the scores cut off")
def _(x: Array) -> Array:
    """You cut the scores off (clip) so that exp does not overflow. Then −1000 and −999 become the same score, and get
    the same weight. Subtract the largest score of each row: nothing is lost."""
    e = np.exp(x.clip(-500, 500))
    return e / e.sum(-1, keepdims=True)


@softmax.mistake("the mean subtracted")
def _(x: Array) -> Array:
    """You subtract the mean of each row. The largest score can lie far above it, and its exp still overflows: subtract
    the maximum, so that no exponent is above 0."""
    e = np.exp(x - x.mean(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@softmax.mistake("the largest absolute value subtracted")
def _(x: Array) -> Array:
    """You subtract the largest absolute value. In a row of scores near −1000 that leaves −2000, exp of it is 0, and 0/0
    is NaN. Subtract the maximum itself, sign and all."""
    e = np.exp(x - np.abs(x).max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@softmax.mistake("a sum without keepdims")
def _(x: Array) -> Array:
    """You divide by .sum(-1) without keepdims=True. Its shape is (n,), and NumPy lays it along the columns: entry (i,
    j) is divided by the sum of row j. With keepdims=True it is (n, 1), one for each row."""
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1)


@softmax.mistake("the maximum of each column")
def _(x: Array) -> Array:
    """You subtract the maximum of each column. A row is then shifted by several numbers, which changes its weights.
    Each row needs one number, its own maximum: x.max(-1, keepdims=True)."""
    return weights_of(x - x.max(-2, keepdims=True))


@softmax.mistake("2 in place of e")
def _(x: Array) -> Array:
    """You compute 2 to the score. The base is e: np.exp."""
    return weights_of(x * np.log(2))


@softmax.mistake("a minus too many")
def _(x: Array) -> Array:
    """Your largest scores get the smallest weights: you compute exp(−x)."""
    return weights_of(-x)


@softmax.mistake("log softmax")
def _(x: Array) -> Array:
    """You return the logarithms of the weights, log softmax. Take exp of them."""
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


@softmax.mistake("not divided by the sum")
def _(x: Array) -> Array:
    """You do not divide. Each row must sum to 1: divide it by its own sum, .sum(-1, keepdims=True)."""
    return np.exp(x - x.max(-1, keepdims=True))


@softmax.mistake("no exponential")
def _(x: Array) -> Array:
    """You subtract the smallest score and divide by the sum. That is positive, but no softmax: exp comes first."""
    x = x - x.min(-1, keepdims=True)
    return x / np.maximum(x.sum(-1, keepdims=True), 1e-300)


@softmax.mistake("all weight on the largest")
def _(x: Array) -> Array:
    """You give all weight to the largest score of each row. Softmax is soft: exp of each score, divided by their
    sum."""
    return np.where(np.arange(x.shape[-1]) == x.argmax(-1)[..., None], 1.0, 0.0)


@softmax.mistake("sigmoid")
def _(x: Array) -> Array:
    """You take the sigmoid of each score by itself, and rows do not sum to 1. Softmax lets the keys share: exp, divided
    by the sum of the row."""
    return 1 / (1 + np.exp(-x))


@softmax.mistake("the maximum of the whole array")
def _(x: Array) -> Array:
    """You subtract the maximum of the whole array. A row that lies far below it underflows to 0/0. Each row needs
    its own: x.max(-1, keepdims=True)."""
    e = np.exp(x - x.max())
    return e / e.sum(-1, keepdims=True)


@softmax.mistake("normalised over queries")
def _(x: Array) -> Array:
    """Your columns sum to 1, not your rows: you normalised over queries (axis −2), not keys (axis −1). Each query
    shares out its own weight."""
    return weights_of(x, -2)


@softmax.mistake("normalised over the first axis")
def _(x: Array) -> Array:
    """You normalised over axis 0. Keys are the last axis whatever stands in front of it: write axis −1."""
    return weights_of(x, 0)


@softmax.mistake("normalised over the whole array")
def _(x: Array) -> Array:
    """All your weights together sum to 1. Each row must: .sum(-1, keepdims=True)."""
    e = np.exp(x - x.max())
    return e / e.sum()


@softmax.mistake("no exponential")
def _(x: Array) -> Array:
    """You divide the scores by their sum. Scores may be negative, and 0 is no score to be left out: exp makes each
    positive first."""
    return x / x.sum(-1, keepdims=True)


SEEN = np.array([[True, True, False]])
NAN = np.array([[LN3, 0.0, np.nan], [1.0, 2.0, 3.0]])
EMPTY = np.array([[True, True, False], [False, False, False]])
SCORES, ALLOWED = draw(2, 3, 5), draw(2, 3, 5) < 0.5

masked_softmax = Exercise(
    3,
    "masked_softmax(scores, mask): softmax over the permitted keys (True), 0 elsewhere and in a row without any; "
    "(…, n, m), (…, n, m) → (…, n, m)",
    an.masked_softmax,
    [
        (np.array([[LN3, 0.0]]), np.array([[True, True]])),
        (np.array([[LN3, 0.0, 0.0]]), SEEN),
        (np.array([[LN3, 0.0, 0.0]]), np.array([[False, False, False]])),
        (NAN, EMPTY),
        (np.array([[1e4, 1e4, 2e4], [-1e4, -1e4, 2e4]]), np.repeat(SEEN, 2, 0)),
        (SCORES[0], ALLOWED[0]),
        (SCORES[1].astype(np.float32), ALLOWED[1]),
        (SCORES[1].astype(np.float16), ALLOWED[1] & (np.arange(3) > 0)[:, None]),
        (SCORES[0, :, :3], np.tri(3, dtype=bool)),
        (SCORES, ALLOWED),
        (np.array([[1000.0, 0.0, 5.0], [-1000.0, -999.0, 5.0]]), np.repeat(SEEN, 2, 0)),
    ],
)


def masked(
    scores: Array,
    mask: Array,
    *,
    hide: Callable[[Array, Array], Array] = lambda S, mask: np.where(mask, S, -np.inf),
    axis: int = -1,
    maximum: bool = True,
    empty: bool = True,
) -> Array:
    """Masked softmax as one writes it: hide scores, take softmax, put empty rows to 0."""
    hidden = hide(scores, mask)
    e = np.exp(hidden - hidden.max(axis, keepdims=True) if maximum else hidden)
    weights = e / e.sum(axis, keepdims=True)
    return np.where(mask | ~np.isnan(weights), weights, 0) if empty else weights


def low(S: Array) -> Any:
    """−1e9, or what float16 makes of it."""
    return S.dtype.type(-1e9)


for changes, name, words in (
    (
        dict(axis=-2),
        "normalised over queries",
        "Your columns sum to 1, not your rows: you normalised over queries (axis −2), not keys (axis −1).",
    ),
    (
        dict(axis=0),
        "normalised over the first axis",
        "You normalised over axis 0. Keys are the last axis whatever stands in front of it: write axis −1.",
    ),
    (
        dict(axis=1),
        "normalised over axis 1 of a batch",
        "You normalised over axis 1. In a table those are the keys, but in a batch (b, n, m) the queries: columns sum "
        "to 1. Write axis −1.",
    ),
    (
        dict(maximum=False),
        "no maximum subtracted",
        "exp(10000) is infinity, and ∞/∞ is NaN; exp(−1000) is 0, and 0/0 is NaN. Subtract the largest permitted score "
        "of each row first.",
    ),
    (
        dict(empty=False),
        "NaN in an empty row",
        "In a row with no permitted key every score is −∞; minus the maximum, −∞ − (−∞), makes NaN. Such a row gets "
        "weights 0: put something finite there first, and 0 at the end.",
    ),
    (
        dict(hide=lambda S, mask: S, empty=False),
        "mask ignored",
        "Forbidden keys get weight: the mask is not used.",
    ),
    (
        dict(hide=lambda S, mask: np.where(mask, -np.inf, S)),
        "inverted mask",
        "Your weights lie on the forbidden keys. True means “may attend” here, as in scaled_dot_product_attention (in "
        "nn.MultiheadAttention's padding mask it is the other way round).",
    ),
    (
        dict(hide=lambda S, mask: np.where(mask, -np.inf, S), empty=False),
        "inverted mask",
        "Your weights lie on the forbidden keys, and a row in which all are permitted is NaN. True means “may attend”: "
        "−∞ goes where the mask is False, ~mask. (And a row with no permitted key must be 0.)",
    ),
    (
        dict(hide=lambda S, mask: np.where(mask, low(S), S), empty=False),
        "inverted mask",
        "Your weights lie on the forbidden keys. True means “may attend” here: the large negative number goes where "
        "the mask is False, ~mask. (And a row with no permitted key must be 0, which such a number does not give.)",
    ),
    (
        dict(hide=lambda S, mask: S + mask * low(S), empty=False),
        "inverted mask",
        "Your weights lie on the forbidden keys: you add the large negative number where the mask is True. True means "
        "“may attend” here: it goes where the mask is False. (And a row with no permitted key must be 0.)",
    ),
    (
        dict(hide=lambda S, mask: np.where(mask, S, 0), empty=False),
        "score set to 0",
        "You set forbidden scores to 0, and exp(0) is 1: a forbidden key still gets weight, often more than a "
        "permitted one. It needs the score −∞, or the weight 0 before the sum.",
    ),
    (
        dict(hide=lambda S, mask: S + mask.astype(S.dtype), empty=False),
        "mask added as numbers",
        "You add the mask as 0 and 1: forbidden keys keep their weight, permitted ones get e times as much. A mask "
        "that is *added* must hold 0 and −∞; better, choose with where.",
    ),
    (
        dict(hide=lambda S, mask: np.where(mask, S, low(S)), empty=False),
        "equal weights in an empty row",
        "In a row with no permitted key you give every forbidden key the same weight. That is what comes of a number "
        "such as −1e9 in place of −∞: all scores of the row are equal. Such a row must be 0.",
    ),
    (
        dict(hide=lambda S, mask: S + np.where(mask, 0, low(S)), empty=False),
        "a large negative number added",
        "You *add* a number such as −1e9 to forbidden scores. A NaN among them stays NaN and spoils the row, and an "
        "empty row still gets weights. Replace the score, np.where(mask, scores, -np.inf), and do not add to it.",
    ),
):
    masked_softmax.variant(masked, name, words, **changes)


@masked_softmax.mistake("inverted mask")
def _(scores: Array, mask: Array) -> Array:
    """Your weights lie on the forbidden keys. True means “may attend” here, as in scaled_dot_product_attention (in
    nn.MultiheadAttention's padding mask it is the other way round)."""
    return an.masked_softmax(scores, ~mask)


@masked_softmax.mistake("masked after softmax, not renormalised")
def _(scores: Array, mask: Array) -> Array:
    """Your rows sum to less than 1: forbidden keys had their share in the sum before you set them to 0. Mask the scores
    *before* softmax, or divide by the sum again."""
    return np.where(mask, weights_of(scores), 0)


@masked_softmax.mistake("masked after softmax, not renormalised")
def _(scores: Array, mask: Array) -> Array:
    """Your rows sum to less than 1: forbidden keys had their share in the sum before you multiplied by the mask (and a
    NaN among them spoils the row, as 0 · NaN is NaN). Mask the scores *before* softmax."""
    return weights_of(scores) * mask


@masked_softmax.mistake("score multiplied by the mask")
def _(scores: Array, mask: Array) -> Array:
    """You multiply scores by the mask. That makes them 0, and exp(0) is 1; and 0 · NaN is NaN. Choose with where:
    −∞ for a forbidden score."""
    return weights_of(scores * mask)


@masked_softmax.mistake("−1e9 in float16")
def _(scores: Array, mask: Array) -> Array:
    """In float64 you are right. But float16 ends at 65504: −1e9 becomes −∞ there (or an error, in torch), and an empty
    row −∞ − (−∞) = NaN. Use −∞ itself, and look after the empty row."""
    hidden = np.where(mask, scores, scores.dtype.type(-1e9))
    return weights_of(hidden) * mask


@masked_softmax.mistake("score multiplied by the mask")
def _(scores: Array, mask: Array) -> Array:
    """You multiply scores by the mask, and weights too. The first makes the scores 0, and exp(0) is 1, which counts in
    the sum; the second makes rows that sum to less than 1. Choose with where: −∞ for a forbidden score."""
    return weights_of(scores * mask) * mask


@masked_softmax.mistake("−10,000 for −∞")
def _(scores: Array, mask: Array) -> Array:
    """You hide with −1e4. Scores may be as low as that, and then forbidden keys get their share. Use −∞ itself, and
    look after the empty row."""
    return weights_of(np.where(mask, scores, -1e4)) * mask.any(-1, keepdims=True)


@masked_softmax.mistake("the maximum of forbidden scores too")
def _(scores: Array, mask: Array) -> Array:
    """You subtract the maximum of all scores, forbidden ones too. If that is far above the permitted ones, all their
    exp are 0. Take the maximum of the permitted scores: hide first."""
    e = np.exp(scores - np.fmax.reduce(scores, -1, keepdims=True))
    e = np.where(mask, e, 0)
    return e / np.maximum(e.sum(-1, keepdims=True), 1e-300)


softmax_vjp = Exercise(
    3,
    "softmax_vjp(p, g): the gradient through softmax, g J for each row; weights (n, m), g (n, m) → (n, m)",
    an.softmax_vjp,
    [
        (np.array([[0.75, 0.25]]), np.array([[1.0, 0.0]])),
        (np.array([[0.75, 0.25], [0.0, 0.0]]), np.array([[1.0, 0.0], [5.0, 3.0]])),
        (weights_of(draw(3, 5)), draw(3, 5)),
    ],
)


@softmax_vjp.mistake("the diagonal alone")
def _(p: Array, g: Array) -> Array:
    """You return p(1 − p)g, the diagonal of the Jacobian. Every weight answers to every score of its row, as they share
    one sum: p(g − g·p)."""
    return p * (1 - p) * g


@softmax_vjp.mistake("the common part missing")
def _(p: Array, g: Array) -> Array:
    """You return p·g entry by entry. Since a row sums to 1, pushing one weight up pushes the others down: subtract the
    row's mean, p(g − g·p)."""
    return p * g


@softmax_vjp.mistake("plain mean in place of the weighted one")
def _(p: Array, g: Array) -> Array:
    """You subtract the plain mean of g. What is subtracted is the mean under the weights, g·p."""
    return p * (g - g.mean(-1, keepdims=True))


@softmax_vjp.mistake("plain sum in place of the weighted one")
def _(p: Array, g: Array) -> Array:
    """You subtract the plain sum of g. What is subtracted is the sum of g times the weights, g·p."""
    return p * (g - g.sum(-1, keepdims=True))


@softmax_vjp.mistake("the mean of p·g in place of its sum")
def _(p: Array, g: Array) -> Array:
    """You subtract the mean of p·g over the keys. The weights already sum to 1: what is subtracted is the *sum* of
    p·g."""
    return p * (g - (p * g).mean(-1, keepdims=True))


@softmax_vjp.mistake("not times p")
def _(p: Array, g: Array) -> Array:
    """You return g − g·p. Each entry is still to be multiplied by its own weight: p(g − g·p)."""
    return g - (p * g).sum(-1, keepdims=True)


@softmax_vjp.mistake("added in place of subtracted")
def _(p: Array, g: Array) -> Array:
    """You add g·p. It is subtracted: p(g − g·p), since pushing one weight up pushes the others down."""
    return p * (g + (p * g).sum(-1, keepdims=True))


@softmax_vjp.mistake("one sum for all rows")
def _(p: Array, g: Array) -> Array:
    """You take g·p over the whole array. Each row has a softmax of its own: .sum(-1, keepdims=True)."""
    return p * (g - (g * p).sum())


@softmax_vjp.mistake("wrong sign")
def _(p: Array, g: Array) -> Array:
    """Every sign is the other way round: p(g − g·p), not p(g·p − g)."""
    return p * ((g * p).sum(-1, keepdims=True) - g)


def plus_one(scores: Array) -> Array:
    zero = np.zeros((*scores.shape[:-1], 1), scores.dtype)
    return weights_of(np.concatenate([scores, zero], -1))[..., :-1]


softmax_plus_one = Exercise(
    3,
    "softmax_plus_one(scores): exp S_ij / (1 + Σ_l exp S_il), without overflow; (…, n, m) → (…, n, m)",
    plus_one,
    [
        (np.array([[LN3, 0.0]]),),
        (np.array([[-20.0, -20.0]]),),
        (np.array([[1000.0, 999.0]]),),
        (np.array([[-1000.0, -1000.0]]),),
        (draw(3, 5),),
        (draw(2, 3, 5),),
    ],
)


@softmax_plus_one.mistake("overflow")
def _(scores: Array) -> Array:
    """exp(1000) is infinity, and ∞/∞ is NaN. Subtract a maximum first, and mind that the 1 is exp(0) and moves too."""
    e = np.exp(scores)
    return e / (1 + e.sum(-1, keepdims=True))


@softmax_plus_one.mistake("an extra key of score 1")
def _(scores: Array) -> Array:
    """You append a score of 1, which adds e to the denominator. The 1 is exp(0): append a score of 0."""
    one = np.ones((*scores.shape[:-1], 1))
    return weights_of(np.concatenate([scores, one], -1))[..., :-1]


@softmax_plus_one.mistake("the scores cut off")
def _(scores: Array) -> Array:
    """You cut the scores off so that exp does not overflow. Then 1000 and 999 become the same score, and get the same
    weight. Subtract a maximum, and mind that the 1 is exp(0) and moves too."""
    e = np.exp(scores.clip(None, 500))
    return e / (1 + e.sum(-1, keepdims=True))


@softmax_plus_one.mistake("the 1 not shifted")
def _(scores: Array) -> Array:
    """You shift the scores by their maximum and add 1 all the same. The 1 is exp(0), the score of a key that is not
    there: it becomes exp(−maximum)."""
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / (1 + e.sum(-1, keepdims=True))


@softmax_plus_one.mistake("ordinary softmax")
def _(scores: Array) -> Array:
    """Your rows sum to 1. With the 1 in the denominator they sum to less, and to nearly 0 when all scores are low."""
    return weights_of(scores)


@softmax_plus_one.mistake("the extra key still there")
def _(scores: Array) -> Array:
    """You return one column too many: the key of score 0 takes its weight, and is then left out."""
    zero = np.zeros((*scores.shape[:-1], 1))
    return weights_of(np.concatenate([scores, zero], -1))
