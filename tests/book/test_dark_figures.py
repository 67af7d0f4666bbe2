"""On a dark page the figures are dark: letters keep their contrast, hues stay, and heat maps stay as they are."""

import base64
import colorsys
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import book_pages
import dark_figures
import figure_data
import numpy as np
import pytest
from bs4 import BeautifulSoup
from IPython.core.pylabtools import print_figure
from matplotlib import pyplot as plt
from PIL import Image

from attn_tutor.figures import plot_mask

GROUND = list(dark_figures.GROUND)
BOOK = Path(__file__).parents[2] / "book"
COLOURS = {"blue": (31, 119, 180), "red": (214, 39, 40), "green": (44, 160, 44), "pale": (159, 208, 245)}  # fmt: skip
STILL = "attn-"


def luminance(colour: Any) -> float:
    x = np.asarray(colour) / 255
    light = np.where(x <= 0.04045, x / 12.92, ((x + 0.055) / 1.055) ** 2.4)
    return float(light @ [0.2126, 0.7152, 0.0722])


def contrast(one: Any, other: Any) -> float:
    dim, bright = sorted([luminance(one), luminance(other)])
    return (bright + 0.05) / (dim + 0.05)


def pixels(png: bytes) -> np.ndarray:
    return np.array(Image.open(io.BytesIO(png)).convert("RGB"))


# The colours


def test_white_becomes_the_ground_of_the_page_and_black_is_read_on_it() -> None:
    white, black = dark_figures.dark([[255] * 3, [0] * 3])
    assert white.tolist() == GROUND
    assert contrast(black, GROUND) >= 12


@pytest.mark.parametrize("name", COLOURS)
def test_a_colour_keeps_its_hue_and_its_contrast(name: str) -> None:
    [found] = dark_figures.dark([COLOURS[name]])
    before, after = contrast(COLOURS[name], [255] * 3), contrast(found, GROUND)
    assert after == pytest.approx(before, rel=0.02)
    old, new = (
        colorsys.rgb_to_hsv(*(float(x) / 255 for x in c))[0]
        for c in (COLOURS[name], found)
    )
    assert min(abs(old - new), 1 - abs(old - new)) < 0.06


def test_a_line_that_is_faint_on_white_is_seen_on_the_dark_page() -> None:
    for faint in (
        (255, 127, 14),
        (253, 231, 37),
    ):  # matplotlib's orange, viridis' yellow
        [found] = dark_figures.dark([faint])
        assert contrast(faint, [255] * 3) < 2.6 and contrast(found, GROUND) > 2.9
    assert (
        contrast(dark_figures.dark([(255, 229, 207)])[0], GROUND) < 1.3
    )  # a pale area


def test_light_and_dark_change_places() -> None:
    greys = np.repeat(np.arange(40, 256, 5)[:, None], 3, axis=1)
    found = [luminance(colour) for colour in dark_figures.dark(greys)]
    assert found == sorted(set(found), reverse=True)


def test_a_drawing_is_changed_like_a_picture() -> None:
    svg = '<svg id="a#1"><path d="M 0 0"/><path style="fill: #ffffff; clip-path: url(#p36a2d1299a)"/></svg>'
    found = dark_figures.dark_drawing(svg)
    assert "fill: #121212" in found and "url(#p36a2d1299a)" in found
    [letters] = dark_figures.dark([[0] * 3])
    default = BeautifulSoup(found, "html.parser").select("svg")[0]["fill"]
    assert default == "#" + letters.tobytes().hex()


# The pictures


@pytest.fixture(scope="module")
def twins() -> tuple[np.ndarray, np.ndarray, list[str]]:
    """A mask as a notebook saves it, its dark twin, and where its cells stand."""
    ax = plot_mask(np.tri(5, 7, dtype=bool))
    record = figure_data.watch(ax.figure)
    png = print_figure(ax.figure, fmt="retina")
    plt.close()
    [axes] = record
    few = Image.open(io.BytesIO(png)).convert("RGB").quantize(256)
    few.save(file := io.BytesIO(), "PNG")
    twin = dark_figures.dark_picture(file.getvalue(), axes["heat_maps"])
    return pixels(file.getvalue()), pixels(twin), axes["heat_maps"]


def test_cells_keep_every_pixel_and_what_is_around_them_is_dark(twins: Any) -> None:
    light, twin, (cells, *legend) = twins
    height, width, _ = light.shape
    left, top, right, bottom = np.array(cells.split(), float) * ([width, height] * 2)
    inside = np.s_[round(top) : round(bottom), round(left) : round(right)]
    np.testing.assert_array_equal(twin[inside], light[inside])
    assert inside[1].start > 20 and inside[0].start > 20
    around = twin.copy()
    around[inside] = GROUND
    assert (twin[[0, 0, -1, -1], [0, -1, 0, -1]] == GROUND).all()
    assert np.median(around.reshape(-1, 3), axis=0).tolist() == GROUND
    assert len(legend) == 2


