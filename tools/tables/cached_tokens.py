"""How long SmolLM2 takes for the next token of a text, with its cache and without.

python tools/tables/cached_tokens.py    writes book/_tables/cached_tokens.markdown, in a minute
"""

import platform
import time
from pathlib import Path

import torch

import attn_tutor.torch as at
from attn_tutor.bench.command import cores, processor
from attn_tutor.data import load_book
from attn_tutor.models.smollm2 import SmolLM2

TABLE = Path(__file__).resolve().parents[2] / "book" / "_tables" / "cached_tokens.markdown"  # fmt: skip
LENGTHS = (50, 100, 200)
ROUNDS = 3


def seconds(model: SmolLM2, ids: torch.Tensor) -> tuple[float, float]:
    """For the token after ``ids``: with all of them read anew, and with the last alone beside a cache of the others."""
    caches = [at.KVCache() for _ in model.layers]
    model(ids[:-1], caches=caches)
    anew, cached = [], []
    for _ in range(ROUNDS):  # in turns, so that a busy moment hits both alike
        start = time.perf_counter()
        model.generate(ids, 1, cached=False)
        middle = time.perf_counter()
        model(ids[-1:], caches=caches)  # which each time leaves one token more
        anew.append(middle - start)
        cached.append(time.perf_counter() - middle)
    return min(anew), min(cached)


def main() -> None:
    # Two threads would wait for each other wherever another program runs.
    torch.set_num_threads(1)
    model = SmolLM2.load()
    text = model.encode(load_book()[:4000])
    lines = [
        "| tokens so far | ms, anew | ms, cached | ratio |",
        "|---:|---:|---:|---:|",
    ]
    seconds(model, text[:9])  # the first call of each kind takes longer
    for n in LENGTHS:
        anew, cached = seconds(model, text[:n])
        lines += [f"| {n} | {1000 * anew:,.0f} | {1000 * cached:,.0f} | {anew / cached:.1f} |"]  # fmt: skip
    lines += [
        "",
        f"Milliseconds for the next token, the fastest of {ROUNDS} rounds in turns. {processor()}, {cores()} cores, "
        f"1 of them used. Python {platform.python_version()}, torch {torch.__version__}. "
        "Command: `python tools/tables/cached_tokens.py`.",
    ]
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
