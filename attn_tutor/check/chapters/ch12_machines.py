"""Chapter 12: attention over processes, by the numbers: what they merge, hold, send, and pass around."""

import numpy as np

from attn_tutor.check.chapters.inputs import Array, column, numbers, weights_of
from attn_tutor.check.exercise import Exercise, Function

draw = numbers(12)


def merged(outputs: Array, levels: Array, *, top: Function = lambda levels: levels.max(0, keepdims=True),
           weight: Function = np.exp) -> Array:  # fmt: skip
    """Softmax over processes; nothing where no process has a key."""
    highest = top(levels)
    e = weight(levels - np.where(np.isneginf(highest), 0, highest))
    total = e.sum(0)
    return np.asarray((e * outputs).sum(0) / np.where(total == 0, 1, total))


EMPTY = draw(3, 2, 1)
EMPTY[0, 0], EMPTY[:, 1] = -np.inf, -np.inf


def larger_level_of_a_pair_kept(outputs: Array, levels: Array) -> Array:
    output, level = outputs[0], levels[0]
    for other, its in zip(outputs[1:], levels[1:], strict=True):
        output = merged(np.stack([output, other]), np.stack([level, its]))
        level = np.maximum(level, its)
    return output


merge_parts = Exercise(12, "merge_parts(outputs, levels): the output over all keys, from the outputs of p processes "
    "and the log-sums of their scores; no key anywhere gives 0; (p, n, d), (p, n, 1) → (n, d)",
    merged, lambda draw: [(column(2, 5, 11)[..., None], np.log(column(1, 2, 3))[..., None]),
        (column(2, 5)[..., None], np.log(column(3, 1))[..., None]),
        (draw(3, 5, 2), draw(3, 5, 1)), (draw(3, 2, 5) * np.isfinite(EMPTY), EMPTY),
        (draw(2, 3, 5), 1000 + draw(2, 3, 1)), (draw(2, 3, 5).astype("f4"), draw(2, 3, 1).astype("f4"))],
    ("no maximum subtracted",
     [dict(top=lambda l: np.zeros_like(l[:1])),
      lambda outputs, levels: (np.exp(levels - np.log(np.exp(levels).sum(0))) * outputs).sum(0)],
     "e^1000 is infinity, and ∞/∞ is NaN. Subtract the largest level of the processes first: only differences count."),
    ("a plain mean", [lambda outputs, levels: outputs.mean(0), dict(weight=np.isfinite)],
     "You average the outputs, as if all had one weight: multiply each by its share, e to its level over the sum."),
    ("outputs added up", lambda outputs, levels: outputs.sum(0),
     "You add the outputs. Each was divided by its own total already: multiply each by its share first."),
    ("levels as weights", lambda outputs, levels: (levels / levels.sum(0) * outputs).sum(0),
     "You take the levels themselves for weights. They are logarithms: the weight of a process is e to its level."),
    ("powers of two", dict(weight=np.exp2),
     "Your weights are powers of 2. The levels are natural logarithms: take e to them, np.exp or torch.exp."),
    ("small levels preferred", lambda outputs, levels: (np.nan_to_num(weights_of(-levels, 0)) * outputs).sum(0),
     "Your weights have the sign wrong: a larger level has a larger weight, e^(ℓ − top), a level of −∞ the weight 0."),
    ("a top of each process's own", dict(top=lambda levels: levels.max(1, keepdims=True)),
     "You subtract a maximum of each process's own. Take the largest level of a query over all processes, axis 0."),
    ("the larger level of a pair kept", larger_level_of_a_pair_kept,
     "You merge two at a time, and give the pair the larger level. It has the weight of both: log(e^ℓ1 + e^ℓ2)."),
    ("only the best process", lambda outputs, levels: np.take_along_axis(outputs, levels.argmax(0)[None], 0)[0],
     "You keep the output of the process with the largest level. The others have a share too."))  # fmt: skip


def zigzag(n: int, size: int, *, turn: Function = lambda back: back[::-1], early: int = 0) -> Array:  # fmt: skip
    """The chunks of the front, and beside them those of the back, the last first."""
    chunks = np.arange(n).reshape(2 * size, -1)
    return np.hstack([chunks[:size], turn(chunks[size - early : 2 * size - early])])


def one_token_a_chunk(n: int, size: int) -> Array:
    laps = np.arange(n).reshape(-1, size)
    laps[1::2] = laps[1::2, ::-1].copy()
    return laps.T


