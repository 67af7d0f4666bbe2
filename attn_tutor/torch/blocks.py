"""One engine for every score: it calls a function's own body on blocks of queries, each with the keys that it sees.

So no (n, m) array is stored, what a learner reads is what runs, and a key that no query of a block sees costs nothing.
Where nobody may look at numbers (under torch.compile, on a GPU), the body is called once, with the whole mask.
"""

import functools
import inspect
import math
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, Self

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from attn_tutor._checks import Shape
from attn_tutor.rules import Bias, Causal, Rule, combined, fitting
from attn_tutor.torch._arrays import (
    in_full,
    look,
    require_bias,
    require_boolean,
    require_fit,
    require_whole,
    transformed,
)

ROWS = 128  # queries of a block
NUMBERS = (
    2**20
)  # that a block holds where each pair has several: they stay in a processor's cache
Index = slice | torch.Tensor


class Visibility(NamedTuple):
    """Which of m keys n queries see, and what is added to their scores."""

    n: int
    m: int
    device: torch.device
    rule: Rule | None
    mask: torch.Tensor | None  # broadcasts to (…, n, m), as the bias
    bias: torch.Tensor | Bias | None

    @classmethod
    def read(
        cls,
        where: str,
        shape: Shape,
        device: torch.device,
        mask: Any = None,
        causal: bool = False,
        window: Any = None,
        bias: Any = None,
    ) -> Self:
        """What a call on scores (…, n, m) is given, checked."""
        *batch, n, m = shape
        rule, mask = combined(where, n, mask, causal, window)
        if rule is not None:
            ready = partial(_ready, where, device)
            rule = fitting(where, rule, (*batch,), n, m, ready)
        if mask is not None:
            require_boolean(where, mask, device)
            require_fit(where, "mask", mask.shape, shape)
            mask = torch.atleast_2d(mask)
        if bias is not None and not isinstance(bias, Bias):
            require_bias(where, bias, device)
            require_fit(where, "bias", bias.shape, shape)
            bias = torch.atleast_2d(bias)
            least = look(torch.amin, bias) if bias.numel() else 0
            if least is None or least == -torch.inf:  # a key with score −∞ is not seen
                mask = (
                    bias != -torch.inf if mask is None else mask & (bias != -torch.inf)
                )
        return cls(n, m, device, rule, mask, bias)

    def positions(self, rows: slice) -> torch.Tensor:
        """Where some queries stand: the last query at the last key, (rows, 1)."""
        i = torch.arange(rows.start, rows.stop, device=self.device)[:, None]
        return i + (self.m - self.n)

    def keys(self, rows: slice) -> Index:
        """Which keys these queries see, and maybe some more."""
        if self.rule is None:
            return slice(0, self.m)
        offset = self.m - self.n
        first, last = rows.start + offset, rows.stop - 1 + offset
        keys = self.rule.keys(first, last, self.m) or [slice(0, 0)]
        if len(keys) == 1:
            return keys[0]
        return torch.cat(
            [torch.arange(x.start, x.stop, device=self.device) for x in keys]
        )

    def tile(self, rows: slice, keys: Index) -> tuple[Any, Any]:
        """Mask and bias of these queries and keys, which broadcast to (…, rows, keys); None where there is none."""
        i, j = self.positions(rows), torch.arange(self.m, device=self.device)[keys]
        mask, bias = self.mask, self.bias
        if mask is not None:
            mask = taken(mask, "nm", rows, keys)
        if self.rule is not None:
            pairs = torch.atleast_2d(self.rule.pairs(i, j))
            mask = pairs if mask is None else pairs & mask
        if isinstance(bias, Bias):
            bias = torch.atleast_2d(bias.added(i, j))
        elif bias is not None:
            bias = taken(bias, "nm", rows, keys)
        return mask, bias

    @property
    def is_causal(self) -> bool:
        """Whether it is plain causality, which kernels know by name."""
        alone = self.mask is None and self.bias is None
        return alone and self.n == self.m and isinstance(self.rule, Causal)

    @property
    def everything(self) -> tuple[Any, Any]:
        """Mask and bias of all queries and keys."""
        return self.tile(slice(0, self.n), slice(0, self.m))


def _ready(where: str, device: torch.device, X: Any) -> torch.Tensor:
    require_whole(where, "a rule's array", X, "holds whole numbers,")
    return X.to(device)


