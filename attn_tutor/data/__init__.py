"""Small real data that comes with the package, and a task that it makes."""

from attn_tutor.data.cars import load_cars
from attn_tutor.data.numbers import (
    NumberPairs,
    decode_digits,
    encode_words,
    number_pairs,
    number_words,
)
from attn_tutor.data.reactions import Reaction, load_reactions
from attn_tutor.data.text import load_book
from attn_tutor.data.texts import Text, load_capitals, load_texts

__all__ = [
    "NumberPairs",
    "Reaction",
    "Text",
    "decode_digits",
    "encode_words",
    "load_book",
    "load_capitals",
    "load_cars",
    "load_reactions",
    "load_texts",
    "number_pairs",
    "number_words",
]
