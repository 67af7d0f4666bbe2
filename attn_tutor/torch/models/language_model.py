"""A causal language model of transformer blocks, and how it writes."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import nn

from attn_tutor._checks import explain_foreign_names, require_size
from attn_tutor.rules import Rule, Window
from attn_tutor.torch.cache import KVCache
from attn_tutor.torch.layers.block import Block
from attn_tutor.torch.layers.linear import Device, Dtype
from attn_tutor.torch.layers.positional import PositionalEncoding
from attn_tutor.torch.models.ids import require_ids
from attn_tutor.torch.models.modes import in_evaluation
from attn_tutor.torch.models.places import read_places
from attn_tutor.torch.models.writing import beginning, caches_for, one_for_each, pick

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
        base: of "rotary", as ``rates`` and ``factor``; see :class:`Block`.
        rates: in place of the base's; :func:`rotary_rates` has those of a checkpoint.
        factor: on what rotary turns.
        dropout: as in :class:`Block`.
        n_kv_heads: number of heads of keys and values of each block; None is ``n_heads``.
        window: most tokens that each one sees in a block, as in :class:`Block`. None sets no limit. The sinks of a
            :class:`Window` are the first tokens of a row, which padding on the left would be: that is refused.
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
        base: float = 10000.0,
        rates: torch.Tensor | None = None,
        factor: float = 1.0,
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
        self.window, self.positions = window, positions
        added = PositionalEncoding(d_model) if positions == "sinusoidal" else None
        self.encoding = added
        self.blocks = nn.ModuleList(
            Block(
                d_model, n_heads, causal=True, window=window, n_kv_heads=n_kv_heads, dropout=dropout, base=base,
                positions=None if positions == "sinusoidal" else positions, rates=rates, factor=factor, **made,
            )
            for _ in range(n_layers)
        )  # fmt: skip
        self.norm = nn.LayerNorm(d_model, **made)
        self.head = nn.Linear(d_model, n_tokens, **made)

    @explain_foreign_names
    def forward(
        self,
        ids: torch.Tensor,
        mask: torch.Tensor | Rule | None = None,
        *,
        caches: Sequence[KVCache] | None = None,
        positions: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Whole numbers (…, n) -> logits (…, n, n_tokens).

        With ``caches``, one for each block, ``ids`` are the tokens that come after those in them.

        ``mask`` is over all m tokens, those in the caches too: boolean, (…, m), True where a token is real and no
        padding, or (…, n, m), True where a query may attend; or a rule, as ``documents(ids)`` for texts in one row.
        ``positions``, (…, n), are those of ``ids``. None counts the real tokens, and in each document anew.
        """
        kept = one_for_each("LanguageModel", caches, len(self.blocks))
        X, mask, turned = self._embed(ids, mask, kept[0], positions)
        for block, cache in zip(self.blocks, kept, strict=True):
            X = block(X, mask, cache, positions=turned)
        return self.head(self.norm(X))

    def weights(
        self,
        ids: torch.Tensor,
        mask: torch.Tensor | Rule | None = None,
        *,
        positions: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """The attention weights of every head, (…, n) -> (n_layers, …, h, n, n)."""
        X, mask, turned = self._embed(ids, mask, None, positions)
        weights = []
        for block in self.blocks:
            assert isinstance(block, Block)  # which its type does not say
            weights.append(block.weights(X, mask, positions=turned))
            X = block(X, mask, positions=turned)
        return torch.stack(weights)

    @torch.no_grad()
    @explain_foreign_names
    @in_evaluation
    def generate(
        self,
        ids: torch.Tensor,
        n_new: int,
        *,
        mask: torch.Tensor | None = None,
        temperature: float = 0.0,
        generator: torch.Generator | None = None,
        cached: bool = True,
        end: int | None = None,
    ) -> torch.Tensor:
        r"""Write on, without dropout: the likeliest token each time, or one drawn from softmax(logits / temperature).

        Args:
            ids: the beginning, whole numbers (…, n) with n of 1 or more.
            n_new: number of tokens to add.
            mask: boolean, (…, n), True where a token is real; shorter beginnings are padded on the left. None: all are.
            temperature: 0 takes the likeliest; 1 draws by the model's own probabilities.
            generator: the source of chance, on the device of the model; None is torch's own.
            cached: keep keys and values, so that each step computes one token; False computes all of them anew.
            end: the token that ends a sentence; after it comes only itself, and when all have ended, no more.

        Returns:
            Beginning and new tokens, (…, n + n_new), or fewer where all have ended; the same with and without the
            cache, but for rounding.

        Raises:
            TypeError: ``n_new`` or the tokens are not whole numbers.
            ValueError: the beginning is empty or ends with padding, or ``n_new`` or the temperature is negative.
        """
        require_size("generate", "n_new", n_new)
        ids, mask = beginning("generate", ids, mask, self.embedding.num_embeddings)
        caches = caches_for(self.window, len(self.blocks)) if cached else None
        if end is not None:
            require_size("generate", "end", end)
        new, over = ids, torch.zeros_like(ids[..., :1], dtype=torch.bool)
        for _ in range(n_new):
            logits = self(new, mask, caches=caches)[..., -1, :]
            token = pick(logits, temperature, generator)
            if end is not None:
                token = token.masked_fill(over, end)
                over = token == end
            ids = torch.cat([ids, token], -1)
            new = token if cached else ids
            if mask is not None:
                mask = torch.cat([mask, torch.ones_like(mask[..., :1])], -1)
            if over.all():
                break
        return ids

    def _embed(
        self, ids: torch.Tensor, mask: Any, cache: KVCache | None, positions: Any
    ) -> tuple[torch.Tensor, Any, torch.Tensor | None]:
        """The first vectors, the mask as blocks take it, and the positions by which they turn queries and keys."""
        where, n_tokens = "LanguageModel", self.embedding.num_embeddings
        X = self.embedding(require_ids(where, "ids", ids, n_tokens))
        mask, positions = read_places(
            where, ids, mask, cache, positions, self.positions, self.window
        )
        if self.encoding is not None:
            start = 0 if cache is None else cache.n_seen
            return self.encoding(X, start, positions=positions), mask, None
        return X, mask, positions if self.positions == "rotary" else None
