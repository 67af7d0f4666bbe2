"""A recurrent translator with additive attention, or without."""

from typing import NamedTuple

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from attn_tutor.torch.layers.attention import AdditiveAttention
from attn_tutor.torch.layers.checks import require_sizes
from attn_tutor.torch.masks import padding_mask
from attn_tutor.torch.models.encoder_decoder import EncoderDecoder

__all__ = ["Translator"]


class Translator(EncoderDecoder):
    """The translator of Bahdanau et al. (2015): it reads in both directions, and looks at all words to write a symbol.

    Args:
        n_words: number of words of the source; word 0 is the padding.
        n_symbols: number of symbols of the target; the last is the end, and also what the decoder begins with.
        d: width of embeddings, of each direction of the encoder, of the decoder's state, and inside the score.
        attention: look at all words in each step. False: only ever see the last states of the encoder.

    Example:
        >>> model = Translator(5, 3, 8)
        >>> words, lengths = torch.tensor([[1, 4, 2], [3, 0, 0]]), torch.tensor([3, 1])
        >>> logits, weights = model(words, lengths, torch.tensor([[0, 1, 2], [1, 2, 2]]))
        >>> logits.shape, weights[1, 0].tolist()
        (torch.Size([2, 3, 3]), [1.0, 0.0, 0.0])
    """

    def __init__(
        self, n_words: int, n_symbols: int, d: int, *, attention: bool = True
    ) -> None:
        super().__init__(n_symbols)
        require_sizes("Translator", n_words=n_words, d=d)
        self.encoder = _Encoder(n_words, d)
        self.decoder = _Decoder(n_symbols, d, attention)

    def encode(self, words: torch.Tensor, lengths: torch.Tensor) -> "Encoded":
        """The annotation of each word, (b, m) -> (b, m, 2d), the mask, and the last states."""
        n_words = self.encoder.embedding.num_embeddings
        return self.encoder(*self._checked(words, lengths, n_words))

    def decode(
        self, encoded: "Encoded", previous: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Symbol by symbol; the weights are None without attention."""
        return self.decoder(encoded, previous)


class Encoded(NamedTuple):
    """What the decoder gets to know of the words."""

    H: torch.Tensor  # (b, m, 2d), an annotation for each word
    mask: torch.Tensor  # (b, 1, m)
    summary: torch.Tensor  # (b, 2d), the last state of each direction


class _Encoder(nn.Module):
    """Reads forwards and backwards: h_t = [h→_t; h←_t]."""

    def __init__(self, n_words: int, d: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(n_words, d)
        self.rnn = nn.GRU(d, d, batch_first=True, bidirectional=True)

    def forward(self, words: torch.Tensor, lengths: torch.Tensor) -> Encoded:
        m = words.shape[1]
        # Packed, so that the backward direction begins at the last word and not in the padding.
        X = pack_padded_sequence(
            self.embedding(words), lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        states, last = self.rnn(X)  # last: (2, b, d)
        H, _ = pad_packed_sequence(states, batch_first=True, total_length=m)
        return Encoded(H, padding_mask(lengths, m), torch.cat([last[0], last[1]], -1))


class _Decoder(nn.Module):
    """Writes: its state s, as a query, weighs the annotations, and their sum c enters the next state."""

    def __init__(self, n_symbols: int, d: int, attention: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(n_symbols, d)
        self.first = nn.Linear(2 * d, d)
        self.attention = AdditiveAttention(d, 2 * d, d) if attention else None
        self.cell = nn.GRUCell(3 * d, d)
        self.output = nn.Linear(3 * d, n_symbols)

    def forward(
        self, encoded: Encoded, previous: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Logits after each of the previous symbols, (b, T, n_symbols), and the weights, (b, T, m)."""
        H, mask, c = encoded
        s = torch.tanh(self.first(c))
        seen, weights = [], []
        for y in self.embedding(previous).unbind(1):  # (b, d)
            if self.attention is not None:
                C, A = self.attention(s[:, None], H, H, mask, need_weights=True)
                c = C[:, 0]  # (b, 2d)
                weights.append(A)  # (b, 1, m)
            s = self.cell(torch.cat([y, c], -1), s)
            seen.append(torch.cat([s, c], -1))
        logits = self.output(torch.stack(seen, 1))
        return logits, torch.cat(weights, 1) if weights else None
