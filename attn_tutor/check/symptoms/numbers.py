"""Not a number, or what was done to the right numbers."""

from collections.abc import Callable
from typing import Any

import numpy as np

from attn_tutor.check.symptoms.symptom import (
    AXES,
    Answer,
    Array,
    Symptoms,
    largest,
    of_numbers,
    of_one_shape,
    seen,
    symptom,
)

CONSTANT: Symptoms = []
EXACT: Symptoms = []  # what is done to all numbers in one way
SYMPTOMS: Symptoms = []
CORNERS: Symptoms = []  # where there is no number at all
VAGUE: Symptoms = []  # said only where there is nothing better to say


def _empty(x: Answer) -> Array:
    return np.asarray((x.right == 0).all(-1))


seen(CORNERS, "overflow", of_numbers,
    lambda x: any(largest(a) >= 90 for a in x.floats.values()) and not np.isfinite(x.got[np.isfinite(x.right)]).all(),
    "With large numbers you return NaN or infinity: exp(1000) overflows and ∞/∞ is NaN, exp(−1000) is 0 and 0/0 is "
    "NaN. Take away what is common before exp: in a softmax that is the maximum of each row.")  # fmt: skip
seen(CORNERS, "NaN in an empty row", of_numbers,
    lambda x: np.isnan(x.got[_empty(x)]).any() and not np.isnan(x.got[~_empty(x)]).any(),
    "Where nothing is permitted, or all weights are 0, you return NaN: 0/0, or −∞ − (−∞). Such a row must be 0."
)  # fmt: skip


def ratio_of(right: Array, got: Array) -> float | None:
    """The one number that all of ``got`` is of ``right``, if there is one."""
    some = np.abs(right) > 1e-7
    if not some.any() or not (np.isfinite(right) & np.isfinite(got)).all():
        return None
    ratio = float((got[some] / right[some]).flat[0])
    return ratio if np.allclose(got, ratio * right, 1e-4, 1e-6) else None


seen(CONSTANT, "one number everywhere", of_numbers, lambda x: np.ptp(x.got) == 0 and np.ptp(x.right) > 1e-6,
    "All your numbers are the same. Is something divided as whole numbers, //, is an array that was made with zeros "
    "not filled, or is everything cut off?")  # fmt: skip


@symptom(EXACT, "an argument added", of_numbers)
def _(x: Answer) -> str | None:
    for name, array in x.floats.items():
        for sign, how in ((1, "added to"), (-1, "subtracted from")):
            if array.shape == x.right.shape and x.is_now(x.right + sign * array):
                return f"`{name}` is {how} what is asked: a residual connection, or a term too many."
    return None


seen(EXACT, "the sign", of_numbers, lambda x: x.is_now(-x.right),
    "Your numbers are right but for the sign: all are minus what they should be.")  # fmt: skip


def _softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


STEPS: dict[str, Callable[[Array], Array]] = {
    "the softmax of what is asked, weights in place of scores: stop one step earlier": _softmax,
    "exp of what is asked: leave the exponential to the next step": np.exp,
    "the logarithm of what is asked: take exp, or leave out the log": np.log,
    "the square of what is asked: a root is missing, or a square, or a 2 in an exponent, is one too many": np.square,
    "the root of what is asked: a square is missing, or a root, or a half in an exponent, is one too many": np.sqrt,
    "1 over what is asked: something is divided that should be multiplied, or a sign is lost": np.reciprocal,
    "the right sizes without their signs: take no absolute value": np.abs,
    "whole numbers, rounded": np.rint,
}  # fmt: skip


@symptom(EXACT, "a step too many or too few", of_numbers)
def _(x: Answer) -> str | None:
    made = (f"You return {what}." for what, f in STEPS.items() if x.is_now(f(x.right)))
    return next(made, None)


def _is_number(x: Answer) -> bool:
    return x.right.shape == x.got.shape and x.right.size == 1 and x.right.dtype == float


@symptom(EXACT, "a constant factor", lambda x: of_numbers(x) or _is_number(x))
def _(x: Answer) -> str | None:
    ratio = ratio_of(x.right, x.got)
    if ratio is None or np.isclose(ratio, [0, 1], atol=1e-2).any():
        return None
    # Of one number there always is a factor, so that it must have a name.
    name = _size(ratio, x.given) or _constant(ratio) or f"{ratio:.4g}" * of_one_shape(x)
    return name and (
        f"Every number of yours is the right one times a constant factor: {name}. Is something divided twice or not at "
        "all, a mean taken for a sum, or a sum for a mean?"
    )


CONSTANTS = {
    "2": 2, "½": 1 / 2, "3": 3, "⅓": 1 / 3, "4": 4, "¼": 1 / 4, "¾": 3 / 4, "4/3": 4 / 3, "100 (per cent)": 100,
    "ln 2 (bits)": np.log(2), "1/ln 2 (bits)": 1 / np.log(2), "1/√(2π) (a density)": (2 * np.pi) ** -0.5,
}  # fmt: skip
SIZES = {  # times a power of a size
    "{}": (1, 1), "1/{}": (1, -1), "√{}": (1, 0.5), "1/√{}": (1, -0.5), "2 {}": (2, 1),
    "1/({} √(2π)) (a density)": ((2 * np.pi) ** -0.5, -1),
}  # fmt: skip


