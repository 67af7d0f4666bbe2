"""The shape ledger: every public function and method once, with its signature, its shapes and what it gives.

Functions carry their shape signature as ``__shapes__``. For the others the shapes are those that the docstring gives.
"""

import importlib
import inspect
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

from public_names import commands, import_name, modules, place, public_names

HALVES = ("numpy", "torch")
MIRRORED = [f"attn_tutor.{half}" for half in HALVES]
OTHERS = ["attn_tutor.figures", "attn_tutor.data"]
SHAPE = re.compile(r"\(((?:…|[\w/]{1,8})?(?:, ?[\w/]{1,8})*,?)\)")


def ledger() -> str:
    sections: dict[str, list[str]] = {}
    for name, having in mirrored().items():
        half, module = next(iter(having.items()))
        title = module.__name__.rpartition(".")[2]
        links = {h: import_name(f"attn_tutor.{h}", m, name) for h, m in having.items()}
        things = [getattr(each, name) for each in having.values()]
        sections.setdefault(title, []).extend(rows(name, things, links))
    for package in OTHERS:
        title = package.rpartition(".")[2]
        for module in modules(importlib.import_module(package)):
            for name in public_names(module):
                links = {title: import_name(package, module, name)}
                lines = rows(name, [getattr(module, name)], links)
                sections.setdefault(title, []).extend(lines)
    sections["check"] = exercises()
    sections["commands"] = [
        row(f"python -m {it.__name__}", [], first_line(it)) for it in commands()
    ]
    head = ["| function | signature, shapes, and what it gives |", "|---|---|"]
    return "\n\n".join(
        "\n".join([f"### `{title}`", "", *head, *lines])
        for title, lines in sections.items()
    )


def mirrored() -> dict[str, dict[str, ModuleType]]:
    """Each name of the two halves, with the modules that define it."""
    found: dict[str, dict[str, ModuleType]] = {}
    for half, package in zip(HALVES, MIRRORED, strict=True):
        for module in modules(importlib.import_module(package)):
            for name in public_names(module):
                found.setdefault(name, {})[half] = module
    order = sorted(found, key=lambda name: place([*found[name].values()][0].__name__))
    return {name: found[name] for name in order}


def rows(name: str, things: list[Any], links: dict[str, str]) -> list[str]:
    """The row of a function; of a class, one more for each of its public methods."""
    thing, *mirror = things
    code = [signature(thing), shapes(thing)]
    found = [row(name, code, first_line(thing) + extras(thing, mirror), links)]
    if inspect.isclass(thing):
        for method, fn in vars(thing).items():
            if not method.startswith("_") and callable(getattr(thing, method)):
                bound = fn.__func__ if isinstance(fn, classmethod) else fn
                code = [signature(bound, skip=1), shapes(bound)]
                found.append(row(f"{name}.{method}", code, first_line(bound)))
    return found


def exercises() -> list[str]:
    """The checkers: each statement holds the arguments and the shapes."""
    found = importlib.import_module("attn_tutor.check").EXERCISES
    return [
        row(
            f"check.{name}",
            [exercise.statement.partition(": ")[0]],
            exercise.statement.partition(": ")[2],
            {"check": f"attn_tutor.check.{name}"},
        )
        for name, exercise in sorted(found.items(), key=lambda item: item[1].chapter)
    ]


def row(
    name: str, code: list[str], meaning: str, links: dict[str, str] | None = None
) -> str:
    pages = (links or {}).items()
    left = " · ".join(f"{{py:obj}}`{text} <{to}>`" for text, to in pages)
    right = [*(f"`{line}`" for line in code if line), meaning]
    cells = [" <br> ".join(filter(None, x)) for x in ([f"`{name}`", left], right)]
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def signature(thing: Callable[..., Any], skip: int = 0) -> str:
    """The arguments without their types, which the shapes below them say better."""
    given = inspect.signature(thing).parameters.values()
    bare = [x.replace(annotation=inspect.Parameter.empty) for x in given]
    text = str(inspect.Signature(bare[skip:]))
    text = text.replace("<factory>", "…")  # of a dataclass
    return re.sub(r"<(?:built-in )?function (\w+)[^>]*>", r"\1", text)


def extras(thing: Callable[..., Any], mirror: list[Callable[..., Any]]) -> str:
    """What the other half takes beside the same arguments."""
    known = inspect.signature(thing).parameters
    more = [
        f"`{name}={parameter.default}`"
        for other in mirror
        for name, parameter in inspect.signature(other).parameters.items()
        if name not in known
    ]
    return f" torch also takes {' and '.join(more)}." if more else ""


def shapes(thing: Any) -> str:
    """From the decorator; else from the first line, where a ``forward`` has them; else from Args and Returns."""
    if found := getattr(thing, "__shapes__", ""):
        return str(found)
    text = inspect.getdoc(thing) or ""
    first, *_ = text.partition("\n")
    if first.startswith("(") and "->" in first:
        return re.split(r"[;.]( |$)", first)[0]
    taken = re.findall(r"^    (\w+): ((?:.|\n {5,})*)", part(text, "Args"), re.M)
    left = [f"{name} {drawn}" for name, words in taken if (drawn := shapes_in(words))]
    right = [f"-> {drawn}" for drawn in [shapes_in(part(text, "Returns"))] if drawn]
    return " ".join([", ".join(left), *right]).strip()


def part(text: str, title: str) -> str:
    """A section of a docstring."""
    found = re.search(rf"^{title}:\n((?:(?: .*)?\n?)*)", text, re.M)
    return found[1] if found else ""


def shapes_in(words: str) -> str:
    found = [
        f"({shape.replace(' ', '')})" for shape in SHAPE.findall(words) if "," in shape
    ]
    return (" or " if ") or (" in words else ", ").join(found)


def first_line(thing: Any) -> str:
    line = (inspect.getdoc(thing) or "").partition("\n")[0]
    if line.startswith("("):  # shapes, which have a line of their own
        line = re.split(r"[;.]( |$)", line, maxsplit=1)[-1]
    line = re.sub("^``[^`]+``: ", "", line)  # a command says its own name first
    return re.sub(":[a-z]+:`", "`", line)  # this page is Markdown
