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

import numpy as np
import torch

import attn_tutor
from attn_tutor.bench import report
from attn_tutor.bench.case import Case
from attn_tutor.bench.contestants import PEERS, why_missing
from attn_tutor.bench.measure import compete, peak_memory
from attn_tutor.bench.rows import ROWS

ROUNDS, BUDGET = 15, 15.0  # turns of each, or fewer after so many seconds of its own
QUICK_ROUNDS, QUICK_BUDGET = 5, 1.5


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    torch.set_num_threads(cores())
    torch.manual_seed(0)
    rounds, budget = (QUICK_ROUNDS, QUICK_BUDGET) if options.quick else (ROUNDS, BUDGET)
    result = begin(options, sys.argv[1:] if arguments is None else arguments, rounds)
    plan, status = cases(options), 0
    try:
        for i, case in enumerate(plan):
            progress(i, len(plan), heading(case))
            result["results"] += [compare(case, rounds, budget)]
            if options.json:  # after each, so that an interrupt loses none
                text = json.dumps(result, indent=1, ensure_ascii=False)
                options.json.write_text(text + "\n", encoding="utf-8")
    except KeyboardInterrupt:
        status = 130
    progress(len(plan), len(plan), "")
    if status:
        done = len(result["results"])
        print(f"Stopped; {done} of {len(plan)} comparisons were made.\n")
    print(report.text(result))
    if options.plot:
        report.draw(result, options.plot)
    return status


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m attn_tutor.bench",
        description="Time and memory of this package beside the textbook, other packages, and the machine's limit.",
    )
    add = parser.add_argument
    add("--device", choices=["cpu", "cuda"], default="cpu")
    dtypes = ["float32", "float64", "float16", "bfloat16"]
    add("--dtype", choices=dtypes, default="float32")
    add(
        "--sizes",
        type=size,
        nargs="+",
        metavar="N",
        help="tokens; each row has its own",
    )
    add(
        "--rows",
        choices=ROWS,
        nargs="+",
        metavar="ROW",
        default=list(ROWS),
        help=", ".join(ROWS),
    )
    add(
        "--quick", action="store_true", help="two sizes, fewer rounds, nothing compiled"
    )
    add("--json", type=file, metavar="FILE", help="write all that was measured")
    add("--plot", type=file, metavar="FILE", help="draw it (.svg, .png, .pdf)")
    options = parser.parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: torch sees no CUDA device here")
    if options.plot and find_spec("matplotlib") is None:
        parser.error("--plot needs matplotlib: pip install 'attn-tutor[plot]'")
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


def begin(
    options: argparse.Namespace, arguments: Sequence[str], rounds: int
) -> dict[str, Any]:
    """What is written down before the first comparison."""
    missing = {name: reason for name in PEERS if (reason := why_missing(name))}
    if options.quick:
        missing.setdefault("FlexAttention", "compiles, so --quick leaves it out")
    return {
        "command": " ".join(["python -m attn_tutor.bench", *arguments]),
        "date": date.today().isoformat(),
        "machine": machine(options.device),
        "versions": versions(),
        "settings": {"device": options.device, "dtype": options.dtype}
        | {"threads": torch.get_num_threads(), "rounds": rounds},
        "missing": missing,
        "results": [],
    }


def compare(case: Case, rounds: int, budget: float) -> dict[str, Any]:
    contestants = list(ROWS[case.row].compete(case))
    entries, tries = compete(case, contestants, rounds, budget)
    del contestants  # the memory is measured beside empty hands
    for entry in entries:
        if "ms" in entry and entry["role"] != "limit":
            entry["MiB"] = peak_memory(case, entry["name"])
    about = {"row": case.row, "half": case.half, "n": case.n, "backward": case.backward}
    return about | {"tries": tries, "contestants": entries}


def cases(options: argparse.Namespace) -> list[Case]:
    halves = ["numpy", "torch"]
    if options.device == "cuda" or options.dtype == "bfloat16":
        halves = ["torch"]  # NumPy knows neither
    return [
        Case(row, half, n, options.device, options.dtype, backward, not options.quick)
        for row in options.rows
        for half in halves
        for backward in (
            (False, True) if ROWS[row].trained and half == "torch" else (False,)
        )
        for n in options.sizes or ROWS[row].sizes[: 2 if options.quick else None]
    ]


def heading(case: Case) -> str:
    return f"{case.row}, {case.half}, n = {case.n}{', backward' * case.backward}"


def progress(done: int, total: int, what: str) -> None:
    if sys.stderr.isatty():
        bar = "#" * (30 * done // total)
        line = f"[{bar:<30}] {done}/{total}  {what}" if done < total else ""
        print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)


def cores() -> int:
    """Those that this process may use."""
    linux = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if linux else os.cpu_count() or 1


def machine(device: str) -> dict[str, Any]:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    named = [x.partition(":")[2].strip() for x in lines if x.startswith("model name")]
    about: dict[str, Any] = {
        "processor": named[0] if named else platform.processor() or platform.machine(),
        "cores": cores(),
        "system": f"{platform.system()} {platform.machine()}",
    }
    if hasattr(os, "sysconf"):
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        about["memory, GiB"] = round(memory / 2**30)
    if device == "cuda":
        about["card"] = torch.cuda.get_device_name()
    return about


def versions() -> dict[str, str]:
    found = {"attn_tutor": attn_tutor.__version__, "Python": platform.python_version()}
    found |= {"NumPy": np.__version__, "torch": torch.__version__}
    for name in ("threadpoolctl", "triton", "d2l", "x-transformers", "keras"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
