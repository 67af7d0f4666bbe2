"""Tokens that are spread over processes: where each of them stands, and who sees whom."""

import functools
import re
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import torch
import torch.distributed as dist

from attn_tutor._checks import require_divisible
from attn_tutor.rules import Bias, Rule, Window
from attn_tutor.torch._arrays import (
    require_array,
    require_boolean,
    require_fit,
    require_scale,
    shapes,
)
from attn_tutor.torch._engine.visibility import Visibility
from attn_tutor.torch.distributed.layout import held
from attn_tutor.torch.distributed.peers import Group, gather
from attn_tutor.torch.scoring import OTHER_WIDTHS

Attend = TypeVar("Attend", bound=Callable[..., torch.Tensor])


def heads(attend: Attend) -> Attend:
    """Check the arrays of a public function; those without an axis of heads have one head."""
    checked = shapes("(h,n,d),(g,m,d),(g,m,d_v)->(h,n,d_v)", d=OTHER_WIDTHS)(attend)

    @functools.wraps(checked)
    def over_heads(Q: Any, K: Any, V: Any, mask: Any = None, **options: Any) -> Any:
        for name, X in zip("QKV", (Q, K, V), strict=True):
            require_array(attend.__name__, name, X)
        require_scale(attend.__name__, options.get("scale"))
        arrays = (X if X.ndim > 2 else X[None] for X in (Q, K, V))
        output = checked(*arrays, mask, **options)
        return output if Q.ndim > 2 else output.squeeze(-3)

    return cast(Attend, over_heads)


class Parts(NamedTuple):
    """Which tokens each process holds, and what the queries of this one see."""

    rank: int
    queries: list[torch.Tensor]  # places that each process holds, in the sequence
    keys: list[torch.Tensor]
    who: Visibility  # by the rules, in the whole sequence
    mask: torch.Tensor | None  # (…, n_local, m)


def parts(
    where: str,
    Q: torch.Tensor,
    K: torch.Tensor,
    mask: torch.Tensor | Rule | None,
    causal: bool,
    window: int | Window | None,
    layout: str,
    group: Group,
    **others: Any,
) -> Parts:
    """Check, in all processes together, what each of them got; ``others`` are options that must be the same, too."""
    (*batch, h, n, d), (h_kv, m) = Q.shape, K.shape[-3:-1]
    rule, own = (mask, None) if isinstance(mask, Rule) else (None, mask)
    if own is not None:
        require_boolean(where, own, Q.device)
    same = {
        "the rule": rule,
        "causal": causal,
        "window": window,
        "layout": layout,
        **others,
        "the dtype": Q.dtype,
        "the axes of Q and K": [*batch, h, d, *K.shape[:-2]],
        "the axes of the mask": None if own is None else [*own.shape[:-2]],
    }
    # A function may be shown with where it lies in the memory of one process.
    texts = [re.sub(" at 0x[0-9a-f]+", "", repr(option)) for option in same.values()]
    codes = [zlib.crc32(text.encode()) for text in texts]
    what = "while all compared the lengths of their parts"
    all_codes = gather(where, what, torch.tensor([n, m, *codes], device=Q.device), group)  # fmt: skip
    rank = dist.get_rank(group)
    ns, ms, *options = torch.stack(all_codes).T.tolist()
    for (name, mine), codes in zip(same.items(), options, strict=True):
        if len({*codes}) > 1:
            raise ValueError(
                f"{where}: processes differ in {name}, which is {mine} in process {rank}"
            )
    require_divisible(where, "heads of Q", h, "heads of K", h_kv)
    queries, keys = held(where, layout, ns, "queries"), held(where, layout, ms, "keys")
    batch = [*torch.broadcast_shapes(batch, K.shape[:-3]), h]
    whole = *batch, sum(ns), sum(ms)
    who = Visibility.read(where, whole, Q.device, rule, causal, window)
    if own is not None:
        require_fit(where, "mask", own.shape, (*batch, n, sum(ms)))
        own = own.expand(*own.shape[:-2], n, sum(ms))
    return Parts(rank, queries, keys, who, own)


def of_heads(X: Any, heads: slice, own: int = 2) -> Any:
    """What belongs to some heads of a rule, a bias or an array (…, h, its own axes); where h is 1, they share it."""
    if isinstance(X, Rule):
        return X.map(lambda array, own: of_heads(array, heads, own))
    if isinstance(X, Bias):
        return Bias(lambda i, j: of_heads(X.added(i, j), heads))
    if X is None or X.ndim <= own or X.shape[-1 - own] == 1:
        return X
    return X[(..., heads, *[slice(None)] * own)]
