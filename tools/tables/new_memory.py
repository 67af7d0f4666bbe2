"""What torch's fused kernel and the textbook take for one head, and what of it is products and new memory.

python tools/tables/new_memory.py    writes book/_tables/new_memory.markdown, in half a minute

One core, float32. Time is the processor's, the least of rounds in turns, so that what else runs hardly counts.
"""

import os
import platform
import time
from collections.abc import Callable
from pathlib import Path

os.environ |= {"OMP_NUM_THREADS": "1"}  # before torch

import torch  # noqa: E402 — it reads the number of threads once
from torch.nn.functional import scaled_dot_product_attention  # noqa: E402 — as above

import attn_tutor.torch as at  # noqa: E402 — it loads torch
from attn_tutor.bench.command import processor  # noqa: E402 — it loads torch

TABLE = Path(__file__).resolve().parents[2] / "book" / "_tables" / "new_memory.markdown"
ROUNDS = 15
TOKENS, WIDTH, TILE = 4096, 64, 256
SHAPES = (1, 1, 13, 4), (13, 4)  # of the small inputs
REPEATS = 2000  # of a small call

Call = Callable[[], object]


def textbook(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor) -> torch.Tensor:
    return (Q @ K.mT / Q.shape[-1] ** 0.5).softmax(-1) @ V


def large() -> dict[str, Call]:
    Q, K, V = torch.randn(3, 1, 1, TOKENS, WIDTH)
    S, A, O = torch.empty(2, 1, 1, TOKENS, TOKENS).unbind() + (torch.empty_like(V),)
    q, k, v = (X[..., :TILE, :].clone() for X in (Q, K, V))
    s, o = torch.empty(1, 1, TILE, TILE), torch.empty_like(v)

    def beforehand() -> None:
        torch.matmul(Q, K.mT, out=S)
        torch.softmax(S.div_(WIDTH**0.5), -1, out=A)
        torch.matmul(A, V, out=O)

    def products() -> None:
        torch.matmul(Q, K.mT, out=S)
        torch.matmul(A, V, out=O)

    def products_in_tiles() -> None:
        for _ in range((TOKENS // TILE) ** 2):
            torch.matmul(q, k.mT, out=s)
            torch.matmul(s, v, out=o)

    return {
        "fused kernel": lambda: scaled_dot_product_attention(Q, K, V),
        "textbook": lambda: textbook(Q, K, V),
        "textbook, arrays made beforehand": beforehand,
        "its two products alone": products,
        "as many products in tiles that stay in the cache": products_in_tiles,
        "fill a new array of 64 MiB": lambda: torch.empty(TOKENS, TOKENS).fill_(1),
        "fill an old one": lambda: S.fill_(1),
    }


def small(shape: tuple[int, ...]) -> list[Call]:
    Q, K, V = torch.randn(3, *shape)
    return [
        lambda: [at.attention(Q, K, V) for _ in range(REPEATS)],
        lambda: [scaled_dot_product_attention(Q, K, V) for _ in range(REPEATS)],
        lambda: [textbook(Q, K, V) for _ in range(REPEATS)],
    ]


def least(calls: list[Call]) -> list[float]:
    """Seconds of processor time of each, the least of turns; the first turn does not count."""
    took = [float("inf")] * len(calls)
    for turn in range(1 + ROUNDS):
        for i, call in enumerate(calls):
            start = time.process_time()
            call()
            if turn:
                took[i] = min(took[i], time.process_time() - start)
    return took


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    calls = large()
    with torch.no_grad():
        times = dict(zip(calls, least([*calls.values()]), strict=True))
        overhead = [[1e6 * x / REPEATS for x in least(small(shape))] for shape in SHAPES]  # fmt: skip
    lines = ["| program | ms |", "|---|---:|"]
    lines += [f"| {name} | {1e3 * took:.0f} |" for name, took in times.items()]
    lines.append("")
    for shape, (ours, torchs, plain) in zip(SHAPES, overhead, strict=True):
        lines.append(
            f"Inputs of shape {shape}: `attn_tutor.torch.attention` {ours:.0f} µs, `scaled_dot_product_attention` "
            f"{torchs:.0f}, textbook {plain:.0f}."
        )
    lines += [
        "",
        f"One head of {TOKENS:,} tokens of width {WIDTH}, float32, no mask, under `no_grad`. Processor time, the least "
        f"of {ROUNDS} rounds in turns. {processor()}, one core. Python {platform.python_version()}, torch "
        f"{torch.__version__}. Command: `python tools/tables/new_memory.py`.",
    ]
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
