"""Chapter 5: the width of a token cut into heads, and the whole layer."""

from collections.abc import Callable
from typing import Any

import numpy as np

import attn_tutor.numpy as an
from attn_tutor.check.chapters.inputs import POOLING, Array, numbers, pool, pooling
from attn_tutor.check.exercise import Exercise, Row

draw = numbers(5)
ROWS = np.array([[1.0, 2, 3, 4], [5, 6, 7, 8]])
FLAT = [(ROWS, 2), (draw(5, 6), 3), (draw(7, 6), 2)]

split_heads = Exercise(5,
    "split_heads(X, n_heads): the columns cut into heads, heads before tokens; (…, n, d) → (…, h, n, d/h)",
    an.split_heads, lambda draw: [*FLAT, (draw(5, 6).astype(np.float32), 3), (draw(3, 5, 14), 2)])  # fmt: skip

split = Exercise(5, "split(X, n_heads): the columns cut into heads, without a transpose; (n, d) → (h, n, d/h)",
    an.split_heads, FLAT)  # fmt: skip


def reshaped_in_place_of_transposed(X: Array, n_heads: int) -> Array:
    *batch, n, d = X.shape
    return X.reshape(*batch, n_heads, n, d // n_heads)


SPLITTING: list[Row] = [
    ("reshaped in place of transposed", reshaped_in_place_of_transposed,
     "The shape is right, the numbers are not: a reshape to (h, n, d_h) cuts the *rows*, so that a head holds a few "
     "whole tokens. Reshape to (n, h, d_h) first, then swap the first two axes."),
    ("every h-th column", lambda X, n_heads: np.stack([X[..., i::n_heads] for i in range(n_heads)], -3),
     "Your head takes every h-th column. A head is a block of columns that stand side by side: the reshape is (n, h, "
     "d_h), not (n, d_h, h)."),
    ("heads after tokens", lambda X, n_heads: X.reshape(*X.shape[:-1], n_heads, -1),
     "Your shape is (n, h, d_h). The heads axis stands before the tokens axis, so that attention, which works on the "
     "last two axes, sees tokens by width: swap them."),
    ("n_heads taken for the width of a head", lambda X, n_heads: an.split_heads(X, X.shape[-1] // n_heads),
     "Your heads are n_heads wide. n_heads is how many there are; each is d / n_heads wide."),
]  # fmt: skip
split.knows(*SPLITTING)
split_heads.knows(*SPLITTING)

merge_heads = Exercise(5, "merge_heads(X): the heads of each token side by side again; (…, h, n, d_h) → (…, n, h·d_h)",
    an.merge_heads, lambda draw: [
        (an.split_heads(ROWS, 2),), (draw(3, 5, 2),), (draw(3, 5, 2).astype(np.float32),), (draw(2, 3, 5, 7),)
    ])  # fmt: skip


def reshaped_without_moving_the_heads_back(X: Array) -> Array:
    *batch, h, n, d_h = X.shape
    return X.reshape(*batch, n, h * d_h)


def heads_interleaved(X: Array) -> Array:
    *batch, h, n, d_h = X.shape
    return np.moveaxis(X, -3, -1).reshape(*batch, n, h * d_h)


def heads_below_one_another(X: Array) -> Array:
    *batch, h, n, d_h = X.shape
    return X.reshape(*batch, h * n, d_h)


merge_heads.knows(
    ("reshaped without moving the heads back", reshaped_without_moving_the_heads_back,
     "The shape is right, the numbers are not: memory still holds head after head, so that your rows mix tokens. Swap "
     "heads and tokens first, then reshape."),
    ("heads averaged", lambda X: X.mean(-3),
     "You average the heads, and their differences are lost. They stand side by side: width h·d_h."),
    ("heads added", lambda X: X.sum(-3),
     "You add the heads up, and their differences are lost. They stand side by side: width h·d_h."),
    ("heads interleaved", heads_interleaved,
     "Your columns go round the heads: first entry of each, second of each. The whole first head comes first."),
    ("heads below one another", heads_below_one_another,
     "You put the tokens of all heads below one another, (h·n, d_h). A token's heads stand side by side."),
)  # fmt: skip

# The whole layer, of which each mistake changes one part.
Split = Callable[[Array, int], Array]


def layer(*everything: Any, merge: Callable[[Array], Array] = an.merge_heads,
          last: Callable[[Array], Array] = lambda W: W, **options: Any) -> Array:  # fmt: skip
    *rest, W_o, n_heads = everything
    return merge(heads_of(*rest, n_heads, **options)) @ last(W_o)


def heads_of(*everything: Any, split: Split = an.split_heads, project: Callable[[Array, Array], Array] = np.matmul,
             **options: Any) -> Array:  # fmt: skip
    Q, K, V, W_q, W_k, W_v, n_heads = everything
    pairs = (Q, W_q), (K, W_k), (V, W_v)
    return pool(*(split(project(X, W), n_heads) for X, W in pairs), **options)


def of_itself(fn: Callable[..., Array]) -> Callable[..., Array]:
    """The same with queries, keys and values from one sequence."""

    def on(X: Array, *rest: Any, **options: Any) -> Array:
        return fn(X, X, X, *rest, **options)

    return on


SQUARE = draw(4, 6, 6) / 6**0.5

multi_head_attention = Exercise(5,
    "multi_head_attention(Q, K, V, W_q, W_k, W_v, W_o, n_heads): project, split, attend in each head, merge, project; "
    "(…, n, d_q), (…, m, d_k), (…, m, d_v), … → (…, n, d_o)",
    an.multi_head_attention, lambda draw: [
        (*draw(3, 2, 6), *SQUARE, 2),
        (draw(3, 5), draw(7, 11), draw(7, 13), draw(5, 6) / 2, draw(11, 6) / 3) + (draw(13, 6) / 3, draw(6, 17) / 2, 3),
        (draw(2, 3, 6), draw(2, 7, 6), draw(2, 7, 6), *SQUARE, 3),
        (90 * draw(2, 6), 90 * draw(3, 6), draw(3, 6), *SQUARE, 2)
    ])  # fmt: skip

multi_head = Exercise(
    5,
    "multi_head(X, W_q, W_k, W_v, W_o, n_heads): multi-head self-attention, no loop over heads; (n, d), … → (n, d_o)",
    of_itself(an.multi_head_attention),
    lambda draw: (
        [(draw(2, 6), *SQUARE, 2), (draw(5, 6), *SQUARE, 3), (draw(7, 6), *SQUARE, 2)]
        + [(90 * draw(2, 6), *SQUARE, 2)]
    ),
)


COMMON = [
    x for x in POOLING if x[:11] not in ("√ of the va", "√ of the nu", "softmax ove")
]
COMMON += ["softmax over queries"]


def cut(X: Array, h: int) -> Array:
    return X.reshape(*X.shape[:-2], h, X.shape[-2], -1)


def glue(X: Array) -> Array:
    return X.reshape(*X.shape[:-3], X.shape[-2], -1)


def deal(X: Array, h: int) -> Array:
    return np.stack([X[..., i::h] for i in range(h)], -3)


def w_o_missing(*everything: Any) -> Array:
    Q, K, V, W_q, W_k, W_v, W_o, h = everything
    return layer(Q, K, V, W_q, W_k, W_v, np.eye(W_v.shape[-1]), h)


def heads_averaged(*everything: Any) -> Array:
    *others, W_o, h = everything
    eye = np.eye(others[-1].shape[-1] // h)
    return layer(*others, eye, h, merge=lambda X: X.mean(-3))


def one_head_in_place_of_several(*everything: Any) -> Array:
    Q, K, V, W_q, W_k, W_v, W_o, h = everything
    d = W_q.shape[-1] // h
    return pool(Q @ W_q, K @ W_k, V @ W_v, width=lambda *_: d) @ W_o


LAYER: list[Row] = [
    *pooling(*COMMON),
    ("a causal mask", dict(hide=lambda S: np.where(an.causal_mask(*S.shape[-2:]), S, -np.inf)),
     "You hide later tokens from each token. No mask is asked for here: every token sees all."),
    ("softmax over the heads", dict(axis=-3),
     "Your softmax runs over the axis of the heads: with heads in front of tokens that is axis −3, or 0, or 1 in a "
     "batch. Heads do not compete for a key; softmax runs over keys, axis −1."),
    ("reshaped in place of transposed", dict(split=cut),
     "You reshape to (h, n, d_h) directly, which cuts the rows: a head holds a few whole tokens. Reshape to (n, h, "
     "d_h) first, then swap the first two axes."),
    ("heads in the reverse order", dict(merge=lambda X: an.merge_heads(X[..., ::-1, :, :])),
     "Your heads come back in another order: the first of W_q, W_k and W_v meets the last rows of W_o. Merge them in "
     "the order in which they were split."),
    ("heads averaged", dict(merge=lambda X: np.concatenate([X.mean(-3)] * X.shape[-3], -1)),
     "You average what the heads found, which loses what they are for. Put them side by side, then project."),
    ("merged without moving the heads back", dict(merge=glue),
     "You split rightly, but merge (h, n, d_h) with a reshape alone, so that rows mix tokens. Swap heads and tokens "
     "back first."),
    ("every h-th column", dict(split=deal),
     "Your head i takes the columns i, i + h, … A head is a block of columns that stand side by side: the reshape is "
     "(n, h, d_h), not (n, d_h, h)."),
    ("W.T in place of W", dict(project=lambda X, W: X @ W.T, last=lambda W: W.T),
     "You multiply by W.T, all four of them. A linear layer of torch stores its matrix transposed and computes X @ "
     "W.T; here W_q has the shape (d_in, d): X @ W_q."),
    ("W.T in place of W", dict(project=lambda X, W: X @ W.T),
     "You project with W_q.T, W_k.T and W_v.T, so that a head gets rows of W and not columns. Tokens are rows and are "
     "multiplied from the right, X @ W_q: head i owns a block of *columns* of each projection, not rows of it."),
    ("W_o transposed", dict(last=lambda W: W.T),
     "You multiply the merged heads by W_o.T. They are rows and are multiplied from the right: @ W_o."),
    ("√ of the model's width", dict(width=lambda Q, K, V: Q.shape[-1] * Q.shape[-3]),
     "You divide the scores by √d_model. A head's dot product runs over its own width: √d_h, with d_h = d_model / "
     "n_heads. Yours are smaller by √h, so the weights are too flat."),
    ("√ of the number of heads", dict(width=lambda Q, K, V: Q.shape[-3]),
     "You divide the scores by the root of the number of heads. A head's dot product runs over its own width: √d_h."),
    ("heads summed", dict(merge=lambda X: np.concatenate([X.sum(-3)] * X.shape[-3], -1)),
     "You add up what the heads found, which loses what they are for. Put them side by side, then project."),
    ("W_o missing", w_o_missing,
     "You return the merged heads. The last projection is missing: @ W_o lets the output draw on all heads."),
    ("heads averaged", heads_averaged,
     "You average what the heads found, which loses what they are for. Put them side by side, then project."),
    ("one head in place of several", one_head_in_place_of_several,
     "You do not split: one head as wide as all attends with all columns. Cut queries, keys and values into heads, "
     "each with scores and weights of its own."),
    ("one head in place of several",
     lambda *everything: (lambda Q, K, V, W_q, W_k, W_v, W_o, _: pool(Q @ W_q, K @ W_k, V @ W_v) @ W_o)(*everything),
     "You do not split: one head as wide as all attends with all columns, and divides by the root of the whole width. "
     "Cut queries, keys and values into heads, each with scores and weights of its own."),
    ("K used for V",
     lambda *everything: (lambda Q, K, V, W_q, W_k, W_v, W_o, h: layer(Q, K, K, W_q, W_k, W_k, W_o, h))(*everything),
     "Your heads sum the projected keys: W_v is not used."),
]  # fmt: skip
multi_head_attention.knows(*LAYER, by_hand=layer)
multi_head.knows(
    *((name, of_itself(wrong) if callable(wrong) else wrong, words) for name, wrong, words in LAYER),
    by_hand=of_itself(layer),
)  # fmt: skip


def shares(*everything: Any) -> Array:
    Q, K, V, W_q, W_k, W_v, W_o, h = everything
    return heads_of(Q, K, V, W_q, W_k, W_v, h) @ W_o.reshape(h, -1, W_o.shape[-1])


contributions = Exercise(5,
    "contributions(Q, K, V, W_q, W_k, W_v, W_o, n_heads): what each head adds to the output, its O W_o; "
    "(…, n, d_q), (…, m, d_k), (…, m, d_v), … → (…, h, n, d_o)",
    shares, multi_head_attention.cases)  # fmt: skip


def first_rows_of_w_o_for_every_head(*everything: Any) -> Array:
    *others, W_o, h = everything
    heads = heads_of(*others, h)
    return heads @ W_o[: heads.shape[-1]]


def without_w_o(*everything: Any) -> Array:
    *others, _, h = everything
    return heads_of(*others, h)


contributions.knows(
    ("the first rows of W_o for every head", first_rows_of_w_o_for_every_head,
     "You multiply every head by the same rows of W_o, the first. Each has its own block: head i the rows from i·d_h "
     "on."),
    ("without W_o", without_w_o,
     "You return the heads before the last projection. What a head *adds* is O W_o, with its own rows of W_o."),
    ("summed over the heads", lambda *everything: an.multi_head_attention(*everything),
     "You add the heads up, which is the output of the layer. Keep the axis of the heads: (…, h, n, d_o)."),
)  # fmt: skip
