"""Attention weights of a whole model, seen from outside: no layer has to be changed for it."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from attn_tutor.torch._attention import attention_weights
from attn_tutor.torch.layers.attention import (
    AdditiveAttention,
    BilinearAttention,
    SelfAttention,
)
from attn_tutor.torch.layers.multi_head import MultiHeadAttention

__all__ = ["record_weights"]

ASKED = (AdditiveAttention, MultiHeadAttention, SelfAttention, nn.MultiheadAttention)
AVERAGED = ("average_attn_weights",)
Keep = Callable[[torch.Tensor], None]


@contextmanager
def record_weights(model: nn.Module) -> Iterator[dict[str, list[torch.Tensor]]]:
    """Collect the weights of every attention layer of a model, at each call inside the ``with``.

    It knows the layers of this package, ``torch.nn.MultiheadAttention``, and those of ``transformers``, which have
    weights to show if the model is made with ``attn_implementation="eager"``. What the model returns stays the same.
    Weights are as before dropout where a layer is of this package, and after it elsewhere.

    Args:
        model: any module; its own layers and those of its parts are recorded.

    Returns:
        A dictionary from the layer's name, as in ``named_modules``, to the weights of each of its calls, (…, h, n, m)
        or (…, n, m) where a layer has no heads, cut off from the gradient.

    Raises:
        TypeError: ``model`` is no ``torch.nn.Module``.
        ValueError: it has no attention layer that is known here, or one of ``transformers`` keeps its weights.

    Example:
        >>> layer = MultiHeadAttention(8, n_heads=2)
        >>> with record_weights(layer) as recorded:
        ...     output = layer(torch.ones(5, 8))
        >>> [weights.shape for weights in recorded[""]]
        [torch.Size([2, 5, 5])]
    """
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"record_weights: model must be a torch.nn.Module, got {type(model).__name__}"
        )
    recorded: dict[str, list[torch.Tensor]] = {}
    with ExitStack() as undo:
        for name, layer in model.named_modules():
            watch = _how(layer)
            if watch is None:
                continue
            calls = recorded.setdefault(name, [])
            watch(layer, calls.append, undo)
        if not recorded:
            raise ValueError(
                f"record_weights: {type(model).__name__} has no attention layer that is known here"
            )
        yield recorded


def _how(layer: nn.Module) -> Callable[[Any, Keep, ExitStack], None] | None:
    if isinstance(layer, ASKED):
        return _ask
    if isinstance(layer, BilinearAttention):
        return _compute
    if _of_transformers(layer) and not any(
        map(_of_transformers, [*layer.modules()][1:])
    ):
        return _look
    return None


def _ask(layer: nn.Module, keep: Keep, undo: ExitStack) -> None:
    """A layer that returns its weights when asked to: ask, and return what the caller asked for."""
    signature = inspect.signature(layer.forward)
    wishes: list[tuple[bool, bool]] = []

    def before(_: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
        call = signature.bind(*args, **kwargs)
        call.apply_defaults()
        asked = call.arguments
        averaged = {k: asked[k] for k in AVERAGED if k in asked}
        wishes.append((asked["need_weights"], any(averaged.values())))
        asked |= {"need_weights": True} | dict.fromkeys(averaged, False)
        return call.args, call.kwargs

    def after(_: nn.Module, args: Any, both: Any) -> Any:
        output, weights = both
        keep(weights.detach())
        wanted, averaged = wishes.pop()
        if wanted:
            return output, weights.mean(-3) if averaged else weights
        return (output, None) if isinstance(layer, nn.MultiheadAttention) else output

    undo.callback(layer.register_forward_pre_hook(before, with_kwargs=True).remove)
    undo.callback(layer.register_forward_hook(after, prepend=True).remove)


def _compute(layer: BilinearAttention, keep: Keep, undo: ExitStack) -> None:
    """A layer that never has its weights: compute them beside it."""

    def after(_: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        def weights(Q: Any, K: Any, V: Any, mask: Any = None) -> torch.Tensor:
            return attention_weights(Q @ layer.M, K, mask, scale=1.0)

        keep(weights(*args, **kwargs).detach())

    undo.callback(layer.register_forward_hook(after, with_kwargs=True).remove)


def _of_transformers(layer: nn.Module) -> bool:
    module, name = type(layer).__module__, type(layer).__name__
    return module.startswith("transformers.") and name.endswith("Attention")


def _look(layer: nn.Module, keep: Keep, undo: ExitStack) -> None:
    """A layer of transformers, which returns (output, weights), or None for weights that it never had."""

    def after(_: nn.Module, args: Any, output: Any) -> None:
        if output[1] is None:
            raise ValueError(
                f"record_weights: {type(layer).__name__} keeps its weights; "
                'make the model with attn_implementation="eager"'
            )
        keep(output[1].detach())

    undo.callback(layer.register_forward_hook(after).remove)
