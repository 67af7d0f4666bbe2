"""How a case is shown: shapes first, then values, as many as one can read."""

import inspect
import math
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from attn_tutor.check.calls import Case

READABLE = 24  # entries; of a larger array only what differs is shown


def show_case(names: Sequence[str], case: Case) -> str:
    pairs = zip(names, case, strict=False)
    return "\n".join(
        ["For", *(f"  {name}{_shape(x)} = {text(x)}" for name, x in pairs)]
    )


def show_pair(expected: Any, got: Any, label: str = "") -> str:
    """What should be beside what is; of large arrays the first entry that differs."""
    expected, got = np.asarray(expected), np.asarray(got)
    lines = [label] if label else []
    if expected.shape != got.shape or expected.size <= READABLE:
        one, other = _telling(text, expected, got)
        lines += [f"  expected{_shape(expected)} = {one}"]
        lines += [f"  got     {_shape(got)} = {other}"]
    else:
        differs = ~np.isclose(expected, got, 1e-6, 1e-8, equal_nan=True)
        at = np.unravel_index(differs.argmax(), differs.shape)
        place = ", ".join(str(int(i)) for i in at)
        one, other = _telling(_number, expected[at], got[at])
        lines += [
            f"  {differs.sum()} of {differs.size} entries differ; the first at [{place}]:",
            f"  expected {one}, got {other}",
        ]
    return "\n".join(lines)


def _telling(show: Callable[[Any, int], str], one: Any, other: Any) -> tuple[str, str]:
    """Both, with as many digits as it takes to show a difference: four if those do."""
    pairs = ((show(one, digits), show(other, digits)) for digits in range(4, 17))
    return next((x for x in pairs if x[0] != x[1]), (show(one, 4), show(other, 4)))


def show_error(error: BaseException, fn: Callable[..., Any]) -> str:
    """The error, and the last line of the reader's own file that led to it."""
    lines = [f"it raises {type(error).__name__}: {error}"]
    code = getattr(inspect.unwrap(fn), "__code__", None)
    frames = traceback.extract_tb(error.__traceback__)
    own = [x for x in frames if code and x.filename == code.co_filename]
    for frame in own[-1:]:
        line = f": {frame.line}" if frame.line else ""
        lines += [f"  line {frame.lineno}, in {frame.name}{line}"]
    return "\n".join(lines)


def text(x: Any, digits: int = 4) -> str:
    if isinstance(x, dict):
        return "{" + ", ".join(f"{key}{_shape(x[key])}" for key in x) + "}"
    if callable(x):
        return x.__name__.replace("_", " ")
    if not isinstance(x, np.ndarray):
        return str(x)
    if x.size > READABLE:
        return f"… ({x.dtype})"
    how = {"float_kind": lambda y: _number(y, digits)}
    shown = np.array2string(x, separator=", ", formatter=how, max_line_width=10**6)  # type: ignore[arg-type]  # a dict for a typed one
    wide = "" if x.dtype in (np.float64, bool, np.int64) else f" ({x.dtype})"
    return " ".join(shown.split()) + wide


def _shape(x: Any) -> str:
    return f" {x.shape}" if isinstance(x, np.ndarray) and x.ndim else ""


def _number(x: Any, digits: int = 4) -> str:
    """At most so many digits, and logarithms of small whole numbers by their name."""
    x = x.item()
    for whole in range(2, 10):
        if x == math.log(whole):
            return f"ln {whole}"
    return f"{x:.{digits}g}" if isinstance(x, float) else str(x)
