"""Ask a wrong function more: does its answer follow an argument at all, and does a row follow what it should not?"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from attn_tutor.check.calls import Case, Outcome, take
from attn_tutor.check.symptoms.symptom import Array, Finding

Pairs = Callable[[Case], tuple[Any, Any] | None]


def both(ask: Callable[[Case], Outcome], right: Callable[..., Any]) -> Pairs:
    """The right answer and the function's to a question, if both come."""

    def pair(case: Case) -> tuple[Any, Any] | None:
        outcome = ask(case)
        if outcome.error or outcome.late:
            return None
        try:
            with np.errstate(all="ignore"):
                return right(*case), take(outcome.value)
        except (ValueError, IndexError):
            return None

    return pair


def ignored(pair: Pairs, names: Sequence[str], case: Case) -> Finding | None:
    """An argument that the answer does not depend on, though the right one does."""
    before = pair(case)
    if before is None or not all(np.isfinite(y).all() for y in _parts(before[1])):
        return None  # NaN stays NaN whatever is asked
    for i, x in enumerate(case):
        after = [pair((*case[:i], y, *case[i + 1 :])) for y in _others(x)]
        if after and None not in after and _right_alone(before, after):
            words = f"Your answer does not depend on `{names[i]}`: with another one it is the same."
            return f"{names[i]} not used", words
    return None


PARTS: list[tuple[str, Any]] = [
    ("all columns but the first", (..., slice(1, None))),
    ("the last row", (..., slice(-1, None), slice(None))),
]


def partly(pair: Pairs, names: Sequence[str], case: Case) -> Finding | None:
    """A row or column of an argument that the answer does not depend on, though the right one does."""
    before = pair(case)
    for i, x in enumerate(case):
        if np.ndim(x) < 2 or x.dtype.kind != "f" or before is None:
            continue
        for what, part in PARTS:
            after = []
            for y in _others(x):
                changed = x.copy()
                changed[part] = y[part]
                after += [pair((*case[:i], changed, *case[i + 1 :]))]
            if _right_alone(before, after):
                part_of = f"{what} of `{names[i]}`"
                words = f"Your answer does not depend on {part_of}."
                return f"{part_of} not used", words
    return None


def _right_alone(before: tuple[Any, Any], after: Sequence[tuple[Any, Any] | None]) -> bool:  # fmt: skip
    """Whether the right answer has changed and the other has not."""
    right, ours = (
        any(y is None or _differ(before[k], y[k]) for y in after) for k in (0, 1)
    )
    return right and not ours


def _others(x: Any) -> list[Any]:
    """Other arguments in place of one, near and far."""
    if isinstance(x, float):
        return [1.7 * x, 0.3 * x]
    kind = x.dtype.kind if isinstance(x, np.ndarray) else ""
    if kind == "f":
        return [y.astype(x.dtype) for y in (1.3 * np.flip(x) + 0.1, 0.2 * x, x + 2)]
    return [~x] if kind == "b" else []


def rows(pair: Pairs, names: Sequence[str], case: Case) -> Finding | None:
    """A row that depends on one it should not depend on, or does not on one it should."""
    X, before = case[0], pair(case)
    arrays = all(isinstance(y, np.ndarray) and y.ndim > 1 for y in (X, *(before or ())))
    if before is None or not arrays or X.dtype.kind != "f":
        return None
    n, *shapes = X.shape[-2], *(y.shape[:-1] for y in before)
    if n < 2 or n != shapes[0][-1] or shapes[0] != shapes[1]:
        return None
    last, first = (X.copy() for _ in range(2))
    last[..., -1, :] = _others(X[..., -1, :])[0]
    first[..., 0, :] = _others(X[..., 0, :])[0]
    after, other = pair((last, *case[1:])), pair((first, *case[1:]))
    if after is None or other is None:
        return None
    follows, ours = (
        _differ(x[..., 0, :], y[..., 0, :]) for x, y in zip(before, after, strict=True)
    )
    if ours and not follows:
        return "rows that depend on each other", (
            f"Your first row changes when the last row of `{names[0]}` does. Here each row is computed by itself: the "
            "sum, the mean or the maximum runs along each row, axis −1 with keepdims=True, and not over the array."
        )
    if follows and not ours and _differ(before[1][..., -1, :], other[1][..., -1, :]):
        return "a causal mask", (
            f"Your first row does not change when the last row of `{names[0]}` does, though it should: you hide later "
            "tokens, as under a causal mask. None is asked for here."
        )
    return None


def _parts(x: Any) -> list[Array]:
    return [np.asarray(y) for y in (x if isinstance(x, tuple) else (x,))]


def _differ(one: Any, other: Any) -> bool:
    return any(
        x.shape != y.shape or not np.allclose(x, y, 1e-7, 1e-9, equal_nan=True)
        for x, y in zip(_parts(one), _parts(other), strict=True)
    )
