"""The committed notebooks: in the one fixed form, whole, and readable without their pictures."""

import ast
import os
import re
import shutil
import sys
from collections import Counter
from itertools import takewhile, zip_longest
from pathlib import Path
from typing import Any

import book_pages
import figure_data
import nbformat
import notebooks as tool
import pytest

import attn_tutor.numpy
import attn_tutor.torch

ROOT = Path(__file__).parents[2]
NOTEBOOKS = book_pages.notebooks()
LONGEST_CELL = 12
PICTURES = {"image/png", "image/svg+xml", "image/jpeg"}


CHAPTERS = [*book_pages.toc()]
FURTHER = [path for paths in book_pages.toc().values() for path in paths]
CORE = [path for path, further in book_pages.toc().items() if further]
LATER = [
    path for path in CHAPTERS if path not in CORE
]  # chapters in their old shape still


def parametrize(paths: list[Path]) -> Any:
    return pytest.mark.parametrize("path", paths, ids=lambda path: path.stem)


each, each_chapter, each_further = map(parametrize, (NOTEBOOKS, CHAPTERS, FURTHER))
each_core, each_later = parametrize(CORE), parametrize(LATER)
each_page = parametrize([*CHAPTERS, *FURTHER])


def code_cells(path: Path) -> list[Any]:
    return [cell for cell in tool.read(path).cells if cell.cell_type == "code"]


def test_the_book_has_notebooks() -> None:
    assert "01_queries_keys_values" in [path.stem for path in NOTEBOOKS]
    assert {*CHAPTERS, *FURTHER} <= {*NOTEBOOKS}
    assert CORE and FURTHER


def test_each_folder_of_further_pages_is_listed_whole() -> None:
    assert {*(ROOT / "book").glob("[0-9]*/*.ipynb")} == {*FURTHER}


@each
def test_is_in_the_fixed_form(path: Path) -> None:
    assert path.read_bytes() == tool.normalise(tool.read(path)).encode(), (
        "type `make notebooks`"
    )


@each
def test_every_cell_ran_and_none_failed_or_warned(path: Path) -> None:
    for cell in code_cells(path):
        faults = [
            o
            for o in cell.outputs
            if o.output_type == "error" or o.get("name") == "stderr"
        ]
        assert faults == [], cell.source
        tags = cell.metadata.get("tags", [])
        assert "nbval-skip" not in tags, cell.source
        if "nbval-ignore-output" in tags:  # its bytes differ between processors
            assert "compared-by-its-record" in tags, cell.source
            assert cell.metadata[figure_data.KEY], cell.source
        assert "NBVAL_" not in cell.source, cell.source


@each
def test_the_notebook_is_light(path: Path) -> None:
    """Pictures without a palette would make it three times as heavy. A head view carries its weights."""
    assert path.stat().st_size < 450_000


@each
def test_every_figure_has_alt_text_and_a_caption(path: Path) -> None:
    for cell in code_cells(path):
        if any(PICTURES & set(output.get("data", {})) for output in cell.outputs):
            about = cell.metadata.get("mystnb", {})
            assert len(about.get("image", {}).get("alt", "")) > 20, (
                f"no alt text: {cell.source}"
            )
            assert len(about.get("figure", {}).get("caption", "")) > 10, (
                f"no caption: {cell.source}"
            )
            assert about["figure"].get("name", "").startswith("fig-"), (
                f"no name to refer to: {cell.source}"
            )
            assert any(axes["numbers"] for axes in cell.metadata[figure_data.KEY]), (
                f"its data is not on record: {cell.source}"
            )


def tags(cell: Any) -> set[str]:
    return {*cell.metadata.get("tags", [])}


@each
def test_cells_that_readers_see_are_short(path: Path) -> None:
    """Lines to copy stand whole."""
    folded = {"hide-input", "hide-cell", "lines"}
    shown = [c for c in code_cells(path) if not tags(c) & folded]
    long = [cell.source for cell in shown if cell.source.count("\n") >= LONGEST_CELL]
    assert long == [], (
        f"shorten to {LONGEST_CELL} lines, or fold with the tag hide-input"
    )


