"""The notebooks to download: plain Jupyter shows in them what the page shows; students get stubs for solutions."""

import ast
import importlib
import inspect
import re
from functools import cache
from types import SimpleNamespace

import book_pages
import markdown_reference
import nbformat
import pytest
import student_notebooks
from nbclient import NotebookClient
from plain_notebooks import Book, Plain, beside

from attn_tutor.check import EXERCISES

ROOT = book_pages.BOOK.parent
PAGES = book_pages.notebooks()
CHAPTERS = [path for line in book_pages.toc().items() for path in (line[0], *line[1])]
each = pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
each_page = pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)


@cache
def cells_of(path):
    """Not validated, which takes longest and has its own test."""
    return nbformat.v4.reads(path.read_text(encoding="utf-8")).cells


@pytest.fixture
def solved(book, path):
    return cells_of(book / "notebooks" / path.relative_to(book_pages.BOOK))


@pytest.fixture
def students(book, path):
    return cells_of(book / "notebooks/student" / path.relative_to(book_pages.BOOK))


def code(cells):
    return [cell.source for cell in cells if cell.cell_type == "code"]


def stubs(cells):
    return [cell.source for cell in cells if cell.id.startswith("stub-")]


def solution_cells(cells):
    """The cells between the gates, found from the text of the whole notebook."""
    marked = (
        f"⟦{i}⟧" if x.cell_type == "code" else x.source for i, x in enumerate(cells)
    )
    gates = re.compile(r":::\{solution-start\}(.*?):::\{solution-end\}", re.DOTALL)
    inside = gates.findall("\n".join(marked))
    numbers = [int(i) for part in inside for i in re.findall(r"⟦(\d+)⟧", part)]
    return [cells[i] for i in numbers], inside


def markdown(cells):
    return "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


@each_page
def test_nothing_is_left_that_only_the_book_understands(path, solved, students):
    for cells in (solved, students):
        text = re.sub(
            r"```.*?```|`[^`]*`|\$\$.*?\$\$|\$[^$]*\$",
            "",
            markdown(cells),
            flags=re.DOTALL,
        )
        for token in (
            r"^\s*>? ?:{3,}",
            r"\{[\w:]+\}",
            r"</?attn-",
            r"\]\((?!https?:|attachment:)",
        ):
            assert re.findall(rf".*{token}.*", text, re.MULTILINE) == []
        for cell in cells:
            named = re.findall(r"\(attachment:([^)]+)\)", cell.source)
            assert set(named) == set(cell.get("attachments", {}))


@each_page
def test_titles_of_folds_need_no_markdown(solved):
    titles = re.findall("<summary>(.*?)</summary>", markdown(solved))
    words = [re.sub(r"\$[^$]+\$", "", title) for title in titles]
    assert [title for title in words if re.search("[`*]", title)] == []


@each_page
def test_references_have_the_numbers_of_the_page(path, book, solved):
    page = book / "book" / path.relative_to(book_pages.BOOK).with_suffix(".html")
    page = page.read_text(encoding="utf-8")
    text = markdown(solved)
    numbers = re.findall(r'class="eqno">(\([\w.]+\))', page)
    assert re.findall(r"\\qquad (\(\d+\.\d+\))", text) == numbers
    for kind in ("Theorem", "Exercise", "Fig."):
        found = re.findall(rf'caption-number">({kind} [\d.]+) ?<', page)
        assert [number for number in found if number not in text] == []


@each_page
def test_the_code_is_that_of_the_page(path, solved):
    mine = code(solved)
    assert mine[1:] == [beside(x) for x in code(cells_of(path))]
    assert "attn_tutor" in mine[0] and "cpu" in mine[0]  # installs what is missing


@each
def test_no_solution_is_left_and_nothing_else_is_gone(path, solved, students):
    page = cells_of(path)
    solutions, inside = solution_cells(page)
    assert len(inside) >= (5 if path in book_pages.toc() else 1)
    mine = set(code(students))
    solved_by = {beside(cell.source) for cell in solutions}
    assert {*map(beside, code(page))} - mine == solved_by
    assert not solved_by & mine
    text = markdown(students)
    assert markdown(solved).count("**Solution of Exercise") == len(inside)
    assert "Solution of" not in text
    assert len(re.findall(r"> \*\*Exercise [\d.]+", text)) == len(inside)


