"""What this half accepts as an array."""

from functools import partial
from typing import Any

import numpy as np

from attn_tutor import _checks


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
        if not isinstance(x, np.ndarray) or x.dtype != dtype:
            return False
    return arrays[0].dtype.kind == "f"


require_array = partial(_checks.require_array, np.ndarray)
shapes = _checks.checker(require_array, prepare, as_is)


def require_mask(where: str, mask: Any, scores: _checks.Shape, hint: str = "") -> None:
    if mask is not None:
        _checks.require_boolean(np.ndarray, where, mask)
        _checks.require_fit(where, "mask", mask.shape, scores)
