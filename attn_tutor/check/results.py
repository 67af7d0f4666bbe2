"""What a function may return, and when two answers are the same."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from attn_tutor.check.calls import Case, give, is_tensor, take

TOLERANCES = {"float64": (1e-6, 1e-8), "float32": (1e-4, 1e-5), "float16": (1e-2, 4e-3)}
COARSEST = ("e", "float16"), ("f", "float32"), ("d", "float64")  # by dtype.char


def in_arrays(value: Any, right: Any, tensors: bool) -> Any:
    """What is returned, with arrays for the lists that hold what an array would; of another shape they stay lists."""
    if isinstance(right, tuple):
        if isinstance(value, list | tuple) and len(value) == len(right):
            pairs = zip(value, right, strict=True)
            return tuple(in_arrays(x, y, tensors) for x, y in pairs)
        return value
    if not isinstance(value, list) or not np.ndim(right):
        return value
    try:
        array = np.array(_of_lists(value))
    except (ValueError, TypeError):
        return value
    if array.shape != right.shape or array.dtype.kind not in "biuf":
        return value
    if right.dtype.kind == "f":  # the numbers of a list have no dtype of their own
        array = array.astype(right.dtype)
    return give(array, tensors)


def _of_lists(value: Any) -> Any:
    return list(map(_of_lists, value)) if isinstance(value, list) else take(value)


def wrong_kind(value: Any, right: Any, tensors: bool) -> tuple[str, str] | None:
    """A title and words for what is no array, or not as many of them."""
    if value is None:
        words = "It returns None. A function hands over its answer with `return`; printing only shows it."
        return "returns None", words
    kind = type(value).__name__
    kind = f"an {kind}" if kind[0] in "aeiou" or kind == "ndarray" else f"a {kind}"
    if isinstance(right, tuple):
        many = isinstance(value, list | tuple)
        if not isinstance(value, tuple) or len(value) != len(right):
            found = f"{len(value)} values" if many else kind
            words = f"It returns {found} and must return {len(right)} values: `return a, b, …`."
            return f"returns no tuple of {len(right)}", words
        kinds = (wrong_kind(*pair, tensors) for pair in zip(value, right, strict=True))
        return next(filter(None, kinds), None)
    if np.ndim(right) == 0:
        number = _is_numeric(take(value)) and np.ndim(take(value)) == 0
        words = f"It returns {kind}, not one number."
        return None if number else ("returns no number", words)
    made_by = "torch.stack or torch.tensor" if tensors else "np.array or np.stack"
    wanted = "a tensor" if tensors else "an array"
    if isinstance(value, list | tuple):
        return f"returns {kind}", f"It returns {kind}; {made_by} makes {wanted} of it."
    if not (is_tensor(value) if tensors else isinstance(value, np.ndarray)):
        return f"returns {kind}", f"It returns {kind}, not {wanted}."
    if tensors and str(value.layout) != "torch.strided":
        words = "It returns a sparse tensor: .to_dense() fills it in."
        return "returns a sparse tensor", words
    if not _is_numeric(take(value)):
        of = take(value).dtype
        return f"returns {of}", f"It returns {wanted} of {of}, not of real numbers."
    return None


def _is_numeric(x: Any) -> bool:
    return isinstance(x, bool | int | float | np.generic | np.ndarray) and (
        np.asarray(x).dtype.kind in "biuf"
    )


def wrong_dtype(case: Case, right: Any, got: Any) -> tuple[str, str] | None:
    """Numbers are no coarser than the arrays among the arguments; masks are boolean."""
    pairs = zip(right, got, strict=True) if isinstance(right, tuple) else [(right, got)]
    given = float_of(case)
    for wanted, x in (map(np.asarray, pair) for pair in pairs):
        kind = x.dtype.kind
        if wanted.dtype.kind == "b" != kind:
            words = f"It returns {x.dtype}, but this must be boolean: True or False."
            return "wrong dtype", words
        narrow = kind != "f" or x.dtype.itemsize < np.dtype(given or "d").itemsize
        if wanted.dtype.kind == "f" and x.ndim and given and narrow:
            words = f"The numbers are right, but they come as {x.dtype} where the arguments are {given}."
            return "wrong dtype", words
    return None


def float_of(case: Case) -> str:
    """The coarsest dtype of the real arrays among the arguments, or nothing."""
    return _coarsest(_arrays(case), "")


def _arrays(case: Case) -> list[Any]:
    return [y for x in case for y in (x.values() if isinstance(x, dict) else [x])]


def _coarsest(arrays: Iterable[Any], default: str) -> str:
    chars = {x.dtype.char for x in arrays if isinstance(x, np.ndarray | np.generic)}
    return next((name for char, name in COARSEST if char in chars), default)


def close(x: Any, y: Any, tolerance: tuple[float, float]) -> bool:
    """As np.allclose, which takes four times as long."""
    x, y = np.asarray(x), np.asarray(y)
    if x.shape != y.shape:
        return False
    if x.dtype.kind == y.dtype.kind != "f":
        return bool((x == y).all())
    relative, absolute = tolerance
    if x.size:  # most answers that differ do so in their first number
        one, other = float(x.flat[0]), float(y.flat[0])
        if abs(one - other) > absolute + relative * abs(other):
            return False
    x, y = x.astype(float), y.astype(float)
    with np.errstate(all="ignore"):
        near = abs(x - y) <= absolute + relative * abs(y)
        near &= np.isfinite(y)
        near |= (x == y) | (np.isnan(x) & np.isnan(y))
    return bool(near.all())


def shapes(value: Any) -> list[Any]:
    return [np.shape(x) for x in (value if isinstance(value, tuple) else (value,))]


def unchanged(before: Any, after: Any) -> bool:
    if isinstance(before, dict):
        return all(unchanged(before[key], after[key]) for key in before)
    if isinstance(before, np.ndarray):
        nan = before.dtype.kind == "f"
        return np.array_equal(before, after, equal_nan=nan)
    return True


def tolerance(case: Case, *answers: Any) -> tuple[float, float]:
    """Relative and absolute: an answer is as good as the coarsest dtype on the way to it."""
    return TOLERANCES[_coarsest([*answers, *_arrays(case)], "float64")]
