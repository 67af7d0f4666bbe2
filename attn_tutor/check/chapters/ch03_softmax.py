"""Chapter 3, first part: from scores to weights, their logarithm, and back through softmax."""

import numpy as np

import attn_tutor.numpy as an
from attn_tutor.check.chapters.inputs import LN3, Array, numbers, weights_of
from attn_tutor.check.exercise import Exercise, Function

draw = numbers(3)


def shares(e: Array) -> Array:
    return e / e.sum(-1, keepdims=True)


def largest(x: Array) -> Array:
    return np.asarray(x.max(-1, keepdims=True))


def soft(x: Array, *, shift: Function = largest, curve: Function = np.exp,
         share: Function = shares) -> Array:  # fmt: skip
    return np.asarray(share(curve(x - shift(x))))


softmax = Exercise(3, "softmax(x): weights along the last axis, each row sums to 1; (…, n, m) → (…, n, m)",
    soft, lambda draw: [(np.array([[LN3, 0.0]]),), (np.array([[LN3, 0.0], [0.0, 0.0]]),),
        (np.array([[1000.0, 1000.0], [0.0, 0.0]]),), (draw(3, 5),), (draw(3, 5).astype(np.float32),), (draw(2, 3, 5),),
        (np.array([[-1000.0, -999.0], [2000.0, 0.0]]),)],
    ("no maximum subtracted", dict(shift=np.zeros_like),
     "exp(1000) is infinity, and ∞/∞ is NaN. Subtract the largest score of each row first: softmax sees no shift."),
    ("the scores cut off", dict(shift=np.zeros_like, curve=lambda x: np.exp(x.clip(-500, 500))),
     "You clip the scores against overflow: then 1000 and 999 get the same weight. Subtract each row's largest score."),
    ("the largest absolute value subtracted", dict(shift=lambda x: largest(np.abs(x))),
     "You subtract the largest absolute value: near −1000 all exp are 0, and 0/0 is NaN. Subtract the maximum itself."),
    ("the maximum of the whole array", dict(shift=np.max),
     "You subtract the maximum of the whole array. A row far below it underflows to 0/0: each row needs its own."),
    ("all weight on the largest", dict(curve=lambda x: np.eye(x.shape[-1])[x.argmax(-1)]),
     "You give all weight to the largest score of each row. Softmax is soft: exp of each score, over their sum."),
    ("no exponential", [lambda x: shares(x), lambda x: shares(x - x.min(-1, keepdims=True) + 1e-300)],
     "You divide the scores by their sum. Scores may be negative, and 0 is one too: exp makes each positive first."),
    ("normalised over queries", lambda x: weights_of(x, -2),
     "Your columns sum to 1, not your rows: you normalised over queries (axis −2), not keys (axis −1)."),
    ("normalised over the whole array", dict(shift=np.max, share=lambda e: e / e.sum()),
     "All your weights together sum to 1. Each row must: .sum(-1, keepdims=True)."))  # fmt: skip


def logarithm(scores: Array) -> Array:
    shifted = scores - largest(scores)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)))


log_softmax = Exercise(3,
    "log_softmax(scores): log softmax along the last axis, exact where a weight underflows; (…, n, m) → (…, n, m)",
    logarithm, lambda draw: [(np.array([[LN3, 0.0]]),), (np.array([[LN3, 0.0], [2.0, 5.0]]),),
        (np.array([[1000.0, 999.0], [-1000.0, -1000.0]]),), (np.array([[0.0, -800.0, -1.0]]),), (draw(3, 5),),
        (draw(2, 3, 5),)],
    ("the logarithm of the weights", lambda scores: np.log(an.softmax(scores)),
     "You take log of softmax: a tiny weight is 0 by then. Take scores minus their log-sum-exp."))  # fmt: skip

SEEN = np.array([[True, True, False]])
NAN = np.array([[LN3, 0.0, np.nan], [1.0, 2.0, 3.0]])
EMPTY = np.array([[True, True, False], [False, False, False]])
SCORES, ALLOWED = draw(2, 3, 5), draw(2, 3, 5) < 0.5


def masked(scores: Array, mask: Array, *, hide: Function = lambda S, mask: np.where(mask, S, -np.inf), axis: int = -1,
           empty: bool = True) -> Array:  # fmt: skip
    """Masked softmax as one writes it: hide scores, take softmax, put empty rows to 0."""
    weights = weights_of(hide(scores, mask), axis)
    return np.where(mask | ~np.isnan(weights), weights, 0) if empty else weights


