"""A chapter on paper: black on white, everything unfolded, and nothing there that one would have to press.

That no page loses a word on paper is with the other tests of all pages.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

CHAPTER = "03_masked_softmax"  # a page with all that a chapter may have
BOOK = Path(__file__).parents[2] / "book"
SHOWN = "part => part.checkVisibility({ opacityProperty: true, visibilityProperty: true }) && part.clientHeight > 0"


@pytest.fixture(scope="module")
def sheet(book: Path, visit: Callable[..., Any]) -> Iterator[Page]:
    """A chapter as a reader of the dark page prints it, nothing opened."""
    view = {"width": 680, "height": 960}
    path = book / "book" / f"{CHAPTER}.html"
    with visit(path, color_scheme="dark", viewport=view) as page:
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        page.emulate_media(media="print")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        yield page


def shown(page: Page, selector: str) -> list[bool]:
    parts = page.locator(selector).all()
    assert parts, selector
    return [bool(part.evaluate(SHOWN)) for part in parts]


def test_paper_is_white_and_the_screen_is_as_before(sheet: Page) -> None:
    ground, ink = sheet.evaluate(
        "(({ backgroundColor, color }) => [backgroundColor, color])(getComputedStyle(document.body))"
    )
    assert ground == "rgb(255, 255, 255)"
    assert max(map(int, ink[4:-1].split(","))) < 80
    sheet.evaluate("dispatchEvent(new Event('afterprint'))")
    assert sheet.evaluate("document.documentElement.dataset.theme") == "dark"
    sheet.evaluate("dispatchEvent(new Event('beforeprint'))")


@pytest.mark.parametrize(
    "parts",
    [
        ".bd-article h1",
        ".solution p",  # folded on the screen
        ".sd-tab-set > label",
        ".sd-tab-content",  # both tabs, each with its name
        "figure img.in-light",
        ".recall > summary",
        ".recall-answer",  # folded, too
    ],
)
def test_what_a_reader_of_paper_needs_is_there(sheet: Page, parts: str) -> None:
    assert all(shown(sheet, parts))


@pytest.mark.parametrize(
    "parts",
    [
        ".bd-sidebar-primary",
        ".bd-sidebar-secondary",
        ".bd-header-article",
        ".prev-next-footer",
        ".headerlink",
        ".notebook-link",
        "button",
        "summary:not(.recall > summary)",
        ".recall-said",
        "#jb-print-docs-body",
        "img.in-dark",
    ],
)
def test_what_only_a_screen_can_use_is_not(sheet: Page, parts: str) -> None:
    assert not any(shown(sheet, parts))


def test_figures_that_move_stand_still(sheet: Page) -> None:
    notebook = BOOK / Path(sheet.url).with_suffix(".ipynb").name
    stills = sheet.locator(".attn-still img").all()
    assert len(stills) == notebook.read_text(encoding="utf-8").count("<attn-")
    assert all(still.evaluate(SHOWN) for still in stills)
    assert not any(x.evaluate(SHOWN) for x in sheet.locator(".attn-live").all())


def test_boxes_cast_no_shadow_on_the_page_before(sheet: Page) -> None:
    boxes = sheet.locator(".bd-article .admonition")
    shadows = boxes.evaluate_all("boxes => boxes.map(box => getComputedStyle(box).boxShadow)")  # fmt: skip
    assert set(shadows) == {"none"}


def test_each_half_follows_its_name(sheet: Page) -> None:
    tops = sheet.evaluate(
        """() => [...document.querySelectorAll(".sd-tab-set")].map(set =>
            [...set.querySelectorAll(":scope > :not(input)")].map(part => part.getBoundingClientRect().top))"""
    )
    assert all(places == sorted(places) for places in tops)


def test_links_are_underlined(sheet: Page) -> None:
    links = sheet.locator(".bd-article p > a.reference:not(.headerlink):visible")
    lines = links.evaluate_all("links => links.map(link => getComputedStyle(link).textDecorationLine)")  # fmt: skip
    assert set(lines) == {"underline"}
