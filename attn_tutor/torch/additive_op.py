"""The engine of additive attention as one operation, to autograd, to torch.func and to torch.compile.

None of them follows what is inside, the loop over tiles. The compiler takes the gradient from the operation itself,
which torch.func refuses to do; torch.func takes it from the classes Pool and PoolGradient, which the compiler would
look into.
"""

import functools
import importlib.util
from typing import Any

import torch
from torch import library

from attn_tutor.torch.fast import additive

TRITON = {"cuda"}  # devices that Triton's kernels run on
TAKES = (
    "Tensor a, Tensor b, Tensor w, Tensor V, Tensor? mask, Tensor? kept,"
    " float dropout_p, bool causal, bool compiled, bool graded"
)


def tiled_additive(
    a: torch.Tensor,
    b: torch.Tensor,
    w: torch.Tensor,
    V: torch.Tensor,
    mask: torch.Tensor | None = None,
    causal: bool = False,
    dropout_p: float = 0.0,
) -> torch.Tensor:
    """Softmax of the scores w · tanh(a + b), times V, a tile at a time.

    a: (…, n, h), b: (…, m, h), w: (…, h), V: (…, m, d_v), float32 or float64; what is hidden must already be finite.
    mask: (…, n or 1, m or 1), and not together with causal. In a caller that is compiled, so is the loop over features.
    """
    n, m = a.shape[-2], b.shape[-2]
    arrays = [a, b, w[..., None, :], V]
    if mask is not None:
        arrays.append(mask.expand(*mask.shape[:-1], m))
    outer = torch.broadcast_shapes(*(X.shape[:-2] for X in arrays))
    batch = outer or (1,)
    flat = [X.expand(*batch, *X.shape[-2:]).flatten(0, -3) for X in arrays]
    a, b, w, V = flat[:4]
    kept = None
    if dropout_p:
        kept = torch.rand(len(a), n, m, device=a.device) >= dropout_p
    mask = flat[4] if mask is not None else None
    compiled = torch.compiler.is_compiling()
    graded = torch.is_grad_enabled() and any(X.requires_grad for X in (a, b, w, V))
    apply = pool if compiled else Pool.apply
    output, _ = apply(a, b, w, V, mask, kept, dropout_p, causal, compiled, graded)
    return output.reshape(*outer, n, V.shape[-1])


@library.custom_op(
    "attn_tutor::tiled_additive",
    mutates_args=(),
    schema=f"({TAKES}) -> (Tensor, Tensor)",
)
def pool(*args: Any) -> Any:
    P = additive.Problem(*args)
    return engine(P.a.device.type).pool(P)


@library.custom_op(
    "attn_tutor::tiled_additive_gradient",
    mutates_args=(),
    schema=f"(Tensor g, Tensor output, Tensor left, {TAKES}) -> (Tensor, Tensor, Tensor, Tensor)",
)
def pool_gradient(
    g: torch.Tensor, output: torch.Tensor, left: torch.Tensor, *args: Any
) -> Any:
    P = additive.Problem(*args)
    return engine(P.a.device.type).pool_gradient(g, output, left, P)


@functools.cache
def engine(device: str) -> Any:
    """The module that computes: Triton's kernels, or tiles in torch where there is no Triton or no GPU."""
    if device in TRITON and importlib.util.find_spec("triton"):
        return importlib.import_module("attn_tutor.torch.additive_triton")
    return additive


class Pool(torch.autograd.Function):
    """The operation with its gradient."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*args: Any) -> Any:
        return pool(*args)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.options = inputs[6:]
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*output, *inputs[:6])

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor, _: Any) -> tuple[Any, ...]:
        found = PoolGradient.apply(g, *ctx.saved_tensors, *ctx.options)
        return *found, *[None] * 6


class PoolGradient(torch.autograd.Function):
    """The gradient, which has none of its own."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*args: Any) -> tuple[torch.Tensor, ...]:
        return pool_gradient(*args)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *_: Any) -> None:
        raise NotImplementedError(
            "additive_attention: has no second derivatives; attend(additive_score(...), V, mask) has them"
        )


def _backward(ctx: Any, g: torch.Tensor, _: Any) -> tuple[Any, ...]:
    return *pool_gradient(g, *ctx.saved_tensors, *ctx.options), *[None] * 6


pool.register_autograd(_backward, setup_context=Pool.setup_context)


@pool.register_fake
def _(*args: Any) -> Any:
    P = additive.Problem(*args)
    each = P.a.shape[:-1]
    width = engine(P.a.device.type).stored_width(P)
    return P.V.new_empty(*each, P.V.shape[-1]), P.a.new_empty(*each, width)


@pool_gradient.register_fake
def _(g: Any, output: Any, left: Any, *arrays: Any) -> Any:
    return tuple(X.new_empty(X.shape) for X in arrays[:4])


def _vmap(op: Any, info: Any, in_dims: tuple[Any, ...], *args: Any) -> Any:
    """An axis more is a longer batch."""
    size = info.batch_size

    def longer(X: Any, dim: int | None) -> Any:
        if not isinstance(X, torch.Tensor):
            return X
        X = X.expand(size, *X.shape) if dim is None else X.movedim(dim, 0)
        return X.flatten(0, 1)

    found = op(*(longer(X, dim) for X, dim in zip(args, in_dims, strict=True)))
    split = (X.unflatten(0, (size, len(X) // size)) for X in found)
    return tuple(split), (0,) * len(found)


for _op in (pool, pool_gradient):
    _op.register_vmap(functools.partial(_vmap, _op))
