"""The puzzles of the page: played in a browser with the keys, and held against the package."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from moving import hit, number, press, said, settle, state, verdict
from numpy.typing import NDArray
from playwright.sync_api import Locator, Page

import attn_tutor.numpy as an

pytestmark = pytest.mark.rest

Array = NDArray[np.float64]
Visit = Callable[..., AbstractContextManager[Page]]
NAMES = ["puzzle"]
PHONE = {"width": 390, "height": 844}

# The boards in one row, as a reader would set them; then one that nearly does it
PLAYED: dict[str, tuple[str, str]] = {
    "mean": ("0 0 0 0 1", "0 0 1 0 1"),
    "first": ("0 0 0 -1 9", "0 0 0 -1 3"),  # a lead of 3 is not sharp enough
    "before": (
        "0 0 0 0 1 0 0 0 1 1 0 0 1 1 1 0",
        "1 0 0 0 1 0 0 0 1 1 0 0 1 1 1 0",
    ),
    "like": ("1 0 0 0 1 0 0 0 1 9", "1 0 0 0 1 0 0 0 0 9"),
    "back": ("0 -1 1 0 9", "0 1 -1 0 9"),  # the other way round
    "backwards": ("0 -1 -1 0 9", "0 -1 1 0 9"),  # a turn
    "newest": ("6 0 0 1 9", "5 0 0 1 9"),  # an a five places back draws
    "twice": ("0 -1 1 0 9", "0 -1 -1 0 9"),  # a mirror comes home
    "sort": ("2 0 0 -1 9", "1 0 0 -1 9"),
    "induction": ("1 0 0 0 1 0 0 1 0 9", "1 0 0 1 0 0 0 1 0 9"),
}
# Right for a text that is shown, and for nothing else
TUNED = {
    "mean": ("aaaab", "0 0 9 0 1"),
    "first": ("abcab", "9 0 0 0 1"),
    "before": ("ccab", "0 0 0 0 1 0 0 0 1 0 0 0 1 1 1 0"),
    "backwards": ("acca", "1 0 0 1 9"),
}


@pytest.fixture
def figure(page: Page) -> Locator:
    """The first puzzle, with nothing kept."""
    figure = page.locator("attn-puzzle")
    page.evaluate("localStorage.clear()")
    put(figure, puzzle="mean")
    return figure


def put(figure: Locator, **change: Any) -> None:
    figure.evaluate("(figure, change) => figure.set(change)", change)
    settle(figure.page)


def kept(page: Page, puzzle: str) -> dict[str, Any]:
    text = page.evaluate("key => localStorage.getItem(key)", f"attn-puzzle-{puzzle}")
    return json.loads(text) if text else {}


def play(figure: Locator, numbers: str) -> None:
    """With the keys alone: right goes on, a digit is written, a minus turns its sign, space presses a cell."""
    before = figure.evaluate("figure => figure.flat")
    figure.locator(".attn-board :is(.attn-knob, .attn-cell)").first.focus()
    keys = figure.page.keyboard
    for x, was in zip(map(int, numbers.split()), before, strict=True):
        if figure.evaluate("figure => Boolean(figure.puzzle.boards[0].press)"):
            if x != was:
                keys.press("Space")
        elif x != was:
            keys.press(str(abs(x)))
            if x < 0:
                keys.press("-")
        keys.press("ArrowRight")
    settle(figure.page)


# The package's layers, from the same boards


def one_hot(xs: list[int], n: int) -> Array:
    return np.eye(n)[xs]


def layers(puzzle: str, text: str, flat: list[int]) -> list[tuple[Array, Array]]:
    """Weights and outputs of each layer, by attn_tutor.numpy."""
    digits = text[1::2] if text[1].isdigit() else ""
    word = text[::2] if digits else text
    n, letters = len(word), ["abcd".index(x) for x in word]
    T, P = one_hot(letters, 4 if puzzle in ("sort", "after") else 3), np.eye(n)
    p = np.arange(n)[:, None].astype(float)
    C = np.array([[1, 0], [0, 1], [-1, 0], [0, -1.0]])
    D = np.array([[float(x)] for x in digits])
    b, sharp, causal = np.array(flat, float), float(flat[-1]), an.causal_mask(n)
    every, ones = np.ones((n, n), bool), np.ones((n, 1))

    def layer(Q: Array, K: Array, V: Array, mask: Any) -> tuple[Array, Array]:
        weights = an.attention_weights(Q, K, mask, scale=sharp)
        return weights, an.attention(Q, K, V, mask, scale=sharp)

    if puzzle in ("mean", "first", "newest"):
        V = D if puzzle == "newest" else T
        return [layer(ones, np.hstack([T, p]) @ b[:4, None], V, causal)]
    if puzzle == "before":
        sharp = 1.0
        return [layer(ones, 0 * ones, T, b.reshape(n, n) > 0)]
    if puzzle == "like":
        return [layer(T @ b[:9].reshape(3, 3), T, D, every)]
    if puzzle in ("back", "backwards", "twice"):
        W_q, mask = b[:4].reshape(2, 2), causal if puzzle == "back" else every
        made = [layer(C @ W_q, C, T, mask)]
        return [*made, layer(C @ W_q, C, made[0][1], mask)] if puzzle == "twice" else made  # fmt: skip
    if puzzle == "sort":
        r = np.array(letters, float)[:, None]
        Q = np.hstack([p, ones]) @ b[:4].reshape(2, 2)
        return [layer(Q, np.hstack([r, r**2]), T, every)]
    if puzzle == "after":
        return [layer(ones, np.hstack([T, P]) @ b[:9, None], T, causal)]
    far = np.clip(np.arange(n)[:, None] - np.arange(n), 1, 3)
    first = layer(b[far - 1], P, T, np.tri(n, k=-1) > 0)
    F, M, hand = first[1], b[3:7].reshape(2, 2), b[7:9]
    Q = np.hstack([M[0, 0] * T + M[1, 0] * F, M[0, 1] * T + M[1, 1] * F])
    return [first, layer(Q, np.hstack([T, F]), hand[0] * T + hand[1] * F, causal)]


def must(puzzle: str, text: str) -> list[Any]:
    """What each token must write, in words of Python."""
    digits = [float(x) for x in text if x.isdigit()]
    word = [x for x in text if x.isalpha()]
    a = "abcd" if puzzle in ("sort", "after") else "abc"
    T, n = one_hot([a.index(x) for x in word], len(a)), len(word)
    if puzzle == "newest":
        last = [[j for j in range(i + 1) if word[j] == "a"][-1:] for i in range(n)]
        return [[digits[(at or [i])[0]]] for i, at in enumerate(last)]
    if puzzle == "like":
        return [[np.mean([d for d, y in zip(digits, word, strict=True) if y == x])] for x in word]  # fmt: skip
    if puzzle == "induction":
        after = [[T[j + 1] for j in range(i) if word[j] == word[i]] for i in range(n)]
        return [np.mean(rows, 0) if rows else None for rows in after]
    if puzzle == "after":
        return [None] * 4 + [T[word.index("a") + 1]]
    return {
        "mean": [T[: i + 1].mean(0) for i in range(n)],
        "first": [T[0]] * n,
        "before": [T[:i].mean(0) if i else np.zeros(3) for i in range(n)],
        "back": [T[max(0, i - 1)] for i in range(n)],
        "backwards": list(T[::-1]),
        "twice": [T[i - 2] for i in range(n)],
        "sort": list(np.eye(4)),
    }[puzzle]


PUZZLES = [*PLAYED, "after"]


def test_the_layers_and_what_is_asked_are_the_packages(figure: Locator) -> None:
    rng = np.random.default_rng(3)
    assert figure.evaluate("figure => figure.all").sort() == PUZZLES.sort()
    for puzzle in PUZZLES:
        put(figure, puzzle=puzzle)
        limits = figure.evaluate("figure => figure.limits")
        flat = [int(rng.integers(max(a, -2), min(b, 2) + 1)) for a, b in limits]
        put(figure, numbers=" ".join(map(str, flat)))
        found = figure.evaluate(
            """figure => [...figure.texts, ...figure.hidden].map(text =>
                [text, figure.run(text), figure.puzzle.wants(figure.tokens(text))])"""
        )
        assert len(found) == 11
        assert len({text for text, *_ in found}) == 11, f"{puzzle}: a text comes twice"
        for text, (maps, outs, _), wants in found:
            expected = layers(puzzle, text, flat)
            for (A, O), made, out in zip(expected, maps, outs, strict=True):
                np.testing.assert_allclose(made, A, atol=1e-12)
                np.testing.assert_allclose(out, O, atol=1e-12)
            for asked, right in zip(wants, must(puzzle, text), strict=True):
                assert (asked is None) == (right is None)
                if right is not None:
                    np.testing.assert_allclose(asked, right, atol=1e-12)
        # And what is painted is what was computed.
        A, painted = np.array(found[0][1][0][0]), figure.locator("svg[role=img] text")
        shown = [number(w, 2)[1:] if w < 0.995 else "1" for w in A.ravel() if w >= 0.005]  # fmt: skip
        texts = painted.all_text_contents()
        assert all(x in texts for x in shown)


@pytest.mark.parametrize("puzzle", PLAYED)
def test_it_is_solved_by_keys_and_not_by_a_near_miss(
    figure: Locator, puzzle: str
) -> None:
    page, (solution, near_miss) = figure.page, PLAYED[puzzle]
    press(figure, figure.evaluate("(f, key) => attn.puzzles[key].name", puzzle))
    assert state(figure) == {"puzzle": puzzle, "word": 0, "numbers": ""}
    assert not figure.evaluate("f => f.texts.concat(f.hidden).every(t => !f.judge(t).includes(false))")  # fmt: skip
    play(figure, near_miss)
    assert figure.locator(".attn-done").count() == 0
    assert "solved" not in kept(page, puzzle)
    play(figure, solution)
    assert state(figure)["numbers"] == solution
    assert verdict(figure).startswith("Solved. ")
    assert "8 of 8 hidden texts" in said(figure)
    assert "Solved so far: 1 of 11" in said(figure)
    assert figure.locator(".attn-right").count() == 1
    assert kept(page, puzzle) == {"numbers": solution, "solved": True}
    put(figure, numbers=near_miss)  # it stays solved, and one may play on
    assert figure.locator(".attn-right").count() == 1
    assert not verdict(figure).startswith("Solved")


@pytest.mark.parametrize("puzzle", TUNED)
def test_what_suits_a_text_that_is_shown_does_not_suit_the_hidden(
    figure: Locator, puzzle: str
) -> None:
    text, numbers = TUNED[puzzle]
    put(figure, puzzle=puzzle)
    word = figure.evaluate("(figure, text) => figure.texts.indexOf(text)", text)
    put(figure, word=word)
    play(figure, numbers)
    assert figure.evaluate("(f, text) => f.judge(text).every(Boolean)", text)
    assert verdict(figure).startswith("This text is right. Try the others.")
    passed = figure.evaluate(
        "f => f.hidden.filter(t => !f.judge(t).includes(false)).length"
    )
    assert passed < 4 and "solved" not in kept(figure.page, puzzle)


# What cannot be done


def claim(figure: Locator, reason: str) -> str:
    put(figure)
    figure.locator("summary").evaluate("x => { x.parentElement.open = true; }")
    figure.get_by_label("It cannot be done, because").select_option(reason)
    press(figure, "Claim it")
    return verdict(figure)


def test_no_setting_serves_all_texts_after_an_a(figure: Locator) -> None:
    """No board does it, nor one head of any width: places 1 and 3 hold the same letters in two pairs that disagree."""
    put(figure, puzzle="after")
    texts = figure.evaluate("f => f.texts.concat(f.hidden)")
    quarrel = {"abcda": "b", "adcba": "d", "cbada": "d", "cdaba": "b"}
    assert quarrel.keys() <= set(texts)
    rng, best = np.random.default_rng(1), 0
    for _ in range(400):
        flat = [*map(int, rng.integers(-9, 10, 9)), int(rng.integers(1, 10))]
        right = 0
        for text, letter in quarrel.items():
            o = layers("after", text, flat)[0][1][-1]
            right += "bd"[int(o[3] > o[1])] == letter
        best = max(best, right)
    assert 0 < best < 4


def test_impossible_is_right_once_and_for_its_reason(figure: Locator) -> None:
    page = figure.page
    for puzzle in PLAYED:
        put(figure, puzzle=puzzle)
        assert claim(figure, "own").startswith("That does not forbid it here.")
        assert "solved" not in kept(page, puzzle)
    put(figure, puzzle="after")
    assert claim(figure, "") == "Choose the reason, too."
    assert claim(figure, "zero").endswith("Wrong claims so far: 1.")
    assert claim(figure, "own").startswith("Change a number")
    hit(figure.locator(".attn-knob").first, "ArrowUp")
    assert claim(figure, "own").startswith("Right, it cannot be done. In abcda")
    assert kept(page, "after")["solved"]
    press(figure, "Next puzzle")
    assert state(figure)["puzzle"] == "mean"
    assert figure.locator(":focus").inner_text().startswith("Puzzle 1 of 11.")
    hit(figure.locator('button:text-is("After a")'), "Enter")
    assert verdict(figure).startswith("Right, it cannot be done.")


# The reader's own work


def test_what_is_set_lasts_and_is_never_overwritten_unasked(
    figure: Locator, sheet: Path
) -> None:
    page = figure.page
    play(figure, "4 0 0 -2 3")
    put(figure, puzzle="first")
    put(figure, puzzle="mean")
    assert state(figure)["numbers"] == "4 0 0 -2 3"
    page.reload()
    assert state(figure)["numbers"] == "4 0 0 -2 3"
    link = "#attn-puzzle--numbers-1_200_200_200_202"
    for away in (
        lambda: press(figure, "Again"),
        lambda: page.evaluate("link => { location.hash = link; }", link),
    ):
        away()
        page.wait_for_function(
            "document.querySelector('attn-puzzle').state.numbers !== '4 0 0 -2 3'"
        )
        hit(figure.locator(".attn-knob").first, "ArrowUp")
        settle(page)
        assert kept(page, "mean")["numbers"] == "4 0 0 -2 3"
        assert figure.get_by_text("Your own numbers are kept.").is_visible()
        press(figure, "Back to mine")
        assert state(figure)["numbers"] == "4 0 0 -2 3"
        assert not figure.get_by_text("Your own numbers are kept.").is_visible()
    press(figure, "Again", "Keep these")
    assert kept(page, "mean")["numbers"] == ""
    page.evaluate("location.hash = '#top'")


def test_a_link_with_the_solution_solves_nothing(figure: Locator) -> None:
    put(figure, puzzle="mean", numbers=PLAYED["mean"][0])
    assert "8 of 8 hidden texts" in said(figure)
    assert kept(figure.page, "mean") == {}


def test_hints_come_in_steps_and_then_a_text_that_fails(figure: Locator) -> None:
    hidden = figure.evaluate("figure => figure.hidden")
    for step in (1, 2, 3):
        press(figure, "Hint")
        assert verdict(figure).startswith(f"Hint {step} of 3: ")
    press(figure, "Hint")
    assert verdict(figure) == f"{hidden[0]} was hidden, and fails."
    assert figure.get_by_text(f"Text: {hidden[0]}").is_visible()
    assert len(figure.evaluate("figure => figure.hidden")) == 8
    assert hidden[0] not in figure.evaluate("figure => figure.hidden")


# By mouse and finger, on a phone, in motion


def test_a_number_is_dragged_and_stepped(figure: Locator) -> None:
    knob, mouse = figure.locator(".attn-knob").nth(1), figure.page.mouse
    box = knob.bounding_box()
    assert box
    mouse.move(box["x"] + 10, box["y"] + 10)
    mouse.down()
    mouse.move(box["x"] + 10, box["y"] - 26, steps=3)
    mouse.up()
    assert state(figure)["numbers"] == "2 3 -1 1 1"
    press(figure, "Lower W_k, b")
    mouse.move(box["x"] + 60, box["y"] + 90)  # the button is up: it stays
    assert state(figure)["numbers"] == "2 2 -1 1 1"
    hit(knob, "9", "ArrowUp")
    assert state(figure)["numbers"] == "2 9 -1 1 1"
    hit(knob, "-", "ArrowDown")
    assert state(figure)["numbers"] == "2 -9 -1 1 1"
    hit(knob, "-", "3")
    assert state(figure)["numbers"] == "2 -3 -1 1 1"


def test_weights_glide_where_motion_is_welcome(visit: Visit, sheet: Path) -> None:
    """By a clock of the test's own: half way after half of the time, and then there."""
    with visit(sheet, reduced_motion="no-preference") as page:
        seen = page.locator("attn-puzzle").evaluate(
            """async figure => {
                let time = 0, seen = [];
                const paint = figure.maps.paint, frame = () => new Promise(requestAnimationFrame);
                performance.now = () => time;
                figure.maps.paint = (weights, outs) => { seen.push(weights[0][4][0]); paint(weights, outs); };
                const start = figure.run(figure.text)[0][0][4][0];
                figure.edit(3, -9);
                for (time of [0, 250, 500]) for (const _ of "ab") await frame();
                return [start, figure.run(figure.text)[0][0][4][0], seen];
            }"""
        )
        start, end, painted = seen
        assert start != end and painted[-1] == end
        half_way = [start, (start + end) / 2, end]
        assert list(dict.fromkeys(painted)) == pytest.approx(half_way)


