"""The page of progress: which exercises are right, tried and open, chapter by chapter."""

import html
import re
from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from attn_tutor.live import pages, solutions

if TYPE_CHECKING:
    from attn_tutor.live.handlers import Reader

ARTICLE = re.compile(r'(<article class="bd-article">).*?(</article>)', re.DOTALL)
TITLE = re.compile(r"<title>.*?( &#8212; .*?)?</title>", re.DOTALL)


def page(shell: str, reader: "Reader") -> str:
    """A page of the book with the progress in place of its text."""
    shell = TITLE.sub("<title>Your progress</title>", shell, count=1)
    # The search page's scripts have nothing to do here.
    shell = re.sub(r'<script[^>]*(?:search\w*|searchindex)\.js[^>]*></script>', "", shell)  # fmt: skip
    article = table(reader)
    return ARTICLE.sub(lambda found: found[1] + article + found[2], shell, count=1)


def table(reader: "Reader") -> str:
    rows, titles = states(reader), chapters(reader.folder / "book")
    total = Counter(row.state for row in rows)
    words = ", ".join(f"{total[state]} {state}" for state in ("right", "tried", "open"))
    shown = [
        f'<section id="progress"><h1>Your progress</h1><p>{len(rows)} functions to write: {words}. '
        "Your answers are in <code>my_solutions.py</code>, your changes of the cells in <code>my_edits/</code>.</p>"
    ]
    for chapter, found in groupby(rows, lambda row: row.chapter):
        shown.append(
            f'<h2>{chapter}. {html.escape(titles[chapter])}</h2><table class="table">'
        )
        for row in found:
            link = f'<a href="{row.address}">{html.escape(row.title)}</a>'
            name = f"<td><code>{row.name}</code></td>"
            shown.append(
                f'<tr><th scope="row">{link}</th>{name}<td>{row.state}</td></tr>'
            )
        shown.append("</table>")
    return "\n".join([*shown, "</section>"])


def chapters(book: Path) -> dict[int, str]:
    found = book.glob("[0-9][0-9]_*.ipynb")
    return {int(path.name[:2]): pages.read(path).title for path in found}


class Row(NamedTuple):
    chapter: int
    name: str
    title: str
    address: str
    state: str


def states(reader: "Reader") -> list[Row]:
    """Of each function that an exercise asks for, where it is asked for and how far its reader is."""
    from attn_tutor.check import EXERCISES

    book = reader.folder / "book"
    right, rows = reader.verdicts.read(), dict[str, Row]()
    for path in sorted(book.rglob("*.ipynb")):
        page = pages.read(path)
        place = path.relative_to(book.parent).with_suffix(".html").as_posix()
        for label, node in page.asked:
            name = pages.exercise_of(node)
            if name not in EXERCISES:
                continue
            kept = solutions.read(reader.solutions, name)
            untouched = kept in (None, pages.stub(node, EXERCISES[name].statement))
            tried = "right" if kept == right.get(name) else "tried"
            rows.setdefault(
                name,
                Row(
                    chapter=EXERCISES[name].chapter,
                    name=name,
                    title=page.titles[label],
                    address=f"{place}#{label}",
                    state="open" if untouched else tried,
                ),
            )
    return sorted(rows.values(), key=lambda row: row.chapter)
