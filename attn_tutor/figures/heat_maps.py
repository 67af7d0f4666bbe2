"""Heat maps: weights, masks, heads side by side, and positional encodings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, ListedColormap
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import ScaledTranslation, blended_transform_factory

from attn_tutor.figures.inputs import (
    Labels,
    array_of,
    check_shape,
    numbers,
    texts,
    weights_of,
)

__all__ = ["plot_encoding", "plot_heads", "plot_mask", "plot_weights"]

STYLE: dict[Any, Any] = {
    "font.size": 10, "axes.labelsize": 10, "axes.titlesize": 10, "legend.fontsize": 10,
    "xtick.labelsize": 9, "ytick.labelsize": 9, "xtick.major.size": 2, "ytick.major.size": 2,
    "figure.facecolor": "white", "axes.facecolor": "white", "savefig.facecolor": "white", "axes.grid": False,
    "text.color": "black", "axes.labelcolor": "black", "axes.titlecolor": "black", "axes.edgecolor": "black",
    "xtick.color": "black", "ytick.color": "black", "legend.labelcolor": "black",
}  # fmt: skip  # what belongs together on one line
WIDTH = 5.5  # inches; 390 px, a phone, then still give 9 px to 9 pt
PERMITTED, FORBIDDEN = "#9fd0f5", "#4a4a4a"


@contextmanager
def _style() -> Iterator[None]:
    with mpl.rc_context(STYLE):
        yield
        # A notebook's backend switches this on with the first figure, and shows no figure without it.
        interactive = mpl.is_interactive()
    mpl.interactive(interactive)


@_style()
def plot_weights(
    weights: Any,
    queries: Labels = None,
    keys: Labels = None,
    ax: Axes | None = None,
    *,
    vmax: float = 1.0,
) -> Axes:
    """Draw attention weights as a heat map: one row a query, one column a key.

    The scale runs from 0 to 1, so that one colour is one weight in every picture. Cells with room show their
    weight: 0 is a weight of exactly 0, 0.00 a small one.

    Args:
        weights: (n, m), none negative.
        queries: n labels for the rows; None numbers them from 0.
        keys: m labels for the columns; None numbers them from 0.
        ax: where to draw; None makes a new figure.
        vmax: the weight at the top of the scale; lower it where every weight is small.

    Returns:
        The Axes; ``images[0]`` holds the weights.

    Raises:
        TypeError: if ``weights`` are not real numbers.
        ValueError: if ``weights`` are not (n, m), are negative or not finite, or the labels do not fit.
    """
    array = weights_of("plot_weights", weights, "(n, m)", vmax)
    rows = texts("plot_weights", "queries", queries, array.shape[0])
    columns = texts("plot_weights", "keys", keys, array.shape[1])
    if ax is None:
        ax = _new_axes(array.shape, rows, columns)
    _colour_bar(_draw_cells(ax, array, rows, columns, "viridis", vmax), "weight", array)
    _settle([ax], columns)
    _write_weights([ax], array[None], vmax)
    return ax


@_style()
def plot_mask(
    mask: Any, queries: Labels = None, keys: Labels = None, ax: Axes | None = None
) -> Axes:
    """Draw which keys each query may attend to: light where it may, dark with a cross where it may not.

    Args:
        mask: (n, m), boolean, True = may attend.
        queries: n labels for the rows; None numbers them from 0.
        keys: m labels for the columns; None numbers them from 0.
        ax: where to draw; None makes a new figure.

    Returns:
        The Axes; ``images[0]`` holds the mask, ``lines[0]`` the crosses.

    Raises:
        TypeError: if ``mask`` is not boolean.
        ValueError: if ``mask`` is not (n, m), or the labels do not fit.
    """
    array = array_of(mask)
    if array.dtype != bool:
        raise TypeError(
            f"plot_mask: masks are boolean, True = may attend; got {array.dtype}"
        )
    check_shape("plot_mask", "mask", array, "(n, m)")
    rows = texts("plot_mask", "queries", queries, array.shape[0])
    columns = texts("plot_mask", "keys", keys, array.shape[1])
    if ax is None:
        ax = _new_axes(array.shape, rows, columns)
    _draw_cells(ax, array, rows, columns, ListedColormap([FORBIDDEN, PERMITTED]), 1)
    y, x = np.nonzero(~array)
    (crosses,) = ax.plot(x, y, "x", color="white")
    cross = Line2D([], [], marker="x", color="white", linestyle="none")
    ax.legend(
        [Patch(color=PERMITTED), (Patch(color=FORBIDDEN), cross)],
        ["may attend", "may not"],
        loc="upper left",
        bbox_to_anchor=(0, 0),
        borderpad=0,
        frameon=False,
        handlelength=1.2,
        handleheight=1.2,
    )
    _settle([ax], columns)
    size = min(6, 0.5 * _cell_points(ax).min())
    crosses.set(markersize=size, markeredgewidth=size / 6)
    return ax


@_style()
def plot_heads(
    weights: Any, queries: Labels = None, keys: Labels = None, *, vmax: float = 1.0
) -> np.ndarray:
    """Draw the weights of every head beside each other, on one colour scale.

    Args:
        weights: (h, n, m), none negative.
        queries: n labels for the rows; None numbers them from 0.
        keys: m labels for the columns; None numbers them from 0.
        vmax: the weight at the top of the scale; lower it where every weight is small.

    Returns:
        An array of h Axes, head 0 first; ``images[0]`` of each holds the weights of its head.

    Raises:
        TypeError: if ``weights`` are not real numbers.
        ValueError: if ``weights`` are not (h, n, m), are negative or not finite, or the labels do not fit.
    """
    array = weights_of("plot_heads", weights, "(h, n, m)", vmax)
    h, *shape = array.shape
    rows = texts("plot_heads", "queries", queries, shape[0])
    columns = texts("plot_heads", "keys", keys, shape[1])
    margins = _margins(rows, columns)
    width, gap = WIDTH - margins[0], np.array([0.15, 0.4])
    across = max(1, int(width / (_inches(shape, rows, columns, widest=0.9) + gap)[0]))
    down = math.ceil(h / across)
    across = math.ceil(h / down)  # rows of equal length look better
    panel = _inches(shape, rows, columns, widest=width / across - gap[0]) + gap
    figure, grid = plt.subplots(
        down,
        across,
        figsize=[across, down] * panel + margins,
        squeeze=False,
        layout="compressed",
    )
    axes = grid.ravel()[:h]
    for left_over in grid.ravel()[h:]:
        left_over.remove()
    for head, ax in enumerate(axes):
        image = _draw_cells(ax, array[head], rows, columns, "viridis", vmax)
        ax.set_title(f"head {head}")
        ax.label_outer()
    figure.colorbar(image, ax=axes, aspect=20 * down, **_scale(image, "weight", array))
    _settle(axes, columns)
    _write_weights(axes, array, vmax)
    return axes


@_style()
def plot_encoding(encoding: Any, ax: Axes | None = None) -> Axes:
    """Draw a positional encoding: one row a position, one column a dimension; white is 0.

    Args:
        encoding: (n, d).
        ax: where to draw; None makes a new figure.

    Returns:
        The Axes; ``images[0]`` holds the encoding.

    Raises:
        TypeError: if ``encoding`` is not real numbers.
        ValueError: if ``encoding`` is not (n, d), or not finite.
    """
    array = numbers("plot_encoding", "encoding", encoding, "(n, d)")
    if ax is None:
        ax = plt.subplots(figsize=(WIDTH, 3.6), layout="constrained")[1]
    largest = np.abs(array).max() or 1.0
    image = ax.imshow(array, cmap="PuOr", vmin=-largest, vmax=largest, aspect="auto")
    ax.set(xlabel="dimension", ylabel="position")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    ax.yaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    _colour_bar(image, "value", array)
    return ax


# How it is laid out


def _inches(
    shape: Sequence[int], rows: list[str], columns: list[str], widest: float
) -> np.ndarray:
    """Width and height of the cells together."""
    n, m = shape
    least = 0.15 if rows or columns else 0  # a label of 9 pt is 0.125 inch high
    side = np.clip(widest / max(n, m), least, 0.5)
    return side * np.array([m, n]) * _thicken(n, m)


def _thicken(n: int, m: int) -> np.ndarray:
    """Factors on a cell's width and height: a lone column or row is thicker, so that it can be seen."""
    return np.maximum(1, [0.15 * n / m, 0.15 * m / n])


