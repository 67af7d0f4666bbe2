"""Chapter 3, second part: masks, which say who may see whom."""

import numpy as np

import attn_tutor.numpy as an
from attn_tutor.check.chapters.inputs import Array
from attn_tutor.check.exercise import Exercise, Row

causal_mask = Exercise(3,
    "causal_mask(n, m): True where query i of n may see key j of m, the last query every key; → (n, m)",
    an.causal_mask, [(2, 2), (2, 3), (3, 2), (3, 3), (5, 7), (7, 5)])  # fmt: skip
causal_mask.knows(
    ("aligned upper left", lambda n, m: np.tri(n, m, dtype=bool),
     "For n = m you are right. With n ≠ m your first query stands at the first key; decoding with a cache asks for the "
     "*last* n of m tokens, so the last query must see every key: j ≤ i + m − n."),
    ("a token does not see itself", lambda n, m: np.tri(n, m, m - n - 1, dtype=bool),
     "Your diagonal is False: a token does not see itself, and the first one sees nothing. It is ≤, not <."),
    ("the first rows of a square mask", lambda n, m: np.tri(m, dtype=bool)[:n],
     "You cut the first n rows out of a square mask of m tokens. The queries are the *last* n of them, so that the "
     "last query sees every key (and with n > m there are not so many rows): j ≤ i + m − n."),
    ("one token ahead", lambda n, m: np.tri(n, m, m - n + 1, dtype=bool),
     "Each query sees one key too many, the next one: in training, the answer. Shift the diagonal back by one."),
    ("inverted mask", lambda n, m: ~np.tri(n, m, m - n, dtype=bool),
     'Your True marks what is forbidden. Here True means "may attend": turn it round with ~.'),
    ("the future in place of the past", lambda n, m: np.tri(m, n, n - m, dtype=bool).T,
     "Each query sees itself and what comes after it: you kept the upper triangle (triu). The past is the lower one, "
     "tril, as rows are queries."),
    ("keys by queries", lambda n, m: an.causal_mask(m, n),
     "Your shape is (m, n). Rows are queries and columns are keys: (n, m)."),
    ("a token does not see itself", lambda n, m: np.tri(n, m, -1, dtype=bool),
     "Your diagonal is False: a token does not see itself, and the first one sees nothing. It is ≤, not <. (And for n "
     "≠ m the last query must see every key: j ≤ i + m − n.)"),
    ("inverted mask", lambda n, m: ~np.tri(n, m, dtype=bool),
     'Your True marks what is forbidden. Here True means "may attend": turn it round with ~. (And for n ≠ m the last '
     "query must see every key: j ≤ i + m − n.)"),
)  # fmt: skip

padding_mask = Exercise(3, "padding_mask(valid_lens, m): True for the first valid_lens[b] of m keys; (b,) → (b, 1, m)",
    an.padding_mask, [(np.array([1, 3]), 3), (np.array([0, 2]), 2), (np.array([5, 3, 1]), 7)])  # fmt: skip

left_padding_mask = Exercise(3,
    "left_padding_mask(lengths, m): True for the last lengths[b] of m keys; (b,) → (b, 1, m)",
    lambda lengths, m: np.arange(m) >= m - lengths[:, None, None], [
        (np.array([1, 3]), 3), (np.array([0, 2]), 2), (np.array([5, 3, 1]), 7)
    ])  # fmt: skip
padding_mask.knows(
    ("one key too many", lambda valid_lens, m: np.arange(m) <= valid_lens[:, None, None],
     "Each sequence sees one blank. Positions start at 0, so a length of 2 permits 0 and 1: <, not ≤."),
    ("inverted mask", lambda valid_lens, m: np.arange(m) >= valid_lens[:, None, None],
     "Your True marks the blanks, as in nn.MultiheadAttention's key_padding_mask. Here True means \"may attend\"."),
)  # fmt: skip

AXES: list[Row] = [
    ("no axis for the queries", lambda valid_lens, m: np.arange(m) < valid_lens[:, None],
     "Your shape is (b, m). Scores have the shape (b, n, m), and (b, m) would be read as queries by keys: put an axis "
     "between, (b, 1, m)."),
]  # fmt: skip
left_padding_mask.knows(*AXES)
padding_mask.knows(*AXES)


def length_of_0(lengths: Array, m: int) -> Array:
    mask = np.zeros((len(lengths), 1, m), bool)
    for row, length in zip(mask, lengths, strict=True):
        row[:, -length:] = True
    return mask


left_padding_mask.knows(
    ("padding on the right", lambda lengths, m: np.arange(m) < lengths[:, None, None],
     "You permit the *first* keys. Here blanks come first and words after: compare with m − length."),
    ("a length of 0", length_of_0,
     "You are right but for a sequence of length 0: the slice [-0:] is all of it, not nothing. Compare numbers: "
     "arange(m) >= m − length."),
    ("one key too few", lambda lengths, m: np.arange(m) > m - lengths[:, None, None],
     "The first word is forbidden. It stands at position m − length: ≥, not >."),
)  # fmt: skip

window_mask = Exercise(3,
    "window_mask(n, width): True where query i sees key j, itself and the width − 1 tokens before it; → (n, n)",
    lambda n, width: np.tri(n, dtype=bool) & ~np.tri(n, k=-width, dtype=bool), [
        (3, 1), (3, 2), (5, 3), (2, 5), (11, 5)
    ])  # fmt: skip
window_mask.knows(
    ("one token too many", lambda n, width: np.tri(n, dtype=bool) & ~np.tri(n, k=-width - 1, dtype=bool),
     "Your window is width + 1 wide. The query itself counts: width − 1 tokens before it."),
    ("a token does not see itself", lambda n, width: np.tri(n, k=-1, dtype=bool) & ~np.tri(n, k=-width, dtype=bool),
     "Your diagonal is False. The window starts with the query's own token."),
    ("a window to both sides", lambda n, width: np.tri(n, k=width - 1, dtype=bool) & ~np.tri(n, k=-width, dtype=bool),
     "Your window reaches into the future as far as into the past. It should look back only: j ≤ i."),
    ("inverted mask", lambda n, width: ~np.tri(n, dtype=bool) | np.tri(n, k=-width, dtype=bool),
     'Your True marks what is forbidden. Here True means "may attend".'),
)  # fmt: skip
