"""Train chapter 5's layer of two heads as the chapter does, and write its matrices for the head viewer.

python tools/head_weights.py    writes book/_static/attn-heads-data.js
"""

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import nbformat
import numpy as np

BOOK = Path(__file__).resolve().parents[1] / "book"
CHAPTER = BOOK / "05_multi_head_attention.ipynb"
DATA = BOOK / "_static" / "attn-heads-data.js"
START = "attn.trained = "  # a script: a page that is read from a file may not load JSON
UNIT = 100  # numbers are written as whole hundredths: a third of the bytes, and the picture is the same


def train() -> dict[str, Any]:
    """The chapter's own cells, up to the one that has trained both layers."""
    names: dict[str, Any] = {}
    cells = nbformat.read(CHAPTER, as_version=4).cells
    # The chapter's folder, in which a notebook runs: it reads what was trained from a folder beside it.
    with contextlib.chdir(BOOK), contextlib.redirect_stdout(io.StringIO()):
        for cell in cells:
            if cell.cell_type == "code":
                exec(cell.source, names)
                if "two" in names:
                    break
    layer = names["two"]
    arrays = {}
    for letter, linear in zip("qkvo", layer.children(), strict=True):
        # The answer is read from the first two entries of the output.
        stop = 2 if letter == "o" else None
        arrays[f"W_{letter}"] = linear.weight.T[:, :stop].detach().double().numpy()
        arrays[f"b_{letter}"] = linear.bias[:stop].detach().double().numpy()
    unseen = sorted(f"{first}{second}" for first, second in names["unseen"].tolist())
    return {"unseen": " ".join(unseen)} | {
        name: (array * UNIT).round().astype(int).tolist()
        for name, array in arrays.items()
    }


def read() -> dict[str, Any]:
    """What the page has, with the units of the layer."""
    written = DATA.read_text(encoding="utf-8").removeprefix(START).rstrip(";\n")
    return {
        name: part if name == "unseen" else np.array(part) / UNIT
        for name, part in json.loads(written).items()
    }


def main() -> None:
    text = json.dumps(train(), separators=(",", ":")).replace("],", "],\n")
    DATA.write_text(f"{START}{text};\n", encoding="utf-8")


if __name__ == "__main__":
    main()
