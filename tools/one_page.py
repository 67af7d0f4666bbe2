"""The built book as one page of HTML, made for paper: cover, contents, every page of the toc, the solutions at the end.

The ids of each page get its name before them, so that links between pages become links within the one.
"""

import os
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag, urlsplit

from bs4 import BeautifulSoup, Tag
from cover import cover

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "book" / "_ext"))
from book_pages import settings, toc_file  # noqa: E402 — its folder is known from the line above on

CONFIG = settings()
STYLE = Path(__file__).with_name("one_page.css")

# Controls that can only be pressed, and code that only draws, which the screen folds away too; the notebooks have it.
DROPPED = "a.headerlink, .notebook-link, .toctree-wrapper, details.hide, .sd-tab-set > input, script, button, .in-dark"

# Tabs: paper has the first of two, which holds NumPy's.
DROPPED += ", .sd-tab-content ~ label, .sd-tab-content ~ .sd-tab-content"
# A question stands where the text has answered it, and its answer in the list at the end.
DROPPED += (
    ", :not(.recall-page) > .recall > .recall-answer, .recall-deck, .recall-place"
)
NOTE = "Where a page on the screen has two tabs, NumPy and torch, this book prints NumPy; torch has the same names."
NOTE += " Questions in italics are answered on the page Remember."

# Words of code without a colour of their own, which would be a third of the PDF's weight.
UNCOLOURED = "pre span.n, pre span.p, pre span.w, pre span:empty"


Parts = dict[str, list[str]]  # the pages of each part


def toc() -> Parts:
    """The pages of each part of _toc.yml, however deep; the first page stands alone."""
    found = toc_file()
    parts = {part["caption"]: list(files(part["chapters"])) for part in found["parts"]}
    return {"": [found["root"]]} | parts


def files(entries: list[dict[str, Any]]) -> Iterator[str]:
    for entry in entries:
        yield entry["file"]
        yield from files(entry.get("sections", []))


def one_page(built: Path, target: Path, listed: Parts) -> str:
    """The parts of the book; ``target`` is the file that the text is meant for, and relative addresses start there."""
    inside = {file for names in listed.values() for file in names}
    parts = {
        caption: [Page(built, file, target, inside) for file in names]
        for caption, names in listed.items()
    }
    pages = [page for part in parts.values() for page in part]
    body, contents = "", ""
    for caption, part in parts.items():
        body += heading("part", caption) * bool(caption)
        contents += entry("part", caption) * bool(caption)
        body += "".join(page.text() for page in part)
        contents += "".join(entry(*line) for page in part for line in page.entries())
    solved = [page for page in pages if page.solutions]
    solutions = [heading("solutions", page.title) + page.solutions for page in solved]
    body += f'<div class="solutions">{heading("part", "Solutions")}{"".join(solutions)}</div>'
    contents += entry("part", "Solutions")
    contents += "".join(entry("solutions", page.title) for page in solved)
    head = dict.fromkeys(tag for page in pages for tag in page.head)
    style = STYLE.read_text(encoding="utf-8") + "".join(page.running for page in pages)
    title, note = escape(CONFIG["title"]), f'<p class="note">{NOTE}</p>'
    front = cover(CONFIG["title"], CONFIG["author"], CONFIG["copyright"])
    return f"""<!doctype html>
<html lang="{CONFIG["sphinx"]["config"]["language"]}" data-theme="light" data-mode="light">
<head><meta charset="utf-8"><title>{title}</title>{"".join(head)}<style>{style}</style></head>
<body>
{front}
<main class="bd-main"><div class="bd-content"><div class="bd-article-container"><article class="bd-article">
<div class="contents">{contents}{note}</div>
{body}
</article></div></div></main></body></html>
"""


