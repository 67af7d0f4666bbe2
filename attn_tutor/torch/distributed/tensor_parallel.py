"""Heads, hidden units and the vocabulary of the book's models, spread over processes."""

from functools import partial
from typing import Any, TypeVar, cast

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

from attn_tutor._checks import require_divisible
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
        ValueError: the mesh has more than one dimension, or its processes do not divide the heads.

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
    if mesh.ndim != 1:
        raise ValueError(
            f"tensor_parallel: mesh must have one dimension, got {mesh.ndim}; name one, as in mesh['tensor']"
        )
    plan: Plan
    if isinstance(module, MultiHeadAttention):
        plan = _heads("", module, mesh)
        module.register_forward_pre_hook(partial(_given_once, mesh))
    elif isinstance(module, Block):
        plan = _block("", module, mesh)
    elif isinstance(module, LanguageModel):
        plan = {"embedding": RowwiseParallel(input_layouts=Replicate())}
        for i, block in enumerate(module.blocks):
            plan |= _block(f"blocks.{i}.", cast(Block, block), mesh)
        by_token = ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)
        plan |= {"norm": _to_all(), "head": by_token}
    else:
        raise TypeError(
            "tensor_parallel: needs a MultiHeadAttention, a Block or a LanguageModel, "
            f"got {type(module).__name__}"
        )
    parallelize_module(module, mesh, plan)
    if isinstance(module, LanguageModel):
        module.head.register_forward_hook(_whole_without_gradients)
    return module


def _heads(name: str, layer: MultiHeadAttention, mesh: DeviceMesh) -> Plan:
    size, rank = mesh.size(), mesh.get_local_rank()
    for what in ("n_heads", "n_kv_heads"):
        heads = getattr(layer, what)
        require_divisible("tensor_parallel", what, heads, "processes", size)
    share = layer.n_heads // size
    layer.heads = slice(rank * share, (rank + 1) * share)
    columns = {f"{name}{x}_proj": ColwiseParallel() for x in "qkv"}
    return columns | {f"{name}out_proj": RowwiseParallel()}


def _block(name: str, block: Block, mesh: DeviceMesh) -> Plan:
    return {
        f"{name}norm_1": _to_all(),
        **_heads(f"{name}attention.", block.attention, mesh),
        f"{name}norm_2": _to_all(),
        f"{name}widen": ColwiseParallel(),
        f"{name}narrow": RowwiseParallel(),
    }


def _to_all() -> ParallelStyle:
    """Makes of an output one DTensor, so that the gradients of all that it feeds are added before they are reduced."""
    return PrepareModuleOutput(
        output_layouts=Replicate(),
        desired_output_layouts=Replicate(),
        use_local_output=False,
    )


def _given_once(
    mesh: DeviceMesh, layer: nn.Module, arrays: tuple[Any, ...]
) -> tuple[Any, ...]:
    """The same for what a layer is given: queries, keys and values that are one tensor stay one."""
    made: dict[int, Any] = {id(None): None}
    for X in arrays[:3]:
        if id(X) not in made:
            made[id(X)] = DTensor.from_local(X, mesh, [Replicate()], run_check=False)
    return *(made[id(X)] for X in arrays[:3]), *arrays[3:]


def _whole_without_gradients(
    head: nn.Module, X: tuple[Any, ...], logits: DTensor
) -> torch.Tensor:
    return logits if torch.is_grad_enabled() else logits.full_tensor()
