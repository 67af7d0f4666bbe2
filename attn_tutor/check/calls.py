"""Call a reader's function with arrays or with tensors, within a limit of time, and keep what came of it."""

import ctypes
import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from threading import Thread
from typing import Any, NoReturn, TextIO

import numpy as np

SECONDS = 5.0  # a case takes milliseconds; whoever needs longer does not come back
IMPORTS = 4  # times as long for the first, which may import something
PRINTED = 600  # characters of what a function prints that are shown, some ten lines

Case = tuple[Any, ...]  # the arguments of one call, by position


@dataclass
class Outcome:
    """What one call did."""

    value: Any = None
    error: BaseException | None = None
    after: Case = ()  # the arguments as the call left them
    late: bool = False


def call(fn: Callable[..., Any], case: Case, tensors: bool, seconds: float) -> Outcome:
    return call_all(fn, [case], tensors, seconds)[0]


def call_all(fn: Callable[..., Any], cases: Sequence[Case], tensors: bool,
             seconds: float) -> list[Outcome]:  # fmt: skip
    """Call ``fn`` with copies of the arguments, as arrays or as tensors, until a call is late.

    It runs in a thread of its own, which also works in notebooks and on Windows. One that is late is told to stop,
    which it does at its next line of Python; one that waits for something else ends with the program.
    """
    outcomes: list[Outcome] = []

    def work() -> None:
        with suppress(Late), np.errstate(all="ignore"):  # infinities are judged
            for case in cases:
                given, outcome = tuple(give(x, tensors) for x in case), Outcome()
                try:
                    outcome.value = keep(fn(*given))
                except Late:
                    raise
                except BaseException as error:  # also what ends a program: sys.exit()
                    outcome.error = error
                outcome.after = tuple(take(x) for x in given)
                outcomes.append(outcome)

    thread = Thread(target=work, daemon=True)
    thread.start()
    while thread.is_alive():
        before = len(outcomes)
        thread.join(seconds)
        if thread.is_alive() and len(outcomes) == before:
            late, ident = ctypes.py_object(Late), ctypes.c_ulong(thread.ident or 0)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, late)
            return [*outcomes[:before], Outcome(late=True)]
    return outcomes


class Late(BaseException):
    """Raised in a thread from outside."""


@contextmanager
def contained() -> Iterator[None]:
    """Meanwhile what is printed is cut, and os._exit ends the call that makes it, not the program."""
    leave, own = os._exit, os.getpid()

    def instead(status: int) -> NoReturn:
        if os.getpid() != own:  # a process that was started meanwhile ends as it must
            leave(status)
        raise SystemExit(status)

    os._exit = instead
    try:
        with redirect_stdout(Cut(sys.stdout)):
            yield
    finally:
        os._exit = leave


class Cut(io.TextIOBase):
    """The start of what is written into it goes on to ``out``."""

    def __init__(self, out: TextIO) -> None:
        self.out, self.left = out, PRINTED

    def write(self, text: str) -> int:
        if self.left > 0:
            self.out.write(text[: self.left])
            if self.left <= len(text):
                self.out.write(" … (the rest of what it prints is left out)\n")
        self.left -= len(text)
        return len(text)


def call_first(fn: Callable[..., Any], case: Case, seconds: float) -> tuple[bool, Outcome]:  # fmt: skip
    """Find out whether ``fn`` takes tensors, and call it: with arrays, or with tensors if arrays do not suit it.

    There is no such function before torch is imported, so that nothing here needs to import it.
    """
    outcome = call(fn, case, False, IMPORTS * seconds)
    suits = not outcome.error and not is_tensor(outcome.value)
    if suits or outcome.late or _torch() is None:
        return False, outcome
    other = call(fn, case, True, IMPORTS * seconds)
    if other.error is None or _asks_for_tensors(outcome.error):
        return True, other
    return False, outcome


def _asks_for_tensors(error: BaseException | None) -> bool:
    """Whether it failed because an array is no tensor: torch says so, or a method is missing that tensors have."""
    if isinstance(error, AttributeError) and isinstance(error.obj, np.ndarray):
        return hasattr(_torch().Tensor, error.name or "")
    return "Tensor" in str(error)


def is_tensor(x: Any) -> bool:
    torch = _torch()
    if isinstance(x, tuple):
        return any(map(is_tensor, x))
    return torch is not None and isinstance(x, torch.Tensor)


def give(x: Any, tensors: bool) -> Any:
    """A copy of an argument: an array or a tensor, or a function that takes and gives such."""
    if isinstance(x, np.ndarray):
        return _torch().tensor(x) if tensors else x.copy()
    if isinstance(x, dict):
        return {key: give(value, tensors) for key, value in x.items()}
    if callable(x) and tensors:
        return lambda *args: give(x(*map(take, args)), True)
    return x


def keep(x: Any) -> Any:
    """An answer that the next call cannot overwrite, should the function use one buffer for all."""
    if isinstance(x, tuple):
        return tuple(map(keep, x)) if type(x) is tuple else x
    if is_tensor(x):
        return x.detach().clone()
    return x.copy() if isinstance(x, np.ndarray) else x


def take(x: Any) -> Any:
    """The same in NumPy again."""
    if isinstance(x, tuple):
        return tuple(map(take, x))
    if isinstance(x, dict):
        return {key: take(value) for key, value in x.items()}
    if not is_tensor(x):
        return x
    x = x.detach().cpu().to_dense()
    return (x.float() if x.dtype == _torch().bfloat16 else x).numpy()


def _torch() -> Any:
    return sys.modules.get("torch")
