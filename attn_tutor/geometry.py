"""Who may see whom, in whole numbers: what rules say of each query, and of a block of them. Knows no backend.

Whatever can be said in a line leaves a query two runs of keys at most: the later one is what causality, a window,
lengths and documents leave, the early one are sinks and a prefix. So rules are four numbers a query, and no matrix.
A new rule is a line of :meth:`Runs.of`.
"""

from typing import Any, Generic, NamedTuple, Self, TypeVar

from attn_tutor._checks import (
    Shape,
    broadcast,
    lacks_heads,
    require_fit,
    require_window,
)

A = TypeVar("A")
RULES = {"valid", "prefix", "begin", "end"}  # what is said without a matrix, by array


class Rule:
    """Something said of who may see whom, for ``mask=``. Rules combine with ``&``, and with one boolean mask."""

    __array_ufunc__ = None  # NumPy's arrays leave & to us

    def __init__(self, **said: Any) -> None:
        self.said = said

    def __and__(self, other: Any) -> "Rule":
        more = other.said if isinstance(other, Rule) else {"mask": other}
        if twice := self.said.keys() & more.keys():
            raise ValueError(f"&: {', '.join(sorted(twice))} is said on both sides")
        return Rule(**self.said, **more)

    __rand__ = __and__

    @classmethod
    def __torch_function__(
        cls, fn: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """A tensor on the left leaves & to us, too."""
        return args[1] & args[0] if "and" in fn.__name__ else NotImplemented

    def __repr__(self) -> str:
        return f"Rule({', '.join(self.said)})"


class Window:
    """How many keys a query sees: itself and those before it, and so many of the first."""

    def __init__(self, width: int, sinks: int = 0) -> None:
        self.width, self.sinks = width, sinks

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Window) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        return f"Window({self.width}, sinks={self.sinks})"


def window_of(where: str, window: Any, cache: Any) -> Any:
    """What a query sees if a cache keeps no more than its own window and sinks."""
    if cache is None or cache.window is None:
        return window
    width = getattr(window, "width", window) or cache.window
    sinks = getattr(window, "sinks", 0)
    if width > cache.window or sinks > cache.sinks:
        raise ValueError(
            f"{where}: a query sees {width} tokens and {sinks} sinks, but the cache keeps {cache.window} and "
            f"{cache.sinks}; make it with KVCache(window={width}, sinks={sinks})"
        )
    return Window(width, cache.sinks)


class Slopes:
    """For ``bias=``: for each key between a query and a key the score falls by so much, in each head."""

    def __init__(self, slopes: Any) -> None:
        self.slopes = slopes


class Ends(list[tuple[int, int, int, int]]):
    """Of each run of some queries the least and the greatest begin, and the least and the greatest end."""

    def keys(self) -> list[slice]:
        """Runs that hold all keys that these queries see, in order and apart."""
        runs = sorted((a, b) for a, _, _, b in self if a < b)
        if len(runs) == 2 and runs[1][0] <= runs[0][1]:
            runs = [(runs[0][0], max(runs[0][1], runs[1][1]))]
        return [slice(*run) for run in runs]

    def sure(self, keys: slice) -> bool | None:
        """True if each of these queries sees all of these keys, False if none sees any, None if one has to look."""
        if any(a <= keys.start and keys.stop <= b for _, a, b, _ in self):
            return True
        if all(keys.stop <= a or b <= keys.start for a, _, _, b in self):
            return False
        return None

    def edges(self) -> set[int]:
        """Where to cut keys so that one has to look at as few of them as possible."""
        return {x for _, a, b, _ in self if a < b for x in (a, b)}


