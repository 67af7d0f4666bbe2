"""The figures of tiles, hidden bugs and the beam: the numbers are the package's, and keys do all their tasks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
import torch
import translator_weights
from docutils import nodes
from moving import cells, choose, hit, number, said, settle, state, tick, verdict
from playwright.sync_api import Locator, Page

import attn_tutor.numpy as an
import attn_tutor.torch as at
from attn_tutor.data import encode_words, number_words

pytestmark = pytest.mark.rest

BOOK = Path(__file__).parents[2] / "book"
NAMES = ("tiles", "bug", "beam")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(8)


def press(figure: Locator, *names: str) -> None:
    for name in names:
        hit(figure.locator(f'button:text-is("{name}")'), "Enter")
        settle(figure.page)  # or a busy browser gives the key to the next button


def put(figure: Locator, **state: Any) -> None:
    figure.evaluate("(figure, state) => figure.set(state)", state)
    settle(figure.page)


def chapter(name: str, *starts: str) -> dict[str, Any]:
    """What the cells of a chapter define that begin like this."""
    defined: dict[str, Any] = {"np": np, "an": an}
    for cell in nbformat.read(BOOK / f"{name}.ipynb", as_version=4).cells:
        if cell.cell_type == "code" and cell.source.startswith(starts):
            exec(cell.source, defined)  # the repository's own
    return defined


# Tiles


def test_tiles_in_any_order(page: Page, rng: np.random.Generator) -> None:
    figure, met = page.locator("attn-tiles"), set()
    press(figure, "Again")
    for trial in range(20):
        width, causal = 2 ** (trial % 4), trial % 3 == 1
        tiles = [j for j in range(8 // width) if not causal or width * j <= 4]
        order = rng.permutation(tiles)[: rng.integers(1, len(tiles) + 1)]
        if trial < 4:  # by hand
            choose(figure, "Keys in a tile", str(width))
            tick(figure, "causal: the query is token 4", causal)
            press(figure, "New numbers", "Start over", *(f"tile {j}" for j in order))
        else:
            now = {"width": str(width), "causal": causal, "draw": trial % 7}
            put(figure, **now, order="".join(map(str, order)))
        S, V = np.array([*figure.evaluate("f => Object.values(f.numbers)")])
        if causal:
            S = np.where(an.causal_mask(8)[4], S, -np.inf)
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
        answer = figure.locator(".attn-answer")
        assert answer.text_content() == f"All at once: {number(whole)}"
        assert answer.is_visible() == (
            len(order) == len(tiles)
        )  # or it gave away the end
        assert ("all at once" in said(figure)) == answer.is_visible()
        assert f"of {len(tiles)}:" in said(figure)
        met.add((width, causal))
    assert len(met) == 8


def test_a_larger_score_shrinks_what_was_summed(page: Page) -> None:
    """Tile 0 has e to its scores 2 and 1, tile 1 then 6 and 3: a third of what was summed stays, as by hand."""
    figure = page.locator("attn-tiles")
    press(figure, "Again")
    high = "bars => bars.map(bar => +bar.getAttribute('height') / 110)"
    keys = figure.locator(".attn-sums").first
    bars = keys.locator("rect:not(.attn-ghost)").evaluate_all(high)
    before = keys.locator(".attn-ghost").evaluate_all(high)
    np.testing.assert_allclose(bars, [1 / 3, 1 / 6, 1, 1 / 2, 0, 0, 0, 0])
    np.testing.assert_allclose(before, [1, 1 / 2, 0, 0, 0, 0, 0, 0])
    wide = "bars => bars.map(bar => +bar.getAttribute('width'))"
    blocks = figure.evaluate(
        f"({{ lines }}) => lines.slice(0, 2).map(({{ blocks, ghost }}) => ({wide})([...blocks, ghost]))"
    )
    for width, share in zip(np.array(blocks), ([2, 1, 6, 3], [24, 6, 24, 24]), strict=True):  # fmt: skip
        gaps = np.r_[width[:4] > 3, np.zeros(5)]  # between blocks
        width = (width + gaps) / (width + gaps)[:4].sum()
        expected = np.r_[share, np.zeros(4), 3 * sum(share[:2])] / sum(share)
        np.testing.assert_allclose(width, expected, atol=1e-6)
    assert "shrinks to 0.333 of itself" in said(figure)


def test_keys_of_a_tile_fall_into_the_sums(page: Page) -> None:
    """From its bar each block goes to its place, and what was there shrinks."""
    page.emulate_media(reduced_motion="no-preference")
    figure = page.locator("attn-tiles")
    press(figure, "Again")
    page.wait_for_timeout(1100)
    places = figure.evaluate(
        """figure => new Promise(done => {
            const block = figure.lines[0].blocks[6], seen = [], look = () =>
                seen.push(["x", "y", "width", "height"].map(side => +block.getAttribute(side)));
            figure.set({ order: "013" });
            const timer = setInterval(look, 30);
            setTimeout(() => done(seen, clearInterval(timer)), 1200);
        })"""
    )
    page.emulate_media(reduced_motion="reduce")
    x, y, width, height = np.array(places).T
    falls = y[y < 0]
    assert len(falls) > 3 and falls[0] < -100  # from the middle of the bars
    assert (np.diff(y[y.argmin() :]) >= 0).all() and y[-1] == 6
    assert height[-1] == 18 < height[y.argmin()]


def test_discs_are_as_large_as_weights_and_balance_at_the_output(page: Page) -> None:
    figure = page.locator("attn-tiles")
    press(figure, "Again", "tile 2", "tile 3")
    settle(page)
    shares, output = figure.evaluate(
        "f => [f.discs.map(disc => (disc.r.baseVal.value / 20) ** 2), f.sums.at(-1).output]"
    )
    values = figure.evaluate("f => f.numbers.V")
    np.testing.assert_allclose([np.sum(shares), np.dot(shares, values)], [1, output])


def test_tasks_of_the_tiles(page: Page) -> None:
    figure = page.locator("attn-tiles")
    press(figure, "Again", "yes", "tile 2", "tile 3")
    press(figure, "Start over")
    assert verdict(figure) == "Your guess: yes. Now try."
    press(figure, "tile 3", "tile 1", "tile 2", "tile 0")
    assert verdict(figure) == (
        "You guessed “yes”; it is “no”. "
        "In the order 0, 1, 2, 3: total 3.111, output 6.107. "
        "In the order 3, 1, 2, 0: total 3.111, output 6.107. "
        "What came before a higher top has shrunk by just as much as if the top had been known."
    )


# Bugs


PROBES = [
    "none",
    "last",
    "swap",
    "flat",
    "shift",
    "pad",
    "other",
    "heads",
    "large",
    "again",
    "cached",
    "gpus",
]


def layer(now: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Weights and outputs of the package for the inputs of a figure after a probe."""
    X, real, how = np.array(now["X"]), np.array(now["real"]), now["how"]
    W = {name: np.array(matrix) for name, matrix in now["W"].items()}
    positions = how["shift"] + np.arange(4) * (not how["flat"])
    Q = an.rotary(an.split_heads(X @ W["q"], 4), positions * (not how["flat"]))
    K = an.rotary(an.split_heads(X @ W["k"], 2), positions * (not how["flat"]))
    K, V = (x.repeat(2, 1) for x in (K, an.split_heads(X @ W["v"], 2)))
    mask = real[:, None, None]
    A = an.attention_weights(Q, K, mask, causal=True)
    O = an.attention(Q, K, V, mask, causal=True)
    return A, an.merge_heads(O) @ W["o"] + W["b"]


