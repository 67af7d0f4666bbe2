"""Chapter 11: what one measures on the heads of a trained model, and how its weights lie in the file."""

from collections.abc import Callable

import numpy as np

import attn_tutor.numpy as an
from attn_tutor.check.chapters.inputs import Array, numbers
from attn_tutor.check.exercise import Exercise

draw = numbers(11)


def causal_weights(*shape: int) -> Array:
    """Random weights of heads under a causal mask, (…, n, n)."""
    return an.masked_softmax(2 * draw(*shape), an.causal_mask(shape[-1]))


def mean_of_later(A: Array, *, first: int = 1, divide: Callable[[int, int], int] = lambda n, j: n - 1 - j,
                  turn: Callable[[Array], Array] = lambda A: A) -> Array:  # fmt: skip
    """For each key the mean over its later queries, with what people get wrong in it as options."""
    A, n = turn(A), A.shape[-1]
    sums = [A[..., j + first :, j].sum(-1) for j in range(n)]
    return np.stack([x / max(1, divide(n, j)) for j, x in enumerate(sums)], -1)


received_weight = Exercise(11,
    "received_weight(A): for each key the mean weight that the queries after it give to it; 0 for the last key; "
    "(…, n, n) → (…, n)",
    mean_of_later, [
        (np.array([[1.0, 0], [0.75, 0.25]]),), (np.array([[1.0, 0, 0], [0.5, 0.5, 0], [0.25, 0.25, 0.5]]),),
        (causal_weights(3, 5, 5),), (causal_weights(2, 3, 7, 7),)
    ])  # fmt: skip
received_weight.knows(
    ("a token's weight on itself counted", dict(first=0, divide=lambda n, j: n - j),
     "You count the diagonal, what a token gives itself. Token 0 has no choice and gives itself 1, so it would look "
     "like a sink in every model. Take the queries *after* the key: A[..., j + 1:, j]."),
    ("divided by n for all keys", dict(divide=lambda n, j: n),
     "You divide each sum by n. Later keys are seen by fewer queries, so they would look neglected: divide by the "
     "number of queries after the key, n − 1 − j."),
    by_hand=mean_of_later,
)  # fmt: skip


def on_what_came_next(A: Array, ids: Array, *, after: int = 1,
                      queries: Callable[[Array], Array] = lambda same: np.any(same, axis=-1),
                      which: Callable[[Array], Array] = lambda same: same,
                      turn: Callable[[Array], Array] = lambda A: A,
                      join: Callable[..., Array] = np.sum) -> Array:  # fmt: skip
    """Weight on the tokens after earlier copies, with what people get wrong in it as options."""
    n = len(ids)
    same = (ids[:, None] == ids) & np.tri(n, k=-1, dtype=bool)
    there = np.zeros((n, n + 2), dtype=bool)
    there[:, 1 + after : n + 1 + after] = which(same)
    found = join(turn(A) * there[:, 1:-1], axis=-1)
    return np.asarray(found[..., queries(same)].mean(-1))


IDS = np.array([4, 7, 4, 9, 7, 4, 4])
LONG = np.array([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5])

prefix_matching_score = Exercise(11,
    "prefix_matching_score(A, ids): of the queries whose token has stood before, the mean of their total weight on the "
    "tokens that came right after its earlier copies, the query itself included; (…, n, n), (n,) → (…)",
    on_what_came_next, [
        (causal_weights(2, 3, 3), np.array([5, 2, 5])), (causal_weights(3, 7, 7), IDS),
        (causal_weights(2, 3, 11, 11), LONG)
    ])  # fmt: skip
prefix_matching_score.knows(
    ("the earlier copies themselves", dict(after=0),
     "You take the earlier copies themselves. That is a *duplicate-token* head. An induction head looks at what came "
     "right after them: the keys j + 1 where ids[j] == ids[i]."),
    ("all queries counted", dict(queries=lambda same: np.ones(len(same), dtype=bool)),
     "You average over all queries. One whose token is new has nothing to look for and can only lower the score: take "
     "those with an earlier copy."),
    by_hand=on_what_came_next,
)  # fmt: skip


