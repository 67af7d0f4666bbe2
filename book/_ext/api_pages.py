"""Write the API pages from the code, so that nothing public can be missing from them.

A page says where: ``<!-- api attn_tutor.numpy -->`` becomes a section for each module, ``<!-- ledger -->`` the tables
of every function with its shapes, ``<!-- checkers -->`` the exercises, and ``<!-- help attn_tutor.bench -->`` what
``python -m attn_tutor.bench --help`` prints. Functions carry their shape signature as ``__shapes__``.
"""

import functools
import importlib
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Callable
from itertools import groupby
from typing import Any

from book_pages import Notebook, toc
from public_names import everything, title, written_once
from shape_ledger import ledger
from sphinx.application import Sphinx
from sphinx.ext.autodoc import ClassDocumenter

FIELD = re.compile(r":[a-z]+( [^:]*)?:( |$)")  # ":param x: …", and not ":func:`…`"


def write_pages(app: Sphinx, docname: str, source: list[str]) -> None:
    source[0] = written(
        source[0],
        {"api": api, "help": help_text, "ledger": ledger, "checkers": checkers},
    )


def written(source: str, ways: dict[str, Callable[..., str]]) -> str:
    """A page with what stands for each of its marks."""
    return re.sub(
        rf"<!-- ({'|'.join(ways)}) ?(\S*) -->",
        lambda mark: ways[mark[1]](*filter(None, [mark[2]])),
        source,
    )


def api(package: str) -> str:
    """A section for each module of the package, its names as readers import them."""
    parts = []
    for room, module, things in everything(package):
        head = f"## `{title(module, package)}`"
        parts += [head, inspect.getdoc(importlib.import_module(module))]
        for name, thing in things.items():
            kind, options = "function", ""
            if inspect.isclass(thing):
                kind, options = "class", "\n   :members:"
                options += "\n   :inherited-members:" * bool(written_once(thing))
            elif not callable(thing):
                kind, options = "data", "\n   :no-value:"
            parts += [rst(f".. auto{kind}:: {room}.{name}{options}")]
    return "\n\n".join(filter(None, parts))


def checkers(write: Callable[[Any], str] | None = None) -> str:
    """A section for each chapter with its exercises, and the mistakes that each tells by name."""
    titles = ["", *(Notebook(path).title for path in toc())]
    found = importlib.import_module("attn_tutor.check").EXERCISES
    parts = []
    ordered = sorted(found.values(), key=lambda exercise: exercise.chapter)
    for chapter, exercises in groupby(ordered, lambda exercise: exercise.chapter):
        parts += [
            f"## Chapter {chapter}: {titles[chapter]}",
            *map(write or checker, exercises),
        ]
    return "\n\n".join(parts)


def checker(exercise: Any) -> str:
    asked, _, words = exercise.statement.partition(": ")
    told = "; ".join(dict.fromkeys(mistake.name for mistake in exercise.mistakes))
    text, told = (re.sub(r"([\\*_`|])", r"\\\1", line) for line in (words, told))
    about = f"   Asks for ``{asked}``: {text}\n\n   Tells by name: {told}."
    head = (
        f".. py:currentmodule:: attn_tutor\n.. py:function:: check.{exercise.name}(fn)"
    )
    return rst(f"{head}\n\n{about}")


def rst(text: str) -> str:
    return f"```{{eval-rst}}\n{text}\n```"


@functools.cache
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
    if name.startswith("attn_tutor.torch.distributed."):  # rules are of the torch half
        there = r":class:`~attn_tutor.torch.\1`"
        lines[:] = [re.sub(":class:`(Rule|Bias)`", there, line) for line in lines]
    if lines[:1] and lines[0].startswith("Alias for field number"):
        lines.clear()  # NamedTuple's words, which say nothing
    if hasattr(thing, "__shapes__"):
        at = next((i for i, line in enumerate(lines) if FIELD.match(line)), len(lines))
        lines[at:at] = ["", f":Shapes: ``{thing.__shapes__}``"]


class OfAPackage(ClassDocumenter):
    """A class under the name by which its package exports it; two exports of one class have no name in common."""

    def get_canonical_fullname(self) -> str | None:
        own = self.object.__module__.startswith(f"{self.modname}.")
        return super().get_canonical_fullname() if own else None


def setup(app: Sphinx) -> dict[str, bool]:
    app.setup_extension("sphinx.ext.autodoc")
    app.add_autodocumenter(OfAPackage, override=True)
    app.connect("source-read", write_pages)
    app.connect("autodoc-process-docstring", add_shapes, priority=900)  # after Napoleon
    return {"parallel_read_safe": True, "parallel_write_safe": True}
