"""The engine behind attention: softmax over tiles of keys, so that no (n, m) matrix is ever stored.

A row of weights needs the sum over all its keys, but that sum can be kept while it grows: the online softmax of
Milakov & Gimelshein (2018). Rabe & Staats (2021) and Dao et al. (2022) build attention on it.
"""

import numpy as np

from attn_tutor.numpy.scoring import default_scale

QUERIES, KEYS = 256, 512  # a tile of scores that stays in a processor's cache


def tiled_attention(
    Q: np.ndarray,
    K: np.ndarray,
    V: np.ndarray,
    mask: np.ndarray | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> np.ndarray:
    """The number of ``attend(scaled_dot_score(Q, K, scale), V, mask)``, a tile at a time.

    Arguments as :func:`attention`, but what is hidden must already be finite.
    """
    n, m, d_v = Q.shape[-2], K.shape[-2], V.shape[-1]
    dtype = np.result_type(Q, K, V)
    wide = np.result_type(dtype, np.float32)  # sums in float16 are poor
    Q, K, V = (X.astype(wide, copy=False) for X in (Q, K, V))
    Q = Q * (default_scale(Q.shape[-1]) if scale is None else float(scale))
    batch = np.broadcast_shapes(
        Q.shape[:-2],
        K.shape[:-2],
        V.shape[:-2],
        () if mask is None else mask.shape[:-2],
    )
    if mask is not None:
        mask = np.broadcast_to(mask, (*batch, n, m))
    output = np.empty((*batch, n, d_v), dtype)
    for i in range(0, n, QUERIES):
        rows = slice(i, min(i + QUERIES, n))
        # No tile to the right of the diagonal is computed.
        visible = min(m, rows.stop + m - n) if causal else m
        # Running: the largest score, Σ exp(score − top), Σ exp(score − top) · value.
        top = np.full((*batch, rows.stop - i, 1), -np.inf, wide)
        total = np.zeros_like(top)
        pooled = np.zeros((*batch, rows.stop - i, d_v), wide)
        for j in range(0, visible, KEYS):
            keys = slice(j, min(j + KEYS, visible))
            scores = Q[..., rows, :] @ K[..., keys, :].mT  # (…, tile of n, tile of m)
            if mask is not None:
                scores = np.where(mask[..., rows, keys], scores, -np.inf)
            elif causal and keys.stop > i + m - n + 1:  # the tile crosses the diagonal
                seen = np.tri(rows.stop - i, keys.stop - j, i + m - n - j, dtype=bool)
                scores = np.where(seen, scores, -np.inf)
            new_top = np.maximum(top, scores.max(-1, keepdims=True))
            # Where nothing is permitted yet, −inf − (−inf) would be NaN.
            shift = np.where(new_top == -np.inf, 0, new_top)
            weights = np.exp(scores - shift)
            # What was summed under the old top, seen from the new one.
            shrink = np.exp(top - shift)
            total = total * shrink + weights.sum(-1, keepdims=True)
            pooled = pooled * shrink + weights @ V[..., keys, :]
            top = new_top
        output[..., rows, :] = pooled / np.where(total == 0, 1, total)
    return output