def text_of(path: Path) -> str:
    return "\n\n".join(
        cell.source for cell in tool.read(path).cells if cell.cell_type == "markdown"
    )


def section(path: Path, heading: str) -> list[Any]:
    """The cells from a heading of level two to the next one."""
    cells = tool.read(path).cells
    starts = [i for i, cell in enumerate(cells) if cell.source.startswith("## ")]
    start = next(
        i for i in starts if cells[i].source.partition("\n")[0] == f"## {heading}"
    )
    return cells[start : next((i for i in starts if i > start), None)]


def headings(path: Path) -> list[str]:
    return re.findall(r"^## (.*)", text_of(path), re.MULTILINE)


@each_chapter
@pytest.mark.parametrize("file", ["_toc.yml", "book/intro.md"])
def test_the_chapter_is_listed(path: Path, file: str) -> None:
    listed = (ROOT / file).read_text(encoding="utf-8")
    assert path.stem in listed, f"{file} lacks {path.stem}"


@each_page
def test_a_page_opens_with_a_question_and_its_head(path: Path) -> None:
    opening = tool.read(path).cells[0].source
    assert re.match(r"# [^$]+\n\n[^#]*\?", opening), "a title, then a question"
    assert len(re.findall(r"^:::\{page-head\}$", text_of(path), re.M)) == 1
    assert not re.search(r"\babout \d+ minutes\b", text_of(path), re.I), (
        "the clock says"
    )
    assert all(number < 2 for number in Counter(headings(path)).values())


@each_chapter
def test_each_chapter_says_what_it_is_for(path: Path) -> None:
    assert ":::{admonition} In this chapter you will\n:class: tip" in text_of(path)


@each_later
def test_each_later_chapter_has_its_parts_in_order(path: Path) -> None:
    closing = ["Shape ledger", "How this breaks", "Exercises", "Summary", "Where next"]
    assert headings(path)[-5:] == closing
    assert "The same in torch" in headings(path)


@each_core
def test_each_core_chapter_has_its_parts_in_order(path: Path) -> None:
    closing = ["How this breaks", "Exercises", "Summary", "Where next"]
    assert headings(path)[-4:] == closing


@each_further
def test_each_further_page_ends_with_exercises_and_a_summary(path: Path) -> None:
    assert headings(path)[-2:] == ["Exercises", "Summary"]


LONGEST_MAIN_PAGE, LONGEST_FURTHER_PAGE = 40, 25  # minutes
FORMULA_AFTER, LINES_SHOWN = 10, 90


@each_core
def test_a_main_page_takes_forty_minutes_and_shows_its_formula_in_ten(
    path: Path,
) -> None:
    page = book_pages.Notebook(path)
    assert page.minutes <= LONGEST_MAIN_PAGE
    assert page.visible_lines <= LINES_SHOWN
    formula = re.search(r":::\{page-head\}\n:formula: (\S+)\n", text_of(path))
    assert formula, "the head names the central formula"
    assert page.minutes_until(formula[1]) < FORMULA_AFTER


@each_further
def test_a_further_page_takes_twenty_five_minutes(path: Path) -> None:
    assert book_pages.Notebook(path).minutes <= LONGEST_FURTHER_PAGE


EVIDENCE = r"(?:\{(?:numref|eq|prf:ref|ref)\}`[^`]+`|\[[^]]+\]\([^)]*#[^)]+\))"


@parametrize([*CORE, *FURTHER])
def test_each_line_of_a_summary_ends_with_its_evidence(path: Path) -> None:
    bullets = re.findall(
        r"^\* (.+(?:\n(?!\*).+)*)", section(path, "Summary")[0].source, re.MULTILINE
    )
    assert len(bullets) >= 3
    assert [x for x in bullets if not re.search(rf"{EVIDENCE}\W*$", x)] == []


@each_chapter
def test_each_chapter_proves_something_and_shows_two_figures(path: Path) -> None:
    text = text_of(path)
    assert text.count("{prf:theorem}") >= 1
    assert text.count("{prf:theorem}") == text.count("{prf:proof}")
    figures = [c for c in code_cells(path) if figure_data.KEY in c.metadata]
    assert len(figures) >= 2
    for cell in figures:
        name = cell.metadata["mystnb"]["figure"]["name"]
        assert f"`{name}`" in text, f"the text does not speak of {name}"


