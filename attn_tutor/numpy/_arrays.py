"""What this half accepts as an array."""

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numpy as np

from attn_tutor import _checks

P = ParamSpec("P")
R = TypeVar("R")


def prepare(where: str, arrays: dict[str, Any]) -> dict[str, Any]:
    for name, x in arrays.items():
        if x.dtype.kind not in "biuf":
            raise TypeError(
                f"{where}: {name} has dtype {x.dtype}; it needs real numbers"
            )
    return {
        name: x if x.dtype.kind == "f" else x.astype(np.float64)
        for name, x in arrays.items()
    }


def as_is(arrays: tuple[Any, ...]) -> bool:
    dtype = getattr(arrays[0], "dtype", None)
    for x in arrays:
        if type(x) is not np.ndarray or x.dtype != dtype:
            return False
    return arrays[0].dtype.kind == "f"


def require_array(where: str, name: str, x: Any) -> None:
    _checks.require_array(np.ndarray, where, name, x)
    if isinstance(x, np.ma.MaskedArray):
        raise TypeError(
            f"{where}: {name} is a masked array, whose own mask would be lost; give {name}.data, and mask="
        )
    if isinstance(x, np.matrix):
        raise TypeError(
            f"{where}: {name} is a numpy.matrix, whose products have two axes; numpy.asarray({name}) makes an array"
        )


def require_whole(
    where: str, name: str, x: Any, must: str = "must be whole numbers,"
) -> None:
    require_array(where, name, x)
    if x.dtype.kind not in "iu":
        raise TypeError(f"{where}: {name} {must} got {x.dtype}")


shapes = _checks.checker(require_array, prepare, as_is)


def require_boolean(where: str, mask: Any, device: Any = None) -> None:
    _checks.require_boolean(np.ndarray, where, mask)


def require_bias(where: str, bias: Any, device: Any = None) -> None:
    _checks.require_bias(np.ndarray, where, bias)


def silent(fn: Callable[P, R]) -> Callable[P, R]:
    """Let what is hidden overflow or be NaN without a warning; what is visible shows in the result."""

    @functools.wraps(fn)
    def quiet(*args: P.args, **kwargs: P.kwargs) -> R:
        with np.errstate(over="ignore", invalid="ignore"):
            return fn(*args, **kwargs)

    return quiet


def upcast_half(fn: Callable[P, R]) -> Callable[P, R]:
    """Compute half precision in single, whose range scores and sums need; a lone result comes back as half."""

    @functools.wraps(fn)
    def wider(*args: Any, **kwargs: Any) -> Any:
        floats = [x for x in args if isinstance(x, np.ndarray) and x.dtype.kind == "f"]
        if not floats or np.result_type(*floats) != np.float16:
            return fn(*args, **kwargs)
        wide = [_wider(x) for x in args], {k: _wider(x) for k, x in kwargs.items()}
        result: Any = fn(*wide[0], **wide[1])
        return result if isinstance(result, tuple) else result.astype(np.float16)

    return wider


def _wider(x: Any) -> Any:
    half = isinstance(x, np.ndarray) and x.dtype == np.float16
    return x.astype(np.float32) if half else x


def repeat_heads(X: np.ndarray, times: int) -> np.ndarray:
    """Each head so many times in a row, (…, g, m, d) -> (…, g·times, m, d)."""
    return X if times == 1 else np.repeat(X, times, -3)
