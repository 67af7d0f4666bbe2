"""A pre-norm model of two layers, causal or not, whose positions are counted from the mask."""

import math

import torch
import torch.nn.functional as F
from torch import einsum, nn


class Layer(nn.Module):
    def __init__(self, bug, d=24, h=3):
        super().__init__()
        self.bug, self.h = bug, h
        self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))
        self.before, self.between = nn.LayerNorm(d), nn.LayerNorm(d)
        self.body = nn.Sequential(nn.Linear(d, 48), nn.GELU(), nn.Linear(48, d))

    def attend(self, x, words, causal):
        (b, n, d), bug = x.shape, self.bug
        v = self.k(x) if bug == "values" else self.v(x)
        q, k, v = (
            z.view(b, n, self.h, -1).transpose(1, 2) for z in (self.q(x), self.k(x), v)
        )
        scores = einsum("bhid,bhjd->bhij", q, k) / math.sqrt(d // self.h)
        scores = scores.mT if bug == "exchanged" else scores
        may = torch.ones(n, n, dtype=torch.bool)
        may = may.tril() if causal else may
        pads = (slice(None), None, slice(None), None)
        pads = pads if bug == "pads of queries" else (slice(None), None, None)
        if words is not None and bug == "or":
            may = may | words[pads]
        elif words is not None:
            may = may & words[pads]
        if bug == "window":
            i = torch.arange(n)
            may = may | ((i[:, None] - i).abs() <= 2)
        low = 1e-9 if bug == "1e-9" else -1e9
        hidden = scores.masked_fill(~may, low)
        scores = scores if bug == "thrown away" else hidden
        weights = scores.softmax(-2 if bug == "queries" else -1)
        weights = F.dropout(weights, 0.1) if bug == "dropout" else weights
        out = einsum("bhij,bhjd->bhid", weights, v)
        out = out if bug == "merge" else out.transpose(1, 2)
        return self.o(out.reshape(b, n, d))

    def forward(self, x, words, causal):
        x = x + self.attend(self.before(x), words, causal)
        return x + self.body(self.between(x))


class TwoLayers(nn.Module):
    def __init__(self, bug="", causal=True, d=24):
        super().__init__()
        self.bug, self.causal = bug, causal
        self.embed, self.places = nn.Embedding(17, d), nn.Embedding(64, d)
        self.layers = nn.ModuleList(Layer(bug) for _ in range(2))
        self.head = nn.Linear(d, 17)

    def forward(self, ids, words=None):
        places = torch.ones_like(ids).cumsum(-1) - 1
        if words is not None:
            places = (words.cumsum(-1) - 1).clamp(min=0)
        if self.bug == "row":
            places = torch.arange(len(ids))[:, None].expand(ids.shape)
        x = self.embed(ids)
        x = x if self.bug == "no positions" else x + self.places(places)
        for layer in self.layers:
            x = layer(x, words, self.causal)
        return self.head(x)
