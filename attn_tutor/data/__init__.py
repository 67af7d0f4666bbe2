"""Small real data that comes with the package."""

from attn_tutor.data.cars import load_cars
from attn_tutor.data.text import load_book

__all__ = ["load_book", "load_cars"]
