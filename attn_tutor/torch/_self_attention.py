"""Where queries, keys and values come from: learnt projections of one sequence, or of two."""

import torch

from attn_tutor._checks import require_chance
from attn_tutor.rules import Bias, Rule, Window
from attn_tutor.torch._arrays import shapes
from attn_tutor.torch._attention import attention

__all__ = ["cross_attention", "self_attention"]


@shapes("(n,d_in),(d_in,d_k),(d_in,d_k),(d_in,d_v)->(n,d_v)")
def self_attention(
    X: torch.Tensor,
    W_q: torch.Tensor,
    W_k: torch.Tensor,
    W_v: torch.Tensor,
    mask: torch.Tensor | Rule | None = None,
    *,
    causal: bool = False,
    window: int | Window | None = None,
    bias: torch.Tensor | Bias | None = None,
    dropout_p: float = 0.0,
) -> torch.Tensor:
    r"""Each token attends to all tokens of its own sequence.

    .. math:: O = \operatorname{softmax}_{\text{mask}}\!\left(\frac{Q K^\top}{\sqrt{d_k}}\right) V,
        \qquad Q = X W_q,\quad K = X W_k,\quad V = X W_v

    "Self" means one source, not one matrix: the three projections differ. Source: Vaswani et al. (2017),
    section 3.2.3 with Eq. 1; tokens are rows.

    Args:
        X: tokens, (…, n, d_in).
        W_q: learnt projection to queries, (d_in, d_k).
        W_k: learnt projection to keys, (d_in, d_k).
        W_v: learnt projection to values, (d_in, d_v).
        mask: boolean, broadcasts to (…, n, n); True = may attend. Or a :class:`Rule`, as ``documents(ids)``.
        causal: forbid each token the tokens after it.
        window: most keys that a query sees, its own and those just before it; needs ``causal``.
        bias: added to the scores, broadcasts to (…, n, n); or a :class:`Bias`, as ``alibi(slopes)``.
        dropout_p: chance to drop each weight, the others growing by 1/(1 − dropout_p); 0 drops none.

    Returns:
        Output, (…, n, d_v): a new vector for each token, 0 where nothing is permitted.

    Example:
        >>> X, zero, W_v = torch.tensor([[1.0], [3.0]]), torch.tensor([[0.0]]), torch.tensor([[10.0]])
        >>> self_attention(X, zero, zero, W_v).tolist()
        [[20.0], [20.0]]
        >>> self_attention(X, zero, zero, W_v, causal=True).tolist()
        [[10.0], [20.0]]
    """
    require_chance("self_attention", "dropout_p", dropout_p)
    Q, K, V = X @ W_q, X @ W_k, X @ W_v  # (…, n, d_k) twice, (…, n, d_v)
    return attention(
        Q, K, V, mask, causal=causal, window=window, bias=bias, dropout_p=dropout_p
    )


@shapes("(n,d_x),(m,d_y),(d_x,d_k),(d_y,d_k),(d_y,d_v)->(n,d_v)")
def cross_attention(
    X: torch.Tensor,
    Y: torch.Tensor,
    W_q: torch.Tensor,
    W_k: torch.Tensor,
    W_v: torch.Tensor,
    mask: torch.Tensor | Rule | None = None,
    *,
    bias: torch.Tensor | Bias | None = None,
    dropout_p: float = 0.0,
) -> torch.Tensor:
    r"""Each token of one sequence attends to the tokens of another.

    .. math:: O = \operatorname{softmax}_{\text{mask}}\!\left(\frac{Q K^\top}{\sqrt{d_k}}\right) V,
        \qquad Q = X W_q,\quad K = Y W_k,\quad V = Y W_v

    Source: Vaswani et al. (2017), section 3.2.3, "encoder-decoder attention"; tokens are rows.

    Args:
        X: the tokens that ask, (…, n, d_x).
        Y: the tokens that answer, (…, m, d_y).
        W_q: learnt projection to queries, (d_x, d_k).
        W_k: learnt projection to keys, (d_y, d_k).
        W_v: learnt projection to values, (d_y, d_v).
        mask: boolean, broadcasts to (…, n, m); True = may attend. Or a :class:`Rule`, as ``documents(ids)``.
        bias: added to the scores, broadcasts to (…, n, m); or a :class:`Bias`, as ``alibi(slopes)``.
        dropout_p: chance to drop each weight, the others growing by 1/(1 − dropout_p); 0 drops none.

    Returns:
        Output, (…, n, d_v): a vector for each token of X, 0 where nothing is permitted.

    Example:
        >>> X, Y = torch.tensor([[5.0]]), torch.tensor([[1.0], [3.0]])
        >>> zero, W_v = torch.tensor([[0.0]]), torch.tensor([[10.0]])
        >>> cross_attention(X, Y, zero, zero, W_v).tolist()
        [[20.0]]
    """
    require_chance("cross_attention", "dropout_p", dropout_p)
    Q, K, V = X @ W_q, Y @ W_k, Y @ W_v  # (…, n, d_k), (…, m, d_k), (…, m, d_v)
    return attention(Q, K, V, mask, bias=bias, dropout_p=dropout_p)
