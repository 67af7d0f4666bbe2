"""Not a number, or what was done to the right numbers."""

from typing import Any

import numpy as np

from attn_tutor.check.symptoms.symptom import (
    Answer,
    Array,
    Sight,
    of_numbers,
    of_one_shape,
    seen,
    symptom,
)

EXACT: list[tuple[str, Sight]] = []  # what is done to all numbers in one way
SYMPTOMS: list[tuple[str, Sight]] = []
CORNERS: list[tuple[str, Sight]] = []  # where there is no number at all
VAGUE: list[tuple[str, Sight]] = []  # said only where there is nothing better to say


@symptom(CORNERS, "overflow", of_numbers)
def _(x: Answer) -> str | None:
    large = any(np.abs(a[np.isfinite(a)]).max(initial=0) >= 90 for a in x.floats)
    if large and not np.isfinite(x.got[np.isfinite(x.right)]).all():
        return (
            "With large numbers you return NaN or infinity: exp(1000) overflows and ∞/∞ is NaN, exp(−1000) is 0 and "
            "0/0 is NaN. Take away what is common before exp: in a softmax that is the maximum of each row."
        )
    return None


seen(CORNERS, "NaN from what is hidden", of_numbers,
    lambda x: any(np.isnan(a).any() for a in x.floats) and np.isnan(x.got[~np.isnan(x.right)]).any(),
    "A NaN stands where the mask is False, and reaches your answer: NaN · 0 and NaN + anything are NaN. Put another "
    "number in its place before you compute, np.where(mask, x, 0).")  # fmt: skip
seen(CORNERS, "NaN in an empty row", of_numbers,
    lambda x: np.isnan(x.got[(empty := (x.right == 0).all(-1))]).any() and (not np.isnan(x.got[~empty]).any()),
    "Where nothing is permitted, or all weights are 0, you return NaN: 0/0, or −∞ − (−∞). Such a row must be 0."
)  # fmt: skip


def ratio_of(right: Array, got: Array) -> float | None:
    """The one number that all of ``got`` is of ``right``, if there is one."""
    some = np.abs(right) > 1e-7
    if not some.any() or not (np.isfinite(right) & np.isfinite(got)).all():
        return None
    ratio = float((got[some] / right[some]).flat[0])
    return ratio if np.allclose(got, ratio * right, 1e-4, 1e-6) else None


CONSTANT: list[tuple[str, Sight]] = []


@symptom(CONSTANT, "one number everywhere", of_numbers)
def _(x: Answer) -> str | None:
    if np.ptp(x.got) > 0 or np.isnan(x.got).any() or np.ptp(x.right) < 1e-6:
        return None
    return (
        f"All your numbers are {x.got.flat[0]:.4g}. Is something divided as whole numbers, //, is an array that was "
        "made with zeros not filled, or is everything cut off?"
    )


@symptom(EXACT, "an argument returned", of_numbers)
def _(x: Answer) -> str | None:
    for name, array in x.arrays:
        if x.is_now(array):
            return f"You return `{name}` as it is."
    return None


@symptom(EXACT, "an argument added", of_numbers)
def _(x: Answer) -> str | None:
    fitting = [(k, y) for k, y in x.arrays if y.shape == x.right.shape and y.any()]
    for name, array in fitting:
        for sign, how in ((1, "added to"), (-1, "subtracted from")):
            if x.is_now(x.right + sign * array):
                return f"`{name}` is {how} what is asked: a residual connection, or a term too many."
    return None


seen(EXACT, "the sign", of_numbers, lambda x: x.is_now(-x.right),
    "Your numbers are right but for the sign: all are minus what they should be.")  # fmt: skip


@symptom(EXACT, "a step too many or too few", of_numbers)
def _(x: Answer) -> str | None:
    e = np.exp(x.right - x.right.max(-1, keepdims=True))
    if x.is_now(e / e.sum(-1, keepdims=True)):
        return (
            "Your rows sum to 1: you return the softmax of what is asked, weights in place of scores. The score is "
            "what goes into softmax; stop one step earlier."
        )
    for changed, words in (
        (
            np.exp(x.right),
            "exp of what is asked: leave the exponential to the next step",
        ),
        (
            np.log(x.right),
            "the logarithm of what is asked: take exp, or leave out the log",
        ),
        (
            x.right**2,
            "the square of what is asked: a root is missing, a square one too many, or an exponent is twice what it "
            "should be",
        ),
        (
            np.sqrt(x.right),
            "the root of what is asked: a square is missing, a root one too many, or an exponent is half of what it "
            "should be",
        ),
        (
            1 / x.right,
            "1 over what is asked: something is divided that should be multiplied, or a sign is lost",
        ),
        (
            np.abs(x.right),
            "the right sizes without their signs: take no absolute value",
        ),
        (np.maximum(x.right, 0), "0 for all that is negative: cut nothing off"),
        (np.trunc(x.right), "whole numbers: what stands behind the point is lost"),
        (np.rint(x.right), "whole numbers, rounded"),
        (1 - x.right, "1 minus what is asked"),
    ):
        if x.is_now(changed):
            return f"You return {words}."
    return None


