"""Draw the picture beside a link to the book that somebody shares: python tools/card.py; needs Chromium"""

from pathlib import Path

from chromium import chromium

ROOT = Path(__file__).resolve().parents[1]
STATIC = ROOT / "book" / "_static"
PAGE = """
<style>
  body { margin: 0; height: 630px; display: grid; grid-template-columns: 390px 1fr; gap: 70px; align-items: center;
         padding: 0 90px; box-sizing: border-box; background: #fff; color: #222; font: 38px/1.35 sans-serif }
  svg { width: 390px; height: 390px }
  h1 { margin: 0 0 24px; font-size: 66px; line-height: 1.1; color: #1f5f8f }
</style>
%s
<div><h1>Learn attention by building it</h1>Queries, keys and values, in NumPy and in torch.</div>
"""


def main() -> None:
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1200, "height": 630})
        page.set_content(PAGE % (STATIC / "favicon.svg").read_text(encoding="utf-8"))
        page.screenshot(path=STATIC / "card.png")


if __name__ == "__main__":
    main()
