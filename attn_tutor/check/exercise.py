"""An exercise: its statement, the right answer, the cases to try it on, and the mistakes that people make in it."""

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from zlib import crc32

import numpy as np

from attn_tutor.check import calls, results
from attn_tutor.check.calls import SECONDS, Case, Outcome, take
from attn_tutor.check.compare import Attempt, Comparison, Mistake
from attn_tutor.check.diagnosis import diagnose
from attn_tutor.check.words import show_case, show_error, show_pair

Function = Callable[..., Any]
Cases = Callable[[Function], Sequence[Case]]
CHANGES = "changes its input"
Row = tuple[str, Any, str]


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
        right: the right answer, in NumPy, with what people get wrong in it as options.
        cases: arguments to try, a tuple for each call; or a function that makes them, of one that draws normal numbers
            of a shape. Each exercise draws from a seed of its own, its name.
        rows: mistakes. Each has a name, what it does, and words: what it is, why, and how to mend it. What it does is
            the options of ``right`` that it changes, or a wrong function, or a list of several such. Two mistakes that
            change different options are known together.
        reads: makes of an answer what is to be compared, where several answers are right; its docstring says what.
        tolerance: relative and absolute, in place of the one of the dtype.
        weights: a case in which the answer is the weights themselves, as with an identity matrix for values.
    """

    def __init__(self, chapter: int, statement: str, right: Function, cases: Sequence[Case] | Cases, *rows: Row,
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
        for name, wrongs, words in rows:
            for wrong in wrongs if isinstance(wrongs, list) else [wrongs]:
                options = {} if callable(wrong) else wrong
                fn = wrong if callable(wrong) else partial(right, **wrong)
                self.mistakes.append(Mistake(name, words, fn, options))

    def __call__(self, fn: Function) -> bool:
        report = self.examine(fn)
        print(report.text)
        return report.right

    @calls.contained()
    def examine(self, fn: Function, seconds: float = SECONDS) -> Report:
        """As a call, but hand over the findings in place of printing them."""
        tensors, outcome = calls.call_first(fn, self.cases[0], seconds)
        rest = (
            [] if outcome.late else calls.call_all(fn, self.cases[1:], tensors, seconds)
        )
        outcomes = zip(self.cases, [outcome, *rest], strict=False)
        tried = [self.attempt(case, x, tensors) for case, x in outcomes]
        faults = (self._fault(fn, x, tensors) for x in tried)
        fault = next(filter(None, faults), None)
        where = f"{self.name} ({'torch' if tensors else 'NumPy'})"
        if fault is None:
            text = f"✓ {where}: right in all {len(self.cases)} cases"
            return Report(True, "right", text + self._wider(tried))
        title, text, example = fault
        comparable = not any(x.kind or x.outcome.late for x in tried)
        ask = partial(calls.call, tensors=tensors, seconds=seconds)
        if comparable and (found := diagnose(self, fn, ask, tried)):
            besides = " Besides, it writes into an argument." * (title == CHANGES)
            title, text = found.title, found.words + besides
            shown = next((x for x in found.shown if x.got is not None), found.shown[0])
            example = self._example(fn, shown)
        return Report(False, title, f"✗ {where}: {title}\n{text}\n{example}")

    def _example(self, fn: Function, shown: Attempt) -> str:
        lines = [show_case(self.arguments, shown.case)]
        if shown.outcome.error:
            lines += [show_error(shown.outcome.error, fn)]
        elif shown.got is not None and shown.wrong:
            lines += [self._difference(shown)]
        return "\n".join(lines)

    def _fault(self, fn: Function, x: Attempt, tensors: bool) -> tuple[str, str, str] | None:  # fmt: skip
        """What is wrong in one case, by sight: a title, words, and the case."""
        found, value = None, x.outcome.value
        if x.outcome.late:
            words = "It does not come back. Is there a loop that never ends?"
            found = "takes too long", words
        elif x.outcome.error:
            title = f"raises {type(x.outcome.error).__name__}"
            found = title, f"It fails. What is asked: {self.statement}"
        elif wrong := results.wrong_kind(value, self.expected(x.case), tensors):
            found = wrong
        elif changed := self._changed(x.case, x.outcome):
            words = f"It writes into its argument {changed}, which is the caller's: x -= 1 does, x = x - 1 does not."
            found = CHANGES, words
        elif x.wrong:
            words = "This is none of the mistakes known here."
            if x.got and x.got[0] is np.nan:
                values = take(value), self.expected(x.case)
                ours, others = map(results.shapes, values)
                words = f"What you return does not fit together: it has the shapes {ours}, where {others} would do."
            different = results.shapes(x.right) != results.shapes(x.got)
            found = "wrong shape" if different else "wrong values", words
        else:
            found = results.wrong_dtype(x.case, self.expected(x.case), take(value))
        return found and (*found, self._example(fn, x))

    def _wider(self, tried: Sequence[Attempt]) -> str:
        """A word on numbers that are wider than the arguments, which is no mistake."""
        for x in tried:
            given, got = results.float_of(x.case), results.float_of(x.got or ())
            if given not in ("", got) and got == "float64":
                return f" ({got} where the arguments are {given})"
        return ""

    def _changed(self, case: Case, outcome: Outcome) -> str | None:
        pairs = zip(self.arguments, case, outcome.after, strict=False)
        return next((name for name, x, y in pairs if not results.unchanged(x, y)), None)

    def _difference(self, attempt: Attempt) -> str:
        pairs = [*zip(attempt.right, attempt.got or (), strict=True)]
        limits = [self.limits(attempt.case, *pair) for pair in pairs]
        i = [*map(results.close, *zip(*pairs, strict=True), limits)].index(False)
        label = inspect.getdoc(self.reads) or "" if self.reads else ""
        if len(pairs) > 1:
            label += f" (value {i + 1} of the {len(pairs)} that it returns)"
        return show_pair(*pairs[i], label.strip())
