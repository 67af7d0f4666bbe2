"""Chapter 6: encodings, rotations and biases that tell where a token stands."""

from typing import Any

import numpy as np

import attn_tutor.numpy as an
from attn_tutor.check.chapters.inputs import Array, numbers, weights_of
from attn_tutor.check.exercise import Exercise, Function, Row

draw = numbers(6)

ANGLES = 1e-5  # in float32, as torch makes them of whole numbers, are exact enough


def rates(d: int, base: float = 10000.0) -> Array:
    return base ** (-np.arange(0, d, 2) / d)


def woven(x: Array, y: Array) -> Array:
    return np.stack([x, y], -1).reshape(*x.shape[:-1], -1)


def behind(x: Array, y: Array) -> Array:
    return np.concatenate([x, y], -1)


def waves(positions: Array, d: int, *, rates: Function = rates, read: Function = np.asarray,
          curves: tuple[Function, Function] = (np.sin, np.cos), join: Function = woven) -> Array:  # fmt: skip
    """Sines in the even columns, cosines in the odd ones."""
    angles = read(positions)[:, None] * rates(d)
    return np.asarray(join(*(curve(angles) for curve in curves))[:, :d])


def waves_of(n: int, d: int, **options: Any) -> Array:
    return waves(np.arange(n), d, **options)


