"""Several small attentions side by side, each with projections of its own."""

import numpy as np

from attn_tutor._both.visibility import for_heads
from attn_tutor._checks import require_divisible, require_heads, require_size
from attn_tutor.numpy._arrays import repeat_heads, shapes, silent
from attn_tutor.numpy._attention import attention, attention_weights
from attn_tutor.rules import Bias, Rule, Window

__all__ = ["merge_heads", "multi_head_attention", "multi_head_weights", "split_heads"]


@shapes("(n,d)->(h,n,d/h)")
def split_heads(X: np.ndarray, n_heads: int) -> np.ndarray:
    r"""Cut the width of each token into heads, and put the heads axis before the tokens axis.

    .. math:: \text{head}_{hic} = X_{i,\; h d_h + c}, \qquad d_h = d / \text{n\_heads}

    Source: Vaswani et al. (2017), section 3.2.2, where the heads' projections stand side by side in one matrix.

    Args:
        X: projected tokens, (…, n, d).
        n_heads: number of heads; divides d.

    Returns:
        Heads, (…, h, n, d_h).

    Raises:
        TypeError: X is not an array of this half, or ``n_heads`` is not a whole number.
        ValueError: d is not a multiple of ``n_heads``.

    Example:
        >>> split_heads(np.array([[1, 2, 3, 4], [5, 6, 7, 8]]), 2).tolist()
        [[[1.0, 2.0], [5.0, 6.0]], [[3.0, 4.0], [7.0, 8.0]]]
    """
    *batch, n, d = X.shape
    require_size("split_heads", "n_heads", n_heads, least=1)
    require_divisible("split_heads", "d", d, "n_heads", n_heads)
    # (…, n, h, d_h) -> (…, h, n, d_h)
    return X.reshape(*batch, n, n_heads, d // n_heads).swapaxes(-3, -2)


@shapes("(h,n,c)->(n,h*c)")
def merge_heads(X: np.ndarray) -> np.ndarray:
    r"""Put the heads of each token side by side again: the inverse of :func:`split_heads`.

    .. math:: \text{merged}_{i,\; h d_h + c} = X_{hic}

    Source: Vaswani et al. (2017), section 3.2.2, "Concat".

    Args:
        X: heads, (…, h, n, d_h).

    Returns:
        Tokens, (…, n, h·d_h).

    Raises:
        TypeError: X is not an array of this half.
        ValueError: X has fewer than 3 axes.

    Example:
        >>> merge_heads(np.array([[[1, 2], [5, 6]], [[3, 4], [7, 8]]])).tolist()
        [[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]]
    """
    *batch, h, n, d_h = X.shape
    # (…, h, n, d_h) -> (…, n, h, d_h) -> (…, n, h·d_h)
    return X.swapaxes(-3, -2).reshape(*batch, n, h * d_h)


@shapes("(n,d_q),(m,d_k),(m,d_v),(d_q,a),(d_k,b),(d_v,c),(e,d_o)->(n,d_o)")
@silent
def multi_head_attention(
    Q: np.ndarray,
    K: np.ndarray,
    V: np.ndarray,
    W_q: np.ndarray,
    W_k: np.ndarray,
    W_v: np.ndarray,
    W_o: np.ndarray,
    n_heads: int,
    mask: np.ndarray | Rule | None = None,
    *,
    causal: bool = False,
    window: int | Window | None = None,
    bias: np.ndarray | Bias | None = None,
    n_kv_heads: int | None = None,
) -> np.ndarray:
    r"""Project, split into heads, attend in each, put the heads side by side, project back.

    .. math:: O = [\text{head}_1 \cdots \text{head}_h]\, W_o, \qquad
        \text{head}_i = \operatorname{attention}(Q W_q^{(i)}, K W_k^{(i)}, V W_v^{(i)})

    The columns of ``W_q`` hold the heads side by side; the scale is 1/√d_h, of the head's width. Source: Vaswani et
    al. (2017), section 3.2.2; fewer heads for keys and values: Ainslie et al. (2023), and with one, Shazeer (2019).

    Args:
        Q: where queries come from, (…, n, d_q).
        K: where keys come from, (…, m, d_k).
        V: where values come from, (…, m, d_v).
        W_q: learnt projection to queries, (d_q, a) with a = h·d_h.
        W_k: learnt projection to keys, (d_k, b) with b = n_kv_heads·d_h.
        W_v: learnt projection to values, (d_v, c) with c = n_kv_heads·d_hv.
        W_o: learnt projection of the heads, (e, d_o) with e = h·d_hv.
        n_heads: number of heads h.
        mask: boolean, (n, m) for all, (b, n, m) one for each sequence or (b, h, n, m) one for each head; True = may
            attend. Or a :class:`Rule`, whose arrays have one for each sequence, (b, …), or for each head, (b, h, …).
        causal: forbid each query the keys after it, aligned lower right.
        window: most keys that a query sees, its own and those just before it; needs ``causal``.
        bias: added to the scores, broadcasts to (…, h, n, m); or a :class:`Bias`, as ``alibi(slopes)``.
        n_kv_heads: number of heads of keys and values, each shared by h / n_kv_heads heads; None is ``n_heads``.

    Returns:
        Output, (…, n, d_o), 0 where no head has anything to attend to.

    Raises:
        ValueError: the heads do not divide the widths.

    Example:
        >>> X, eye = np.array([[1, 2], [3, 4]]), np.array([[1, 0], [0, 1]])
        >>> zero = 0 * eye
        >>> multi_head_attention(X, X, X, zero, zero, eye, eye, n_heads=2).tolist()
        [[2.0, 3.0], [2.0, 3.0]]
    """
    where = "multi_head_attention"
    n_kv_heads = require_heads(where, n_heads, n_kv_heads, W_q, W_k, W_v, W_o)
    queries = split_heads(Q @ W_q, n_heads)  # (…, h, n, d_h)
    keys = split_heads(K @ W_k, n_kv_heads)  # (…, h_kv, m, d_h)
    values = split_heads(V @ W_v, n_kv_heads)  # (…, h_kv, m, d_hv)
    mask = for_heads(where, mask, queries, keys)
    heads = attention(
        queries,
        keys,
        values,
        mask,
        causal=causal,
        window=window,
        bias=bias,
        n_kv_heads=n_kv_heads,
    )  # (…, h, n, d_hv)
    return merge_heads(heads) @ W_o  # (…, n, d_o)


@shapes("(n,d_q),(m,d_k),(d_q,a),(d_k,b)->(h,n,m)")
@silent
def multi_head_weights(
    Q: np.ndarray,
    K: np.ndarray,
    W_q: np.ndarray,
    W_k: np.ndarray,
    n_heads: int,
    mask: np.ndarray | Rule | None = None,
    *,
    causal: bool = False,
    window: int | Window | None = None,
    bias: np.ndarray | Bias | None = None,
    n_kv_heads: int | None = None,
) -> np.ndarray:
    r"""The weights of each head of :func:`multi_head_attention`.

    .. math:: A^{(i)} = \operatorname{softmax}_{\text{mask}}\!\left(
        \frac{(Q W_q^{(i)}) (K W_k^{(i)})^\top}{\sqrt{d_h}}\right)

    Source: Vaswani et al. (2017), section 3.2.2.

    Args:
        Q: where queries come from, (…, n, d_q).
        K: where keys come from, (…, m, d_k).
        W_q: learnt projection to queries, (d_q, a) with a = h·d_h.
        W_k: learnt projection to keys, (d_k, b) with b = n_kv_heads·d_h.
        n_heads: number of heads h.
        mask: boolean, (n, m) for all, (b, n, m) one for each sequence or (b, h, n, m) one for each head; True = may
            attend. Or a :class:`Rule`, whose arrays have one for each sequence, (b, …), or for each head, (b, h, …).
        causal: forbid each query the keys after it, aligned lower right.
        window: most keys that a query sees, its own and those just before it; needs ``causal``.
        bias: added to the scores, broadcasts to (…, h, n, m); or a :class:`Bias`, as ``alibi(slopes)``.
        n_kv_heads: number of heads of keys, each shared by h / n_kv_heads heads; None is ``n_heads``.

    Returns:
        Weights, (…, h, n, m); each row sums to 1, or to 0 if nothing is permitted.

    Raises:
        ValueError: the heads do not divide the widths.

    Example:
        >>> X, zero = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[0.0, 0.0], [0.0, 0.0]])
        >>> multi_head_weights(X, X, zero, zero, n_heads=2, causal=True).tolist()
        [[[1.0, 0.0], [0.5, 0.5]], [[1.0, 0.0], [0.5, 0.5]]]
    """
    where = "multi_head_weights"
    n_kv_heads = require_heads(where, n_heads, n_kv_heads, W_q, W_k)
    queries = split_heads(Q @ W_q, n_heads)  # (…, h, n, d_h)
    keys = split_heads(K @ W_k, n_kv_heads)  # (…, h_kv, m, d_h)
    keys = repeat_heads(keys, n_heads // n_kv_heads)  # (…, h, m, d_h)
    mask = for_heads(where, mask, queries, keys)
    return attention_weights(
        queries, keys, mask, causal=causal, window=window, bias=bias
    )
