"""head_view: the still and the moving figure show the weights they were given, whatever the tokens are."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from attn_tutor.figures import head_view

RNG = np.random.default_rng(4)
WEIGHTS = RNG.dirichlet(np.ones(5), size=(2, 3, 4))  # (n_layers, h, n=4, m=5)
WEIGHTS[1, 2, 3] = [0, 0.25, 0.75, 0, 0]
TOKENS = ["The", " cat</script><b>&\"'", "\n", "$x_1$"]
KEYS = [" ", "a", "b", "</svg>", "d\t"]


@pytest.fixture
def view():
    return head_view(torch.from_numpy(WEIGHTS), TOKENS, KEYS, layer=1, head=2)


def test_picture_has_a_line_for_each_weight_that_can_be_seen(view):
    (ax,) = view.picture().axes
    drawn = {tuple(line.get_ydata() / 24 - 0.5): line.get_alpha() for line in ax.lines}
    assert drawn == {
        (i, j): pytest.approx(WEIGHTS[1, 2, i, j], abs=1 / 500)
        for i, j in np.argwhere(WEIGHTS[1, 2] > 0.018)
    }
    assert (drawn[3, 1], drawn[3, 2]) == (64 / 255, 191 / 255)
    assert [text.get_text() for text in ax.texts] == [
        "The", TOKENS[1], "↵", "$x_1$", "␣", "a", "b", "</svg>", "d⇥",
    ]  # fmt: skip
    assert ax.get_title() == "layer 1, head 2: query → key"
    assert view._repr_png_().startswith(b"\x89PNG")


def test_html_loads_nothing_and_reads_no_token_as_html(view):
    page = view._repr_html_()
    assert "cat&lt;/script&gt;&lt;b&gt;&amp;&quot;&#x27;" in page
    assert page.count("</script>") == page.count("</svg>") == 1
    assert "<b>" not in page and "$x_1$" in page
    # MathJax passes over what has these classes: a token is text, and no formula.
    assert re.match('<div class="[^"]*tex2jax_ignore mathjax_ignore"', page)
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|\b(src|href)=", page)
    assert view._repr_html_() == page


def test_one_layer_alone_and_queries_that_are_the_keys():
    view = head_view(WEIGHTS[0, :, :, :4], TOKENS)
    assert view.weights.shape == (1, 3, 4, 4) and view.keys == view.tokens == TOKENS


@pytest.mark.parametrize(
    ("weights", "options", "error", "message"),
    [
        (WEIGHTS[0, 0], {}, ValueError, r"weights has shape \(4, 5\); needs \(n_layers, h, n, m\)"),
        (WEIGHTS * 3, {}, ValueError, "needs at most 1"),
        (-WEIGHTS, {}, ValueError, "never negative"),
        (WEIGHTS, {"keys": KEYS[1:]}, ValueError, "keys has 4 labels; needs 5"),
        (WEIGHTS, {"keys": None}, ValueError, "keys has 4 labels; needs 5"),
        (WEIGHTS, {"layer": 2}, ValueError, "layer must be below 2, got 2"),
        (WEIGHTS, {"head": -1}, ValueError, "head"),
        (WEIGHTS * 1j, {}, TypeError, "real numbers"),
    ],
)  # fmt: skip
def test_errors(weights, options, error, message):
    with pytest.raises(error, match=f"head_view.*{message}"):
        head_view(weights, TOKENS, **{"keys": KEYS} | options)


@pytest.fixture(scope="module")
def page(visit, tmp_path_factory):
    file = tmp_path_factory.mktemp("head_view") / "view.html"
    view = head_view(WEIGHTS, TOKENS, KEYS, layer=1, head=2)
    file.write_text(
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>t</title><main>{view._repr_html_() * 2}</main>',
        encoding="utf-8",
    )
    with visit(file) as page:
        yield page


def lines(figure):
    read = "all => all.map(x => ['y1', 'y2', 'stroke-opacity'].map(a => Number(x.getAttribute(a))))"
    drawn = figure.locator("line").evaluate_all(read)
    return {(int(y // 24), int(z // 24)): weight for y, z, weight in drawn}


def expected(layer, head, rows=range(4)):
    return {
        (i, j): pytest.approx(WEIGHTS[layer, head, i, j], abs=3e-3)
        for i, j in np.argwhere(WEIGHTS[layer, head] > 0.018)
        if i in rows
    }


def test_in_a_browser_one_chooses_layer_head_and_query(page):
    first, second = page.locator(".attn-head-view").all()
    assert lines(first) == expected(1, 2)
    first.get_by_label("layer").select_option("0")
    first.get_by_label("head").select_option("1")
    assert lines(first) == expected(0, 1)
    first.get_by_label("query").select_option("3")
    assert lines(first) == expected(0, 1, [2])
    best = WEIGHTS[0, 1, 2].argmax()
    said = first.locator("output").text_content()
    assert re.match(rf"most on {best}: .*, {WEIGHTS[0, 1, 2, best]:.2f}$", said)
    first.locator("[data-query='0']").click()
    assert lines(first) == expected(0, 1, [0])
    first.locator("[data-query='0']").click()
    assert lines(first) == expected(0, 1)
    assert lines(second) == expected(1, 2)  # two views know nothing of each other


def test_the_still_is_what_the_script_draws(page, view):
    still = re.findall(r"<line[^>]*>", view._repr_html_())
    second = page.locator(".attn-head-view").nth(1)
    assert second.locator("line").count() == len(still)
    for mark, line in zip(still, second.locator("line").all(), strict=True):
        for name, value in re.findall(r'([\w-]+)="([^"]*)"', mark):
            assert line.get_attribute(name) == value


def test_a_browser_finds_it_accessible(page):
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"]})  # fmt: skip
    assert not found.response["violations"], found.generate_report()
