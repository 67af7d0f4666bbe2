"""Dropout that depends on where a weight stands and not on who computes it."""

import torch


def growth(place: torch.Tensor, dropout_p: float, seed: int) -> torch.Tensor:
    """0 or 1/(1 − p) for each weight, by its number in the whole problem.

    A hash of the number takes the place of a draw. Source: the last lines of SplitMix64 (Steele, Lea & Flood, 2014);
    whole numbers of 64 bits overflow as they should.
    """
    x = place + (seed + 1) * 0x1E3779B97F4A7C15  # odd, so that seeds stay apart
    for shift, factor in ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15)):
        x = (x ^ _right(x, shift)) * factor
    chance = _right(x ^ _right(x, 31), 11) * 2.0**-53
    return (chance >= dropout_p) / (1 - dropout_p)


def _right(x: torch.Tensor, shift: int) -> torch.Tensor:
    """Shifted with zeros coming in from the left, where torch brings copies of the sign."""
    return (x >> shift) & ((1 << (64 - shift)) - 1)
