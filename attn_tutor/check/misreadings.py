"""Wrong functions that nobody has to write: the right answer to another question, in which an argument is changed."""

from collections.abc import Callable, Iterator, Sequence
from itertools import permutations
from typing import Any

import numpy as np

from attn_tutor.check.calls import Case

Change = tuple[str, Callable[[Case], Case]]  # in words, and what it makes of arguments


def _identity(x: Any) -> Any:
    if x.ndim != 2 or len(x) != len(x.T):
        raise ValueError("not square")
    return np.eye(len(x), dtype=x.dtype)


def _transpose(x: Any) -> Any:
    return np.swapaxes(x, -1, -2)


# What an argument is taken for, by its kind. A star stands for its name.
Taken = dict[str, Callable[[Any], Any]]
TWICE: Taken = {
    "twice *": lambda x: 2 * x, "half of *": lambda x: x / 2, "minus *": lambda x: -x, "the square of *": lambda x: x**2
}  # fmt: skip
TAKEN_FOR: dict[str, Taken] = {
    "f": TWICE | {
        "the transpose of *": _transpose, "zeros in place of *": np.zeros_like, "ones in place of *": np.ones_like,
        "the rows of * from the last to the first": lambda x: np.flip(x, -2),
        "the columns of * from the last to the first": lambda x: np.flip(x, -1),
        "an identity matrix in place of *": _identity},
    "b": {
        "the opposite of *": np.logical_not, "the transpose of *": _transpose,
        "True everywhere in place of *": np.ones_like, "the lower triangle of *, a causal mask besides": np.tril},
    "int": {
        "* + 1": lambda x: x + 1, "* − 1": lambda x: x - 1, "twice *": lambda x: 2 * x, "half of *": lambda x: x // 2},
    "float": TWICE | {
        "the root of *": lambda x: x**0.5, "1 over *": lambda x: 1 / x, "1 in place of *": lambda x: 1.0},
    "bool": {"the opposite of *": lambda x: not x},
}  # fmt: skip


def misreadings(names: Sequence[str], case: Case) -> Iterator[Change]:
    """What each argument may be taken for, in words and as a change of all arguments, for cases like this one."""
    kinds = [_kind(x) for x in case]
    for i, kind in enumerate(kinds):
        for words, change in TAKEN_FOR.get(kind, {}).items():
            yield words.replace("*", f"`{names[i]}`"), _at(i, change)
    pairs = permutations(range(len(case)), 2)
    alike = [(i, j) for i, j in pairs if kinds[i] == kinds[j] != ""]
    for i, j in alike:
        if i < j:
            yield f"`{names[i]}` and `{names[j]}` exchanged", _place({i: j, j: i})
    for i, j in alike:
        yield f"`{names[i]}` in place of `{names[j]}`", _place({j: i})


def _kind(x: Any) -> str:
    if isinstance(x, np.ndarray):
        return str(x.dtype.kind)
    return type(x).__name__.rstrip("0123456789")


def _place(of: dict[int, int]) -> Callable[[Case], Case]:
    """Take for some arguments others, by their numbers."""
    return lambda case: tuple(case[of.get(i, i)] for i in range(len(case)))


def _at(i: int, change: Callable[[Any], Any]) -> Callable[[Case], Case]:
    return lambda case: (*case[:i], change(case[i]), *case[i + 1 :])


def after(fn: Callable[..., Any], change: Callable[[Case], Case]) -> Callable[..., Any]:
    """``fn`` of the changed arguments. If they do not suit it, it fails with a ValueError."""

    def changed(*case: Any) -> Any:
        try:
            return fn(*change(case))
        except Exception as error:
            raise ValueError(error) from error

    return changed
