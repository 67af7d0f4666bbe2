"""The failure gallery: every bug has its four parts; a function of attn_tutor.failures names it, and not its cure."""

import builtins
import re
import symtable
from itertools import pairwise
from pathlib import Path
from typing import Any

import notebooks
import pytest

from attn_tutor import failures
from attn_tutor.failures.finding import GALLERY, HEADINGS, OTHER_PAGES

BOOK = Path(__file__).parents[2] / "book"
CELLS = notebooks.read(BOOK / "failure_gallery.ipynb").cells
PARTS = ["Symptom", "Cause", "Cure", "The test that catches it"]


def entries() -> dict[str, list[Any]]:
    """The cells of each entry, from its heading of level three to the next heading; not those of no bug."""
    starts = [
        i for i, x in enumerate(CELLS) if re.search("^##", x.source, re.MULTILINE)
    ]
    found = {}
    for start, stop in pairwise([*starts, len(CELLS)]):
        name = re.search(r"^### (.+)", CELLS[start].source, re.MULTILINE)
        if name and "**Cause.**" in CELLS[start].source:
            found[name[1]] = CELLS[start:stop]
    return found


ENTRIES = entries()
FIRST = CELLS.index(next(iter(ENTRIES.values()))[0])  # cells before it are for all
BY_SYMPTOM = next(x for x in CELLS if x.source.startswith("## Find it by its symptom"))
each = pytest.mark.parametrize("name", ENTRIES)


def code_of(name: str) -> list[Any]:
    return [x for x in ENTRIES[name] if x.cell_type == "code"]


def test_there_are_as_many_as_the_page_says() -> None:
    assert len(ENTRIES) == 42
    assert "\nForty-two mistakes" in CELLS[0].source
    assert "forty-two bugs" in CELLS[0].source


@each
def test_entry_has_its_parts_and_the_bug_is_shown(name: str) -> None:
    text = "\n".join(x.source for x in ENTRIES[name] if x.cell_type == "markdown")
    assert re.findall(r"^\*\*([A-Z].+?)\.?\*\*", text, re.MULTILINE) == PARTS
    assert ENTRIES[name][1].cell_type == "code", "code below the cause"
    assert len(code_of(name)) >= 2


@each
def test_the_bug_is_found_and_the_cure_is_not(name: str) -> None:
    trials = [x for x in code_of(name) if re.search(r"^compare\(", x.source, re.M)]
    assert len(trials) == 1
    bug, cure = re.split(r"^cure: ", trials[0].outputs[0].text, flags=re.MULTILINE)
    cause = re.search(r"^bug: (.+)\n    \S", bug, re.MULTILINE)
    assert cause and cure == "nothing found\n"
    assert HEADINGS[cause[1]] == name


@each
def test_its_text_names_a_function_that_the_cell_calls(name: str) -> None:
    text = "\n".join(x.source for x in ENTRIES[name] if x.cell_type == "markdown")
    code = "\n".join(x.source for x in code_of(name))
    assert (
        set(re.findall(r"`(\w+)`", text))
        & set(failures.__all__)
        & set(re.findall(r"failures\.(\w+)", code))
    )


@each
def test_it_runs_without_the_other_entries(name: str) -> None:
    """After the first cells and that of the imports, every name is made in the entry itself."""
    first = [x.source for x in CELLS[:FIRST] if x.cell_type == "code"]
    first += [x.source for x in CELLS if "import torch.distributed as dist" in x.source]
    code = "\n".join([*first, *(x.source for x in code_of(name))])
    top = symtable.symtable(code, name, "exec")
    made = {
        x.get_name() for x in top.get_symbols() if x.is_assigned() or x.is_imported()
    }
    scopes, read = [top], set()
    for scope in scopes:  # an argument of one function does not make a name of the page
        scopes.extend(scope.get_children())
        read |= {
            x.get_name() for x in scope.get_symbols() if x.is_global() or scope is top
        }
    assert read <= made | {*dir(builtins)}


@each
def test_it_can_be_found_by_its_symptom(name: str) -> None:
    slug = re.sub(r"[^\w\- ]", "", name.lower()).replace(" ", "-")
    assert f"(#{slug})" in BY_SYMPTOM.source


def test_one_call_comes_before_the_symptoms() -> None:
    sources = [x.source for x in CELLS]
    (call,) = (i for i, x in enumerate(sources) if "check_all(good" in x)
    assert call < CELLS.index(BY_SYMPTOM) < FIRST


def words_of(cells: list[Any]) -> str:
    shown = [o.get("text", "") for x in cells for o in x.get("outputs", [])]
    return "\n".join([*(x.source for x in cells), *shown])


def test_the_name_in_a_report_stands_in_the_entry_to_which_it_leads() -> None:
    for cause, name in HEADINGS.items():
        assert cause in words_of(ENTRIES[name]), (cause, name)
    for cause, (page, _) in OTHER_PAGES.items():
        assert page != GALLERY or f"`{cause}`" in words_of(CELLS[:FIRST]), cause


def test_every_cause_leads_to_a_heading() -> None:
    assert {*HEADINGS.values()} <= {*ENTRIES}
    assert GALLERY == "book/failure_gallery.ipynb"
    for page, title in OTHER_PAGES.values():
        text = words_of(notebooks.read(BOOK.parent / page).cells)
        assert re.search(f"^##? {title}$", text, re.MULTILINE)


def test_most_were_reported_in_public() -> None:
    reported = [
        name
        for name, cells in ENTRIES.items()
        if any("](https://github.com/" in x.source for x in cells)
    ]
    assert len(reported) >= 35


def test_the_game_comes_last() -> None:
    assert "<attn-bug>" in CELLS[-1].source
