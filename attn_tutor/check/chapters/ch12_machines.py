"""Chapter 12: attention over processes, by the numbers: what they merge, hold, send, and pass around."""

from typing import Any

import numpy as np

from attn_tutor.check.chapters.inputs import Array, numbers
from attn_tutor.check.exercise import Exercise

draw = numbers(12)


def share(levels: Array, axis: int = 0, top: bool = True, safe: bool = True) -> Array:
    """Softmax over processes; nothing where no process has a key."""
    highest = levels.max(axis, keepdims=True) if top else np.zeros_like(levels[:1])
    e = np.exp(
        levels - (np.where(np.isneginf(highest), 0, highest) if safe else highest)
    )
    total = e.sum(axis, keepdims=True)
    return e / (np.where(total == 0, 1, total) if safe else total)


def by_hand(outputs: Array, levels: Array, axis: int = 0, **how: bool) -> Array:
    return (share(levels, axis, **how) * outputs).sum(0)


def column(*entries: float) -> Array:
    return np.array(entries, float)[:, None, None]


EMPTY = draw(3, 2, 1)
EMPTY[0, 0], EMPTY[:, 1] = -np.inf, -np.inf

merge_parts = Exercise(12,
    "merge_parts(outputs, levels): the output over all keys, from the outputs of p processes and the log-sums of "
    "their scores; no key anywhere gives 0; (p, n, d), (p, n, 1) → (n, d)",
    by_hand, lambda draw: [
        (column(2, 5, 11), np.log(column(1, 2, 3))), (column(2, 5), np.log(column(3, 1))),
        (draw(3, 5, 2), draw(3, 5, 1)), (draw(3, 2, 5) * np.isfinite(EMPTY), EMPTY),
        (draw(2, 3, 5), 1000 + draw(2, 3, 1)), (draw(2, 3, 5).astype("f4"), draw(2, 3, 1).astype("f4"))
    ])  # fmt: skip


def small_levels_preferred(outputs: Array, levels: Array) -> Array:
    with np.errstate(invalid="ignore"):
        return np.nan_to_num(share(-levels, safe=False) * outputs).sum(0)


def top_of_each_process_s_own(outputs: Array, levels: Array) -> Array:
    top = levels.max(1, keepdims=True)
    e = np.exp(levels - np.where(np.isneginf(top), 0, top))
    total = e.sum(0)
    return (e * outputs).sum(0) / np.where(total == 0, 1, total)


def larger_level_of_a_pair_kept(outputs: Array, levels: Array) -> Array:
    output, level = outputs[0], levels[0]
    for other in zip(outputs[1:], levels[1:], strict=True):
        outs, levs = (np.stack(x) for x in zip((output, level), other, strict=True))
        output, level = by_hand(outs, levs), levs.max(0)
    return output


merge_parts.knows(
    ("no maximum subtracted", dict(top=False),
     "e^1000 is infinity, and ∞/∞ is NaN. Subtract the largest level of the processes first: only differences count."),
    ("NaN where there is no key", dict(safe=False),
     "Where no process has a key every level is −∞: −∞ − (−∞) is NaN, and so is 0/0. Subtract 0 there, and divide by "
     "1."),
    ("a plain mean", lambda outputs, levels: outputs.mean(0),
     "You average the outputs as if each process had the same weight. One that holds the best keys has more: e to its "
     "level, over the sum of all."),
    ("outputs added up", lambda outputs, levels: outputs.sum(0),
     "You add the outputs. Each was divided by its own total, so the sum has p times the weight: multiply each by its "
     "share first."),
    ("levels as weights", lambda outputs, levels: (levels / levels.sum(0) * outputs).sum(0),
     "You take the levels themselves for weights. They are logarithms: the weight of a process is e to its level."),
    ("no maximum subtracted", lambda outputs, levels: (np.exp(levels - np.log(np.exp(levels).sum(0))) * outputs).sum(0),
     "You take the logarithm of a sum of exponentials: e^1000 is infinity, and where no process has a key log 0 is −∞, "
     "and −∞ − (−∞) NaN. Subtract the largest level of the processes first, or 0 where that is −∞."),
    ("powers of two", lambda outputs, levels: by_hand(outputs, levels * np.log(2)),
     "Your weights are powers of 2. The levels are natural logarithms: take e to them, np.exp or torch.exp."),
    ("small levels preferred", small_levels_preferred,
     "Your weights have the sign wrong: a larger level must give a larger weight, e^(ℓ − top), and a level of −∞ the "
     "weight 0."),
    ("divided by p as well", lambda outputs, levels: by_hand(outputs, levels) / len(outputs),
     "Your shares sum to 1 and are right, but then you take a mean, which divides by p once more. Add them up."),
    ("a top of each process's own", top_of_each_process_s_own,
     "You subtract from each process's levels a maximum of its own, so they can no longer be compared. Take the "
     "largest level of one query over all processes, axis 0."),
    ("the larger level of a pair kept", larger_level_of_a_pair_kept,
     "You merge two at a time, and give the pair the larger of the two levels. It has the weight of both: the level of "
     "a pair is log(e^ℓ1 + e^ℓ2)."),
    ("only the best process", lambda outputs, levels: np.take_along_axis(outputs, levels.argmax(0)[None], 0)[0],
     "You keep the output of the process with the largest level. The others have a share too."),
    by_hand=by_hand,
)  # fmt: skip


