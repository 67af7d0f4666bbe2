"""Attention as functions of Q, K, V of shape (b, h, n, d) and a boolean mask, written with ``einsum``."""

from torch import einsum


def attention(bug="", heads_in_all=None):
    def attend(q, k, v, mask=None):
        d = q.shape[-1]
        if bug == "model width":
            d = d * q.shape[1]
        if bug == "groups" or k.shape[1] < q.shape[1]:
            times = q.shape[1] // k.shape[1]
            if bug == "groups":
                k, v = (x.repeat(1, times, 1, 1) for x in (k, v))
            else:
                k, v = (x.repeat_interleave(times, 1) for x in (k, v))
        scores = einsum("bhqd,bhkd->bhqk", q, k)
        if bug != "no root":
            scores = scores * d**-0.5
        if mask is not None and bug == "times":
            scores = scores * mask
        elif mask is not None and bug == "large":
            scores = scores.masked_fill(~mask, -1e4)
        elif mask is not None and bug == "plus":
            scores = scores + mask.to(scores)
        elif mask is not None and bug not in ("after", "unused"):
            scores = scores.masked_fill(~mask, float("-inf"))
        weights = scores.softmax({"queries": -2, "heads": 1}.get(bug, -1))
        if mask is not None and bug == "after":
            weights = weights * mask
        if mask is not None and bug not in ("times", "plus", "large", "after", "heads"):
            weights = weights.nan_to_num(0.0)
        return einsum("bhqk,bhkd->bhqd", weights, v)

    return attend


def pads_by_row(q, k, v, words):
    """A padding mask (b, m) meets scores (b, n, m) as it is."""
    scores = einsum("bqd,bkd->bqk", q, k) * q.shape[-1] ** -0.5
    return einsum("bqk,bkd->bqd", scores.masked_fill(~words, -1e30).softmax(-1), v)
