"""Chapter 5: the width of a token cut into heads, and the whole layer."""

from typing import Any

import numpy as np

import attn_tutor.numpy as an
from attn_tutor.check.chapters.inputs import Array, numbers, pool, pooling
from attn_tutor.check.exercise import Exercise, Function, Row

draw = numbers(5)
ROWS = np.array([[1.0, 2, 3, 4], [5, 6, 7, 8]])
FLAT = [(ROWS, 2), (draw(5, 6), 3), (draw(7, 6), 2)]


def cut(X: Array, h: int) -> Array:
    return X.reshape(*X.shape[:-2], h, X.shape[-2], -1)


def glue(X: Array) -> Array:
    return X.reshape(*X.shape[:-3], X.shape[-2], -1)


def deal(X: Array, h: int) -> Array:
    return np.stack([X[..., i::h] for i in range(h)], -3)


SPLITTING: list[Row] = [
    ("reshaped in place of transposed", cut,
     "A reshape to (h, n, d_h) cuts the *rows*: a head holds whole tokens. Reshape to (n, h, d_h), and swap two axes."),
    ("every h-th column", deal,
     "Your head takes every h-th column. A head is a block of columns side by side: reshape to (n, h, d_h)."),
    ("heads after tokens", lambda X, n_heads: X.reshape(*X.shape[:-1], n_heads, -1),
     "Your shape is (n, h, d_h). Heads stand before tokens, as attention works on the last two axes: swap them."),
    ("n_heads taken for the width of a head", lambda X, n_heads: an.split_heads(X, X.shape[-1] // n_heads),
     "Your heads are n_heads wide. n_heads is how many there are; each is d / n_heads wide."),
]  # fmt: skip
split = Exercise(5, "split(X, n_heads): the columns cut into heads, without a transpose; (n, d) → (h, n, d/h)",
    an.split_heads, FLAT, *SPLITTING)  # fmt: skip
split_heads = Exercise(5,
    "split_heads(X, n_heads): the columns cut into heads, heads before tokens; (…, n, d) → (…, h, n, d/h)",
    an.split_heads, lambda draw: [*FLAT, (draw(5, 6).astype(np.float32), 3), (draw(3, 5, 14), 2)],
    *SPLITTING)  # fmt: skip

merge_heads = Exercise(5, "merge_heads(X): the heads of each token side by side again; (…, h, n, d_h) → (…, n, h·d_h)",
    an.merge_heads, lambda draw: [
        (an.split_heads(ROWS, 2),), (draw(3, 5, 2),), (draw(3, 5, 2).astype(np.float32),), (draw(2, 3, 5, 7),)],
    ("reshaped without moving the heads back", glue,
     "Memory still holds head after head, so that your rows mix tokens. Swap heads and tokens first, then reshape."),
    ("heads averaged or added", [lambda X: X.mean(-3), lambda X: X.sum(-3)],
     "You average the heads, or add them, and their differences are lost. They stand side by side: width h·d_h."),
    ("heads below one another", lambda X: X.reshape(*X.shape[:-3], -1, X.shape[-1]),
     "You put the tokens of all heads below one another, (h·n, d_h). A token's heads stand side by side."))  # fmt: skip


# The whole layer, of which each mistake changes one part.
def layer(*everything: Any, merge: Function = an.merge_heads, last: Function = np.asarray, heads: int = 0,
          narrow: bool = False, **options: Any) -> Array:  # fmt: skip
    *rest, W_o, n_heads = everything
    if narrow:
        options["width"] = lambda Q, K, V: Q.shape[-1] / n_heads
    return np.asarray(merge(heads_of(*rest, heads or n_heads, **options)) @ last(W_o))


def heads_of(*everything: Any, split: Function = an.split_heads, project: Function = np.matmul,
             **options: Any) -> Array:  # fmt: skip
    Q, K, V, W_q, W_k, W_v, n_heads = everything
    pairs = (Q, W_q), (K, W_k), (V, W_v)
    return pool(*(split(project(X, W), n_heads) for X, W in pairs), **options)


def of_itself(fn: Function) -> Function:
    """The same with queries, keys and values from one sequence."""
    return lambda X, *rest, **options: fn(X, X, X, *rest, **options)


SQUARE = draw(4, 6, 6) / 6**0.5

LAYER: list[Row] = [
    *pooling("no √d", "d in place of √d", "softmax over queries"),
    ("softmax over the heads", dict(axis=-3),
     "Your softmax runs over the axis of the heads. Heads do not compete for a key: it runs over keys, axis −1."),
    ("reshaped in place of transposed", dict(split=cut),
     "A reshape to (h, n, d_h) cuts the *rows*: a head holds whole tokens. Reshape to (n, h, d_h), and swap two axes."),
    ("every h-th column", dict(split=deal),
     "Your head takes every h-th column. A head is a block of columns side by side: reshape to (n, h, d_h)."),
    ("merged without moving the heads back", dict(merge=glue),
     "You split rightly, but merge by a reshape alone, so that rows mix tokens. Swap heads and tokens back first."),
    ("heads in the reverse order", dict(merge=lambda X: an.merge_heads(X[..., ::-1, :, :])),
     "Your heads come back in reverse order, and meet other rows of W_o. Merge them in the order of the split."),
    ("heads averaged or added", [dict(merge=lambda X, mean=mean: np.concatenate([mean(X, -3)] * X.shape[-3], -1))
                                 for mean in (np.mean, np.sum)],
     "You average what the heads found, or add it up, which loses what they are for. Put them side by side."),
    ("W.T in place of W", [dict(project=lambda X, W: X @ W.T, last=lambda W: W.T), dict(project=lambda X, W: X @ W.T)],
     "You multiply by W.T, as linear layers of torch do: a head gets rows of W. Here it owns columns of it: X @ W_q."),
    ("√ of the model's width", dict(width=lambda Q, K, V: Q.shape[-1] * Q.shape[-3]),
     "You divide by √d_model: weights are too flat. A head's dot product runs over its own width, d_model / n_heads."),
    ("√ of the number of heads", dict(width=lambda Q, K, V: Q.shape[-3]),
     "You divide the scores by the root of the number of heads. A head's dot product runs over its own width: √d_h."),
    ("one head in place of several", [dict(heads=1), dict(heads=1, narrow=True)],
     "You do not split: one head as wide as all attends with all columns. Cut queries, keys and values into heads."),
]  # fmt: skip
multi_head_attention = Exercise(5, "multi_head_attention(Q, K, V, W_q, W_k, W_v, W_o, n_heads): project, split, attend "
    "in each head, merge, project; (…, n, d_q), (…, m, d_k), (…, m, d_v), … → (…, n, d_o)",
    layer, lambda draw: [(*draw(3, 2, 6), *SQUARE, 2),
        (draw(3, 5), draw(7, 11), draw(7, 13), draw(5, 6) / 2, draw(11, 6) / 3) + (draw(13, 6) / 3, draw(6, 17) / 2, 3),
        (draw(2, 3, 6), draw(2, 7, 6), draw(2, 7, 6), *SQUARE, 3),
        (90 * draw(2, 6), 90 * draw(3, 6), draw(3, 6), *SQUARE, 2)], *LAYER)  # fmt: skip
multi_head = Exercise(5,
    "multi_head(X, W_q, W_k, W_v, W_o, n_heads): multi-head self-attention, no loop over heads; (n, d), … → (n, d_o)",
    of_itself(layer), lambda draw: [
        (draw(2, 6), *SQUARE, 2), (draw(5, 6), *SQUARE, 3), (draw(7, 6), *SQUARE, 2), (90 * draw(2, 6), *SQUARE, 2)],
    *LAYER)  # fmt: skip


def shares(*everything: Any, block: Function = lambda W_o, h: W_o.reshape(h, -1, W_o.shape[-1])) -> Array:  # fmt: skip
    *rest, W_o, n_heads = everything
    return heads_of(*rest, n_heads) @ block(W_o, n_heads)


contributions = Exercise(5, "contributions(Q, K, V, W_q, W_k, W_v, W_o, n_heads): what each head adds to the output, "
    "its O W_o; (…, n, d_q), (…, m, d_k), (…, m, d_v), … → (…, h, n, d_o)",
    shares, multi_head_attention.cases,
    ("the first rows of W_o for every head", dict(block=lambda W_o, h: W_o[: len(W_o) // h]),
     "You multiply every head by the first rows of W_o. Each has its own block: head i the rows from i·d_h on."),
    ("summed over the heads", lambda *everything: an.multi_head_attention(*everything),
     "You add the heads up, to the output of the layer. Keep the axis of the heads: (…, h, n, d_o)."))  # fmt: skip
