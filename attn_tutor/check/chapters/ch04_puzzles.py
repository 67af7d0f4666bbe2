"""Puzzles: matrices set by hand, with which one layer of attention does what is asked."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import attn_tutor.numpy as an
from attn_tutor.check.chapters.inputs import Array
from attn_tutor.check.exercise import Exercise, Row

STRONG = 50.0  # e to the power of this is a clear lead
Matrices = tuple[Array, ...]
Features = Callable[..., Matrices]


# A token is (letter, one-hot | place, one-hot | 1). X @ T are the letters, X @ P the places, X @ one the ones.
def parts(a: int, n: int) -> Matrices:
    """T, P and one for an alphabet of a letters and n places."""
    I = np.eye(a + n + 1)
    return I[:, :a], I[:, a:-1], I[:, -1:]


def tokens(letters: Array, a: int) -> Array:
    """Letters (…, n) as tokens (…, n, a + n + 1)."""
    n = letters.shape[-1]
    places = np.broadcast_to(np.eye(n), (*letters.shape, n))
    ones = np.ones((*letters.shape, 1))
    return np.concatenate([np.eye(a)[letters], places, ones], -1)


def texts(a: int, n: int) -> Array:
    """Twenty texts of n random letters."""
    return np.random.default_rng(a).integers(a, size=(20, n))


def orders(a: int, n: int) -> Array:
    """Twenty texts in which each letter stands once."""
    return np.stack([np.random.default_rng(seed).permutation(n) for seed in range(20)])


def puzzle(statement: str, features: Features, *, causal: bool,
           sizes: Sequence[tuple[int, ...]] = ((2, 3), (3, 5), (5, 7)),
           letters: Callable[[int, int], Array] = texts) -> Exercise:  # fmt: skip
    """A checker that runs the layer with the matrices that it is given; ``features`` give scores of 0 and 1."""
    by_width = {size[0] + size[-1] + 1: (size[0], size[-1]) for size in sizes}

    def output(matrices: Matrices) -> Array:
        """What the layer makes of many texts."""
        W_q, W_k, W_v = matrices
        a, n = by_width.get(len(W_q), (1, 1))
        return an.self_attention(tokens(letters(a, n), a), W_q, W_k, W_v, causal=causal)

    right = by_hand(features)
    return Exercise(4, statement, right, sizes, reads=output, tolerance=2e-3)


def by_hand(features: Features) -> Features:
    """Strong scores from features, with what people get wrong everywhere as options."""

    def matrices(*size: int, strength: float = STRONG, swapped: bool = False, **options: Any) -> Matrices:  # fmt: skip
        Q, K, V = features(*size, **options)
        if swapped:
            Q, K = K, Q
        return strength * Q.shape[1] ** 0.5 * Q, K, V

    return matrices


SOFT: Row = (
    "too soft", dict(strength=1.0),
    "You look at the right place, but not hard enough: others keep some of the weight. A lead of 1 in the scores is a "
    "factor of e, and √d_k divides it: multiply W_q by 50 or so.",
)  # fmt: skip

SHAPES = (
    "X is (letter, one-hot | place, one-hot | 1), a letters, n places; → W_q, W_k, W_v, the output right to "
    "0.002"
)


def _successor(a: int, n: int, *, step: int = 1, cyclic: bool = True, back: int = 0) -> Matrices:  # fmt: skip
    T, P, _ = parts(a, n)
    turn = np.roll(np.eye(a), step, axis=1) if cyclic else np.eye(a, k=1)
    return P @ np.roll(np.eye(n), -back, axis=1), P, T @ turn


successor = puzzle(
    f"successor(a, n): each token reads itself and writes the next letter of the alphabet, after the last "
    f"the first. {SHAPES}",
    _successor,
    causal=False,
)

successor.knows(
    SOFT,
    ("nothing after the last letter", dict(cyclic=False),
     "The last letter becomes nothing. It is followed by the first: np.roll(np.eye(a), 1, axis=1)."),
)  # fmt: skip


def _first_token(a: int, n: int, *, place: int = 0, letters: bool = True,
                 letter: bool = False) -> Matrices:  # fmt: skip
    T, P, one = parts(a, n)
    key = T[:, :1] if letter else P[:, [place]]
    return one, key, T if letters else P


first_token = puzzle(
    f"first_token(a, n): causal; every token writes the letter of the first. {SHAPES}",
    _first_token,
    causal=True,
)

first_token.knows(
    SOFT,
)  # fmt: skip


def _letter_shares(a: int, n: int, *, own: bool = False, first: bool = False,
                   places: bool = False) -> Matrices:  # fmt: skip
    T, P, one = parts(a, n)
    Q, K = (P, P) if own else (one, P[:, :1]) if first else (0 * one, 0 * one)
    return Q, K, P if places else T


letter_shares = puzzle(
    f"letter_shares(a, n): causal; each token writes the share of each letter so far, itself included. {SHAPES}",
    _letter_shares,
    causal=True,
)

letter_shares.knows(
    ("only itself", dict(own=True),
     "Each token reads itself alone. For shares all tokens must weigh the same: equal scores, such as 0, do that."),
)  # fmt: skip


def _previous_token(a: int, n: int, *, back: int = 1, places: bool = False) -> Matrices:
    T, P, _ = parts(a, n)
    return P @ np.eye(n, k=-back), P, P if places else T


previous_token = puzzle(
    f"previous_token(a, n): causal; each token writes the letter before it (the first its own). {SHAPES}",
    _previous_token,
    causal=True,
)

previous_token.knows(
    SOFT,
    ("queries and keys swapped", dict(swapped=True),
     "Your query asks for the place *after* it, which the causal mask hides: with the shift in W_k in place of W_q, or "
     "transposed. Query i must ask for place i − 1: np.eye(n, k=-1) in W_q."),
)  # fmt: skip


def _reverse(a: int, n: int, *, itself: bool = False, alphabet: bool = False, back: int = 0) -> Matrices:  # fmt: skip
    T, P, _ = parts(a, n)
    turn = np.eye(n) if itself else np.roll(np.eye(n)[::-1], back, axis=1)
    return P @ turn, P, T[:, ::-1].copy() if alphabet else T


reverse = puzzle(
    f"reverse(a, n): no mask; the layer writes the text backwards. {SHAPES}",
    _reverse,
    causal=False,
)

reverse.knows(
    SOFT,
    ("one place off", dict(back=1),
     "You are one place off: the last token, n − 1, asks for place 0, so i asks for n − 1 − i, not n − i."),
)  # fmt: skip


def _same_letter(a: int, n: int, *, sign: int = 1, own: bool = False, letters: bool = False) -> Matrices:  # fmt: skip
    T, P, _ = parts(a, n)
    Q, K = (P, P) if own else (T, T)
    return sign * Q, K, T if letters else P


same_letter = puzzle(
    "same_letter(a, n): no mask; each token shares its weight evenly among all tokens of its letter, and writes their "
    f"places (1 / an entry then counts them). {SHAPES}",
    _same_letter,
    causal=False,
)

same_letter.knows(
    SOFT,
    ("the letter written", dict(letters=True),
     "The weights are right, but you write the letter, which all of them share. Their places were asked for."),
)  # fmt: skip


def _largest_so_far(a: int, n: int, *, sign: int = 1, places: bool = False,
                    newest: bool = False) -> Matrices:  # fmt: skip
    T, P, one = parts(a, n)
    key = P @ np.arange(n)[:, None] if newest else T @ np.arange(a)[:, None]
    return sign * one, key, P if places else T


largest_so_far = puzzle(
    f"largest_so_far(a, n): causal; each token writes the largest letter so far, itself included. {SHAPES}",
    _largest_so_far,
    causal=True,
)

largest_so_far.knows(
    SOFT,
    ("the smallest", dict(sign=-1), "You find the smallest letter: the score must grow with the letter, not fall."),
)  # fmt: skip


def _latest_a(a: int, n: int, *, slope: float = 1, bonus: float = 1, letters: bool = False) -> Matrices:  # fmt: skip
    T, P, one = parts(a, n)
    key = bonus * n * T[:, :1] + slope * P @ np.arange(n)[:, None]
    return one, key, T if letters else P


latest_a = puzzle(
    "latest_a(a, n): causal; each token writes the place of the newest letter 0 up to itself, or its own "
    "place if there "
    f"is none. {SHAPES}",
    _latest_a,
    causal=True,
)

latest_a.knows(
    SOFT,
    ("the oldest", dict(slope=-1),
     "You find the oldest letter 0 (and without one, the first token): the score falls with the place. It must grow."),
)  # fmt: skip


def _argsort(n: int, *, down: bool = False, letters: bool = False) -> Matrices:
    T, P, _ = parts(n, n)
    return P[:, ::-1] if down else P, T, T if letters else P


argsort = puzzle(
    "argsort(n): no mask; n letters, each once. Row i writes the place at which letter i stands. X is "
    "(letter, one-hot | place, one-hot | 1); → W_q, W_k, W_v, the output right to 0.002",
    _argsort,
    causal=False,
    sizes=((3,), (5,), (7,)),
    letters=orders,
)

argsort.knows(
    SOFT,
    ("queries and keys swapped", dict(swapped=True),
     "Your row i says at which place letter i *belongs*: the rank of the token, not where letter i is found. Place i "
     "asks, letter i answers: places in W_q, letters in W_k."),
)  # fmt: skip
