"""The notebooks to download: chapters that plain Jupyter, Colab and VS Code show as the pages do.

They know none of MyST's roles and directives. So each becomes plain Markdown: numbers where the page has references,
quotations for boxes, folds for what is folded, the package's source where the page shows it, pictures inside. Two
versions lie in ``notebooks/`` of the built book: one with the solutions, and in ``notebooks/student/`` one with stubs.
"""

import ast
import base64
import mimetypes
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import source_tabs
from book_pages import notebooks, settings
from bs4 import BeautifulSoup
from further_pages import head
from pybtex.database import parse_file
from sphinx.application import Sphinx

from attn_tutor.live.pages import exercise_of
from attn_tutor.live.pages import stub as first_line

CODE = re.compile(r"(?s)<(pre|script|style)\b.*?</\1>")
FENCE = re.compile(r"(:{3,}|`{3,})\{([\w:-]+)\} *(.*)")
OPTION = re.compile(r":([\w-]+): ?(.*)")
ROLE = re.compile(r"\{([\w:]+)\}`([^`]+)`")
EQUATION = re.compile(r"\$\$(.*?)\$\$ *\(([\w-]+)\)", re.DOTALL)
PICTURE = re.compile(r"!\[([^\]]*)\]\(((?:\.\./)?_static/[^)]+)\)")
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?:|attachment:)([^)]*)\)")
START, END = ":::{solution-start}", ":::{solution-end}\n:::"


class Book:
    """What the built pages and the bibliography say: the words that stand for a label."""

    def __init__(self, source: Path, built: Path) -> None:
        self.source, self.labels = source, dict[str, str]()
        for page in sorted(built.glob("book/**/*.html")):
            # No label stands in code, and without it a page is read in half the time.
            html = CODE.sub("", page.read_text(encoding="utf-8"))
            soup = BeautifulSoup(html, "html.parser")
            for number in soup.find_all(class_="caption-number"):
                holder = number.find_parent(id=True)
                if holder is not None:
                    self.labels[str(holder["id"])] = number.get_text().strip()
            for equation in soup.find_all(class_="eqno"):
                if link := equation.find("a", href=True):
                    label = str(link["href"]).removeprefix("#equation-")
                    self.labels[label] = equation.get_text().rstrip("#")
            for section in soup.find_all("section", id=True):
                if heading := section.find(["h1", "h2", "h3"], recursive=False):
                    words, anchor = heading.get_text().rstrip("#"), section["id"]
                    title = re.sub(r"^[\d.]+ ", "", words)
                    self.labels.setdefault(f"{page.stem}#{anchor}", title)
                    self.labels.setdefault(f"#{anchor}", title)
        entries = parse_file(source / "book" / "references.bib").entries
        self.works = {key: cited(entry) for key, entry in entries.items()}

    def words(self, role: str, text: str) -> str:
        """What stands on the page for a role."""
        shown, _, target = text.removesuffix(">").rpartition("<")
        if role == "term":
            return (shown or target).strip()
        if role == "py:obj":
            path = (target or text).lstrip("~")
            return f"`{path.rpartition('.')[2] if text.startswith('~') else path}`"
        if role.startswith("cite"):
            works = [self.works[key.strip()] for key in text.split(",")]
            if role == "cite:t":
                return " and ".join(f"{who} ({year})" for who, year in works)
            return f"({'; '.join(f'{who}, {year}' for who, year in works)})"
        if shown and role != "eq":
            return shown.strip()
        return self.labels[target.strip()]


def cited(entry: Any) -> tuple[str, str]:
    """Authors and year, in the style of the pages."""
    names = [" ".join(p.prelast_names + p.last_names) for p in entry.persons["author"]]
    names = [name.replace("{", "").replace("}", "") for name in names]
    who = " and ".join(names) if len(names) < 3 else f"{names[0]} et al."
    return who, entry.fields["year"]


