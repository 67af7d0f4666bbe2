"""Rotary rates of a checkpoint: its settings name the recipe that slows down the rates of the formula."""

import math
from collections.abc import Mapping
from typing import Any

from attn_tutor._checks import require_size

KINDS = "default", "linear", "dynamic", "llama3", "yarn", "longrope"


class Settings(dict[str, Any]):
    """Settings that say which one is missing."""

    def __missing__(self, key: str) -> Any:
        raise ValueError(
            f"rotary_rates: settings lack {key!r}; give all of config.json as a dict, or, where layers differ in "
            "their settings, those of one kind of layer"
        )


def rotary_rates(
    settings: Any, d: int, n: int | None = None
) -> tuple[list[float], float]:
    require_size("rotary_rates", "d", d, least=2)
    require_size("rotary_rates", "n", 0 if n is None else n)
    settings = _flat(settings)
    kind = settings.get("rope_type") or settings.get("type", "default")
    if kind not in KINDS:
        raise ValueError(
            f"rotary_rates: rope_type must be one of {KINDS}, got {kind!r}"
        )
    base, length = settings["rope_theta"], n or 0
    r = int(d * settings.get("partial_rotary_factor", 1.0))  # entries that turn
    rates = _powers(base, r)
    if kind == "default":
        return rates, 1.0
    if kind == "linear":
        return _slowed(rates, [0.0] * len(rates), settings["factor"]), 1.0
    if kind == "dynamic":
        L, s = settings["max_position_embeddings"], settings["factor"]
        growth = s * max(length, L) / L - s + 1
        # A lone pair has rate 1, whatever the base.
        return _powers(base * growth ** (r / max(r - 2, 1)), r), 1.0

    L = settings.get("original_max_position_embeddings")
    L = L or settings["max_position_embeddings"]
    s = settings.get("factor") or settings["max_position_embeddings"] / L
    factor = settings.get("attention_factor")
    if kind == "llama3":
        low, high = settings["low_freq_factor"], settings["high_freq_factor"]
        turns = [L * rate / (2 * math.pi) for rate in rates]
        return _slowed(rates, [_ramp(x, low, high) for x in turns], s), 1.0
    if kind == "yarn":
        kept = _kept_by_yarn(settings, L, r)
        return _slowed(rates, kept, s), factor or _factor_of_yarn(settings, s)
    name = "long_factor" if length > L else "short_factor"
    if len(settings[name]) != len(rates):
        raise ValueError(
            f"rotary_rates: {name} holds {len(settings[name])} numbers, but {len(rates)} pairs turn"
        )
    growth = 1 + math.log(s) / math.log(L) if s > 1 else 1.0
    pairs = zip(rates, settings[name], strict=True)
    return [rate / slower for rate, slower in pairs], factor or math.sqrt(growth)


def _flat(settings: Any) -> Settings:
    """What config.json and its part on rotary positions say, of which the part comes first but for one key."""
    if not isinstance(settings, Mapping):
        raise TypeError(
            f"rotary_rates: settings must be a dict, got {type(settings).__name__}; of a config, config.to_dict() "
            "makes one"
        )
    part = settings.get("rope_parameters") or settings.get("rope_scaling") or {}
    trained = "original_max_position_embeddings"
    both = {**settings, **part}
    both[trained] = settings.get(trained) or both.get(trained)
    return Settings({k: x for k, x in both.items() if x is not None})


def _powers(base: float, r: int) -> list[float]:
    return [float(base) ** (-i / r) for i in range(0, r, 2)]


def _slowed(rates: list[float], kept: list[float], s: float) -> list[float]:
    """The part of each rate that is kept, and the rest of it by s slower."""
    return [(k + (1 - k) / s) * rate for rate, k in zip(rates, kept, strict=True)]


def _ramp(x: float, low: float, high: float) -> float:
    """From 0 at ``low`` to 1 at ``high``."""
    return min(1.0, max(0.0, (x - low) / (high - low)))


def _kept_by_yarn(settings: Settings, L: float, r: int) -> list[float]:
    def pair(turns: float) -> float:
        """The pair, as a fraction, that turns so often within L positions."""
        of_base = math.log(L / (2 * math.pi * turns)) / math.log(settings["rope_theta"])
        return r / 2 * of_base

    first = pair(settings.get("beta_fast") or 32)
    last = pair(settings.get("beta_slow") or 1)
    if settings.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, r - 1)
    last += 0.001 * (first == last)
    return [1 - _ramp(i, first, last) for i in range((r + 1) // 2)]


def _factor_of_yarn(settings: Settings, s: float) -> float:
    def sharper(by: float) -> float:
        return 0.1 * by * math.log(s) + 1 if s > 1 else 1.0

    mscale, all_dim = (settings.get(x) for x in ("mscale", "mscale_all_dim"))
    return sharper(mscale) / sharper(all_dim) if mscale and all_dim else sharper(1)
