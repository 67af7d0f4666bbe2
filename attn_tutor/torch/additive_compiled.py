"""The pieces of additive attention that take the time, for a caller that is compiled.

They need no tiles: the compiler's loops keep in registers what is summed. What they then spend is quotients, and two
features can share one: u/d + v/e = (u·e + v·d)/(d·e), as long as the product d·e is finite.
"""

import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch

LARGEST = 1e18  # the square of anything below is finite in float32


def loops(fn: Callable[..., Any]) -> Any:
    """The function compiled, for every size. Left alone, the compiler would store what several sums need: (n, m, h)."""
    stored = "reads", "opcount", "acc_reads"
    never: dict[str, Any] = {f"realize_{what}_threshold": 10**6 for what in stored}
    return torch.compile(fn, dynamic=True, options=never)


def halves(X: torch.Tensor, columns: bool = False) -> list[torch.Tensor]:
    """One half of the features and the other, filled up with a zero, (g, n, h/2); as columns, (g, h/2, n)."""
    g, n, h = X.shape
    half = (h + 1) // 2
    X = torch.nn.functional.pad(X, (0, h % 2))
    if not columns:
        return [X[..., :half].contiguous(), X[..., half:].contiguous()]
    # Longer rows than n: neighbours in a column a power of two apart would push each other out of the cache.
    space = X.new_empty(2, g, half, n + 16)[..., :n]
    space[0], space[1] = X[..., :half].mT, X[..., half:].mT
    return list(space)


@functools.cache
def compiled_pieces() -> tuple[Any, Any] | None:
    """The scores and the gradients of Σ dS · S, as a :class:`Tile` gives them. None without a compiler."""

    @loops
    def score(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (w[:, None] / (1 + x[:, :, None] * y[:, None])).sum(-1)

    @loops
    def score_in_pairs(x: Any, p: Any, y: Any, q: Any, u: Any, v: Any) -> Any:
        d = 1 + x[..., None] * y[:, None]  # (g, R, h/2, m)
        e = 1 + p[..., None] * q[:, None]
        u, v = u[..., None], v[..., None]
        return ((u * e + v * d) / (d * e)).sum(2)

    @loops
    def pull(x: torch.Tensor, y: torch.Tensor, dS: torch.Tensor) -> torch.Tensor:
        r = 1 / (1 + x[:, :, None] * y[:, None])
        return (dS[..., None] * (r - r * r)).sum(2)

    @loops
    def pull_in_pairs(x: Any, p: Any, y: Any, q: Any, dS: Any) -> Any:
        d = 1 + x[..., None] * y[:, None]  # (g, R, h/2, m)
        e = 1 + p[..., None] * q[:, None]
        one = 1 / (d * e)
        r, s = e * one, d * one
        dS = dS[:, :, None]
        return (dS * (r - r * r)).sum(1), (dS * (s - s * s)).sum(1)

    @loops
    def pull_both(x: torch.Tensor, y: torch.Tensor, dS: torch.Tensor) -> Any:
        r = 1 / (1 + x[:, :, None] * y[:, None])
        weighted = dS[..., None] * r
        return (weighted - weighted * r).sum(2), weighted.sum(2)

    def finite(x: torch.Tensor, y: torch.Tensor) -> bool:
        return bool((x.amax(1) * y.amax(1) < LARGEST).all())

    def scores(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        if finite(x, y):
            return score_in_pairs(*halves(x), *halves(y, columns=True), *halves(w))
        return score(x, y, w)

    def gradient(x: torch.Tensor, y: torch.Tensor, dS: torch.Tensor) -> Any:
        da, dw = pull_both(x, y, dS)
        if finite(x, y):
            pair = pull_in_pairs(*halves(x), *halves(y, columns=True), dS)
            db = torch.cat(pair, 1).mT[..., : x.shape[-1]]
        else:  # a sum over queries is quicker as one over keys, of all exchanged
            db = pull(y, x, dS.mT.contiguous())
        return da, db, dw.sum(1, keepdim=True)

    try:
        scores(*(torch.ones(2, 3, 5), torch.ones(2, 7, 5), torch.ones(2, 1, 5)))
    except Exception as error:  # what is missing: a compiler, headers, a place to write
        reason = str(error).strip().splitlines()[0]
        warnings.warn(
            f"additive_attention: computes without a compiler, as torch.compile finds none that works: {reason}",
            stacklevel=2,
        )
        return None
    return scores, gradient
