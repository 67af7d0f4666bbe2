"""The reference as Markdown, for programs that read: what ``api_pages`` leaves to Sphinx, each docstring as it is."""

import importlib
import inspect
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import api_pages
from public_names import everything, methods, title
from shape_ledger import ledger, shapes, signature

ROLE = re.compile(r"(?:\{[a-z:]+\}|:[a-z:]+:)`~?([^`<]+?)(?: <[^`>]+>)?`")
FORMULA = re.compile(r"(?m)^\.\. math::((?:.*\n)(?: {4}.*\n|\n(?= {4}))*)")
SECTION = re.compile(r"(?m)^(Args|Returns|Raises|Example)::?\n+((?: {4}.*\n|\n)+)")


def api(package: str) -> str:
    """Each public name with its signature, its shapes and its docstring."""
    parts: list[str] = []
    for _, module, things in everything(package):
        text = docstring(importlib.import_module(module))
        parts += [f"## `{title(module, package)}`", text]
        for name, thing in things.items():
            parts += entry("###", name, thing)
    return "\n\n".join(filter(None, parts))


def entry(level: str, name: str, thing: Any, skip: int = 0) -> Iterator[str]:
    yield f"{level} `{name}`"
    if callable(thing):
        yield f"`{name}{signature(thing, skip)[1:]}"
        yield shapes(thing) and f"Shapes: {shapes(thing)}"
        yield docstring(thing)
    for method, fn in methods(thing):
        yield from entry("####", f"{name}.{method}", fn, skip=1)


def docstring(thing: Any) -> str:
    text = FORMULA.sub(formula, f"{inspect.getdoc(thing) or ''}\n")
    return plain(SECTION.sub(section, text)).strip()


def formula(found: re.Match[str]) -> str:
    return f"$$\n{inspect.cleandoc(found[1].strip())}\n$$\n"


def section(found: re.Match[str]) -> str:
    """A list of arguments or errors; an example stays indented, which is Markdown's code."""
    name, text = found[1], found[2].rstrip()
    if name in ("Args", "Raises"):
        text = re.sub(r"(?m)^ {4}(?! )", "- ", text).replace("\n        ", "\n  ")
    elif name == "Returns":
        text = inspect.cleandoc(text)
    return f"**{name}**\n\n{text}\n\n"


def plain(text: str) -> str:
    """Without what only Sphinx understands."""
    text = re.sub(r":math:`([^`]+)`", r"$\1$", text)
    return ROLE.sub(r"`\1`", text).replace("``", "`")


def checker(exercise: Any) -> str:
    asked, _, words = exercise.statement.partition(": ")
    mistakes = "; ".join(dict.fromkeys(mistake.name for mistake in exercise.mistakes))
    head = f"### `check.{exercise.name}(fn)`"
    return f"{head}\n\nAsks for `{asked}`: {words}\n\nTells by name: {mistakes}."


written = partial(
    api_pages.written,
    ways={
        "api": api,
        "help": api_pages.help_text,
        "ledger": lambda: plain(ledger()),
        "checkers": lambda: api_pages.checkers(checker),
    },
)
