"""Chapter 3, second part: masks, which say who may see whom."""

import numpy as np

import attn_tutor.numpy as an
from attn_tutor.check.chapters.inputs import Array
from attn_tutor.check.exercise import Exercise

causal_mask = Exercise(
    3,
    "causal_mask(n, m): True where query i of n may see key j of m, the last query every key; → (n, m)",
    an.causal_mask,
    [(2, 2), (2, 3), (3, 2), (3, 3), (5, 7), (7, 5)],
)


@causal_mask.mistake("aligned upper left")
def _(n: int, m: int) -> Array:
    """For n = m you are right. With n ≠ m your first query stands at the first key; decoding with a cache asks for the
    *last* n of m tokens, so the last query must see every key: j ≤ i + m − n."""
    return np.tri(n, m, dtype=bool)


@causal_mask.mistake("a token does not see itself")
def _(n: int, m: int) -> Array:
    """Your diagonal is False: a token does not see itself, and the first one sees nothing. It is ≤, not <."""
    return np.tri(n, m, m - n - 1, dtype=bool)


@causal_mask.mistake("fails for more queries than keys")
def _(n: int, m: int) -> Array:
    """You cut the last n rows out of a square mask of m tokens. With n > m there are not so many; compare numbers,
    j ≤ i + m − n, and the first n − m queries see nothing."""
    return np.tri(m, dtype=bool)[-n:]


@causal_mask.mistake("the first rows of a square mask")
def _(n: int, m: int) -> Array:
    """You cut the first n rows out of a square mask of m tokens. The queries are the *last* n of them, so that the last
    query sees every key (and with n > m there are not so many rows): j ≤ i + m − n."""
    return np.tri(m, dtype=bool)[:n]


@causal_mask.mistake("one token ahead")
def _(n: int, m: int) -> Array:
    """Each query sees one key too many, the next one: in training, the answer. Shift the diagonal back by one."""
    return np.tri(n, m, m - n + 1, dtype=bool)


@causal_mask.mistake("inverted mask")
def _(n: int, m: int) -> Array:
    """Your True marks what is forbidden. Here True means "may attend": turn it round with ~."""
    return ~np.tri(n, m, m - n, dtype=bool)


@causal_mask.mistake("the future in place of the past")
def _(n: int, m: int) -> Array:
    """Each query sees itself and what comes after it: you kept the upper triangle (triu). The past is the lower one,
    tril, as rows are queries."""
    return np.tri(m, n, n - m, dtype=bool).T


@causal_mask.mistake("keys by queries")
def _(n: int, m: int) -> Array:
    """Your shape is (m, n). Rows are queries and columns are keys: (n, m)."""
    return an.causal_mask(m, n)


@causal_mask.mistake("a token does not see itself")
def _(n: int, m: int) -> Array:
    """Your diagonal is False: a token does not see itself, and the first one sees nothing. It is ≤, not <. (And for
    n ≠ m the last query must see every key: j ≤ i + m − n.)"""
    return np.tri(n, m, -1, dtype=bool)


@causal_mask.mistake("one token ahead")
def _(n: int, m: int) -> Array:
    """For n = m each query sees the key after its own: in training, the answer. Shift the diagonal back by one. (And
    for n ≠ m the last query must see every key: j ≤ i + m − n.)"""
    return np.tri(n, m, 1, dtype=bool)


@causal_mask.mistake("inverted mask")
def _(n: int, m: int) -> Array:
    """Your True marks what is forbidden. Here True means "may attend": turn it round with ~. (And for n ≠ m the last
    query must see every key: j ≤ i + m − n.)"""
    return ~np.tri(n, m, dtype=bool)


@causal_mask.mistake("the future in place of the past")
def _(n: int, m: int) -> Array:
    """You kept the upper triangle (triu), so that each query sees itself and what comes after. The past is the lower
    one, tril, as rows are queries. (And for n ≠ m the last query must see every key: j ≤ i + m − n.)"""
    return np.tri(m, n, dtype=bool).T


