"""Chapter 3, first part: from scores to weights, and back through softmax."""

from collections.abc import Callable
from typing import Any

import numpy as np

import attn_tutor.numpy as an
from attn_tutor.check.chapters.inputs import LN3, Array, numbers, weights_of
from attn_tutor.check.exercise import Exercise

draw = numbers(3)

softmax = Exercise(3, "softmax(x): weights along the last axis, each row sums to 1; (…, n, m) → (…, n, m)",
    an.softmax, lambda draw: [
        (np.array([[LN3, 0.0]]),), (np.array([[LN3, 0.0], [0.0, 0.0]]),), (np.array([[1000.0, 1000.0], [0.0, 0.0]]),),
        (draw(3, 5),), (draw(3, 5).astype(np.float32),), (draw(2, 3, 5),),
        (np.array([[-1000.0, -999.0], [2000.0, 0.0]]),)
    ])  # fmt: skip
softmax.knows(
    ("no maximum subtracted", lambda x: (e := np.exp(x)) / e.sum(-1, keepdims=True),
     "exp(1000) is infinity, and ∞/∞ is NaN. Subtract the largest score of each row first: softmax does not see a "
     "shift, and exp of something ≤ 0 cannot overflow."),
    ("the scores cut off", lambda x: (e := np.exp(x.clip(-500, 500))) / e.sum(-1, keepdims=True),
     "You cut the scores off (clip) so that exp does not overflow. Then −1000 and −999 become the same score, and get "
     "the same weight. Subtract the largest score of each row: nothing is lost."),
    ("the mean subtracted", lambda x: (e := np.exp(x - x.mean(-1, keepdims=True))) / e.sum(-1, keepdims=True),
     "You subtract the mean of each row. The largest score can lie far above it, and its exp still overflows: subtract "
     "the maximum, so that no exponent is above 0."),
    ("the largest absolute value subtracted",
     lambda x: (e := np.exp(x - np.abs(x).max(-1, keepdims=True))) / e.sum(-1, keepdims=True),
     "You subtract the largest absolute value. In a row of scores near −1000 that leaves −2000, exp of it is 0, and "
     "0/0 is NaN. Subtract the maximum itself, sign and all."),
    ("2 in place of e", lambda x: weights_of(x * np.log(2)), "You compute 2 to the score. The base is e: np.exp."),
    ("a minus too many", lambda x: weights_of(-x),
     "Your largest scores get the smallest weights: you compute exp(−x)."),
    ("log softmax", lambda x: (x := x - x.max(-1, keepdims=True)) - np.log(np.exp(x).sum(-1, keepdims=True)),
     "You return the logarithms of the weights, log softmax. Take exp of them."),
    ("not divided by the sum", lambda x: np.exp(x - x.max(-1, keepdims=True)),
     "You do not divide. Each row must sum to 1: divide it by its own sum, .sum(-1, keepdims=True)."),
    ("no exponential", lambda x: (x_ := (x - x.min(-1, keepdims=True))) / np.maximum(x_.sum(-1, keepdims=True), 1e-300),
     "You subtract the smallest score and divide by the sum. That is positive, but no softmax: exp comes first."),
    ("all weight on the largest", lambda x: np.where(np.arange(x.shape[-1]) == x.argmax(-1)[..., None], 1.0, 0.0),
     "You give all weight to the largest score of each row. Softmax is soft: exp of each score, divided by their sum."),
    ("sigmoid", lambda x: 1 / (1 + np.exp(-x)),
     "You take the sigmoid of each score by itself, and rows do not sum to 1. Softmax lets the keys share: exp, "
     "divided by the sum of the row."),
    ("the maximum of the whole array", lambda x: (e := np.exp(x - x.max())) / e.sum(-1, keepdims=True),
     "You subtract the maximum of the whole array. A row that lies far below it underflows to 0/0. Each row needs its "
     "own: x.max(-1, keepdims=True)."),
    ("normalised over queries", lambda x: weights_of(x, -2),
     "Your columns sum to 1, not your rows: you normalised over queries (axis −2), not keys (axis −1). Each query "
     "shares out its own weight."),
    ("normalised over the first axis", lambda x: weights_of(x, 0),
     "You normalised over axis 0. Keys are the last axis whatever stands in front of it: write axis −1."),
    ("normalised over the whole array", lambda x: (e := np.exp(x - x.max())) / e.sum(),
     "All your weights together sum to 1. Each row must: .sum(-1, keepdims=True)."),
    ("no exponential", lambda x: x / x.sum(-1, keepdims=True),
     "You divide the scores by their sum. Scores may be negative, and 0 is no score to be left out: exp makes each "
     "positive first."),
)  # fmt: skip

