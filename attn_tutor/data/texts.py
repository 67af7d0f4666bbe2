"""Short texts and capitals, to measure on a published model what shall hold for more than one sentence."""

import csv
from importlib.resources import files
from typing import NamedTuple

__all__ = ["Text", "load_capitals", "load_texts"]


class Text(NamedTuple):
    """A text and its kind: "story", "news", "code", "HTML", "French" or "law"."""

    kind: str
    text: str


def load_texts() -> list[Text]:
    """Read the texts, written for this book: four of each kind, each at least 30 tokens of SmolLM2 long.

    Example:
        >>> texts = load_texts()
        >>> len(texts), texts[0].text[:32]
        (24, 'The lighthouse keeper climbed th')
    """
    rows = (files(__package__) / "texts.csv").read_bytes().decode("utf-8")
    lines = rows.replace("\r\n", "\n").splitlines(keepends=True)
    return [Text(**row) for row in csv.DictReader(lines)]


def load_capitals() -> dict[str, str]:
    """Read the capitals of 43 countries, by country.

    Example:
        >>> load_capitals()["France"]
        'Paris'
    """
    rows = (files(__package__) / "capitals.csv").read_text(encoding="ascii")
    return {x["country"]: x["capital"] for x in csv.DictReader(rows.splitlines())}
