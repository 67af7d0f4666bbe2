"""Turn benchmarks/*.json into the pictures and tables of the book's page: python tools/benchmarks.py

Measure first, on a machine that does nothing else:
python -m attn_tutor.bench --json benchmarks/NAME.json
"""

import json
from pathlib import Path
from typing import Any

from attn_tutor.bench.report import (
    about,
    draw,
    median,
    number,
    ratio,
    title,
    unsteady,
)

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks"
PAGE = ROOT / "book" / "_tables" / "benchmarks.markdown"  # Sphinx takes .md for a page
PICTURES = ROOT / "book" / "_static"
CAPTION = "Time divided by the limit: lower is better."
HEAD = ["n", "ours, ms", "ours ÷ limit", "textbook ÷ ours", "best peer ÷ ours"]
HEAD += ["best peer", "ours, MiB", "textbook, MiB"]


def by_title(result: dict[str, Any], half: str) -> dict[str, list[dict[str, Any]]]:
    grouped: dict[str, list[dict[str, Any]]] = {}
    for contest in result["results"]:
        if contest["half"] == half:
            grouped.setdefault(title(contest), []).append(contest)
    return grouped


def cells(contest: dict[str, Any]) -> list[str]:
    def entry(role: str) -> dict[str, Any]:
        """The one that the median stands for."""
        ms = median(contest, role)
        return next(
            (
                e
                for e in contest["contestants"]
                if e["role"] == role and ms is not None and e.get("ms", [0, 0])[1] == ms
            ),
            {},
        )

    ours, limit = median(contest, "ours"), median(contest, "limit")
    row = [str(contest["n"]), number(ours), ratio(ours, limit)]
    row += [ratio(median(contest, role), ours) for role in ("textbook", "peer")]
    row += [entry("peer").get("name", "–")]
    return row + [number(entry(role).get("MiB")) for role in ("ours", "textbook")]


def table(contests: list[dict[str, Any]]) -> str:
    lines = [HEAD, ["---:"] * 5 + ["---"] + ["---:"] * 2, *map(cells, contests)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def alt_text(result: dict[str, Any], half: str) -> str:
    """What the picture shows, at the largest size of each panel."""
    said = []
    for name, contests in by_title(result, half).items():
        last = contests[-1]
        ours, limit = median(last, "ours"), median(last, "limit")
        textbook = median(last, "textbook")
        said += [
            f"{name}, n = {last['n']}: ours {ratio(ours, limit)} times the limit, "
            f"the textbook {ratio(textbook, limit)}"
        ]
    return (
        "Panels with logarithmic axes, time divided by the limit against n. "
        + "; ".join(said)
    )


def section(stem: str, result: dict[str, Any]) -> str:
    parts = [f"## {result['machine'].get('card', result['machine']['processor'])}"]
    note = " Some quartiles lie more than 15 % apart." if unsteady(result) else ""
    parts += [
        f"{about(result)} {result['date']}. Command: `{result['command']}`. "
        f"Medians of up to {result['settings']['rounds']} rounds.{note}"
    ]
    for half, name in (("numpy", "NumPy"), ("torch", "torch")):
        if not (grouped := by_title(result, half)):
            continue
        picture = f"benchmarks_{stem}_{half}.svg"
        draw(result, PICTURES / picture, half)
        parts += [
            f"### {name}",
            f"```{{figure}} _static/{picture}\n:name: fig-bench-{stem}-{half}\n"
            f":width: 100%\n:figclass: panels\n:alt: {alt_text(result, half)}\n\n{CAPTION}\n```",
        ]
        parts += [f"**{name}**\n\n{table(rows)}" for name, rows in grouped.items()]
    absent = "; ".join(f"{name}: {why}" for name, why in result["missing"].items())
    return "\n\n".join([*parts, *([f"Not compared: {absent}."] if absent else [])])


def main() -> None:
    PAGE.parent.mkdir(exist_ok=True)
    sections = [
        section(path.stem, json.loads(path.read_text(encoding="utf-8")))
        for path in sorted(RESULTS.glob("*.json"))
    ]
    PAGE.write_text("\n\n".join(sections) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
