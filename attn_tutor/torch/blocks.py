"""One engine for every score: it calls a function's own body on blocks of queries, each with the keys that it sees.

So no (n, m) array is stored, what a learner reads is what runs, and a key that no query of a block sees costs nothing.
Where it is compiled, mapped or on a GPU, the body is called once, with the whole mask. Whether what is hidden could do
harm is looked at first; on a GPU, that waits for the numbers.
"""

import functools
import inspect
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, Self

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from attn_tutor._checks import Shape, broadcast
from attn_tutor.rules import (
    Bias,
    Causal,
    Rule,
    checked_rule,
    permitted_by_both,
    read_mask,
)
from attn_tutor.torch._arrays import (
    require_array,
    require_bias,
    require_boolean,
    require_fit,
    require_scale,
    transformed,
    value_of,
)

ROWS = 128  # queries of a block at most
NUMBERS = 2**20  # that a block holds where pairs have numbers of their own
LARGEST = 1e15  # the dot product of rows of smaller numbers is finite
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
        rule, mask = read_mask(where, n, mask, causal, window)
        if rule is not None:
            ready = partial(_ready, where, device)
            rule = checked_rule(where, rule, (*batch,), n, m, ready)
        if mask is not None:
            require_boolean(where, mask, device)
            require_fit(where, "mask", mask.shape, shape)
            mask = torch.atleast_2d(mask)
        if isinstance(bias, Bias):
            bias = bias.map(lambda X, _: X.to(device))
        elif bias is not None:
            require_bias(where, bias, device)
            require_fit(where, "bias", bias.shape, shape)
            bias = torch.atleast_2d(bias)
            least = value_of(torch.amin, bias, wait=True) if bias.numel() else 0
            if least is None or least == -torch.inf:  # a key with score −∞ is not seen
                mask = permitted_by_both(mask, bias != -torch.inf)
        return cls(n, m, device, rule, mask, bias)

    def positions(self) -> torch.Tensor:
        """Where the queries stand: the last query at the last key, (n, 1)."""
        i = torch.arange(self.n, device=self.device)[:, None]
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

    def mask_and_bias(self, rows: slice, keys: Index) -> tuple[Any, Any]:
        """Mask and bias of these queries and keys, which broadcast to (…, rows, keys); None where there is none."""
        i, j = self.positions()[rows], torch.arange(self.m, device=self.device)[keys]
        mask, bias = self.mask, self.bias
        if mask is not None:
            mask = mask[index_of(mask, "nm", rows, keys, shared=True)]
        if self.rule is not None:
            pairs = torch.atleast_2d(torch.as_tensor(self.rule.pairs(i, j)))
            mask = permitted_by_both(mask, pairs)
        if isinstance(bias, Bias):
            may_hide = bias.may_hide
            bias = torch.atleast_2d(bias.added(i, j))
            if may_hide:
                mask = permitted_by_both(mask, bias != -torch.inf)
        elif bias is not None:
            bias = bias[index_of(bias, "nm", rows, keys, shared=True)]
        return mask, bias

    def learnt_as_array(self) -> Self:
        """A bias of positions that has a gradient, which no block could pass on, as an array."""
        if isinstance(self.bias, Bias):
            one = slice(0, 1)
            if self.mask_and_bias(one, one)[1].requires_grad:
                return self._replace(bias=self.dense[1])
        return self

    @property
    def hides(self) -> bool:
        """Whether some key may be hidden from some query."""
        by_bias = isinstance(self.bias, Bias) and self.bias.may_hide
        return by_bias or self.rule is not None or self.mask is not None

    @property
    def is_causal(self) -> bool:
        """Whether it is plain causality, which kernels know by name."""
        alone = self.mask is None and self.bias is None
        if torch.compiler.is_exporting() or not (
            alone and isinstance(self.rule, Causal)
        ):
            return False  # an exported graph must serve n ≠ m too
        # Not the comparison itself: compiled, it is a symbol, which kernels refuse.
        return True if self.n == self.m else False  # noqa: SIM210

    @property
    def dense(self) -> tuple[Any, Any]:
        """Mask and bias of all queries and keys."""
        if self.rule is None and not isinstance(self.bias, Bias):
            return self.mask, self.bias
        return self.mask_and_bias(slice(None), slice(None))


