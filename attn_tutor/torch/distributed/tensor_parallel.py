"""Heads, hidden units and the vocabulary of the book's models, spread over processes."""

from functools import partial
from typing import TypeVar

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleOutput,
    RowwiseParallel,
    parallelize_module,
)

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

    Every process gives the same module and the same tokens, and gets the same output. The logits of a
    :class:`LanguageModel` are a DTensor of which each process holds the scores of some tokens: take ``cross_entropy``
    under ``torch.distributed.tensor.parallel.loss_parallel()``, or ``logits.full_tensor()``.

    Args:
        module: a :class:`MultiHeadAttention`, :class:`Block` or :class:`LanguageModel`; it is changed.
        mesh: processes in one dimension.

    Returns:
        The module, whose parameters are DTensors now.

    Raises:
        TypeError: the module is something else.
        ValueError: the mesh has more than one dimension, or does not divide heads or hidden units.

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
    plans = {MultiHeadAttention: _attention, Block: _block, LanguageModel: _language_model}
    if mesh.ndim != 1:
        raise ValueError(f"tensor_parallel: mesh must have one dimension, got {mesh.ndim}; name one: mesh['tensor']")
    for kind, plan in plans.items():
        if isinstance(module, kind):
            return parallelize_module(module, mesh, plan(module, mesh))
    names = ", ".join(kind.__name__ for kind in plans)
    raise TypeError(f"tensor_parallel: needs one of {names}; got {type(module).__name__}")
