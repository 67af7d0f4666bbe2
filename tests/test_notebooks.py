"""The committed notebooks: in the one fixed form, whole, and readable without their pictures."""

from pathlib import Path
from typing import Any

import nbformat
import notebooks as tool
import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "book").glob("*.ipynb"))
LONGEST_CELL = 12
PICTURES = {"image/png", "image/svg+xml", "image/jpeg"}


each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def code_cells(path: Path) -> list[Any]:
    return [cell for cell in tool.read(path).cells if cell.cell_type == "code"]


def test_the_book_has_notebooks() -> None:
    assert "01_queries_keys_values" in [path.stem for path in NOTEBOOKS]


@each
def test_is_in_the_fixed_form(path: Path) -> None:
    assert path.read_bytes() == tool.normalise(tool.read(path)).encode(), (
        "type `make notebooks`"
    )


@each
def test_every_cell_ran_and_none_failed_or_warned(path: Path) -> None:
    for cell in code_cells(path):
        faults = [
            o
            for o in cell.outputs
            if o.output_type == "error" or o.get("name") == "stderr"
        ]
        assert faults == [], cell.source
        assert "nbval-skip" not in cell.metadata.get("tags", []), cell.source
        assert "NBVAL_" not in cell.source, cell.source


@each
def test_every_figure_has_alt_text_and_a_caption(path: Path) -> None:
    for cell in code_cells(path):
        if any(PICTURES & set(output.get("data", {})) for output in cell.outputs):
            about = cell.metadata.get("mystnb", {})
            assert len(about.get("image", {}).get("alt", "")) > 20, (
                f"no alt text: {cell.source}"
            )
            assert len(about.get("figure", {}).get("caption", "")) > 10, (
                f"no caption: {cell.source}"
            )
            assert about["figure"].get("name", "").startswith("fig-"), (
                f"no name to refer to: {cell.source}"
            )


@each
def test_cells_that_readers_see_are_short(path: Path) -> None:
    shown = [
        c for c in code_cells(path) if "hide-input" not in c.metadata.get("tags", [])
    ]
    long = [cell.source for cell in shown if cell.source.count("\n") >= LONGEST_CELL]
    assert long == [], (
        f"shorten to {LONGEST_CELL} lines, or fold with the tag hide-input"
    )


# The tool itself: two runs of the same cells, as an editor and a slow machine leave them, give one text.


def notebook(*outputs: dict[str, Any], **metadata: Any) -> Any:
    cell = nbformat.v4.new_code_cell(
        "print(1)\nprint(2)",
        execution_count=7,
        outputs=list(outputs),
        metadata=metadata,
    )
    return nbformat.v4.new_notebook(
        cells=[cell],
        metadata={"language_info": {"name": "python", "version": "3.11.7"}},
    )


def printed(text: str) -> Any:
    return nbformat.v4.new_output("stream", name="stdout", text=text)


def test_form_does_not_depend_on_timing_versions_or_editor() -> None:
    once = notebook(printed("1\n2\n"))
    again = notebook(
        printed("1\n"),
        printed("2\n"),
        execution={"iopub.execute_input": "2026-01-01"},
        scrolled=True,
    )
    assert tool.normalise(once) == tool.normalise(again)
    assert "3.11.7" not in tool.normalise(once)


def test_form_keeps_what_the_book_needs() -> None:
    result = nbformat.v4.new_output(
        "execute_result", data={"text/plain": "3"}, execution_count=7
    )
    about = {"mystnb": {"image": {"alt": "a"}}, "tags": ["hide-input"]}
    text = tool.normalise(notebook(printed("1\n"), result, **about))
    cell = nbformat.reads(text, as_version=4).cells[0]
    assert cell.metadata == about
    assert [output.output_type for output in cell.outputs] == [
        "stream",
        "execute_result",
    ]
    assert cell.execution_count == cell.outputs[1].execution_count == 1
    assert cell.id == "print-1-print-2"


def test_form_is_its_own_fixed_point_and_ids_are_unique() -> None:
    same = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_markdown_cell("# Ä") for _ in range(3)]
    )
    text = tool.normalise(same)
    assert tool.normalise(nbformat.reads(text, as_version=4)) == text
    assert [cell.id for cell in nbformat.reads(text, as_version=4).cells] == [
        "cell",
        "cell-2",
        "cell-3",
    ]


def test_running_twice_changes_no_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool, "BOOK", tmp_path / "book")
    path = tmp_path / "book" / "01_trial.ipynb"
    path.parent.mkdir()
    nbformat.write(notebook(), path)
    assert tool.run(path) is True
    first = path.read_bytes()
    assert b"1\\n" in first
    assert tool.run(path) is False
    assert path.read_bytes() == first


def test_a_failing_cell_is_named_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool, "BOOK", tmp_path / "book")
    path = tmp_path / "book" / "01_trial.ipynb"
    path.parent.mkdir()
    cells = [
        nbformat.v4.new_markdown_cell("# Title"),
        nbformat.v4.new_code_cell("x = 1\n1 / 0"),
    ]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    before = path.read_bytes()
    with pytest.raises(
        SystemExit,
        match=r"book/01_trial.ipynb: cell 2 of 2 \(x = 1\) raised ZeroDivisionError: division",
    ):
        tool.run(path)
    assert path.read_bytes() == before


def test_an_unknown_name_says_which_there_are() -> None:
    with pytest.raises(
        SystemExit, match="starts with 99; there are: .*01_queries_keys_values"
    ):
        tool.chosen(["99"])