zigzag_positions = Exercise(12,
    "zigzag_positions(n, size): the positions of the tokens that each process holds: chunk r of 2 · size from the "
    "front, then chunk r from the back, each in the order of the text; → integers (size, n / size)",
    zigzag, [(8, 2), (4, 2), (12, 3), (18, 3), (16, 4), (6, 1)],
    ("blocks", lambda n, size: np.arange(n).reshape(size, -1),
     "Your processes hold blocks. The last has most past to read, and all wait for it: an early chunk and a late one."),
    ("the back not reversed", dict(turn=np.asarray),
     "Process r has chunks r and r + size: both get later with r. Count the second from the end: 2 · size − 1 − r."),
    ("tokens of the back reversed", dict(turn=lambda back: back[::-1, ::-1]),
     "Inside the chunks from the back your tokens run backwards. Reverse the order of chunks, not of their tokens."),
    ("one token a chunk", one_token_a_chunk,
     "Your chunks have one token each, dealt to and fro. Two chunks a process are asked, each in one piece."),
    ("one chunk too early", dict(early=1),
     "You take chunk 2 · size − 2 − r: one is held twice, and the last by nobody. Count from 0: 2 · size − 1 − r."),
    ("counted from 1", lambda n, size: zigzag(n, size) + 1,
     "Your positions begin at 1. They are indices, from 0 to n − 1."))  # fmt: skip


