"""Run the book's notebooks and write them in one fixed form, so that a second run changes no byte.

python tools/notebooks.py                 run every notebook of book/
python tools/notebooks.py 01 04           run those whose name starts so
python tools/notebooks.py --check         run nothing; list the notebooks that are not in that form
"""

import argparse
import base64
import io
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import figure_data
import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from PIL import Image

BOOK = Path(__file__).resolve().parents[1] / "book"
sys.path.append(str(BOOK / "_ext"))
from book_pages import notebooks  # noqa: E402 — its folder is known from the line above on

SECONDS_A_CELL = 3600  # chapter 8 trains in one cell, if its weights are not there
PNG = "image/png"
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
# Figures on record; no warning that a kernel talks over a local socket.
KERNEL_CONFIG = f"""
import sys
sys.path.append({str(Path(__file__).parent)!r})
c.IPKernelApp.log_level = "ERROR"
c.InteractiveShellApp.extensions = ["figure_data"]
"""
# Sharp pictures that keep their size on the page; where figures are only compared, nobody looks at their pixels.
SHARP = 'c.InlineBackend.figure_formats = {"retina"}'


def normalise(notebook: Any) -> str:
    """The text of a notebook without what differs from run to run and from editor to editor."""
    notebook = nbformat.from_dict(notebook)
    notebook.metadata = nbformat.from_dict(METADATA)
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    taken: set[str] = set()
    count = 0
    for cell in notebook.cells:
        cell.metadata = {
            key: cell.metadata[key]
            for key in ("mystnb", "tags", figure_data.KEY)
            if key in cell.metadata
        }
        cell.id = slug(cell.source, taken)
        if cell.cell_type == "code":
            count += 1
            cell.execution_count = count
            cell.outputs = join_streams(cell.outputs)
            for output in cell.outputs:
                if output.output_type == "execute_result":
                    output.execution_count = count
    return str(nbformat.writes(notebook)) + "\n"


def slug(source: str, taken: set[str]) -> str:
    """A cell's id from its first words: an id by position would change in every cell below a new one."""
    words = re.findall(r"[a-z0-9]+", source.lower())
    stem = "-".join(words)[:32].strip("-") or "cell"
    name, number = stem, 1
    while name in taken:
        number += 1
        name = f"{stem}-{number}"
    taken.add(name)
    return name


def join_streams(outputs: list[Any]) -> list[Any]:
    """Whether two prints arrive as one output or two is a matter of timing."""
    joined: list[Any] = []
    for output in outputs:
        last = joined[-1] if joined else None
        if (
            last
            and output.output_type == last.output_type == "stream"
            and output.name == last.name
        ):
            last.text += output.text
        else:
            joined.append(output)
    return joined


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def run(path: Path) -> bool:
    """Run one notebook; write it if anything changed, and say whether it did."""
    notebook = read(path)
    client = NotebookClient(
        notebook,
        kernel_name="python3",
        timeout=SECONDS_A_CELL,
        record_timing=False,
        resources={"metadata": {"path": str(path.parent)}},
    )
    try:
        client.execute()
    except CellExecutionError as error:
        index = next(i for i, cell in enumerate(notebook.cells) if failed(cell))
        raise SystemExit(
            f"{where(path, notebook, index)} raised {error.ename}: {error.evalue}\n\n{error}"
        ) from None
    except (CellTimeoutError, DeadKernelError) as error:
        raise SystemExit(f"{shown(path)}: {error}") from None
    for cell in notebook.cells:
        keep_figure_data(cell)
        shrink_pictures(cell)
    text = normalise(notebook)
    changed = text != path.read_text(encoding="utf-8")
    if changed:
        path.write_text(text, encoding="utf-8", newline="\n")
    return changed


def keep_figure_data(cell: Any) -> None:
    """Move the record of a cell's figures from its outputs to its metadata."""
    cell.metadata.pop(figure_data.KEY, None)
    for output in cell.get("outputs", [])[:]:
        if figure_data.MIME in output.get("data", {}):
            cell.metadata[figure_data.KEY] = output.data[figure_data.MIME]
            cell.outputs.remove(output)


def shrink_pictures(cell: Any) -> None:
    """Give each picture a palette of 256 colours: a third of the bytes, and nobody sees the difference."""
    for output in cell.get("outputs", []):
        if PNG in output.get("data", {}):
            picture = Image.open(io.BytesIO(base64.b64decode(output.data[PNG])))
            few = picture.convert("RGB").quantize(
                256, kmeans=1, dither=Image.Dither.NONE
            )
            few.save(small := io.BytesIO(), "PNG", optimize=True)
            output.data[PNG] = base64.b64encode(small.getvalue()).decode() + "\n"


def failed(cell: Any) -> bool:
    return any(output.output_type == "error" for output in cell.get("outputs", []))


def where(path: Path, notebook: Any, index: int) -> str:
    first_line = notebook.cells[index].source.partition("\n")[0]
    return f"{shown(path)}: cell {index + 1} of {len(notebook.cells)} ({first_line})"


def shown(path: Path) -> str:
    return path.relative_to(BOOK.parent).as_posix()


def chosen(names: list[str]) -> list[Path]:
    every = {
        path.relative_to(BOOK).with_suffix("").as_posix(): path
        for path in notebooks(BOOK)
    }
    found: list[Path] = []
    for name in names or [""]:
        start = name.removeprefix("book/").removesuffix(".ipynb")
        matches = [path for page, path in every.items() if page.startswith(start)]
        if not matches:
            raise SystemExit(
                f"No notebook of book/ starts with {name}; there are: {', '.join(every)}"
            )
        found += [path for path in matches if path not in found]
    return found


@contextmanager
def same_everywhere(record: bool = False) -> Iterator[None]:
    """Keep a reader's own settings of IPython, matplotlib and threads out of the notebooks.

    Their figures are recorded, or else compared with their records.
    """
    with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ):
        profile = Path(folder) / "profile_default"
        profile.mkdir()
        config = profile / "ipython_kernel_config.py"
        config.write_text(KERNEL_CONFIG + SHARP * record, "utf-8")
        empty = Path(folder) / "matplotlibrc"
        empty.touch()
        os.environ.pop("MPLBACKEND", None)
        os.environ |= {
            "IPYTHONDIR": folder,
            "MATPLOTLIBRC": str(empty),
            "PYTHONHASHSEED": "0",
            "ATTN_TUTOR_QUIET": "1",  # no progress bars
            "OMP_NUM_THREADS": "1",  # small tensors gain nothing, and notebooks run side by side
            **({figure_data.RECORD: "yes"} if record else {}),
        }
        yield


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Run the book's notebooks and write them in one fixed form."
    )
    parser.add_argument(
        "names",
        nargs="*",
        help="the first letters of notebooks, such as 01; all if none is given",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="run nothing; list those not in the fixed form",
    )
    options = parser.parse_args()
    paths = chosen(options.names)
    if options.check:
        wrong = [
            shown(path)
            for path in paths
            if path.read_text(encoding="utf-8") != normalise(read(path))
        ]
        if wrong:
            sys.exit(
                "Not in the fixed form; type 'make notebooks':\n  " + "\n  ".join(wrong)
            )
        return
    with same_everywhere(record=True):
        for path in paths:
            print(f"{shown(path)} …", end=" ", flush=True)
            start = time.monotonic()
            changed = run(path)
            print(
                f"{time.monotonic() - start:.1f} s, {'written' if changed else 'unchanged'}"
            )


if __name__ == "__main__":
    main()