@each_chapter
def test_the_ledger_is_asserted(path: Path) -> None:
    """In a box that opens, or in the later chapters below a heading; the code below it asserts each line."""
    cells = tool.read(path).cells
    title = r"^:::+\{admonition\} Shape ledger\n:class: dropdown$|^## Shape ledger$"
    [at] = [i for i, x in enumerate(cells) if re.search(title, x.source, re.MULTILINE)]
    table = re.split(title, cells[at].source, flags=re.MULTILINE)[1]
    lines = [x for x in table.splitlines() if re.match(r"\| .*\$", x)]
    below = takewhile(lambda cell: cell.cell_type == "code", cells[at + 1 :])
    assert len(lines) >= 4
    assert sum(cell.source.count("assert ") for cell in below) >= len(lines)


@each_chapter
def test_what_breaks_is_shown_running(path: Path) -> None:
    cells = section(path, "How this breaks")
    mistakes = [cell for cell in cells if "**" in cell.source[:60]]
    least = 2 if path in CORE else 3
    assert len([c for c in cells if c.cell_type == "code"]) >= len(mistakes) >= least


@each_page
def test_exercises_have_solutions_that_run(path: Path) -> None:
    text = "\n\n".join(
        f"<run>\n{cell.source}" if cell.cell_type == "code" else cell.source
        for cell in section(path, "Exercises")
    )
    given = re.findall(r":::\{exercise\} .+\n:label: (\S+)", text)
    solved = re.findall(
        r":::\{solution-start\} (\S+)\n:class: dropdown\n:::(.*?):::\{solution-end\}",
        text,
        re.DOTALL,
    )
    assert len(given) >= (5 if path in CHAPTERS else 1)
    assert [label for label, _ in solved] == given
    chapter = book_pages.main_page(path).stem[:2]
    assert all(label.startswith(f"ex-{chapter}-") for label in given)
    assert [label for label, solution in solved if "<run>" not in solution] == []


@each_page
def test_a_solution_with_a_function_asserts_a_checker(path: Path) -> None:
    """Below the function; what is asked for by experiment has no single answer that a checker could know."""
    text = "\n\n".join(
        f"<run>\n{cell.source}\n</run>" if cell.cell_type == "code" else cell.source
        for cell in section(path, "Exercises")
    )
    asked = text.split(":::{exercise} ")[1:]
    checked = []
    for exercise in asked:
        label = re.search(r":label: (\S+)", exercise)[1]
        code = "\n".join(re.findall(r"<run>\n(.*?)\n</run>", exercise, re.DOTALL))
        first = re.search(r"^(def|class) ", code, re.MULTILINE)
        question = exercise.partition(":::{solution-start}")[0]
        if first and "by experiment" not in question.lower():
            assert re.search(
                r"^assert check\.\w+\(", code[first.start() :], re.MULTILINE
            ), label
            checked.append(label)
    assert checked or path in FURTHER


@each_chapter
def test_a_summary_is_short(path: Path) -> None:
    """Three to five lines on a main page; those that were written before that rule have up to twelve."""
    summary = section(path, "Summary")[0].source
    assert (3 if path in CORE else 8) <= summary.count("\n* ") <= 12


WEIGHTS = sorted(path.name for path in (ROOT / "book" / "trained").iterdir())


def weights_of(path: Path) -> list[str]:
    """The files of trained weights that a notebook names; an f-string names several."""
    code = "\n".join(cell.source for cell in code_cells(path))
    names = re.findall(r"trained/(\S+[.]pt)", code)
    patterns = [re.sub(r"{\w+}", r"\\w+", name) for name in names]
    return [x for x in WEIGHTS if any(re.fullmatch(y, x) for y in patterns)]


def test_each_file_of_weights_is_of_a_notebook() -> None:
    assert {x for path in NOTEBOOKS for x in weights_of(path)} == {*WEIGHTS}