def _ready(where: str, device: torch.device, X: Any) -> torch.Tensor:
    require_array(where, "a rule's array", X)
    return X.to(device)


def index_of(
    X: torch.Tensor, core: Any, rows: slice, keys: Index, shared: bool = False
) -> tuple[Any, ...]:
    """The index of some queries (n) and keys (m) in an array whose last axes have these letters.

    ``shared``: an axis of length 1 is the same for all.
    """
    sizes = X.shape[X.ndim - len(core) :]
    at = [{"n": rows, "m": keys}.get(letter, slice(None)) for letter in core]
    if shared:
        at = [slice(None) if k == 1 else x for x, k in zip(at, sizes, strict=True)]
    return (..., *at)


def by_blocks(
    per_pair: str = "", kernel: Callable[..., Any] | None = None
) -> Callable[[Any], Any]:
    """Let the engine call a body; for each query and key it holds numbers along the axis ``per_pair``, or one.

    The body's arrays come first, queries, then keys, and it takes ``mask`` and ``bias``; ``@shapes`` stands outside.
    ``kernel(visibility, *arrays, **options)`` gives the same sooner, or None where it cannot.
    """

    def decorate(body: Callable[..., Any]) -> Callable[..., Any]:
        names = [*inspect.signature(body).parameters]

        @functools.wraps(body)
        def call(*args: Any, **options: Any) -> Any:
            cores, outputs = vars(call)["__axes__"]
            options = dict(**dict(zip(names, args, strict=False)), **options)
            arrays = [options.pop(name) for name in names[: len(cores)]]
            definition = Definition(body, kernel, cores, "m" in outputs[0])
            return run(definition, arrays, per_pair, **options)

        return call

    return decorate


class Definition(NamedTuple):
    """A body, the kernel that gives the same sooner, and the letters of their axes."""

    body: Callable[..., Any]
    kernel: Callable[..., Any] | None
    cores: list[tuple[str, ...]]  # the letters of each array's last axes
    returns_weights: bool  # a result has an axis for keys, so that none may be left out


