"""Which query sees which key: decided once, from a mask, causality, a window and a bias, and asked ever after."""

import functools
from typing import Any, Self

import numpy as np

from attn_tutor._checks import broadcast, lacks_heads, require_fit, require_window
from attn_tutor.numpy._arrays import require_bias, require_boolean


class Visibility:
    """What n queries see of m keys.

    Args:
        n: number of queries.
        m: number of keys.
        mask: boolean, (…, n or 1, m or 1); True = may attend. None hides nothing.
        causal: query i sees no key after i + m − n.
        window: and of the others only so many, the last; needs ``causal``.
    """

    __slots__ = ("last", "m", "mask", "n", "window")

    def __init__(
        self,
        n: int,
        m: int,
        mask: np.ndarray | None = None,
        causal: bool = False,
        window: int | None = None,
    ) -> None:
        self.n, self.m, self.mask = n, m, mask
        self.window = window if window is not None and window < m else None
        # The last key that query 0 sees. A lone query is the newest and sees all.
        self.last = m - n if causal and (n > 1 or self.window) else None

    @classmethod
    def of(
        cls,
        where: str,
        Q: np.ndarray,
        *keyed: np.ndarray,
        mask: np.ndarray | None = None,
        causal: bool = False,
        window: int | None = None,
        bias: np.ndarray | None = None,
        n_heads: int | None = None,
    ) -> Self:
        """Check what hides keys from a public function, for queries (…, n, d) and what belongs to keys (…, m, d).

        With ``n_heads`` the mask gets an axis for the heads, (…, h or 1, n or 1, m or 1). A bias of −∞ hides, too.
        """
        n, m = Q.shape[-2], keyed[0].shape[-2]
        require_window(where, window, causal)
        if mask is not None or bias is not None:
            batch = broadcast(*(X.shape[:-2] for X in (Q, *keyed))) or ()
            scores = (*batch, n, m)
            if mask is not None:
                require_boolean(where, mask)
                if n_heads and lacks_heads(where, mask.shape, batch, n_heads):
                    require_fit(where, "mask", mask.shape, scores)
                    mask = mask[..., None, :, :]
            if n_heads:
                scores = (*batch, n_heads, n, m)
            if mask is not None:
                require_fit(where, "mask", mask.shape, scores)
                mask = np.atleast_2d(mask)
            if bias is not None:
                require_bias(where, bias, scores)
                hidden = np.isneginf(np.atleast_2d(bias))
                if hidden.any():
                    mask = ~hidden if mask is None else mask & ~hidden
        return cls(n, m, mask, causal, window)

    @property
    def everything(self) -> bool:
        """Whether nothing is hidden, as far as one can tell without looking at a mask."""
        return self.mask is None and self.last is None

    def keys(self, rows: slice) -> slice:
        """The keys that causality and the window leave to some of these queries."""
        if self.last is None:
            return slice(0, self.m)
        stop = min(self.m, max(0, self.last + rows.stop))
        first = 0 if self.window is None else self.last + rows.start - self.window + 1
        return slice(min(stop, max(0, first)), stop)

    def rows(self, rows: slice, keys: slice) -> slice:
        """Those of these queries to which causality and the window leave some of these keys."""
        if self.last is None:
            return rows
        start, stop = max(rows.start, keys.start - self.last), rows.stop
        if self.window is not None:
            stop = min(stop, keys.stop - 1 - self.last + self.window)
        return slice(min(start, stop), stop)

    def tile(self, rows: slice, keys: slice) -> Any:
        """None if each of these queries sees all of these keys, False if none sees any, else a boolean array."""
        seen = None
        if self.last is not None:
            # j - i of key j and query i, from the last key that i sees
            low = keys.start - (rows.stop - 1) - self.last
            high = keys.stop - 1 - rows.start - self.last
            oldest = low if self.window is None else 1 - self.window
            if low > 0 or high < oldest:
                return False
            if high > 0 or low < oldest:
                shape = rows.stop - rows.start, keys.stop - keys.start
                seen = _band(*shape, keys.start - rows.start - self.last, self.window)
        if self.mask is not None:
            part = self.mask[
                ...,
                rows if self.mask.shape[-2] > 1 else slice(1),
                keys if self.mask.shape[-1] > 1 else slice(1),
            ]
            seen = part if seen is None else part & seen
            if not seen.any():
                return False
            if seen.all():
                return None
        return seen

    def dense(self) -> np.ndarray | None:
        """The whole mask, (…, n or 1, m or 1); None hides nothing."""
        if self.last is None:
            return self.mask
        band = _band.__wrapped__(self.n, self.m, -self.last, self.window)
        return band if self.mask is None else self.mask & band

    def anyone(self) -> np.ndarray:
        """The keys that some query sees, (…, m)."""
        if self.mask is not None:
            dense = self.dense()
            assert dense is not None  # there is a mask
            seen = dense.any(-2)
            return np.broadcast_to(seen, (*seen.shape[:-1], self.m))
        keys = self.keys(slice(0, self.n))
        return (np.arange(self.m) >= keys.start) & (np.arange(self.m) < keys.stop)

    def who(self, marked: np.ndarray) -> np.ndarray:
        """Which queries see a marked key, (…, m) -> (…, n, 1)."""
        if self.mask is not None:
            return (self.dense() & marked[..., None, :]).any(-1, keepdims=True)
        # How many of the first j keys are marked, for j = 0 … m.
        count = np.zeros((*marked.shape[:-1], self.m + 1), int)
        count[..., 1:] = marked.cumsum(-1)
        last = np.full(self.n, self.m) if self.last is None else self._stops()
        first = np.zeros_like(last) if self.window is None else last - self.window
        seen = count[..., last] - count[..., first.clip(0)]
        return (seen > 0)[..., None]

    def at(self, head: Any) -> "Visibility":
        """What is seen in some elements of the batch."""
        return self if self.mask is None else self.masked(self.mask[head])

    def masked(self, mask: np.ndarray) -> "Visibility":
        """The same causality and window with another mask."""
        other = Visibility(self.n, self.m, mask)
        other.last, other.window = self.last, self.window
        return other

    def _stops(self) -> np.ndarray:
        """Up to which key each query sees, that one excluded."""
        assert self.last is not None
        return (np.arange(self.n) + self.last + 1).clip(0, self.m)


