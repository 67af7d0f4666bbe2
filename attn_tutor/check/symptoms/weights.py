"""Weights: each row of the right answer is ≥ 0 and sums to 1, or is empty."""

import numpy as np

from attn_tutor.check.symptoms.symptom import (
    Answer,
    Array,
    Symptoms,
    of_numbers,
    seen,
    symptom,
)

EXACT: Symptoms = []
SYMPTOMS: Symptoms = []
VAGUE: Symptoms = []


def _of_weights(x: Answer) -> bool:
    if not of_numbers(x) or x.right.ndim < 2 or x.read:
        return False
    total = x.right.sum(-1)
    full = np.isclose(total, 1, atol=1e-2)
    return bool((x.right >= 0).all() and full.any() and (full | (total == 0)).all())


def _full(x: Answer) -> Array:
    """The rows that are not empty."""
    return np.asarray((x.right > 0).any(-1))


def _sums_to_one(weights: Array, axis: int | None = -1) -> bool:
    total = np.nansum(weights, axis)
    whole = np.isclose(total, 1, atol=1e-2) | (total == 0)
    return bool(whole.all() and np.any(total))


def _shares(x: Array) -> Array:
    total = x.sum(-1, keepdims=True)
    return x / np.where(total == 0, 1, total)


@symptom(SYMPTOMS, "columns sum to 1", _of_weights)
def _(x: Answer) -> str | None:
    if (x.got < 0).any() or _sums_to_one(x.got[_full(x)]):
        return None
    if x.got.shape[-2] > 1 and _sums_to_one(x.got, -2):
        return (
            "Your columns sum to 1, not your rows: the sum runs over the queries (axis −2), as it does with dim=1 on a "
            "batch. Each query shares out its own weight: sum over the keys, axis −1."
        )
    if x.got.ndim > 2 and len(x.got) > 1 and _sums_to_one(x.got, 0):
        return "Your entries sum to 1 along the first axis, over sequences or heads. Keys are the last one: axis −1."
    if _full(x).sum() > 1 and _sums_to_one(x.got, None):
        return "All your weights together sum to 1. Each row must: .sum(-1, keepdims=True)."
    return None


LOW = -20, -50, -100, -1e3, -1e4, -1e5, -1e6, -1e9


@symptom(EXACT, "a large negative number is not −∞", _of_weights)
def _(x: Answer) -> str | None:
    S, mask = (
        next(
            (
                y
                for y in x.case
                if np.shape(y) == x.right.shape and y.dtype.kind == kind
            ),
            None,
        )
        for kind in "fb"
    )
    if S is None or mask is None or mask.all():
        return None
    for low in LOW:
        added = np.where(mask, 0, low).astype(S.dtype)
        for hidden in (np.where(mask, S, low), (S + added).astype(float)):
            e = np.exp(hidden - hidden.max(-1, keepdims=True))
            made = e / e.sum(-1, keepdims=True)
            for each in (made, made * mask):
                empty = ~_full(x)[..., None] & (x.got == 0)  # which may be put right
                if x.is_now(np.where(empty, 0, each)):
                    return (
                        "A large negative number is not −∞: where the permitted scores are as low, or there are none, "
                        "hidden keys get weight. Hide them with −∞, and put 0 in a row that has no other key."
                    )
    return None


def _inverted(x: Answer) -> bool:
    hidden = x.right == 0
    return not x.got[~hidden].any() and (not hidden.any() or (x.got[hidden] > 0).any())


seen(SYMPTOMS, "inverted mask", _of_weights, _inverted,
    "Your weights lie on the forbidden keys, and on those alone: the mask is inverted. True means “may attend” here: "
    "hide where it is False, ~mask.")  # fmt: skip
seen(SYMPTOMS, "weight on what is hidden", _of_weights, lambda x: (x.got[_full(x)][x.right[_full(x)] == 0] > 0).any(),
    "Forbidden keys get weight. Their score must be −∞ before the softmax: a 0 does not do, as exp(0) is 1, nor does a "
    "mask of ones and zeros that is added, nor a large negative number among scores as low.")  # fmt: skip
seen(SYMPTOMS, "weight on what is hidden", _of_weights, lambda x: (x.got[~_full(x)] > 0).any(),
    "A row in which no key is permitted gets weights. It is empty: all its weights must be 0.")  # fmt: skip
seen(EXACT, "rows not divided by their sum", _of_weights,
    lambda x: (x.got.sum(-1) >= 0).all() and x.same(x.right, _shares(x.got)),
    "Your weights have the right proportions, but your rows do not sum to 1: divide each row by its own sum, "
    ".sum(-1, keepdims=True), and by nothing else.")  # fmt: skip
seen(SYMPTOMS, "rows do not sum to 1", _of_weights,
    lambda x: np.isfinite(x.got).all() and (x.got >= 0).all() and not _sums_to_one(x.got[_full(x)]),
    "Your rows do not sum to 1. Divide each row by its own sum, at the very end; a sum over the last axis needs "
    "keepdims=True, or it is laid along the columns.")  # fmt: skip


@symptom(SYMPTOMS, "others kept", of_numbers)
def _(x: Answer) -> str | None:
    if (x.right < 0).any() or not (_sums_to_one(x.right) and _sums_to_one(x.got)):
        return None
    kept, ours = x.right > 0, x.got > 0
    both = [np.where(kept & ours, y, 0) for y in (x.right, x.got)]
    if np.array_equal(kept, ours) or not both[0].any(-1).all():
        return None
    words = "You share out rightly among those that you keep, but you keep others than asked, too many or too few."
    return words * x.same(*map(_shares, both))


@symptom(SYMPTOMS, "too sharp or too flat", _of_weights)
def _(x: Answer) -> str | None:
    some = x.right > 0
    if not np.array_equal(some, x.got > 0) or np.ptp(x.right[some]) < 0.01:
        return None
    one, other = (_less_mean(np.log(y), some) for y in (x.right, x.got))
    ratio = float((one * other).sum() / (one**2).sum())
    if not x.same(ratio * one, other):
        return None
    how = (
        "have the wrong sign"
        if ratio < 0
        else f"are too {'sharp' if ratio > 1 else 'flat'}"
    )
    return (
        f"Your weights {how}: they are those of scores {ratio:.3g} times as large. Is a √d missing, or one too many? "
        "(0.693 is 2 ** x in place of exp.)"
    )


def _less_mean(x: Array, some: Array) -> Array:
    """Each row less the mean of some of its entries, and 0 elsewhere."""
    total = np.where(some, x, 0).sum(-1, keepdims=True)
    return np.where(some, x - total / some.sum(-1, keepdims=True), 0)


seen(VAGUE, "other proportions", _of_weights,
    lambda x: (x.got >= 0).all() and _sums_to_one(x.got) and not x.got[x.right == 0].any(),
    "Your rows sum to 1, but they are shared out in other proportions: look at the scores that you make, and at what "
    "makes weights of them.")  # fmt: skip
