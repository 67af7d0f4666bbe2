"""The book's notebooks, and the clock: how many minutes each takes to read.

A main page is ``book/NN_name.ipynb``; its further pages lie in the folder ``book/NN_name`` beside it, in the order of
``_toc.yml``. Nobody types minutes: ``python book/_ext/book_pages.py`` prints those of each page, and each page's head
shows its own (``further_pages.py``).
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import yaml
from markdown_tokens import shown, words

BOOK = Path(__file__).resolve().parents[1]
Cell = dict[str, Any]

WORDS_A_MINUTE = 150
SECONDS_A_LINE = 10  # of visible code
MINUTES_A_FIGURE = 1  # and for each displayed equation
MINUTES_A_MOVING_FIGURE = 4
MINUTES_OF_STARS = {"★": 5, "★★": 10, "★★★": 20}

DISPLAYED = {"math_block", "math_block_label", "amsmath", "math_inline_double"}
WORD = re.compile(r"[^\W\d_]{2,}")
STARS = re.compile(r"(?m)^:{3,}\{exercise\}.*?(★+)")
EXERCISES = re.compile(r"(?m)^## Exercises$")


def settings(source: Path = BOOK.parent) -> dict[str, Any]:
    """What _config.yml says."""
    return _read(source / "_config.yml")


def toc_file(source: Path = BOOK.parent) -> dict[str, Any]:
    """What _toc.yml says."""
    return _read(source / "_toc.yml")


def _read(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return found


def notebooks(book: Path = BOOK) -> list[Path]:
    """Every page that is a notebook: chapters, each followed by its further pages, and the rest."""
    found = [*book.glob("*.ipynb"), *book.glob("[0-9]*/*.ipynb")]
    return sorted(found, key=lambda path: path.relative_to(book).with_suffix("").parts)


def main_page(path: Path) -> Path:
    """That of a further page; of any other page itself."""
    return path if path.parent.name == "book" else path.parent.with_suffix(".ipynb")


@cache
def toc(book: Path = BOOK) -> dict[Path, list[Path]]:
    """The main line: its pages in order, each with its further pages."""
    parts = toc_file(book.parent)["parts"]
    [chapters] = [part["chapters"] for part in parts if part.get("numbered")]

    def path(entry: dict[str, Any]) -> Path:
        return book.parent / f"{entry['file']}.ipynb"

    return {path(x): [path(y) for y in x.get("sections", [])] for x in chapters}


@dataclass(frozen=True)
class Notebook:
    path: Path

    @cached_property
    def cells(self) -> list[Cell]:
        cells: list[Cell] = json.loads(self.path.read_text(encoding="utf-8"))["cells"]
        return [cell | {"source": "".join(cell["source"])} for cell in cells]

    @property
    def title(self) -> str:
        return str(self.cells[0]["source"]).partition("\n")[0].removeprefix("# ")

    @property
    def number(self) -> str:
        """2, or 2A for the first further page of chapter 2."""
        main = main_page(self.path)
        chapter = [*toc()].index(main) + 1
        if self.path == main:
            return str(chapter)
        return f"{chapter}{chr(ord('A') + toc()[main].index(self.path))}"

    @property
    def minutes(self) -> int:
        """Of reading, without exercises and solutions."""
        return round(reading_minutes(self.main_line))

    @property
    def exercise_minutes(self) -> int:
        text = "\n".join(cell["source"] for cell in self.cells)
        return sum(MINUTES_OF_STARS[stars] for stars in STARS.findall(text))

    @property
    def visible_lines(self) -> int:
        return sum(map(lines_shown, self.main_line))

    @property
    def words(self) -> int:
        return sum(words_of(cell["source"]) for cell in texts(self.main_line))

    def minutes_until(self, label: str) -> float:
        """To the end of the displayed equation with this label."""
        for i, cell in enumerate(self.main_line):
            before, found, _ = cell["source"].partition(f"$$ ({label})")
            if found:
                shown = cell | {"source": f"{before}$$"}
                return reading_minutes([*self.main_line[:i], shown])
        raise ValueError(f"{self.path.name}: no displayed equation has ({label})")

    @property
    def main_line(self) -> list[Cell]:
        """The cells before the exercises."""
        kept = []
        for cell in self.cells:
            before, *after = EXERCISES.split(cell["source"])
            kept.append(cell | {"source": before})
            if after and cell["cell_type"] == "markdown":
                break
        return kept


def reading_minutes(cells: Sequence[Cell]) -> float:
    return sum(map(minutes_of_text, texts(cells))) + sum(
        lines_shown(cell) * SECONDS_A_LINE / 60 + MINUTES_A_FIGURE * draws(cell)
        for cell in cells
    )


def texts(cells: Sequence[Cell]) -> Iterator[Cell]:
    return (cell for cell in cells if cell["cell_type"] == "markdown")


def minutes_of_text(cell: Cell) -> float:
    text, seen = cell["source"], [*shown(cell["source"])]
    inside = [child for token in seen for child in token.children or []]
    drawn = sum(token.info.startswith(("{figure}", "{image}")) for token in seen)
    drawn += sum(token.type in DISPLAYED for token in [*seen, *inside])
    moving = sum(token.content.startswith("<attn-") for token in seen)
    return (
        words_of(text) / WORDS_A_MINUTE
        + MINUTES_A_FIGURE * drawn
        + MINUTES_A_MOVING_FIGURE * moving
    )


def words_of(text: str) -> int:
    return sum(len(WORD.findall(words(token))) for token in shown(text))


def lines_shown(cell: Cell) -> int:
    """Lines of code that a reader sees without opening a fold."""
    folded = {"hide-input", "hide-cell", "remove-input", "remove-cell"}
    if cell["cell_type"] != "code" or folded & {*cell["metadata"].get("tags", [])}:
        return 0
    return sum(bool(line.strip()) for line in cell["source"].split("\n"))


def draws(cell: Cell) -> bool:
    tags = {*cell["metadata"].get("tags", [])}
    data = (output.get("data", {}) for output in cell.get("outputs", []))
    return not tags & {"hide-cell", "remove-cell"} and any(
        kind.startswith("image") for found in data for kind in found
    )


def main() -> None:
    for path in notebooks():
        page, name = Notebook(path), path.relative_to(BOOK).with_suffix("").as_posix()
        if main_page(path) in toc():
            print(
                f"{name:45} {page.minutes:3} minutes, exercises {page.exercise_minutes:3}, "
                f"{page.words:5} words, {page.visible_lines:3} visible lines"
            )


if __name__ == "__main__":
    main()
