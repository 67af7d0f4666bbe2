"""The ``{source}`` directive: a function of the package as it stands, NumPy and torch in two tabs.

``{source} softmax.masked_softmax`` shows decorators, signature and body, and leaves the docstring to the
API page, to which a line below the code links. Several names, separated by spaces, share the tabs.
"""

import ast
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

HALVES = {"numpy": "NumPy", "torch": "torch"}
Definition = ast.FunctionDef | ast.ClassDef


class Source(SphinxDirective):
    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        names = self.arguments[0].split()
        tabs = {half: self.tab(half, names) for half in HALVES}
        for name in names:
            if not any(name in tab for tab in tabs.values()):
                raise self.error(
                    f"source: neither half has {name}; write module.function, as in softmax.masked_softmax"
                )
        lines = ["::::{tab-set}", ":sync-group: halves", ""]
        for half, tab in tabs.items():
            if tab:
                lines += [f":::{{tab-item}} {HALVES[half]}", f":sync: {half}", ""]
                lines += [line for part in tab.values() for line in part]
                lines += [":::"]
        lines += ["::::"]
        parent = nodes.container()
        self.state.nested_parse(
            StringList(lines, self.get_source_info()[0]), self.content_offset, parent
        )
        return parent.children

    def tab(self, half: str, names: list[str]) -> dict[str, list[str]]:
        """The Markdown of each name that this half has."""
        parts = {}
        for name in names:
            module, *path = name.split(".")
            file = f"attn_tutor/{half}/{module}.py"
            self.env.note_dependency(file)
            lines = source_lines(Path(self.env.srcdir) / file, path)
            if lines:
                parts[name] = [
                    f"```{{literalinclude}} /{file}",
                    ":language: python",
                    f":lines: {lines}",
                    "```",
                    f"`{file}`"
                    + (
                        ""
                        if is_private(path)
                        else f" · {{py:obj}}`~attn_tutor.{half}.{'.'.join(path)}`"
                    ),
                    "",
                ]
        return parts


def source_lines(file: Path, path: list[str]) -> str:
    """The lines of a definition without its docstrings, as ``literalinclude`` wants them; "" if there is none."""
    if not path or not file.exists():
        return ""
    scope: ast.Module | Definition = ast.parse(file.read_text(encoding="utf-8"))
    for name in path:
        found = [
            node
            for node in scope.body
            if isinstance(node, Definition) and node.name == name
        ]
        if not found:
            return ""
        scope = found[0]
    assert isinstance(scope, Definition)
    first = min(
        [scope.lineno, *(decorator.lineno for decorator in scope.decorator_list)]
    )
    kept = lines_of(scope, first) - docstring_lines(scope)
    return ",".join(map(str, sorted(kept)))


def docstring_lines(definition: Definition) -> set[int]:
    lines: set[int] = set()
    for node in ast.walk(definition):
        if isinstance(node, Definition) and ast.get_docstring(node) is not None:
            lines |= lines_of(node.body[0], node.body[0].lineno)
    return lines


def lines_of(node: ast.stmt, first: int) -> set[int]:
    assert node.end_lineno is not None  # ast.parse always sets it
    return set(range(first, node.end_lineno + 1))


def is_private(path: list[str]) -> bool:
    return any(name.startswith("_") for name in path)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("source", Source)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
