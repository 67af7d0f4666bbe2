"""A chapter read with the keyboard alone: everything is reached, seen where it is, worked, and left again."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from playwright.sync_api import Locator, Page

# A page with tables and many buttons, and by `make full` one with a plane to move on.
CASES = [
    pytest.param(("03_masked_softmax", "dark"), id="03"),
    pytest.param(("01_queries_keys_values", "light"), id="01", marks=pytest.mark.full),
]
MOST = 400  # presses of Tab; a page with more is a trap

# Place of the focus: which of the page's parts, the ring around it, and whether one sees both.
STOP = """parts => {
    const part = document.activeElement, place = part.getBoundingClientRect();
    // A tab is a hidden radio button; its label is what one sees.
    const shown = part.matches(".sd-tab-set > input") ? part.nextElementSibling : part;
    // A link over two lines has a box for each; between them stand other words.
    const [box = place] = [...shown.getClientRects()].sort((one, other) => other.width - one.width);
    const look = getComputedStyle(shown);
    const x = Math.min(box.right - 1, Math.max(box.left + 1, box.x + box.width / 2));
    const y = Math.min(innerHeight - 1, Math.max(1, box.y + Math.min(box.height, innerHeight) / 2));
    const top = document.elementFromPoint(x, y);
    return {
        number: document.documentElement.parts.indexOf(part),
        name: part.tagName + " " + (part.getAttribute("aria-label") || part.textContent).trim().slice(0, 40),
        ring: look.outlineStyle === "none" ? 0 : parseFloat(look.outlineWidth),
        colour: look.outlineColor,
        seen: shown.checkVisibility({ opacityProperty: true, visibilityProperty: true }) && box.width * box.height > 0
            && (shown.contains(top) || top.contains(shown)),
    };
}"""
# The page tells what scrolls, and so is a stop, a moment after it has drawn that.
SETTLED = """() => [...document.querySelectorAll("pre, .pst-scrollable-table-container, mjx-container[display]")]
    .filter(part => part.checkVisibility({ visibilityProperty: true }))  // not what a closed fold holds
    .every(part => (part.tabIndex === 0) === (part.scrollWidth > part.clientWidth))"""
# Controls that can be reached, in the order of the page; of a group of radio buttons the chosen one.
REACHABLE = """() => {
    const wanted = "a[href], button, input, select, summary, [tabindex='0'], iframe, area[href]";
    document.documentElement.parts = [...document.querySelectorAll(wanted)].filter(part =>
        !part.disabled && part.tabIndex >= 0 && part.checkVisibility({ visibilityProperty: true })
        && !(part.type === "radio" && !part.checked));
    return document.documentElement.parts.length;
}"""


@pytest.fixture(scope="module", params=CASES)
def chapter(
    visit: Callable[..., Any], book: Path, request: pytest.FixtureRequest
) -> Iterator[SimpleNamespace]:
    """A chapter, and every stop of the Tab key in it, forwards and then backwards."""
    name, scheme = request.param
    with visit(book / "book" / f"{name}.html", color_scheme=scheme) as page:
        page.wait_for_function(SETTLED)
        reachable = page.evaluate(REACHABLE)
        forwards, backwards = walk(page, "Tab"), walk(page, "Shift+Tab")
        yield SimpleNamespace(
            page=page, reachable=reachable, forwards=forwards, backwards=backwards
        )


@pytest.fixture
def page(chapter: SimpleNamespace) -> Page:
    return chapter.page


def walk(page: Page, key: str) -> list[dict[str, Any]]:
    """Each stop until the focus has left the page, or begins anew."""
    stops: list[dict[str, Any]] = []
    while len(stops) < MOST:
        page.keyboard.press(key)
        stop = page.evaluate(STOP)
        if stop["number"] in (-1, *(first["number"] for first in stops[:1])):
            return stops
        stops.append(stop)
    return stops


def test_everything_is_reached_once_in_order_and_left_again(
    chapter: SimpleNamespace,
) -> None:
    numbers = [stop["number"] for stop in chapter.forwards]
    assert chapter.reachable > 80
    assert numbers == list(range(chapter.reachable))
    assert [stop["number"] for stop in chapter.backwards] == numbers[::-1]
    assert chapter.page.locator("[tabindex]:not([tabindex='0'], [tabindex='-1'])").count() == 0  # fmt: skip


def test_one_sees_where_one_is(chapter: SimpleNamespace) -> None:
    stops = chapter.forwards + chapter.backwards
    assert [stop["name"] for stop in stops if not stop["seen"]] == []
    assert [stop["name"] for stop in stops if stop["ring"] < 2] == []
    ground = chapter.page.evaluate("getComputedStyle(document.body).backgroundColor")
    faint = [s["name"] for s in stops[1:-1] if contrast(s["colour"], ground) < 3]
    assert faint == []  # all but the first, whose ground is its own


def contrast(one: str, other: str) -> float:
    """WCAG's ratio of two colours, given as rgb(…)."""

    def luminance(colour: str) -> float:
        parts = [int(x) / 255 for x in re.findall(r"\d+", colour)[:3]]
        linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]  # fmt: skip
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


