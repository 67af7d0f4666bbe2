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


def puzzle(
    statement: str,
    features: Features,
    *,
    causal: bool,
    sizes: Sequence[tuple[int, ...]] = ((2, 3), (3, 5), (5, 7)),
    letters: Callable[[int, int], Array] = texts,
) -> Exercise:
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

    def matrices(
        *size: int, strength: float = STRONG, swapped: bool = False, **options: Any
    ) -> Matrices:
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


def _successor(
    a: int, n: int, *, step: int = 1, cyclic: bool = True, back: int = 0
) -> Matrices:
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
    ("the letter itself", dict(step=0),
     "Each token reads itself, and writes its own letter. What is written is a matter of W_v: let it send letter i to "
     "letter i + 1."),
    ("nothing after the last letter", dict(cyclic=False),
     "The last letter becomes nothing. It is followed by the first: np.roll(np.eye(a), 1, axis=1)."),
    ("reads the token before", dict(back=1),
     "Each token reads the one before it. For itself, query and key are both the place: W_q and W_k pick the same "
     "columns."),
)  # fmt: skip


def _first_token(
    a: int, n: int, *, place: int = 0, letters: bool = True, letter: bool = False
) -> Matrices:
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
    ("the last place asked for", dict(place=-1),
     "You ask for the last place. Most tokens may not see it, and share their weight out evenly: place 0 is column a "
     "of X."),
    ("the place written", dict(letters=False),
     "You find the first token, and write its place. The letter was asked for: W_v picks the first a columns."),
    ("the first letter of the alphabet asked for", dict(letter=True),
     "You ask for the letter 0, and not for the place 0. Columns 0 to a − 1 of X are letters, the places begin at "
     "column a."),
)  # fmt: skip


def _letter_shares(
    a: int, n: int, *, own: bool = False, first: bool = False, places: bool = False
) -> Matrices:
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
    ("only the first", dict(first=True),
     "Each token reads the first alone. For shares all tokens must weigh the same: equal scores, such as 0, do that."),
    ("shares of places", dict(places=True),
     "The weights are right, but you write places. The letters are the first a columns of X."),
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
    ("itself", dict(back=0), "Each token reads itself. Shift the places in W_q by one: np.eye(n, k=-1)."),
    ("two back", dict(back=2), "You look two places back. Shift by one: np.eye(n, k=-1)."),
    ("the place written", dict(places=True),
     "You find the token before, and write its place. The letter was asked for: W_v picks the first a columns."),
)  # fmt: skip


def _reverse(
    a: int, n: int, *, itself: bool = False, alphabet: bool = False, back: int = 0
) -> Matrices:
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
    ("not turned", dict(itself=True),
     "Each token reads itself. Query i must ask for place n − 1 − i: np.eye(n)[::-1]."),
    ("the alphabet turned too", dict(alphabet=True),
     "The places are right, but W_v turns the alphabet round. Letters stay as they are."),
    ("one place off", dict(back=1),
     "You are one place off: the last token, n − 1, asks for place 0, so i asks for n − 1 − i, not n − i."),
)  # fmt: skip


def _same_letter(
    a: int, n: int, *, sign: int = 1, own: bool = False, letters: bool = False
) -> Matrices:
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
    ("all other letters", dict(sign=-1), "You read those of *other* letters: the sign of the score is wrong."),
    ("only itself", dict(own=True),
     "Each token reads itself alone: you compare places. Compare letters, the first a columns, with each other."),
    ("the letter written", dict(letters=True),
     "The weights are right, but you write the letter, which all of them share. Their places were asked for."),
)  # fmt: skip


def _largest_so_far(
    a: int, n: int, *, sign: int = 1, places: bool = False, newest: bool = False
) -> Matrices:
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
    ("the newest", dict(newest=True),
     "Your score grows with the place, so each token finds itself. Let it grow with the letter: T @ np.arange(a)."),
    ("the place written", dict(places=True),
     "You find the largest letter, and write where it stands. The letter was asked for."),
)  # fmt: skip


def _latest_a(
    a: int, n: int, *, slope: float = 1, bonus: float = 1, letters: bool = False
) -> Matrices:
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
    ("all of them", dict(slope=0),
     "You share the weight among all letters 0. Among equals the newest must lead: let the score grow with the place "
     "too."),
    ("the place outbids the letter", dict(bonus=0.5 / 7),
     "A newer token outbids a letter 0. The bonus for the letter must be larger than all that the place can give, n − "
     "1 steps."),
    ("the letter written", dict(letters=True),
     "You find the right token, and write its letter. Its place was asked for."),
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
    ("from the largest down", dict(down=True), "You sort from the largest letter down: row 0 asks for letter n − 1."),
    ("the letters written", dict(letters=True),
     "Row i writes letter i, which is true of every text. The place was asked for: W_v picks the places."),
)  # fmt: skip
