"""What the book's ``{source}`` directive shows of a file: the whole definition, without its docstrings."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = '''\
import functools


@functools.cache
@functools.wraps(print)
def one(
    x: int,
) -> int:
    """Say something.

    More of it.
    """
    y = x  # kept

    return y


def two():
    return "not a docstring", """nor this"""


class Three:
    """A class."""

    def call(self):
        """A method."""
        return 3
'''


def load_extension() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "source_tabs", ROOT / "book" / "_ext" / "source_tabs.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("one", "4,5,6,7,8,13,14,15"),  # decorators and the blank line, no docstring
        ("two", "18,19"),
        ("Three", "22,24,25,27"),
        ("Three.call", "25,27"),
        ("four", ""),
        ("one.x", ""),
    ],
)
def test_lines_of_a_definition(name: str, lines: str, tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(SOURCE, encoding="utf-8")
    assert load_extension().source_lines(file, name.split(".")) == lines


def test_a_missing_file_has_no_lines(tmp_path: Path) -> None:
    assert load_extension().source_lines(tmp_path / "none.py", ["one"]) == ""
