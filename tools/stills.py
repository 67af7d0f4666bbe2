"""Photograph each figure that moves, at its start or in its own "still", for print and for pages without scripts.

python tools/stills.py    writes book/_static/attn-*.png; needs Chromium
"""

import io
import sys
from pathlib import Path

from chromium import chromium
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from playwright.sync_api import Locator, Page

ROOT = Path(__file__).resolve().parents[1]
STATIC = ROOT / "book" / "_static"
sys.path.append(str(ROOT / "book" / "_ext"))
import moving_figures  # noqa: E402 — its folder is known from the line above on

FIGURES = moving_figures.figures()
SHOWS = "shows"  # a picture says in its own file what it shows, so that a test sees it grow old


def page_of(*figures: str, style: str = "") -> str:
    """A page of its own with figures, with the scripts that the book loads."""
    return "\n".join(
        [
            '<!doctype html><html lang="en" data-theme="light"><head><meta charset="utf-8"><title>Figures</title>',
            '<meta name="viewport" content="width=device-width">',
            *(
                f'<link rel="stylesheet" href="{(STATIC / sheet).as_uri()}">'
                for sheet in ("fonts.css", "attn.css")
            ),
            "<style>body { margin: 1rem; font-family: var(--book-text) } * { box-sizing: border-box }",
            f'html[data-theme="dark"] {{ background: #14181e; color: #ddd }} {style}</style>',
            *(
                f'<script defer src="{(STATIC / script).as_uri()}"></script>'
                for script in moving_figures.scripts(*figures)
            ),
            "</head><body><main><h1>Figures</h1>",
            *(
                f'<attn-{name}><p class="still">still {name}</p></attn-{name}>'
                for name in figures
            ),
            "</main></body></html>",
        ]
    )


def at_its_best(figure: Locator) -> str:
    """Set a figure to the state for its still, its start or what it names for print, and return what it says there."""
    return str(
        figure.evaluate(
            """figure => {
                Object.assign(figure.state, figure.constructor.still);
                figure.redraw();
                return figure.sentence;
            }"""
        )
    )


def photograph(page: Page, name: str) -> None:
    figure = page.locator(f"attn-{name}")
    says = at_its_best(figure)
    picture = Image.open(io.BytesIO(figure.locator(".attn-live").screenshot()))
    note = PngInfo()
    note.add_text(SHOWS, says)
    few = picture.convert("RGB").quantize(128, kmeans=1, dither=Image.Dither.NONE)
    few.save(STATIC / f"attn-{name}.png", optimize=True, pnginfo=note)


def main() -> None:
    with chromium() as browser:
        page = browser.new_page(
            viewport={"width": 760, "height": 900},
            device_scale_factor=2,
            reduced_motion="reduce",  # nothing is photographed on its way
        )
        sheet = ROOT / "_build" / "stills.html"
        sheet.parent.mkdir(exist_ok=True)
        dead = ".attn-task, .attn-controls, .attn-words, .attn-foot { display: none !important }"
        sheet.write_text(page_of(*FIGURES, style=dead), encoding="utf-8")
        page.goto(sheet.as_uri())
        page.evaluate("document.fonts.ready")
        for name in FIGURES:
            photograph(page, name)


if __name__ == "__main__":
    main()
