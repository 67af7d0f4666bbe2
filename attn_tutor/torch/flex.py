"""torch's FlexAttention, where it is fast: a rule is its ``mask_mod``, and a bias of positions its ``score_mod``."""

import functools
from typing import Any

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from attn_tutor.rules import Bias
from attn_tutor.torch.blocks import Visibility


def flexible(visibility: Visibility) -> bool:
    """Whether it computes this: a rule on a GPU.

    On a CPU the compiler refuses it where anything follows in the same graph (torch 2.13, "epilogue_nodes").
    """
    alone = visibility.mask is None and (
        visibility.bias is None or isinstance(visibility.bias, Bias)
    )
    ruled = visibility.rule is not None and not visibility.is_causal
    return visibility.device.type == "cuda" and ruled and alone


def flex(
    Q: torch.Tensor,
    K: torch.Tensor,
    V: torch.Tensor,
    visibility: Visibility,
    scale: float,
    enable_gqa: bool,
) -> torch.Tensor:
    """Attention under a rule, for arrays with two batch axes."""
    batch, offset = Q.shape[:2], visibility.m - visibility.n

    def at(x: Any, b: Any, h: Any) -> Any:
        return x.map(lambda X, own: X.expand(*batch, *X.shape[X.ndim - own :])[b, h])

    def mask_mod(b: Any, h: Any, i: Any, j: Any) -> Any:
        return at(visibility.rule, b, h).pairs((i + offset)[None, None], j[None])[
            ..., 0, 0
        ]

    def score_mod(score: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        added = at(visibility.bias, b, h).added((i + offset)[None, None], j[None])
        return score + added[..., 0, 0].to(score.dtype)

    block_mask = create_block_mask(
        mask_mod,
        batch[0],
        batch[1],
        visibility.n,
        visibility.m,
        device=str(visibility.device),
    )
    run = flex_attention if torch.compiler.is_compiling() else _compiled()
    modify = None if visibility.bias is None else score_mod
    output: torch.Tensor = run(Q, K, V, modify, block_mask, scale, enable_gqa)
    return output


@functools.cache
def _compiled() -> Any:
    """FlexAttention is fused only where it is compiled."""
    return torch.compile(flex_attention)