def test_a_legend_has_the_colours_of_the_cells(twins: Any) -> None:
    light, twin, (cells, *legend) = twins
    found = {"light": set(), "dark": set()}
    for name, picture in zip(found, (light, twin), strict=True):
        height, width, _ = picture.shape
        for box in legend:
            x = (
                (np.array(box.split(), float) * ([width, height] * 2))
                .round()
                .astype(int)
            )
            found[name].add(tuple(picture[x[1] + 4, x[0] + 4].tolist()))
    assert found["light"] == found["dark"] and len(found["dark"]) == 2


def test_letters_outside_the_cells_can_be_read(twins: Any) -> None:
    light, twin, _ = twins
    letters = twin[:, :40][(light[:, :40] < 60).all(axis=2)]  # of the label "query"
    assert len(letters) > 50
    assert min(contrast(letter, GROUND) for letter in letters) >= 4.5


def test_a_picture_of_many_colours_keeps_them_all() -> None:
    """256 in the boxes and their 256 twins around them are more than a palette has room for."""
    ramp = np.zeros((20, 256, 3), np.uint8)
    ramp[..., 0] = ramp[..., 1] = np.arange(256)
    light = Image.fromarray(ramp).quantize(256)
    light.save(file := io.BytesIO(), "PNG")
    boxes = ["0.25 0.5 0.75 1.0", "0 0.9 1 1"]  # the second over the first
    twin = pixels(dark_figures.dark_picture(file.getvalue(), boxes))
    wanted = pixels(file.getvalue())
    above = dark_figures.dark(wanted[0])
    wanted[:10] = wanted[10:18] = above
    wanted[10:18, 64:192] = wanted[19, 64:192]
    np.testing.assert_array_equal(twin, wanted)


# The pages


def images(page: Path) -> list[Any]:
    _, _, article = page.read_text(encoding="utf-8").partition("<article")
    tags = "".join(re.findall(r"<img [^>]*>", article.partition("</article>")[0]))
    return BeautifulSoup(tags, "html.parser").find_all("img")


def test_every_figure_of_every_page_has_its_twin(book: Path) -> None:
    number = 0
    for page in sorted((book / "book").glob("**/*.html")):
        found = [x for x in images(page) if STILL not in str(x["src"])]
        for light, twin in zip(found[::2], found[1::2], strict=True):
            assert ("in-light" in light["class"], "in-dark" in twin["class"]) == (1, 1)
            assert all(light.get(k) == twin.get(k) for k in ("alt", "width", "height"))
            assert light["loading"] == twin["loading"] == "lazy"
            assert light["src"] != twin["src"], page.name
            number += 1
    assert number >= 60


@pytest.mark.parametrize(
    "name", [str(p.relative_to(BOOK).with_suffix("")) for p in book_pages.notebooks()]
)
def test_pictures_of_a_chapter_are_dark_but_for_their_heat_maps(
    book: Path, name: str
) -> None:
    cells = json.loads((BOOK / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    pictures = [
        (base64.b64decode(output["data"]["image/png"]), cell["metadata"]["figure_data"])
        for cell in cells
        for output in cell.get("outputs", [])
        if "image/png" in output.get("data", {})
        and "text/html" not in output["data"]  # head_view: the page has its lines
    ]
    page = book / "book" / f"{name}.html"
    dark = [x for x in images(page) if "in-dark" in x.get("class", [])]
    files = [page.parent / str(x["src"]) for x in dark if "png" in str(x["src"])]
    for (light, record), file in zip(pictures, files, strict=True):
        before, after = pixels(light), pixels(file.read_bytes())
        assert before.shape == after.shape
        assert np.abs(after[0, 0].astype(int) - GROUND).max() <= 2
        height, width, _ = before.shape
        for box in (box for axes in record for box in axes.get("heat_maps", [])):
            x = (
                (np.array(box.split(), float) * ([width, height] * 2))
                .round()
                .astype(int)
            )
            inside = np.s_[x[1] + 1 : x[3] - 1, x[0] + 1 : x[2] - 1]
            np.testing.assert_array_equal(after[inside], before[inside])


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_page_shows_and_loads_the_twins_of_its_theme_alone(
    book: Path, visit: Callable[..., Any], theme: str
) -> None:
    other = {"light": "dark", "dark": "light"}[theme]
    path = book / "book" / "08_translator.html"
    with visit(path, color_scheme=theme) as page:
        for image in page.locator(f"img.in-{theme}").all():
            image.scroll_into_view_if_needed()
            image.evaluate("image => image.decode()")
        assert page.locator(f"img.in-{theme}:visible").count() >= 5
        assert page.locator(f"img.in-{other}:visible").count() == 0
        assert page.locator("figcaption:visible").count() >= 5
        style = "body => getComputedStyle(body).backgroundColor"
        ground = {"light": [255] * 3, "dark": GROUND}[theme]
        assert page.locator("body").evaluate(style) == f"rgb{tuple(ground)}"
        frame = (
            "image => getComputedStyle(image).padding + getComputedStyle(image).filter"
        )
        looks = page.locator(f".cell_output img.in-{theme}").evaluate_all(
            f"images => images.map({frame})"
        )
        assert set(looks) == {"0pxnone"}
        shown, hidden = (
            page.locator(f"img.in-{x}").evaluate_all(
                "images => images.map(image => image.complete && image.naturalWidth)"
            )
            for x in (theme, other)
        )
        assert all(shown) and not any(hidden)
