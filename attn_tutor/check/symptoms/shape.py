"""The right numbers in the wrong shape."""

from itertools import permutations

import numpy as np

from attn_tutor.check.symptoms.symptom import AXES, Answer, Symptoms, seen, symptom

EXACT: Symptoms = []  # all numbers, in their order
SYMPTOMS: Symptoms = []
VAGUE: Symptoms = []  # said only where there is nothing better to say


def _differs(x: Answer) -> bool:
    return x.got.shape != x.right.shape


def _of_some_axes(x: Answer) -> bool:
    return x.got.ndim == x.right.ndim >= 2


def _of_numbers(x: Answer) -> bool:
    return x.right.dtype != bool and x.right.size == x.got.size > 4


def _same_numbers(x: Answer) -> bool:
    return x.same(np.sort(x.right, None), np.sort(x.got, None))


def _turned(x: Answer) -> bool:
    orders = [*permutations(range(x.right.ndim))][1:]
    return any(x.is_now(x.right.transpose(order)) for order in orders)


seen(EXACT, "an axis of length 1", _differs, lambda x: x.same(x.right.squeeze(), x.got.squeeze()),
    "The numbers are right, the shape is not: an axis of length 1 is lost, or left over. x[0] and squeeze() take an "
    "axis away; x[:1], x[..., None] and keepdims=True keep or make one.")  # fmt: skip
seen(EXACT, "transposed", _of_some_axes, lambda x: x.is_now(x.right.mT),
    "You return the transpose of what is asked: your rows are its columns. Rows are queries, or tokens: swap the last "
    "two axes.")  # fmt: skip
seen(EXACT, "transposed", _of_some_axes, _turned,
    "The numbers are right, but the axes stand in another order, as if transposed. Count axes from the end, −1 and −2, "
    "so that a batch in front moves nothing.")  # fmt: skip
seen(EXACT, "cut into another shape", _differs, lambda x: x.right.size > 1 and x.same(x.right.ravel(), x.got.ravel()),
    "The numbers are right and in the right order, but cut into another shape: reshape them at the end.")  # fmt: skip


@symptom(SYMPTOMS, "too long or too short", _differs)
def _(x: Answer) -> str | None:
    if x.right.ndim != x.got.ndim:
        return None
    sizes = zip(x.right.shape, x.got.shape, strict=True)
    front = tuple(slice(min(pair)) for pair in sizes)
    back = tuple(slice(-s.stop or None, None) for s in front)
    for common in (front, back):
        if x.right[common].size > 1 and x.same(x.right[common], x.got[common]):
            many = "longer" if x.got.size > x.right.size else "shorter"
            return (
                f"What you return is {many} than what is asked, and right as far as both go. Count what the loop or "
                "the slice takes, or what its shape is made of."
            )
    return None


@symptom(EXACT, "in another order", lambda x: _of_numbers(x) and not _differs(x))
def _(x: Answer) -> str | None:
    if not _same_numbers(x):
        return None
    for axis, what in AXES[: x.right.ndim]:
        ours, right = (np.moveaxis(y, axis, 0) for y in (x.got, x.right))
        same = ([x.same(y, z) for y in right] for z in ours)
        order = [each.index(True) if True in each else -1 for each in same]
        if -1 not in order and len(set(order)) == len(right):
            what = what if x.right.ndim > 1 else "entries"
            shown = ", ".join(map(str, order[:8])) + " …" * (len(order) > 8)
            return f"Your {what} are right, but in another order: in places 0, 1, … stand those of number {shown}."
    return None


@symptom(SYMPTOMS, "the right numbers in other places", _of_numbers)
def _(x: Answer) -> str | None:
    if x.right.shape == x.got.shape:
        for axis in (-1, -2)[: x.right.ndim]:
            if x.same(*(np.sort(y, axis) for y in (x.right, x.got))):
                what = "row" if axis == -1 else "column"
                return f"Each {what} holds the right numbers, but put together, or reshaped, in another order."
    how = "a reshape mixes what a swap of axes would move"
    if _differs(x):
        how = f"another axis is cut, as your shape is {x.got.shape} and should be {x.right.shape}"
    return f"All numbers are right, but in other places: {how}." * _same_numbers(x)


@symptom(VAGUE, "another number of axes", _differs)
def _(x: Answer) -> str | None:
    if x.got.ndim in (0, x.right.ndim):
        return None
    how = "an axis too few: a sum, an index or a product takes one away"
    if x.got.ndim > x.right.ndim:
        how = "an axis too many: one is not summed over, or broadcast, as (n, 1) beside (n,) makes (n, n)"
    return f"Your answer has the shape {x.got.shape} where {x.right.shape} is asked, {how}."
