"""Is the model of cost true? Attention on two processes of this computer beside what the model predicts.

python tools/ring_cost.py    measures, in a minute or two, and writes book/_tables/ring_cost.markdown

Two processes that each do the whole problem give the rate of arithmetic at each length, an exchange of a small and one
of a large tensor give the cost of sending. From these alone `attention_cost` predicts what each does if they share the
problem. On CPUs sending is work for the same cores, so nothing is hidden: overlap=False. All numbers are seconds of
processor time, so that other programs on the computer count for little; they do not contain the time in which a process
sleeps until a message comes. Cases take turns, and the least of many runs counts.
"""

import argparse
import platform
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist

from attn_tutor.torch.distributed import ring_attention, run, ulysses_attention
from attn_tutor.torch.distributed.cost import Machine, Mesh, attention_cost

TABLE = Path(__file__).resolve().parents[1] / "book" / "_tables" / "ring_cost.markdown"
HEADS, WIDTH = 8, 64
LENGTHS = (512, 1024, 2048)
BYTES = 2**16, 2**24
KINDS: dict[Literal["ring", "all-to-all"], Callable[..., Any]] = {
    "ring": ring_attention,
    "all-to-all": ulysses_attention,
}
Cases = dict[Any, Callable[[], Any]]


def cases(rank: int) -> Cases:
    """What is timed, by kind, tokens and processes. Where both work alone, each does the whole problem."""
    torch.manual_seed(0)
    alone = [dist.new_group([r]) for r in range(2)][rank]
    found: Cases = {}
    for n in LENGTHS:
        for size, group in ((1, alone), (2, None)):
            local = torch.randn(3, HEADS, n // size, WIDTH)
            for kind, attend in KINDS.items():
                call = partial(attend, *local, causal=True, group=group)
                found[kind, n, size] = call
    for count in BYTES:
        found["exchange", count] = partial(swap, torch.zeros(count // 4), rank)
    return found


def swap(x: torch.Tensor, rank: int) -> None:
    new = torch.empty_like(x)
    sending = dist.isend(x, 1 - rank)
    dist.recv(new, 1 - rank)
    # mypy: None is for ranks outside the group, and here both are inside
    sending.wait()  # type: ignore[union-attr]


@torch.no_grad()
def least(rank: int, size: int, rounds: int) -> dict[Any, float]:
    """The least processor time of many runs of each case, in the process that needs more."""
    found: dict[Any, float] = {}
    to_time = cases(rank)
    for _ in range(rounds):
        for name, call in to_time.items():
            dist.barrier()
            start = time.process_time()
            call()
            took = torch.tensor(time.process_time() - start)
            dist.all_reduce(took, op=dist.ReduceOp.MAX)
            found[name] = min(found.get(name, float("inf")), took.item())
    return found


def machine_of(took: dict[Any, float], kind: str, n: int) -> Machine:
    """The rates of this computer, from one process and from two exchanges."""
    flops = 4 * HEADS * WIDTH * n * (n + 1) / 2 / took[kind, n, 1]
    small, large = (took["exchange", count] for count in BYTES)
    rate = (BYTES[1] - BYTES[0]) / (large - small)
    start = max(0.0, small - BYTES[0] / rate)
    return Machine(flops, rate, rate, 0.0, 0.0, start, node=2, number=4)


def table(took: dict[Any, float]) -> str:
    lines = [
        "| processor time | tokens | alone, ms | each of two, ms | predicted, ms | predicted : measured |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for kind in KINDS:
        for n in LENGTHS:
            machine = machine_of(took, kind, n)
            cost = attention_cost(
                n,
                HEADS,
                Mesh(context=2),
                machine,
                width=WIDTH,
                exchange=kind,
                overlap=False,
            )
            predicted = cost.attend + cost.wait  # without projections
            numbers = took[kind, n, 1], took[kind, n, 2], predicted
            shown = " | ".join(f"{1e3 * x:.1f}" for x in numbers)
            lines.append(
                f"| {kind} | {n} | {shown} | {predicted / took[kind, n, 2]:.2f} |"
            )
    rate = machine.link / 1e9
    note = (
        f"{platform.machine()}, one core for each process; gloo works for {1 / rate:.2f} s a gigabyte and "
        f"{1e3 * machine.start:.2f} ms a message; {HEADS} heads of width {WIDTH}, float32, causal, forward. "
        "Made by `python tools/ring_cost.py`."
    )
    return "\n".join([*lines, "", note, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description="Time attention on two processes.")
    parser.add_argument("--rounds", type=int, default=30, help="runs of each case")
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    text = table(run(least, 2, rounds, timeout=600)[0])
    TABLE.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
