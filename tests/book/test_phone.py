"""On a phone: what one touches is large enough for a finger, what one reads is not too small, and nothing jumps."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

TOC = (Path(__file__).parents[2] / "_toc.yml").read_text("utf-8")
PHONE: dict[str, Any] = {
    "viewport": {"width": 390, "height": 844},
    "device_scale_factor": 2,
    "is_mobile": True,
    "has_touch": True,
}
WORST = [  # of each kind of page those that had most to mend
    "intro",
    "01_queries_keys_values",
    "05_multi_head_attention/one_head",
    "07_gradients",
    "09_transformer/keep_the_keys",
    "11_real_model",
    "11_real_model/induction",
    "api",
    "remember",
]
FINGER = 24  # pixels, WCAG 2.5.8; links within a sentence are free of it
LETTERS = 9  # pixels
SHIFT = 0.05  # of the layout

SMALL_TARGETS = """least => [...document.querySelectorAll(
    "a[href], button, input, select, textarea, summary, [role=button], [role=slider], .sd-tab-label")].filter(part => {
        const shown = part.checkVisibility({ opacityProperty: true, visibilityProperty: true });
        if (!shown || part.closest(".skip-link, .visually-hidden") || part.matches(".sd-tab-set > input")) return false;
        const around = part.closest("p, li, dd, dt, td, th, figcaption, caption, summary");
        const words = around && [...around.querySelectorAll("a")].reduce((n, link) => n + link.textContent.length, 1);
        if (part.matches("a") && around && around.textContent.length > words) return false;
        const [own, label] = [part, part.closest("label") ?? part].map(x => x.getBoundingClientRect());
        const [wide, high] = ["width", "height"].map(side => Math.max(own[side], label[side]));
        return wide && high && Math.min(wide, high) < least;
    }).map(part => part.outerHTML.slice(0, 120))"""

# The smallest letters: of drawings as they say, of pictures 8 pt at 100 pixels an inch, of those in SVG 9 pt at 96.
SMALL_LETTERS = """least => [...document.querySelectorAll("article :is(svg text, img)")].filter(part => {
        const wide = part.getBoundingClientRect().width;
        if (!wide || !part.checkVisibility({ visibilityProperty: true })) return false;
        if (part.matches("img"))
            return (part.src.endsWith("svg") ? 9 * 96 : 8 * 100) / 72 * wide / part.getAttribute("width") < least;
        const { a, b } = part.getScreenCTM();
        return part.textContent.trim() && parseFloat(getComputedStyle(part).fontSize) * Math.hypot(a, b) < least;
    }).map(part => part.src ?? part.textContent)"""

SHIFTED = """() => new Promise(done => {
    let sum = 0;
    new PerformanceObserver(list => { for (const { value } of list.getEntries()) sum += value; })
        .observe({ type: "layout-shift", buffered: true });
    setTimeout(() => done(sum), 200);
})"""


def faults(
    page: Page,
    unfold: Callable[[Page], None],
    cut_off: Callable[[Page], list[str]],
) -> dict[str, Any]:
    shift = page.evaluate(SHIFTED)
    unfold(page)
    found = {
        "shift": shift if shift > SHIFT else 0,
        "targets": page.evaluate(SMALL_TARGETS, FINGER - 0.1),
        "letters": page.evaluate(SMALL_LETTERS, LETTERS - 0.1),
        "cut off": cut_off(page),
    }
    return {kind: fault for kind, fault in found.items() if fault}


@pytest.mark.parametrize(
    "name",
    [
        *WORST,
        *(
            pytest.param(name, marks=pytest.mark.full)
            for name in re.findall(r"(?:file|root): book/(\S+)", TOC)
            if name not in WORST
        ),
    ],
)
def test_a_page_is_fit_for_fingers_and_eyes(
    visit: Callable[..., Any],
    unfold: Callable[[Page], None],
    cut_off: Callable[[Page], list[str]],
    book: Path,
    name: str,
) -> None:
    with visit(book / "book" / f"{name}.html", **PHONE) as page:
        assert faults(page, unfold, cut_off) == {}


def test_tex_takes_the_room_of_its_formula(
    visit: Callable[..., Any], book: Path
) -> None:
    """Until it is drawn, so that no line breaks elsewhere then: half of them within a twentieth."""
    with visit(book / "book" / "07_gradients.html", **PHONE) as page:
        rooms = page.locator("article span.math:visible").evaluate_all(
            """all => all.map(x => parseFloat(x.style.getPropertyValue("--room"))
                * parseFloat(getComputedStyle(x).fontSize) / x.offsetWidth)"""
        )
    assert len(rooms) > 50
    low, middle, high = np.quantile(rooms, [0.05, 0.5, 0.95])
    assert low > 0.75 and 0.95 < middle < 1.05 and high < 1.25


def test_a_wide_picture_says_that_it_scrolls_and_shows_its_right_edge(
    visit: Callable[..., Any], book: Path
) -> None:
    with visit(book / "book" / "benchmarks.html", **PHONE) as page:
        figure = page.locator("#fig-bench-cpu-numpy")
        figure.focus()  # by the keyboard too
        assert "sideways" in figure.evaluate(
            'part => getComputedStyle(part, "::before").content'
        )
        figure.evaluate("part => part.scrollTo(part.scrollWidth, 0)")
        right = "part => part.getBoundingClientRect().right"
        edge = figure.locator("img:visible").evaluate(right)
        assert edge <= PHONE["viewport"]["width"]
        caption = figure.locator("figcaption").evaluate(right)
        assert 0 < caption <= PHONE["viewport"]["width"]


def test_the_ledger_is_a_list(visit: Callable[..., Any], book: Path) -> None:
    with visit(book / "book" / "api.html", **PHONE) as page:
        ledger = page.locator("#shape-ledger .pst-scrollable-table-container")
        wide = "parts => parts.map(part => part.scrollWidth - part.clientWidth)"
        assert max(ledger.evaluate_all(wide)) <= 0
        name, meaning = (
            page.locator(f"#shape-ledger td:nth-child({i})").first.bounding_box()
            for i in (1, 2)
        )
        assert name and meaning and name["x"] == meaning["x"]
