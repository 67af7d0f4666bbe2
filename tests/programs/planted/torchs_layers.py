"""A language model of ``nn.TransformerEncoder``, and a layer round ``nn.MultiheadAttention``."""

import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self, bug="", vocabulary=13, d=16, causal=True):
        super().__init__()
        self.bug, self.causal = bug, causal
        self.tokens, self.places = nn.Embedding(vocabulary, d), nn.Embedding(32, d)
        layer = nn.TransformerEncoderLayer(d, 2, 32, batch_first=bug != "batch")
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(d, vocabulary)

    def forward(self, ids, src_key_padding_mask=None):
        n, pads = ids.shape[1], src_key_padding_mask
        X = self.tokens(ids)
        if self.bug != "order":
            X = X + self.places(torch.arange(n))
        future = torch.ones(n, n, dtype=torch.bool).triu(1) if self.causal else None
        if self.bug == "inverted":
            future = ~future
        if self.bug == "inverted pads" and pads is not None:
            pads = ~pads
        return self.head(self.body(X, future, pads))


class Reader(nn.Module):
    """A mask for each sentence is repeated for each head."""

    def __init__(self, bug="", d=16, heads=2):
        super().__init__()
        self.bug, self.heads = bug, heads
        self.attention = nn.MultiheadAttention(d, heads, batch_first=True)

    def forward(self, X, words):
        mask = ~words[:, None].expand(-1, X.shape[1], -1)
        by_sentence = mask.repeat_interleave(self.heads, 0)
        mask = mask.repeat(self.heads, 1, 1) if self.bug == "heads" else by_sentence
        return X + self.attention(X, X, X, attn_mask=mask)[0]


class LeftPadded(nn.Module):
    """Causal, with the layer's own masks: its first pads have nothing to read."""

    def __init__(self, d=16):
        super().__init__()
        self.attention = nn.MultiheadAttention(d, 2, batch_first=True)

    def forward(self, X, key_padding_mask):
        n = X.shape[1]
        future = torch.ones(n, n, dtype=torch.bool).triu(1)
        return self.attention(
            X, X, X, attn_mask=future, key_padding_mask=key_padding_mask
        )[0]
