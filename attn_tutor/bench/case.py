"""One comparison: which half, how many tokens, on what, with gradients or without; and who takes part."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple

import torch

import attn_tutor.numpy
import attn_tutor.torch

HEADS, WIDTH, HIDDEN = 8, 64, 64
MODEL = HEADS * WIDTH


@dataclass(frozen=True)
class Case:
    row: str
    half: str  # numpy or torch
    n: int
    device: str = "cpu"
    dtype: str = "float32"
    backward: bool = False
    compiled: bool = False  # also what takes a minute to compile

    @property
    def lib(self) -> ModuleType:
        return attn_tutor.numpy if self.half == "numpy" else attn_tutor.torch

    def draw(self, *shape: int, scale: float = 1.0) -> Any:
        """Normal numbers, an array of this half; torch.as_tensor makes peers a tensor of it."""
        X = scale * torch.randn(shape, device=self.device)
        return self.give(X.to(getattr(torch, self.dtype)).requires_grad_(self.backward))

    def give(self, X: torch.Tensor) -> Any:
        """A tensor as an array of this half."""
        return X if self.half == "torch" else X.detach().numpy()


class Contestant(NamedTuple):
    role: str  # ours, textbook, peer or limit
    name: str
    call: Callable[[], object]
    stores: int = 0  # numbers between input and output, where they may be too many


Contestants = Iterator[Contestant]
