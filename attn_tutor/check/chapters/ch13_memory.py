"""Chapter 13: what a memory keeps, adds up, corrects and guesses."""

import numpy as np

import attn_tutor.numpy as an
from attn_tutor.check.chapters.inputs import Array
from attn_tutor.check.exercise import Exercise, Function


def decode_seconds(texts: int, parameters: float, weights: float, cache: float, peak: float, bandwidth: float, *,
                   join: Function = max, each: int = 2, once: bool = True, own: bool = True) -> Array:  # fmt: skip
    fetched = weights if once else texts * weights
    linear = join(fetched / bandwidth, each * texts * parameters / peak)
    return np.asarray(linear + (texts if own else 1) * cache / bandwidth)


step_seconds = Exercise(13, "step_seconds(texts, parameters, weights, cache, peak, bandwidth): the time of a decode "
    "step: the linear layers fetch their weights once and do two operations per parameter and text, whichever takes "
    "longer; then the cache of each text is fetched; bytes, operations and bytes per second → seconds",
    decode_seconds, [(1, 3.0, 6.0, 2.0, 50.0, 1.0), (4, 3.0, 6.0, 2.0, 50.0, 1.0), (40, 3.0, 6.0, 2.0, 20.0, 1.0),
        (16, 5.0, 5.0, 0.0, 8.0, 2.0), (7, 5.0, 10.0, 3.0, 30.0, 4.0)],
    ("the weights once per text", dict(once=False),
     "You fetch the weights again for each text. The whole batch is multiplied with them while they are there."),
    ("one cache for all", dict(own=False),
     "You fetch one cache. Every text has its own, so attention fetches as many as there are texts."),
    ("arithmetic and weights added", dict(join=lambda a, b: a + b),
     "You add two times that overlap. The linear layers take the longer one of fetching and computing."),
    ("one operation per parameter", dict(each=1),
     "A multiplication and an addition are two operations: 2 · texts · parameters."),
    ("attention in the maximum",
     lambda texts, parameters, weights, cache, peak, bandwidth: np.asarray(max(
         decode_seconds(texts, parameters, weights, 0, peak, bandwidth), texts * cache / bandwidth)),
     "You take the longest of three times. Attention runs between the linear layers: add its time."))  # fmt: skip


def sink_mask(n: int, m: int, window: int, sinks: int, *, future: bool = False) -> Array:  # fmt: skip
    i, j = np.arange(m - n, m)[:, None], np.arange(m)
    past = j <= i
    return past & (j > i - window) | (past | future) & (j < sinks)


window_with_sinks = Exercise(13, "window_with_sinks(n, m, window, sinks): the mask of n queries, the last of m tokens: "
    "each sees itself, the window − 1 tokens before it and the first sinks, and none after itself; boolean, (n, m)",
    sink_mask, [(3, 8, 2, 1), (5, 5, 2, 2), (7, 11, 3, 0), (2, 5, 1, 3), (4, 4, 9, 1)],
    ("a sink in the future", dict(future=True),
     "Early queries see sinks that come after them. A sink must have been written first: j ≤ i for sinks, too."),
    ("no sinks", lambda n, m, window, sinks: sink_mask(n, m, window, 0),
     "This is a plain window, without the first tokens, where trained heads park weight: add j < sinks."))  # fmt: skip


def faded(Q: Array, K: Array, V: Array, size: int, fade: float = 1, *, past: bool = True, early: bool = False,
          start: int = 1) -> Array:  # fmt: skip
    V = np.hstack([V, np.ones((len(V), 1))])  # the total is pooled beside the values
    S, out = np.zeros((K.shape[1], V.shape[1])), []
    for i in range(0, len(Q), size):
        q, k = (an.elu_features(x[i : i + size]) for x in (Q, K))
        v, t = V[i : i + size], np.arange(len(q))[:, None]
        after = fade ** len(q) * S + (fade ** t[::-1] * k).T @ v
        read = (after if early else S) * past
        kernel = np.tril(q @ k.T * fade ** abs(t - t.T))
        out.append(kernel @ v + fade ** (t + start) * (q @ read))
        S = after
    pooled = np.vstack(out)
    return pooled[:, :-1] / pooled[:, -1:]