def shown(x: float, digits: int) -> str:
    return number(x, digits) if np.isfinite(x) else "NaN" if np.isnan(x) else "–"


def test_the_layer_without_a_bug_is_the_packages(
    page: Page, rng: np.random.Generator
) -> None:
    figure = page.locator("attn-bug")
    for trial in range(24):
        if trial % 5 == 4:
            press(figure, "Another layer")
        probe = PROBES[trial % 12]
        sentence, head = map(str, rng.integers(4, size=2))
        put(figure, probe=probe, sentence=sentence, head=head)
        right, now, hand = figure.evaluate(
            """(f, probe) => {
                const now = f.run(f.bug, probe);
                return [f.run("none", probe), now, f.compare(now, +f.state.head)];
            }""",
            probe,
        )
        A, O = layer(right)
        np.testing.assert_allclose(right["A"], A, atol=1e-12)
        np.testing.assert_allclose(right["O"], O, rtol=1e-9, atol=1e-9)
        b, h = int(sentence), int(head)
        query, first, keys = A[b, h, hand["query"]], hand["first"], [j for j, _, _ in hand["rows"]]  # fmt: skip
        if probe != "large":  # there weights are too small for a logarithm
            differences = [difference for _, difference, _ in hand["rows"]]
            np.testing.assert_allclose(differences, np.log(query[keys] / query[first]), atol=1e-9)  # fmt: skip

        # What is shown is the layer with the bug.
        B = np.array(now["A"], float)[b, h]
        table = cells(figure, 0)
        assert [row[1:5] for row in table[:4]] == [
            ["0" if x == 0 else number(x) for x in row] for row in B
        ]
        assert [row[5] for row in table[:4]] == ["0" if x == 0 else number(x) for x in B.sum(-1)]  # fmt: skip
        assert table[4][1:5] == ["0" if x == 0 else number(x) for x in B.sum(0)]
        outputs = np.array(now["O"], float)[b, :, :4]
        assert [row[1:5] for row in cells(figure, 1)] == [[shown(x, 2) for x in row] for row in outputs]  # fmt: skip


