"""``python -m attn_tutor.check``: list the exercises, or check the functions of a file or a notebook."""

import argparse
import ast
import inspect
import json
import re
import runpy
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from difflib import get_close_matches
from itertools import groupby
from pathlib import Path
from typing import Any

from attn_tutor.check import EXERCISES
from attn_tutor.check.calls import call, contained
from attn_tutor.check.exercise import Exercise

Defined = dict[str, Callable[..., Any]]
RUN_AS = "solutions"  # the name of the file as a module
SECONDS = 60.0  # for the file to run; importing torch takes some of them


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m attn_tutor.check",
        description="List the exercises, or check the functions of a file that have the name of one "
        "(my_softmax counts as softmax). The exit status is 0 if all of those are right.",
    )
    about = "a Python file or a notebook"
    parser.add_argument("file", nargs="?", type=Path, help=about)
    file = parser.parse_args(arguments).file
    if file is None:
        print(listing())
        return 0
    if not file.is_file():
        parser.error(f"there is no file {file}")
    with contained():
        ran = call(names_of, (file,), tensors=False, seconds=SECONDS)
    if ran.late:
        about = f"{file} runs for more than {SECONDS:.0f} s"
        parser.error(
            f"{about}. Is there a loop that never ends outside of the functions?"
        )
    if isinstance(ran.error, SystemExit):
        about = f"{file} ends itself with exit(), before anything is checked"
        parser.error(f"{about}. Take that line out.")
    if ran.error:
        parser.error(f"{file} does not run: {type(ran.error).__name__}: {ran.error}")
    own, imported = parted(ran.value)
    strange, found = misspelt(own), solutions(own)
    skipped = [
        f"skipped `{name}`: it is imported from {fn.__module__}"
        for name, _, fn in solutions(imported)
    ]
    if not found and not strange:
        message = f"{file} defines no function with the name of an exercise"
        parser.error("; ".join([message, *skipped]))
    status = grade(found) if found else 0
    close = [f"no exercise `{x}`; did you mean {y}?" for x, y in strange.items()]
    print("".join(f"{line}\n" for line in [*skipped, *close]), end="")
    return 1 if strange else status


def listing() -> str:
    ordered = sorted(EXERCISES.values(), key=lambda exercise: exercise.chapter)
    parts = [
        "\n".join([f"Chapter {chapter}", *(f"  {x.statement}" for x in exercises)])
        for chapter, exercises in groupby(ordered, lambda exercise: exercise.chapter)
    ]
    return "\n\n".join(parts)


def names_of(file: Path) -> dict[str, Any]:
    """What a file defines; of a notebook what its cells import, define and set to plain values, without its runs."""
    if file.suffix != ".ipynb":
        return runpy.run_path(str(file), run_name=RUN_AS)
    names: dict[str, Any] = {"__name__": RUN_AS}
    cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
    for i, cell in enumerate(cells, 1):
        text = "".join(cell["source"]) if cell["cell_type"] == "code" else ""
        code = re.sub(r"(?m)^[%!].*$", "", text)  # what only Jupyter understands
        for node in filter(_defines, ast.parse(code, f"cell {i}").body):
            with suppress(NameError):  # a default that a run would have made
                exec(compile(ast.Module([node], []), f"cell {i}", "exec"), names)
    return names


def _defines(node: ast.stmt) -> bool:
    kinds = ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef
    plain = isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
    return plain or isinstance(node, kinds)


def parted(names: dict[str, Any]) -> tuple[Defined, Defined]:
    """What can be called, in the order of the file: what was made there, np.vectorize(…) too, and what it imports."""
    parts: tuple[Defined, Defined] = {}, {}
    for name, x in names.items():
        if callable(x):
            named = inspect.isroutine(x) or inspect.isclass(x)
            parts[named and x.__module__ != RUN_AS][name] = x
    return parts


def solutions(defined: Defined) -> list[tuple[str, Exercise, Callable[..., Any]]]:
    """The functions with the name of an exercise, and these."""
    return [
        (name, EXERCISES[asked], fn)
        for name, fn in defined.items()
        if (asked := name.removeprefix("my_")) in EXERCISES
    ]


def misspelt(defined: Defined) -> dict[str, str]:
    """Names that are nearly those of an exercise, which the file does not define otherwise."""
    begun = {exercise.name for _, exercise, _ in solutions(defined)}
    meant = {
        name: get_close_matches(asked, EXERCISES, 1, 0.85)
        for name in defined
        if (asked := name.removeprefix("my_")) not in EXERCISES
    }
    return {
        n: close[0] for n, close in meant.items() if close and close[0] not in begun
    }


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
