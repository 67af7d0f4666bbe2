"""Chapter 10: the same weights from pieces of a row, with less to store and nothing that overflows."""

import numpy as np

import attn_tutor.numpy as an
from attn_tutor.check.chapters.inputs import Array, column, numbers
from attn_tutor.check.exercise import Exercise, Function

draw = numbers(10)


def joined(t1: Array, l1: Array, o1: Array, t2: Array, l2: Array, o2: Array, *, sign: int = 1, zero: float = 0,
           divide: bool = False) -> tuple[Array, ...]:  # fmt: skip
    """Both under a new top; ``zero`` is subtracted in place of a top of −∞."""
    t = np.maximum(t1, t2)
    top = np.where(np.isneginf(t), zero, t)
    first, second = np.exp(sign * (t1 - top)), np.exp(sign * (t2 - top))
    total, pooled = first * l1 + second * l2, first * o1 + second * o2
    return t, total, pooled / np.where(total == 0, 1, total) if divide else pooled


NOTHING = column(-np.inf), column(0), column(0)
FIRST = column(np.log(2)), column(1.5), column(15)
SECOND = column(np.log(6)), column(1.5), column(8)
SOME = draw(5, 1), 1 + draw(5, 1) ** 2, draw(5, 3)
MORE = 3 * draw(5, 1), 1 + draw(5, 1) ** 2, draw(5, 3)

merge = Exercise(10, "merge(t1, z1, u1, t2, z2, u2): top, total and pooled of two sets of keys together, from those of "
    "each; the top is the larger one, and a set of no keys has −∞, 0, 0; (n, 1), (n, 1), (n, d_v), twice → t, z, u",
    joined, [(*FIRST, *SECOND), (*SECOND, *FIRST), (*NOTHING, *SECOND), (*NOTHING, *NOTHING),
        (column(1000), column(1), column(3), column(-1000), column(2), column(5)), (*SOME, *MORE),
        tuple(x.astype(np.float32) for x in (*SOME, *MORE))],
    ("pooled values divided by the total", [dict(divide=True), dict(divide=True, zero=-np.inf)],
     "You divide the pooled values by the total. That comes once, at the end: until then they are sums to add to."),
    ("nothing rescaled", lambda t1, l1, o1, t2, l2, o2: (np.maximum(t1, t2), l1 + l2, o1 + o2),
     "You add what was summed under different tops. Bring both under the new one first: times e^(t₁ − t), e^(t₂ − t)."),
    ("the first top kept",
     lambda t1, l1, o1, t2, l2, o2: (t1, l1 + (second := np.exp(t2 - t1)) * l2, o1 + second * o2),
     "You keep the first top, and e^(t₂ − t₁) overflows where the second is larger. Take the maximum of both."),
    ("shrunk the wrong way", dict(sign=-1, zero=-np.inf),
     "Your exponents have the wrong sign: what was summed under a lower top must become smaller, e^(t₁ − t) ≤ 1."),
    ("NaN from two empty sets", dict(zero=-np.inf),
     "Without any key both tops are −∞, and −∞ − (−∞) is NaN. Subtract 0 in place of −∞ there."))  # fmt: skip


def blocks(n: int, tile: int) -> Array:
    """The first of each block."""
    return np.arange(0, n, tile)


def needed(n: int, m: int, tile: int, *, last: bool = True, aligned: bool = True) -> Array:  # fmt: skip
    asks = np.minimum(blocks(n, tile) + tile, n) - 1 if last else blocks(n, tile)
    return blocks(m, tile) <= asks[:, None] + (m - n) * aligned


causal_tiles = Exercise(10, "causal_tiles(n, m, tile): True for each tile of queries × keys in which some query may "
    "see some key, causally and aligned lower right; → boolean (⌈n/tile⌉, ⌈m/tile⌉)",
    needed, [(2, 2, 1), (4, 4, 2), (1, 5, 2), (3, 5, 2), (5, 3, 2), (6, 6, 4), (7, 11, 3)],
    ("aligned upper left", dict(aligned=False),
     "For n = m you are right. With n ≠ m the queries are the *last* n of m: query i sees keys up to i + m − n."),
    ("the first query of a block asked", dict(last=False),
     "You ask what the *first* query of each block may see. The later ones see more: ask the last."))  # fmt: skip


def bound(Q: Array, K: Array, scale: float, *, norm: Function = lambda X: np.sqrt((X**2).sum(-1)), size: Function = abs,
          largest: Function = np.max) -> float:  # fmt: skip
    return float(norm(Q).max() * largest(norm(K)) * size(scale))