def test_the_right_layer_does_what_each_probe_demands(page: Page) -> None:
    figure = page.locator("attn-bug")
    press(figure, "Again")
    for sentence in "0123":
        choose(figure, "Sentence", sentence)
        settle(page)
        ran = figure.evaluate(
            "(f, probes) => Object.fromEntries(probes.map(p => [p, f.run('none', p)]))",
            PROBES,
        )
        b, O = int(sentence), {p: np.array(x["O"]) for p, x in ran.items()}
        A = {p: np.array(x["A"]) for p, x in ran.items()}
        for probe in ("shift", "heads", "again", "cached", "gpus"):
            np.testing.assert_allclose(O[probe], O["none"], atol=1e-9)
        np.testing.assert_allclose(O["other"][b], O["none"][b], atol=1e-9)
        np.testing.assert_allclose(O["last"][b, :3], O["none"][b, :3], atol=1e-9)
        np.testing.assert_allclose(O["swap"][b, 2:], O["flat"][b, 2:], atol=1e-9)
        assert not A["pad"][b, :, 0].any() and not A["pad"][b, :, :, 0].any()
        hidden = ~(np.array(ran["none"]["real"])[:, None] & an.causal_mask(4))
        assert not A["large"].swapaxes(0, 1)[:, hidden].any()


def test_what_is_against_the_rule_is_red(page: Page) -> None:
    figure = page.locator("attn-bug")
    met = set()
    for seed in range(1, 22):
        put(figure, seed=seed, sentence=str(seed % 4), head="0", probe="none")
        for probe in PROBES[1:]:
            put(figure, probe=probe)
            parts, real, marks, red, framed = figure.evaluate(
                """(f, probe) => {
                    const with_class = name => f.map.cells.slice(0, 4).map(row => row.slice(0, 4).map(
                        cell => cell.classList.contains(name)));
                    const before = probe === "swap" ? "flat" : "none";
                    return [["O", "A"].map(part => [f.bug, "none"].map(bug => [probe, before].map(
                        done => f.run(bug, done)[part][+f.state.sentence].map(row => row.flat().map(String))))),
                    [probe, before].map(done => f.run(f.bug, done).real[+f.state.sentence]),
                    [...f.notes.lastChild.querySelectorAll(".attn-prints span")].map(mark => mark.className),
                    f.out.cells.map(row => row[4].classList.contains("attn-changed")),
                    with_class("attn-against")];
                }""",
                probe,
            )
            expected: list[str] = []  # of four outputs, then of four heads
            for part, (bug, right) in zip("OA", parts, strict=True):
                (now, old), (now_right, old_right) = (
                    np.array(pair, float) for pair in (bug, right)
                )
                moved, may = (
                    ~np.isclose(x, y, rtol=0, atol=1e-6, equal_nan=True)
                    for x, y in ((now, old), (now_right, old_right))
                )
                against = moved & ~may
                if part == "A":  # a weight on a hidden key, if the probe has brought it
                    later = ~np.tri(4, dtype=bool)
                    leaks, old_leaks = (
                        np.ravel(later | ~np.array(seen)) & ~(abs(x) < 1e-6)
                        for seen, x in zip(real, (now, old), strict=True)
                    )
                    leaks &= ~old_leaks.any(0)
                    assert np.ravel(framed).tolist() == (against | leaks)[0].tolist()
                else:
                    leaks = np.zeros_like(against)
                kind = np.where(moved.any(-1), "attn-may", "")
                kind = np.where(against.any(-1), "attn-against", kind)
                expected += list(
                    np.where(leaks.any(-1), "attn-against attn-leak", kind)
                )
            assert marks == expected, (seed, probe)
            assert red == [mark == "attn-against" for mark in marks[:4]]
            met |= set(marks)
    assert met == {"", "attn-may", "attn-against", "attn-against attn-leak"}


