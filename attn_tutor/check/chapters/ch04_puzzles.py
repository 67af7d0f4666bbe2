"""Puzzles: matrices set by hand, with which one layer of attention does what is asked."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

import attn_tutor.numpy as an
from attn_tutor.check.calls import take
from attn_tutor.check.chapters.inputs import Array
from attn_tutor.check.compare import Attempt, Function, Parts
from attn_tutor.check.exercise import Exercise, Row

STRONG = 50.0  # e to the power of this is a clear lead
Matrices = tuple[Array, ...]
Features = Callable[..., Matrices]
LONG = 50, 60  # so many that a lead of 50, divided by √d_k, leaves the rivals a share


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


class Puzzle(Exercise):
    """An exercise in matrices that any lead satisfies if it is large enough."""

    def makes(self, wrong: Function, attempt: Attempt) -> bool:
        """Too soft is what would be right if it were sharper; other mistakes may be too soft besides."""
        found = super().makes(wrong, attempt)
        if found or attempt.got is None:
            return found
        soft = getattr(wrong, "keywords", None) == SOFT[1]
        made = attempt.right if soft else self.made_by(wrong, attempt.case)
        sharp = sharper(self, attempt)
        return made is not None and self.agree(attempt.case, made, sharp)


@lru_cache(maxsize=8)
def sharper(asked: Puzzle, attempt: Attempt) -> Parts:
    """What the reader's matrices would do if each W_q were a thousand times as large."""
    pairs = zip(take(attempt.outcome.value), 2 * (1000, 1, 1), strict=False)
    return asked.parts(tuple(scale * x for x, scale in pairs))


def puzzle(statement: str, features: Features, *, causal: bool,
           sizes: Sequence[tuple[int, ...]] = ((2, 3), (3, 5), (5, 7), LONG),
           letters: Callable[[int, int], Array] = texts) -> Puzzle:  # fmt: skip
    """A checker that runs the layer with the matrices that it is given; ``features`` give scores of 0 and 1."""
    by_width = {size[0] + size[-1] + 1: (size[0], size[-1]) for size in sizes}

    def output(matrices: Matrices) -> Array:
        """What the layer makes of many texts."""
        W_q, W_k, W_v = matrices
        a, n = by_width.get(len(W_q), (1, 1))
        X = tokens(letters(a, n), a)
        return an.self_attention(X, W_q, W_k, W_v, causal=causal).round(3)

    right = by_hand(features)
    return Puzzle(4, statement, right, sizes, reads=output, tolerance=2e-3)


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
    "You look at the right place, but not hard enough: others keep some of the weight, more of it the more there are. "
    "√d_k divides a lead in the scores: multiply W_q by 50 √d_k.",
)  # fmt: skip
PART: Row = (
    "the wrong part written", dict(other=True),
    "You read the right tokens, and write the wrong part of them, letters for places or places for letters. W_v picks "
    "the part: X @ T are the letters, X @ P the places.",
)  # fmt: skip

SHAPES = (
    "X is (letter, one-hot | place, one-hot | 1), a letters, n places; → W_q, W_k, W_v, the output right to "
    "0.002"
)


def _successor(a: int, n: int, *, cyclic: bool = True) -> Matrices:
    T, P, _ = parts(a, n)
    return P, P, T @ (np.roll(np.eye(a), 1, axis=1) if cyclic else np.eye(a, k=1))


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


def _first_token(a: int, n: int, *, place: int = 0, other: bool = False) -> Matrices:
    T, P, one = parts(a, n)
    return one, P[:, [place]], P if other else T


first_token = puzzle(
    f"first_token(a, n): causal; every token writes the letter of the first. {SHAPES}",
    _first_token,
    causal=True,
)

first_token.knows(
    SOFT,
    PART,
    ("the last place asked for", dict(place=-1),
     "You ask for the last place. The other tokens may not see it, and share their weight evenly. The first is 0."),
)  # fmt: skip


def _letter_shares(a: int, n: int, *, own: bool = False, other: bool = False) -> Matrices:  # fmt: skip
    T, P, one = parts(a, n)
    QK = P if own else 0 * one
    return QK, QK, P if other else T


letter_shares = puzzle(
    f"letter_shares(a, n): causal; each token writes the share of each letter so far, itself included. {SHAPES}",
    _letter_shares,
    causal=True,
)

