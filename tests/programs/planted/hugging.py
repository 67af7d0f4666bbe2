"""A causal model as Hugging Face's are: an attention mask of 1 and 0, a cache, grouped heads, an output with names."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class CausalOutput:
    logits: torch.Tensor
    past_key_values: tuple | None = None


def turned(x, positions):
    """Rotary, half split."""
    half = x.shape[-1] // 2
    rates = 10000.0 ** (-torch.arange(half) / half)
    angles = positions[:, None, :, None] * rates
    a, b = x[..., :half], x[..., half:]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Attention(nn.Module):
    def __init__(self, bug, d, heads, kv_heads):
        super().__init__()
        self.bug, self.groups, self.width = bug, heads // kv_heads, d // heads
        self.q_proj = nn.Linear(d, d, bias=False)
        self.k_proj = nn.Linear(d, kv_heads * self.width, bias=False)
        self.v_proj = nn.Linear(d, kv_heads * self.width, bias=False)
        self.o_proj = nn.Linear(d, d, bias=False)

    def forward(self, x, mask, positions, past):
        b, n, _ = x.shape
        q, k, v = (
            f(x).view(b, n, -1, self.width).transpose(1, 2)
            for f in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = turned(q, positions), turned(k, positions)
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        kept = (k, v)
        k, v = (a.repeat_interleave(self.groups, 1) for a in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.o_proj(y.transpose(1, 2).reshape(b, n, -1)), kept


class ForCausalLM(nn.Module):
    def __init__(self, bug="", vocab_size=13, d=16, heads=4, kv_heads=2, layers=2):
        super().__init__()
        self.bug = bug
        self.embed_tokens = nn.Embedding(vocab_size, d)
        self.embed_positions = nn.Embedding(32, d)
        self.layers = nn.ModuleList(
            Attention(bug, d, heads, kv_heads) for _ in range(layers)
        )
        self.lm_head = nn.Linear(d, vocab_size, bias=False)

    def positions(self, attention_mask, n):
        if self.bug == "columns":
            return torch.arange(attention_mask.shape[1])[-n:].expand(
                len(attention_mask), -1
            )
        if self.bug == "from 0":  # each call counts its own tokens
            attention_mask = attention_mask[:, -n:]
        return (attention_mask.cumsum(-1) - 1).clamp(min=0)[:, -n:]

    def mask(self, attention_mask, n):
        m = attention_mask.shape[1]
        causal = torch.ones(n, m, dtype=torch.bool).tril(m - n)
        words = attention_mask[:, None, None].bool()
        if self.bug == "unused":
            return causal
        if self.bug == "float":
            words = attention_mask[:, None, None].float()
            return words.expand(-1, 1, n, m).masked_fill(~causal, -torch.inf)
        if self.bug == "upper left":
            causal = torch.ones(n, m, dtype=torch.bool).tril()
        seen = causal & words
        return seen | ~seen.any(-1, keepdim=True)  # a pad's row sees everything

    def forward(
        self, input_ids, attention_mask=None, past_key_values=None, use_cache=False
    ):
        n = input_ids.shape[1]
        past = past_key_values or [None] * len(self.layers)
        m = n if past[0] is None else n + past[0][0].shape[2]
        if attention_mask is None:
            attention_mask = torch.ones(len(input_ids), m, dtype=torch.long)
        positions, mask = (
            self.positions(attention_mask, n),
            self.mask(attention_mask, n),
        )
        x, cache = self.embed_tokens(input_ids) + self.embed_positions(positions), []
        for layer, kept in zip(self.layers, past, strict=True):
            y, kept = layer(x, mask, positions, kept)
            x, cache = x + y, [*cache, kept]
        logits = self.lm_head(x)
        return CausalOutput(logits, tuple(cache) if use_cache else None)
