"""Chapter 8: the look back, what the decoder is fed, and how sentences are searched, drawn and compared."""

from typing import Any

import numpy as np

from attn_tutor.check.chapters.inputs import LN3, Array, column, named, weights_of
from attn_tutor.check.exercise import Exercise, Function

END = 2


def look_back(s: Array, H: Array, W_q: Array, W_k: Array, w_v: Array, *, weigh: Function = weights_of,
              curve: Function = np.tanh) -> Array:  # fmt: skip
    """One step's context, with what people get wrong in it as options."""
    return np.asarray(weigh(curve(s @ W_q + H @ W_k) @ w_v) @ H)


context_vector = Exercise(8, "context_vector(s, H, W_q, W_k, w_v): the average of the rows of H, each weighted "
    "by the softmax of its score tanh(s W_q + h W_k) · w_v; (d), (m, h), (d, k), (h, k), (k) → (h)",
    look_back, lambda draw: [
        (np.zeros(1), np.array([[1.0, 0], [0, 1], [0, 0.5]]), column(1), column(LN3 / 2, 0), np.array([2 * LN3])),
        *((draw(3), draw(m, 5), draw(3, 11), draw(5, 11), draw(11)) for m in (1, 2, 7))],
    ("every weight is 1", dict(weigh=np.ones_like),
     "Each of your weights is 1, so you return the plain sum. Softmax runs over the words, and the weights sum to 1."),
    ("no softmax", dict(weigh=lambda e: e),
     "You multiply the scores by the states. Softmax comes first: it turns the scores into weights that sum to 1."),
    ("no tanh", dict(curve=lambda x: x),
     "You leave out the tanh. Then the state adds the same to all scores, and softmax cannot see it."))  # fmt: skip


def model(seed: int, n_tokens: int = 3) -> Function:
    """Log-probabilities that differ after every beginning, the same each time."""

    def step(tokens: Array) -> Array:
        rng = np.random.default_rng([seed, *np.asarray(tokens, dtype=int).tolist()])
        return np.log(weights_of(1.5 * rng.normal(size=n_tokens)))

    return named(f"the model of seed {seed}", step)


# The search itself, with what people get wrong in it as options.
def search(step: Function, end: int, max_len: int, k: int = 1, *, add: Function = lambda so_far, new: so_far + new,
           ends: bool = True, first_end: bool = False, key: Function = lambda tokens, score: score,
           start: tuple = (), give: Function = lambda tokens, score: (tokens, score)) -> Any:  # fmt: skip
    """One sentence a row, in Python's own lists: slow, and easy to read."""
    beam: list[tuple[tuple, float]] = [((), 0.0)]
    for _ in range(max_len):
        longer = []
        for tokens, score in beam:
            if ends and tokens[-1:] == (end,):
                longer += [(tokens, score)]
                continue
            log_p = enumerate(step(np.array(start + tokens, dtype=int)))
            longer += [((*tokens, y), add(score, float(p))) for y, p in log_p]
        beam = sorted(longer, key=lambda one: -key(*one))[:k]
        ended = [one for one in beam if ends and one[0][-1] == end]
        if len(ended) == len(beam) or (first_end and ended):
            beam = ended
            break
    return give(np.array(beam[0][0]), beam[0][1])


greedy = Exercise(8, "greedy(step, end, max_len): the likeliest next token again and again, until the end or max_len "
    "tokens, and the log-probability of all; step(tokens) gives those of each next token → (t), number",
    search, [(model(seed), END, max_len) for seed in range(8) for max_len in (4, 6)],
    ("goes on after the end", dict(ends=False),
     "You go on after the end of the sentence: what follows is written, and paid for. Stop as soon as the end comes."),
    ("the end cut off", dict(give=lambda tokens, score: (tokens[tokens != END], score)),
     "You leave the end out. It is a token as any other: the model gave it a probability, it belongs to the sentence."),
    ("begun with the end symbol", dict(start=(END,)),
     "You begin with the end symbol. Here step takes the tokens chosen so far: at first none, an empty array."),
    ("the least likely token", dict(key=lambda _, score: -score),
     "You choose the least likely token. argmax finds the likeliest; a sort puts the smallest first."),
    ("only the last token is fed back",
     lambda step, end, max_len: search(lambda tokens: step(tokens[-1:]), end, max_len),
     "You give the model the last token alone. What comes next depends on all tokens so far."),
    ("probability in place of its logarithm", dict(give=lambda tokens, score: (tokens, np.exp(score))),
     "Your tokens are right, but the score is a probability. Its logarithm is asked for: leave out the exp."),
    ("log-probabilities averaged", dict(give=lambda tokens, score: (tokens, score / len(tokens))),
     "Your score is the mean over the tokens. The log-probability of a sentence is the sum."))  # fmt: skip