ROOM = """figure => {
    const parts = (kinds) => [...figure.live.querySelectorAll(kinds)].filter(part => part.checkVisibility());
    const box = (part) => part.getBoundingClientRect(), edge = box(figure.live).right;
    const small = parts("button, select, summary, .attn-knob, input")
        .filter(part => Math.min(box(part).width, box(part).height) < 24);
    const scale = (drawing) => (drawing ? box(drawing).width / drawing.viewBox.baseVal.width : 1);
    const tiny = parts("text, p, td, th, span, summary, button").filter(part => part.textContent
        && parseFloat(getComputedStyle(part).fontSize) * scale(part.closest("svg")) < 9);
    const wide = parts("*").filter(part => box(part).right > edge && !part.closest("option"));
    return [...small, ...tiny, ...wide].map(part => part.outerHTML);
}"""


def test_a_finger_plays_on_a_phone_with_room_for_it(visit: Visit, sheet: Path) -> None:
    with visit(sheet, has_touch=True, viewport=PHONE) as page:
        figure = page.locator("attn-puzzle")
        figure.evaluate("figure => { figure.claims.open = true; }")
        for puzzle in PUZZLES:
            put(figure, puzzle=puzzle)
            press(figure, "Hint")
            figure.locator("summary").tap()
            assert figure.evaluate(ROOM) == [], puzzle
        put(figure, puzzle="before")
        for cell in (0, 5, 10, 15):  # the diagonal
            figure.locator(".attn-cell").nth(cell).tap()
        assert verdict(figure).startswith("Solved. ")
        put(figure, puzzle="first")
        figure.locator(".attn-knob").nth(3).tap()
        figure.get_by_role("button", name="Lower W_k, place").tap()
        figure.locator(".attn-knob").nth(4).tap()
        for _ in range(8):
            figure.get_by_role("button", name="Raise Sharpness, times").tap()
        assert verdict(figure).startswith("Solved. ")