@each
def test_each_function_that_is_asked_for_has_a_stub_that_says_what_is_missing(
    path, students, capsys
):
    asked = re.findall(r"[Ww]rite `(\w+)\(", markdown(students))
    found = stubs(students)
    assert len(asked) == len(found) >= (path in book_pages.toc())
    for name, source in zip(asked, found, strict=True):
        exercise = EXERCISES[name.removeprefix("my_")]
        names = {}
        exec(source, names)
        out = capsys.readouterr().out
        assert re.match(rf"✗ {exercise.name} \(NumPy\): returns None\n", out)
        asks = " ".join(names[name].__doc__.split())
        assert exercise.statement.endswith(f"): {asks}")
        assert max(map(len, source.splitlines())) <= 88


@each
def test_no_cell_needs_what_a_solution_made(path, students):
    def names(sources, kind):
        trees = [ast.walk(ast.parse(source)) for source in sources]
        nodes = [node for tree in trees for node in tree]
        found = {
            x.id for x in nodes if isinstance(x, ast.Name) and isinstance(x.ctx, kind)
        }
        if kind is ast.Store:
            found |= {
                x.name for x in nodes if isinstance(x, ast.FunctionDef | ast.ClassDef)
            }
        return found

    solutions, _ = solution_cells(cells_of(path))
    mine = code(students)[1:]
    taken = {
        x.arg for y in mine for x in ast.walk(ast.parse(y)) if isinstance(x, ast.arg)
    }
    made = names(code(solutions), ast.Store) - names(mine, ast.Store) - taken
    assert made and not made & names(mine, ast.Load)


@pytest.mark.full
@each_page
def test_students_pages_run_before_anything_is_answered(path, book):
    page = book / "notebooks/student" / path.relative_to(book_pages.BOOK)
    place = {"metadata": {"path": path.parent}}  # where `trained` lies
    read = nbformat.reads(student_notebooks.notebook(page), 4)
    NotebookClient(read, timeout=180, resources=place).execute()


@each_page
def test_the_files_are_sound(path, book):
    for place in ("notebooks", "notebooks/student"):
        nbformat.validate(
            nbformat.read(book / place / path.relative_to(book_pages.BOOK), 4)
        )


@pytest.fixture
def plain():
    """A page with one figure, on its way to plain Markdown."""
    env = SimpleNamespace(
        srcdir=ROOT,
        config=SimpleNamespace(numfig_format={"figure": "Fig. %s", "theorem": "theorem %s"}),
        toc_fignumbers={"book/01_page": {"figure": {"fig-a": (1, 2)}, "theorem": {"thm-b": (1, 3)},
                                         "displaymath": {"equation-eq-c": (1, 4)}}},
        metadata={"book/01_page/more": {"myst_slugs": {"an-end": (9, "an-end", "An end")}}},
    )  # fmt: skip
    return Plain(Book(env), book_pages.BOOK / "01_page.ipynb").text


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("{numref}`fig-a`, {prf:ref}`thm-b`", "Fig. 1.2, Theorem 1.3"),
        ("$$\na\n$$ (eq-c)\n\n{eq}`eq-c`\n", "$$\na \\qquad (1.4)\n$$\n\n(1.4)\n"),
        ("see [](01_page/more.ipynb#an-end)", "see *An end*"),
        (
            "* [two\n  words](02_page.ipynb) and <https://a.b>",
            "* two\n  words and <https://a.b>",
        ),
        # Code is shown as it is.
        ("``{eq}`eq-c` ``, [`[a](b)`](c.ipynb)", "``{eq}`eq-c` ``, `[a](b)`"),
        ("~~~python\n{eq}`eq-c`\n~~~\n", "~~~python\n{eq}`eq-c`\n~~~\n"),
        (":::{note} {eq}`eq-c`\nin `a`\n:::\n", "> **(1.4)**\n> \n> in `a`\n\n"),
    ],
)
def test_markdown_is_read_as_the_pages_are(plain, written, shown):
    assert plain(written) == shown