class Page:
    """A page of the built book, ready to stand among the others."""

    def __init__(self, built: Path, file: str, target: Path, inside: set[str]) -> None:
        self.built, self.file, self.target = built.resolve(), file, target
        self.inside = inside  # every page that the book on paper has
        self.path = self.built / f"{file}.html"
        soup = BeautifulSoup(self.path.read_text(encoding="utf-8"), "html.parser")
        head = list(soup.select('link[rel="stylesheet"], script'))
        head = [
            tag for tag in head if tag.name == "link" or "mathjax" in str(tag).lower()
        ]
        article = soup.select_one("article.bd-article")
        assert article is not None, f"{self.path} has no article"
        for tag in article.select(DROPPED):
            tag.decompose()
        for tag in article.select("details"):
            tag["open"] = ""
        for tag in article.select(UNCOLOURED):
            tag.unwrap()
        for tag in article.select("[loading]"):
            del tag["loading"]  # paper does not scroll
        for tag in [*head, *article.find_all(True)]:
            self.relink(tag)
        self.head, self.article = list(map(str, head)), article
        self.title = " ".join(self.headings()[0].get_text().split())
        self.running = (
            f'@page {slug(file)} {{ @top-center {{ content: "{self.title}" }} }}\n'
        )
        self.solutions = self.take_solutions()
        for tag in self.headings():  # the parts stand above the pages
            tag["aria-level"] = str(int(tag.name[1]) + 1)

    def headings(self) -> list[Tag]:
        return self.article.select("h1, h2, h3, h4, h5")

    def text(self) -> str:
        name = slug(self.file)
        return f'<div class="page" id="{name}" style="page: {name}">{self.article.decode_contents()}</div>\n'

    def entries(self) -> list[tuple[str, str, str]]:
        """The lines of the contents: kind, title and id of the page and of its sections."""
        sections = self.article.select("section > h2")
        parents = [tag.find_parent("section", id=True) for tag in sections]
        names = [str(parent["id"]) for parent in parents if parent]
        pairs = zip(sections, names, strict=True)
        listed = [("section", tag.get_text(), name) for tag, name in pairs]
        return [("page-title", self.title, slug(self.file)), *listed]

    def relink(self, tag: Tag) -> None:
        if "id" in tag.attrs:
            tag["id"] = self.anchor(self.file, str(tag["id"]))
        for key in tag.attrs.keys() & {"href", "src"}:
            address, anchor = urldefrag(str(tag[key]))
            if urlsplit(address).scheme:
                continue
            path = unquote(urlsplit(address).path)
            file = (self.path.parent / path).resolve() if path else self.path
            page = file.relative_to(self.built).with_suffix("").as_posix()
            if tag.name != "a":
                tag[key] = os.path.relpath(file, self.target.parent)
            elif page in self.inside:
                tag[key] = "#" + self.anchor(page, unquote(anchor))
            else:
                del tag[key]  # a download, or a page that the toc does not have

    def take_solutions(self) -> str:
        """Take the solutions out, and say in each exercise where its own is."""
        taken = ""
        for solution in self.article.select(".solution"):
            link = f'<a href="#{solution["id"]}">Solution: page <span class="page-number"></span></a>'
            exercise = solution.find_previous(class_="exercise")
            assert exercise  # every solution follows its own
            # The solution's box holds it, so that no page comes between them.
            exercise.append(
                BeautifulSoup(f'<p class="to-solution">{link}</p>', "html.parser")
            )
            taken += str(solution.extract())
        return taken

    @staticmethod
    def anchor(file: str, anchor: str) -> str:
        return f"{slug(file)}--{anchor}" if anchor else slug(file)


def heading(kind: str, title: str) -> str:
    level = {"part": 1, "solutions": 2}[kind]
    return f'<h1 class="{kind}" id="{kind}-{slug(title)}" aria-level="{level}">{escape(title)}</h1>\n'


def entry(kind: str, title: str, anchor: str = "") -> str:
    """A line of the contents; the printer puts in the number."""
    to = anchor or f"{kind}-{slug(title)}"
    return f'<p class="{kind}"><a href="#{to}">{escape(title)} <span class="page-number"></span></a></p>\n'


def slug(text: str) -> str:
    return "-".join("".join(c if c.isalnum() else " " for c in text).lower().split())
