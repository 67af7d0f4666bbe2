"""An exercise: its statement, the right answer, the cases to try it on, and the mistakes that people make in it."""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, combinations
from typing import Any

import numpy as np

from attn_tutor.check.answers import (
    close,
    float_of,
    shapes,
    tolerance,
    unchanged,
    wrong_dtype,
    wrong_kind,
)
from attn_tutor.check.calls import (
    SECONDS,
    Case,
    Outcome,
    call,
    call_first,
    is_tensor,
    take,
)
from attn_tutor.check.probes import asked, ignored, rows
from attn_tutor.check.symptoms import strongest
from attn_tutor.check.symptoms.answer import Answer, Finding
from attn_tutor.check.symptoms.place import where_wrong
from attn_tutor.check.words import show_case, show_error, show_pair

Function = Callable[..., Any]


@dataclass(frozen=True)
class Mistake:
    name: str
    words: str  # what, why, and how to mend it
    wrong: Function
    changes: Mapping[str, Any] = field(default_factory=dict)  # of a variant


@dataclass(frozen=True)
class Report:
    right: bool
    title: str  # a few words for a table
    text: str


def _together(several: tuple[Mistake, ...]) -> Mistake | None:
    """The mistake of who makes all these, if they do not change the same option."""
    changes = {k: v for mistake in several for k, v in mistake.changes.items()}
    if len(changes) < sum(len(mistake.changes) for mistake in several):
        return None
    count = "Two" if len(several) == 2 else "Three"
    return Mistake(
        "; ".join(mistake.name for mistake in several),
        f"{count} mistakes at once. {' '.join(mistake.words for mistake in several)}",
        partial(several[0].wrong, **changes),
    )


Tried = list[tuple[Case, Outcome]]


