"""Questions to remember: short ones on every page, asked again when they are due, in the browser and in Anki."""

from __future__ import annotations

import json
import re
import sqlite3
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import recall
from book_pages import BOOK, Notebook
from bs4 import BeautifulSoup
from playwright.sync_api import Locator, Page

PAGES = recall.pages()
ASKED = {path: recall.recalls(path) for path in PAGES}
ALL = [question for page in ASKED.values() for question in page]
FORMULA = re.compile(r"\$[^$]+\$")


def words(text: str) -> int:
    """A formula counts as one."""
    return len(FORMULA.sub("x", text).split())


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_each_page_asks_four_to_seven_short_questions(path: Path) -> None:
    text = "\n".join(cell["source"] for cell in Notebook(path).cells)
    assert len(ASKED[path]) == text.count("{recall}"), "one of them is not in its form"
    assert 4 <= len(ASKED[path]) <= 7
    for x in ASKED[path]:
        assert x.question.endswith(("?", ".")) and x.answer.endswith(".")
        assert words(x.question) <= 20, x.question
        assert words(x.answer) <= 30, x.answer
        assert "`" not in FORMULA.sub("", x.question) or x.question.count("`") % 2 == 0
        assert not re.search(r"\{\w+\}`|\]\(|<", FORMULA.sub("", x.question + x.answer))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_question_interrupts_no_sentence(path: Path) -> None:
    text = "\n\n".join(cell["source"] for cell in Notebook(path).cells)
    for before in re.split(r"\n\n:::\{recall\}", text)[:-1]:
        assert not re.search(r"((?<!:):|,|\$\$( \([\w-]+\))?)$", before), before[-80:]


def test_no_question_is_asked_twice() -> None:
    assert len({x.name for x in ALL}) == len(ALL)


def test_questions_take_no_minute_of_the_clock() -> None:
    without = Notebook(PAGES[0])
    vars(without)["cells"] = [
        cell | {"source": recall.BOX.sub("", cell["source"])} for cell in without.cells
    ]
    assert without.minutes == Notebook(PAGES[0]).minutes


def test_without_scripts_the_list_has_all_with_links_to_the_text(book: Path) -> None:
    page = BeautifulSoup((book / "book/remember.html").read_text("utf-8"), "html.parser")  # fmt: skip
    assert len(page.select("details.recall > summary")) == len(ALL)
    groups = page.select(".recall-page")
    for path, group in zip(PAGES, groups, strict=True):
        head = group.select_one("p a")
        assert head and f"{Notebook(path).number} " in head.get_text()
        links = [str(link["href"]) for link in group.select(".recall-place a")]
        assert [link.partition("#")[2] for link in links] == [x.name for x in ASKED[path]]  # fmt: skip


def test_the_deck_holds_all_and_is_the_same_each_time(book: Path, tmp_path: Path) -> None:  # fmt: skip
    file = book / recall.DECK
    assert file.read_bytes() == recall.deck()
    zipfile.ZipFile(file).extract("collection.anki2", tmp_path)
    collection = sqlite3.connect(tmp_path / "collection.anki2")
    notes = dict(collection.execute("select guid, flds from notes").fetchall())
    assert collection.execute("select count(*) from cards").fetchone() == (len(ALL),)
    collection.close()
    assert [*notes] == [x.name for x in ALL]
    for fields in notes.values():
        question, answer, page = fields.split("\x1f")
        assert "<p>" in question and "<p>" in answer and page[0].isdigit()
        assert "$" not in fields
    root = next(x for x in ALL if "attention of transformers" in x.question)
    assert r"\(\operatorname{softmax}(Q K^\top / \sqrt{d_k})\, V\)" in notes[root.name]


SHORT = "11_real_model/atoms"  # is opened in a moment
FIRST, SECOND, *_ = HERE = ASKED[BOOK / f"{SHORT}.ipynb"]