letter_shares.knows(
    PART,
    ("only itself", dict(own=True),
     "Each token reads itself alone. For shares all tokens must weigh the same: equal scores, such as 0, do that."),
)  # fmt: skip


def _previous_token(a: int, n: int, *, other: bool = False) -> Matrices:
    T, P, _ = parts(a, n)
    return P @ np.eye(n, k=-1), P, P if other else T


previous_token = puzzle(
    f"previous_token(a, n): causal; each token writes the letter before it (the first its own). {SHAPES}",
    _previous_token,
    causal=True,
)

previous_token.knows(
    SOFT,
    PART,
    ("queries and keys swapped", dict(swapped=True),
     "Your query asks for the place *after* it, which the causal mask hides: with the shift in W_k in place of W_q, or "
     "transposed. Query i must ask for place i − 1: np.eye(n, k=-1) in W_q."),
)  # fmt: skip


def _reverse(a: int, n: int, *, back: int = 0, other: bool = False) -> Matrices:
    T, P, _ = parts(a, n)
    return P @ np.roll(np.eye(n)[::-1], back, axis=1), P, P if other else T


reverse = puzzle(
    f"reverse(a, n): no mask; the layer writes the text backwards. {SHAPES}",
    _reverse,
    causal=False,
)

reverse.knows(
    SOFT,
    PART,
    ("one place off", dict(back=1),
     "You are one place off: the last token, n − 1, asks for place 0, so i asks for n − 1 − i, not n − i."),
)  # fmt: skip


def _same_letter(a: int, n: int, *, other: bool = False) -> Matrices:
    T, P, _ = parts(a, n)
    return T, T, T if other else P


same_letter = puzzle(
    "same_letter(a, n): no mask; each token shares its weight evenly among all tokens of its letter, and writes their "
    f"places (1 / an entry then counts them). {SHAPES}",
    _same_letter,
    causal=False,
)

same_letter.knows(
    SOFT,
    PART,
)  # fmt: skip


def _largest_so_far(a: int, n: int, *, sign: int = 1, other: bool = False) -> Matrices:
    T, P, one = parts(a, n)
    return sign * one, T @ np.arange(a)[:, None], P if other else T


largest_so_far = puzzle(
    f"largest_so_far(a, n): causal; each token writes the largest letter so far, itself included. {SHAPES}",
    _largest_so_far,
    causal=True,
)

largest_so_far.knows(
    SOFT,
    PART,
    ("the smallest", dict(sign=-1), "You find the smallest letter: the score must grow with the letter, not fall."),
)  # fmt: skip


def _latest_a(a: int, n: int, *, slope: int = 1, bonus: int = 0, other: bool = False) -> Matrices:  # fmt: skip
    T, P, one = parts(a, n)
    key = (bonus or n) * T[:, :1] + slope * P @ np.arange(n)[:, None]
    return one, key, T if other else P


latest_a = puzzle(
    "latest_a(a, n): causal; each token writes the place of the newest letter 0 up to itself, or its own "
    "place if there "
    f"is none. {SHAPES}",
    _latest_a,
    causal=True,
)

latest_a.knows(
    SOFT,
    PART,
    ("all of them", dict(slope=0),
     "You share the weight among all letters 0. The newest must lead: let the score grow with the place, too."),
    ("the place outbids the letter", [dict(bonus=bonus) for bonus in (1, 2, 5, 10)],
     "A newer token outbids a letter 0. Its bonus must be larger than all that places can differ by, n − 1."),
    ("the oldest", dict(slope=-1),
     "You find the oldest letter 0 (and without one, the first token): the score falls with the place. It must grow."),
)  # fmt: skip


def _argsort(n: int, *, other: bool = False) -> Matrices:
    T, P, _ = parts(n, n)
    return P, T, T if other else P


argsort = puzzle(
    "argsort(n): no mask; n letters, each once. Row i writes the place at which letter i stands. X is "
    "(letter, one-hot | place, one-hot | 1); → W_q, W_k, W_v, the output right to 0.002",
    _argsort,
    causal=False,
    sizes=((3,), (5,), (7,), LONG[1:]),
    letters=orders,
)

argsort.knows(
    SOFT,
    PART,
    ("queries and keys swapped", dict(swapped=True),
     "Your row i says at which place letter i *belongs*: the rank of the token, not where letter i is found. Place i "
     "asks, letter i answers: places in W_q, letters in W_k."),
)  # fmt: skip
