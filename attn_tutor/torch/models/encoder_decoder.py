"""What the two translators share: one part reads, one writes symbol by symbol, and a search looks for the likeliest."""

from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from attn_tutor._checks import require_size
from attn_tutor.torch._arrays import require_array
from attn_tutor.torch.decoding import beam_search
from attn_tutor.torch.models.ids import require_ids
from attn_tutor.torch.models.modes import in_evaluation

__all__ = ["EncoderDecoder", "translation_loss"]


class EncoderDecoder(nn.Module):
    """A translator of two parts: ``encode`` reads the words, ``decode`` writes symbols from what it read.

    :class:`Translator` and :class:`TransformerTranslator` say what the two parts are.

    Args:
        n_symbols: number of symbols of the target; the last is the end, and also what the decoder begins with.

    Example:
        >>> from attn_tutor.torch import Translator
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
            lengths: number of words, (b,), from 1 to m.
            target: symbols, (b, T).

        Returns:
            Logits, (b, T, n_symbols), and the weight of each word in each step, (b, T, m), or None without attention.
        """
        target = require_ids(type(self).__name__, "target", target, self.end + 1)
        previous = torch.cat([self.begin(target), target[:, :-1]], 1)
        return self.decode(self.encode(words, lengths), previous)

    @torch.no_grad()
    @in_evaluation
    def translate(
        self,
        words: torch.Tensor,
        lengths: torch.Tensor,
        max_len: int,
        beam_width: int = 1,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The likeliest targets that :func:`beam_search` finds, (b, beam_width, T), and their log-probabilities.

        Nothing is dropped, in training mode neither.
        """
        step = partial(self.next_log_probs, self.encode(words, lengths))
        return beam_search(step, self.begin(words), self.end, max_len, beam_width)

    def next_log_probs(self, encoded: Any, tokens: torch.Tensor) -> torch.Tensor:
        """Of the next symbol, (b, k, n_symbols), after each of k beginnings for each sentence, (b, k, t)."""
        b, k, _ = tokens.shape
        each = type(encoded)(*(x.repeat_interleave(k, 0) for x in encoded))
        logits, _ = self.decode(each, tokens.flatten(0, 1))
        return logits[:, -1].log_softmax(-1).unflatten(0, (b, k))

    def begin(self, rows: torch.Tensor) -> torch.Tensor:
        """What stands before the first symbol of each row: the end, (b, 1)."""
        return torch.full_like(rows[:, :1], self.end, dtype=torch.long)

    def _checked(
        self, words: torch.Tensor, lengths: torch.Tensor, n_words: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        where = type(self).__name__
        words = require_ids(where, "words", words, n_words)
        require_array(where, "lengths", lengths)
        if words.ndim != 2 or lengths.shape != words.shape[:1]:
            raise ValueError(
                f"{where}: needs words (b, m) and lengths (b,), got {tuple(words.shape)} and {tuple(lengths.shape)}"
            )
        return words, require_ids(where, "lengths", lengths, words.shape[1] + 1, 1)


def translation_loss(
    model: EncoderDecoder, pairs: tuple[torch.Tensor, torch.Tensor, torch.Tensor]
) -> torch.Tensor:
    """Mean cross-entropy of the symbols of the targets, each up to its first end.

    Args:
        model: a :class:`Translator` or a :class:`TransformerTranslator`.
        pairs: ids of the words, (b, m), their number, (b,), and targets, (b, T).

    Example:
        >>> from attn_tutor.torch import Translator
        >>> model = Translator(5, 3, 8)
        >>> pairs = torch.tensor([[1, 4]]), torch.tensor([2]), torch.tensor([[0, 2, 2]])
        >>> bool(translation_loss(model, pairs) > 0)
        True
    """
    logits, _ = model(*pairs)
    target = pairs[2].long()
    counts = (target == model.end).cumsum(1) <= 1  # the first end, not the padding
    return cross_entropy(logits[counts], target[counts])
