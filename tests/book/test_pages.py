"""The built book as a reader meets it: every page there, links whole, no network, maths drawn, readable by all."""

import importlib
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from html import escape, unescape
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag, urlsplit

import nbformat
import pytest
import yaml
from axe_playwright_python.sync_playwright import Axe
from bs4 import BeautifulSoup
from plain_notebooks import beside
from playwright.sync_api import Browser, Page

from attn_tutor.check import EXERCISES

ROOT = Path(__file__).parents[2]
BUILT = ROOT / "_build" / "html"


def toc_pages() -> list[str]:
    """Every ``file`` and ``root`` of the table of contents, however deep."""

    def walk(entry: Any) -> Iterator[str]:
        if isinstance(entry, dict):
            for key, value in entry.items():
                if key in ("file", "root"):
                    yield value + ".html"
                else:
                    yield from walk(value)
        elif isinstance(entry, list):
            for part in entry:
                yield from walk(part)

    return list(walk(yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))))


PAGES = toc_pages()
SHOWN = [*PAGES, "search.html", "genindex.html"]
every_page = pytest.mark.parametrize("page", ["index.html", *SHOWN])


pytestmark = pytest.mark.usefixtures("book")


@cache
def soup(path: Path) -> BeautifulSoup:
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


@cache
def anchors(path: Path) -> set[str]:
    return {
        str(tag[key])
        for key in ("id", "name")
        for tag in soup(path).find_all(attrs={key: True})
    }


def targets(path: Path, *, links: bool) -> list[str]:
    """What a page links to, or else what it loads."""
    page = soup(path)
    if links:
        return [
            str(tag["href"])
            for tag in page.select("a[href]:not(.attn-state), area[href]")
        ]
    loaded = [str(tag["src"]) for tag in page.select("[src]")]
    loaded += [str(tag["data"]) for tag in page.select("object[data]")]
    loaded += [
        str(tag["href"]) for tag in page.select("link[href], use[href], image[href]")
    ]
    loaded += [
        url.split()[0]
        for tag in page.select("[srcset]")
        for url in str(tag["srcset"]).split(",")
    ]
    styles = [str(tag["style"]) for tag in page.select("[style]")] + [
        tag.get_text() for tag in page.select("style")
    ]
    return loaded + [url for style in styles for url in style_urls(style)]


def style_urls(style: str) -> list[str]:
    return re.findall(r"""(?:url\(|@import\s)\s*["']?([^"')\s;]+)""", style)


def is_elsewhere(url: str) -> bool:
    return url.startswith("//") or urlsplit(url).scheme in ("http", "https", "ftp")


# A page that is in the toc and does not come out is the way this toolchain fails without an error.
@pytest.mark.parametrize("page", PAGES)
def test_page_of_the_toc_is_built_and_has_its_title(page: str) -> None:
    heading = soup(BUILT / page).select_one("article h1, main h1")
    assert heading is not None
    assert len(heading.get_text(strip=True)) > 3


@every_page
def test_page_loads_nothing_from_elsewhere(page: str) -> None:
    assert [
        url for url in targets(BUILT / page, links=False) if is_elsewhere(url)
    ] == []


def test_styles_load_nothing_from_elsewhere() -> None:
    sheets = list(BUILT.rglob("*.css"))
    assert "book.css" in [sheet.name for sheet in sheets]
    found = {
        s.name: u
        for s in sheets
        for u in style_urls(s.read_text(encoding="utf-8"))
        if is_elsewhere(u)
    }
    assert found == {}


@every_page
def test_links_and_loaded_files_resolve(page: str) -> None:
    path = BUILT / page
    broken = []
    for url in targets(path, links=True) + targets(path, links=False):
        if is_elsewhere(url) or urlsplit(url).scheme in ("data", "mailto"):
            continue
        address, anchor = urldefrag(url)
        file = (
            path.parent / unquote(urlsplit(address).path)
            if urlsplit(address).path
            else path
        )
        is_page = file.suffix == ".html"
        if not file.is_file() or (
            anchor and is_page and unquote(anchor) not in anchors(file.resolve())
        ):
            broken.append(url)
    assert broken == []


