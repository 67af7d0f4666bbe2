"""Tokens in two columns and a line for each weight between them; in a notebook, one chooses layer, head and query.

After BertViz (Vig, 2019).
"""

import base64
import html
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from attn_tutor._checks import require_size
from attn_tutor.figures.inputs import Labels, texts, weights_of

__all__ = ["HeadView", "head_view"]

SCRIPT = Path(__file__).with_name("head_view.js")
ROW, LEFT, RIGHT, WIDTH = 24, 150, 290, 440  # pixels: a line a token, where lines end
COLOUR = "#2f7fc1"  # is seen on white and on black
LEAST = 5  # of 255: weights below 0.02 get no line


def head_view(
    weights: Any,
    tokens: Sequence[Any],
    keys: Labels = None,
    *,
    layer: int = 0,
    head: int = 0,
) -> "HeadView":
    """Show where the heads of a model look: a line from each query to each key, the stronger the larger the weight.

    As the last line of a cell it is a figure in which one chooses the layer, the head and a query; it loads nothing
    from the network. ``.picture()`` is the still of it. Weights are rounded to 1/255.

    Args:
        weights: (n_layers, h, n, m), or (h, n, m) of one layer, each between 0 and 1.
        tokens: n labels for the queries.
        keys: m labels for the keys; None takes those of the queries.
        layer: the layer that is shown first.
        head: the head that is shown first.

    Returns:
        What a notebook shows, with the weights in ``.weights``, (n_layers, h, n, m).

    Raises:
        TypeError: ``weights`` are not real numbers, or ``layer`` or ``head`` no whole numbers.
        ValueError: ``weights`` have other axes, lie outside 0 … 1, the labels do not fit, or there is no such head.
    """
    where = "head_view"
    axes = "(n_layers, h, n, m)"
    if np.ndim(weights) == 3:
        weights = weights[None]
    array = weights_of(where, weights, axes, 1.0)
    if array.max() > 1.001:
        raise ValueError(f"{where}: a weight is {array.max():.3g}; needs at most 1")
    n_layers, h, n, m = array.shape
    rows = texts(where, "tokens", tokens, n)
    columns = texts(where, "keys", tokens if keys is None else keys, m)
    for name, chosen, stop in (("layer", layer, n_layers), ("head", head, h)):
        require_size(where, name, chosen)
        if chosen >= stop:
            raise ValueError(f"{where}: {name} must be below {stop}, got {chosen}")
    return HeadView(array, rows, columns, layer, head)


@dataclass(repr=False)
class HeadView:
    """What :func:`head_view` returns: a notebook shows it moving, a PDF as a picture."""

    weights: np.ndarray
    tokens: list[str]
    keys: list[str]
    layer: int
    head: int

    def __repr__(
        self,
    ) -> str:  # without an address, so that a notebook run twice is the same
        return f"HeadView(layer={self.layer}, head={self.head})"

    def picture(self) -> Figure:
        """The chosen head, every query at once."""
        height = ROW * max(len(self.tokens), len(self.keys))
        figure = Figure(figsize=(WIDTH / 80, height / 80 + 0.4), layout="constrained")
        ax = figure.add_subplot(xlim=(0, WIDTH), ylim=(height, 0))
        ax.set_axis_off()
        ax.set_title(f"layer {self.layer}, head {self.head}: query → key", size=10)
        for i, j, level in self._lines():
            ends = [ROW * (i + 0.5), ROW * (j + 0.5)]
            ax.plot([LEFT, RIGHT], ends, color=COLOUR, alpha=level / 255, linewidth=2)
        for x, side, words in (
            (LEFT, "right", self.tokens),
            (RIGHT, "left", self.keys),
        ):
            for i, word in enumerate(words):
                y = ROW * (i + 0.5)
                shift = -6 if side == "right" else 6
                ax.text(
                    x + shift,
                    y,
                    visible(word),
                    ha=side,
                    va="center",
                    size=9,
                    parse_math=False,
                )
        return figure

    def _repr_png_(self) -> bytes:
        self.picture().savefig(file := BytesIO(), format="png", dpi=160)
        return file.getvalue()

    def _repr_html_(self) -> str:
        """Words are escaped, weights are letters of base64: nothing of them can be read as HTML or as a script."""
        n_layers, h, n, m = self.weights.shape
        height = ROW * max(n, m)
        data = base64.b64encode(self._levels().tobytes()).decode()
        lines = "".join(line(i, j, level) for i, j, level in self._lines())
        words = column("query", self.tokens) + column("key", self.keys)
        queries = [f"{i}: {visible(word)}" for i, word in enumerate(self.tokens)]
        chosen = (
            select("layer", range(n_layers), self.layer)
            + select("head", range(h), self.head)
            + select("query", ["all", *queries], 0)
        )
        return (
            # MathJax, which notebooks run on what a cell shows, leaves out what has one of the other classes.
            '<div class="attn-head-view tex2jax_ignore mathjax_ignore" '
            f'data-shape="{n_layers},{h},{n},{m}" data-weights="{data}">'
            f'<p hidden>{chosen}<output aria-live="polite"></output></p>'
            f'<svg role="group" aria-label="Attention weights as lines from queries, left, to keys, right" '
            f'viewBox="0 0 {WIDTH} {height}" style="max-width:{WIDTH}px;width:100%" fill="currentColor" font-size="14">'
            f'<g stroke="{COLOUR}" stroke-width="2">{lines}</g>{words}</svg>'
            f"<script>{SCRIPT.read_text(encoding='utf-8')}</script></div>"
        )

    def _levels(self) -> np.ndarray:
        return np.rint(255 * self.weights.clip(0, 1)).astype(np.uint8)

    def _lines(self) -> list[tuple[int, int, int]]:
        """Query, key and weight in 1/255 of each line of the chosen head."""
        levels = self._levels()[self.layer, self.head]
        return [
            (int(i), int(j), int(levels[i, j])) for i, j in np.argwhere(levels >= LEAST)
        ]


def visible(word: str) -> str:
    """A token as a label: line ends and tabs get a sign, a token of blanks too."""
    word = word.replace("\n", "↵").replace("\t", "⇥")
    return word if word.strip() else "␣" * max(1, len(word))


def line(i: int, j: int, level: int) -> str:
    y = [ROW * k + ROW // 2 for k in (i, j)]
    return f'<line x1="{LEFT}" y1="{y[0]}" x2="{RIGHT}" y2="{y[1]}" stroke-opacity="{level / 255:.3f}"/>'


def column(side: str, labels: Sequence[str]) -> str:
    """Queries end to the left of the lines, keys begin to their right."""
    x, anchor = (LEFT - 6, "end") if side == "query" else (RIGHT + 6, "start")
    return "".join(
        f'<text x="{x}" y="{ROW * i + 16}" text-anchor="{anchor}" data-{side}="{i}">{html.escape(visible(word))}</text>'
        for i, word in enumerate(labels)
    )


def select(name: str, choices: Sequence[Any], chosen: int) -> str:
    options = "".join(
        f'<option value="{i}"{" selected" * (i == chosen)}>{html.escape(str(choice))}</option>'
        for i, choice in enumerate(choices)
    )
    return f'<label>{name} <select name="{name}">{options}</select></label> '
