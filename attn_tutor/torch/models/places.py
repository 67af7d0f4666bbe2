"""Where tokens stand in their own text: padding does not count, and each document begins at 0."""

import functools
from typing import Any

import torch

from attn_tutor._checks import broadcast, require_positions
from attn_tutor.rules import Both, Documents, Rule
from attn_tutor.torch._arrays import require_array, require_boolean, value_of
from attn_tutor.torch.cache import KVCache


def read_places(
    where: str,
    ids: torch.Tensor,
    mask: Any,
    cache: KVCache | None,
    positions: Any,
    kind: str | None,
    window: Any = None,
) -> tuple[Any, torch.Tensor | None]:
    """The mask as blocks take it, and the positions of ``ids``, (…, n); None is where they stand.

    Args:
        where: the function, for messages.
        ids: the new tokens, (…, n).
        mask: over all m tokens, those that the cache has seen and the new ones.
        cache: that of the first block.
        positions: numbers that the caller gives, or None.
        kind: how the model uses positions.
        window: that of the blocks, whose sinks must be real tokens.
    """
    n, batch = ids.shape[-1], ids.shape[:-1]
    m = n if cache is None else cache.n_seen + n
    if positions is not None:
        if kind not in ("sinusoidal", "rotary"):
            raise ValueError(
                f"{where}: positions are for 'sinusoidal' and 'rotary'; this model was made with {kind!r}"
            )
        require_array(where, "positions", positions)
        require_positions(where, positions.shape, ids.shape)
        if positions.ndim > ids.ndim:
            raise ValueError(
                f"{where}: positions have shape {tuple(positions.shape)} but must broadcast to {tuple(ids.shape)}"
            )
        positions = positions.expand(ids.shape)
    if isinstance(mask, Rule):
        if positions is None:
            positions = _within_documents(where, mask, ids.device, m, n)
        if cache is not None and cache.window is not None:
            # As a function of positions alone it holds for tokens that are dropped.
            mask = Rule(mask.map(functools.partial(_for_heads, ids.device)).pairs)
    elif mask is not None:
        require_boolean(where, mask, ids.device)
        if mask.ndim <= ids.ndim:  # one for each token
            mask = real_tokens(where, mask, (*batch, m))
            require_real_sinks(where, mask, getattr(window, "sinks", 0))
            if positions is None:
                positions = (mask.cumsum(-1) - 1).clamp(min=0)[..., -n:]
            mask = mask[..., None, :]  # the same for all queries, and in all heads
            mask = mask if len(batch) < 2 else mask[..., None, :]
        mask = _held(mask, cache, m, n)
    return mask, positions


def real_tokens(where: str, mask: Any, shape: tuple[int, ...]) -> torch.Tensor:
    """A mask with one boolean for each token, (…, m)."""
    if torch.compiler.is_compiling():  # to compare sizes ties the graph to them
        return mask.expand(shape)
    if mask.shape[-1:] != shape[-1:] or broadcast(mask.shape, shape) != shape:
        raise ValueError(
            f"{where}: mask has shape {tuple(mask.shape)} but needs {tuple(shape)}, True where a token is real; "
            "those in the caches count, too"
        )
    return mask.expand(shape)


def require_real_sinks(where: str, mask: torch.Tensor, sinks: int) -> None:
    """Raise if padding is where a window's sinks are, (…, m); not where nobody can look."""

    def missing(mask: torch.Tensor) -> torch.Tensor:
        return (mask[..., :sinks].sum(-1) < mask.sum(-1).clamp(max=sinks)).any()

    if sinks and value_of(missing, mask, wait=True):
        raise ValueError(
            f"{where}: the window's sinks are the first {sinks} tokens of a row, and some are padding; "
            "pad on the right, or call once for each text"
        )


def _held(mask: torch.Tensor, cache: KVCache | None, m: int, n: int) -> torch.Tensor:
    """The columns of the tokens that a cache still holds once the new ones come."""
    if cache is None or cache.window is None:
        return mask
    old = min(len(cache), cache.sinks + cache.window - 1) - cache.sinks
    late = m - n - max(old, 0)
    if late <= cache.sinks:
        return mask
    return torch.cat([mask[..., : cache.sinks], mask[..., late:]], -1)


def _within_documents(
    where: str, rule: Rule, device: torch.device, m: int, n: int
) -> torch.Tensor | None:
    """How many tokens of its document stand before each; None where a rule knows no documents."""
    numbers = [ids.to(device) for ids in _documents(rule)]
    if not numbers:
        return None
    ids = functools.reduce(_pairs, numbers)
    if ids.shape[-1] != m:
        raise ValueError(
            f"{where}: documents numbers {ids.shape[-1]} tokens, but there are {m}, with those in the caches"
        )
    order = torch.argsort(ids, dim=-1, stable=True)
    ids = ids.gather(-1, order)
    begins = torch.ones_like(ids, dtype=torch.bool)
    begins[..., 1:] = ids[..., 1:] != ids[..., :-1]
    place = torch.arange(m, device=device).expand(ids.shape)
    count = place - (place * begins).cummax(-1).values
    return torch.empty_like(count).scatter(-1, order, count)[..., -n:]


def _documents(rule: Rule) -> list[torch.Tensor]:
    """The numbers of documents in a rule and in all that is joined to it by &."""
    if isinstance(rule, Both):
        return _documents(rule.a) + _documents(rule.b)
    return [rule.ids] if isinstance(rule, Documents) else []


def _pairs(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """One number for each pair of numbers."""
    b = b - b.amin()
    return a * (b.amax() + 1) + b


def _for_heads(device: torch.device, X: torch.Tensor, own: int) -> torch.Tensor:
    """An array of a rule, with an axis for the heads where it has one for sequences."""
    X = X.to(device)
    return X.unsqueeze(X.ndim - own) if X.ndim > own else X
