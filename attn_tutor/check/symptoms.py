"""What a wrong answer looks like beside the right one: said when it is none of the known wrong answers.

A symptom is a fact about the answer, and what it usually comes from. The one that explains most of what is wrong is told.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np

from attn_tutor.check.calls import Case

Array = np.ndarray


@dataclass(frozen=True)
class Answer:
    """One array of a wrong answer, with the right one and the arguments by their names."""

    right: Array
    got: Array
    given: dict[str, Any]
    tolerance: tuple[float, float]

    def same(self, one: Any, other: Any = None) -> bool:
        other = self.got if other is None else other
        return np.shape(one) == np.shape(other) and bool(
            np.allclose(one, other, *self.tolerance, equal_nan=True)
        )

    @property
    def telling(self) -> int:
        """How much it can tell: a large array more than a small one."""
        return min(self.right.size, 30)

    def arrays(self) -> list[Array]:
        return [x for x in self.given.values() if isinstance(x, np.ndarray)]


Sight = Callable[[Answer], str | None]
SYMPTOMS: list[tuple[str, Sight]] = []


def symptom(title: str) -> Callable[[Sight], Sight]:
    """Add what returns words for an answer that shows it. The first of two that explain as much is told."""

    def add(sight: Sight) -> Sight:
        SYMPTOMS.append((title, sight))
        return sight

    return add


def strongest(answers: list[Answer]) -> tuple[str, str] | None:
    """Title and words of the symptom that explains most, and the words of the one that explains most of the rest."""
    first = _most_common(answers)
    if first is None or 2 * first[1] < sum(x.telling for x in answers):
        return None
    (title, words), _, rest = first
    second = _most_common(rest)
    return title, f"{words} Besides: {second[0][1]}" if second else words


def _most_common(
    answers: list[Answer],
) -> tuple[tuple[str, str], int, list[Answer]] | None:
    """What is seen in most of the answers, in how much of them, and the answers that do not show it."""
    seen: dict[tuple[str, str], list[Answer]] = {}
    with np.errstate(all="ignore"):
        for title, sight in SYMPTOMS:
            for x in answers:
                if words := sight(x):
                    seen.setdefault((title, words), []).append(x)
    if not seen:
        return None
    found, shown = max(seen.items(), key=lambda pair: sum(x.telling for x in pair[1]))
    rest = [x for x in answers if not any(x is y for y in shown)]
    return found, sum(x.telling for x in shown), rest


# The shape.


@symptom("an axis of length 1")
def _(x: Answer) -> str | None:
    if x.got.shape != x.right.shape and x.same(x.right.squeeze(), x.got.squeeze()):
        lost = "lost" if x.got.ndim < x.right.ndim else "left or moved"
        return (
            f"The numbers are right, the shape is not: an axis of length 1 is {lost}. A number as index, x[0], or "
            "squeeze() takes an axis away; x[:1], x[..., None] or keepdims=True keeps or makes one."
        )
    return None


@symptom("axes in another order")
def _(x: Answer) -> str | None:
    if x.right.ndim == x.got.ndim == 2 and x.same(x.right.T):
        return (
            "You return the transpose of what is asked: your rows are its columns. Rows are queries, or tokens; "
            "swap the last two axes."
        )
    if x.right.ndim == x.got.ndim > 2:
        for order in list(permutations(range(x.right.ndim)))[1:]:
            if x.same(x.right.transpose(order)):
                return (
                    "The numbers are right, but the axes stand in another order, as if transposed. Count axes from "
                    "the end, −1 and −2, so that a batch in front moves nothing."
                )
    return None


@symptom("cut into another shape")
def _(x: Answer) -> str | None:
    shapes = x.right.shape != x.got.shape and x.right.size == x.got.size > 1
    if shapes and x.same(x.right.ravel(), x.got.ravel()):
        return "The numbers are right and in the right order, but they are cut into another shape: reshape at the end."
    return None


@symptom("one too many or too few")
def _(x: Answer) -> str | None:
    if x.right.ndim != x.got.ndim or x.right.shape == x.got.shape:
        return None
    common = tuple(slice(min(*sizes)) for sizes in zip(x.right.shape, x.got.shape, strict=True))
    for start in (common, tuple(slice(-s.stop or None, None) for s in common)):
        if x.right[start].size > 1 and x.same(x.right[start], x.got[start]):
            many = "longer" if x.got.size > x.right.size else "shorter"
            return (
                f"What you return is {many} than what is asked, and right as far as both go. Count what the loop or "
                "the slice takes: one too many, or one too few?"
            )
    return None


# Booleans.


@symptom("inverted mask")
def _(x: Answer) -> str | None:
    if x.right.dtype == bool and x.got.shape == x.right.shape and x.right.size > 1:
        if x.same(~x.right):
            return 'True and False are exchanged. Here True means "may attend": turn it round with ~.'
    return None


@symptom("a mask to be added")
def _(x: Answer) -> str | None:
    if x.right.dtype == bool and np.isin(x.got, [0, -np.inf]).all() and (x.got < 0).any():
        return (
            "This is a mask to be added to scores, 0 and −∞. Here masks are boolean: True where a query may see a key, "
            "False where it may not."
        )
    return None


@symptom("sees the future")
def _(x: Answer) -> str | None:
    if x.right.dtype != bool or x.got.shape != x.right.shape or x.right.ndim != 2:
        return None
    n, m = x.right.shape
    later = ~np.tri(n, m, m - n, dtype=bool)
    if not (x.right & later).any() and (x.got.astype(bool) & later).any():
        return (
            "Some query sees a key that comes after it: the future, in training the answer. Query i stands at position "
            "i + m − n and sees keys j ≤ i + m − n, so that the last query stands at the last key."
        )
    return None


@symptom("too little is seen")
def _(x: Answer) -> str | None:
    if x.right.dtype != bool or x.got.shape != x.right.shape or not x.right.ndim:
        return None
    got = x.got.astype(bool)
    if x.right.ndim == 2 and not got.diagonal(x.right.shape[1] - x.right.shape[0]).any():
        return (
            "Your queries do not see themselves: the diagonal, on which query i meets the key of its own position, "
            "is False."
        )
    if (x.right & ~got).any() and not (got & ~x.right).any():
        return "What you permit is permitted, but some that should be is not. Is it < where it should be ≤?"
    if (got & ~x.right).any() and not (x.right & ~got).any():
        return "All that should be permitted is, and more besides. Is it ≤ where it should be <?"
    return None


# Not a number.


@symptom("overflow")
def _(x: Answer) -> str | None:
    large = any(
        np.abs(a[np.isfinite(a)]).max(initial=0) >= 90
        for a in x.arrays()
        if a.dtype.kind == "f"
    )
    if large and x.got.shape == x.right.shape and not np.isfinite(x.got[np.isfinite(x.right)]).all():
        return (
            "With large numbers you return NaN or infinity: exp(1000) overflows to infinity, and ∞/∞ is NaN. In a "
            "softmax subtract the maximum of each row first; the weights do not change, and no exp can overflow."
        )
    return None


@symptom("NaN from what is hidden")
def _(x: Answer) -> str | None:
    hidden = any(np.isnan(a).any() for a in x.arrays() if a.dtype.kind == "f")
    if hidden and not np.isnan(x.right).all() and x.got.shape == x.right.shape:
        if np.isnan(x.got[~np.isnan(x.right)]).any():
            return (
                "A NaN stands where the mask is False, and reaches your answer: NaN · 0 and NaN + anything are NaN. "
                "Put another number in its place before you compute, np.where(mask, x, 0)."
            )
    return None


@symptom("NaN in an empty row")
def _(x: Answer) -> str | None:
    if x.got.shape != x.right.shape or not x.right.ndim:
        return None
    empty = (x.right == 0).all(-1)
    if np.isnan(x.got[empty]).any() and not np.isnan(x.got[~empty]).any():
        return (
            "Where nothing is permitted, or all weights are 0, you return NaN: 0/0, or −∞ − (−∞). Such a row must be 0."
        )
    return None


# Weights: each row of the right answer is ≥ 0 and sums to 1, or is empty.


def _weights(x: Answer) -> bool:
    if x.right.dtype.kind != "f" or x.got.shape != x.right.shape or x.right.ndim < 2:
        return False
    total = x.right.sum(-1)
    ones = np.isclose(total, 1, atol=1e-2)
    return bool((x.right >= 0).all() and ones.any() and (ones | (total == 0)).all())


def _sums_to_one(x: Array, axis: Any = -1) -> bool:
    return bool(np.isclose(np.nansum(x, axis), 1, atol=1e-2).all())


@symptom("columns sum to 1")
def _(x: Answer) -> str | None:
    if not _weights(x) or (x.got < 0).any() or _sums_to_one(x.got):
        return None
    seen = x.got[..., x.got.any(-2)] if x.got.ndim == 2 else x.got
    if x.got.shape[-2] > 1 and _sums_to_one(seen, -2):
        return (
            "Your columns sum to 1, not your rows: the sum runs over the queries (axis −2), as it does with dim=1 on a "
            "batch. Each query shares out its own weight: sum over the keys, axis −1."
        )
    if x.got.ndim > 2 and x.got.shape[0] > 1 and _sums_to_one(x.got, 0):
        return (
            "What sums to 1 are your entries along the first axis, over the sequences or heads. Keys are the last "
            "axis, whatever stands in front of it: axis −1."
        )
    if x.right.size > x.right.shape[-1] and np.isclose(np.nansum(x.got), 1, atol=1e-2):
        return "All your weights together sum to 1. Each row must: .sum(-1, keepdims=True)."
    return None


@symptom("inverted mask")
def _(x: Answer) -> str | None:
    if not _weights(x) or not (x.right == 0).any():
        return None
    rows = (x.right > 0).any(-1) & (x.right == 0).any(-1)
    if rows.any() and (x.got[rows][x.right[rows] > 0] == 0).all():
        return (
            "Your weights lie on the forbidden keys, and on those alone: the mask is inverted. True means \"may "
            'attend" here: hide where it is False, ~mask.'
        )
    return None


@symptom("weight on what is hidden")
def _(x: Answer) -> str | None:
    if not _weights(x):
        return None
    rows = (x.right > 0).any(-1)
    if (x.got[rows][x.right[rows] == 0] > 0).any():
        return (
            "Forbidden keys get weight. Their score must be −∞ before the softmax: a 0 does not do, as exp(0) is 1, nor "
            "does a mask of ones and zeros that is added."
        )
    if (x.got[~rows] > 0).any():
        return "A row in which no key is permitted gets weights. It is empty: all its weights must be 0."
    return None


@symptom("rows not divided by their sum")
def _(x: Answer) -> str | None:
    if not _weights(x) or (x.got < 0).any() or not np.isfinite(x.got).all():
        return None
    if _sums_to_one(x.got[(x.right > 0).any(-1)]):
        return None
    total = x.got.sum(-1, keepdims=True)
    if x.same(x.right, x.got / np.where(total == 0, 1, total)):
        return (
            "Your weights have the right proportions, but your rows do not sum to 1: divide each row by its own sum, "
            ".sum(-1, keepdims=True), and by nothing else."
        )
    return None


@symptom("the other way round")
def _(x: Answer) -> str | None:
    if not _weights(x) or x.right.shape[-1] < 2:
        return None
    if x.same(np.sort(x.right)[..., ::-1], np.sort(x.got)[..., ::-1]) or _sums_to_one(x.got):
        order = x.right.argsort(-1, kind="stable"), (-x.got).argsort(-1, kind="stable")
        if np.array_equal(*order) and not np.allclose(x.right, x.right[..., :1]):
            return "Where a weight should be large yours is small. Is there a minus too many?"
    return None


@symptom("rows do not sum to 1")
def _(x: Answer) -> str | None:
    rows = _weights(x) and (x.right > 0).any(-1)
    if np.any(rows) and np.isfinite(x.got).all() and not _sums_to_one(x.got[rows]):
        return (
            "Your rows do not sum to 1. After exp, divide each row by its own sum; a sum over the last axis needs "
            "keepdims=True, or it is laid along the columns."
        )
    return None


@symptom("no exponential of base e")
def _(x: Answer) -> str | None:
    if not _weights(x) or not ((x.right > 0) & (x.got > 0)).all():
        return None
    logs, ours = np.log(x.right), np.log(x.got)
    logs, ours = (y - y.mean(-1, keepdims=True) for y in (logs, ours))
    ratio = _ratio(logs, ours)
    if ratio and not np.isclose(ratio, 1):
        return (
            f"Your weights are those of scores {ratio:.3g} times as large. (With 2 ** x in place of np.exp(x) the "
            "factor is 0.693.)"
        )
    return None


# What was done to the right numbers, or left out.


def _ratio(right: Array, got: Array) -> float | None:
    """The one number that all of ``got`` is of ``right``, if there is one and more than one entry says so."""
    if right.shape != got.shape or not (np.isfinite(right) & np.isfinite(got)).all():
        return None
    some = np.abs(right) > 1e-7
    if not some.any():
        return None
    ratio = float((got[some] / right[some]).flat[0])
    return ratio if np.allclose(got, ratio * right, 1e-4, 1e-6) else None


@symptom("the sign")
def _(x: Answer) -> str | None:
    if x.right.dtype.kind == "f" and x.same(-x.right):
        return "Your numbers are right but for the sign: all are minus what they should be."
    return None


@symptom("logarithms")
def _(x: Answer) -> str | None:
    if x.right.dtype.kind == "f" and (x.right > 0).any() and x.right.size > 1:
        if x.same(x.right, np.exp(x.got)):
            return "You return the logarithm of what is asked: log softmax in place of softmax, say. Take exp, or leave out the log."
        if x.same(np.log2(x.right)):
            return "You return the logarithm to base 2 of what is asked."
    return None


@symptom("one step too far")
def _(x: Answer) -> str | None:
    if x.right.dtype.kind != "f" or x.right.size < 2:
        return None
    if x.same(np.exp(x.right)):
        return "You return exp of what is asked: leave the exponential to the next step."
    top = x.right.max(-1, keepdims=True)
    e = np.exp(x.right - top)
    if x.same(e / e.sum(-1, keepdims=True)):
        return (
            "Your rows sum to 1: you return the softmax of what is asked, weights in place of scores. The score is "
            "what goes into softmax; stop one step earlier."
        )
    if x.same(x.right**2):
        return "You return the square of what is asked: a root is missing, or a square is one too many."
    if x.same(np.abs(x.right)):
        return "The sizes are right, the signs are lost: take no absolute value."
    return None


@symptom("a constant factor")
def _(x: Answer) -> str | None:
    ratio = _ratio(x.right, x.got) if x.right.dtype.kind == "f" else None
    if ratio is None or np.isclose(ratio, 1):
        return None
    return (
        f"Every number of yours is the right one times a constant factor: {_named(ratio, x.given)}. Is something "
        "divided twice or not at all, a mean taken for a sum, or a sum for a mean?"
    )


CONSTANTS = {
    "2": 2, "½": 1 / 2, "4": 4, "¼": 1 / 4, "100 (per cent)": 100, "1/√(2π)": (2 * np.pi) ** -0.5,
    "log 2, of bits": np.log(2), "1/log 2, of bits": 1 / np.log(2),
    "¾": 3 / 4, "4/3": 4 / 3,
}  # fmt: skip


def _named(ratio: float, given: dict[str, Any]) -> str:
    """The factor in terms of the arguments, where it is one: their sizes first, as they differ from case to case."""
    names: dict[str, float] = {}
    for name, x in given.items():
        if isinstance(x, np.ndarray) and x.ndim:
            for axis in range(1, x.ndim + 1):
                names[f"{name}.shape[{-axis}]"] = x.shape[-axis]
        elif isinstance(x, int | float) and not isinstance(x, bool):
            names[name] = x
    known = dict(CONSTANTS)
    for name, size in names.items():
        if size > 0 and size != 1:
            known |= {f"√{name}": size**0.5, f"1/√{name}": size**-0.5}
            known |= {name: size, f"1/{name}": 1 / size}
            known |= {f"1/({name} √(2π))": 1 / size / (2 * np.pi) ** 0.5}
    said = [name for name, value in known.items() if np.isclose(ratio, value, 1e-4)]
    return " or ".join(said[:3]) if said else f"{ratio:.4g}"


@symptom("a constant added")
def _(x: Answer) -> str | None:
    if x.right.dtype.kind != "f" or x.right.shape != x.got.shape or x.right.size < 2:
        return None
    gap = (x.got - x.right).ravel()
    if np.isfinite(gap).all() and abs(gap[0]) > 1e-4 and np.allclose(gap, gap[0], 1e-4, 1e-6):
        return f"Every number of yours is the right one and a constant more: {gap[0]:+.4g}."
    return None


@symptom("rows or columns in another order")
def _(x: Answer) -> str | None:
    if x.got.shape != x.right.shape or x.right.dtype == bool or x.right.ndim < 1:
        return None
    for axis in range(-1, -x.right.ndim - 1, -1):
        size = x.right.shape[axis]
        if not 1 < size < 40:
            continue
        ours, right = (np.moveaxis(y, axis, 0).reshape(size, -1) for y in (x.got, x.right))
        order = [next((j for j in range(size) if x.same(right[j], row)), None) for row in ours]
        if None in order or len(set(order)) < size or order == sorted(order):  # type: ignore[type-var]
            continue
        what = {1: "Columns", 2: "Rows"}.get(-axis, "Heads or sequences")
        if x.right.ndim == 1:
            what = "Entries"
        steps = {(a - i) % size for i, a in enumerate(order) if a is not None}
        how = "shifted round" if len(steps) == 1 else "reversed" if order == sorted(order)[::-1] else "in another order"  # type: ignore[type-var]
        seen = ", ".join(map(str, order[:8])) + (", …" if size > 8 else "")
        return f"{what} are right, but {how}: in the places 0, 1, 2, … stand those of {seen}."
    return None


@symptom("shifted by one")
def _(x: Answer) -> str | None:
    if x.got.shape != x.right.shape:
        return None
    for axis in range(-1, -x.right.ndim - 1, -1):
        ours, right = (np.moveaxis(y, axis, 0) for y in (x.got, x.right))
        if len(ours) < 3:
            continue
        if x.same(right[1:], ours[:-1]) or x.same(right[:-1], ours[1:]):
            return "Everything stands one place too early or too late along an axis: counted from 1 in place of 0, or shifted by one."
    return None


@symptom("right numbers in other places")
def _(x: Answer) -> str | None:
    if x.got.shape != x.right.shape or x.right.size < 5 or x.right.dtype == bool:
        return None
    for axis, words in ((-1, "row"), (-2, "column")):
        if x.right.ndim >= -axis and x.same(np.sort(x.right, axis), np.sort(x.got, axis)):
            return f"Each {words} holds the right numbers, but in other places: the order of what you put together, or of a reshape, is another."
    if x.same(np.sort(x.right.ravel()), np.sort(x.got.ravel())):
        return "All numbers are right, but they stand in other places: a reshape has mixed what a swap of axes should move."
    return None


@symptom("lengths not kept")
def _(x: Answer) -> str | None:
    first = x.arrays()[0] if x.arrays() else None
    if first is None or first.shape != x.right.shape or x.got.shape != x.right.shape:
        return None
    before, right, got = (np.linalg.norm(y, axis=-1) for y in (first, x.right, x.got))
    if x.same(before, right) and not np.allclose(right, got, 1e-3):
        return (
            "Your rows change their length, so that this is no rotation. A rotation by θ is x cos θ − y sin θ and "
            "x sin θ + y cos θ: one minus sign, and cosine and sine of the same angle for both columns of a pair."
        )
    return None


# Which calls go wrong.


def where_wrong(wrong: list[Case], right: list[Case]) -> tuple[str, str] | None:
    """Title and words of what the arguments of all the wrong calls have in common, and no right one has."""
    axes = min(max(map(np.ndim, case)) for case in wrong + right)
    for title, words, holds in PLACES:
        if all(holds(x, axes) for x in wrong) and not any(holds(x, axes) for x in right):
            return title, words
    return None


def _arrays(case: Case, kind: str = "f") -> list[Array]:
    return [x for x in case if isinstance(x, np.ndarray) and x.dtype.kind == kind]


def _largest(x: Array) -> float:
    return float(np.abs(x[np.isfinite(x)]).max(initial=0))


PLACES: list[tuple[str, str, Callable[[Case, int], bool]]] = [
    (
        "fails for a batch",
        "with a batch, axes in front of the last two. Count axes from the end: −1, −2, swapaxes(-1, -2). K.T, dim=1, "
        "len(X) and a loop over the first axis mean something else there.",
        lambda case, axes: max(map(np.ndim, case)) > axes,
    ),
    (
        "fails for large numbers",
        "with large numbers, where exp overflows or large terms cancel.",
        lambda case, _: any(_largest(x) >= 90 for x in _arrays(case)),
    ),
    (
        "fails where a NaN is hidden",
        "where a NaN stands behind the mask.",
        lambda case, _: any(np.isnan(x).any() for x in _arrays(case)),
    ),
    (
        "fails where nothing is permitted",
        "where a query sees nothing, as no key is permitted: such a row must be 0.",
        lambda case, _: not all(x.any(-1).all() for x in _arrays(case, "b")),
    ),
    (
        "fails in float32",
        "with float32 or float16.",
        lambda case, _: any(x.dtype != np.float64 for x in _arrays(case)),
    ),
    (
        "fails where sizes differ",
        "where a matrix is not square, or widths differ: which axis or which width do you take?",
        lambda case, _: any(x.ndim == 2 and x.shape[0] != x.shape[1] for x in _arrays(case)[1:]),
    ),
]
