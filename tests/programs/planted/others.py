"""More programs, written after the checks: encoder and decoder, classifiers, a list as cache, scores by distance."""

import torch
import torch.nn.functional as F
from torch import einsum, nn


class Translator(nn.Module):
    """``nn.Transformer`` from one fixed sentence to another."""

    def __init__(self, bug="", d=16):
        super().__init__()
        self.bug, self.tokens, self.places = (
            bug,
            nn.Embedding(13, d),
            nn.Embedding(16, d),
        )
        self.body = nn.Transformer(d, 2, 1, 1, 32, batch_first=True)
        self.source = nn.Parameter(torch.randn(1, 4, d))
        self.head = nn.Linear(d, 13)

    def forward(self, target):
        n = target.shape[1]
        Y = self.tokens(target) + self.places.weight[:n]
        mask = None if self.bug else nn.Transformer.generate_square_subsequent_mask(n)
        return self.head(
            self.body(self.source.expand(len(Y), -1, -1), Y, tgt_mask=mask)
        )


class Rotated(nn.Module):
    """One causal layer whose pairs are neighbours, or halves."""

    def __init__(self, bug="", d=8):
        super().__init__()
        self.bug, self.embed = bug, nn.Embedding(13, d)
        self.q, self.k, self.v = (nn.Linear(d, d) for _ in range(3))

    def rotate(self, x):
        b, n, d = x.shape
        angle = torch.arange(n)[:, None] * 100.0 ** (-torch.arange(d // 2) / (d // 2))
        shape = (2, d // 2) if self.bug else (d // 2, 2)
        z = x.view(b, n, *shape)
        z = z.transpose(-1, -2) if self.bug else z
        z = torch.view_as_complex(z.contiguous()) * torch.polar(torch.ones(()), angle)
        out = torch.view_as_real(z)
        return (out.transpose(-1, -2) if self.bug else out).flatten(2)

    def forward(self, ids):
        x = self.embed(ids)
        q, k = self.rotate(self.q(x)), self.rotate(self.k(x))
        return {
            "logits": F.scaled_dot_product_attention(q, k, self.v(x), is_causal=True)
        }


class Upper(nn.Module):
    """A buffer that keeps the wrong triangle."""

    def __init__(self, d=16):
        super().__init__()
        self.embed, self.qkv = nn.Embedding(13, d), nn.Linear(d, 3 * d)
        self.register_buffer("keep", torch.ones(32, 32).triu().bool())

    def forward(self, ids):
        x = self.embed(ids)
        q, k, v = self.qkv(x).chunk(3, -1)
        att = einsum("bic,bjc->bij", q, k) * q.shape[-1] ** -0.5
        att = torch.where(self.keep[: x.shape[1], : x.shape[1]], att, -torch.inf)
        return x + einsum("bij,bjc->bic", att.softmax(-1), v)


class Classifier(nn.Module):
    """One vector for a sentence: the mean over words, over columns (pads at 0 or not), the first or the last column."""

    def __init__(self, bug="", d=16):
        super().__init__()
        self.bug, self.embed = bug, nn.Embedding(13, d)
        self.places = nn.Embedding(16, d)
        self.block = nn.TransformerEncoderLayer(d, 2, 32, batch_first=True)
        self.head = nn.Linear(d, 3)

    def forward(self, input_ids, attention_mask):
        x = self.embed(input_ids) + self.places.weight[: input_ids.shape[1]]
        x = self.block(x, src_key_padding_mask=attention_mask == 0)
        if self.bug == "mean":
            return self.head(x.mean(1))
        if self.bug in ("first", "last"):
            return self.head(x[:, 0 if self.bug == "first" else -1])
        w = attention_mask[..., None]
        if self.bug == "columns":
            return self.head((x * w).mean(1))
        return self.head((x * w).sum(1) / w.sum(1))


def step_of(layer, bug=""):
    """A list of keys and values that each step adds to; with the bug only the newest are handed on."""

    def step(x, cache):
        q, k, v = layer(x).chunk(3, -1)
        kept = [*(cache or []), (k, v)]
        K, V = (torch.cat(parts, 1) for parts in zip(*kept, strict=True))
        n, m = q.shape[1], K.shape[1]
        may = torch.ones(n, m, dtype=torch.bool).tril(m - n)
        out = F.scaled_dot_product_attention(q, K, V, attn_mask=may)
        return out, [(k, v)] if bug else kept

    return step


def by_distance(bug=""):
    """Scores are minus distances; each token is at distance 0 from itself."""

    def attend(X):
        squared = (X[:, :, None] - X[:, None]).square().sum(-1)
        inside = squared if bug else torch.where(squared > 0, squared, 1)
        far = torch.where(squared > 0, inside.sqrt(), 0)
        return (-far).softmax(-1) @ X

    return attend


class Padded(nn.Module):
    """A padding mask meets scores without a heads axis."""

    def __init__(self, bug="", d=16):
        super().__init__()
        self.bug = bug
        self.query, self.key, self.value = (nn.Linear(d, d) for _ in range(3))

    def forward(self, x, mask):
        scores = self.query(x) @ self.key(x).transpose(1, 2) / x.shape[-1] ** 0.5
        mask = mask if self.bug == "rows" else mask[:, None]
        if self.bug == "dtype":
            return F.scaled_dot_product_attention(x, x, x, attn_mask=mask.long())
        return x + scores.masked_fill(~mask, -1e9).softmax(-1) @ self.value(x)


class HalfRight(nn.Module):
    """Queries are split into heads, keys and values only reshaped."""

    def __init__(self, bug="", d=16, h=4):
        super().__init__()
        self.bug, self.h, self.qkv, self.out = (
            bug,
            h,
            nn.Linear(d, 3 * d),
            nn.Linear(d, d),
        )

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = (
            a.reshape(b, n, self.h, -1).transpose(1, 2)
            for a in self.qkv(x).chunk(3, -1)
        )
        if self.bug:
            k, v = (a.transpose(1, 2).reshape(b, self.h, n, -1) for a in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(y.transpose(1, 2).reshape(b, n, d))


class ByRow(nn.Module):
    """Positions are those of the rows of a batch: ``x + pe[: x.size(0)]``, which expects tokens (n, b, d)."""

    def __init__(self, d=16):
        super().__init__()
        self.embed, self.pe = nn.Embedding(13, d), nn.Parameter(torch.randn(32, 1, d))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(d, 2, 32, batch_first=True) for _ in range(2)
        )
        self.head = nn.Linear(d, 13)

    def forward(self, ids):
        x = self.embed(ids)
        x, n = x + self.pe[: x.size(0)], ids.shape[1]
        for layer in self.layers:
            x = layer(x, torch.ones(n, n, dtype=torch.bool).triu(1))
        return self.head(x)


def step_with(bug=""):
    """A rotary cache: new values (or both) in front of the old, or old keys turned once more."""

    def turn(x, start=0):
        z = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
        rates = 0.5 ** torch.arange(z.shape[-1])
        angle = torch.arange(start, start + x.shape[1])[:, None] * rates
        return torch.view_as_real(z * torch.polar(torch.ones(()), angle)).flatten(2)

    def step(x, cache):
        start = 0 if cache is None else cache[0].shape[1]
        q, k, v = turn(x, start), turn(x, start), x
        if cache is not None:
            old, values = cache
            k = torch.cat([turn(old) if bug == "turned" else old, k], 1)
            v = torch.cat([v, values] if bug in ("front", "before") else [values, v], 1)
            k = k.roll(x.shape[1], 1) if bug == "before" else k
        n, m = q.shape[1], k.shape[1]
        may = torch.ones(n, m, dtype=torch.bool).tril(m - n)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=may), (k, v)

    return step