def _constant(ratio: float) -> str:
    return next((k for k, x in CONSTANTS.items() if np.isclose(ratio, x, 1e-4)), "")


def _size(ratio: float, given: dict[str, Any]) -> str:
    """The factor in terms of the arguments' sizes."""
    sizes: dict[str, float] = {}
    for name, x in given.items():
        if isinstance(x, np.ndarray):
            sizes |= {f"{name}.shape[{-a}]": x.shape[-a] for a in range(1, x.ndim + 1)}
        elif isinstance(x, int | float):
            sizes[name] = x
    for name, size in sizes.items():
        for text, (times, power) in SIZES.items() if size > 0 else ():
            if np.isclose(ratio, times * size**power, 1e-4):
                return text.format(name)
    return ""


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
        more = " …" * (len(ratios) > 4)
        return f"Each {what} is right but for a factor, and each has its own: {shown}{more}."
    return None


def _constant_for_rows(x: Answer) -> bool:
    gap = x.got - x.right
    wide = x.right.ndim > 1 and x.right.shape[-1] > 2
    if not wide or np.abs(gap).max() < 1e-3:
        return False
    return np.allclose(gap, gap[..., :1], 1e-4, 1e-6)


seen(SYMPTOMS, "a constant for each row", of_numbers, _constant_for_rows,
    "Each row is right but for a number that is added to the whole row. Is something subtracted twice, or in one place "
    "and not put back in the other, as the maximum in a log softmax, or is a term left out?")  # fmt: skip


@symptom(EXACT, "a constant added", of_numbers)
def _(x: Answer) -> str | None:
    gap = x.got - x.right
    if np.allclose(gap, gap.flat[0], 1e-4, 1e-6) and abs(gap.flat[0]) > 1e-4:
        return f"Every number of yours is the right one and a constant more: {gap.flat[0]:+.4g}."
    return None


def _shifted(x: Answer) -> bool:
    for axis in range(x.right.ndim):
        ours, right = (np.moveaxis(y, axis, 0) for y in (x.got, x.right))
        if len(ours) > 2 and (
            x.same(right[1:], ours[:-1]) or x.same(right[:-1], ours[1:])
        ):
            return True
    return False


seen(SYMPTOMS, "shifted by one", lambda x: of_one_shape(x) and x.right.dtype != bool, _shifted,
    "Everything stands one place too early or too late: counted from 1 in place of 0, or shifted by one.")  # fmt: skip


def _length_lost(x: Answer) -> bool:
    first = next(iter(x.floats.values()), x.right[:0])
    if first.shape != x.right.shape:
        return False
    before, right, got = (np.linalg.norm(y, axis=-1) for y in (first, x.right, x.got))
    return x.same(before, right) and not np.allclose(right, got, 1e-3)


seen(SYMPTOMS, "lengths not kept", of_numbers, _length_lost,
    "Your rows change their length, so that this is no rotation. A rotation by θ is x cos θ − y sin θ and "
    "x sin θ + y cos θ: one minus sign, and one angle for both columns of a pair.")  # fmt: skip


def _no_meeting(x: Answer) -> bool:
    if x.right.ndim < 2 or min(x.right.shape[-2:]) < 3:
        return False
    if 2 * len(np.unique(x.got.round(6))) < x.got.size:
        return False  # a few numbers are easily sums of others
    meet = [y - y[..., :1] - y[..., :1, :] + y[..., :1, :1] for y in (x.right, x.got)]
    return np.abs(meet[1]).max() < 1e-6 and np.abs(meet[0]).max() > 1e-3


seen(SYMPTOMS, "queries and keys do not meet", of_numbers, _no_meeting,
    "Each number of yours is one of its row plus one of its column: row and column never meet. Is a product missing, "
    "or is something taken of each by itself, as tanh, before the two are added?")  # fmt: skip


@symptom(VAGUE, "nearly right", lambda x: of_numbers(x) or _is_number(x))
def _(x: Answer) -> str | None:
    off = np.abs(x.got - x.right).max() / np.abs(x.right).max()
    if off < 0.02:
        return (
            f"You are nearly right: off by up to {100 * off:.1g} % of the largest number. That is rounding, as in "
            "float32, or an approximation: another small number (ε), a step too large or too small, large terms that "
            "cancel, or a number for −∞ that is not low enough."
        )
    return None


@symptom(VAGUE, "wrong in some places", of_one_shape)
def _(x: Answer) -> str | None:
    differs = ~np.isclose(x.right, x.got, *x.tolerance, equal_nan=True)
    for axis in range(1, x.right.ndim + 1):  # from the last to the first
        wrong = np.moveaxis(differs, -axis, 0).reshape(x.right.shape[-axis], -1).any(-1)
        if 3 * wrong.sum() <= 2 * wrong.size:
            what = AXES[min(axis, 3) - 1][1] if x.right.ndim > 1 else "entries"
            at = ", ".join(map(str, np.flatnonzero(wrong)[:6]))
            more = " …" if wrong.sum() > 6 else ""
            return (
                f"Only some {what} are wrong, number {at}{more}; the others are right."
            )
    return None
