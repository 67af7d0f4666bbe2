"""The figure with SmolLM2's heads: what it shows are the model's own weights, and its tasks are judged by them."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable

import figure_weights
import numpy as np
import pytest
import stills
from moving import (
    cells,
    choose,
    hit,
    number,
    press,
    said,
    settle,
    state,
    verdict,
)
from playwright.sync_api import Locator, Page

from attn_tutor.models.smollm2 import SmolLM2

pytestmark = [pytest.mark.slow, pytest.mark.rest]
NAMES = ["published"]
BYTES = 200_000  # of the figure's scripts, as the chapter says
OFF = 1 / 510  # what a weight may lose when it becomes a byte


@pytest.fixture
def figure(page: Page) -> Locator:
    figure = page.locator("attn-published")
    press(figure, "Again")
    return figure


@pytest.fixture(scope="module")
def model(loaded: Callable[[type[SmolLM2]], SmolLM2]) -> SmolLM2:
    return loaded(SmolLM2)


@pytest.fixture(scope="module")
def weights(model: SmolLM2) -> dict[str, np.ndarray]:
    """Of each sentence, (30, 9, n, n)."""
    return {
        key: model.weights(model.encode(text)).numpy()
        for key, (_, text) in figure_weights.SENTENCES.items()
    }


def scores(A: np.ndarray, tokens: list[str], kind: str) -> np.ndarray:
    """What the map shows: a mean over queries of the weight on some of the keys, (30, 9)."""
    i, j = np.indices(A.shape[-2:])
    same = (np.array(tokens)[:, None] == tokens) & (j < i)
    keys = {
        "first": (i >= 4) & (j == 0),
        "before": j == i - 1,
        "itself": (j == i) & (i > 0),
        "after": np.pad(same, ((0, 0), (1, 0)))[:, :-1],
    }[kind]
    asked = same if kind == "after" else keys
    return (A * keys).sum((-1, -2)) / asked.any(-1).sum()


def test_the_file_has_the_weights_of_the_model(model: SmolLM2) -> None:
    shipped = figure_weights.read("published")
    for key, now in figure_weights.published(model).items():
        codes, expected = (
            np.frombuffer(b64decode(data.pop("weights")), np.uint8).astype(int)
            for data in (shipped[key], now)
        )
        # Single precision differs between processors: a byte may be the next one.
        assert codes.shape == expected.shape and abs(codes - expected).max() <= 1
        np.testing.assert_allclose(shipped[key].pop("losses"), now.pop("losses"), atol=0.02)  # fmt: skip
        assert shipped.pop(key) == now, "python tools/figure_weights.py"
    assert shipped == {}


def test_it_is_small() -> None:
    scripts = stills.STATIC.glob("attn-published*.js")
    assert sum(script.stat().st_size for script in scripts) <= BYTES


def touch(figure: Locator, square: int) -> None:
    """Click in the middle of a head's square, which its frame may cover."""
    box = figure.locator("svg rect[fill]").nth(square).bounding_box()
    assert box
    figure.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    settle(figure.page)


def test_the_frame_is_dragged_and_stays_on_the_map(figure: Locator) -> None:
    box = figure.locator(".attn-frame").bounding_box()
    assert box
    mouse = figure.page.mouse
    mouse.move(box["x"] + 5, box["y"] + 5)
    mouse.down()
    mouse.move(box["x"] + 5 + 2 * box["width"], box["y"] + 5 + 32, steps=4)
    assert (state(figure)["layer"], state(figure)["head"]) == (18, 5)
    mouse.move(box["x"] + 2000, box["y"] - 300)
    mouse.up()
    assert (state(figure)["layer"], state(figure)["head"]) == (29, 0)
    hit(figure.locator(".attn-handle"), "ArrowUp", "ArrowRight", "Shift+ArrowLeft")
    assert (state(figure)["layer"], state(figure)["head"]) == (19, 0)


