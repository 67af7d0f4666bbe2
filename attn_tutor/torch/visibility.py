"""Which query sees which key: decided once, from a mask, causality, a window and a bias, and asked ever after."""

import functools
from typing import Any

import torch
from torch.nn.functional import pad

from attn_tutor._checks import broadcast, lacks_heads, require_window
from attn_tutor.torch._arrays import (
    any_along,
    look,
    require_bias,
    require_boolean,
    require_fit,
)

BLOCK = 64  # keys: kernels are a tenth slower where the last block is not full


class Visibility:
    """What n queries see of m keys.

    Args:
        n: number of queries.
        m: number of keys.
        device: where what is asked for is made.
        mask: boolean, (…, n or 1, m or 1); True = may attend. None hides nothing.
        causal: query i sees no key after i + m − n.
        window: and of the others only so many, the last; needs ``causal``.
    """

    __slots__ = ("_dense", "_empty", "device", "last", "m", "mask", "n", "window")

    def __init__(
        self,
        n: int,
        m: int,
        device: torch.device,
        mask: torch.Tensor | None = None,
        causal: bool = False,
        window: int | None = None,
    ) -> None:
        self.n, self.m, self.device = n, m, device
        self.mask, self.window = mask, window
        # The last key that query 0 sees. A lone query is the newest and sees all.
        self.last: Any = None
        if causal and (n > 1 or window is not None):
            self.last = m - n
        self._dense: torch.Tensor | None = None
        self._empty: Any = ...  # nobody has asked yet

    @classmethod
    def of(
        cls,
        where: str,
        Q: torch.Tensor,
        *keyed: torch.Tensor,
        mask: torch.Tensor | None = None,
        causal: bool = False,
        window: int | None = None,
        bias: torch.Tensor | None = None,
        n_heads: int | None = None,
    ) -> "Visibility":
        """Check what hides keys from a public function, for queries (…, n, d) and what belongs to keys (…, m, d).

        With ``n_heads`` the mask gets an axis for the heads, (…, h or 1, n or 1, m or 1). A bias of −∞ hides, too.
        """
        n, m = Q.shape[-2], keyed[0].shape[-2]
        require_window(where, window, causal)
        if mask is not None or bias is not None:
            batch = broadcast(*(X.shape[:-2] for X in (Q, *keyed))) or ()
            scores = (*batch, n, m)
            if mask is not None:
                require_boolean(where, mask, Q.device)
                if n_heads and lacks_heads(where, mask.shape, batch, n_heads):
                    require_fit(where, "mask", mask.shape, scores)
                    mask = mask[..., None, :, :]
            if n_heads:
                scores = (*batch, n_heads, n, m)
            if mask is not None:
                require_fit(where, "mask", mask.shape, scores)
                mask = torch.atleast_2d(mask)
            if bias is not None:
                require_bias(where, bias, scores, Q.device)
                seen = torch.atleast_2d(bias != -torch.inf)
                if not look(torch.all, seen):
                    mask = seen if mask is None else mask & seen
        return cls(n, m, Q.device, mask, causal, window)

    def over_heads(self) -> "Visibility":
        """What is seen in some head: the heads axis is gone."""
        if self.mask is None or self.mask.ndim < 3:
            return self
        return self._with(any_along(self.mask, -3).squeeze(-3))

    def in_groups(self, n_groups: int) -> "Visibility":
        """With the heads in groups that share keys."""
        if self.mask is None or self.mask.ndim < 3:
            return self
        return self._with(in_groups(self.mask, n_groups))

    def of_heads(self, heads: slice) -> "Visibility":
        """What is seen in some of the heads."""
        mask = of_heads(self.mask, heads)
        return self if mask is None else self._with(mask)

    def _with(self, mask: torch.Tensor) -> "Visibility":
        other = Visibility(self.n, self.m, self.device, mask)
        other.last, other.window = self.last, self.window
        return other

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

    def tile(self, rows: slice, keys: slice) -> Any:
        """None if each of these queries sees all of these keys, False if none sees any, else a boolean array."""
        seen = None
        if self.last is not None:
            # j − i of key j and query i, from the last key that i sees
            low = keys.start - (rows.stop - 1) - self.last
            high = keys.stop - 1 - rows.start - self.last
            oldest = low if self.window is None else 1 - self.window
            if low > 0 or high < oldest:
                return False
            if high > 0 or low < oldest:
                seen = self._band(rows, keys)
        if (part := self.part(rows, keys)) is not None:
            seen = part if seen is None else part & seen
            if look(torch.any, seen) is False:
                return False
        return seen

    def part(self, rows: slice, keys: slice) -> torch.Tensor | None:
        """What the mask says of some queries and keys."""
        if self.mask is None:
            return None
        *_, height, width = self.mask.shape
        rows = rows if height > 1 else slice(1)
        keys = keys if width > 1 else slice(1)
        return self.mask[..., rows, keys]

    def between(
        self, queries: torch.Tensor, keys: torch.Tensor, mask: torch.Tensor | None
    ) -> Any:
        """As :meth:`tile`, for queries and keys at any positions, and the part of a mask that belongs to them."""
        seen = mask
        if self.last is not None and len(queries) and len(keys):
            # j − i of key j and query i, from the last key that i sees
            ends = [int(end) + self.last for end in (queries.min(), queries.max())]
            low, high = int(keys.min()) - ends[1], int(keys.max()) - ends[0]
            oldest = low if self.window is None else 1 - self.window
            if low > 0 or high < oldest:
                return False
            if high > 0 or low < oldest:
                place = (keys - queries[:, None] - self.last).to(self.device)
                band = place <= 0
                if self.window is not None:
                    band &= place > -self.window
                seen = band if mask is None else band & mask
        if seen is not None and look(torch.any, seen) is False:
            return False
        return seen

    def dense(self) -> Any:
        """The whole mask, (…, n or 1, m or 1); None hides nothing."""
        if self._dense is None and not self.everything:
            self._dense = self.mask
            if self.last is not None:
                band = self._band(slice(0, self.n), slice(0, self.m))
                self._dense = band if self.mask is None else self.mask & band
        return self._dense

    def _band(self, rows: slice, keys: slice) -> torch.Tensor:
        """What causality and the window leave."""
        shape = rows.stop - rows.start, keys.stop - keys.start
        offset = self.last + rows.start - keys.start
        seen = torch.ones(shape, dtype=torch.bool, device=self.device).tril(offset)
        return seen if self.window is None else seen.triu(offset - self.window + 1)

    def numbers(self, bias: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor:
        """What to add to scores, (…, n or 1, m): the bias, and −∞ where a key is hidden; but 0 to an empty row."""
        added = torch.zeros(1, 1, dtype=dtype, device=self.device)
        if bias is not None:
            added = torch.atleast_2d(bias)[..., : self.m].to(dtype)
        seen = self.dense()
        if seen is not None:
            added = masked(added, seen, self.empty())
        return added.expand(*added.shape[:-1], self.m)

    def empty(self) -> torch.Tensor | None:
        """Queries that see nothing, (…, n, 1); None where there are none, as far as one can look."""
        if self._empty is ...:
            self._empty = self._find_empty()
        return self._empty

    def _find_empty(self) -> torch.Tensor | None:
        if self.m == 0:
            return torch.ones(self.n, 1, dtype=torch.bool, device=self.device)
        if self.mask is None:
            if self.last is None or self.last >= 0:
                return None
            return torch.arange(self.n, device=self.device)[:, None] < -self.last
        if not self._countable():
            return sees_nothing(self.dense())
        seen = self.who(torch.ones(self.m, dtype=torch.bool, device=self.device))
        return None if look(torch.all, seen) else ~seen

    def anyone(self) -> torch.Tensor | None:
        """The keys that some query sees, (…, m or 1); None where that is all of them."""
        if self.mask is not None:
            return any_along(self.dense(), -2).squeeze(-2)
        if self.window is None:
            return None
        return torch.arange(self.m, device=self.device) > self.last - self.window

    def who(self, marked: torch.Tensor) -> torch.Tensor:
        """Which queries see a marked key, (…, m) -> (…, n, 1)."""
        if not self._countable():
            return (self.dense() & marked[..., None, :]).any(-1, keepdim=True)
        if self.mask is not None:
            marked = marked & self.mask[..., 0, :]
        # How many of the first j keys are marked, for j = 0 … m.
        count = pad(marked.cumsum(-1), (1, 0))
        stop = torch.arange(1, self.n + 1, device=self.device) + self.last
        seen = count[..., stop.clamp(0, self.m)]
        if self.window is not None:
            seen = seen - count[..., (stop - self.window).clamp(0, self.m)]
        return (seen > 0)[..., None]

    def _countable(self) -> bool:
        """Whether queries differ by causality and the window alone, so that what each sees is a run of keys."""
        one_row = self.mask is None or self.mask.shape[-2] == 1
        return self.last is not None and one_row

    def trim(self, *keyed: torch.Tensor) -> tuple[Any, ...]:
        """Without the last keys if a mask of one row, as lengths make it, hides them from all: then padding is free."""
        if self.mask is None or self.mask.shape[-2:] != (1, self.m):
            return self, *keyed
        stop = look(_length, self.mask)
        if stop is None or stop > self.m - BLOCK:
            return self, *keyed
        stop = -(-stop // BLOCK) * BLOCK
        short = self._with(self.mask[..., :stop])
        short.m = stop
        return short, *(X[..., :stop, :] for X in keyed)


def hide(see: Visibility, Q: torch.Tensor, *keyed: torch.Tensor) -> tuple[Any, ...]:
    """Set rows to 0 that are not finite or that nobody sees: a weight of 0 would come too late, as 0 · NaN is NaN.

    The last array returned, (…, n, 1), marks the queries that had a right to see what was not finite, for
    :func:`finish`; it is None where nothing hidden can do harm.
    """
    if see.everything or _small(Q, *keyed):
        return Q, *keyed, None
    asks = torch.isfinite(Q).all(-1, keepdim=True)  # (…, n, 1)
    kept = functools.reduce(
        torch.logical_and, (torch.isfinite(X).all(-1) for X in keyed)
    )  # (…, m)
    spoiled = see.who(~kept) | ~asks
    if (empty := see.empty()) is not None:
        spoiled = spoiled & ~empty
    if (seen := see.anyone()) is not None:
        kept = kept & seen
    keyed = tuple(torch.where(kept[..., None], X, 0) for X in keyed)
    return torch.where(asks, Q, 0), *keyed, spoiled


def finish(
    output: torch.Tensor, see: Visibility | None, spoiled: torch.Tensor | None
) -> torch.Tensor:
    """The last word: a query that sees nothing gets 0, and one that had a right to see a NaN gets NaN."""
    empty = None if see is None else see.empty()
    if empty is not None:
        output = output.masked_fill(empty, 0)
    return output if spoiled is None else output.masked_fill(spoiled, torch.nan)


def masked(
    scores: torch.Tensor, seen: torch.Tensor, empty: torch.Tensor | None
) -> torch.Tensor:
    """Scores, −∞ where they are not seen; but 0 in an empty row, so that its softmax and gradient are finite."""
    scores = torch.where(seen, scores, -torch.inf)
    return scores if empty is None else scores.masked_fill(empty, 0)


def in_groups(X: torch.Tensor, n_groups: int) -> torch.Tensor:
    """The heads axis split in two, (…, h, n, m) to (…, groups, h / groups, n, m); one for all heads stays one."""
    return X.unflatten(-3, (min(n_groups, X.shape[-3]), -1))


def of_heads(X: torch.Tensor | None, heads: slice) -> torch.Tensor | None:
    """Some of the heads of (…, h, n, m); what is the same in all heads stays as it is."""
    if X is None or X.ndim < 3 or X.shape[-3] == 1:
        return X
    return X[..., heads, :, :]


def sees_nothing(mask: torch.Tensor) -> torch.Tensor | None:
    """The empty rows of a mask, (…, n or 1, 1); None where there are none, as far as one can look."""
    seen = any_along(torch.atleast_1d(mask), -1)
    return None if look(torch.all, seen) else ~seen


def _small(*arrays: torch.Tensor) -> bool:
    """Whether nothing hidden can do harm, as norms show faster than a look at each number.

    What is finite gets a weight of exactly 0 unless a dot product overflows, and that is at most a product of norms.
    """
    # A set, because tokens that attend to themselves are one tensor given twice.
    norms = (look(torch.linalg.vector_norm, X.detach()) for X in {*arrays})
    return all(norm is not None and norm < 1e15 for norm in norms)


def _length(mask: torch.Tensor) -> torch.Tensor:
    """How many keys there are up to the last that some query sees."""
    seen = any_along(mask.reshape(-1, mask.shape[-1]), 0)
    return (seen * torch.arange(1, mask.shape[-1] + 1)).max()
