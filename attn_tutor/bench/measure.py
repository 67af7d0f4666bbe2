"""Time of contestants that take turns, and the memory that each needs, in a process of its own."""

import gc
import math
import multiprocessing
import os
import re
import statistics
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import cycle
from operator import itemgetter
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import torch

from attn_tutor.bench.case import Case
from attn_tutor.bench.contestants import Contestant
from attn_tutor.bench.rows import ROWS

TURN = 0.02  # s: a shorter call is repeated so long, so that neither clock nor neighbours count
REST = 0.02  # s before a turn among the threads of NumPy and of torch: idle ones hold a core for a while
UNSTEADY = 0.15  # quartiles that lie further apart, as a share of the median
LEAST = 3  # turns of each, however long they take
TRIES = 3  # or fewer: none begins after this many budgets
STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def prepared(case: Case, contestant: Contestant) -> Callable[[], object]:
    """One call, with gradients where they are wanted."""
    if not case.backward or contestant.role == "limit":
        return torch.no_grad()(contestant.call)

    def both() -> None:
        output: Any = contestant.call()
        output.backward(torch.ones_like(output))

    return both


def too_large(case: Case, contestant: Contestant) -> str | None:
    """Why it is left out: what it builds takes more than half of the memory."""
    needed = contestant.stores * (8 if case.dtype == "float64" else 4)
    if case.device == "cuda":
        free = torch.cuda.mem_get_info()[0]
    elif hasattr(os, "sysconf"):
        free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    else:
        return None
    return f"would build {needed / 2**30:.0f} GiB" if 2 * needed > free else None


def compete(
    case: Case, contestants: list[Contestant], rounds: int, budget: float
) -> tuple[list[dict[str, Any]], int]:
    """Quartiles of each one's time in ms, and how often all was measured until they lay close enough."""
    entries: list[dict[str, Any]] = []
    calls = {}
    for i, contestant in enumerate(contestants):
        entries += [{"role": contestant.role, "name": contestant.name}]
        if reason := too_large(case, contestant):
            entries[-1]["left out"] = reason
            continue
        calls[i] = prepared(case, contestant)
        try:
            calls[i]()
        except Exception as error:  # a peer may not know this device or dtype
            del calls[i]
            line = str(error).strip().partition("\n")[0]
            entries[i]["left out"] = f"{type(error).__name__}: {line}"[:120]
    tries: list[tuple[float, dict[int, list[float]]]] = []
    spread, start = math.inf, perf_counter()
    while not tries or (
        spread > UNSTEADY
        and len(tries) < TRIES
        and perf_counter() - start < TRIES * budget
    ):
        with pinned():
            quartiles = in_turns(calls, case, rounds, budget)
        spread = max(((q3 - q1) / q2 for q1, q2, q3 in quartiles.values()), default=0.0)
        tries += [(spread, quartiles)]
    best = min(tries, key=itemgetter(0))[1]
    for i, (q1, q2, q3) in best.items():
        entries[i] |= {
            "ms": [float(f"{1000 * q:.4g}") for q in (q1, q2, q3)],
            "steady": (q3 - q1) / q2 <= UNSTEADY,
        }
    return entries, len(tries)


@contextmanager
def pinned() -> Iterator[None]:
    """Each thread on a core of its own, where the system lets us: two that wake on one core take twice the time."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    cores = os.sched_getaffinity(0)
    first, *others = sorted(cores)
    turn = cycle(others or [first])

    def settle(*_: object) -> None:
        """The first that a new thread does."""
        sys.setprofile(None)
        os.sched_setaffinity(0, {next(turn)})

    for_each_thread(lambda: {next(turn)})
    os.sched_setaffinity(0, {first})
    threading.setprofile(settle)
    try:
        yield
    finally:
        threading.setprofile(None)
        for_each_thread(lambda: cores)


def for_each_thread(cores: Callable[[], set[int]]) -> None:
    """Say where each may run, the oldest first: those of a pool follow each other."""
    for thread in sorted(map(int, os.listdir("/proc/self/task"))):
        with suppress(ProcessLookupError):  # it has ended meanwhile
            os.sched_setaffinity(thread, cores())


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
                taken[i] += [turn(calls[i], case.device)]
    return {
        i: statistics.quantiles(t, n=4, method="inclusive") for i, t in taken.items()
    }


def turn(call: Callable[[], object], device: str) -> float:
    first = seconds(call, 1, device)
    if first > TURN:
        return first
    return seconds(call, math.ceil(TURN / first), device)


def seconds(call: Callable[[], object], count: int, device: str) -> float:
    """Seconds a call."""
    if device == "cuda":
        torch.cuda.synchronize()
    start = perf_counter()
    for _ in range(count):
        call()
    if device == "cuda":
        torch.cuda.synchronize()
    return (perf_counter() - start) / count


def peak_memory(case: Case, name: str) -> float | None:
    """MiB that one call takes beside its inputs, its output included, seen by the system; None where it cannot say."""
    if case.device == "cpu" and not RESET.exists():
        return None
    # What the new process frees then goes back to the system at once, whose count is all
    # we see. It would slow down the clock, but this process read its settings long ago.
    os.environ["MALLOC_MMAP_THRESHOLD_"] = "65536"
    # Forked from a server that has loaded all and computed nothing: as fresh as a new one, and quicker.
    fresh = multiprocessing.get_context(
        "forkserver" if case.device == "cpu" else "spawn"
    )
    fresh.set_forkserver_preload(["attn_tutor.bench.measure"])
    with fresh.Pool(1) as pool:
        return pool.apply(peak_memory_here, (case, name, torch.get_num_threads()))


def peak_memory_here(case: Case, name: str, threads: int) -> float:
    torch.set_num_threads(threads)
    contestants = ROWS[case.row].compete(case)
    call = prepared(case, next(c for c in contestants if c.name == name))
    call()  # loads code and starts threads, which are no cost of the call
    gc.collect()
    if case.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        torch.cuda.synchronize()
        return (torch.cuda.max_memory_allocated() - before) / 2**20
    RESET.write_text("5", encoding="ascii")  # the peak starts again from now
    before = kibibytes("VmRSS")
    call()
    return (kibibytes("VmHWM") - before) / 2**10


def kibibytes(field: str) -> int:
    found = re.search(
        rf"^{field}:\s*(\d+) kB", STATUS.read_text(encoding="ascii"), re.M
    )
    assert found is not None
    return int(found[1])
