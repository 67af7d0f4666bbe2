"""Arguments, the order of work, and what is written down about the machine."""

import argparse
import json
import os
import platform
import sys
from collections.abc import Sequence
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

import attn_tutor
from attn_tutor.bench import report
from attn_tutor.bench.case import Case
from attn_tutor.bench.measure import compete, memory, memory_on_cpu, memory_on_gpu
from attn_tutor.bench.rows import DEFAULT, ROWS

ROUNDS, BUDGET = 15, 15.0  # turns of each, or fewer after so many seconds of its own
QUICK_ROUNDS, QUICK_BUDGET = 5, 1.5
DTYPES = ["float32", "float64", "float16", "bfloat16"]
PACKAGES = [
    "numpy",
    "torch",
    "threadpoolctl",
    "triton",
    "d2l",
    "x-transformers",
    "keras",
]


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    options = parse(arguments)
    torch.set_num_threads(cores())
    torch.manual_seed(0)
    rounds, budget = (QUICK_ROUNDS, QUICK_BUDGET) if options.quick else (ROUNDS, BUDGET)
    settings = {"device": options.device, "dtype": options.dtype}
    result: dict[str, Any] = {
        "command": " ".join(["python -m attn_tutor.bench", *arguments]),
        "date": date.today().isoformat(),
        "machine": machine(options.device),
        "versions": versions(),
        "settings": settings | {"threads": cores(), "rounds": rounds},
        "results": [],
    }
    plan, status = cases(options), 0
    try:
        for case in tqdm(plan, disable=None, leave=False):
            result["results"] += [compare(case, rounds, budget)]
            if options.json:  # after each, so that an interrupt loses none
                text = json.dumps(result, indent=1, ensure_ascii=False)
                options.json.write_text(text + "\n", encoding="utf-8")
    except KeyboardInterrupt:
        status = 130
        done = len(result["results"])
        print(f"Stopped; {done} of {len(plan)} comparisons were made.\n")
    print(report.text(result))
    if options.plot:
        report.draw(result, options.plot)
    return status


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m attn_tutor.bench",
        description="Time and memory of this package beside the textbook, other packages, and the machine's limit.",
    )
    add, names = parser.add_argument, f"{', '.join(DEFAULT)}, or rule-X, rule-X+Y"
    add("--device", choices=["cpu", "cuda"], default="cpu")
    add("--dtype", choices=DTYPES, default="float32")
    some = "tokens; each row has its own"
    add("--sizes", type=size, nargs="+", metavar="N", help=some)
    add("--rows", choices=ROWS, nargs="+", metavar="ROW", default=DEFAULT, help=names)
    less = "two sizes, fewer rounds, nothing compiled"
    add("--quick", action="store_true", help=less)
    add("--json", type=file, metavar="FILE", help="write all that was measured")
    add("--plot", type=file, metavar="FILE", help="draw it (.svg, .png, .pdf)")
    options = parser.parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: torch sees no CUDA device here")
    if options.plot and find_spec("matplotlib") is None:
        parser.error('--plot needs matplotlib: pip install "attn-tutor[plot]"')
    if options.plot and options.plot.suffix not in (".svg", ".png", ".pdf"):
        parser.error("--plot needs a name that ends in .svg, .png or .pdf")
    return options


def size(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def file(text: str) -> Path:
    path = Path(text)
    if path.is_dir() or not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is no place for a file")
    return path


def cases(options: argparse.Namespace) -> list[Case]:
    halves = ["numpy", "torch"]
    if options.device == "cuda" or options.dtype == "bfloat16":
        halves = ["torch"]  # NumPy knows neither
    return [
        Case(row, half, n, options.device, options.dtype, backward, not options.quick)
        for row in options.rows
        for half in halves
        for backward in (False, True)
        if not backward or (ROWS[row].trained and half == "torch")
        for n in options.sizes or ROWS[row].sizes[: 2 if options.quick else None]
    ]


def compare(case: Case, rounds: int, budget: float) -> dict[str, Any]:
    entries, calls = compete(case, rounds, budget)
    for i, call in calls.items():
        if entries[i]["role"] != "limit":
            cuda, name = case.device == "cuda", entries[i]["name"]
            entries[i]["MiB"] = (
                memory_on_gpu(call) if cuda else memory_on_cpu(case, name)
            )
    about = {"row": case.row, "half": case.half, "n": case.n, "backward": case.backward}
    return about | {"contestants": entries}


def cores() -> int:
    """Those that this process may use."""
    linux = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if linux else os.cpu_count() or 1


def machine(device: str) -> dict[str, Any]:
    about: dict[str, Any] = {"processor": processor(), "cores": cores()}
    about["system"] = f"{platform.system()} {platform.machine()}"
    if size := memory():
        about["memory, GiB"] = round(size / 2**30)
    if device == "cuda":
        about["card"] = torch.cuda.get_device_name()
    return about


def processor() -> str:
    """The model, as the system names it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    named = [x.partition(":")[2].strip() for x in lines if x.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    found = {"attn_tutor": attn_tutor.__version__, "Python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
