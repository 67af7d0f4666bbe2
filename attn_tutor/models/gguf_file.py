"""GGUF, the file format of llama.cpp: matrices, mostly quantised, and the vocabulary, in one file."""

from os import PathLike
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor, from_numpy

try:
    import gguf
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
except ImportError as error:
    raise ImportError(
        'attn_tutor.models needs gguf and tokenizers: pip install "attn-tutor[models]"'
    ) from error

__all__ = ["GGUF", "read_gguf"]


class GGUF(NamedTuple):
    """Matrices by name, dequantised to single precision for use as ``X @ W``, and the tokenizer."""

    matrices: dict[str, Tensor]
    tokenizer: Tokenizer


class Reader(gguf.GGUFReader):  # type: ignore[misc]  # gguf has no types
    """On a plain array: the vocabulary takes 250,000 slices, and each is dear on the ``memmap`` that it comes as."""

    @property  # type: ignore[override]  # an attribute there
    def data(self) -> np.ndarray:
        return self._data

    @data.setter
    def data(self, mapped: np.memmap) -> None:
        self._data = np.asarray(mapped)


def read_gguf(path: str | PathLike[str]) -> GGUF:
    """Read a file whose vocabulary is one of byte pairs, with every digit a token of its own.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not GGUF, cut short, or without such a vocabulary. The message names it.
    """
    try:
        reader = Reader(path)
        matrices = {t.name.removesuffix(".weight"): _matrix(t) for t in reader.tensors}
        return GGUF(matrices, _tokenizer(reader))
    except (ValueError, KeyError, IndexError) as error:
        raise ValueError(
            f"read_gguf: {path} is not a whole GGUF file with a vocabulary of byte pairs ({error})"
        ) from error


def _matrix(tensor: Any) -> Tensor:
    """The file holds (d_out, d_in); vectors stay as they are."""
    rows = gguf.dequantize(tensor.data, tensor.tensor_type)
    return from_numpy(np.require(rows, requirements="W").T)


def _tokenizer(reader: Any) -> Tokenizer:
    words, merges, kinds = (
        reader.fields[f"tokenizer.ggml.{name}"].contents()
        for name in ("tokens", "merges", "token_type")
    )
    ids = {word: i for i, word in enumerate(words)}
    tokenizer = Tokenizer(models.BPE(ids, [tuple(pair.split(" ")) for pair in merges]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = gguf.TokenType.CONTROL  # such as <|im_start|>, never cut into pieces
    tokenizer.add_special_tokens(
        [word for word, kind in zip(words, kinds, strict=True) if kind == control]
    )
    return tokenizer
