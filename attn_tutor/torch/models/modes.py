"""Training mode and evaluation mode."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from torch import nn


def in_evaluation(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of a module during which nothing is dropped; afterwards each part is in the mode that it was in."""

    @wraps(method)
    def run(model: nn.Module, *args: Any, **options: Any) -> Any:
        modes = {part: part.training for part in model.modules()}
        model.eval()
        try:
            return method(model, *args, **options)
        finally:
            for part, training in modes.items():
                part.training = training

    return run
