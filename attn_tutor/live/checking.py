"""Check one answer of my_solutions.py, in the kernel of a page: the checker's words, and what it tried as a table."""

import contextlib
import html
import io
import linecache
import re
import traceback
from typing import Any

from attn_tutor.check import EXERCISES
from attn_tutor.live import solutions

VERDICT = "application/vnd.attn-tutor.verdict+json"
TRIED = re.compile(r"  (\w+?) *(\(.*?\))? = (.*)")


def check(name: str) -> None:
    """Show what the checker says of the answer, and tell the page whether it is right."""
    from IPython.display import display

    right, text = judge(name)
    shown = {"text/plain": text, "text/html": as_table(text), VERDICT: {"right": right}}
    display(shown, raw=True)


def judge(name: str) -> tuple[bool, str]:
    answers = solutions.parts(solutions.whole(solutions.place()))
    own = solutions.read(solutions.place(), name) or ""
    names: dict[str, Any] = {"__name__": "solutions"}
    # What stands above the answers and the answers before, which this one may use; their faults are not its own.
    for other, text in answers:
        if other == name:
            break
        with contextlib.suppress(Exception, SystemExit), contextlib.redirect_stdout(io.StringIO()):  # fmt: skip
            exec(text, names)
    for old in (name, f"my_{name}"):
        names.pop(old, None)
    file = f"answer {name}"
    linecache.cache[file] = len(own), None, own.splitlines(keepends=True), file
    try:
        exec(compile(own, file, "exec"), names)
    except (Exception, SystemExit) as error:
        return False, f"✗ {name}: the text does not run\n{why(error, file)}"
    fn = names.get(f"my_{name}", names.get(name))
    if not callable(fn):
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
