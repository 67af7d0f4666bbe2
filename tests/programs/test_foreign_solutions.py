"""Of wrong solutions that others wrote nine in ten are named, none is accepted or misled, and no right one refused."""

import re

import pytest
from foreign.eighth import EIGHTH
from foreign.fifth import FIFTH
from foreign.first import FIRST
from foreign.fourth import FOURTH
from foreign.ninth import NINTH
from foreign.second import SECOND
from foreign.seventh import SEVENTH
from foreign.sixth import SIXTH
from foreign.third import THIRD

from attn_tutor.check import EXERCISES

SETS = FIRST, SECOND, THIRD, FOURTH, FIFTH, SIXTH, SEVENTH, EIGHTH, NINTH
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


@pytest.mark.parametrize(("exercise", "fn", "says"), WRONG)
def test_a_wrong_solution_is_named(exercise, fn, says):
    report = EXERCISES[exercise].examine(fn)
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


@pytest.mark.parametrize(("exercise", "fn"), RIGHT)
def test_a_right_solution_is_accepted_however_it_is_written(exercise, fn):
    report = EXERCISES[exercise].examine(fn)
    assert report.right, report.text
