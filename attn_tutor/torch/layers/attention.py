"""Attention with one head as ``torch.nn`` modules: they hold what is learnt, and the core of the functions computes."""

from typing import Any

import torch
from torch import nn

from attn_tutor._checks import explain_foreign_names
from attn_tutor.rules import Rule
from attn_tutor.torch._attention import (
    additive_attention,
    attention,
    attention_weights,
    bilinear_attention,
)
from attn_tutor.torch._engine.visibility import dense_visibility
from attn_tutor.torch._softmax import masked_softmax
from attn_tutor.torch.layers.checks import require_sizes, require_tokens
from attn_tutor.torch.layers.linear import Device, Dtype, draw, linear
from attn_tutor.torch.scoring import additive_score

__all__ = ["AdditiveAttention", "BilinearAttention", "SelfAttention"]


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
        require_sizes("BilinearAttention", d_q=d_q, d_k=d_k)
        self.M = nn.Parameter(torch.empty(d_q, d_k, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw ``M`` so that variance is kept in both directions (Glorot & Bengio, 2010)."""
        nn.init.xavier_uniform_(self.M)

    @explain_foreign_names
    def forward(
        self,
        Q: torch.Tensor,
        K: torch.Tensor,
        V: torch.Tensor,
        mask: torch.Tensor | Rule | None = None,
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
        require_sizes("AdditiveAttention", d_q=d_q, d_k=d_k, d_hidden=d_hidden)
        made: Any = {"device": device, "dtype": dtype}
        self.q_proj = linear(d_q, d_hidden, bias=False, **made)
        self.k_proj = linear(d_k, d_hidden, bias=False, **made)
        self.w_v = nn.Parameter(torch.empty(d_hidden, **made))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw so that variance is kept in both directions (Glorot & Bengio, 2010)."""
        draw(self.q_proj, self.k_proj)
        nn.init.xavier_uniform_(self.w_v[:, None])

    @explain_foreign_names
    def forward(
        self,
        Q: torch.Tensor,
        K: torch.Tensor,
        V: torch.Tensor,
        mask: torch.Tensor | Rule | None = None,
        *,
        need_weights: bool = False,
    ) -> Any:
        """(…, n, d_q), (…, m, d_k), (…, m, d_v) -> (…, n, d_v), and with ``need_weights`` the weights, (…, n, m)."""
        where = "AdditiveAttention"
        widths = self.q_proj.in_features, self.k_proj.in_features, V.shape[-1]
        named, like = dict(zip("QKV", widths, strict=True)), self.w_v
        Q, K, V = require_tokens(where, named, Q, K, V, like=like)

        projections = self.q_proj.weight.mT, self.k_proj.weight.mT, self.w_v
        output = additive_attention(Q, K, V, *projections, mask)
        if not need_weights:
            return output
        scores = additive_score(Q, K, *projections)  # (…, n, m)
        visible, _ = dense_visibility(where, scores, mask)
        return output, masked_softmax(scores, visible)


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
        require_sizes("SelfAttention", d_in=d_in, d_k=d_k, d_v=d_v)
        made: Any = {"bias": False, "device": device, "dtype": dtype}
        self.q_proj = linear(d_in, d_k, **made)
        self.k_proj = linear(d_in, d_k, **made)
        self.v_proj = linear(d_in, d_v, **made)
        self.causal = causal
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw so that variance is kept in both directions (Glorot & Bengio, 2010)."""
        draw(self.q_proj, self.k_proj, self.v_proj)

    @explain_foreign_names
    def forward(
        self,
        X: torch.Tensor,
        mask: torch.Tensor | Rule | None = None,
        *,
        need_weights: bool = False,
    ) -> Any:
        """(…, n, d_in) -> (…, n, d_v), and with ``need_weights`` the weights, (…, n, n)."""
        width, like = {"X": self.q_proj.in_features}, self.q_proj.weight
        (X,) = require_tokens("SelfAttention", width, X, like=like)

        Q, K, V = self.q_proj(X), self.k_proj(X), self.v_proj(X)
        output = attention(Q, K, V, mask, causal=self.causal)  # (…, n, d_v)
        if not need_weights:
            return output
        return output, attention_weights(Q, K, mask, causal=self.causal)

    def extra_repr(self) -> str:
        return f"causal={self.causal}"
