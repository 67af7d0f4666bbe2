"""What a notebook's figures show, in numbers: pictures cannot be compared as text, their data can.

An extension of IPython, loaded by the kernels that run the notebooks. `tools/notebooks.py` asks for a record of each
figure and keeps it in the metadata of its cell. In the tests, a figure that differs from its record is an error
of its cell.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

KEY = "figure_data"
RECORD = "ATTN_TUTOR_RECORD_FIGURES"  # set: record; not set: compare
MIME = f"application/x-{KEY}+json"
TOLERANCE = 0.02  # of the largest number: training differs a little between processors
WATCHED: list[list[dict[str, Any]]] = []  # of the figures of this cell


def watch(figure: Any) -> list[dict[str, Any]]:
    """The data of each axes, once the figure has been drawn: as saved, with its parts where readers see them."""
    found: list[dict[str, Any]] = []

    def drawn(event: Any) -> None:
        found[:] = [of_axes(ax) | heat_maps(ax) for ax in figure.axes]

    for _ in range(2 if os.environ.get(RECORD) else 0):  # until the layout rests
        figure.draw_without_rendering()
    figure.canvas.mpl_connect("draw_event", drawn)
    return found


def of_axes(ax: Any) -> dict[str, list[str]]:
    words = [ax.get_title(), ax.get_xlabel(), ax.get_ylabel()]
    texts = [*ax.texts, *(ax.get_legend().texts if ax.get_legend() else [])]
    words += [text.get_text() for text in texts]
    points = [line.get_xydata() for line in ax.lines]
    points += [many.get_offsets() for many in ax.collections]
    for many in [*ax.patches, *ax.collections]:
        points += outline(many)
    shown = [column for each in points for column in each.T]
    shown += [many.get_array() for many in [*ax.images, *ax.collections]]
    shown += [dots.get_sizes() for dots in ax.collections if hasattr(dots, "get_sizes")]
    return {
        "words": [word for word in words if word],
        "numbers": [summary(x) for x in shown if x is not None and len(x)],
    }


def heat_maps(ax: Any) -> dict[str, list[str]]:
    """Where colours stand for numbers: cells, their colour bars and the patches of their legends.

    Left, top, right and bottom, as fractions of the saved picture. The dark picture of the book keeps these colours.
    """
    from matplotlib.collections import QuadMesh
    from matplotlib.transforms import Bbox

    if hasattr(ax, "_colorbar"):  # kept or not with what it explains
        return {}
    cells = [*ax.images, *(m for m in ax.collections if isinstance(m, QuadMesh))]
    cells += [many for many in ax.collections if getattr(many, "filled", False)]
    shown = [Bbox.intersection(x.get_window_extent(), ax.bbox) for x in cells]
    bars = [each.colorbar.outline for each in cells if each.colorbar]
    legends = filter(None, [ax.get_legend(), *ax.figure.legends]) if cells else ()
    patches = [patch for legend in legends for patch in legend.get_patches()]
    shown += [part.get_window_extent() for part in [*bars, *patches]]
    return {"heat_maps": [fractions(ax.figure, box) for box in shown]} if shown else {}


def fractions(figure: Any, box: Any) -> str:
    """A box of pixels in the picture that a notebook saves, which is cut to what is drawn."""
    size = figure.bbox.size  # while it is saved, of what is drawn
    x = box.intervalx / size[0]
    y = 1 - box.intervaly[::-1] / size[1]
    return " ".join(f"{each:.4f}" for each in (x[0], y[0], x[1], y[1]))


def outline(drawn: Any) -> list[Any]:
    """The corners of a patch, or of all in a collection, in the units of the axes."""
    import numpy as np

    if hasattr(drawn, "get_paths"):
        corners = [path.vertices for path in drawn.get_paths() if len(path.vertices)]
    else:
        path = drawn.get_patch_transform().transform_path(drawn.get_path())
        corners = [path.vertices]
    if hasattr(drawn, "levels"):  # how many corners a contour has varies
        corners = [np.stack([each.min(0), each.max(0)]) for each in corners]
    return [np.concatenate(corners)] if corners else []


def summary(x: Any) -> str:
    """How many, smallest, largest, mean, and a mean with weights from -1 to 1, which knows the order."""
    import numpy as np

    x = np.ma.filled(np.ma.masked_invalid(np.asarray(x, dtype=float)), 0).ravel()
    tilt = x @ np.linspace(-1, 1, x.size) / x.size
    digits = 3 - int(np.floor(np.log10(np.abs(x).max() or 1)))
    parts = (round(float(y), digits) + 0.0 for y in (x.min(), x.max(), x.mean(), tilt))
    return " ".join([str(x.size), *(f"{y:.10g}" for y in parts)])


def differences(old: Any, new: Any) -> list[str]:
    if len(old) != len(new):
        return [f"{len(new)} axes, and {len(old)} on record"]
    found = []
    for i, (was, now) in enumerate(zip(old, new, strict=True)):
        if was["words"] != now["words"]:
            found.append(f"axes {i}: words {now['words']}, on record {was['words']}")
        if not same_places(*(each.get("heat_maps", []) for each in (was, now))):
            found.append(f"axes {i}: a heat map at another place")
        if len(was["numbers"]) != len(now["numbers"]):
            found.append(f"axes {i}: another number of lines, images or dots")
            continue
        for a, b in zip(was["numbers"], now["numbers"], strict=True):
            if not alike(a, b):
                found.append(f"axes {i}: {b}, on record {a}")
    return found


def same_places(old: list[str], new: list[str]) -> bool:
    pairs = zip(" ".join(old).split(), " ".join(new).split(), strict=False)
    near = (abs(float(x) - float(y)) <= TOLERANCE for x, y in pairs)
    return len(old) == len(new) and all(near)


def alike(old: str, new: str) -> bool:
    (size, *was), (count, *now) = (map(float, x.split()) for x in (old, new))
    allowed = TOLERANCE * max(map(abs, was))
    pairs = zip(was, now, strict=True)
    return size == count and all(abs(x - y) <= allowed for x, y in pairs)


def on_record(source: str) -> Any:
    """The record of the cell with this source, in the notebooks beside which the kernel runs."""
    for path in Path.cwd().glob("*.ipynb"):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            if "".join(cell["source"]) == source:
                return cell["metadata"].get(KEY)
    return None


def of_view(view: Any) -> dict[str, list[str]]:
    """What `head_view` shows: of each layer, at which key its queries look on average."""
    centres = view.weights @ range(len(view.keys))
    return {"words": [*view.tokens, *view.keys], "numbers": [*map(summary, centres)]}


def before_figures_close() -> None:
    if "matplotlib.pyplot" in sys.modules:
        from matplotlib import pyplot as plt

        WATCHED.extend(watch(plt.figure(number)) for number in plt.get_fignums())


def after_cell(shell: Any, result: Any) -> None:
    from IPython.display import display

    new = [axes for figure in WATCHED for axes in figure]
    WATCHED.clear()
    if type(result.result).__name__ == "HeadView":
        new.append(of_view(result.result))
    if new and os.environ.get(RECORD):
        display({MIME: new}, raw=True)
    elif new:
        source = shell.kernel.get_parent()["content"]["code"]
        if found := differences(on_record(source) or [], new):
            raise AssertionError(
                f"not the figure on record: {'; '.join(found)}; `make notebooks` records it anew"
            )


def load_ipython_extension(shell: Any) -> None:
    # Registered before matplotlib is there, and so called before it shows and closes the figures.
    shell.events.register("post_execute", before_figures_close)
    shell.events.register("post_run_cell", lambda result: after_cell(shell, result))
