"""Chapter 8: sampling from the nucleus, when a beam ranked by the mean may stop, and how far a word is from its
symbol."""

import numpy as np

from attn_tutor.check.chapters.inputs import Array, numbers, weights_of
from attn_tutor.check.exercise import Exercise

draw = numbers(88)


def _kept(p: Array, keep: Array) -> Array:
    """The tokens of which ``keep`` is true, counted from the likeliest, with probabilities that sum to 1."""
    order = np.argsort(-p)
    kept = np.zeros_like(p)
    kept[order[keep]] = p[order[keep]]
    return kept / kept.sum()


def _before(p: Array) -> Array:
    """What all likelier tokens have together, from the likeliest token on."""
    falling = -np.sort(-p)
    return np.concatenate([[0.0], falling.cumsum()[:-1]])


nucleus = Exercise(8,
    "nucleus(p, share): the likeliest tokens, as few as have at least that share of the probability together; the "
    "others get 0, and the rest is divided by its sum; no two are equal, share < 1; (n) → (n)",
    lambda p, share: _kept(p, _before(p) < share), lambda draw: [
        (np.array([0.2, 0.5, 0.3]), 0.6), (np.array([0.1, 0.9]), 0.5),
        *((weights_of(2 * draw(7)), share) for share in (0.3, 0.7, 0.95)),
        *((weights_of(draw(11)), share) for share in (0.15, 0.5, 0.8)),
        (np.array([0.1875, 0.5, 0.3125]), 0.5),  # met exactly, also in binary
    ])  # fmt: skip
nucleus.knows(
    ("not divided again", lambda p, share: np.where(_kept(p, _before(p) < share) > 0, p, 0),
     "You set the others to 0 and leave the rest as it is, so that it no longer sums to 1. Divide by the sum."),
    ("the token that reaches the share left out", lambda p, share: _kept(p, _before(p) - np.sort(-p) <= share),
     "You keep tokens while their sum is at most the share, so they have less than it together, and where the first "
     "alone has more, none is left. Keep a token if those *before* it have less than the share."),
)  # fmt: skip


def _stops(finished: float, running: Array, length: int, max_len: int) -> bool:
    return bool((running / max_len <= finished).all())


may_stop = Exercise(
    8,
    "may_stop(finished, running, length, max_len): whether no unfinished sentence can reach a higher mean; finished is "
    "the mean log-probability of the best that has ended, running (k) the *sums* of those that have not, if any, after "
    "length of at most max_len tokens, the end included → True or False",
    _stops,
    lambda draw: (
        [
            (-0.2 - abs(a) / 2, -0.3 - 2 * abs(draw(3)), 2, max_len)
            for a in draw(12)
            for max_len in (4, 9)
        ]
        + [(-0.6, np.array([-1.0, -2.0]), 2, 4), (-0.5, np.zeros(0), 3, 5)]
    ),
)

may_stop.knows(
    ("divided by the length so far",
     lambda finished, running, length, max_len: bool((running / length <= finished).all()),
     "You compare means as they are now. A sentence can end with a higher mean than it has in the middle, if the rest "
     "is nearly certain: divide by the largest length that it may reach."),
    ("one that cannot overtake is enough",
     lambda finished, running, length, max_len: bool(len(running) == 0 or (running / max_len <= finished).any()),
     "You stop as soon as *one* unfinished sentence cannot overtake. None may be able to: all, or the largest sum."),
)  # fmt: skip


def _distances(m: int, backwards: bool) -> Array:
    return 2 * np.arange(m) + 1 if backwards else np.full(m, m)


path_lengths = Exercise(8,
    "path_lengths(m, backwards): an encoder reads m words in one direction, then a decoder writes m symbols, and word "
    "j becomes symbol j. How many steps are there from the state that read word j to the state that writes symbol j? "
    "→ (m) whole numbers",
    _distances, [(m, backwards) for m in (1, 2, 5, 7) for backwards in (False, True)])  # fmt: skip
path_lengths.knows(
    ("the same in both directions", lambda m, backwards: np.full(m, m),
     "You do not look at backwards. Read from its end, a sentence has its first word nearest to the decoder."),
)  # fmt: skip