def focused(page: Page) -> Locator:
    return page.locator(":focus")


def stand_on(page: Page, selector: str) -> Locator:
    """Where Tab leads, as the walk has shown: there at once."""
    page.locator(f"{selector}:visible").first.focus()
    return focused(page)


def test_the_first_stop_skips_to_the_chapter(page: Page) -> None:
    page.reload()
    page.keyboard.press("Tab")
    assert focused(page).inner_text() == "Skip to main content"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("!!document.activeElement.closest('main')")


@pytest.mark.parametrize(
    ("button", "inside"),
    [
        (".solution .toggle-button", ".solution.toggle section"),
        ("details.hide > summary", "details.hide > :not(summary)"),
    ],
)
def test_folds_open_and_close(page: Page, button: str, inside: str) -> None:
    fold, content = stand_on(page, button), page.locator(inside).first
    says = fold.get_attribute("aria-expanded")
    for key, opens in [("Enter", True), ("Space", False)]:
        page.keyboard.press(key)
        assert content.evaluate("x => x.checkVisibility({ visibilityProperty: true })") is opens  # fmt: skip
        if says is not None:
            assert fold.get_attribute("aria-expanded") == str(opens).lower()


def test_code_is_copied(page: Page) -> None:
    stand_on(page, ".copybtn")
    page.keyboard.press("Enter")
    page.wait_for_selector(".copybtn.success:focus")


def test_the_moving_figure_moves(page: Page) -> None:
    control = stand_on(page, ".attn-controls :is(input[type=range], select, button)")
    figure = "part => ({ ...part.closest('.attn-live').parentElement.state })"
    key = "ArrowRight" if control.evaluate("x => !x.matches('button')") else "Enter"
    before = control.evaluate(figure)
    page.keyboard.press(key)
    assert control.evaluate(figure) != before


def test_on_a_telephone_the_contents_open_and_close(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    for side in ("primary", "secondary"):
        stand_on(page, f".{side}-toggle")
        page.keyboard.press("Enter")
        dialog = page.locator(f"#pst-{side}-sidebar-modal[open]")
        dialog.wait_for()
        stops = []
        for _ in range(5):
            page.keyboard.press("Tab")
            stops.append(page.evaluate("document.activeElement.closest('dialog')?.id"))
        assert f"pst-{side}-sidebar-modal" in stops
        page.keyboard.press("Escape")
        dialog.wait_for(state="hidden")
        assert page.evaluate(f"document.activeElement.matches('.{side}-toggle')")
    page.set_viewport_size({"width": 1280, "height": 720})


def test_tabs_follow_the_arrows_and_each_other(
    page: Page, unfold: Callable[[Page], None]
) -> None:
    unfold(page)  # the package's source lies in closed boxes
    stand_on(page, ".sd-tab-set > input")
    shown = page.locator(".sd-tab-content:visible")
    numpy_code = shown.first.inner_text()
    page.keyboard.press("ArrowRight")
    assert shown.first.inner_text() != numpy_code
    chosen = page.locator(".sd-tab-set > input:checked + label")
    assert set(chosen.all_inner_texts()) == {"torch"}
    page.keyboard.press("ArrowLeft")
    assert shown.first.inner_text() == numpy_code


def test_the_search_opens_takes_words_and_closes(page: Page) -> None:
    before = stand_on(page, ".search-button__button")
    page.keyboard.press("Enter")
    assert focused(page).get_attribute("name") == "q"
    page.keyboard.press("Escape")
    assert page.locator("#pst-search-dialog[open]").count() == 0
    assert before.evaluate("button => button.matches('.search-button__button')")
    page.keyboard.press("Control+k")
    page.keyboard.type("softmax")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search.html?q=softmax")
