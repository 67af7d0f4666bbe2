"""What this half accepts as an array."""

from functools import partial
from typing import Any

import torch

from attn_tutor import _shapes


def _prepare(where: str, arrays: dict[str, Any]) -> dict[str, Any]:
    for name, x in arrays.items():
        if x.is_complex():
            raise TypeError(f"{where}: {name} has dtype {x.dtype}; it needs real numbers")
    arrays = {name: x if x.is_floating_point() else x.to(torch.get_default_dtype()) for name, x in arrays.items()}
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


shapes = _shapes.checker(torch.Tensor, _prepare)
require_array = partial(_shapes.require_array, torch.Tensor)
require_mask = partial(_shapes.require_mask, torch.Tensor)
