"""Chapter 13: what a memory keeps, adds up, corrects and guesses."""

import numpy as np

from attn_tutor.check.chapters.inputs import Array, numbers
from attn_tutor.check.exercise import Exercise

draw = numbers(13)


def sink_mask(n: int, m: int, window: int, sinks: int, first: int | None = None, wider: int = 0, past: bool = True,
              sinks_past: bool = True) -> Array:  # fmt: skip
    i = np.arange(n)[:, None] + (m - n if first is None else first)
    j = np.arange(m)
    recent = j > i - window - wider
    if past:
        recent = recent & (j <= i)
    return np.asarray(recent | ((j < sinks) & ((j <= i) | (not sinks_past))))


window_with_sinks = Exercise(13,
    "window_with_sinks(n, m, window, sinks): the mask of n queries, the last of m tokens: each sees itself, the "
    "window − 1 tokens before it and the first sinks, and none after itself; boolean, (n, m)",
    sink_mask, [(3, 8, 2, 1), (5, 5, 2, 2), (7, 11, 3, 0), (2, 5, 1, 3), (4, 4, 9, 1)])  # fmt: skip
window_with_sinks.knows(
    ("a sink in the future", dict(sinks_past=False),
     "Early queries see sinks that come after them. A sink is never dropped, but it must have been written: j ≤ i for "
     "sinks, too."),
    ("window one too wide", dict(wider=1),
     "Each query sees window tokens before itself. Its own counts as one of them: j > i − window."),
    ("no sinks", lambda n, m, window, sinks: sink_mask(n, m, window, 0),
     "This is a plain sliding window. Whoever drops the first tokens drops what trained heads park their weight on: "
     "add j < sinks."),
    by_hand=sink_mask,
)  # fmt: skip


def phi(x: Array) -> Array:
    """elu(x) + 1."""
    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))


def chunked(Q: Array, K: Array, V: Array, size: int, past: bool = True, total_past: bool = True, early: bool = False,
            inside: bool = True) -> Array:  # fmt: skip
    S, z, out = np.zeros((K.shape[1], V.shape[1])), np.zeros(K.shape[1]), []
    for i in range(0, len(Q), size):
        q, k, v = phi(Q[i : i + size]), phi(K[i : i + size]), V[i : i + size]
        kernel = np.tril(q @ k.T) if inside else q @ k.T
        if early:
            S, z = S + k.T @ v, z + k.sum(0)
        pooled, total = kernel @ v + q @ S * past, kernel.sum(-1) + q @ z * total_past
        out.append(pooled / total[:, None])
        if not early:
            S, z = S + k.T @ v, z + k.sum(0)
    return np.vstack(out)


linear_in_chunks = Exercise(13,
    "linear_in_chunks(Q, K, V, size): causal linear attention with φ(x) = elu(x) + 1, a chunk of so many tokens at a "
    "time; (n, d), (n, d), (n, d_v) → (n, d_v)",
    chunked, lambda draw: [
        (draw(2, 3), draw(2, 3), draw(2, 2), 1), (draw(6, 3), draw(6, 3), draw(6, 5), 2),
        (draw(7, 2), draw(7, 2), draw(7, 3), 3), (draw(5, 2), draw(5, 2), draw(5, 3), 8)
    ])  # fmt: skip
linear_in_chunks.knows(
    ("each chunk forgets the past", dict(past=False, total_past=False),
     "Your chunks do not know of one another. Add what the state holds: φ(q) S above the line, φ(q) · z below."),
    ("the chunk counted twice", dict(early=True),
     "You add a chunk to the state before you ask it, so its keys count twice, and those of the future once. Ask "
     "first, then add."),
    by_hand=chunked,
)  # fmt: skip


def faded(Q: Array, K: Array, V: Array, size: int, fade: float, inside: bool = True, start: int = 1,
          written: bool = True, state: bool = True, total: bool = True) -> Array:  # fmt: skip
    V = np.hstack([V, np.ones((len(V), 1))])
    S, out = np.zeros((K.shape[1], V.shape[1])), []
    for i in range(0, len(Q), size):
        q, k, v = phi(Q[i : i + size]), phi(K[i : i + size]), V[i : i + size]
        t = np.arange(len(q))[:, None]
        kernel = np.tril(q @ k.T * (fade ** abs(t - t.T) if inside else 1))
        out.append(kernel @ v + (fade ** (t + start) if start >= 0 else 1) * (q @ S))
        late = fade ** t[::-1] * k if written else k
        S = fade ** (len(q) if state else 1) * S + late.T @ v
    pooled = np.vstack(out)
    if total:
        return pooled[:, :-1] / pooled[:, -1:]
    return pooled[:, :-1] / (phi(Q) @ phi(K).cumsum(0).T).diagonal()[:, None]


fading_in_chunks = Exercise(13,
    "fading_in_chunks(Q, K, V, size, fade): causal linear attention with φ(x) = elu(x) + 1, whose sums each token "
    "multiplies by fade before it writes, a chunk of so many tokens at a time; (n, d), (n, d), (n, d_v) → (n, d_v)",
    faded, lambda draw: [
        (draw(2, 3), draw(2, 3), draw(2, 2), 1, 0.5), (draw(6, 3), draw(6, 3), draw(6, 5), 2, 0.5),
        (draw(7, 2), draw(7, 2), draw(7, 3), 3, 0.75), (draw(5, 2), draw(5, 2), draw(5, 3), 8, 0.5)
    ])  # fmt: skip