TO_THE_END = """() => {
    scrollTo(0, document.documentElement.scrollHeight);  // again while the page grows
    return document.querySelector(".bd-sidebar-primary .recall-read");
}"""
GONE = """() => {
    const memory = JSON.parse(localStorage.getItem("attn-recall"));
    memory.asked["recall-gone"] = [1, true, 1];
    localStorage.setItem("attn-recall", JSON.stringify(memory));
}"""  # a question that the book asks no more


@pytest.fixture(scope="module")
def page(book: Path, visit_alone: Callable[..., Any]) -> Iterator[Page]:
    """A chapter on a phone in Auckland."""
    phone = {"width": 390, "height": 844}
    where = {"timezone_id": "Pacific/Auckland", "color_scheme": "dark"}
    path = book / "book" / f"{SHORT}.html"
    with visit_alone(path, viewport=phone, has_touch=True, **where) as page:
        on(page, "2026-03-01T23:00")
        yield page


def on(page: Page, local: str) -> None:
    """Open the page anew at that time."""
    page.clock.set_fixed_time(f"{local}:00+13:00")
    page.reload()


def fold_of(page: Page, question: recall.Recall) -> Locator:
    return page.locator(f"#{question.name}")


def starts(page: Page, says: str) -> None:
    """Wait until the list says so."""
    page.locator(".recall-total", has_text=re.compile(f"^{re.escape(says)}")).wait_for()


