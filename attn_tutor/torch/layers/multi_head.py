"""Multi-head attention as a ``torch.nn`` module, to and from torch's own."""

from collections.abc import Callable, Iterator
from typing import Any, Self

import torch
from torch import nn

from attn_tutor._both.visibility import for_heads, read_mask
from attn_tutor._checks import (
    explain_foreign_names,
    require_chance,
    require_divisible,
)
from attn_tutor.rules import (
    Bias,
    MovedBias,
    MovedRule,
    Rule,
    Window,
)
from attn_tutor.torch._arrays import repeat_heads
from attn_tutor.torch._attention import attention, attention_weights
from attn_tutor.torch.cache import KVCache
from attn_tutor.torch.layers.checks import require_sizes, require_tokens
from attn_tutor.torch.layers.linear import Device, Dtype, draw, linear
from attn_tutor.torch.multi_head import merge_heads
from attn_tutor.torch.sinks import sink_attention

__all__ = ["MultiHeadAttention"]


class MultiHeadAttention(nn.Module):
    """:func:`multi_head_attention` with learnt projections ``q_proj``, ``k_proj``, ``v_proj`` and ``out_proj``.

    Three differences from ``torch.nn.MultiheadAttention`` bite: masks are True where a query **may** attend, the batch
    axis always comes first, and the output comes alone, so that no ``[0]`` follows the call. :meth:`from_torch` takes
    over the weights of such a layer, :meth:`to_torch` back.

    Args:
        d_model: width of queries and output.
        n_heads: number of heads; divides ``d_model`` unless ``d_h`` is given.
        kdim: width of where keys come from; None is ``d_model``.
        vdim: width of where values come from; None is ``d_model``.
        bias: learn biases too.
        dropout: chance to drop each weight while training.
        causal: forbid each query the keys after it.
        window: most keys that a query sees, its own and those just before it; needs ``causal``. :class:`Window` adds
            sinks. None sets no limit.
        n_kv_heads: number of heads of keys and values; None is ``n_heads``.
        d_h: width of a head; None is ``d_model / n_heads``, so that all heads together are as wide as the output.
        sink_logits: learn a score for each head that takes weight and gives nothing, as in :func:`sink_attention`. It
            starts at 0, and is no token, unlike the sinks of a :class:`Window`.
        device: of the parameters; None is torch's default.
        dtype: of the parameters; None is torch's default.

    Raises:
        ValueError: the heads do not divide ``d_model`` or one another.

    Example:
        >>> layer = MultiHeadAttention(8, n_heads=2, causal=True)
        >>> layer(torch.ones(3, 5, 8)).shape
        torch.Size([3, 5, 8])
    """

    @explain_foreign_names
    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        kdim: int | None = None,
        vdim: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        causal: bool = False,
        window: int | Window | None = None,
        n_kv_heads: int | None = None,
        d_h: int | None = None,
        sink_logits: bool = False,
        device: Device = None,
        dtype: Dtype = None,
    ) -> None:
        super().__init__()
        where = "MultiHeadAttention"
        kdim = d_model if kdim is None else kdim
        vdim = d_model if vdim is None else vdim
        n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
        heads = {"n_heads": n_heads, "n_kv_heads": n_kv_heads}
        require_sizes(where, d_model=d_model, kdim=kdim, vdim=vdim, **heads)
        if d_h is None:
            require_divisible(where, "d_model", d_model, "n_heads", n_heads)
            d_h = d_model // n_heads
        require_sizes(where, d_h=d_h)
        require_divisible(where, "n_heads", n_heads, "n_kv_heads", n_kv_heads)
        require_chance(where, "dropout", dropout)
        read_mask(where, 0, None, causal, window)  # raises where they do not fit
        self.d_model, self.kdim, self.vdim = d_model, kdim, vdim
        self.d_h, self.n_heads, self.n_kv_heads = d_h, n_heads, n_kv_heads
        self.dropout, self.causal, self.window = dropout, causal, window
        made: Any = {"bias": bias, "device": device, "dtype": dtype}
        self.q_proj = linear(d_model, n_heads * d_h, **made)
        self.k_proj = linear(kdim, n_kv_heads * d_h, **made)
        self.v_proj = linear(vdim, n_kv_heads * d_h, **made)
        self.out_proj = linear(n_heads * d_h, d_model, **made)
        empty = torch.empty(n_heads, device=device, dtype=dtype)
        self.sink_logits = nn.Parameter(empty) if sink_logits else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw so that variance is kept in both directions (Glorot & Bengio, 2010); biases and sink logits are 0."""
        draw(self.q_proj, self.k_proj, self.v_proj, self.out_proj)
        if self.sink_logits is not None:
            nn.init.zeros_(self.sink_logits)

    @explain_foreign_names
    def forward(
        self,
        Q: torch.Tensor,
        K: torch.Tensor | None = None,
        V: torch.Tensor | None = None,
        mask: torch.Tensor | Rule | None = None,
        *,
        bias: torch.Tensor | Bias | None = None,
        cache: KVCache | None = None,
        rotate: Callable[[torch.Tensor], torch.Tensor] | None = None,
        need_weights: bool = False,
    ) -> Any:
        """(…, n, d_model), (…, m, kdim), (…, m, vdim) -> (…, n, d_model); K is Q where None, and V is K.

        ``mask`` and ``bias`` are those of :func:`multi_head_attention`. With a cache, K and V hold the tokens that come
        after those that it has seen: of a memory that is all in the first call, and ``memory[..., :0, :]`` from then
        on. ``rotate`` is applied to queries and keys, (…, heads, tokens, d_h), as
        :func:`rotary` is. With ``need_weights`` the weights come too, (…, h, n, m), as they are before dropout.
        """
        Q, K, V = self._checked(Q, Q if K is None else K, V)
        queries = self._split(self.q_proj(Q))  # (…, h, n, d_h)
        keys = self._split(self.k_proj(K))  # (…, h_kv, m, d_h)
        values = self._split(self.v_proj(V))  # (…, h_kv, m, d_h)
        if rotate is not None:
            queries, keys = rotate(queries), rotate(keys)
        mask = for_heads("MultiHeadAttention", mask, queries, keys)
        keys, values, mask, window, bias = _with_cache(  # m grows
            cache, self.causal, queries, keys, values, mask, self.window, bias
        )
        heads = attention(
            queries, keys, values, mask, causal=self.causal, window=window, bias=bias,
            n_kv_heads=keys.shape[-3], dropout_p=self.dropout if self.training else 0.0,
        )  # (…, h, n, d_h)  # fmt: skip
        if self.sink_logits is not None:  # a sink takes part of the weights
            heads = heads * self._kept_by_keys(queries, keys, mask, window, bias)
        output = self.out_proj(merge_heads(heads))  # (…, n, d_model)
        if not need_weights:
            return output
        return output, self._weights(queries, keys, mask, window, bias)

    def _weights(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        mask: Any,
        window: Any,
        bias: Any,
    ) -> torch.Tensor:
        """The weights of each head, (…, h, n, m), of keys (…, h_kv, m, d_h)."""
        weights = attention_weights(
            queries, repeat_heads(keys, self.n_heads // self.n_kv_heads), mask,
            causal=self.causal, window=window, bias=bias,
        )  # fmt: skip
        if self.sink_logits is None:
            return weights
        return weights * self._kept_by_keys(queries, keys, mask, window, bias)

    def _kept_by_keys(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        mask: Any,
        window: Any,
        bias: Any,
    ) -> Any:
        """How much of each query's weights a sink leaves to the keys: what values of 1 would give, (…, h, n, 1)."""
        return sink_attention(
            queries, keys, torch.ones_like(keys[..., :1]), mask, sink_logits=self.sink_logits,
            causal=self.causal, window=window, bias=bias, n_kv_heads=keys.shape[-3],
        )  # fmt: skip

    def _checked(
        self, Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor | None
    ) -> list[torch.Tensor]:
        widths = {"Q": self.d_model, "K": self.kdim, "V": self.vdim}
        like = self.out_proj.weight
        V = K if V is None else V
        return require_tokens("MultiHeadAttention", widths, Q, K, V, like=like)

    def _split(self, X: torch.Tensor) -> torch.Tensor:
        """(…, n, heads·d_h) -> (…, heads, n, d_h); with fewer heads where processes share them."""
        return X.unflatten(-1, (-1, self.d_h)).swapaxes(-3, -2)

    def extra_repr(self) -> str:
        return (
            f"d_model={self.d_model}, n_heads={self.n_heads}, n_kv_heads={self.n_kv_heads}, "
            f"dropout={self.dropout}, causal={self.causal}, window={self.window}, "
            f"sink_logits={self.sink_logits is not None}"
        )

    @classmethod
    def from_torch(cls, layer: nn.MultiheadAttention, *, causal: bool = False) -> Self:
        """A layer with a copy of the weights of ``torch.nn.MultiheadAttention``, on its device and in its dtype.

        Raises:
            TypeError: the layer is something else.
            ValueError: it was made with ``add_bias_kv`` or ``add_zero_attn``, which this one has no place for.
        """
        if not isinstance(layer, nn.MultiheadAttention):
            raise TypeError(
                f"from_torch: needs a torch.nn.MultiheadAttention, got {type(layer).__name__}"
            )
        if layer.bias_k is not None or layer.add_zero_attn:
            raise ValueError(
                "from_torch: a layer with add_bias_kv or add_zero_attn attends to a key that no token gave"
            )
        mine = cls(
            layer.embed_dim,
            layer.num_heads,
            kdim=layer.kdim,
            vdim=layer.vdim,
            bias=layer.in_proj_bias is not None,
            dropout=layer.dropout,
            causal=causal,
            device=layer.out_proj.weight.device,
            dtype=layer.out_proj.weight.dtype,
        )
        with torch.no_grad():
            for parameter, theirs in _pairs(mine, layer):
                parameter.copy_(theirs)
        return mine.train(layer.training)

    def to_torch(self) -> nn.MultiheadAttention:
        """A ``torch.nn.MultiheadAttention`` (``batch_first=True``) with a copy of these weights.

        Causality and the window do not travel: there they are arguments of ``forward``.

        Raises:
            ValueError: heads share keys and values, learn sink logits or have a width of their own; torch's layer
                cannot.
        """
        if self.sink_logits is not None:
            raise ValueError("to_torch: torch's layer has no sink logits to learn")
        if self.n_kv_heads != self.n_heads:
            raise ValueError(
                f"to_torch: torch needs n_kv_heads = n_heads = {self.n_heads}, got {self.n_kv_heads}"
            )
        if self.n_heads * self.d_h != self.d_model:
            raise ValueError(
                f"to_torch: torch needs d_h = d_model / n_heads, got {self.d_h} for {self.d_model} / {self.n_heads}"
            )
        layer = nn.MultiheadAttention(
            self.d_model,
            self.n_heads,
            self.dropout,
            bias=self.q_proj.bias is not None,
            kdim=self.kdim,
            vdim=self.vdim,
            batch_first=True,
            device=self.out_proj.weight.device,
            dtype=self.out_proj.weight.dtype,
        )
        with torch.no_grad():
            for parameter, theirs in _pairs(self, layer):
                theirs.copy_(parameter)
        return layer.train(self.training)


