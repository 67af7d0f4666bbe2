"""Where the book is published: links that run a chapter elsewhere, by the address in _config.yml, and the PDF."""

import re
from pathlib import Path

import pytest
import yaml
from notebook_link import launch_links
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

ROOT = Path(__file__).parents[2]
CHAPTER = "book/03_masked_softmax.ipynb"
COLAB = "https://colab.research.google.com/github/them/tutor/blob/main/" + CHAPTER
BINDER = "https://mybinder.org/v2/gh/them/tutor/main?urlpath=lab/tree/" + CHAPTER


@pytest.mark.parametrize("ending", ["", "/", ".git"])
def test_the_repository_alone_gives_both(ending):
    config = {"repository": {"url": "https://github.com/them/tutor" + ending}}
    assert launch_links(config, CHAPTER) == {"Colab": COLAB, "Binder": BINDER}


def test_another_branch():
    url = "https://github.com/them/tutor"
    config = {"repository": {"url": url, "branch": "draft"}}
    links = launch_links(config, CHAPTER)
    assert links["Colab"] == COLAB.replace("main", "draft")
    assert links["Binder"] == BINDER.replace("main", "draft")


def test_the_site_of_make_lite():
    site = {
        "launch_buttons": {"jupyterlite_url": "https://them.example/lab/index.html"}
    }
    found = {
        "run it in the browser": f"https://them.example/lab/index.html?path={CHAPTER}"
    }
    assert launch_links(site, CHAPTER) == found


@pytest.mark.parametrize(
    "url",
    [
        "https://gitlab.com/them/tutor",
        "github.com/them/tutor",
        "https://github.com/tutor",
    ],
)
def test_an_address_that_colab_cannot_open_is_named(url):
    with pytest.raises(ExtensionError, match="need https://github.com/OWNER/NAME"):
        launch_links({"repository": {"url": url}}, CHAPTER)


@pytest.mark.parametrize(
    "config", [{}, {"repository": {"url": "https://github.com/them/tutor"}}]
)
def test_on_the_page(config, tmp_path):
    """A book of one notebook, built both ways."""
    (tmp_path / "_config.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
    (tmp_path / "index.md").write_text(
        "(how-to-run)=\n# How to run\n", encoding="utf-8"
    )
    book = ROOT / CHAPTER
    (tmp_path / "book").mkdir()
    cells = '{"cells": [{"cell_type": "markdown", "id": "a", "metadata": {}, "source": "# T"}],'
    (tmp_path / "book" / book.name).write_text(
        cells + '"metadata": {}, "nbformat": 4, "nbformat_minor": 5}', encoding="utf-8"
    )
    extensions = ["myst_nb", "notebook_link"]
    options = {
        "extensions": extensions,
        "nb_execution_mode": "off",
        "suppress_warnings": ["toc"],
    }
    out = tmp_path / "out"
    app = Sphinx(tmp_path, None, out, tmp_path / "trees", "html", options, status=None)
    app.build()
    page = (out / "book" / book.name).with_suffix(".html").read_text(encoding="utf-8")
    line = page.partition('<p class="notebook-link">')[2].partition("</p>")[0]
    words = re.sub("<.*?>", "", line)
    assert words.startswith("Download this page") and "in this page: make live" in words
    assert (COLAB in line, BINDER in line) == (bool(config), bool(config))
    assert line.count("<a ") == (5 if config else 3)  # with and without solutions


def test_the_files_of_the_book_are_read_in_one_place():
    tools = [*ROOT.glob("tools/**/*.py"), *ROOT.glob("book/_ext/*.py")]
    readers = [x.name for x in tools if "import yaml" in x.read_text(encoding="utf-8")]
    assert readers == ["book_pages.py"]


def test_what_is_published_has_the_pdf_beside_the_pages():
    steps = (ROOT / ".github/workflows/book.yml").read_text(encoding="utf-8")
    build = yaml.safe_load(steps)["jobs"]["build"]["steps"]
    runs = [step["run"].partition(" #")[0] for step in build if "run" in step]
    browser, pdf = ".venv/bin/python -m playwright install chromium", "make pdf"
    assert runs.index("make book") < runs.index(browser) < runs.index(pdf)
    assert runs[runs.index(pdf) + 1] == "mv _build/attn_tutor.pdf _build/html"
    assert '"_build/attn_tutor.pdf"' in (ROOT / "tools/pdf.py").read_text("utf-8")
