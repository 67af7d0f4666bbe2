"""One comparison: which half, how many tokens, on what, and whether gradients are wanted."""

from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import torch

import attn_tutor.numpy
import attn_tutor.torch


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

    def draw(self, *shape: int) -> Any:
        """Standard normal numbers of this half."""
        if self.half == "torch":
            return self.tensor(*shape)
        return np.random.default_rng(0).standard_normal(shape, "f").astype(self.dtype)

    def tensor(self, *shape: int) -> torch.Tensor:
        """The same for a peer that takes tensors."""
        made = torch.randn(shape, device=self.device).to(getattr(torch, self.dtype))
        return made.requires_grad_(self.backward)
