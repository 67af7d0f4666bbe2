"""The prose of this book as a text to learn from: a frozen copy, so that editing a chapter changes no model."""

from importlib.resources import files

__all__ = ["load_book"]


def load_book() -> str:
    """Read the text: sentences of chapters 1 to 6, one paragraph a line, 61,271 characters of 73 kinds.

    Sentences with formulas or code are left out. The words are this book's own, under the package's MIT licence.

    Example:
        >>> text = load_book()
        >>> text[:17], len(text), len(set(text))
        ('What will it use?', 61271, 73)
    """
    # Bytes, since a checkout on Windows may not end lines as Linux does.
    text = (files(__package__) / "book.txt").read_bytes().decode("ascii")
    return text.replace("\r\n", "\n")