def test_every_page_is_markdown_too_and_listed(book):
    """What a page prints is in it, and no picture, which a program that reads has no use for."""
    listed = re.findall(r"(?m)^- \[(.+)\]\((.+)\)$", (book / "llms.txt").read_text())
    pages = {file for _, file in listed}
    assert pages == {f"{page.relative_to(book)}.md" for page in book.glob("book/**/*.html")}  # fmt: skip
    for file in pages:
        text = (book / file).read_text(encoding="utf-8")
        assert text.strip() and "attachment:" not in text and "base64" not in text
    masked = (book / "book/03_masked_softmax.html.md").read_text(encoding="utf-8")
    assert "```python\n" in masked and "✓ masked_softmax" in masked


@pytest.mark.parametrize(
    ("page", "package"),
    [
        ("torch", "attn_tutor.torch"),
        ("failures", "attn_tutor.failures"),
        ("models", "attn_tutor.models.smollm2"),
        ("models", "attn_tutor.models.rxnmapper"),
    ],
)
def test_the_reference_is_markdown_with_every_name(book, page, package):
    text = (book / f"book/api_{page}.html.md").read_text(encoding="utf-8")
    room = importlib.import_module(package)
    for name in room.__all__:
        entry = text.partition(f"\n### `{name}`\n")[2].partition("\n### ")[0]
        thing = getattr(room, name)
        assert getattr(thing, "__shapes__", "") in entry, name
        if callable(thing):
            assert f"\n`{name}(" in entry and inspect.getdoc(thing)[-9:] in entry, name


def test_the_reference_is_markdown_without_marks(book):
    for path in book.glob("book/api*.html.md"):
        text = path.read_text(encoding="utf-8")
        assert not re.findall(r"<!-- |:[a-z]+:`|eval-rst|(?<!`)``(?!`)", text), (
            path.name
        )
    more = (book / "book/api_more.html.md").read_text(encoding="utf-8")
    assert "usage: python -m attn_tutor.check" in more
    checkers = (book / "book/api_check.html.md").read_text(encoding="utf-8")
    for name, exercise in EXERCISES.items():
        assert f"### `check.{name}(fn)`" in checkers and exercise.statement.partition(": ")[2] in checkers  # fmt: skip


def test_a_docstring_as_markdown():
    def fn(x):
        """A *line* with :math:`x^2` of :func:`~a.b`, as :class:`D <a.D>` has ``c``.

        .. math:: y = x
            + 1

        Args:
            x: of two
                lines.

        Returns:
            One,
            two.

        Example:
            >>> fn(1)
            2
        """

    assert markdown_reference.docstring(fn) == (
        "A *line* with $x^2$ of `a.b`, as `D` has `c`.\n\n$$\ny = x\n+ 1\n$$\n\n**Args**\n\n- x: of two\n  lines.\n\n"
        "**Returns**\n\nOne,\ntwo.\n\n**Example**\n\n    >>> fn(1)\n    2"
    )


def test_student_notebooks_of_a_learner_are_kept_and_find_the_trained_weights(
    tmp_path, monkeypatch, capsys
):
    built, own = tmp_path / "built", tmp_path / "student"
    monkeypatch.setattr(student_notebooks, "BUILT", built)
    monkeypatch.setattr(student_notebooks, "STUDENT", own)
    code = 'os.makedirs("trained", exist_ok=True)\nfit("trained/x.pt", "trained")'
    cells = [nbformat.v4.new_code_cell(code)]
    (built / "02_page").mkdir(parents=True)
    for page in ("02_page.ipynb", "02_page/more.ipynb"):
        nbformat.write(nbformat.v4.new_notebook(cells=cells), built / page)
    student_notebooks.main()
    assert (own / "02_page.ipynb").read_text() == (built / "02_page.ipynb").read_text()
    [further] = cells_of(own / "02_page/more.ipynb")
    assert further.source == code.replace('("trained', '("../trained', 2)
    assert (own / "trained/no_mask.pt").exists()
    student_notebooks.main()
    assert "rename yours" not in capsys.readouterr().out
    (own / "02_page.ipynb").write_text("mine")
    student_notebooks.main()
    assert (own / "02_page.ipynb").read_text() == "mine"
    assert "rename yours:\n  02_page.ipynb\n" in capsys.readouterr().out


def test_make_clean_leaves_what_a_learner_wrote():
    [line] = re.findall(r"rm -rf (_build .*)", (ROOT / "Makefile").read_text())
    assert not {"student", "my_edits", "my_solutions.py"} & {*line.split()}