def halves(n: int, size: int) -> Any:
    """The chunks of the front, and those of the back, the last first."""
    chunks = np.arange(n).reshape(2 * size, -1)
    return chunks[:size], chunks[size:][::-1]


zigzag_positions = Exercise(12,
    "zigzag_positions(n, size): the positions of the tokens that each process holds: chunk r of 2 · size from the "
    "front, then chunk r from the back, each in the order of the text; → integers (size, n / size)",
    lambda n, size: np.concatenate(halves(n, size), 1), [
        (8, 2), (4, 2), (12, 3), (18, 3), (16, 4), (6, 1)
    ])  # fmt: skip


def one_token_a_chunk(n: int, size: int) -> Array:
    deal = np.arange(n).reshape(-1, 2 * size)
    front, back = deal[:, :size].T, deal[:, size:][:, ::-1].T
    return np.concatenate([front, back], 1)


def one_token_a_chunk_too(n: int, size: int) -> Array:
    there = np.arange(n).reshape(-1, size)
    there[1::2] = there[1::2, ::-1].copy()
    return there.T


def one_chunk_too_early(n: int, size: int) -> Array:
    chunks = np.arange(n).reshape(2 * size, -1)
    return np.concatenate([chunks[:size], chunks[size - 1 : -1][::-1]], 1)


zigzag_positions.knows(
    ("blocks", lambda n, size: np.arange(n).reshape(size, -1),
     "Your processes hold blocks, one after the other. The last has the most past to read, and the others wait for it: "
     "give each an early chunk and a late one."),
    ("the back not reversed",
     lambda n, size: (lambda front, back: np.concatenate([front, back[::-1]], 1))(*halves(n, size)),
     "Process r has chunk r and chunk r + size. Then both halves get later with r, and so does the work. Count the "
     "second chunk from the end: 2 · size − 1 − r."),
    ("tokens of the back reversed",
     lambda n, size: (lambda front, back: np.concatenate([front, back[:, ::-1]], 1))(*halves(n, size)),
     "The chunks are right, but inside those from the back your tokens run backwards. Reverse the order of the chunks, "
     "not that of their tokens."),
    ("one token a chunk", one_token_a_chunk,
     "Your chunks have one token each, dealt to and fro. Two chunks a process are asked, each in one piece."),
    ("one token a chunk", one_token_a_chunk_too,
     "Your chunks have one token each, dealt to and fro. Two chunks a process are asked, each in one piece."),
    ("one chunk too early", one_chunk_too_early,
     "You take chunk 2 · size − 2 − r from the back: one is held twice and the last by nobody. It is 2 · size − 1 − r, "
     "since chunks count from 0."),
    ("counted from 1", lambda n, size: np.concatenate(halves(n, size), 1) + 1,
     "Your positions begin at 1. They are indices, from 0 to n − 1."),
    ("the last process first", lambda n, size: np.concatenate(halves(n, size), 1)[::-1].copy(),
     "Each row is right, but your rows begin with the last process. The first token is process 0's."),
)  # fmt: skip


