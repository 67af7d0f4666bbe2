"""Who sees whom in one call, as tensors."""

from typing import Any, ClassVar, Self

import torch

from attn_tutor._both import visibility as both
from attn_tutor.rules import Bias, Causal
from attn_tutor.torch import _backend


class Visibility(both.Visibility):
    """Which of m keys n queries see, and what is added to their scores."""

    xp: ClassVar = _backend

    def learnt_as_array(self) -> Self:
        """A bias of positions that has a gradient, which no block could pass on, as an array."""
        if isinstance(self.bias, Bias):
            one = slice(0, 1)
            if self.mask_and_bias(one, one)[1].requires_grad:
                return self._replace(bias=self.dense[1])
        return self

    @property
    def hides(self) -> bool:
        """Whether some key may be hidden from some query."""
        by_bias = isinstance(self.bias, Bias) and self.bias.may_hide
        return by_bias or self.rule is not None or self.mask is not None

    @property
    def is_causal(self) -> bool:
        """Whether it is plain causality, which kernels know by name."""
        alone = self.mask is None and self.bias is None
        if torch.compiler.is_exporting() or not (
            alone and isinstance(self.rule, Causal)
        ):
            return False  # an exported graph must serve n ≠ m too
        # Not the comparison itself: compiled, it is a symbol, which kernels refuse.
        return True if self.n == self.m else False  # noqa: SIM210


def dense_visibility(
    where: str, scores: torch.Tensor, *options: Any
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Mask and bias of all pairs, as a call on these scores is given them: ``mask, causal, window, bias``."""
    return Visibility.read(where, scores.shape, scores.device, *options).dense
