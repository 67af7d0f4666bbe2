"""Find the sections of the book by meaning: a question is near a section if their vectors are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attn_tutor._checks import require_size

if TYPE_CHECKING:
    from attn_tutor.models.minilm import MiniLM

__all__ = ["Section", "read_index", "search"]

INDEX = Path(__file__).with_name("sections.npz")  # tools/search_index.py writes it


class Section(NamedTuple):
    """Where it stands: the page's file without its ending, the page's title and its own."""

    page: str
    chapter: str
    title: str


def read_index() -> tuple[list[Section], np.ndarray]:
    """All sections, and a unit vector for each, (s, 384)."""
    with np.load(INDEX) as index:
        names = [index[field].tolist() for field in Section._fields]
        vectors = index["vectors"].astype(np.float32)
    return [Section(*fields) for fields in zip(*names, strict=True)], vectors


def search(
    question: str, n_best: int = 5, *, model: MiniLM | None = None
) -> list[tuple[float, Section]]:
    """The sections nearest to a question, best first, each with the cosine between the two.

    Args:
        question: words or a sentence, in English.
        n_best: most sections to return.
        model: what turns text into vectors; None loads it, which takes a second.

    Raises:
        ImportError: the model's weights are not installed. The message says how to install them.
        ValueError: ``n_best`` is below 1.
    """
    require_size("search", "n_best", n_best, least=1)
    if model is None:
        from attn_tutor.models.minilm import MiniLM  # here: --help needs no model

        model = MiniLM.load()
    sections, vectors = read_index()
    (asked,) = model.embed([question])
    cosines = vectors @ asked
    best = np.argsort(-cosines, kind="stable")[:n_best]
    return [(float(cosines[i]), sections[i]) for i in best]
