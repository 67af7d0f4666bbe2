"""What a wrong function did: a known mistake, several at once, the right answer to another question, or a symptom."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain, combinations, permutations, product
from typing import Any

import numpy as np

from attn_tutor.check.calls import Case, Outcome
from attn_tutor.check.compare import Attempt, Comparison, Function, Mistake
from attn_tutor.check.mending import Axis, Mend, mended
from attn_tutor.check.misreadings import after, misreadings
from attn_tutor.check.probes import both, ignored, partly, rows
from attn_tutor.check.symptoms import PLAIN, numbers, one_for_all, strongest
from attn_tutor.check.symptoms.place import where_wrong
from attn_tutor.check.symptoms.symptom import Finding

Tried = list[Attempt]
Ask = Callable[[Case], Outcome]  # call the reader's function
Call = Callable[[Function, Case], Outcome]  # call it, or it mended


@dataclass(frozen=True)
class Diagnosis:
    title: str
    words: str
    shown: Tried  # of these the smallest is the example


def diagnose(exercise: Comparison, fn: Function, call: Call, tried: Tried) -> Diagnosis | None:  # fmt: skip
    """The best that can be said of a wrong function."""
    wrong = [x for x in tried if x.wrong]
    if not wrong:
        return None  # a fault of another kind
    mend = Mend()
    if lost := _lost_axis(exercise, fn, call, tried, mend):
        return lost
    known = exercise.made(exercise.mistakes, tried)
    if not known and (found := _wrong_axis(exercise, fn, call, tried, mend.axes)):
        return found
    known = known or exercise.made(_two(exercise), tried)
    known = known or _in_other_words(exercise, tried, wrong)
    if known:
        return Diagnosis(known.name, known.words, wrong)
    ask = partial(call, fn)
    return _symptoms(exercise, ask, tried) or _here_and_there(exercise, tried)


def _lost_axis(exercise: Comparison, fn: Function, call: Call, tried: Tried,
               mend: Mend) -> Diagnosis | None:  # fmt: skip
    """Whether less is wrong where each sum, mean and maximum keeps its axis; and what is wrong then."""
    again, met = mended(fn, mend), ()
    call(again, tried[-1].case)
    if not mend.met:  # in the largest case, which costs one call in place of all
        return None
    after: Tried = []
    for x in tried:
        mend.met = ()
        after.append(exercise.attempt(x.case, call(again, x.case)))
        met = met or (mend.met if x.wrong else ())
    wrong, still = ([x for x in each if x.wrong] for each in (tried, after))
    spoilt = any(y.wrong > x.wrong for x, y in zip(tried, after, strict=True))
    if not met or spoilt or len(still) == len(wrong):
        return None
    lost, full, kept = met
    title = "keepdims forgotten"
    words = (
        f"A sum, a mean or a maximum has lost its axis: its shape {lost} meets {full}, so that a number goes to a "
        f"column and not to its own row, or does not fit. With keepdims=True (keepdim in torch) it stays {kept}"
    )
    if not (found := diagnose(exercise, again, call, after)):
        then = "less is wrong" if still else "you are right"
        return Diagnosis(title, f"{words}: then {then}.", wrong)
    words = f"{words}. What is wrong then: {found.words}"
    return Diagnosis(f"{title}; {found.title}", words, wrong)


ALONG: dict[Axis, str] = {
    None: "is taken of the whole array",
    0: "runs along axis 0: down the columns of one example, over the sequences of a batch",
    1: "runs along axis 1: those are keys, or columns, of one example, but rows in a batch",
    -2: "runs down the columns, axis −2",
}


def _wrong_axis(exercise: Comparison, fn: Function, call: Call, tried: Tried,
                axes: dict[Axis, bool]) -> Diagnosis | None:  # fmt: skip
    """Whether all is right where what runs along one axis runs along another."""
    wrong = [x for x in tried if x.wrong]
    order = [*reversed(wrong), *(x for x in tried if not x.wrong)]
    for axis, along, keeps in product(axes, (-1, -2), (False, True)):
        if axis == along or keeps and axes[axis]:
            continue  # it does so already
        again = mended(fn, Mend(axis, along, keeps))
        if any(exercise.attempt(x.case, call(again, x.case)).wrong for x in order):
            continue
        where = ALONG.get(axis, f"runs along axis {axis}".replace("-", "−"))
        taken = "all axes" if axis is None else f"axis {axis}".replace("-", "−")
        kept = " with keepdims=True" * keeps
        words = f"A sum, a mean, a maximum or a softmax of yours {where}. Along axis −{-along}{kept} all is right."
        return Diagnosis(f"{taken} in place of axis −{-along}", words, wrong)
    return None


def _in_other_words(exercise: Comparison, tried: Tried, wrong: Tried) -> Mistake | None:
    """Unless a symptom says it more simply: the right answer, or one with a known mistake, to another question."""
    answers = [y for x in wrong for y in exercise.differing(x)]
    if one_for_all(answers, PLAIN) or not _of_many_numbers(wrong):
        return None
    others = exercise.made(other_questions(exercise), tried)
    return others or exercise.made(to_other_questions(exercise), tried)


@cache
def _two(exercise: Comparison) -> list[Mistake]:
    """Two variants that change different options."""
    variants = [mistake for mistake in exercise.mistakes if mistake.options]
    return [
        Mistake(
            f"{one.name}; {other.name}",
            f"Two mistakes at once. {one.words} {other.words}",
            partial(exercise.right, **one.options, **other.options),
        )
        for one, other in combinations(variants, 2)
        if not one.options.keys() & other.options.keys()
    ]


@cache
def other_questions(exercise: Comparison) -> list[Mistake]:
    """The right answer to other arguments: one exchanged for another, turned, or taken for something else."""
    right, first = exercise.right, exercise.cases[0]
    asked = [
        Mistake(
            what,
            f"Your answer is the right one to another question: it takes {what}.",
            after(right, change),
        )
        for what, change in misreadings(exercise.arguments, first)
    ]
    if isinstance(exercise.expected(first), bool | np.bool):
        words = "You return True where it should be False, and False where it should be True."
        asked += [Mistake("the opposite", words, lambda *x: not right(*x))]
    return [*asked, *_in_one_value(exercise)]


def _in_one_value(exercise: Comparison) -> Iterator[Mistake]:
    """Of several values: a mistake in one of them, or all of them in another order."""
    expected = exercise.expected(exercise.cases[0])
    if not isinstance(expected, tuple):
        return
    right, count = exercise.right, len(expected)
    for m, i in product(exercise.mistakes, range(count)):

        def one_of(*x: Any, m: Mistake = m, i: int = i) -> Any:
            return (*right(*x)[:i], m.wrong(*x)[i], *right(*x)[i + 1 :])

        words = f"Value {i + 1} of {count} is wrong, the others are right. {m.words}"
        yield Mistake(f"{m.name}, in one value", words, one_of)
    for order in [*permutations(range(count))][1:]:
        yield Mistake(
            f"values in the order {', '.join(str(i + 1) for i in order)}",
            "Your values are right, but in another order than they are asked for.",
            lambda *x, order=order: tuple(right(*x)[i] for i in order),
        )


@cache
def to_other_questions(exercise: Comparison) -> list[Mistake]:
    """The known mistakes, made with other arguments."""
    return [
        Mistake(
            f"{mistake.name}; {what}",
            f"Two mistakes at once. {mistake.words} Besides, it takes {what}.",
            after(mistake.wrong, change),
        )
        for what, change in misreadings(exercise.arguments, exercise.cases[0])
        for mistake in exercise.mistakes
        if "inverted" not in mistake.name or "opposite" not in what  # which cancel
    ]


def _of_many_numbers(wrong: Tried, at_least: int = 8) -> bool:
    """Whether what agrees with all these answers does so by no accident."""
    count = 0
    for y in (np.asarray(y) for x in wrong for y in x.got or ()):
        count += np.isfinite(y.astype(float)).sum() * (1 if y.dtype.kind in "bi" else 4)
    return count >= at_least


def _symptoms(exercise: Comparison, ask: Ask, tried: Tried) -> Diagnosis | None:
    """What wrong answers that no known mistake gives have in common, and a case that shows it."""
    wrong, right = ([x for x in tried if x.wrong is kind] for kind in (True, False))
    pair, names, last = both(ask, exercise.right), exercise.arguments, tried[-1].case
    answers = [y for x in wrong for y in exercise.differing(x)]
    shown = wrong[0].case
    found = _again(exercise, ask, tried) or one_for_all(answers, numbers.CONSTANT)
    found = found or ignored(pair, names, last)
    # Where most fail, what a few numbers look like tells less than the error.
    few = all(x.right.size <= 4 for x in answers)
    fails = few and 2 * sum(x.got is None for x in wrong) > len(wrong)
    if not found and not fails and (seen := strongest(answers)):
        found, shown = seen
    found = found or partly(pair, names, last)
    for x in [] if found or fails else wrong:  # the smallest that shows it
        if found := rows(pair, names, x.case):
            shown = x.case
            break
    found = found or _weights(exercise, ask)
    examples = [x for x in wrong if x.case is shown]
    cases = [x.case for x in wrong], [x.case for x in right]
    place = where_wrong(*cases) if right else None
    if found and right:
        where = f"Only {place[0]}: in" if place else "In"
        more = f"({where} the other {len(right)} of {len(tried)} cases you are right.)"
        return Diagnosis(found[0], f"{found[1]} {more}", examples)
    if place:
        share = f"You are right in {len(right)} of {len(tried)} cases, and wrong only {place[0]}."
        return Diagnosis(f"wrong {place[0]}", f"{share} {place[1]}", examples)
    return Diagnosis(*found, examples) if found else None


def _again(exercise: Comparison, ask: Ask, tried: Tried) -> Finding | None:
    """Another answer to the first or the last question, now that others have been asked."""
    for x in (tried[0], tried[-1]):
        now = exercise.attempt(x.case, ask(x.case))
        if x.got and now.got and not exercise.agree(x.case, x.got, now.got):
            return "another answer each time", (
                "Asked the same twice, you give two answers. Is something random left in it, or does it remember an "
                "earlier call, in a default argument or a global name?"
            )
    return None


def _weights(exercise: Comparison, ask: Ask) -> Finding | None:
    """What is wrong with the weights, where the answer can be made to show them."""
    if exercise.weights is None:
        return None
    attempt = exercise.attempt(exercise.weights, ask(exercise.weights))
    if not (seen := strongest(exercise.differing(attempt))):
        return None
    title, words = seen[0]
    return (
        f"weights: {title}",
        f"With an identity matrix for V your output is your weights, and shows: {words}",
    )


def _here_and_there(exercise: Comparison, tried: Tried) -> Diagnosis | None:
    """A mistake that is made in some cases; the others are right, or they have something wrong in common."""
    wrong = [x for x in tried if x.wrong]
    best, most = None, 0
    for mistake in chain(exercise.mistakes, other_questions(exercise)):
        made = [x for x in tried if exercise.makes(mistake.wrong, x)]
        explained = [x for x in made if x.wrong]
        others = [x for x in tried if x not in made]
        # Of answers that are True or False any two wrong ones agree: those that are right must be so in both, too.
        telling = made if all(x.wrong for x in others) else explained
        few = len(explained) <= max(most, len(wrong) // 2)
        if few or not _of_many_numbers(telling, at_least=4):
            continue
        if more := _of_the_others(others, made):
            title, words = f"{mistake.name}; {more[0]}", f"{mistake.words} {more[1]}"
            best, most = Diagnosis(title, words, explained), len(explained)
    return best


def _of_the_others(others: Tried, made: Tried) -> Finding | None:
    """What is to be said of the cases in which a mistake is not made."""
    share = f"{len(made)} of {len(made) + len(others)} cases"
    if not any(x.wrong for x in others):
        if not others or np.asarray(others[0].right[0]).dtype == bool:
            return None
        return "in some cases", f"(In {share} you do so; in the others you are right.)"
    if not all(x.wrong for x in others) or len(others) > len(made):
        return None
    if all(x.outcome.error for x in others):
        error = type(others[0].outcome.error).__name__
        return f"raises {error}", f"(So in {share}. In the others it raises {error}.)"
    if place := where_wrong([x.case for x in others], [x.case for x in made]):
        words = f"(So in {share}. You are wrong in another way {place[0]}: {place[1]})"
        return f"wrong in another way {place[0]}", words
    return None
