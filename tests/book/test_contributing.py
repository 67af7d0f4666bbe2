"""CONTRIBUTING.md: its table leads to files that are there, and its steps, followed in a copy, end in green tests."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
TABLE = TEXT.partition("## Where to add what")[2].partition("\n## ")[0]
ROWS = {
    cells[0].strip(): cells[1:]
    for line in TABLE.splitlines()[4:]
    if len(cells := line.strip("| ").split(" | ")) == 3
}
CODE = re.compile(r"`([^`]+)`")
LEFT_OUT = shutil.ignore_patterns(".*", "_build", "dist", "student", "__pycache__")


@pytest.mark.parametrize("case", ROWS)
def test_the_table_names_files_that_are_there(case: str) -> None:
    """NN and NAME stand for any; a test is in one of the three folders."""
    edit, tests = (CODE.findall(cell) for cell in ROWS[case])
    paths = [x for x in edit if "/" in x or x.endswith((".yml", ".txt"))]
    assert paths
    for path in paths:
        assert [*ROOT.glob(re.sub(r"NN|NAME", "*", path).rstrip("/"))], path
    for test in tests:
        assert [*ROOT.glob(f"tests/*/{test}")], test


CASES = {
    "scoring function", "rule", "mask", "exercise", "puzzle", "chapter", "further page", "figure that moves",
    "published model", "distributed scheme", "row of the benchmark", "measured table", "test of a page",
}  # fmt: skip


def test_the_table_has_every_case() -> None:
    assert [case for case in CASES if case not in " ".join(ROWS)] == []


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(ROOT, tmp_path / "copy", ignore=LEFT_OUT))


def run(copy: Path, *command: str) -> str:
    """What a command prints in the copy, whose package it must find before ours."""
    done = subprocess.run(
        [sys.executable, *command],
        cwd=copy,
        env=os.environ | {"PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def judged(copy: Path, words: str, *files: str) -> tuple[int, set[str]]:
    """How many tests pass, and the names of those that fail."""
    out = run(copy, "-m", "pytest", "-q", "-p", "no:xdist", "-k", words, *files)
    failed = re.findall(r"^(?:FAILED|ERROR) \S+::(\w+)", out, re.MULTILINE)
    passed = re.search(r"(\d+) passed", out)
    return int(passed[1]) if passed else 0, {*failed}


def insert(path: Path, before: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(before) == 1, before
    path.write_text(text.replace(before, new + before), encoding="utf-8")


DISTANCE = '''@shapes("(n,d),(m,d)->(n,m)", d=OTHER_WIDTHS)
def distance_score(Q: ARRAY, K: ARRAY) -> ARRAY:
    r"""Minus the squared distance of each query from each key.

    .. math:: S_{ij} = -\\lVert q_i - k_j \\rVert^2

    Source: Nadaraya (1964), without the bandwidth.

    Args:
        Q: queries, (…, n, d).
        K: keys, (…, m, d).

    Returns:
        Scores, (…, n, m), none above 0.

    Example:
        >>> distance_score(MADE([[1.0, 2.0]]), MADE([[3.0, 4.0], [1.0, 1.0]])).tolist()
        [[-8.0, -1.0]]
    """
    difference = Q[..., :, None, :] - K[..., None, :, :]  # (…, n, m, d)
    return -(difference**2).sum(-1)


'''
EXAMPLE = """def test_distance_score(half, close):
    # 1² + 2² = 5
    close(half.distance_score(row(3, 4), row(4, 2)), row(-5))


