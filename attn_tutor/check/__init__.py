"""Checkers for your own solutions of the book's exercises, in NumPy or in torch.

``check.softmax(my_softmax)`` tries the function on chosen inputs. It prints one line and returns True if all is right;
otherwise it says which mistake it sees, with the smallest input that shows it, and returns False.

``python -m attn_tutor.check`` lists the exercises, ``python -m attn_tutor.check my_solutions.py`` checks a file.
"""

from importlib import import_module
from pkgutil import iter_modules

from attn_tutor.check import chapters
from attn_tutor.check.exercise import Exercise

# All that the files in chapters/ define, so that a new exercise is written down in one place.
EXERCISES: dict[str, Exercise] = {
    x.name: x
    for file in iter_modules(chapters.__path__)
    for x in vars(import_module(f"{chapters.__name__}.{file.name}")).values()
    if isinstance(x, Exercise)
}
globals().update(EXERCISES)
__all__ = sorted(EXERCISES)


def __getattr__(name: str) -> Exercise:
    """This tells type checkers that each attribute is an exercise. It is called for names that are none."""
    raise AttributeError(f"module {__name__} has no exercise {name}")
