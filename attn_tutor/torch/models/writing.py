"""What it takes to write on: beginnings, caches, and the choice of the next token."""

from collections.abc import Sequence
from typing import Any

import torch

from attn_tutor.rules import Window
from attn_tutor.torch._arrays import require_boolean, value_of
from attn_tutor.torch.cache import KVCache
from attn_tutor.torch.models.ids import require_ids
from attn_tutor.torch.models.places import real_tokens


def beginning(
    where: str, ids: Any, mask: Any, n_tokens: int
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Tokens, (…, n), and which of them are real; each text ends with one that is."""
    ids = require_ids(where, "ids", ids, n_tokens)
    if ids.ndim == 0 or not ids.shape[-1]:
        raise ValueError(f"{where}: ids holds no token; begin with at least one")
    if mask is not None:
        require_boolean(where, mask, ids.device)
        mask = real_tokens(where, mask, ids.shape)
        if value_of(torch.all, mask[..., -1], wait=True) is False:
            raise ValueError(f"{where}: a text ends with padding; pad it on the left")
    return ids, mask


def caches_for(window: int | Window | None, count: int) -> list[KVCache]:
    """Caches that keep what a window sees."""
    if isinstance(window, Window):
        return [KVCache(window=window.width, sinks=window.sinks) for _ in range(count)]
    return [KVCache(window=window) for _ in range(count)]


def one_for_each(
    where: str, caches: Sequence[KVCache] | None, count: int
) -> Sequence[KVCache | None]:
    """A cache for each block, or None for each.

    Raises:
        ValueError: there are others than blocks.
    """
    if caches is None:
        return [None] * count
    others = [type(x).__name__ for x in caches if not isinstance(x, KVCache)]
    if others:
        raise TypeError(
            f"{where}: caches holds a {others[0]}, not a KVCache; [KVCache() for _ in blocks] makes them"
        )
    if len({id(cache) for cache in caches}) != count:
        raise ValueError(
            f"{where}: {count} blocks need as many caches, each its own, got {len({*map(id, caches)})}"
        )
    return caches


def pick(
    logits: torch.Tensor, temperature: float, generator: torch.Generator | None
) -> torch.Tensor:
    """One token for each row of logits, (…, n_tokens) -> (…, 1)."""
    if not temperature >= 0:
        raise ValueError(f"generate: temperature must be 0 or more, got {temperature}")
    if temperature == 0:
        return logits.argmax(-1, keepdim=True)
    p = (logits.float() / temperature).softmax(-1)
    token = torch.multinomial(p.reshape(-1, p.shape[-1]), 1, generator=generator)
    return token.reshape(*logits.shape[:-1], 1)
