"""Turn benchmarks/*.json into the pictures and tables of the book's page: python tools/tables/benchmarks.py

Measure first, on a machine that does nothing else:
python -m attn_tutor.bench --json benchmarks/NAME.json
"""

import json
from pathlib import Path
from typing import Any

from attn_tutor.bench.report import (
    about,
    by_title,
    draw,
    entry,
    median,
    number,
    ratio,
    title,
    unsteady,
)
from attn_tutor.bench.rows import ROWS

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks"
PAGE = ROOT / "book" / "_tables" / "benchmarks.markdown"  # Sphinx takes .md for a page
PICTURES = ROOT / "book" / "_static"
CAPTION = "Time divided by the limit, for texts of *n* tokens. Lower is better."
HEAD = """\
| n | ours, ms | ours ÷ limit | textbook ÷ ours | best peer ÷ ours | best peer | ours, MiB | textbook, MiB |
| ---: | ---: | ---: | ---: | ---: | --- | ---: | ---: |
"""


# Functions that readers use today, and where ours could replace them: row, half, backward, and what the row calls it.
USED = (
    ("attention", "numpy", False, "torch SDPA"),
    ("causal", "torch", True, "torch SDPA"),
    ("window", "torch", False, "FlexAttention"),
    ("window", "torch", True, "torch SDPA"),
    ("bias", "torch", False, "torch SDPA"),
    ("additive", "torch", True, "d2l"),
    ("gaussian", "torch", False, "torch cdist and softmax"),
    ("multi-head", "torch", True, "nn.MultiheadAttention"),
    ("softmax", "torch", False, "masked_fill(…, −1e6)"),
    ("decoding", "torch", False, "torch.cat and SDPA"),
)
SUMMARY = """\
| instead of | for | n | its ms | our ms | ours ÷ it | its MiB | our MiB | ours ÷ it |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
"""


def summary(result: dict[str, Any]) -> str:
    """What one gains or loses against what one uses today, at the largest size that both can do."""
    lines = []
    for row, half, backward, name in USED:
        for contest in reversed(result["results"]):
            kind = contest["row"], contest["half"], contest["backward"]
            theirs = [x for x in contest["contestants"] if x["name"] == name]
            if kind == (row, half, backward) and "ms" in theirs[0]:
                lines.append(compared(contest, theirs[0]))
                break
    return SUMMARY + "\n".join(lines)


def compared(contest: dict[str, Any], theirs: dict[str, Any]) -> str:
    ours, shape = entry(contest, "ours"), ROWS[contest["row"]].shape
    cells = [theirs["name"], f"{title(contest)}; {shape}", f"{contest['n']:,}"]
    for it, our in ((theirs["ms"][1], ours["ms"][1]), (theirs["MiB"], ours["MiB"])):
        cells += [number(it), number(our), ratio(our, it)]
    return f"| {' | '.join(cells)} |"


def sentence(contests: list[dict[str, Any]]) -> str:
    """The last line of a table on which there is another, in words."""
    last = [x for x in contests if entry(x, "peer") or entry(x, "textbook")][-1]
    ours, said = entry(last, "ours"), []
    for role, name in (("peer", "the best peer"), ("textbook", "the textbook")):
        if theirs := entry(last, role):
            time = ratio(ours["ms"][1], theirs["ms"][1])
            room = ratio(ours["MiB"], theirs["MiB"])
            said += [f"{time} times the time and {room} times the memory of {name}"]
    return f"At n = {last['n']:,} ours takes {', and '.join(said)}."


def table(contests: list[dict[str, Any]]) -> str:
    return f"{sentence(contests)}\n\n{HEAD}" + "\n".join(map(line, contests))


def line(contest: dict[str, Any]) -> str:
    ours, limit = median(contest, "ours"), median(contest, "limit")
    cells = [str(contest["n"]), number(ours), ratio(ours, limit)]
    cells += [ratio(median(contest, role), ours) for role in ("textbook", "peer")]
    cells += [entry(contest, "peer").get("name", "–")]
    cells += [number(entry(contest, role).get("MiB")) for role in ("ours", "textbook")]
    return f"| {' | '.join(cells)} |"


def alt_text(result: dict[str, Any], half: str) -> str:
    """What the picture shows, at the largest size of each panel."""
    said = []
    for name, (*_, last) in by_title(result, half).items():
        limit = median(last, "limit")
        ours, textbook = (ratio(median(last, x), limit) for x in ("ours", "textbook"))
        said += [
            f"{name}, n = {last['n']}: ours {ours} times the limit, the textbook {textbook}"
        ]
    axes = "Panels with logarithmic axes, time divided by the limit against n. "
    return axes + "; ".join(said)


def fold(name: str, *parts: str) -> str:
    body = "\n\n".join(parts)
    return f":::{{admonition}} {name}\n:class: dropdown\n\n{body}\n:::"


def section(stem: str, result: dict[str, Any]) -> str:
    """The pictures, and folded behind them what they are drawn from."""
    parts = [f"## {result['machine'].get('card', result['machine']['processor'])}"]
    for half, name in (("numpy", "NumPy"), ("torch", "torch")):
        if not (grouped := by_title(result, half)):
            continue
        picture = f"benchmarks_{stem}_{half}.svg"
        draw(result, PICTURES / picture, half)
        tables = (f"**{name}**\n\n{table(rows)}" for name, rows in grouped.items())
        parts += [
            f"### {name}",
            f"```{{figure}} _static/{picture}\n:name: fig-bench-{stem}-{half}\n"
            f":alt: {alt_text(result, half)}\n\n{CAPTION} Measured on {result['date']}.\n```",
            fold(f"All sizes, {name}", *tables),
        ]
    note = " Some quartiles lie more than 15 % apart." if unsteady(result) else ""
    machine = (
        f"{about(result)} Command: `{result['command']}`. "
        f"Medians of up to {result['settings']['rounds']} rounds.{note}"
    )
    parts += [fold("Ours instead of what you use today", summary(result))]
    parts += [fold("The machine and the versions", machine)]
    return "\n\n".join(parts)


def main() -> None:
    sections = [
        section(path.stem, json.loads(path.read_text(encoding="utf-8")))
        for path in sorted(RESULTS.glob("*.json"))
    ]
    PAGE.write_text("\n\n".join(sections) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