def run(
    definition: Definition,
    arrays: list[torch.Tensor],
    per_pair: str,
    mask: Any = None,
    causal: bool = False,
    window: Any = None,
    bias: Any = None,
    **options: Any,
) -> Any:
    """What the body gives: at once, or for some queries at a time where a rule hides keys or a pair holds much."""
    cores = definition.cores
    sizes: dict[str, int] = {}
    for X, core in zip(arrays, cores, strict=True):
        sizes |= zip(core, X.shape[X.ndim - len(core) :], strict=True)
    require_scale(definition.body.__name__, options.get("scale"))
    n, m, Q, n_kv_heads = sizes["n"], sizes["m"], arrays[0], options.get("n_kv_heads")
    batches = [X.shape[: X.ndim - len(x)] for X, x in zip(arrays, cores, strict=True)]
    if n_kv_heads is not None:  # K and V have other heads than Q
        batches[1:] = [batch[:-1] + (1,) for batch in batches[1:]]
    batch = broadcast(*batches) or ()
    visibility = Visibility.read(
        definition.body.__name__,
        (*batch, n, m),
        Q.device,
        mask,
        causal,
        window,
        bias,
    )

    learnt = any(
        isinstance(x, torch.Tensor) and x.requires_grad for x in options.values()
    )
    biases = [bias] if isinstance(bias, torch.Tensor) else []
    # It holds numbers for each pair in memory: no kernel computes it.
    many = per_pair or isinstance(visibility.bias, Bias)
    in_blocks = many or (visibility.rule is not None and not visibility.is_causal)
    whole = definition.returns_weights or learnt or not can_cut(*arrays, *biases)
    if whole or not in_blocks:
        return nan_safe(definition, arrays, visibility, options)
    numbers = m * sizes.get(per_pair, 1) * math.prod(batch) or 1  # for each query
    height = max(1, min(ROWS, NUMBERS // numbers)) if many else ROWS
    return Cut(definition, visibility.learnt_as_array(), options, height)(arrays)


class Cut(NamedTuple):
    """A body that is called on blocks of queries."""

    definition: Definition
    visibility: Visibility
    options: dict[str, Any]
    height: int  # queries of a block

    def __call__(self, arrays: list[torch.Tensor]) -> Any:
        device = arrays[0].device.type
        if torch.is_autocast_enabled(device):
            arrays = [X.to(torch.get_autocast_dtype(device)) for X in arrays]
        if isinstance(self.visibility.bias, torch.Tensor):  # it may have a gradient
            arrays = [*arrays, self.visibility.bias]
        trains = torch.is_grad_enabled() and any(X.requires_grad for X in arrays)
        results = Blocks.apply(self, *arrays) if trains else self.results(arrays)
        return results if len(results) > 1 else results[0]

    def blocks(self) -> Iterator[tuple[slice, Index]]:
        """Queries, and the keys that they see."""
        for start in range(0, self.visibility.n, self.height):
            rows = slice(start, min(start + self.height, self.visibility.n))
            yield rows, self.visibility.keys(rows)

    def indices(self, arrays: Any, rows: slice, keys: Index) -> list[tuple[Any, ...]]:
        """The index of these queries and keys in each array."""
        found = [
            index_of(X, core, rows, keys)
            for X, core in zip(arrays, self.definition.cores, strict=False)
        ]
        for bias in arrays[len(found) :]:
            found.append(index_of(bias, "nm", rows, keys, shared=True))
        return found

    def compute(self, parts: Any, rows: slice, keys: Index) -> tuple[Any, ...]:
        """What the body gives of the parts of its arrays."""
        mask, bias = self.visibility.mask_and_bias(rows, keys)
        if len(parts) > len(self.definition.cores):
            *parts, bias = parts
        n, m = rows.stop - rows.start, parts[1].shape[-2]
        visibility = Visibility(n, m, self.visibility.device, None, mask, bias)
        results = nan_safe(self.definition, parts, visibility, self.options)
        return results if isinstance(results, tuple) else (results,)

    def results(self, arrays: Any) -> tuple[torch.Tensor, ...]:
        """What the body gives for all queries."""
        none = slice(0, 0), slice(0, self.visibility.m)
        blocks = []
        for block in self.blocks() if self.visibility.n else [none]:
            indices = self.indices(arrays, *block)
            parts = [X[at] for X, at in zip(arrays, indices, strict=True)]
            blocks.append(self.compute(parts, *block))
        return tuple(torch.cat(parts, -2) for parts in zip(*blocks, strict=True))


class Blocks(torch.autograd.Function):
    """The body on block after block, and once more for the gradient; nothing is kept between the two."""

    @staticmethod
    def forward(ctx: Any, cut: Cut, *arrays: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.cut, ctx.random = cut, torch.get_rng_state()
        ctx.save_for_backward(*arrays)
        return cut.results(arrays)

    @staticmethod
    def backward(ctx: Any, *g: torch.Tensor) -> tuple[Any, ...]:
        wanted = [k for k, needed in enumerate(ctx.needs_input_grad[1:]) if needed]
        grads: list[Any] = [None] * len(ctx.saved_tensors)
        by = through_whole if torch.is_grad_enabled() else by_block
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(ctx.random)  # so that dropout drops the same
            gradients = by(ctx.cut, ctx.saved_tensors, wanted, g)
        for k, gradient in zip(wanted, gradients, strict=True):
            grads[k] = gradient
        return None, *grads


def through_whole(cut: Cut, arrays: Any, wanted: list[int], g: Any) -> Any:
    """Gradients with the graph of all blocks, which second derivatives need."""
    with sdpa_kernel(SDPBackend.MATH):
        results = cut.results(arrays)
    leaves = [arrays[k] for k in wanted]
    return torch.autograd.grad(results, leaves, g, create_graph=True)


def by_block(cut: Cut, arrays: Any, wanted: list[int], g: Any) -> Any:
    """Gradients from one block after the other, with the graph of one at a time."""
    sums = [arrays[k].new_zeros(arrays[k].shape) for k in wanted]
    for rows, keys in cut.blocks():
        indices = cut.indices(arrays, rows, keys)
        parts = [X[at].detach() for X, at in zip(arrays, indices, strict=True)]
        leaves = [parts[k].requires_grad_() for k in wanted]
        with torch.enable_grad():
            results = cut.compute(parts, rows, keys)
        mine = [X[..., rows, :] for X in g]
        # A bias of which this block sees no key has a part of size 0.
        gradients = torch.autograd.grad(results, leaves, mine, materialize_grads=True)
        for total, k, gradient in zip(sums, wanted, gradients, strict=True):
            total[indices[k]] += gradient
    return sums


def can_cut(*arrays: torch.Tensor) -> bool:
    """Whether one may look at numbers and leave torch's graph: not where it is compiled, exported or transformed."""
    compiled, on_cpu = torch.compiler.is_compiling(), arrays[0].device.type == "cpu"
    return on_cpu and not compiled and not transformed(*arrays)


def harmless(*arrays: torch.Tensor) -> torch.Tensor:
    """Whether nothing hidden can do harm: numbers are finite, and so are the dot products of rows."""
    ends = [end for X in arrays if X.numel() for end in X.detach().aminmax()]
    wide = (
        torch.stack([end.float() for end in ends]) if ends else arrays[0].new_zeros(1)
    )
    return (wide.abs() < LARGEST).all()


def nan_safe(
    definition: Definition,
    arrays: list[torch.Tensor],
    visibility: Visibility,
    options: dict[str, Any],
) -> Any:
    """What the body gives, but NaN only for queries that may see one, and no gradient of those that see nothing."""
    body, kernel, cores, returns_weights = definition
    nan_queries = None
    if visibility.hides and not value_of(harmless, *arrays, wait=True):
        arrays, nan_queries = zero_bad_rows(
            arrays, cores, visibility, options.get("n_kv_heads")
        )
    results: Any = None
    if kernel and kernels_agree(visibility, arrays[0], arrays[1], options.get("scale")):
        results = kernel(visibility, *arrays, **options)
    if results is None:
        visible, B = visibility.dense
        results = body(*arrays, mask=visible, bias=B, **options)
    several = isinstance(results, tuple)
    if nan_queries is not None:
        nan_queries = (
            nan_queries & visibility.dense[0] if returns_weights else nan_queries
        )
        results = results if several else (results,)
        results = tuple(torch.where(nan_queries, torch.nan, X) for X in results)
        results = results if several else results[0]
    if not several and results.requires_grad and visibility.mask is not None:
        visible, _ = visibility.dense
        results = torch.where(visible.any(-1, keepdim=True), results, 0)
    return results


def kernels_agree(
    visibility: Visibility, Q: torch.Tensor, K: torch.Tensor, scale: Any
) -> bool:
    """Whether kernels give what the formula does: they lose rows of nothing but NaN, and hidden infinite scores."""
    Q = Q if scale is None else scale * Q
    K = K if visibility.hides else K[..., :1, :]
    return value_of(harmless, Q, K) is not False


def zero_bad_rows(
    arrays: list[torch.Tensor],
    cores: list[tuple[str, ...]],
    visibility: Visibility,
    n_kv_heads: int | None,
) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Rows that are not finite or that nobody sees, set to 0: a weight of 0 comes too late, as 0 · NaN is NaN.

    The mask that comes with them, (…, n, 1), marks the queries that see such a key, or are such and see something.
    """
    visible, unseen = None, False
    if not visibility.is_causal:
        visible, _ = visibility.dense
        if n_kv_heads is None or visible.shape[-3:-2] in ((), (1,)):
            unseen = ~visible.any(-2)[..., None]  # (…, m, 1)
    bad_rows: dict[str, Any] = {"n": False, "m": False}
    for k, (X, core) in enumerate(zip(arrays, cores, strict=True)):
        if core[0] in bad_rows and len(core) > 1:
            bad = ~X.isfinite().all(-1, keepdim=True)  # (…, n or m, 1)
            bad_rows[core[0]] = bad_rows[core[0]] | bad
            bad = bad | unseen if core[0] == "m" else bad
            arrays = [*arrays[:k], torch.where(bad, 0, X), *arrays[k + 1 :]]
    if n_kv_heads is not None:
        bad_rows["m"] = repeat_heads(
            bad_rows["m"], bad_rows["n"].shape[-3] // n_kv_heads
        )
    if visible is None:  # causal: who sees a key has seen those before it
        return arrays, bad_rows["n"] | (bad_rows["m"].cumsum(-2) > 0)
    nan_queries = visible & (bad_rows["n"] | bad_rows["m"].mT)  # (…, n, m)
    return arrays, nan_queries.any(-1, keepdim=True)


def repeat_heads(X: torch.Tensor, times: int) -> torch.Tensor:
    """Each head so many times in a row, (…, g, m, d) -> (…, g·times, m, d)."""
    return X if times == 1 else X.repeat_interleave(times, -3)
