"""An exercise: its statement, the right answer, the cases to try it on, and the mistakes that people make in it."""

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from zlib import crc32

import numpy as np

from attn_tutor.check.calls import (
    SECONDS,
    Case,
    Outcome,
    call,
    call_all,
    call_first,
    contained,
    take,
)
from attn_tutor.check.compare import Attempt, Comparison, Function, Mistake
from attn_tutor.check.diagnosis import diagnose
from attn_tutor.check.results import (
    close,
    float_of,
    shapes,
    unchanged,
    wrong_dtype,
    wrong_kind,
)
from attn_tutor.check.words import show_case, show_error, show_pair

Cases = Callable[[Function], Sequence[Case]]
CHANGES = "changes its input"
Wrong = Function | dict[str, Any]
Row = tuple[str, Wrong | list[Any], str]


@dataclass(frozen=True)
class Report:
    right: bool
    title: str  # a few words for a table
    text: str


class Exercise(Comparison):
    """A checker. Call it with a function: it prints what it finds and returns whether the function is right.

    Args:
        chapter: of the book.
        statement: ``name(arguments): what is asked``, with shapes.
        right: the right answer, in NumPy.
        cases: arguments to try, a tuple for each call; or a function that makes them, of one that draws normal numbers
            of a shape. Each exercise draws from a seed of its own, its name.
        reads: makes of an answer what is to be compared, where several answers are right; its docstring says what.
        tolerance: relative and absolute, in place of the one of the dtype.
        weights: a case in which the answer is the weights themselves, as with an identity matrix for values.
    """

    def __init__(self, chapter: int, statement: str, right: Function, cases: Sequence[Case] | Cases,
                 **how: Any) -> None:  # fmt: skip
        found = re.match(r"(\w+)\((.*?)\): ", statement)
        if found is None:
            raise ValueError(f"not of the form name(arguments): {statement}")
        arguments = [x.partition("=")[0] for x in found[2].split(", ")]
        rng = np.random.default_rng(crc32(found[1].encode()))

        def drawn(x: Any) -> Any:
            return x(lambda *shape: rng.normal(size=shape)) if callable(x) else x

        how |= {"weights": drawn(how.get("weights"))}
        super().__init__(arguments, right, drawn(cases), **how)
        self.name, self.chapter, self.statement = found[1], chapter, statement

    def knows(self, *rows: Row, by_hand: Function | None = None) -> None:
        """Add mistakes. Each has a name, what it does, and words: what it is, why, and how to mend it.

        What it does is a wrong function, or the options of ``by_hand`` (else of the right answer) that it changes, or
        a list of several such. Two mistakes that change different options are known together.
        """
        for name, wrongs, words in rows:
            for wrong in wrongs if isinstance(wrongs, list) else [wrongs]:
                if callable(wrong):
                    self.mistakes.append(Mistake(name, words, wrong))
                else:
                    fn = partial(by_hand or self.right, **wrong)
                    self.mistakes.append(Mistake(name, words, fn, wrong))

    def __call__(self, fn: Function) -> bool:
        report = self.examine(fn)
        print(report.text)
        return report.right

    @contained()
    def examine(self, fn: Function, seconds: float = SECONDS) -> Report:
        """As a call, but hand over the findings in place of printing them."""
        tensors, outcome = call_first(fn, self.cases[0], seconds)
        rest = [] if outcome.late else call_all(fn, self.cases[1:], tensors, seconds)
        tried = [
            self.attempt(case, x, tensors)
            for case, x in zip(self.cases, [outcome, *rest], strict=False)
        ]
        faults = (self._fault(fn, x, tensors) for x in tried)
        fault = next(filter(None, faults), None)
        where = f"{self.name} ({'torch' if tensors else 'NumPy'})"
        if fault is None:
            text = f"✓ {where}: right in all {len(self.cases)} cases"
            return Report(True, "right", text + self._wider(tried))
        title, text = fault
        comparable = not any(x.kind or x.outcome.late for x in tried)
        ask = partial(call, tensors=tensors, seconds=seconds)
        if comparable and (found := diagnose(self, fn, ask, tried)):
            besides = " Besides, it writes into an argument." * (title == CHANGES)
            title = found.title or title
            text = f"{found.words}{besides}\n{self._example(fn, found.shown)}"
        return Report(False, title, f"✗ {where}: {title}\n{text}")

    def _example(self, fn: Function, wrong: Sequence[Attempt]) -> str:
        """The smallest case in which the answer is wrong: if there is one, not one that raises."""
        shown = next((x for x in wrong if x.got is not None), wrong[0])
        case = show_case(self.arguments, shown.case)
        if shown.outcome.error:
            return f"{case}\n{show_error(shown.outcome.error, fn)}"
        return f"{case}\n{self._difference(shown)}"

    def _fault(self, fn: Function, attempt: Attempt, tensors: bool) -> tuple[str, str] | None:  # fmt: skip
        """What is wrong in one case, by sight: a title, and words with the case."""
        case, outcome = attempt.case, attempt.outcome
        right, value = self.expected(case), outcome.value
        shown = show_case(self.arguments, case)
        if outcome.late:
            words = "It does not come back. Is there a loop that never ends?"
            return "takes too long", f"{words}\n{shown}"
        if outcome.error:
            words = f"It fails. What is asked: {self.statement}"
            details = show_error(outcome.error, fn)
            title = f"raises {type(outcome.error).__name__}"
            return title, f"{words}\n{shown}\n{details}"
        if found := wrong_kind(value, right, tensors):
            return found[0], f"{found[1]}\n{shown}"
        if changed := self._changed(case, outcome):
            words = (
                f"It writes into its argument {changed}, which belongs to the caller."
            )
            advice = (
                "x = x - 1 makes a new array; x -= 1 and x[…] = … change the old one."
            )
            return CHANGES, f"{words} {advice}\n{shown}"
        if attempt.wrong:
            words = "This is none of the mistakes known here."
            if attempt.got and attempt.got[0] is np.nan:
                ours, others = shapes(take(value)), shapes(right)
                words = f"What you return does not fit together: it has the shapes {ours}, where {others} would do."
            different = shapes(attempt.right) != shapes(attempt.got)
            title = "wrong shape" if different else "wrong values"
            return title, f"{words}\n{shown}\n{self._difference(attempt)}"
        if found := wrong_dtype(case, right, take(value)):
            return found[0], f"{found[1]}\n{shown}"
        return None

    def _wider(self, tried: Sequence[Attempt]) -> str:
        """A word on numbers that are wider than the arguments, which is no mistake."""
        for x in tried:
            given, got = float_of(x.case), float_of(x.got or ())
            if given not in ("", got) and got == "float64":
                return f" ({got} where the arguments are {given})"
        return ""

    def _changed(self, case: Case, outcome: Outcome) -> str | None:
        pairs = zip(self.arguments, case, outcome.after, strict=False)
        return next((name for name, x, y in pairs if not unchanged(x, y)), None)

    def _difference(self, attempt: Attempt) -> str:
        pairs = list(zip(attempt.right, attempt.got or (), strict=True))
        i, (x, y) = next(
            (i, pair)
            for i, pair in enumerate(pairs)
            if not close(*pair, self.limits(attempt.case, *pair))
        )
        label = inspect.getdoc(self.reads) or "" if self.reads else ""
        if len(pairs) > 1:
            label = f"{label} (value {i + 1} of the {len(pairs)} that it returns)"
        return show_pair(x, y, label.strip())
