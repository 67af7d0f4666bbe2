"""Multi-head attention with one short row a token in the cache: latent attention."""

import torch

from attn_tutor._both.visibility import for_heads
from attn_tutor._checks import require_heads
from attn_tutor.rules import Bias, Rule, Window
from attn_tutor.torch._arrays import shapes
from attn_tutor.torch._attention import attention
from attn_tutor.torch.multi_head import merge_heads, split_heads
from attn_tutor.torch.positional import rotary

__all__ = ["latent_attention"]


@shapes("(n,d),(m,c),(m,r),(d,a),(d,e),(c,a),(c,b),(b,d_o)->(n,d_o)")
def latent_attention(
    X: torch.Tensor,
    C: torch.Tensor,
    R: torch.Tensor,
    W_q: torch.Tensor,
    W_r: torch.Tensor,
    W_k: torch.Tensor,
    W_v: torch.Tensor,
    W_o: torch.Tensor,
    n_heads: int,
    mask: torch.Tensor | Rule | None = None,
    *,
    causal: bool = False,
    window: int | Window | None = None,
    bias: torch.Tensor | Bias | None = None,
) -> torch.Tensor:
    r"""Multi-head latent attention: all heads' keys and values are made of one latent vector a token.

    .. math:: O = [\text{head}_1 \cdots \text{head}_h]\, W_o, \qquad
        \text{head}_i = \operatorname{softmax}_{\text{mask}}\!\left(\frac{(X W_q^{(i)}) (C W_k^{(i)})^\top +
        \operatorname{rotary}(X W_r^{(i)})\, R^\top}{\sqrt{d_h + r}}\right) C W_v^{(i)}

    A cache keeps the rows of C and R and no key or value of any head. None is ever made: (X W_q) (C W_k)ᵀ is
    (X W_q W_kᵀ) Cᵀ, so that the latents themselves serve as keys and values, shared by all heads. R carries the
    positions, since a turn between W_q and W_kᵀ would forbid that.
    Source: DeepSeek-AI (2024), DeepSeek-V2, section 2.1, Eq. 9 to 19, with uncompressed queries.

    Args:
        X: the tokens that ask, the last n of the m, (…, n, d).
        C: latents of all tokens, (…, m, c), made as X W_c.
        R: keys that carry the position, shared by all heads, (…, m, r), made as ``rotary(X @ W)``.
        W_q: learnt projection to queries, (d, a) with a = h·d_h.
        W_r: learnt projection to the queries that are turned by their position, (d, e) with e = h·r.
        W_k: learnt projection of latents to keys, (c, a).
        W_v: learnt projection of latents to values, (c, b) with b = h·d_hv.
        W_o: learnt projection of the heads, (b, d_o).
        n_heads: number of heads h.
        mask: boolean, (n, m) for all, (b, n, m) one for each sequence or (b, h, n, m) one for each head; True = may
            attend. Or a :class:`Rule`, whose arrays have one for each sequence, (b, …), or for each head, (b, h, …).
        causal: forbid each query the keys after it, aligned lower right.
        window: most keys that a query sees, its own and those just before it; needs ``causal``.
        bias: added to the scores, broadcasts to (…, h, n, m); or a :class:`Bias`, as ``alibi(slopes)``.

    Returns:
        Output, (…, n, d_o), 0 where nothing is permitted.

    Raises:
        ValueError: the heads do not divide the widths.

    Example:
        >>> X, one, R = torch.tensor([[1.0], [3.0]]), torch.tensor([[1.0]]), torch.tensor([[0.0, 0.0], [0.0, 0.0]])
        >>> latent_attention(X, X, R, 0 * one, R[:1], one, one, one, n_heads=1).tolist()
        [[2.0], [2.0]]
    """
    _require_fit(n_heads, R, W_q, W_r, W_k, W_v, W_o)
    n, m = X.shape[-2], C.shape[-2]
    # (X W_q) (C W_k)ᵀ = (X W_q W_kᵀ) Cᵀ
    absorbed = split_heads(X @ W_q, n_heads) @ split_heads(W_k, n_heads).mT
    positions = torch.arange(m - n, m, device=X.device)
    turned = rotary(split_heads(X @ W_r, n_heads), positions)  # (…, h, n, r)
    queries = concat_columns(absorbed, turned)  # (…, h, n, c + r)
    keys = concat_columns(C, R)[..., None, :, :]  # (…, 1, m, c + r)
    scale = (W_q.shape[-1] // n_heads + R.shape[-1]) ** -0.5
    mask = for_heads("latent_attention", mask, queries, keys)
    pooled = attention(
        queries,
        keys,
        C[..., None, :, :],
        mask,
        causal=causal,
        window=window,
        bias=bias,
        scale=scale,
    )  # (…, h, n, c): latents serve as values, too
    return merge_heads(pooled @ split_heads(W_v, n_heads)) @ W_o  # (…, n, d_o)


def _require_fit(
    n_heads: int,
    R: torch.Tensor,
    W_q: torch.Tensor,
    W_r: torch.Tensor,
    *others: torch.Tensor,
) -> None:
    require_heads("latent_attention", n_heads, None, W_q, *others)
    if W_r.shape[-1] != n_heads * R.shape[-1]:
        raise ValueError(
            f"latent_attention: W_r has {W_r.shape[-1]} columns but {n_heads} heads as wide as R need "
            f"{n_heads * R.shape[-1]}"
        )


def concat_columns(A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    """The columns of both, (…, n, a) and (…, n, b) to (…, n, a + b); batch axes broadcast."""
    batch = torch.broadcast_shapes(A.shape[:-1], B.shape[:-1])
    return torch.cat([X.expand(*batch, -1) for X in (A, B)], -1)
