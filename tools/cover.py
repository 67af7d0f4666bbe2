"""The cover of the book on paper: its title, its version, and weights that the package computed."""

from html import escape

from matplotlib import colormaps
from matplotlib.colors import to_hex

import attn_tutor
import attn_tutor.numpy as an

POSITIONS, WIDTH = 28, 32
SHARPNESS = 0.6  # of the scores: each query then looks at a few keys
GAP = 0.06  # of a cell


def cover(title: str, author: str, year: str) -> str:
    name, _, promise = title.partition(": ")
    return f"""<div class="cover">
<p class="cover-name">{escape(name)}</p><p class="cover-promise">{escape(promise)}</p>
{drawing()}
<p class="cover-words">The weights of causal attention between {POSITIONS} positions, each a row and a column</p>
<p class="cover-foot"><span>Version {attn_tutor.__version__}</span><span>© {year} {escape(author)}</span></p>
</div>"""


def drawing() -> str:
    """Sinusoidal encodings that attend to one another: one square a weight, none where a query may not look."""
    P = an.sinusoidal_encoding(POSITIONS, WIDTH)
    weights = an.attention_weights(P, P, causal=True, scale=SHARPNESS)
    side = 1 - GAP
    squares = "".join(
        f'<rect x="{column}" y="{row}" width="{side}" height="{side}" fill="{to_hex(colormaps["viridis"](shade))}"/>'
        for row, line in enumerate(weights**0.5)
        for column, shade in enumerate(line[: row + 1])
    )
    words = "A triangle of coloured squares: the weights of causal attention."
    return f'<svg role="img" aria-label="{words}" viewBox="0 0 {POSITIONS} {POSITIONS}">{squares}</svg>'
