"""One sentence through the whole model: every number is torch's, and its arithmetic adds up to it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import figure_weights
import numpy as np
import pytest
import torch
from moving import cells, hit, press, said, settle, state, verdict
from playwright.sync_api import Locator, Page

import attn_tutor.torch as at

pytestmark = pytest.mark.rest

Visit = Callable[..., AbstractContextManager[Page]]
NAMES = ["sentence"]
alphabet = "".join(figure_weights.alphabet)
TEXTS = ["The query is compared", "A mask hides", "one head, two heads: a sum"]


@pytest.fixture
def figure(page: Page) -> Locator:
    figure = page.locator("attn-sentence")
    press(figure, "Again")
    return figure


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(36)


@pytest.fixture(scope="module")
def model() -> at.LanguageModel:
    return figure_weights.language_model()


@contextmanager
def overheard(model: at.LanguageModel) -> Iterator[dict[str, torch.Tensor]]:
    """What goes into and comes out of each part, under the names of the figure."""
    found: dict[str, torch.Tensor] = {}

    def listen(part: Any, into: str, out: str) -> Any:
        def hear(_: Any, inputs: Any, output: torch.Tensor) -> None:
            found.update({into: inputs[0], out: output})

        return part.register_forward_hook(hear)

    hooks = [listen(model.embedding, "ids", "x0"), listen(model.norm, "x2", "l")]
    hooks.append(listen(model.head, "l", "z"))
    for b, block in enumerate(model.blocks):
        layer = block.attention
        for name in "qkv":
            hooks.append(listen(getattr(layer, f"{name}_proj"), f"n{b}", f"{name}{b}"))
        hooks.append(listen(layer.out_proj, f"o{b}", f"p{b}"))
        hooks.append(listen(block.norm_1, f"x{b}", f"n{b}"))
        hooks.append(listen(block.norm_2, f"y{b}", f"m{b}"))
        hooks.append(listen(block.widen, f"m{b}", f"h{b}"))
        hooks.append(listen(block.narrow, f"g{b}", f"f{b}"))
    yield found
    for hook in hooks:
        hook.remove()


@torch.no_grad()
def numbers(model: at.LanguageModel, text: str) -> dict[str, np.ndarray]:
    ids = torch.tensor([alphabet.index(letter) for letter in text])
    with overheard(model) as found:
        logits = model(ids)
    found["r"] = logits.softmax(-1)
    for b, weights in enumerate(model.weights(ids)):
        turned = {}
        for name, turn in (("q", "t"), ("k", "u")):
            heads = at.rotary(at.split_heads(found[f"{name}{b}"], 4))
            turned[name], found[f"{turn}{b}"] = heads, at.merge_heads(heads)
        scores = at.scaled_dot_score(turned["q"], turned["k"]).tril()
        for h in range(4):
            found |= {f"a{b}{h}": weights[h], f"s{b}{h}": scores[h]}
    del found["ids"]
    return {name: x.numpy() for name, x in found.items()}


def whole(rows: list[Any], n: int) -> np.ndarray:
    """Rows of the figure, those of a map filled up with zeros."""
    lists = [[*row.values()] if isinstance(row, dict) else row for row in rows]
    width = max(n if len(lists[0]) == 1 else 0, max(map(len, lists)))
    return np.array([row + [0] * (width - len(row)) for row in lists])


def line_of(figure: Locator, label: str) -> Locator:
    return figure.locator(f'.attn-numbers[aria-label^="{label}"]')


def open_part(figure: Locator, box: int, chip: str) -> None:
    """Open one of the four parts that write into the stream, and one of its lines."""
    figure.locator(".attn-way button").nth(box).click()
    settle(figure.page)
    figure.locator(".attn-blocks > div:not([hidden]) > [role=group]").get_by_role(
        "button", name=chip, exact=True
    ).first.click()
    settle(figure.page)


def type_in(figure: Locator, text: str) -> None:
    figure.get_by_label("Text", exact=True).fill(text)
    settle(figure.page)


def test_every_number_is_torchs(figure: Locator, model: at.LanguageModel) -> None:
    for text in TEXTS:
        type_in(figure, text)
        values = figure.evaluate(
            """({ values, parts }) => Object.fromEntries(Object.keys(parts)
                .map(name => [name, values[name].map(row => [...row])]))"""
        )
        expected = numbers(model, text)
        assert values.keys() == expected.keys()
        for name, x in expected.items():
            found = whole(values[name], len(text))
            np.testing.assert_allclose(found, x, atol=1e-3, err_msg=name)


SIGNS = {"−": "-", " · ": " * ", "mean ": "", "deviation ": "", "gain ": "", "shift ": ""}  # fmt: skip


def adds_up(words: str) -> float:
    """The number that a sentence of arithmetic says."""
    for sign, meaning in SIGNS.items():
        words = words.replace(sign, meaning)
    if "column" in words or "turned key" in words:
        _, _, words = words.partition(": ")
        total = sum(map(evaluate, re.split(r"(?<=\S) \+ (?=[\d(])", words.split(",")[0].split(";")[0])))  # fmt: skip
        for part in ("together", "bias"):
            if match := re.search(rf"{part} (-?\d+\.?\d*)", words):
                total += float(match[1])
        root = re.search(r"√(\d+)", words)
        return total / float(root[1]) ** 0.5 if root else total
    return evaluate(words.split(", ")[0])


def evaluate(words: str) -> float:
    words = re.sub(r"(sin|cos) (-?[\d.]+)", r"np.\1(\2)", words).replace("exp", "np.exp")  # fmt: skip
    return float(eval(words, {"np": np}))


@pytest.mark.parametrize("rounds", [1, pytest.param(6, marks=pytest.mark.full)])
def test_what_is_said_of_a_number_adds_up_to_it(
    figure: Locator, model: at.LanguageModel, rng: np.random.Generator, rounds: int
) -> None:
    text = TEXTS[2]
    type_in(figure, text)
    expected = numbers(model, text)
    for name in [*expected, "a13"] * rounds:
        i = int(rng.integers(1, len(text)))
        last = i if name[0] in "as" else expected[name].shape[1] - 1
        j = int(rng.integers(last + 1))
        told, headline, chips = figure.evaluate(
            """(figure, [part, at, column]) => {
                figure.set({ part, at, column });
                figure.redraw();
                const chips = [...figure.querySelectorAll(".attn-told [role=group] button:not([hidden])")];
                return [figure.sentence, figure.formula.textContent, chips.map(chip => [chip.textContent, chip.to])];
            }""",
            [name, i, j],
        )
        x = expected[name][i, j]
        shown = float(headline.rpartition(": ")[2].replace("−", "-"))
        assert abs(shown - x) < 0.006, headline
        if name == "x0":
            assert "looked up" in told and not chips
            continue
        words = told.partition(f" at {i}: ")[2].partition(". The whole")[0].removesuffix(".")  # fmt: skip
        rounded = sum(map(float, re.findall(r"\d+\.\d\d", words)))  # to two digits
        assert abs(adds_up(words) - x) < 0.01 + 0.006 * rounded, (name, told, x)
        assert chips
        for label, to in chips:  # where it comes from, one press away
            number = expected[to["part"]][to["at"], to["column"]]
            first, _, value = label.partition(": ")
            named = first.partition(" · ")[0] if first[0] in "(0123456789−" else value
            said_there = float(named.strip("()").replace("−", "-"))
            assert abs(said_there - number) < 0.006, (name, label)


IN_ONE_FRAME = """(part, keys) => keys.forEach(key =>
    part.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true })))"""


def test_a_number_is_touched_by_mouse_and_keys(
    figure: Locator, model: at.LanguageModel, rng: np.random.Generator
) -> None:
    page, expected = figure.page, numbers(model, TEXTS[0])
    labels = {
        "query, attention of block 0": ("q0", 0, "q"),
        "hidden number, MLP of block 1": ("h1", 3, "hidden"),
    }
    for label, (name, of, chip) in labels.items():
        open_part(figure, of, chip)
        line = line_of(figure, label)
        box, j = line.bounding_box(), int(rng.integers(64))
        assert box
        page.mouse.click(box["x"] + (j + 0.5) * box["width"] / 64, box["y"] + 2)
        now = state(figure)
        assert (now["part"], now["column"]) == (name, j)
        assert f", number {j}: " in figure.locator(".attn-told .attn-answer").inner_text()  # fmt: skip
        hit(line, "ArrowRight")
        line.evaluate(IN_ONE_FRAME, ["ArrowRight", "ArrowLeft"])
        assert state(figure)["column"] == min(j + 1, expected[name].shape[1] - 1)
        chosen = figure.locator(".attn-numbers[tabindex='0']")
        assert chosen.count() == 1
        told = f"number {state(figure)['column']} of “a”: "
        assert str(chosen.get_attribute("aria-valuetext")).startswith(told)
        page.keyboard.press("ArrowDown")
        assert state(figure)["part"] == {"q0": "t0", "h1": "g1"}[name]
        page.keyboard.press("ArrowUp")
    figure.locator(".attn-way button").nth(2).click()
    settle(page)
    square = line_of(figure, "weight of head 2, attention of block 1")
    box = square.bounding_box()
    assert box
    side = box["width"] / len(TEXTS[0])
    page.mouse.click(box["x"] + 3.5 * side, box["y"] + 9.5 * side)
    now = state(figure)
    assert (now["part"], now["at"], now["column"]) == ("a12", 9, 3)
    press(figure, "Number after")
    headline = figure.locator(".attn-told .attn-answer").inner_text()
    assert headline == f"weight of “␣”, on “q” at 4: {expected['a12'][9, 4]:.3f}"
    figure.locator(".attn-told [role=group] button").first.click()
    assert state(figure)["part"] == "s12"


def test_the_odds_are_torchs_and_the_likeliest_is_written(
    figure: Locator, model: at.LanguageModel
) -> None:
    for text in TEXTS[:2]:
        type_in(figure, text)
        odds = numbers(model, text)["r"][-1]
        for (name, share), k in zip(cells(figure, 0), np.argsort(-odds), strict=False):
            assert name == f"“{alphabet[k].replace(' ', '␣')}”"
            assert abs(float(share) - odds[k]) < 6e-4
        press(figure, "Write the likeliest")
        assert state(figure)["text"] == text + alphabet[odds.argmax()]
    figure.locator("table button").nth(1).click()
    assert state(figure)["part"] == "r"
    type_in(figure, "")
    assert said(figure).startswith("There is no text yet.")


PAINTED = """({ parts }) => Object.keys(parts).filter(name => parts[name].canvas?.getContext("2d")
    .getImageData(0, 0, parts[name].canvas.width, parts[name].canvas.height).data.some(x => x))"""
FRONT = "({ stream }) => stream.ribbon.style.clipPath"


def test_a_sentence_goes_through_stage_by_stage(figure: Locator) -> None:
    shown = figure.get_by_label("Shown", exact=True)
    hit(shown, "Home")
    settle(figure.page)
    assert figure.locator("table td").first.inner_text() == "–"
    assert figure.locator("[aria-valuetext='not shown yet']").count() == 39
    assert figure.evaluate(PAINTED) == ["x0"]  # the rest is hatched, not at 0
    assert figure.evaluate(FRONT) == "inset(0px 80% 0px 0px)"
    press(figure, "Send it through")  # with reduced motion at once
    assert state(figure)["stage"] == 5
    assert figure.locator("[aria-valuetext='not shown yet']").count() == 0
    assert len(figure.evaluate(PAINTED)) == 40
    assert figure.evaluate(FRONT) == "inset(0px 0% 0px 0px)"
    hit(shown, "Home")
    figure.locator(".attn-way button").nth(
        1
    ).click()  # a part that is opened is sent for
    assert (state(figure)["stage"], state(figure)["part"]) == (2, "g0")


def test_of_forty_lines_those_are_seen_that_make_the_number(figure: Locator) -> None:
    """Maps, and what of the network's numbers is large, beside the line chosen and the lines that it comes from."""
    seen = {"q0": "n0 q0 a00 a01 a02 a03", "k1": "n1 k1 a10 a11 a12 a13", "y0": "x0 p0 y0 a00 a01 a02 a03", "x0": "x0",
        "a12": "t1 u1 a10 a11 a12 a13", "f1": "h1 g1 f1", "m0": "y0 m0 h0 g0", "r": "l z r"}  # fmt: skip
    for part, lines in seen.items():
        shown = figure.evaluate(
            """(figure, part) => { figure.set({ part }); figure.redraw();
                return Object.keys(figure.parts).filter(name => figure.parts[name].bar?.offsetParent); }""",
            part,
        )
        assert sorted(shown) == sorted(lines.split())
    assert figure.bounding_box()["height"] <= 752 + 48  # its margins


