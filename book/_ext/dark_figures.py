"""Give each figure a twin for dark pages; the theme of the page says which of the two is seen, and so which is loaded.

The twin has the same hues, and two of its colours the contrast that they have in the light figure, with light and dark
changed over: black letters on white become light letters on the dark ground of the page. Where colours stand for
numbers, in heat maps with their colour bars and legends, they stay as they are. `tools/figure_data.py` puts on record
where that is.
"""

import io
import os
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from docutils import nodes
from PIL import Image
from sphinx.application import Sphinx

Array = np.ndarray[Any, np.dtype[Any]]

GROUND = (0x12, 0x12, 0x12)  # of the dark theme
BRIGHTEST = 0.85  # luminance of what was black: full white glares
VIVID = 4  # times a colour's strength squared: the least luminance that it keeps
STILL = "attn-"  # stands in for a figure that moves on paper and without scripts: there is no dark there

# The colour space Oklab (B. Ottosson, 2020): lightness, and two coordinates of hue.
TO_CONES = np.array([
    [0.4122214708, 0.5363325363, 0.0514459929],
    [0.2119034982, 0.6806995451, 0.1073969566],
    [0.0883024619, 0.2817188376, 0.6299787005],
])  # fmt: skip  # one row a line
TO_LAB = np.array([
    [0.2104542553, 0.7936177850, -0.0040720468],
    [1.9779984951, -2.4285922050, 0.4505937099],
    [0.0259040371, 0.7827717662, -0.8086757660],
])  # fmt: skip


def linear(colours: Any) -> Array:
    """Amounts of light, from colours of 0 to 255."""
    x = np.asarray(colours) / 255
    return np.where(x <= 0.04045, x / 12.92, ((x + 0.055) / 1.055) ** 2.4)


def from_linear(light: Array) -> Array:
    x = np.where(light <= 0.0031308, light * 12.92, 1.055 * light ** (1 / 2.4) - 0.055)
    return np.asarray((255 * x).round(), dtype=np.uint8)


def luminance(light: Array) -> Array:
    return np.asarray(light @ [0.2126, 0.7152, 0.0722])


def dark(colours: Any) -> Array:
    """Colours (n, 3) of 0 to 255 as the dark figure has them."""
    light, ground = linear(colours), luminance(linear(GROUND))
    # The contrast of two colours is the quotient of luminance + 0.05: kept where white becomes the ground.
    wanted = 1.05 * (ground + 0.05) / (luminance(light) + 0.05) - 0.05
    wanted = wanted.clip(max=BRIGHTEST)
    lab = np.cbrt(light @ TO_CONES.T) @ TO_LAB.T
    # Orange and yellow lines, faint on white already, may be brighter.
    wanted = wanted.clip(min=VIVID * (lab[:, 1:] ** 2).sum(1))
    low, high = np.zeros(len(lab)), np.full(len(lab), 1.5)
    for _ in range(20):  # halve until the lightness gives that luminance
        lab[:, 0] = (low + high) / 2
        light = (lab @ np.linalg.inv(TO_LAB).T) ** 3 @ np.linalg.inv(TO_CONES).T
        light = light.clip(0, 1)
        below = luminance(light) < wanted
        low, high = np.where(below, lab[:, 0], low), np.where(below, high, lab[:, 0])
    return from_linear(light)


def dark_picture(png: bytes, heat_maps: list[str]) -> bytes:
    """The dark twin of a picture of at most 256 colours; in the boxes of ``heat_maps`` it is the same."""
    picture: Image.Image = Image.open(io.BytesIO(png))
    if picture.mode != "P":
        picture = picture.convert("RGB").quantize()
    palette = np.array(picture.getpalette("RGB"), np.uint8).reshape(-1, 3)
    colours = np.resize(palette, (256, 3))
    number = np.array(picture, dtype=np.uint16)
    for box in heat_maps:
        size = np.tile(number.shape[::-1], 2)
        left, top, right, bottom = np.array(box.split(), float) * size
        inside = number[int(top) : round(bottom), round(left) : round(right)]
        inside %= 256
        inside += 256
    colours = np.concatenate([dark(colours), colours])
    used = np.flatnonzero(np.bincount(number.ravel()))
    twin = Image.fromarray(colours[number])
    if len(used) <= 256:  # most have few enough for the smaller kind of file
        place = np.zeros(512, np.uint8)
        place[used] = range(len(used))
        twin = Image.fromarray(place[number])
        twin.putpalette(colours[used].tobytes())
    twin.save(file := io.BytesIO(), "PNG")
    return file.getvalue()


def dark_drawing(svg: str) -> str:
    def changed(found: re.Match[str]) -> str:
        return "#" + dark([list(bytes.fromhex(found[1]))])[0].tobytes().hex()

    # A path without a fill is black.
    svg = svg.replace("<svg ", '<svg fill="#000000" ', 1)
    return re.sub(r"#([0-9a-fA-F]{6})\b", changed, svg)


def add_twins(app: Sphinx, doctree: nodes.document) -> None:
    if app.builder.format != "html":
        return
    for image in list(doctree.findall(nodes.image)):
        path = Path(app.env.relfn2path(image["uri"], app.env.docname)[1])
        if path.name.startswith(STILL):
            continue
        if path.suffix == ".svg":
            image["width"], image["height"] = drawn_size(path.read_text("utf-8"))
        twin = image.deepcopy()
        twin["uri"] = address(app, dark_file(app, path, heat_maps(image)))
        for each, theme in ((image, "light"), (twin, "dark")):
            each["classes"].append(f"in-{theme}")
            each["loading"] = "lazy"  # what is not seen is not loaded
        twin["classes"].append("dark-light")  # the theme dims the others
        image.parent.insert(image.parent.index(image) + 1, twin)


def heat_maps(image: nodes.image) -> list[str]:
    """Those on record for the cell whose output the image is."""
    node = image.parent
    while node is not None and node.get("nb_element") != "cell_code":
        node = node.parent
    record = node["cell_metadata"].get("figure_data", []) if node else []
    return [box for axes in record for box in axes.get("heat_maps", [])]


def dark_file(app: Sphinx, path: Path, boxes: list[str]) -> Path:
    content = path.read_bytes()
    name = sha256(content + repr(boxes).encode()).hexdigest()[:24]
    file = Path(app.outdir).parent / "dark_figures" / f"{name}{path.suffix}"
    file.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".svg":
        file.write_text(dark_drawing(content.decode()), encoding="utf-8")
    else:
        file.write_bytes(dark_picture(content, boxes))
    return file


def drawn_size(svg: str) -> list[str]:
    """Width and height, in which matplotlib counts points, in pixels."""
    points = re.findall(r'<svg.*? width="([\d.]+)pt" height="([\d.]+)pt"', svg, re.S)
    return [f"{float(size) * 96 / 72:.0f}px" for size in points[0]]


def address(app: Sphinx, file: Path) -> str:
    return "/" + Path(os.path.relpath(file, app.srcdir)).as_posix()


def setup(app: Sphinx) -> dict[str, bool]:
    # Before Sphinx collects the images.
    app.connect("doctree-read", add_twins, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