def sent(n: int, size: int, heads: int, kv_heads: int, width: int, number: int, *, last: int = 1, whole: bool = False,
         both: int = 2, copied: tuple[bool, bool] = (False, False), enough: bool = True, moves: str = "qkvo",
         local: bool = True, queries: bool = False, parted: bool = True,
         weighed: tuple[bool, bool] = (True, True)) -> tuple[Any, Any]:  # fmt: skip
    """Bytes of a ring and of an all-to-all, with what people get wrong as options."""
    tokens = n // size if local else n
    kv, turned_kv = (heads if copy else kv_heads for copy in copied)
    turned_kv = max(turned_kv, size) if enough else turned_kv
    each = [number if bytes_ else 1 for bytes_ in weighed]
    ring = (size - last) * tokens * (both * kv + queries * heads) * width * each[0]
    parts = size if whole else size - 1
    moved = sum(heads if x in "qo" else turned_kv for x in moves)
    swapped = parts * tokens * moved * width * each[1]
    return np.array(ring), np.array(swapped // size if parted else swapped)


bytes_sent = Exercise(12,
    "bytes_sent(n, size, heads, kv_heads, width, number): bytes that one process sends in a ring, which passes keys "
    "and values on size − 1 times, and in the all-to-alls of queries, keys, values and output, with a head of keys for "
    "each process at least; no quotient is rounded; → two whole numbers",
    sent, [
        (8, 2, 4, 2, 3, 2), (6, 2, 2, 2, 5, 4), (24, 4, 8, 2, 5, 2), (27, 3, 6, 3, 7, 8), (7, 1, 2, 1, 3, 2)
    ])  # fmt: skip
bytes_sent.knows(
    ("the ring passes on once too often", dict(last=0),
     "Your ring passes its block on p times. After p − 1 all have seen it, and the last would only bring it home."),
    ("keys without values", dict(both=1), "Your ring sends keys only. Their values travel with them: twice as much."),
    ("the output is not sent back", dict(moves="qkv"),
     "Your all-to-all moves queries, keys and values, but the output must go back to where its tokens are: heads of "
     "queries count twice."),
    ("as many heads of keys in the all-to-all", dict(copied=(False, True)),
     "Your ring sends kv_heads heads of keys and values, but your all-to-all as many as there are queries. Grouped "
     "heads share them there too."),
    ("as many heads of keys in the ring", dict(copied=(True, False)),
     "Your all-to-all sends kv_heads heads of keys and values, but your ring as many as there are queries. Grouped "
     "heads share them there too."),
    ("too few heads of keys for all", dict(enough=False),
     "Your all-to-all sends kv_heads heads of keys and values also where there are more processes than that. Each "
     "process needs one, so some are sent to several: max(kv_heads, size)."),
    ("queries and output alone", dict(moves="qo"),
     "Your all-to-all moves queries and output, but keys and values must come to the heads too: kv_heads of each."),
    ("queries in the ring", dict(queries=True),
     "Your ring sends the queries along. They stay: only keys and values travel, kv_heads heads of each."),
    ("all of it to each of the others", dict(parted=False),
     "Your all-to-all sends everything that a process has to each of the others. Each gets one of p parts, the heads "
     "that it will compute: divide by size."),
    ("numbers in the ring, not bytes", dict(weighed=(False, True)),
     "Your ring counts numbers. Each has `number` bytes, as in your all-to-all."),
    ("all tokens in place of one's own", dict(local=False),
     "A process holds n / size tokens, and sends those of one process at a time. You count all n."),
    by_hand=sent,
)  # fmt: skip


def around(Q: Array, K: Array, V: Array, size: int, *, mask_of: int = -1, local: bool = False, steps: int = 0,
           values: int = -1, rescale: tuple[bool, bool] = (True, True), top: bool = True, divided: bool = True,
           width: str = "d", hidden: str = "later") -> Array:  # fmt: skip
    """Ring attention in one process, with what people get wrong as options."""
    places = np.split(np.arange(len(Q)), size)
    rows = []
    for rank, mine in enumerate(places):
        t, z = np.full((len(mine), 1), -1e300), np.zeros((len(mine), 1))
        u = np.zeros((len(mine), V.shape[1]))
        for step in range(max(1, size + steps)):
            keys = places[(rank - step) % size]
            masked = places[(rank + mask_of * step) % size]
            j = masked - masked[0] + mine[0] if local else masked
            hide = {
                "later": mine[:, None] < j,
                "itself": mine[:, None] <= j,
                "nothing": mine[:, None] < -1 - j,
                "other blocks": (mine[:, None] < j) & (step > 0),
                "own block": (mine[:, None] < j) & (step % size == 0),
            }[hidden]
            S = Q[mine] @ K[keys].T
            S = S / np.sqrt({"d": Q.shape[1], "d_v": V.shape[1], "none": 1}[width])
            S = np.where(hide, -np.inf, S)
            new = np.maximum(t, S.max(-1, keepdims=True)) if top else 0 * t
            e, shrink = np.exp(S - new), np.exp(t - new) if top else np.ones(1)
            shrinks = [shrink if yes else np.ones(1) for yes in rescale]
            t, z = new, shrinks[0] * z + e.sum(-1, keepdims=True)
            u = shrinks[1] * u + e @ V[places[(rank + values * step) % size]]
        rows.append(u / z if divided else u)
    return np.concatenate(rows)


I = np.eye(4)

ring = Exercise(12,
    "ring(Q, K, V, size): causal attention of tokens in `size` equal blocks; in each of `size` steps every block of "
    "queries meets one block of keys, and the blocks of keys move on by one; (n, d), (n, d), (n, d_v) → (n, d_v)",
    around, lambda draw: [
        (I * 2, I * 2, np.array([[1.0], [2.0], [4.0], [8.0]]), 2), (draw(4, 3), draw(4, 3), draw(4, 2), 1),
        (draw(6, 3), draw(6, 3), draw(6, 5), 3), (draw(8, 5), draw(8, 5), draw(8, 2), 4),
        (40 * draw(6, 3), 40 * draw(6, 3), draw(6, 2), 3)
    ])  # fmt: skip


def each_block_alone(Q: Array, K: Array, V: Array, size: int) -> Array:
    parts = (np.split(x, size) for x in (Q, K, V))
    return np.concatenate([around(q, k, v, 1) for q, k, v in zip(*parts, strict=True)])


def outputs_of_blocks_averaged(Q: Array, K: Array, V: Array, size: int) -> Array:
    places = np.split(np.arange(len(Q)), size)
    rows = []
    for i in range(len(Q)):
        seen = [keys[keys <= i] for keys in places if keys[0] <= i]
        alone = [around_one(Q[i], K[keys], V[keys]) for keys in seen]
        rows.append(np.mean(alone, 0))
    return np.array(rows)


ring.knows(
    ("the last block left out", dict(steps=-1),
     "You take p − 1 steps. There are p − 1 messages, but p blocks to attend to: one's own is the first."),
    ("pooled values not rescaled", dict(rescale=(True, False)),
     "When a block brings a larger score, total and pooled values both shrink by e^(old top − new top). Your pooled "
     "values stay."),
    ("total not rescaled", dict(rescale=(False, True)),
     "When a block brings a larger score, total and pooled values both shrink by e^(old top − new top). Your total "
     "stays."),
    ("no maximum subtracted", dict(top=False),
     "With large scores exp is infinity, and ∞/∞ is NaN. Keep the largest score so far and subtract it."),
    ("not divided by the total", dict(divided=False),
     "You pool the values with e^(score − top), but these weights do not sum to 1: divide by their total, once, at the "
     "end."),
    ("no √d", dict(width="none"), "Your scores are not divided by √d, the root of the keys' width."),
    ("no causal mask", dict(hidden="nothing"),
     "Your queries see the keys after them. The mask compares positions: a query sees those up to its own."),
    ("one's own block without a mask", dict(hidden="other blocks"),
     "You leave out the blocks after one's own, but inside one's own block your queries see the keys after them: "
     "future there, too."),
    ("a mask in one's own block only", dict(hidden="own block"),
     "You mask one's own block, but your queries see all other blocks whole, also those that lie in their future."),
    ("values that stay", dict(values=0),
     "Your keys move on, but the values are always one's own. Each key must meet its own value."),
    ("√ of the width of the values", dict(width="d_v"),
     "Your scores are divided by the root of the values' width. It is that of the keys, √d."),
    ("a query does not see itself",
     lambda Q, K, V, size: np.concatenate([V[:1], around(Q, K, V, size, hidden="itself")[1:]]),
     "Your queries see the keys before them, but not their own, except the first, which has no other. The mask is ≥, "
     "not >."),
    ("each block alone", each_block_alone, "Your blocks attend to their own keys only: the blocks of keys never move."),
    ("outputs of blocks averaged", outputs_of_blocks_averaged,
     "You take a softmax over each block and average the outputs. Blocks have different weight: keep top, total and "
     "pooled values, and divide once, at the end."),
    by_hand=around,
)  # fmt: skip


def around_one(q: Array, K: Array, V: Array) -> Array:
    s = K @ q / np.sqrt(len(q))
    e = np.exp(s - s.max())
    return e @ V / e.sum()
