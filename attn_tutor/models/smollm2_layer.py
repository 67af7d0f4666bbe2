"""One of SmolLM2's thirty layers.

Against the block of ``attn_tutor.torch.LanguageModel`` it changes three things: the norm (RMSNorm), the small
network in each token (SwiGLU), and 3 heads of keys and values for 9 of queries; nothing has a bias.
Source: Touvron et al. (2023), whose architecture it is.
"""

from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import silu

from attn_tutor.torch import (
    KVCache,
    attention,
    attention_weights,
    merge_heads,
    rotary,
    split_heads,
)

__all__ = ["Layer", "rms_norm"]

N_HEADS, N_KV_HEADS = 9, 3
BASE, EPSILON = 100_000.0, 1e-5  # of the rotary encoding, of the norm
Mask: TypeAlias = Tensor | None
Cache: TypeAlias = KVCache | None


def rms_norm(X: Tensor, gain: Tensor) -> Tensor:
    """Divide each token by its root mean square; unlike a layer norm, subtract no mean."""
    return X * torch.rsqrt(X.square().mean(-1, keepdim=True) + EPSILON) * gain


class Layer(NamedTuple):
    """What one layer has learnt, and what it does with it; every matrix is used as ``X @ W``."""

    norm_1: Tensor  # (576,)
    W_q: Tensor  # (576, 9·64)
    W_k: Tensor  # (576, 3·64)
    W_v: Tensor  # (576, 3·64)
    W_o: Tensor  # (9·64, 576)
    norm_2: Tensor  # (576,)
    W_gate: Tensor  # (576, 1536)
    W_up: Tensor  # (576, 1536)
    W_down: Tensor  # (1536, 576)

    def heads(self, X: Tensor, cache: Cache = None) -> tuple[Tensor, ...]:
        """Queries, keys and values of all heads, (…, n, 576) -> (…, 9, n, 64), (…, 9, m, 64) and (…, 9, m, 64)."""
        X, past = rms_norm(X, self.norm_1), 0 if cache is None else len(cache)
        n_heads = (N_HEADS, N_KV_HEADS, N_KV_HEADS)
        parts = zip((self.W_q, self.W_k, self.W_v), n_heads, strict=True)
        Q, K, V = (split_heads(X @ W, h) for W, h in parts)
        positions = torch.arange(past, past + X.shape[-2])
        Q, K = rotary(Q, positions, BASE), rotary(K, positions, BASE)
        if cache is not None:
            K, V = cache.append(K, V)  # the keys and values of the tokens before, too
        shared = N_HEADS // N_KV_HEADS
        return Q, K.repeat_interleave(shared, -3), V.repeat_interleave(shared, -3)

    def attend(self, X: Tensor, mask: Mask = None, cache: Cache = None) -> Tensor:
        """What the tokens draw from one another, (…, n, 576) -> (…, n, 576)."""
        O = attention(*self.heads(X, cache), mask, causal=True)
        return merge_heads(O) @ self.W_o

    def weights(self, X: Tensor, mask: Mask = None) -> Tensor:
        """The attention weights of each head, (…, n, 576) -> (…, 9, n, n)."""
        return attention_weights(*self.heads(X)[:2], mask, causal=True)

    def feed_forward(self, X: Tensor) -> Tensor:
        """A small network in each token by itself, one half of whose hidden layer gates the other (Shazeer, 2020)."""
        X = rms_norm(X, self.norm_2)
        return silu(X @ self.W_gate) * (X @ self.W_up) @ self.W_down
