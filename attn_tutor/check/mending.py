"""The reader's function once more, with one thing mended: where that makes it right, that thing was the mistake.

Its arguments are arrays, or tensors, that watch what is done to them. They see a sum, a mean or a maximum lose its axis
and meet an array that has it still, and put the axis back; or they take all that runs along one axis along another.
"""

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from attn_tutor.check.calls import is_tensor

# What the package does to arrays is right.
OURS = os.path.dirname(os.path.dirname(__file__))
REDUCTIONS = "sum mean max min amax amin var std prod any all logsumexp norm"
# What torch does entry by entry, and the operators of that name: div, __rdiv__, div_.
ENTRYWISE = "add sub subtract mul multiply div divide truediv true_divide where maximum minimum pow eq ne lt le gt ge"
ENTRYWISE_NAMES = {f"{r}{x}" for x in ENTRYWISE.split() for r in ("", "r", "i")}
Function = Callable[..., Any]
Axis = int | None


@dataclass
class Mend:
    """What is mended: an axis that was lost is put back, and what runs along ``axis`` runs ``along`` another."""

    axis: Axis = 0
    along: Axis = 0
    keeps: bool = False
    # What is seen: shapes that lost an axis, met one that has it, and should have kept it;
    met: tuple[Any, ...] = ()
    # the axes of the reader's reductions, and whether all keep theirs.
    axes: dict[Axis, bool] = field(default_factory=dict)

    def reduce(self, fn: Function, x: Any, axis: Any, keeps: bool, loses: bool = True) -> Any:  # fmt: skip
        """``fn(axis, keeps)`` along the axis that is meant, marked with the axis that it loses."""
        if not (axis is None or isinstance(axis, int)) or not _by_the_reader():
            return fn(axis, keeps)
        self.axes[axis] = self.axes.get(axis, True) and keeps
        if axis == self.axis != self.along and x.ndim > 1:
            axis, keeps = self.along, keeps or self.keeps
        result = fn(axis, keeps)
        if loses and axis is not None and not keeps and x.ndim > 1:
            for each in result if isinstance(result, tuple) else (result,):
                each.lost = axis if axis < 0 else axis - x.ndim
        return result

    def meet(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """The inputs of what is done entry by entry; whoever has lost an axis that another has gets it back."""
        large = max(inputs, key=np.ndim)
        return tuple(self._fit(x, large) for x in inputs)

    def _fit(self, x: Any, large: Any) -> Any:
        lost = getattr(x, "lost", None)
        if lost is None or np.ndim(large) != x.ndim + 1:
            return x
        shape = [*x.shape]
        shape.insert(lost % large.ndim, 1)
        if any(a not in (1, b) for a, b in zip(shape, large.shape, strict=True)):
            return x
        self.met = self.met or (tuple(x.shape), tuple(large.shape), tuple(shape))
        return x.reshape(shape)


def _by_the_reader() -> bool:
    """Whether it is the reader's own code that asks, and not what it calls."""
    libraries = filter(None, map(sys.modules.get, ("numpy", "torch")))
    within = __file__, *(os.path.dirname(x.__file__ or "") for x in libraries)
    frame: Any = sys._getframe(2)
    while frame.f_back and frame.f_code.co_filename.startswith(within):
        frame = frame.f_back
    return not frame.f_code.co_filename.startswith(OURS)


class Watched(np.ndarray):
    mend: Mend
    lost: Axis = None

    def __array_finalize__(self, _: Any) -> None:
        self.lost = None

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **how: Any) -> Any:
        out = how.get("out", (None,))[0]
        if method == "__call__" and ufunc.signature is None:
            *inputs, where = self.mend.meet([*inputs, how.get("where", True)])  # type: ignore[assignment]  # a list for a tuple
            how = how if where is True else how | {"where": where}
        how = {k: _plain(x) for k, x in how.items()}
        result = getattr(ufunc, method)(*map(_plain, inputs), **how)
        return self._like(result, inputs) if out is None else out

    def __array_function__(self, func: Any, types: Any, args: Any, how: Any) -> Any:
        if func is np.where:
            args = self.mend.meet(args)
        return self._like(super().__array_function__(func, types, args, how), args)

    def _like(self, result: Any, inputs: Sequence[Any] = ()) -> Any:
        """It has lost what one of its own shape has lost."""
        if not isinstance(result, np.ndarray) or isinstance(result, Watched):
            return result
        return _inherit(result.view(type(self)), inputs)


