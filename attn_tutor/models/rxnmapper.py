"""RXNMapper's ALBERT: a masked language model of chemical reactions, one head of which aligns their atoms, untaught.

Its one layer is used twelve times over, and each use attends in both directions. A reaction is written as SMILES:
reactants, ``>>``, product; a letter or a bracket is an atom.
Source: Schwaller et al. (2021); the architecture is that of Lan et al. (2020), whose norms come after the sums.
"""

import re
from dataclasses import dataclass
from typing import NamedTuple, Self

import torch
from torch import Tensor
from torch.nn.functional import gelu, layer_norm

from attn_tutor.models.weights import WeightsFile
from attn_tutor.torch import (
    attention,
    attention_weights,
    merge_heads,
    split_heads,
)
from attn_tutor.torch.models.ids import require_ids

__all__ = ["Alignment", "RXNMapper"]

FOLDER = "rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k"
WEIGHTS, VOCABULARY = (
    WeightsFile("rxnmapper==0.4.3", f"{FOLDER}/{name}", sha256, size="3 MB")
    for name, sha256 in (
        ("pytorch_model.bin", "8541f3f500dae71abe678d546bd035ca946e2d1c819f6b2cf41a97faedd7e6a2"),
        ("vocab.txt", "399868a653e85549ce150af4a1f6cd2776240c6a3d951ced2120565f00f027fd"),
    )
)  # fmt: skip  # a file a line
N_LAYERS, N_HEADS = 12, 8
ALIGNING = 10, 5  # the layer and the head that the authors found to align atoms
TOKEN = re.compile(r"\[[^]]+]|Br|Cl|>>|%\d\d|\S")
LAYER = "encoder.albert_layer_groups.0.albert_layers.0"


class Alignment(NamedTuple):
    """For each atom of the product, how its weights on the atoms of the reactants share out."""

    product: Tensor  # (p,) places among the tokens
    reactants: Tensor  # (r,) places among the tokens
    weights: Tensor  # (p, r), rows sum to 1


@dataclass
class RXNMapper:
    """Tokens of a reaction to scores for the token at each place.

    Example::

        model = RXNMapper.load()
        model.align(model.encode("CC(=O)O.OCC>>CC(=O)OCC")).weights.shape  # torch.Size([6, 7])
    """

    learnt: dict[str, Tensor]
    vocabulary: list[str]

    @classmethod
    def load(cls) -> Self:
        """The published model. Raises what :meth:`~attn_tutor.models.weights.WeightsFile.find` raises."""
        words = VOCABULARY.find().read_text().splitlines()
        learnt = torch.load(WEIGHTS.find(), map_location="cpu", weights_only=True)
        return cls({k.removeprefix("albert."): W for k, W in learnt.items()}, words)

    def encode(self, reaction: str) -> Tensor:
        """SMILES to tokens, (n,); the first is [CLS], the last [SEP], and what is in no vocabulary [UNK]."""
        words = ["[CLS]", *TOKEN.findall(reaction), "[SEP]"]
        ids = {word: i for i, word in enumerate(self.vocabulary)}
        return torch.tensor([ids.get(word, ids["[UNK]"]) for word in words])

    def decode(self, ids: Tensor) -> list[str]:
        """Tokens to words."""
        ids = require_ids("decode", "ids", ids, len(self.vocabulary))
        return [self.vocabulary[i] for i in ids]

    def __call__(self, ids: Tensor) -> Tensor:
        """Logits of the token at each place, (…, n) -> (…, n, 591)."""
        X = gelu(self._linear(self.stream(ids)[-1], "predictions.dense"))
        X = self._norm(X, "predictions.LayerNorm")
        return self._linear(X, "predictions.decoder")

    def stream(self, ids: Tensor) -> Tensor:
        """The tokens' vectors as they enter each layer and as they leave the last, (13, …, n, 256)."""
        words = self.learnt["embeddings.word_embeddings.weight"]
        ids = require_ids("RXNMapper", "ids", ids, len(words))
        places = self.learnt["embeddings.position_embeddings.weight"]
        if ids.shape[-1] > len(places):
            raise ValueError(
                f"RXNMapper: a reaction has at most {len(places)} tokens, one for each learnt position; got "
                f"{ids.shape[-1]}"
            )
        places = places[: ids.shape[-1]]
        kind = self.learnt["embeddings.token_type_embeddings.weight"][0]
        X = self._norm(words[ids] + places + kind, "embeddings.LayerNorm")
        stream = [self._linear(X, "encoder.embedding_hidden_mapping_in")]
        for _ in range(N_LAYERS):
            stream.append(self._layer(stream[-1]))
        return torch.stack(stream)

    def weights(self, ids: Tensor) -> Tensor:
        """The attention weights of every head, (…, n) -> (12, …, 8, n, n)."""
        X = self.stream(ids)[:-1]
        return attention_weights(self._heads(X, "query"), self._heads(X, "key"))

    def align(self, ids: Tensor) -> Alignment:
        """Where the head that aligns atoms looks from each atom of the product, (n,)."""
        words = self.decode(ids)
        if words.count(">>") != 1:
            raise ValueError(
                f"align: a reaction has one '>>', between reactants and product; got {''.join(words[1:-1])}"
            )
        atom = [word[0].isalpha() or word[0] == "[" for word in words[1:-1]]
        atoms = 1 + torch.tensor(atom).nonzero()[:, 0]  # after [CLS]
        arrow = words.index(">>")
        product, reactants = atoms[atoms > arrow], atoms[atoms < arrow]
        layer, head = ALIGNING
        weights = self.weights(ids)[layer, head][product][:, reactants]
        return Alignment(product, reactants, weights / weights.sum(-1, keepdim=True))

    def _layer(self, X: Tensor) -> Tensor:
        heads = attention(*(self._heads(X, x) for x in ("query", "key", "value")))
        X = X + self._linear(merge_heads(heads), f"{LAYER}.attention.dense")
        X = self._norm(X, f"{LAYER}.attention.LayerNorm")
        hidden = gelu(self._linear(X, f"{LAYER}.ffn"))
        X = X + self._linear(hidden, f"{LAYER}.ffn_output")
        return self._norm(X, f"{LAYER}.full_layer_layer_norm")

    def _heads(self, X: Tensor, name: str) -> Tensor:
        return split_heads(self._linear(X, f"{LAYER}.attention.{name}"), N_HEADS)

    def _linear(self, X: Tensor, name: str) -> Tensor:
        return X @ self.learnt[f"{name}.weight"].mT + self.learnt[f"{name}.bias"]

    def _norm(self, X: Tensor, name: str) -> Tensor:
        gain, shift = self.learnt[f"{name}.weight"], self.learnt[f"{name}.bias"]
        return layer_norm(X, X.shape[-1:], gain, shift, eps=1e-12)
