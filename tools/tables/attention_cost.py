"""Measure what self-attention and a recurrent layer cost as the sequence grows, and draw it.

python tools/tables/attention_cost.py            measure, write book/_tables/attention_cost.markdown and its picture
python tools/tables/attention_cost.py --wide     measure width 1,024, write book/_tables/attention_cost_wide.markdown
python tools/tables/attention_cost.py --draw     measure nothing; draw the picture again from the table

Time is the processor's, the least of repeats that take turns. Memory is counted, not sampled: every array that NumPy
or torch takes or gives back during one call. The recurrent layer is measured twice, as torch has it and as a loop in C
(the command ``cc`` compiles it), in which a step is no call.
"""

import ctypes
import itertools
import json
import platform
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch.profiler import ProfilerActivity, profile

import attn_tutor.numpy as an
import attn_tutor.torch as at
from attn_tutor.bench.command import cores, processor

THREADS = 1
BOOK = Path(__file__).resolve().parents[2] / "book"
TABLE = BOOK / "_tables" / "attention_cost.markdown"  # Sphinx takes .md for a page
WIDE_TABLE = BOOK / "_tables" / "attention_cost_wide.markdown"
PICTURE = BOOK / "_static" / "attention_cost.svg"
COMMAND = "python tools/tables/attention_cost.py"
WIDTH = 64
LENGTHS = [256, 512, 1024, 2048, 4096, 8192]
REPEATS = 20
TIME = f"processor time, the least of {REPEATS} repeats"
WIDE = 1024
WIDE_LENGTHS = [128, 256, 512, 1024, 2048]
WIDE_LAYERS = ["fast torch", "RNN torch", "RNN in C", "loop in C"]
LAYERS: dict[str, dict[str, Any]] = {  # and how each is drawn
    "textbook NumPy": {"color": "#1f5f8f", "marker": "o", "linestyle": "-"},
    "textbook torch": {"color": "#3d9be0", "marker": "s", "linestyle": "--"},
    "fast torch": {"color": "#b3400a", "marker": "^", "linestyle": "-."},
    "RNN torch": {"color": "#444444", "marker": "D", "linestyle": ":"},
    "RNN in C": {"color": "#8a4fbf", "marker": "v", "linestyle": (0, (1, 2))},
}
RECURRENCE = """
#include <math.h>
void run(const float *U, float *restrict h, int n) {  // h comes in with the rows x W
    float last[D] = {0};
    for (int t = 0; t < n; t++, h += D) {
        for (int i = 0; i < D; i++)
            for (int j = 0; j < D; j++) h[j] += last[i] * U[i * D + j];
        for (int j = 0; j < D; j++) last[j] = h[j] = tanhf(h[j]);
    }
}
"""
FLAGS = ["-O3", "-march=native", "-ffast-math", "-shared", "-fPIC"]
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "attn_tutor",
    "font.size": 10,
    "figure.facecolor": "white",
    "axes.spines.top": False,
    "axes.spines.right": False,
}


@cache
def compiled(width: int) -> Callable[..., None]:
    """The recurrence in C, made for one width: ``run(U, h, n)`` turns the rows of x W in h into states."""
    with tempfile.TemporaryDirectory() as folder:
        library = f"{folder}/recurrence.so"
        command = ["cc", *FLAGS, f"-DD={width}", "-xc", "-", "-o", library, "-lm"]
        subprocess.run(command, input=RECURRENCE.encode(), check=True)
        run = ctypes.CDLL(library).run
    matrix = np.ctypeslib.ndpointer(np.float32, flags="C")
    run.argtypes, run.restype = [matrix] * 2 + [ctypes.c_int], None
    return run


def recurrence(x: np.ndarray, W: np.ndarray, U: np.ndarray) -> np.ndarray:
    """h_t = tanh(x_t W + h_{t-1} U), row by row, after one product x W as torch's."""
    h = x @ W
    compiled(x.shape[1])(U, h, len(x))
    return h


def layer(name: str, n: int, width: int = WIDTH) -> Callable[[], object]:
    """A call of one layer on n tokens: float32, the projections included."""
    rng = np.random.default_rng(0)
    X, *matrices = (
        rng.normal(size=size).astype(np.float32)
        for size in ((n, width), *[(width, width)] * 3)
    )
    W_q, W_k, W_v = (W / np.float32(width**0.5) for W in matrices)
    if name == "RNN in C":
        return lambda: recurrence(X, W_q, W_k)
    if name == "loop in C":  # the recurrence alone, without its product x W
        return lambda: compiled(width)(W_k, X.copy(), n)
    if name == "textbook NumPy":
        return lambda: an.attend(an.scaled_dot_score(X @ W_q, X @ W_k), X @ W_v)
    tokens, w_q, w_k, w_v = (torch.from_numpy(x) for x in (X, W_q, W_k, W_v))
    if name == "textbook torch":
        return lambda: at.attend(
            at.scaled_dot_score(tokens @ w_q, tokens @ w_k), tokens @ w_v
        )
    if name == "fast torch":
        return lambda: at.self_attention(tokens, w_q, w_k, w_v)
    recurrent = torch.nn.RNN(width, width)
    return lambda: recurrent(tokens)


