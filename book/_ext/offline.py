"""Make the built book readable with no network, and mend what others write that is invalid or shuts readers out."""

import re
import shutil
from base64 import b64encode
from importlib.util import find_spec
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.errors import ExtensionError

# SVG output needs no web fonts, which browsers refuse to load from file://.
MATHJAX = "tex-svg.js"

# (what the theme writes, what it should write), over every page
FIXES = [
    # The name that a screen reader says must be the text that stands there.
    (r'<summary aria-label="Toggle hidden content">', "<summary>"),
    (r'(<button class="btn search-button-field[^>]*?) aria-label="Search"', r"\1"),
    (r'(<button class="[^"]*theme-switch-button[^>]*?) aria-label="Color mode"', r"\1"),
    (
        r'<summary>(<span class="toctree-toggle")',
        r'<summary aria-label="Pages below this one">\1',
    ),
    # A deprecated role, forbidden outside its own kind of list.
    (r'role="doc-biblioentry"', 'role="listitem"'),
    # The same id at each exercise, solution, theorem and proof; no paragraph may stand in a summary.
    (r'(<section[^>]*) id="(?:exercise|solution|proof)-content"', r"\1"),
    (r'<div class="proof admonition" id="proof">', '<div class="proof admonition">'),
    (
        r'<p class="(collapsed|expanded) admonition-title">(.*?)</p>',
        r'<span class="\1">\2</span>',
    ),
    (
        r"Solution to<a ([^>]*)> ",
        r"Solution to <a \1>",
    ),  # the gap is no part of the link
    (r'\s+autocorrect="off"', ""),  # not yet in the standard
    # A picture that is not loaded yet keeps its room by its attributes; book.css reckons with the width too.
    (
        r'(<img [^>]*)style="width: (\d+)px; height: (\d+)px;"',
        r'\1width="\2" height="\3" style="--width: \2px"',
    ),
    # The first page of the folder, which only leads to the introduction.
    (
        r'\A<meta http-equiv="Refresh" content="0; url=(.*?)" />\s*\Z',
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>attn_tutor</title>\n'
        r'<meta http-equiv="Refresh" content="0; url=\1"></head>'
        "\n"
        r'<body><main><h1><a href="\1">The book</a></h1></main></body></html>'
        "\n",
    ),
]


def point_to_mathjax(app: Sphinx, config: Config) -> None:
    config.mathjax_path = f"mathjax/{MATHJAX}"
    # Its menu would make each formula a stop of the Tab key, and offers what is only to be had with a network.
    config.mathjax3_config = {"options": {"enableMenu": False}}


def finish(app: Sphinx, failure: Exception | None) -> None:
    if failure is not None or app.builder.format != "html":
        return
    static = Path(app.outdir) / "_static"
    copy_mathjax(static / "mathjax")
    put_fonts_into(static / "fonts.css")
    for page in Path(app.outdir).rglob("*.html"):
        old = page.read_text(encoding="utf-8")
        new = mend(old)
        if new != old:
            page.write_text(new, encoding="utf-8")


def copy_mathjax(target: Path) -> None:
    """Copy the program and the TeX extensions that it loads on demand."""
    package = find_spec(
        "sphinx-mathjax-offline"
    )  # carries MathJax's files; its own extension goes unused
    if package is None or package.origin is None:
        raise ExtensionError(
            "MathJax is missing; install it with: pip install sphinx-mathjax-offline"
        )
    source = Path(package.origin).parent / "static" / "mathjax"
    extensions = Path("input", "tex", "extensions")
    shutil.copytree(source / extensions, target / extensions, dirs_exist_ok=True)
    shutil.copyfile(source / MATHJAX, target / MATHJAX)


def put_fonts_into(sheet: Path) -> None:
    """Put each font where its address stands, since Firefox loads none from file://."""

    def data(found: re.Match[str]) -> str:
        font = b64encode((sheet.parent / found[1]).read_bytes()).decode()
        return f"url(data:font/woff2;base64,{font})"

    style = sheet.read_text(encoding="utf-8")
    sheet.write_text(re.sub(r"url\((fonts/.*?)\)", data, style), encoding="utf-8")


def mend(page: str) -> str:
    for wrong, right in FIXES:
        page = re.sub(wrong, right, page)
    return page


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("config-inited", point_to_mathjax)
    # Late, when the first page is written too.
    app.connect("build-finished", finish, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