@pytest.mark.parametrize("sentence", figure_weights.SENTENCES)
def test_it_shows_where_the_heads_look(
    figure: Locator,
    model: SmolLM2,
    weights: dict[str, np.ndarray],
    sentence: str,
) -> None:
    choose(figure, "Sentence", sentence)
    A, rng = weights[sentence], np.random.default_rng(11)
    tokens = figure_weights.read("published")[sentence]["tokens"]
    line = figure.get_by_label("Token that looks: the arrow keys choose it")
    for _ in range(3):
        touch(figure, int(rng.integers(270)))
        at = int(rng.integers(len(tokens)))
        hit(line, "Home")
        for _ in range(at):
            hit(line, "ArrowRight")
        now = state(figure)
        row = A[now["layer"], now["head"], now["at"]]
        assert now["at"] == at and figure.locator(".attn-chosen").inner_text() == tokens[at].strip()  # fmt: skip
        rows = [cell for cell in cells(figure, 0) if cell[0] != "–"]
        assert len(rows) == min(3, at + 1)
        for (name, shown), nth in zip(rows, np.sort(row)[::-1], strict=False):
            word, _, far = name.removeprefix("“").partition("”, ")
            key = at - (0 if far == "itself" else int(far.split()[0]))
            assert word == tokens[key].strip()
            assert abs(float(shown) - row[key]) <= OFF + 0.0051
            assert row[key] >= nth - 2 * OFF
        name, most = rows[0]
        looks = f"Layer {now['layer']}, head {now['head']} looks from “{tokens[at].strip()}”"
        assert said(figure).startswith(f"{looks} most at {name.rpartition(',')[0]}, {most}.")  # fmt: skip


@pytest.mark.parametrize("sentence", figure_weights.SENTENCES)
@pytest.mark.parametrize("kind", ["first", "before", "itself", "after"])
def test_the_map_is_of_all_heads(
    figure: Locator, weights: dict[str, np.ndarray], sentence: str, kind: str
) -> None:
    tokens = figure_weights.read("published")[sentence]["tokens"]
    choose(figure, "Sentence", sentence)
    choose(figure, "Map: the weight on", kind)
    settle(figure.page)
    shown = np.array(figure.evaluate("figure => figure.scores"), dtype=float)
    if sentence == "it" and kind == "after":  # no token returns
        assert "so the map shows the token before." in figure.inner_text()
        kind = "before"
    expected = scores(weights[sentence], tokens, kind)
    np.testing.assert_allclose(shown.reshape(30, 9), expected, atol=2 * OFF)
    # The brightest square, chosen with the mouse, is the head of which the sentence says so.
    red = "squares => squares.map(square => +square.getAttribute('fill').match(/\\d+/)[0])"
    squares = figure.locator("svg rect[fill]")
    assert squares.count() == 270
    brightness = squares.evaluate_all(red)
    assert brightness[shown.argmax()] == max(brightness)
    dots = figure.locator(".attn-dots").get_attribute("d") or ""
    assert dots.count("M") == (shown > 0.5).sum()
    touch(figure, int(shown.argmax()))
    layer, head = divmod(int(shown.argmax()), 9)
    assert (state(figure)["layer"], state(figure)["head"]) == (layer, head)
    assert f"gives {shown.max():.2f} to" in said(figure)
    assert f"is {shown.max():.2f}, in layer {layer}, head {head}." in said(figure)


def test_the_picture_of_a_head_is_its_weights(
    figure: Locator, weights: dict[str, np.ndarray]
) -> None:
    press(figure, "18.6")
    choose(figure, "Sentence", "twice")
    settle(figure.page)
    A = weights["twice"][18, 6]
    painted = figure.locator("canvas").evaluate(
        "map => [...map.getContext('2d').getImageData(0, 0, map.width, map.height).data]"
    )
    green = np.reshape(painted, (*A.shape, 4))[..., 1]  # it grows with viridis
    assert (green[A > 0.5] > 140).all() and (green[A < 0.1] < 70).all()
    assert (A > 0.5).sum() > 10