SEEN = np.array([[True, True, False]])
NAN = np.array([[LN3, 0.0, np.nan], [1.0, 2.0, 3.0]])
EMPTY = np.array([[True, True, False], [False, False, False]])
SCORES, ALLOWED = draw(2, 3, 5), draw(2, 3, 5) < 0.5

masked_softmax = Exercise(3,
    "masked_softmax(scores, mask): softmax over the permitted keys (True), 0 elsewhere and in a row without any; what "
    "is hidden may be NaN; (…, n, m), (…, n, m) → (…, n, m)",
    an.masked_softmax, [
        (np.array([[LN3, 0.0]]), np.array([[True, True]])), (np.array([[LN3, 0.0, 0.0]]), SEEN),
        (np.array([[LN3, 0.0, 0.0]]), np.array([[False, False, False]])), (NAN, EMPTY),
        (np.array([[1e4, 1e4, 2e4], [-1e4, -1e4, 2e4]]), np.repeat(SEEN, 2, 0)), (SCORES[0], ALLOWED[0]),
        (SCORES[1].astype(np.float32), ALLOWED[1]),
        (SCORES[1].astype(np.float16), ALLOWED[1] & (np.arange(3) > 0)[:, None]),
        (SCORES[0, :, :3], np.tri(3, dtype=bool)), (SCORES, ALLOWED),
        (np.array([[1000.0, 0.0, 5.0], [-1000.0, -999.0, 5.0]]), np.repeat(SEEN, 2, 0))
    ])  # fmt: skip


def masked(scores: Array, mask: Array, *, hide: Callable[[Array, Array], Array] = lambda S,
           mask: np.where(mask, S, -np.inf), axis: int = -1, maximum: bool = True,
           empty: bool = True) -> Array:  # fmt: skip
    """Masked softmax as one writes it: hide scores, take softmax, put empty rows to 0."""
    hidden = hide(scores, mask)
    e = np.exp(hidden - hidden.max(axis, keepdims=True) if maximum else hidden)
    weights = e / e.sum(axis, keepdims=True)
    return np.where(mask | ~np.isnan(weights), weights, 0) if empty else weights


def low(S: Array) -> Any:
    """−1e9, or what float16 makes of it."""
    return S.dtype.type(-1e9)


def maximum_of_forbidden_scores_too(scores: Array, mask: Array) -> Array:
    e = np.exp(scores - np.fmax.reduce(scores, -1, keepdims=True))
    e = np.where(mask, e, 0)
    return e / np.maximum(e.sum(-1, keepdims=True), 1e-300)


