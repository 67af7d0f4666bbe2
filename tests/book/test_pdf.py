"""The PDF that `make pdf` prints: every page of the toc, bookmarks, numbers, links, formulas and pictures."""

import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import one_page
import pytest
from bs4 import BeautifulSoup
from pdf import print_book
from pypdf import PdfReader

import attn_tutor

ROOT = Path(__file__).parents[2]
BUILT = ROOT / "_build" / "html"
# Minutes; how a page looks in print, test_print.py sees each time.
pytestmark = pytest.mark.full


@cache
def article(file):
    page = (BUILT / f"{file}.html").read_text(encoding="utf-8")
    found = BeautifulSoup(page, "html.parser").select_one("article.bd-article")
    for tag in found.select("a.headerlink, .eqno"):
        tag.decompose()
    return found


def title(file):
    return " ".join(article(file).select_one("h1").get_text().split())


@pytest.fixture(scope="module")
def book(browser, tmp_path_factory):
    """The PDF, its parts and pages, and what the command says of it."""
    parts = one_page.toc()
    target = tmp_path_factory.mktemp("pdf") / "book.pdf"
    said = print_book(browser, BUILT, target, parts)
    files = [file for part in parts.values() for file in part]
    return SimpleNamespace(said=said, pdf=PdfReader(target), parts=parts, files=files)


@pytest.fixture(scope="module")
def texts(book):
    return [" ".join(page.extract_text().split()) for page in book.pdf.pages]


@pytest.fixture(scope="module")
def bookmarks(book):
    """Level, title and page of each."""

    def walk(entries, level=0):
        for entry in entries:
            if isinstance(entry, list):
                yield from walk(entry, level + 1)
            else:
                page = book.pdf.get_destination_page_number(entry)
                yield level, " ".join(entry.title.split()), page

    return list(walk(book.pdf.outline))


@pytest.fixture(scope="module")
def headings(book):
    """Title, page and height of each, in points from the foot of the page."""

    def walk(entries):
        for entry in entries:
            if isinstance(entry, list):
                yield from walk(entry)
            else:
                number = book.pdf.get_destination_page_number(entry)
                yield entry.title, number, float(entry.top)

    return list(walk(book.pdf.outline))


FOOT = 57  # below stands the number of the page


def heights(page):
    """Of each piece of text."""
    found = []

    def visit(text, matrix, place, *_):
        if text.strip():
            y = matrix[1] * place[4] + matrix[3] * place[5] + matrix[5]
            found.append(y)

    page.extract_text(visitor_text=visit)
    return found


@pytest.fixture(scope="module")
def alts(book):
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
    return Counter(walk(book.pdf.trailer["/Root"]["/StructTreeRoot"]))


def test_bookmarks_have_every_part_page_and_section_in_order(book, bookmarks):
    parts = [name for level, name, _ in bookmarks if level == 0]
    assert parts == [title(book.files[0]), *list(book.parts)[1:], "Solutions"]
    names = [name for _, name, _ in bookmarks]
    places = [names.index(title(file)) for file in book.files]
    assert places == sorted(places)
    sections = [
        " ".join(heading.get_text().split())
        for file in book.files
        for heading in article(file).select("h2")
    ]
    assert len(sections) > 3 * len(book.files)
    assert Counter(sections) <= Counter(names)
    pages = [page for *_, page in bookmarks]
    assert pages == sorted(pages)


def test_the_cover_has_title_version_and_drawing_but_no_number(book, texts, alts):
    assert texts[0].startswith("attn_tutor learn attention by building it")
    assert f"Version {attn_tutor.__version__}" in texts[0]
    assert not re.search(r"(^| )1$", texts[0])
    assert any("weights of causal attention" in alt for alt in alts)


def test_no_heading_stands_alone_at_the_end_of_a_page(book, texts, headings):
    """Below each there are at least two lines more, or a picture with its caption."""
    checked, alone = 0, []
    for title, page, top in headings:
        if len(texts[page]) < 60:  # the title page of a part
            continue
        below = [y for y in heights(book.pdf.pages[page]) if FOOT < y < top - 30]
        if not below or top - min(below) < 45:
            alone.append((title, page + 1))
        checked += 1
    assert checked > 5 * len(book.files) and alone == []


def test_of_two_tabs_the_first_is_printed_and_the_reader_is_told(book, texts):
    whole = re.sub(r"\s", "", "".join(texts))
    sets = [s for file in book.files for s in article(file).select(".sd-tab-set")]
    assert len(sets) > 1
    for tabs in sets:
        first, *others = tabs.select(".sd-tab-content")
        longest = [
            max(re.sub(r" +#.*", "", tab.get_text()).splitlines(), key=len)
            for tab in (first, *others)
        ]
        shown = [re.sub(r"\s", "", line) for line in longest]
        assert shown[0] in whole
        assert not any(line in whole for line in shown[1:] if "torch" in line)
    assert sum(" ".join(one_page.NOTE.split()) in text for text in texts) == 1