beam = Exercise(8, "beam(step, end, max_len, k): the likeliest sentence that a beam of width k finds, as in greedy, "
    "and its log-probability, the sum; ended sentences keep their place in the beam → (t), number",
    search, [(model(seed), END, max_len, k) for seed in range(12) for max_len, k in ((3, 2), (4, 2), (5, 3))],
    ("ranked by the mean", dict(key=lambda tokens, score: score / len(tokens)),
     "You rank by the mean log-probability, which prefers long sentences. The likeliest has the largest *sum*."),
    ("the least likely kept", dict(key=lambda _, score: -score),
     "You sort the wrong way, and keep the k least likely sentences: sort by minus the score, or with reverse=True."),
    ("the first end wins", dict(first_end=True),
     "You return the first sentence that ends. A longer one may be likelier: go on while one of the beam is open."),
    ("greedy whatever k", lambda step, end, max_len, k: search(step, end, max_len),
     "You keep one sentence, whatever k is. Keep the k best of all continuations of all that you kept before."),
    ("ranked by the last token", dict(add=lambda so_far, new: new),
     "You rank by the newest token alone. A beginning is as likely as all its tokens: add them up."))  # fmt: skip

previous_symbols = Exercise(8, "previous_symbols(target, end): what the decoder is fed when the right answer is "
    "target, the end first; (b, T) → (b, T)",
    lambda target, end: np.roll(np.c_[target[:, :-1], [end] * len(target)], 1, -1),
    lambda draw: [(target, end) for end in (4, 5) for target in (
        np.array([[3, 1, 4]]), np.array([[3, 1, 4], [0, 4, 4]]), np.abs(draw(5, 7) * 3).astype(int) % 5)],
    ("shifted the wrong way", lambda target, end: np.c_[target[:, 1:], [end] * len(target)],
     "You shift to the left: to write symbol i the decoder reads symbol i + 1, which is not there when it translates."),
    ("rolled", lambda target, end: np.roll(target, 1, -1),
     "You roll the row, so that its last symbol comes first and gives some of the answer away. The end comes first."),
    ("begins with 0", lambda target, end: np.c_[np.zeros(len(target), int), target[:, :-1]],
     "You begin with 0, which is a symbol of the target. The end stands before every sentence."),
    ("the end not put in front", lambda target, end: target[:, :-1],
     "You drop the last symbol, and put nothing in front: rows of T − 1. The end comes first."),
    ("reversed", lambda target, end: np.c_[[end] * len(target), target[:, :0:-1]],
     "You reverse the sentence. Its order stays; it moves one place to the right."))  # fmt: skip


def up_to_end(row: Array, end: int) -> list[int]:
    symbols = row.tolist()
    return symbols[: symbols.index(end) + 1] if end in symbols else symbols


def agreement(found: Array, target: Array, end: int, *, cut: Function = up_to_end) -> float:  # fmt: skip
    pairs = zip(found, target, strict=True)
    return float(np.mean([cut(x, end) == cut(y, end) for x, y in pairs]))