masked_softmax.knows(
    ("normalised over queries", dict(axis=-2),
     "Your columns sum to 1, not your rows: you normalised over queries (axis −2), not keys (axis −1)."),
    ("normalised over the first axis", dict(axis=0),
     "You normalised over axis 0. Keys are the last axis whatever stands in front of it: write axis −1."),
    ("normalised over axis 1 of a batch", dict(axis=1),
     "You normalised over axis 1. In a table those are the keys, but in a batch (b, n, m) the queries: columns sum to "
     "1. Write axis −1."),
    ("no maximum subtracted", dict(maximum=False),
     "exp(10000) is infinity, and ∞/∞ is NaN; exp(−1000) is 0, and 0/0 is NaN. Subtract the largest permitted score of "
     "each row first."),
    ("NaN in an empty row", dict(empty=False),
     "In a row with no permitted key every score is −∞; minus the maximum, −∞ − (−∞), makes NaN. Such a row gets "
     "weights 0: put something finite there first, and 0 at the end."),
    ("inverted mask", dict(hide=lambda S, mask: np.where(mask, -np.inf, S), empty=False),
     "Your weights lie on the forbidden keys, and a row in which all are permitted is NaN. True means “may attend”: −∞ "
     "goes where the mask is False, ~mask. (And a row with no permitted key must be 0.)"),
    ("inverted mask", dict(hide=lambda S, mask: np.where(mask, low(S), S), empty=False),
     "Your weights lie on the forbidden keys. True means “may attend” here: the large negative number goes where the "
     "mask is False, ~mask. (And a row with no permitted key must be 0, which such a number does not give.)"),
    ("inverted mask", dict(hide=lambda S, mask: S + mask * low(S), empty=False),
     "Your weights lie on the forbidden keys: you add the large negative number where the mask is True. True means "
     "“may attend” here: it goes where the mask is False. (And a row with no permitted key must be 0.)"),
    ("score set to 0", dict(hide=lambda S, mask: np.where(mask, S, 0), empty=False),
     "You set forbidden scores to 0, and exp(0) is 1: a forbidden key still gets weight, often more than a permitted "
     "one. It needs the score −∞, or the weight 0 before the sum."),
    ("mask added as numbers", dict(hide=lambda S, mask: S + mask.astype(S.dtype), empty=False),
     "You add the mask as 0 and 1: forbidden keys keep their weight, permitted ones get e times as much. A mask that "
     "is *added* must hold 0 and −∞; better, choose with where."),
    ("equal weights in an empty row", dict(hide=lambda S, mask: np.where(mask, S, low(S)), empty=False),
     "In a row with no permitted key you give every forbidden key the same weight. That is what comes of a number such "
     "as −1e9 in place of −∞: all scores of the row are equal. Such a row must be 0."),
    ("a large negative number added", dict(hide=lambda S, mask: S + np.where(mask, 0, low(S)), empty=False),
     "You *add* a number such as −1e9 to forbidden scores. A NaN among them stays NaN and spoils the row, and an empty "
     "row still gets weights. Replace the score, np.where(mask, scores, -np.inf), and do not add to it."),
    ("masked after softmax, not renormalised", lambda scores, mask: weights_of(scores) * mask,
     "Your rows sum to less than 1: forbidden keys had their share in the sum before you multiplied by the mask (and a "
     "NaN among them spoils the row, as 0 · NaN is NaN). Mask the scores *before* softmax."),
    ("−1e9 in float16",
     lambda scores, mask: weights_of(np.where(mask, scores, scores.dtype.type(-1000000000.0))) * mask,
     "In float64 you are right. But float16 ends at 65504: −1e9 becomes −∞ there (or an error, in torch), and an empty "
     "row −∞ − (−∞) = NaN. Use −∞ itself, and look after the empty row."),
    ("score multiplied by the mask", lambda scores, mask: weights_of(scores * mask) * mask,
     "You multiply scores by the mask, and weights too. The first makes the scores 0, and exp(0) is 1, which counts in "
     "the sum; the second makes rows that sum to less than 1. Choose with where: −∞ for a forbidden score."),
    ("−10,000 for −∞", lambda scores, mask: weights_of(np.where(mask, scores, -1e4)) * mask.any(-1, keepdims=True),
     "You hide with −1e4. Scores may be as low as that, and then forbidden keys get their share. Use −∞ itself, and "
     "look after the empty row."),
    ("the maximum of forbidden scores too", maximum_of_forbidden_scores_too,
     "You subtract the maximum of all scores, forbidden ones too. If that is far above the permitted ones, all their "
     "exp are 0. Take the maximum of the permitted scores: hide first."),
    by_hand=masked,
)  # fmt: skip