def _inherit(result: Any, inputs: Sequence[Any]) -> Any:
    for x in inputs:
        lost = getattr(x, "lost", None)
        if lost is not None and getattr(result, "shape", None) == x.shape:
            result.lost = lost
    return result


def _reduction(name: str) -> Function:
    plain = getattr(np.ndarray, name)

    def reduction(self: Any, axis: Any = None, *args: Any, keepdims: Any = False, **how: Any) -> Any:  # fmt: skip
        def reduce(axis: Any, keeps: bool) -> Any:
            return self._like(plain(_plain(self), axis, *args, keepdims=keeps, **how))

        return self.mend.reduce(reduce, self, axis, keepdims is True)

    return reduction


for _name in REDUCTIONS.split():
    if hasattr(np.ndarray, _name):
        setattr(Watched, _name, _reduction(_name))


@cache
def _watched_tensor() -> Any:
    """The same for torch, which need not be there."""
    torch = sys.modules["torch"]

    class WatchedTensor(torch.Tensor):  # type: ignore[name-defined, misc]  # torch is found at run time
        mend: Mend

        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # fmt: skip
            name, how = func.__name__.strip("_"), dict(kwargs or {})
            inherited = super().__torch_function__
            if name == "get":  # an attribute, such as shape
                return inherited(func, types, args, how)
            two = len(args) > 1 and isinstance(args[1], torch.Tensor)
            if name in (*REDUCTIONS.split(), "softmax", "log_softmax") and not two:
                rest = list(args[1:])
                axis = how.pop("dim", how.pop("axis", None))
                if axis is None and rest and name != "norm":
                    axis = rest.pop(0)
                keeps = how.pop("keepdim", how.pop("keepdims", False))
                loses = "softmax" not in name

                def reduce(axis: Any, keeps: bool) -> Any:
                    more = {} if axis is None else {"dim": axis}
                    more |= {"keepdim": True} if keeps and loses else {}
                    return inherited(func, types, (args[0], *rest), {**how, **more})

                return cls.mend.reduce(reduce, args[0], axis, keeps, loses)
            if name in ENTRYWISE_NAMES:
                args = cls.mend.meet(args)
            return _inherit(inherited(func, types, tuple(args), how), args)

    return WatchedTensor


def mended(fn: Function, mend: Mend) -> Function:
    """``fn``, of arrays or tensors that watch, and give what it returns without them."""
    array = type("Watched", (Watched,), dict(mend=mend))

    @cache
    def tensor() -> Any:
        return type("Watched", (_watched_tensor(),), dict(mend=mend))

    def watch(x: Any) -> Any:
        if isinstance(x, dict):
            return {key: watch(y) for key, y in x.items()}
        if isinstance(x, np.ndarray):
            return x.view(array)
        if callable(x):
            return lambda *args: watch(x(*map(_plain, args)))
        return x.as_subclass(tensor()) if is_tensor(x) else x

    return lambda *args: _plain(fn(*map(watch, args)))


def _plain(x: Any) -> Any:
    if isinstance(x, Watched):
        return x.view(np.ndarray)
    if type(x) in (tuple, list):
        return type(x)(map(_plain, x))
    if is_tensor(x) and not isinstance(x, tuple):
        return x.as_subclass(sys.modules["torch"].Tensor)
    return x
