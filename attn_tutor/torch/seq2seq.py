"""A recurrent translator with additive attention, or without: one part reads, one writes symbol by symbol."""

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from attn_tutor._checks import require_size
from attn_tutor.torch.decoding import beam_search
from attn_tutor.torch.masks import padding_mask
from attn_tutor.torch.modules import AdditiveAttention
from attn_tutor.torch.scoring import additive_score
from attn_tutor.torch.softmax import masked_softmax

__all__ = ["EncoderDecoder", "Translator", "translation_loss"]


class EncoderDecoder(nn.Module):
    """A translator of two parts: ``encode`` reads the words, ``decode`` writes symbols from what it read.

    :class:`Translator` and :class:`TransformerTranslator` say what the two parts are.

    Args:
        n_symbols: number of symbols of the target; the last is the end, and also what the decoder begins with.

    Example:
        >>> model = Translator(5, 3, 8)
        >>> model.begin(torch.tensor([[4, 1], [2, 0]])).tolist()  # for each sentence
        [[2], [2]]
    """

    def __init__(self, n_symbols: int) -> None:
        super().__init__()
        require_size(type(self).__name__, "n_symbols", n_symbols, least=1)
        self.end = n_symbols - 1

    def encode(self, words: torch.Tensor, lengths: torch.Tensor) -> Any:
        """What the decoder gets to know of the words, (b, m): a named tuple of tensors, each with the batch first."""
        raise NotImplementedError

    def decode(
        self, encoded: Any, previous: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Logits after each of the previous symbols, (b, T) -> (b, T, n_symbols), and the weights, (b, T, m)."""
        raise NotImplementedError

    def forward(
        self, words: torch.Tensor, lengths: torch.Tensor, target: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Logits of each symbol of the target, given the words and the right symbols before it.

        Args:
            words: ids, (b, m).
            lengths: number of words, (b,).
            target: symbols, (b, T).

        Returns:
            Logits, (b, T, n_symbols), and the weight of each word in each step, (b, T, m), or None without attention.
        """
        previous = torch.cat([self.begin(target), target[:, :-1]], 1)
        return self.decode(self.encode(words, lengths), previous)

    @torch.no_grad()
    def translate(
        self,
        words: torch.Tensor,
        lengths: torch.Tensor,
        max_len: int,
        beam_width: int = 1,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The likeliest targets that :func:`beam_search` finds, (b, beam_width, T), and their log-probabilities."""
        step = partial(self.next_log_probs, self.encode(words, lengths))
        return beam_search(step, self.begin(words), self.end, max_len, beam_width)

    def next_log_probs(self, encoded: Any, tokens: torch.Tensor) -> torch.Tensor:
        """Of the next symbol, (b, k, n_symbols), after each of k beginnings for each sentence, (b, k, t)."""
        b, k, _ = tokens.shape
        each = type(encoded)(*(x.repeat_interleave(k, 0) for x in encoded))
        logits, _ = self.decode(each, tokens.flatten(0, 1))
        return logits[:, -1].log_softmax(-1).unflatten(0, (b, k))

    def begin(self, rows: torch.Tensor) -> torch.Tensor:
        return torch.full_like(rows[:, :1], self.end)


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
        require_size("Translator", "n_words", n_words, least=1)
        require_size("Translator", "d", d, least=1)
        self.encoder = _Encoder(n_words, d)
        self.decoder = _Decoder(n_symbols, d, attention)

    def encode(self, words: torch.Tensor, lengths: torch.Tensor) -> "Encoded":
        """The annotation of each word, (b, m) -> (b, m, 2d), the mask, and the last states."""
        return self.encoder(words, lengths)

    def decode(
        self, encoded: "Encoded", previous: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Symbol by symbol; the weights are None without attention."""
        return self.decoder(encoded, previous)


def translation_loss(
    model: EncoderDecoder, pairs: tuple[torch.Tensor, torch.Tensor, torch.Tensor]
) -> torch.Tensor:
    """Mean cross-entropy of the symbols of the targets, each up to its first end.

    Args:
        model: a :class:`Translator` or a :class:`TransformerTranslator`.
        pairs: ids of the words, (b, m), their number, (b,), and targets, (b, T).

    Example:
        >>> model = Translator(5, 3, 8)
        >>> pairs = torch.tensor([[1, 4]]), torch.tensor([2]), torch.tensor([[0, 2, 2]])
        >>> bool(translation_loss(model, pairs) > 0)
        True
    """
    logits, _ = model(*pairs)
    target = pairs[2]
    counts = (target == model.end).cumsum(1) <= 1  # the first end, not the padding
    return cross_entropy(logits[counts], target[counts])


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
        s, c = torch.tanh(self.first(encoded.summary)), encoded.summary
        seen, weights = [], []
        for y in self.embedding(previous).unbind(1):  # (b, d)
            if (a := self.attention) is not None:
                scores = additive_score(s[:, None], encoded.H, a.W_q, a.W_k, a.w_v)
                A = masked_softmax(scores, encoded.mask)  # (b, 1, m)
                c = (A @ encoded.H)[:, 0]  # (b, 2d)
                weights.append(A)
            s = self.cell(torch.cat([y, c], -1), s)
            seen.append(torch.cat([s, c], -1))
        logits = self.output(torch.stack(seen, 1))
        return logits, torch.cat(weights, 1) if weights else None
