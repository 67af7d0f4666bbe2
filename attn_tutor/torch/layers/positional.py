"""Where a token stands, added to it."""

import torch
from torch import nn

from attn_tutor._checks import require_chance, require_positions, require_size
from attn_tutor.torch._arrays import require_array
from attn_tutor.torch.layers.checks import require_tokens
from attn_tutor.torch.positional import _exact, _rates

__all__ = ["PositionalEncoding"]


class PositionalEncoding(nn.Module):
    """Add :func:`sinusoidal_encoding` to tokens.

    Args:
        d: width of the tokens.
        dropout: chance to drop each entry of the sum while training.

    Example:
        >>> PositionalEncoding(2)(torch.zeros(1, 2)).tolist()
        [[0.0, 1.0]]
    """

    def __init__(self, d: int, dropout: float = 0.0) -> None:
        super().__init__()
        require_size("PositionalEncoding", "d", d)
        require_chance("PositionalEncoding", "dropout", dropout)
        self.d, self.dropout = d, nn.Dropout(dropout)

    def forward(
        self,
        X: torch.Tensor,
        start: int = 0,
        *,
        positions: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """(…, n, d) -> (…, n, d); row 0 is at position ``start``, as in decoding, or the rows are at ``positions``."""
        (X,) = require_tokens("PositionalEncoding", {"X": self.d}, X)
        require_size("PositionalEncoding", "start", start)
        # No table is kept: one that grows with the longest sequence so far would be
        # compiled anew for each length.
        exact = _exact(X.device)
        rates = _rates("PositionalEncoding", self.d, 10000.0, exact)
        if positions is None:
            positions = torch.arange(start, start + X.shape[-2], device=exact)
        else:
            require_array("PositionalEncoding", "positions", positions)
            require_positions("PositionalEncoding", positions.shape, X.shape[:-1])
        angles = positions.to(exact)[..., None] * rates  # (…, n, ⌈d/2⌉)
        pairs = torch.stack([torch.sin(angles), torch.cos(angles)], -1)
        P = pairs.flatten(-2)[..., : self.d]  # (…, n, d)
        return self.dropout(X + P.to(X))

    def extra_repr(self) -> str:
        return f"d={self.d}"
