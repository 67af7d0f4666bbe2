"""Which calls go wrong, if others go right: what their arguments have in common."""

from collections.abc import Callable

import numpy as np

from attn_tutor.check.calls import Case
from attn_tutor.check.symptoms.symptom import Array, Finding, largest


def where_wrong(wrong: list[Case], right: list[Case]) -> Finding | None:
    """Words for what all the wrong calls have and no right one has: where it is, and what is different there."""
    axes = min(max(map(np.ndim, case)) for case in wrong + right)
    for title, words, holds in PLACES:
        seldom = not any(holds(x, axes) for x in right)
        if seldom and all(holds(x, axes) for x in wrong):
            return title, words
    return None


def _arrays(case: Case, kind: str = "f") -> list[Array]:
    return [x for x in case if isinstance(x, np.ndarray) and x.dtype.kind == kind]


PLACES: list[tuple[str, str, Callable[[Case, int], bool]]] = [
    ("for an empty array", "There is nothing in it to loop over, and no largest number.",
     lambda case, _: any(not x.size for x in _arrays(case))),
    ("for a batch", "A batch has axes in front of the last two. Count axes from the end: −1, −2, swapaxes(-1, -2). "
     "K.T, dim=1, len(X) and a loop over the first axis mean something else there.",
     lambda case, axes: max(map(np.ndim, case)) > axes),
    ("for large numbers", "There exp overflows, or large terms cancel: a softmax needs its maximum subtracted.",
     lambda case, _: any(largest(x) >= 90 for x in _arrays(case))),
    ("where a NaN is hidden", "A NaN behind the mask must not reach the answer: choose with where, as NaN · 0 is NaN.",
     lambda case, _: any(np.isnan(x).any() for x in _arrays(case))),
    ("where nothing is permitted", "A query that sees nothing has an empty row: it must be 0.",
     lambda case, _: not all(x.any(-1).all() for x in _arrays(case, "b"))),
    ("in float32", "What is exact in float64 may overflow there, or be rounded.",
     lambda case, _: any(x.dtype != np.float64 for x in _arrays(case))),
]  # fmt: skip
