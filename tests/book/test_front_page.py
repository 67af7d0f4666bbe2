"""The front page: what its code prints is what it shows, and the paths through the book name chapters that exist."""

import io
import re
from contextlib import redirect_stdout
from pathlib import Path

BOOK = Path(__file__).parents[2] / "book"
TEXT = (BOOK / "intro.md").read_text(encoding="utf-8")


def test_the_code_before_anything_else_prints_what_is_shown() -> None:
    opening = TEXT[: TEXT.index("\n## ")]
    found = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", opening, re.DOTALL)
    assert found
    with redirect_stdout(io.StringIO()) as printed:
        exec(found[1], {})
    assert printed.getvalue() == found[2]


def test_the_opening_has_a_figure_that_moves_and_a_still_for_those_without_scripts() -> (
    None
):
    figure = re.search(
        r"<attn-(\w+)>\n\n!\[.{40,}\]\(_static/attn-\1\.png\)\n\n</attn-\1>", TEXT
    )
    assert figure and figure.start() < TEXT.index("\n## ")


def test_the_paths_lead_to_pages() -> None:
    paths = TEXT[TEXT.index("## Reading paths") : TEXT.index("## The chapters")]
    files = re.findall(r"\]\(([\w.]+)", paths)
    assert len(files) > 10
    assert [name for name in files if not (BOOK / name).exists()] == []
    for reader in ("practitioner", "theorist", "kernel engineer"):
        assert f"**a {reader}**" in paths
