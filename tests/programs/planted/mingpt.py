"""The layout of minGPT: one matrix for queries, keys and values, a buffer for the mask, blocks in a list."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class CausalSelfAttention(nn.Module):
    def __init__(self, bug, d, heads, block_size):
        super().__init__()
        self.bug, self.heads = bug, heads
        self.c_attn, self.c_proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        mask = torch.ones(block_size, block_size).tril(1 if bug == "off by one" else 0)
        self.register_buffer("bias", mask.view(1, 1, block_size, block_size))

    def split(self, x):
        B, T, C = x.shape
        if self.bug == "view":
            return x.reshape(B, self.heads, T, C // self.heads)
        return x.view(B, T, self.heads, C // self.heads).transpose(1, 2)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (self.split(a) for a in self.c_attn(x).split(C, dim=2))
        if self.bug == "flash" and self.training:
            y = F.scaled_dot_product_attention(q, k, v)
        else:
            att = (q @ k.transpose(-2, -1)) / math.sqrt(k.size(-1))
            att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
            att = F.softmax(att, dim=-1)
            if self.bug == "dropout":
                att = F.dropout(att, 0.3)
            y = att @ v
        if self.bug != "merge":
            y = y.transpose(1, 2).contiguous()
        return self.c_proj(y.reshape(B, T, C))


class Block(nn.Module):
    def __init__(self, bug, d, heads, block_size):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.attn = CausalSelfAttention(bug, d, heads, block_size)
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, bug="", vocab_size=13, d=16, heads=2, layers=2, block_size=32):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab_size, d), nn.Embedding(block_size, d)
        self.drop = nn.Dropout(0.1)
        self.h = nn.ModuleList(Block(bug, d, heads, block_size) for _ in range(layers))
        self.ln_f, self.lm_head = nn.LayerNorm(d), nn.Linear(d, vocab_size, bias=False)

    def forward(self, idx, targets=None):
        x = self.drop(self.wte(idx) + self.wpe(torch.arange(idx.shape[1])))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        loss = None
        if targets is not None:
            loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        return logits, loss
