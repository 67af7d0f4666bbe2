"""Chapter 5: the width of a token cut into heads, and the whole layer."""

from collections.abc import Callable
from typing import Any

import numpy as np

import attn_tutor.numpy as an
from attn_tutor.check.chapters.inputs import POOLING, Array, add_pooling, numbers, pool
from attn_tutor.check.exercise import Exercise

draw = numbers(5)

ROWS = np.array([[1.0, 2, 3, 4], [5, 6, 7, 8]])
FLAT = [(ROWS, 2), (draw(5, 6), 3), (draw(7, 6), 2)]
split_heads = Exercise(
    5,
    "split_heads(X, n_heads): the columns cut into heads, heads before tokens; (…, n, d) → (…, h, n, d/h)",
    an.split_heads,
    [*FLAT, (draw(5, 6).astype(np.float32), 3), (draw(3, 5, 14), 2)],
)
split = Exercise(
    5,
    "split(X, n_heads): the columns cut into heads, without a transpose; (n, d) → (h, n, d/h)",
    an.split_heads,
    FLAT,
)


@split.mistake("reshaped in place of transposed")
@split_heads.mistake("reshaped in place of transposed")
def _(X: Array, n_heads: int) -> Array:
    """The shape is right, the numbers are not: a reshape to (h, n, d_h) cuts the *rows*, so that a head holds
    a few whole tokens. Reshape to (n, h, d_h) first, then swap the first two axes."""
    *batch, n, d = X.shape
    return X.reshape(*batch, n_heads, n, d // n_heads)


@split.mistake("every h-th column")
@split_heads.mistake("every h-th column")
def _(X: Array, n_heads: int) -> Array:
    """Your head takes every h-th column. A head is a block of columns that stand side by side: the reshape is
    (n, h, d_h), not (n, d_h, h)."""
    return np.stack([X[..., i::n_heads] for i in range(n_heads)], -3)


@split.mistake("heads after tokens")
@split_heads.mistake("heads after tokens")
def _(X: Array, n_heads: int) -> Array:
    """Your shape is (n, h, d_h). The heads axis stands before the tokens axis, so that attention, which works on
    the last two axes, sees tokens by width: swap them."""
    return X.reshape(*X.shape[:-1], n_heads, -1)


@split.mistake("n_heads taken for the width of a head")
@split_heads.mistake("n_heads taken for the width of a head")
def _(X: Array, n_heads: int) -> Array:
    """Your heads are n_heads wide. n_heads is how many there are; each is d / n_heads wide."""
    return an.split_heads(X, X.shape[-1] // n_heads)


merge_heads = Exercise(
    5,
    "merge_heads(X): the heads of each token side by side again; (…, h, n, d_h) → (…, n, h·d_h)",
    an.merge_heads,
    [
        (an.split_heads(ROWS, 2),),
        (draw(3, 5, 2),),
        (draw(3, 5, 2).astype(np.float32),),
        (draw(2, 3, 5, 7),),
    ],
)


@merge_heads.mistake("reshaped without moving the heads back")
def _(X: Array) -> Array:
    """The shape is right, the numbers are not: memory still holds head after head, so that your rows mix tokens.
    Swap heads and tokens first, then reshape."""
    *batch, h, n, d_h = X.shape
    return X.reshape(*batch, n, h * d_h)


@merge_heads.mistake("heads averaged")
def _(X: Array) -> Array:
    """You average the heads, and their differences are lost. They stand side by side: width h·d_h."""
    return X.mean(-3)


@merge_heads.mistake("heads added")
def _(X: Array) -> Array:
    """You add the heads up, and their differences are lost. They stand side by side: width h·d_h."""
    return X.sum(-3)


@merge_heads.mistake("heads interleaved")
def _(X: Array) -> Array:
    """Your columns go round the heads: first entry of each, second of each. The whole first head comes first."""
    *batch, h, n, d_h = X.shape
    return np.moveaxis(X, -3, -1).reshape(*batch, n, h * d_h)


@merge_heads.mistake("heads below one another")
def _(X: Array) -> Array:
    """You put the tokens of all heads below one another, (h·n, d_h). A token's heads stand side by side."""
    *batch, h, n, d_h = X.shape
    return X.reshape(*batch, h * n, d_h)


# The whole layer, of which each mistake changes one part.
Split = Callable[[Array, int], Array]


def layer(
    *everything: Any,
    merge: Callable[[Array], Array] = an.merge_heads,
    last: Callable[[Array], Array] = lambda W: W,
    **options: Any,
) -> Array:
    *rest, W_o, n_heads = everything
    return merge(heads_of(*rest, n_heads, **options)) @ last(W_o)


def heads_of(
    *everything: Any,
    split: Split = an.split_heads,
    project: Callable[[Array, Array], Array] = np.matmul,
    **options: Any,
) -> Array:
    Q, K, V, W_q, W_k, W_v, n_heads = everything
    pairs = (Q, W_q), (K, W_k), (V, W_v)
    return pool(*(split(project(X, W), n_heads) for X, W in pairs), **options)


def of_itself(fn: Callable[..., Array]) -> Callable[..., Array]:
    """The same with queries, keys and values from one sequence."""

    def on(X: Array, *rest: Any, **options: Any) -> Array:
        return fn(X, X, X, *rest, **options)

    on.__doc__ = fn.__doc__
    return on


SQUARE = draw(4, 6, 6) / 6**0.5
multi_head_attention = Exercise(
    5,
    "multi_head_attention(Q, K, V, W_q, W_k, W_v, W_o, n_heads): project, split, attend in each head, merge, project; "
    "(…, n, d_q), (…, m, d_k), (…, m, d_v), … → (…, n, d_o)",
    an.multi_head_attention,
    [
        (*draw(3, 2, 6), *SQUARE, 2),
        (draw(3, 5), draw(7, 11), draw(7, 13), draw(5, 6) / 2, draw(11, 6) / 3)
        + (draw(13, 6) / 3, draw(6, 17) / 2, 3),
        (draw(2, 3, 6), draw(2, 7, 6), draw(2, 7, 6), *SQUARE, 3),
        (90 * draw(2, 6), 90 * draw(3, 6), draw(3, 6), *SQUARE, 2),
    ],
)
multi_head = Exercise(
    5,
    "multi_head(X, W_q, W_k, W_v, W_o, n_heads): multi-head self-attention, no loop over heads; (n, d), … → (n, d_o)",
    of_itself(an.multi_head_attention),
    [(draw(2, 6), *SQUARE, 2), (draw(5, 6), *SQUARE, 3), (draw(7, 6), *SQUARE, 2)]
    + [(90 * draw(2, 6), *SQUARE, 2)],
)


def layer_mistake(
    name: str,
) -> Callable[[Callable[..., Array]], Callable[..., Array]]:
    """One mistake of both exercises."""

    def add(fn: Callable[..., Array]) -> Callable[..., Array]:
        multi_head.mistake(name)(of_itself(fn))
        multi_head_attention.mistake(name)(fn)
        return fn

    return add


def layer_variant(name: str, words: str, **changes: Any) -> None:
    multi_head.variant(of_itself(layer), name, words, **changes)
    multi_head_attention.variant(layer, name, words, **changes)


COMMON = [
    x for x in POOLING if x[:11] not in ("√ of the va", "√ of the nu", "softmax ove")
]
COMMON += ["softmax over queries"]
add_pooling(multi_head, of_itself(layer), *COMMON)
add_pooling(multi_head_attention, layer, *COMMON)
layer_variant(
    "a causal mask",
    "You hide later tokens from each token. No mask is asked for here: every token sees all.",
    hide=lambda S: np.where(an.causal_mask(*S.shape[-2:]), S, -np.inf),
)
layer_variant(
    "softmax over the heads",
    "Your softmax runs over the axis of the heads: with heads in front of tokens that is axis −3, or 0, or 1 in a "
    "batch. Heads do not compete for a key; softmax runs over keys, axis −1.",
    axis=-3,
)


def cut(X: Array, h: int) -> Array:
    return X.reshape(*X.shape[:-2], h, X.shape[-2], -1)


def glue(X: Array) -> Array:
    return X.reshape(*X.shape[:-3], X.shape[-2], -1)


def deal(X: Array, h: int) -> Array:
    return np.stack([X[..., i::h] for i in range(h)], -3)


def collect(X: Array) -> Array:
    return np.moveaxis(X, -3, -1).reshape(*X.shape[:-3], X.shape[-2], -1)


layer_variant(
    "reshaped in place of transposed",
    "You reshape to (h, n, d_h) directly, which cuts the rows: a head holds a few whole tokens. Reshape to (n, h, d_h) "
    "first, swap the first two axes, and swap them back before merging.",
    split=cut,
    merge=glue,
)
layer_variant(
    "reshaped in place of transposed",
    "You reshape to (h, n, d_h) directly, which cuts the rows: a head holds a few whole tokens. Reshape to (n, h, d_h) "
    "first, then swap the first two axes.",
    split=cut,
)
layer_variant(
    "heads in the reverse order",
    "Your heads come back in another order: the first of W_q, W_k and W_v meets the last rows of W_o. Merge them in "
    "the order in which they were split.",
    merge=lambda X: an.merge_heads(X[..., ::-1, :, :]),
)
layer_variant(
    "heads averaged",
    "You average what the heads found, which loses what they are for. Put them side by side, then project.",
    merge=lambda X: np.concatenate([X.mean(-3)] * X.shape[-3], -1),
)
layer_variant(
    "merged without moving the heads back",
    "You split rightly, but merge (h, n, d_h) with a reshape alone, so that rows mix tokens. Swap heads and tokens "
    "back first.",
    merge=glue,
)
layer_variant(
    "every h-th column",
    "Your head i takes the columns i, i + h, … A head is a block of columns that stand side by side: the reshape is "
    "(n, h, d_h), not (n, d_h, h).",
    split=deal,
)
layer_variant(
    "every h-th column",
    "Your head i takes the columns i, i + h, …, and gives them back there. A head is a block of columns that stand "
    "side by side: the reshape is (n, h, d_h), not (n, d_h, h).",
    split=deal,
    merge=collect,
)
layer_variant(
    "heads interleaved when merged",
    "You split rightly, but merge the heads like cards: first entry of each, second of each. They stand side by side, "
    "the whole first head in front.",
    merge=collect,
)
layer_variant(
    "W.T in place of W",
    "You multiply by W.T, all four of them. A linear layer of torch stores its matrix transposed and computes "
    "X @ W.T; here W_q has the shape (d_in, d): X @ W_q.",
    project=lambda X, W: X @ W.T,
    last=lambda W: W.T,
)
layer_variant(
    "W.T in place of W",
    "You project with W_q.T, W_k.T and W_v.T, so that a head gets rows of W and not columns. Tokens are rows and are "
    "multiplied from the right, X @ W_q: head i owns a block of *columns* of each projection, not rows of it.",
    project=lambda X, W: X @ W.T,
)
layer_variant(
    "W_o transposed",
    "You multiply the merged heads by W_o.T. They are rows and are multiplied from the right: @ W_o.",
    last=lambda W: W.T,
)
layer_variant(
    "√ of the model's width",
    "You divide the scores by √d_model. A head's dot product runs over its own width: √d_h, with d_h = d_model / "
    "n_heads. Yours are smaller by √h, so the weights are too flat.",
    width=lambda Q, K, V: Q.shape[-1] * Q.shape[-3],
)
layer_variant(
    "√ of the number of heads",
    "You divide the scores by the root of the number of heads. A head's dot product runs over its own width: √d_h.",
    width=lambda Q, K, V: Q.shape[-3],
)
layer_variant(
    "heads summed",
    "You add up what the heads found, which loses what they are for. Put them side by side, then project.",
    merge=lambda X: np.concatenate([X.sum(-3)] * X.shape[-3], -1),
)


@layer_mistake("W_o missing")
def _(*everything: Any) -> Array:
    """You return the merged heads. The last projection is missing: @ W_o lets the output draw on all heads."""
    Q, K, V, W_q, W_k, W_v, W_o, h = everything
    return layer(Q, K, V, W_q, W_k, W_v, np.eye(W_v.shape[-1]), h)


@layer_mistake("heads averaged")
def _(*everything: Any) -> Array:
    """You average what the heads found, which loses what they are for. Put them side by side, then project."""
    *others, W_o, h = everything
    eye = np.eye(others[-1].shape[-1] // h)
    return layer(*others, eye, h, merge=lambda X: X.mean(-3))


@layer_mistake("one head in place of several")
def _(*everything: Any) -> Array:
    """You do not split: one head as wide as all attends with all columns. Cut queries, keys and values into heads, each
    with scores and weights of its own."""
    Q, K, V, W_q, W_k, W_v, W_o, h = everything
    d = W_q.shape[-1] // h
    return pool(Q @ W_q, K @ W_k, V @ W_v, width=lambda *_: d) @ W_o


@layer_mistake("one head in place of several")
def _(*everything: Any) -> Array:
    """You do not split: one head as wide as all attends with all columns, and divides by the root of the whole width.
    Cut queries, keys and values into heads, each with scores and weights of its own."""
    Q, K, V, W_q, W_k, W_v, W_o, _ = everything
    return pool(Q @ W_q, K @ W_k, V @ W_v) @ W_o


@layer_mistake("weights averaged over the heads")
def _(*everything: Any) -> Array:
    """You average the weights of the heads and use them for all values, as one head would. Each head keeps its own
    weights."""
    Q, K, V, W_q, W_k, W_v, W_o, h = everything
    weights = an.multi_head_weights(Q, K, W_q, W_k, h).mean(-3)
    return weights @ (V @ W_v) @ W_o


@layer_mistake("split before projecting")
def _(*everything: Any) -> Array:
    """You cut the tokens into heads and project each piece with its own block of the matrices. Then a head sees only
    its slice of each token. Project the whole token first, then split."""
    Q, K, V, W_q, W_k, W_v, W_o, h = everything

    def blocks(X: Array, W: Array) -> Array:
        W = an.split_heads(W, h)  # (h, d, d_h)
        pieces = an.split_heads(X, h)  # (…, h, n, d/h)
        rows = np.split(np.arange(W.shape[-2]), h)
        own = np.stack([W[i, rows[i]] for i in range(h)])  # (h, d/h, d_h)
        return an.merge_heads(pieces @ own)

    projected = blocks(Q, W_q), blocks(K, W_k), blocks(V, W_v)
    eyes = (np.eye(X.shape[-1]) for X in projected)
    return layer(*projected, *eyes, W_o, h)


@layer_mistake("K used for V")
def _(*everything: Any) -> Array:
    """Your heads sum the projected keys: W_v is not used."""
    Q, K, V, W_q, W_k, W_v, W_o, h = everything
    return layer(Q, K, K, W_q, W_k, W_k, W_o, h)


def shares(*everything: Any) -> Array:
    Q, K, V, W_q, W_k, W_v, W_o, h = everything
    return heads_of(Q, K, V, W_q, W_k, W_v, h) @ W_o.reshape(h, -1, W_o.shape[-1])


contributions = Exercise(
    5,
    "contributions(Q, K, V, W_q, W_k, W_v, W_o, n_heads): what each head adds to the output, its O W_o; "
    "(…, n, d_q), (…, m, d_k), (…, m, d_v), … → (…, h, n, d_o)",
    shares,
    multi_head_attention.cases,
)


@contributions.mistake("W_o cut by columns")
def _(*everything: Any) -> Array:
    """You give each head a block of *columns* of W_o. The merged heads are multiplied from the left, so head i meets
    the i-th block of rows."""
    *others, W_o, h = everything
    heads = heads_of(*others, h)
    return heads @ an.split_heads(W_o, h).reshape(h, heads.shape[-1], -1)


@contributions.mistake("every h-th row of W_o")
def _(*everything: Any) -> Array:
    """You give head i the rows i, i + h, … of W_o. The heads stand side by side when merged, so that each owns a block
    of rows: reshape to (h, d_h, d_o)."""
    *others, W_o, h = everything
    return heads_of(*others, h) @ np.stack([W_o[i::h] for i in range(h)])


@contributions.mistake("the first rows of W_o for every head")
def _(*everything: Any) -> Array:
    """You multiply every head by the same rows of W_o, the first. Each has its own block: head i the rows from i·d_h
    on."""
    *others, W_o, h = everything
    heads = heads_of(*others, h)
    return heads @ W_o[: heads.shape[-1]]


@contributions.mistake("without W_o")
def _(*everything: Any) -> Array:
    """You return the heads before the last projection. What a head *adds* is O W_o, with its own rows of W_o."""
    *others, _, h = everything
    return heads_of(*others, h)


@contributions.mistake("summed over the heads")
def _(*everything: Any) -> Array:
    """You add the heads up, which is the output of the layer. Keep the axis of the heads: (…, h, n, d_o)."""
    return an.multi_head_attention(*everything)