class TestInTheBrowser:
    """In this order, day by day."""

    def test_one_answers_with_a_finger_and_by_keyboard(self, page: Page) -> None:
        fold = fold_of(page, FIRST)
        assert not fold.locator(".recall-answer").is_visible()
        fold.locator("summary").tap()
        assert fold.locator(".recall-answer").is_visible()
        buttons = fold.get_by_role("button")
        assert min(box["height"] for b in buttons.all() if (box := b.bounding_box())) >= 24  # fmt: skip
        fold.get_by_text("I knew it").tap()
        assert fold.get_by_role("status").inner_text() == "Asked again tomorrow."
        fold = fold_of(page, SECOND)
        fold.locator("summary").focus()
        for key in ("Enter", "Tab", "Tab", "Space"):
            page.keyboard.press(key)
        pressed = fold.locator("[aria-pressed=true]")
        assert pressed.inner_text() == "Not yet"
        assert pressed.evaluate("x => x === document.activeElement")

    def test_what_was_known_comes_after_longer_and_longer_times(self, page: Page) -> None:  # fmt: skip
        fold, status = fold_of(page, FIRST), fold_of(page, FIRST).get_by_role("status")  # fmt: skip
        for today, then in (
            ("2026-03-02T00:30", "5 March"),
            ("2026-03-05T09:00", "12 March"),
            ("2026-03-13T09:00", "3 April"),  # a day late
            ("2026-04-03T09:00", "2 June"),
            ("2026-06-02T09:00", "1 August"),  # 60 is the longest
        ):
            on(page, today)
            assert fold.locator(".recall-mark").inner_text() == "due"
            fold.locator("summary").tap()
            assert status.inner_text() == ""
            fold.get_by_text("I knew it").tap()
            assert status.inner_text() == f"Asked again on {then}."
        fold.get_by_text("Not yet").tap()  # the last word of a day counts
        assert status.inner_text() == "Asked again tomorrow."
        fold.get_by_text("I knew it").tap()
        assert status.inner_text() == "Asked again on 1 August."

    def test_before_it_is_due_one_cannot_answer(self, page: Page) -> None:
        on(page, "2026-06-04T09:00")
        fold = fold_of(page, FIRST)
        fold.locator("summary").tap()
        assert fold.get_by_role("button").count() == 0
        assert fold.get_by_role("status").inner_text() == "Asked again on 1 August."

    def test_the_head_says_what_was_read_and_what_is_due(self, page: Page) -> None:
        state = page.locator(".page-head .recall-state")
        said = f"You knew 1 of its {len(HERE)} questions. 1 question of the book due today."
        assert state.inner_text() == said
        assert page.locator(".recall-read").count() == 0
        page.wait_for_function(TO_THE_END)
        page.reload()
        assert state.inner_text() == f"Read on 4 June. {said}"

    def test_a_page_whose_questions_were_answered_is_read(self, page: Page) -> None:
        page.evaluate("localStorage.clear(); scrollTo(0, 0)")
        page.reload()
        for fold in page.locator("details.recall").all():
            assert page.locator(".recall-read").count() == 0
            fold.locator("summary").tap()
            fold.get_by_text("I knew it").tap()
        assert page.locator(".recall-read").count() > 0

    def test_the_list_asks_what_is_due_and_goes_on(self, page: Page, book: Path) -> None:  # fmt: skip
        page.clock.set_fixed_time("2026-06-05T09:00:00+12:00")
        page.evaluate(GONE)
        page.goto((book / "book/remember.html").as_uri())
        starts(page, f"{len(HERE)} questions due today. You knew {len(HERE)} of {len(ALL)}.")  # fmt: skip
        assert page.locator("details.recall:visible").count() == len(HERE)
        assert page.locator(".recall-page:visible").count() == 1
        page.locator("details.recall:visible summary").first.focus()
        for _ in HERE:  # the focus goes to the next by itself
            for key in ("Enter", "Tab", "Tab", "Enter"):
                page.keyboard.press(key)
        starts(page, f"Nothing is due today; the next on 8 June. You knew {len(HERE)} of {len(ALL)}.")  # fmt: skip
        page.reload()
        assert page.locator("details.recall:visible").count() == 0
        page.get_by_role("button", name="All questions").tap()
        assert page.locator("details.recall:visible").count() == len(ALL)

    def test_a_list_that_was_open_follows_and_keeps_what_another_page_writes(
        self, page: Page
    ) -> None:
        memory = page.evaluate("localStorage.getItem('attn-recall')")
        page.evaluate("localStorage.clear()")
        page.reload()
        starts(page, "You have answered no question yet.")
        assert page.evaluate("localStorage.getItem('attn-recall')") is None
        other = page.context.new_page()
        other.goto(page.url.replace("remember", SHORT))
        other.evaluate("memory => localStorage.setItem('attn-recall', memory)", memory)
        other.evaluate(GONE)
        starts(page, f"Nothing is due today; the next on 8 June. You knew {len(HERE)} of {len(ALL)}.")  # fmt: skip
        assert page.locator("details.recall:visible").count() == 0
        assert page.evaluate("localStorage.getItem('attn-recall')") == memory
        other.close()

    def test_a_memory_goes_to_another_machine(self, page: Page, tmp_path: Path) -> None:  # fmt: skip
        with page.expect_download() as saved:
            page.get_by_role("button", name="Save to a file").tap()
        saved.value.save_as(file := tmp_path / "memory.json")
        memory = json.loads(file.read_text("utf-8"))
        assert len(memory["asked"]) == len(HERE)
        for content, says in (
            (json.dumps(memory), f"{len(HERE)} answers taken from the file."),
            (json.dumps(memory), "0 answers taken from the file."),  # none is newer
            ("[]", "This file holds no memory of this book."),
            ('{"asked": {"recall-x": "<b>"}}', "This file holds no memory of this book."),
        ):  # fmt: skip
            file.write_text(content, encoding="utf-8")
            if not says.startswith(("0", "This")):
                page.evaluate("localStorage.clear()")
                page.reload()
            with page.expect_file_chooser() as chooser:
                page.get_by_role("button", name="Take from a file").tap()
            chooser.value.set_files(file)
            starts(page, says)
        assert json.loads(page.evaluate("localStorage.getItem('attn-recall')")) == memory  # fmt: skip
