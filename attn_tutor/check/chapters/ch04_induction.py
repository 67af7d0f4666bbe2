"""The puzzles of two layers, set by hand: what followed the newest a, and a text continued as it went on before."""

import numpy as np

import attn_tutor.numpy as an
from attn_tutor.check.chapters.ch04_puzzles import (
    PART,
    SOFT,
    STRONG,
    Matrices,
    Puzzle,
    texts,
    tokens,
)
from attn_tutor.check.chapters.inputs import Array


# A token is (letter | free, as wide as the alphabet | place | 1).
def two_layers(a: int, n: int, *, copies: bool = False, sink: float = 1, strength: float = STRONG,
               other: bool = False) -> Matrices:  # fmt: skip
    I = np.eye(2 * a + n + 1)
    T, F, P, one = np.split(I, [a, 2 * a, 2 * a + n], axis=1)
    Q, K = np.hstack([T, one]), np.hstack([T if copies else F, -sink * P[:, :1]])
    first = strength * n**0.5 * P @ np.eye(n, k=-1), P, T @ F.T
    return *first, strength * (a + 1) ** 0.5 * Q, K, P if other else T


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


def newest_a(a: int, n: int, *, strength: float = STRONG, other: bool = False) -> Matrices:  # fmt: skip
    I = np.eye(2 * a + n + 1)
    T, F, P, one = np.split(I, [a, 2 * a, 2 * a + n], axis=1)
    first = strength * n**0.5 * P @ np.eye(n, k=-1), P, T @ F.T
    key = n * F[:, :1] + P @ np.arange(n)[:, None]
    return *first, strength * one, key, P if other else T


SHAPES = (
    "X is (letter, one-hot | a zeros | place, one-hot | 1); → W_q, W_k, W_v of the first (W_v is (d, d)), "
    "then of the second layer, the output right to 0.002"
)

after_a = Puzzle(4,
    f"after_a(a, n): two causal layers, the first added to X. Each token that has an a before it, itself not "
    f"counted, writes the letter after the newest of them; others, anything. {SHAPES}",
    newest_a, list(SEEN.values()), reads=after_the_first_a, tolerance=2e-3)  # fmt: skip
after_a.knows(
    SOFT,
    PART,
    by_hand=newest_a,
)  # fmt: skip

induction = Puzzle(4,
    "induction(a, n): two causal layers, the first added to X. Each token whose letter has stood before "
    f"writes the letter that came after it then (of several, the mean); others, anything. {SHAPES}",
    two_layers, list(SEEN.values()), reads=after_copies, tolerance=2e-3)  # fmt: skip
induction.knows(
    SOFT,
    PART,
    ("copies themselves", dict(copies=True),
     "You find the earlier copies of your letter, and yourself. Look for the token *after* a copy: of the key compare "
     "what the first layer wrote into its zeros."),
    ("the first token says that it follows itself", dict(sink=0),
     "Your first token has nobody before it, reads itself, and then claims to stand after its own letter. The second "
     "layer must leave it out: a column more in W_q (the 1) and W_k (minus place 0)."),
    by_hand=two_layers,
)  # fmt: skip
