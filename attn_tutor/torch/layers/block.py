"""The block of a transformer: attention between the tokens, then a small network in each of them."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, Self

import torch
from torch import nn
from torch.nn.functional import gelu

from attn_tutor._checks import explain_foreign_names, require_size
from attn_tutor.rules import Rule, Window
from attn_tutor.torch.cache import KVCache
from attn_tutor.torch.layers.checks import require_kind, require_rotary, require_tokens
from attn_tutor.torch.layers.linear import Device, Dtype
from attn_tutor.torch.layers.multi_head import MultiHeadAttention
from attn_tutor.torch.positional import rotary
from attn_tutor.torch.rules import alibi

__all__ = ["Block"]

Activation = Callable[[torch.Tensor], torch.Tensor]


class Block(nn.Module):
    r"""One layer of a transformer: attention between the tokens, then a small network in each; both add to their input.

    .. math:: Y = X + \operatorname{attention}(\operatorname{norm}(X)), \qquad
        Z = Y + \phi(\operatorname{norm}(Y)\, W_1 + b_1)\, W_2 + b_2

    What is added is computed from normalised tokens, the tokens themselves are never normalised ("pre-norm").
    Source: Vaswani et al. (2017), section 3.1, with the norm moved as in Xiong et al. (2020).

    Args:
        d_model: width of the tokens.
        n_heads: number of heads; divides ``d_model``.
        d_hidden: width of the hidden layer; None is 4·d_model.
        causal: forbid each token the tokens after it.
        window: most tokens that each one sees, itself and those just before it; needs ``causal``. :class:`Window` adds
            sinks. None sets no limit.
        positions: "rotary" turns queries and keys; "alibi" penalises distance, with ``causal`` only; None tells
            attention no positions.
        base: of "rotary", as in :func:`rotary`.
        rates: of "rotary", in place of the base's; :func:`rotary_rates` has those of a checkpoint.
        factor: of "rotary", on what it turns.
        dropout: chance to drop each weight, each hidden unit and each entry of what is added, while training.
        activation: φ.
        n_kv_heads: number of heads of keys and values; None is ``n_heads``.
        device: of the parameters; None is torch's default.
        dtype: of the parameters; None is torch's default.

    Raises:
        ValueError: the sizes or the positions do not fit.

    Example:
        >>> block = Block(8, n_heads=2, causal=True, positions="rotary")
        >>> block(torch.ones(3, 5, 8)).shape
        torch.Size([3, 5, 8])
    """

    @explain_foreign_names
    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        d_hidden: int | None = None,
        causal: bool = False,
        window: int | Window | None = None,
        positions: Literal["rotary", "alibi"] | None = None,
        base: float = 10000.0,
        rates: torch.Tensor | None = None,
        factor: float = 1.0,
        dropout: float = 0.0,
        activation: Activation = gelu,
        n_kv_heads: int | None = None,
        device: Device = None,
        dtype: Dtype = None,
    ) -> None:
        super().__init__()
        d_hidden = 4 * d_model if d_hidden is None else d_hidden
        require_size("Block", "d_hidden", d_hidden, least=1)
        require_kind("Block", positions, causal, rates)
        made: Any = {"device": device, "dtype": dtype}
        self.attention = MultiHeadAttention(
            d_model, n_heads, dropout=dropout, causal=causal, window=window, n_kv_heads=n_kv_heads, **made,
        )  # fmt: skip
        if positions == "rotary":
            require_rotary("Block", d_model, n_heads, base, rates, factor)
        self.positions, self.activation = positions, activation
        # No buffer, which half() would round: far positions need exact rates.
        self.turn = partial(rotary, base=base, rates=rates, factor=factor)
        self.norm_1 = nn.LayerNorm(d_model, **made)
        self.norm_2 = nn.LayerNorm(d_model, **made)
        self.widen = nn.Linear(d_model, d_hidden, **made)
        self.narrow = nn.Linear(d_hidden, d_model, **made)
        self.drop = nn.Dropout(dropout)

    @explain_foreign_names
    def forward(
        self,
        X: torch.Tensor,
        mask: torch.Tensor | Rule | None = None,
        cache: KVCache | None = None,
        *,
        positions: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """(…, n, d_model) -> (…, n, d_model); with a cache, X holds the tokens that come after those that it has seen.

        ``mask`` is that of :func:`multi_head_attention`. A cache with a window lends it to the block. ``positions``,
        (…, n), are where rotary takes the tokens to be; None counts from the first that the cache has seen.
        """
        (X,) = self._checked(X)
        Y = X + self.drop(self.attend(self.norm_1(X), mask, cache, positions=positions))
        return Y + self.drop(self.feed_forward(self.norm_2(Y)))

    def attend(
        self,
        X: torch.Tensor,
        mask: torch.Tensor | Rule | None = None,
        cache: KVCache | None = None,
        *,
        positions: torch.Tensor | None = None,
        need_weights: bool = False,
    ) -> Any:
        """What the tokens draw from one another, (…, n, d_model), and with ``need_weights`` the weights too."""
        bias = alibi(self.attention.n_heads) if self.positions == "alibi" else None
        rotate = None
        if self.positions == "rotary":
            if positions is None:
                start = 0 if cache is None else cache.n_seen
                positions = torch.arange(start, start + X.shape[-2], device=X.device)
            rotate = partial(self.turn, positions=positions[..., None, :])
        elif positions is not None:
            raise ValueError(
                f"Block: positions are for 'rotary'; with {self.positions!r} a block takes none"
            )
        return self.attention(
            X, mask=mask, bias=bias, cache=cache, rotate=rotate, need_weights=need_weights
        )  # fmt: skip

    def feed_forward(self, X: torch.Tensor) -> torch.Tensor:
        """A small network with one hidden layer, in each token by itself."""
        return self.narrow(self.drop(self.activation(self.widen(X))))

    def weights(
        self,
        X: torch.Tensor,
        mask: torch.Tensor | Rule | None = None,
        *,
        positions: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """The attention weights of each head, (…, n, d_model) -> (…, h, n, n)."""
        (X,) = self._checked(X)
        X = self.norm_1(X)
        return self.attend(X, mask, positions=positions, need_weights=True)[1]

    def _checked(self, X: torch.Tensor) -> list[torch.Tensor]:
        width, like = {"X": self.attention.d_model}, self.narrow.weight
        return require_tokens("Block", width, X, like=like)

    def extra_repr(self) -> str:
        return f"positions={self.positions}"

    @classmethod
    def from_torch(
        cls, layer: nn.TransformerEncoderLayer, *, causal: bool = False
    ) -> Self:
        """A block with a copy of the weights of ``torch.nn.TransformerEncoderLayer``, on its device and in its dtype.

        Here the batch axis always comes first, and masks are True where a query may attend.

        Raises:
            TypeError: the layer is something else.
            ValueError: it was made with ``norm_first=False``.
        """
        if not isinstance(layer, nn.TransformerEncoderLayer):
            raise TypeError(
                f"from_torch: needs a torch.nn.TransformerEncoderLayer, got {type(layer).__name__}"
            )
        if not layer.norm_first:
            raise ValueError(
                "from_torch: the layer normalises after adding (norm_first=False, torch's default), a Block before; "
                "with its weights a Block computes something else, so that it cannot be taken over"
            )
        mine = cls(
            layer.linear2.out_features,
            layer.self_attn.num_heads,
            d_hidden=layer.linear1.out_features,
            dropout=layer.dropout.p,
            activation=layer.activation,
        )
        mine.attention = MultiHeadAttention.from_torch(layer.self_attn, causal=causal)
        mine.norm_1, mine.norm_2 = map(copy.deepcopy, (layer.norm1, layer.norm2))
        mine.widen, mine.narrow = map(copy.deepcopy, (layer.linear1, layer.linear2))
        return mine.train(layer.training)
