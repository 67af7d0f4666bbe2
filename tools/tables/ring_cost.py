"""Is the model of cost true? Attention on two processes of this computer beside what the model predicts.

python tools/tables/ring_cost.py         measures, in a minute or two, and writes book/_tables/ring_cost.markdown
python tools/tables/ring_cost.py --wall  the same in wall-clock, with waiting: on a computer that does nothing else
python tools/tables/ring_cost.py --late  the waiting alone, with pauses for work and messages; writes ring_wait.markdown

Two processes that each do the whole problem give the rate of arithmetic at each length, an exchange of a small and one
of a large tensor, of the kind that is used, give the cost of sending. From these alone `attention_cost` predicts what
each does if they share the problem. On CPUs sending is work for the same cores, so it predicts a sum: overlap=False.
Without --wall all numbers are seconds of processor time, so that other programs on the computer count for little; the
time in which a process sleeps until a message comes is not in them. With it each process keeps to a core of its own,
and one that works while the other sleeps gives the efficiency of two, t1 / (2 t2). Cases take turns; the median of five
minima counts.

With --late a step's arithmetic is a pause, and so is the way of a message, so that both last as long as we like. The
ring should then wait for what the arithmetic does not hide, max(0, x - a).
"""

import argparse
import dataclasses
import os
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist

from attn_tutor.bench.command import processor
from attn_tutor.ledger import H100, Machine, Mesh, attention_cost
from attn_tutor.torch.distributed import ring_attention, run, ulysses_attention
from attn_tutor.torch.distributed.ring import Ring

TABLES = Path(__file__).resolve().parents[2] / "book" / "_tables"
HEADS, WIDTH = 8, 64
LENGTHS = (512, 1024, 2048)
BYTES = 2**16, 2**24
KINDS: dict[Literal["ring", "all-to-all"], Callable[..., Any]] = {
    "ring": ring_attention,
    "all-to-all": ulysses_attention,
}
STEP = 0.2  # seconds of arithmetic
LATE = (0.5, 0.9, 1.1, 1.5, 2.0, 3.0)  # of a step, so long a message travels
BLOCKS = 5  # of rounds; the least of each is taken
Cases = dict[Any, Callable[[], Any]]


def cases(rank: int) -> Cases:
    """What is timed, by kind, tokens and processes. Where these are 1, each does the whole problem; where 0, only the
    first does, and the other sleeps."""
    torch.manual_seed(0)
    alone = [dist.new_group([r]) for r in range(2)][rank]
    found: Cases = {}
    for n in LENGTHS:
        for size, group in ((1, alone), (2, None)):
            local = torch.randn(3, HEADS, n // size, WIDTH)
            for kind, attend in KINDS.items():
                call = partial(attend, *local, causal=True, group=group)
                found[kind, n, size] = call
                if size == 1:
                    found[kind, n, 0] = call if rank == 0 else nothing
    for count in BYTES:
        x = torch.zeros(count // 4)
        found["ring", "exchange", count] = partial(swap, x, rank)
        found["all-to-all", "exchange", count] = partial(turn, x.repeat(2))
    return found


def nothing() -> None:
    """Sleep until the other process is done."""


def swap(x: torch.Tensor, rank: int) -> None:
    new = torch.empty_like(x)
    sending = dist.isend(x, 1 - rank)
    dist.recv(new, 1 - rank)
    # mypy: None is for ranks outside the group, and here both are inside
    sending.wait()  # type: ignore[union-attr]


def turn(x: torch.Tensor) -> None:
    dist.all_to_all_single(torch.empty_like(x), x)


@torch.no_grad()
def timed(rank: int, size: int, rounds: int, wall: bool) -> dict[Any, float]:
    """The time of each case in the process that needs more: of each block of rounds the least, and their median."""
    clock = time.perf_counter if wall else time.process_time
    if wall:
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank]})
    found: dict[Any, list[float]] = {}
    to_time = cases(rank)
    for _ in range(BLOCKS * rounds):
        for name, call in to_time.items():
            dist.barrier()
            start = clock()
            call()
            took = torch.tensor(clock() - start)
            dist.all_reduce(took, op=dist.ReduceOp.MAX)
            found.setdefault(name, []).append(took.item())
    return {
        name: statistics.median(
            min(took[i : i + rounds]) for i in range(0, len(took), rounds)
        )
        for name, took in found.items()
    }


def machine_of(took: dict[Any, float], kind: str, n: int) -> Machine:
    """The rates of this computer, from one process and from two exchanges."""
    flops = 4 * HEADS * WIDTH * n * (n + 1) / 2 / took[kind, n, 1]
    small, large = (took[kind, "exchange", count] for count in BYTES)
    rate = (BYTES[1] - BYTES[0]) / (large - small)
    start = max(0.0, small - BYTES[0] / rate)
    return dataclasses.replace(
        H100,
        operations_per_second=flops,
        link_bytes_per_second=rate,
        network_bytes_per_second=rate,
        link_hop_seconds=0.0,
        network_hop_seconds=0.0,
        start_seconds=start,
        node_gpus=2,
        number_bytes=4,
    )


