"""The drawings of the data flow, in a browser: touched and changed by keys, their numbers are the package's."""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import numpy as np
import pytest
from moving import hit, number, press, said, settle, state, tick, verdict
from playwright.sync_api import Locator, Page

import attn_tutor.numpy as an

pytestmark = pytest.mark.rest

NAMES = ("layer", "multihead", "backward")
WORDS = ["WEATHER", "IS", "LOVELY", "TODAY"]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(18)


def short(x: float) -> str:
    if not np.isfinite(x):
        return "NaN" if np.isnan(x) else "−∞"
    whole = x == 0 or (abs(x) > 0.5 and abs(x - round(x)) < 1e-9)
    step = Decimal(1 if whole or abs(x) >= 100 else "0.1" if abs(x) >= 10 else "0.01")
    text = str(Decimal(abs(x)).quantize(step, ROUND_HALF_UP))  # as toFixed rounds 10.5
    return ("−" if x < 0 and float(text) else "") + text


def change(figure: Locator, rng: np.random.Generator, *inputs: str) -> None:
    """Walk to a number of an input, and press + and − there."""
    places = figure.locator(f'.attn-number[aria-label^="{rng.choice(inputs)}, "]')
    places.nth(rng.integers(min(9, places.count()))).focus()
    press_key = figure.page.keyboard.press
    press_key(rng.choice(["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"]))
    for key in rng.choice(["+", "-"], size=rng.integers(1, 4)):
        press_key(key)


def show_all(figure: Locator) -> None:
    hit(figure.locator("input[type=range]"), "End")
    settle(figure.page)


def numbers(figure: Locator) -> dict[str, np.ndarray]:
    """As computed for the last redraw."""
    values = figure.evaluate("figure => figure.values")
    return {name: np.array(rows, dtype=float) for name, rows in values.items()}


def shown(figure: Locator) -> dict[str, list[str]]:
    """The numbers as they stand in the drawing, by the name that a screen reader says."""
    pairs = figure.locator(".attn-number").evaluate_all(
        "cells => cells.map(cell => [cell.ariaLabel.split(',')[0], cell.textContent])"
    )
    found: dict[str, list[str]] = {}
    for name, text in pairs:
        found.setdefault(name, []).append(text)
    return found


def check(figure: Locator, expected: dict[str, np.ndarray]) -> None:
    found, texts = numbers(figure), shown(figure)
    for name, matrix in expected.items():
        np.testing.assert_allclose(
            found[name], matrix, rtol=1e-12, atol=1e-12, err_msg=name
        )
        assert texts[name] == [short(x) for x in found[name].flat], name


def test_bars_are_as_long_as_their_numbers_and_rays_as_thick_as_their_shares(
    page: Page,
) -> None:
    figure = page.locator("attn-layer")
    press(figure, "Again")
    ends = figure.locator('.attn-number[aria-label^="V, "] .attn-amount').evaluate_all(
        "bars => bars.map(bar => +bar.getAttribute('d').match(/H(.*?)V/)[1] - 12)"
    )
    V = numbers(figure)["V"].ravel()
    np.testing.assert_allclose(ends, V / np.abs(V).max() * 12)
    touch(figure, "O", 2, 1)
    thick = figure.locator(".attn-ray").evaluate_all(
        "rays => rays.map(ray => +ray.getAttribute('stroke-width')).filter(x => x)"
    )
    terms = numbers(figure)["A"][2] * numbers(figure)["V"][:, 1]
    shares = np.abs(terms[terms != 0]) / np.abs(terms).sum()
    np.testing.assert_allclose(thick, 18 * np.repeat(shares, 2))


