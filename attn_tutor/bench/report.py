"""What was measured, as a table to read and a plot against the limit; computes nothing but ratios."""

from pathlib import Path
from typing import Any

from attn_tutor.bench.rows import ROWS

STYLE: dict[Any, Any] = {
    "svg.hashsalt": "attn_tutor",
    "font.size": 9,
    "figure.facecolor": "white",
    "axes.spines.top": False,
    "axes.spines.right": False,
}
LOOKS: dict[str, dict[str, Any]] = {
    "ours": {"color": "#b3400a", "marker": "o", "linestyle": "-", "zorder": 3},
    "textbook": {"color": "#1f5f8f", "marker": "s", "linestyle": "--"},
    "best peer": {"color": "#555555", "marker": "^", "linestyle": "-."},
}
COLUMNS = f"{'÷ ours':>9}{'÷ limit':>9}{'ms':>10}  {'quartiles':<19}{'MiB':>7}"


def entry(contest: dict[str, Any], role: str) -> dict[str, Any]:
    """The first of ours or of the textbook, the fastest peer, the slowest part of the limit; {} if there is none."""
    measured = [e for e in contest["contestants"] if e["role"] == role and "ms" in e]
    choose = {"peer": min, "limit": max}.get(role, lambda found, key: found[0])
    return choose(measured, key=lambda e: e["ms"][1]) if measured else {}


def median(contest: dict[str, Any], role: str) -> float | None:
    """In ms."""
    return entry(contest, role).get("ms", (None, None, None))[1]


def ratio(ms: float | None, by: float | None) -> str:
    return "–" if ms is None or by is None else number(ms / by)


def number(x: float | None) -> str:
    """Two digits or three, or the whole part."""
    if x is None:
        return "–"
    if x < 0.1:
        return f"{x:.2g}"
    return f"{x:,.0f}" if x >= 99.95 else f"{x:.1f}" if x >= 9.995 else f"{x:.2f}"


def title(contest: dict[str, Any]) -> str:
    half = {"numpy": "NumPy", "torch": "torch"}[contest["half"]]
    passes = ", forward + backward" if contest["backward"] else ""
    return f"{ROWS[contest['row']].title}, {half}{passes}"


def by_title(result: dict[str, Any], half: str | None) -> dict[str, list[Any]]:
    """The contests of one half, or of both, one list for all sizes of a row."""
    found: dict[str, list[Any]] = {}
    for contest in result["results"]:
        if half in (None, contest["half"]):
            found.setdefault(title(contest), []).append(contest)
    return found


def about(result: dict[str, Any]) -> str:
    machine, settings = result["machine"], result["settings"]
    card = f"{machine['card']}, " if "card" in machine else ""
    versions = ", ".join(f"{name} {v}" for name, v in result["versions"].items())
    return (
        f"{card}{machine['processor']}, {machine['cores']} cores, {machine['system']}. "
        f"{settings['dtype']} on {settings['device']}, {settings['threads']} threads. {versions}."
    )


def unsteady(result: dict[str, Any]) -> bool:
    entries = (e for contest in result["results"] for e in contest["contestants"])
    return not all(e.get("steady", True) for e in entries)


def text(result: dict[str, Any]) -> str:
    """The table for a terminal."""
    lines = [about(result), ""]
    for contest in result["results"]:
        ours, limit = median(contest, "ours"), median(contest, "limit")
        shape = ROWS[contest["row"]].shape
        lines += [f"{title(contest)}, n = {contest['n']} ({shape})"]
        lines += [f"  {'':<38}{COLUMNS}"]
        for e in contest["contestants"]:
            name = f"{e['role']}: {e['name']}"
            if "ms" not in e:
                lines += [f"  {name:<38} left out: {e['left out']}"]
                continue
            q1, q2, q3 = e["ms"]
            spread = f"{number(q1)} – {number(q3)}" + " ~" * (not e["steady"])
            lines += [
                f"  {name:<38}{ratio(q2, ours):>9}{ratio(q2, limit):>9}"
                f"{number(q2):>10}  {spread:<19}{number(e.get('MiB')):>7}"
            ]
        lines += [""]
    if unsteady(result):
        lines += ["~ the quartiles lie more than 15 % apart"]
    return "\n".join(lines).rstrip()


def draw(result: dict[str, Any], path: Path, half: str | None = None) -> None:
    """Time ÷ limit against n, a panel a row; of one half, or of both."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    panels = by_title(result, half)
    rows = max(1, -(-len(panels) // 2))
    with mpl.rc_context(STYLE):
        figure = Figure((7.2, 0.5 + 2.2 * rows), layout="constrained")
        axes = figure.subplots(rows, 2, squeeze=False).ravel()
        for ax in axes[len(panels) :]:
            ax.set_axis_off()
        for ax, (name, contests) in zip(axes, panels.items(), strict=False):
            panel(ax, name, contests)
        legend = axes[0].get_legend_handles_labels()
        figure.legend(*legend, loc="outside upper center", ncols=4, frameon=False)
        metadata = {"Date": None} if path.suffix == ".svg" else None
        figure.savefig(path, metadata=metadata)


def panel(ax: Any, name: str, contests: list[dict[str, Any]]) -> None:
    for label, look in LOOKS.items():
        role = label.removeprefix("best ")
        times = [(c["n"], median(c, role), median(c, "limit")) for c in contests]
        points = [(n, ms / limit) for n, ms, limit in times if ms and limit]
        ax.loglog(*zip(*points, strict=True), label=label, lw=2, ms=5, **look)
    ax.axhline(1, color="black", lw=1, label="limit")
    sizes = [c["n"] for c in contests]
    ax.set_xticks(sizes, [str(n) for n in sizes])
    ax.set_xticks([], minor=True)
    low, high = ax.get_ylim()
    ax.set_ylim(min(0.8, low), max(12, high))  # so that 1 and 10 are always there
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_formatter("")
    first, _, rest = name.partition(", ")
    ax.set_title(f"{first}\n{rest}", fontsize=9, loc="left")
    ax.set(xlabel="n", ylabel="time ÷ limit")
    ax.grid(alpha=0.3)