def test_the_small_maps_are_all_heads(page: Page) -> None:
    figure = page.locator("attn-bug")
    press(figure, "Again")
    for head in range(4):
        small = figure.locator(".attn-minis canvas").nth(2 * head + 1).evaluate(PIXELS)
        hit(figure.locator(".attn-minis button").nth(head), "Enter")
        settle(page)
        assert state(figure)["head"] == str(head)
        large = figure.locator("td[style*=background]").evaluate_all(
            "cells => cells.map(cell => cell.style.background.match(/\\d+/g).slice(0, 3).map(Number))"
        )
        assert small == large[:16]
    before = figure.locator(".attn-minis canvas").first
    assert before.is_hidden()
    old = figure.locator(".attn-minis canvas").nth(1).evaluate(PIXELS)
    press(figure, "new last token")
    assert before.is_visible() and before.evaluate(PIXELS) == old


PIXELS = """map => {
    const { data } = map.getContext("2d").getImageData(0, 0, 4, 4);
    return [...Array(16).keys()].map(i => [...data.slice(4 * i, 4 * i + 3)]);
}"""


def test_what_a_probe_moves_is_marked(page: Page) -> None:
    figure = page.locator("attn-bug")
    for probe in PROBES:
        press(figure, "Again")
        put(figure, probe=probe)
        marked = figure.locator("td.attn-moved").count()
        now, old = figure.evaluate(
            "(f, probe) => [probe, probe === 'swap' ? 'flat' : 'none'].map(p => f.run(f.bug, p))",
            probe,
        )
        A, B = (np.array(ran["A"], float)[0, 0] for ran in (now, old))
        O, P = (np.array(ran["O"], float)[0, :, :4] for ran in (now, old))
        assert marked == sum(np.sum(np.abs(x - y) >= 1e-6) for x, y in ((A, B), (O, P)))


def test_each_bug_shows_and_no_two_look_alike(page: Page) -> None:
    figure = page.locator("attn-bug")
    press(figure, "Again")
    ran = figure.evaluate(
        """(f, probes) => Object.fromEntries(["none", ...Object.keys(attn.bugs)].map(bug =>
            [bug, probes.flatMap(p => [f.run(bug, p).A, f.run(bug, p).O].flat(4))]))""",
        PROBES,
    )
    assert len(ran) == 22
    names = list(ran)
    for i, one in enumerate(names):
        for other in names[:i]:
            a, b = np.array(ran[one], float), np.array(ran[other], float)
            assert not np.allclose(a, b, rtol=1e-3, atol=1e-3, equal_nan=True), (one, other)  # fmt: skip


def test_each_bug_is_hidden_somewhere_and_its_entry_is_in_the_gallery(
    page: Page,
) -> None:
    bugs = page.evaluate("attn.bugs")
    seeds = {(8 * seed + 9) % 21 for seed in range(1, 22)}
    assert len(seeds) == len(bugs)
    page_text = (BOOK / "failure_gallery.ipynb").read_text(encoding="utf-8")
    headings = re.findall(r'"### (.+?)(?:\\n)?"', page_text)
    places = {nodes.make_id(heading.replace("`", "")) for heading in headings}
    assert {place for _, place, _ in bugs.values()} <= places