def _margins(rows: list[str], columns: list[str]) -> np.ndarray:
    """Room in inches beside and above the cells, for the labels and the colour bar."""
    longest = [max(map(len, labels), default=2) for labels in (rows, columns)]
    return 0.08 * np.array(longest) + [1.1, 0.7]


def _new_axes(shape: Sequence[int], rows: list[str], columns: list[str]) -> Axes:
    size = _inches(shape, rows, columns, widest=3.6) + _margins(rows, columns)
    return plt.subplots(figsize=np.maximum(size, 1.8), layout="compressed")[1]


def _draw_cells(
    ax: Axes,
    array: np.ndarray,
    rows: list[str],
    columns: list[str],
    cmap: str | Colormap,
    vmax: float,
) -> AxesImage:
    width, height = _thicken(*array.shape)
    image = ax.imshow(array, cmap=cmap, vmin=0, vmax=vmax, aspect=height / width)
    ax.spines[:].set_visible(False)
    ax.xaxis.tick_top()
    ax.xaxis.set_label_position("top")
    ax.set(xlabel="key", ylabel="query")
    for axis, labels in ((ax.yaxis, rows), (ax.xaxis, columns)):
        if labels:
            # A token is text: "$$" and "$x$" are no formulas.
            axis.set_ticks(range(len(labels)), labels, parse_math=False)
        else:
            axis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    return image


