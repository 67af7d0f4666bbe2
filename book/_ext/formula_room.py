"""Until MathJax has drawn an inline formula, its TeX takes about the room that the formula will.

Otherwise lines break elsewhere once it is drawn, and on a phone the page jumps. Widths are in em, as in Computer
Modern, in which MathJax draws; a matrix in a line is left as it is. A comma does not begin a line, and a bracket does
not end one, because a formula stands between.
"""

import html
import re
from string import ascii_letters
from typing import Any

from sphinx.application import Sphinx

DRAWN = 1.098  # MathJax makes its letters as tall as those of the text around
SCRIPT = 0.707  # of a sub- or superscript, and of a small fraction
FORMULA = re.compile(
    r'([(\[“‘]*)(<span class="math notranslate nohighlight")>\\\((.*?)\\\)</span>([.,;:!?)\]”’]*)',
    re.DOTALL,
)
WORDS = re.compile(r"\\(?:text|mathrm|texttt|operatorname|mathtt|textit)\{([^{}]*)\}")
TOKEN = re.compile(r"\\[A-Za-z]+|\\.|\S")


def each(names: str, wide: float = 0) -> dict[str, float]:
    return dict.fromkeys(names.split(), wide)


SMALL = "53 43 43 52 47 55 48 58 35 41 52 30 88 60 48 50 46 45 47 36 57 48 72 57 49 47"
LARGE = (
    "75 76 76 83 76 75 79 89 50 63 89 68 105 89 76 75 79 76 65 70 77 77 105 85 76 72"
)
WIDTHS = {
    **{letter: int(wide) / 100 for letter, wide in zip(ascii_letters, f"{SMALL} {LARGE}".split(), strict=True)},
    **each("( )", 0.389), **each(r"[ ] , . ; : ! ' | \cdot \mid · \lvert \rvert", 0.278),
    **each(r"+ = < > - − ≤ ≥ ≈ \top", 0.778), **each(r"\to \mapsto \infty → \leftarrow", 1.0),
    **each(r"\ldots \dots \cdots", 1.17), **each(r"\delta \ell", 0.43), r"\varphi": 0.654,
    r"\sum": 1.389, r"\prod": 1.277,
    "~": 0.3, r"\ ": 0.25, r"\,": 0.167, r"\:": 0.222, r"\;": 0.278, r"\!": -0.167, r"\quad": 1.0, r"\qquad": 2.0,
}  # fmt: skip
RELATIONS = each(
    r"= < > ≤ ≥ ≈ ∈ → \le \ge \leq \geq \approx \ne \to \in \sim \mapsto \ll \gg \propto \equiv \leftarrow \mid"
)
SIGNS = each(r"+ - − · \cdot \times \odot \oplus \otimes \pm \circ")
NAMES = each(r"\exp \log \ln \max \min \sin \cos \tanh \arg \lim \dim")
FRACTIONS = {r"\frac": SCRIPT, r"\tfrac": SCRIPT, r"\dfrac": 1.0}
EMPTY = each(
    r"\left \right \bigl \bigr \big \Big \Bigl \Bigr \hat \tilde \bar \vec \overline \mathbb \mathcal \mathbf \mathrm"
)
# After these a sign belongs to what follows.
UNSIGNED = {*RELATIONS, *SIGNS, *NAMES, *"([,;|"}


def room(tex: str) -> float:
    """Width of an inline formula, in em of the text around it."""
    upright = WORDS.sub(lambda found: "{" + found[1].replace(" ", "~") + "}", tex)
    return DRAWN * row(TOKEN.findall(upright))


def row(tokens: list[str]) -> float:
    """Width of what stands before a closing brace; it is taken from the tokens."""
    wide, script, signed = 0.0, 0.0, False  # whether a sign would stand between two
    while tokens and tokens[0] != "}":
        token = tokens.pop(0)
        if token in ("^", "_"):  # one above the other
            script = max(script, SCRIPT * argument(tokens) + 0.05)
            continue
        wide, script = wide + script, 0.0
        if token == "{":
            tokens.insert(0, token)
            wide += argument(tokens)
        elif token in FRACTIONS:
            parts = argument(tokens), argument(tokens)
            wide += 0.5 + FRACTIONS[token] * max(parts)
        elif token == r"\sqrt":
            wide += 0.853 + argument(tokens)
        elif token in RELATIONS:
            wide += glyph(token) + 0.556
        elif token in SIGNS and signed:
            wide += glyph(token) + 0.444
        elif token in NAMES:
            wide += 0.5 * (len(token) - 1) + 0.167 * (tokens[:1] != ["("])
        elif token not in EMPTY:
            wide += glyph(token) + 0.167 * (token in ",;")
        if token not in EMPTY:
            signed = token not in UNSIGNED
    return wide + script


def argument(tokens: list[str]) -> float:
    """Width of a group in braces, or of one token."""
    while tokens[:1] and tokens[0] in EMPTY:
        tokens.pop(0)
    first = tokens.pop(0) if tokens else "}"
    if first != "{":
        return glyph(first)
    wide = row(tokens)
    del tokens[:1]
    return wide


def glyph(token: str) -> float:
    return WIDTHS.get(token, 0.55 if token[0] == "\\" else 0.5)


def make_room(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any
) -> None:
    def sized(found: re.Match[str]) -> str:
        opening, tag, tex, closing = found.groups()
        plain = html.unescape(tex)
        wide = "" if r"\begin" in plain else f' style="--room: {room(plain):.2f}em"'
        formula = rf"{tag}{wide}>\({tex}\)</span>"
        if opening or closing:
            return f'<span class="held">{opening}{formula}{closing}</span>'
        return formula

    if "body" in context:
        context["body"] = FORMULA.sub(sized, context["body"])


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("html-page-context", make_room)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
