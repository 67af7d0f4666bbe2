"""How long chapter 10's five lines of attention in tiles take beside the textbook's, which keeps every weight.

python tools/tile_times.py    writes book/_tables/tile_times.markdown, in half a minute
"""

import json
import os
import platform
import time
from functools import partial
from pathlib import Path
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # before NumPy

import numpy as np  # noqa: E402 — it reads the number of threads once

import attn_tutor.numpy as an  # noqa: E402 — it loads NumPy
from attn_tutor.bench.command import processor  # noqa: E402 — it loads NumPy

BOOK = Path(__file__).resolve().parents[1] / "book"
TABLE = BOOK / "_tables" / "tile_times.markdown"  # Sphinx takes .md for a page
TOKENS, WIDTH, ROUNDS = 2048, 64, 7


def chapter(*starts: str) -> dict[str, Any]:
    """What the cells of chapter 10 define that begin like this."""
    text = (BOOK / "10_fast_attention.ipynb").read_text(encoding="utf-8")
    defined: dict[str, Any] = {"np": np}
    for cell in json.loads(text)["cells"]:
        if (source := "".join(cell["source"])).startswith(starts):
            exec(source, defined)  # the repository's own
    return defined


def main() -> None:
    in_tiles = chapter("def take_in", "def in_tiles")["in_tiles"]
    Q, K, V = np.random.default_rng(0).normal(size=(3, TOKENS, WIDTH))
    calls = {0: lambda: an.attend(an.scaled_dot_score(Q, K), V)}
    calls |= {T: partial(in_tiles, Q, K, V, T) for T in (8, 16, 32, 64, 128, 512)}
    took: dict[int, list[float]] = {T: [] for T in calls}
    for _ in range(ROUNDS):  # in turns, so that a busy moment hits all alike
        for T, call in calls.items():
            start = time.process_time()
            call()
            took[T].append(time.process_time() - start)
    textbook = min(took.pop(0))
    lines = ["| width T of a tile | ms | ÷ textbook |", "|---:|---:|---:|"]
    lines += [f"| {T} | {1000 * min(x):,.0f} | {min(x) / textbook:.1f} |" for T, x in took.items()]  # fmt: skip
    lines += [
        f"| all scores at once | {1000 * textbook:,.0f} | 1 |",
        "",
        f"Processor time, the least of {ROUNDS} rounds in turns; {TOKENS:,} tokens of width {WIDTH}, float64. "
        f"{processor()}, one core. Python {platform.python_version()}, NumPy {np.__version__}. "
        "Command: `python tools/tile_times.py`.",
    ]
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
