"""Of wrong solutions that others wrote nine in ten are named, none is accepted or misled, and no right one refused."""

import re
from functools import cache

import pytest
from foreign.eighth import EIGHTH
from foreign.fifth import FIFTH
from foreign.first import FIRST
from foreign.fourth import FOURTH
from foreign.ninth import NINTH
from foreign.second import SECOND
from foreign.seventh import SEVENTH
from foreign.sixth import SIXTH
from foreign.tenth import TENTH
from foreign.third import THIRD

from attn_tutor.check import EXERCISES
from attn_tutor.check.chapters.ch04_puzzles import Puzzle

SETS = FIRST, SECOND, THIRD, FOURTH, FIFTH, SIXTH, SEVENTH, EIGHTH, NINTH, TENTH
WRONG = [
    pytest.param(*each, id=f"{each[0]}: {each[1].__name__}")
    for solutions in SETS
    for each in solutions.wrong_ones
]
RIGHT = [
    pytest.param(*each, id=f"{each[0]}: {getattr(each[1], '__name__', 'a module')}")
    for solutions in SETS
    for each in solutions.right_ones
]
UNNAMED = "wrong values", "wrong shape", "raises"


@cache
def examined(exercise, fn):
    return EXERCISES[exercise].examine(fn)


@pytest.mark.parametrize(("exercise", "fn", "says"), WRONG)
def test_a_wrong_solution_is_named(exercise, fn, says):
    report = examined(exercise, fn)
    assert not report.right
    if says is None:  # one that nothing can name is given no other name
        assert report.title.startswith(UNNAMED), report.text
        return
    assert not report.title.startswith(UNNAMED), report.text
    assert "none of the mistakes known" not in report.text
    assert re.search(says, diagnosis(report.text)), report.text


def diagnosis(text):
    """The title and the words, without the example, whose numbers and names might fit by chance."""
    return re.sub(r"\nFor\n(  .*\n?)*", "\n", text).partition(": ")[2]


def test_at_least_nine_in_ten_are_named():
    named = [says is not None for each in SETS for _, _, says in each.wrong_ones]
    assert len(named) >= 500 and sum(named) >= 0.9 * len(named)


def test_each_listed_mistake_is_told_of_one_of_them():
    """A mistake that nobody makes goes; the puzzles are few here, and may list what their page lets one try."""
    wrong = [each for solutions in SETS for each in solutions.wrong_ones]
    told = "\n".join(examined(exercise, fn).text for exercise, fn, _ in wrong)
    listed = [x for x in EXERCISES.values() if not isinstance(x, Puzzle)]
    assert [m.name for x in listed for m in x.mistakes if m.words not in told] == []


@pytest.mark.parametrize(("exercise", "fn"), RIGHT)
def test_a_right_solution_is_accepted_however_it_is_written(exercise, fn):
    report = EXERCISES[exercise].examine(fn)
    assert report.right, report.text