exact_match = Exercise(8, "exact_match(found, target, end): the share of sentences that agree with their target up to "
    "and with its first end, which every target has; (b, T), (b, U) → number",
    agreement, [(np.array(found), np.array(target), 9) for found, target in (
        ([[1, 9]], [[1, 9, 9]]), ([[1, 2, 9, 3]], [[1, 2, 9, 9]]), ([[1, 2, 9]], [[1, 9, 9, 9]]),
        ([[1, 2, 3]], [[1, 2, 9, 9]]), ([[1, 2]], [[1, 2, 3, 9]]),
        ([[1, 2, 9, 9, 9], [4, 9, 0, 0, 0], [9, 9, 9, 9, 9]], [[1, 2, 9], [5, 9, 9], [7, 9, 9]]),
        ([[0, 0, 7, 9], [7, 9, 5, 5], [3, 1, 4, 9], [3, 1, 9, 1]],
         [[0, 7, 9, 9, 9], [7, 9, 9, 9, 9], [3, 1, 4, 9, 9], [3, 1, 4, 1, 9]]),
    )],
    ("what stands after the end is compared", dict(cut=lambda row, end: np.trim_zeros(row - end, "b").tolist()),
     "You compare whole rows. After the first end stands whatever the search left there: cut both rows behind it."),
    ("share of the symbols",
     lambda found, target, end: (found[:, : (w := min(found.shape[1], target.shape[1]))] == target[:, :w]).mean(),
     "You count symbols that agree. A sentence is right as a whole, or not at all."))  # fmt: skip


def kept(p: Array, share: float, *, before: Function = lambda sums, p: sums - p) -> Array:  # fmt: skip
    """The likeliest tokens, while those before them have less than the share, with probabilities that sum to 1."""
    order = np.argsort(-p)
    keep = order[before(p[order].cumsum(), p[order]) < share]
    out = np.zeros_like(p)
    out[keep] = p[keep]
    return out / out.sum()


nucleus = Exercise(8, "nucleus(p, share): the likeliest tokens, as few as have at least that share of the probability "
    "together; the others get 0, and the rest is divided by its sum; no two are equal, share < 1; (n) → (n)",
    kept, lambda draw: [(np.array([0.2, 0.5, 0.3]), 0.6), (np.array([0.1, 0.9]), 0.5),
        *((weights_of(2 * draw(7)), share) for share in (0.3, 0.7, 0.95)),
        *((weights_of(draw(11)), share) for share in (0.15, 0.5, 0.8)),
        (np.array([0.1875, 0.5, 0.3125]), 0.5),  # met exactly, also in binary
    ],
    ("not divided again", lambda p, share: np.where(kept(p, share) > 0, p, 0),
     "You set the others to 0 and leave the rest as it is, so that it no longer sums to 1. Divide by the sum."),
    ("the token that reaches the share left out", dict(before=lambda sums, p: np.nextafter(sums, 0)),
     "You keep tokens while their sum is at most the share: keep the one that reaches the share, too."))  # fmt: skip


def stops(finished: float, running: Array, length: int, max_len: int, *, all_of: Function = np.all,
          now: bool = False) -> bool:  # fmt: skip
    means = running / (length if now else max_len)
    return bool(all_of(means <= finished) or not len(running))


may_stop = Exercise(8, "may_stop(finished, running, length, max_len): whether no unfinished sentence can reach a "
    "higher mean; finished is the mean log-probability of the best that has ended, running (k) the *sums* of those "
    "that have not, if any, after length of at most max_len tokens, the end included → True or False",
    stops, lambda draw: [
        *((-0.2 - abs(a) / 2, -0.3 - 2 * abs(draw(3)), 2, max_len) for a in draw(12) for max_len in (4, 9)),
        (-0.6, np.array([-1.0, -2.0]), 2, 4), (-0.5, np.zeros(0), 3, 5)],
    ("divided by the length so far", dict(now=True),
     "You compare means as they are now. A sentence may end with a higher one: divide by the largest length, max_len."),
    ("one that cannot overtake is enough", dict(all_of=np.any),
     "You stop as soon as *one* unfinished sentence cannot overtake. Ask all, or the largest sum."))  # fmt: skip

path_lengths = Exercise(8, "path_lengths(m, backwards): an encoder reads m words in one direction, then a decoder "
    "writes m symbols, and word j becomes symbol j. How many steps are there from the state that read word j to the "
    "state that writes symbol j? → (m) whole numbers",
    lambda m, backwards: 2 * np.arange(m) + 1 if backwards else np.full(m, m),
    [(m, backwards) for m in (1, 2, 5, 7) for backwards in (False, True)],
    ("the same in both directions", lambda m, backwards: np.full(m, m),
     "You do not look at backwards. Read from its end, a sentence has its first word near the decoder."))  # fmt: skip