SHOWS = """f => {
    const state = f.state, found = {}, all = [0, 1, 2, 3], near = (x, y) => Math.abs(x - y) < 0.005;
    for (let seed = 1; seed <= 21; seed++) {
        f.state = { ...state, seed };
        const now = f.run(f.bug, "none");
        const sees = (b, i, j) => j <= i && now.real[b][j];
        const odd = all.some(b => all.some(h => all.some(i => {
            const row = now.A[b][h][i];
            return !near(attn.sum(row), 1) || row.some((w, j) => (sees(b, i, j) ? w < 1e-9 : w > 0.005));
        })));
        const by_hand = all.some(b => all.some(h => {
            f.state = { ...state, seed, sentence: String(b) };
            return f.compare(f.run(f.bug, "none"), h).rows.some(([, x, y]) => !near(x, y));
        }));
        const wrong = f.constructor.wrong(f);
        (found[odd ? "weights" : by_hand ? "by hand" : wrong ? "not at all" : "later"] ??= []).push(f.bug);
    }
    f.state = state;
    return found;
}"""


def test_as_many_bugs_show_as_the_page_says(page: Page) -> None:
    figure = page.locator("attn-bug")
    press(figure, "Again")
    found = {name: len(bugs) for name, bugs in figure.evaluate(SHOWS).items()}
    assert found == {"weights": 5, "by hand": 7, "later": 9}
    said = (BOOK / "failure_gallery.ipynb").read_text(encoding="utf-8")
    assert "Twelve are wrong as they stand. Five of them show in the weights" in said
    assert "Seven, such as" in said and "The other nine wait" in said


def test_tasks_of_the_bug(page: Page) -> None:
    figure = page.locator("attn-bug")
    press(figure, "Again", "right, until something is done to it")
    # To walk through a list commits nothing; a button does.
    hit(figure.get_by_label("The bug is"), "ArrowDown", "ArrowDown")
    assert state(figure)["probe"] == "none" and state(figure)["named"] == "?"
    press(figure, "new last token")
    assert state(figure)["probe"] == "last"
    heads = figure.get_by_role("group", name="Head").get_by_role("button")
    assert heads.all_inner_texts() == [f"head {h}" for h in range(4)]
    assert figure.locator(".attn-has-moved").count() == 4
    assert [head.get_attribute("aria-pressed") for head in heads.all()] == ["true", *["false"] * 3]  # fmt: skip
    choose(figure, "The bug is", "nan")
    press(figure, "Name it")
    assert verdict(figure).startswith("Your guess")
    assert "It is not “an empty row gives NaN”" in said(figure)
    noted = figure.locator(".attn-notebook li").all_inner_texts()
    assert noted == [
        "new last token: “the”, “cat”, “sat”, all heads moved, where a right layer stays; “[new]” moved",
        "an empty row gives NaN",
    ]
    assert figure.locator(".attn-notebook del").inner_text() == "an empty row gives NaN"
    choose(figure, "The bug is", "dropout")
    hit(figure.get_by_label("The bug is"), "ArrowDown")
    press(figure, "Name it")
    assert verdict(figure) == (
        "You guessed “right, until something is done to it”; it is “wrong as it stands”. It was “no causal mask”. "
        "What shows it: there are weights above the diagonal, and rows sum to 1."
    )
    link = figure.get_by_role("link", name="The entry in the gallery")
    assert link.get_attribute("href") == "#loss-goes-to-zero-and-generated-text-is-nonsense"  # fmt: skip
    press(figure, "Next task", "2 or 3", "Another layer")
    press(figure, "new last token", "swap tokens 0 and 1")
    for name in ("nan", "repeat"):
        choose(figure, "The bug is", name)
        press(figure, "Name it")
    assert verdict(figure).startswith("As you guessed. Probes: 2 (new last token;")
    assert "Wrong names: 1 (“an empty row gives NaN”). It was “repeat" in verdict(
        figure
    )


# The beam


@pytest.fixture(scope="module")
def translator() -> at.Translator:
    return translator_weights.translator()


def test_the_translator_is_the_chapters() -> None:
    written = translator_weights.SCRIPT.read_text(encoding="utf-8")
    assert written == translator_weights.script(), "python tools/translator_weights.py"


SEARCH = """([words, k]) => {
    const model = new attn.Translator(attn.translator), ids = words.map(word => attn.translator.words.indexOf(word));
    const steps = attn.beam_search(node => model.write(node), model.read(ids), 10, 10, k), { kept } = steps.at(-1);
    return [kept.map(node => node.said), kept.map(node => node.score), steps.map(({ kept: [node] }) => node.weights)];
}"""