# What people make of 10000^(−2i/d), for the columns 2i = 0, 2, 4, …
RATES: list[Row] = [
    ("exponent twice too large", dict(rates=lambda d: rates(d) ** 2),
     "Your wavelengths grow twice as fast as asked: the exponent is 2i/d. If i already runs over 0, 2, 4 it is i/d."),
    ("exponent i in place of 2i", dict(rates=lambda d: rates(d) ** 0.5),
     "Your wavelengths grow too slowly: the exponent 2i/d, with i counting *pairs*, runs to nearly 1, yours to ½."),
    ("the sign of the exponent", dict(rates=lambda d: 1 / rates(d)),
     "Your rates grow from pair to pair, where they should fall: divide the position by 10000^(2i/d)."),
    ("the last pair at the full base", dict(rates=lambda d: 1e4 ** (-np.linspace(0, 1, (d + 1) // 2))),
     "Your last pair has the rate 1/10000: you divide by d/2 − 1 pairs. The exponent is 2i/d, the last below 1."),
    ("another base", dict(rates=lambda d: rates(d, 1000.0)), "Your base is 1000, and it should be 10000."),
    ("one rate for all pairs", dict(rates=lambda d: np.ones((d + 1) // 2)),
     "Every pair turns at the same speed. Each has a rate of its own, 10000^(−2i/d): fast for near, slow for far."),
]  # fmt: skip
WAVES: list[Row] = [*RATES,
    ("sines and cosines in halves", dict(join=behind),
     "You put all sines in front and all cosines behind. They alternate: sine in 2i, cosine in 2i+1.")]  # fmt: skip

sinusoidal_encoding = Exercise(6,
    "sinusoidal_encoding(n, d): sin(p/10000^(2i/d)) in column 2i, cos in column 2i+1, p from 0, any d; → (n, d)",
    waves_of, [(1, 2), (2, 2), (2, 4), (2, 3), (7, 6), (11, 5), (31, 10)], *WAVES,
    ("a frequency for each column", dict(rates=lambda d: 1e4 ** (-np.arange(d) / d),
                                         join=lambda x, y: np.where(np.arange(x.shape[-1]) % 2, y, x)),
     "The sine and cosine of a pair have different frequencies: your exponent is the column's. They share 2i."),
    ("positions divided by n", dict(read=lambda p: p / len(p)),
     "You divide the positions by n. Then a token's row depends on how long the text is: positions are 0, 1, 2, …"),
    ("fails for odd d", lambda n, d: waves_of(n, d).reshape(n, d // 2, 2).reshape(n, d),
     "For even d you are right. For odd d there is one cosine less: cut the angles of the cosines to d // 2 columns."),
    ("sine and cosine swapped", dict(curves=(np.cos, np.sin)),
     "Your cosines stand in the even columns. Sine comes first: position 0 is 0, 1, 0, 1, …"),
    tolerance=ANGLES)  # fmt: skip
encode = Exercise(6, "encode(positions, d): the sinusoidal encoding of any positions, any d; (n,) → (n, d)",
    waves, [(np.array([0.0, 1.0]), 2), (np.array([2.5]), 4), (np.array([-1.5, 3.0]), 4), (np.array([1.0, 2.0]), 3),
        (np.array([0.5, -4.0, 7.25]), 6), (np.array([0.5, -4.0, 7.25]), 7)], *WAVES,
    ("the sign of the position lost", dict(read=np.abs),
     "You take the absolute value of the positions: −1.5 is encoded as 1.5. The sine is odd, and tells the two apart."),
    ("positions cut to whole numbers", dict(read=np.trunc),
     "You lose the fractions: 2.5 is encoded as 2. Keep the positions as real numbers."),
    tolerance=ANGLES)  # fmt: skip


def turned(X: Array, *, first: int = 0, rates: Function = rates, sign: float = 1, join: Function = woven,
           cut: Function = lambda X: (X[..., 0::2], X[..., 1::2])) -> Array:  # fmt: skip
    positions = np.arange(first, first + X.shape[-2])
    angles = sign * positions[:, None] * rates(X.shape[-1])
    x, y = cut(X)
    c, s = np.cos(angles), np.sin(angles)
    return np.asarray(join(x * c - y * s, x * s + y * c))


rotary = Exercise(6,
    "rotary(X): row p turned by the angle p/10000^(2i/d) in columns 2i and 2i+1, p from 0; (…, n, d) → (…, n, d)",
    turned, lambda draw: [(np.array([[1.0, 0.0], [1.0, 0.0]]),), (np.array([[1.0, 0, 0, 0], [0, 0, 1, 0]]),),
        (draw(5, 6),), (draw(5, 6).astype(np.float32),), (draw(2, 7, 10),)], *RATES,
    ("turned the wrong way", dict(sign=-1),
     "You turn by −θ: the minus belongs to the sine in the *even* column, x cos θ − y sin θ."),
    ("positions from 1", dict(first=1),
     "Your first row is turned already. Positions start at 0, and row 0 stays as it is."),
    ("halves in place of neighbours", dict(cut=lambda X: np.split(X, 2, -1), join=behind),
     "You pair columns i and i + d/2, as many libraries do. Here, as in the paper, neighbours turn: 2i and 2i+1."),
    ("halves taken, neighbours put back", dict(cut=lambda X: np.split(X, 2, -1)),
     "You pair columns i and i + d/2, and put pairs back side by side: another order. Neighbours turn, 2i and 2i+1."),
    ("an encoding added", lambda X: X + an.sinusoidal_encoding(*X.shape[-2:]),
     "You add sines and cosines. Rotary *turns*: it multiplies, and leaves the length of each row as it was."),
    tolerance=ANGLES)  # fmt: skip


def bias(n_heads: int, n: int, m: int, *, exponents: Function = lambda h: 8 * np.arange(1, h + 1) / h,
         last: bool = True, far: Function = np.abs) -> Array:  # fmt: skip
    i, j = np.arange(n)[:, None] + (m - n) * last, np.arange(m)
    return np.asarray(-(2.0 ** -exponents(n_heads)[:, None, None]) * far(i - j))


alibi_bias = Exercise(6,
    "alibi_bias(n_heads, n, m): −2^(−8(h+1)/n_heads) · |i + m − n − j|, n_heads a power of 2; → (h, n, m)",
    bias, [(1, 2, 2), (2, 2, 2), (2, 2, 3), (4, 5, 7), (8, 3, 3)],
    ("heads counted from 0", dict(exponents=lambda h: 8 * np.arange(h) / h),
     "Your first head has the slope 2⁰ = 1. Its exponent is −8(h+1)/n_heads with h from 0, so that the last is 2⁻⁸."),
    ("aligned upper left", dict(last=False),
     "For n = m you are right. With n ≠ m the queries are the *last* n of m tokens: query i stands at i + m − n."),
    ("slopes that halve from head to head", dict(exponents=lambda h: np.arange(1, h + 1)),
     "Your slopes are ½, ¼, ⅛, …, right for 8 heads alone. The exponent is −8(h+1)/n_heads: the last slope is 2⁻⁸."),
    ("no bias after the query", dict(far=lambda steps: steps.clip(0)),
     "Keys after the query get a bias of 0. Distance counts on both sides: to hide the future is the work of a mask."),
    ("the distance squared", dict(far=np.square),
     "You square the distance. The bias falls along a straight line: slope times distance."))  # fmt: skip


def looking(n: int, d: int, scale: float, *, back: int = 1, axis: int = -1) -> Array:
    """Queries turned back by some positions."""
    Q, K = (waves(np.arange(n) - shift, d) for shift in (back, 0))
    return weights_of(Q @ K.T * scale, axis)


previous_weights = Exercise(6, "previous_weights(n, d, scale): weights of keys P and queries P turned back by one "
    "position, query 0 to position −1; scores times scale, d even; → (n, n)",
    looking, [(2, 2, 1.0), (3, 4, 1.0), (5, 6, 3.5), (11, 14, 2.0)],
    ("one step ahead", dict(back=-1),
     "Your head looks at the next token: you turned the queries forward. P R₋₁ turns them back."),
    ("normalised over queries", dict(axis=-2), "Your columns sum to 1, not your rows: softmax runs over keys."),
    tolerance=ANGLES)  # fmt: skip


def reordered(W: Array, n_heads: int) -> Array:
    columns = np.arange(W.shape[1]).reshape(n_heads, -1)
    return W[:, np.hstack([columns[:, 0::2], columns[:, 1::2]]).ravel()]


to_halves = Exercise(6,
    "to_halves(W, n_heads): in each head's columns first the even ones, then the odd ones; (d_in, d) → (d_in, d)",
    reordered, lambda draw: [(np.arange(6.0)[None], 1), (np.arange(8.0)[None], 2), (draw(5, 12), 2), (draw(7, 30), 5)],
    ("heads forgotten", lambda W, n_heads: reordered(W, 1),
     "You reorder all columns at once, so that heads trade columns. Each head has its own pairs: reorder inside it."),
    ("from halves to neighbours",
     lambda W, n_heads: W[:, np.argsort(reordered(np.arange(W.shape[1])[None, :], n_heads)[0])],
     "You go the other way, from halves to neighbours. New column i is old column 2i: W[:, order]."))  # fmt: skip


def squeeze(w: Any, ids: Array, longest: int, *, factor: Function = lambda f: min(1, f)) -> Any:  # fmt: skip
    """The last token asks in four heads."""
    X, n = w["words"][ids], ids.shape[-1]
    p = np.arange(n) * factor(longest / n)
    Q, K, V = (an.split_heads(X @ w[M], 4) for M in ("W_q", "W_k", "W_v"))
    Q, K = an.rotary(Q[..., -1:, :], p[-1:]), an.rotary(K, p)
    return an.merge_heads(an.attention(Q, K, V))[:, 0] @ w["W_o"]


TINY = dict(words=2 * draw(11, 8), W_q=draw(8, 8), W_k=draw(8, 8), W_v=draw(8, 8))
TINY["W_o"] = draw(8, 11)

squeezed = Exercise(6, "squeezed(w, ids, longest): the last token's answer with rotary in four heads, positions times "
    "longest/n if n > longest; (b, n) → (b, words)",
    squeeze, [(TINY, np.array([[1, 5]]), 2), (TINY, np.array([[1, 5, 3]]), 5),
        (TINY, np.array([[1, 5, 3, 7, 2], [4, 0, 10, 9, 6]]), 2), (TINY, np.array([[1, 5, 3, 7, 2, 0, 9]]), 3)],
    ("stretched in place of squeezed", dict(factor=lambda f: max(1, 1 / f)),
     "You multiply by n/longest, and move long texts apart. The factor is longest/n: the last stays below `longest`."),
    ("short texts stretched", dict(factor=lambda f: f),
     "You multiply by longest/n in short texts too, where it is above 1 and stretches them. The factor is at most 1."),
    tolerance=1e-4)  # fmt: skip
