"""Ask a wrong function more: does its answer follow an argument at all, and does a row follow what it should not?"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from attn_tutor.check.calls import Case, Outcome, take
from attn_tutor.check.symptoms.symptom import Array, Finding

Function = Callable[..., Any]

Pairs = Callable[[Case], tuple[Any, Any] | None]


def asked(ask: Callable[[Case], Outcome], right: Function, names: Sequence[str], case: Case,
          question: Callable[[Pairs, Sequence[str], Case], Finding | None]) -> Finding | None:  # fmt: skip
    """Title and words of what the answers to changed arguments show, or None."""

    def pair(changed: Case) -> tuple[Any, Any] | None:
        """The right answer and the function's, if both come."""
        outcome = ask(changed)
        if outcome.error or outcome.late:
            return None
        try:
            return right(*changed), take(outcome.value)
        except (ValueError, IndexError):
            return None

    with np.errstate(all="ignore"):
        return question(pair, names, case)


def ignored(pair: Pairs, names: Sequence[str], case: Case) -> Finding | None:
    """An argument that the answer does not depend on, though the right one does."""
    before = pair(case)
    if before is None or not all(np.isfinite(y).all() for y in _parts(before[1])):
        return None  # NaN stays NaN whatever is asked
    for i, x in enumerate(case):
        after = [pair((*case[:i], y, *case[i + 1 :])) for y in _others(x)]
        if not after or None in after:
            continue
        follows = [any(_differ(before[k], y[k]) for y in after if y) for k in (0, 1)]
        if follows == [True, False]:
            return f"{names[i]} not used", (
                f"Your answer does not depend on `{names[i]}`: with another one it is the same."
            )
    return None


PARTS: list[tuple[str, Any]] = [
    ("all columns but the first", (..., slice(1, None))),
    ("the first column", (..., slice(1))),
    ("the last column", (..., slice(-1, None))),
    ("the first row", (..., slice(1), slice(None))),
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
            follows = [
                any(y is None or _differ(before[k], y[k]) for y in after)
                for k in (0, 1)
            ]
            if follows == [True, False]:
                part_of = f"{what} of `{names[i]}`"
                return (
                    f"{part_of} not used",
                    f"Your answer does not depend on {part_of}.",
                )
    return None


def _others(x: Any) -> list[Any]:
    """Other arguments in place of one, near and far."""
    if isinstance(x, float):
        return [1.7 * x, 0.3 * x]
    kind = x.dtype.kind if isinstance(x, np.ndarray) else ""
    if kind == "b":
        return [~x]
    near = 1.3 * np.flip(x) + 0.1 if kind == "f" else x
    return [y.astype(x.dtype) for y in (near, 0.2 * x, x + 2)] if kind == "f" else []


def rows(pair: Pairs, names: Sequence[str], case: Case) -> Finding | None:
    """A row that depends on one it should not depend on, or does not on one it should."""
    X, before = case[0], pair(case)
    if before is None:
        return None
    kinds = [isinstance(y, np.ndarray) and y.ndim >= 2 for y in (X, *before)]
    if not all(kinds) or X.dtype.kind != "f" or X.shape[-2] < 2:
        return None
    if any(y.shape[:-1] != before[0].shape[:-1] for y in before):
        return None
    last, first = (X.copy() for _ in range(2))
    last[..., -1, :] = _others(X[..., -1, :])[0]
    first[..., 0, :] = _others(X[..., 0, :])[0]
    after, other = pair((last, *case[1:])), pair((first, *case[1:]))
    if after is None or other is None or before[0].shape[-2] != X.shape[-2]:
        return None
    follows, ours = (
        _differ(x[..., 0, :], y[..., 0, :]) for x, y in zip(before, after, strict=True)
    )
    back = _differ(before[1][..., -1, :], other[1][..., -1, :])
    if ours and not follows:
        return "rows that depend on each other", (
            f"Your first row changes when the last row of `{names[0]}` changes. Here each row is computed by itself: "
            "is it the wrong axis, or one number for the whole array? The sum, the mean or the maximum runs along each "
            "row, axis −1 with keepdims=True."
        )
    if follows and not ours and back:
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