linear_in_chunks = Exercise(13, "linear_in_chunks(Q, K, V, size): causal linear attention with φ(x) = elu(x) + 1, a "
    "chunk of so many tokens at a time; (n, d), (n, d), (n, d_v) → (n, d_v)",
    faded, lambda draw: [(draw(2, 3), draw(2, 3), draw(2, 2), 1), (draw(6, 3), draw(6, 3), draw(6, 5), 2),
        (draw(7, 2), draw(7, 2), draw(7, 3), 3), (draw(5, 2), draw(5, 2), draw(5, 3), 8)],
    ("each chunk forgets the past", dict(past=False),
     "Your chunks do not know of one another. Add what the state holds: φ(q) S above the line, φ(q) · z below."),
    ("the chunk counted twice", dict(early=True),
     "You add a chunk to the state before you ask: its keys count twice, the future's once. Ask first."))  # fmt: skip

fading_in_chunks = Exercise(13,
    "fading_in_chunks(Q, K, V, size, fade): causal linear attention with φ(x) = elu(x) + 1, whose sums each token "
    "multiplies by fade before it writes, a chunk of so many tokens at a time; (n, d), (n, d), (n, d_v) → (n, d_v)",
    faded, lambda draw: [(draw(2, 3), draw(2, 3), draw(2, 2), 1, 0.5), (draw(6, 3), draw(6, 3), draw(6, 5), 2, 0.5),
        (draw(7, 2), draw(7, 2), draw(7, 3), 3, 0.75), (draw(5, 2), draw(5, 2), draw(5, 3), 8, 0.5)],
    ("the past fades once too little", dict(start=0),
     "Your first query meets the state unfaded. Query i = 0, 1, … meets it faded i + 1 times."))  # fmt: skip


def corrected(S: Array, k: Array, v: Array, beta: float, *, length: Function = np.linalg.norm,
              old: Function = lambda S, k: np.outer(k, S.T @ k)) -> Array:  # fmt: skip
    k = k / length(k)
    return np.asarray(S + beta * (np.outer(k, v) - old(S, k)))


delta_step = Exercise(13, "delta_step(S, k, v, beta): write the value v under the key k, scaled to length 1, into the "
    "state S: add beta times the difference between v and what S answers; (d, d_v), (d), (d_v) → (d, d_v)",
    corrected, lambda draw: [
        (np.zeros((2, 1)), np.array([3.0, 4]), np.array([5.0]), 1.0), (draw(3, 2), draw(3), draw(2), 0.5),
        (draw(3, 5), 2 * draw(3), draw(5), 0.25), (draw(5, 2), draw(5), draw(2), 1.0)],
    ("the key as it is", dict(length=lambda k: 1),
     "You write under the key as it comes: one of length 2 writes four times too much. Divide it by its length first."),
    ("added, not corrected", dict(old=lambda S, k: 0 * S),
     "You add β k vᵀ, as plain linear attention does. Write the difference between v and what S answers now, Sᵀk."),
    ("everything fades", dict(old=lambda S, k: S),
     "You multiply the whole state by 1 − β. Only what stands under this key is replaced: k (kᵀS)."))  # fmt: skip


def kept_or_drawn(p: Array, q: Array, guess: int, coin: float, draw: float, *, keep: Function = lambda p, q: p / q,
                  left: Function = lambda p, q: np.maximum(p - q, 0)) -> int:  # fmt: skip
    if coin < keep(p[guess], q[guess]):
        return guess
    upto = left(p, q).cumsum()
    return int(np.searchsorted(upto, draw * upto[-1], side="right"))


P, Q, R = np.array([[0.5, 0.3, 0.2, 0], [0.1, 0.2, 0.3, 0.4], [0.05, 0.15, 0.1, 0.7]])

keep_guess = Exercise(13, "keep_guess(p, q, guess, coin, draw): the guess if coin < min(1, p/q), else the first token "
    "at which the running sum of max(0, p − q), divided by its total, exceeds draw; coin and draw are random numbers "
    "in [0, 1); (t), (t) → a token",
    kept_or_drawn, [(P, Q, 0, 0.9, 0.95), (P, Q, 3, 0.0, 0.1), (P, Q, 3, 0.9, 0.85), (P, Q, 2, 0.6, 0.7),
        (P, Q, 2, 0.7, 0.82), (P, Q, 1, 0.35, 0.2), (R, P, 0, 0.2, 0.1), (R, P, 0, 0.08, 0.1), (R, P, 1, 0.45, 0.99)],
    ("the ratio upside down", dict(keep=lambda p, q: q / p if p else 9),
     "You keep with probability q/p. Refused must be what the small model says too *often*: keep with p/q."),
    ("drawn from p", dict(left=lambda p, q: p),
     "You draw from p after a refusal. Part of it came out as kept guesses: draw from max(0, p − q)."))  # fmt: skip
