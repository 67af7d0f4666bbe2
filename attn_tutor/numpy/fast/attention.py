"""The engine of scaled dot-product attention: a product for all of a small problem, the tile loop for a large one."""

import math
from typing import Any

import numpy as np

from attn_tutor._checks import broadcast
from attn_tutor.numpy.fast.tiles import KEYS, Problem, log_sums, pool
from attn_tutor.numpy.scoring import default_scale
from attn_tutor.numpy.softmax import share
from attn_tutor.numpy.visibility import Visibility

# Queries of a tile: tall ones keep the interpreter out of the way. With its keys, a tile fits a processor's cache.
QUERIES = 1024
FEW = 64  # queries of a narrow window: few keys are seen by some of them alone


def tiled_attention(
    Q: np.ndarray,
    K: np.ndarray,
    V: np.ndarray,
    see: Visibility,
    scale: float | None = None,
    softcap: float | None = None,
    sums: bool = False,
) -> Any:
    """The number of ``attend(scaled_dot_score(Q, K, scale) + bias, V, see.dense())``; what is hidden must be finite.

    With ``sums`` log Σ exp(score) comes too, (…, n, 1).
    """
    dtype = wide = Q.dtype
    if not dtype == K.dtype == V.dtype or dtype.itemsize < 4:
        dtype = np.result_type(Q, K, V)
        wide = np.promote_types(dtype, np.float32)  # sums in float16 are poor
        Q, K, V = (X.astype(wide, copy=False) for X in (Q, K, V))
    # A number of the same dtype: a wider one would widen, and slow, all that follows.
    Q = Q * wide.type(default_scale(Q.shape[-1]) if scale is None else scale)
    n, m = see.n, see.m
    batch = broadcast(*(X.shape[:-2] for X in (Q, K, V, *see.arrays.values())))
    assert batch is not None  # the callers have checked
    if math.prod(batch) * n * m <= QUERIES * KEYS:
        output, top, total = at_once(Q, K, V, see, softcap)
        output = output if dtype == wide else output.astype(dtype)
        return (output, log_sums(top, total)) if sums else output

    # Queries and keys of a tile, and how many heads fit it together.
    height, width, together = QUERIES, KEYS, max(1, QUERIES * KEYS // (n * m))
    if see.window is not None and see.window <= 2 * KEYS:
        height = max(FEW, 2 * FEW // math.prod(batch))
        width = see.window + height
        together = QUERIES * KEYS // (height * width)
    out, log_sum = (np.empty((*batch, n, k), wide) for k in (V.shape[-1], 1))
    heads: list[Any] = list(np.ndindex(*batch))

    def laid_out(X: np.ndarray) -> np.ndarray:
        """With all batch axes; with a single one where heads share a tile."""
        X = np.broadcast_to(X, (*batch, *X.shape[-2:]))
        return X.reshape(len(heads), *X.shape[-2:]) if together > 1 else X

    see = see.map(laid_out)
    # |q · k| ≤ ‖q‖ ‖k‖ settles for most inputs that no score is large.
    reach = laid_out(lengths(Q)), laid_out(lengths(K))
    Q, K, V = (laid_out(X) for X in (Q, K, V))

    def score(head: Any, rows: slice, keys: slice, scores: np.ndarray) -> None:
        np.matmul(Q[head][..., rows, :], K[head][..., keys, :].mT, out=scores)
        capped(scores, softcap)

    into, more = out, log_sum
    if together > 1:
        into, more = (X.reshape(len(heads), *X.shape[-2:]) for X in (out, log_sum))
        heads = [slice(i, i + together) for i in range(0, len(heads), together)]
    problem = Problem(score, V, see, reach, into, width, more if sums else None)
    pool(problem, heads, together, height)
    out = out if dtype == wide else out.astype(dtype)
    return (out, log_sum) if sums else out


def at_once(
    Q: np.ndarray,
    K: np.ndarray,
    V: np.ndarray,
    see: Visibility,
    softcap: float | None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The textbook in its fewest passes: the output, and of the scores the maximum and Σ exp(score − maximum)."""
    seen, added = see.dense(), see.added(slice(0, see.n), slice(0, see.m))
    if seen is None:
        scores = capped(Q @ K.mT, softcap)
        scores = scores if added is None else scores + added.astype(scores.dtype)
    else:
        with np.errstate(over="ignore", invalid="ignore"):  # as hidden scores may
            scores = capped(Q @ K.mT, softcap)
            scores = scores if added is None else scores + added.astype(scores.dtype)
            scores = np.where(seen, scores, -np.inf)
    # ufuncs themselves, because decoding asks for little else: max() and sum() take a microsecond more.
    top = np.maximum.reduce(scores, -1, keepdims=True, initial=-np.inf)
    if seen is not None:
        top[top == -np.inf] = 0  # −∞ − 0 is what it was, −∞ − (−∞) would be NaN
    scores -= top
    weights = np.exp(scores, out=scores)
    total = np.add.reduce(weights, -1, keepdims=True)
    output = weights @ V
    return share(output, total, output), top, total


def lengths(X: np.ndarray) -> np.ndarray:
    """The norm of each row, (…, n, d) -> (…, n, 1)."""
    return np.sqrt(np.einsum("...d,...d->...", X, X))[..., None]


def capped(scores: np.ndarray, softcap: float | None) -> np.ndarray:
    """c · tanh(scores / c), in their place."""
    if softcap is not None:
        scores /= softcap
        np.tanh(scores, out=scores)
        scores *= softcap
    return scores
