"""The reader's answers as functions: for the checker of a page, and for the student notebooks."""

import contextlib
import io
import linecache
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attn_tutor.live import solutions

Function = Callable[..., Any]


def load(path: Path, name: str) -> Function | None:
    """The function that the file holds for an exercise. What its text raises is raised here."""
    names: dict[str, Any] = {"__name__": "solutions"}
    # The text above the answers and the answers before, which this one may use; their faults are not its own.
    for other, text in solutions.parts(solutions.whole(path)):
        if other == name:
            break
        with contextlib.suppress(Exception, SystemExit), contextlib.redirect_stdout(io.StringIO()):  # fmt: skip
            exec(text, names)
    for old in (name, f"my_{name}"):
        names.pop(old, None)
    own, file = solutions.read(path, name) or "", quoted(name)
    linecache.cache[file] = len(own), None, own.splitlines(keepends=True), file
    exec(compile(own, file, "exec"), names)
    fn = names.get(f"my_{name}", names.get(name))
    return fn if callable(fn) else None


def quoted(name: str) -> str:
    """The name under which Python's errors quote an answer."""
    return f"answer {name}"


def my_solutions(stub: Function) -> Function:
    """As long as nothing stands in a stub of a student notebook, take the answer in my_solutions.py, if there is one.

    The notebook lies in the folder of that file or at most two folders below.
    """
    here = Path.cwd()
    found = (x / "my_solutions.py" for x in (here, *here.parents[:2]))
    path = next(filter(Path.is_file, found), None)
    if path is None or not empty(stub):
        return stub
    try:
        own = load(path, stub.__name__.removeprefix("my_"))
    except (Exception, SystemExit) as error:
        print(f"{stub.__name__} in {path} does not run: {error!r}")
        return stub
    if own is None:
        return stub
    print(f"{stub.__name__}: your answer in {path}")
    return own


def empty(fn: Function) -> bool:
    """Whether its body is a docstring alone."""

    def nothing() -> None:
        """Nothing."""

    code, other = fn.__code__, nothing.__code__
    return code.co_code == other.co_code and {*code.co_consts} <= {fn.__doc__, None}
