"""One engine for every score: it calls a function's own body on blocks of queries, each with the keys that it sees.

So on a CPU no (n, m) array is stored, what a learner reads is what runs, and a key that no query of a block sees costs
nothing. Where it is compiled, mapped or on a GPU, the body is called once, with the whole mask, and only torch's own
kernels spare the (n, m) array.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from attn_tutor._both.definition import (
    Definition,
    batch_of,
    called_by,
    index_of,
    sizes_of,
)
from attn_tutor._checks import require_chance
from attn_tutor.rules import Bias
from attn_tutor.torch._arrays import require_scale, transformed, value_of
from attn_tutor.torch._engine.hidden import harmless, nan_safe
from attn_tutor.torch._engine.visibility import Visibility

ROWS = 128  # queries of a block at most
BLOCK = 2**20  # numbers of a block at most, where pairs have numbers of their own


def by_blocks(
    per_pair: str | None = None,
    fused: Callable[..., Any] | None = None,
    name: str | None = None,
) -> Callable[[Any], Any]:
    """Let the engine call a body; for each query and key it holds numbers along the axis ``per_pair``, or one.

    The body's arrays come first, queries, then keys, and it takes ``mask`` and ``bias``; ``@shapes`` stands outside.
    ``fused(visibility, *arrays, **options)`` gives the same, faster.
    """
    return lambda body: called_by(run, body, per_pair, fused, name)


def run(
    definition: Definition,
    arrays: list[torch.Tensor],
    mask: Any = None,
    causal: bool = False,
    window: Any = None,
    bias: Any = None,
    **options: Any,
) -> Any:
    """What the body gives: at once, or for some queries at a time where a rule hides keys or a pair holds much."""
    where, cores = definition.name, definition.cores
    require_scale(where, options.get("scale"))
    require_chance(where, "dropout_p", options.get("dropout_p", 0.0))
    sizes = sizes_of(arrays, cores)
    batch = batch_of(arrays, cores, options.get("n_kv_heads"))
    shape, device = (*batch, sizes["n"], sizes["m"]), arrays[0].device
    visibility = Visibility.read(where, shape, device, mask, causal, window, bias)

    # No kernel of torch computes scores with numbers of their own for each pair, or a bias of positions.
    large_pairs = bool(definition.per_pair) or isinstance(bias, Bias)
    gains = large_pairs or (visibility.rule is not None and not visibility.is_causal)
    tensors = [X for X in (*options.values(), bias) if isinstance(X, torch.Tensor)]
    # The gradient of an option finds no way through blocks, and weights have no keys to leave out.
    whole = any(X.requires_grad for X in tensors if X is not bias)
    whole = whole or definition.returns_weights
    if not gains or whole or not can_cut(*arrays, *tensors):
        results = nan_safe(definition, arrays, visibility, options)
    else:
        if torch.is_autocast_enabled(device.type):
            arrays = [X.to(torch.get_autocast_dtype(device.type)) for X in arrays]
        numbers = sizes.get(definition.per_pair or "", 1) * math.prod(batch)
        height = BLOCK // max(1, sizes["m"] * numbers) if large_pairs else ROWS
        cut = Cut(
            definition,
            visibility.learnt_as_array(),
            options,
            height=max(1, min(ROWS, height)),
            all_harmless=value_of(harmless, *arrays) is True,
        )
        results = cut(arrays)
    return results if len(results) > 1 else results[0]


def can_cut(*arrays: torch.Tensor) -> bool:
    """Whether one may look at numbers and leave torch's graph: not where it is compiled, exported or transformed."""
    compiled, on_cpu = torch.compiler.is_compiling(), arrays[0].device.type == "cpu"
    return on_cpu and not compiled and not transformed(*arrays)


class Cut(NamedTuple):
    """A body that is called on blocks of queries."""

    definition: Definition
    visibility: Visibility
    options: dict[str, Any]
    height: int  # queries of a block
    all_harmless: bool

    def __call__(self, arrays: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """What the body gives for all queries, with a gradient where it is wanted."""
        if isinstance(self.visibility.bias, torch.Tensor):  # it may have a gradient
            arrays = [*arrays, self.visibility.bias]
        trains = torch.is_grad_enabled() and any(X.requires_grad for X in arrays)
        return Blocks.apply(self, *arrays) if trains else self.results(arrays)

    def blocks(self) -> Iterator[tuple[slice, slice | torch.Tensor]]:
        """Queries, and the keys that they see."""
        for start in range(0, self.visibility.n, self.height):
            rows = slice(start, min(start + self.height, self.visibility.n))
            yield rows, self.visibility.keys(rows)

    def indices(self, arrays: Any, rows: slice, keys: Any) -> list[tuple[Any, ...]]:
        """The index of these queries and keys in each array."""
        indices = [
            index_of(X, core, rows, keys)
            for X, core in zip(arrays, self.definition.cores, strict=False)
        ]
        for bias in arrays[len(indices) :]:
            indices.append(index_of(bias, "nm", rows, keys, broadcasts=True))
        return indices

    def compute(self, parts: Any, rows: slice, keys: Any) -> tuple[Any, ...]:
        """What the body gives of the parts of its arrays."""
        mask, bias = self.visibility.mask_and_bias(rows, keys)
        if len(parts) > len(self.definition.cores):
            *parts, bias = parts
        n, m = rows.stop - rows.start, parts[1].shape[-2]
        visibility = Visibility(n, m, self.visibility.device, None, mask, bias)
        return nan_safe(
            self.definition, parts, visibility, self.options, self.all_harmless
        )

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
        gradients_of = (
            gradients_at_once if torch.is_grad_enabled() else gradients_by_block
        )
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(ctx.random)  # so that dropout drops the same
            gradients = gradients_of(ctx.cut, ctx.saved_tensors, wanted, g)
        for k, gradient in zip(wanted, gradients, strict=True):
            grads[k] = gradient
        return None, *grads


def gradients_at_once(cut: Cut, arrays: Any, wanted: list[int], g: Any) -> Any:
    """Gradients with the graph of all blocks, which second derivatives need."""
    with sdpa_kernel(SDPBackend.MATH):
        results = cut.results(arrays)
    leaves = [arrays[k] for k in wanted]
    return torch.autograd.grad(results, leaves, g, create_graph=True)


def gradients_by_block(cut: Cut, arrays: Any, wanted: list[int], g: Any) -> Any:
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