def _with_cache(
    cache: KVCache | None,
    causal: bool,
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    *options: Any,
) -> tuple[Any, ...]:
    """All keys and values that the cache holds with the new ones, and mask, window and bias as they are beside them."""
    if cache is None:
        return keys, values, *options
    n, m = queries.shape[-2], keys.shape[-2]
    if not causal and m not in (0, n):  # of a memory, which comes once and whole
        if len(cache):
            raise ValueError(
                f"MultiHeadAttention: K brings {m} tokens for {n} queries, but the cache holds {len(cache)} already. "
                "A memory is given once: from the second call on K=memory[..., :0, :]"
            )
        if cache.window is not None:
            raise ValueError(
                f"MultiHeadAttention: the cache keeps {cache.window} tokens, the memory has {m}; KVCache() keeps all"
            )
    _require_all_keys(cache, m, mask=options[0], bias=options[2])
    keys, values = cache.append(keys, values)
    return keys, values, *_as_cached(cache, causal, *options)


def _require_all_keys(cache: KVCache, new: int, **arrays: Any) -> None:
    """Raise, before the cache grows, unless mask and bias span the keys that it keeps and the new ones."""
    held = len(cache)
    if cache.window is not None:
        held = min(held, cache.sinks + cache.window - 1)
    for name, X in arrays.items():
        if getattr(X, "ndim", 0) and X.shape[-1] not in (1, held + new):
            raise ValueError(
                f"MultiHeadAttention: {name} has {X.shape[-1]} keys, but the cache keeps {held} and {new} come; "
                f"a {name} spans them all and grows with each call"
            )