masked_softmax = Exercise(3, "masked_softmax(scores, mask): softmax over the permitted keys (True), 0 elsewhere and in "
    "a row without any; what is hidden may be NaN; (…, n, m), (…, n, m) → (…, n, m)",
    masked, [(np.array([[LN3, 0.0]]), np.array([[True, True]])), (np.array([[LN3, 0.0, 0.0]]), SEEN),
        (np.array([[LN3, 0.0, 0.0]]), np.array([[False, False, False]])), (NAN, EMPTY),
        (np.array([[1e4, 1e4, 2e4], [-1e4, -1e4, 2e4]]), np.repeat(SEEN, 2, 0)), (SCORES[0], ALLOWED[0]),
        (SCORES[1].astype(np.float32), ALLOWED[1]),
        (SCORES[1].astype(np.float16), ALLOWED[1] & (np.arange(3) > 0)[:, None]),
        (SCORES[0, :, :3], np.tri(3, dtype=bool)), (SCORES, ALLOWED),
        (np.array([[1000.0, 0.0, 5.0], [-1000.0, -999.0, 5.0]]), np.repeat(SEEN, 2, 0))],
    ("the maximum of forbidden scores too",
     lambda scores, mask: an.normalize(np.where(mask, np.exp(scores - np.fmax.reduce(scores, -1, keepdims=True)), 0)),
     "You subtract the maximum of forbidden scores too, and if it is far above, all exp are 0. Hide first."),
    ("NaN in an empty row", dict(empty=False),
     "In a row with no permitted key every score is −∞, and −∞ − (−∞) makes NaN. Put 0 in such a row at the end."),
    ("inverted mask",
     [dict(hide=hide, empty=False) for hide in (
         lambda S, mask: np.where(mask, -np.inf, S), lambda S, mask: np.where(mask, -1e9, S),
         lambda S, mask: S + np.where(mask, -1e9, 0).astype(S.dtype))],
     "Your weights lie on the forbidden keys. True means “may attend”: hide ~mask (and a row without any key is 0)."),
    ("equal weights in an empty row", dict(hide=lambda S, mask: np.where(mask, S, -1e9), empty=False),
     "In a row with no permitted key all get the same weight: that comes of −1e9 for −∞. Such a row must be 0."),
    ("score multiplied by the mask", lambda scores, mask: weights_of(scores * mask) * mask,
     "You multiply scores by the mask: they become 0, and exp(0) is 1, which counts in the sum. Choose −∞ with where."),
    ("normalised over queries", dict(axis=-2),
     "Your columns sum to 1, not your rows: you normalised over queries (axis −2), not keys (axis −1)."))  # fmt: skip

softmax_vjp = Exercise(3,
    "softmax_vjp(p, g): the gradient through softmax, g J for each row; weights (n, m), g (n, m) → (n, m)",
    an.softmax_vjp, lambda draw: [(np.array([[0.75, 0.25]]), np.array([[1.0, 0.0]])),
        (np.array([[0.75, 0.25], [0.0, 0.0]]), np.array([[1.0, 0.0], [5.0, 3.0]])),
        (weights_of(draw(3, 5)), draw(3, 5))],
    ("the diagonal alone", lambda p, g: p * (1 - p) * g,
     "You return p(1 − p)g, the diagonal of the Jacobian. The weights of a row share one sum: p(g − g·p)."),
    ("plain sum in place of the weighted one", lambda p, g: p * (g - g.sum(-1, keepdims=True)),
     "You subtract the plain sum of g. What is subtracted is the sum of g times the weights, g·p."),
    ("the mean of p·g in place of its sum", lambda p, g: p * (g - (p * g).mean(-1, keepdims=True)),
     "You subtract the mean of p·g over the keys. The weights already sum to 1: subtract the *sum* of p·g."),
    ("not times p", lambda p, g: g - (p * g).sum(-1, keepdims=True),
     "You return g − g·p. Each entry is still to be multiplied by its own weight: p(g − g·p)."),
    ("added in place of subtracted", lambda p, g: p * (g + (p * g).sum(-1, keepdims=True)),
     "You add g·p. It is subtracted, since pushing one weight up pushes the others down: p(g − g·p)."),
    ("one sum for all rows", lambda p, g: p * (g - (g * p).sum()),
     "You take g·p over the whole array. Each row has a softmax of its own: .sum(-1, keepdims=True)."))  # fmt: skip


def plus_one(scores: Array, *, extra: float = 0) -> Array:
    """Softmax with one more key, of a score of its own."""
    return weights_of(np.insert(scores, 0, extra, -1))[..., 1:]


softmax_plus_one = Exercise(3,
    "softmax_plus_one(scores): exp S_ij / (1 + Σ_l exp S_il), without overflow; (…, n, m) → (…, n, m)",
    plus_one, lambda draw: [(np.array([[LN3, 0.0]]),), (np.array([[-20.0, -20.0]]),), (np.array([[1000.0, 999.0]]),),
        (np.array([[-1000.0, -1000.0]]),), (draw(3, 5),), (draw(2, 3, 5),)],
    ("ordinary softmax", [dict(extra=-np.inf), lambda scores: weights_of(scores) / 2],
     "Your rows sum to 1. With the 1 in the denominator they sum to less, and to nearly 0 when all scores are low."),
    ("the scores cut off", lambda scores: plus_one(scores.clip(None, 500)),
     "You clip the scores against overflow: 1000 and 999 get the same weight. Subtract a maximum; the 1 moves too."),
    ("the 1 not shifted", lambda scores: plus_one(scores - largest(scores)),
     "You shift the scores by their maximum and add 1 all the same. The 1 is exp(0): it becomes exp(−maximum)."),
    ("an extra key of score 1", dict(extra=1),
     "You append a score of 1, which adds e to the denominator. The 1 is exp(0): append a score of 0."))  # fmt: skip
