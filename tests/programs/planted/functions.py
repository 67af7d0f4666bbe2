"""What stands round a model: targets, means, positions, packed texts."""

import torch
import torch.nn.functional as F


def targets_in_place(ids):
    return ids[:, :-1], ids[:, :-1]


def targets_moved(ids):
    return ids[:, :-1], ids[:, 1:]


def mean_over_columns(losses, words):
    return torch.where(words, losses, 0).mean()


def mean_over_words(losses, words):
    return losses[words].mean()


def rope(dtype):
    """Rotary of (n, d) at positions (n,), whose angles are taken in ``dtype``; None is that of the positions."""

    def turn(x, positions):
        half = x.shape[-1] // 2
        kind = dtype or x.dtype
        rates = 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
        angles = positions.to(kind)[:, None] * rates.to(kind)
        cos, sin = angles.cos().to(x), angles.sin().to(x)
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    return turn


def packed(borders):
    """Causal attention of (n, d) over documents in one row, which knows their borders or not."""

    def attend(X, documents):
        n = X.shape[-2]
        may = torch.ones(n, n, dtype=torch.bool).tril()
        if borders:
            may = may & (documents[..., :, None] == documents[..., None, :])
        return F.scaled_dot_product_attention(X, X, X, attn_mask=may)

    return attend


def ends_by_token(ids, lengths, end):
    return ids.masked_fill(ids == end, -100)


def ends_by_place(ids, lengths, end):
    return ids.masked_fill(torch.arange(ids.shape[1]) >= lengths[:, None], -100)