padding_mask = Exercise(
    3,
    "padding_mask(valid_lens, m): True for the first valid_lens[b] of m keys; (b,) → (b, 1, m)",
    an.padding_mask,
    [
        (np.array([1, 3]), 3),
        (np.array([0, 2]), 2),
        (np.array([5, 3, 1]), 7),
    ],
)
left_padding_mask = Exercise(
    3,
    "left_padding_mask(lengths, m): True for the last lengths[b] of m keys; (b,) → (b, 1, m)",
    lambda lengths, m: np.arange(m) >= m - lengths[:, None, None],
    [
        (np.array([1, 3]), 3),
        (np.array([0, 2]), 2),
        (np.array([5, 3, 1]), 7),
    ],
)


@padding_mask.mistake("one key too many")
def _(valid_lens: Array, m: int) -> Array:
    """Each sequence sees one blank. Positions start at 0, so a length of 2 permits 0 and 1: <, not ≤."""
    return np.arange(m) <= valid_lens[:, None, None]


@padding_mask.mistake("inverted mask")
def _(valid_lens: Array, m: int) -> Array:
    """Your True marks the blanks, as in nn.MultiheadAttention's key_padding_mask. Here True means "may attend"."""
    return np.arange(m) >= valid_lens[:, None, None]


@padding_mask.mistake("padding on the left")
def _(valid_lens: Array, m: int) -> Array:
    """You permit the *last* keys. Here words come first and blanks after."""
    return np.arange(m) >= m - valid_lens[:, None, None]


@left_padding_mask.mistake("no axis for the queries")
@padding_mask.mistake("no axis for the queries")
def _(valid_lens: Array, m: int) -> Array:
    """Your shape is (b, m). Scores have the shape (b, n, m), and (b, m) would be read as queries by keys: put an axis
    between, (b, 1, m)."""
    return np.arange(m) < valid_lens[:, None]


@left_padding_mask.mistake("padding on the right")
def _(lengths: Array, m: int) -> Array:
    """You permit the *first* keys. Here blanks come first and words after: compare with m − length."""
    return np.arange(m) < lengths[:, None, None]


@left_padding_mask.mistake("a length of 0")
def _(lengths: Array, m: int) -> Array:
    """You are right but for a sequence of length 0: the slice [-0:] is all of it, not nothing. Compare numbers:
    arange(m) >= m − length."""
    mask = np.zeros((len(lengths), 1, m), bool)
    for row, length in zip(mask, lengths, strict=True):
        row[:, -length:] = True
    return mask


@left_padding_mask.mistake("one key too few")
def _(lengths: Array, m: int) -> Array:
    """The first word is forbidden. It stands at position m − length: ≥, not >."""
    return np.arange(m) > m - lengths[:, None, None]


@left_padding_mask.mistake("inverted mask")
def _(lengths: Array, m: int) -> Array:
    """Your True marks the blanks. Here True means "may attend"."""
    return np.arange(m) < m - lengths[:, None, None]


window_mask = Exercise(
    3,
    "window_mask(n, width): True where query i sees key j, itself and the width − 1 tokens before it; → (n, n)",
    lambda n, width: np.tri(n, dtype=bool) & ~np.tri(n, k=-width, dtype=bool),
    [(3, 1), (3, 2), (5, 3), (2, 5), (11, 5)],
)


@window_mask.mistake("one token too many")
def _(n: int, width: int) -> Array:
    """Your window is width + 1 wide. The query itself counts: width − 1 tokens before it."""
    return np.tri(n, dtype=bool) & ~np.tri(n, k=-width - 1, dtype=bool)


@window_mask.mistake("a token does not see itself")
def _(n: int, width: int) -> Array:
    """Your diagonal is False. The window starts with the query's own token."""
    return np.tri(n, k=-1, dtype=bool) & ~np.tri(n, k=-width, dtype=bool)


@window_mask.mistake("a window to both sides")
def _(n: int, width: int) -> Array:
    """Your window reaches into the future as far as into the past. It should look back only: j ≤ i."""
    return np.tri(n, k=width - 1, dtype=bool) & ~np.tri(n, k=-width, dtype=bool)


@window_mask.mistake("inverted mask")
def _(n: int, width: int) -> Array:
    """Your True marks what is forbidden. Here True means "may attend"."""
    return ~np.tri(n, dtype=bool) | np.tri(n, k=-width, dtype=bool)