def test_translations_and_weights_are_torchs(
    page: Page, translator: at.Translator, rng: np.random.Generator
) -> None:
    for trial in range(20):
        sentence = number_words(int(10 ** rng.uniform(0, 8.9)))
        ids, lengths = map(torch.from_numpy, encode_words([sentence]))
        k = 1 + trial % 4
        said, scores, weights = page.evaluate(SEARCH, [sentence.split(), k])
        with torch.no_grad():
            tokens, expected = translator.translate(ids, lengths, 10, k)
        np.testing.assert_allclose(scores, expected[0], atol=2e-4)
        for mine, theirs in zip(said, tokens[0].tolist(), strict=True):
            assert theirs == mine + [10] * (len(theirs) - len(mine))
        if k == 1:
            with torch.no_grad():
                _, A = translator(ids, lengths, torch.tensor(said))
            np.testing.assert_allclose(weights, A[0], atol=1e-5)


def beams_of(figure: Locator) -> list[list[Any]]:
    return figure.evaluate("({ greedy, beam }) => [greedy, beam]")


def test_small_models_are_searched_as_in_the_chapter(page: Page) -> None:
    parts = ("import numpy", 'Y = ["the"', "abc, even")
    known = chapter("08_translator/decoding", *parts)
    cases = {
        "trap": ("abcde.", known["trap"], 4),
        "dogs": (known["Y"], known["table"], 3),
    }
    figure = page.locator("attn-beam")
    for name, (Y, table, longest) in cases.items():
        choose(figure, "Model", name)
        for k in (1, 2, 3, 4):
            figure.get_by_label("Width k of the beam").fill(str(k))
            settle(page)
            put(figure, step=10)
            last = max(len(searched) for searched in beams_of(figure))
            assert state(figure)["step"] == last  # the slider ends with the search
            assert figure.get_by_label("Steps done").get_attribute("max") == str(last)
            step = known["small_model"](table, Y)
            start = np.zeros((1, 0), dtype=int)
            expected = []
            for width in (1, k):
                tokens, scores = an.beam_search(step, start, 5, longest, width)
                words = [Y[y] for y in tokens[0, 0] if y != 5]
                expected.append(f"“{' '.join(words)}”, {number(np.exp(scores[0, 0]))}")
            greedy, beam = expected
            assert said(figure).startswith(
                f"After step {last} greedy has {greedy}; a beam of {k} has {beam}"
            )
            tips = figure.locator(".attn-river text:is(.attn-of-greedy, .attn-of-beam)")
            told = {re.findall(r"[\d.]{3,}", tip)[0] for tip in tips.all_text_contents()}  # fmt: skip
            assert told == {text.partition(", ")[2] for text in expected}


def test_the_page_shows_the_translation(
    page: Page, translator: at.Translator, rng: np.random.Generator
) -> None:
    figure = page.locator("attn-beam")
    for trial in range(4):
        press(figure, "Again", "80,005")
        sentence = number_words(int(10 ** rng.uniform(0, 8.9)))
        text = sentence.replace(" ", "-" if trial == 1 else " ").title()
        figure.get_by_label("A number in words").fill(text + " eggs" * (trial == 2))
        figure.get_by_label("Width k of the beam").fill(str(1 + trial))
        put(figure, step=10)
        ids, lengths = map(torch.from_numpy, encode_words([sentence]))
        with torch.no_grad():
            rows = [translator.translate(ids, lengths, 10, k) for k in (1, 1 + trial)]
            said_ = rows[0][0][0]
            weights = translator(ids, lengths, said_)[1][0].numpy()
        pairs = re.findall(r"has “(\d+)”, (\d\.\d+)", said(figure))
        for (digits, p), (tokens, scores) in zip(pairs, rows, strict=True):
            assert digits == "".join(str(y) for y in tokens[0, 0].tolist() if y != 10)
            assert abs(float(p) - np.exp(scores[0, 0].item())) < 1e-3
        steps = min(10, 1 + int((said_ != 10).sum()))
        painted = figure.locator(".attn-weights rect")
        assert painted.count() == steps * len(sentence.split())
        fills = painted.evaluate_all(
            "cells => cells.map(cell => +cell.getAttribute('fill').match(/\\d+/g)[1])"
        )
        shares = weights[:steps].ravel()
        greens = page.evaluate("xs => xs.map(x => attn.colour('viridis', x)[1])", shares.tolist())  # fmt: skip
        np.testing.assert_allclose(fills, greens, atol=1)
        bars = figure.locator(".attn-next rect").evaluate_all(
            "bars => bars.map(bar => +bar.getAttribute('height') / 48)"
        )
        with torch.no_grad():
            odds = translator(ids, lengths, said_)[0][0].softmax(-1)
        top = odds[:steps].topk(3).values.numpy().ravel()
        np.testing.assert_allclose(bars, np.maximum(top, 1 / 48), atol=1e-4)
        assert ("left out: eggs" in figure.inner_text()) == (trial == 2)
        figure.get_by_label("A number in words").fill("")
        settle(page)
        assert "no word" in figure.inner_text()


