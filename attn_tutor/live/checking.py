"""Check one answer of my_solutions.py, in the kernel of a page: the checker's words, and what it tried as a table."""

import html
import re
import traceback

from attn_tutor.check import EXERCISES
from attn_tutor.live import loading, solutions

VERDICT = "application/vnd.attn-tutor.verdict+json"
TRIED = re.compile(r"  (\w+?) *(\(.*?\))? = (.*)")


def check(name: str) -> None:
    """Show what the checker says of the answer, and tell the page whether it is right."""
    from IPython.display import display

    right, text = judge(name)
    shown = {"text/plain": text, "text/html": as_table(text), VERDICT: {"right": right}}
    display(shown, raw=True)


def judge(name: str) -> tuple[bool, str]:
    try:
        fn = loading.load(solutions.place(), name)
    except (Exception, SystemExit) as error:
        words = why(error, loading.quoted(name))
        return False, f"✗ {name}: the text does not run\n{words}"
    if fn is None:
        return False, f"✗ {name}: there is no function `{name}` yet"
    report = EXERCISES[name].examine(fn)
    return report.right, report.text


def why(error: BaseException, file: str) -> str:
    frames = [x for x in traceback.extract_tb(error.__traceback__) if x.filename == file]  # fmt: skip
    line = f", in line {frames[-1].lineno}" if frames else ""
    words = "".join(traceback.format_exception_only(error)).strip()
    return f"{words}{line}"


def as_table(text: str) -> str:
    """The words as paragraphs; names, shapes and values, of which there is one a line, as the rows of a table."""
    shown, rows = [], list[str]()
    for line in [*text.split("\n"), ""]:
        if found := TRIED.fullmatch(line):
            value = html.escape(found[3]).replace("], [", "],<br>&nbsp;[")
            rows.append(
                f"<tr><th scope='row'>{found[1]}</th><td>{found[2] or ''}</td><td><code>{value}</code></td></tr>"
            )
            continue
        if rows:
            head = "<tr><th scope='col'>name</th><th scope='col'>shape</th><th scope='col'>value</th></tr>"
            shown.append(
                f"<table><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table>"
            )
            rows = []
        if line:
            shown.append(f"<p>{html.escape(line)}</p>")
    return "".join(shown)
