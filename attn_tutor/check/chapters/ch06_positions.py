"""Chapter 6: encodings, rotations and biases that tell where a token stands."""

from collections.abc import Callable
from typing import Any

import numpy as np

import attn_tutor.numpy as an
from attn_tutor.check.chapters.inputs import Array, numbers, weights_of
from attn_tutor.check.exercise import Exercise, Row

draw = numbers(6)

ANGLES = (
    1e-5  # angles in float32, as torch makes them of whole numbers, are exact enough
)


def waves(positions: Array, d: int, rates: Array) -> Array:
    """Sines in the even columns, cosines in the odd ones."""
    angles = np.asarray(positions)[:, None] * rates
    P = np.empty((len(angles), d))
    P[:, 0::2], P[:, 1::2] = np.sin(angles), np.cos(angles[:, : d // 2])
    return P


def rates(d: int, base: float = 10000.0) -> Array:
    return base ** (-np.arange(0, d, 2) / d)


def waves_at(positions: Array, d: int, rates: Callable[[int, float], Array] = rates) -> Array:  # fmt: skip
    return waves(positions, d, rates(d, 10000.0))


def waves_of(n: int, d: int, first: int = 0, **options: Any) -> Array:
    return waves_at(np.arange(first, first + n), d, **options)


sinusoidal_encoding = Exercise(6,
    "sinusoidal_encoding(n, d): sin(p/10000^(2i/d)) in column 2i, cos in column 2i+1, p from 0, any d; → (n, d)",
    an.sinusoidal_encoding, [(1, 2), (2, 2), (2, 4), (2, 3), (7, 6), (11, 5), (31, 10)], tolerance=ANGLES)  # fmt: skip

encode = Exercise(6, "encode(positions, d): the sinusoidal encoding of any positions, any d; (n,) → (n, d)",
    waves_at, [
        (np.array([0.0, 1.0]), 2), (np.array([2.5]), 4), (np.array([-1.5, 3.0]), 4), (np.array([1.0, 2.0]), 3),
        (np.array([0.5, -4.0, 7.25]), 6), (np.array([0.5, -4.0, 7.25]), 7)
    ], tolerance=ANGLES)  # fmt: skip

# What people make of 10000^(−2i/d), for the columns 2i = 0, 2, 4, …
RATES: list[Row] = [
    ("exponent twice too large", dict(rates=lambda d, base: rates(d, base) ** 2),
     "Your wavelengths grow twice as fast as they should: the exponent is 2i/d, where i counts pairs. If i already "
     "runs over 0, 2, 4, … it is i/d; 2 * i doubles it once more."),
    ("exponent i in place of 2i", dict(rates=lambda d, base: rates(d, base) ** 0.5),
     "Your wavelengths grow too slowly: the exponent is 2i/d, with i counting *pairs*. It runs up to nearly 1, yours "
     "up to ½."),
    ("the sign of the exponent", dict(rates=lambda d, base: 1 / rates(d, base)),
     "Your rates grow from pair to pair, where they should fall: divide the position by 10000^(2i/d), or multiply by "
     "it with a minus in the exponent."),
    ("the last pair at the full base", dict(rates=lambda d, base: base ** (-np.linspace(0, 1, (d + 1) // 2))),
     "Your last pair has the rate 1/10000: you divide by d/2 − 1 pairs, as some programs do. In the formula the "
     "exponent is 2i/d, and the last one is a little below 1."),
    ("another base", dict(rates=lambda d, base: rates(d, 1000.0)), "Your base is 1000, and it should be 10000."),
    ("one rate for all pairs", dict(rates=lambda d, base: np.ones((d + 1) // 2)),
     "Every pair turns at the same speed. Each has a rate of its own, 10000^(−2i/d): fast for near, slow for far."),
]  # fmt: skip

sinusoidal_encoding.knows(*RATES, by_hand=waves_of)
encode.knows(*RATES, by_hand=waves_at)


def sines_and_cosines_in_halves(n: int, d: int) -> Array:
    angles = np.arange(n)[:, None] * rates(d)
    return np.concatenate([np.sin(angles), np.cos(angles[:, : d // 2])], -1)


def frequency_for_each_column(n: int, d: int) -> Array:
    angles = np.arange(n)[:, None] * 10000.0 ** (-np.arange(d) / d)
    return np.where(np.arange(d) % 2 == 0, np.sin(angles), np.cos(angles))


def fails_for_odd_d(n: int, d: int) -> Array:
    angles = np.arange(n)[:, None] * rates(d)
    P = np.empty((n, d))
    P[:, 0::2], P[:, 1::2] = np.sin(angles), np.cos(angles)
    return P


def sine_and_cosine_swapped(n: int, d: int) -> Array:
    angles = np.arange(n)[:, None] * np.repeat(rates(d), 2)[:d]
    return np.where(np.arange(d) % 2 == 0, np.cos(angles), np.sin(angles))


sinusoidal_encoding.knows(
    ("sines and cosines in halves", sines_and_cosines_in_halves,
     "You put all sines in front and all cosines behind. In the paper's formula they alternate: sine in column 2i, "
     "cosine in column 2i+1. (Both layouts are in use; weights trained on one do not fit the other.)"),
    ("a frequency for each column", frequency_for_each_column,
     "Your sine and cosine of one pair have different frequencies: you use the column's number in the exponent. The "
     "two columns of a pair share 2i, or else a shift is no rotation."),
    ("positions divided by n", lambda n, d: waves(np.arange(n) / n, d, rates(d)),
     "You divide the positions by n. Then a token's row depends on how long the text is: positions are 0, 1, 2, …"),
    ("fails for odd d", fails_for_odd_d,
     "For even d you are right. For odd d there is one sine more than there are cosines: cut the angles of the cosines "
     "to d // 2 columns."),
    ("sine and cosine swapped", sine_and_cosine_swapped,
     "Your cosines stand in the even columns. Sine comes first: position 0 is 0, 1, 0, 1, …"),
    ("positions from 1", dict(first=1),
     "Your first row is that of position 1. Positions start at 0, whose row is 0, 1, 0, 1, …"),
    by_hand=waves_of,
)  # fmt: skip


def sines_and_cosines_in_halves_too(positions: Array, d: int) -> Array:
    angles = np.asarray(positions)[:, None] * rates(d)
    return np.concatenate([np.sin(angles), np.cos(angles[:, : d // 2])], -1)


encode.knows(
    ("sines and cosines in halves", sines_and_cosines_in_halves_too,
     "You put all sines in front and all cosines behind. They alternate: sine in column 2i, cosine in column 2i+1."),
    ("the sign of the position lost", lambda positions, d: waves(np.abs(positions), d, rates(d)),
     "You take the absolute value of the positions: −1.5 is encoded as 1.5. The sine is odd, and tells the two apart."),
    ("positions cut to whole numbers", lambda positions, d: waves(np.trunc(positions), d, rates(d)),
     "You lose the fractions: 2.5 is encoded as 2. Keep the positions as real numbers."),
)  # fmt: skip

rotary = Exercise(6,
    "rotary(X): row p turned by the angle p/10000^(2i/d) in columns 2i and 2i+1, p from 0; (…, n, d) → (…, n, d)",
    an.rotary, lambda draw: [
        (np.array([[1.0, 0.0], [1.0, 0.0]]),), (np.array([[1.0, 0, 0, 0], [0, 0, 1, 0]]),), (draw(5, 6),),
        (draw(5, 6).astype(np.float32),), (draw(2, 7, 10),)
    ], tolerance=ANGLES)  # fmt: skip


def pairs_of(X: Array) -> tuple[Array, Array]:
    return X[..., 0::2], X[..., 1::2]


def halves_of(X: Array) -> tuple[Array, Array]:
    first, second = np.split(X, 2, -1)
    return first, second


def woven(x: Array, y: Array) -> Array:
    return np.stack([x, y], -1).reshape(*x.shape[:-1], -1)


def behind(x: Array, y: Array) -> Array:
    return np.concatenate([x, y], -1)


def each(angles: Array) -> tuple[Array, Array]:
    return angles, angles


def turned(X: Array, *, first: int = 0, rates: Callable[[int, float], Array] = rates, sign: float = 1,
           cut: Callable[[Array], tuple[Array, Array]] = pairs_of, join: Callable[[Array, Array], Array] = woven,
           spread: Callable[[Array], tuple[Array, Array]] = each, minus: float = -1) -> Array:  # fmt: skip
    positions = np.arange(first, first + X.shape[-2])
    angles = sign * positions[:, None] * rates(X.shape[-1], 10000.0)
    (x, y), (a, b) = cut(X), spread(angles)
    return join(x * np.cos(a) + minus * y * np.sin(a), x * np.sin(b) + y * np.cos(b))


rotary.knows(*RATES, by_hand=turned)


def batch_counted_in_place_of_the_tokens(X: Array) -> Array:
    if X.ndim < 3:
        return turned(X)
    return np.swapaxes(turned(np.swapaxes(X, 0, -2)), 0, -2)


rotary.knows(
    ("turned the wrong way", dict(sign=-1),
     "You turn by −θ: the minus belongs to the sine in the *even* column, cos θ x − sin θ y. Scores are the same if "
     "queries and keys agree, but other people's weights do not fit."),
    ("positions from 1", dict(first=1),
     "Your first row is turned already. Positions start at 0, and row 0 stays as it is."),
    ("halves in place of neighbours", dict(cut=halves_of, join=behind),
     "You pair column i with column i + d/2, as many libraries do. Here, as in the paper, neighbours turn together: 2i "
     "and 2i+1."),
    ("halves taken, neighbours put back", dict(cut=halves_of),
     "You pair column i with column i + d/2, and put the pairs back side by side: the columns come out in another "
     "order. Neighbours turn together, 2i and 2i+1, and stay where they are."),
    ("angles repeated for halves", dict(spread=lambda angles: pairs_of(np.concatenate([angles, angles], -1))),
     "You turn neighbours, 2i and 2i+1, but lay out the angles as cat(angles, angles), for halves: the two columns of "
     "a pair get different angles. Repeat each angle in place: 0, 0, 1, 1, …, repeat_interleave(2)."),
    ("put back in halves", dict(join=behind),
     "You turn the right pairs, but put them back in another order: all first entries in front, all second ones "
     "behind. They go back to their columns, 2i and 2i+1."),
    ("the minus forgotten", dict(minus=1),
     "There is no minus in your sum, so that lengths change, and this is no rotation: the even column is x cos θ − y "
     "sin θ, the odd one x sin θ + y cos θ."),
    ("the batch counted in place of the tokens", batch_counted_in_place_of_the_tokens,
     "You count positions along axis 0. In a batch that is the sequences: all tokens of one are turned by the same "
     "angle. The tokens are X.shape[-2]."),
    ("an encoding added", lambda X: X + an.sinusoidal_encoding(*X.shape[-2:]),
     "You add sines and cosines. Rotary *turns*: it multiplies, and leaves the length of each row as it was."),
    by_hand=turned,
)  # fmt: skip

alibi_bias = Exercise(6,
    "alibi_bias(n_heads, n, m): −2^(−8(h+1)/n_heads) · |i + m − n − j|, n_heads a power of 2; → (h, n, m)",
    an.alibi_bias, [(1, 2, 2), (2, 2, 2), (2, 2, 3), (4, 5, 7), (8, 3, 3)])  # fmt: skip


def bias(slopes: Array, n: int, m: int) -> Array:
    distance = np.abs(np.arange(m - n, m)[:, None] - np.arange(m))
    return -slopes[:, None, None] * distance


def slopes(n_heads: int) -> Array:
    return 2 ** (-8 * np.arange(1, n_heads + 1) / n_heads)


alibi_bias.knows(
    ("a reward for distance", lambda n_heads, n, m: -bias(slopes(n_heads), n, m),
     "Your biases are positive, so that far keys win. Distance is a penalty: put a minus in front."),
    ("heads counted from 0", lambda n_heads, n, m: bias(2 ** (-8 * np.arange(n_heads) / n_heads), n, m),
     "Your first head has the slope 2⁰ = 1. Its exponent is −8(h+1)/n_heads with h from 0, so that the last is 2⁻⁸."),
    ("aligned upper left",
     lambda n_heads, n, m: -slopes(n_heads)[:, None, None] * np.abs(np.arange(n)[:, None] - np.arange(m)),
     "For n = m you are right. With n ≠ m the queries are the *last* n of m tokens: query i stands at i + m − n."),
    ("slopes that halve from head to head", lambda n_heads, n, m: bias(0.5 ** np.arange(1, n_heads + 1), n, m),
     "Your slopes are ½, ¼, ⅛, …, which is right for 8 heads alone. For n_heads the exponent is −8(h+1)/n_heads, so "
     "that the last slope is always 2⁻⁸."),
    ("no bias after the query", lambda n_heads, n, m: np.tri(n, m, m - n) * bias(slopes(n_heads), n, m),
     "Keys after the query get a bias of 0. Distance counts on both sides, |i + m − n − j|; to hide the future is the "
     "work of a mask."),
    ("the distance squared", lambda n_heads, n, m: -(bias(slopes(n_heads), n, m) ** 2) / slopes(n_heads)[:, None, None],
     "You square the distance. The bias falls along a straight line: slope times distance."),
)  # fmt: skip


def looking(n: int, d: int, scale: float, back: int = 1) -> Array:
    """Queries turned back by some positions."""
    Q, K = (waves(np.arange(n) - shift, d, rates(d)) for shift in (back, 0))
    return an.attention_weights(Q, K, scale=scale)


previous_weights = Exercise(6,
    "previous_weights(n, d, scale): weights of keys P and queries P turned back by one position, query 0 to position "
    "−1; scores times scale, d even; → (n, n)",
    looking, [(2, 2, 1.0), (3, 4, 1.0), (5, 6, 3.5), (11, 14, 2.0)], tolerance=ANGLES)  # fmt: skip


def normalised_over_queries(n: int, d: int, scale: float) -> Array:
    Q, K = (waves(np.arange(n) - shift, d, rates(d)) for shift in (1, 0))
    return weights_of(Q @ K.T * scale, -2)


previous_weights.knows(
    ("one step ahead", lambda n, d, scale: looking(n, d, scale, -1),
     "Your head looks at the next token: you turned the queries forward. P R₋₁ turns them back."),
    ("normalised over queries", normalised_over_queries,
     "Your columns sum to 1, not your rows: softmax runs over keys, axis −1."),
)  # fmt: skip


def reordered(W: Array, n_heads: int) -> Array:
    columns = np.arange(W.shape[1]).reshape(n_heads, -1)
    return W[:, np.hstack([columns[:, 0::2], columns[:, 1::2]]).ravel()]


NAMED = np.arange(8.0)[None, :]

to_halves = Exercise(6,
    "to_halves(W, n_heads): in each head's columns first the even ones, then the odd ones; (d_in, d) → (d_in, d)",
    reordered, lambda draw: [(NAMED[:, :6], 1), (NAMED, 2), (draw(5, 12), 2), (draw(7, 30), 5)])  # fmt: skip
to_halves.knows(
    ("heads forgotten", lambda W, n_heads: reordered(W, 1),
     "You reorder all columns at once, so that heads trade columns. Each head has its own pairs: reorder inside it."),
    ("from halves to neighbours",
     lambda W, n_heads: W[:, np.argsort(reordered(np.arange(W.shape[1])[None, :], n_heads)[0])],
     "You go the other way, from halves to neighbours. New column i is old column 2i: W[:, order], not its inverse."),
)  # fmt: skip


def last_answer(w: dict[str, Array], ids: Array, p: Array, last: float) -> Array:
    """The last token asks in four heads, with keys at positions p and itself at the last one."""
    X = w["words"][ids]
    Q, K, V = (an.split_heads(X @ w[M], 4) for M in ("W_q", "W_k", "W_v"))
    Q, K = an.rotary(Q[..., -1:, :], np.array([last])), an.rotary(K, p)
    return an.merge_heads(an.attention(Q, K, V))[:, 0] @ w["W_o"]


def squeeze(w: dict[str, Array], ids: Array, longest: int) -> Array:
    n = ids.shape[-1]
    p = np.arange(n) * min(1.0, longest / n)
    return last_answer(w, ids, p, p[-1])


TINY = dict(words=2 * draw(11, 8), W_q=draw(8, 8), W_k=draw(8, 8), W_v=draw(8, 8))
TINY["W_o"] = draw(8, 11)

squeezed = Exercise(6,
    "squeezed(w, ids, longest): the last token's answer with rotary in four heads, positions times longest/n if n > "
    "longest; (b, n) → (b, words)",
    squeeze, [
        (TINY, np.array([[1, 5]]), 2), (TINY, np.array([[1, 5, 3]]), 5),
        (TINY, np.array([[1, 5, 3, 7, 2], [4, 0, 10, 9, 6]]), 2), (TINY, np.array([[1, 5, 3, 7, 2, 0, 9]]), 3)
    ], tolerance=1e-4)  # fmt: skip


def stretched_in_place_of_squeezed(w: dict[str, Array], ids: Array, longest: int) -> Array:  # fmt: skip
    n = ids.shape[-1]
    p = np.arange(n) * max(1.0, n / longest)
    return last_answer(w, ids, p, p[-1])


squeezed.knows(
    ("stretched in place of squeezed", stretched_in_place_of_squeezed,
     "You multiply by n/longest, and move long texts further apart. The factor is longest/n, so that the last position "
     "stays below `longest`."),
    ("short texts stretched",
     lambda w, ids, longest: last_answer(w, ids, (p := (np.arange(n := ids.shape[-1]) * (longest / n))), p[-1]),
     "You multiply by longest/n in short texts too, where it is above 1 and stretches them. The factor is at most 1."),
)  # fmt: skip
