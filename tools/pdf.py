"""Print the built book to one PDF with bookmarks, page numbers, and links that lead from page to page.

python tools/pdf.py               writes _build/attn_tutor.pdf from _build/html
python tools/pdf.py FOLDER FILE   writes FILE from the built book in FOLDER

Chromium prints. A formula that fails or a picture that is missing stops it, and nothing is written.
"""

import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bs4 import BeautifulSoup
from chromium import chromium
from one_page import CONFIG, ROOT, Parts, one_page, toc
from playwright.sync_api import Browser, Error, Page, ViewportSize
from pypdf import PdfReader, PdfWriter
from pypdf.generic import NameObject, TextStringObject

PAPER = ViewportSize(width=658, height=1000)  # A4 within its margins, in CSS pixels

# Counts, and says what went wrong. A formula gets its TeX for those who listen; what is too wide gets smaller;
# paragraphs too short to be cut, or to stand under a heading alone, are marked for one_page.css.
READY = """() => {
    const faults = [];
    const words = (node) => node.textContent.trim().slice(0, 80);
    const formulas = document.querySelectorAll(".math"), pictures = document.images;
    for (const formula of formulas) {
        if (!formula.querySelector("mjx-container svg")) faults.push("a formula is not drawn: " + words(formula));
        if (formula.querySelector('mjx-merror, [data-mjx-error], [fill="red"]'))
            faults.push("a formula is wrong: " + words(formula));
    }
    for (const { math, typesetRoot } of MathJax.startup.document.math) {
        typesetRoot.querySelector("mjx-assistive-mml")?.remove();
        const drawn = typesetRoot.querySelector("svg");
        drawn?.removeAttribute("aria-hidden");
        drawn?.setAttribute("role", "img");
        drawn?.setAttribute("aria-label", math.trim());
    }
    for (const picture of pictures)
        if (!picture.complete || !picture.naturalWidth) faults.push("a picture is missing: " + picture.src);
    for (const wide of document.querySelectorAll("table, mjx-container[display], pre")) {
        const room = wide.parentElement.clientWidth;
        if (wide.scrollWidth > room) wide.style.zoom = room / wide.scrollWidth;
    }
    const lines = (text) => Math.round(text.offsetHeight / parseFloat(getComputedStyle(text).lineHeight));
    const texts = [...document.querySelectorAll("p, li")].map((text) => [text, lines(text)]);
    for (const [text, count] of texts) {
        text.classList.toggle("short", count < 3);
        text.classList.toggle("uncut", count < 6); // of four lines Chromium would cut off one
    }
    return { faults, formulas: formulas.length, pictures: pictures.length };
}"""
FILL_IN = """(pages) => {
    for (const place of document.querySelectorAll(".page-number"))
        place.textContent = pages["/" + decodeURIComponent(place.closest("a").hash.slice(1))];
}"""


def main(built: Path, target: Path) -> None:
    if not built.is_dir():
        sys.exit(f"There is no built book in {built}; type 'make book' first.")
    try:
        with chromium() as browser:
            print(print_book(browser, built, target, toc()))
    except (FileNotFoundError, Error) as error:
        sys.exit(f"The book cannot be printed: {str(error).splitlines()[0]}")


def print_book(browser: Browser, built: Path, target: Path, parts: Parts) -> str:
    """Write the PDF, and say what is in it."""
    sheet = target.with_suffix(".html")
    print("Putting the pages together …", flush=True)
    html = one_page(built, sheet, parts)
    sheet.write_text(html, encoding="utf-8")
    page = browser.new_page(viewport=PAPER)
    page.set_default_timeout(0)  # a slow machine takes its time
    page.emulate_media(media="print", color_scheme="light")
    print("Drawing the formulas …", flush=True)
    page.goto(sheet.as_uri())
    page.evaluate("Promise.all([MathJax.startup.promise, document.fonts.ready])")
    found = page.evaluate(READY)
    if found["faults"]:
        sys.exit("The book cannot be printed:\n  " + "\n  ".join(found["faults"]))
    print("Counting the pages …", flush=True)
    page.evaluate(FILL_IN, page_numbers(page))
    print("Printing …", flush=True)
    printed = page.pdf(
        outline=True, tagged=True, print_background=True, prefer_css_page_size=True
    )
    page.close()
    sheet.unlink()
    headings = re.findall("<h[1-6].*?</h[1-6]>", html, re.DOTALL)
    words = [BeautifulSoup(heading, "html.parser").get_text() for heading in headings]
    titles = [" ".join(title.split()) for title in words]
    pages = write(printed, target, titles)
    return f"{target}: {pages} pages, {found['formulas']} formulas, {found['pictures']} pictures"


def page_numbers(page: Page) -> dict[str, int]:
    """On which page each anchor comes to stand; all keeps its room and goes unpainted."""
    style = page.add_style_tag(content="body { visibility: hidden }")
    draft = PdfReader(io.BytesIO(page.pdf(prefer_css_page_size=True)))
    style.evaluate("node => node.remove()")
    pages = {
        name: draft.get_destination_page_number(place)
        for name, place in draft.named_destinations.items()
    }
    return {name: page + 1 for name, page in pages.items() if page is not None}


def write(printed: bytes, target: Path, titles: list[str]) -> int:
    """Add what Chromium leaves out, mend what it gets wrong, write the file, and count its pages."""
    writer = PdfWriter(io.BytesIO(printed), incremental=True)
    writer.add_metadata({"/Author": CONFIG["author"], "/Creator": "attn_tutor"})
    # Chromium 156 writes the title of a heading at the top of a page twice: "SoftmaxSoftmax".
    found = list(bookmarks(writer.root_object["/Outlines"].get_object()))
    if len(found) != len(titles):
        sys.exit(f"Chromium made {len(found)} bookmarks of {len(titles)} headings.")
    for bookmark, title in zip(found, titles, strict=True):
        bookmark[NameObject("/Title")] = TextStringObject(title)
    writer.write(target)
    return len(writer.pages)


def bookmarks(parent: Any) -> Iterator[Any]:
    """All that stand below one, in the order of the book."""
    child = parent.get("/First")
    while child is not None:
        bookmark = child.get_object()
        yield bookmark
        yield from bookmarks(bookmark)
        child = bookmark.get("/Next")


if __name__ == "__main__":
    given = [Path(argument).resolve() for argument in sys.argv[1:]]
    main(*(given or [ROOT / "_build/html", ROOT / "_build/attn_tutor.pdf"]))
