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
from itertools import accumulate
from pathlib import Path
from typing import Any

import nbformat
import source_tabs
from book_pages import notebooks, settings
from further_pages import head
from markdown_it.token import Token
from markdown_tokens import tokens
from pybtex.database import parse_file
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from attn_tutor.live.pages import exercise_of
from attn_tutor.live.pages import stub as first_line

OPTION = re.compile(r":([\w-]+): ?(.*)")
MOVING = ("<attn-", "</attn-")
START, END = ":::{solution-start}", ":::{solution-end}\n:::"


Change = tuple[int, int, str]  # from where to where, and what stands there then


class Book:
    """What Sphinx has numbered and the bibliography lists: the words that stand for a label."""

    def __init__(self, env: BuildEnvironment) -> None:
        self.source, self.labels = Path(env.srcdir), dict[str, str]()
        for kinds in env.toc_fignumbers.values():
            for kind, numbers in kinds.items():
                form = env.config.numfig_format.get(kind, "(%s)")  # of an equation
                for label, number in numbers.items():
                    words = form % ".".join(map(str, number))
                    name = label.removeprefix("equation-")
                    self.labels[name] = words[0].upper() + words[1:]
        for page, about in env.metadata.items():
            for slug, (_, _, title) in about.get("myst_slugs", {}).items():
                self.labels.setdefault(f"{Path(page).name}#{slug}", title)
        entries = parse_file(self.source / "book/references.bib").entries
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
        """Each directive, role, picture, link and numbered equation replaced, and all else as it is written."""
        lines = source.splitlines(keepends=True)
        starts = [0, *accumulate(map(len, lines))]
        done, at = "", 0
        for start, end, new in self.changes(source, starts):
            done, at = done + source[at:start] + new, end
        return done + source[at:]

    def changes(self, source: str, starts: list[int]) -> Iterator[Change]:
        for token in tokens(source):
            if token.map is None:
                continue
            if token.type == "inline":
                at = starts[token.map[0]]
                yield from self.inline(source, at, token.children or [])
                continue
            start, end = (starts[line] for line in token.map)
            if "fence" in token.type and token.info.startswith("{"):
                name, _, title = token.info[1:].partition("}")
                inside = token.content.rstrip("\n").split("\n")
                new = "\n".join(self.directive(name, title.strip(), inside))
                yield start, end, new + "\n" * source[start:end].endswith("\n")
            elif token.type == "math_block_label":
                number = self.book.labels[token.info]
                yield start, end, f"$${token.content.rstrip()} \\qquad {number}\n$$\n"
            elif token.type == "myst_target" or token.content.startswith(MOVING):
                yield start, end, ""

    def inline(self, source: str, at: int, children: list[Token]) -> Iterator[Change]:
        """Tokens within a paragraph do not say where they stand, but they stand in this order."""

        def after(mark: str) -> int:
            """The end of what is written so."""
            nonlocal at
            at = source.index(mark, at) + len(mark)
            return at

        for child in children:
            if child.type in ("code_inline", "math_inline"):
                for _ in range(2):
                    after(child.markup)
            elif child.type == "myst_role":
                start = after("{") - 1
                after("`")
                yield (
                    start,
                    after("`"),
                    self.book.words(child.meta["name"], child.content),
                )
            elif child.type == "image":
                start = after("![") - 2
                words = source[at : after("](") - 2]
                yield start, after(")"), self.picture(words, str(child.attrs["src"]))
            elif child.type == "link_open" and child.markup != "autolink":
                opened, address = after("[") - 1, str(child.attrs["href"])
                ours = not address.startswith("http")
                if ours:
                    yield opened, at, "" if source[at] != "]" else self.title(address)
            elif child.type == "link_close" and child.markup != "autolink":
                start = after("](") - 2
                if ours:
                    yield start, after(")"), ""

    def picture(self, words: str, address: str) -> str:
        """The picture goes into the cell."""
        file = self.path.parent / address
        kind = mimetypes.guess_type(file.name)[0] or ""
        content = base64.b64encode(file.read_bytes()).decode()
        self.pictures[file.name] = {kind: content}
        return f"![{words}](attachment:{file.name})"

    def title(self, address: str) -> str:
        """The words of a link that has none. It leads to another file, and the notebook may lie anywhere."""
        file, _, anchor = address.partition("#")
        page = Path(file).stem or self.path.stem
        return f"*{self.book.labels[f'{page}#{anchor}']}*"

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
            yield self.picture(words, title)
            yield f"\n*{self.book.labels[options['name']]}: {inside}*"
        elif name == "prf:proof":
            yield from fold("Proof", inside)
        elif name == "recall":
            yield from fold(f"Remember: {title}", inside)
        elif name in ("exercise", "prf:theorem"):
            yield from quoted(
                f"{number} ({self.text(title)})" if title else number, inside
            )
        elif "dropdown" in options.get("class", ""):
            yield from fold(self.text(title), inside)
        else:
            yield from quoted(self.text(title), inside)

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


def fold(title: str, text: str) -> Iterator[str]:
    for mark, tag in (("`", "code"), (r"\*", "em")):  # in HTML no Markdown is read
        title = re.sub(rf"{mark}([^{mark}$]+){mark}", rf"<{tag}>\1</{tag}>", title)
    yield f"<details><summary>{title}</summary>\n\n{text}\n\n</details>\n"


def quoted(title: str, text: str) -> Iterator[str]:
    yield textwrap.indent(f"**{title}**\n\n{text}\n", "> ", lambda line: True)


def without_solutions(cells: list[Any]) -> list[Any]:
    """The cells outside the gates; at the end of each solution stubs of the functions that it defined."""
    # An import here, since a page needs no checkers to be built.
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
    book, folder = Book(app.env), built / "notebooks"
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