@pytest.mark.parametrize("name", ["layer", "multihead", "backward"])
def test_what_is_printed_comes_out(page: Page, name: str) -> None:
    """A reader who multiplies and adds what stands there gets what stands behind the last =."""
    figure = page.locator(f"attn-{name}")
    press(figure, "Again")
    sentences = figure.evaluate(
        """figure => {
            figure.state.stage = figure.constructor.stages.length - 1;
            return [...figure.cells.keys()].map(at => { figure.state.at = at; return figure.draw(); });
        }"""
    )
    sums = 0
    for sentence in sentences:
        _, *sides = sentence.partition(". ")[0].rstrip(".").split(" = ")
        if len(sides) < 2:
            continue  # an input, or a key that the mask hides
        formula, x = sides[-2:]
        formula = formula.replace("−", "-").replace("·", "*").replace("/ √", "/ root")
        formula = re.sub(
            r"exp (\(.*?\)|[\d.]+)", r"exp(\1)", formula.replace("ln 2", "ln2")
        )
        value = eval(
            formula, {"exp": np.exp, "ln2": np.log(2), "root2": 2**0.5, "root3": 3**0.5}
        )  # noqa: S307 — of the figure's own words
        digits = len(x.partition(".")[2])
        assert number(value, digits) == x, sentence
        sums += 1
    assert sums > 40


def test_both_heads_take_their_columns_from_all_three_matrices(page: Page) -> None:
    paths = page.locator("attn-multihead").evaluate(
        "f => f.arrows.filter(([to]) => to[0] === 'Q').map(([, arrow]) => arrow.getAttribute('d'))"
    )
    for head, path in enumerate(paths):
        *stubs, last, down = path[1:].split("M")
        starts = [int(stub.split()[0]) for stub in (*stubs, last)]
        assert starts == [left + 24 + 48 * head for left in (206, 322, 438)]
        bus, end = int(last.split("H")[1]), int(down.split()[0])
        assert bus == starts[0] <= end <= starts[-1]  # all hang on it


def test_a_mouse_that_drags_an_input_changes_it(page: Page) -> None:
    figure = page.locator("attn-layer")
    press(figure, "Again")
    cell = figure.locator('.attn-number[aria-label^="X, IS, column 1"]')
    cell.scroll_into_view_if_needed()
    box = cell.bounding_box()
    assert box
    mouse = page.mouse
    mouse.move(box["x"] + 12, box["y"] + 12)
    mouse.down()
    mouse.move(box["x"] + 12, box["y"] - 14, steps=4)
    mouse.up()
    assert state(figure)["X"] == [[2, 0, 0], [1, 3, 0], [0, 2, 0], [0, 0, 2]]


def test_layer(page: Page, rng: np.random.Generator) -> None:
    figure, moved = page.locator("attn-layer"), 0
    press(figure, "Again")
    first = start(figure)
    for trial in range(20):
        change(figure, rng, "X", "W_q", "W_k", "W_v")
        causal = bool(trial % 2)
        tick(figure, "causal mask", causal)
        now = {k: np.array(v) for k, v in state(figure).items() if k[0] in "XW"}
        moved += any((now[k] != first[k]).any() for k in now)
        Q, K, V = (now["X"] @ now[f"W_{c}"] for c in "qkv")
        S = an.scaled_dot_score(Q, K)
        check(figure, {
            "Q": Q, "K": K, "V": V,
            "S": np.where(np.tri(4), S, -np.inf) if causal else S,
            "A": an.attention_weights(Q, K, causal=causal),
            "O": an.self_attention(*now.values(), causal=causal),
        })  # fmt: skip  # one thing
        threads = figure.locator(".attn-heard").evaluate_all(
            "all => all.map(thread => +thread.getAttribute('stroke-width'))"
        )
        A = an.attention_weights(Q, K, causal=causal)
        np.testing.assert_allclose(threads, 28 * A.ravel(), atol=1e-12)
    assert moved > 15
    changed = figure.locator(".attn-number.attn-new text").first
    assert changed.evaluate("text => getComputedStyle(text).stroke") == "none"