@pytest.mark.full
@pytest.mark.parametrize(
    "path", list(filter(weights_of, NOTEBOOKS)), ids=lambda path: path.stem
)
def test_training_anew_tells_the_same(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a chapter asserts of its models holds for new ones too. Of the printed lines only those may differ that show
    one model's own mistakes or weights, which are others on another processor."""
    monkeypatch.setattr(tool, "BOOK", tmp_path / "book")
    book = tmp_path / "book"
    copy = book / path.relative_to(ROOT / "book")
    copy.parent.mkdir(parents=True)
    shutil.copy(path, copy)
    with tool.same_everywhere():
        tool.run(copy)
    assert sorted(os.listdir(book / "trained")) == weights_of(path)
    both = zip(*(map(lines_of, code_cells(x)) for x in (path, copy)), strict=True)
    pairs = [pair for old, new in both for pair in zip_longest(old, new, fillvalue="")]
    apart = [pair for pair in pairs if not alike(*pair)]
    assert len(apart) < 0.15 * len(pairs), apart


def lines_of(cell: Any) -> list[str]:
    return "".join(output.get("text", "") for output in cell.outputs).splitlines()


NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
TRAINED = 0.05  # as far apart as numbers may be that were trained on two kinds of processor; seen: 0.03


def alike(before: str, after: str) -> bool:
    numbers = (
        [float(x.replace(",", "")) for x in NUMBER.findall(text)]
        for text in (before, after)
    )
    return NUMBER.sub("#", before) == NUMBER.sub("#", after) and all(
        abs(x - y) <= TRAINED * max(1, x) for x, y in zip(*numbers, strict=True)
    )


def test_what_training_may_change() -> None:
    assert alike("1,000 steps: loss 2.47", "1,000 steps: loss 2.53")
    for other in ("1,000 steps: loss 2.67", "1,100 steps: loss 2.47", "1,000 steps: NaN"):  # fmt: skip
        assert not alike("1,000 steps: loss 2.47", other)


def public_names() -> set[str]:
    halves = (attn_tutor.numpy, attn_tutor.torch)
    return {name for half in halves for name in half.__all__}


@each
def test_no_function_of_the_package_is_written_again(path: Path) -> None:
    defined = set()
    cells = [cell for cell in code_cells(path) if "lines" not in tags(cell)]
    for cell in cells:
        for node in ast.walk(ast.parse(cell.source)):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                defined.add(node.name)
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
                defined |= {t.id for t in node.targets if isinstance(t, ast.Name)}
    # An exercise of chapter 10 merges states of three parts, the package of two.
    exercise = {"merge"} if path.name.startswith("10_") else set()
    assert defined & public_names() == exercise


@each
def test_boxes_are_readable_in_jupyter(path: Path) -> None:
    """Behind ``:::`` plain Jupyter shows text and formulas; behind backticks it shows their source."""
    boxes = re.findall(r"`{3,}\{(\S+)\}", text_of(path))
    assert set(boxes) <= {"source", "figure", "include"}  # all have a link beside them


PUBLISHED = {"RXNMapper", "SmolLM2"}  # of attn_tutor.models
BESIDES = {"newer_models": {"transformers"}}  # which the page names, since it is ported


@each
def test_needs_nothing_but_the_package_and_its_extras(path: Path) -> None:
    """A downloaded notebook runs after ``pip install .[torch,plot]``, in whatever folder it lies."""
    imported, called = set(), set()
    for cell in code_cells(path):
        for node in ast.walk(ast.parse(cell.source)):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add(str(node.module).partition(".")[0])
            elif isinstance(node, ast.Call):
                called.add(ast.unparse(node.func))
    allowed = {"attn_tutor", "matplotlib", "numpy", "torch"}
    allowed |= BESIDES.get(path.stem, set())
    assert imported - allowed <= sys.stdlib_module_names
    # Published weights come from packages, and their loader says which.
    own = {call for call in called if call.rpartition(".")[0] not in PUBLISHED}
    functions = {call.rpartition(".")[2] for call in own}
    readers = {"open", "Path", "load", "loadtxt", "genfromtxt", "imread"}
    assert functions & readers == set()


@each_page
def test_source_boxes_have_a_link_for_readers_without_the_book(path: Path) -> None:
    text = text_of(path)
    boxes = re.findall(r"(.*)\n\n```\{source\} (.+)\n```", text)
    assert text.count("{source}") == len(boxes) >= (path in CHAPTERS)
    for line, names in boxes:
        up = "../" * len(path.relative_to(ROOT).parent.parts)
        links = re.findall(rf"\[([\w/]+\.py)\]\({up}attn_tutor/\1\)", line)
        there: set[str] = set()
        for module in {name.partition(".")[0] for name in names.split()}:
            rooms = "_both", "numpy", "torch"
            files = [
                f"{x}/{_}{module}.py" for x in rooms for _ in ("", "_", "_engine/")
            ]
            once, *halves = [x for x in files if (ROOT / "attn_tutor" / x).exists()]
            there |= {once} if once.startswith("_both") else {once, *halves}
        assert line.startswith("Source: ") and set(links) == there, names


# Words that each chapter teaches: it links to the glossary there, where the word is explained.
TOPICS = {
    "13": "key–value cache, sliding window, attention sink, linear attention, recurrent network, delta rule, MLA, "
    "quantisation, paged attention, packing, speculative decoding, ALiBi",
    "01": "query, key, value, attention pooling, convex combination, kernel, bandwidth, Nadaraya–Watson regression, "
    "leave-one-out error, score, softmax, mask, batch axis, convex hull, feature, NaN",
    "02": "scoring function, dot-product score, scaled dot-product score, temperature, entropy, saturation, "
    "bilinear score, additive score, context vector, variance, rank, hidden layer",
    "03": "softmax, logit, Jacobian, padding mask, causal mask, masked softmax, dropout, broadcasting, saturation, "
    "batch, empty row, NaN",
    "04": "token, one-hot vector, embedding, projection, self-attention, cross-attention, equivariance, invariance, "
    "causal mask, permutation",
    "05": "head, multi-head attention, grouped-query attention, multi-query attention, key–value cache, "
    "parameter",
    "06": "positional encoding, rotary encoding, ALiBi, equivariance, wavelength",
    "07": "gradient, backpropagation, vector–Jacobian product, Jacobian, finite difference, saturation, "
    "additive score",
    "08": "encoder, decoder, recurrent network, embedding, vocabulary, context vector, alignment, additive score, "
    "seq2seq, padding mask, teacher forcing, exposure bias, cross-entropy, greedy decoding, beam search, "
    "length normalisation, nucleus sampling, transformer, cross-attention",
    "10": "weight, online softmax, tile, additive score, key–value cache, grouped-query attention, half precision, "
    "fused kernel, FlashAttention, HBM, SRAM, roofline, MLA, sliding window, linear attention, log-sum-exp",
    "11": "attention sink, induction head, ablation, QK circuit, OV circuit, logit lens, GGUF, quantisation, RMSNorm, "
    "SwiGLU, grouped-query attention, rotary encoding, key–value cache, encoder",
    "09": "transformer, residual connection, layer norm, feed-forward network, cross-entropy, perplexity, vocabulary, "
    "autoregressive, key–value cache, cross-attention, residual stream, previous-token head, induction head, "
    "overfitting, pre-norm, tied embeddings, byte-pair encoding, top-k sampling, sliding window, temperature",
    "12": "all-reduce, all-to-all, tensor parallelism, context parallelism, ring attention, zigzag, FSDP, NVLink, "
    "InfiniBand, NCCL, node, mesh, rank of a process, key–value cache, causal mask",
}


@pytest.mark.parametrize(("chapter", "terms"), TOPICS.items())
def test_topics_are_linked_to_the_glossary(chapter: str, terms: str) -> None:
    glossary = (ROOT / "book" / "glossary.md").read_text(encoding="utf-8")
    explained = set(re.findall(r"^(\S.*)\n(?:\S.*\n)*  \S", glossary, re.MULTILINE))
    [main] = (ROOT / "book").glob(f"{chapter}_*.ipynb")
    linked = {
        re.sub(r".*<(.+)>$", r"\1", re.sub(r"\s+", " ", term)).casefold()
        for path in (main, *book_pages.toc()[main])
        for term in re.findall(r"\{term\}`([^`]+)`", text_of(path))
    }
    for term in terms.split(", "):
        assert term in explained, f"the glossary lacks {term}"
        assert term.casefold() in linked, f"chapter {chapter} does not link to {term}"


def test_the_clock_counts_what_is_seen_without_opening_a_box() -> None:
    seen = ":::{note} On top\n:class: tip\n\nTwo `words` {term}`more <x>`.\n\n$$\na\n$$ (eq)\n:::\n"
    closed = (
        ":::{note} Ask\n:class: dropdown\n\nunread $$b$$\n:::\n\n```{source} a.b\n```\n"
    )
    cell = {"cell_type": "markdown", "source": f"{seen}\n{closed}\n<attn-a>\n"}
    assert book_pages.words_of(cell["source"]) == 5  # On top Two words more
    expected = 5 / book_pages.WORDS_A_MINUTE + book_pages.MINUTES_A_FIGURE
    expected += book_pages.MINUTES_A_MOVING_FIGURE
    assert book_pages.minutes_of_text(cell) == pytest.approx(expected)


# The tool itself: two runs of the same cells, as an editor and a slow machine leave them, give one text.


def notebook(*outputs: dict[str, Any], **metadata: Any) -> Any:
    cell = nbformat.v4.new_code_cell(
        "print(1)\nprint(2)",
        execution_count=7,
        outputs=list(outputs),
        metadata=metadata,
    )
    return nbformat.v4.new_notebook(
        cells=[cell],
        metadata={"language_info": {"name": "python", "version": "3.11.7"}},
    )


def printed(text: str) -> Any:
    return nbformat.v4.new_output("stream", name="stdout", text=text)


def test_form_does_not_depend_on_timing_versions_or_editor() -> None:
    once = notebook(printed("1\n2\n"))
    again = notebook(
        printed("1\n"),
        printed("2\n"),
        execution={"iopub.execute_input": "2026-01-01"},
        scrolled=True,
    )
    assert tool.normalise(once) == tool.normalise(again)
    assert "3.11.7" not in tool.normalise(once)


def test_form_keeps_what_the_book_needs() -> None:
    result = nbformat.v4.new_output(
        "execute_result", data={"text/plain": "3"}, execution_count=7
    )
    about = {"mystnb": {"image": {"alt": "a"}}, "tags": ["hide-input"]}
    text = tool.normalise(notebook(printed("1\n"), result, **about))
    cell = nbformat.reads(text, as_version=4).cells[0]
    assert cell.metadata == about
    assert [output.output_type for output in cell.outputs] == [
        "stream",
        "execute_result",
    ]
    assert cell.execution_count == cell.outputs[1].execution_count == 1
    assert cell.id == "print-1-print-2"


def test_form_is_its_own_fixed_point_and_ids_are_unique() -> None:
    same = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_markdown_cell("# Ä") for _ in range(3)]
    )
    text = tool.normalise(same)
    assert tool.normalise(nbformat.reads(text, as_version=4)) == text
    assert [cell.id for cell in nbformat.reads(text, as_version=4).cells] == [
        "cell",
        "cell-2",
        "cell-3",
    ]


def test_running_twice_changes_no_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool, "BOOK", tmp_path / "book")
    path = tmp_path / "book" / "01_trial.ipynb"
    path.parent.mkdir()
    nbformat.write(notebook(), path)
    assert tool.run(path) is True
    first = path.read_bytes()
    assert b"1\\n" in first
    assert tool.run(path) is False
    assert path.read_bytes() == first


def test_a_failing_cell_is_named_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool, "BOOK", tmp_path / "book")
    path = tmp_path / "book" / "01_trial.ipynb"
    path.parent.mkdir()
    cells = [
        nbformat.v4.new_markdown_cell("# Title"),
        nbformat.v4.new_code_cell("x = 1\n1 / 0"),
    ]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    before = path.read_bytes()
    with pytest.raises(
        SystemExit,
        match=r"book/01_trial.ipynb: cell 2 of 2 \(x = 1\) raised ZeroDivisionError: division",
    ):
        tool.run(path)
    assert path.read_bytes() == before


def test_an_unknown_name_says_which_there_are() -> None:
    with pytest.raises(
        SystemExit, match="starts with 99; there are: .*01_queries_keys_values"
    ):
        tool.chosen(["99"])