class Exercise:
    """A checker. Call it with a function: it prints what it finds and returns whether the function is right.

    Args:
        chapter: of the book.
        statement: ``name(arguments): what is asked``, with shapes.
        right: the right answer, in NumPy.
        cases: arguments to try, a tuple for each call.
        reads: makes of an answer what is to be compared, where several answers are right; its docstring says what.
        tolerance: relative and absolute, in place of the one of the dtype.
        weights: a case in which the answer is the weights themselves, as with an identity matrix for values.
    """

    def __init__(
        self,
        chapter: int,
        statement: str,
        right: Function,
        cases: Sequence[Case],
        *,
        reads: Function | None = None,
        tolerance: float | None = None,
        weights: Case | None = None,
    ) -> None:
        found = re.match(r"(\w+)\((.*?)\): ", statement)
        if found is None:
            raise ValueError(f"not of the form name(arguments): {statement}")
        self.name = found[1]
        self.arguments = [x.partition("=")[0] for x in found[2].split(", ")]
        self.chapter, self.statement = chapter, statement
        self.right, self.reads, self.tolerance = right, reads, tolerance
        self.weights = weights
        self.cases = sorted(cases, key=_size)  # the smallest that fails is shown
        self.mistakes: list[Mistake] = []

    def mistake(self, name: str) -> Callable[[Function], Function]:
        """Add a wrong implementation; its docstring holds the words for who made it. A name may have several."""

        def add(wrong: Function) -> Function:
            words = " ".join((inspect.getdoc(wrong) or "").split())
            self.mistakes.append(Mistake(name, words, wrong))
            return wrong

        return add

    def variant(self, by_hand: Function, name: str, words: str, **changes: Any) -> None:
        """Add a mistake that changes some options of the right answer. Two that change different ones are known
        together."""
        wrong = partial(by_hand, **changes)
        self.mistakes.append(Mistake(name, words, wrong, changes))

    def __call__(self, fn: Function) -> bool:
        report = self.examine(fn)
        print(report.text)
        return report.right

    def examine(self, fn: Function, seconds: float = SECONDS) -> Report:
        """As a call, but hand over the findings in place of printing them."""
        tensors, outcome = call_first(fn, self.cases[0], seconds)
        tried = [(self.cases[0], outcome)]
        for case in self.cases[1:]:
            if tried[-1][1].late:
                break
            tried.append((case, call(fn, case, tensors, seconds)))
        faults = (self._fault(fn, *each, tensors) for each in tried)
        fault = next(filter(None, faults), None)
        where = f"{self.name} ({'torch' if tensors else 'NumPy'})"
        if fault is None:
            return Report(
                True, "right", f"✓ {where}: right in all {len(self.cases)} cases"
            )
        title, text = fault
        comparable = all(map(self._comparable, tried))
        if comparable and (wrong := [x for x in tried if self._is_wrong(*x)]):
            if known := self.known(tried) or self._several_at_once(tried):
                title, text = known.name, known.words
            elif found := self._symptoms(fn, tried, wrong, tensors, seconds):
                (title, text), shown = found
                wrong = [x for x in wrong if x[0] is shown]
            elif part := self._part_of_it(tried):
                text = part
            if text is not fault[1]:
                text += f"\n{self._example(fn, wrong)}"
        return Report(False, title, f"✗ {where}: {title}\n{text}")

    def _comparable(self, tried: tuple[Case, Outcome]) -> bool:
        """Whether the call did not even go wrong in kind."""
        case, outcome = tried
        if outcome.late or outcome.error:
            return not outcome.late
        right, value = self.right(*case), outcome.value
        return not wrong_kind(value, right, is_tensor(value))

    def known(self, tried: Tried) -> Mistake | None:
        """The mistake whose answers are these, in every case."""
        return self._made(self.mistakes, tried)

    def _made(self, mistakes: Iterable[Mistake], tried: Tried) -> Mistake | None:
        # In float16 -1e9 is -inf, or an error, or makes the result wider: that tells only if nothing else does.
        wider = [each for each in tried if float_of(each[0]) != "float16"]
        telling = wider if any(self._is_wrong(*each) for each in wider) else tried
        for mistake in mistakes:
            if all(self._makes(mistake, *each) for each in reversed(telling)):
                return mistake
        return None

    def _several_at_once(self, tried: Tried) -> Mistake | None:
        """Two or three variants that change different options, together."""
        variants = [mistake for mistake in self.mistakes if mistake.changes]
        pairs, triples = (combinations(variants, n) for n in (2, 3))
        together = map(_together, chain(pairs, triples))
        return self._made(filter(None, together), tried)

    def _symptoms(
        self, fn: Function, tried: Tried, wrong: Tried, tensors: bool, seconds: float
    ) -> tuple[Finding, Case] | None:
        """What wrong answers that no known mistake gives have in common, and a case that shows it."""
        cases = [case for case, _ in wrong]
        others = [case for case, outcome in tried if not self._is_wrong(case, outcome)]
        answers = [
            x for each in wrong if not each[1].error for x in self._answers(*each)
        ]
        ask = partial(
            asked, fn, self.right, self.arguments, tried[-1][0], tensors, seconds
        )
        found, shown = ask(ignored), cases[0]
        if not found and (seen := strongest(answers)):
            found, shown = seen
        found = found or ask(rows) or self._weights(fn, tensors, seconds)
        place = where_wrong(cases, others) if others else None
        if found and place:
            more = f"(Only {place[0]}: in the other {len(others)} cases you are right.)"
            return (found[0], f"{found[1]} {more}"), shown
        if place:
            share = f"You are right in {len(others)} of {len(tried)} cases, and wrong only {place[0]}."
            return (f"wrong {place[0]}", f"{share} {place[1]}"), shown
        return found and (found, shown)

    def _weights(self, fn: Function, tensors: bool, seconds: float) -> Finding | None:
        """What is wrong with the weights, where the answer can be made to show them."""
        if self.weights is None:
            return None
        outcome = call(fn, self.weights, tensors, seconds)
        if outcome.late or outcome.error or not self._is_wrong(self.weights, outcome):
            return None
        if not (seen := strongest(self._answers(self.weights, outcome))):
            return None
        (title, words), _ = seen
        how = "With an identity matrix for the values your output is your weights, and shows:"
        return f"weights: {title}", f"{how} {words}"

    def _answers(self, case: Case, outcome: Outcome) -> list[Answer]:
        """The arrays that differ, each beside the right one."""
        given = dict(zip(self.arguments, case, strict=False))
        pairs = zip(
            self._parts(self.right(*case)), self._parts(outcome.value), strict=True
        )
        arrays = [(np.asarray(x), np.asarray(y)) for x, y in pairs]
        return [
            Answer(x, y if x.dtype == bool else y.astype(float), case, given, limits)
            for x, y in arrays
            if not close(x, y, limits := self._tolerance(case, x, y))
        ]

    def _part_of_it(self, tried: Tried) -> str:
        """Two mistakes at once give the answers of neither: the one that explains most of what is wrong, if any."""
        wrong = [self._is_wrong(*each) for each in tried]
        best, most = None, sum(wrong) // 2
        for mistake in self.mistakes:
            agree = [self._makes(mistake, *each) for each in tried]
            pairs = list(zip(agree, wrong, strict=True))
            # Who made it is right where the reader is.
            if all(map(any, pairs)) and sum(map(all, pairs)) > most:
                best, most = mistake, sum(map(all, pairs))
        if best is None:
            return ""
        share = f"{most} of the {sum(wrong)} cases that are wrong"
        return f"Perhaps two mistakes at once. In {share} it does as “{best.name}”: {best.words}"

    def _example(self, fn: Function, wrong: Tried) -> str:
        """The smallest case in which the answer is wrong: if there is one, not one that raises."""
        case, outcome = next((x for x in wrong if not x[1].error), wrong[0])
        shown = show_case(self.arguments, case)
        if outcome.error:
            return f"{shown}\n{show_error(outcome.error, fn)}"
        return f"{shown}\n{self._difference(case, self.right(*case), outcome.value)}"

    def _fault(
        self, fn: Function, case: Case, outcome: Outcome, tensors: bool
    ) -> tuple[str, str] | None:
        """What is wrong in one case, by sight: a title, and words with the case."""
        right, value = self.right(*case), outcome.value
        shown = show_case(self.arguments, case)
        if outcome.late:
            words = "It does not come back. Is there a loop that never ends? (It goes on in the background.)"
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
            return "changes its input", f"{words} {advice}\n{shown}"
        if not self._same(case, right, value):
            words = "This is none of the mistakes known here."
            different = shapes(right) != shapes(take(value))
            title = "wrong shape" if different else "wrong values"
            return title, f"{words}\n{shown}\n{self._difference(case, right, value)}"
        if found := wrong_dtype(case, right, take(value)):
            return found[0], f"{found[1]}\n{shown}"
        return None

    def _changed(self, case: Case, outcome: Outcome) -> str | None:
        pairs = zip(self.arguments, case, outcome.after, strict=False)
        return next((name for name, x, y in pairs if not unchanged(x, y)), None)

    def _is_wrong(self, case: Case, outcome: Outcome) -> bool:
        right = self.right(*case)
        return bool(outcome.error) or not self._same(case, right, outcome.value)

    def _makes(self, mistake: Mistake, case: Case, outcome: Outcome) -> bool:
        """Whether the call did what this mistake does."""
        if outcome.error and "overflow" in str(outcome.error):
            return True  # torch refuses -1e9 in float16, where NumPy makes it -inf
        with np.errstate(all="ignore"):
            try:
                wrong = mistake.wrong(*case)
            except (ValueError, IndexError):  # shapes that do not fit
                return outcome.error is not None
        return not outcome.error and self._same(case, wrong, outcome.value)

    def _same(self, case: Case, one: Any, other: Any) -> bool:
        parts, others = self._parts(one), self._parts(other)
        return len(parts) == len(others) and all(
            close(x, y, self._tolerance(case, x, y))
            for x, y in zip(parts, others, strict=True)
        )

    def _parts(self, value: Any) -> tuple[Any, ...]:
        value = take(value)
        if self.reads is not None:
            try:
                value = self.reads(value)
            except (TypeError, ValueError):  # its parts do not fit together
                value = np.nan
        return value if isinstance(value, tuple) else (value,)

    def _difference(self, case: Case, right: Any, got: Any) -> str:
        pairs = list(zip(self._parts(right), self._parts(got), strict=True))
        i, (x, y) = next(
            (i, pair)
            for i, pair in enumerate(pairs)
            if not close(*pair, self._tolerance(case, *pair))
        )
        label = inspect.getdoc(self.reads) or "" if self.reads else ""
        if len(pairs) > 1:
            label = f"{label} (value {i + 1} of the {len(pairs)} that it returns)"
        return show_pair(x, y, label.strip())

    def _tolerance(self, case: Case, *answers: Any) -> tuple[float, float]:
        if self.tolerance:
            return self.tolerance, self.tolerance
        return tolerance(case, *answers)


def _size(case: Case) -> int:
    return sum(np.size(x) for x in case if isinstance(x, np.ndarray | int))
