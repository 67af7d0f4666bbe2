"""Who may see whom: rules are functions of positions, and combine with & and |. Knows no backend.

A rule answers two questions: which of these queries see which of these keys (``pairs``: its formula), and between which
keys lie all that these queries can see (``keys``: what need not be computed). The second has a default, so any function
of positions is a rule: ``Rule(lambda i, j: (i - j) % 2 == 0)``. A rule that holds arrays names them in ``arrays``, each
with the number of axes that one sequence's has; an array that a lambda holds is neither moved nor checked.

Queries and keys are counted from 0 at the first key, and the last query stands at the last key.
"""

import functools
from collections.abc import Callable
from numbers import Integral
from typing import Any, ClassVar, Self

from attn_tutor._checks import require_size

__all__ = ["Bias", "Causal", "First", "Rule", "Window", "documents", "prefix", "valid"]

OfPair = Callable[[Any, Any], Any]


class OfPositions:
    """What is said of queries and keys by their positions, with arrays that may differ by sequence and by head."""

    arrays: ClassVar[dict[str, int]] = {}  # attribute: axes of one sequence's array

    def map(self, change: Callable[[Any, int], Any]) -> Self:
        """The same with each array changed; ``change`` gets it and the number of axes that one sequence's has."""
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        for name, value in vars(self).items():
            if isinstance(value, OfPositions):
                setattr(other, name, value.map(change))
            elif name in self.arrays and hasattr(value, "shape"):
                setattr(other, name, change(value, self.arrays[name]))
        return other


class Rule(OfPositions):
    r"""Any function of positions, for ``mask=``. Rules combine: ``a & b`` where both permit, ``a | b`` where one does.

    .. math:: \text{mask}_{ij} = \text{pairs}(i, j)

    Args:
        pairs: takes positions of queries, (rows, 1), and of keys, (keys,), as whole numbers in arrays of the half that
            calls it, to booleans that broadcast to (…, rows, keys); True = may attend.

    Example:
        >>> Causal() & Rule(lambda i, j: (i - j) % 2 == 0)
        Causal() & Rule(<lambda>)
    """

    __array_ufunc__ = None  # NumPy's arrays leave & and | to us

    def __init__(self, pairs: OfPair) -> None:
        self._pairs = pairs

    def pairs(self, i: Any, j: Any) -> Any:
        """Booleans for queries at positions i, (rows, 1), and keys at positions j, (keys,)."""
        return self._pairs(i, j)

    def keys(self, first: int, last: int, m: int) -> list[slice]:
        """Slices, in order and without overlap, of all keys that queries from ``first`` to ``last`` see of m."""
        return [slice(0, m)]

    def __and__(self, other: Any) -> "Rule":
        return Both(self, _require_rule(other))

    def __or__(self, other: Any) -> "Rule":
        return Either(self, _require_rule(other))

    __rand__, __ror__ = (
        __and__,
        __or__,
    )  # so that an array's TypeError says what to write

    def __repr__(self) -> str:
        pairs = vars(self).get("_pairs", self.pairs)
        return f"{type(self).__name__}({getattr(pairs, '__name__', pairs)})"


class Both(Rule):
    """What two rules both permit."""

    def __init__(self, a: Rule, b: Rule) -> None:
        self.a, self.b = a, b

    def pairs(self, i: Any, j: Any) -> Any:
        return self.a.pairs(i, j) & self.b.pairs(i, j)

    def keys(self, first: int, last: int, m: int) -> list[slice]:
        both = [
            slice(max(x.start, y.start), min(x.stop, y.stop))
            for x in self.a.keys(first, last, m)
            for y in self.b.keys(first, last, m)
        ]
        return [x for x in both if x.start < x.stop]

    def __repr__(self) -> str:
        sides = (
            f"({x})" if isinstance(x, Either) else f"{x}" for x in (self.a, self.b)
        )
        return " & ".join(sides)


