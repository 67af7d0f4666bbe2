"""The block of a transformer: attention between the tokens, then a small network in each of them."""

import copy
from collections.abc import Callable
from typing import Literal, Self

import torch
from torch import nn
from torch.nn.functional import gelu, linear

from attn_tutor._checks import require_divisible, require_size
from attn_tutor.torch.attention import attention, attention_weights
from attn_tutor.torch.cache import KVCache
from attn_tutor.torch.modules import MultiHeadAttention
from attn_tutor.torch.multi_head import merge_heads, split_heads
from attn_tutor.torch.positional import alibi_slopes, rotary

__all__ = ["Block"]

Activation = Callable[[torch.Tensor], torch.Tensor]
Heads = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


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
        positions: "rotary" turns queries and keys; "alibi" penalises distance, with ``causal`` only, and rounds
            positions to the dtype, which in bfloat16 is coarse beyond 256; None tells attention no positions.
        dropout: chance to drop each weight, each hidden unit and each entry of what is added, while training.
        activation: φ.

    Raises:
        ValueError: the sizes or the positions do not fit.

    Example:
        >>> block = Block(8, n_heads=2, causal=True, positions="rotary")
        >>> block(torch.ones(3, 5, 8)).shape
        torch.Size([3, 5, 8])
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        d_hidden: int | None = None,
        causal: bool = False,
        positions: Literal["rotary", "alibi"] | None = None,
        dropout: float = 0.0,
        activation: Activation = gelu,
    ) -> None:
        super().__init__()
        d_hidden = 4 * d_model if d_hidden is None else d_hidden
        require_size("Block", "d_hidden", d_hidden, least=1)
        if positions not in ("rotary", "alibi", None):
            raise ValueError(
                f"Block: positions must be 'rotary', 'alibi' or None, got {positions!r}"
            )
        if positions == "alibi" and not causal:
            raise ValueError(
                "Block: 'alibi' needs causal=True; without it the two sides of a token look alike"
            )
        self.attention = MultiHeadAttention(
            d_model, n_heads, dropout=dropout, causal=causal
        )
        if positions == "rotary":
            require_divisible("Block", "d_model", d_model, "2·n_heads", 2 * n_heads)
        self.positions, self.activation = positions, activation
        self.norm_1, self.norm_2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.widen = nn.Linear(d_model, d_hidden)
        self.narrow = nn.Linear(d_hidden, d_model)
        self.drop = nn.Dropout(dropout)

    def forward(
        self,
        X: torch.Tensor,
        mask: torch.Tensor | None = None,
        cache: KVCache | None = None,
    ) -> torch.Tensor:
        """(…, n, d_model) -> (…, n, d_model); with a cache, X holds the tokens that come after those in it.

        ``mask`` is that of :func:`multi_head_attention`; one for each sequence needs an axis for the heads.
        """
        return self.think(self.attend(X, mask, cache))

    def attend(
        self,
        X: torch.Tensor,
        mask: torch.Tensor | None = None,
        cache: KVCache | None = None,
    ) -> torch.Tensor:
        """The first half: tokens with what they draw from one another."""
        return X + self.drop(self._drawn(self.norm_1(X), mask, cache))

    def think(self, X: torch.Tensor) -> torch.Tensor:
        """The second half: each token by itself."""
        hidden = self.drop(self.activation(self.widen(self.norm_2(X))))
        return X + self.drop(self.narrow(hidden))

    def weights(
        self, X: torch.Tensor, mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        """The attention weights of each head, (…, n, d_model) -> (…, h, n, n)."""
        Q, K, _ = self._heads(self.norm_1(X), 0)
        causal, scale = self.attention.causal, self._scale
        return attention_weights(Q, K, mask, causal=causal, scale=scale)

    def _drawn(
        self, X: torch.Tensor, mask: torch.Tensor | None, cache: KVCache | None
    ) -> torch.Tensor:
        layer = self.attention
        if self.positions is None and cache is None:
            return layer(X, mask=mask)
        Q, K, V = self._heads(X, 0 if cache is None else len(cache))
        if cache is not None:
            K, V = cache.append(K, V)
        dropout_p = layer.dropout if self.training else 0.0
        heads = attention(
            Q, K, V, mask, causal=layer.causal, scale=self._scale, dropout_p=dropout_p
        )
        return linear(merge_heads(heads), layer.W_o.mT, layer.b_o)

    def _heads(self, X: torch.Tensor, start: int) -> Heads:
        """Queries, keys and values of the heads, (…, h, n, d_h); the first token stands at ``start``.

        Positions enter queries and keys alone, so that one attention serves all kinds, and keys can be kept in a cache.
        """
        layer, h = self.attention, self.attention.n_heads
        Q = split_heads(linear(X, layer.W_q.mT, layer.b_q), h)
        K = split_heads(linear(X, layer.W_k.mT, layer.b_k), h)
        V = split_heads(linear(X, layer.W_v.mT, layer.b_v), h)
        if self.positions is None:
            return Q, K, V
        p = torch.arange(start, start + X.shape[-2], device=X.device)
        if self.positions == "rotary":
            return rotary(Q, p), rotary(K, p), V
        # To the left of query i, ALiBi's −λ(i − j) is λj − λi. Softmax drops λi, the
        # same for every key, and λj is one more entry of key j. That of the query
        # undoes the scale.
        precise = torch.promote_types(K.dtype, torch.float32)
        slopes = torch.tensor(alibi_slopes(h), dtype=precise, device=X.device)
        entry = (slopes[:, None] * p)[..., None].to(K)  # (h, n, 1)
        entry = entry.expand(*K.shape[:-1], 1)  # (…, h, n, 1)
        one = torch.full_like(Q[..., :1], 1 / self._scale)
        return torch.cat([Q, one], -1), torch.cat([K, entry], -1), V

    @property
    def _scale(self) -> float:
        """1/√d_h of the head's width, before ALiBi makes it wider."""
        return (self.narrow.out_features / self.attention.n_heads) ** -0.5

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
                "from_torch: the layer normalises after adding, and a Block before; make it with norm_first=True"
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