def test_two_heads(page: Page, rng: np.random.Generator) -> None:
    figure = page.locator("attn-multihead")
    press(figure, "Again")
    inputs = ("X", "W_q", "W_k", "W_v", "W_o")
    given = {name: state(figure)[name] for name in inputs}
    X, *W = map(np.array, given.values())
    before = an.multi_head_attention(X, X, X, *W, 2)
    for _ in range(20):
        change(figure, rng, *inputs)
        now = state(figure)
        X, *W = (np.array(now[name]) for name in ("X", "W_q", "W_k", "W_v", "W_o"))
        A = an.multi_head_weights(X, X, *W[:2], 2)
        (Q0, Q1), (K0, K1), V = (np.split(X @ w, 2, axis=1) for w in W[:3])
        check(figure, {
            "Q⁰": Q0, "Q¹": Q1, "K⁰": K0, "K¹": K1, "V⁰": V[0], "V¹": V[1],
            "A⁰": A[0], "A¹": A[1], "O⁰": A[0] @ V[0], "O¹": A[1] @ V[1],
            "O": an.multi_head_attention(X, X, X, *W, 2),
        })  # fmt: skip  # one thing
        O = an.multi_head_attention(X, X, X, *W, 2)
        apart = [WORDS[i] for i in np.flatnonzero(abs(O - before).max(-1) > 1e-9)]
        if any(not np.array_equal(now[name], given[name]) for name in given):
            told = (
                f"O changed for {', '.join(apart)}." if apart else "O changed nowhere."
            )
        else:
            told = f"in head 0 at {WORDS[A[0, 2].argmax()]}, "
        assert told in said(figure)
        # What is seen: threads as thick as weights, and in O the part of head 1 from the part of head 0 on.
        threads = figure.locator(".attn-heard").evaluate_all(
            "all => all.slice(0, 32).map(thread => +thread.getAttribute('stroke-width'))"
        )
        np.testing.assert_allclose(threads, 28 * A.ravel(), atol=1e-12)
        bars = figure.locator('.attn-number[aria-label^="O, "]').evaluate_all(
            """cells => cells.map(cell => [...cell.querySelectorAll(".attn-amount")].slice(-2)
                .map(bar => bar.getAttribute("d").match(/M(.*?) .*?H(.*?)V/).slice(1).map(Number)))"""
        )
        lengths = np.diff(bars)[..., 0]
        adds = [A[h] @ V[h] @ W[3][2 * h : 2 * h + 2] for h in (0, 1)]
        parts = np.stack([part.ravel() for part in adds], axis=1)
        shown_as = np.abs(lengths).sum() / np.abs(parts).sum()
        np.testing.assert_allclose(lengths, shown_as * parts, atol=1e-9)


def start(figure: Locator) -> dict[str, np.ndarray]:
    values: dict[str, Any] = figure.evaluate("figure => figure.constructor.start")
    return {k: np.array(v) for k, v in values.items() if isinstance(v, list)}


def test_backward(page: Page, rng: np.random.Generator) -> None:
    figure = page.locator("attn-backward")
    cases = figure.evaluate("figure => figure.constructor.cases")
    press(figure, "Again")
    show_all(figure)
    X, scale = np.array([[1, 0], [1, 1], [0, 1]]), 0.5
    for trial in range(20):
        case = [*cases][trial % 3]
        figure.get_by_role("button", name=case, exact=True).click()
        change(figure, rng, "Q", "K", "V", *["dO"] * (trial % 2))
        now = state(figure)
        Q, K, V, g = (np.array(now[name], float) for name in ("Q", "K", "V", "dO"))
        K = np.log(2) * K  # the figure shows it without the factor
        A, O = an.attention_weights(Q, K), an.attention(Q, K, V)
        dQ, dK, dV = an.attention_vjp(Q, K, V, g)
        dW = [X.T @ x for x in (dQ, dK, dV)]
        check(figure, {
            "S": scale * Q @ K.T, "A": A, "O": O, "dA": g @ V.T, "dS": an.softmax_vjp(A, g @ V.T),
            "dQ": dQ, "dK": dK, "dV": dV, "dW_q": dW[0], "dW_k": dW[1], "dW_v": dW[2],
        })  # fmt: skip  # one thing
        np.testing.assert_allclose(numbers(figure)["r"][:, 0], (g * O).sum(-1), atol=1e-12)  # fmt: skip
        # The row touched last, as columns: their areas between end and mean are to each other as the row of dS.
        row, drawn = figure.evaluate("""figure => [figure.row, figure.columns.map(
            ({ area }) => area.getAttribute("d").match(/M(.*?) (.*?)V(.*?)H(.*?)V/).slice(1).map(Number))]""")
        left, mean, end, right = np.array(drawn).T
        areas, dS = (right - left) * (mean - end), an.softmax_vjp(A, g @ V.T)[row]
        np.testing.assert_allclose(areas * np.abs(dS).max(), dS * np.abs(areas).max(), atol=1e-6)  # fmt: skip
        zeros = sum(int((np.abs(x) < 1e-9).sum()) for x in dW)
        assert f"Of the twenty learnt numbers {zeros} have the gradient 0." in said(figure)  # fmt: skip


