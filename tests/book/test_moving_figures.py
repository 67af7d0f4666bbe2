"""The figures that move, in a browser: moved by mouse, finger and keyboard, they show the package's own numbers."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import book_pages
import head_weights
import moving_figures
import nbformat
import numpy as np
import pytest
import stills
from axe_playwright_python.sync_playwright import Axe
from moving import (
    arrows,
    choose,
    drag,
    follow,
    hit,
    number,
    press,
    said,
    settle,
    slide,
    state,
    tick,
    verdict,
)
from PIL import Image
from playwright.sync_api import Browser, Locator, Page, expect

import attn_tutor.numpy as an
from attn_tutor.data import load_cars
from attn_tutor.ledger import B200, H100, Mesh, attention_cost, cache_bytes
from attn_tutor.torch.distributed import blocks, striped, zigzag

pytestmark = pytest.mark.rest

ROOT = Path(__file__).parents[2]
BUILT = ROOT / "_build" / "html"
NAMES = stills.FIGURES
STATES = 12  # of each figure, so that each choice is met with each other
each = pytest.mark.parametrize("name", stills.FIGURES)
Visit = Callable[..., AbstractContextManager[Page]]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(5)


# Each figure against the package


def test_pooling_plane(page: Page, rng: np.random.Generator) -> None:
    figure, cars, empty = page.locator("attn-pooling"), load_cars(), 0
    features = np.stack([cars["weight"], cars["horsepower"]], -1)
    mean, deviation = features.mean(0), features.std(0)
    K, V = (features - mean) / deviation, cars["mpg"][:, None]
    for trial in range(STATES):
        kernel = ("gaussian", "boxcar", "triangular", "epanechnikov")[trial % 4]
        choose(figure, "Kernel", kernel)
        slide(figure, "Bandwidth", rng.uniform(0, 0.5))
        weight, power = rng.uniform(1.4, 5.6), rng.uniform(40, 350)
        drag(figure, *place_in_plane(figure, weight, power))
        dropped = state(figure)
        assert abs(dropped["weight"] - np.clip(weight, 1.5, 5.5)) < 0.02
        assert abs(dropped["power"] - np.clip(power, 50, 340)) < 2
        handle = figure.get_by_role("slider", name="Query")
        arrows(handle, rng, "ArrowLeft", "ArrowUp", "Shift+ArrowRight", "ArrowDown")
        now = state(figure)
        assert now != dropped

        q = (np.array([[now["weight"], now["power"]]]) - mean) / deviation
        if kernel == "gaussian":
            A = an.softmax(an.gaussian_score(q, K, now["bandwidth"]))[0]
        else:
            w = getattr(an, f"{kernel}_kernel")(q, K, now["bandwidth"])
            A = an.normalize(w)[0]
        answer = (A @ V)[0]
        threads = figure.locator(".attn-thread").evaluate_all(
            "threads => threads.map(thread => +thread.getAttribute('stroke-width'))"
        )
        np.testing.assert_allclose(threads, 26 * A, atol=1e-6)
        drawn = figure.locator('.attn-thread[visibility="visible"]').count()
        assert (
            drawn == (A >= 5e-4).sum()
        )  # a hair of 10⁻⁴⁴ would be as thick as one of 0.03
        ends = figure.locator(".attn-thread").evaluate_all(
            "threads => threads.map(thread => +thread.getAttribute('d').split(' ').at(-1))"
        )
        np.testing.assert_allclose(ends, 262 - 9.4 * (V[:, 0] - 9.5), atol=1e-9)
        shown = figure.locator("text.attn-answer").text_content()
        sentence = said(figure)
        assert f"{(A >= 5e-4).sum()} of 32" in sentence or not A.any()
        if A.any():
            assert shown == number(answer, 2)
            balance = figure.locator("path.attn-mark").get_attribute("transform")
            middle = np.average(ends, weights=A)
            assert abs(float(str(balance).split()[-1].strip(")")) - middle) < 1e-6
            assert f"The answer is {number(answer, 2)} mpg" in sentence
        else:
            empty += 1
            assert shown == "0/0" and "window is empty" in sentence
        place = f"{now['weight']:.2f} thousand pounds, {now['power']} horsepower"
        assert handle.get_attribute("aria-valuetext") == place and place in sentence
    assert 0 < empty < STATES / 2


def place_in_plane(figure: Locator, weight: float, power: float) -> tuple[float, float]:
    """Where a car of this kind stands, in shares of the drawing."""
    script = "(figure, [weight, power]) => [figure.x(weight) / figure.wide, figure.y(power) / 302]"
    x, y = figure.evaluate(script, [weight, power])
    return x, y


def test_scale_slider(page: Page, rng: np.random.Generator) -> None:
    figure, widths, been = page.locator("attn-scale"), set(), {"none"}
    draws = park_miller(7919 * np.arange(1, 201), 9 * 1024).reshape(200, 9, 1024)
    for trial in range(STATES):
        choose(figure, "Scale", ("none", "root", "width")[trial % 3])
        slide(figure, "Width d", rng.uniform())
        arrows(
            figure.get_by_label("Width d"), rng, "ArrowLeft", "ArrowRight", "PageDown"
        )
        for _ in range(trial % 3):
            figure.get_by_role("button", name="Draw new vectors").click()
        now = state(figure)
        d = 2 ** now["power"]
        widths.add(d)
        by = {"none": 1, "root": d**0.5, "width": d}[now["scale"]]
        all_scores = an.dot_score(draws[:, :1, :d], draws[:, 1:, :d]) / by
        typical = figure.evaluate("f => f.typical(f.state.scale, f.state.power)")
        S = all_scores[now["draw"] - 1]
        A = an.softmax(S)[0]
        numbers = figure.locator("svg").first.locator("circle + text, rect + text")
        spread, *shown = numbers.all_text_contents()
        pale = "" if now["scale"] == "none" else "; pale: undivided"
        assert spread == f"scores, spread {number(S.std(), 2)}" + pale
        assert shown == [x for s, a in zip(S[0], A, strict=True) for x in (number(s, 2), number(a))]  # fmt: skip
        places = (
            figure.locator("svg")
            .first.locator("circle")
            .evaluate_all("dots => dots.map(dot => +dot.getAttribute('cx'))")
        )
        zero, reach = np.linalg.solve(
            [[1, S[0].min()], [1, S[0].max()]], [min(places), max(places)]
        )
        np.testing.assert_allclose(
            places, zero + reach * S[0], atol=1e-6
        )  # none is cut
        plot = figure.locator("svg").nth(1)
        assert plot.locator(".attn-name").text_content() == number(typical, 2)
        curve = plot.locator(".attn-curve").get_attribute("d")
        x, y = map(float, str(curve)[1:].split("L")[now["power"]].split())
        rider = plot.locator(".attn-mark").evaluate(
            "dot => [dot.cx, dot.cy].map(length => length.baseVal.value)"
        )
        np.testing.assert_allclose(rider, [x, y], atol=1e-3)
        np.testing.assert_allclose(y, 166 - 140 * typical, atol=1e-3)
        names = plot.locator("path + text").all_text_contents()[-3:]
        scales = {"none": "none", "root": "divide by √d", "width": "divide by d"}
        been.add(now["scale"])
        assert names == [scales[x] if x in been else "?" for x in scales]
        assert f"Width {d:,}," in said(figure)
        assert f"spread by {number(S.std(), 2)};" in said(figure)
        assert f"takes {number(A.max())} of the weight" in said(figure)
        assert figure.get_by_label("Width d").get_attribute("aria-valuetext") == f"{d:,}"  # fmt: skip
    assert len(widths) > 5


def test_the_curves_of_the_scale_are_medians(page: Page) -> None:
    """Of draws as the figure's: a query and eight keys with entries uniform on ±√3."""
    medians = page.locator("attn-scale").evaluate(
        "figure => figure.constructor.medians"
    )
    rng, largest = np.random.default_rng(3), {scale: [] for scale in medians}
    d = 2 ** np.arange(11)
    for _ in range(16):
        draws = (2 * rng.random((250, 9, 1024), dtype=np.float32) - 1) * 3**0.5
        scores = np.cumsum(draws[:, :1] * draws[:, 1:], axis=-1)[..., d - 1]
        for scale, by in (("none", 1), ("root", d**0.5), ("width", d)):
            largest[scale].append(an.softmax(np.swapaxes(scores / by, 1, 2)).max(-1))
    for scale, told in medians.items():
        np.testing.assert_allclose(np.median(np.concatenate(largest[scale]), axis=0), told, atol=0.012)  # fmt: skip


def park_miller(seeds: np.ndarray, count: int) -> np.ndarray:
    """Uniform numbers with mean 0 and variance 1, a row for each seed."""
    numbers = np.empty((len(seeds), count))
    for i in range(count):
        seeds = seeds * 16807 % 2147483647
        numbers[:, i] = seeds
    return (2 * numbers / 2147483647 - 1) * np.sqrt(3)


SCORES = np.array(
    [
        [0.7, -0.4, 1.1, 0.2],
        [-0.3, 0.9, 0.4, -1.2],
        [1.3, 0.1, -0.6, 0.8],
        [0.5, -0.9, 0.6, 1.4],
    ]
)


WAYS = [("ArrowLeft", -1), ("ArrowRight", 1), ("ArrowUp", -4), ("ArrowDown", 4)]