def _factor(x: Answer) -> float | None:
    ratio = ratio_of(x.right, x.got)
    none = ratio is None or np.isclose(ratio, [0, 1], atol=1e-2).any()
    return None if none else ratio


FACTOR = (
    "Every number of yours is the right one times a constant factor: {}. Is something divided twice or not at all, a "
    "mean taken for a sum, or a sum for a mean?"
)


@symptom(EXACT, "a constant factor", lambda x: of_numbers(x) or _is_number(x))
def _(x: Answer) -> str | None:
    ratio = _factor(x)
    name = ratio and _size(ratio, x.given)
    return FACTOR.format(name) if name else None


@symptom(EXACT, "a constant factor", lambda x: of_numbers(x) or _is_number(x))
def _(x: Answer) -> str | None:
    ratio = _factor(x)
    if ratio is None or not of_one_shape(x) and not _constant(ratio):
        return None  # of one number there always is a factor
    return FACTOR.format(_named(ratio, x.given))


def _is_number(x: Answer) -> bool:
    return x.right.shape == x.got.shape and x.right.size == 1 and x.right.dtype == float


CONSTANTS = {
    "2": 2,
    "½": 1 / 2,
    "3": 3,
    "⅓": 1 / 3,
    "4": 4,
    "¼": 1 / 4,
    "¾": 3 / 4,
    "4/3": 4 / 3,
    "100 (per cent)": 100,
    "ln 2 (bits)": np.log(2),
    "1/ln 2 (bits)": 1 / np.log(2),
    "1/√(2π) (a density)": (2 * np.pi) ** -0.5,
}


def _named(ratio: float, given: dict[str, Any]) -> str:
    """The factor as a number of one's own, or in terms of the arguments' sizes, or as it is."""
    return _constant(ratio) or _size(ratio, given) or f"{ratio:.4g}"


def _constant(ratio: float) -> str:
    return next((k for k, x in CONSTANTS.items() if np.isclose(ratio, x, 1e-4)), "")


def _size(ratio: float, given: dict[str, Any]) -> str:
    sizes: dict[str, float] = {}
    for name, x in given.items():
        if isinstance(x, np.ndarray):
            sizes |= {f"{name}.shape[{-a}]": x.shape[-a] for a in range(1, x.ndim + 1)}
        elif isinstance(x, int | float):
            sizes[name] = x
    for name, size in sizes.items():
        for text, value in (
            (name, size),
            (f"1/{name}", 1 / size if size else 0),
            (f"√{name}", abs(size) ** 0.5),
            (f"1/√{name}", abs(size) ** -0.5 if size else 0),
            (f"2 {name}", 2 * size),
            (f"1/({name} √(2π)) (a density)", (2 * np.pi) ** -0.5 / size if size else 0),
        ):  # fmt: skip
            if np.isclose(ratio, value, 1e-4):
                return text
    return ""


@symptom(SYMPTOMS, "a factor in the exponent", of_numbers)
def _(x: Answer) -> str | None:
    if (x.right < 0).any() or not np.array_equal(x.right > 0, x.got > 0):
        return None
    some = x.right > 0
    power = ratio_of(np.log(x.right[some]), np.log(x.got[some]))
    if power is None or np.isclose(power, 1):
        return None
    return (
        f"Your numbers are the right ones to the power {_named(power, x.given)}: the exponent is so many times what it "
        "should be. Look at what it is divided by, and at what is squared, the bandwidth too."
    )


@symptom(SYMPTOMS, "a factor for each head or row", of_numbers)
def _(x: Answer) -> str | None:
    for axis in (0, -1):
        parts = [np.moveaxis(y, axis, 0) for y in (x.right, x.got)]
        found = (ratio_of(*pair) for pair in zip(*parts, strict=True))
        ratios = [ratio for ratio in found if ratio is not None]
        if not 2 <= len(parts[0]) == len(ratios) or x.right.size < 3 * len(ratios):
            continue
        if np.ptp(ratios) < 0.01 or np.isin(np.round(ratios, 6), [0, 1]).all():
            continue
        what = "column" if axis else "head or sequence" if x.right.ndim > 2 else "row"
        shown = ", ".join(f"{ratio:.3g}" for ratio in ratios[:4])
        more = " …" if len(ratios) > 4 else ""
        return f"Each {what} is right but for a factor, and each has its own: {shown}{more}."
    return None


