"""The notebooks for readers: no solution left, and a stub for each function that an exercise asks for."""

import ast
import re
import sys
from pathlib import Path

import nbformat
import pytest
import student

from attn_tutor.check import EXERCISES

CHAPTERS = sorted((Path(__file__).parents[2] / "book").glob("[0-9]*.ipynb"))
each = pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("student")


@pytest.fixture(scope="module", autouse=True)
def written(folder):
    """What the command says while it writes the folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["student.py", str(folder / "new")])
        student.main()
    return folder / "new"


def code(cells):
    return [cell.source for cell in cells if cell.cell_type == "code"]


def stubs(cells):
    return [cell.source for cell in cells if cell.id.startswith("stub-")]


def solution_cells(cells):
    """The cells between the gates, found from the text of the whole notebook."""
    marked = (
        f"⟦{i}⟧" if x.cell_type == "code" else x.source for i, x in enumerate(cells)
    )
    gates = re.compile(r":::\{solution-start\}(.*?):::\{solution-end\}", re.DOTALL)
    inside = gates.findall("\n".join(marked))
    numbers = [int(i) for part in inside for i in re.findall(r"⟦(\d+)⟧", part)]
    return [cells[i] for i in numbers], inside


@each
def test_no_solution_is_left_and_nothing_else_is_gone(path, written):
    book, mine = (nbformat.read(x, 4).cells for x in (path, written / path.name))
    solutions, inside = solution_cells(book)
    assert len(inside) >= 5
    text = "\n".join(cell.source for cell in mine)
    assert "{solution" not in text
    for cell in solutions:
        assert cell.source not in text
    for part in inside:
        first_words = [x for x in part.splitlines() if len(x) > 40][:1]
        assert all(line not in text for line in first_words)
    gone = set(code(book)) - set(code(mine))
    assert gone == {cell.source for cell in solutions}
    for label in re.findall(r":::\{exercise\} (.*)", "\n".join(c.source for c in book)):
        assert f":::{{exercise}} {label}" in text


@each
def test_each_function_that_is_asked_for_has_a_stub_that_says_what_is_missing(
    path, written, capsys
):
    cells = nbformat.read(written / path.name, 4).cells
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    asked = re.findall(r"[Ww]rite `(\w+)\(", text)
    found = stubs(cells)
    assert len(asked) == len(found) > 0
    for name, source in zip(asked, found, strict=True):
        exercise = EXERCISES[name.removeprefix("my_")]
        names = {}
        exec(source, names)
        out = capsys.readouterr().out
        assert re.match(rf"✗ {exercise.name} \(NumPy\): returns None\n", out)
        asks = " ".join(names[name].__doc__.split())
        assert exercise.statement.endswith(f"): {asks}")
        assert max(map(len, source.splitlines())) <= 88


@each
def test_each_link_to_a_file_leads_to_it(path, written):
    cells = nbformat.read(written / path.name, 4).cells
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    links = re.findall(r"\]\(([^()\s:#]+\.\w+)", text)
    assert {Path(link).suffix for link in links} >= {".md", ".py", ".ipynb"}
    assert [link for link in links if not (written / link).is_file()] == []


@each
def test_no_cell_needs_what_a_solution_made(path, written):
    def names(sources, kind):
        trees = [ast.walk(ast.parse(source)) for source in sources]
        nodes = [node for tree in trees for node in tree]
        found = {
            x.id for x in nodes if isinstance(x, ast.Name) and isinstance(x.ctx, kind)
        }
        if kind is ast.Store:
            found |= {
                x.name for x in nodes if isinstance(x, ast.FunctionDef | ast.ClassDef)
            }
        return found

    book, mine = (nbformat.read(x, 4).cells for x in (path, written / path.name))
    solutions, _ = solution_cells(book)
    made = names(code(solutions), ast.Store) - names(code(mine), ast.Store)
    assert made and not made & names(code(mine), ast.Load)


def test_the_files_are_sound_and_the_same_every_time(written, capsys):
    before = {path.name: path.read_bytes() for path in written.glob("*.ipynb")}
    assert sorted(before) == [path.name for path in CHAPTERS]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["student.py", str(written)])
        student.main()
    assert before == {path.name: path.read_bytes() for path in written.glob("*.ipynb")}
    for path in written.glob("*.ipynb"):
        nbformat.validate(nbformat.read(path, 4))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "new/01_queries_keys_values.ipynb: functions to write: 2"
