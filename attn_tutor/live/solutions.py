"""The reader's answers, in one Python file: each below a line "# %% NAME", which editors take for the start of a cell.

Only the lines of the answer in hand are ever replaced, so the file can be written by hand too.
"""

import ast
import os
import re
from pathlib import Path

from attn_tutor.live.saved import Changed, write

PLACE = "ATTN_TUTOR_SOLUTIONS"  # the environment says where the file is
MARK = re.compile(r"^# %%(?: (\w+))?[^\n]*\n?", re.MULTILINE)
START = '''"""My answers to the exercises of the book. Its pages write here, below "# %% NAME", when it runs: make live

Check them all: python -m attn_tutor.check my_solutions.py
"""

import numpy as np
import torch

import attn_tutor.numpy as an
import attn_tutor.torch as at
'''


def place() -> Path:
    return Path(os.environ.get(PLACE, "my_solutions.py"))


def whole(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def parts(text: str) -> list[tuple[str, str]]:
    """The file as names and texts, in order; what stands above the first answer has no name."""
    marks = [*MARK.finditer(text)]
    starts = [(m[1] or "", m.end()) for m in marks]
    ends = [m.start() for m in marks] + [len(text)]
    texts = [text[i:j] for (_, i), j in zip(starts, ends[1:], strict=True)]
    return [("", text[: ends[0]]), *((n, t) for (n, _), t in zip(starts, texts, strict=True))]  # fmt: skip


def find(text: str, name: str) -> tuple[int, int] | None:
    """Where the answer stands: below its mark, or else the function of that name that was written by hand."""
    for mark in MARK.finditer(text):
        if mark[1] == name:
            after = MARK.search(text, mark.end())
            return mark.end(), after.start() if after else len(text)
    try:
        body = ast.parse(text).body
    except SyntaxError:
        return None
    lines = text.encode().splitlines(keepends=True)
    for node in body:
        if isinstance(node, ast.FunctionDef) and node.name in (name, f"my_{name}"):
            first = min([node.lineno, *(x.lineno for x in node.decorator_list)]) - 1
            sizes = [len(b"".join(lines[:i]).decode()) for i in (first, node.end_lineno)]  # fmt: skip
            return sizes[0], sizes[1]
    return None


def read(path: Path, name: str) -> str | None:
    text = whole(path)
    found = find(text, name)
    return text[slice(*found)].strip("\n") if found else None


def put(path: Path, name: str, answer: str | None, was: str | None) -> None:
    """Write one answer in place of the one that was there, as the writer believes, and leave all else as it is.

    None takes the answer out.
    """
    if answer is not None and MARK.search(answer):
        raise ValueError('no line of an answer may begin with "# %%"')
    answer, was = (x if x is None else x.strip("\n") for x in (answer, was))
    there = read(path, name)
    if there == answer:
        return
    if there != was:
        raise Changed(there)
    text = whole(path) or START
    start, end = find(text, name) or (len(text), len(text))
    before, after = text[:start].rstrip("\n"), text[end:].strip("\n")
    mark = f"# %% {name}"
    before = before.removesuffix(mark).rstrip("\n")
    if after and not MARK.match(after):
        after = f"# %%\n{after}"  # what was written by hand below it is no part of it
    own = [] if answer is None else [f"{mark}\n{answer}"]
    write(path, "\n\n\n".join(x for x in (before, *own, after) if x) + "\n")
