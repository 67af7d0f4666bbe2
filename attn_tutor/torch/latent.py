"""Multi-head attention with one short row a token in the cache: latent attention."""

from typing import Any

import torch

from attn_tutor._checks import require_heads
from attn_tutor.geometry import Rule, Slopes, Window
from attn_tutor.torch._arrays import shapes
from attn_tutor.torch.attention import pool
from attn_tutor.torch.multi_head import merge_heads, split_heads
from attn_tutor.torch.positional import rotary
from attn_tutor.torch.visibility import Visibility

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
    bias: torch.Tensor | Slopes | None = None,
    softcap: float | None = None,
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
        mask: boolean; (n, m) for all, (b, n, m) one for each sequence, or (b, h, n, m) one for each head; True = may
            attend. None permits every key. Axes of length 1 broadcast. Or rules, one for each sequence.
        causal: also forbid each query the keys after it, aligned lower right (see :func:`causal_mask`).
        window: most keys that a query sees, its own and those just before it; needs ``causal``. :class:`Window` adds
            sinks. None sets no limit.
        bias: added to the scores, broadcasts to (…, h, n, m); or ``alibi(slopes)``. None adds nothing.
        softcap: c, with which the scores are c·tanh(scores/c) before mask and bias; None caps none.

    Returns:
        Output, (…, n, d_o), 0 where nothing is permitted.

    Raises:
        TypeError: an argument is not an array of this half, or the mask is not boolean.
        ValueError: the shapes do not fit, or the heads do not divide the widths.

    Example:
        >>> X, one, R = torch.tensor([[1.0], [3.0]]), torch.tensor([[1.0]]), torch.tensor([[0.0, 0.0], [0.0, 0.0]])
        >>> latent_attention(X, X, R, 0 * one, R[:1], one, one, one, n_heads=1).tolist()
        [[2.0], [2.0]]
    """
    where = "latent_attention"
    require_heads(where, n_heads, None, W_q, W_k, W_v, W_o)
    if W_r.shape[-1] != n_heads * R.shape[-1]:
        raise ValueError(
            f"{where}: W_r has {W_r.shape[-1]} columns but {n_heads} heads as wide as R need {n_heads * R.shape[-1]}"
        )
    said: Any = {"mask": mask, "causal": causal, "window": window, "bias": bias}
    see = Visibility.of(where, X, C, R, n_heads=n_heads, **said)
    queries = split_heads(X @ W_q, n_heads)  # (…, h, n, d_h)
    scale = (queries.shape[-1] + R.shape[-1]) ** -0.5
    asked = queries @ split_heads(W_k, n_heads).mT  # (…, h, n, c)
    positions = torch.arange(see.m - see.n, see.m, device=X.device)
    turned = rotary(split_heads(X @ W_r, n_heads), positions)  # (…, h, n, r)
    keys = _beside(C, R)[..., None, :, :]  # one for all heads
    asked, latents = _beside(asked, turned), C[..., None, :, :]
    pooled = pool(asked, keys, latents, see, scale=scale, softcap=softcap)
    return merge_heads(pooled @ split_heads(W_v, n_heads)) @ W_o


def _beside(A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    """The columns of both, (…, n, a) and (…, n, b) to (…, n, a + b); batch axes broadcast."""
    batch = torch.broadcast_shapes(A.shape[:-1], B.shape[:-1])
    return torch.cat([X.expand(*batch, -1) for X in (A, B)], -1)
