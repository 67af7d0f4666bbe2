"""Chapter 3, second part: masks, which say who may see whom."""

import numpy as np

import attn_tutor.numpy as an
from attn_tutor.check.exercise import Exercise

causal_mask = Exercise(3,
    "causal_mask(n, m): True where query i of n may see key j of m, the last query every key; → (n, m)",
    an.causal_mask, [(2, 2), (2, 3), (3, 2), (3, 3), (5, 7), (7, 5)],
    ("aligned upper left", lambda n, m: np.tri(n, m, dtype=bool),
     "For n = m you are right. Else queries are the last n of m tokens, and the last sees all keys: j ≤ i + m − n."),
    ("the future in place of the past", lambda n, m: np.tri(m, n, n - m, dtype=bool).T,
     "Each query sees itself and what comes after it, the upper triangle (triu). The past is tril."))  # fmt: skip

padding_mask = Exercise(3, "padding_mask(valid_lens, m): True for the first valid_lens[b] of m keys; (b,) → (b, 1, m)",
    an.padding_mask, [(np.array([1, 3]), 3), (np.array([0, 2]), 2), (np.array([5, 3, 1]), 7)],
    ("inverted mask", lambda valid_lens, m: np.arange(m) >= valid_lens[:, None, None],
     "Your True marks the blanks, as in nn.MultiheadAttention's key_padding_mask. Here True means “may attend”."),
    ("no axis for the queries", lambda valid_lens, m: np.arange(m) < valid_lens[:, None],
     "Your shape is (b, m), which scores read as queries by keys: put an axis between, (b, 1, m)."))  # fmt: skip


left_padding_mask = Exercise(3,
    "left_padding_mask(lengths, m): True for the last lengths[b] of m keys; (b,) → (b, 1, m)",
    lambda lengths, m: np.arange(m) >= m - lengths[:, None, None], [
        (np.array([1, 3]), 3), (np.array([0, 2]), 2), (np.array([5, 3, 1]), 7)],
    ("a length of 0", lambda lengths, m: np.arange(m) >= m - (lengths + m * (lengths == 0))[:, None, None],
     "You are right but for a length of 0: the slice [-0:] is all of it, not nothing. Use arange(m) >= m − length."),
    ("padding on the right", lambda lengths, m: np.arange(m) < lengths[:, None, None],
     "You permit the *first* keys. Here blanks come first and words after: compare with m − length."))  # fmt: skip

window_mask = Exercise(3,
    "window_mask(n, width): True where query i sees key j, itself and the width − 1 tokens before it; → (n, n)",
    lambda n, width: np.tri(n, dtype=bool) & ~np.tri(n, k=-width, dtype=bool), [
        (3, 1), (3, 2), (5, 3), (2, 5), (11, 5)],
    ("inverted mask", lambda n, width: ~np.tri(n, dtype=bool) | np.tri(n, k=-width, dtype=bool),
     "Your True marks what is forbidden. Here True means “may attend”: turn it round with ~."))  # fmt: skip
