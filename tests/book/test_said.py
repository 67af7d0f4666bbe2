"""The page *Said elsewhere*: sentences to judge before one opens what is to be said about them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bs4 import BeautifulSoup
from playwright.sync_api import Page

VERDICT = re.compile(r"(False|On a condition|Half)[.:,;]?$")


@pytest.fixture(scope="module")
def page(book: Path, visit: Callable[..., Any]) -> Iterator[Page]:
    with visit(book / "book/said_elsewhere.html") as page:
        yield page


def test_each_answer_begins_with_its_verdict_and_ends_with_a_place(book: Path) -> None:
    soup = BeautifulSoup((book / "book/said_elsewhere.html").read_text("utf-8"), "html.parser")  # fmt: skip
    folds = soup.select("details.said")
    assert len(folds) > 30 and not soup.select("article dl")
    for fold in folds:
        sentence, answer = fold.find_all(recursive=False)
        assert sentence.name == "summary" and answer.name == "p"
        first, *_, last = answer.find_all(recursive=False)
        assert first.name == "strong" and VERDICT.match(first.get_text()), answer
        assert last.name == "a" or last.a, answer
        assert not sentence.a, "a link in what one presses"
        if "“" in sentence.get_text():
            assert answer.select(".bibtex-citation"), "words of others have a source"


def test_answers_are_closed_and_open_by_key_by_press_and_all_at_once(page: Page) -> None:  # fmt: skip
    folds, opened = page.locator("details.said"), page.locator("details.said[open]")
    assert opened.count() == 0
    folds.nth(0).locator("summary").focus()
    page.keyboard.press("Enter")
    folds.nth(1).locator("summary").click()
    assert opened.count() == 2
    everything = page.get_by_role("button", name="Open all")
    everything.click()
    assert opened.count() == folds.count()
    page.get_by_role("button", name="Close all").click()
    assert opened.count() == 0


def test_on_paper_answers_are_there_and_no_button(page: Page) -> None:
    page.emulate_media(media="print")
    for answer in page.locator("details.said > p").all():
        assert answer.evaluate("x => x.checkVisibility({ visibilityProperty: true })")
    assert page.locator(".said-all").is_hidden()
    page.emulate_media(media="screen")


def test_the_search_knows_sentences_and_quotes_answers_alone(book: Path) -> None:
    pages = json.loads((book / "_static/sections.js").read_text("utf-8")[14:])
    sections = {x["id"]: x for x in pages["book/said_elsewhere"]["sections"]}
    found = sections["positional-encoding"]
    assert "rotates" in found["words"] and "rotates" not in found["prose"]
    assert "coin toss" in found["prose"]
