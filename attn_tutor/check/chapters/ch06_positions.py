"""Chapter 6: encodings, rotations and biases that tell where a token stands."""

from collections.abc import Callable
from typing import Any

import numpy as np

import attn_tutor.numpy as an
from attn_tutor.check.chapters.inputs import Array, numbers, weights_of
from attn_tutor.check.exercise import Exercise

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


def waves_at(
    positions: Array,
    d: int,
    base: float = 10000.0,
    rates: Callable[[int, float], Array] = rates,
) -> Array:
    return waves(positions, d, rates(d, base))


def waves_of(n: int, d: int, first: int = 0, **options: Any) -> Array:
    return waves_at(np.arange(first, first + n), d, **options)


sinusoidal_encoding = Exercise(
    6,
    "sinusoidal_encoding(n, d): sin(p/10000^(2i/d)) in column 2i, cos in column 2i+1, p from 0, any d; → (n, d)",
    an.sinusoidal_encoding,
    [(1, 2), (2, 2), (2, 4), (2, 3), (7, 6), (11, 5), (31, 10)],
    tolerance=ANGLES,
)
encode = Exercise(
    6,
    "encode(positions, d, base=10000.0): the sinusoidal encoding of any positions, any d; (n,) → (n, d)",
    lambda positions, d, base=10000.0: waves(positions, d, rates(d, base)),
    [
        (np.array([0.0, 1.0]), 2),
        (np.array([2.5]), 4),
        (np.array([-1.5, 3.0]), 4),
        (np.array([1.0, 2.0]), 3),
        (np.array([0.5, -4.0, 7.25]), 6, 100.0),
        (np.array([0.5, -4.0, 7.25]), 7, 100.0),
    ],
    tolerance=ANGLES,
)