def test_the_line_of_the_equal_letter_before_stands_above(figure: Locator) -> None:
    """Of the second “e” up to the query it has the same colours, then others; a letter that is new has none."""
    same = figure.evaluate(
        """(figure) => ["x0", "q0", "t0", "y0", "h0", "a00"].map(part => {
            figure.set({ part, at: 6 });
            figure.redraw();
            const { strip, canvas } = figure.stream.twin, below = figure.parts[part].canvas;
            return strip.hidden ? null : [strip.nextSibling.contains(below), canvas.toDataURL() === below.toDataURL()];
        })"""
    )
    assert same == [[True, True]] * 2 + [[True, False]] * 2 + [None] * 2
    figure.evaluate("figure => { figure.set({ part: 'x0', at: 2 }); figure.redraw(); }")
    assert figure.evaluate("figure => figure.stream.twin.strip.hidden")


def test_lines_run_from_the_letters_that_are_looked_at(
    figure: Locator, model: at.LanguageModel
) -> None:
    """As thick as the weights, for all heads or the one chosen; none from the networks, which look at one letter."""
    A = numbers(model, TEXTS[0])
    for part, heads in {"a02": [2], "q1": range(4), "h0": []}.items():
        wide = figure.evaluate(
            """(figure, part) => { figure.set({ part }); figure.redraw();
                return figure.stream.fan.map(lines => lines.map(line => +line.getAttribute("stroke-width"))); }""",
            part,
        )
        expected = np.zeros((4, 32))
        for h in heads:
            w = A[f"a{part[1]}{h}"][17]
            expected[h, : len(w)] = np.where(w < 0.02, 0, 7 * w)
        np.testing.assert_allclose(wide, expected, atol=1e-3)