def index_of(X: torch.Tensor, core: Any, rows: slice, keys: Index) -> tuple[Any, ...]:
    """Where an array, whose last axes have these letters, holds some queries (n) and keys (m)."""
    sizes = X.shape[X.ndim - len(core) :]
    index = [{"n": rows, "m": keys}.get(letter, slice(None)) for letter in core]
    # An axis of length 1 is the same for all.
    index = [
        x if size != 1 else slice(None) for x, size in zip(index, sizes, strict=True)
    ]
    return (..., *index)


def taken(X: torch.Tensor, core: Any, rows: slice, keys: Index) -> torch.Tensor:
    """The part of an array that belongs to some queries and keys."""
    return X[index_of(X, core, rows, keys)]


def by_blocks(per_pair: str = "") -> Callable[[Any], Any]:
    """Let the engine call a body; for each query and key it holds numbers along the axis ``per_pair``, or one."""

    def decorate(body: Callable[..., Any]) -> Callable[..., Any]:
        names = [*inspect.signature(body).parameters]

        @functools.wraps(body)
        def call(*args: Any, **options: Any) -> Any:
            inputs, outputs = vars(call)["__shapes__"].split("->")
            cores = [x.split(",") for x in re.findall(r"\((.*?)\)", inputs)]
            options |= dict(zip(names, args, strict=False))
            arrays = [options.pop(name) for name in names[: len(cores)]]
            dtype, bias = arrays[0].dtype, options.get("bias")
            if (
                not per_pair
                and "),(" not in outputs
                and (bias is None or dtype.itemsize > 2)
            ):
                return run(body, arrays, cores, per_pair, **options)
            # What comes before softmax is computed in single precision at least.
            wide = torch.promote_types(dtype, torch.float32)
            with in_full(arrays[0]):
                found = run(
                    body, [X.to(wide) for X in arrays], cores, per_pair, **options
                )
            return found if isinstance(found, tuple) else found.to(dtype)

        return call

    return decorate


