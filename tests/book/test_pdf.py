"""The PDF that `make pdf` prints: every page of the toc, bookmarks, numbers, links, formulas and pictures."""

import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import one_page
import pytest
from bs4 import BeautifulSoup
from pypdf import PdfReader

ROOT = Path(__file__).parents[2]
BUILT = ROOT / "_build" / "html"
FILES = [file for part in one_page.toc().values() for file in part]


@cache
def article(file):
    page = (BUILT / f"{file}.html").read_text(encoding="utf-8")
    found = BeautifulSoup(page, "html.parser").select_one("article.bd-article")
    for tag in found.select("a.headerlink, .eqno"):
        tag.decompose()
    return found


def title(file):
    return " ".join(article(file).select_one("h1").get_text().split())


def run(built, target):
    command = [sys.executable, str(ROOT / "tools" / "pdf.py"), str(built), str(target)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def printed(browser, tmp_path_factory):
    """What the command says, and the PDF; the browser is asked for since it skips where there is none."""
    target = tmp_path_factory.mktemp("pdf") / "book.pdf"
    done = run(BUILT, target)
    assert done.returncode == 0, done.stderr
    return done.stdout, PdfReader(target)


@pytest.fixture(scope="module")
def pdf(printed):
    return printed[1]


@pytest.fixture(scope="module")
def texts(pdf):
    return [" ".join(page.extract_text().split()) for page in pdf.pages]


@pytest.fixture(scope="module")
def bookmarks(pdf):
    """Level, title and page of each."""

    def walk(entries, level=0):
        for entry in entries:
            if isinstance(entry, list):
                yield from walk(entry, level + 1)
            else:
                page = pdf.get_destination_page_number(entry)
                yield level, " ".join(entry.title.split()), page

    return list(walk(pdf.outline))


@pytest.fixture(scope="module")
def alts(pdf):
    """The text that stands for each figure and formula where the PDF is read aloud."""

    def walk(node):
        if isinstance(node, list):
            for part in node:
                yield from walk(part.get_object())
        elif isinstance(node, dict):
            if node.get("/S") == "/Figure" and "/Alt" in node:
                yield " ".join(str(node["/Alt"]).split())
            yield from walk(node.get("/K", []).get_object() if "/K" in node else [])

    sys.setrecursionlimit(10_000)
    return Counter(walk(pdf.trailer["/Root"]["/StructTreeRoot"]))


def test_bookmarks_have_every_part_page_and_section_in_order(bookmarks):
    parts = [name for level, name, _ in bookmarks if level == 0]
    assert parts == [title(FILES[0]), *list(one_page.toc())[1:], "Solutions"]
    names = [name for _, name, _ in bookmarks]
    places = [names.index(title(file)) for file in FILES]
    assert places == sorted(places)
    sections = [
        " ".join(heading.get_text().split())
        for file in FILES
        for heading in article(file).select("h2")
    ]
    assert len(sections) > 80
    assert Counter(sections) <= Counter(names)
    pages = [page for *_, page in bookmarks]
    assert pages == sorted(pages)


def test_title_author_and_language(pdf):
    assert pdf.metadata.title == "attn_tutor: learn attention by building it"
    assert pdf.metadata.author == "The attn_tutor authors"
    assert pdf.trailer["/Root"]["/Lang"] == "en"


def test_every_formula_and_every_picture_is_there(printed, alts):
    articles = [article(file) for file in FILES]
    formulas = [f.get_text().strip() for page in articles for f in page.select(".math")]
    pictures = [str(i["alt"]) for page in articles for i in page.select("img")]
    assert f"{len(formulas)} formulas, {len(pictures) + 1} pictures" in printed[0]
    bare = [re.sub(r"^\\[(\[]|\\[)\]]$", "", tex) for tex in formulas]
    expected = Counter(" ".join(tex.split()) for tex in bare)
    assert expected - alts == Counter()
    spoken = Counter(" ".join(alt.split()) for alt in pictures)
    assert spoken - alts == Counter()


def test_each_page_has_its_number_and_none_is_lost(texts):
    assert 200 < len(texts) < 800
    numbered = [re.search(rf"\b{n}\b", text) for n, text in enumerate(texts, 1)]
    assert all(numbered[1:])
    sparse = [n for n, text in enumerate(texts, 1) if len(text) < 60]
    assert len(sparse) <= len(one_page.toc()) + 3
    assert not any(n + 1 in sparse for n in sparse)


@pytest.mark.parametrize("file", FILES)
def test_text_of_each_page_can_be_searched(file, texts):
    paragraphs = article(file).select("p")
    plain = [p for p in paragraphs if not p.select(".math, code, a")]
    sentences = [" ".join(p.get_text().split()) for p in plain or paragraphs]
    longest = max((s for s in sentences if s.isascii()), key=len)
    assert len(longest) > 40
    assert re.sub(r"\W", "", longest[:60]) in re.sub(r"\W", "", "".join(texts))


def test_contents_give_the_right_pages(texts, bookmarks):
    first = bookmarks[0][2]
    contents = " ".join(texts[1:first])
    for _, name, page in bookmarks:
        if re.match(r"\d+\.\d* ", name) and contents.count(name) == 1:
            assert f"{name} {page + 1} " in contents


def test_solutions_are_at_the_end_and_each_exercise_names_the_page(texts, bookmarks):
    first = next(page for _, name, page in bookmarks if name == "Solutions")
    asked = [e for file in FILES for e in article(file).select(".exercise")]
    assert len(asked) >= 30
    for exercise in asked:
        label = exercise.select_one(".admonition-title").get_text()
        number = re.search(r"\d+\.\d+", label)[0]
        here = [
            n
            for n, text in enumerate(texts, 1)
            if f"Solution to Exercise {number} " in text
        ]
        assert len(here) == 1 and here[0] > first, number
        there = [t for t in texts[:first] if f"Exercise {number} (" in t]
        assert any(f"Solution: page {here[0]}" in text for text in there), number


def test_links_lead_into_the_file(pdf):
    links = [
        note.get_object() for page in pdf.pages for note in page.get("/Annots", [])
    ]
    assert len(links) > 500
    outside = [
        str(link["/A"]["/URI"]) for link in links if "/URI" in link.get("/A", {})
    ]
    assert all(url.startswith("https://") for url in outside)
    named = {str(link["/Dest"]) for link in links if "/Dest" in link}
    assert len(named) > 200
    assert named <= set(pdf.named_destinations)


def test_a_bad_formula_stops_it(browser, tmp_path):
    """A formula that MathJax cannot read, and a picture that is not there."""
    page = '<div><article class="bd-article"><section id="x"><h1>T</h1>{}</section></article></div>'
    mathjax = (BUILT / "_static" / "mathjax" / "tex-svg.js").as_uri()
    built = tmp_path / "html"
    for file in FILES:
        (built / file).parent.mkdir(parents=True, exist_ok=True)
        (built / f"{file}.html").write_text(page.format(""), encoding="utf-8")
    bad = r'<p class="math">\(\frac{1\)</p><p class="math">\(\frac\)</p><img src="gone.png" alt="">'
    script = f'<script src="{mathjax}"></script>'
    (built / f"{FILES[-1]}.html").write_text(
        script + page.format(bad), encoding="utf-8"
    )
    done = run(built, tmp_path / "bad.pdf")
    assert done.returncode == 1
    assert "not drawn: \\(\\frac{1" in done.stderr
    assert "a formula is wrong" in done.stderr
    assert "a picture is missing" in done.stderr
    assert not (tmp_path / "bad.pdf").exists()