def times(n: int, width: int, names: Iterable[str]) -> list[float]:
    """Milliseconds of processor time, the least of turns: what else runs hardly touches it."""
    calls = [layer(name, n, width) for name in names]
    least = [float("inf")] * len(calls)
    for _ in range(REPEATS):
        for i, call in enumerate(calls):
            start = time.process_time()
            call()
            least[i] = min(least[i], time.process_time() - start)
    return [1000 * seconds for seconds in least]


def peak_memory(name: str, n: int) -> float:
    """MiB of all arrays that one call holds at the same time, besides its inputs."""
    call = layer(name, n)
    if name.endswith(("NumPy", "C")):
        tracemalloc.start()
        call()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    else:
        peak = max(itertools.accumulate(allocations(call)))
    return peak / 2**20


def allocations(call: Callable[[], object]) -> list[int]:
    """Bytes that torch takes, and with a minus gives back, in order of time."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        call()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        profiled.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    found = [event for event in events if event["name"] == "[memory]"]
    found.sort(key=lambda event: event["args"]["Ev Idx"])
    return [event["args"]["Bytes"] for event in found]


def table(
    unit: str, rows: dict[int, list[float]], names: Iterable[str] = LAYERS
) -> str:
    heads = [f"{name}, {unit}" for name in names]
    lines = [f"| n | {' | '.join(heads)} |", f"|{'---:|' * (1 + len(heads))}"]
    for n, row in rows.items():
        cells = (f"{x:.0f}" if x >= 100 else f"{x:#.3g}" for x in row)
        lines += [f"| {n} | {' | '.join(cells)} |"]
    return "\n".join(lines)


def measure() -> str:
    milliseconds, mebibytes = {}, {}
    for n in LENGTHS:
        milliseconds[n] = times(n, WIDTH, LAYERS)
        mebibytes[n] = [peak_memory(name, n) for name in LAYERS]
    what = f"First table: {TIME}. Second: the most memory that a pass holds besides inputs."
    tables = f"{table('ms', milliseconds)}\n\n{table('MiB', mebibytes)}"
    return f"{tables}\n\n{caption(WIDTH, what, COMMAND)}\n"


def measure_wide() -> str:
    rows = {n: times(n, WIDE, WIDE_LAYERS) for n in WIDE_LENGTHS}
    what = f"Table: {TIME}. The last column is the loop of the one before it, without the product of all rows with W."
    return f"{table('ms', rows, WIDE_LAYERS)}\n\n{caption(WIDE, what, f'{COMMAND} --wide')}\n"


def caption(width: int, what: str, command: str) -> str:
    return (
        f"One forward pass over n tokens of width {width} in float32, projections included, no gradients. {what} "
        f"In C: `cc {' '.join(FLAGS)}`. {processor()}, {cores()} cores, {THREADS} of them used. "
        f"Python {platform.python_version()}, NumPy {np.__version__}, torch {torch.__version__}. Command: `{command}`."
    )


def draw(page: str) -> None:
    lines = [line.strip("| ").split(" | ") for line in page.splitlines()]
    rows = [[float(cell) for cell in line] for line in lines if line[0].isdigit()]
    halves = np.split(np.array(rows), 2)
    labels = ("time (ms)", "memory (MiB)")
    with mpl.rc_context(STYLE):
        figure, axes = plt.subplots(2, 1, figsize=(6, 6), layout="constrained")
        for ax, half, label in zip(axes, halves, labels, strict=True):
            n = half[:, 0]
            for (name, look), values in zip(LAYERS.items(), half.T[1:], strict=True):
                ax.loglog(n, values, label=name, lw=2, ms=5, **look)
            ax.set(xlabel="tokens, n", ylabel=label)
            ax.set_xticks(n, [f"{tokens:.0f}" for tokens in n])
            ax.xaxis.set_minor_locator(mpl.ticker.NullLocator())
            ax.yaxis.set_major_formatter("{x:g}")
            ax.grid(alpha=0.3)
        axes[0].legend(frameon=False, fontsize=9)
        figure.savefig(PICTURE, metadata={"Date": None})


def main() -> None:
    threadpool_limits(THREADS)  # of BLAS, until the end
    torch.set_num_threads(THREADS)
    torch.set_grad_enabled(False)
    if sys.argv[1:] == ["--wide"]:
        WIDE_TABLE.write_text(measure_wide(), encoding="utf-8")
        return
    if sys.argv[1:] != ["--draw"]:
        TABLE.write_text(measure(), encoding="utf-8")
    draw(TABLE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
