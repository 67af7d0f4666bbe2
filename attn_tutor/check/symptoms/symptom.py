"""A wrong answer, and how a symptom is written: a function that returns words for an answer that shows it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from attn_tutor.check.calls import Case
from attn_tutor.check.results import close

Array = np.ndarray
Finding = tuple[str, str]  # a title and words


@dataclass(frozen=True, eq=False)
class Answer:
    """One array of a wrong answer, with the right one, the case, and its arguments by their names."""

    right: Array
    got: Array
    case: Case
    given: dict[str, Any]
    tolerance: tuple[float, float]
    read: bool = False  # out of what is returned

    def same(self, one: Array, other: Array) -> bool:
        return close(one, other, self.tolerance)

    def is_now(self, changed: Array) -> bool:
        """Whether the answer is this, made of the right one."""
        return self.same(changed, self.got)

    @property
    def floats(self) -> dict[str, Array]:
        """The arguments that are arrays of real numbers."""
        pairs = self.given.items()
        return {k: x for k, x in pairs if isinstance(x, Array) and x.dtype.kind == "f"}


AXES = (-1, "columns"), (-2, "rows"), (-3, "heads or sequences")
Sight = Callable[[Answer], str | None]
Kind = Callable[[Answer], bool]
Symptoms = list[tuple[str, Sight]]  # with their titles


def of_one_shape(x: Answer) -> bool:
    return x.got.shape == x.right.shape and x.right.size > 1


def of_numbers(x: Answer) -> bool:
    return of_one_shape(x) and x.right.dtype.kind == "f"


def largest(x: Array) -> float:
    return float(np.abs(x[np.isfinite(x)]).max(initial=0))


def symptom(into: Symptoms, title: str, kind: Kind) -> Callable[[Sight], Sight]:
    """Add to a list what can be seen in answers of a kind."""

    def add(sight: Sight) -> Sight:
        into.append((title, lambda x: sight(x) if kind(x) else None))
        return sight

    return add


def seen(into: Symptoms, title: str, kind: Kind, holds: Callable[[Answer], Any], words: str) -> None:  # fmt: skip
    """Add what is told in the same words wherever it is seen."""
    symptom(into, title, kind)(lambda x: words if holds(x) else None)
