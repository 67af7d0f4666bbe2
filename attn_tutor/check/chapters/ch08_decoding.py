"""Chapter 8: what the decoder is fed, and how sentences are searched and compared."""

from collections.abc import Callable
from typing import Any

import numpy as np

from attn_tutor.check.chapters.inputs import Array, numbers
from attn_tutor.check.exercise import Exercise

Step = Callable[[Array], Array]
END = 2


def model(seed: int, n_tokens: int = 3) -> Step:
    """Log-probabilities that differ after every beginning, the same each time."""

    def step(tokens: Array) -> Array:
        rng = np.random.default_rng([seed, *np.asarray(tokens, dtype=int).tolist()])
        logits = 1.5 * rng.normal(size=n_tokens)
        return logits - np.log(np.exp(logits).sum())

    step.__name__ = f"the model of seed {seed}"
    return step


# The search itself, with what people get wrong in it as options.
def search(step: Step, end: int, max_len: int, k: int, *, rank: Callable[[float, float], float] = lambda so_far,
           new: so_far + new, over: Callable[[tuple, int], bool] = lambda tokens, end: tokens[-1:] == (end,),
           keep_ended: bool = True, prune: bool = True, first_end: bool = False,
           key: Callable[[tuple, float], float] = lambda tokens, score: score,
           start: tuple = ()) -> Any:  # fmt: skip
    """One sentence a row, in Python's own lists: slow, and easy to read."""
    beam: list[tuple[tuple, float]] = [((), 0.0)]
    for _ in range(max_len):
        longer = []
        for tokens, score in beam:
            if over(tokens, end):
                longer += [(tokens, score)] if keep_ended else []
                continue
            log_p = step(np.array(start + tokens, dtype=int))
            longer += [
                ((*tokens, y), rank(score, float(p))) for y, p in enumerate(log_p)
            ]
        if not longer:
            break
        beam = sorted(longer, key=lambda one: -key(*one))
        beam = beam[:k] if prune else beam
        ended = [one for one in beam if over(one[0], end)]
        if len(ended) == len(beam) or (first_end and ended):
            beam = ended
            break
    tokens, score = beam[0]
    return np.array(tokens), score


def never(tokens: tuple, end: int) -> bool:
    return False


greedy = Exercise(8,
    "greedy(step, end, max_len): the likeliest next token again and again, until the end or max_len tokens, and the "
    "log-probability of all; step(tokens) gives those of each next token → (t), number",
    lambda step, end, max_len: search(step, end, max_len, 1),
    [(model(seed), END, max_len) for seed in range(8) for max_len in (4, 6)])  # fmt: skip


greedy.knows(
    ("goes on after the end", lambda step, end, max_len: search(step, end, max_len, 1, over=never),
     "You go on after the end of the sentence, so that what follows it is written, and paid for, too. Stop as soon as "
     "the token is the end."),
    ("the end cut off",
     lambda step, end, max_len: (lambda tokens, score: (tokens[tokens != end], score))(*search(step, end, max_len, 1)),
     "You leave the end out. It is a token as any other: the model gave it a probability, and it belongs to the "
     "sentence."),
    ("begun with the end symbol", lambda step, end, max_len: search(step, end, max_len, 1, start=(end,)),
     "You begin with the end symbol, as a translator's decoder does inside. Here step takes the tokens chosen so far: "
     "at first none, an empty array."),
    ("one token too many", lambda step, end, max_len: search(step, end, max_len + 1, 1),
     "You write max_len + 1 tokens where no end comes. At most max_len are asked for: range(max_len), or <, not ≤."),
    ("the least likely token", lambda step, end, max_len: search(step, end, max_len, 1, key=lambda _, score: -score),
     "You choose the least likely token. argmax finds the likeliest; a sort puts the smallest first."),
    ("only the last token is fed back",
     lambda step, end, max_len: search(lambda tokens: step(tokens[-1:]), end, max_len, 1),
     "You give the model the last token alone. What comes next depends on all tokens so far."),
    ("probability in place of its logarithm",
     lambda step, end, max_len: (lambda tokens, score: (tokens, float(np.exp(score))))(*search(step, end, max_len, 1)),
     "Your tokens are right, but the score is a probability. Its logarithm is asked for: leave out the exp."),
    ("log-probabilities averaged",
     lambda step, end, max_len: (lambda tokens, score: (tokens, score / len(tokens)))(*search(step, end, max_len, 1)),
     "Your score is the mean over the tokens. The log-probability of a sentence is the sum."),
)  # fmt: skip

beam = Exercise(
    8,
    "beam(step, end, max_len, k): the likeliest sentence that a beam of width k finds, as in greedy, and its "
    "log-probability, the sum; ended sentences keep their place in the beam → (t), number",
    search,
    [
        (model(seed), END, max_len, k)
        for seed in range(12)
        for max_len, k in ((3, 2), (4, 2), (5, 3))
    ],
)


beam.knows(
    ("ranked by the mean",
     lambda step, end, max_len, k: search(step, end, max_len, k, key=lambda y, score: score / len(y)),
     "You rank sentences by their mean log-probability for each token. It prefers long sentences; here the likeliest "
     "one is asked for, and that is the *sum* of the log-probabilities."),
    ("the least likely kept", lambda step, end, max_len, k: search(step, end, max_len, k, key=lambda _, score: -score),
     "You sort the wrong way, and keep the k least likely sentences: sort by minus the score, or with reverse=True."),
    ("ended sentences dropped", lambda step, end, max_len, k: search(step, end, max_len, k, keep_ended=False),
     "A sentence that has ended falls out of your beam at the next step. It keeps its place for as long as no k others "
     "are likelier."),
    ("the first end wins", lambda step, end, max_len, k: search(step, end, max_len, k, first_end=True),
     "You return the first sentence that ends. A longer one may still be likelier: go on while the beam holds one that "
     "has not ended."),
    ("greedy whatever k", lambda step, end, max_len, k: search(step, end, max_len, 1),
     "You keep one sentence, whatever k is. Keep the k best of all continuations of all that you kept before."),
    ("ranked by the last token",
     lambda step, end, max_len, k: search(step, end, max_len, k, rank=lambda so_far, new: new),
     "You rank by the log-probability of the newest token alone. A beginning is as likely as all its tokens together: "
     "add them up."),
)  # fmt: skip