@symptom(SYMPTOMS, "a constant for each row", of_numbers)
def _(x: Answer) -> str | None:
    gap = x.got - x.right
    if x.right.ndim < 2 or x.right.shape[-1] < 3 or np.allclose(gap, 0, atol=1e-3):
        return None
    if not np.allclose(gap, gap[..., :1], 1e-4, 1e-6):
        return None
    return (
        "Each row is right but for a number that is added to the whole row. Is something subtracted twice, or "
        "subtracted in one place and not put back in the other, as the maximum in a log softmax, or is a term left out?"
    )


@symptom(EXACT, "a constant added", of_numbers)
def _(x: Answer) -> str | None:
    gap = x.got - x.right
    if np.allclose(gap, gap.flat[0], 1e-4, 1e-6) and abs(gap.flat[0]) > 1e-4:
        return f"Every number of yours is the right one and a constant more: {gap.flat[0]:+.4g}."
    return None


@symptom(
    SYMPTOMS, "shifted by one", lambda x: of_one_shape(x) and x.right.dtype != bool
)
def _(x: Answer) -> str | None:
    for axis in range(-1, -x.right.ndim - 1, -1):
        ours, right = (np.moveaxis(y, axis, 0) for y in (x.got, x.right))
        if len(ours) > 2 and (
            x.same(right[1:], ours[:-1]) or x.same(right[:-1], ours[1:])
        ):
            return "Everything stands one place too early or too late: counted from 1 in place of 0, or shifted by one."
    return None


@symptom(SYMPTOMS, "lengths not kept", of_numbers)
def _(x: Answer) -> str | None:
    first = next(iter(x.floats), x.right[:0])
    if first.shape != x.right.shape:
        return None
    before, right, got = (np.linalg.norm(y, axis=-1) for y in (first, x.right, x.got))
    if x.same(before, right) and not np.allclose(right, got, 1e-3):
        return (
            "Your rows change their length, so that this is no rotation. A rotation by θ is x cos θ − y sin θ and "
            "x sin θ + y cos θ: one minus sign, and one angle for both columns of a pair."
        )
    return None


@symptom(SYMPTOMS, "all rows equal", of_numbers)
def _(x: Answer) -> str | None:
    if not np.isfinite(x.got).all() or np.ptp(x.got) < 1e-6:
        return None
    for axis, what in ((-2, "rows"), (-3, "heads or sequences"), (-1, "columns")):
        if x.right.ndim < -axis or x.right.shape[axis] < 2:
            continue
        first = [np.take(y, [0], axis) for y in (x.right, x.got)]
        if x.same(x.got, first[1] + 0 * x.got) and not x.same(
            x.right, first[0] + 0 * x.right
        ):
            return (
                f"All your {what} are the same. Is a sum or a mean taken over them, one of them used for all, or a "
                "name overwritten in a loop?"
            )
    return None


@symptom(SYMPTOMS, "queries and keys do not meet", of_numbers)
def _(x: Answer) -> str | None:
    if x.right.ndim < 2 or min(x.right.shape[-2:]) < 3:
        return None
    if 2 * len(np.unique(x.got.round(6))) < x.got.size:
        return None  # a few numbers are easily sums of others
    meet = [y - y[..., :1] - y[..., :1, :] + y[..., :1, :1] for y in (x.right, x.got)]
    if np.allclose(meet[1], 0, atol=1e-6) and not np.allclose(meet[0], 0, atol=1e-3):
        return (
            "Each number of yours is one of its row plus one of its column: row and column never meet. Is a product "
            "missing, or is something taken of each by itself, as tanh, before the two are added?"
        )
    return None


@symptom(VAGUE, "nearly right", lambda x: of_numbers(x) or _is_number(x))
def _(x: Answer) -> str | None:
    off = np.abs(x.got - x.right).max() / np.abs(x.right).max()
    if off < 0.02:
        return (
            f"You are nearly right: off by up to {100 * off:.1g} % of the largest number. That is rounding, as "
            "in float32, or an approximation: another small number (ε), a step too large or too small, large terms "
            "that cancel, or a number for −∞ that is not low enough."
        )
    return None


@symptom(VAGUE, "wrong in some places", of_one_shape)
def _(x: Answer) -> str | None:
    differs = ~np.isclose(x.right, x.got, *x.tolerance, equal_nan=True)
    for axis in range(x.right.ndim - 1, -1, -1):
        wrong = differs.any(tuple(a for a in range(x.right.ndim) if a != axis))
        if 3 * wrong.sum() <= 2 * wrong.size:
            last = x.right.ndim - 1
            what = (
                "heads or sequences"
                if axis < last - 1
                else "rows"
                if axis < last
                else "columns"
            )
            what = what if last else "entries"
            at = ", ".join(map(str, np.flatnonzero(wrong)[:6]))
            return f"Only some {what} are wrong, number {at}{' …' if wrong.sum() > 6 else ''}; the others are right."
    return None
