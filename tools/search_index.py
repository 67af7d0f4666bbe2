"""Write the index of ``attn_tutor.search``, and measure it: python tools/search_index.py

Each section of the pages becomes a vector, the mean of those of its passages, in attn_tutor/search/sections.npz. Forty
questions are then asked, of the vectors and of a plain word search, for book/_tables/search.markdown. It needs the
weights of MiniLM (requirements-models.txt) and takes a minute.
"""

import json
import math
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from search_questions import QUESTIONS

from attn_tutor.models.minilm import MiniLM
from attn_tutor.search import INDEX, Section

BOOK = Path(__file__).resolve().parents[1] / "book"
sys.path.append(str(BOOK / "_ext"))
from book_pages import main_page, notebooks, toc  # noqa: E402 — its folder is known from the line above on

TABLE = BOOK / "_tables" / "search.markdown"  # Sphinx takes .md for a page
OTHERS = ["failure_gallery", "notation", "said_elsewhere", "where_next"]
EVERYWHERE = {"Shape ledger", "Exercises", "Summary", "Where next", "How this breaks"}
WORDS = 160  # of a passage; the model reads at most 256 tokens
NOT_PROSE = re.compile(
    r"(?ms:^(`{3,}).*?^\1`*$)|(?m:^:{3,}.*$|^:[\w-]+: .*$)|<[^>]+>|!\[[^]]*\]\([^)]*\)"
)
ROLE = re.compile(r"\{[\w:]+\}`([^`<]*?)(?: ?<[^`]*>)?`")
LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")


def sections() -> dict[Section, str]:
    """Every section of the chapters and some other pages that says more than its like on all pages, with its prose."""
    found = {}
    chapters = [
        path.relative_to(BOOK) for path in notebooks() if main_page(path) in toc()
    ]
    for name in [str(path.with_suffix("")) for path in chapters] + OTHERS:
        page = "\n\n" + _prose(_markdown(name))
        first, *parts = re.split(r"^#{1,3} +(.+)$", page, flags=re.MULTILINE)[1:]
        texts = dict(zip([first, *parts[1::2]], parts[0::2], strict=True))
        for title, text in texts.items():
            if title not in EVERYWHERE or title == first:
                found[Section(name, first, title)] = text
    return found


def _markdown(name: str) -> str:
    if (page := BOOK / f"{name}.md").exists():
        return page.read_text(encoding="utf-8")
    cells = json.loads((BOOK / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    return "\n\n".join(
        "".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"
    )


def _prose(text: str) -> str:
    """Without code, pictures and marks of MyST; a role or a link leaves its words, formulas stay as TeX."""
    text = ROLE.sub(r"\1", NOT_PROSE.sub(" ", text))
    return LINK.sub(r"\1", text).replace("$", "").replace("**", "")


def passages(section: Section, text: str) -> list[str]:
    """Pieces of at most some 160 words, each with the titles before it."""
    words = text.split()
    starts = range(0, max(1, len(words)), WORDS)
    return [
        f"{section.chapter}. {section.title}. {' '.join(words[i : i + WORDS])}"
        for i in starts
    ]


def vectors(model: MiniLM, book: dict[Section, str]) -> np.ndarray:
    """A unit vector for each section, (s, 384)."""
    means = np.stack([model.embed(passages(*item)).mean(0) for item in book.items()])
    return means / np.linalg.norm(means, axis=-1, keepdims=True)


class WordSearch:
    """BM25 (Robertson & Zaragoza, 2009): rare words that the question and a section share."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.counts = [Counter(_words(text)) for text in texts]
        self.mean = sum(c.total() for c in self.counts) / len(texts)
        self.holders = Counter(word for c in self.counts for word in c)

    def scores(self, question: str) -> np.ndarray:
        return np.array([sum(self._parts(question, c)) for c in self.counts])

    def _parts(self, question: str, counts: Counter[str]) -> Iterator[float]:
        length = 0.25 + 0.75 * counts.total() / self.mean
        for word in _words(question):
            held = self.holders[word]
            rarity = math.log(1 + (len(self.counts) - held + 0.5) / (held + 0.5))
            yield rarity * counts[word] * 2.5 / (counts[word] + 1.5 * length)


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def names(book: Iterable[Section]) -> list[str]:
    """As tools/search_questions.py writes them."""
    found = [f"{section.page}: {section.title}" for section in book]
    if missing := {name for wanted in QUESTIONS.values() for name in wanted} - {*found}:
        raise SystemExit(
            f"tools/search_questions.py wants sections that are no more: {missing}"
        )
    return found


def place(scores: np.ndarray, names: Sequence[str], wanted: Sequence[str]) -> int:
    """How many sections stand before the first that is wanted."""
    best = max(scores[names.index(name)] for name in wanted)
    return int((scores > best).sum())


def table(model: MiniLM, book: dict[Section, str], index: np.ndarray) -> str:
    """Hits among the first and the first five sections, and where each question lands."""
    search = WordSearch([f"{s.chapter} {s.title} {text}" for s, text in book.items()])
    places = {"by meaning": [], "by words (BM25)": []}  # type: dict[str, list[int]]
    titles = names(book)
    for question, wanted in QUESTIONS.items():
        by_meaning = index @ model.embed([question])[0]
        for name, scores in zip(
            places, (by_meaning, search.scores(question)), strict=True
        ):
            places[name].append(place(scores, titles, wanted))
    lines = [f"| {len(QUESTIONS)} questions | first | among the first five |", "|---|---:|---:|"]  # fmt: skip
    for name, found in places.items():
        first, five = (sum(p < k for p in found) for k in (1, 5))
        lines.append(f"| {name} | {first} | {five} |")
    lines += ["", "| question | by meaning | by words |", "|---|---:|---:|"]
    for question, *where in zip(QUESTIONS, *places.values(), strict=True):
        lines.append(f"| {question} | {where[0] + 1} | {where[1] + 1} |")
    lines += [
        "",
        f"Place of the first section that answers, among {len(book)}. Command: `python tools/search_index.py`.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    model, book = MiniLM.load(), sections()
    names(book)  # before a minute is spent
    half = vectors(model, book).astype(np.float16)
    fields = zip(Section._fields, zip(*book, strict=True), strict=True)
    columns: dict[str, Any] = {name: np.array(column) for name, column in fields}
    np.savez_compressed(INDEX, vectors=half, **columns)
    TABLE.write_text(table(model, book, half.astype(np.float32)), encoding="utf-8")
    print(f"{len(book)} sections, {INDEX.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
