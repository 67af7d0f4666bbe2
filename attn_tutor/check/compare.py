"""What a call of the reader's function gave, beside the right answer and those of known mistakes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from attn_tutor.check.calls import Case, Outcome, is_tensor, take
from attn_tutor.check.results import close, float_of, in_arrays, tolerance, wrong_kind
from attn_tutor.check.symptoms.symptom import Answer, Finding

Function = Callable[..., Any]
Parts = tuple[Any, ...]  # what is compared of an answer


@dataclass(frozen=True, eq=False)
class Mistake:
    name: str
    words: str  # what, why, and how to mend it
    wrong: Function
    options: Mapping[str, Any] = field(default_factory=dict)  # of a variant


@dataclass(frozen=True, eq=False)
class Attempt:
    """One call of the reader's function."""

    case: Case
    outcome: Outcome
    right: Parts
    got: Parts | None  # None if it failed, or is no answer at all
    wrong: bool
    kind: Finding | None  # what is wrong with the kind of answer


class Comparison:
    """The right answer, the cases and the known mistakes of an exercise, and how two answers are compared.

    What the right function and known wrong ones give for the cases is computed once.
    """

    def __init__(self, arguments: Sequence[str], right: Function, cases: Sequence[Case], *,
                 reads: Function | None = None, tolerance: float | None = None,
                 weights: Case | None = None) -> None:  # fmt: skip
        self.arguments, self.right = arguments, right
        self.cases = sorted(cases, key=_size)  # the smallest that fails is shown
        self.reads, self.tolerance, self.weights = reads, tolerance, weights
        self.mistakes: list[Mistake] = []
        self._expected: dict[int, Any] = {}
        self._made: dict[tuple[Function, int], Parts | None] = {}

    def attempt(self, case: Case, outcome: Outcome, tensors: bool = False) -> Attempt:
        expected = self.expected(case)
        outcome.value = value = in_arrays(outcome.value, expected, tensors)
        right, kind, got = self.parts(expected), None, None
        if not outcome.error and not outcome.late:
            kind = wrong_kind(value, expected, is_tensor(value))
            got = None if kind else self.parts(value)
        wrong = got is None or not self.agree(case, right, got)
        return Attempt(case, outcome, right, got, wrong, kind)

    def expected(self, case: Case) -> Any:
        """The right one, as it is."""
        if id(case) not in self._expected:
            with np.errstate(all="ignore"):
                self._expected[id(case)] = self.right(*case)
        return self._expected[id(case)]

    def made_by(self, fn: Function, case: Case) -> Parts | None:
        """What one of our own functions gives for a case of the exercise, or None if it fails."""
        key = fn, id(case)
        if key not in self._made:
            with np.errstate(all="ignore"):
                try:
                    self._made[key] = self.parts(fn(*case))
                except (ValueError, IndexError):  # shapes that do not fit
                    self._made[key] = None
        return self._made[key]

    def parts(self, value: Any) -> Parts:
        value = take(value)
        if self.reads is not None:
            try:
                value = self.reads(value)
            except (TypeError, ValueError):  # its parts do not fit together
                value = np.nan
        return value if isinstance(value, tuple) else (value,)

    def agree(self, case: Case, one: Parts, other: Parts) -> bool:
        return len(one) == len(other) and all(
            close(x, y, self.limits(case, x, y))
            for x, y in zip(one, other, strict=True)
        )

    def limits(self, case: Case, *answers: Any) -> tuple[float, float]:
        own = self.tolerance
        return (own, own) if own else tolerance(case, *answers)

    def makes(self, wrong: Function, attempt: Attempt) -> bool:
        """Whether the reader's function did what this one does."""
        error = attempt.outcome.error
        if error and "overflow" in str(error):
            return True  # torch refuses -1e9 in float16, where NumPy makes it -inf
        made = self.made_by(wrong, attempt.case)
        if made is None or attempt.got is None:
            return made is None and attempt.got is None
        return self.agree(attempt.case, made, attempt.got)

    def made(self, mistakes: Iterable[Mistake], tried: Sequence[Attempt]) -> Mistake | None:  # fmt: skip
        """The mistake whose answers are the reader's in every case. The largest case tells most of them apart."""
        # In float16 -1e9 is -inf, or an error, or makes the result wider: that tells only if nothing else does.
        wider = [x for x in tried if float_of(x.case) != "float16"]
        telling = [*(wider if any(x.wrong for x in wider) else tried)][::-1]
        did = (m for m in mistakes if all(self.makes(m.wrong, x) for x in telling))
        return next(did, None)

    def differing(self, x: Attempt) -> list[Answer]:
        """The arrays of an answer that differ from the right one, each beside it."""
        given = dict(zip(self.arguments, x.case, strict=False))
        answers = []
        for right, got in zip(x.right, x.got or (), strict=False):
            limits = self.limits(x.case, right, got)
            right, got = np.asarray(right), np.asarray(got)
            got = got if right.dtype == bool else got.astype(float)
            answers += [
                Answer(right, got, x.case, given, limits, self.reads is not None)
            ]
        return [y for y in answers if not y.is_now(y.right)]


def _size(case: Case) -> int:
    return sum(np.size(x) for x in case if isinstance(x, np.ndarray | int))