def test_on_a_phone_lines_are_wide_enough_for_a_finger(
    visit: Visit, sheet: Path
) -> None:
    with visit(sheet, has_touch=True, viewport={"width": 390, "height": 844}) as page:
        figure = page.locator("attn-sentence")
        small = figure.locator("button, .attn-numbers, select").evaluate_all(
            """parts => parts.map(part => [part.outerHTML, part.getBoundingClientRect()])
                .filter(([part, box]) => box.width && Math.min(box.width, box.height) < 24)"""
        )
        assert small == []
        open_part(figure, 0, "v")
        line = line_of(figure, "value, attention of block 0")
        line.evaluate("line => line.scrollIntoView({ block: 'center' })")
        box = line.bounding_box()
        assert box
        page.touchscreen.tap(box["x"] + box["width"] * 0.51, box["y"] + 9)
        now = state(figure)
        assert (now["part"], now["column"]) == ("v0", 32)
        told = figure.locator(".attn-told").bounding_box()
        assert (
            told and 0 <= told["y"] <= 844 - told["height"]
        )  # what is said is in sight
        whole = figure.locator(".attn-live").bounding_box()
        assert whole and whole["height"] <= 1100


def test_tasks_of_the_sentence(figure: Locator) -> None:
    line = figure.locator(".attn-line")
    press(figure, "the query")
    hit(line, "Home", "ArrowRight", "ArrowRight")
    settle(figure.page)
    assert verdict(figure) == "Your guess: the query. Now try."
    hit(line, *["ArrowRight"] * 4)
    assert verdict(figure).startswith(
        "You guessed “the query”; it is “the turned query”. "
        "The “e” at 2 and at 6 have the same embedding, norm and query."
    )
    press(figure, "Next task", "MLP of block 0", "of the book")
    for seen, k in enumerate((3, 1, 0, 2)):
        assert verdict(figure).endswith(f"Now try. {seen} of 4 seen.")
        open_part(figure, k, "adds")
    assert verdict(figure).startswith(
        "You guessed “MLP of block 0”; it is “attention of block 0”. Lengths: attention of block 0 9.23, "
        "MLP of block 0 6.60, attention of block 1 7.76, MLP of block 1 4.36."
    )
    lengths = figure.locator(".attn-way > span small").all_text_contents()
    assert lengths == ["9.2", "6.6", "7.8", "4.4"]  # each stays once it was seen