fading_in_chunks.knows(
    ("no fade", lambda Q, K, V, size, fade: chunked(Q, K, V, size),
     "Nothing fades: a key that came t tokens before the query has the weight of the newest one, not fadeᵗ of it."),
    ("no fade inside a chunk", dict(inside=False),
     "Inside a chunk all keys weigh the same. Query i meets key j after i − j steps: multiply the kernel by "
     "fade ** (i − j)."),
    ("the past fades once too little", dict(start=0),
     "The first query of a chunk meets the state as the chunk before left it. It fades the state before it writes, "
     "too: query i = 0, 1, … of a chunk meets it faded i + 1 times."),
    ("the past does not fade within a chunk", dict(start=-1),
     "All queries of a chunk meet the state as it was before the chunk. Query i = 0, 1, … of a chunk has faded it "
     "i + 1 times."),
    ("keys enter the state as if they were new", dict(written=False),
     "The keys of a chunk enter the state with one weight. By the end of a chunk of c tokens its key j has faded "
     "c − 1 − j times."),
    ("the state fades once a chunk", dict(state=False),
     "From chunk to chunk the state fades once. Every token fades it: a chunk of c tokens by fade ** c."),
    ("the total does not fade", dict(total=False),
     "You fade the values' sum and divide by a total that does not fade, so the weights no longer sum to 1. Fade both "
     "sums."),
    ("each chunk forgets the past", lambda Q, K, V, size, fade: np.vstack([
        faded(Q[i : i + size], K[i : i + size], V[i : i + size], size, fade) for i in range(0, len(Q), size)]),
     "Your chunks do not know of one another. Add what the state holds, faded i + 1 times for query i of the chunk."),
    by_hand=faded,
)  # fmt: skip


def corrected(S: Array, k: Array, v: Array, beta: float, unit: bool = True, all_of: bool = True) -> Array:  # fmt: skip
    if unit:
        k = k / np.sqrt(k @ k)
    answer = S.T @ k
    change = beta * (v - answer) if all_of else beta * v - answer
    return S + np.outer(k, change)


delta_step = Exercise(13,
    "delta_step(S, k, v, beta): write the value v under the key k, scaled to length 1, into the state S: add beta "
    "times the difference between v and what S answers; (d, d_v), (d), (d_v) → (d, d_v)",
    corrected, lambda draw: [
        (np.zeros((2, 1)), np.array([3.0, 4]), np.array([5.0]), 1.0), (draw(3, 2), draw(3), draw(2), 0.5),
        (draw(3, 5), 2 * draw(3), draw(5), 0.25), (draw(5, 2), draw(5), draw(2), 1.0)
    ])  # fmt: skip
delta_step.knows(
    ("the key as it is", dict(unit=False),
     "You write under the key as it comes. A key of length 2 then writes four times too much: divide it by its length "
     "first."),
    ("added, not corrected", lambda S, k, v, beta: S + beta * np.outer(k / np.sqrt(k @ k), v),
     "You add β k vᵀ, as plain linear attention does. Write the difference between v and what S answers now, Sᵀk."),
    ("everything fades", lambda S, k, v, beta: (1 - beta) * S + beta * np.outer(k / np.sqrt(k @ k), v),
     "You multiply the whole state by 1 − β, so that every key fades. Only what is stored under *this* key is "
     "replaced: S − β k (kᵀS) + β k vᵀ."),
    by_hand=corrected,
)  # fmt: skip


def replacement(left: Array, draw: float) -> int:
    upto = left.cumsum()
    return int(np.searchsorted(upto, draw * upto[-1], side="right"))


def kept_or_drawn(p: Array, q: Array, guess: int, coin: float, draw: float) -> int | Array:  # fmt: skip
    if coin * q[guess] < p[guess]:
        return guess
    return replacement(np.maximum(p - q, 0), draw)


P, Q = np.array([0.5, 0.3, 0.2, 0.0]), np.array([0.1, 0.2, 0.3, 0.4])
R = np.array([0.05, 0.15, 0.1, 0.7])

keep_guess = Exercise(13,
    "keep_guess(p, q, guess, coin, draw): the guess if coin < min(1, p/q), else the first token at which the running "
    "sum of max(0, p − q), divided by its total, exceeds draw; coin and draw are random numbers in [0, 1); (t), (t) → "
    "a token",
    kept_or_drawn, [
        (P, Q, 0, 0.9, 0.95), (P, Q, 3, 0.0, 0.1), (P, Q, 3, 0.9, 0.85), (P, Q, 2, 0.6, 0.7), (P, Q, 2, 0.7, 0.82),
        (P, Q, 1, 0.35, 0.2), (R, P, 0, 0.2, 0.1), (R, P, 0, 0.08, 0.1), (R, P, 1, 0.45, 0.99)
    ])  # fmt: skip
keep_guess.knows(
    ("the ratio upside down",
     lambda p, q, guess, coin, draw: guess if coin * p[guess] < q[guess] else replacement(np.maximum(p - q, 0), draw),
     "You keep with probability q/p. Refused must be what the small model says too *often*: keep with p/q."),
    ("drawn from p", lambda p, q, guess, coin, draw: guess if coin * q[guess] < p[guess] else replacement(p, draw),
     "After a refusal you draw from p. Part of p has come out as kept guesses already: draw from what is missing, "
     "max(0, p − q)."),
)  # fmt: skip