@pytest.mark.filterwarnings("ignore:invalid value")  # the NaN is the lesson
def test_mask_editor(page: Page, rng: np.random.Generator) -> None:
    figure, empty_rows = page.locator("attn-mask"), set()
    grid = figure.locator(".attn-cell")
    for trial in range(STATES):
        convention = ("zero", "uniform", "nan")[trial % 3]
        choose(figure, "Where nothing is permitted", convention)
        preset = ("padding & causal", "causal")[trial // 3 % 2]
        figure.get_by_role("button", name=preset, exact=True).click()
        wanted = an.causal_mask(4)
        wanted[:, 0] &= preset == "causal"
        for i in rng.choice(16, size=trial % 4, replace=False):
            grid.nth(i).click()
            wanted.flat[i] ^= True
        start, (key, way) = rng.choice([5, 6, 9, 10]), WAYS[rng.integers(4)]
        grid.nth(start).focus()
        page.keyboard.press(key)
        page.keyboard.press("Space")
        wanted.flat[start + way] ^= True
        mask = np.array(state(figure)["mask"])
        assert (mask == wanted).all()
        pressed = grid.evaluate_all(
            "cells => cells.map(cell => cell.ariaPressed === 'true')"
        )
        assert (np.reshape(pressed, (4, 4)) == mask).all()
        A = {
            "zero": lambda mask: an.masked_softmax(SCORES, mask),
            "uniform": lambda mask: an.softmax(np.where(mask, SCORES, -1e9)),
            "nan": lambda mask: an.softmax(np.where(mask, SCORES, -np.inf)),
        }[convention](mask)
        short = [["0" if x == 0 else number(x) for x in (*row, row.sum())] for row in A]
        words = ("pad", "Learn", "to", "code")
        expected = [
            f"{word}: {', '.join(map(' '.join, zip(words, row, strict=False)))}; sum {row[-1]}"
            for word, row in zip(words, short, strict=True)
        ]
        bars = figure.locator(".attn-query svg")
        assert bars.evaluate_all("bars => bars.map(bar => bar.ariaLabel)") == expected
        sums = bars.evaluate_all("bars => bars.map(bar => bar.lastChild.textContent)")
        assert sums == [row[-1] for row in short]
        pieces = bars.locator("g rect").evaluate_all(
            "pieces => pieces.map(piece => piece.width.baseVal.value)"
        )
        lengths = np.where(np.isnan(A), 0.25, A)  # a broken bar falls into four alike
        np.testing.assert_allclose(np.reshape(pieces, (4, 4)), 340 * lengths, atol=1e-3)
        broken = bars.evaluate_all("bars => bars.map(bar => bar.matches('.attn-broken'))")  # fmt: skip
        assert broken == np.isnan(A).any(-1).tolist()
        hatched = bars.locator(".attn-hatched").count()
        assert hatched == (A[~mask] > 0).sum()  # forbidden, and read all the same
        empty = ~mask.any(-1)
        empty_rows.add((convention, bool(empty.any())))
        assert f"{(~mask).sum()} of 16" in said(figure)
        assert ("may see nothing" in said(figure)) == empty.any()
    assert len(empty_rows) == 6  # each convention with and without one


def test_one_mask_cell_is_in_the_tab_order(page: Page) -> None:
    reached = page.locator("attn-mask .attn-cell[tabindex='0']")
    page.locator("attn-mask .attn-cell").nth(5).focus()
    page.keyboard.press("ArrowDown")
    assert reached.count() == 1
    assert reached.get_attribute("aria-label") == page.evaluate(
        "document.activeElement.ariaLabel"
    )
    assert "query to, key Learn" in str(reached.get_attribute("aria-label"))


def test_a_mouse_paints_what_its_first_cell_becomes(page: Page) -> None:
    figure, mouse = page.locator("attn-mask"), page.mouse
    press(figure, "causal")
    cells = figure.locator(".attn-cell")
    cells.first.scroll_into_view_if_needed()
    for start, end, row in ((13, 15, [1, 0, 0, 0]), (15, 12, [1, 1, 1, 1])):
        for cell, act in ((start, mouse.down), (end, mouse.up)):
            box = cells.nth(cell).bounding_box()
            assert box
            mouse.move(box["x"] + 9, box["y"] + 9, steps=12)
            act()
        assert state(figure)["mask"][3] == [bool(x) for x in row]
    cells.nth(15).click()  # and a press turns one cell over, as before
    assert state(figure)["mask"][3] == [True, True, True, False]


def test_mask_scores_are_those_of_the_test(page: Page) -> None:
    shown = page.locator("attn-mask .attn-cell").all_text_contents()
    assert shown == [number(s, 1) for s in SCORES.ravel()]


def move(figure: Locator, moved: str) -> None:
    place = ("tokens", "queries", "pairs", "keys").index(moved)
    figure.get_by_role("group", name="What moves").get_by_role("button").nth(place).click()  # fmt: skip
    settle(figure.page)


def test_permuted_tokens(page: Page, rng: np.random.Generator) -> None:
    figure, seen = page.locator("attn-permute"), set()
    words = ["WEATHER", "IS", "LOVELY"]
    X = np.array([[1.0, 0], [1, 1], [0, 1]])
    W_q = np.array([[0.0, 1, 1, 0], [1, 0, 0, 1]])
    W_k = np.log(2) * np.array([[1, 1, -1, 1], [-2, 1, 3, 0]])
    W_v = np.array([[0.0, 7], [7, 7]])
    chips = figure.locator(".attn-chip")
    for trial in range(2 * STATES):
        moved = ("tokens", "queries", "pairs", "keys")[trial % 4]
        move(figure, moved)
        tick(figure, "causal mask", bool(rng.integers(2)))
        tick(figure, "add positions", bool(rng.integers(2)))
        if trial % 3 == 0:
            figure.get_by_role("button", name="Next order").click()
        elif trial % 3 == 1:  # dragged by its name, or by its block in the drawing
            before = chips.all_text_contents()
            part = "query" if moved in {"tokens", "queries"} else "key"
            held = figure.locator(".attn-moves", has_text=re.compile(f"^{part}"))
            grips = held if trial % 2 else chips
            grips.first.scroll_into_view_if_needed()
            places = [grip.bounding_box() for grip in grips.all()]
            start, end = (
                by(filter(None, places), key=lambda box: box["x"]) for by in (min, max)
            )
            page.mouse.move(start["x"] + 5, start["y"] + 9)
            page.mouse.down()
            page.mouse.move(end["x"] + end["width"] - 2, end["y"] + 9, steps=8)
            page.mouse.up()
            settle(page)
            assert chips.all_text_contents() == [*before[1:], before[0]]
        else:
            before = chips.all_text_contents()
            chips.nth(1).focus()
            page.keyboard.press("ArrowLeft")
            settle(page)
            assert chips.all_text_contents() == [before[1], before[0], before[2]]
        now = state(figure)
        order = np.array(now["order"])
        q, k, v = (
            order
            if part
            in {"tokens": "qkv", "queries": "q", "pairs": "kv", "keys": "k"}[moved]
            else np.arange(3)
            for part in "qkv"
        )
        marks = an.sinusoidal_encoding(3, 2) * now["positions"]

        def attention(
            q: Any, k: Any, v: Any, marks: Any = marks, now: Any = now
        ) -> Any:
            Q, K, V = (X[q] + marks) @ W_q, (X[k] + marks) @ W_k, (X[v] + marks) @ W_v
            causal = now["causal"]
            return an.attention_weights(Q, K, causal=causal), an.attention(
                Q, K, V, causal=causal
            )

        A, O = attention(q, k, v)
        old = attention(*[np.arange(3)] * 3)[1][q]
        same = np.isclose(O, old, rtol=1e-9).all(-1)
        begun = now["order"] != [0, 1, 2]  # before, nothing tells what will happen
        verdicts = [
            ", the same" if same[r] else f", before {row(old[r])}" for r in range(3)
        ]
        told = [
            ", ".join(
                f"{number(x) if x else '0'} of the key of {words[j]}"
                for x, j in zip(A[r], k, strict=True)
            )
            for r in range(3)
        ]
        drawing = figure.locator("svg")
        expected = "; ".join(
            f"{words[i]} {row(O[r])}{verdicts[r] * begun}: {told[r]}"
            for r, i in enumerate(q)
        )
        assert drawing.get_attribute("aria-label") == expected + "."
        lines = drawing.locator(".attn-weighs")
        thick = lines.evaluate_all(
            "lines => lines.map(line => +line.getAttribute('stroke-width'))"
        )
        weights = A[np.ix_(np.argsort(q), np.argsort(k))]  # by word, as the lines
        np.testing.assert_allclose(thick, 26 * weights.ravel(), atol=0.006)
        outputs = drawing.locator(".attn-box + text").all_text_contents()
        assert outputs == [f"output {row(O[r])}" for r in np.argsort(q)]
        signs = drawing.locator("text:last-child:is(.attn-box ~ text)")
        assert signs.all_text_contents() == [
            begun * ("= the same" + ", moved" * bool(r != word))
            if same[r]
            else f"≠ {row(old[r])} before"
            for word, r in enumerate(np.argsort(q))
        ]
        seen.add((moved, now["causal"] or now["positions"], bool(same.all())))
        ending = (
            "Nothing has moved yet"
            if not begun
            else "No word's output changed"
            if same.all()
            else f"{3 - same.sum()} of 3 outputs changed"
        )
        assert ending in said(figure)
    # The theorem: without mask and positions, only keys without their values matter.
    assert {
        case[2]
        for case in seen
        if case[:2] in {("tokens", False), ("queries", False), ("pairs", False)}
    } == {True}
    assert ("keys", False, False) in seen and ("tokens", True, False) in seen


def row(xs: np.ndarray) -> str:
    return "(" + ", ".join(number(x, 2) for x in xs) + ")"


def ones_beside(X: np.ndarray) -> np.ndarray:
    """With a column of ones, so that the last row of a weight matrix is its bias."""
    return np.concatenate([X, np.ones_like(X[..., :1])], -1)


def biased(W: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The weights of queries, keys and values, each above its bias."""
    return [np.vstack([W[f"W_{part}"], W[f"b_{part}"]]) for part in "qkv"]


def test_head_viewer(page: Page, rng: np.random.Generator) -> None:
    figure, asked, W = page.locator("attn-heads"), set(), head_weights.read()
    keys, weights = ones_beside(np.eye(8)), biased(W)
    for trial in range(STATES):
        for label in ("First city", "Second city"):
            choose(figure, label, str(rng.integers(8)))
        at_work = ("both", "0", "1", "none")[trial % 4]
        works = [at_work in ("both", str(h)) for h in range(2)]
        for h in range(2):
            button = figure.get_by_role("button", name=f"head {h}", exact=True)
            if (button.get_attribute("aria-pressed") == "true") != works[h]:
                hit(button, "Enter")
                settle(page)
        arrows(figure.get_by_label("Second city"), rng, "ArrowDown", "ArrowUp")
        slide(
            figure,
            f"temperature of {rng.choice(['Cairo', 'Oslo', 'Tunis'])}",
            rng.uniform(),
        )
        arrows(
            figure.get_by_label("temperature of Lima"), rng, "ArrowLeft", "ArrowRight"
        )
        now = state(figure)
        first, second = int(now["first"]), int(now["second"])
        Q = np.concatenate([np.eye(8)[first], np.eye(8)[second]])[None]
        Q, V = ones_beside(Q), ones_beside(np.array(now["temperatures"])[:, None])
        A = an.multi_head_weights(Q, keys, *weights[:2], 2)[:, 0]
        assert now["at_work"] == at_work
        W_o = W["W_o"].copy()
        for h in range(2):
            W_o[8 * h : 8 * (h + 1)] *= works[h]
        silent = W["b_o"]
        O = an.multi_head_attention(Q, keys, V, *weights, W_o, 2)[0] + silent
        thick = figure.locator(".attn-stick").evaluate_all(
            "sticks => sticks.map(stick => [+stick.getAttribute('stroke-width'), +stick.getAttribute('opacity')])"
        )
        width, shows = np.array(thick).T
        np.testing.assert_allclose(width[:16], 24 * A.ravel(), atol=1e-6)
        assert (shows > 0).tolist() == [*np.repeat(works, 8), *np.repeat(works, 2)]
        if sum(works) == 1:  # what it adds is all that moved the answer
            added = np.reshape(width[16:], (2, 2))[works.index(True)]
            np.testing.assert_allclose(added, 8 * np.abs(O - silent), atol=1e-6)
        shown = figure.locator(".attn-degree > div").evaluate_all(
            "rows => rows.map(row => [row.firstChild.textContent, row.lastChild.textContent])"
        )
        cities = [city for city, _ in shown]
        assert [degree for _, degree in shown] == [number(v, 1) for v in V[:, 0]]
        asks = (first, second)
        answers = figure.locator("svg > .attn-answer").all_text_contents()
        assert answers == [f"{cities[i]}: {number(o, 2)}" for i, o in zip(asks, O, strict=True)]  # fmt: skip
        truths = figure.locator(".attn-notch + text").all_text_contents()
        assert truths == [f"truth: {number(V[i, 0], 2)}" for i in asks]
        labels = figure.locator("text.attn-tone").all_text_contents()
        told = [
            number(a) if a >= 0.02 and works[h] else ""
            for h, row in enumerate(A)
            for a in row
        ]
        assert labels == told
        sentence = said(figure)
        kind = (
            "Training asked nothing"
            if first == second
            else "Training never asked"
            if f"{first}{second}" in W["unseen"]
            else "Training asked this"
        )
        assert sentence.startswith(kind)
        assert f"The answer is {number(O[0], 2)} and {number(O[1], 2)}, " in sentence
        assert [f"head {h} looks" in sentence for h in range(2)] == works
        assert ("No head is at work" in sentence) == (at_work == "none")
        asked.add(kind)
    assert len(asked) == 3


def test_head_viewer_has_what_the_chapter_trains() -> None:
    """Other processors round otherwise and train a little differently, so some slack is given."""
    now, written = head_weights.train(), head_weights.read()
    assert now.keys() == written.keys()
    assert now.pop("unseen") == written.pop("unseen")
    for name in now:
        trained = np.array(now[name]) / head_weights.UNIT
        np.testing.assert_allclose(trained, written[name], atol=0.1, err_msg=name)


def test_encoding_explorer(page: Page, rng: np.random.Generator) -> None:
    figure = page.locator("attn-encoding")
    pair = np.array(figure.evaluate("figure => figure.constructor.pair"))[None]
    for _ in range(STATES):
        slide(figure, "Position of the key", rng.uniform())
        arrows(
            figure.get_by_label("Position of the key"),
            rng,
            "ArrowRight",
            "ArrowLeft",
            "Home",
        )
        x = rng.uniform(0.1, 0.98)
        drag(figure, x, 0.5)
        dropped = state(figure)["step"]
        wide = figure.evaluate("figure => figure.chart.clientWidth")
        assert (
            abs(dropped - np.clip((wide * x - 60) / ((wide - 72) / 64), 0, 64)) <= 0.6
        )
        marker = figure.locator(".attn-handle")
        arrows(marker, rng, "ArrowLeft", "ArrowUp")
        p, k = state(figure)["position"], state(figure)["step"]
        here, there = (an.rotary(pair, np.array([at]))[0] for at in (p, p + k))
        product, shares = here @ there, (here * there).reshape(-1, 2).sum(-1)
        assert (
            figure.locator(".attn-answer").inner_text().endswith(f": {number(product)}")
        )
        assert (
            marker.get_attribute("aria-valuetext")
            == f"distance {k}, product {number(product)}"
        )
        sentence = said(figure)
        assert f"Key at position {p}, query at position {p + k}: " in sentence
        assert f"is {number(product)}" in sentence
        shown = ", ".join(number(share, 2) for share in shares)
        assert f"The pairs add {shown}." in sentence
        settle(page)
        for i, hand in enumerate(figure.locator(".attn-hand-k").all()):
            tip = [float(str(hand.get_attribute(name))) for name in ("x2", "y2")]
            x, y = 34 * there[2 * i : 2 * i + 2]
            np.testing.assert_allclose(tip, [50 + 100 * i + x, 42 - y], atol=1e-9)


def test_moving_both_keeps_the_product(page: Page) -> None:
    """As the theorem says; and query and key alike give the product of two marks."""
    figure = page.locator("attn-encoding")
    press(figure, "Again")
    products = []
    for share in (0.0, 0.3, 1.0):
        slide(figure, "Position of the key", share)
        settle(page)
        products.append(figure.evaluate("figure => figure.product"))
    marks = an.sinusoidal_encoding(6, 8)
    np.testing.assert_allclose(products, marks[0] @ marks[5], atol=1e-12)


def idle_of_time_bar(figure: Locator, context: float) -> float:
    """Seconds of waiting in one layer, from the first steps that the time bar shows."""
    blocks = figure.evaluate("figure => figure.timing.blocks")
    idle = [end - start for start, end in blocks["idle"]]
    steps = len(blocks["work"])
    if not idle or state(figure)["exchange"] == "all-to-all":
        return sum(idle)
    if state(figure)["exchange"] == "ring":
        return idle[0] * (context - 1)
    outer = (
        context / steps
    )  # after the steps of the inner rings it waits for the network
    between = (
        idle[steps - 1 :] if len(idle) == steps else idle * (len(idle) == 1 < steps)
    )
    return outer * (sum(idle) - sum(between)) + (outer - 1) * sum(between)


def time(seconds: float, digits: int = 2) -> str:
    """In the largest unit of which there are two or more, seconds from one on."""
    for unit, size, least in (("days", 86400, 2), ("hours", 3600, 2), ("min", 60, 2), ("s", 1, 1)):  # fmt: skip
        if seconds >= least * size:
            return f"{number(seconds / size, digits)} {unit}"
    return f"{number(1e3 * seconds, digits)} ms"


def test_mesh(page: Page, rng: np.random.Generator) -> None:
    figure, met = page.locator("attn-mesh"), set()
    for trial in range(20):
        exchange = ("ring", "all-to-all", "double ring")[trial % 3]
        choose(figure, "Tokens meet by", exchange)
        slide(figure, "Tokens", rng.uniform())
        slide(figure, "GPUs", rng.uniform(0, 0.6 if trial % 2 else 1))
        slide(figure, "GPUs that share heads", rng.uniform(0, 0.7))
        arrows(figure.get_by_label("GPUs", exact=True), rng, "ArrowLeft", "ArrowRight")
        now = state(figure)
        n, context = 2 ** now["length"], 2 ** (now["gpus"] - now["heads"])
        shown = figure.evaluate(
            "({ labels }) => labels.map(({ ms }) => ms.textContent)"
        )
        whole, step = figure.evaluate(
            "({ end, step }) => [end.textContent, step.textContent]"
        )
        answer = figure.locator(".attn-answer").inner_text()
        try:
            mesh = Mesh(context=int(context), tensor=2 ** now["heads"])
            cost = attention_cost(n, 64, mesh, H100, kv_heads=8, exchange=exchange)
        except ValueError:
            assert answer.startswith("Does not fit: ")
            assert {*shown} == {"–"} and whole == "does not fit" and step == ""
            met.add((exchange, "does not fit"))
            continue
        parts = [cost.project_seconds, cost.attend_seconds, cost.wait_seconds]
        parts += [cost.reduce_seconds]
        assert [*shown, whole] == [time(x) for x in (*parts, cost.seconds)]
        x, widths = stacked_bar(figure)
        np.testing.assert_allclose(widths / widths.sum(), parts / np.sum(parts))
        np.testing.assert_allclose(x, np.cumsum(widths) - widths, atol=1e-9)
        assert np.isclose(idle_of_time_bar(figure, context), cost.wait_seconds)
        assert answer.startswith(
            f"80 layers: {time(80 * cost.seconds)}, {n // context:,.0f} token"
        )
        if exchange != "double ring":
            steps = (context, max(1, context - 1)) if exchange == "ring" else (1, 1)
            told = [cost.attend_seconds / steps[0], cost.traffic_seconds / steps[1]]
            first, *others = step.split(", ", 1)
            assert first == f"a step: {time(told[0], 3)}"
            if context > 1 and exchange == "all-to-all":  # there and back
                swaps = map(float, re.findall(r"[\d.]+", others[0]))
                assert abs(sum(swaps) - 1e3 * told[1]) < 2e-3
            elif context > 1:
                assert others == [f"a message: {time(told[1], 3)}"]
        assert f"{number(100 * cost.wait_seconds / cost.seconds, 0)} percent" in said(figure)  # fmt: skip
        met.add((exchange, "waits" if cost.wait_seconds else "hides"))
    assert met >= {("ring", "waits"), ("ring", "hides"), ("all-to-all", "waits")}
    assert met & {("double ring", "waits"), ("double ring", "hides")}
    assert ("all-to-all", "does not fit") in met


def test_ring(page: Page, rng: np.random.Generator) -> None:
    """Each GPU's pairs as counted from the package's layouts; with zigzag also the seconds of the ledger."""
    figure, met = page.locator("attn-ring"), set()
    places = {"blocks": blocks, "striped": striped, "zigzag": zigzag}
    for trial in range(STATES):
        layout, name = [*places][trial % 3], ("H100", "B200")[trial % 2]
        node = ({"H100": 8, "B200": 72}[name], 1)[trial // 2 % 2]
        choose(figure, "Tokens in", layout)
        choose(figure, "Machines", f"{name} {node}")
        slide(figure, "Tokens", rng.uniform())
        slide(figure, "GPUs", rng.uniform())
        arrows(figure.get_by_label("Tokens", exact=True), rng, "ArrowLeft", "PageUp")
        now = state(figure)
        n, p = 2 ** now["tokens"], 2 ** now["gpus"]
        machine = replace({"H100": H100, "B200": B200}[name], node_gpus=node)
        timing = figure.evaluate("f => f.constructor.timing(f.state)")

        held = np.stack(places[layout](16 * p, p))  # few, and the formula's all
        owners = (np.arange(p)[:, None] - np.arange(p)) % p
        seen = held[:, None, :, None] >= held[owners][:, :, None]
        drawn = figure.evaluate(
            "(f, [layout, p]) => f.constructor.pairs(layout, p, 16)", [layout, p]
        )
        np.testing.assert_array_equal(drawn, seen.sum((2, 3)))

        work = np.array(timing["work"])
        busy, end = work.max(0), timing["end"]
        idle = np.maximum(0, timing["travel"] - busy[:-1]).sum()
        assert np.isclose(end, busy.sum() + idle)
        shares = work.sum() / (p * end), 1 - work.sum() / (p * end) - idle / end
        told = [number(100 * abs(x), 0) for x in (*shares, idle / end)]
        sentence = said(figure)
        assert re.findall(r"(\d+) percent", sentence) == told
        assert f"{p} GPUs with {n // p:,} tokens each" in sentence
        answer = figure.locator(".attn-answer").inner_text()
        assert re.findall(r"(\d+) %", answer) == told
        if layout == "zigzag":
            cost = attention_cost(n, 64, Mesh(context=p), machine, kv_heads=8)
            assert np.isclose(work.sum() / p, cost.attend_seconds, rtol=1e-3)
            assert np.isclose(idle, cost.wait_seconds, rtol=5e-3, atol=1e-7)
        met.add((layout, idle > 0))
    assert len(met) >= 5  # each layout waits for its links or hides them


@pytest.mark.parametrize("wide", [1280, 390])
def test_every_mesh_can_be_drawn(page: Page, wide: int) -> None:
    """Also where few members are in sight, and back from there."""
    figure = page.locator("attn-mesh")
    page.set_viewport_size({"width": wide, "height": 800})
    told = figure.evaluate(
        """figure => {
            const all = ["ring", "double ring", "all-to-all"].flatMap(exchange => attn.range(14 * 7).map(k =>
                ({ exchange, gpus: k % 14, heads: Math.floor(k / 14), length: 17 })));
            return all.map(mesh => {
                Object.assign(figure.state, mesh);
                figure.draw();
                const { near, far } = figure.timing.blocks, pale = figure.machine.matches(".attn-untouched");
                return [mesh, figure.total !== null, figure.play.disabled, pale, near.length, far.length];
            });
        }"""
    )
    for mesh, fits, still, pale, near, far in told:
        assert still == pale == (not fits)
        if (
            mesh["exchange"] == "ring"
            and fits
            and mesh["gpus"] > 3
            and mesh["heads"] < 3
        ):
            assert near and far, mesh  # both within nodes and between them
    press(figure, "Again")
    page.set_viewport_size({"width": 1280, "height": 800})


def stacked_bar(figure: Locator) -> tuple[np.ndarray, np.ndarray]:
    """Starts and widths of a layer's parts."""
    x, width = figure.evaluate(
        "({ bar }) => ['x', 'width'].map(side => bar.map(part => +part.getAttribute(side)))"
    )
    return np.array(x), np.array(width)


def test_what_was_tried_on_these_gpus_stays_in_sight(page: Page) -> None:
    """Heights are as the seconds' logarithms; other GPUs begin anew, and what does not fit is a cross."""
    figure = page.locator("attn-mesh")
    press(figure, "Again", "8,192 on 8", "a million on 1,024")
    figure.evaluate("figure => figure.tries.clear()")
    heads = figure.get_by_label("GPUs that share heads", exact=True)
    for way in ("ring", "double ring"):
        choose(figure, "Tokens meet by", way)
        keys(heads, "Home", *["ArrowRight"] * 4)
    choose(figure, "Tokens meet by", "all-to-all")
    tried = figure.locator(".attn-tried")
    assert tried.locator("circle").count() == 10
    assert tried.locator("path[d*=l]").count() == 1
    drawn = tried.evaluate(
        "x => [...x.querySelectorAll('circle')].map(x => 60 - x.cy.baseVal.value)"
    )
    costs = [
        attention_cost(2**20, 64, Mesh(context=2 ** (10 - h), tensor=2**h), H100, kv_heads=8, exchange=way).seconds
        for way in ("ring", "double ring")
        for h in range(5)
    ]  # fmt: skip
    logs = np.log(np.sort(costs))  # over a factor of 10 at least
    half = max(np.log(10), np.ptp(logs)) / 2
    low = (logs[0] + logs[-1]) / 2 - half
    np.testing.assert_allclose(sorted(drawn), 19 * (logs - low) / half, atol=1e-4)
    slide(figure, "GPUs", 8 / 13)
    settle(page)
    assert tried.locator("circle").count() + tried.locator("path[d*=l]").count() == 1


@pytest.mark.parametrize("way", ["ring", "double ring"])
@pytest.mark.parametrize("share", [1, 2])
def test_a_block_is_handed_on(page: Page, way: str, share: int) -> None:
    """A GPU sends on the block that it computes with: the next one of its ring has it a step later."""
    figure = page.locator("attn-mesh")
    press(figure, "Again", "131,072 on 64, ring")
    choose(figure, "Tokens meet by", way)
    slide(figure, "GPUs that share heads", (share - 1) / 6)
    settle(page)
    held, sent = (
        np.array(x)
        for x in figure.evaluate(
            """figure => {
                const { blocks, span } = figure.timing, seen = blocks.work.slice(0, 3).map(([from]) => {
                    figure.clock = from / span + 1e-6;
                    figure.pass();
                    const fills = all => all.map(({ dot }) => dot.style.fill);
                    const inner = figure.links.filter(({ from }) => from !== null);
                    return [figure.held, inner.sort((a, b) => a.from - b.from)].map(fills);
                });
                return [0, 1].map(i => seen.map(row => row[i]));
            }"""
        )
    )
    held = held[:, ::share]  # those who share heads hold the same
    assert len(set(held[0])) == 8 and held.shape == (3, 32 // share)
    np.testing.assert_array_equal(held, sent)
    size = 8 // share if way == "double ring" else 64 // share
    for before, after in zip(held, held[1:], strict=False):
        for start in range(0, 32 // share, size):
            ring = slice(start, start + size)
            if size <= 8:
                np.testing.assert_array_equal(np.roll(before[ring], 1), after[ring])
            else:
                np.testing.assert_array_equal(before[ring][:-1], after[ring][1:])


def test_gpus_wait_or_compute_as_the_time_bar_says(page: Page) -> None:
    figure = page.locator("attn-mesh")
    press(figure, "Again")
    waits = [
        figure.evaluate(
            """(figure, clock) => {
                figure.clock = clock;
                figure.pass();
                return figure.querySelector(".attn-waits") !== null;
            }""",
            clock,
        )
        for clock in (0.01, 0.1, 0.21, 0.3)  # of five steps, each a sixth of work
    ]
    assert waits == [False, True, False, True]
    assert figure.locator(".attn-gpu").count() == 32
    slide(figure, "GPUs that share heads", 3 / 6)
    settle(page)
    assert figure.locator(".attn-team").count() == 4
    assert figure.evaluate("figure => figure.timing.blocks.idle") == []
    press(figure, "Play")  # to its end, in reduced motion
    assert figure.evaluate("figure => figure.clock") == 1


def test_cache(page: Page, rng: np.random.Generator) -> None:
    figure, met = page.locator("attn-cache"), set()
    models = {
        "GPT-3 175B": (96, 96, 128),
        "Llama 3 70B": (80, 64, 128),
        "PaLM 540B": (118, 48, 256),
        "DeepSeek-V2": (60, 128, 128),
    }
    for trial in range(20):
        model = list(models)[trial // 4 % 4]
        layers, all_heads, width = models[model]
        press(figure, model)
        heads = ("heads", "groups", "one", "latents")[trial % 4]
        bits = ("16", "8", "4")[trial % 3]
        window = ("all", "window")[rng.integers(2)]
        choose(figure, "Keeps", heads)
        choose(figure, "Bits a number", bits)
        choose(figure, "Of", window)
        slide(figure, "Tokens", rng.uniform())
        n = 2 ** state(figure)["length"]
        kept = {"window": 4096, "sinks": 4} if window == "window" else {}
        size = {
            "heads": {"kv_heads": all_heads, "width": width},
            "groups": {"kv_heads": 8, "width": width},
            "latents": {"latent": 512, "width": 64},
            "one": {"kv_heads": 1, "width": width},
        }
        bytes_ = [cache_bytes(n, layers=layers, **kind) for kind in size.values()]
        bytes_.append(cache_bytes(n, layers=layers, bits=int(bits), **size[heads], **kept))  # fmt: skip
        shown = figure.locator(".attn-bytes").all_text_contents()
        units = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
        for text, exact in zip(shown, bytes_, strict=True):
            value, unit = text.split()
            assert 1 <= float(value) < 1024
            assert abs(exact / units[unit] - float(value)) <= 0.00501
        x = 64 + (figure.evaluate("figure => figure.chart.clientWidth") - 264) * np.log2(n / 1024) / 10  # fmt: skip
        places = [x, 232 - 10.5 * np.log2(np.divide(bytes_, 2**22))]
        assert np.allclose(dots(figure), np.stack(np.broadcast_arrays(*places), -1))
        mine = shown[-1]
        assert said(figure).startswith(f"{model} with ")
        assert said(figure).endswith(f"a text of {n:,} tokens takes {mine}.")
        assert f"{all_heads} KV heads (MHA)" in figure.locator("svg").inner_html()
        met.add((window, n > 4100))
    assert met >= {("all", True), ("window", True)}
    holds = str(figure.locator(".attn-reach").get_attribute("d"))
    card = 232 - 10.5 * np.log2(H100.memory_bytes / 2**22)
    assert holds.startswith(f"M64 {card}H")
    assert float(str(figure.locator(".attn-over").get_attribute("height"))) == card - 8


def dots(figure: Locator) -> list[list[float]]:
    """Where the dots of the cache's lines are."""
    places = """dots => dots.map(dot => {
        const { e, f } = dot.getCTM().inverse().multiply(dot.ownerSVGElement.getCTM()).inverse();
        return [e + dot.cx.baseVal.value, f + dot.cy.baseVal.value];
    })"""
    found = figure.locator("circle.attn-tone").evaluate_all(places)
    return [[float(x) for x in place] for place in found]


def test_the_lines_of_the_cache_cross_where_the_task_says(page: Page) -> None:
    """The window's line is above that of the latents at 8,192 tokens and below it at 16,384; it ends flat."""
    figure, apart = page.locator("attn-cache"), {}
    press(figure, "Llama 3 70B")
    choose(figure, "Of", "window")
    for length in (13, 14):
        slide(figure, "Tokens", (length - 10) / 10)
        settle(page)
        _, _, latents, _, mine = dots(figure)
        apart[length] = latents[1] - mine[1]
    assert apart[13] > 5 and apart[14] < -1
    end = figure.evaluate("figure => figure.x(20)")
    assert str(figure.locator("path[style*='width: 5']").get_attribute("d")).endswith(f"H{end}")  # fmt: skip


def test_a_pointer_and_the_arrows_move_along_the_lines_of_the_cache(page: Page) -> None:
    figure = page.locator("attn-cache")
    press(figure, "Again")
    box = figure.locator("svg").bounding_box()
    assert box
    page.mouse.click(box["x"] + figure.evaluate("f => f.x(14)"), box["y"] + 100)
    assert state(figure)["length"] == 14
    keys(figure.locator(".attn-handle"), "ArrowRight", "ArrowUp", "ArrowLeft")
    assert state(figure)["length"] == 15
    assert " 32,768 tokens takes 10.00 GiB" in said(figure)


def test_each_published_model_keeps_what_its_report_says(page: Page) -> None:
    """Bytes a token at 16 bits, counted by hand: layers · 2 · heads of keys and values · width · 2."""
    figure, per_token = page.locator("attn-cache"), {}
    press(figure, "Again")
    for model in ("GPT-3 175B", "Llama 3 70B", "PaLM 540B", "DeepSeek-V2"):
        press(figure, model)
        per_token[model] = figure.evaluate("figure => figure.bytes") / 2**17
    assert per_token == {
        "GPT-3 175B": 96 * 2 * 96 * 128 * 2,
        "Llama 3 70B": 80 * 2 * 8 * 128 * 2,
        "PaLM 540B": 118 * 2 * 1 * 256 * 2,
        "DeepSeek-V2": 60 * (512 + 64) * 2,
    }


# What they have in common


PHONE = {"width": 390, "height": 844}


def test_a_finger_moves_the_query_and_a_tap_too(visit: Visit, sheet: Path) -> None:
    with visit(sheet, has_touch=True, viewport=PHONE) as page:
        move_with_a_finger(page)


def move_with_a_finger(page: Page) -> None:
    figure = page.locator("attn-pooling")
    figure.locator(".attn-plane").scroll_into_view_if_needed()
    plane, handle = (
        figure.locator(".attn-plane").bounding_box(),
        figure.locator(".attn-grip").bounding_box(),
    )
    assert plane and handle
    x, y = place_in_plane(figure, 5, 300)
    page.touchscreen.tap(
        plane["x"] + plane["width"] * x, plane["y"] + plane["height"] * y
    )
    tapped = state(figure)
    assert abs(tapped["weight"] - 5) < 0.05 and abs(tapped["power"] - 300) < 2
    handle = figure.locator(".attn-grip").bounding_box()
    assert handle
    x, y = handle["x"] + handle["width"] / 2, handle["y"] + handle["height"] / 2
    touch = page.context.new_cdp_session(page)
    for kind, dx in (
        ("touchStart", 0),
        ("touchMove", -20),
        ("touchMove", -60),
        ("touchEnd", None),
    ):
        points = [] if dx is None else [{"x": x + dx, "y": y}]
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    moved = state(figure)
    assert abs(tapped["weight"] - moved["weight"] - 60 / figure.evaluate("figure => figure.unit")) < 0.05  # fmt: skip
    honda = figure.locator("circle:has(title:text('Honda Civic'))").bounding_box()
    assert honda and figure.locator(".attn-name").text_content() == ""
    page.touchscreen.tap(honda["x"] + 3, honda["y"] + 3)
    settle(page)
    assert figure.locator(".attn-name").text_content() == "Honda Civic, 30.4 mpg"


@each
def test_one_redraw_a_frame_and_one_sentence_a_rest(page: Page, name: str) -> None:
    figure = page.locator(f"attn-{name}")
    redraws, words = figure.evaluate(
        """async figure => {
            clearTimeout(figure.resting);
            figure.say();
            figure.redraws = figure.spoken = 0;
            new MutationObserver(() => { figure.spoken += 1; }).observe(figure.words, { childList: true });
            const control = figure.querySelector(".attn-controls :is(select:not(.attn-commit *), input)")
                ?? figure.querySelector(".attn-controls button");
            for (let i = 0; i < 50; i++) {
                if (control.type === "button") control.click();
                else if (control.type === "checkbox") control.checked = i % 2 === 0;
                else if (control.options) control.selectedIndex = i % control.options.length;
                else control.value = i;
                control.dispatchEvent(new Event(control.type === "range" ? "input" : "change"));
            }
            await new Promise(requestAnimationFrame); // after the figure's own
            return [figure.redraws, figure.spoken];
        }"""
    )
    assert (redraws, words) == (1, 0)
    page.wait_for_function(
        "figure => figure.words.textContent === figure.sentence",
        arg=figure.element_handle(),
    )
    assert figure.evaluate("figure => figure.spoken") <= 1


@each
def test_the_sentence_is_a_polite_live_region(page: Page, name: str) -> None:
    words = page.locator(f"attn-{name} .attn-words")
    assert words.get_attribute("aria-live") == "polite"
    assert len(words.inner_text()) > 40


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_barrier_for_readers(page: Page, theme: str) -> None:
    page.evaluate("theme => { document.documentElement.dataset.theme = theme; }", theme)
    # Themes differ in nothing but their colours.
    everything = ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"]
    rules = everything if theme == "light" else ["color-contrast"]
    found = Axe().run(page, options={"runOnly": rules, "preload": False}).response
    assert [
        f"{rule['id']}: {node['html']} {node['failureSummary']}"
        for rule in found["violations"]
        for node in rule["nodes"]
    ] == []
    ground = page.locator("attn-mask .attn-live").evaluate(
        "x => getComputedStyle(x).backgroundColor"
    )
    assert ground == {"light": "rgb(255, 255, 255)", "dark": "rgb(27, 31, 36)"}[theme]
    page.evaluate("document.documentElement.dataset.theme = 'light'")


def test_a_phone_has_room_for_all(visit: Visit, sheet: Path) -> None:
    """At the start, and after each preset; what scrolls in a box of its own has room there."""
    with visit(sheet, viewport=PHONE) as page:
        wide = page.locator(".attn-figure").evaluate_all(
            """figures => figures.flatMap(figure => {
                const scrolls = (part) => part !== figure.live
                    && (/auto|scroll/.test(getComputedStyle(part).overflowX) || scrolls(part.parentElement));
                const presets = figure.querySelectorAll(".attn-controls > .attn-buttons button");
                return ["at the start", ...presets].flatMap(preset => {
                    preset.click?.();
                    figure.redraw();
                    figure.say();
                    const edge = figure.live.getBoundingClientRect().right;
                    const all = document.documentElement.scrollWidth;
                    return [...figure.live.querySelectorAll("*")].filter(part =>
                        part.getBoundingClientRect().right > edge && !part.closest("option, [clip-path]")
                        && !scrolls(part)).map(part => part.outerHTML)
                        .concat(all > innerWidth ? [figure.localName + all] : []);
                });
            })"""
        )
        assert wide == []


def test_nothing_in_a_drawing_covers_its_words(page: Page) -> None:
    """The words of an axis stand apart, nothing is drawn over them, and all lies within the drawing."""
    for figure in page.locator("attn-pooling svg, attn-scale svg").all():
        clashes = figure.evaluate(
            """drawing => {
                const whole = drawing.getBoundingClientRect(), box = (part) => part.getBoundingClientRect();
                const words = [...drawing.querySelectorAll("text:not(.attn-name, .attn-empty)")];
                const meet = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
                const under = ".attn-grip, .attn-axis, .attn-spread, clipPath *";
                const drawn = [...drawing.querySelectorAll(`:is(circle, rect):not(${under})`)];
                const beyond = (a) => a.left < whole.left || a.right > whole.right
                    || a.top < whole.top || a.bottom > whole.bottom;
                return [
                    ...words.flatMap((word, i) => [...words.slice(i + 1), ...drawn.filter(part => part.getBBox().width)]
                        .filter(other => meet(box(word), box(other)))
                        .map(other => word.textContent + " meets " + other.outerHTML)),
                    ...[...words, ...drawn].filter(part => beyond(box(part))).map(part => part.outerHTML),
                ];
            }"""
        )
        assert clashes == []


def test_without_scripts_and_in_print_the_still_shows(
    browser: Browser, sheet: Path
) -> None:
    for scripts in (False, True):
        context = browser.new_context(java_script_enabled=scripts)
        page = context.new_page()
        page.goto(sheet.as_uri())
        still, live = page.locator(".still"), page.locator(".attn-live")
        many = len(stills.FIGURES)
        assert [part.is_visible() for part in still.all()] == [not scripts] * many
        assert [part.is_visible() for part in live.all()] == [True] * many * scripts
        page.emulate_media(media="print")
        assert [part.is_visible() for part in still.all()] == [True] * many
        assert [part.is_visible() for part in live.all()] == [False] * many * scripts
        context.close()


def test_the_still_shows_what_the_figure_shows_at_the_start(
    visit: Visit, sheet: Path
) -> None:
    with visit(sheet) as page:
        for name in stills.FIGURES:
            with Image.open(stills.STATIC / f"attn-{name}.png") as picture:
                words = stills.at_its_best(page.locator(f"attn-{name}"))
                assert picture.info[stills.SHOWS] == words


def test_nothing_moves_by_itself_and_little_is_loaded() -> None:
    """Readers who want reduced motion get all there is; what moves is moved by them."""
    scripts = sorted(stills.STATIC.glob("attn-*.js"))
    style = (stills.STATIC / "attn.css").read_text(encoding="utf-8")
    published = {path for path in scripts if path.stem.startswith("attn-published")}
    weighs = {path: path.stat().st_size for path in scripts}
    assert sum(weighs[path] for path in published) < 200_000
    assert sum(weighs[path] for path in weighs.keys() - published) < 1_000_000
    moving = re.compile(r"@media \(prefers-reduced-motion: no-preference\) \{.*?\n\}", re.DOTALL)  # fmt: skip
    assert "transition" in style
    assert not re.search(r"transition|animation|@import|url\(", moving.sub("", style))
    for script in scripts:
        if script.stem.endswith("-data"):  # numbers, any letters may stand in them
            assert weighs[script] < 300_000
            continue
        assert weighs[script] < 16_000
        assert not re.search(
            r"\bimport\b|fetch|http(?!://www.w3.org/2000/svg)",
            script.read_text("utf-8"),
        )


# A task, "again", and links


ANSWER = """figure => {
    const moved = [], { task } = figure, top = () => figure.picture.getBoundingClientRect().top;
    task.tasks.forEach((_, number) => {
        task.begin(number);
        const before = top();
        task.done = true;
        task.next.hidden = false;
        task.say("a word ".repeat(38));
        task.mark();
        if (top() !== before) moved.push([figure.localName, number, top() - before]);
    });
    task.begin(0);
    return moved;
}"""


def test_a_verdict_leaves_the_drawing_where_it_is(page: Page) -> None:
    """As wide as on a phone and as in the book on a screen, with a verdict as long as the longest."""
    for width in (390, 760):
        page.set_viewport_size({"width": width, "height": 900})
        for name in stills.FIGURES:
            assert page.locator(f"attn-{name}").evaluate(ANSWER) == []
    page.set_viewport_size({"width": 1000, "height": 900})


WATCH = """(figure, [part, look, change]) => new Promise(done => {
    const seen = new Set(), begun = performance.now();
    figure.again();
    const frame = () => {
        seen.add(figure.querySelector(part).getAttribute(look));
        performance.now() < begun + 1000 ? requestAnimationFrame(frame) : done(seen.size);
    };
    setTimeout(() => figure.set(change), 400);
    frame();
})"""
GLIDES = {
    "pooling": (".attn-handle", "transform", {"weight": 5}),
    "scale": (".attn-lanes .attn-score", "cx", {"power": 10}),
    "heads": (".attn-stick", "opacity", {"at_work": "both"}),
    "mask": (".attn-query g rect", "width", {"convention": "uniform"}),
    "encoding": (".attn-hand-p", "x2", {"position": 9}),
    "permute": (".attn-weighs", "d", {"order": [2, 1, 0]}),
    "layer": (".attn-ray", "d", {"at": "S20"}),
    "multihead": (".attn-heard", "stroke-width", {"X": [[2, 0, 1]] * 4}),
    "backward": (".attn-column", "d", {"at": "dA00"}),
    "induction": (".attn-curve", "points", {"shown": "2 1.1"}),
    "beam": ("#attn-mouth rect", "width", {"step": 3}),
    "tiles": (".attn-sums .attn-score", "height", {"order": "013"}),
    "bug": ("tbody td", "style", {"probe": "last"}),
}


@pytest.mark.parametrize("name", GLIDES)
def test_what_is_drawn_does_not_jump(page: Page, name: str) -> None:
    figure = page.locator(f"attn-{name}")
    press(figure, "Again")
    page.emulate_media(reduced_motion="no-preference")
    seen = figure.evaluate(WATCH, GLIDES[name])
    page.emulate_media(reduced_motion="reduce")
    assert seen > 2  # more than the two states


def test_a_click_draws_no_frame_of_the_keyboard(page: Page) -> None:
    handle = page.locator("attn-pooling .attn-handle")
    outline = "part => getComputedStyle(part).outlineStyle"
    page.locator("attn-pooling .attn-plane").click(position={"x": 150, "y": 150})
    assert handle.evaluate(outline) == "none"
    page.keyboard.press("ArrowLeft")
    assert handle.evaluate(outline) == "solid"


def test_a_task_asks_for_a_guess_waits_and_says_what_was_seen(page: Page) -> None:
    figure = page.locator("attn-scale")
    figure.get_by_role("button", name="Again").click()
    verdict, width = figure.locator(".attn-verdict"), figure.get_by_label("Width d")

    def visit_both_ends(scale: str) -> list[str]:
        choose(figure, "Scale", scale)
        for power in ("2", "10"):
            width.fill(power)
            settle(page)
        typical = "(f, scale) => [2, 10].map(power => f.typical(scale, power))"
        return [number(x, 2) for x in figure.evaluate(typical, scale)]

    for scale in ("root", "none"):  # nobody has guessed: nothing is judged
        visit_both_ends(scale)
    assert verdict.inner_text() == "Guess first, then try."
    figure.get_by_label("Your guess").get_by_text("d", exact=True).click()
    assert verdict.inner_text() == "Your guess: d. Now try."
    narrow, wide = visit_both_ends("root")
    assert verdict.inner_text() == (
        f"Your guess: d. Now try. divide by √d: {narrow} at width 4, {wide} at 1,024."
    )
    ends = visit_both_ends("none")
    assert verdict.inner_text() == (
        "You guessed “d”; it is “√d”. "
        f"Undivided, the largest weight is {ends[0]} at width 4 and {ends[1]} at 1,024 (medians of 40,000 draws). "
        f"Divided by √d, the largest weight is {narrow} at width 4 and {wide} at 1,024 (medians of 40,000 draws)."
    )
    quiet, loud = (
        figure.locator(part).first.evaluate("part => getComputedStyle(part).color")
        for part in (".attn-words", ".attn-verdict")
    )
    assert loud != quiet  # what was found stands out
    figure.get_by_role("button", name="Again").click()
    settle(page)
    assert verdict.inner_text() == "Guess first, then try."
    assert state(figure) == {"power": 6, "scale": "none", "draw": 1}


@each
def test_a_link_keeps_the_state_and_none_breaks_the_figure(
    page: Page, name: str
) -> None:
    figure = page.locator(f"attn-{name}")
    controls = figure.locator(".attn-controls :is(input, select:not(.attn-commit *))")
    buttons = figure.locator(".attn-controls button")
    control = controls.first if controls.count() else buttons.last
    figure.get_by_role("button", name="Again").click()
    start = state(figure)
    turns = {
        "select-one": "ArrowDown",
        "range": "ArrowRight",
        "checkbox": "Space",
        "button": "Enter",
    }
    hit(control, turns[control.evaluate("control => control.type")])
    if state(figure) == start:  # it stood at its end
        hit(control, "Home")
    changed, link = state(figure), figure.get_by_role("link", name="Link to this state")
    assert changed != start
    key = next(key for key in start if start[key] != changed[key])
    right = link.get_attribute("href")
    wrong = "-1e9", "-_5B", "-_5B_5D", "-nothing", "-_", "", "--toString-1"
    addresses = [x for value in wrong for x in (f"#attn-{name}--{key}{value}", right)]
    reached = follow(figure, addresses)
    assert reached[::2] == [start] * len(wrong)
    assert reached[1::2] == [changed] * len(wrong)


SETTING = [
    x
    for x in (ROOT / "book").rglob("*.[im]*")
    if x.is_file() and b"{state}`" in x.read_bytes()
]


@pytest.mark.parametrize("source", SETTING, ids=lambda path: path.stem)
def test_words_of_the_text_set_the_figure(visit: Visit, source: Path) -> None:
    """Each leads to the state that it names, which the figure itself would write so, and to the figure."""
    seen = "x => x.getBoundingClientRect().bottom > 0 && x.getBoundingClientRect().top < innerHeight"
    with visit(BUILT / source.relative_to(ROOT).with_suffix(".html")) as page:
        page.locator(".toggle:has(.attn-state) .toggle-button").evaluate_all(
            "buttons => buttons.forEach(button => button.click())"
        )
        for link in page.locator("a.attn-state").all():
            address = str(link.get_attribute("href"))
            figure = page.locator(address[1:].partition("--")[0])
            own = figure.get_by_role("link", name="Link to this state")
            for _ in range(2):  # also after the figure was moved on
                figure.get_by_role("button", name="Again").click()
                link.click(timeout=9000)
                expect(own).to_have_attribute(
                    "href", address
                )  # the address of a page changes a moment later
                assert figure.evaluate(seen)


@each
def test_presets_lead_to_states_of_their_own_which_a_link_keeps(
    page: Page, name: str
) -> None:
    """From the start, by mouse and by key, each leads to the same state, no two to one; it alone shows as pressed."""
    figure = page.locator(f"attn-{name}")
    groups = figure.locator(".attn-controls > .attn-buttons")
    assert groups.count() > 0 or name == "tiles"  # its tiles are pressed one by one
    for group in groups.all():
        many = group.get_by_role("button").count()
        assert many > 1
        found = group.evaluate(
            """async group => {
                const figure = group.closest(".attn-figure"), buttons = [...group.querySelectorAll("button")];
                const found = [];
                for (const button of buttons) {
                    figure.again();
                    button.click();
                    await new Promise(drawn => requestAnimationFrame(() => requestAnimationFrame(drawn)));
                    found.push([structuredClone(figure.state), buttons.filter(x => x.ariaPressed === "true")
                        .map(x => buttons.indexOf(x)), figure.querySelector(".attn-foot a").getAttribute("href")]);
                }
                return found;
            }"""
        )
        states, pressed, addresses = map(list, zip(*found, strict=True))
        assert pressed == [[i] for i in range(many)]
        assert all(x not in states[:i] for i, x in enumerate(states))
        assert follow(figure, addresses) == states
        press(figure, "Again")
        hit(group.get_by_role("button").first, "Enter")
        assert state(figure) == states[0]


def test_a_page_opens_in_the_state_of_its_address(visit: Visit, sheet: Path) -> None:
    with visit(sheet) as page:
        page.goto(f"{sheet.as_uri()}#attn-scale--power-9--scale-root")
        page.reload()
        assert state(page.locator("attn-scale")) == {
            "power": 9, "scale": "root", "draw": 1,
        }  # fmt: skip  # one thing


# The tasks of the figures, answered with the keyboard alone


def keys(target: Locator, *names: str) -> None:
    for name in names:
        hit(target, name)
        settle(target.page)


@pytest.mark.parametrize("name", [x for x in stills.FIGURES if x != "puzzle"])
def test_each_figure_asks_something(page: Page, name: str) -> None:
    figure = page.locator(f"attn-{name}")
    press(figure, "Again")
    assert figure.locator(".attn-task p").first.inner_text().startswith("Task")
    assert verdict(figure) == "Guess first, then try."


def test_tasks_of_pooling(page: Page) -> None:
    figure = page.locator("attn-pooling")
    press(figure, "Again", "about 28, as the light cars", "narrow window")
    bandwidth = figure.get_by_label("Bandwidth")
    assert figure.locator("text.attn-answer").text_content() == "33.73"
    hit(bandwidth, *["ArrowRight"] * 20)
    assert verdict(figure).startswith("Your guess: about 28")
    hit(bandwidth, "End")
    assert verdict(figure).startswith(
        "You guessed “about 28, as the light cars”; it is “about 23, near the mean of all”. "
        "The answer is 22.6, the mean of all 20.1 (dashed): every car pulls now, "
        "the nearest with 0.051, the farthest with 0.005; an even share is 0.031."
    )
    press(figure, "Next task")
    question = figure.locator(":focus").inner_text()
    assert question.startswith("Task 2 of 2. With other kernels there are places without")  # fmt: skip
    press(figure, "query far from all keys")
    assert verdict(figure) == ""
    keys(figure.get_by_label("Kernel"), *["ArrowDown"] * 3)
    assert "The boxcar kernel ends, here at bandwidth 0.05" in verdict(figure)
    assert figure.locator("text.attn-answer").text_content() == "0/0"  # nor the others
    keys(figure.get_by_label("Kernel"), *["ArrowUp"] * 3)
    keys(bandwidth, "Home")
    answer = figure.locator("text.attn-answer").text_content()
    assert answer == "18.10"  # the Gaussian has one at every bandwidth


def test_task_of_the_mask(page: Page) -> None:
    figure = page.locator("attn-mask")
    press(figure, "Again", "all 0", "padding & causal")
    keys(figure.get_by_label("Where nothing is permitted"), "ArrowDown")
    assert verdict(figure) == (
        "You guessed “all 0”; it is “equal ones”. Each of its weights is 0.250, "
        "all on forbidden keys, and the row sums to 1.000 like a healthy one."
    )


def test_task_of_the_permuted_tokens(page: Page) -> None:
    figure = page.locator("attn-permute")
    press(figure, "Again")
    hit(figure.get_by_label("Your guess").get_by_text("only keys"), "Enter")
    press(figure, "Next order")
    for moved in ("tokens", "queries", "pairs", "keys"):
        move(figure, moved)
    assert verdict(figure) == (
        "As you guessed. A key that moves without its value lends its weight to the value of another word. "
        "The other three moves change no output."
    )
    found = figure.locator("[data-found]").evaluate_all("all => all.map(x => x.dataset.found)")  # fmt: skip
    assert found == ["=", "=", "=", "≠"]
    press(figure, "Next order")  # what was found without a mask holds in any order
    assert figure.locator("[data-found]").evaluate_all("all => all.map(x => x.dataset.found)") == found  # fmt: skip


def test_the_front_page_asks_before_it_tells(page: Page) -> None:
    figure = page.locator("attn-order")
    press(figure, "Again")
    signs = figure.locator("text:last-child:is(.attn-box ~ text)")
    assert signs.all_text_contents() == [""] * 3
    assert not re.search("same|changed", figure.inner_html())
    press(figure, "MAN BITES DOG")
    assert signs.all_text_contents() == ["= the same, moved", "= the same", "= the same, moved"]  # fmt: skip
    assert verdict(figure) == "Guess first, then try."
    press(figure, "all three")  # what was tried before counts
    assert verdict(figure) == (
        "You guessed “all three”; it is “none”. Each word keeps its output. "
        "Attention by itself does not notice the order of the words."
    )
    press(figure, "Again")
    press(figure, "none")
    figure.get_by_text("key DOG").scroll_into_view_if_needed()
    boxes = [figure.get_by_text(f"key {word}").bounding_box() for word in ("DOG", "MAN")]  # fmt: skip
    for box, act in zip(boxes, (page.mouse.down, page.mouse.up), strict=True):
        assert box
        page.mouse.move(box["x"] + 9, box["y"] + 9, steps=8)
        act()
    assert state(figure)["order"] == [1, 2, 0]
    assert verdict(figure).startswith("As you guessed.")


def test_task_of_the_heads(page: Page) -> None:
    figure = page.locator("attn-heads")
    press(figure, "Again", "both")
    press(figure, "never asked", "head 1")
    assert verdict(figure) == "Your guess: both. Now try."
    press(figure, "head 0", "head 1")  # Quito is too near to 0 to tell
    assert "ask for two that are far from it" in verdict(figure)
    press(figure, "asked in training")
    assert verdict(figure) == (
        "You guessed “both”; it is “that of the first city”. The layer answers 1.38 and 0.00; "
        "the truth is 1.40 and −1.30. The other half is the business of head 1."
    )
    press(figure, "Next task", "alike, within 0.01", "never asked")
    assert state(figure)["at_work"] == "both"
    W, off = head_weights.read(), {False: [], True: []}
    degrees = np.array(state(figure)["temperatures"])
    pairs = [(i, j) for i in range(8) for j in range(8) if i != j]
    for i, j in pairs:
        Q = np.concatenate([np.eye(8)[i], np.eye(8)[j]])[None]
        parts = map(ones_beside, (Q, np.eye(8), degrees[:, None]))
        O = an.multi_head_attention(*parts, *biased(W), W["W_o"], 2)[0] + W["b_o"]
        off[f"{i}{j}" in W["unseen"]].append(np.abs(O - degrees[[i, j]]).max())
    asked, never = off.values()
    assert (number(np.mean(asked)), number(np.mean(never))) == ("0.011", "0.038")
    assert verdict(figure) == (
        "You guessed “alike, within 0.01”; it is “in the one never asked”. "
        "Cairo, then Oslo: off by at most 0.012; Rome, then Quito: by 0.031. "
        "Over all 42 that training asked it is 0.011 in the mean, over the 14 others 0.038."
    )
    press(figure, "Next task", "all others at 2.0", "not at all")
    assert "it is “by less than 0.05”. By at most 0.02" in verdict(figure)
    told = figure.locator(".attn-mark + text").all_text_contents()
    assert told == ["off by 0.010, moved 0.022", "off by 0.020, moved 0.022"]


@pytest.mark.parametrize(
    ("name", "key", "ends"),
    [("encoding", "step", (0, 64)), ("cache", "length", (10, 20))],
)
def test_home_and_end_take_a_handle_to_the_ends(
    page: Page, name: str, key: str, ends: tuple[int, int]
) -> None:
    figure = page.locator(f"attn-{name}")
    press(figure, "Again")
    for button, end in zip(("Home", "End"), ends, strict=True):
        keys(figure.locator(".attn-handle"), button)
        assert state(figure)[key] == end


def test_tasks_of_the_mesh(page: Page) -> None:
    figure = page.locator("attn-mesh")
    press(figure, "Again", "4")
    heads = figure.get_by_label("GPUs that share heads", exact=True)
    keys(heads, *["ArrowRight"] * 3)
    assert verdict(figure) == "Your guess: 4. Now try. 3 of 4 tried."
    keys(heads, "ArrowRight")
    assert verdict(figure).startswith("You guessed “4”; it is “8”. 1: 8.72 s, 2: ")
    assert "4: 2.22 s, 8: 1.49 s, 16: 2.29 s." in verdict(figure)
    press(figure, "Next task", "a ring")
    keys(heads, "Home")
    choose(figure, "Tokens meet by", "all-to-all")
    choose(figure, "Tokens meet by", "double ring")
    assert verdict(figure).startswith("You guessed “a ring”; it is “a double ring”.")
    assert "8.72 s, double ring: 1.72 s, all-to-all: does not fit." in verdict(figure)


def test_tasks_of_the_ring(page: Page) -> None:
    figure = page.locator("attn-ring")
    press(figure, "Again", "still half")
    keys(figure.get_by_label("GPUs", exact=True), *["ArrowRight"] * 2)
    assert verdict(figure).startswith("As you guessed. They compute 52 % of the time:")
    press(figure, "Next task", "8,192")
    tokens = figure.get_by_label("Tokens", exact=True)
    keys(tokens, *["ArrowLeft"] * 3)
    assert verdict(figure) == "Your guess: 8,192. Now try."
    assert "and 0 percent for links" in said(figure)
    keys(tokens, "ArrowLeft")
    assert "and 20 percent for links" in said(figure)
    assert verdict(figure).startswith("You guessed “8,192”; it is “65,536”.")


def test_tasks_of_the_cache(page: Page) -> None:
    figure = page.locator("attn-cache")
    press(figure, "Again", "131,072")
    tokens = figure.get_by_label("Tokens", exact=True)
    choose(figure, "Of", "window")
    assert "So far: at 131,072 tokens the window takes 1.25 GiB" in verdict(figure)
    names = figure.locator("text.attn-name").all_text_contents()
    assert names == ["your choice", "1.25 GiB", "1/256 of MHA", ""]
    keys(tokens, *["ArrowLeft"] * 3)
    assert verdict(figure).startswith("Your guess")
    keys(tokens, "ArrowLeft")
    assert verdict(figure).startswith("You guessed “131,072”; it is “16,384”.")
    assert "At 8,192 tokens the window takes 1.25 GiB and" in verdict(figure)
    settle(page)
    assert figure.get_by_text("14,600 tokens").is_visible()  # where the lines cross


def test_tasks_of_the_encoding(page: Page) -> None:
    figure = page.locator("attn-encoding")
    press(figure, "Again", "it stays")
    keys(figure.get_by_label("Position of the key"), "ArrowRight")
    assert verdict(figure) == "Your guess: it stays. Now try. 2 of 3 positions tried."
    keys(figure.get_by_label("Position of the key"), "ArrowRight")
    assert verdict(figure) == (
        "As you guessed. With the key at 3, 4, 5 and the query 5 further on, the product was "
        "3.160, 3.160, 3.160."
    )
    press(figure, "Next task")
    keys(figure.locator(".attn-handle"), *["ArrowRight"] * 25)
    assert verdict(figure) == f"At distance 30 pair 1 adds {number(np.cos(3.0), 2)}."
    keys(figure.locator(".attn-handle"), "ArrowRight")
    assert verdict(figure).startswith("Done. At distance 31 pair 1 has made half a turn.")  # fmt: skip


# In the book


def placed() -> dict[str, Path]:
    """Each figure with the page that it is on."""
    found = {}
    front = ROOT / "book" / "intro.md"
    texts = [
        (path, cell.source)
        for path in book_pages.notebooks()
        for cell in nbformat.read(path, as_version=4).cells
    ]
    for path, text in [*texts, (front, front.read_text("utf-8"))]:
        for name in re.findall(r"^<attn-(\w+)>$", text, re.MULTILINE):
            assert re.search(
                rf"^<attn-{name}>\n\n!\[.{{80,}}\]\((?:\.\./)?_static/attn-{name}\.png\)\n\n</attn-{name}>$",
                text,
                re.MULTILINE,
            ), (
                f"{path.name}: the still figure, with words for it, stands between the tags"
            )
            assert "?" in text, f"{path.name}: a question that moving it answers"
            found[name] = path
    return found


def test_figure_lives_in_its_chapter(visit: Visit) -> None:
    """The figures are tested on a page of their own; that they move on the book's pages, its tests of all pages see."""
    assert set(placed()) == set(stills.FIGURES)
    name, path = next(iter(placed().items()))
    with visit(BUILT / path.relative_to(ROOT).with_suffix(".html")) as page:
        figure = page.locator(f"attn-{name}")
        assert figure.locator(".attn-live").is_visible()
        assert figure.locator(".attn-still img").count() == 1
        before = figure.locator(".attn-picture").inner_text()
        figure.get_by_role("combobox").first.select_option(index=1)
        settle(page)
        assert figure.locator(".attn-picture").inner_text() != before


def test_a_page_loads_the_scripts_of_its_own_figures(book: Path) -> None:
    where = placed()
    for path in book_pages.notebooks():
        page = book / path.relative_to(ROOT).with_suffix(".html")
        built = page.read_text(encoding="utf-8")
        loaded = re.findall(r"_static/(attn-[\w-]+\.js)", built)
        names = [name for name, chapter in where.items() if chapter == path]
        assert loaded == moving_figures.scripts(*names)
