"""What the book's ``{source}`` directive shows of a file: the whole definition, without its docstrings."""

from pathlib import Path

import pytest
import source_tabs

ROOT = Path(__file__).parents[2]
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


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("one", [4, 5, 6, 7, 8, 13, 14, 15]),  # decorators, blank line, no docstring
        ("two", [18, 19]),
        ("Three", [22, 24, 25, 27]),
        ("Three.call", [25, 27]),
        ("four", []),
        ("one.x", []),
    ],
)
def test_lines_of_a_definition(name: str, lines: list[int], tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(SOURCE, encoding="utf-8")
    assert source_tabs.source_lines(file, name.split(".")) == lines


def test_a_missing_file_has_no_lines(tmp_path: Path) -> None:
    assert source_tabs.source_lines(tmp_path / "none.py", ["one"]) == []


def test_names_of_one_module_share_a_block() -> None:
    parts = {
        "kernels.boxcar_kernel": [4, 5],
        "kernels._distance": [18, 19],  # private, and the next is not public either
        "positional.alibi_slopes": [2],
    }
    text = source_tabs.markdown("numpy", parts)
    assert [line for line in text if line.startswith(":lines:")] == [
        ":lines: 4,5,16,17,18,19",  # with the blank lines that stand above the second
        ":lines: 2",
    ]
    assert [line for line in text if line.startswith("`attn")] == [
        "`attn_tutor/numpy/kernels.py` · {py:obj}`~attn_tutor.numpy.boxcar_kernel`",
        "`attn_tutor/numpy/positional.py`",
    ]


def test_methods_stand_one_blank_line_apart() -> None:
    """A second line above a method would be the end of the one before."""
    parts = {"kernels.One.call": [4, 5], "kernels.One.other": [18, 19]}
    [lines] = [x for x in source_tabs.markdown("torch", parts) if ":lines:" in x]
    assert lines == ":lines: 4,5,17,18,19"


def test_what_is_written_once_links_to_both_halves() -> None:
    """Their public names have the docstrings; the page shows the one source."""
    file = source_tabs.source_file("_both", "cache")
    paths = "KVCache.append", "KVCache._wider"
    parts = {
        f"cache.{path}": source_tabs.source_lines(ROOT / file, path.split("."))
        for path in paths
    }
    assert all(parts.values())
    [line] = [x for x in source_tabs.markdown("_both", parts) if x.startswith("`attn")]
    assert line == (
        "`attn_tutor/_both/cache.py`"
        " · {py:obj}`numpy.KVCache.append <attn_tutor.numpy.KVCache.append>`"
        " · {py:obj}`torch.KVCache.append <attn_tutor.torch.KVCache.append>`"
    )


def test_rules_of_both_halves_are_shown_once() -> None:
    """They stand at the top of the package; what a half adds to them stands in the half."""
    file = source_tabs.source_file("_both", "rules")
    assert source_tabs.source_lines(ROOT / file, ["Window", "pairs"])
    assert not source_tabs.source_lines(ROOT / file, ["alibi"])
    half = source_tabs.source_file("numpy", "rules")
    assert source_tabs.source_lines(ROOT / half, ["alibi"])
