"""The figures of tiles, hidden bugs and the beam: the numbers are the package's, and keys do all their tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
import stills
from moving import cells, choose, number, said, settle, slide, state
from playwright.sync_api import Locator, Page

import attn_tutor.numpy as an

BOOK = Path(__file__).parents[2] / "book"
NAMES = ("tiles",)


@pytest.fixture(scope="module")
def page(
    visit: Callable[..., AbstractContextManager[Page]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Page]:
    sheet = tmp_path_factory.mktemp("figures") / "figures.html"
    sheet.write_text(stills.page_of(*NAMES), encoding="utf-8")
    with visit(sheet, viewport={"width": 1000, "height": 900}) as page:
        yield page


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(8)


def press(figure: Locator, *names: str) -> None:
    for name in names:
        figure.get_by_role("button", name=name, exact=True).press("Enter")
    settle(figure.page)


def verdict(figure: Locator) -> str:
    settle(figure.page)
    return figure.locator(".attn-verdict").inner_text()


def chapter(name: str, *starts: str) -> dict[str, Any]:
    """What the cells of a chapter define that begin like this."""
    defined: dict[str, Any] = {}
    for cell in nbformat.read(BOOK / f"{name}.ipynb", as_version=4).cells:
        if cell.cell_type == "code" and cell.source.startswith(starts):
            exec(cell.source, defined)  # the repository's own
    return defined


# Tiles


def test_tiles_in_any_order(page: Page, rng: np.random.Generator) -> None:
    figure, met = page.locator("attn-tiles"), set()
    for trial in range(20):
        width = 2 ** (trial % 4)
        choose(figure, "Keys in a tile", str(width))
        figure.get_by_label("causal: the query is token 4").set_checked(trial % 3 == 1)
        for _ in range(trial % 3):
            press(figure, "New numbers")
        press(figure, "Start over")
        S, V = np.array([*figure.evaluate("f => Object.values(f.numbers)")])
        causal = state(figure)["causal"]
        if causal:
            S = np.where(an.causal_mask(8)[4], S, -np.inf)
        tiles = [j for j in range(8 // width) if not causal or width * j <= 4]
        order = rng.permutation(tiles)[: rng.integers(1, len(tiles) + 1)]
        press(figure, *(f"tile {tile}" for tile in order))
        assert state(figure)["order"] == "".join(map(str, order))
        seen, top = np.zeros(8, bool), -np.inf
        for tile, shown in zip(order, cells(figure, 0), strict=True):
            seen[width * tile : width * (tile + 1)] = True
            e = np.exp(S[seen] - S[seen].max())
            expected = np.exp(top - S[seen].max()), S[seen].max(), e.sum(), e @ V[seen]
            output = an.attend(S[None, seen], V[seen, None])[0, 0]
            assert shown == [str(tile), *map(number, expected), number(output)]
            top = S[seen].max()
        whole = an.attend(S[None], V[:, None])[0, 0]
        assert figure.locator(".attn-answer").inner_text() == f"All at once: {number(whole)}"  # fmt: skip
        assert f"of {len(tiles)}:" in said(figure)
        met.add((width, causal))
    assert len(met) == 8


def test_bytes_of_tiles_are_the_chapters(page: Page, rng: np.random.Generator) -> None:
    figure, met = page.locator("attn-tiles"), set()
    known = chapter("10_fast_attention", "n, h, d = 8192", "def tile_traffic")
    n, h, d, textbook = (known[name] for name in ("n", "h", "d", "traffic"))
    for trial in range(20):
        causal = trial % 4 == 3
        figure.get_by_label("causal: the query is token 4").set_checked(causal)
        width = figure.get_by_label("Width T of a tile at 8,192 tokens")
        slide(figure, "Width T of a tile at 8,192 tokens", rng.uniform())
        width.press("ArrowLeft")
        T = 2 ** state(figure)["power"]
        first = T * np.arange(n // T)
        tiles = sum(
            int((first <= i + T - 1).sum()) if causal else n // T for i in first
        )
        traffic = known["tile_traffic"](T)
        if causal:
            traffic = 4 * h * (2 * n * d + tiles * 2 * T * d)
        room, scores = known["tile_room"](T), 8 * 4 * h * tiles * T * T
        operations = 4 * h * d * tiles * T * T
        least = max(operations / 312e12, traffic / 2 / 1.5e12, scores / 2 / 19e12)
        gib, ms = 2**30, max(known["operations"] / 312e12, textbook / 2 / 1.5e12)
        assert [row[1:] for row in cells(figure, 1)] == [
            [number(textbook / gib, 2), number(traffic / gib, 2)],
            ["–", number(scores / gib, 2)],
            ["–", number(room / 1024, 0) + " > 192" * (room > 192 * 1024)],
            [number(1e3 * ms, 2), number(1e3 * least, 2)],
        ]
        intensity = operations / (traffic / 2)
        shown = figure.locator("svg").last.get_attribute("aria-label")
        assert f"tiles {number(intensity, 1)};" in str(shown)
        x = 46 + 25 * (np.log2(intensity) + 1)
        assert abs(float(str(figure.locator("circle").get_attribute("cx"))) - x) < 1e-6
        met.add((T, causal))
    assert len(met) > 8


def test_tasks_of_the_tiles(page: Page) -> None:
    figure = page.locator("attn-tiles")
    press(figure, "Again", "yes", "tile 1", "tile 3", "Start over")
    assert verdict(figure) == "Your guess: yes. Now try."
    press(figure, "tile 3", "tile 1", "tile 2", "tile 0")
    assert verdict(figure) == (
        "You guessed “yes”; it is “no”. "
        "In the order 2, 0, 1, 3: total 3.111, output 6.107. "
        "In the order 3, 1, 2, 0: total 3.111, output 6.107. "
        "What came before a higher top has shrunk by just as much as if the top had been known."
    )
    press(figure, "Next task", "16")
    figure.get_by_label("Width T of a tile at 8,192 tokens").press("ArrowRight")
    assert verdict(figure) == (
        "As you guessed. T = 8: 32.03 GiB. T = 16: 16.03 GiB. The textbook: 16.06 GiB."
    )
