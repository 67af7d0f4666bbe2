"""What stands around attention: softmax under a mask, the table of positions, decoding with a cache."""

from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa

from attn_tutor.bench.case import HEADS, MODEL, WIDTH, Case, Contestants
from attn_tutor.bench.case import Contestant as Who
from attn_tutor.bench.limits import traffic


def masked_softmax(case: Case) -> Contestants:
    """Scores of eight texts, each padded from half its length on."""
    lib, n = case.lib, case.n
    scores = case.draw(HEADS, n, n)
    x = torch.as_tensor(scores)
    lengths = torch.full((HEADS,), n // 2, device=case.device)
    mask = lib.padding_mask(case.give(lengths), n)
    hidden = torch.arange(n, device=case.device) >= n // 2

    def textbook() -> np.ndarray:
        e = np.where(mask, scores, np.asarray(-1e6, scores.dtype))
        e = np.exp(e - e.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    def masked_fill() -> torch.Tensor:
        return x.masked_fill(hidden, -1e6).softmax(-1)

    yield Who("ours", "masked_softmax", lambda: lib.masked_softmax(scores, mask))
    if case.half == "numpy":
        yield Who("textbook", "where(…, −1e6)", textbook)
        yield Who("peer", "torch masked_fill", masked_fill)
    else:
        yield Who("textbook", "masked_fill(…, −1e6)", masked_fill)
    d2l = "d2l.torch"
    yield Who("peer", "d2l", lambda: import_module(d2l).masked_softmax(x, lengths))
    yield traffic(case, 2 * HEADS * n * n)


def table(case: Case) -> Contestants:
    """Sines and cosines, 512 a position; ours in the dtype that the half gives by default."""
    lib, n = case.lib, case.n
    on = {} if case.half == "numpy" else {"device": case.device}
    rate = 10000.0 ** (-np.arange(0, MODEL, 2) / MODEL)
    rates = torch.from_numpy(rate).to(case.device, torch.float32)

    def direct() -> np.ndarray:
        P, angles = np.empty((n, MODEL)), np.arange(n)[:, None] * rate
        P[:, 0::2], P[:, 1::2] = np.sin(angles), np.cos(angles)
        return P

    def float32() -> torch.Tensor:
        P = torch.empty(n, MODEL, device=case.device)
        positions = torch.arange(n, dtype=torch.float32, device=case.device)
        angles = positions[:, None] * rates
        P[:, 0::2], P[:, 1::2] = angles.sin(), angles.cos()
        return P

    encoding = lib.sinusoidal_encoding
    yield Who("ours", "sinusoidal_encoding", lambda: encoding(n, MODEL, **on))
    if case.half == "numpy":
        yield Who("textbook", "every sine, float64", direct)
        yield Who("peer", "torch, angles in float32", float32)
    else:
        yield Who("textbook", "angles in float32", float32)
    d2l = "d2l.torch"
    yield Who("peer", "d2l", lambda: import_module(d2l).PositionalEncoding(MODEL, 0, n))
    yield traffic(case, n * MODEL)


def decoding(case: Case) -> Contestants:
    """A layer of heads gets tokens one after the other, each attending to all before it."""
    lib, n = case.lib, case.n
    X, W_q, W_k, W_v, W_o = (
        case.draw(rows, MODEL, scale=MODEL**-0.5) for rows in (n, *[MODEL] * 4)
    )
    x, w_q, w_k, w_v, w_o = map(torch.as_tensor, (X, W_q, W_k, W_v, W_o))
    K, V = (case.draw(HEADS, n, WIDTH) for _ in range(2))

    def heads(X: Any, *W: Any) -> list[Any]:
        return [(X @ w).reshape(-1, HEADS, WIDTH).swapaxes(0, 1) for w in W]

    def merged(H: Any) -> Any:
        return H.swapaxes(0, 1).reshape(-1, MODEL)

    def ours() -> Any:
        cache = lib.KVCache()
        for t in range(n):
            q, k, v = heads(X[t : t + 1], W_q, W_k, W_v)
            output = merged(lib.attention(q, *cache.append(k, v))) @ W_o
        return output

    def again() -> Any:
        for t in range(1, n + 1):
            q, k, v = heads(X[:t], W_q, W_k, W_v)
            output = merged(lib.attention(q, k, v, causal=True)) @ W_o
        return output[-1:]

    def concatenated() -> Any:
        keys, values = x.new_empty(2, HEADS, 0, WIDTH)
        for t in range(n):
            q, k, v = heads(x[t : t + 1], w_q, w_k, w_v)
            keys, values = torch.cat([keys, k], 1), torch.cat([values, v], 1)
            output = merged(sdpa(q[None], keys[None], values[None])[0]) @ w_o
        return output

    def alone() -> None:
        for t in range(1, n + 1):
            q, _, _ = heads(X[t - 1 : t], W_q, W_k, W_v)
            merged(q @ K[:, :t].mT @ V[:, :t]) @ W_o

    yield Who("ours", "KVCache and attention", ours)
    yield Who("textbook", "all over again at each token", again)
    yield Who("peer", "torch.cat and SDPA", concatenated)
    yield Who("limit", "its products alone", alone)