def test_the_backward_figure_starts_from_the_page(page: Page) -> None:
    figure = page.locator("attn-backward")
    press(figure, "Again")
    X, W_q = np.array([[1, 0], [1, 1], [0, 1]]), [[0, 1, 1, 0], [1, 0, 0, 1]]
    first = start(figure)
    np.testing.assert_array_equal(first["Q"], X @ W_q)
    np.testing.assert_array_equal(first["K"], X @ [[1, 1, -1, 1], [-2, 1, 3, 0]])
    np.testing.assert_array_equal(first["V"], X @ [[0, 7], [7, 7]])
    np.testing.assert_allclose(numbers(figure)["O"][2], [3, 9])


def test_a_line_is_revealed_only_when_it_is_reached(page: Page) -> None:
    figure = page.locator("attn-backward")
    press(figure, "Again")
    hit(figure.locator("input[type=range]"), "Home")
    settle(page)
    seen = {"X", "Q", "K / ln 2", "V", "S = Q Kᵀ / √4", "A = softmax S", "O = A V", "dO"}  # fmt: skip
    for more in (
        {"dV = Aᵀ dO", "dA = dO Vᵀ"},
        {"r", "dS = A ⊙ (dA − r)"},
        {"dQ = s dS K", "dK = s dSᵀ Q"},
    ):
        headings = figure.locator(".attn-heading")
        texts = headings.evaluate_all(
            "all => all.filter(x => x.checkVisibility({ visibilityProperty: true })).map(x => x.textContent)"
        )
        assert {*texts} == seen
        press(figure, "Next step")
        seen |= more


def touch(figure: Locator, name: str, i: int, j: int) -> str:
    """Come to a number, and read its arithmetic."""
    places = figure.locator(f'.attn-number[aria-label^="{name}, "]')
    m = len(numbers(figure)[name][0])
    places.nth(i * m + j).focus()
    return said(figure)


def lit(figure: Locator) -> list[str]:
    return figure.locator(".attn-lit").evaluate_all(
        "cells => cells.map(cell => cell.ariaLabel.split(':')[0])"
    )


def test_a_touched_number_shows_what_made_it(page: Page) -> None:
    figure = page.locator("attn-layer")
    figure.get_by_role("button", name="Again").click()
    assert touch(figure, "Q", 2, 0).startswith("Q₂₀ = 0 · 0 + 2 · 1 + 0 · 0 = 2.")
    assert lit(figure) == [
        *(f"X, LOVELY, column {k}" for k in range(3)),
        *(f"W_q, row {k}, column 0" for k in range(3)),
    ]
    assert touch(figure, "S", 3, 2).startswith(
        "S₃₂ = (0 · 0 + 2 · 2 + 2 · 0) / √3 = 2.31."
    )
    assert touch(figure, "A", 1, 3).startswith(
        "A₁₃ = exp 1.15 / (exp 1.15 + exp 0.58 + exp 0 + exp 1.15) = 0.35."
    )
    assert lit(figure) == [f"S, IS, {word}" for word in WORDS]
    assert touch(figure, "O", 2, 1).startswith(
        "O₂₁ = 0.661 · 0 + 0.208 · 3 + 0.066 · 6 + 0.066 · (−2) = 0.89."
    )
    assert lit(figure) == [
        *(f"V, {word}, column 1" for word in WORDS),
        *(f"A, LOVELY, {word}" for word in WORDS),
    ]
    back = page.locator("attn-backward")
    back.get_by_role("button", name="Again").click()
    show_all(back)
    assert touch(back, "dK", 1, 3).startswith(
        "dK₁₃ = (0 · 0 + 0 · 1 + 1.14 · 1) / 2 = 0.57."
    )
    assert lit(back) == [
        *(f"Q, {word}, column 3" for word in WORDS[:3]),
        *(f"dS, {word}, IS" for word in WORDS[:3]),
    ]
    assert touch(back, "r", 2, 0).startswith(
        "r₂ = 0.571 · 0 + 0.286 · 7 + 0.143 · 7 = 3."
    )
    assert touch(back, "dW_q", 1, 2).startswith(
        "dW_q₁₂ = 0 · 0 + 1 · 0 + 1 · 1.98 = 1.98."
    )


