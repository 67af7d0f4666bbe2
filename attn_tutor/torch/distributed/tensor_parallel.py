"""Heads, hidden units and the vocabulary of the book's models, spread over processes."""

from functools import partial
from typing import Any, TypeVar

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleOutput,
    RowwiseParallel,
    parallelize_module,
)

from attn_tutor._both.visibility import for_heads
from attn_tutor._checks import require_divisible
from attn_tutor.torch._arrays import require_array
from attn_tutor.torch.distributed.parts import of_heads
from attn_tutor.torch.layers.block import Block
from attn_tutor.torch.layers.multi_head import MultiHeadAttention
from attn_tutor.torch.models.language_model import LanguageModel

__all__ = ["tensor_parallel"]

M = TypeVar("M", bound=nn.Module)
Plan = dict[str, ParallelStyle]


def tensor_parallel(module: M, mesh: DeviceMesh) -> M:
    r"""Spread the weights of a module over the processes of a mesh: each computes some heads, hidden units and tokens.

    .. math:: \phi(X\, [W_1^{(1)} \cdots W_1^{(p)}])
        \begin{pmatrix} W_2^{(1)} \\ \vdots \\ W_2^{(p)} \end{pmatrix}
        = \sum_r \phi(X W_1^{(r)})\, W_2^{(r)}

    The first matrix is split by columns, the second by rows, so that only the sum at the end needs the others: one
    all-reduce in attention and one in the small network, and as many for the gradients. Source: Shoeybi et al. (2019),
    *Megatron-LM*, section 3.

    Every process gives the same module and the same tokens, and gets the same output; with dropout, seed all alike. The
    logits of a language model are a DTensor of which each process holds the scores of some tokens: take torch's own
    ``cross_entropy`` of them, under ``torch.distributed.tensor.parallel.loss_parallel()``. Without gradients, under
    ``torch.no_grad()``, they are whole.

    Args:
        module: a ``MultiHeadAttention``, ``Block`` or ``LanguageModel``; it is changed.
        mesh: processes in one dimension.

    Returns:
        The module, whose parameters are DTensors now.

    Raises:
        TypeError: the module is something else.
        ValueError: the processes do not divide the heads, or a layer learns sink logits.

    Example:
        >>> from torch.distributed import init_device_mesh
        >>> from attn_tutor.torch.distributed import run
        >>> def forward(rank, size):
        ...     layer = MultiHeadAttention(8, n_heads=4)
        ...     tensor_parallel(layer, init_device_mesh("cpu", (size,)))
        ...     return layer(torch.ones(3, 5, 8)).shape, layer.q_proj.weight.to_local().shape
        >>> run(forward, 2)[0]
        (torch.Size([3, 5, 8]), torch.Size([4, 8]))
    """
    if not isinstance(module, MultiHeadAttention | Block | LanguageModel):
        raise TypeError(
            "tensor_parallel: needs a MultiHeadAttention, a Block or a LanguageModel, "
            f"got {type(module).__name__}"
        )
    plan: Plan = {}
    for name, part in module.named_modules():
        inside = f"{name}." if name else ""
        if isinstance(part, MultiHeadAttention):
            if part.sink_logits is not None:
                raise ValueError(
                    "tensor_parallel: it does not split sink_logits, one for each head, among processes"
                )
            plan |= {f"{inside}{x}_proj": ColwiseParallel() for x in "qkv"}
            plan |= {f"{inside}out_proj": RowwiseParallel()}
            mine = partial(_of_this_process, mesh, _share(part, mesh))
            part.register_forward_pre_hook(mine, with_kwargs=True)
            part.register_forward_hook(partial(_of_all, mesh), with_kwargs=True)
        elif isinstance(part, Block):
            plan |= {f"{inside}norm_1": _to_all(), f"{inside}norm_2": _to_all()}
            plan |= {f"{inside}widen": ColwiseParallel()}
            plan |= {f"{inside}narrow": RowwiseParallel()}
    if isinstance(module, LanguageModel):
        by_token = ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)
        plan |= {"norm": _to_all(), "head": by_token}
        plan |= {"embedding": RowwiseParallel(input_layouts=Replicate())}
    parallelize_module(module, mesh, plan)
    if isinstance(module, LanguageModel):  # after the hook that makes a DTensor
        module.head.register_forward_hook(_whole_without_gradients)
    return module


def _share(layer: MultiHeadAttention, mesh: DeviceMesh) -> slice:
    """The heads of this process."""
    size, rank = mesh.size(), mesh.get_local_rank()
    for what in ("n_heads", "n_kv_heads"):
        heads = getattr(layer, what)
        require_divisible("tensor_parallel", what, heads, "processes", size)
    h_local = layer.n_heads // size
    return slice(rank * h_local, (rank + 1) * h_local)


def _of_this_process(
    mesh: DeviceMesh,
    heads: slice,
    layer: MultiHeadAttention,
    args: tuple[Any, ...],
    options: dict[str, Any],
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """All tokens, as DTensors, and of mask and bias what belongs to the heads of this process."""
    where = "MultiHeadAttention"
    call = dict(zip(("Q", "K", "V", "mask"), args, strict=False)) | options
    tokens = {x: call[x] for x in ("Q", "K", "V") if call.get(x) is not None}
    for name, X in tokens.items():
        require_array(where, name, X)
    # Queries, keys and values that are one tensor stay one, whose gradient is reduced once.
    spread = {
        X: X if isinstance(X, DTensor) else DTensor.from_local(X, mesh, [Replicate()])
        for X in {*tokens.values()}
    }
    call |= {name: spread[X] for name, X in tokens.items()}
    by_head = [torch.empty(*X.shape[:-2], layer.n_heads, 0, 0) for X in tokens.values()]
    mask = for_heads(where, call.get("mask"), by_head[0], by_head[-1])
    call |= {"mask": of_heads(mask, heads), "bias": of_heads(call.get("bias"), heads)}
    return args[4:], call


def _of_all(
    mesh: DeviceMesh,
    layer: MultiHeadAttention,
    args: tuple[Any, ...],
    options: dict[str, Any],
    output: Any,
) -> Any:
    """The weights of all processes' heads, where they are asked for."""
    if not options.get("need_weights"):
        return output
    output, weights = output
    by_head = DTensor.from_local(weights, mesh, [Shard(weights.ndim - 3)])
    return output, by_head.full_tensor()


def _to_all() -> ParallelStyle:
    """Makes of an output one DTensor, so that the gradients of all that it feeds are added before they are reduced."""
    whole = Replicate()
    return PrepareModuleOutput(
        output_layouts=whole, desired_output_layouts=whole, use_local_output=False
    )


def _whole_without_gradients(
    head: nn.Module, X: tuple[Any, ...], logits: DTensor
) -> torch.Tensor:
    return logits if torch.is_grad_enabled() else logits.full_tensor()
