"""Which query sees which key, decided once and asked ever after; and what every function does around its core."""

import functools
from collections.abc import Callable
from typing import Any, Self

import numpy as np

from attn_tutor.geometry import Seen, Slopes, in_groups
from attn_tutor.numpy._arrays import require_bias, require_boolean

LARGEST = 1e15  # the product of two rows of such numbers is finite
PAIRS = 2**24  # pairs that are looked at at once


class Visibility(Seen[np.ndarray]):
    """What n queries see of m keys."""

    @classmethod
    def new(cls, Q: np.ndarray, n: int, m: int, **said: Any) -> Self:
        return cls(n, m, **said)

    @classmethod
    def read(
        cls, where: str, name: str, given: Any, Q: np.ndarray, m: int
    ) -> dict[str, np.ndarray]:
        if name == "mask":
            require_boolean(where, given)
            return {"mask": given}
        if isinstance(given, Slopes):
            wide = np.promote_types(Q.dtype, np.float32)
            return {"slopes": given.slopes.astype(wide)[..., None, None]}
        if name == "bias":
            require_bias(where, given)
            hidden = np.isneginf(given)
            more = {"mask": ~hidden} if hidden.any() else {}
            return {"bias": given, **more}
        if name == "documents":
            return documents(where, given, Q.shape[-2], m)
        return {name: given[..., None, None]}

    def count(self, start: int, stop: int) -> np.ndarray:
        return np.arange(start, stop, dtype=np.int32)

    def as_numbers(self, X: np.ndarray, like: np.ndarray) -> np.ndarray:
        return X.astype(like.dtype)

    def looked_at(self, seen: np.ndarray) -> np.ndarray | bool:
        return True if seen.all() else seen if seen.any() else False

    def anyone(self) -> np.ndarray:
        """The keys that some query sees, (…, m), and of those that rules hide maybe some more."""
        seen = np.ones(self.m, bool)
        if self.ruled and self.n:
            j, runs = self.count(0, self.m), self.runs.runs
            found = [(a.min(-2) <= j) & (j < b.max(-2)) for a, b in runs]
            seen = functools.reduce(np.logical_or, found)
        if "mask" in self.arrays:
            seen = seen & self.arrays["mask"].any(-2)
        return seen

    def who(self, marked: np.ndarray) -> np.ndarray:
        """Which queries see a marked key, (…, m) -> (…, n, 1)."""
        found = []
        for rows in self.blocks(max(1, PAIRS // max(1, self.m))):
            seen = self.tile(rows, slice(0, self.m)) & marked[..., None, :]
            seen = seen.any(-1, keepdims=True)
            shape = (*seen.shape[:-2], rows.stop - rows.start, 1)
            found.append(np.broadcast_to(seen, shape))
        return np.concatenate(found, -2)


def documents(where: str, ids: np.ndarray, n: int, m: int) -> dict[str, np.ndarray]:
    """Where the document of each query begins and ends; a mask if one is not in one piece."""
    if ids.shape[-1] != m or n > m:
        raise ValueError(
            f"{where}: documents numbers {ids.shape[-1]} tokens, but there are {m} keys, of which the last {n} ask"
        )
    new = ids[..., 1:] != ids[..., :-1]  # (…, m − 1)
    edge = np.ones((*ids.shape[:-1], 1), bool)
    j = np.arange(m, dtype=np.int32)
    begin = np.where(np.concatenate([edge, new], -1), j, 0)
    begin = np.maximum.accumulate(begin, -1)
    end = np.where(np.concatenate([new, edge], -1), j + 1, m)
    end = np.minimum.accumulate(end[..., ::-1], -1)[..., ::-1]
    pieces = (np.diff(np.sort(ids, -1)) != 0).sum(-1)
    if (pieces == new.sum(-1)).all():
        return {"begin": begin[..., m - n :, None], "end": end[..., m - n :, None]}
    return {"mask": ids[..., m - n :, None] == ids[..., None, :]}


def attend_by(
    where: str,
    core: Callable[..., Any],
    *arrays: np.ndarray,
    project: Callable[..., tuple[np.ndarray, ...]] | None = None,
    groups: int | None = None,
    **said: Any,
) -> Any:
    """What every public function does around its core: check, hide, compute, finish.

    Args:
        where: the function, for messages.
        core: takes queries, what belongs to keys, and the :class:`Visibility`; what is hidden is finite by then.
        arrays: queries (…, n, d), and what belongs to keys, (…, m, d).
        project: makes of these what the core takes; None leaves them.
        groups: how many heads keys have, (…, groups, m, d), if those of queries share them; None is as many.
        said: ``mask``, ``causal``, ``window``, ``bias`` and ``n_heads``, as the caller got them.
    """
    shared = groups is not None and project is None
    see = Visibility.of(where, *arrays, shared=shared, **said)
    Q, *keyed = arrays if project is None else project(*arrays)
    h = Q.shape[-3] if groups else 0
    if groups and groups < h:
        see, Q = see.in_groups(groups), in_groups(Q, groups)
        keyed = [X[..., None, :, :] for X in keyed]
    Q, *keyed, spoiled = hide(see, Q, *keyed)
    found = finish(core(Q, *keyed, see), spoiled)
    if not groups or groups == h:
        return found
    return found.reshape(*found.shape[:-4], h, *found.shape[-2:])


def hide(see: Visibility, Q: np.ndarray, *keyed: np.ndarray) -> tuple[Any, ...]:
    """Clear what is hidden before it is multiplied: a weight of 0 would come too late, as 0 · NaN is NaN.

    Where anything is hidden, rows become 0 that are not finite, and those of keys that no query sees.
    The last array returned, (…, n, 1), marks the queries that had a right to see what was not finite, for
    :func:`finish`; it is None where there are none.
    """
    if see.everything or all(_is_small(X) for X in (Q, *keyed)):
        return Q, *keyed, None
    kept, spoiled = see.anyone(), None  # (…, m)
    asks = np.isfinite(Q).all(-1, keepdims=True)  # (…, n, 1)
    finite = functools.reduce(np.logical_and, (np.isfinite(X).all(-1) for X in keyed))
    if not (asks.all() and finite.all()):
        spoiled = see.who(~finite) | ~asks & see.who(np.ones_like(finite))
        Q, kept = np.where(asks, Q, 0), kept & finite
    if not kept.all():
        keyed = tuple(np.where(kept[..., None], X, 0) for X in keyed)
    return Q, *keyed, spoiled


def finish(output: Any, spoiled: np.ndarray | None) -> Any:
    """Give NaN to the queries that had a right to see one."""
    if spoiled is None:
        return output
    if isinstance(output, tuple):
        return tuple(finish(X, spoiled) for X in output)
    return np.where(spoiled, np.nan, output)


def _is_small(X: np.ndarray) -> bool:
    """Whether nothing hidden can do harm: what is finite gets a weight of exactly 0 unless a product overflows."""
    least, greatest = float(X.min(initial=0)), float(X.max(initial=0))
    return least > -LARGEST and greatest < LARGEST