class Either(Rule):
    """What one of two rules permits, or both."""

    def __init__(self, a: Rule, b: Rule) -> None:
        self.a, self.b = a, b

    def pairs(self, i: Any, j: Any) -> Any:
        return self.a.pairs(i, j) | self.b.pairs(i, j)

    def keys(self, first: int, last: int, m: int) -> list[slice]:
        joined: list[slice] = []
        all_keys = self.a.keys(first, last, m) + self.b.keys(first, last, m)
        for x in sorted(all_keys, key=lambda x: x.start):
            if joined and x.start <= joined[-1].stop:
                stop = max(joined[-1].stop, x.stop)
                joined[-1] = slice(joined[-1].start, stop)
            else:
                joined.append(x)
        return joined

    def __repr__(self) -> str:
        return f"{self.a} | {self.b}"


class Causal(Rule):
    r"""No key after the query: what ``causal=True`` says.

    .. math:: \text{mask}_{ij} = [\, j \le i \,]

    Example:
        >>> Causal() | First(2)  # a prefix that all see
        Causal() | First(2)
    """

    def __init__(self) -> None: ...

    def pairs(self, i: Any, j: Any) -> Any:
        return j <= i

    def keys(self, first: int, last: int, m: int) -> list[slice]:
        return _between(0, last + 1, m)

    def __repr__(self) -> str:
        return "Causal()"


class Window(Rule):
    r"""A window of keys up to each query, and the first keys besides: what ``window=`` says, or takes.

    .. math:: \text{mask}_{ij} = [\, i - \text{width} < j \le i \,] \lor [\, j < \text{sinks} \,\land\, j \le i \,]

    Many heads draw on the first tokens whatever they hold, so that a window alone loses them. These sinks are tokens,
    unlike the learnt score of ``sink_attention``. They are counted from position 0, so padding on the left would take
    their place: pad on the right, or call once for each sequence. Source: Xiao et al. (2024), section 3.2.

    Args:
        width: most keys that a query sees, its own and those just before it.
        sinks: how many of the first keys it sees besides.

    Raises:
        TypeError: a number is not a whole number.
        ValueError: the width is below 1, or there are fewer sinks than none.

    Example:
        >>> Window(256, sinks=4)
        Window(256, sinks=4)
    """

    def __init__(self, width: int, sinks: int = 0) -> None:
        require_size("Window", "width", width, least=1)
        require_size("Window", "sinks", sinks)
        self.width, self.sinks = width, sinks

    def pairs(self, i: Any, j: Any) -> Any:
        near = j > i - self.width
        return (j <= i) & (near | (j < self.sinks) if self.sinks else near)

    def keys(self, first: int, last: int, m: int) -> list[slice]:
        start, stop = first + 1 - self.width, last + 1
        if start <= self.sinks:
            return _between(0 if self.sinks else start, stop, m)
        return _between(0, self.sinks, m) + _between(start, stop, m)

    def __eq__(self, other: object) -> bool:
        sizes = self.width, self.sinks
        return isinstance(other, Window) and sizes == (other.width, other.sinks)

    def __hash__(self) -> int:
        return hash((self.width, self.sinks))

    def __repr__(self) -> str:
        return f"Window({self.width}, sinks={self.sinks})"


