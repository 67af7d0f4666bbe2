"""What this half accepts as an array, and what it looks at before it computes."""

import contextlib
import functools
from collections.abc import Callable
from functools import partial
from typing import Any, ParamSpec, TypeVar

import torch
from torch.autograd import forward_ad

from attn_tutor import _checks

P = ParamSpec("P")
R = TypeVar("R")


def prepare(where: str, arrays: dict[str, Any]) -> dict[str, Any]:
    for name, x in arrays.items():
        if x.is_complex():
            raise TypeError(
                f"{where}: {name} has dtype {x.dtype}; it needs real numbers"
            )
    arrays = {
        name: x if x.is_floating_point() else x.to(torch.get_default_dtype())
        for name, x in arrays.items()
    }
    first, head = next(iter(arrays.items()))
    for name, x in arrays.items():
        if x.device != head.device:
            raise ValueError(
                f"{where}: {name} is on {x.device} but {first} is on {head.device}; move one: {name}.to({first}.device)"
            )
        # NumPy promotes; torch's matrix product does not, unless autocast picks the dtype for it.
        if x.dtype != head.dtype and not torch.is_autocast_enabled(x.device.type):
            raise TypeError(
                f"{where}: {name} is {x.dtype} but {first} is {head.dtype}; cast one: {name}.to({first}.dtype)"
            )
    return arrays


def as_is(arrays: tuple[Any, ...]) -> bool:
    head = arrays[0]
    for x in arrays:
        if not isinstance(x, torch.Tensor) or (
            (x.dtype, x.device, x.is_nested) != (head.dtype, head.device, False)
        ):
            return False
    return bool(head.is_floating_point()) and head.dtype.itemsize > 1


def require_whole(
    where: str, name: str, x: Any, must: str = "must be whole numbers,"
) -> None:
    require_array(where, name, x)
    if x.is_floating_point() or x.is_complex() or x.dtype == torch.bool:
        raise TypeError(f"{where}: {name} {must} got {x.dtype}")


def require_boolean(where: str, mask: Any, device: torch.device) -> None:
    _checks.require_boolean(torch.Tensor, where, mask)
    _require_device(where, "mask", mask, device)


def require_bias(where: str, bias: Any, device: torch.device) -> None:
    _checks.require_bias(torch.Tensor, where, bias)
    _require_device(where, "bias", bias, device)


def require_fit(
    where: str, name: str, shape: _checks.Shape, scores: _checks.Shape
) -> None:
    if not torch.compiler.is_compiling():  # to compare sizes ties the graph to them
        _checks.require_fit(where, name, shape, scores)


def require_size(where: str, name: str, value: Any, least: int = 0) -> None:
    if not torch.compiler.is_compiling():
        _checks.require_size(where, name, value, least)


def require_scale(where: str, scale: Any) -> None:
    if not isinstance(scale, torch.Tensor):  # a learnt one nobody should wait for
        _checks.require_scale(where, scale)


def _require_device(
    where: str, name: str, x: torch.Tensor, device: torch.device
) -> None:
    if x.device != device:
        raise ValueError(
            f"{where}: {name} is on {x.device} but the scores are on {device}; move it: {name}.to('{device}')"
        )


require_array = partial(_checks.require_array, torch.Tensor)
shapes = _checks.checker(require_array, prepare, as_is)


def value_of(
    number: Callable[..., torch.Tensor], *arrays: torch.Tensor, wait: bool = False
) -> Any:
    """A number about the arrays; None where nobody can look at it (compiled, vmap, meta) or would wait for a GPU."""
    if torch.compiler.is_compiling() or not (wait or arrays[0].device.type == "cpu"):
        return None
    try:
        found = number(*arrays)
        # A tensor over processes shows its numbers as a whole.
        return getattr(found, "full_tensor", lambda: found)().tolist()
    except RuntimeError:  # torch.vmap and the meta device have no number to show
        return None


def in_full(X: torch.Tensor) -> Any:
    """A context in which autocast lowers no precision; where it does not exist, as for the meta device, nothing."""
    if not torch.amp.is_autocast_available(X.device.type):
        return contextlib.nullcontext()
    return torch.autocast(X.device.type, enabled=False)


def transformed(*arrays: torch.Tensor) -> bool:
    """Whether torch.func looks on, or derivatives are taken along a direction: torch's fused kernels have none."""
    if torch.compiler.is_compiling():
        return False
    return any(
        forward_ad.unpack_dual(X).tangent is not None
        or torch.func.debug_unwrap(X) is not X
        for X in arrays
    )


def upcast_half(fn: Callable[P, R]) -> Callable[P, R]:
    """Compute half precision in single, whose range scores and sums need; a lone result comes back as half."""

    @functools.wraps(fn)
    def wider(*args: Any, **kwargs: Any) -> Any:
        dtype = args[0].dtype
        with in_full(args[0]):
            wide = [_wider(x) for x in args], {k: _wider(x) for k, x in kwargs.items()}
            result: Any = fn(*wide[0], **wide[1])
        return result if isinstance(result, tuple) else result.to(dtype)

    return wider


def _wider(x: Any) -> Any:
    half = (
        isinstance(x, torch.Tensor) and x.is_floating_point() and x.dtype.itemsize < 4
    )
    return x.float() if half else x


def repeat_heads(X: torch.Tensor, times: int) -> torch.Tensor:
    """Each head so many times in a row, (…, g, m, d) -> (…, g·times, m, d)."""
    return X if times == 1 else X.repeat_interleave(times, -3)