def _as_cached(
    cache: KVCache, causal: bool, mask: Any, window: Any, bias: Any
) -> tuple[Any, ...]:
    """Mask, window and bias of queries whose keys a cache holds, of which it may have dropped some."""
    gap = cache.n_seen - len(cache)
    mask, bias = (_at_true_places(x, gap, cache.sinks) for x in (mask, bias))
    if cache.window is None or not causal:
        return mask, window, bias
    sinks = window.sinks if isinstance(window, Window) else 0
    width = window.width if isinstance(window, Window) else window or cache.window
    if width > cache.window or sinks > cache.sinks:
        raise ValueError(
            f"MultiHeadAttention: a query sees {width} tokens and {sinks} sinks, but the cache keeps "
            f"{cache.window} and {cache.sinks}; make it with KVCache(window={width}, sinks={sinks})"
        )
    return mask, Window(width, cache.sinks), bias  # a cache lends its sinks


def _at_true_places(x: Any, gap: int, sinks: int) -> Any:
    """A rule or a bias of positions, once a cache has dropped ``gap`` tokens behind its sinks."""
    if gap and isinstance(x, Rule):
        return MovedRule(x, gap, sinks)
    if gap and isinstance(x, Bias):
        return MovedBias(x, gap, sinks)
    return x


def _pairs(
    ours: MultiHeadAttention, theirs: nn.MultiheadAttention
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Our parameters beside torch's, which packs the three projections in one matrix unless their widths differ."""
    if theirs.in_proj_weight is not None:
        weights = theirs.in_proj_weight.chunk(3)
    else:
        weights = theirs.q_proj_weight, theirs.k_proj_weight, theirs.v_proj_weight
    projections = ours.q_proj, ours.k_proj, ours.v_proj, ours.out_proj
    weights = (*weights, theirs.out_proj.weight)
    yield from zip((x.weight for x in projections), weights, strict=True)
    if theirs.in_proj_bias is not None:
        biases = (*theirs.in_proj_bias.chunk(3), theirs.out_proj.bias)
        yield from zip((x.bias for x in projections), biases, strict=True)