def test_the_pattern_of_every_head_is_its_weights(
    figure: Locator, weights: dict[str, np.ndarray]
) -> None:
    choose(figure, "Sentence", "twice")
    choose(figure, "Map: the weight on", "pattern")
    settle(figure.page)
    assert figure.locator(".attn-dots").get_attribute("visibility") == "hidden"
    painted = figure.locator("image").evaluate(
        """async (image) => {
            const copy = new Image();
            copy.src = image.getAttribute("href");
            await copy.decode();
            const [brush, { width, height }] = [document.createElement("canvas").getContext("2d"), copy];
            Object.assign(brush.canvas, { width, height });
            brush.drawImage(copy, 0, 0);
            return [[height, width, 4], [...brush.getImageData(0, 0, width, height).data]];
        }"""
    )
    A = weights["twice"]
    all_heads = A.transpose(1, 2, 0, 3).reshape(
        9 * A.shape[2], -1
    )  # a row of heads after the other
    seen = np.reshape(painted[1], painted[0])
    assert seen.shape[:2] == all_heads.shape
    assert (seen[all_heads > 0.5][:, 1] > 140).all()  # green grows with viridis
    forbidden = np.tile(~np.tri(A.shape[2], dtype=bool), (9, 30))
    assert not seen[forbidden].any() and (seen[~forbidden][:, 3] == 255).all()


def test_a_strip_above_the_words_is_the_head_before(figure: Locator) -> None:
    words = figure.locator(".attn-tokens span")

    def colours(side: str) -> list[str]:
        found = words.evaluate_all(
            f"words => words.map(word => getComputedStyle(word).{side})"
        )
        return list(found)[:11]  # up to "it"

    assert set(colours("borderTopColor")) == {"rgba(0, 0, 0, 0)"}
    looked = colours("backgroundColor")
    press(figure, "21.6")
    assert colours("borderTopColor") == looked != colours("backgroundColor")
    assert "Strip above: of layer 16, head 3, the head before." in figure.inner_text()
    press(figure, "Again")
    assert "Strip above" not in figure.inner_text()


def test_tasks_of_the_published_heads(
    figure: Locator, weights: dict[str, np.ndarray]
) -> None:
    """Answered with the keyboard alone."""
    sentence, which = (
        figure.get_by_label(label, exact=True)
        for label in ("Sentence", "Map: the weight on")
    )

    def go(layer_to: int, head_to: int) -> None:
        now, frame = state(figure), figure.locator(".attn-handle")
        for way, back, far in (
            ("ArrowRight", "ArrowLeft", layer_to - now["layer"]),
            ("ArrowDown", "ArrowUp", head_to - now["head"]),
        ):
            for _ in range(abs(far)):
                hit(frame, way if far > 0 else back)
                settle(figure.page)

    press(figure, "fewer than 50")
    hit(which, "Home")
    assert "it is “50 to 200”. 127 heads do, each with a dot, and on average" in verdict(figure)  # fmt: skip
    press(figure, "Next task", "in layers 10 to 19")
    hit(which, "ArrowDown")
    assert verdict(figure) == "Your guess: in layers 10 to 19. Now try."
    go(16, 0)
    assert verdict(figure).startswith("As you guessed. Layer 16, head 0 gives the token before 0.76")  # fmt: skip
    before = np.diagonal(weights["it"][16, 0], -1)
    least, most = (number(end(before), 2) for end in (np.min, np.max))
    assert f"in the mean, never less than {least} here and at most {most}. " in verdict(figure)  # fmt: skip
    press(figure, "Next task", "one or none")
    for control in (sentence, which):
        hit(control, "ArrowDown")
        hit(control, "ArrowDown")
    go(18, 6)
    assert "it is “2 to 20”. 4 heads do; layer 18, head 6 with 0.82." in verdict(figure)  # fmt: skip
    assert "first copy costs 11.6 nats, of the second, after its first, 2.5." in verdict(figure)  # fmt: skip
    press(figure, "Next task", "one at each")
    hit(sentence, "Home")
    line = figure.get_by_label("Token that looks: the arrow keys choose it")
    for _ in range(10 - state(figure)["at"]):
        hit(line, "ArrowRight")
    press(figure, "16.3")
    assert verdict(figure) == "Your guess: one at each. Now try."
    press(figure, "21.6")
    assert "As you guessed. Layer 16, head 3: “trophy”, 0.58. Layer 21, head 6: “case”" in verdict(figure)  # fmt: skip
    assert not figure.get_by_role("button", name="Next task").is_visible()