class First(Rule):
    r"""The first keys only: what is not padding, or, with ``|``, a prefix that all queries see.

    .. math:: \text{mask}_{ij} = [\, j < \text{count} \,]

    Args:
        count: a whole number for all sequences; or an array of them, one for each, (…,).

    Example:
        >>> First(5) & Causal()
        First(5) & Causal()
    """

    arrays: ClassVar[dict[str, int]] = {"count": 0}

    def __init__(self, count: Any) -> None:
        if isinstance(count, Integral) and not isinstance(count, bool):
            count = int(count)  # NumPy's whole numbers are no arrays
        if hasattr(count, "dtype"):
            _require_whole("First", "count", count)
        else:
            require_size("First", "count", count)
        self.count = count

    def pairs(self, i: Any, j: Any) -> Any:
        return j < (self.count[..., None, None] if self._is_array else self.count)

    def keys(self, first: int, last: int, m: int) -> list[slice]:
        counts = self.count.reshape(-1).tolist() if self._is_array else [self.count]
        return _between(0, max(counts, default=0), m)

    @property
    def _is_array(self) -> bool:
        return hasattr(self.count, "shape")

    def __repr__(self) -> str:
        return f"First({_short(self.count) if self._is_array else self.count})"


class Moved(OfPositions):
    """A rule or a bias whose queries and keys, but for the first keys, are further on by a number of tokens."""

    def __init__(self, inner: Any, by: int, first: int) -> None:
        self.inner, self.by, self.first = inner, by, first

    def map(self, change: Callable[[Any, int], Any]) -> Self:
        """Itself: its arrays are of all tokens that came, and not of those that a call holds."""
        return self

    def places(self, i: Any, j: Any) -> tuple[Any, Any]:
        return i + self.by, j + self.by * (j >= self.first)

    def __repr__(self) -> str:
        return f"{self.inner} moved by {self.by}"


class MovedRule(Moved, Rule):
    """A rule, once a cache has dropped tokens behind its sinks."""

    def pairs(self, i: Any, j: Any) -> Any:
        return self.inner.pairs(*self.places(i, j))


class Documents(Rule):
    """The tokens of one's own document; :func:`documents` makes it."""

    arrays: ClassVar[dict[str, int]] = {"ids": 1}

    def __init__(self, ids: Any) -> None:
        self.ids = ids

    def pairs(self, i: Any, j: Any) -> Any:
        return self.ids[..., i] == self.ids[..., j][..., None, :]

    def keys(self, first: int, last: int, m: int) -> list[slice]:
        first = max(first, 0)
        starts, stops = self._ends
        here = starts[first : last + 1], stops[first : last + 1]
        return _between(min(here[0], default=0), max(here[1], default=0), m)

    def map(self, change: Callable[[Any, int], Any]) -> Self:
        other = super().map(change)
        vars(other).pop("_ends", None)
        return other

    @functools.cached_property
    def _ends(self) -> tuple[list[int], list[int]]:
        """For each token, over all sequences, the first token of its document, and one past the last."""
        m = self.ids.shape[-1]
        starts, stops = [m] * m, [0] * m
        for ids in self.ids.reshape(-1, m).tolist():
            first: dict[int, int] = {}
            last = {x: j for j, x in enumerate(ids)}
            for j, x in enumerate(ids):
                starts[j] = min(starts[j], first.setdefault(x, j))
                stops[j] = max(stops[j], last[x] + 1)
        return starts, stops

    def __repr__(self) -> str:
        return f"documents({_short(self.ids)})"


class Bias(OfPositions):
    r"""What is added to the scores as a function of positions, for ``bias=``; :func:`alibi` makes one.

    .. math:: B_{ij} = \text{added}(i, j)

    Args:
        added: takes positions of queries, (rows, 1), and of keys, (keys,), to numbers that broadcast to
            (…, rows, keys).

    Example:
        >>> Bias(lambda i, j: -0.5 * abs(i - j)).added(3, 1)
        -1.0
    """

    may_hide = True  # by −∞

    def __init__(self, added: OfPair) -> None:
        self.added: OfPair = added


class Slopes(Bias):
    """Distance times a slope for each head, (…,); :func:`alibi` makes it."""

    arrays: ClassVar[dict[str, int]] = {"slopes": 0}
    may_hide = False

    def __init__(self, slopes: Any) -> None:
        self.slopes = slopes

    def added(self, i: Any, j: Any) -> Any:
        return -self.slopes[..., None, None] * abs(i - j)