def hide(see: Visibility, Q: np.ndarray, *keyed: np.ndarray) -> tuple[Any, ...]:
    """Clear what is hidden before it is multiplied: a weight of 0 would come too late, as 0 · NaN is NaN.

    Where anything is hidden, rows become 0 that are not finite, and those of keys that no query sees.
    The last array returned, (…, n, 1), marks the queries that had a right to see what was not finite, for
    :func:`finish`; it is None where there are none.
    """
    if see.everything:
        return Q, *keyed, None
    kept, spoiled = see.anyone(), None  # (…, m)
    if not all(_looks_finite(X) for X in (Q, *keyed)):
        asks = np.isfinite(Q).all(-1, keepdims=True)  # (…, n, 1)
        finite = functools.reduce(
            np.logical_and, (np.isfinite(X).all(-1) for X in keyed)
        )
        spoiled = see.who(~finite) | ~asks & see.who(np.ones_like(finite))
        Q, kept = np.where(asks, Q, 0), kept & finite
    if not kept.all():
        keyed = tuple(np.where(kept[..., None], X, 0) for X in keyed)
    return Q, *keyed, spoiled


def finish(output: np.ndarray, spoiled: np.ndarray | None) -> np.ndarray:
    """Give NaN to the queries that had a right to see one."""
    return output if spoiled is None else np.where(spoiled, np.nan, output)


@functools.lru_cache(maxsize=16)  # tiles along a diagonal are alike
def _band(n: int, m: int, offset: int, window: int | None) -> np.ndarray:
    """Key j seen by query i where j + offset ≤ i, and above i − window."""
    seen = np.tri(n, m, -offset, dtype=bool)
    if window is not None:
        seen &= ~np.tri(n, m, -offset - window, dtype=bool)
    seen.flags.writeable = False  # it is shared
    return seen


def _looks_finite(X: np.ndarray) -> bool:
    """False if there is NaN or infinity, and also if a sum overflows: it is quick, and a second look may follow."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(X.sum(dtype=np.result_type(X, np.float32))))