def test_each_puzzle_fits_a_screen(visit: Visit, book: Path) -> None:
    with visit(book / "book" / "puzzles.html", viewport={"width": 1280, "height": 800}) as page:  # fmt: skip
        figure = page.locator("attn-puzzle")
        head = page.locator(".bd-header-article, .header-article").first.bounding_box()
        assert head
        for puzzle in PUZZLES:
            put(figure, puzzle=puzzle)
            if puzzle in PLAYED:  # with the most words below the question
                figure.evaluate("f => { f.touched = true; }")
                put(figure, numbers=PLAYED[puzzle][0])
            box = figure.locator(".attn-live").bounding_box()
            assert box and box["height"] < 800 - head["height"], puzzle


@pytest.mark.parametrize(
    ("theme", "puzzles"),
    [("light", "before twice sort"), ("dark", "like induction")],
)
def test_no_barrier_in_any_kind(page: Page, theme: str, puzzles: str) -> None:
    figure = page.locator("attn-puzzle")
    page.evaluate("theme => { document.documentElement.dataset.theme = theme; }", theme)
    everything = ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"]
    for puzzle in puzzles.split():
        put(figure, puzzle=puzzle)
        rules = everything if theme == "light" else ["color-contrast"]
        found = Axe().run(page, options={"runOnly": rules, "preload": False}).response
        assert [
            f"{puzzle}, {rule['id']}: {node['html']}"
            for rule in found["violations"]
            for node in rule["nodes"]
        ] == []
    page.evaluate("document.documentElement.dataset.theme = 'light'")