def test_one_number_is_in_the_tab_order_and_none_that_is_not_shown(page: Page) -> None:
    figure = page.locator("attn-layer")
    figure.get_by_role("button", name="Again").click()
    slider = figure.locator("input[type=range]")
    hit(slider, "Home")
    settle(page)
    reached = figure.locator(".attn-number[tabindex='0']")
    assert reached.count() == 1
    for _ in range(12):  # however far down, what is not shown yet is not reached
        hit(reached, "ArrowDown")
        settle(page)
    assert "not shown yet" not in str(reached.get_attribute("aria-label"))
    assert figure.get_by_label("Q, IS, column 0: not shown yet").text_content() == "1"
    for part in ("Q", "S", "A", "O"):
        hit(figure.get_by_role("button", name="Next step"), "Enter")
        settle(page)
        assert str(reached.get_attribute("aria-label")).startswith(f"{part}, LOVELY, ")


@pytest.mark.parametrize("name", NAMES)
def test_the_arrows_lead_to_every_number(page: Page, name: str) -> None:
    unreached = page.locator(f"attn-{name}").evaluate(
        """figure => {
            figure.state.stage = figure.constructor.stages.length - 1;
            figure.redraw();
            const reached = new Set([figure.state.at]);
            for (const at of reached) // grows while it is walked through
                for (const key of ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"]) {
                    figure.state.at = at;
                    figure.drawing.dispatchEvent(new KeyboardEvent("keydown", { key }));
                    reached.add(figure.state.at);
                }
            return [...figure.cells.keys()].filter(at => !reached.has(at));
        }"""
    )
    assert unreached == []


# The tasks, answered with the keyboard alone


def test_tasks_of_the_layer(page: Page) -> None:
    figure = page.locator("attn-layer")
    press(figure, "Again", "all, both times", "AWFUL")
    assert verdict(figure) == "Your guess: all, both times. Now try."
    hit(figure.get_by_label("causal mask"), "Space")
    assert verdict(figure) == (
        "You guessed “all, both times”; it is “all; with the mask, its own and later ones”. "
        "Without the mask the rows of WEATHER, IS, AWFUL and TODAY changed. "
        "With the mask the rows of AWFUL and TODAY changed."
    )
    names = figure.locator(".attn-row-name.attn-changed").all_text_contents()
    assert names == ["AWFUL", "AWFUL", "AWFUL", "TODAY"]  # of X, of Q and, last, of O
    press(figure, "Next task", "O alone")  # it opens as at the start
    figure.locator('.attn-number[aria-label^="W_v, row 1, column 0"]').focus()
    page.keyboard.press("+")
    assert verdict(figure) == (
        "As you guessed. 0 rows of S changed, 0 of A and 4 of O: "
        "where a word looks is settled without the values."
    )


