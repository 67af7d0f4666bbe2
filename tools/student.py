"""Write the notebooks for readers who work through them: without the solutions, with a stub for each function.

python tools/student.py              writes student/
python tools/student.py FOLDER       writes FOLDER
"""

import ast
import os
import re
import shutil
import sys
import textwrap
from pathlib import Path
from typing import Any

import nbformat

from attn_tutor.check import EXERCISES

ROOT = Path(__file__).resolve().parents[1]
BOOK = ROOT / "book"
START, END = ":::{solution-start}", ":::{solution-end}\n:::"
STAYS = re.compile(
    r"\]\(([^()\s:#]+\.(?:md|markdown|py))\b"
)  # links to what stays in the repository


def without_solutions(cells: list[Any]) -> list[Any]:
    """The cells outside the gates; at the end of each solution stubs of the functions that it defined."""
    kept: list[Any] = []
    hidden: list[ast.FunctionDef] = []
    inside = False
    for cell in cells:
        text = cell.source
        if inside:
            if cell.cell_type == "code":
                body = ast.parse(text).body
                hidden += [node for node in body if isinstance(node, ast.FunctionDef)]
            before, end, text = text.partition(END)
            if not end:
                continue
            kept += [stub(node) for node in hidden if exercise_of(node) in EXERCISES]
            hidden = []
        cell.source, start, _ = text.partition(START)
        cell.source = cell.source.strip("\n")
        inside = bool(start)
        if cell.source:
            kept.append(cell)
    return kept


def stub(node: ast.FunctionDef) -> Any:
    name = exercise_of(node)
    asked = EXERCISES[name].statement.partition("): ")[2]
    fits = textwrap.TextWrapper(88, "    ", "    ", break_on_hyphens=False)
    words = fits.fill(f'"""{asked}"""')
    call = f"check.{name}({node.name});"
    define = f"def {node.name}({ast.unparse(node.args)}):\n{words}"
    source = f"from attn_tutor import check\n\n\n{define}\n\n\n{call}"
    return nbformat.v4.new_code_cell(source, id=f"stub-{name}".replace("_", "-"))


def exercise_of(node: ast.FunctionDef) -> str:
    return node.name.removeprefix("my_")


def linked_from(folder: Path, text: str) -> str:
    """The text with its links to pages and programs as they lead there from another folder."""

    def there(link: re.Match[str]) -> str:
        return "](" + Path(os.path.relpath(BOOK / link[1], folder)).as_posix()

    return STAYS.sub(there, text)


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "student"
    for beside in ("_static", "trained"):
        shutil.copytree(BOOK / beside, folder / beside, dirs_exist_ok=True)
    for path in sorted(BOOK.glob("[0-9]*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        notebook.cells = without_solutions(notebook.cells)
        for cell in notebook.cells:
            if cell.cell_type == "markdown":
                cell.source = linked_from(folder, cell.source)
        nbformat.write(notebook, folder / path.name)
        stubs = sum(cell.id.startswith("stub-") for cell in notebook.cells)
        print(f"{folder.name}/{path.name}: functions to write: {stubs}")


if __name__ == "__main__":
    main()
