"""torch's FlexAttention, where it is fast: a rule is its ``mask_mod``, and a bias of positions its ``score_mod``."""

import functools
from typing import Any

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from attn_tutor.rules import Bias
from attn_tutor.torch._engine.visibility import Visibility


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
    rule: Any = visibility.rule
    bias: Any = visibility.bias

    def at(numbers: Any, b: Any, h: Any) -> Any:
        return numbers.expand(*batch, 1, 1)[b, h, 0, 0]

    def mask_mod(b: Any, h: Any, i: Any, j: Any) -> Any:
        return at(rule.pairs((i + offset)[None, None], j[None]), b, h)

    def score_mod(score: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        added = bias.added((i + offset)[None, None], j[None])
        return score + at(added, b, h).to(score.dtype)

    one = torch.zeros(1, 1, dtype=torch.int64, device=visibility.device)
    # Where the rule is the same for all, so is its mask.
    sizes = (None, None) if rule.pairs(one, one[0]).ndim < 3 else batch
    block_mask = create_block_mask(
        mask_mod,
        sizes[0],
        sizes[1],
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
