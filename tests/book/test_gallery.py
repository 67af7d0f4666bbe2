"""The failure gallery: every bug has its four parts, and its test was seen to fail on the bug and pass on the cure."""

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import notebooks
import pytest

PAGE = Path(__file__).parents[2] / "book" / "failure_gallery.ipynb"
CELLS = notebooks.read(PAGE).cells
PARTS = ["Symptom", "Cause", "Cure", "The test that catches it"]
TRIED = "bug: test fails\ncure: test passes\n"


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
each = pytest.mark.parametrize("name", ENTRIES)


def test_there_are_as_many_as_the_page_says() -> None:
    assert len(ENTRIES) == 34
    assert "\nThirty-four mistakes" in CELLS[0].source


@each
def test_entry_has_its_parts_and_each_is_shown(name: str) -> None:
    cells = ENTRIES[name]
    text = "\n".join(x.source for x in cells if x.cell_type == "markdown")
    assert re.findall(r"^\*\*([A-Z].+?)\.?\*\*", text, re.MULTILINE) == PARTS
    for part in ("Cause", "Cure", "The test that catches it"):
        at = next(i for i, x in enumerate(cells) if f"**{part}" in x.source)
        code = [x for x in cells[at + 1 :] if x.cell_type == "code"]
        assert code and code[0].source.strip(), part
    shown = [x for x in cells if x.cell_type == "code" and x.outputs]
    assert len(shown) >= 3  # the bug, the cure, and the test of both


@each
def test_its_test_fails_on_the_bug_and_passes_on_the_cure(name: str) -> None:
    code = [x for x in ENTRIES[name] if x.cell_type == "code"]
    trials = [x for x in code if "cure=" in x.source]
    assert [x.outputs[0].text for x in trials] == [TRIED]
    tried = re.search(r"try_out\(\s*(\w+)", trials[0].source)
    assert tried
    everything = "\n".join(x.source for x in CELLS if x.cell_type == "code")
    body = re.search(rf"^def {tried[1]}\(.*\n((?:    .*\n|\n)+)", everything, re.M)
    assert body and body[1].count("    assert ") == 1


@each
def test_it_can_be_found_by_its_symptom(name: str) -> None:
    slug = re.sub(r"[^\w\- ]", "", name.lower()).replace(" ", "-")
    assert f"(#{slug})" in CELLS[0].source


def test_most_were_reported_in_public() -> None:
    reported = [
        name
        for name, cells in ENTRIES.items()
        if any("](https://github.com/" in x.source for x in cells)
    ]
    assert len(reported) >= 25
