"""What stands around attention: softmax under a mask, the table of positions, decoding with a cache."""

from collections.abc import Iterator
from typing import Any

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
    """A layer of heads gets tokens one after the other, each attending to all before it."""
    lib, n = case.lib, case.n
    X, *W = (case.draw(n, MODEL), *(case.draw(MODEL, MODEL) for _ in range(4)))
    x, *w = (case.tensor(n, MODEL), *(case.tensor(MODEL, MODEL) for _ in range(4)))
    for each in (*W, *w):
        each /= MODEL**0.5
    K, V = (case.draw(HEADS, n, WIDTH) for _ in range(2))

    def heads(X: Any, W: Any) -> Any:
        return (X @ W).reshape(-1, HEADS, WIDTH).swapaxes(0, 1)

    def merged(H: Any, W: Any) -> Any:
        return H.swapaxes(0, 1).reshape(-1, MODEL) @ W

    def ours() -> Any:
        cache = lib.KVCache()
        for t in range(n):
            q, k, v = (heads(X[t : t + 1], each) for each in W[:3])
            output = merged(lib.attention(q, *cache.append(k, v)), W[3])
        return output

    def again() -> Any:
        for t in range(1, n + 1):
            q, k, v = (heads(X[:t], each) for each in W[:3])
            output = merged(lib.attention(q, k, v, causal=True), W[3])
        return output[-1:]

    def concatenated() -> None:
        keys, values = x.new_empty(2, 1, HEADS, 0, WIDTH)
        for t in range(n):
            q, k, v = (heads(x[t : t + 1], each)[None] for each in w[:3])
            keys, values = torch.cat([keys, k], -2), torch.cat([values, v], -2)
            merged(sdpa(q, keys, values)[0], w[3])

    def alone() -> None:
        for t in range(1, n + 1):
            q, _, _ = (heads(X[t - 1 : t], each) for each in W[:3])
            merged(q @ K[:, :t].mT @ V[:, :t], W[3])

    yield Contestant("ours", "KVCache and attention", ours)
    yield Contestant("textbook", "all over again at each token", again)
    yield Contestant("peer", "torch.cat and SDPA", concatenated)
    yield Contestant("limit", "its products alone", alone)
