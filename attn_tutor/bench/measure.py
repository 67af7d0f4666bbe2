"""Time of contestants that take turns, and the memory that each needs, in a process of its own."""

import ctypes
import gc
import math
import multiprocessing
import os
import re
import statistics
from collections.abc import Callable
from pathlib import Path
from time import sleep
from timeit import Timer
from typing import Any

import torch
from torch.utils.benchmark import timer  # waits until a GPU is done

from attn_tutor.bench.case import Case, Contestant
from attn_tutor.bench.rows import ROWS

TURN = 0.02  # s: a shorter call is repeated so long, so that neither clock nor neighbours count
REST = 0.02  # s before a turn among the threads of NumPy and of torch: idle ones hold a core for a while
UNSTEADY = 0.15  # quartiles that lie further apart, as a share of the median
LEAST = 3  # turns of each, however long they take
M_MMAP_THRESHOLD = -3  # as the C library's malloc.h calls it
STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def compete(
    case: Case, rounds: int, budget: float
) -> tuple[list[dict[str, Any]], dict[int, Callable[[], object]]]:
    """Quartiles of each one's time in ms, or why it is left out; and the calls of those that are not."""
    entries: list[dict[str, Any]] = []
    calls: dict[int, Callable[[], object]] = {}
    for i, contestant in enumerate(ROWS[case.row].compete(case)):
        entries += [{"role": contestant.role, "name": contestant.name}]
        try:
            refuse_too_large(case, contestant)
            calls[i] = prepared(case, contestant)
            calls[i]()
        except ModuleNotFoundError as error:
            calls.pop(i)
            entries[i]["left out"] = f"{error.name} is not installed"
        except Exception as error:  # a peer may not know this device or dtype
            calls.pop(i, None)
            line = str(error).strip().partition("\n")[0]
            entries[i]["left out"] = f"{type(error).__name__}: {line}"[:120]
    for i, (q1, q2, q3) in in_turns(calls, case, rounds, budget).items():
        entries[i]["ms"] = [float(f"{1000 * q:.4g}") for q in (q1, q2, q3)]
        entries[i]["steady"] = (q3 - q1) / q2 <= UNSTEADY
    return entries, calls


def prepared(case: Case, contestant: Contestant) -> Callable[[], object]:
    """One call, with gradients where they are wanted."""
    if not case.backward or contestant.role == "limit":
        return torch.no_grad()(contestant.call)

    def both() -> None:
        output: Any = contestant.call()
        output.backward(torch.ones_like(output))

    return both


def refuse_too_large(case: Case, contestant: Contestant) -> None:
    """What it builds must not take more than half of the memory."""
    needed = contestant.stores * (8 if case.dtype == "float64" else 4)
    cuda = case.device == "cuda"
    free = torch.cuda.mem_get_info()[0] if cuda else memory()
    if free is not None and 2 * needed > free:
        raise MemoryError(f"would build {needed / 2**30:.0f} GiB")


def memory() -> int | None:
    """Bytes of the machine, where the system says it."""
    if not hasattr(os, "sysconf"):
        return None
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def in_turns(
    calls: dict[int, Callable[[], object]], case: Case, rounds: int, budget: float
) -> dict[int, list[float]]:
    """Each contestant once a round, so that a busy moment of the machine hits all alike; a slow one leaves early.

    Every other round goes backwards: what a call leaves behind it, in the caches say, is not always met by the same.
    """
    taken: dict[int, list[float]] = {i: [] for i in calls}
    for done in range(rounds):
        for i in list(calls)[:: -1 if done % 2 else 1]:
            if done < LEAST or sum(taken[i]) < budget:
                sleep(REST if case.half == "numpy" else 0)
                taken[i] += [turn(calls[i])]
    return {
        i: statistics.quantiles(t, n=4, method="inclusive") for i, t in taken.items()
    }


def turn(call: Callable[[], object]) -> float:
    """Seconds of one call."""
    clock = Timer(call, timer=timer)
    first = clock.timeit(1)
    count = math.ceil(TURN / first)
    return first if count == 1 else clock.timeit(count) / count


def memory_on_gpu(call: Callable[[], object]) -> float:
    """MiB that one call takes beside its inputs, its output included."""
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def memory_on_cpu(case: Case, name: str) -> float | None:
    """The same of a call of that name, as the system counts it in a fresh process; None where it cannot say."""
    if not RESET.exists():
        return None
    # Forked from a server that has loaded all and computed nothing: as fresh as a new one, and quicker.
    fresh = multiprocessing.get_context("forkserver")
    fresh.set_forkserver_preload(["attn_tutor.bench.measure"])
    with fresh.Pool(1) as pool:
        return pool.apply(count_memory, (case, name, torch.get_num_threads()))


def count_memory(case: Case, name: str, threads: int) -> float:
    torch.set_num_threads(threads)
    # Memory that this process frees goes back to the system at once, whose count is all we see.
    libc = ctypes.CDLL(None)
    libc.mallopt(M_MMAP_THRESHOLD, 65536)
    libc.malloc_trim(0)
    contestants = ROWS[case.row].compete(case)
    call = prepared(case, next(c for c in contestants if c.name == name))
    call()  # loads code and starts threads, which are no cost of the call
    gc.collect()
    RESET.write_text("5", encoding="ascii")  # the peak starts again from now
    before = kibibytes("VmRSS")
    call()
    return (kibibytes("VmHWM") - before) / 2**10


def kibibytes(field: str) -> int:
    [found] = re.findall(rf"{field}:\s*(\d+) kB", STATUS.read_text(encoding="ascii"))
    return int(found)
