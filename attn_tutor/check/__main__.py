"""``python -m attn_tutor.check``: list the exercises. With a file: check the functions that it defines."""

import argparse
import runpy
import sys
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from attn_tutor.check import EXERCISES
from attn_tutor.check.exercise import Exercise

TITLES = {
    1: "Queries, keys and values",
    2: "Scoring functions",
    3: "Masked softmax",
    4: "Self-attention",
    5: "Multi-head attention",
    6: "Positional encoding",
    7: "Gradients of attention",
    8: "A translator",
    9: "A small transformer",
    10: "Fast attention",
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m attn_tutor.check",
        description="List the exercises, or check the functions of a file that have the name of one "
        "(my_softmax counts as softmax). The exit status is 0 if all of those are right.",
    )
    parser.add_argument("file", nargs="?", type=Path, help="a Python file")
    file = parser.parse_args(arguments).file
    if file is None:
        print(listing())
        return 0
    if not file.is_file():
        parser.error(f"there is no file {file}")
    try:
        found = list(solutions(file))
    except Exception as error:
        parser.error(f"{file} does not run: {type(error).__name__}: {error}")
    if not found:
        parser.error(f"{file} defines no function with the name of an exercise")
    return grade(found)


def listing() -> str:
    lines = []
    ordered = sorted(EXERCISES.values(), key=lambda exercise: exercise.chapter)
    for chapter, exercises in groupby(ordered, lambda exercise: exercise.chapter):
        lines += ["", f"{chapter} {TITLES[chapter]}"]
        lines += [f"  {exercise.statement}" for exercise in exercises]
    return "\n".join(lines[1:])


def solutions(file: Path) -> list[tuple[str, Exercise, Callable[..., Any]]]:
    """The functions that the file itself defines, in its order, with their exercises."""
    defined = runpy.run_path(str(file), run_name="solutions")
    return [
        (name, EXERCISES[asked], fn)
        for name, fn in defined.items()
        if (asked := name.removeprefix("my_")) in EXERCISES
        and getattr(fn, "__module__", None) == "solutions"
    ]


def grade(found: list[tuple[str, Exercise, Callable[..., Any]]]) -> int:
    width = max(len(name) for name, _, _ in found)
    details = []
    for name, exercise, fn in found:
        report = exercise.examine(fn)
        print(f"{report.text[0]} {name:{width}}  {report.title}", flush=True)
        details += [] if report.right else [f"\n{report.text}"]
    right, begun = len(found) - len(details), {x.name for _, x, _ in found}
    print(*details, sep="\n")
    print(f"\n{right} of {len(found)} right; exercises: {len(EXERCISES)}", end=", ")
    print(f"not begun: {len(EXERCISES) - len(begun)}")
    return 0 if right == len(found) else 1


if __name__ == "__main__":
    sys.exit(main())
