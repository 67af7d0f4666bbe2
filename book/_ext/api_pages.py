"""Write the API pages from the code, so that nothing public can be missing from them.

A page says where: ``<!-- api attn_tutor.numpy -->`` becomes a section for each module, ``<!-- ledger -->`` the tables
of every function with its shapes, ``<!-- checkers -->`` the exercises, and ``<!-- help attn_tutor.bench -->`` what
``python -m attn_tutor.bench --help`` prints. Functions carry their shape signature as ``__shapes__``.
"""

import importlib
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Callable
from itertools import groupby
from types import ModuleType
from typing import Any

from public_names import import_name, modules, public_names
from shape_ledger import ledger
from sphinx.application import Sphinx

FIELD = re.compile(r":[a-z]+( [^:]*)?:( |$)")  # ":param x: …", and not ":func:`…`"


def write_pages(app: Sphinx, docname: str, source: list[str]) -> None:
    written: dict[str, Callable[[str], str]] = {
        r"<!-- api (\S+) -->": api,
        r"<!-- help (\S+) -->": help_text,
        r"<!-- (ledger) -->": lambda _: ledger(),
        r"<!-- (checkers) -->": lambda _: checkers(),
    }
    for pattern, write in written.items():
        for mark in re.finditer(pattern, source[0]):
            source[0] = source[0].replace(mark[0], write(mark[1]))


def api(package: str) -> str:
    """A section for each module of the package, or the one section of a plain module."""
    sections = []
    for module in modules(importlib.import_module(package)):
        title = module.__name__.removeprefix(f"{package}.")
        entries = [entry(package, module, name) for name in public_names(module)]
        sections += [f"## `{title}`", inspect.getdoc(module) or "", *entries]
    return "\n\n".join(sections)


def entry(package: str, module: ModuleType, name: str) -> str:
    """The autodoc directive, under the name by which readers import it."""
    path = import_name(package, module, name)
    if inspect.isclass(getattr(module, name)):
        directive = f".. autoclass:: {path}\n   :members:"
    else:
        directive = f".. autofunction:: {path}"
    return f"```{{eval-rst}}\n{directive}\n```"


def checkers() -> str:
    """A section for each chapter with its exercises, and the mistakes that each tells by name."""
    titles = importlib.import_module("attn_tutor.check.__main__").TITLES
    found = importlib.import_module("attn_tutor.check").EXERCISES
    sections = []
    ordered = sorted(found.values(), key=lambda exercise: exercise.chapter)
    for chapter, exercises in groupby(ordered, lambda exercise: exercise.chapter):
        sections += [f"## Chapter {chapter}: {titles[chapter]}"]
        sections += [checker(exercise) for exercise in exercises]
    return "\n\n".join(sections)


def checker(exercise: Any) -> str:
    asked, _, words = exercise.statement.partition(": ")
    mistakes = dict.fromkeys(mistake.name for mistake in exercise.mistakes)
    told = "; ".join(re.sub(r"([\\*_`|])", r"\\\1", name) for name in mistakes)
    text = re.sub(r"([\\*_`|])", r"\\\1", words)
    return "\n".join(
        [
            "```{eval-rst}",
            ".. py:currentmodule:: attn_tutor",
            f".. py:function:: check.{exercise.name}(fn)",
            "",
            f"   Asks for ``{asked}``: {text}",
            "",
            f"   Tells by name: {told}.",
            "```",
        ]
    )


def help_text(command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", command, "--help"],
        env=os.environ | {"COLUMNS": "88"},
        capture_output=True,
        check=True,
        text=True,
    )
    return f"```text\n{done.stdout}```"


def add_shapes(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]
) -> None:
    """Show the shape signature as the first of the fields that Napoleon has made of the docstring."""
    if hasattr(thing, "__shapes__"):
        at = next((i for i, line in enumerate(lines) if FIELD.match(line)), len(lines))
        lines[at:at] = ["", f":Shapes: ``{thing.__shapes__}``"]


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", write_pages)
    app.connect("autodoc-process-docstring", add_shapes, priority=900)  # after Napoleon
    return {"parallel_read_safe": True, "parallel_write_safe": True}
