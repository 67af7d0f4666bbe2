"""A translator without recurrence: a stack of blocks reads all words at once, another writes and looks at them."""

from typing import NamedTuple

import torch
from torch import nn

from attn_tutor.torch.layers.block import Block
from attn_tutor.torch.layers.checks import require_sizes
from attn_tutor.torch.layers.multi_head import MultiHeadAttention
from attn_tutor.torch.layers.positional import PositionalEncoding
from attn_tutor.torch.masks import padding_mask
from attn_tutor.torch.models.encoder_decoder import EncoderDecoder

__all__ = ["TransformerTranslator"]


class TransformerTranslator(EncoderDecoder):
    """The translator of Vaswani et al. (2017), pre-norm and small; called as :class:`Translator` is.

    Args:
        n_words: number of words of the source; word 0 is the padding.
        n_symbols: number of symbols of the target; the last is the end, and also what the decoder begins with.
        d_model: width of the tokens; a multiple of ``n_heads``.
        n_heads: number of heads of each attention.
        n_layers: number of blocks that read, and of blocks that write.
        dropout: as in :class:`Block`.

    Example:
        >>> model = TransformerTranslator(5, 3, 8, n_heads=2, n_layers=1)
        >>> words, lengths = torch.tensor([[1, 4, 2], [3, 0, 0]]), torch.tensor([3, 1])
        >>> logits, weights = model(words, lengths, torch.tensor([[0, 1, 2], [1, 2, 2]]))
        >>> logits.shape, weights[1, 0].tolist()
        (torch.Size([2, 3, 3]), [1.0, 0.0, 0.0])
    """

    def __init__(
        self,
        n_words: int,
        n_symbols: int,
        d_model: int,
        n_heads: int,
        n_layers: int,
        *,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(n_symbols)
        require_sizes("TransformerTranslator", n_words=n_words, n_layers=n_layers)
        self.words = nn.Embedding(n_words, d_model)
        self.symbols = nn.Embedding(n_symbols, d_model)
        self.encoding = PositionalEncoding(d_model, dropout)
        layers = range(n_layers)
        self.readers = nn.ModuleList(
            Block(d_model, n_heads, dropout=dropout) for _ in layers
        )
        self.writers = nn.ModuleList(_Writer(d_model, n_heads, dropout) for _ in layers)
        self.norm_read, self.norm_write = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.head = nn.Linear(d_model, n_symbols)

    def encode(self, words: torch.Tensor, lengths: torch.Tensor) -> "Read":
        """Read the words, (b, m), of which ``lengths``, (b,), are no padding: all of them see each other."""
        words, lengths = self._checked(words, lengths, self.words.num_embeddings)
        mask = padding_mask(lengths, words.shape[1])  # (b, 1, m)
        X = self.encoding(self.words(words))
        for block in self.readers:
            X = block(X, mask)
        return Read(self.norm_read(X), mask)

    def decode(
        self, encoded: "Read", previous: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """All steps at once: the causal mask stands in for the loop. The weights are the mean over the last heads."""
        Y = self.encoding(self.symbols(previous))
        for block in self.writers:
            Y, weights = block(Y, encoded)
        return self.head(self.norm_write(Y)), weights.mean(1)


class Read(NamedTuple):
    """What the writers get to know of the words."""

    X: torch.Tensor  # (b, m, d_model)
    mask: torch.Tensor  # (b, 1, m)


class _Writer(nn.Module):
    """A causal block that, between its two halves, attends to the words: cross-attention."""

    def __init__(self, d_model: int, n_heads: int, dropout: float) -> None:
        super().__init__()
        self.block = Block(d_model, n_heads, causal=True, dropout=dropout)
        self.norm = nn.LayerNorm(d_model)
        self.cross = MultiHeadAttention(d_model, n_heads, dropout=dropout)

    def forward(self, Y: torch.Tensor, read: Read) -> tuple[torch.Tensor, torch.Tensor]:
        """(b, T, d_model) -> (b, T, d_model), and the weights of the cross-attention, (b, h, T, m)."""
        block, drop = self.block, self.block.drop
        Y = Y + drop(block.attend(block.norm_1(Y)))
        found, weights = self.cross(
            self.norm(Y), read.X, None, read.mask, need_weights=True
        )
        Y = Y + drop(found)
        Y = Y + drop(block.feed_forward(block.norm_2(Y)))
        return Y, weights.detach()  # to be looked at
