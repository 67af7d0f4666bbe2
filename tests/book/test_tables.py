"""The measured tables of the book: each is written by a program of tools/tables, and `make tables` runs them all."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = {
    path.name: path.read_text(encoding="utf-8")
    for path in (ROOT / "tools" / "tables").glob("*.py")
}
TABLES = sorted((ROOT / "book" / "_tables").iterdir())


@pytest.mark.parametrize("table", TABLES, ids=lambda path: path.stem)
def test_a_table_names_its_program_or_is_named_by_it(table: Path) -> None:
    named = re.findall(r"tools/tables/(\w+\.py)", table.read_text(encoding="utf-8"))
    naming = [name for name, text in PROGRAMS.items() if table.name in text]
    assert {*named} <= {*PROGRAMS} and (named or naming)


def test_make_tables_runs_every_program() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    [listed] = re.findall(r"^TABLES := ((?:.*\\\n)*.*)", makefile, re.M)
    assert {*re.findall(r"\w+\.py", listed)} == {*PROGRAMS}
