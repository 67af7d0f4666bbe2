"""What the engines of both halves share: how a body is called, and how its arrays are cut."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from attn_tutor._checks import Shape, broadcast

Letters = tuple[str, ...]  # of an array's last axes


class Definition(NamedTuple):
    """A body, and the letters of the axes of what it takes and gives, from the signature of ``@shapes``."""

    body: Callable[..., Any]
    cores: list[Letters]  # of each array that it takes
    outputs: list[Letters]  # of each that it gives
    per_pair: str | None  # axis along which it holds numbers for each query and key
    fused: Callable[..., Any] | None  # the same, faster
    name: str  # in messages

    @property
    def returns_weights(self) -> bool:
        """Whether a result has an axis for keys, so that none may be left out."""
        return "m" in self.outputs[0]


def called_by(
    run: Callable[..., Any],
    body: Callable[..., Any],
    per_pair: str | None,
    fused: Callable[..., Any] | None = None,
    name: str | None = None,
) -> Callable[..., Any]:
    """The body, as the engine ``run`` calls it: its arrays come first, and then options, ``mask`` among them."""
    names = [*inspect.signature(body).parameters]

    @functools.wraps(body)
    def call(*args: Any, **options: Any) -> Any:
        cores, outputs = vars(call)["__axes__"]
        options = dict(**dict(zip(names, args, strict=False)), **options)
        arrays = [options.pop(name) for name in names[: len(cores)]]
        own = name or body.__name__
        definition = Definition(body, cores, outputs, per_pair, fused, own)
        return run(definition, arrays, **options)

    return call


def sizes_of(arrays: list[Any], cores: list[Letters]) -> dict[str, int]:
    """How long the axis of each letter is."""
    sizes = {"1": 1}
    for X, core in zip(arrays, cores, strict=True):
        sizes |= zip(core, X.shape[X.ndim - len(core) :], strict=True)
    return sizes


def batch_of(
    arrays: list[Any], cores: list[Letters], n_kv_heads: int | None = None
) -> Shape:
    """The batch axes that all arrays broadcast to; with ``n_kv_heads`` those of the first have other heads."""
    batches = [X.shape[: X.ndim - len(x)] for X, x in zip(arrays, cores, strict=True)]
    if n_kv_heads is not None:
        batches[1:] = [batch[:-1] + (1,) for batch in batches[1:]]
    return broadcast(*batches) or ()


def index_of(
    X: Any, core: Any, rows: slice, keys: Any, broadcasts: bool = False
) -> tuple[Any, ...]:
    """The index of some queries (n) and keys (m) in an array whose last axes have these letters.

    ``broadcasts``: an axis of length 1 is the same for all.
    """
    sizes = X.shape[X.ndim - len(core) :]
    at = [{"n": rows, "m": keys}.get(letter, slice(None)) for letter in core]
    if broadcasts:
        at = [slice(None) if k == 1 else x for x, k in zip(at, sizes, strict=True)]
    return (..., *at)
