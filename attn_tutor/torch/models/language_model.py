"""A causal language model of transformer blocks, and how it writes."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import nn

from attn_tutor._checks import explain_foreign_names, require_size
from attn_tutor.rules import Window
from attn_tutor.torch.cache import KVCache
from attn_tutor.torch.layers.block import Block
from attn_tutor.torch.layers.linear import Device, Dtype
from attn_tutor.torch.layers.positional import PositionalEncoding
from attn_tutor.torch.models.ids import require_ids
from attn_tutor.torch.models.modes import in_evaluation

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
        n_kv_heads: number of heads of keys and values of each block; None is ``n_heads``.
        window: most tokens that each one sees in a block, as in :class:`Block`. None sets no limit.
        device: of the parameters; None is torch's default.
        dtype: of the parameters; None is torch's default.

    Example:
        >>> model = LanguageModel(11, d_model=8, n_heads=2, n_layers=2, positions="rotary")
        >>> model(torch.tensor([[3, 1, 4, 1, 5]])).shape
        torch.Size([1, 5, 11])
    """

    @explain_foreign_names
    def __init__(
        self,
        n_tokens: int,
        d_model: int,
        n_heads: int,
        n_layers: int,
        *,
        positions: Literal["sinusoidal", "rotary", "alibi"] | None = "rotary",
        dropout: float = 0.0,
        n_kv_heads: int | None = None,
        window: int | Window | None = None,
        device: Device = None,
        dtype: Dtype = None,
    ) -> None:
        super().__init__()
        require_size("LanguageModel", "n_tokens", n_tokens, least=1)
        require_size("LanguageModel", "n_layers", n_layers, least=1)
        if positions not in ("sinusoidal", "rotary", "alibi", None):
            raise ValueError(
                "LanguageModel: positions must be 'sinusoidal', 'rotary', 'alibi' or None, "
                f"got {positions!r}"
            )
        made: Any = {"device": device, "dtype": dtype}
        self.embedding = nn.Embedding(n_tokens, d_model, **made)
        self.window, added = window, positions == "sinusoidal"
        self.encoding = PositionalEncoding(d_model) if added else None
        self.blocks = nn.ModuleList(
            Block(
                d_model,
                n_heads,
                causal=True,
                positions=None if positions == "sinusoidal" else positions,
                dropout=dropout,
                n_kv_heads=n_kv_heads,
                window=window,
                **made,
            )
            for _ in range(n_layers)
        )
        self.norm = nn.LayerNorm(d_model, **made)
        self.head = nn.Linear(d_model, n_tokens, **made)

    def forward(
        self, ids: torch.Tensor, caches: Sequence[KVCache] | None = None
    ) -> torch.Tensor:
        """Whole numbers (…, n) -> logits (…, n, n_tokens).

        With ``caches``, one for each block, ``ids`` are the tokens that come after those in them.
        """
        n_layers = len(self.blocks)
        if caches is not None and len({id(cache) for cache in caches}) != n_layers:
            raise ValueError(
                f"LanguageModel: {n_layers} blocks need as many caches, each its own, got {len({*map(id, caches)})}"
            )
        X = self._embed(ids, caches[0].n_seen if caches else 0)
        each: Any = caches or [None] * n_layers
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
    @explain_foreign_names
    @in_evaluation
    def generate(
        self,
        ids: torch.Tensor,
        n_new: int,
        *,
        temperature: float = 0.0,
        generator: torch.Generator | None = None,
        cached: bool = True,
        end: int | None = None,
    ) -> torch.Tensor:
        r"""Write on: the likeliest token each time, or one drawn from softmax(logits / temperature).

        Nothing is dropped, in training mode neither.

        Args:
            ids: the beginning, whole numbers (…, n) with n of 1 or more.
            n_new: number of tokens to add.
            temperature: 0 takes the likeliest; 1 draws by the model's own probabilities.
            generator: the source of chance, on the device of the model; None is torch's own.
            cached: keep keys and values, so that each step computes one token; False computes all of them anew.
            end: the token that ends a sentence; after it comes only itself, and when all have ended, no more. None
                ends none.

        Returns:
            Beginning and new tokens, (…, n + n_new), or fewer where all have ended; the same with and without the
            cache, but for rounding.

        Raises:
            TypeError: ``n_new`` or the tokens are not whole numbers.
            ValueError: the beginning is empty, or ``n_new`` or the temperature is negative.
        """
        require_size("generate", "n_new", n_new)
        ids = require_ids("generate", "ids", ids, self.embedding.num_embeddings)
        if ids.ndim == 0 or not ids.shape[-1]:
            raise ValueError("generate: ids holds no token; begin with at least one")
        if not temperature >= 0:
            raise ValueError(
                f"generate: temperature must be 0 or more, got {temperature}"
            )
        width = getattr(self.window, "width", self.window)
        kept: Any = {"window": width, "sinks": getattr(self.window, "sinks", 0)}
        caches = [KVCache(**kept) for _ in self.blocks] if cached else None
        if end is not None:
            require_size("generate", "end", end)
        new, over = ids, torch.zeros_like(ids[..., :1], dtype=torch.bool)
        for _ in range(n_new):
            logits = self(new, caches)[..., -1, :]
            token = _pick(logits, temperature, generator)
            if end is not None:
                token = token.masked_fill(over, end)
                over = token == end
            ids = torch.cat([ids, token], -1)
            new = token if cached else ids
            if over.all():
                break
        return ids

    def _embed(self, ids: torch.Tensor, start: int) -> torch.Tensor:
        n_tokens = self.embedding.num_embeddings
        X = self.embedding(require_ids("LanguageModel", "ids", ids, n_tokens))
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