class MovedBias(Moved, Bias):
    """A bias, once a cache has dropped tokens behind its sinks."""

    def __init__(self, inner: Bias, by: int, first: int) -> None:
        super().__init__(inner, by, first)
        self.may_hide = inner.may_hide

    def added(self, i: Any, j: Any) -> Any:
        return self.inner.added(*self.places(i, j))


def documents(ids: Any) -> Rule:
    r"""Permit each token the tokens of its own document, where several are packed into one row: for ``mask=``.

    .. math:: \text{mask}_{ij} = [\, \text{id}_i = \text{id}_j \,]

    What :func:`document_mask` says, and no matrix. With fewer queries than keys the queries are the last tokens.
    Source: Krell et al. (2021).

    Args:
        ids: the number of the document that each key belongs to, (…, m).

    Returns:
        A rule, which combines with others by ``&`` and ``|``.

    Raises:
        TypeError: the ids are not whole numbers in an array.
        ValueError: there is no axis of tokens.

    Example:
        >>> documents(np.array([7, 7, 8])) & valid(np.array(2))
        documents([7, 7, 8]) & First(2)
    """
    _require_whole("documents", "ids", ids)
    if ids.ndim == 0:
        raise ValueError("documents: ids has shape () but needs (…,m)")
    return Documents(ids)


def valid(lengths: Any) -> Rule:
    r"""Permit the first keys of each sequence, since the rest is padding: for ``mask=``.

    .. math:: \text{mask}_{bij} = [\, j < \text{length}_b \,]

    What :func:`padding_mask` says, for one length a sequence. Source: Zhang et al., Dive into Deep Learning, section
    11.3.

    Args:
        lengths: how many keys there are, one for each sequence, (b,), or for all, (); 0 or less is none.

    Returns:
        A rule, which combines with others by ``&`` and ``|``.

    Raises:
        TypeError: the lengths are not whole numbers in an array.

    Example:
        >>> valid(np.array([3, 5]))
        First([3, 5])
    """
    _require_whole("valid", "lengths", lengths)
    return First(lengths)


def prefix(lengths: Any) -> Rule:
    r"""Permit all queries the first keys of each sequence, and of the others those before them: for ``mask=``.

    .. math:: \text{mask}_{bij} = [\, j < \text{length}_b \,] \lor [\, j \le i \,]

    The prompt is read in both directions, and what follows is written from left to right.
    Source: Raffel et al. (2020), section 3.2.1, "causal with prefix".

    Args:
        lengths: how many keys all queries see, one for each sequence, (b,), or for all, ().

    Returns:
        A rule, which combines with others by ``&`` and ``|``; it takes the place of ``causal=True``.

    Raises:
        TypeError: the lengths are not whole numbers in an array.

    Example:
        >>> prefix(np.array(2)) & valid(np.array([3, 5]))
        (Causal() | First(2)) & First([3, 5])
    """
    return Causal() | valid(lengths)


def _between(start: int, stop: int, m: int) -> list[slice]:
    start, stop = max(0, start), min(stop, m)
    return [slice(start, stop)] if start < stop else []


def _short(X: Any) -> Any:
    few = len(X.reshape(-1)) < 9
    return X.tolist() if few else f"<array of shape {tuple(X.shape)}>"


def _require_whole(where: str, name: str, x: Any) -> None:
    dtype = str(getattr(x, "dtype", type(x).__name__)).removeprefix("torch.")
    if not hasattr(x, "dtype") or "int" not in dtype:
        raise TypeError(
            f"{where}: {name} must be whole numbers in an array, got {dtype}"
        )


def _require_rule(other: Any) -> Rule:
    if not isinstance(other, Rule):
        raise TypeError(
            f"a rule combines with rules, got {type(other).__name__}; an array is a rule as "
            "Rule(lambda i, j: array[..., i, j]), where its rows and columns are positions"
        )
    return other