draw = numbers(8)

TARGETS = [
    np.array([[3, 1, 4]]),
    np.array([[3, 1, 4], [0, 4, 4]]),
    np.abs(draw(5, 7) * 3).astype(int) % 5,
]

previous_symbols = Exercise(8,
    "previous_symbols(target, end): what the decoder is fed when the right answer is target, the end first; "
    "(b, T) → (b, T)",
    lambda target, end: np.roll(np.c_[target[:, :-1], [end] * len(target)], 1, -1),
    [(target, end) for target in TARGETS for end in (4, 5)])  # fmt: skip
previous_symbols.knows(
    ("shifted the wrong way", lambda target, end: np.c_[target[:, 1:], [end] * len(target)],
     "You shift to the left: to write symbol i the decoder reads symbol i + 1, which is not there yet when it "
     "translates."),
    ("rolled", lambda target, end: np.roll(target, 1, -1),
     "You roll the row, so that its last symbol comes first and tells the decoder something of the answer. The end "
     "comes first, whatever the target."),
    ("begins with 0", lambda target, end: np.c_[np.zeros(len(target), int), target[:, :-1]],
     "You begin with 0, which is a symbol of the target. The end stands before every sentence."),
    ("the end not put in front", lambda target, end: target[:, :-1],
     "You drop the last symbol, and put nothing in front: rows of T − 1. The end comes first."),
    ("reversed", lambda target, end: np.c_[[end] * len(target), target[:, :0:-1]],
     "You reverse the sentence. Its order stays; it moves one place to the right."),
    ("one symbol too many", lambda target, end: np.c_[[end] * len(target), target],
     "You put the end in front and leave the last symbol: rows of T + 1. Nothing is written after the last symbol, so "
     "nothing reads it."),
)  # fmt: skip


def up_to_end(row: Array, end: int) -> list[int]:
    symbols = row.tolist()
    return symbols[: symbols.index(end) + 1] if end in symbols else symbols


FOUND = [  # found, target; the end is 9
    (np.array([[1, 9]]), np.array([[1, 9, 9]])),
    (np.array([[1, 2, 9, 3]]), np.array([[1, 2, 9, 9]])),
    (np.array([[1, 2, 9]]), np.array([[1, 9, 9, 9]])),
    (np.array([[1, 2, 3]]), np.array([[1, 2, 9, 9]])),
    (np.array([[1, 2]]), np.array([[1, 2, 3, 9]])),
    (
        np.array([[1, 2, 9, 9, 9], [4, 9, 0, 0, 0], [9, 9, 9, 9, 9]]),
        np.array([[1, 2, 9], [5, 9, 9], [7, 9, 9]]),
    ),
    (
        np.array([[0, 0, 7, 9], [7, 9, 5, 5], [3, 1, 4, 9], [3, 1, 9, 1]]),
        np.array([[0, 7, 9, 9, 9], [7, 9, 9, 9, 9], [3, 1, 4, 9, 9], [3, 1, 4, 1, 9]]),
    ),
]

exact_match = Exercise(
    8,
    "exact_match(found, target, end): the share of sentences that agree with their target up to and with its first "
    "end, which every target has; (b, T), (b, U) → number",
    lambda found, target, end: float(
        np.mean(
            [
                up_to_end(x, end) == up_to_end(y, end)
                for x, y in zip(found, target, strict=True)
            ]
        )
    ),
    [(found, target, 9) for found, target in FOUND],
)


def pad(X: Array, width: int, end: int) -> Array:
    return np.c_[X, np.full((len(X), width - X.shape[1]), end)]


def side_by_side(found: Array, target: Array, end: int) -> tuple[Array, Array]:
    width = max(found.shape[1], target.shape[1])
    return pad(found, width, end), pad(target, width, end)


def what_stands_after_the_end_is_compared(found: Array, target: Array, end: int) -> float:  # fmt: skip
    one, other = side_by_side(found, target, end)
    return float((one == other).all(1).mean())


def share_of_the_symbols_too(found: Array, target: Array, end: int) -> float:
    width = min(found.shape[1], target.shape[1])
    return float((found[:, :width] == target[:, :width]).mean())


def counted_not_divided(found: Array, target: Array, end: int) -> float:
    right = [
        up_to_end(x, end) == up_to_end(y, end)
        for x, y in zip(found, target, strict=True)
    ]
    return float(sum(right))


exact_match.knows(
    ("what stands after the end is compared", what_stands_after_the_end_is_compared,
     "You compare whole rows. After the first end stands whatever the search left there: cut both rows behind it."),
    ("share of the symbols", share_of_the_symbols_too,
     "You count symbols that agree. One wrong digit makes another number: a sentence is right as a whole or not at all "
     "(and what stands after the end, or beyond the shorter row, is not compared)."),
    ("in per cent", lambda found, target, end: 100 * exact_match.right(found, target, end),
     "You return per cent. A share lies between 0 and 1."),
    ("counted, not divided", counted_not_divided, "You return how many are right. Divide by how many there are."),
)  # fmt: skip