def switched_off(O: Array, W_o: Array, off: list[int], *, rescale: bool = False,
                 turn: bool = False) -> Array:  # fmt: skip
    """The heads' outputs merged and projected, with some of them zero."""
    keep = np.ones(len(O), dtype=bool)
    keep[off] = False
    if turn:
        keep = ~keep
    O = np.where(keep[:, None, None], O, 0)
    if rescale:
        O = O * len(keep) / max(1, keep.sum())
    return an.merge_heads(O) @ W_o


without_heads = Exercise(11,
    "without_heads(O, W_o, off): what a layer writes when the heads in the list off are switched off: their outputs "
    "are 0, the others merged and projected as ever; (h, n, d_h), (h·d_h, d), list → (n, d)",
    switched_off, lambda draw: [
        (np.array([[[1.0]], [[2.0]]]), np.array([[3.0], [5.0]]), [0]), (draw(3, 5, 2), draw(6, 7), [1]),
        (draw(5, 2, 3), draw(15, 11), [0, 3]), (draw(2, 3, 5), draw(10, 7), [])
    ])  # fmt: skip
without_heads.knows(
    ("only those kept", dict(turn=True),
     "You keep the heads of the list and switch off all others. It is the other way round."),
    ("the sum of the heads switched off",
     lambda O, W_o, off: an.merge_heads(kept := np.delete(O, off, axis=0)) @ W_o[:kept.shape[0] * kept.shape[2]],
     "You drop the heads from the array and then take the first rows of W_o for those that are left. Each head has "
     "rows of its own in W_o: set the others to zero, and keep their places."),
    by_hand=switched_off,
)  # fmt: skip


def blocks(n: int) -> Array:
    """Blocks of Q4_1 as they lie in a file: scale and minimum in half precision, then 16 bytes of two codes."""
    halves = np.stack([0.05 + 0.1 * draw(n) ** 2, draw(n) - 1], -1).astype(np.float16)
    codes = (7 * np.abs(draw(n, 16)) * 31).astype(np.uint8)
    return np.concatenate([halves.view(np.uint8), codes], -1)


def half(x: Array) -> Array:
    return np.ascontiguousarray(x).view(np.float16).astype(np.float32)


def read_blocks(blocks: Array, *, swapped: bool = False, high_first: bool = False, in_turn: bool = False,
                big_endian: bool = False, centre: int = 0, minimum: float = 1) -> Array:  # fmt: skip
    """Dequantise blocks of Q4_1, with what people get wrong in it as options."""
    first, second = blocks[:, :2], blocks[:, 2:4]
    if big_endian:
        first, second = first[:, ::-1], second[:, ::-1]
    scale, low = half(first), half(second)
    if swapped:
        scale, low = low, scale
    codes = [blocks[:, 4:] & 15, blocks[:, 4:] >> 4]
    if high_first:
        codes.reverse()
    together = (
        np.stack(codes, -1).reshape(-1, 32) if in_turn else np.concatenate(codes, -1)
    )
    return scale * (together.astype(np.float32) - centre) + minimum * low


ONE_BLOCK = np.concatenate(
    [
        np.array([0.5, -4.0], np.float16).view(np.uint8),
        np.arange(16, dtype=np.uint8) * 16 + np.arange(16, dtype=np.uint8)[::-1],
    ]
)[None]

dequantise = Exercise(11,
    "dequantise(blocks): 32 weights of each block of 20 bytes: scale and minimum (each two bytes, float16, the low "
    "byte first), then 16 bytes with the codes of weights 0 to 15 in the low and of 16 to 31 in the high four bits; "
    "(b, 20) of uint8 → (b, 32) of float32",
    read_blocks, [(ONE_BLOCK,), (blocks(1),), (blocks(3),), (blocks(7),)], tolerance=1e-3)  # fmt: skip
dequantise.knows(
    ("scale and minimum swapped", dict(swapped=True),
     "You take the minimum for the scale. The scale stands first: bytes 0 and 1; the minimum is bytes 2 and 3."),
    ("high codes first", dict(high_first=True),
     "You put the high four bits first. Weights 0 to 15 are in the low bits, byte & 15; weights 16 to 31 in byte >> "
     "4."),
    ("two codes of a byte side by side", dict(in_turn=True),
     "You put the two codes of a byte next to each other. In this format byte j holds weight j and weight j + 16: join "
     "all the low codes, then all the high ones."),
    by_hand=read_blocks,
)  # fmt: skip
