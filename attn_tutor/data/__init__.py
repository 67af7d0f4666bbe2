"""Small real data that comes with the package, and a task that it makes."""

from attn_tutor.data.cars import load_cars
from attn_tutor.data.numbers import (
    NumberPairs,
    decode_digits,
    encode_words,
    number_pairs,
    number_words,
)

__all__ = [
    "NumberPairs",
    "decode_digits",
    "encode_words",
    "load_cars",
    "number_pairs",
    "number_words",
]
