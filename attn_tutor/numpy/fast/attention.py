"""The engine of scaled dot-product attention: a product for all of a small problem, the tile loop for a large one."""

import math
from typing import Any

import numpy as np

from attn_tutor._checks import broadcast
from attn_tutor.numpy.fast.tiles import KEYS, Problem, pool
from attn_tutor.numpy.scoring import default_scale
from attn_tutor.numpy.softmax import share
from attn_tutor.numpy.visibility import Visibility

# Queries of a tile: tall ones keep the interpreter out of the way. With its keys, a tile fits a processor's cache.
QUERIES = 1024


def tiled_attention(
    Q: np.ndarray,
    K: np.ndarray,
    V: np.ndarray,
    see: Visibility,
    scale: float | None = None,
    bias: np.ndarray | None = None,
) -> np.ndarray:
    """The number of ``attend(scaled_dot_score(Q, K, scale) + bias, V, see.dense())``; what is hidden must be finite."""
    dtype = wide = Q.dtype
    if not dtype == K.dtype == V.dtype or dtype.itemsize < 4:
        dtype = np.result_type(Q, K, V)
        wide = np.promote_types(dtype, np.float32)  # sums in float16 are poor
        Q, K, V = (X.astype(wide, copy=False) for X in (Q, K, V))
    # A number of the same dtype: a wider one would widen, and slow, all that follows.
    Q = Q * wide.type(default_scale(Q.shape[-1]) if scale is None else scale)
    n, m = see.n, see.m
    given = [X for X in (Q, K, V, see.mask, bias) if X is not None]
    batch = broadcast(*(X.shape[:-2] for X in given))
    assert batch is not None  # the callers have checked
    together = QUERIES * KEYS // max(1, n * m)  # heads that fit one tile
    if math.prod(batch) <= together:
        output = at_once(Q, K, V, see.dense(), bias)
        return output if dtype == wide else output.astype(dtype)

    out = np.empty((*batch, n, V.shape[-1]), wide)
    heads: list[Any] = list(np.ndindex(*batch))

    def laid_out(X: np.ndarray, *core: int) -> np.ndarray:
        """With all batch axes; with a single one where heads share a tile."""
        X = np.broadcast_to(X, (*batch, *(core or X.shape[-2:])))
        return X.reshape(len(heads), *X.shape[-2:]) if together > 1 else X

    if see.mask is not None:
        see = see.masked(laid_out(see.mask))
    # |q · k| ≤ ‖q‖ ‖k‖ settles for most inputs that no score is large.
    reach = laid_out(lengths(Q)), laid_out(lengths(K))
    Q, K, V = (laid_out(X) for X in (Q, K, V))
    if bias is not None:
        bias = laid_out(bias.astype(wide, copy=False), n, m)

    def score(head: Any, rows: slice, keys: slice, scores: np.ndarray) -> None:
        np.matmul(Q[head][..., rows, :], K[head][..., keys, :].mT, out=scores)

    into = out
    if together > 1:
        into = out.reshape(len(heads), n, V.shape[-1])
        heads = [slice(i, i + together) for i in range(0, len(heads), together)]
    pool(Problem(score, V, see, reach, bias, into), heads, max(1, together), QUERIES)
    return out if dtype == wide else out.astype(dtype)


def at_once(
    Q: np.ndarray,
    K: np.ndarray,
    V: np.ndarray,
    seen: np.ndarray | None,
    bias: np.ndarray | None,
) -> np.ndarray:
    """The textbook in its fewest passes."""
    if seen is None:
        scores = Q @ K.mT
    else:
        with np.errstate(over="ignore", invalid="ignore"):  # as hidden scores may
            scores = np.where(seen, Q @ K.mT, -np.inf)
    if bias is not None:
        scores = scores + bias.astype(scores.dtype, copy=False)
    # ufuncs themselves, because decoding asks for little else: max() and sum() take a microsecond more.
    top = np.maximum.reduce(scores, -1, keepdims=True, initial=-np.inf)
    if seen is not None:
        top[top == -np.inf] = 0  # −∞ − 0 is what it was, −∞ − (−∞) would be NaN
    scores -= top
    weights = np.exp(scores, out=scores)
    total = np.add.reduce(weights, -1, keepdims=True)
    output = weights @ V
    return share(output, total, output)


def lengths(X: np.ndarray) -> np.ndarray:
    """The norm of each row, (…, n, d) -> (…, n, 1)."""
    return np.sqrt(np.einsum("...d,...d->...", X, X))[..., None]