class Runs(NamedTuple):
    """The keys that each query sees: those of its runs, one or two, each from its begin up to its end, (…, n, 1)."""

    runs: list[tuple[Any, Any]]

    @classmethod
    def of(
        cls,
        i: Any,
        m: int,
        last: int | None = None,
        window: int | None = None,
        sinks: int = 0,
        valid: Any = None,
        prefix: Any = None,
        document: Any = None,
    ) -> "Runs":
        """What rules leave of m keys to queries.

        Args:
            i: numbers of the queries, (n, 1); or of one query, where nothing else is an array.
            m: number of keys.
            last: of keys the last that query 0 sees, so that query i sees none after i + last. None: not causal.
            window: of these only so many, the last.
            sinks: and yet so many of the first.
            valid: how many keys there are, (…, 1, 1).
            prefix: so many of the first in spite of causality and window, (…, 1, 1).
            document: where that of each query starts and stops, two of (…, n, 1).
        """
        head = None
        if last is None:
            start = 0 * i if document else 0 * i[:1]
            stop = start + m
        else:
            stop = _clip(i + (last + 1), m)
            start = 0 * i if window is None else _clip(i + (last + 1 - window), m)
            if sinks:
                head = _clip(stop, sinks)
            if prefix is not None:
                head = _most(0 * i if head is None else head, prefix, m)
        if valid is not None:
            stop, head = (X if X is None else _least(X, valid, m) for X in (stop, head))
        if document is not None:
            begin, end = document
            start = _most(start, begin, m)
            stop, head = (X if X is None else _least(X, end, m) for X in (stop, head))
        late = [(start, stop)]
        if head is not None:
            first = 0 * i if document is None else document[0]
            late = [(first, head), *late]
        return cls(late)

    def ends(self) -> Ends:
        """Over all of these queries."""
        least = [[(int(X.min()), int(X.max())) for X in run] for run in self.runs]
        return Ends((*begin, *end) for begin, end in least)

    def pairs(self, j: Any) -> Any:
        """Which of these queries see which of keys j, (…, n, keys)."""
        seen: Any = None
        # A loop: in a comprehension the compiler would make constants of lengths.
        for begin, end in self.runs:
            here = (begin <= j) & (j < end)
            seen = here if seen is None else seen | here
        return seen

    def at(self, some: Any) -> "Runs":
        """Those of some queries."""
        return Runs([(_of(a, some), _of(b, some)) for a, b in self.runs])


def _of(X: Any, some: Any) -> Any:
    return X if X.shape[-2] == 1 else X[..., some, :]


def _clip(X: Any, most: int) -> Any:
    """Between 0 and the most, an array or a number."""
    return min(max(X, 0), most) if isinstance(X, int) else X.clip(0, most)


def _least(X: Any, Y: Any, m: int) -> Any:
    return X - _clip(X - Y, m)


def _most(X: Any, Y: Any, m: int) -> Any:
    return X + _clip(Y - X, m)


