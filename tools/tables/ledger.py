"""What the ledger predicts for this computer beside what it takes: a prompt in three ways, and one token of a text.

python tools/tables/ledger.py    writes book/_tables/ledger.markdown, in a minute

`attention_bill` is told three rates of this computer: of a large matrix product, of exponentials in the cache, and of
copying or reading a large array, whichever is higher. One core, float32, NumPy. Time is the processor's, the least of
rounds in turns, so that what else runs hardly counts. All large arrays are made beforehand.
"""

import itertools
import os
import platform
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # before NumPy

import numpy as np  # noqa: E402 — it reads the number of threads once

import attn_tutor.numpy as an  # noqa: E402 — it loads NumPy
from attn_tutor.bench.command import processor  # noqa: E402 — it loads NumPy
from attn_tutor.ledger import (  # noqa: E402 — as above
    H100,
    Layer,
    Machine,
    Way,
    attention_bill,
)

TABLE = Path(__file__).resolve().parents[2] / "book" / "_tables" / "ledger.markdown"
ROUNDS = 15
TOKENS = 4096  # of a prompt: the scores of a head, 64 MiB, fit no cache
WIDTH = 128  # of a head
CACHED = 16_384  # tokens before the one that is written
ROWS = 32  # of scores that the first two ways have in the cache at once
TILE = 256


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def steps(S: np.ndarray) -> list[Callable[[slice], object]]:
    """Softmax of causal scores in four steps, each on some rows."""
    top, total = np.empty((2, len(S), 1), np.float32)
    hidden = ~an.causal_mask(ROWS)

    def largest(rows: slice) -> None:
        S[rows, rows.stop :] = -np.inf
        S[rows, rows][hidden] = -np.inf
        np.max(S[rows], 1, keepdims=True, out=top[rows])

    def exponentials(rows: slice) -> None:
        np.exp(S[rows] - top[rows], out=S[rows])

    def sums(rows: slice) -> None:
        np.sum(S[rows], 1, keepdims=True, out=total[rows])

    def divided(rows: slice) -> None:
        S[rows] /= total[rows]

    return [largest, exponentials, sums, divided]


def prompt(way: Way) -> Callable[[], object]:
    """A call of causal attention. Between naive and fused only the order of two loops differs."""
    Q, K, V = random(3, TOKENS, WIDTH)
    Q /= np.float32(WIDTH**0.5)
    K = np.ascontiguousarray(K.T)  # as columns, NumPy multiplies them faster
    S, O = np.empty((TOKENS, TOKENS), np.float32), np.empty_like(V)
    blocks = [slice(i, i + ROWS) for i in range(0, TOKENS, ROWS)]
    if way == "naive":
        turns = [*itertools.product(steps(S), blocks)]  # each step over all rows
    else:
        turns = [(step, rows) for rows in blocks for step in steps(S)]

    def with_scores() -> None:
        np.matmul(Q, K, out=S)
        for step, rows in turns:
            step(rows)
        np.matmul(S, V, out=O)

    def in_tiles() -> None:
        for i in range(0, TOKENS, TILE):
            q, t, z, u = Q[i : i + TILE], np.float32(-np.inf), 0.0, 0.0
            for j in range(0, i + 1, TILE):
                S = q @ K[:, j : j + TILE]
                if j == i:
                    S[~an.causal_mask(TILE)] = -np.inf
                top = np.maximum(t, S.max(1, keepdims=True))
                shrink, e = np.exp(t - top), np.exp(S - top)
                z, u = (
                    shrink * z + e.sum(1, keepdims=True),
                    shrink * u + e @ V[j : j + TILE],
                )
                t = top
            O[i : i + TILE] = u / z

    return in_tiles if way == "tiles" else with_scores


def written(kv_heads: int) -> Callable[[], object]:
    """A call of attention of one token with 64 heads."""
    K, V = random(kv_heads, WIDTH, CACHED), random(kv_heads, CACHED, WIDTH)
    Q = random(kv_heads, 64 // kv_heads, WIDTH) / np.float32(WIDTH**0.5)
    return lambda: [an.softmax(q @ k) @ v for q, k, v in zip(Q, K, V, strict=True)]


def least(calls: list[Callable[[], object]]) -> list[float]:
    """Seconds of processor time of each, the least of turns."""
    took = [float("inf")] * len(calls)
    for _ in range(ROUNDS):
        for i, call in enumerate(calls):
            start = time.process_time()
            call()
            took[i] = min(took[i], time.process_time() - start)
    return took


def measured_machine() -> Machine:
    A, B = random(2, 2048, 2048)
    C, big = np.empty_like(A), random(2**26)
    other = np.empty_like(big)
    near, far = random(2, 2**14)  # they stay in the cache
    calls = (
        partial(np.matmul, A, B, out=C),
        lambda: [np.exp(near, out=far) for _ in range(1000)],
        partial(np.copyto, other, big),
        partial(np.max, big),
    )
    product, exponentials, copied, read = least([*calls])
    return replace(
        H100,
        operations_per_second=2 * 2048**3 / product,
        exponentials_per_second=1000 * near.size / exponentials,
        memory_bytes_per_second=max(2 * big.nbytes / copied, big.nbytes / read),
        number_bytes=4,
    )


def main() -> None:
    machine = measured_machine()
    ways: tuple[Way, ...] = ("naive", "fused", "tiles")
    names, calls, bills = [], [], []
    for way in ways:
        names.append(f"prompt, {way}")
        calls.append(prompt(way))
        one = Layer(1, 1, WIDTH, cache_bits=32)
        bills.append(attention_bill(TOKENS, TOKENS, one, machine, way=way, tile=TILE))
    for kv_heads in (64, 8):
        names.append(f"one token, {kv_heads} KV heads")
        calls.append(written(kv_heads))
        layer = Layer(64, kv_heads, WIDTH, cache_bits=32)
        bills.append(attention_bill(1, CACHED, layer, machine))
    lines = [
        "| | products, ms | exponentials, ms | memory, ms | measured, ms |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, bill, took in zip(names, bills, least(calls), strict=True):
        parts = bill.product_seconds, bill.exponential_seconds, bill.memory_seconds
        cells = " | ".join(f"{1e3 * x:.0f}" for x in (*parts, took))
        lines += [f"| {name} | {cells} |"]
    rates = machine.operations_per_second, machine.memory_bytes_per_second
    lines += [
        "",
        f"Prompt: {TOKENS:,} tokens, one head of width {WIDTH}, tiles of {TILE}, naive and fused {ROWS} rows at a "
        f"time. One token: the next one after {CACHED:,}, 64 heads. Float32, NumPy, keys as columns. Measured rates: "
        f"{rates[0] / 1e9:.0f} · 10⁹ operations and {machine.exponentials_per_second / 1e9:.1f} · 10⁹ exponentials a "
        f"second, {rates[1] / 1e9:.0f} GB/s. Processor time, the least of "
        f"{ROUNDS} rounds in turns, while other programs ran on the same machine. {processor()}, one core. "
        f"Python {platform.python_version()}, NumPy {np.__version__}. Command: `python tools/tables/ledger.py`.",
    ]
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