softmax_vjp = Exercise(3,
    "softmax_vjp(p, g): the gradient through softmax, g J for each row; weights (n, m), g (n, m) → (n, m)",
    an.softmax_vjp, lambda draw: [
        (np.array([[0.75, 0.25]]), np.array([[1.0, 0.0]])),
        (np.array([[0.75, 0.25], [0.0, 0.0]]), np.array([[1.0, 0.0], [5.0, 3.0]])),
        (weights_of(draw(3, 5)), draw(3, 5))
    ])  # fmt: skip
softmax_vjp.knows(
    ("the diagonal alone", lambda p, g: p * (1 - p) * g,
     "You return p(1 − p)g, the diagonal of the Jacobian. Every weight answers to every score of its row, as they "
     "share one sum: p(g − g·p)."),
    ("plain sum in place of the weighted one", lambda p, g: p * (g - g.sum(-1, keepdims=True)),
     "You subtract the plain sum of g. What is subtracted is the sum of g times the weights, g·p."),
    ("the mean of p·g in place of its sum", lambda p, g: p * (g - (p * g).mean(-1, keepdims=True)),
     "You subtract the mean of p·g over the keys. The weights already sum to 1: what is subtracted is the *sum* of "
     "p·g."),
    ("not times p", lambda p, g: g - (p * g).sum(-1, keepdims=True),
     "You return g − g·p. Each entry is still to be multiplied by its own weight: p(g − g·p)."),
    ("added in place of subtracted", lambda p, g: p * (g + (p * g).sum(-1, keepdims=True)),
     "You add g·p. It is subtracted: p(g − g·p), since pushing one weight up pushes the others down."),
    ("one sum for all rows", lambda p, g: p * (g - (g * p).sum()),
     "You take g·p over the whole array. Each row has a softmax of its own: .sum(-1, keepdims=True)."),
)  # fmt: skip


def plus_one(scores: Array) -> Array:
    zero = np.zeros((*scores.shape[:-1], 1), scores.dtype)
    return weights_of(np.concatenate([scores, zero], -1))[..., :-1]


softmax_plus_one = Exercise(3,
    "softmax_plus_one(scores): exp S_ij / (1 + Σ_l exp S_il), without overflow; (…, n, m) → (…, n, m)",
    plus_one, lambda draw: [
        (np.array([[LN3, 0.0]]),), (np.array([[-20.0, -20.0]]),), (np.array([[1000.0, 999.0]]),),
        (np.array([[-1000.0, -1000.0]]),), (draw(3, 5),), (draw(2, 3, 5),)
    ])  # fmt: skip


def overflow(scores: Array) -> Array:
    e = np.exp(scores)
    return e / (1 + e.sum(-1, keepdims=True))


softmax_plus_one.knows(
    ("an extra key of score 1",
     lambda scores: weights_of(np.concatenate([scores, np.ones((*scores.shape[:-1], 1))], -1))[..., :-1],
     "You append a score of 1, which adds e to the denominator. The 1 is exp(0): append a score of 0."),
    ("the scores cut off", lambda scores: (e := np.exp(scores.clip(None, 500))) / (1 + e.sum(-1, keepdims=True)),
     "You cut the scores off so that exp does not overflow. Then 1000 and 999 become the same score, and get the same "
     "weight. Subtract a maximum, and mind that the 1 is exp(0) and moves too."),
    ("the 1 not shifted",
     lambda scores: (e := np.exp(scores - scores.max(-1, keepdims=True))) / (1 + e.sum(-1, keepdims=True)),
     "You shift the scores by their maximum and add 1 all the same. The 1 is exp(0), the score of a key that is not "
     "there: it becomes exp(−maximum)."),
    ("ordinary softmax", lambda scores: weights_of(scores),
     "Your rows sum to 1. With the 1 in the denominator they sum to less, and to nearly 0 when all scores are low."),
)  # fmt: skip
