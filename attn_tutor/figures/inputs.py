"""What goes into a picture: arrays of either half, checked."""

from collections.abc import Sequence
from typing import Any

import numpy as np

Labels = Sequence[Any] | None


def array_of(values: Any) -> np.ndarray:
    """Turn values into an array; a torch tensor is known by its methods, so that torch need not be there."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        values = (
            values.double() if values.is_floating_point() else values
        ).numpy()  # NumPy has no bfloat16
    return np.asarray(values)


def check_shape(function: str, name: str, array: np.ndarray, needed: str) -> None:
    if array.ndim != needed.count(",") + 1 or 0 in array.shape:
        raise ValueError(
            f"{function}: {name} has shape {array.shape}; needs {needed}, none of them 0"
        )


def texts(function: str, name: str, labels: Labels, length: int) -> list[str]:
    """The labels of one side as strings; none at all where it is numbered."""
    if labels is not None and len(labels) != length:
        raise ValueError(f"{function}: {name} has {len(labels)} labels; needs {length}")
    return [] if labels is None else [str(label) for label in labels]


def numbers(function: str, name: str, values: Any, needed: str) -> np.ndarray:
    array = array_of(values)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{function}: {name} must be real numbers; got {array.dtype}")
    check_shape(function, name, array, needed)
    array = array.astype(float)
    _refuse(function, name, array, ~np.isfinite(array), "needs finite numbers")
    return array


def weights_of(function: str, values: Any, needed: str, vmax: float) -> np.ndarray:
    if not vmax > 0:
        raise ValueError(f"{function}: vmax is {vmax}; needs a weight above 0")
    array = numbers(function, "weights", values, needed)
    hint = "weights are never negative; masked_softmax makes them"
    _refuse(function, "weights", array, array < 0, hint)
    return array


def _refuse(
    function: str, name: str, array: np.ndarray, bad: np.ndarray, needed: str
) -> None:
    if bad.any():
        first = tuple(np.argwhere(bad)[0])
        axes = ("layer", "head", "row", "column")[-array.ndim :]
        place = ", ".join(f"{axis} {i}" for axis, i in zip(axes, first, strict=True))
        raise ValueError(
            f"{function}: {name} has {array[first]:.3g} in {place}; {needed}"
        )
