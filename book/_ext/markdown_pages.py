"""Each page as Markdown beside it, ``PAGE.html.md``, and ``llms.txt``, which lists them, for programs that read.

Notebooks are those to download, which need no MyST; other pages are as they were written, those of the reference with
what the code says. The names are those of
llmstxt.org.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from book_pages import toc_file
from markdown_reference import written
from sphinx.application import Sphinx

PICTURE = re.compile(r"!\[([^\]]*)\]\(attachment:[^)]*\)")
ABOUT = """\
# Learn attention by building it

> From queries, keys and values to attention on many machines: a book whose pages are run, and the package behind it,
> `attn_tutor`, with a half in NumPy and one in torch.
"""


def write(app: Sphinx, error: Exception | None) -> None:
    if error is not None or app.builder.format != "html":
        return
    source, built = Path(app.srcdir), Path(app.outdir)
    toc = toc_file(source)
    lines = [ABOUT, link(app, toc["root"])]
    for part in toc["parts"]:
        lines += [f"\n## {part['caption']}\n", *links(app, part["chapters"])]
    (built / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def links(app: Sphinx, entries: list[dict[str, Any]]) -> Iterator[str]:
    for entry in entries:
        yield link(app, entry["file"])
        yield from links(app, entry.get("sections", []))


def link(app: Sphinx, page: str) -> str:
    """A line of the list, once the page is written."""
    source, file = Path(app.env.doc2path(page)), f"{page}.html.md"
    if source.suffix == ".ipynb":
        place = Path(app.outdir, "notebooks", page.removeprefix("book/"))
        text = readable(nbformat.read(place.with_suffix(".ipynb"), as_version=4).cells)
    else:
        text = written(source.read_text(encoding="utf-8"))
    Path(app.outdir, file).write_text(text, encoding="utf-8")
    return f"- [{app.env.titles[page].astext()}]({file})"


def readable(cells: list[Any]) -> str:
    """Texts, code with what it printed, and pictures by their words."""
    parts = []
    for cell in cells:
        if cell.cell_type == "markdown":
            parts.append(PICTURE.sub(r"*Picture: \1*", cell.source))
            continue
        parts.append(f"```python\n{cell.source}\n```")
        for output in cell.outputs:
            said = output.get("text", output.get("data", {}).get("text/plain", ""))
            if said and not said.startswith("<Figure"):
                parts.append(f"```text\n{said.rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("build-finished", write, priority=600)  # once the notebooks are there
    return {"parallel_read_safe": True, "parallel_write_safe": True}
