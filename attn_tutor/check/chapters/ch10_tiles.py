"""Chapter 10: the same weights from pieces of a row, with less to store and nothing that overflows."""

from collections.abc import Callable

import numpy as np

from attn_tutor.check.chapters.inputs import Array, column, numbers
from attn_tutor.check.exercise import Exercise

draw = numbers(10)
State = tuple[Array, Array, Array]


def shrink(t: Array, top: Array) -> Array:
    """What is summed under t, seen from a new top; nothing is summed under −∞."""
    return np.exp(t - np.where(np.isneginf(top), 0, top))


def careless(t: Array, top: Array) -> Array:
    return np.exp(t - top)


def joined(t1: Array, l1: Array, o1: Array, t2: Array, l2: Array, o2: Array) -> State:
    t = np.maximum(t1, t2)
    first, second = shrink(t1, t), shrink(t2, t)
    return t, first * l1 + second * l2, first * o1 + second * o2


NOTHING = column(-np.inf), column(0), column(0)
FIRST = column(np.log(2)), column(1.5), column(15)
SECOND = column(np.log(6)), column(1.5), column(8)
SOME = draw(5, 1), 1 + draw(5, 1) ** 2, draw(5, 3)
MORE = 3 * draw(5, 1), 1 + draw(5, 1) ** 2, draw(5, 3)

merge = Exercise(10,
    "merge(t1, z1, u1, t2, z2, u2): top, total and pooled of two sets of keys together, from those of each; the top "
    "is the larger one, and a set of no keys has −∞, 0, 0; (n, 1), (n, 1), (n, d_v), twice → t, z, u",
    joined, [
        (*FIRST, *SECOND), (*SECOND, *FIRST), (*NOTHING, *SECOND), (*NOTHING, *NOTHING),
        (column(1000), column(1), column(3), column(-1000), column(2), column(5)), (*SOME, *MORE),
        tuple(x.astype(np.float32) for x in (*SOME, *MORE))
    ])  # fmt: skip


def pooled_values_divided_by_the_total(factor: Callable[[Array, Array], Array]) -> Callable[..., State]:  # fmt: skip
    def wrong(t1: Array, l1: Array, o1: Array, t2: Array, l2: Array, o2: Array) -> State:  # fmt: skip
        t = np.maximum(t1, t2)
        first, second = factor(t1, t), factor(t2, t)
        total, pooled = first * l1 + second * l2, first * o1 + second * o2
        return t, total, pooled / np.where(total == 0, 1, total)

    return wrong


def shrunk_the_wrong_way(t1: Array, l1: Array, o1: Array, t2: Array, l2: Array, o2: Array) -> State:  # fmt: skip
    t = np.maximum(t1, t2)
    first, second = np.exp(t - t1), np.exp(t - t2)
    return t, first * l1 + second * l2, first * o1 + second * o2


def nan_from_two_empty_sets(t1: Array, l1: Array, o1: Array, t2: Array, l2: Array, o2: Array) -> State:  # fmt: skip
    t = np.maximum(t1, t2)
    first, second = careless(t1, t), careless(t2, t)
    return t, first * l1 + second * l2, first * o1 + second * o2


merge.knows(
    ("pooled values divided by the total", [pooled_values_divided_by_the_total(x) for x in (shrink, careless)],
     "You divide the pooled values by the total. That comes once, at the very end: until then they are sums, which the "
     "next set can be added to."),
    ("nothing rescaled", lambda t1, l1, o1, t2, l2, o2: (np.maximum(t1, t2), l1 + l2, o1 + o2),
     "You add totals and values that were summed under different tops. Bring both under the new one first: times e^(t₁ "
     "− t) and e^(t₂ − t)."),
    ("the first top kept",
     lambda t1, l1, o1, t2, l2, o2: (t1, l1 + (second := careless(t2, t1)) * l2, o1 + second * o2),
     "You keep the first top, whichever is larger. e^(t₂ − t₁) overflows where the second is much larger: take the "
     "maximum, and bring both under it."),
    ("shrunk the wrong way", shrunk_the_wrong_way,
     "Your exponents have the wrong sign: what was summed under a lower top must become smaller, e^(t₁ − t) ≤ 1."),
    ("NaN from two empty sets", nan_from_two_empty_sets,
     "You are right wherever there is a key. With none on either side both tops are −∞, and −∞ − (−∞) is NaN. Subtract "
     "0 in place of −∞ there; a large mask makes such tiles."),
)  # fmt: skip


def blocks(n: int, tile: int) -> Array:
    """The first of each block."""
    return np.arange(0, n, tile)


def needed(n: int, m: int, tile: int) -> Array:
    last = np.minimum(blocks(n, tile) + tile, n) - 1 + m - n
    return blocks(m, tile) <= last[:, None]


causal_tiles = Exercise(10,
    "causal_tiles(n, m, tile): True for each tile of queries × keys in which some query may see some key, causally and "
    "aligned lower right; → boolean (⌈n/tile⌉, ⌈m/tile⌉)",
    needed, [(2, 2, 1), (4, 4, 2), (1, 5, 2), (3, 5, 2), (5, 3, 2), (6, 6, 4), (7, 11, 3)])  # fmt: skip
causal_tiles.knows(
    ("aligned upper left", lambda n, m, tile: blocks(m, tile) <= (np.minimum(blocks(n, tile) + tile, n) - 1)[:, None],
     "For n = m you are right. With n ≠ m the queries are the *last* n of m tokens: query i sees keys up to i + m − "
     "n."),
    ("only the whole tiles",
     lambda n, m, tile: np.minimum(blocks(m, tile) + tile, m) - 1 <= blocks(n, tile)[:, None] + m - n,
     "You leave out the tiles that the diagonal crosses. Some of their pairs are permitted: compute those tiles, and "
     "mask inside them."),
    ("the first query of a block asked", lambda n, m, tile: blocks(m, tile) <= blocks(n, tile)[:, None] + m - n,
     "You ask what the *first* query of each block may see. The later ones see more: ask the last."),
)  # fmt: skip