OLD = Path(__file__).with_name("old_addresses.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("line", OLD.splitlines(), ids=lambda x: x.partition(":")[0])
def test_old_addresses_still_lead_somewhere(line: str) -> None:
    """Every section, figure, formula, theorem and exercise of the chapters before they had further pages."""
    page, names = line.split(": ")
    path = BUILT / "book" / f"{page}.html"
    assert [name for name in names.split() if name not in anchors(path)] == []
    for mark in soup(path).select("a.moved"):
        file, anchor = urldefrag(str(mark["href"]))
        assert anchor in anchors((path.parent / file).resolve())


@every_page
def test_a_picture_stands_above_the_fold_of_its_code(page: str) -> None:
    for fold in soup(BUILT / page).select(".cell > details.hide"):
        assert not fold.find_next_sibling(lambda tag: tag.find("img")), fold.parent


@every_page
def test_images_have_alt_text(page: str) -> None:
    assert [
        str(img.get("src"))
        for img in soup(BUILT / page).select("img")
        if not img.get("alt", "").strip()
    ] == []


NOTEBOOKS = [page for page in PAGES if (ROOT / page).with_suffix(".ipynb").exists()]
CHAPTERS = [page for page in NOTEBOOKS if page.removeprefix("book/")[0].isdigit()]
FURTHER = [page for page in CHAPTERS if page.count("/") > 1]
HEAVIEST_PAGE = 1_500_000  # bytes, with its pictures


@pytest.mark.parametrize("page", NOTEBOOKS)
def test_chapter_is_light(page: str) -> None:
    path = BUILT / page
    seen = soup(path).select("img:not(.in-light)")  # one theme's; dark twins are larger
    pictures = {path.parent / str(img["src"]) for img in seen}
    assert page in FURTHER or any("_images" in x.parts for x in pictures)
    weight = sum(file.stat().st_size for file in [path, *pictures])
    assert weight < HEAVIEST_PAGE, f"{weight / 1e6:.2f} MB"


@cache
def cells_of(path: Path) -> list[Any]:
    """Not validated, which takes longest and has its own test."""
    return list(nbformat.v4.reads(path.read_text(encoding="utf-8")).cells)


def code(path: Path) -> list[str]:
    return [cell.source for cell in cells_of(path) if cell.cell_type == "code"]


@pytest.mark.parametrize("page", NOTEBOOKS)
def test_chapter_has_links_that_download_its_notebook(page: str) -> None:
    """One with the solutions and one without; what is in them has tests of its own."""
    links = soup(BUILT / page).select(".notebook-link a[download]")
    given = [(BUILT / page).parent / unquote(str(link["href"])) for link in links]
    whole, student = map(code, given)
    assert set(map(beside, code((ROOT / page).with_suffix(".ipynb")))) <= set(whole)
    assert len(student) <= len(whole)


def is_shown(code: str, path: Path) -> bool:
    blocks = [block.get_text() for block in soup(path).select("div.highlight pre")]
    return any(code in block for block in blocks)


@pytest.mark.parametrize("half", ["numpy", "torch"])
def test_reference_has_every_public_name_with_its_shapes(half: str) -> None:
    package = importlib.import_module(f"attn_tutor.{half}")
    page = soup(BUILT / "book" / f"api_{half}.html")
    ledger = soup(BUILT / "book" / "api.html").get_text()
    assert len(package.__all__) > 30
    assert not re.search(r":(func|class|mod|py:obj):", ledger + page.get_text())
    for name in package.__all__:
        entry = page.find(id=f"attn_tutor.{half}.{name}")
        assert entry is not None, name
        shapes = getattr(getattr(package, name), "__shapes__", "")
        assert shapes in entry.parent.get_text(), name
        assert name in ledger and shapes in ledger, name


def test_reference_has_every_checker_and_what_it_tells() -> None:
    page = soup(BUILT / "book" / "api_check.html")
    for name, exercise in EXERCISES.items():
        entry = page.find(id=f"attn_tutor.check.{name}")
        assert entry is not None, name
        text = re.sub(r"\s+", " ", entry.parent.get_text()).replace("’", "'")
        for words in (exercise.statement, *(x.name for x in exercise.mistakes)):
            assert " ".join(words.split()) in text, name


def test_reference_has_models_pictures_data_and_the_help_of_commands() -> None:
    page = soup(BUILT / "book" / "api_more.html")
    for package in ("attn_tutor.figures", "attn_tutor.data"):
        for name in importlib.import_module(package).__all__:
            assert page.find(id=f"{package}.{name}"), name
    page = soup(BUILT / "book" / "api_failures.html")
    for name in importlib.import_module("attn_tutor.failures").__all__:
        assert page.find(id=f"attn_tutor.failures.{name}"), name
    page = soup(BUILT / "book" / "api_models.html")
    for module in ("gguf_file", "rxnmapper", "smollm2", "smollm2_layer", "weights"):
        package = f"attn_tutor.models.{module}"
        for name in importlib.import_module(package).__all__:
            assert page.find(id=f"{package}.{name}"), name
    page = soup(BUILT / "book" / "api_distributed.html")
    for name in importlib.import_module("attn_tutor.torch.distributed").__all__:
        assert page.find(id=f"attn_tutor.torch.distributed.{name}"), name
    assert "-m attn_tutor.train" in page.get_text()
    page = soup(BUILT / "book" / "api_more.html")
    for command in ("check", "bench"):
        assert f"usage: python -m attn_tutor.{command}" in page.get_text()


def labels(kind: str) -> set[str]:
    """What the sources number: the figures' names, the theorems' and exercises' labels."""
    sources = [(ROOT / page).with_suffix(".ipynb") for page in NOTEBOOKS]
    cells = [cell for path in sources for cell in cells_of(path)]
    text = "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    for page in PAGES:
        if (path := (ROOT / page).with_suffix(".md")).exists():
            text += path.read_text(encoding="utf-8")
    for path in (ROOT / "book" / "_tables").glob("*.markdown"):
        text += path.read_text(encoding="utf-8")
    if kind == "figures":
        drawn = {
            cell.metadata["mystnb"]["figure"]["name"]
            for cell in cells
            if "figure" in cell.metadata.get("mystnb", {})
        }
        return drawn | set(re.findall(r"\{figure\} .+\n(?:.*\n)*?:name: (\S+)", text))
    box = {"theorems": r"\{prf:(?!proof|ref)\w+\}", "exercises": r"\{exercise\}"}[kind]
    return set(re.findall(rf"{box}.*\n:label: (\S+)", text))


@pytest.mark.parametrize("kind", ["figures", "theorems", "exercises"])
def test_index_has_every_number_of_the_book(kind: str) -> None:
    part = soup(BUILT / "book" / "indices.html").find(id=kind)
    assert part is not None
    lines = part.select("ul.index-of > li")
    linked = [str(line.a["href"]).partition("#")[2] for line in lines]
    assert set(linked) == labels(kind)
    assert len(linked) == len(set(linked)) > 10
    numbered = rf"{kind.title()[:-1]} \d+(\.\d+)? · [^\s(].+"
    for line in lines:
        assert re.fullmatch(numbered, line.get_text(strip=False).strip(), re.DOTALL)


def test_chapters_show_the_package_itself() -> None:
    page = BUILT / "book" / "01_queries_keys_values.html"
    for half in ("numpy", "torch"):
        source = (ROOT / f"attn_tutor/{half}/_softmax.py").read_text(encoding="utf-8")
        definition = source[source.index("def normalize(") :]
        signature = definition[: definition.index('"""')].removesuffix("r").rstrip()
        body = definition.split('"""', 2)[2].strip("\n").partition("\n\n\n")[0]
        assert is_shown(f"{signature}\n{body}", page), half


@pytest.mark.parametrize("page", CHAPTERS)
def test_chapters_show_both_halves_in_tabs_that_follow_each_other(page: str) -> None:
    tabs = soup(BUILT / page).select(".sd-tab-set > label")
    notebook = (ROOT / page).with_suffix(".ipynb").read_text(encoding="utf-8")
    shown = set(re.findall(r"\{source\} (\w+)[./]", notebook))
    files = {half: ROOT / "attn_tutor" / half for half in ("numpy", "torch")}
    halves = {
        half
        for half, folder in files.items()
        if any(
            [*folder.glob(f"{at}{name}"), *folder.glob(f"{at}{name}.py")]
            for name in shown
            for at in ("", "_")  # a module is private where a function has its name
        )
    } | set(re.findall(r'"lines-(numpy|torch)"', notebook))
    if page not in FURTHER or tabs:
        assert {tab["data-sync-id"] for tab in tabs} == halves != set()
        assert {tab["data-sync-group"] for tab in tabs} == {"halves"}


def test_glossary_leads_to_the_chapters_that_use_a_word() -> None:
    glossary = soup(BUILT / "book" / "glossary.html")
    entry = glossary.find(id="term-convex-combination")
    assert entry is not None
    links = entry.find_next("dd").select(".glossary-links a")
    assert links[0].get_text() == "chapter 1"
    assert links[0]["href"] == "01_queries_keys_values.html#what-weights-may-be"
    linked = {a["href"].partition("#")[0] for a in glossary.select(".glossary-links a")}
    assert linked == {page.removeprefix("book/") for page in CHAPTERS}


def tags(page: str) -> dict[str, str]:
    found = soup(BUILT / page).select("meta[property^=og], meta[name=description]")
    return {str(t.get("property", t.get("name"))): str(t["content"]) for t in found}


@pytest.mark.parametrize("page", PAGES)
def test_a_shared_link_says_what_the_page_is(page: str) -> None:
    said = tags(page)
    heading = soup(BUILT / page).select_one("article h1")
    assert heading is not None
    assert said["og:title"] == heading.get_text().removesuffix("#")
    assert said["og:description"] == said["description"]
    assert 20 < len(said["description"]) <= 300
    assert not re.search(r"[\\$<]", said["description"])
    if page in CHAPTERS:
        assert "?" in said["description"]  # the question that opens the chapter
    assert (BUILT / said["og:image"]).exists()
    icon = soup(BUILT / page).select_one("link[rel=icon]")
    assert icon is not None and str(icon["href"]).endswith("favicon.svg")


# In the browser

DESK = {"width": 1280, "height": 900}
PAPER = {"width": 680, "height": 960}  # pixels between the margins of A4
NARROW = {
    320: "what WCAG asks for (1.4.10), and a laptop's window at 400 %",
    390: "a telephone",
    640: "a laptop's window at 200 %: a browser that enlarges lays out as in a narrower window",
}
LETTERS = {  # for text and code: the book's own, and those of readers who have set others
    "own": None,
    "DejaVu": ("DejaVu Sans", "DejaVu Sans Mono"),
    "Liberation": ("Liberation Sans", "Liberation Mono"),
}
KINDS = [  # a page of each
    f"book/{name}.html"
    for name in ("intro", "notation", "03_masked_softmax", "api_more", "glossary")
]  # fmt: skip
FORMULA = 'nodes => nodes.map(node => node.closest("mjx-container").textContent)'
HAS_LETTERS = """font => {
    const pen = document.createElement("canvas").getContext("2d");
    const width = (font) => { pen.font = `50px ${font}`; return pen.measureText("mmmiii").width; };
    return width(`"${font}", serif`) === width(`"${font}", monospace`);
}"""
SET_LETTERS = """fonts => ["--book-text", "--book-code"].forEach((name, i) =>
    document.documentElement.style.setProperty(name, fonts && `"${fonts[i]}"`))"""


@pytest.fixture(scope="module")
def opened(
    visit: Callable[..., Any], unfold: Callable[[Page], None], request: Any
) -> Iterator[Page]:
    """A page with all that it folds away open, and its moving figures moved."""
    with visit(BUILT / request.param, viewport=DESK) as page:
        unfold(page)
        yield page


def lighten(page: Page) -> None:
    """Drop the strokes of formulas and the colours of code, each of which has a test: the rest is then looked at in
    half the time, and nothing has moved."""
    page.evaluate(
        """() => {
            document.querySelectorAll("mjx-container svg:has(*)").forEach(drawing => drawing.replaceChildren());
            document.querySelectorAll("pre:has(*)").forEach(code => { code.textContent = code.textContent; });
        }"""
    )


LEVELS = ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"]
# Rules that the style alone decides take nine tenths of the time, and looked at on a page of each kind.
STYLE = ["color-contrast", "target-size", "link-in-text-block"]
ALL_ELSE = {"runOnly": LEVELS, "rules": {rule: {"enabled": False} for rule in STYLE}}


def barriers(page: Page, **options: Any) -> list[str]:
    # A page with "preload" would ask for style sheets once more, which file:// forbids.
    options |= {"resultTypes": ["violations"], "preload": False}
    return [
        f"{rule['id']}: {rule['help']}: {node['html']} {node['failureSummary']}"
        for rule in Axe().run(page, options=options).response["violations"]
        for node in rule["nodes"]
    ]


def in_theme(page: Page, theme: str) -> Page:
    page.evaluate("theme => { document.documentElement.dataset.theme = theme; }", theme)
    return page


class InTheBrowser:
    """In this order, since each page is loaded once, and each change of its width costs as much as a look at it."""

    def test_all_maths_is_drawn(self, opened: Page) -> None:
        left_out = opened.locator(".math:not(:has(mjx-container svg))")
        assert left_out.all_text_contents() == []
        red = opened.locator('mjx-container [fill="red"], mjx-container [data-mjx-error], mjx-merror')  # fmt: skip
        assert red.evaluate_all(FORMULA) == []
        text = opened.evaluate(
            """() => {
                const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), found = [];
                while (walker.nextNode())
                    if (!walker.currentNode.parentElement.closest("pre, code, script, style, mjx-container"))
                        found.push(walker.currentNode.data);
                return found.join("\\n");
            }"""
        )
        assert re.findall(r"\\[(\[]|\$\$|\\begin\{|\\frac", text) == []

    def test_all_is_set_in_the_letters_of_the_book(self, opened: Page) -> None:
        fonts = opened.evaluate(
            """() => [...new Set([...document.body.querySelectorAll(":not(mjx-container *, script, style, option)")]
                .filter(part => [...part.childNodes].some(node => node.nodeType === 3 && node.data.trim()))
                .map(part => getComputedStyle(part).fontFamily.split(",")[0]))]"""
        )
        assert set(fonts) <= {'"Book Text"', '"Book Code"'}

    def test_no_barrier_for_readers(self, opened: Page) -> None:
        lighten(opened)
        assert barriers(opened, **ALL_ELSE) == []
        if is_of_a_kind(opened):
            assert barriers(in_theme(opened, "light"), runOnly=STYLE) == []
            show_tabs(opened, 2)
            assert barriers(in_theme(opened, "dark"), runOnly=STYLE[:1]) == []
            show_tabs(in_theme(opened, "light"), 1)

    def test_a_narrow_window_shows_all_and_scrolls_no_page_sideways(
        self, opened: Page, cut_off: Callable[[Page], list[str]]
    ) -> None:
        lighten(opened)
        kind = is_of_a_kind(opened)
        wanted = {"own": NARROW if kind else [320], "DejaVu": [320]}
        if kind:  # the others are narrower than DejaVu's
            wanted["Liberation"] = [320]
        lost = {
            letters: narrow(opened, cut_off, letters, widths)
            for letters, widths in wanted.items()
        }
        assert not any(lost.values()), lost

    def test_paper_shows_all(
        self, opened: Page, cut_off: Callable[[Page], list[str]]
    ) -> None:
        lighten(opened)
        opened.emulate_media(media="print")
        opened.set_viewport_size(PAPER)
        assert opened.evaluate(WIDTH) <= PAPER["width"]
        assert cut_off(opened) == []


def show_tabs(page: Page, number: int) -> None:
    labels = page.locator(f".sd-tab-label:nth-of-type({number})")
    labels.evaluate_all("labels => labels.forEach(label => label.click())")


def is_of_a_kind(page: Page) -> bool:
    return any(page.url.endswith(kind) for kind in KINDS)


def narrow(
    page: Page,
    cut_off: Callable[[Page], list[str]],
    letters: str,
    widths: Iterable[int],
) -> dict[int, Any]:
    """What a page that is set in some letters loses at each width: how wide it is then, and the words cut off."""
    found = {}
    page.evaluate(SET_LETTERS, LETTERS[letters])
    for width in widths:
        page.set_viewport_size({"width": width, "height": 844})
        page.wait_for_function("document.getAnimations().length === 0")
        wide, lost = page.evaluate(WIDTH), cut_off(page)
        if wide != width or lost:
            found[width] = wide, lost
    page.evaluate(SET_LETTERS, None)
    return found


WIDTH = "document.documentElement.scrollWidth"
# Three classes, since tests of one class stay in one process.


@pytest.mark.parametrize("opened", CHAPTERS[::2], indirect=True)
class TestOddChapters(InTheBrowser):
    pass


@pytest.mark.parametrize("opened", CHAPTERS[1::2], indirect=True)
class TestEvenChapters(InTheBrowser):
    pass


@pytest.mark.parametrize("opened", [p for p in SHOWN if p not in CHAPTERS], indirect=True)  # fmt: skip
class TestOtherPages(InTheBrowser):
    pass


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_colours_of_code_can_be_told_from_their_ground(
    visit: Callable[..., Any], theme: str
) -> None:
    """Every kind of word that the book's code has, on each ground that its code stands on."""
    words = {
        word
        for page in PAGES
        for word in re.findall(r'<span class="\w{1,3}">', (BUILT / page).read_text("utf-8"))
    }  # fmt: skip
    assert len(words) > 20
    code = " ".join(f"{word}word</span>" for word in sorted(words))
    block = f'<div class="highlight"><pre>plain {code}</pre></div>'
    with visit(BUILT / KINDS[0], viewport=DESK) as page:
        page.locator("article").evaluate(
            """(article, block) => { article.innerHTML = ["cell_input", "cell_output", "sd-tab-content", "admonition"]
                .map(ground => `<div class="cell ${ground}">${block}</div>`).join(""); }""",
            block,
        )
        assert barriers(in_theme(page, theme), runOnly=STYLE[:1]) == []


def test_letters_of_other_readers_are_here(visit: Callable[..., Any]) -> None:
    """Where they are not, pages in them are looked at in those that the browser takes instead."""
    with visit(BUILT / KINDS[0]) as page:
        fonts = [font for pair in LETTERS.values() for font in pair or ()]
        missing = [font for font in fonts if not page.evaluate(HAS_LETTERS, font)]
    if missing:
        pytest.skip(f"no {missing} here (Debian: fonts-dejavu, fonts-liberation)")


@pytest.mark.full
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("page", SHOWN)
def test_whole_page_in_either_theme(
    visit: Callable[..., Any],
    unfold: Callable[[Page], None],
    cut_off: Callable[[Page], list[str]],
    page: str,
    theme: str,
) -> None:
    """All of each page, with its colours and in each width, where the other tests look at a page of each kind."""
    with visit(BUILT / page, viewport=DESK, color_scheme=theme) as opened:
        unfold(opened)
        shown = opened.evaluate("document.documentElement.dataset.theme")
        assert shown == theme
        assert barriers(opened, runOnly=LEVELS) == []
        for letters in LETTERS if theme == "light" else ("own",):
            assert narrow(opened, cut_off, letters, NARROW) == {}


def test_every_character_has_its_letter_in_the_book(browser: Browser) -> None:
    """Nothing is left to the fonts of the reader's machine."""
    text, code = set(), set()
    for page in PAGES:
        html = (BUILT / page).read_text(encoding="utf-8")
        html = re.sub(r"(?s)<(script|style)\b.*?</\1>", "", html)
        blocks = re.compile(r"(?s)<(pre|code)\b.*?</\1>")
        code |= set(unescape("".join(found[0] for found in blocks.finditer(html))))
        text |= set(unescape(re.sub(r"<[^>]*>", "", blocks.sub("", html))))
    assert "é" in text and "σ" in code
    signs = [escape("".join(sorted(filter(str.isprintable, x)))) for x in (text, code)]
    # Not by visit: DevTools loads the page once more for its inner sheets, which file:// forbids and the console tells.
    with browser.new_page() as page:
        page.goto((BUILT / KINDS[0]).as_uri())
        page.locator("article").evaluate(
            """(article, [text, code]) => { article.innerHTML = `<p>${text}</p><p><em>${text}</em></p>
                <p><strong>${text}</strong></p><pre>${code}</pre><pre><b>${code}</b></pre>`; }""",
            signs,
        )
        page.evaluate("document.fonts.ready")
        devtools = page.context.new_cdp_session(page)
        for command in ("DOM.enable", "CSS.enable"):
            devtools.send(command)
        root = devtools.send("DOM.getDocument")["root"]["nodeId"]
        query = {"nodeId": root, "selector": "article > *"}
        nodes = devtools.send("DOM.querySelectorAll", query)["nodeIds"]
        fonts = [
            font
            for node in nodes
            for font in devtools.send("CSS.getPlatformFontsForNode", {"nodeId": node})["fonts"]
        ]  # fmt: skip
        assert len(nodes) == 5 <= len(fonts)
        assert [font["familyName"] for font in fonts if not font["isCustomFont"]] == []
