"""Write the API pages from the docstrings, so that no public function can be missing from them.

A page says where: ``<!-- api attn_tutor.numpy -->`` becomes a section for each module, and ``<!-- ledger -->`` a
table of every function with its shapes. Functions carry their shape signature as ``__shapes__``.
"""

import ast
import importlib
import inspect
import pkgutil
import re
from types import ModuleType
from typing import Any

from sphinx.application import Sphinx

FIELD = re.compile(r":[a-z]+( [^:]*)?:( |$)")  # ":param x: …", and not ":func:`…`"

# Modules in the order of the chapters; one that is not listed comes last.
ORDER = [
    "scoring", "kernels", "masks", "softmax", "attention", "self_attention", "multi_head", "positional", "cache",
    "gradients", "decoding", "modules", "seq2seq", "training", "weights",
]  # fmt: skip  # a list of words reads as lines


def write_pages(app: Sphinx, docname: str, source: list[str]) -> None:
    source[0] = re.sub(r"<!-- api (\S+) -->", lambda mark: api(mark[1]), source[0])
    source[0] = re.sub(r"<!-- ledger -->", lambda mark: ledger(), source[0])


def api(package: str) -> str:
    """A section for each module of the package, or the one section of a plain module."""
    sections = []
    for module in modules(importlib.import_module(package)):
        title = module.__name__.removeprefix(f"{package}.")
        entries = [entry(package, module, name) for name in public_names(module)]
        sections += [f"## `{title}`", inspect.getdoc(module) or "", *entries]
    return "\n\n".join(sections)


def modules(package: ModuleType) -> list[ModuleType]:
    if not hasattr(package, "__path__"):
        return [package]
    names = [
        info.name
        for info in pkgutil.iter_modules(package.__path__)
        if not info.name.startswith("_")
    ]
    names.sort(key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))
    found = [importlib.import_module(f"{package.__name__}.{name}") for name in names]
    return [module for module in found if public_names(module)]


def public_names(module: ModuleType) -> list[str]:
    """What the module offers, in the order of its source."""
    tree = ast.parse(inspect.getsource(module))
    defined = [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    ]
    return [name for name in defined if name in getattr(module, "__all__", [])]


def entry(package: str, module: ModuleType, name: str) -> str:
    """The autodoc directive, under the name by which readers import it."""
    if inspect.isclass(getattr(module, name)):
        directive = f".. autoclass:: {package}.{name}\n   :members:"
    else:
        directive = f".. autofunction:: {package}.{name}"
    return f"```{{eval-rst}}\n{directive}\n```"


def ledger() -> str:
    """Each function once, with its shapes, and a link into each half that has it."""
    halves = {half: owners(f"attn_tutor.{half}") for half in ("numpy", "torch")}
    rows = ["| function | shapes, and what it gives |", "|---|---|"]
    for name in halves["numpy"] | halves["torch"]:
        having = [half for half in halves if name in halves[half]]
        thing = getattr(halves[having[0]][name], name)
        links = " · ".join(
            f"{{py:obj}}`{half} <attn_tutor.{half}.{name}>`" for half in having
        )
        first_line = (inspect.getdoc(thing) or "").partition("\n")[0]
        meaning = re.sub(":[a-z]+:`", "`", first_line)  # this page is Markdown
        rows.append(f"| `{name}` <br> {links} | {shapes(thing)}{meaning} |")
    return "\n".join(rows)


def owners(package: str) -> dict[str, ModuleType]:
    """Which module each public name comes from."""
    return {
        name: module
        for module in modules(importlib.import_module(package))
        for name in public_names(module)
    }


def shapes(thing: Any) -> str:
    return f"`{thing.__shapes__}` <br> " if hasattr(thing, "__shapes__") else ""


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
