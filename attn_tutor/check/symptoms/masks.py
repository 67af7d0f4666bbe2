"""True and False in the wrong places."""

import numpy as np

from attn_tutor.check.symptoms.symptom import (
    Answer,
    Array,
    Symptoms,
    of_one_shape,
    seen,
)

SYMPTOMS: Symptoms = []


def _of_booleans(x: Answer) -> bool:
    return of_one_shape(x) and x.right.dtype == bool


def _of_a_table(x: Answer) -> bool:
    return _of_booleans(x) and x.right.ndim == 2


def _true(x: Answer) -> Array:
    return x.got.astype(bool)


def _later(x: Answer) -> Array:
    n, m = x.right.shape
    return ~np.tri(n, m, m - n, dtype=bool)


def _own(x: Answer) -> Array:
    n, m = x.right.shape
    return np.eye(n, m, m - n, dtype=bool)


seen(SYMPTOMS, "a mask to be added", _of_booleans,
    lambda x: np.isin(x.got, [0, -np.inf]).all() and (x.got < 0).any(),
    "This is a mask to be added to scores, 0 and −∞. Here True means that a query may see a key.")  # fmt: skip
seen(SYMPTOMS, "numbers for True and False", _of_booleans, lambda x: np.array_equal(_true(x), x.right),
    "You return numbers, 0 where it should be False. Compare them with 0, to make a boolean array: x > 0.")  # fmt: skip
seen(SYMPTOMS, "sees the future", _of_a_table,
    lambda x: (_true(x) & _later(x)).any() and not (x.right & _later(x)).any(),
    "Some query sees a key that comes after it: the future, in training the answer. Masks align at the last query and "
    "the last key: query i of n stands at position i + m − n of m, and sees keys j ≤ i + m − n.")  # fmt: skip
seen(SYMPTOMS, "a token does not see itself", _of_a_table,
    lambda x: (x.right & _own(x)).any() and not x.got[_own(x)].any(),
    "Your queries do not see themselves: the diagonal of query and own key is False.")  # fmt: skip
seen(SYMPTOMS, "too few permitted", _of_booleans, lambda x: not (_true(x) & ~x.right).any(),
    "What you permit is permitted, but some that should be is not. Is it < where it should be ≤?")  # fmt: skip
seen(SYMPTOMS, "too many permitted", _of_booleans, lambda x: not (x.right & ~_true(x)).any(),
    "All that should be permitted is, and more besides. Is it ≤ where it should be <?")  # fmt: skip
