"""The functions of this half as ``torch.nn`` modules: they hold the learnt matrices, and compute nothing themselves."""

from typing import Any, Self

import torch
from torch import nn

from attn_tutor._checks import require_chance, require_divisible, require_size
from attn_tutor.torch._arrays import require_array
from attn_tutor.torch.attention import additive_attention, bilinear_attention
from attn_tutor.torch.multi_head import multi_head_attention
from attn_tutor.torch.positional import sinusoidal_encoding
from attn_tutor.torch.self_attention import self_attention

__all__ = [
    "AdditiveAttention",
    "BilinearAttention",
    "MultiHeadAttention",
    "PositionalEncoding",
    "SelfAttention",
]


class BilinearAttention(nn.Module):
    """:func:`bilinear_attention` with a learnt matrix ``M``.

    Args:
        d_q: width of the queries.
        d_k: width of the keys.

    Example:
        >>> pool = BilinearAttention(2, 3)
        >>> pool(torch.ones(4, 2), torch.ones(5, 3), torch.ones(5, 1)).shape
        torch.Size([4, 1])
    """

    def __init__(self, d_q: int, d_k: int) -> None:
        super().__init__()
        self.M = _matrix("BilinearAttention", d_q=d_q, d_k=d_k)

    def forward(
        self,
        Q: torch.Tensor,
        K: torch.Tensor,
        V: torch.Tensor,
        mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """(…, n, d_q), (…, m, d_k), (…, m, d_v) -> (…, n, d_v)."""
        return bilinear_attention(Q, K, V, self.M, mask)


class AdditiveAttention(nn.Module):
    """:func:`additive_attention` with learnt ``W_q``, ``W_k`` and ``w_v``.

    Without a bias the score is odd, S(−q, −k) = −S(q, k); append a constant 1 to each query for one.

    Args:
        d_q: width of the queries.
        d_k: width of the keys.
        d_hidden: width of the hidden layer.

    Example:
        >>> pool = AdditiveAttention(2, 3, 8)
        >>> pool(torch.ones(4, 2), torch.ones(5, 3), torch.ones(5, 1)).shape
        torch.Size([4, 1])
    """

    def __init__(self, d_q: int, d_k: int, d_hidden: int) -> None:
        super().__init__()
        where = "AdditiveAttention"
        self.W_q = _matrix(where, d_q=d_q, d_hidden=d_hidden)
        self.W_k = _matrix(where, d_k=d_k, d_hidden=d_hidden)
        self.w_v = nn.Parameter(
            _matrix(where, d_hidden=d_hidden, d_score=1).detach()[:, 0]
        )

    def forward(
        self,
        Q: torch.Tensor,
        K: torch.Tensor,
        V: torch.Tensor,
        mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """(…, n, d_q), (…, m, d_k), (…, m, d_v) -> (…, n, d_v)."""
        return additive_attention(Q, K, V, self.W_q, self.W_k, self.w_v, mask)


class SelfAttention(nn.Module):
    """:func:`self_attention` with learnt ``W_q``, ``W_k`` and ``W_v``.

    Args:
        d_in: width of the tokens.
        d_k: width of queries and keys.
        d_v: width of the values; None is ``d_k``.
        causal: forbid each token the tokens after it.

    Example:
        >>> layer = SelfAttention(4, 3, causal=True)
        >>> layer(torch.ones(5, 4)).shape
        torch.Size([5, 3])
    """

    def __init__(
        self, d_in: int, d_k: int, d_v: int | None = None, *, causal: bool = False
    ) -> None:
        super().__init__()
        where = "SelfAttention"
        self.W_q = _matrix(where, d_in=d_in, d_k=d_k)
        self.W_k = _matrix(where, d_in=d_in, d_k=d_k)
        self.W_v = _matrix(where, d_in=d_in, d_v=d_k if d_v is None else d_v)
        self.causal = causal

    def forward(
        self, X: torch.Tensor, mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        """(…, n, d_in) -> (…, n, d_v)."""
        return self_attention(X, self.W_q, self.W_k, self.W_v, mask, causal=self.causal)


class MultiHeadAttention(nn.Module):
    """:func:`multi_head_attention` with learnt projections and biases.

    Two differences from ``torch.nn.MultiheadAttention`` bite: masks are True where a query **may** attend, and the
    batch axis always comes first. A mask for each sequence needs an axis for the heads: ``mask[..., None, :, :]``.

    Args:
        d_model: width of the output, and of all heads together.
        n_heads: number of heads; divides ``d_model``.
        d_q: width of where queries come from; None is ``d_model``. Likewise ``d_k`` for keys and ``d_v`` for values.
        d_k: see ``d_q``.
        d_v: see ``d_q``.
        bias: learn biases too.
        dropout: chance to drop each weight while training.
        causal: forbid each query the keys after it.
        n_kv_heads: number of heads of keys and values; None is ``n_heads``.

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
        d_q: int | None = None,
        d_k: int | None = None,
        d_v: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        causal: bool = False,
        n_kv_heads: int | None = None,
    ) -> None:
        super().__init__()
        n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
        where = "MultiHeadAttention"
        for name, size in (
            ("d_model", d_model),
            ("n_heads", n_heads),
            ("n_kv_heads", n_kv_heads),
        ):
            require_size(where, name, size, least=1)
        require_divisible(where, "d_model", d_model, "n_heads", n_heads)
        require_divisible(where, "n_heads", n_heads, "n_kv_heads", n_kv_heads)
        require_chance(where, "dropout", dropout)
        self.n_heads, self.n_kv_heads = n_heads, n_kv_heads
        self.dropout, self.causal = dropout, causal
        d_kv = d_model // n_heads * n_kv_heads
        self.W_q = _matrix(where, d_q=d_model if d_q is None else d_q, d_model=d_model)
        self.W_k = _matrix(where, d_k=d_model if d_k is None else d_k, d_kv=d_kv)
        self.W_v = _matrix(where, d_v=d_model if d_v is None else d_v, d_kv=d_kv)
        self.W_o = _matrix(where, d_heads=d_model, d_model=d_model)
        self.b_q, self.b_k, self.b_v, self.b_o = (
            nn.Parameter(torch.zeros(W.shape[-1])) if bias else None
            for W in (self.W_q, self.W_k, self.W_v, self.W_o)
        )

    def forward(
        self,
        Q: torch.Tensor,
        K: torch.Tensor | None = None,
        V: torch.Tensor | None = None,
        mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """(…, n, d_q), (…, m, d_k), (…, m, d_v) -> (…, n, d_model); K is Q where None, and V is K."""
        K = Q if K is None else K
        V = K if V is None else V
        return multi_head_attention(
            Q,
            K,
            V,
            self.W_q,
            self.W_k,
            self.W_v,
            self.W_o,
            self.n_heads,
            mask,
            causal=self.causal,
            biases=self._biases(),
            n_kv_heads=self.n_kv_heads,
            dropout_p=self.dropout if self.training else 0.0,
        )

    def _biases(self) -> tuple[torch.Tensor, ...] | None:
        biases: Any = self.b_q, self.b_k, self.b_v, self.b_o  # all of them or none
        return None if self.b_q is None else biases

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
        bias = layer.in_proj_bias is not None
        mine = cls(
            layer.embed_dim,
            layer.num_heads,
            d_k=layer.kdim,
            d_v=layer.vdim,
            bias=bias,
            dropout=layer.dropout,
            causal=causal,
        ).to(layer.out_proj.weight)
        mine.train(layer.training)
        with torch.no_grad():
            for name, W in zip(
                "qkvo", (*_projections(layer), layer.out_proj.weight), strict=True
            ):
                # Torch applies its matrices on the left.
                getattr(mine, f"W_{name}").copy_(W.mT)
            if bias:
                for name, b in zip(
                    "qkvo",
                    (*layer.in_proj_bias.chunk(3), layer.out_proj.bias),
                    strict=True,
                ):
                    getattr(mine, f"b_{name}").copy_(b)
        return mine

    def to_torch(self) -> nn.MultiheadAttention:
        """A ``torch.nn.MultiheadAttention`` (``batch_first=True``) with a copy of these weights.

        Causality does not travel: there it is an argument of ``forward``.

        Raises:
            ValueError: queries are not ``d_model`` wide, or heads share keys and values; torch's layer cannot.
        """
        d_model = self.W_o.shape[-1]
        if self.W_q.shape[0] != d_model:
            raise ValueError(
                f"to_torch: torch needs d_q = d_model = {d_model}, got d_q = {self.W_q.shape[0]}"
            )
        if self.n_kv_heads != self.n_heads:
            raise ValueError(
                f"to_torch: torch needs n_kv_heads = n_heads = {self.n_heads}, got {self.n_kv_heads}"
            )
        layer = nn.MultiheadAttention(
            d_model,
            self.n_heads,
            self.dropout,
            bias=self._biases() is not None,
            kdim=self.W_k.shape[0],
            vdim=self.W_v.shape[0],
            batch_first=True,
        ).to(self.W_o)
        layer.train(self.training)
        with torch.no_grad():
            for name, W in zip(
                "qkvo", (*_projections(layer), layer.out_proj.weight), strict=True
            ):
                W.copy_(getattr(self, f"W_{name}").mT)
            if biases := self._biases():
                layer.in_proj_bias.copy_(torch.cat(biases[:3]))
                layer.out_proj.bias.copy_(biases[3])
        return layer


class PositionalEncoding(nn.Module):
    """Add :func:`sinusoidal_encoding` to tokens.

    Args:
        d: width of the tokens.
        dropout: chance to drop each entry of the sum while training.

    Example:
        >>> PositionalEncoding(2)(torch.zeros(1, 2)).tolist()
        [[0.0, 1.0]]
    """

    def __init__(self, d: int, dropout: float = 0.0) -> None:
        super().__init__()
        require_size("PositionalEncoding", "d", d)
        require_chance("PositionalEncoding", "dropout", dropout)
        self.d, self.dropout = d, nn.Dropout(dropout)
        # No buffer: a cast of the module would round it and not compute it again.
        self.table = sinusoidal_encoding(0, d)

    def forward(self, X: torch.Tensor, start: int = 0) -> torch.Tensor:
        """(…, n, d) -> (…, n, d); row 0 stands at position ``start``, as in decoding."""
        require_array("PositionalEncoding", "X", X)
        require_size("PositionalEncoding", "start", start)
        if X.ndim < 2 or X.shape[-1] != self.d:
            raise ValueError(
                f"PositionalEncoding: X has shape {tuple(X.shape)} but needs (…, n, {self.d})"
            )
        X = X if X.is_floating_point() else X.to(torch.get_default_dtype())
        n, table = start + X.shape[-2], self.table
        if len(table) < n or (table.dtype, table.device) != (X.dtype, X.device):
            # Once a longest sequence; decoding, which comes back with one more, gets room for many.
            rows = 2 * n if start else n
            self.table = sinusoidal_encoding(
                rows, self.d, device=X.device, dtype=X.dtype
            )
        return self.dropout(X + self.table[start:n])


def _matrix(where: str, **sizes: int) -> nn.Parameter:
    """Drawn so that variance is kept in both directions (Glorot & Bengio, 2010)."""
    for name, size in sizes.items():
        require_size(where, name, size, least=1)
    return nn.Parameter(nn.init.xavier_uniform_(torch.empty(*sizes.values())))


def _projections(layer: nn.MultiheadAttention) -> tuple[torch.Tensor, ...]:
    """torch packs the three projections in one matrix unless their widths differ."""
    if layer.in_proj_weight is not None:
        return layer.in_proj_weight.chunk(3)
    return layer.q_proj_weight, layer.k_proj_weight, layer.v_proj_weight