def _scale(image: AxesImage, label: str, array: np.ndarray) -> dict[str, Any]:
    """How a colour bar is marked; an arrow says that values lie beyond its top."""
    low, high = image.get_clim()
    return {
        "label": label,
        "ticks": [low, (low + high) / 2, high],
        "format": "%.3g",
        "extend": "max" if array.max() > high else "neither",
    }


def _colour_bar(image: AxesImage, label: str, array: np.ndarray) -> None:
    """A bar as high as the picture, 0.1 inch to its right, whatever the layout of the figure is."""
    ax = image.axes
    inches: Any = ax.figure.dpi_scale_trans  # the stubs know no sum of transforms,
    edge: Any = ax.transAxes  # nor a translation by one that is not affine
    from_right_edge = inches + ScaledTranslation(1, 0, edge)
    bar = ax.inset_axes(
        (0.1, 0, 0.12, 1),
        transform=blended_transform_factory(from_right_edge, ax.transAxes),
    )
    ax.figure.colorbar(image, cax=bar, **_scale(image, label, array))


def _cell_points(ax: Axes) -> np.ndarray:
    """Width and height of a cell in points, as the figure is laid out now."""
    here, there = ax.transData.transform([[0, 0], [1, 1]])
    return np.abs(there - here) * 72 / ax.figure.dpi


def _settle(axes: Sequence[Axes] | np.ndarray, columns: list[str]) -> None:
    """Do what needs the final sizes: turn key labels wider than a cell, and part the cells if they are large."""
    # Only a drawn figure knows its layout.
    draw = axes[0].figure.canvas.figure.draw_without_rendering
    draw()
    room = _cell_points(axes[0])[0] * axes[0].figure.dpi / 72
    labels = axes[0].get_xticklabels()
    if columns and max(label.get_window_extent().width for label in labels) > room:
        for ax in axes:
            ax.tick_params(axis="x", labelrotation=90)
        draw()
    if min(_cell_points(axes[0])) > 12:
        for ax in axes:
            n, m = ax.images[0].get_size()
            ax.hlines(np.arange(n - 1) + 0.5, -0.5, m - 0.5, "white", linewidth=1)
            ax.vlines(np.arange(m - 1) + 0.5, -0.5, n - 0.5, "white", linewidth=1)


def _write_weights(
    axes: Sequence[Axes] | np.ndarray, array: np.ndarray, vmax: float
) -> None:
    """Write each weight into its cell, if the cells have room for 0.25 in 9 pt."""
    if (_cell_points(axes[0]) < (24, 14)).any():
        return
    for ax, weights in zip(axes, array, strict=True):
        for (row, column), weight in np.ndenumerate(weights):
            text = f"{weight:.2f}" if weight else "0"
            colour = "black" if weight > 0.43 * vmax else "white"
            ax.text(column, row, text, color=colour, ha="center", va="center", size=9)
