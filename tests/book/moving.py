"""What a test needs to move a figure and to read what it shows."""

from __future__ import annotations

from typing import Any

import numpy as np
from playwright.sync_api import Locator, Page


def number(x: float, digits: int = 3) -> str:
    """As the figures print: a true minus, and none before 0.000."""
    text = f"{abs(x):.{digits}f}"
    return "NaN" if np.isnan(x) else ("−" if x < 0 and float(text) else "") + text


def settle(page: Page) -> None:
    """Wait for the next frame, in which the figure draws first: it has asked for it earlier."""
    page.evaluate("() => new Promise(requestAnimationFrame)")


def state(figure: Locator) -> dict[str, Any]:
    settle(figure.page)
    return figure.evaluate("figure => figure.state")


def follow(figure: Locator, addresses: list[str]) -> list[dict[str, Any]]:
    """The state that each address leads to, one after the other."""
    return figure.evaluate(
        """async (figure, addresses) => {
            const states = [], go = async (address) => {
                const there = new Promise(done => addEventListener("hashchange", done, { once: true }));
                location.hash = address;
                await there;
                await new Promise(drawn => requestAnimationFrame(() => requestAnimationFrame(drawn)));
            };
            for (const address of addresses) {
                await go(address);
                states.push(structuredClone(figure.state));
            }
            await go("#top");
            return states;
        }""",
        addresses,
    )


def said(figure: Locator) -> str:
    """What the figure will say as soon as it comes to rest."""
    settle(figure.page)
    return figure.evaluate("figure => figure.sentence")


def cells(figure: Locator, table: int) -> list[list[str]]:
    """The body of a table as shown, row by row."""
    return (
        figure.locator("table")
        .nth(table)
        .evaluate(
            """table => [...table.tBodies[0].rows].filter(row => !row.hidden)
            .map(row => [...row.cells].map(cell => cell.textContent))"""
        )
    )


def choose(figure: Locator, label: str, value: str) -> None:
    figure.get_by_label(label, exact=True).evaluate(
        """(list, value) => {
            list.value = value;
            if (list.value !== value) throw new Error(`no ${value} to choose`);
            list.dispatchEvent(new Event("change"));
        }""",
        value,
    )
    settle(figure.page)


def slide(figure: Locator, label: str, share: float) -> None:
    """Move a slider to a share of its length, as a mouse does."""
    figure.get_by_label(label, exact=True).evaluate(
        """(slider, share) => {
            slider.value = +slider.min + share * (slider.max - slider.min);
            slider.dispatchEvent(new Event("input"));
        }""",
        share,
    )


def hit(target: Locator, *keys: str) -> None:
    """Press keys on a control. `Locator.press` looks at the page before each, which takes ten times as long."""
    focus = "target => { target.focus(); return target === document.activeElement; }"
    assert target.evaluate(focus), f"{target} takes no focus"
    for key in keys:
        target.page.keyboard.press(key)


def tick(figure: Locator, label: str, on: bool) -> None:
    """Set a box by its label, where a click would first wait for the page to stand still."""
    figure.get_by_label(label, exact=True).evaluate(
        "(box, on) => { if (box.checked !== on) box.click(); }", on
    )


def drag(figure: Locator, to_x: float, to_y: float) -> None:
    """Drag the handle with the mouse to a place, in shares of its picture."""
    handle = figure.locator(".attn-grip")
    handle.scroll_into_view_if_needed()
    start, picture = (
        handle.bounding_box(),
        figure.locator("svg:has(.attn-grip)").bounding_box(),
    )
    assert start and picture
    mouse = figure.page.mouse
    mouse.move(start["x"] + start["width"] / 2, start["y"] + start["height"] / 2)
    mouse.down()
    mouse.move(
        picture["x"] + to_x * picture["width"],
        picture["y"] + to_y * picture["height"],
        steps=3,
    )
    mouse.up()


def arrows(target: Locator, rng: np.random.Generator, *keys: str) -> None:
    hit(target, *rng.choice(keys, size=3))


def press(figure: Locator, *names: str) -> None:
    """Press buttons from the keyboard, one after the other."""
    for name in names:
        hit(figure.get_by_role("button", name=name, exact=True), "Enter")
        settle(figure.page)


def verdict(figure: Locator) -> str:
    """What the figure says of the reader's guess."""
    settle(figure.page)
    return figure.locator(".attn-verdict").inner_text()