def test_tasks_of_the_backward_pass(page: Page) -> None:
    figure = page.locator("attn-backward")
    press(figure, "Again", "zero", "Next step")
    assert verdict(figure) == "Your guess: zero. Now try."
    touch(figure, "dS", 2, 0)
    assert verdict(figure) == (
        "You guessed “zero”; it is “negative”. The mean of the row is 3.00, and 0.57 · (0 − 3.00) = −1.71. "
        "A higher score for WEATHER takes weight from IS and LOVELY, who hand over 7."
    )
    press(figure, "Next task", "two", "the first output of all words")
    assert verdict(figure) == "Your guess: two. Now try."
    show_all(figure)
    assert verdict(figure).startswith("As you guessed. 2 are 0.")


def test_tasks_of_the_heads(page: Page) -> None:
    figure = page.locator("attn-multihead")
    press(figure, "Again", "both maps, all of O")
    figure.locator('.attn-number[aria-label^="W_q, row 0, column 1"]').focus()
    keyboard = page.keyboard
    for key in ("+", "-"):  # head 0, and back: not what was asked
        keyboard.press(key)
        settle(page)
    assert verdict(figure) == "Your guess: both maps, all of O. Now try."
    keyboard.press("ArrowRight")
    keyboard.press("+")
    assert verdict(figure) == (
        "You guessed “both maps, all of O”; it is “A¹ and all columns of O”. "
        "A⁰ changed in 0 rows and A¹ in 2; O in 3 of 3 columns. Heads share nothing until Wo mixes them."
    )
    pale = "figure => figure.grounds.map(x => x.matches('.attn-untouched'))"
    assert figure.evaluate(pale) == [True, False]
    touch(figure, "O", 2, 0)  # no ray: from afar one would run over other numbers
    rays = "rays => rays.filter(ray => +ray.getAttribute('stroke-width')).length"
    assert figure.locator(".attn-ray").evaluate_all(rays) == 0
    strong = "figure => figure.into.map((path, k) => path.matches('.attn-strong') ? k : -1).filter(k => k >= 0)"
    assert figure.evaluate(strong) == [2, 6]
    figure.get_by_label("Shown", exact=True).fill(
        "1"
    )  # nothing is there yet that could change
    settle(page)
    assert said(figure).endswith("Shown up to Q, K, V.")
    figure.get_by_label("Shown", exact=True).fill("4")
    press(figure, "Next task", "in all three", "swapped")
    assert verdict(figure) == "Your guess: in all three. Now try."
    press(figure, "head 1 a copy of head 0")
    assert verdict(figure) == (
        "You guessed “in all three”; it is “in some”. "
        "To LOVELY head 0 adds (1.65, 0.44, 0.00), head 1 adds (1.65, 0.44, 2.85): equal in 2 of 3 columns. "
        "Each head is read by rows of Wo of its own."
    )


@pytest.mark.parametrize(
    ("name", "cell", "sentence"),
    [
        ("layer", "A, TODAY, IS", "A₃₁ = exp 1.15 / (exp 0 + exp 1.15 + exp 2.31 + exp 2.31) = 0.13."),
        ("backward", "A, LOVELY, IS", "A₂₁ = exp 0 / (exp 0.69 + exp 0 + exp (−0.69)) = 0.29."),
    ],
)  # fmt: skip  # a sentence a line
def test_a_touch_shows_the_arithmetic(
    page: Page, name: str, cell: str, sentence: str
) -> None:
    figure = page.locator(f"attn-{name}")
    figure.get_by_role("button", name="Again").click()
    settle(page)
    figure.locator(f'.attn-number[aria-label^="{cell}"]').click()
    assert said(figure).startswith(sentence)


@pytest.mark.parametrize("name", NAMES)
def test_an_address_sets_only_what_a_reader_can(page: Page, name: str) -> None:
    figure = page.locator(f"attn-{name}")
    figure.get_by_role("button", name="Again").click()
    before = state(figure)
    for wrong in ("at-Z00", "at-S44", "dO-_5b_5d", "X-_5b_5b1e9_5d_5d"):
        page.evaluate(
            "hash => { location.hash = hash; }", f"#attn-{name}--{wrong}--stage-9"
        )
        assert state(figure) == before, wrong
    page.evaluate("location.hash = '#top'")