"""


@pytest.mark.full
def test_a_scoring_function_is_added_by_the_table(copy: Path) -> None:
    numpy, torch, *_, golden = CODE.findall(ROWS["a scoring function, a kernel"][0])
    watch = ("tests/unit/test_mirror.py", golden, "tests/oracle/test_parity.py")
    steps = [
        (numpy, "np.ndarray", "np.array", {"test_names", "test_every_function_has_an_example"}),
        (torch, "torch.Tensor", "torch.tensor", {"test_every_function_has_an_example"}),
    ]  # fmt: skip
    words = "distance_score or names or files or example"
    for file, kind, made, missing in steps:
        insert(copy / file, '    "dot_score",\n', '    "distance_score",\n')
        code = DISTANCE.replace("ARRAY", kind).replace("MADE", made)
        insert(copy / file, '@shapes("(n,d),(m,d)->(n,m)", d=OTHER_WIDTHS)\ndef dot_', code)  # fmt: skip
        assert missing <= judged(copy, words, *watch)[1]
    insert(copy / golden, "def test_dot_score(", EXAMPLE)
    passed, failed = judged(copy, words, *watch, numpy, torch)
    assert not failed and passed > 10


CHECKER = """
mean_pool = Exercise(
    1,
    "mean_pool(V): the mean of the values, (m, d) -> (1, d)",
    lambda V: V.mean(0, keepdims=True),
    [(np.eye(2),), (np.arange(6.0).reshape(3, 2),)],
    ("a sum", lambda V: V.sum(0, keepdims=True), "This adds the values up. Divide by their number."),
    ("the first value", lambda V: V[:1], "This is the first value alone. The mean has a share of each."),
    ("the last value", lambda V: V[-1:], "This is the last value alone. The mean has a share of each."),
)  # fmt: skip
"""
IN_TORCH = """def torch_mean_pool(V):
    return V.mean(0, keepdim=True)


"""
PAGE = """# A trial

What does a query get that looks at every key alike?

:::{page-head}
:::
---
## Exercises

:::{exercise} ★ The mean (on paper, then in code)
:label: ex-01-mean

Write `mean_pool(V)`, the mean of the values.
:::

:::{solution-start} ex-01-mean
:class: dropdown
:::
---
import numpy as np

from attn_tutor import check


def mean_pool(V):
    return np.mean(V, axis=0, keepdims=True)


assert check.mean_pool(mean_pool)
---
:::{solution-end}
:::
---
## Summary

* Equal weights give the mean ({ref}`ex-01-mean`).
* Their sum is 1 ({ref}`ex-01-mean`).
* Every value counts ({ref}`ex-01-mean`).
"""


def write_page(copy: Path) -> Path:
    """As an editor leaves it: neither run nor in the fixed form."""
    made = {True: nbformat.v4.new_code_cell, False: nbformat.v4.new_markdown_cell}
    cells = [made["import" in text](text) for text in PAGE.strip().split("\n---\n")]
    path = copy / "book/01_queries_keys_values/trial.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    return path


@pytest.mark.full
def test_a_page_and_an_exercise_are_added_by_the_table(copy: Path) -> None:
    page = write_page(copy)
    made = "tools/notebooks.py", "01_queries_keys_values/trial"
    assert "has no exercise mean_pool" in run(copy, *made)
    chapter = copy / "attn_tutor/check/chapters/ch01_pooling.py"
    chapter.write_text(chapter.read_text(encoding="utf-8") + CHECKER, encoding="utf-8")
    exercises = "tests/unit/test_check_exercises.py"
    failed = judged(copy, "mean_pool", exercises)[1]
    assert failed == {"test_the_right_solution_passes_in_both_halves"}
    insert(copy / exercises, "def torch_neighbour_weights(", IN_TORCH)
    assert "written" in run(copy, *made)
    assert "✓ mean_pool" in page.read_text(encoding="utf-8")
    pages = "tests/book/test_notebooks.py"
    assert "test_each_folder_of_further_pages_is_listed_whole" in judged(copy, "trial or listed", pages)[1]  # fmt: skip
    beside = "          - file: book/01_queries_keys_values/statistics\n"
    insert(copy / "_toc.yml", beside, beside.replace("statistics", "trial"))
    passed, failed = judged(copy, "trial or listed or mean_pool", pages, exercises)
    assert not failed and passed > 20