def sent(n: int, size: int, heads: int, kv_heads: int, width: int, number: int, *, last: int = 1, both: int = 2,
         queries: bool = False, copied: str = "", enough: bool = True, moves: str = "qkvo", local: bool = True,
         parted: bool = True, weighed: bool = True) -> tuple[Array, Array]:  # fmt: skip
    """Bytes of a ring and of an all-to-all, with what people get wrong as options."""
    tokens = (n // size if local else n) * width
    kv, swapped_kv = (heads if copied == way else kv_heads for way in ("ring", "swap"))
    swapped_kv = max(swapped_kv, size) if enough else swapped_kv
    ring = (size - last) * tokens * (both * kv + queries * heads)
    moved = sum(heads if x in "qo" else swapped_kv for x in moves)
    swap = (size - 1) * tokens * moved * number
    return np.array(ring * (number if weighed else 1)), np.array(swap // (size if parted else 1))  # fmt: skip


bytes_sent = Exercise(12, "bytes_sent(n, size, heads, kv_heads, width, number): bytes that one process sends in a "
    "ring, which passes keys and values on size − 1 times, and in the all-to-alls of queries, keys, values and output, "
    "with a head of keys for each process at least; no quotient is rounded; → two whole numbers",
    sent, [(8, 2, 4, 2, 3, 2), (6, 2, 2, 2, 5, 4), (24, 4, 8, 2, 5, 2), (27, 3, 6, 3, 7, 8), (7, 1, 2, 1, 3, 2)],
    ("the ring passes on once too often", dict(last=0),
     "Your ring passes its block on p times. After p − 1 all have seen it, and the last would only bring it home."),
    ("keys without values", dict(both=1), "Your ring sends keys only. Their values travel with them: twice as much."),
    ("the output is not sent back", dict(moves="qkv"),
     "Your all-to-all does not move the output, which goes back to where its tokens are: queries' heads count twice."),
    ("as many heads of keys in the all-to-all", dict(copied="swap"),
     "Your all-to-all sends as many heads of keys and values as of queries. Grouped heads share them: kv_heads."),
    ("as many heads of keys in the ring", dict(copied="ring"),
     "Your ring sends as many heads of keys and values as of queries. Grouped heads share them: kv_heads."),
    ("too few heads of keys for all", dict(enough=False),
     "Your all-to-all sends kv_heads heads of keys, also to more processes. Each needs one: max(kv_heads, size)."),
    ("queries and output alone", dict(moves="qo"),
     "Your all-to-all moves queries and output, but keys and values must come to the heads too: kv_heads of each."),
    ("queries in the ring", dict(queries=True),
     "Your ring sends the queries along. They stay: only keys and values travel, kv_heads heads of each."),
    ("all of it to each of the others", dict(parted=False),
     "Your all-to-all sends all that a process has to each other one. Each gets one of p parts: divide by size."),
    ("numbers in the ring, not bytes", dict(weighed=False),
     "Your ring counts numbers. Each has `number` bytes, as in your all-to-all."),
    ("all tokens in place of one's own", dict(local=False),
     "A process holds n / size tokens, and sends those of one process at a time. You count all n."))  # fmt: skip


def around(Q: Array, K: Array, V: Array, size: int, *, hidden: Function = lambda i, j, step: i < j, steps: int = 0,
           values: int = 1, rescale: tuple[bool, bool] = (True, True), divided: bool = True,
           root: Function = lambda Q, V: Q.shape[1]) -> Array:  # fmt: skip
    """Ring attention in one process, with what people get wrong as options."""
    places = np.split(np.arange(len(Q)), size)
    rows = []
    for rank, mine in enumerate(places):
        t, z = np.full((len(mine), 1), -1e300), np.zeros((len(mine), 1))
        u = np.zeros((len(mine), V.shape[1]))
        for step in range(max(1, size + steps)):
            keys = places[(rank - step) % size]
            S = Q[mine] @ K[keys].T / np.sqrt(root(Q, V))
            S = np.where(hidden(mine[:, None], keys, step), -np.inf, S)
            new = np.maximum(t, S.max(-1, keepdims=True))
            e, shrink = np.exp(S - new), np.exp(t - new)
            t, z = new, (shrink if rescale[0] else 1) * z + e.sum(-1, keepdims=True)
            brought = V[places[(rank - values * step) % size]]
            u = (shrink if rescale[1] else 1) * u + e @ brought
        rows.append(u / z if divided else u)
    return np.concatenate(rows)


def outputs_of_blocks_averaged(Q: Array, K: Array, V: Array, size: int) -> Array:
    rows = []
    for i, q in enumerate(Q / Q.shape[1] ** 0.5):
        past = [j[j <= i] for j in np.split(np.arange(len(Q)), size) if j[0] <= i]
        rows.append(np.mean([weights_of(K[j] @ q) @ V[j] for j in past], 0))
    return np.array(rows)


ring = Exercise(12,
    "ring(Q, K, V, size): causal attention of tokens in `size` equal blocks; in each of `size` steps every block of "
    "queries meets one block of keys, and the blocks of keys move on by one; (n, d), (n, d), (n, d_v) → (n, d_v)",
    around, lambda draw: [(2 * np.eye(4), 2 * np.eye(4), np.array([[1.0], [2.0], [4.0], [8.0]]), 2),
        (draw(4, 3), draw(4, 3), draw(4, 2), 1), (draw(6, 3), draw(6, 3), draw(6, 5), 3),
        (draw(8, 5), draw(8, 5), draw(8, 2), 4), (40 * draw(6, 3), 40 * draw(6, 3), draw(6, 2), 3)],
    ("the last block left out", dict(steps=-1),
     "You take p − 1 steps. There are p − 1 messages, but p blocks to attend to: one's own is the first."),
    ("pooled values not rescaled", dict(rescale=(True, False)),
     "When a block brings a larger score, total and pooled values shrink by e^(old top − new top). Your values stay."),
    ("total not rescaled", dict(rescale=(False, True)),
     "When a block brings a larger score, total and pooled values shrink by e^(old top − new top). Your total stays."),
    ("not divided by the total", dict(divided=False),
     "You pool with e^(score − top), and these weights do not sum to 1: divide by their total, once, at the end."),
    ("no √d", dict(root=lambda Q, V: 1), "Your scores are not divided by √d, the root of the keys' width."),
    ("no causal mask", dict(hidden=lambda *_: False),
     "Your queries see the keys after them. The mask compares positions: a query sees those up to its own."),
    ("one's own block without a mask", dict(hidden=lambda i, j, step: (i < j) & (step > 0)),
     "You leave out later blocks, but inside one's own block your queries see the keys after them: future there, too."),
    ("a mask in one's own block only", dict(hidden=lambda i, j, step: (i < j) & (step == 0)),
     "You mask one's own block, but your queries see all other blocks whole, also those that lie in their future."),
    ("values that stay", dict(values=0),
     "Your keys move on, but the values are always one's own. Each key must meet its own value."),
    ("outputs of blocks averaged", outputs_of_blocks_averaged,
     "You average the outputs of blocks, which differ in weight: keep top, total and values; divide once, at the end."),
    ("a query does not see itself",
     lambda *x: np.concatenate([x[2][:1], around(*x, hidden=lambda i, j, step: i <= j)[1:]]),
     "Your queries see the keys before them, but not their own (except the first). The mask is ≥, not >."),
    ("each block alone",
     lambda *x: np.vstack([around(q, k, v, 1) for q, k, v in zip(*(np.split(y, x[3]) for y in x[:3]), strict=True)]),
     "Your blocks attend to their own keys only: the blocks of keys never move."),
    ("√ of the width of the values", dict(root=lambda Q, V: V.shape[1]),
     "Your scores are divided by the root of the values' width. It is that of the keys, √d."))  # fmt: skip
