"""The shape ledger: every public function and method once, with its signature, its shapes and what it gives."""

import importlib
import inspect
import re
from typing import Any

from public_names import commands, everything, methods, title

HALVES = ["numpy", "torch"]
PACKAGES = [*HALVES, "torch.distributed", "failures", "models", "figures", "data"]
HEAD = ["| function | signature, shapes, and what it gives |", "|---|---|"]


def ledger() -> str:
    tables: dict[str, dict[str, dict[str, Any]]] = {}  # module: name: package: thing
    for package in PACKAGES:
        for room, module, things in everything(f"attn_tutor.{package}"):
            head = title(module, f"attn_tutor.{package}")
            table = tables.setdefault(head if package in HALVES else package, {})
            for name, thing in things.items():
                table.setdefault(name, {})[room.removeprefix("attn_tutor.")] = thing
    titled = {
        head: [row for name, things in table.items() for row in rows(name, things)]
        for head, table in tables.items()
    }
    exercises = importlib.import_module("attn_tutor.check").EXERCISES.values()
    titled["check"] = [
        row(
            [f"{{py:obj}}`check.{it.name} <attn_tutor.check.{it.name}>`"],
            [f"`{asked}`", words],
        )
        for it in sorted(exercises, key=lambda it: it.chapter)
        for asked, _, words in [it.statement.partition(": ")]
    ]
    titled["commands"] = [
        f"| `python -m {name}` | {first_line(importlib.import_module(name))} |"
        for name in commands()
    ]
    parts = ([f"### `{head}`", "", *HEAD, *lines] for head, lines in titled.items())
    return "\n\n".join("\n".join(part) for part in parts)


def rows(name: str, things: dict[str, Any]) -> list[str]:
    """The row of a function; of a class, one more for each of its public methods."""
    first, *others = things.values()
    links = (f"{{py:obj}}`{x} <attn_tutor.{x}.{name}>`" for x in things)
    cells = [signature(first), shapes(first), first_line(first) + extras(first, others)]
    found = [row([f"`{name}`", " · ".join(links)], cells)]
    for method, fn in methods(first):
        cells = [signature(fn, skip=1), shapes(fn), first_line(fn)]
        found += [row([f"`{name}.{method}`"], cells)]
    return found


def row(*cells: list[str]) -> str:
    lines = [" <br> ".join(filter(None, cell)).replace("|", r"\|") for cell in cells]
    return f"| {' | '.join(lines)} |"


def signature(thing: Any, skip: int = 0) -> str:
    """The arguments without their types, which the shapes below them say better."""
    given = inspect.signature(thing).parameters.values()
    bare = [x.replace(annotation=inspect.Parameter.empty) for x in given]
    text = str(inspect.Signature(bare[skip:]))
    text = text.replace("<factory>", "…")  # of a dataclass
    text = re.sub(r"<(?:built-in )?function (\w+)[^>]*>", r"\1", text)
    return f"`{text}`"


def extras(thing: Any, others: list[Any]) -> str:
    """What the other half takes beside the same arguments."""
    known = inspect.signature(thing).parameters
    more = [
        f"`{name}={parameter.default}`"
        for other in others
        for name, parameter in inspect.signature(other).parameters.items()
        if name not in known
    ]
    return f" torch also takes {' and '.join(more)}." if more else ""


def shapes(thing: Any) -> str:
    """Those that the function checks; else, of what it gives, those that the docstring says."""
    if not (found := getattr(thing, "__shapes__", "")):
        said = re.search(r"^Returns:\n +(.*)", inspect.getdoc(thing) or "", re.M)
        given = re.findall(r"\([^() ]*,[^()]*\)", said[1]) if said else []
        found = f"-> {', '.join(given)}" if given else ""
    return f"`{found}`" if found else ""


def first_line(thing: Any) -> str:
    line = (inspect.getdoc(thing) or "").partition("\n")[0]
    line = re.sub("^``[^`]+``: ", "", line)  # a command says its own name first
    return re.sub(":[a-z]+:`", "`", line)  # the page is Markdown
