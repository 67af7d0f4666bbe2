"""A causal language model of transformer blocks, and how it writes."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import nn

from attn_tutor._checks import require_size
from attn_tutor.torch._arrays import look, require_array
from attn_tutor.torch.cache import KVCache
from attn_tutor.torch.modules import PositionalEncoding
from attn_tutor.torch.transformer import Block

__all__ = ["LanguageModel"]


class LanguageModel(nn.Module):
    r"""Tokens to scores for the token that follows each: embeddings, causal blocks, a last norm, a projection.

    .. math:: \text{logits}_i = \operatorname{norm}(X_i)\, W + b, \qquad
        P(\text{token}_{i+1} \mid \text{tokens } 0 \dots i) = \operatorname{softmax}(\text{logits}_i)

    Source: Radford et al. (2019), section 2, at a small scale.

    Args:
        n_tokens: number of different tokens.
        d_model: width of the tokens' vectors.
        n_heads: number of heads of each block.
        n_layers: number of blocks.
        positions: "sinusoidal" adds to the embeddings, "rotary" turns queries and keys, "alibi" penalises distance;
            None leaves order to the causal mask.
        dropout: as in :class:`Block`.

    Example:
        >>> model = LanguageModel(11, d_model=8, n_heads=2, n_layers=2, positions="rotary")
        >>> model(torch.tensor([[3, 1, 4, 1, 5]])).shape
        torch.Size([1, 5, 11])
    """

    def __init__(
        self,
        n_tokens: int,
        d_model: int,
        n_heads: int,
        n_layers: int,
        *,
        positions: Literal["sinusoidal", "rotary", "alibi"] | None = "rotary",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        require_size("LanguageModel", "n_tokens", n_tokens, least=1)
        require_size("LanguageModel", "n_layers", n_layers, least=1)
        self.embedding = nn.Embedding(n_tokens, d_model)
        added = positions == "sinusoidal"
        self.encoding = PositionalEncoding(d_model) if added else None
        self.blocks = nn.ModuleList(
            Block(
                d_model,
                n_heads,
                causal=True,
                positions=None if positions == "sinusoidal" else positions,
                dropout=dropout,
            )
            for _ in range(n_layers)
        )
        self.norm = nn.LayerNorm(d_model)
        self.head = nn.Linear(d_model, n_tokens)

    def forward(
        self, ids: torch.Tensor, caches: Sequence[KVCache] | None = None
    ) -> torch.Tensor:
        """Whole numbers (…, n) -> logits (…, n, n_tokens).

        With ``caches``, one for each block, ``ids`` are the tokens that come after those in them.
        """
        each: Sequence[KVCache | None] = caches or [None] * len(self.blocks)
        if len(each) != len(self.blocks):
            raise ValueError(
                f"LanguageModel: {len(self.blocks)} blocks need as many caches, got {len(each)}"
            )
        X = self._embed(ids, len(caches[0]) if caches else 0)
        for block, cache in zip(self.blocks, each, strict=True):
            X = block(X, cache=cache)
        return self.head(self.norm(X))

    def weights(self, ids: torch.Tensor) -> torch.Tensor:
        """The attention weights of every head, (…, n) -> (n_layers, …, h, n, n)."""
        X, weights = self._embed(ids, 0), []
        for block in self.blocks:
            assert isinstance(block, Block)  # which its type does not say
            weights.append(block.weights(X))
            X = block(X)
        return torch.stack(weights)

    @torch.no_grad()
    def generate(
        self,
        ids: torch.Tensor,
        n_new: int,
        *,
        temperature: float = 0.0,
        generator: torch.Generator | None = None,
        cached: bool = True,
    ) -> torch.Tensor:
        r"""Write on: the likeliest token each time, or one drawn from softmax(logits / temperature).

        Args:
            ids: the beginning, whole numbers (…, n) with n of 1 or more.
            n_new: number of tokens to add.
            temperature: 0 takes the likeliest; 1 draws by the model's own probabilities.
            generator: the source of chance, on the device of the model; None is torch's own.
            cached: keep keys and values, so that each step computes one token; False computes all of them anew.

        Returns:
            Beginning and new tokens, (…, n + n_new); the same with and without the cache, but for rounding.

        Raises:
            TypeError: ``n_new`` or the tokens are not whole numbers.
            ValueError: the beginning is empty, or ``n_new`` or the temperature is negative.
        """
        require_size("generate", "n_new", n_new)
        require_array("generate", "ids", ids)
        if ids.ndim == 0 or not ids.shape[-1]:
            raise ValueError("generate: ids holds no token; begin with at least one")
        if not temperature >= 0:
            raise ValueError(
                f"generate: temperature must be 0 or more, got {temperature}"
            )
        caches = [KVCache() for _ in self.blocks] if cached else None
        new = ids
        for _ in range(n_new):
            logits = self(new, caches)[..., -1, :]
            token = _pick(logits, temperature, generator)
            ids = torch.cat([ids, token], -1)
            new = token if cached else ids
        return ids

    def _embed(self, ids: torch.Tensor, start: int) -> torch.Tensor:
        require_array("LanguageModel", "ids", ids)
        if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
            raise TypeError(
                f"LanguageModel: ids must be whole numbers, got {ids.dtype}"
            )
        n_tokens = self.embedding.num_embeddings
        inside = (ids >= 0) & (ids < n_tokens)
        if look(torch.all, inside) is False:
            raise ValueError(
                f"LanguageModel: ids must lie in 0 … {n_tokens - 1}, got {int(ids[~inside][0])}"
            )
        X = self.embedding(ids)
        return X if self.encoding is None else self.encoding(X, start)


def _pick(
    logits: torch.Tensor, temperature: float, generator: torch.Generator | None
) -> torch.Tensor:
    """One token for each row of logits, (…, n_tokens) -> (…, 1)."""
    if temperature == 0:
        return logits.argmax(-1, keepdim=True)
    p = (logits.float() / temperature).softmax(-1)
    token = torch.multinomial(p.reshape(-1, p.shape[-1]), 1, generator=generator)
    return token.reshape(*logits.shape[:-1], 1)