def in_groups(X: Any, n_groups: int) -> Any:
    """The heads axis split in two, (…, h, n, m) to (…, groups, h / groups, n, m); one for all heads stays one."""
    *batch, h, n, m = X.shape
    groups = min(n_groups, h)
    return X.reshape(*batch, groups, h // groups, n, m)


class Seen(Generic[A]):
    """What n queries see of m keys, and what is added to their scores. Each half says in a subclass how it does things.

    Args:
        n: number of queries.
        m: number of keys.
        mask: boolean, (…, n or 1, m or 1); True = may attend. None hides nothing.
        causal: query i sees no key after i + m − n.
        window: and of the others only so many, the last; needs ``causal``.
        gap: so many keys behind the sinks were dropped by a cache.
        runs: those of all queries, if rules are known by them.
        arrays: what else is said: ``valid`` and ``prefix``, (…, 1, 1); ``begin`` and ``end`` of each query's document,
            (…, n, 1); ``bias``, which broadcasts to the scores; ``slopes``, (…, 1, 1).
    """

    def __init__(
        self,
        n: int,
        m: int,
        mask: A | None = None,
        causal: bool = False,
        window: int | Window | None = None,
        gap: int = 0,
        runs: Runs | None = None,
        **arrays: A | None,
    ) -> None:
        self.n, self.m, self.offset = n, m, m - n
        self.gap = gap
        self.sinks = getattr(window, "sinks", 0)
        width: Any = getattr(window, "width", window)
        # All keys are one window, but a length that is a symbol cannot be compared.
        self.window = None if type(m) is int and width and width >= m else width
        # The last key that query 0 sees. A lone query is the newest and sees all.
        some = causal and (n > 1 or self.window is not None)
        self.last = m - n if some else None
        self.arrays = {
            k: X for k, X in (("mask", mask), *arrays.items()) if X is not None
        }
        # Whether one has to look at an array for the runs that queries see, and whether they see runs at all.
        self.by_array = runs is not None or bool(RULES & self.arrays.keys())
        self.ruled = some or self.by_array
        self.forget(runs)

    def forget(self, runs: Runs | None = None) -> None:
        """What was found out of runs of keys."""
        self._runs = runs
        self._ends: dict[tuple[int, int], Ends] = {}
        self._bands: dict[tuple[int, int, int], A] = {}

    def runs_of(self, i: Any) -> Runs:
        """Those of queries i."""
        said = self.arrays
        rules: dict[str, Any] = {k: said.get(k) for k in ("valid", "prefix")}
        if "begin" in said:
            rules["document"] = said["begin"], said["end"]
        rules |= {"last": self.last, "window": self.window, "sinks": self.sinks}
        return Runs.of(i, self.m, **rules)

    @property
    def runs(self) -> Runs:
        """Those of all queries."""
        if self._runs is None:
            i: Any = self.count(0, self.n)
            self._runs = self.runs_of(i[:, None])
        return self._runs

    def ends(self, rows: slice) -> Ends:
        """Those of some queries, one at least."""
        at = rows.start, rows.stop
        if at not in self._ends:
            if self.by_array:
                self._ends[at] = self.runs.at(rows).ends()
            else:  # the later a query, the later all its ends: two queries tell
                first, final = self.runs_of(at[0]).runs, self.runs_of(at[1] - 1).runs
                self._ends[at] = Ends(
                    (a, c, b, d) for (a, b), (c, d) in zip(first, final, strict=True)
                )
        return self._ends[at]

    @classmethod
    def of(
        cls,
        where: str,
        Q: Any,
        *keyed: Any,
        mask: "A | Rule | None" = None,
        causal: bool = False,
        window: int | Window | None = None,
        bias: "A | Slopes | None" = None,
        n_heads: int | None = None,
        gap: int = 0,
        shared: bool = False,
    ) -> Self:
        """Check what hides keys from a public function, for queries (…, n, d) and what belongs to keys (…, m, d).

        With ``n_heads`` the mask gets an axis for the heads, (…, h or 1, n or 1, m or 1). A bias of −∞ hides, too.
        ``shared``: heads share keys, (…, h, n, d) and (…, g, m, d).
        """
        shapes = [Q.shape, *(X[..., :1, :, :].shape if shared else X.shape for X in keyed)]  # fmt: skip
        n, m = shapes[0][-2], shapes[1][-2]
        require_window(where, window, causal)
        said = mask.said if isinstance(mask, Rule) else {"mask": mask}
        said = {name: x for name, x in (*said.items(), ("bias", bias)) if x is not None}
        arrays: dict[str, Any] = {}
        if said:
            batch = broadcast(*(shape[:-2] for shape in shapes)) or ()
            scores = (*batch, n_heads, n, m) if n_heads else (*batch, n, m)
        for name, given in said.items():
            found: dict[str, Any] = cls.read(where, name, given, Q, m)
            for kind, X in found.items():
                if n_heads and name != "bias":
                    lacks = kind != "mask" or lacks_heads(
                        where, X.shape, batch, n_heads
                    )
                    if lacks and X.ndim > 2:
                        cls.require_fit(where, name, X.shape, (*batch, n, m))
                        X = X[..., None, :, :]
                cls.require_fit(where, name, X.shape, scores)
                while X.ndim < 2:
                    X = X[None]
                twice = kind == "mask" and "mask" in arrays
                arrays[kind] = arrays[kind] & X if twice else X
        return cls.new(Q, n, m, causal=causal, window=window, gap=gap, **arrays)

    def map(self, change: Any) -> Self:
        """With each array, which has the axes of the scores or some of them, changed."""
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        other.arrays = {name: change(X) for name, X in self.arrays.items()}
        if RULES & other.arrays.keys():
            other.forget()
        return other

    def in_groups(self, n_groups: int) -> Self:
        """With the heads in groups that share keys."""
        return self.map(lambda X: in_groups(X, n_groups) if X.ndim > 2 else X)

    @property
    def everything(self) -> bool:
        """Whether nothing is hidden, as far as one can tell without looking at a mask."""
        return not self.ruled and "mask" not in self.arrays

    def blocks(self, height: int) -> list[slice]:
        """All queries, so many at a time; or fewer, up to where a document begins, lest they see two."""
        begin: Any = self.arrays.get("begin")
        cuts = [0]
        while (stop := cuts[-1] + height) < self.n:
            first = 0 if begin is None else int(begin[..., stop, :].min()) - self.offset
            cuts.append(first if first > cuts[-1] + height // 4 else stop)
        return [slice(*ends) for ends in zip(cuts, [*cuts[1:], self.n], strict=True)]

    def keys(self, rows: slice) -> list[slice]:
        """Runs that hold all keys that these queries see, as far as rules tell."""
        if self.ruled and rows.start < rows.stop:
            return self.ends(rows).keys()
        return [slice(0, self.m)] if self.m else []

    def part(self, name: str, rows: Any, keys: Any) -> A | None:
        """What an array says of some queries and keys; None if there is none."""
        X: Any = self.arrays.get(name)
        if X is None:
            return None
        *_, height, width = X.shape
        X = X[..., rows, :] if height > 1 else X
        return X[..., keys] if width > 1 else X

    def tile(self, rows: slice, keys: slice) -> A | bool:
        """True if each of these queries sees all of these keys, False if none sees any, else who sees whom."""
        seen: Any = True
        if self.ruled:
            sure = self.sure(rows, keys)
            if sure is False:
                return False
            if sure is None:
                seen = self.band(rows, keys)
        mask: Any = self.part("mask", rows, keys)
        if mask is None:
            return seen
        return self.looked_at(mask if seen is True else mask & seen)

    def band(self, rows: slice, keys: slice) -> A:
        """What rules say of a tile; tiles along a diagonal are alike."""
        i: Any = self.count(rows.start, rows.stop)
        j: Any = self.count(keys.start, keys.stop)
        alike = type(keys.stop) is int and keys.start >= self.sinks
        if self.by_array or not alike:
            return self.runs.at(rows).pairs(j)
        place = keys.start - rows.start, len(i), len(j)
        if place not in self._bands:
            self._bands[place] = self.runs_of(i[:, None]).pairs(j)
        return self._bands[place]

    def sure(self, rows: slice, keys: slice) -> bool | None:
        """What rules know of a tile; None: one has to look."""
        return self.ends(rows).sure(keys) if rows.start < rows.stop else True

    def looked_at(self, seen: A) -> A | bool:
        """True or False if all of it is, and one can look."""
        return seen

    def dense(self) -> A | None:
        """The whole mask, (…, n or 1, m or 1); None hides nothing."""
        seen: Any = self.arrays.get("mask")
        if self.ruled:
            pairs = self.runs.pairs(self.count(0, self.m))
            seen = pairs if seen is None else seen & pairs
        return seen

    def added(self, rows: slice, keys: slice) -> A | None:
        """What is added to the scores of some queries with some keys; None is nothing."""
        if "slopes" not in self.arrays:
            return self.part("bias", rows, keys)
        i: Any = self.count(rows.start, rows.stop)
        return self.fall(i[:, None], self.places(keys))

    def apart(self, rows: slice, keys: slice) -> tuple[A, A] | None:
        """The same as a row plus a column, if slopes add it and these keys lie on one side of these queries."""
        near, far = rows.start + self.offset, rows.stop + self.offset
        if "slopes" not in self.arrays or near < keys.stop and keys.start < far:
            return None
        # Counted from the nearest key, whose weight counts most and so is exact.
        nearest = keys.stop - 1 if keys.stop <= near else keys.start
        edge = self.places(slice(nearest, nearest + 1))
        i: Any = self.count(rows.start, rows.stop)
        return self.fall(edge, self.places(keys)), self.fall(i[:, None], edge)

    def places(self, keys: slice) -> A:
        """Where keys stand, counted as queries are; a cache has moved the sinks."""
        j: Any = self.count(keys.start, keys.stop)
        j = j - self.offset
        return j - self.gap * (j < self.sinks - self.offset) if self.gap else j

    def fall(self, i: Any, j: Any) -> A:
        """What slopes add between these places."""
        slopes: Any = self.arrays["slopes"]
        i, j = (self.as_numbers(x, slopes) for x in (i, j))
        return -slopes * abs(i - j)

    def require_sense(self, where: str, given: Any, batch: Shape) -> None:
        """Raise a ``ValueError`` where a mask could mean another thing, or hides all keys of a sequence."""
        mask: Any = given.said.get("mask") if isinstance(given, Rule) else given
        two = mask is not None and mask.ndim == 2
        if two and (1,) != mask.shape[:1] == batch[:1] == (self.n,):
            raise ValueError(
                f"{where}: a mask of shape {tuple(mask.shape)} could be one row for each sequence or for each query. "
                "Write mask[:, None, :] for one for each sequence, mask[None] for one for each query"
            )
        every: Any = self.count(0, self.m)
        seen: Any = self.who(every >= 0)  # (…, n, 1)
        blind = ~seen[..., 0].any(-1)
        if self.n and blind.any():
            raise ValueError(
                f"{where}: no query sees any key in {int(blind.sum())} of {len(blind.reshape(-1))} sequences or heads. "
                "True = may attend; of a mask that says what is hidden, give ~mask"
            )

    # Operations that each half does in its own way.

    def anyone(self) -> A | None:
        """The keys that some query sees, (…, m or 1), and of those that rules hide maybe some more; None for all."""
        raise NotImplementedError

    def who(self, marked: A) -> A:
        """Which queries see a marked key, (…, m) -> (…, n, 1)."""
        raise NotImplementedError

    @classmethod
    def new(cls, Q: A, n: int, m: int, **said: Any) -> Self:
        raise NotImplementedError

    @classmethod
    def read(cls, where: str, name: str, given: Any, Q: A, m: int) -> dict[str, A]:
        """What is said, checked, as arrays with the axes of the scores."""
        raise NotImplementedError

    require_fit = staticmethod(require_fit)

    def count(self, start: int, stop: int) -> A:
        """The numbers start … stop − 1."""
        raise NotImplementedError

    def as_numbers(self, X: A, like: A) -> A:
        raise NotImplementedError
