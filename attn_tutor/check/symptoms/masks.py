"""True and False in the wrong places."""

import numpy as np

from attn_tutor.check.symptoms.symptom import Answer, Sight, of_one_shape, seen, symptom

SYMPTOMS: list[tuple[str, Sight]] = []


def _of_booleans(x: Answer) -> bool:
    return of_one_shape(x) and x.right.dtype == bool


def _of_a_table(x: Answer) -> bool:
    return _of_booleans(x) and x.right.ndim == 2


seen(SYMPTOMS, "a mask to be added", _of_booleans, lambda x: np.isin(x.got, [0, -np.inf]).all() and (x.got < 0).any(),
    "This is a mask to be added to scores, 0 and −∞. Here masks are boolean: True where a query may see a key, False "
    "where it may not.")  # fmt: skip
seen(SYMPTOMS, "numbers for True and False", _of_booleans, lambda x: np.array_equal(x.got.astype(bool), x.right),
    "You return numbers, 0 where it should be False. Compare them with 0, to make a boolean array: x > 0.")  # fmt: skip


@symptom(SYMPTOMS, "sees the future", _of_a_table)
def _(x: Answer) -> str | None:
    n, m = x.right.shape
    later = ~np.tri(n, m, m - n, dtype=bool)
    if (x.got.astype(bool) & later).any() and not (x.right & later).any():
        return (
            "Some query sees a key that comes after it: the future, in training the answer. Query i stands at position "
            "i + m − n and sees keys j ≤ i + m − n, so that the masks align at the last query and the last key."
        )
    return None


@symptom(SYMPTOMS, "a token does not see itself", _of_a_table)
def _(x: Answer) -> str | None:
    n, m = x.right.shape
    own = np.eye(n, m, m - n, dtype=bool)
    if (x.right & own).any() and not x.got[own].any():
        return (
            "Your queries do not see themselves: the diagonal, where query i meets the key of its own position, is "
            "False."
        )
    return None


seen(SYMPTOMS, "too few permitted", _of_booleans, lambda x: not (x.got.astype(bool) & ~x.right).any(),
    "What you permit is permitted, but some that should be is not. Is it < where it should be ≤?")  # fmt: skip
seen(SYMPTOMS, "too many permitted", _of_booleans, lambda x: not (x.right & ~x.got.astype(bool)).any(),
    "All that should be permitted is, and more besides. Is it ≤ where it should be <?")  # fmt: skip
