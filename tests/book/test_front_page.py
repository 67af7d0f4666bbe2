"""The front page: what its code prints is what it shows, and the main line has every page."""

import io
import re
from contextlib import redirect_stdout
from pathlib import Path

import book_pages
from bs4 import BeautifulSoup

BOOK = Path(__file__).parents[2] / "book"
TEXT = (BOOK / "intro.md").read_text(encoding="utf-8")


def test_the_first_code_prints_what_is_shown() -> None:
    found = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", TEXT, re.DOTALL)
    assert found
    with redirect_stdout(io.StringIO()) as printed:
        exec(found[1], {})
    assert printed.getvalue() == found[2]


def test_the_opening_has_one_link_to_start_and_a_figure_with_its_still() -> None:
    figure = re.search(
        r"<attn-(\w+)>\n\n!\[.{40,}\]\(_static/attn-\1\.png\)\n\n</attn-\1>", TEXT
    )
    assert figure and figure.start() < TEXT.index("\n## ")
    start = TEXT.index("**Start here: [chapter 1](01_queries_keys_values.ipynb)")
    assert start < figure.start()


def test_the_main_line_has_every_page_with_its_minutes(book: Path) -> None:
    """The numbers are those of the clock, and nothing but the clock writes them."""
    page = BeautifulSoup(
        (book / "book" / "intro.html").read_text("utf-8"), "html.parser"
    )
    part = page.select_one(".main-line")
    assert part
    said = " ".join(part.get_text().split())
    for main, further in book_pages.toc().items():
        for path in (main, *further):
            notebook = book_pages.Notebook(path)
            words = f"{notebook.number} {notebook.title} ({notebook.minutes} minutes)"
            assert words.replace("'", "’") in said
    assert not re.search(r"\d+ minutes", TEXT)
