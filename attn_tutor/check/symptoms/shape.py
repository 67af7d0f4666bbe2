"""The right numbers in the wrong shape."""

from itertools import permutations

import numpy as np

from attn_tutor.check.symptoms.symptom import Answer, Sight, seen, symptom

EXACT: list[tuple[str, Sight]] = []  # all numbers, in their order
SYMPTOMS: list[tuple[str, Sight]] = []
VAGUE: list[tuple[str, Sight]] = []  # said only where there is nothing better to say


def _differs(x: Answer) -> bool:
    return x.got.shape != x.right.shape


def _of_some_axes(x: Answer) -> bool:
    return x.got.ndim == x.right.ndim >= 2


def _of_numbers(x: Answer) -> bool:
    return x.right.dtype != bool and x.right.size == x.got.size > 4


def _same_numbers(x: Answer) -> bool:
    return x.same(np.sort(x.right, None), np.sort(x.got, None))


@symptom(EXACT, "an axis of length 1", _differs)
def _(x: Answer) -> str | None:
    if not x.same(x.right.squeeze(), x.got.squeeze()):
        return None
    happened = "lost" if x.got.ndim < x.right.ndim else "left over or in another place"
    return (
        f"The numbers are right, the shape is not: an axis of length 1 is {happened}. An index x[0] and squeeze() take "
        "an axis away; x[:1], x[..., None] and keepdims=True keep or make one."
    )


@symptom(EXACT, "transposed", _of_some_axes)
def _(x: Answer) -> str | None:
    if x.is_now(x.right.mT):
        return (
            "You return the transpose of what is asked: your rows are its columns. Rows are queries, or tokens; swap "
            "the last two axes."
        )
    orders = permutations(range(x.right.ndim))
    if x.right.ndim > 2 and any(x.is_now(x.right.transpose(o)) for o in [*orders][1:]):
        return (
            "The numbers are right, but the axes stand in another order, as if transposed. Count axes from the end, −1 "
            "and −2, so that a batch in front moves nothing."
        )
    return None


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


@symptom(EXACT, "in another order", _of_numbers)
def _(x: Answer) -> str | None:
    if x.right.shape != x.got.shape or not _same_numbers(x):
        return None
    axes = (-1, -2, -3)[: x.right.ndim]
    return next(filter(None, (_order(x, axis) for axis in axes)), None)


@symptom(SYMPTOMS, "the right numbers in other places", _of_numbers)
def _(x: Answer) -> str | None:
    axes = (-1, -2)[: x.right.ndim] if x.right.shape == x.got.shape else ()
    for axis, what in zip(axes, ("row", "column"), strict=False):
        if x.same(*(np.sort(y, axis) for y in (x.right, x.got))):
            return (
                f"Each {what} holds the right numbers, but in other places: they are put together, or reshaped, in "
                "another order."
            )
    if not _same_numbers(x):
        return None
    if x.right.shape != x.got.shape:
        return (
            f"All numbers are right, but in other places, and the shape is {x.got.shape} where it should be "
            f"{x.right.shape}: another axis is cut, or split into other lengths."
        )
    return "All numbers are right, but they stand in other places: a reshape mixes what a swap of axes would move."


def _order(x: Answer, axis: int) -> str | None:
    """In which order the columns, rows or heads stand, if they are whole."""
    ours, right = (np.moveaxis(y, axis, 0) for y in (x.got, x.right))
    order = [next((j for j, y in enumerate(right) if x.same(y, z)), -1) for z in ours]
    if len(set(order)) < len(right) or -1 in order:
        return None
    steps = {(a - i) % len(order) for i, a in enumerate(order)}
    way = "in another order"
    if len(steps) == 1:
        way = "shifted round"
    elif order == sorted(order, reverse=True):
        way = "reversed"
    what = "heads or sequences" if axis == -3 else "columns" if axis == -1 else "rows"
    what = what if x.right.ndim > 1 else "entries"
    shown = ", ".join(map(str, order[:8])) + (" …" if len(order) > 8 else "")
    return f"Your {what} are right, but {way}: in the places 0, 1, … stand those of number {shown}."


@symptom(VAGUE, "another number of axes", _differs)
def _(x: Answer) -> str | None:
    ours, right = x.got.ndim, x.right.ndim
    if ours in (0, right):
        return None
    what = (
        "an axis too many: one is not summed over, or broadcasting adds one, as (n, 1) beside (n,) makes (n, n)"
        if ours > right
        else "an axis too few: a sum, an index or a product takes one away"
    )
    return f"Your answer has the shape {x.got.shape} where {x.right.shape} is asked, {what}."
