"""Time of every rule and pair of rules beside SDPA with a matrix and FlexAttention, on a CPU.

python tools/tables/rule_times.py [SIZE …]    writes benchmarks/rules/cpu.json, cpu.md and, for the pairs, pairs.md

FlexAttention that is not compiled stores all scores, and is left out: with one head and 8,192 tokens it took 3 to 63
times as long as ours.

Contestants take turns in one thread, whose own seconds count, the quickest turn of each: neighbours do not. To compile
takes longest, and is done for single rules alone. What is measured already is kept, so that one can stop and go on.
"""

import json
import sys
from pathlib import Path
from time import process_time
from typing import Any

import torch

from attn_tutor.bench import command, rules
from attn_tutor.bench.case import HEADS, Case

FOUND = Path(__file__).resolve().parents[2] / "benchmarks" / "rules" / "cpu.json"
ROUNDS = 1  # after one that does not count
PEERS = {"torch SDPA with a matrix": "SDPA", "FlexAttention, compiled": "Flex"}
HEAD = """\
| rule | n | NumPy ÷ pairs | torch ÷ pairs | SDPA ÷ torch | Flex ÷ torch |
| --- | ---: | ---: | ---: | ---: | ---: |
"""


def main(sizes: list[int]) -> None:
    torch.set_num_threads(1)
    found: dict[str, Any] = {"results": []}
    if FOUND.exists():
        found = json.loads(FOUND.read_text(encoding="utf-8"))
    found |= {"machine": command.machine("cpu"), "versions": command.versions()}
    found["settings"] = {"heads": HEADS, "threads": 1, "rounds": ROUNDS}
    done = {(row["rule"], row["n"]) for row in found["results"]}
    for n in sizes:
        for names in [(), *((name,) for name in rules.NAMES), *rules.PAIRS]:
            rule = " + ".join(names) or "no rule"
            if (rule, n) not in done:
                found["results"] += [{"rule": rule, "n": n} | compared(names, n)]
                FOUND.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
                for name, pairs in (("cpu.md", False), ("pairs.md", True)):
                    FOUND.with_name(name).write_text(
                        table(found, pairs), encoding="utf-8"
                    )
                print(line(found["results"][-1], found), flush=True)


@torch.no_grad()
def compared(names: tuple[str, ...], n: int) -> dict[str, Any]:
    """Milliseconds of each, and the number of visible pairs."""
    torch.compiler.reset()  # lest the compiler take it for too many variants of one
    calls: dict[str, Any] = {}
    best: dict[str, float] = {}
    pairs = n * n
    for half in ("numpy", "torch"):
        case = Case(f"rule-{'+'.join(names)}", half, n, compiled=True)
        for who in rules.attention(case, names):
            if who.role == "ours":
                calls[half] = who.call
            peer = PEERS.get(who.name) if half == "torch" and names else None
            if peer and (peer != "Flex" or len(names) == 1):
                calls[peer] = who.call
    if names:
        pairs = visible(names, n)
    for round_ in range(ROUNDS + 1):  # the first is no turn
        for name, call in list(calls.items()):
            start = process_time()
            try:
                call()
            except Exception as error:
                print(f"{name} leaves: {error}"[:200], file=sys.stderr)
                del calls[name]
                continue
            taken = process_time() - start
            if round_:
                best[name] = min(taken, best.get(name, taken))
    return {"pairs": pairs, "ms": {k: round(1000 * x, 2) for k, x in best.items()}}


def visible(names: tuple[str, ...], n: int) -> int:
    """How many pairs of a query and a key these rules leave."""
    said = rules.rules(Case("", "torch", n))
    tests = [one.seen for name in names if (one := said[name]()).seen]
    if "prefix" in names:
        tests = [test for test in tests if test is not rules.causal]
    i, j = torch.arange(n)[:, None], torch.arange(n)
    count = 0
    for rows in i.split(512):
        seen = torch.ones(len(rows), n, dtype=torch.bool)
        for test in tests:
            seen = seen & test(rows, j)
        count += int(seen.sum())
    return count


def line(row: dict[str, Any], found: dict[str, Any]) -> str:
    before = found["results"][: found["results"].index(row) + 1]
    plain = [x for x in before if x["rule"] == "no rule" and x["n"] == row["n"]]
    ms = row["ms"]
    share = row["pairs"] / plain[-1]["pairs"]
    cells = [f"{ms[half] / (plain[-1]['ms'][half] * share):.2f}" for half in ("numpy", "torch")]  # fmt: skip
    cells += [f"{ms[who] / ms['torch']:.2f}" if who in ms else "–" for who in PEERS.values()]  # fmt: skip
    return f"| {row['rule']} | {row['n']} | {' | '.join(cells)} |"


def table(found: dict[str, Any], pairs: bool) -> str:
    machine, settings = found["machine"], found["settings"]
    about = (
        f"{settings['heads']} heads of width 64 in float32, forward: seconds of one thread of {machine['processor']}, "
        f"with other users beside it; torch {found['versions']['torch']}. “÷ pairs”: time beside that of plain "
        "attention (the “no rule” above) for as many pairs of a query and a key as the rule leaves. SDPA gets a "
        "matrix; Flex is FlexAttention, compiled. Made by tools/tables/rule_times.py.\n\n"
    )
    title = "Pairs of rules" if pairs else "Rules"
    rows = [
        line(row, found) for row in found["results"] if ("+" in row["rule"]) == pairs
    ]
    return f"# {title}\n\n{about}{HEAD}" + "\n".join(rows) + "\n"


if __name__ == "__main__":
    main([int(n) for n in sys.argv[1:]] or [8192, 16384])
