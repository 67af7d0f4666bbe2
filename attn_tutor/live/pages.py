"""The notebook behind a page: its cells, and the functions that its exercises ask for."""

import ast
import json
import re
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

EXERCISE = re.compile(r":::\{exercise\} *(.*)\n:label: ([\w-]+)")
GATE = re.compile(r":::\{solution-(?:start\} ([\w-]+)|end\})")


@dataclass
class Page:
    title: str = ""
    cells: list[tuple[str, str]] = field(default_factory=list)  # id and source
    asked: list[tuple[str, ast.FunctionDef]] = field(default_factory=list)  # exercise, and its solution  # fmt: skip
    titles: dict[str, str] = field(default_factory=dict)  # of each exercise


def read(notebook: Path) -> Page:
    page, label = Page(), ""
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "code":
            page.cells.append((cell["id"], text))
            defined = ast.parse(text).body if label else []
            page.asked += [
                (label, x) for x in defined if isinstance(x, ast.FunctionDef)
            ]
            continue
        page.title = page.title or text.partition("\n")[0].removeprefix("# ")
        page.titles |= {label: title for title, label in EXERCISE.findall(text)}
        for gate in GATE.finditer(text):
            label = gate[1] or ""
    return page


def exercise_of(node: ast.FunctionDef) -> str:
    """The name of the checker."""
    return node.name.removeprefix("my_")


def stub(node: ast.FunctionDef, statement: str) -> str:
    """A solution's first line, with what is asked in place of its body."""
    fits = textwrap.TextWrapper(76, "    ", "    ", break_on_hyphens=False)
    words = fits.fill(f'"""{statement.partition("): ")[2]}"""')
    return f"def {node.name}({ast.unparse(node.args)}):\n{words}"
