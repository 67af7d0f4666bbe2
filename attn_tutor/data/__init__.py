"""Small real data that comes with the package."""

from attn_tutor.data.cars import load_cars

__all__ = ["load_cars"]
