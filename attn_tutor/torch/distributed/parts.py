"""A problem of attention whose tokens are spread over processes: checked, and with the place of every token."""

import functools
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import torch
import torch.distributed as dist

from attn_tutor._checks import require_divisible, require_window
from attn_tutor.rules import Rule, Window, in_groups
from attn_tutor.torch._arrays import (
    require_array,
    require_boolean,
    require_fit,
    require_scale,
    shapes,
)
from attn_tutor.torch.distributed.layout import held
from attn_tutor.torch.distributed.peers import Group, gather
from attn_tutor.torch.scoring import OTHER_WIDTHS
from attn_tutor.torch.visibility import Visibility

Attend = TypeVar("Attend", bound=Callable[..., torch.Tensor])


def heads(attend: Attend) -> Attend:
    """Check what a public function is given. Tokens without an axis of heads are those of a lone head."""
    checked = shapes("(h,n,d),(g,m,d),(g,m,d_v)->(h,n,d_v)", d=OTHER_WIDTHS)(attend)

    @functools.wraps(checked)
    def over_heads(Q: Any, K: Any, V: Any, mask: Any = None, **options: Any) -> Any:
        for name, X in zip("QKV", (Q, K, V), strict=True):
            require_array(attend.__name__, name, X)
        require_scale(attend.__name__, options.get("scale"))
        lone = min(Q.ndim, K.ndim, V.ndim) < 3

        def ready(mask: Any) -> Any:
            require_boolean(attend.__name__, mask, Q.device)
            mask = torch.atleast_2d(mask)
            return mask.unsqueeze(-3) if lone and mask.ndim > 2 else mask

        if isinstance(mask, Rule):
            some = {k: ready(X) if k == "mask" else X for k, X in mask.said.items()}
            mask = Rule(**some)
        elif mask is not None:
            mask = ready(mask)
        if not lone:
            return checked(Q, K, V, mask, **options)
        arrays = (X[..., None, :, :] for X in (Q, K, V))
        return checked(*arrays, mask, **options).squeeze(-3)

    return cast(Attend, over_heads)


def grouped(
    where: str,
    Q: torch.Tensor,
    K: torch.Tensor,
    V: torch.Tensor,
    mask: torch.Tensor | None,
) -> tuple[Any, ...]:
    """Heads in groups that share keys: (…, h_kv, h / h_kv, n, d), and keys (…, h_kv, 1, m, d)."""
    h_kv = K.shape[-3]
    require_divisible(where, "heads of Q", Q.shape[-3], "heads of K", h_kv)
    if mask is not None and mask.ndim > 2:
        mask = in_groups(mask, h_kv)
    return in_groups(Q, h_kv), K.unsqueeze(-3), V.unsqueeze(-3), mask


class Parts(NamedTuple):
    """Which tokens each process holds, and what their queries see."""

    rank: int
    queries: list[torch.Tensor]  # positions that each process holds
    keys: list[torch.Tensor]
    see: Visibility  # of the whole problem, as rules say
    mask: torch.Tensor | None  # (…, n_local or 1, m), of this process's queries
    by_row: bool  # whether each query of any process has a row of the mask


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
    require_window(where, window, causal)
    n, m = Q.shape[-2], K.shape[-2]
    said = mask.said if isinstance(mask, Rule) else {"mask": mask}
    rules: dict[str, Any] = dict(said)
    own: torch.Tensor | None = rules.pop("mask", None)
    told_rules = {name: X.tolist() for name, X in rules.items()}
    same = {"the rules": told_rules, "causal": causal, "window": window}
    same |= {"layout": layout, **others, "the dtype": Q.dtype}
    # All but that of the tokens.
    axes = [size for X in (Q, K) for size in (*X.shape[:-2], X.shape[-1])]
    same |= {"the axes of Q and K": axes}
    # A mask of one row may be that of the only query here, or the same for all: the others can tell.
    told = [n, m, own is None or own.shape[-2] == n]
    told += [zlib.crc32(repr(option).encode()) for option in same.values()]
    what = "while all compared the lengths of their parts"
    all_told = gather(where, what, torch.tensor(told, device=Q.device), group)
    ns, ms, by_row, *options = torch.stack(all_told).T.tolist()
    for (name, mine), each in zip(same.items(), options, strict=True):
        if len({*each}) > 1:
            raise ValueError(
                f"{where}: processes differ in {name}, which is {mine} in process {dist.get_rank(group)}"
            )
    if own is not None:
        require_fit(where, "mask", own.shape, (*Q.shape[:-1], sum(ms)))
    queries, keys = held(where, layout, ns, "queries"), held(where, layout, ms, "keys")
    rank, one = dist.get_rank(group), Q.new_empty(1)
    whole = (one.expand(*Q.shape[:-2], length, 1) for length in (sum(ns), sum(ms)))
    rule = Rule(**rules) if rules else None
    see = Visibility.of(where, *whole, mask=rule, causal=causal, window=window)
    if (torn := see.arrays.pop("mask", None)) is not None:  # documents in pieces
        torn = torn[..., queries[rank].to(torn.device), :]
        own, by_row = torn if own is None else torn & own, [True]
    return Parts(rank, queries, keys, see, own, all(by_row))
