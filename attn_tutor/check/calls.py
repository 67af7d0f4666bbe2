"""Call a reader's function as NumPy's or torch's, with a limit on its time, and keep what came of it."""

import dis
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from threading import Thread
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

SECONDS = 5.0  # a case takes milliseconds; whoever needs longer does not come back

Case = tuple[Any, ...]  # the arguments of one call, by position


@dataclass
class Outcome:
    """What one call did."""

    value: Any = None
    error: BaseException | None = None
    after: Case = ()  # the arguments as the call left them
    late: bool = False


def call(fn: Callable[..., Any], case: Case, tensors: bool, seconds: float) -> Outcome:
    """Call ``fn`` with copies of the arguments, as arrays or as tensors.

    It runs in a thread of its own, which also works in notebooks and on Windows. A thread cannot be stopped from
    outside: one that is late is left behind, and ends with the program.
    """
    given = tuple(give(x, tensors) for x in case)
    outcome = Outcome()

    def work() -> None:
        try:
            with np.errstate(all="ignore"):  # infinities are judged, not warned of
                outcome.value = fn(*given)
        except BaseException as error:  # also what ends a program: sys.exit()
            outcome.error = error

    thread = Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        return Outcome(late=True)
    outcome.after = tuple(take(x) for x in given)
    return outcome


def call_first(
    fn: Callable[..., Any], case: Case, seconds: float
) -> tuple[bool, Outcome]:
    """Find out whether ``fn`` takes tensors, and call it.

    It does if its source names torch, or if it makes tensors of arrays, or fails with arrays and runs with tensors.
    There is no such function before torch is imported, so that nothing here needs to import it.
    """
    first = names_torch(fn)
    outcome = call(fn, case, first, seconds)
    strange = outcome.error or (not first and is_tensor(outcome.value))
    if outcome.late or not strange or _torch() is None:
        return first, outcome
    other = call(fn, case, not first, seconds)
    asks_tensors = not first and "Tensor" in str(outcome.error)
    if other.error is None or asks_tensors:
        return not first, other
    return first, outcome


def names_torch(fn: Callable[..., Any]) -> bool:
    """Whether a global name in the body of ``fn`` is torch, or something out of it."""
    plain = inspect.unwrap(fn)
    if not isinstance(plain, FunctionType):
        return False
    used = (plain.__globals__.get(name) for name in _names(plain.__code__))
    origins = (
        x.__name__ if isinstance(x, ModuleType) else getattr(x, "__module__", None)
        for x in used
    )
    return any(
        str(origin).startswith(("torch", "attn_tutor.torch")) for origin in origins
    )


def _names(code: CodeType) -> set[str]:
    """The globals that it reads; co_names would also hold attributes, such as the mean of x.mean."""
    inner = [x for x in code.co_consts if isinstance(x, CodeType)]
    read = {x.argval for x in dis.get_instructions(code) if x.opname == "LOAD_GLOBAL"}
    return read.union(*map(_names, inner))


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


def take(x: Any) -> Any:
    """The same in NumPy again."""
    if isinstance(x, tuple):
        return tuple(map(take, x))
    if isinstance(x, dict):
        return {key: take(value) for key, value in x.items()}
    if not is_tensor(x):
        return x
    x = x.detach().cpu()
    return (x.float() if x.dtype == _torch().bfloat16 else x).numpy()


def _torch() -> Any:
    return sys.modules.get("torch")
