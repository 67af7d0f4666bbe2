"""The ``{source}`` directive: a function of the package as it stands, NumPy and torch in two tabs.

``{source} softmax.masked_softmax`` shows decorators, signature and body, and leaves the docstring to the
API page, to which a line below the code links. Several names, separated by spaces, share the tabs. What both
halves have in common, in ``attn_tutor/_both`` and ``attn_tutor/rules.py``, stands above the tabs.
"""

import ast
from importlib import import_module
from itertools import groupby
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

HALVES = {"numpy": "NumPy", "torch": "torch"}
BOTH = "_both"
TOP = {"rules"}  # modules in common that stand at the top
# Modules with a function of their name, which would hide them if they had no underscore.
PRIVATE = {"attention", "linear_attention", "merge", "self_attention", "softmax"}
ENGINE = {"blocks", "flex", "fused", "hidden"}  # modules in a room of their own
Definition = ast.FunctionDef | ast.ClassDef


class Source(SphinxDirective):
    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        names = self.arguments[0].split()
        once = self.parts(BOTH, names)
        names = [name for name in names if name not in once]
        parts = {half: self.parts(half, names) for half in HALVES}
        for name in names:
            if not any(name in found for found in parts.values()):
                raise self.error(
                    f"source: neither half has {name}; write module.function, as in softmax.masked_softmax"
                )
        lines = markdown(BOTH, once)
        lines += ["::::{tab-set}", ":sync-group: halves", ""] if names else []
        for half, found in parts.items():
            if found:
                lines += [f":::{{tab-item}} {HALVES[half]}", f":sync: {half}", ""]
                lines += [*markdown(half, found), ":::"]
        lines += ["::::"] if names else []
        parent = nodes.container()
        self.state.nested_parse(
            StringList(lines, self.get_source_info()[0]), self.content_offset, parent
        )
        return parent.children

    def parts(self, half: str, names: list[str]) -> dict[str, list[int]]:
        """The lines of each name that this half has."""
        found = {}
        for name in names:
            module, *path = name.split(".")
            file = source_file(half, module)
            if lines := source_lines(Path(self.env.srcdir) / file, path):
                self.env.note_dependency(file)
                found[name] = lines
        return found


def source_file(half: str, module: str) -> str:
    if half == BOTH and module in TOP:
        return f"attn_tutor/{module}.py"
    if module in ENGINE and half != BOTH:
        return f"attn_tutor/{half}/_engine/{module}.py"
    return f"attn_tutor/{half}/{'_' * (module in PRIVATE)}{module}.py"


def markdown(half: str, parts: dict[str, list[int]]) -> list[str]:
    """A block of code for each module, and below it where the code stands and what the API says of it."""
    text = []
    for module, group in groupby(parts, key=lambda name: name.partition(".")[0]):
        names, shown = list(group), list[int]()
        for name in names:
            first = parts[name][0]
            blank = 1 if name.count(".") > 1 else 2  # above a method, or a function
            shown += range(first - blank, first) if shown else []
            shown += parts[name]
        paths = [name.removeprefix(f"{module}.") for name in names]
        links = [link for path in paths for link in api_links(half, path)]
        text += [
            f"```{{literalinclude}} /{source_file(half, module)}",
            ":language: python",
            f":lines: {','.join(map(str, shown))}",
            "```",
            " · ".join([f"`{source_file(half, module)}`", *links]),
            "",
        ]
    return text


def api_links(half: str, path: str) -> list[str]:
    """To where the API pages have it: that of its half, or of both."""
    if is_private(path):
        return []
    if half == BOTH:
        return [f"{{py:obj}}`{x}.{path} <attn_tutor.{x}.{path}>`" for x in HALVES]
    top = path.partition(".")[0]
    return [f"{{py:obj}}`~attn_tutor.{half}.{path}`"] if top in public(half) else []


def source_lines(file: Path, path: list[str]) -> list[int]:
    """The numbers of a definition's lines without its docstrings; none if there is no such definition."""
    if not path or not file.exists():
        return []
    scope: ast.Module | Definition = ast.parse(file.read_text(encoding="utf-8"))
    for name in path:
        found = [
            node
            for node in scope.body
            if isinstance(node, Definition) and node.name == name
        ]
        if not found:
            return []
        scope = found[0]
    assert isinstance(scope, Definition)
    first = min(
        [scope.lineno, *(decorator.lineno for decorator in scope.decorator_list)]
    )
    return sorted(lines_of(scope, first) - docstring_lines(scope))


def docstring_lines(definition: Definition) -> set[int]:
    lines: set[int] = set()
    for node in ast.walk(definition):
        if isinstance(node, Definition) and ast.get_docstring(node) is not None:
            lines |= lines_of(node.body[0], node.body[0].lineno)
    return lines


def lines_of(node: ast.stmt, first: int) -> set[int]:
    assert node.end_lineno is not None  # ast.parse always sets it
    return set(range(first, node.end_lineno + 1))


def public(half: str) -> list[str]:
    """The names that the API pages have."""
    names: list[str] = import_module(f"attn_tutor.{half}").__all__
    return names


def is_private(path: str) -> bool:
    return any(name.startswith("_") for name in path.split("."))


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("source", Source)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