def norms(X: Array) -> Array:
    return np.sqrt((X**2).sum(-1))


score_bound = Exercise(10,
    "score_bound(Q, K, scale): a number that no |scale · qᵢ · kⱼ| exceeds, whatever the sign of scale, from the "
    "largest norms and in O((n + m) d); (n, d), (m, d) → a number",
    lambda Q, K, scale: norms(Q).max() * norms(K).max() * abs(scale), lambda draw: [
        (np.array([[3.0, 4.0]]), np.array([[1.0, 0.0], [0.0, 2.0]]), 1.0),
        (np.array([[3.0, 4.0]]), np.array([[1.0, 0.0]]), -0.5), (draw(3, 5), draw(7, 5), 5**-0.5),
        (draw(3, 5), draw(2, 5), -2.0)
    ])  # fmt: skip
score_bound.knows(
    ("the norm of the whole matrix", lambda Q, K, scale: float(np.linalg.norm(Q) * np.linalg.norm(K) * abs(scale)),
     "You take the norm of all entries at once. It is a bound, but grows with the number of tokens: take the norm of "
     "each row, and of these the largest."),
    ("no square root", lambda Q, K, scale: float((norms(Q).max() * norms(K).max()) ** 2 * abs(scale)),
     "You multiply squared norms. ‖q‖ is the *root* of the sum of squares."),
    ("the scale's sign kept", lambda Q, K, scale: float(norms(Q).max() * norms(K).max() * scale),
     "With a negative scale your bound is negative, and every score seems harmless. Take abs(scale)."),
    ("absolute entries added",
     lambda Q, K, scale: float(np.abs(Q).sum(-1).max() * np.abs(K).sum(-1).max() * abs(scale)),
     "You take the sum of absolute entries for the length of a row. It is a bound, but a loose one: ‖q‖ is the root of "
     "the sum of squares."),
    ("the smallest norm of the keys", lambda Q, K, scale: float(norms(Q).max() * norms(K).min() * abs(scale)),
     "You take the smallest norm of the keys. Another key can be longer, and its score larger: take the largest of "
     "both."),
)  # fmt: skip


def pulled(a: Array, b: Array) -> tuple[Array, Array]:
    """Both near 0 in each feature, with the same sums."""
    shift = (a.max(0) + a.min(0)) / 2
    return a - shift, b + shift


def as_they_are(a: Array, b: Array) -> tuple[Array, Array]:
    return a, b


def quotients(x: Array, y: Array, w: Array) -> Array:
    return -2 * (w / (1 + x[:, None, :] * y)).sum(-1)


def safely(a: Array, b: Array, w: Array) -> Array:
    x, y = (np.exp(2 * each) for each in pulled(a, b))
    return quotients(x, y, w)


quotient_scores = Exercise(10,
    "quotient_scores(a, b, w): the scores Σ w tanh(aᵢ + bⱼ) minus Σw, as quotients of exponentials of a and of b "
    "alone, finite also where a is near 800 and b near −800; (n, h), (m, h), (h,) → (n, m)",
    safely, lambda draw: [
        (column(np.log(2) / 2), column(np.log(3) / 2), np.array([1.0])),
        (column(np.log(2) / 2, 0), column(np.log(3) / 2), np.array([7.0])), (draw(2, 3), draw(5, 3), draw(3)),
        (draw(2, 3).astype("f4"), draw(5, 3).astype("f4"), draw(3).astype("f4")),
        (draw(2, 3) + 800, draw(5, 3) - 800, draw(3))
    ])  # fmt: skip


def ea_in_place_of_e2a(near: Callable[[Array, Array], tuple[Array, Array]]) -> Callable[..., Array]:  # fmt: skip
    def wrong(a: Array, b: Array, w: Array) -> Array:
        a, b = near(a, b)
        return quotients(np.exp(a), np.exp(b), w)

    return wrong


def minus_forgotten(near: Callable[[Array, Array], tuple[Array, Array]]) -> Callable[..., Array]:  # fmt: skip
    def wrong(a: Array, b: Array, w: Array) -> Array:
        a, b = near(a, b)
        return -quotients(np.exp(2 * a), np.exp(2 * b), w)

    return wrong


quotient_scores.knows(
    ("eᵃ in place of e²ᵃ", [ea_in_place_of_e2a(x) for x in (pulled, as_they_are)],
     "Your exponentials lack the 2: tanh(z) = 1 − 2/(1 + e²ᶻ). With eᶻ you compute tanh(z/2)."),
    ("the minus forgotten", [minus_forgotten(x) for x in (pulled, as_they_are)],
     "Your scores have the wrong sign: the quotient falls as a + b grows, and tanh rises: 1 *minus* 2/(1 + …)."),
    ("exponentials that overflow", lambda a, b, w: quotients(np.exp(2 * a), np.exp(2 * b), w),
     "e^1600 is infinity and e^−1600 is 0, though their product is near 1. Take a number from a feature of all queries "
     "and add it to that feature of all keys: no sum a + b changes."),
    ("Σw still there", lambda a, b, w: (w * np.tanh(a[:, None, :] + b)).sum(-1),
     "You return all of Σ w tanh. Right, but the 1 of 1 − 2/(1 + …) adds Σw to every score: leave it out, as softmax "
     "drops it, and with it every tanh."),
)  # fmt: skip
