"""Chapter 11: what one measures on the heads of a trained model, and how its weights lie in the file."""

import numpy as np

import attn_tutor.numpy as an
from attn_tutor.check.chapters.inputs import Array, numbers
from attn_tutor.check.exercise import Exercise, Function

draw = numbers(11)


def causal_weights(*shape: int) -> Array:
    """Random weights of heads under a causal mask, (…, n, n)."""
    return an.masked_softmax(2 * draw(*shape), an.causal_mask(shape[-1]))


def mean_of_later(A: Array, *, itself: int = 0, of_all: bool = False) -> Array:
    """For each key the mean over its later queries."""
    n = A.shape[-1]
    count = np.full(n, n) if of_all else n - 1 - np.arange(n) + itself
    return np.tril(A, itself - 1).sum(-2) / np.maximum(1, count)


received_weight = Exercise(11, "received_weight(A): for each key the mean weight that the queries after it give to it; "
    "0 for the last key; (…, n, n) → (…, n)",
    mean_of_later, [(np.array([[1.0, 0], [0.75, 0.25]]),), (np.array([[1.0, 0, 0], [0.5, 0.5, 0], [0.25, 0.25, 0.5]]),),
        (causal_weights(3, 5, 5),), (causal_weights(2, 3, 7, 7),)],
    ("a token's weight on itself counted", dict(itself=1),
     "You count the diagonal: token 0 gives itself 1, and looks like a sink. Take later queries, A[..., j + 1:, j]."),
    ("divided by n for all keys", dict(of_all=True),
     "You divide each sum by n. Later keys are seen by fewer queries: divide by their number, n − 1 − j."))  # fmt: skip


def on_what_came_next(A: Array, ids: Array, *, after: int = 1, queries: Function = np.any) -> Array:  # fmt: skip
    """Weight on the tokens after earlier copies."""
    n = len(ids)
    same = (ids[:, None] == ids) & np.tri(n, k=-1, dtype=bool)
    there = np.pad(same, ((0, 0), (after, 0)))[:, :n]
    return np.asarray((A * there).sum(-1)[..., queries(same, axis=-1)].mean(-1))


prefix_matching_score = Exercise(11,
    "prefix_matching_score(A, ids): of the queries whose token has stood before, the mean of their total weight on the "
    "tokens that came right after its earlier copies, the query itself included; (…, n, n), (n,) → (…)",
    on_what_came_next, [(causal_weights(2, 3, 3), np.array([5, 2, 5])),
        (causal_weights(3, 7, 7), np.array([4, 7, 4, 9, 7, 4, 4])),
        (causal_weights(2, 3, 11, 11), np.array([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]))],
    ("the earlier copies themselves", dict(after=0),
     "You take the earlier copies themselves, as a duplicate-token head does. Take what came right after: keys j + 1."),
    ("all queries counted", dict(queries=lambda same, axis: slice(None)),
     "You average over all queries. Take those with an earlier copy: others have nothing to look for."))  # fmt: skip


def switched_off(O: Array, W_o: Array, off: list[int], *, turn: bool = False) -> Array:
    """The heads' outputs merged and projected, with some of them zero."""
    O = np.where(np.isin(np.arange(len(O)), off, invert=not turn)[:, None, None], O, 0)
    return an.merge_heads(O) @ W_o


without_heads = Exercise(11,
    "without_heads(O, W_o, off): what a layer writes when the heads in the list off are switched off: their outputs "
    "are 0, the others merged and projected as ever; (h, n, d_h), (h·d_h, d), list → (n, d)",
    switched_off, lambda draw: [(np.array([[[1.0]], [[2.0]]]), np.array([[3.0], [5.0]]), [0]),
        (draw(3, 5, 2), draw(6, 7), [1]), (draw(5, 2, 3), draw(15, 11), [0, 3]), (draw(2, 3, 5), draw(10, 7), [])],
    ("the sum of the heads switched off",
     lambda O, W_o, off: (X := an.merge_heads(np.delete(O, off, axis=0))) @ W_o[: X.shape[-1]],
     "You drop heads from the array and take the first rows of W_o for the rest. Each has rows of its own: set to 0."),
    ("only those kept", dict(turn=True),
     "You keep the heads of the list and switch off all others. It is the other way round."))  # fmt: skip


def blocks(n: int) -> Array:
    """Blocks of Q4_1 as they lie in a file: scale and minimum in half precision, then 16 bytes of two codes."""
    halves = np.stack([0.05 + 0.1 * draw(n) ** 2, draw(n) - 1], -1).astype(np.float16)
    codes = (7 * np.abs(draw(n, 16)) * 31).astype(np.uint8)
    return np.concatenate([halves.view(np.uint8), codes], -1)


def half(x: Array) -> Array:
    return np.ascontiguousarray(x).view(np.float16).astype(np.float32)


def read_blocks(blocks: Array, *, swapped: bool = False, order: int = 1, axis: int = -2) -> Array:  # fmt: skip
    """Dequantise blocks of Q4_1; the codes of low bits and of high bits lie beside each other along an axis."""
    scale, low = half(blocks[:, :2]), half(blocks[:, 2:4])
    codes = np.stack([blocks[:, 4:] & 15, blocks[:, 4:] >> 4][::order], axis)
    together = codes.reshape(-1, 32).astype(np.float32)
    return low * together + scale if swapped else scale * together + low


RISING = np.arange(16, dtype=np.uint8)
ONE_BLOCK = np.array([0.5, -4.0], np.float16).view(np.uint8), RISING * 16 + RISING[::-1]

dequantise = Exercise(11, "dequantise(blocks): 32 weights of each block of 20 bytes: scale and minimum (each two "
    "bytes, float16, the low byte first), then 16 bytes with the codes of weights 0 to 15 in the low and of 16 to 31 "
    "in the high four bits; (b, 20) of uint8 → (b, 32) of float32",
    read_blocks, [(np.hstack(ONE_BLOCK)[None],), (blocks(1),), (blocks(3),), (blocks(7),)],
    ("scale and minimum swapped", dict(swapped=True),
     "You take the minimum for the scale. The scale stands first: bytes 0 and 1; the minimum is bytes 2 and 3."),
    ("high codes first", dict(order=-1),
     "You put the high four bits first. Weights 0 to 15 are in the low bits, byte & 15; the others in byte >> 4."),
    ("two codes of a byte side by side", dict(axis=-1),
     "You put a byte's two codes side by side. Byte j holds weights j and j + 16: all low codes, then all high ones."),
    tolerance=1e-3)  # fmt: skip