def test_title_author_and_language(book):
    assert book.pdf.metadata.title == "attn_tutor: learn attention by building it"
    assert book.pdf.metadata.author == "The attn_tutor authors"
    assert book.pdf.trailer["/Root"]["/Lang"] == "en"


def test_every_formula_and_every_picture_is_there(book, alts):
    articles = [article(file) for file in book.files]
    formulas = [f.get_text().strip() for page in articles for f in page.select(".math")]
    lights = [i for page in articles for i in page.select("img:not(.in-dark)")]
    pictures = [str(light["alt"]) for light in lights]
    assert f"{len(formulas)} formulas, {len(pictures)} pictures" in book.said
    bare = [re.sub(r"^\\[(\[]|\\[)\]]$", "", tex) for tex in formulas]
    expected = Counter(" ".join(tex.split()) for tex in bare)
    assert expected - alts == Counter()
    spoken = Counter(" ".join(alt.split()) for alt in pictures)
    assert spoken - alts == Counter()


def test_each_page_has_its_number_and_none_is_lost(book, texts):
    assert len(texts) > 6 * len(book.files)
    numbered = [re.search(rf"\b{n}\b", text) for n, text in enumerate(texts, 1)]
    assert all(numbered[1:])
    sparse = [n for n, text in enumerate(texts, 1) if len(text) < 60]
    assert len(sparse) <= len(book.parts) + 3
    assert not any(n + 1 in sparse for n in sparse)


def test_text_of_each_page_can_be_searched(book, texts):
    whole, lost = re.sub(r"\W", "", "".join(texts)), []
    for file in book.files:
        paragraphs = article(file).select("p")
        plain = [p for p in paragraphs if not p.select(".math, code, a")]
        sentences = [" ".join(p.get_text().split()) for p in plain or paragraphs]
        longest = max((s for s in sentences if s.isascii()), key=len)
        assert len(longest) > 40
        if re.sub(r"\W", "", longest[:60]) not in whole:
            lost.append(longest[:60])
    assert lost == []


def test_contents_give_the_right_pages(texts, bookmarks):
    first, checked = bookmarks[0][2], 0
    contents = " ".join(texts[1:first])
    for _, name, page in bookmarks:
        if re.match(r"\d+\.\d+\. ", name) and contents.count(name) == 1:
            assert f"{name} {page + 1} " in contents
            checked += 1
    assert checked > 10


def test_solutions_are_at_the_end_and_each_exercise_names_the_page(
    book, texts, bookmarks
):
    first = next(page for _, name, page in bookmarks if name == "Solutions")
    asked = [e for file in book.files for e in article(file).select(".exercise")]
    assert len(asked) >= 4
    for exercise in asked:
        label = exercise.select_one(".admonition-title").get_text()
        number = re.match(r"Exercise [\d.]+ ", label)[0]  # a puzzle has no chapter
        here = [n for n, t in enumerate(texts, 1) if f"Solution to {number}" in t]
        assert len(here) == 1 and here[0] > first, number
        there = [text for text in texts[:first] if f"{number}(" in text]
        assert any(f"Solution: page {here[0]}" in text for text in there), number


def test_links_lead_into_the_file(book):
    links = [
        note.get_object() for page in book.pdf.pages for note in page.get("/Annots", [])
    ]
    assert len(links) > 20 * len(book.files)
    outside = [
        str(link["/A"]["/URI"]) for link in links if "/URI" in link.get("/A", {})
    ]
    assert all(url.startswith("https://") for url in outside)
    named = {str(link["/Dest"]) for link in links if "/Dest" in link}
    assert len(named) > 10 * len(book.files)
    assert named <= set(book.pdf.named_destinations)


def test_a_bad_formula_stops_it(browser, tmp_path):
    """A formula that MathJax cannot read, and a picture that is not there."""
    mathjax = (BUILT / "_static" / "mathjax" / "tex-svg.js").as_uri()
    bad = r'<p class="math">\(\frac{1\)</p><p class="math">\(\frac\)</p><img src="gone.png" alt="">'
    (tmp_path / "page.html").write_text(
        f'<script src="{mathjax}"></script><div><article class="bd-article"><section id="x">'
        f"<h1>T</h1>{bad}</section></article></div>",
        encoding="utf-8",
    )
    with pytest.raises(SystemExit) as stopped:
        print_book(browser, tmp_path, tmp_path / "bad.pdf", {"": ["page"]})
    said = str(stopped.value)
    assert "not drawn: \\(\\frac{1" in said
    assert "a formula is wrong" in said
    assert "a picture is missing" in said
    assert not (tmp_path / "bad.pdf").exists()


def test_the_command_says_what_is_missing(tmp_path):
    command = [sys.executable, str(ROOT / "tools" / "pdf.py"), "gone", "book.pdf"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1
    assert "type 'make book' first" in done.stderr and "Traceback" not in done.stderr