def run(
    body: Callable[..., Any],
    arrays: list[torch.Tensor],
    cores: list[list[str]],
    per_pair: str,
    mask: Any = None,
    causal: bool = False,
    window: Any = None,
    bias: Any = None,
    **options: Any,
) -> Any:
    """What the body gives: at once, or for some queries at a time where a rule hides keys or a pair holds much."""
    sizes: dict[str, int] = {}
    for X, core in zip(arrays, cores, strict=True):
        sizes |= zip(core, X.shape[X.ndim - len(core) :], strict=True)
    n, m, first = sizes["n"], sizes["m"], arrays[0]
    batches = [
        X.shape[: X.ndim - len(core)] for X, core in zip(arrays, cores, strict=True)
    ]
    if options.get("n_kv_heads"):
        batches[1:] = [(*batch[:-1], 1) for batch in batches[1:]]  # fewer heads
    shape = *torch.broadcast_shapes(*batches), n, m
    see = Visibility.read(
        body.__name__, shape, first.device, mask, causal, window, bias
    )
    spoiled = None
    if (see.rule is not None or see.mask is not None) and not look(finite, *arrays):
        arrays, spoiled = cleared(arrays, cores, see, options.get("n_kv_heads"))

    of_positions = see.rule is not None or isinstance(bias, Bias)
    if n and can_cut(first) and (per_pair or (of_positions and not see.is_causal)):
        if torch.is_autocast_enabled(first.device.type):
            arrays = [X.to(torch.get_autocast_dtype(first.device.type)) for X in arrays]
        room = m * sizes.get(per_pair, 1) * math.prod(shape[:-2])
        height = max(1, min(ROWS, NUMBERS // room)) if per_pair else ROWS
        learnt = [bias] if isinstance(bias, torch.Tensor) else []
        plan = Plan(body, [*cores, ["n", "m"]], see, options, height)
        found = Blocks.apply(plan, *arrays, *learnt)
        found = found if len(found) > 1 else found[0]
    else:
        who = {"mask": mask, "causal": causal, "window": window, "bias": bias}
        found = body(*arrays, **who, **options)
    return found if spoiled is None else filled(found, spoiled)


class Plan(NamedTuple):
    """A body, and how it is called on blocks."""

    body: Callable[..., Any]
    cores: list[list[str]]  # letters of the last axes of each array, and of a bias
    see: Visibility
    options: dict[str, Any]
    height: int  # queries of a block

    def parts(self, arrays: Any) -> Iterator[tuple[list[tuple[Any, ...]], Any]]:
        """For each block, where it is in each array, and the body of its parts."""
        for start in range(0, self.see.n, self.height):
            rows = slice(start, min(start + self.height, self.see.n))
            keys = self.see.keys(rows)
            where = [
                index_of(X, core, rows, keys)
                for X, core in zip(arrays, self.cores, strict=False)
            ]
            mask, bias = self.see.tile(rows, keys)

            def compute(*parts: Any, mask: Any = mask, bias: Any = bias) -> Any:
                if len(parts) == len(self.cores):  # a bias among the arrays
                    *parts, bias = parts
                found = self.body(*parts, mask=mask, bias=bias, **self.options)
                return found if isinstance(found, tuple) else (found,)

            yield rows, where, compute

    def whole(self, arrays: Any) -> Any:
        """The body, called once."""
        return next(self._replace(height=self.see.n).parts(arrays))[2](*arrays)


class Blocks(torch.autograd.Function):
    """The body on block after block, forward and once more for the gradient; nothing is kept between the two."""

    @staticmethod
    def forward(
        ctx: Any, plan: Plan, *arrays: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        ctx.plan, ctx.random = plan, torch.get_rng_state()
        ctx.save_for_backward(*arrays)
        blocks = [
            compute(*(X[at] for X, at in zip(arrays, where, strict=True)))
            for _, where, compute in plan.parts(arrays)
        ]
        return tuple(torch.cat(found, -2) for found in zip(*blocks, strict=True))

    @staticmethod
    def backward(ctx: Any, *g: torch.Tensor) -> Any:
        plan, arrays = ctx.plan, ctx.saved_tensors
        wanted = [k for k, needed in enumerate(ctx.needs_input_grad[1:]) if needed]
        grads: list[Any] = [None] * len(arrays)
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(ctx.random)  # dropout drops the same
            if (
                torch.is_grad_enabled()
            ):  # second derivatives need the graph of the whole
                with sdpa_kernel(SDPBackend.MATH):
                    found = plan.whole(arrays)
                more = torch.autograd.grad(
                    found, [arrays[k] for k in wanted], g, create_graph=True
                )
                for k, gradient in zip(wanted, more, strict=True):
                    grads[k] = gradient
                return None, *grads
            for k in wanted:
                grads[k] = torch.zeros_like(
                    arrays[k], memory_format=torch.contiguous_format
                )
            for rows, where, compute in plan.parts(arrays):
                parts = [X[at].detach() for X, at in zip(arrays, where, strict=True)]
                leaves = [parts[k].requires_grad_() for k in wanted]
                with torch.enable_grad():
                    found = compute(*parts)
                more = torch.autograd.grad(
                    found, leaves, [X[..., rows, :] for X in g], allow_unused=True
                )
                for k, gradient in zip(wanted, more, strict=True):
                    grads[k][where[k]] += gradient
        return None, *grads


def can_cut(X: torch.Tensor) -> bool:
    """Whether one may look at numbers and leave torch's graph: not where it is compiled, exported or transformed."""
    return (
        X.device.type == "cpu"
        and not torch.compiler.is_compiling()
        and not transformed(X)
    )


def finite(*arrays: torch.Tensor) -> torch.Tensor:
    """Whether all numbers are finite: if their sum is, they are."""
    return (
        torch.stack(
            [X.sum(dtype=torch.promote_types(X.dtype, torch.float32)) for X in arrays]
        )
        .isfinite()
        .all()
    )


def cleared(
    arrays: list[torch.Tensor],
    cores: list[list[str]],
    see: Visibility,
    n_kv_heads: int | None = None,
) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Rows of queries and keys that are not finite, set to 0: a weight of 0 comes too late, as 0 · NaN is NaN.

    The mask returned, (…, n, 1), marks the queries that see such a row, or are one and see something.
    """
    visible, _ = see.everything
    lost = {}
    for k, (X, core) in enumerate(zip(arrays, cores, strict=True)):
        if len(core) > 1 and core[-2] in "nm":
            bad = ~X.isfinite().all(-1, keepdim=True)
            arrays = [*arrays[:k], torch.where(bad, 0, X), *arrays[k + 1 :]]
            lost[core[-2]] = lost.get(core[-2], False) | bad
    if n_kv_heads is not None:
        times = lost["n"].shape[-3] // n_kv_heads
        lost["m"] = lost["m"].repeat_interleave(times, -3)
    seen = visible & (lost["n"] | lost["m"].mT)
    return arrays, seen.any(-1, keepdim=True)


def filled(found: Any, spoiled: torch.Tensor) -> Any:
    """NaN for the queries that may see one."""
    if isinstance(found, tuple):
        return tuple(filled(X, spoiled) for X in found)
    return torch.where(spoiled, torch.nan, found)