RATES = {  # what people make of 10000^(−2i/d), with what to tell them; for the columns 2i = 0, 2, 4, …
    "exponent twice too large": (
        lambda d, base: rates(d, base) ** 2,
        "Your wavelengths grow twice as fast as they should: the exponent is 2i/d, where i counts pairs. If i already "
        "runs over 0, 2, 4, … it is i/d; 2 * i doubles it once more.",
    ),
    "exponent i in place of 2i": (
        lambda d, base: rates(d, base) ** 0.5,
        "Your wavelengths grow too slowly: the exponent is 2i/d, with i counting *pairs*. It runs up to nearly 1, "
        "yours up to ½.",
    ),
    "the sign of the exponent": (
        lambda d, base: 1 / rates(d, base),
        "Your rates grow from pair to pair, where they should fall: divide the position by 10000^(2i/d), or multiply "
        "by it with a minus in the exponent.",
    ),
    "the last pair at the full base": (
        lambda d, base: base ** -np.linspace(0, 1, (d + 1) // 2),
        "Your last pair has the rate 1/10000: you divide by d/2 − 1 pairs, as some programs do. In the formula the "
        "exponent is 2i/d, and the last one is a little below 1.",
    ),
    "another base": (
        lambda d, base: rates(d, 1000.0),
        "Your base is 1000, and it should be 10000.",
    ),
    "one rate for all pairs": (
        lambda d, base: np.ones((d + 1) // 2),
        "Every pair turns at the same speed. Each has a rate of its own, 10000^(−2i/d): fast for near, slow for far.",
    ),
}
for name, (wrong_rates, words) in RATES.items():
    sinusoidal_encoding.variant(waves_of, name, words, rates=wrong_rates)
    encode.variant(waves_at, name, words, rates=wrong_rates)


@sinusoidal_encoding.mistake("sines and cosines in halves")
def _(n: int, d: int) -> Array:
    """You put all sines in front and all cosines behind. In the paper's formula they alternate: sine in column 2i,
    cosine in column 2i+1. (Both layouts are in use; weights trained on one do not fit the other.)"""
    angles = np.arange(n)[:, None] * rates(d)
    return np.concatenate([np.sin(angles), np.cos(angles[:, : d // 2])], -1)


@sinusoidal_encoding.mistake("a frequency for each column")
def _(n: int, d: int) -> Array:
    """Your sine and cosine of one pair have different frequencies: you use the column's number in the exponent. The two
    columns of a pair share 2i, or else a shift is no rotation."""
    angles = np.arange(n)[:, None] * 10000.0 ** (-np.arange(d) / d)
    return np.where(np.arange(d) % 2 == 0, np.sin(angles), np.cos(angles))


sinusoidal_encoding.variant(
    waves_of,
    "positions from 1",
    "Your first row is that of position 1. Positions start at 0, whose row is 0, 1, 0, 1, …",
    first=1,
)


@sinusoidal_encoding.mistake("positions divided by n")
def _(n: int, d: int) -> Array:
    """You divide the positions by n. Then a token's row depends on how long the text is: positions are 0, 1, 2, …"""
    return waves(np.arange(n) / n, d, rates(d))


@sinusoidal_encoding.mistake("fails for odd d")
def _(n: int, d: int) -> Array:
    """For even d you are right. For odd d there is one sine more than there are cosines: cut the angles of the cosines
    to d // 2 columns."""
    angles = np.arange(n)[:, None] * rates(d)
    P = np.empty((n, d))
    P[:, 0::2], P[:, 1::2] = np.sin(angles), np.cos(angles)
    return P


@sinusoidal_encoding.mistake("sine and cosine swapped")
def _(n: int, d: int) -> Array:
    """Your cosines stand in the even columns. Sine comes first: position 0 is 0, 1, 0, 1, …"""
    angles = np.arange(n)[:, None] * np.repeat(rates(d), 2)[:d]
    return np.where(np.arange(d) % 2 == 0, np.cos(angles), np.sin(angles))


@encode.mistake("base ignored")
def _(positions: Array, d: int, base: float = 10000.0) -> Array:
    """You always use 10000. The base is an argument."""
    return waves(positions, d, rates(d))


@encode.mistake("sines and cosines in halves")
def _(positions: Array, d: int, base: float = 10000.0) -> Array:
    """You put all sines in front and all cosines behind. They alternate: sine in column 2i, cosine in column 2i+1."""
    angles = np.asarray(positions)[:, None] * rates(d, base)
    return np.concatenate([np.sin(angles), np.cos(angles[:, : d // 2])], -1)


@encode.mistake("the sign of the position lost")
def _(positions: Array, d: int, base: float = 10000.0) -> Array:
    """You take the absolute value of the positions: −1.5 is encoded as 1.5. The sine is odd, and tells the two
    apart."""
    return waves(np.abs(positions), d, rates(d, base))


@encode.mistake("positions counted, not used")
def _(positions: Array, d: int, base: float = 10000.0) -> Array:
    """You encode 0, 1, 2, … whatever the positions are. Multiply the positions themselves by the rates."""
    return waves(np.arange(len(positions)), d, rates(d, base))


@encode.mistake("positions cut to whole numbers")
def _(positions: Array, d: int, base: float = 10000.0) -> Array:
    """You lose the fractions: 2.5 is encoded as 2. Keep the positions as real numbers."""
    return waves(np.trunc(positions), d, rates(d, base))


@encode.mistake("fails for odd d")
def _(positions: Array, d: int, base: float = 10000.0) -> Array:
    """For even d you are right. For odd d there is one sine more than there are cosines: cut the angles of the cosines
    to d // 2 columns."""
    angles = np.asarray(positions)[:, None] * rates(d, base)
    P = np.empty((len(angles), d))
    P[:, 0::2], P[:, 1::2] = np.sin(angles), np.cos(angles)
    return P


rotary = Exercise(
    6,
    "rotary(X): row p turned by the angle p/10000^(2i/d) in columns 2i and 2i+1, p from 0; (…, n, d) → (…, n, d)",
    an.rotary,
    [
        (np.array([[1.0, 0.0], [1.0, 0.0]]),),
        (np.array([[1.0, 0, 0, 0], [0, 0, 1, 0]]),),
        (draw(5, 6),),
        (draw(5, 6).astype(np.float32),),
        (draw(2, 7, 10),),
    ],
    tolerance=ANGLES,
)


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


def turned(
    X: Array,
    *,
    first: int = 0,
    rates: Callable[[int, float], Array] = rates,
    sign: float = 1,
    cut: Callable[[Array], tuple[Array, Array]] = pairs_of,
    join: Callable[[Array, Array], Array] = woven,
    spread: Callable[[Array], tuple[Array, Array]] = each,
    minus: float = -1,
) -> Array:
    positions = np.arange(first, first + X.shape[-2])
    angles = sign * positions[:, None] * rates(X.shape[-1], 10000.0)
    (x, y), (a, b) = cut(X), spread(angles)
    return join(x * np.cos(a) + minus * y * np.sin(a), x * np.sin(b) + y * np.cos(b))


for name, (wrong_rates, words) in RATES.items():
    rotary.variant(turned, name, words, rates=wrong_rates)
rotary.variant(
    turned,
    "turned the wrong way",
    "You turn by −θ: the minus belongs to the sine in the *even* column, cos θ x − sin θ y. Scores are the same if "
    "queries and keys agree, but other people's weights do not fit.",
    sign=-1,
)
rotary.variant(
    turned,
    "positions from 1",
    "Your first row is turned already. Positions start at 0, and row 0 stays as it is.",
    first=1,
)
rotary.variant(
    turned,
    "halves in place of neighbours",
    "You pair column i with column i + d/2, as many libraries do. Here, as in the paper, neighbours turn together: 2i "
    "and 2i+1.",
    cut=halves_of,
    join=behind,
)
rotary.variant(
    turned,
    "halves taken, neighbours put back",
    "You pair column i with column i + d/2, and put the pairs back side by side: the columns come out in another "
    "order. Neighbours turn together, 2i and 2i+1, and stay where they are.",
    cut=halves_of,
)
rotary.variant(
    turned,
    "angles repeated for halves",
    "You turn neighbours, 2i and 2i+1, but lay out the angles as cat(angles, angles), for halves: the two columns of a "
    "pair get different angles. Repeat each angle in place: 0, 0, 1, 1, …, repeat_interleave(2).",
    spread=lambda angles: pairs_of(np.concatenate([angles, angles], -1)),
)
rotary.variant(
    turned,
    "put back in halves",
    "You turn the right pairs, but put them back in another order: all first entries in front, all second ones behind. "
    "They go back to their columns, 2i and 2i+1.",
    join=behind,
)
rotary.variant(
    turned,
    "the minus forgotten",
    "There is no minus in your sum, so that lengths change, and this is no rotation: the even column is "
    "x cos θ − y sin θ, the odd one x sin θ + y cos θ.",
    minus=1,
)


@rotary.mistake("the batch counted in place of the tokens")
def _(X: Array) -> Array:
    """You count positions along axis 0. In a batch that is the sequences: all tokens of one are turned by the same
    angle. The tokens are X.shape[-2]."""
    if X.ndim < 3:
        return turned(X)
    return np.swapaxes(turned(np.swapaxes(X, 0, -2)), 0, -2)


@rotary.mistake("an encoding added")
def _(X: Array) -> Array:
    """You add sines and cosines. Rotary *turns*: it multiplies, and leaves the length of each row as it was."""
    return X + an.sinusoidal_encoding(*X.shape[-2:])


alibi_bias = Exercise(
    6,
    "alibi_bias(n_heads, n, m): −2^(−8(h+1)/n_heads) · |i + m − n − j|, n_heads a power of 2; → (h, n, m)",
    an.alibi_bias,
    [(1, 2, 2), (2, 2, 2), (2, 2, 3), (4, 5, 7), (8, 3, 3)],
)


def bias(slopes: Array, n: int, m: int) -> Array:
    distance = np.abs(np.arange(m - n, m)[:, None] - np.arange(m))
    return -slopes[:, None, None] * distance


def slopes(n_heads: int) -> Array:
    return 2 ** (-8 * np.arange(1, n_heads + 1) / n_heads)


@alibi_bias.mistake("a reward for distance")
def _(n_heads: int, n: int, m: int) -> Array:
    """Your biases are positive, so that far keys win. Distance is a penalty: put a minus in front."""
    return -bias(slopes(n_heads), n, m)


@alibi_bias.mistake("heads counted from 0")
def _(n_heads: int, n: int, m: int) -> Array:
    """Your first head has the slope 2⁰ = 1. Its exponent is −8(h+1)/n_heads with h from 0, so that the last is 2⁻⁸."""
    return bias(2 ** (-8 * np.arange(n_heads) / n_heads), n, m)


@alibi_bias.mistake("aligned upper left")
def _(n_heads: int, n: int, m: int) -> Array:
    """For n = m you are right. With n ≠ m the queries are the *last* n of m tokens: query i stands at i + m − n."""
    distance = np.abs(np.arange(n)[:, None] - np.arange(m))
    return -slopes(n_heads)[:, None, None] * distance


@alibi_bias.mistake("the same slope in every head")
def _(n_heads: int, n: int, m: int) -> Array:
    """Every head has the same slope. Different slopes let some heads look near and others far."""
    return bias(np.full(n_heads, slopes(n_heads)[0]), n, m)


@alibi_bias.mistake("slopes that halve from head to head")
def _(n_heads: int, n: int, m: int) -> Array:
    """Your slopes are ½, ¼, ⅛, …, which is right for 8 heads alone. For n_heads the exponent is −8(h+1)/n_heads, so
    that the last slope is always 2⁻⁸."""
    return bias(0.5 ** np.arange(1, n_heads + 1), n, m)


@alibi_bias.mistake("no bias after the query")
def _(n_heads: int, n: int, m: int) -> Array:
    """Keys after the query get a bias of 0. Distance counts on both sides, |i + m − n − j|; to hide the future is the
    work of a mask."""
    return np.tri(n, m, m - n) * bias(slopes(n_heads), n, m)


@alibi_bias.mistake("the distance squared")
def _(n_heads: int, n: int, m: int) -> Array:
    """You square the distance. The bias falls along a straight line: slope times distance."""
    return -(bias(slopes(n_heads), n, m) ** 2) / slopes(n_heads)[:, None, None]


@alibi_bias.mistake("the sign of the distance kept")
def _(n_heads: int, n: int, m: int) -> Array:
    """Keys after the query get a reward: you use i − j, which is negative there. Take its absolute value."""
    distance = np.arange(m - n, m)[:, None] - np.arange(m)
    return -slopes(n_heads)[:, None, None] * distance


def looking(n: int, d: int, scale: float, back: int = 1) -> Array:
    """Queries turned back by some positions."""
    Q, K = (waves(np.arange(n) - shift, d, rates(d)) for shift in (back, 0))
    return an.attention_weights(Q, K, scale=scale)


previous_weights = Exercise(
    6,
    "previous_weights(n, d, scale): weights of keys P and queries P turned back by one position, scores times scale; "
    "→ (n, n)",
    looking,
    [(2, 2, 1.0), (3, 4, 1.0), (5, 6, 3.5), (11, 14, 2.0)],
    tolerance=ANGLES,
)


@previous_weights.mistake("one step ahead")
def _(n: int, d: int, scale: float) -> Array:
    """Your head looks at the next token: you turned the queries forward. P R₋₁ turns them back."""
    return looking(n, d, scale, -1)


@previous_weights.mistake("looks at itself")
def _(n: int, d: int, scale: float) -> Array:
    """Your queries are P, not turned at all, so that every token prefers itself."""
    return looking(n, d, scale, 0)


@previous_weights.mistake("normalised over queries")
def _(n: int, d: int, scale: float) -> Array:
    """Your columns sum to 1, not your rows: softmax runs over keys, axis −1."""
    Q, K = (waves(np.arange(n) - shift, d, rates(d)) for shift in (1, 0))
    return weights_of(Q @ K.T * scale, -2)


@previous_weights.mistake("scale ignored")
def _(n: int, d: int, scale: float) -> Array:
    """Your weights do not depend on the scale: you use the usual 1/√d, which leaves them flat."""
    return looking(n, d, d**-0.5)


@previous_weights.mistake("rows shifted round")
def _(n: int, d: int, scale: float) -> Array:
    """You shift the rows of P by one, and query 0 gets the last row: it looks at the end of the text. A rotation gives
    it position −1."""
    P = waves(np.arange(n), d, rates(d))
    return an.attention_weights(np.roll(P, 1, 0), P, scale=scale)


def reordered(W: Array, n_heads: int) -> Array:
    columns = np.arange(W.shape[1]).reshape(n_heads, -1)
    return W[:, np.hstack([columns[:, 0::2], columns[:, 1::2]]).ravel()]


NAMED = np.arange(8.0)[None, :]
to_halves = Exercise(
    6,
    "to_halves(W, n_heads): in each head's columns first the even ones, then the odd ones; (d_in, d) → (d_in, d)",
    reordered,
    [(NAMED[:, :6], 1), (NAMED, 2), (draw(5, 12), 2), (draw(7, 30), 5)],
)


@to_halves.mistake("heads forgotten")
def _(W: Array, n_heads: int) -> Array:
    """You reorder all columns at once, so that heads trade columns. Each head has its own pairs: reorder inside it."""
    return reordered(W, 1)


@to_halves.mistake("from halves to neighbours")
def _(W: Array, n_heads: int) -> Array:
    """You go the other way, from halves to neighbours. New column i is old column 2i: W[:, order], not its inverse."""
    order = reordered(np.arange(W.shape[1])[None, :], n_heads)[0]
    return W[:, np.argsort(order)]


@to_halves.mistake("odd columns first")
def _(W: Array, n_heads: int) -> Array:
    """You put the odd columns first. The even one is the first of its pair, and stays so."""
    columns = np.arange(W.shape[1]).reshape(n_heads, -1)
    return W[:, np.hstack([columns[:, 1::2], columns[:, 0::2]]).ravel()]


@to_halves.mistake("nothing moved")
def _(W: Array, n_heads: int) -> Array:
    """Your columns are where they were."""
    return W.copy()


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
squeezed = Exercise(
    6,
    "squeezed(w, ids, longest): the last token's answer with rotary in four heads, positions times longest/n if n > "
    "longest; (b, n) → (b, words)",
    squeeze,
    [
        (TINY, np.array([[1, 5]]), 2),
        (TINY, np.array([[1, 5, 3]]), 5),
        (TINY, np.array([[1, 5, 3, 7, 2], [4, 0, 10, 9, 6]]), 2),
        (TINY, np.array([[1, 5, 3, 7, 2, 0, 9]]), 3),
    ],
    tolerance=1e-4,
)


@squeezed.mistake("positions not squeezed")
def _(w: dict[str, Array], ids: Array, longest: int) -> Array:
    """Long texts are read as before. With more than `longest` tokens, multiply all positions by longest/n."""
    p = np.arange(ids.shape[-1])
    return last_answer(w, ids, p, p[-1])


@squeezed.mistake("stretched in place of squeezed")
def _(w: dict[str, Array], ids: Array, longest: int) -> Array:
    """You multiply by n/longest, and move long texts further apart. The factor is longest/n, so that the last position
    stays below `longest`."""
    n = ids.shape[-1]
    p = np.arange(n) * max(1.0, n / longest)
    return last_answer(w, ids, p, p[-1])


@squeezed.mistake("short texts stretched")
def _(w: dict[str, Array], ids: Array, longest: int) -> Array:
    """You multiply by longest/n in short texts too, where it is above 1 and stretches them. The factor is at most 1."""
    n = ids.shape[-1]
    p = np.arange(n) * (longest / n)
    return last_answer(w, ids, p, p[-1])


@squeezed.mistake("the query left where it was")
def _(w: dict[str, Array], ids: Array, longest: int) -> Array:
    """You squeeze the keys, and the query still stands at n − 1. Both move, as their difference is what counts."""
    n = ids.shape[-1]
    return last_answer(w, ids, np.arange(n) * min(1.0, longest / n), n - 1)


@squeezed.mistake("positions cut off")
def _(w: dict[str, Array], ids: Array, longest: int) -> Array:
    """Every position beyond `longest` becomes the last one, and the tokens there can no longer be told apart. Squeeze
    all evenly: times longest/n."""
    p = np.arange(ids.shape[-1]).clip(0, longest - 1)
    return last_answer(w, ids, p, p[-1])
