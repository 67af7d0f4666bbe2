"""What a layer is made with and what it gets, checked once."""

from typing import Any

import torch

from attn_tutor._checks import (
    broadcast,
    require_divisible,
    require_pairs,
    require_positive,
    require_size,
)
from attn_tutor.torch._arrays import prepare, require_array


def require_tokens(
    where: str, widths: dict[str, int], *arrays: Any, like: Any = None
) -> list[torch.Tensor]:
    """The arrays, each (…, tokens, its width), with whole numbers made real; keys and values are as many.

    Args:
        where: the layer, for the message.
        widths: the name and the width of each array: one of tokens, or queries, keys and values.
        arrays: what was given.
        like: a weight of the layer, whose dtype and device they need.
    """
    for (name, width), X in zip(widths.items(), arrays, strict=True):
        require_array(where, name, X)
        if X.ndim < 2 or X.shape[-1] != width:
            raise ValueError(
                f"{where}: {name} has shape {tuple(X.shape)} but needs (…, n, {width})"
            )
    _, *keyed = arrays
    if keyed and keyed[0].shape[-2] != keyed[-1].shape[-2]:
        raise ValueError(
            f"{where}: K holds {keyed[0].shape[-2]} keys but V {keyed[-1].shape[-2]} values"
        )
    if broadcast(*(X.shape[:-2] for X in arrays)) is None:
        shapes = ", ".join(str(tuple(X.shape)) for X in arrays)
        raise ValueError(f"{where}: batch axes do not broadcast: {shapes}")
    named = dict(zip(widths, arrays, strict=True))
    ready = prepare(where, named)
    name, X = next(iter(ready.items()))
    if like is not None and like.device != X.device:
        raise ValueError(
            f"{where}: {name} is on {X.device} but the layer is on {like.device}; move one: layer.to({name}.device)"
        )
    other = like is not None and like.dtype != X.dtype
    if other and not torch.is_autocast_enabled(X.device.type):
        raise TypeError(
            f"{where}: {name} is {X.dtype} but the layer is {like.dtype}; cast one: {name}.to({like.dtype})"
        )
    return list(ready.values())


def require_sizes(where: str, **sizes: int) -> None:
    """Raise unless each is a whole number above 0."""
    for name, size in sizes.items():
        require_size(where, name, size, least=1)


def require_kind(where: str, positions: Any, causal: bool, rates: Any) -> None:
    """Raise unless a block knows such positions."""
    if positions not in ("rotary", "alibi", None):
        raise ValueError(
            f"{where}: positions must be 'rotary', 'alibi' or None, got {positions!r}"
        )
    if positions == "alibi" and not causal:
        raise ValueError(
            f"{where}: 'alibi' needs causal=True; without it the two sides of a token look alike"
        )
    if positions != "rotary" and rates is not None:
        raise ValueError(f"{where}: rates are for positions='rotary'")


def require_rotary(
    where: str, d_model: int, n_heads: int, base: float, rates: Any, factor: float
) -> None:
    """Raise unless :func:`rotary` can turn heads of this width."""
    require_positive(where, "base", base)
    require_positive(where, "factor", factor)
    if rates is None:
        require_divisible(where, "d_model", d_model, "2·n_heads", 2 * n_heads)
    else:
        require_array(where, "rates", rates)
        require_pairs(where, rates.shape, d_model // n_heads)