class Plain:
    """One chapter on its way to plain Markdown."""

    def __init__(self, book: Book, path: Path) -> None:
        self.book, self.path, self.pictures = book, path, dict[str, Any]()

    def cell(self, cell: Any) -> Any:
        self.pictures = {}
        cell.source = self.text(cell.source).strip("\n")
        if self.pictures:
            cell.attachments = self.pictures
        return cell

    def text(self, source: str) -> str:
        lines = iter(source.split("\n"))
        return "\n".join(self.blocks(lines))

    def blocks(self, lines: Iterator[str]) -> Iterator[str]:
        """The lines with each directive replaced; formulas, roles and links in what is left."""
        prose: list[str] = []
        for line in lines:
            if found := FENCE.fullmatch(line):
                yield self.prose(prose)
                prose = []
                inside = until(lines, found[1])
                yield from self.directive(found[2], found[3], inside)
            elif line.startswith("```"):
                yield self.prose(prose)
                prose = []
                yield "\n".join([line, *until(lines, "```"), "```"])
            else:
                prose.append(line)
        yield self.prose(prose)

    def prose(self, lines: list[str]) -> str:
        text = "\n".join(
            line for line in lines if not re.match(r"</?attn-|\([\w-]+\)=", line)
        )
        text = EQUATION.sub(
            lambda m: f"$${m[1].rstrip()} \\qquad {self.book.labels[m[2]]}\n$$", text
        )
        text = ROLE.sub(lambda m: self.book.words(m[1], m[2]), text)
        text = PICTURE.sub(self.picture, text)
        return LINK.sub(self.link, text)

    def picture(self, found: re.Match[str]) -> str:
        """The picture goes into the cell."""
        file = self.path.parent / found[2]
        kind = mimetypes.guess_type(file.name)[0] or ""
        content = base64.b64encode(file.read_bytes()).decode()
        self.pictures[file.name] = {kind: content}
        return f"![{found[1]}](attachment:{file.name})"

    def link(self, found: re.Match[str]) -> str:
        """The words of a link to another file: the notebook may lie anywhere."""
        words, (file, _, anchor) = found[1], found[2].partition("#")
        page = Path(file).stem or self.path.stem
        return words or f"*{self.book.labels[f'{page}#{anchor}']}*"

    def directive(self, name: str, title: str, lines: list[str]) -> Iterator[str]:
        options = {}
        while lines and (found := OPTION.fullmatch(lines[0])):
            options[found[1]] = found[2]
            del lines[0]
        inside = self.text("\n".join(lines)).strip("\n")
        number = self.book.labels.get(options.get("label", ""), "")
        if name == "page-head":
            text = head(self.path, lines, options.get("formula", ""))
            yield from quoted("On this page", self.text("\n".join(text)))
        elif name == "source":
            yield from self.sources(title.split())
        elif name == "include":
            table = (self.path.parent / title).read_text(encoding="utf-8")
            yield self.text(table)
        elif name == "figure":
            words = options.get("alt", "")
            yield self.prose([f"![{words}]({title})"])
            yield f"\n*{self.book.labels[options['name']]}: {inside}*"
        elif name == "prf:proof":
            yield from fold("Proof", inside)
        elif name == "recall":
            yield from fold(f"Remember: {title}", inside)
        elif name in ("exercise", "prf:theorem"):
            yield from quoted(
                f"{number} ({self.prose([title])})" if title else number, inside
            )
        elif "dropdown" in options.get("class", ""):
            yield from fold(self.prose([title]), inside)
        else:
            yield from quoted(self.prose([title]), inside)

    def sources(self, names: list[str]) -> Iterator[str]:
        for half, title in source_tabs.HALVES.items():
            code = []
            for name in names:
                module, *path = name.split(".")
                file = self.book.source / source_tabs.source_file(half, module)
                text = (
                    file.read_text(encoding="utf-8").split("\n")
                    if file.exists()
                    else []
                )
                code += [text[i - 1] for i in source_tabs.source_lines(file, path)]
            if code:
                body = textwrap.dedent("\n".join(code))
                yield from fold(f"In the package, {title}", f"```python\n{body}\n```")


def until(lines: Iterator[str], fence: str) -> list[str]:
    """The lines up to the one that closes the fence."""
    inside = []
    for line in lines:
        if line == fence:
            break
        inside.append(line)
    return inside


def fold(title: str, text: str) -> Iterator[str]:
    yield f"<details><summary>{title}</summary>\n\n{text}\n\n</details>\n"


def quoted(title: str, text: str) -> Iterator[str]:
    yield textwrap.indent(f"**{title}**\n\n{text}\n", "> ", lambda line: True)


