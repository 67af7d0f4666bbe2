"""Attention as ``torch.nn`` modules: they hold the learnt projections, and the core of the functions computes."""

from collections.abc import Iterator
from typing import Any, Self

import torch
from torch import nn
from torch.nn.utils import skip_init

from attn_tutor._checks import (
    require_chance,
    require_divisible,
    require_size,
    require_window,
)
from attn_tutor.torch.additive_op import tiled_additive
from attn_tutor.torch.attention import bilinear_attention, pool, weigh
from attn_tutor.torch.layers.tokens import require_tokens
from attn_tutor.torch.multi_head import merge_heads, pool_heads
from attn_tutor.torch.softmax import masked_softmax
from attn_tutor.torch.visibility import Visibility, finish, hide

__all__ = [
    "AdditiveAttention",
    "BilinearAttention",
    "MultiHeadAttention",
    "SelfAttention",
]

Device = torch.device | str | int | None
Dtype = torch.dtype | None


class BilinearAttention(nn.Module):
    """:func:`bilinear_attention` with a learnt matrix ``M``.

    Args:
        d_q: width of the queries.
        d_k: width of the keys.
        device: of the parameters; None is torch's default.
        dtype: of the parameters; None is torch's default.

    Example:
        >>> pool = BilinearAttention(2, 3)
        >>> pool(torch.ones(4, 2), torch.ones(5, 3), torch.ones(5, 1)).shape
        torch.Size([4, 1])
    """

    def __init__(
        self, d_q: int, d_k: int, *, device: Device = None, dtype: Dtype = None
    ) -> None:
        super().__init__()
        _require_sizes("BilinearAttention", d_q=d_q, d_k=d_k)
        self.M = nn.Parameter(torch.empty(d_q, d_k, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw ``M`` so that variance is kept in both directions (Glorot & Bengio, 2010)."""
        nn.init.xavier_uniform_(self.M)

    def forward(
        self,
        Q: torch.Tensor,
        K: torch.Tensor,
        V: torch.Tensor,
        mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """(…, n, d_q), (…, m, d_k), (…, m, d_v) -> (…, n, d_v)."""
        return bilinear_attention(Q, K, V, self.M, mask)

    def extra_repr(self) -> str:
        return f"d_q={self.M.shape[0]}, d_k={self.M.shape[1]}"


class AdditiveAttention(nn.Module):
    """:func:`additive_attention` with learnt projections ``q_proj`` and ``k_proj`` and a learnt ``w_v``.

    Without a bias the score is odd, S(−q, −k) = −S(q, k); append a constant 1 to each query for one.

    Args:
        d_q: width of the queries.
        d_k: width of the keys.
        d_hidden: width of the hidden layer.
        device: of the parameters; None is torch's default.
        dtype: of the parameters; None is torch's default.

    Example:
        >>> pool = AdditiveAttention(2, 3, 8)
        >>> pool(torch.ones(4, 2), torch.ones(5, 3), torch.ones(5, 1)).shape
        torch.Size([4, 1])
    """

    def __init__(
        self,
        d_q: int,
        d_k: int,
        d_hidden: int,
        *,
        device: Device = None,
        dtype: Dtype = None,
    ) -> None:
        super().__init__()
        _require_sizes("AdditiveAttention", d_q=d_q, d_k=d_k, d_hidden=d_hidden)
        made: Any = {"device": device, "dtype": dtype}
        self.q_proj = _linear(d_q, d_hidden, bias=False, **made)
        self.k_proj = _linear(d_k, d_hidden, bias=False, **made)
        self.w_v = nn.Parameter(torch.empty(d_hidden, **made))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw so that variance is kept in both directions (Glorot & Bengio, 2010)."""
        _draw(self.q_proj, self.k_proj)
        nn.init.xavier_uniform_(self.w_v[:, None])

    def forward(
        self,
        Q: torch.Tensor,
        K: torch.Tensor,
        V: torch.Tensor,
        mask: torch.Tensor | None = None,
        *,
        need_weights: bool = False,
    ) -> Any:
        """(…, n, d_q), (…, m, d_k), (…, m, d_v) -> (…, n, d_v), and with ``need_weights`` the weights, (…, n, m)."""
        where = "AdditiveAttention"
        widths = self.q_proj.in_features, self.k_proj.in_features, V.shape[-1]
        Q, K, V = require_tokens(where, dict(zip("QKV", widths, strict=True)), Q, K, V)
        see = Visibility.of(where, Q, K, V, mask=mask)
        Q, K, V, spoiled = hide(see, Q, K, V)
        queries, keys = self.q_proj(Q), self.k_proj(K)
        if not need_weights:
            output = tiled_additive(queries, keys, self.w_v, V, see.dense())
            return finish(output, see, spoiled)
        hidden = torch.tanh(queries[..., :, None, :] + keys[..., None, :, :])
        weights = masked_softmax(hidden @ self.w_v, see.dense())  # (…, n, m)
        return finish(weights @ V, see, spoiled), finish(weights, see, spoiled)


class SelfAttention(nn.Module):
    """:func:`self_attention` with learnt projections ``q_proj``, ``k_proj`` and ``v_proj``.

    Args:
        d_in: width of the tokens.
        d_k: width of queries and keys.
        d_v: width of the values; None is ``d_k``.
        causal: forbid each token the tokens after it.
        device: of the parameters; None is torch's default.
        dtype: of the parameters; None is torch's default.

    Example:
        >>> layer = SelfAttention(4, 3, causal=True)
        >>> layer(torch.ones(5, 4)).shape
        torch.Size([5, 3])
    """

    def __init__(
        self,
        d_in: int,
        d_k: int,
        d_v: int | None = None,
        *,
        causal: bool = False,
        device: Device = None,
        dtype: Dtype = None,
    ) -> None:
        super().__init__()
        d_v = d_k if d_v is None else d_v
        _require_sizes("SelfAttention", d_in=d_in, d_k=d_k, d_v=d_v)
        made: Any = {"bias": False, "device": device, "dtype": dtype}
        self.q_proj = _linear(d_in, d_k, **made)
        self.k_proj = _linear(d_in, d_k, **made)
        self.v_proj = _linear(d_in, d_v, **made)
        self.causal = causal
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw so that variance is kept in both directions (Glorot & Bengio, 2010)."""
        _draw(self.q_proj, self.k_proj, self.v_proj)

    def forward(
        self,
        X: torch.Tensor,
        mask: torch.Tensor | None = None,
        *,
        need_weights: bool = False,
    ) -> Any:
        """(…, n, d_in) -> (…, n, d_v), and with ``need_weights`` the weights, (…, n, n)."""
        (X,) = require_tokens("SelfAttention", {"X": self.q_proj.in_features}, X)
        see = Visibility.of("SelfAttention", X, X, mask=mask, causal=self.causal)
        X, Y, spoiled = hide(see, X, X)
        Q, K, V = self.q_proj(X), self.k_proj(Y), self.v_proj(Y)
        output = finish(pool(Q, K, V, see), see, spoiled)
        if not need_weights:
            return output
        return output, finish(weigh(Q, K, see, None, None), see, spoiled)

    def extra_repr(self) -> str:
        return f"causal={self.causal}"


class MultiHeadAttention(nn.Module):
    """:func:`multi_head_attention` with learnt projections ``q_proj``, ``k_proj``, ``v_proj`` and ``out_proj``.

    Two differences from ``torch.nn.MultiheadAttention`` bite: masks are True where a query **may** attend, and the
    batch axis always comes first.

    Args:
        d_model: width of queries and output, and of all heads together.
        n_heads: number of heads; divides ``d_model``.
        kdim: width of where keys come from; None is ``d_model``.
        vdim: width of where values come from; None is ``d_model``.
        bias: learn biases too.
        dropout: chance to drop each weight while training.
        causal: forbid each query the keys after it.
        window: how many keys each query sees at most, its own and those just before it; needs ``causal``.
        n_kv_heads: number of heads of keys and values; None is ``n_heads``.
        device: of the parameters; None is torch's default.
        dtype: of the parameters; None is torch's default.

    Raises:
        ValueError: the heads do not divide ``d_model`` or one another.

    Example:
        >>> layer = MultiHeadAttention(8, n_heads=2, causal=True)
        >>> layer(torch.ones(3, 5, 8)).shape
        torch.Size([3, 5, 8])
    """

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
        window: int | None = None,
        n_kv_heads: int | None = None,
        device: Device = None,
        dtype: Dtype = None,
    ) -> None:
        super().__init__()
        where = "MultiHeadAttention"
        kdim = d_model if kdim is None else kdim
        vdim = d_model if vdim is None else vdim
        n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
        heads = {"n_heads": n_heads, "n_kv_heads": n_kv_heads}
        _require_sizes(where, d_model=d_model, kdim=kdim, vdim=vdim, **heads)
        require_divisible(where, "d_model", d_model, "n_heads", n_heads)
        require_divisible(where, "n_heads", n_heads, "n_kv_heads", n_kv_heads)
        require_chance(where, "dropout", dropout)
        require_window(where, window, causal)
        self.d_model, self.d_h = d_model, d_model // n_heads
        self.n_heads, self.n_kv_heads = n_heads, n_kv_heads
        self.dropout, self.causal, self.window = dropout, causal, window
        made: Any = {"bias": bias, "device": device, "dtype": dtype}
        self.q_proj = _linear(d_model, d_model, **made)
        self.k_proj = _linear(kdim, n_kv_heads * self.d_h, **made)
        self.v_proj = _linear(vdim, n_kv_heads * self.d_h, **made)
        self.out_proj = _linear(d_model, d_model, **made)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw so that variance is kept in both directions (Glorot & Bengio, 2010); biases are 0."""
        _draw(self.q_proj, self.k_proj, self.v_proj, self.out_proj)

    def forward(
        self,
        Q: torch.Tensor,
        K: torch.Tensor | None = None,
        V: torch.Tensor | None = None,
        mask: torch.Tensor | None = None,
        *,
        need_weights: bool = False,
    ) -> Any:
        """(…, n, d_model), (…, m, kdim), (…, m, vdim) -> (…, n, d_model); K is Q where None, and V is K.

        ``mask`` is that of :func:`multi_head_attention`. With ``need_weights`` the weights come too, (…, h, n, m),
        as they are before dropout.
        """
        K = Q if K is None else K
        V = K if V is None else V
        where, h = "MultiHeadAttention", self.n_heads
        projections = {"Q": self.q_proj, "K": self.k_proj, "V": self.v_proj}
        widths = {name: proj.in_features for name, proj in projections.items()}
        Q, K, V = require_tokens(where, widths, Q, K, V)
        options: Any = {"causal": self.causal, "window": self.window, "n_heads": h}
        see = Visibility.of(where, Q, K, V, mask=mask, **options)
        if not need_weights:
            see, K, V = see.trim(K, V)
        Q, K, V, spoiled = hide(see.over_heads(), Q, K, V)
        projected = self.q_proj(Q), self.k_proj(K), self.v_proj(V)
        return self.pool(*projected, see, spoiled, need_weights=need_weights)

    def pool(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        see: Visibility,
        spoiled: torch.Tensor | None = None,
        *,
        bias: torch.Tensor | None = None,
        need_weights: bool = False,
    ) -> Any:
        """What comes after the projections: split into heads, attend in each, put them side by side, project back.

        :class:`Block` enters here, with queries and keys that know their positions.
        """
        # As many heads as were projected: where a layer is spread over devices, each has some of them.
        queries, keys, values = (
            X.unflatten(-1, (-1, self.d_h)).swapaxes(-3, -2)  # (…, heads, rows, d_h)
            for X in (queries, keys, values)
        )
        dropout_p = self.dropout if self.training else 0.0
        heads = pool_heads(queries, keys, values, see, bias=bias, dropout_p=dropout_p)
        output = self.out_proj(finish(merge_heads(heads), None, spoiled))
        if not need_weights:
            return output
        keys = keys.repeat_interleave(self.n_heads // self.n_kv_heads, -3)
        weights = weigh(queries, keys, see, None, bias)  # (…, h, n, m)
        if spoiled is not None:
            spoiled = spoiled[..., None, :, :]
        return output, finish(weights, see, spoiled)

    def extra_repr(self) -> str:
        return (
            f"d_model={self.d_model}, n_heads={self.n_heads}, n_kv_heads={self.n_kv_heads}, "
            f"dropout={self.dropout}, causal={self.causal}, window={self.window}"
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
            ValueError: heads share keys and values; torch's layer cannot.
        """
        if self.n_kv_heads != self.n_heads:
            raise ValueError(
                f"to_torch: torch needs n_kv_heads = n_heads = {self.n_heads}, got {self.n_kv_heads}"
            )
        layer = nn.MultiheadAttention(
            self.d_model,
            self.n_heads,
            self.dropout,
            bias=self.q_proj.bias is not None,
            kdim=self.k_proj.in_features,
            vdim=self.v_proj.in_features,
            batch_first=True,
            device=self.out_proj.weight.device,
            dtype=self.out_proj.weight.dtype,
        )
        with torch.no_grad():
            for parameter, theirs in _pairs(self, layer):
                theirs.copy_(parameter)
        return layer.train(self.training)


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


def _linear(
    d_in: int, d_out: int, *, bias: bool, device: Device, dtype: Dtype
) -> nn.Linear:
    """A linear layer with no numbers yet: :func:`_draw` draws them."""
    device = torch.get_default_device() if device is None else device
    return skip_init(nn.Linear, d_in, d_out, bias=bias, device=device, dtype=dtype)


@torch.no_grad()
def _draw(*layers: nn.Linear) -> None:
    """Keep variance in both directions (Glorot & Bengio, 2010); biases are 0."""
    for layer in layers:
        # Row by row of the matrix that tokens are multiplied with; torch stores it the other way round.
        W = layer.weight.new_empty(layer.in_features, layer.out_features)
        layer.weight.copy_(nn.init.xavier_uniform_(W).mT)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)


def _require_sizes(where: str, **sizes: int) -> None:
    for name, size in sizes.items():
        require_size(where, name, size, least=1)
