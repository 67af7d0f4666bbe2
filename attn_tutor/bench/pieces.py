"""What stands around attention: softmax under a mask, the table of positions, decoding with a cache."""

from collections.abc import Iterator

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa

from attn_tutor.bench.case import Case
from attn_tutor.bench.contestants import HEADS, MODEL, WIDTH, Contestant, peer, traffic


def masked_softmax(case: Case) -> Iterator[Contestant]:
    """Scores of eight texts, each padded from half its length on."""
    lib, n = case.lib, case.n
    scores = case.draw(HEADS, n, n)
    x = scores if case.half == "torch" else case.tensor(HEADS, n, n)
    lengths = np.full(HEADS, n // 2)
    padded = torch.from_numpy(lengths).to(x.device)
    mask = lib.padding_mask(padded if case.half == "torch" else lengths, n)
    hidden = torch.arange(n, device=x.device) >= n // 2

    def textbook() -> np.ndarray:
        e = np.where(mask, scores, np.asarray(-1e6, scores.dtype))
        e = np.exp(e - e.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    def masked_fill() -> torch.Tensor:
        return x.masked_fill(hidden, -1e6).softmax(-1)

    yield Contestant("ours", "masked_softmax", lambda: lib.masked_softmax(scores, mask))
    if case.half == "numpy":
        yield Contestant("textbook", "where(…, −1e6)", textbook)
        yield Contestant("peer", "torch masked_fill", masked_fill)
    else:
        yield Contestant("textbook", "masked_fill(…, −1e6)", masked_fill)
    if d2l := peer("d2l"):
        yield Contestant("peer", "d2l", lambda: d2l.masked_softmax(x, padded))
    yield from traffic(case, 2 * HEADS * n * n)


def table(case: Case) -> Iterator[Contestant]:
    """Sines and cosines, 512 a position; ours in the dtype that the half gives by default."""
    lib, n = case.lib, case.n
    on = {} if case.half == "numpy" else {"device": case.device}
    rate = 10000.0 ** (-np.arange(0, MODEL, 2) / MODEL)
    rates = torch.from_numpy(rate).to(case.device)

    def direct() -> np.ndarray:
        P, angles = np.empty((n, MODEL)), np.arange(n)[:, None] * rate
        P[:, 0::2], P[:, 1::2] = np.sin(angles), np.cos(angles)
        return P

    def float32() -> torch.Tensor:
        P = torch.empty(n, MODEL, device=case.device)
        positions = torch.arange(n, dtype=torch.float32, device=case.device)
        angles = positions[:, None] * rates.float()
        P[:, 0::2], P[:, 1::2] = angles.sin(), angles.cos()
        return P

    yield Contestant(
        "ours", "sinusoidal_encoding", lambda: lib.sinusoidal_encoding(n, MODEL, **on)
    )
    if case.half == "numpy":
        yield Contestant("textbook", "every sine, float64", direct)
    yield Contestant(
        "textbook" if case.half == "torch" else "peer",
        "torch, angles in float32",
        float32,
    )
    if d2l := peer("d2l"):
        yield Contestant("peer", "d2l", lambda: d2l.PositionalEncoding(MODEL, 0, n).P)
    yield from traffic(case, n * MODEL)


def decoding(case: Case) -> Iterator[Contestant]:
    """Tokens one after the other, each attending to all before it."""
    lib, n = case.lib, case.n
    Q, K, V = (case.draw(HEADS, n, WIDTH) for _ in range(3))
    q, k, v = (case.tensor(1, HEADS, n, WIDTH) for _ in range(3))
    steps = range(1, n + 1)

    def ours() -> None:
        cache = lib.KVCache()
        for t in steps:
            one = slice(t - 1, t)
            lib.attention(Q[:, one], *cache.append(K[:, one], V[:, one]))

    def again() -> None:
        for t in steps:
            lib.attention(Q[:, :t], K[:, :t], V[:, :t], causal=True)

    def concatenated() -> None:
        keys, values = k[..., :0, :], v[..., :0, :]
        for t in steps:
            keys = torch.cat([keys, k[..., t - 1 : t, :]], -2)
            values = torch.cat([values, v[..., t - 1 : t, :]], -2)
            sdpa(q[..., t - 1 : t, :], keys, values)

    def alone() -> None:
        for t in steps:
            Q[:, t - 1 : t] @ K[:, :t].mT @ V[:, :t]

    yield Contestant("ours", "KVCache and attention", ours)
    yield Contestant("textbook", "all over again at each token", again)
    yield Contestant("peer", "torch.cat and SDPA", concatenated)
    yield Contestant("limit", "its products alone", alone)
