"""Who sees whom in one call, as arrays."""

from typing import Any, ClassVar

import numpy as np

from attn_tutor._both import visibility as both
from attn_tutor.numpy import _backend


class Visibility(both.Visibility):
    """Which of m keys n queries see, and what is added to their scores."""

    xp: ClassVar = _backend


def dense_visibility(
    where: str, scores: np.ndarray, *options: Any
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Mask and bias of all pairs, as a call on these scores is given them: ``mask, causal, window, bias``."""
    return Visibility.read(where, scores.shape, "cpu", *options).dense
