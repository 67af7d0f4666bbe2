"""Which query sees which key, decided once and asked ever after; and what every function does around its core."""

import functools
import math
from collections.abc import Callable
from typing import Any, Literal, Self

import torch
from torch.nn.functional import pad

from attn_tutor.geometry import RULES, Seen, Slopes, in_groups
from attn_tutor.torch._arrays import (
    any_along,
    look,
    require_bias,
    require_boolean,
    require_fit,
    transformed,
)

BLOCK = 64  # keys: kernels are a tenth slower where the last block is not full
LARGEST = 1e15  # the product of two rows of such length is finite
PAIRS = 2**24  # pairs that are looked at at once


class Visibility(Seen[torch.Tensor]):
    """What n queries see of m keys; what is asked for is made on ``device``."""

    require_fit = staticmethod(require_fit)

    def __init__(
        self, n: int, m: int, device: torch.device, *mask: Any, **said: Any
    ) -> None:
        self.device, self.careful = device, False  # are numbers too large for kernels?
        super().__init__(n, m, *mask, **said)

    @classmethod
    def new(cls, Q: torch.Tensor, n: int, m: int, **said: Any) -> Self:
        return cls(n, m, Q.device, **said)

    @classmethod
    def read(
        cls, where: str, name: str, given: Any, Q: torch.Tensor, m: int
    ) -> dict[str, torch.Tensor]:
        if name == "mask":
            require_boolean(where, given, Q.device)
            return {"mask": given}
        if isinstance(given, Slopes):
            wide = torch.promote_types(Q.dtype, torch.float32)
            return {"slopes": given.slopes.to(Q.device, wide)[..., None, None]}
        if name == "bias":
            require_bias(where, given, Q.device)
            least = look(torch.amin, given)
            if least is not None and least > -math.inf:
                return {"bias": given}
            return {"bias": given, "mask": given != -torch.inf}
        given = given.to(Q.device)
        if name == "documents":
            return documents(where, given, Q.shape[-2], m)
        return {name: given[..., None, None]}

    def count(self, start: int, stop: int) -> torch.Tensor:
        return torch.arange(start, stop, device=self.device)

    def as_numbers(self, X: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        return X.to(like.dtype)

    @property
    def by_blocks(self) -> bool:
        """Whether one may look at the numbers of rules; a compiler's graph would fit one length only."""
        return not (
            torch.compiler.is_compiling() or transformed() or self.device.type == "meta"
        )

    def sure(self, rows: slice, keys: slice) -> bool | None:
        return super().sure(rows, keys) if self.by_blocks else None

    @property
    def tall(self) -> bool:
        """Whether arrays say something of each query by itself."""
        arrays = self.arrays
        return "slopes" in arrays or any(X.shape[-2] > 1 for X in arrays.values())

    def looked_at(self, seen: torch.Tensor) -> torch.Tensor | bool:
        return False if look(torch.any, seen) is False else seen

    def over_heads(self) -> "Visibility":
        """What is seen in some head: the heads axis is gone."""
        other = self.map(lambda X: X[..., 0, :, :] if X.ndim > 2 else X)
        mask = self.arrays.get("mask")
        if mask is not None and mask.ndim > 2:
            other.arrays["mask"] = any_along(mask, -3).squeeze(-3)
        return other

    def of_heads(self, heads: slice) -> "Visibility":
        """What is seen in some of the heads; what is the same in all stays as it is."""
        return self.map(
            lambda X: X[..., heads, :, :] if X.ndim > 2 and X.shape[-3] > 1 else X
        )

    def in_blocks(
        self, at: int, rows: slice, keys: slice, height: int, width: int
    ) -> "Visibility":
        """Of one in a batch, what blocks of queries see by a window of as many keys each."""
        count = (rows.stop - rows.start) // height
        begins = keys.start + height * self.count(0, count)[:, None, None]
        arrays = {}
        for name, X in self.arrays.items():
            X = X[at if len(X) > 1 else 0]  # (h, n, m)
            row, key = (X.stride(k) * (X.shape[k] > 1) for k in (-2, -1))
            shape = len(X), count if row or key else 1, height if row else 1, width if key else 1  # fmt: skip
            start = X.storage_offset() + rows.start * row + keys.start * key
            strides = X.stride(0), height * (row + key), row, key
            X = X.as_strided(shape, strides, start)  # (h, blocks, height, width)
            arrays[name] = X - begins if name in RULES else X
        return Visibility(height, width, self.device, causal=True, window=self.window, **arrays)  # fmt: skip

    def between(
        self, queries: torch.Tensor, keys: torch.Tensor, mask: torch.Tensor | None
    ) -> torch.Tensor | bool:
        """As :meth:`tile`, for queries and keys at any positions, and the part of a mask that belongs to them."""
        seen: Any = True if mask is None else mask
        if self.ruled and len(queries) and len(keys):
            runs = self.runs.at(queries)
            sure = runs.ends().sure(slice(int(keys.min()), int(keys.max()) + 1))
            if sure is False:
                return False
            if sure is None:
                seen = runs.pairs(keys.to(self.device)) & seen
        return seen if isinstance(seen, bool) else self.looked_at(seen)

    def anyone(self) -> torch.Tensor | None:
        """The keys that some query sees, (…, m or 1), and of those that rules hide maybe some more; None for all."""
        seen = None
        if self.ruled and self.n:
            j, runs = self.count(0, self.m), self.runs.runs
            found = [(a.amin(-2) <= j) & (j < b.amax(-2)) for a, b in runs]
            seen = functools.reduce(torch.logical_or, found)
        mask = self.arrays.get("mask")
        if mask is not None:
            mask = any_along(mask, -2).squeeze(-2)
            seen = mask if seen is None else seen & mask
        return seen

    def who(self, marked: torch.Tensor) -> torch.Tensor:
        """Which queries see a marked key, (…, m) -> (…, n, 1)."""
        mask = self.arrays.get("mask")
        if not self.ruled or (mask is not None and mask.shape[-2] != 1):
            return self._search(marked)
        if mask is not None:
            marked = marked & mask[..., 0, :]
        # How many of the first j keys are marked, for j = 0 … m: enough to know it of each run.
        count = pad(marked.cumsum(-1), (1, 0))[..., None]
        ends = [X.shape[:-2] for run in self.runs.runs for X in run]
        batch = torch.broadcast_shapes(count.shape[:-2], *ends)
        count = count.expand(*batch, -1, 1)

        def upto(j: torch.Tensor) -> torch.Tensor:
            return count.gather(-2, j.expand(*batch, -1, 1))

        found = [upto(b) > upto(a.minimum(b)) for a, b in self.runs.runs]
        return functools.reduce(torch.logical_or, found)

    def _search(self, marked: torch.Tensor) -> torch.Tensor:
        """The same, key by key."""
        step = max(1, PAIRS // max(1, self.m)) if self.by_blocks else self.n
        found = []
        for rows in self.blocks(step):
            seen = self.tile(rows, slice(0, self.m)) & marked[..., None, :]
            seen = seen.any(-1, keepdim=True)
            found.append(seen.expand(*seen.shape[:-2], rows.stop - rows.start, 1))
        return torch.cat(found, -2)

    def trim(self, *keyed: torch.Tensor) -> tuple[Any, ...]:
        """Without the last keys if lengths or a mask of one row hide them from all: then padding is free."""
        stop: int | None = None
        if torch.compiler.is_compiling() or self.m < BLOCK:
            return self, *keyed
        mask, lengths = self.arrays.get("mask"), self.arrays.get("valid")
        if mask is not None and mask.shape[-2:] == (1, self.m):
            stop = look(_length, mask)
        elif lengths is not None:
            stop = look(torch.max, lengths)
        if stop is None or stop > self.m - BLOCK:
            return self, *keyed
        m, stop = self.m, -(-stop // BLOCK) * BLOCK
        short = self.map(lambda X: X[..., :stop] if X.shape[-1] == m > 1 else X)
        short.m = stop
        short.forget()
        return short, *(X[..., :stop, :] for X in keyed)


def documents(where: str, ids: torch.Tensor, n: int, m: int) -> dict[str, torch.Tensor]:
    """Where the document of each query begins and ends; a mask if one is not in one piece."""
    if ids.shape[-1] != m or n > m:
        raise ValueError(
            f"{where}: documents numbers {ids.shape[-1]} tokens, but there are {m} keys, of which the last {n} ask"
        )
    new = ids[..., 1:] != ids[..., :-1]  # (…, m − 1)
    j = torch.arange(m, device=ids.device)
    begin = torch.where(pad(new, (1, 0), value=True), j, 0).cummax(-1).values
    end = torch.where(pad(new, (0, 1), value=True), j + 1, m)
    end = end.flip(-1).cummin(-1).values.flip(-1)
    pieces = (ids.sort(-1).values.diff() != 0).sum(-1)
    if look(torch.all, pieces == new.sum(-1), wait=True):
        return {"begin": begin[..., m - n :, None], "end": end[..., m - n :, None]}
    return {"mask": ids[..., m - n :, None] == ids[..., None, :]}


def attend_by(
    where: str,
    core: Callable[..., torch.Tensor],
    *arrays: torch.Tensor,
    short: bool = True,
    groups: int | None = None,
    **said: Any,
) -> Any:
    """What every public function does around its core: check, trim, hide, compute, finish.

    Args:
        where: the function, for messages.
        core: takes queries, what belongs to keys, and the :class:`Visibility`; what is hidden is finite by then.
        arrays: queries (…, n, d), and what belongs to keys, (…, m, d).
        short: whether the core may do without keys that nobody sees; else its output would lack their columns.
        groups: how many heads keys have, (…, groups, m, d), if those of queries share them; None is as many.
        said: ``mask``, ``causal``, ``window``, ``bias`` and ``n_heads``, as the caller got them.
    """
    see = Visibility.of(where, *arrays, shared=groups is not None, **said)
    Q, *keyed = arrays
    if short:
        see, *keyed = see.trim(*keyed)
    heads: Any = "all" if "n_heads" in said else ""
    return around(core, see, Q, *keyed, heads=heads, groups=groups)


def around(
    core: Callable[..., Any],
    see: Visibility,
    Q: torch.Tensor,
    *keyed: torch.Tensor,
    heads: Literal["", "all", "each"] = "",
    groups: int | None = None,
) -> Any:
    """Hide, compute, finish, for arguments that are checked.

    Where ``see`` has an axis for heads and the arrays have none, what is not finite spoils a query if ``all`` heads
    share its output, or ``each`` for itself. A core may give weights beside its output. Heads share keys that have
    fewer, ``groups`` of them, and nothing is copied.
    """
    if groups and groups < Q.shape[-3]:
        keyed = tuple(X[..., None, :, :] for X in keyed)
        found = around(core, see.in_groups(groups), in_groups(Q, groups), *keyed)
        return found.flatten(-4, -3)
    Q_, *keyed_, spoiled = hide(see.over_heads() if heads else see, Q, *keyed)
    found = core(Q_, *keyed_, see)
    if heads == "each":
        *_, spoiled = hide(see, *(X[..., None, :, :] for X in (Q, *keyed)))
    if not isinstance(found, tuple):
        return finish(found, spoiled)
    output, weights = found
    each = spoiled[..., None, :, :] if heads and spoiled is not None else spoiled
    return finish(output, spoiled), finish(weights, each)


def hide(see: Visibility, Q: torch.Tensor, *keyed: torch.Tensor) -> tuple[Any, ...]:
    """Set rows to 0 that are not finite or that nobody sees: a weight of 0 would come too late, as 0 · NaN is NaN.

    The last array returned, (…, n, 1), marks the queries that had a right to see what was not finite, for
    :func:`finish`; it is None where nothing hidden can do harm.
    """
    small = _small(Q, *keyed)
    see.careful = small is False
    if see.everything or small:
        return Q, *keyed, None
    asks = torch.isfinite(Q).all(-1, keepdim=True)  # (…, n, 1)
    finite = (torch.isfinite(X).all(-1) for X in keyed)
    kept = functools.reduce(torch.logical_and, finite)  # (…, m)
    spoiled = see.who(~kept) | ~asks & see.who(torch.ones_like(kept))
    if (seen := see.anyone()) is not None:
        kept = kept & seen
    keyed = tuple(torch.where(kept[..., None], X, 0) for X in keyed)
    return torch.where(asks, Q, 0), *keyed, spoiled


def finish(output: torch.Tensor, spoiled: torch.Tensor | None) -> torch.Tensor:
    """Give NaN to the queries that had a right to see one."""
    return output if spoiled is None else output.masked_fill(spoiled, torch.nan)


def masked(
    scores: torch.Tensor, seen: torch.Tensor, empty: torch.Tensor | None
) -> torch.Tensor:
    """Scores, −∞ where they are not seen; but 0 in an empty row, so that its softmax and gradient are finite."""
    scores = torch.where(seen, scores, -torch.inf)
    return scores if empty is None else scores.masked_fill(empty, 0)


def sees_nothing(mask: torch.Tensor) -> torch.Tensor | None:
    """The empty rows of a mask, (…, n or 1, 1); None where there are none, as far as one can look."""
    seen = any_along(mask if mask.ndim else mask[None], -1)
    return None if look(torch.all, seen) else ~seen


def _small(*arrays: torch.Tensor) -> bool | None:
    """Whether nothing hidden can do harm, as norms show faster than a look at each number; None if one cannot look.

    What is finite gets a weight of exactly 0 unless a dot product overflows, and that is at most a product of norms.
    """
    if torch.compiler.is_compiling():  # a graph would be made for each tensor by itself
        return None
    # Tokens that attend to themselves are one tensor given twice.
    given = [*{id(X): X.detach() for X in arrays}.values()]
    wide = torch.float32 if given[0].dtype == torch.float16 else given[0].dtype
    norms = look(lambda _: torch.stack(torch._foreach_norm(given, 2, wide)), given[0])
    return None if norms is None else all(norm < LARGEST for norm in norms)


def _length(mask: torch.Tensor) -> torch.Tensor:
    """How many keys there are up to the last that some query sees."""
    seen = any_along(mask.reshape(-1, mask.shape[-1]), 0)
    return (seen * torch.arange(1, mask.shape[-1] + 1)).max()