def test_a_sentence_that_has_ended_goes_on_with_the_beam(page: Page) -> None:
    figure = page.locator("attn-beam")
    press(figure, "Again", "80,005")
    put(figure, step=10)
    tips = figure.locator(".attn-river text:is(.attn-of-greedy, .attn-of-beam)")
    assert tips.all_text_contents() == [
        "#1 0.974 beam greedy"
    ]  # it ended a step before
    press(figure, "Again")
    put(figure, step=10)  # the beam has dropped it
    assert len(tips.all_text_contents()) == 2


def test_branches_are_as_wide_as_their_probability(page: Page) -> None:
    """In the trap every beginning is drawn, and the heights of a column's are their probabilities."""
    figure = page.locator("attn-beam")
    press(figure, "Again")
    put(figure, step=10)
    drawn = figure.locator(".attn-bank").evaluate_all(
        """banks => banks.map(bank => [+bank.getAttribute("x"), +bank.getAttribute("height") / 150,
            bank.classList.contains("attn-kept")])"""
    )
    columns: dict[float, list[tuple[bool, float]]] = {}
    for x, share, kept in drawn:
        columns.setdefault(x, []).append((kept, round(share, 3)))
    assert [sorted(column) for column in columns.values()] == [
        [(True, 1)],
        [(False, 0.1), (True, 0.4), (True, 0.5)],
        [
            (False, 0.04),
            (False, 0.165),
            (False, 0.165),
            (False, 0.17),
            (True, 0.18),
            (True, 0.18),
        ],  # fmt: skip
        [*[(False, 0.045)] * 6, (False, 0.17), *[(True, 0.045)] * 2],
        [(True, 0.045)] * 2,
    ]


def test_tasks_of_the_beam(page: Page) -> None:
    figure = page.locator("attn-beam")
    press(
        figure, "Again", "no, it looks further", "Step by step"
    )  # at once, in reduced motion
    figure.get_by_label("Width k of the beam").fill("1")
    settle(page)
    figure.get_by_label("Width k of the beam").fill("2")
    settle(page)
    assert verdict(figure).startswith("Your guess")
    hit(figure.get_by_label("Width k of the beam"), "ArrowRight")
    assert verdict(figure) == (
        "You guessed “no, it looks further”; it is “yes”. "
        "Greedy ends with probability 0.170, k = 2 with 0.045, k = 3 with 0.170. "
        "In step 2 the greedy sentence, 0.170, stands behind two that begin with b, 0.180 each, "
        "and a beam of 2 drops it; then both of these split into four."
    )
    labels = figure.locator(".attn-river text").all_text_contents()
    ranked = ["#1 c 0.180", "#2 d 0.180", "#3 c 0.170", "#4 d 0.165", "#3 end 0.100"]
    assert {x.strip() for x in labels} >= {*ranked}  # of all that step 2 could keep
    assert state(figure)["k"] == 2  # of which the words speak
    press(figure, "Next task", "eighty", "80,005")
    steps = figure.get_by_label("Steps done")
    hit(steps, "Home")
    hit(steps, "ArrowRight")
    settle(page)
    hit(steps, "ArrowRight")
    assert verdict(figure).startswith("You guessed “eighty”; it is “thousand”.")
