"""Puzzles: matrices set by hand, with which one layer of attention, or two, does what is asked."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

import attn_tutor.numpy as an
from attn_tutor.check.calls import take
from attn_tutor.check.chapters.inputs import Array
from attn_tutor.check.compare import Attempt, Parts
from attn_tutor.check.exercise import Exercise, Function, Row

STRONG = 50.0  # e to the power of this is a clear lead
Matrices = tuple[Array, ...]
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


def puzzle(statement: str, features: Function, *rows: Row, causal: bool = False,
           sizes: Sequence[Any] = ((2, 3), (3, 5), (5, 7), LONG), letters: Function = texts) -> Puzzle:  # fmt: skip
    """A checker that runs the layer with the matrices that it is given; ``features`` make them, of T, P and one."""
    by_width = {size[0] + size[-1] + 1: (size[0], size[-1]) for size in sizes}

    def output(matrices: Matrices) -> Array:
        """What the layer makes of many texts."""
        W_q, W_k, W_v = matrices
        a, n = by_width.get(len(W_q), (1, 1))
        X = tokens(letters(a, n), a)
        return an.self_attention(X, W_q, W_k, W_v, causal=causal).round(3)

    def right(*size: int, strength: float = STRONG, swapped: bool = False, other: bool = False,
              **options: int) -> Matrices:  # fmt: skip
        T, P, one = parts(size[0], size[-1])
        Q, K, V = features(T, P, one, **options)
        Q, K = (K, Q) if swapped else (Q, K)
        return strength * Q.shape[1] ** 0.5 * Q, K, (P if V is T else T) if other else V

    size = ", a letters, n places" * ("(a, n)" in statement)
    shapes = f"X is (letter, one-hot | place, one-hot | 1){size}; → W_q, W_k, W_v, the output right to 0.002"
    about = f"{statement} {shapes}"
    return Puzzle(4, about, right, sizes, *rows, reads=output, tolerance=2e-3)


def turn(X: Array, step: int) -> Array:
    """An identity matrix as wide as X, its columns moved on."""
    return np.roll(np.eye(X.shape[1]), step, axis=1)


def rising(X: Array) -> Array:
    """A column that is 0, 1, 2, … for the letters, or the places."""
    return np.asarray(X @ np.arange(X.shape[1])[:, None])


SOFT: Row = (
    "too soft", dict(strength=1.0),
    "You look at the right place, but not hard enough: others keep some of the weight. Multiply W_q by 50 √d_k.",
)  # fmt: skip
PART: Row = (
    "the wrong part written", dict(other=True),
    "You read the right tokens, and write letters for places, or places for letters: X @ T are letters, X @ P places.",
)  # fmt: skip

successor = puzzle(
    "successor(a, n): each token reads itself and writes the next letter of the alphabet, after the last the first.",
    lambda T, P, one, cyclic=True: (P, P, T @ (turn(T, 1) if cyclic else np.triu(turn(T, 1)))), SOFT,
    ("nothing after the last letter", dict(cyclic=False),
     "The last letter becomes nothing. It is followed by the first: np.roll(np.eye(a), 1, axis=1)."))  # fmt: skip

first_token = puzzle("first_token(a, n): causal; every token writes the letter of the first.",
    lambda T, P, one, place=0: (one, P[:, [place]], T), SOFT, PART,
    ("the last place asked for", dict(place=-1),
     "You ask for the last place. The other tokens may not see it, and share their weight evenly. The first is 0."),
    causal=True)  # fmt: skip

letter_shares = puzzle(
    "letter_shares(a, n): causal; each token writes the share of each letter so far, itself included.",
    lambda T, P, one, own=False: (P * own, P * own, T), PART,
    ("only itself", dict(own=True),
     "Each token reads itself alone. For shares all tokens must weigh the same: equal scores, such as 0, do that."),
    causal=True)  # fmt: skip

previous_token = puzzle("previous_token(a, n): causal; each token writes the letter before it (the first its own).",
    lambda T, P, one: (P @ np.tril(turn(P, -1)), P, T), SOFT, PART,
    ("queries and keys swapped", dict(swapped=True),
     "Your query asks for the place *after* it, which the mask hides. Query i asks for i − 1: np.eye(n, k=-1) in W_q."),
    causal=True)  # fmt: skip

reverse = puzzle("reverse(a, n): no mask; the layer writes the text backwards.",
    lambda T, P, one, back=0: (P @ turn(P, back)[::-1], P, T), SOFT, PART,
    ("one place off", dict(back=1),
     "You are one place off: the last token, n − 1, asks for place 0, so i asks for n − 1 − i."))  # fmt: skip

same_letter = puzzle("same_letter(a, n): no mask; each token shares its weight evenly among all tokens of its letter, "
    "and writes their places (1 / an entry then counts them).",
    lambda T, P, one: (T, T, P), SOFT, PART)  # fmt: skip

largest_so_far = puzzle("largest_so_far(a, n): causal; each token writes the largest letter so far, itself included.",
    lambda T, P, one, sign=1: (sign * one, rising(T), T), SOFT, PART,
    ("the smallest", dict(sign=-1), "You find the smallest letter: the score must grow with the letter, not fall."),
    causal=True)  # fmt: skip

latest_a = puzzle("latest_a(a, n): causal; each token writes the place of the newest letter 0 up to itself, or its "
    "own place if there is none.",
    lambda T, P, one, slope=1, bonus=0: (one, (bonus or P.shape[1]) * T[:, :1] + slope * rising(P), P), SOFT, PART,
    ("all of them", dict(slope=0),
     "You share the weight among all letters 0. The newest must lead: let the score grow with the place, too."),
    ("the place outbids the letter", [dict(bonus=bonus) for bonus in (1, 2, 5, 10)],
     "A newer token outbids a letter 0. Its bonus must be larger than all that places can differ by, n − 1."),
    ("the oldest", dict(slope=-1),
     "You find the oldest letter 0 (and without one, the first token): the score falls with the place. It must grow."),
    causal=True)  # fmt: skip

argsort = puzzle("argsort(n): no mask; n letters, each once. Row i writes the place at which letter i stands.",
    lambda T, P, one: (P, T, P), SOFT, PART,
    ("queries and keys swapped", dict(swapped=True),
     "Row i says where letter i *belongs*, its rank. Place i asks, letter i answers: places in W_q, letters in W_k."),
    sizes=((3,), (5,), (7,), LONG[1:]), letters=orders)  # fmt: skip


# Two layers: a token is (letter | free, as wide as the alphabet | place | 1).
def two(second: Function) -> Function:
    """The first layer notes down, of each token, the letter before it; ``second`` makes Q and K of the second."""

    def right(a: int, n: int, *, strength: float = STRONG, other: bool = False,
              **options: bool) -> Matrices:  # fmt: skip
        T, F, P, one = np.split(np.eye(2 * a + n + 1), [a, 2 * a, 2 * a + n], axis=1)
        Q, K = second(T, F, P, one, **options)
        first = strength * n**0.5 * P @ np.eye(n, k=-1), P, T @ F.T
        return *first, strength * Q.shape[1] ** 0.5 * Q, K, P if other else T

    return right


SEEN = {2 * a + n + 1: (a, n) for a, n in ((2, 5), (3, 7), (5, 11), (3, 60))}


def seen(matrices: Matrices) -> tuple[Array, Array]:
    """The letters of many texts, and what the two layers write."""
    W_q, W_k, W_v, *second = matrices
    a, n = SEEN.get(len(W_q), (1, 1))
    letters = texts(a, n)
    X = tokens(letters, a)
    X = np.concatenate([X[..., :a], 0 * X[..., :a], X[..., a:]], -1)
    X = X + an.self_attention(X, W_q, W_k, W_v, causal=True)
    return letters, an.self_attention(X, *second, causal=True).round(3)


def after_copies(matrices: Matrices) -> Array:
    """What is written at tokens whose letter has stood before."""
    letters, written = seen(matrices)
    same = letters[:, :, None] == letters[:, None]
    return written[(same & np.tri(len(same[0]), k=-1, dtype=bool)).any(-1)]


def after_the_first_a(matrices: Matrices) -> Array:
    """What is written at tokens before which an a has stood."""
    letters, written = seen(matrices)
    return written[np.cumsum(letters == 0, axis=-1) - (letters == 0) > 0]


SHAPES = (
    "X is (letter, one-hot | a zeros | place, one-hot | 1); → W_q, W_k, W_v of the first (W_v is (d, d)), "
    "then of the second layer, the output right to 0.002"
)

after_a = Puzzle(4,
    f"after_a(a, n): two causal layers, the first added to X. Each token that has an a before it, itself not "
    f"counted, writes the letter after the newest of them; others, anything. {SHAPES}",
    two(lambda T, F, P, one: (one, P.shape[1] * F[:, :1] + rising(P))), list(SEEN.values()), SOFT, PART,
    reads=after_the_first_a, tolerance=2e-3)  # fmt: skip

induction = Puzzle(4,
    "induction(a, n): two causal layers, the first added to X. Each token whose letter has stood before "
    f"writes the letter that came after it then (of several, the mean); others, anything. {SHAPES}",
    two(lambda T, F, P, one, copies=False, sink=True: (
        np.hstack([T, one]), np.hstack([T if copies else F, -sink * P[:, :1]]))),
    list(SEEN.values()), SOFT, PART,
    ("copies themselves", dict(copies=True),
     "You find the earlier copies of your letter. Look for the token after a copy, by what the first layer wrote."),
    ("the first token says that it follows itself", dict(sink=False),
     "Your first token reads itself, and claims to stand after its own letter. Leave it out: minus place 0 in W_k."),
    reads=after_copies, tolerance=2e-3)  # fmt: skip
