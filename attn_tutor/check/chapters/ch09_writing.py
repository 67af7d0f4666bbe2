"""Chapter 9, second part: which token to draw, tokens joined in pairs, and heads that look for repeats."""

import numpy as np

from attn_tutor.check.chapters.inputs import Array, weights_of
from attn_tutor.check.exercise import Exercise, Function


def exactly(logits: Array, k: int) -> Array:
    """The k largest of each row, and of equal ones the first."""
    places = np.argsort(-logits, -1, stable=True)[..., : max(k, 0)]
    kept = np.zeros(logits.shape, bool)
    np.put_along_axis(kept, places, True, -1)
    return kept


def at_least(logits: Array, k: int) -> Array:
    """All that are not below the k-th largest of their row."""
    return logits >= np.sort(logits)[..., [-k]]


def probabilities(logits: Array, k: int, temperature: float, *, keep: Function = exactly, more: int = 0,
                  late: bool = False, maximum: bool = True, again: bool = True) -> Array:  # fmt: skip
    """Softmax of the k largest, with what people get wrong in it as options."""
    kept = keep(logits, min(k + more, logits.shape[-1]))
    x = logits / (1 if late else temperature)
    top = np.where(kept, x, -np.inf).max(-1, keepdims=True) if maximum else 0
    if not again:
        return np.where(kept, weights_of(x), 0)
    e = np.where(kept, np.exp(x - top), 0)
    total = e.sum(-1, keepdims=True)
    p = e / np.where(total == 0, maximum, total)
    return np.asarray(p / temperature if late else p)


def with_ties_in_order(p: Array) -> Array:
    """The probabilities; in order where all that are not 0 are the same, since any of equal logits may stay."""
    p = np.asarray(p)
    largest, some = p.max(-1, keepdims=True), (p > 0).sum(-1, keepdims=True) > 1
    equal = ((p == 0) | (np.abs(p - largest) < 1e-6)).all(-1, keepdims=True)
    return np.where(equal & some, np.sort(p), p)


top_k = Exercise(9, "top_k(logits, k, temperature): probabilities softmax(logits / temperature) of exactly k largest "
    "logits, all others 0; (…, V) → (…, V)",
    probabilities, lambda draw: [(np.log([[3.0, 1.0, 2.0]]), 2, 1.0), (np.log([[3.0, 1.0, 2.0]]), 1, 0.5),
        (np.zeros((1, 5)), 3, 1.0), (draw(3, 7), 7, 2.0), (draw(3, 7), 3, 0.7), (draw(2, 5, 11), 4, 1.7),
        (np.array([[1000.0, 999.0, 0.0]]), 2, 1.0), (np.array([[-1000.0, -999.0, -2000.0]]), 2, 1.0)],
    ("more than k where logits are equal", dict(keep=at_least),
     "You keep every logit that is not below the k-th largest: of five equal ones all. Take k places, no threshold."),
    ("not divided again", dict(again=False),
     "You take the softmax first and set the others to 0: the rest does not sum to 1. Hide with −∞ *before* it."),
    ("temperature after the softmax", dict(late=True),
     "You divide the probabilities by the temperature, and they no longer sum to 1. It divides the logits."),
    ("one too many", dict(more=1), "You keep k + 1 tokens: count again which index is the k-th largest."),
    ("no maximum subtracted", dict(maximum=False),
     "exp(1000) is infinity, and ∞/∞ is NaN; exp(−1000) is 0. Subtract the largest logit of each row first."),
    ("one too few", [dict(keep=lambda x, k: x > np.sort(x)[..., [-k]]), dict(keep=lambda x, k: exactly(x, k - 1))],
     "You keep k − 1 tokens: the k-th largest logit itself must stay. A threshold compared with > drops it: k places."),
    ("the k largest of all rows", [dict(keep=lambda x, k: x >= np.sort(x, None)[-k]),
                                   dict(keep=lambda x, k: exactly(x.reshape(-1), k).reshape(x.shape))],
     "You keep the k largest logits of the whole array. Each row keeps its own k."),
    ("the k smallest", [dict(keep=lambda x, k: at_least(-x, k)), dict(keep=lambda x, k: exactly(-x, k))],
     "You keep the least likely tokens: sort the other way."),
    reads=with_ties_in_order)  # fmt: skip


def joined(ids: Array, pair: tuple[int, int], new: int, *, step: int = 2) -> Array:
    """Neighbours that are the pair become one token, from the left; ``step`` is how far to go on after one."""
    out, i = [], 0
    while i < len(ids):
        here = tuple(ids[i : i + 2]) == tuple(pair)
        out.append(new if here else ids[i])
        i += step if here else 1
    return np.array(out)


PAIRS = np.array([4, 1, 2, 1, 2, 2, 7, 1, 2, 1, 1, 5, 2, 1])


def pairs_that_overlap(ids: Array, pair: tuple[int, int], new: int) -> Array:
    here = (ids[:-1] == pair[0]) & (ids[1:] == pair[1])
    first, second = np.r_[here, False], np.r_[False, here]
    return np.where(first, new, ids)[first | ~second]


join_pair = Exercise(9, "join_pair(ids, pair, new): each pair of neighbours replaced by the number new, from the left; "
    "(n,), two numbers, a number → (at most n,)",
    joined, [(np.array([3, 1, 2]), (1, 2), 9), (np.array([5, 6, 7]), (1, 2), 9), (np.array([1, 1, 1]), (1, 1), 9),
        (np.array([1, 1, 1, 1, 1, 4]), (1, 1), 8), (PAIRS, (1, 2), 30), (PAIRS, (2, 1), 31)],
    ("a token used twice", dict(step=1),
     "After a pair you go on by one place: its second token stays, or begins another pair. Go on by two."),
    ("pairs that overlap", pairs_that_overlap,
     "Where two pairs share a token you join both. A token in one pair is not there for the next."))  # fmt: skip


def looks(A: Array, period: int, *, off: int = 1) -> Array:
    """Mean weight of queries from the period on, on the key `period` places back and `off` on."""
    i = np.arange(period, A.shape[-1])
    return np.asarray(A[..., i, i - period + off].mean(-1))


induction_score = Exercise(9, "induction_score(A, period): mean weight of the queries i ≥ period on key i − period + "
    "1, for each head; (…, n, n) → (…)",
    looks, lambda draw: [(np.tril(weights_of(draw(4, 4))), 2), (np.tril(weights_of(draw(3, 7, 7))), 3),
        (np.tril(weights_of(3 * draw(2, 3, 11, 11))), 5)],
    ("the same letter", dict(off=0),
     "You take the weight on the letter's last occurrence, i − period. Wanted is what came after it, one place on."),
    ("divided by all queries", lambda A, period: looks(A, period) * (A.shape[-1] - period) / A.shape[-1],
     "You divide by n. The queries of the second copy alone are asked: n − period of them."))  # fmt: skip
