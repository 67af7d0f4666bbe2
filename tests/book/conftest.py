"""What the tests of the built pages share: one browser, a way to open a page, and a look for what is cut off."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

    Visit = Callable[..., AbstractContextManager[Page]]

BUILT = Path(__file__).parents[2] / "_build" / "html"


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    from chromium import chromium  # here, so that tests without a browser need none

    try:
        with chromium() as browser:
            yield browser
    except FileNotFoundError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))  # which says what is missing and how to install it


@pytest.fixture(scope="session")
def book() -> Path:
    """The folder of the built pages."""
    if not BUILT.exists():
        pytest.fail("there is no built book; run `make book` first")
    return BUILT


@pytest.fixture(scope="session")
def visit(browser: Browser) -> Visit:
    return visitor(browser)


@pytest.fixture(scope="module")
def visit_alone(browser: Browser) -> Iterator[Visit]:
    """The same in a browser of its own, for pages that store something.

    One that had opened hundreds of pages in other windows sometimes lost what a page had stored when the next came.
    """
    from chromium import launch

    own = launch(browser.browser_type)
    yield visitor(own)
    own.close()


def visitor(browser: Browser) -> Visit:
    """Open a page from its file, with its formulas drawn; at the end it must have met no error and asked no network."""
    from chromium import PATIENCE

    contexts: dict[str, BrowserContext] = {}

    @contextmanager
    def open_page(path: Path, **options: Any) -> Iterator[Page]:
        # A window for all pages with the same options, with a page that stays open, saves the browser half its work.
        if repr(options) not in contexts:
            made = browser.new_context(**{"reduced_motion": "reduce"} | options)
            made.set_default_timeout(PATIENCE)
            made.new_page().goto((BUILT / "book" / "intro.html").as_uri())
            contexts[repr(options)] = made
        page = contexts[repr(options)].new_page()
        faults: list[str] = []
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda m: m.type == "error" and faults.append(m.text))
        page.on("request", lambda request: faults.append(request.url))
        try:
            page.goto(path.as_uri())
            ready(page)
            yield page
            page.evaluate("localStorage.clear()")
        finally:
            page.close()
        met = [x for x in faults if not x.startswith(("file:", "data:", "blob:"))]
        assert met == [], path.name

    return open_page


@pytest.fixture(scope="module")
def sheet(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A page of its own with the figures that a file of tests names in NAMES."""
    from stills import page_of

    path = tmp_path_factory.mktemp("figures") / "figures.html"
    path.write_text(page_of(*request.module.NAMES), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def page(visit: Visit, sheet: Path) -> Iterator[Page]:
    with visit(sheet, viewport={"width": 1000, "height": 900}) as page:
        yield page


def ready(page: Page) -> None:
    page.evaluate("Promise.all([window.MathJax?.startup.promise, document.fonts.ready])")  # fmt: skip


WORK = """() => {
    const tell = (part, kind) => part.dispatchEvent(new Event(kind, { bubbles: true }));
    for (const part of document.querySelectorAll(".attn-live :is(input, select, [role=slider])")) {
        if (part.type === "checkbox" || part.type === "radio") part.click();
        else if (part.matches("select")) part.selectedIndex = Math.min(part.selectedIndex + 1, part.length - 1);
        else if (part.type === "range") part.stepUp();
        part.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true }));
        tell(part, "input");
        tell(part, "change");
    }
    for (const live of document.querySelectorAll(".attn-live:has(button)")) live.querySelector("button").click();
}"""


@pytest.fixture(scope="session")
def unfold() -> Callable[[Page], None]:
    """Open every fold of a page and every solution, and work each control of its moving figures."""

    def open_and_use(page: Page) -> None:
        page.evaluate(
            """() => {
                document.querySelectorAll("details").forEach(fold => { fold.open = true; });
                document.querySelectorAll(".toggle-button-hidden").forEach(button => button.click());
            }"""
        )
        page.evaluate(WORK)
        page.wait_for_function("document.getAnimations().length === 0")

    return open_and_use


@pytest.fixture(scope="session")
def cut_off() -> Callable[[Page], list[str]]:
    """The words of a page that stand beyond its edges or a box's, where nothing scrolls to them."""
    script = """() => {
        const found = [], words = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
        const clips = (box, line) => box.right < line.right - 2 || box.left > line.left + 2
            || box.bottom < line.bottom - 3 || box.top > line.top + 3;
        const hides = (part, line) => {
            for (; part !== document.body; part = part.parentElement) {
                const { overflowX, overflowY } = getComputedStyle(part);
                if (/auto|scroll/.test(overflowX)) return false;
                if (/hidden|clip/.test(overflowX + overflowY) && clips(part.getBoundingClientRect(), line)) return true;
            }
            return line.left < -1 || line.right > document.documentElement.clientWidth + 1;
        };
        while (words.nextNode()) {
            const text = words.currentNode, part = text.parentElement, range = document.createRange();
            const shown = part.checkVisibility({ opacityProperty: true, visibilityProperty: true });
            // What only screen readers get is hidden on purpose; the skip link waits beyond the edge.
            if (!shown || part.closest("mjx-assistive-mml, .visually-hidden, .skip-link")) continue;
            range.selectNodeContents(text);
            if (text.data.trim() && [...range.getClientRects()].some(line => line.width > 1 && hides(part, line)))
                found.push(text.data.trim());
        }
        // Formulas are drawings: their boxes scroll sideways and must be high enough.
        for (const formula of document.querySelectorAll('mjx-container[display="true"]'))
            if (formula.scrollHeight > formula.clientHeight + 1) found.push(formula.textContent);
        return found;
    }"""
    return lambda page: page.evaluate(script)