def table(took: dict[Any, float], wall: bool) -> str:
    what = "wall-clock" if wall else "processor time"
    lines = [
        f"| {what} | tokens | alone, ms | each of two, ms | predicted, ms | predicted : measured |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    if wall:
        lines[0] += " efficiency | predicted |"
        lines[1] += " ---: | ---: |"
    machines: dict[str, Machine] = {}
    for kind in KINDS:
        for n in LENGTHS:
            machine = machines[kind] = machine_of(took, kind, n)
            cost = attention_cost(
                n,
                HEADS,
                Mesh(context=2),
                machine,
                width=WIDTH,
                exchange=kind,
                overlap=False,
            )
            predicted = cost.attend_seconds + cost.wait_seconds  # without projections
            measured = took[kind, n, 2]
            numbers = took[kind, n, 1], measured, predicted
            shown = " | ".join(f"{1e3 * x:.1f}" for x in numbers)
            line = f"| {kind} | {n} | {shown} | {predicted / measured:.2f} |"
            if wall:
                half = took[kind, n, 0] / 2
                line += f" {half / measured:.2f} | {half / predicted:.2f} |"
            lines.append(line)
    costs = " and ".join(
        f"{1e9 / machine.link_bytes_per_second:.2f} s a gigabyte and "
        f"{1e3 * machine.start_seconds:.2f} ms a message ({kind})"
        for kind, machine in machines.items()
    )
    note = (
        f"{processor()}, one core for each process; gloo works for {costs}; "
        f"{HEADS} heads of width {WIDTH}, float32, causal, forward. "
        f"Made by `python tools/tables/ring_cost.py{' --wall' * wall}`."
    )
    return "\n".join([*lines, "", note, ""])


class Late:
    """Messages that are here after so many seconds."""

    def __init__(self, works: list[dist.Work], seconds: float) -> None:
        self.works, self.arrival = works, time.perf_counter() + seconds

    def wait(self) -> None:
        for work in self.works:
            work.wait()
        time.sleep(max(0.0, self.arrival - time.perf_counter()))


def late(rank: int, size: int, rounds: int, travel: float) -> float:
    """Seconds of a ring whose steps take ``STEP`` and whose messages travel so long, the least of rounds."""
    start: Any = dist.batch_isend_irecv
    around = Ring.around

    def with_arithmetic(ring: Ring, kv: Any) -> Iterator[Any]:
        for block in around(ring, kv):
            time.sleep(STEP)
            yield block

    # mypy: nobody should do so but a program that measures
    Ring.around = with_arithmetic  # type: ignore[assignment]
    dist.batch_isend_irecv = lambda ops: [Late(start(ops), travel)]  # type: ignore[assignment,list-item]
    local, took = torch.ones(3, 1, 2, 4), []
    for _ in range(rounds):
        dist.barrier()
        begin = time.perf_counter()
        ring_attention(*local, causal=True)
        longest = torch.tensor(time.perf_counter() - begin)
        dist.all_reduce(longest, op=dist.ReduceOp.MAX)
        took.append(longest.item())
    return min(took)


def late_table(rounds: int) -> str:
    lines = [
        "| p | a, ms | x, ms | predicted, ms | measured, ms | predicted : measured |",
        "| ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for size in (2, 4):
        for share in LATE:
            travel = share * STEP
            predicted = size * STEP + (size - 1) * max(0.0, travel - STEP)
            took = run(late, size, rounds, travel)[0]
            numbers = STEP, travel, predicted, took
            shown = " | ".join(f"{1e3 * x:.0f}" for x in numbers)
            lines.append(f"| {size} | {shown} | {predicted / took:.2f} |")
    note = (
        "Arithmetic and messages are pauses of a and x seconds, so that other programs matter little. "
        f"The least of {rounds} rounds. Made by `python tools/tables/ring_cost.py --late`."
    )
    return "\n".join([*lines, "", note, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description="Time attention on two processes.")
    parser.add_argument("--rounds", type=int, default=30, help="runs of each case")
    parser.add_argument(
        "--wall", action="store_true", help="wall-clock, for a quiet computer"
    )
    parser.add_argument(
        "--late", action="store_true", help="time the waiting, behind pauses"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.late:
        text = late_table(options.rounds // BLOCKS)
        (TABLES / "ring_wait.markdown").write_text(text, encoding="utf-8")
        print(text)
        return
    rounds = -(-options.rounds // BLOCKS)
    text = table(run(timed, 2, rounds, options.wall, timeout=600)[0], options.wall)
    name = "ring_cost_wall" if options.wall else "ring_cost"
    (TABLES / f"{name}.markdown").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