score_bound = Exercise(10, "score_bound(Q, K, scale): a number that no |scale · qᵢ · kⱼ| exceeds, whatever the sign of "
    "scale, from the largest norms and in O((n + m) d); (n, d), (m, d) → a number",
    bound, lambda draw: [(np.array([[3.0, 4.0]]), np.array([[1.0, 0.0], [0.0, 2.0]]), 1.0),
        (np.array([[3.0, 4.0]]), np.array([[1.0, 0.0]]), -0.5), (draw(3, 5), draw(7, 5), 5**-0.5),
        (draw(3, 5), draw(2, 5), -2.0)],
    ("the norm of the whole matrix", dict(norm=np.linalg.norm),
     "You take the norm of all entries: a bound that grows with the number of tokens. Take the largest norm of a row."),
    ("no square root", dict(norm=lambda X: (X**2).sum(-1)),
     "You multiply squared norms. ‖q‖ is the *root* of the sum of squares."),
    ("the smallest norm of the keys", dict(largest=np.min),
     "You take the smallest norm of the keys. Another key can be longer, and its score larger: the largest of both."),
    ("absolute entries added", dict(norm=lambda X: np.abs(X).sum(-1)),
     "You take the sum of absolute entries for the length of a row: a loose bound. ‖q‖ is the root of summed squares."),
    ("the scale's sign kept", dict(size=float),
     "With a negative scale your bound is negative, and every score seems harmless. Take abs(scale)."))  # fmt: skip


def quotients(a: Array, b: Array, w: Array, *, two: float = 2, pull: bool = True) -> Array:  # fmt: skip
    """Pulled, both are near 0 in each feature, with the same sums."""
    shift = (a.max(0) + a.min(0)) / 2 * pull
    x, y = np.exp(two * (a - shift)), np.exp(two * (b + shift))
    return np.asarray(-2 * (w / (1 + x[:, None, :] * y)).sum(-1))


quotient_scores = Exercise(10, "quotient_scores(a, b, w): the scores Σ w tanh(aᵢ + bⱼ) minus Σw, as quotients of "
    "exponentials of a and of b alone, finite also where a is near 800 and b near −800; (n, h), (m, h), (h,) → (n, m)",
    quotients, lambda draw: [(column(np.log(2) / 2), column(np.log(3) / 2), np.array([1.0])),
        (column(np.log(2) / 2, 0), column(np.log(3) / 2), np.array([7.0])), (draw(2, 3), draw(5, 3), draw(3)),
        (draw(2, 3).astype("f4"), draw(5, 3).astype("f4"), draw(3).astype("f4")),
        (draw(2, 3) + 800, draw(5, 3) - 800, draw(3))],
    ("exponentials that overflow", dict(pull=False),
     "e^1600 is infinity and e^−1600 is 0, though their product is near 1. Subtract a number of a, and add it to b."),
    ("eᵃ in place of e²ᵃ", dict(two=1),
     "Your exponentials lack the 2: tanh(z) = 1 − 2/(1 + e²ᶻ). With eᶻ you compute tanh(z/2)."))  # fmt: skip


def averaged(Q: Array, K: Array, V: Array, *, phi: Function = an.elu_features,
             seen: Function = np.tril) -> Array:  # fmt: skip
    kernel = seen(phi(Q) @ phi(K).T)
    return np.asarray(kernel @ V / kernel.sum(-1, keepdims=True))


causal_linear_attention = Exercise(10, "causal_linear_attention(Q, K, V): the weight of key j for query i is φ(qᵢ) · "
    "φ(kⱼ) divided by the sum of these over j ≤ i, with φ(x) = elu(x) + 1; (n, d), (n, d), (n, d_v) → (n, d_v)",
    averaged, lambda draw: [(column(1), column(5), column(4)), (column(1, 2), column(1, 3), column(3, 6)),
        (draw(3, 5), draw(3, 5), draw(3, 2)), (3 * draw(7, 2), 3 * draw(7, 2), draw(7, 5))],
    ("not causal", dict(seen=np.asarray),
     "Each query reads the whole text, the future too. Add key i to the sums, then answer query i, then go on."),
    ("relu in place of elu", dict(phi=lambda x: np.maximum(x, 0) + 1),
     "Your φ is max(0, x) + 1, which is 1 for all x below 0. elu(x) + 1 is eˣ there, and tells them apart."),
    ("elu without the 1", dict(phi=lambda x: an.elu_features(x) - 1),
     "Your φ is elu itself, which goes down to −1. It is elu(x) + 1, which is always above 0."))  # fmt: skip