def without_solutions(cells: list[Any]) -> list[Any]:
    """The cells outside the gates; at the end of each solution stubs of the functions that it defined."""
    # Here, since a page needs no checkers to be built.
    from attn_tutor.check import EXERCISES

    kept: list[Any] = []
    hidden: list[ast.FunctionDef] = []
    inside = False
    for cell in cells:
        text = cell.source
        if inside:
            if cell.cell_type == "code":
                body = ast.parse(text).body
                hidden += [node for node in body if isinstance(node, ast.FunctionDef)]
            before, end, text = text.partition(END)
            if not end:
                continue
            asked = (node for node in hidden if exercise_of(node) in EXERCISES)
            kept += [
                stub(node, EXERCISES[exercise_of(node)].statement) for node in asked
            ]
            hidden = []
        cell.source, start, _ = text.partition(START)
        cell.source = cell.source.strip("\n")
        inside = bool(start)
        if cell.source:
            kept.append(cell)
    return kept


def with_solutions(cells: list[Any]) -> list[Any]:
    """The gates become headings."""
    for cell in cells:
        cell.source = cell.source.replace(END, "")
        gate = r":::\{solution-start\} ([\w-]+)\n(?::.*\n)*:::"
        cell.source = re.sub(gate, r"**Solution of {ref}`\1`**", cell.source)
    return [cell for cell in cells if cell.source.strip()]


def stub(node: ast.FunctionDef, statement: str) -> Any:
    name = exercise_of(node)
    define = first_line(node, statement)
    source = f"""from attn_tutor import check
from attn_tutor.live.loading import my_solutions


@my_solutions  # takes your answer from my_solutions.py, as long as none stands here
{define}


check.{name}({node.name});"""
    return nbformat.v4.new_code_cell(source, id=f"stub-{name}".replace("_", "-"))


def beside(source: str) -> str:
    """Code that keeps trained weights beside its notebook; in the book further pages share a folder with all others."""
    return source.replace('"../trained', '"trained')


def set_up(source: Path) -> Any:
    """The first cell: installs the package where it is missing."""
    url = settings(source).get("repository", {}).get("url")
    what = (
        f"attn-tutor[torch,plot] @ git+{url}"
        if url
        else "PATH/TO/attn_tutor[torch,plot]"
    )
    lines = [
        "# Runs this page anywhere: Jupyter, Colab, VS Code.",
        "try:",
        "    import attn_tutor",
        "except ModuleNotFoundError:  # uv takes torch for the CPU, a tenth of the download",
        "    %pip install -q uv",
        f'    !uv pip install -q --torch-backend=cpu "{what}"',
    ]
    return nbformat.v4.new_code_cell("\n".join(lines), id="set-up")


def with_caption(cell: Any, book: Book) -> list[Any]:
    """A cell as plain Jupyter shows it: folded if the page folds it, and with the caption of its figure below it."""
    if "hide-input" in cell.metadata.get("tags", []):
        cell.metadata["jupyter"] = {"source_hidden": True}
    figure = cell.metadata.pop("mystnb", {}).get("figure")
    if figure is None:
        return [cell]
    words = f"*{book.labels[figure['name']]}: {figure['caption']}*"
    return [cell, nbformat.v4.new_markdown_cell(words, id=figure["name"])]


def write(app: Sphinx, error: Exception | None) -> None:
    if error is not None or app.builder.format != "html":
        return
    source, built = Path(app.srcdir), Path(app.outdir)
    book, folder = Book(source, built), built / "notebooks"
    versions = {folder: with_solutions, folder / "student": without_solutions}
    for path in notebooks(source / "book"):
        for place, version in versions.items():
            notebook = nbformat.read(path, as_version=4)
            plain, cells = Plain(book, path), [set_up(source)]
            for cell in version(notebook.cells):
                if cell.cell_type == "markdown":
                    cells.append(plain.cell(cell))
                else:
                    cell.source = beside(cell.source)
                    cells += with_caption(cell, book)
            notebook.cells = cells
            target = place / path.relative_to(source / "book")
            target.parent.mkdir(parents=True, exist_ok=True)
            nbformat.write(notebook, target)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
