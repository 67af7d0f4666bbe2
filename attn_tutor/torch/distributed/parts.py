"""A problem of attention whose tokens are spread over processes: checked, and with the place of every token."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from attn_tutor._checks import require_divisible, require_window
from attn_tutor.torch._arrays import (
    require_boolean,
    require_fit,
    require_scale,
    shapes,
)
from attn_tutor.torch.distributed.layout import held
from attn_tutor.torch.distributed.peers import Group, everyones
from attn_tutor.torch.scoring import OTHER_WIDTHS, default_scale
from attn_tutor.torch.visibility import Visibility, in_groups


class Parts(NamedTuple):
    """The part of this process, and where all parts belong."""

    Q: torch.Tensor  # (…, n_local, d)
    K: torch.Tensor  # (…, m_local, d)
    V: torch.Tensor  # (…, m_local, d_v)
    mask: torch.Tensor | None  # (…, n_local or 1, m or 1)
    by_row: bool  # whether each query of any process has a row of the mask
    scale: float | torch.Tensor
    see: Visibility  # of the whole problem, but for the mask
    queries: list[torch.Tensor]  # positions that each process holds
    keys: list[torch.Tensor]
    n_groups: int | None  # heads of keys, where several heads of queries share one


def parts(
    where: str,
    arrays: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    mask: torch.Tensor | None,
    causal: bool,
    window: int | None,
    scale: float | None,
    layout: str,
    group: Group,
) -> Parts:
    """Check what a public function got, in all processes together."""
    require_scale(where, scale)
    require_window(where, window, causal)
    Q, K, V = arrays
    n_groups = groups(where, Q, K, V)
    # One head of each group stands for all, since batch axes must broadcast.
    some = Q if n_groups is None else Q[..., :n_groups, :, :]
    _, K, V = _checked(where)(some, K, V)
    batch = torch.broadcast_shapes(K.shape[:-2], V.shape[:-2])
    K, V = (X.expand(*batch, *X.shape[-2:]) for X in (K, V))
    n_local, m_local = Q.shape[-2], K.shape[-2]
    by_row = mask is None
    if mask is not None:
        require_boolean(where, mask, Q.device)
        mask = torch.atleast_2d(mask)
        by_row = mask.shape[-2] == n_local
    told = everyones(where, (n_local, m_local, by_row), Q, group)
    queries = held(where, layout, [n for n, *_ in told], "queries")
    keys = held(where, layout, [m for _, m, *_ in told], "keys")
    n, m = sum(map(len, queries)), sum(map(len, keys))
    if mask is not None:
        require_fit(where, "mask", mask.shape, (*Q.shape[:-1], m))
    # A mask of one row may be that of the only query here, or the same for all: the others can tell.
    by_row = all(by_row for *_, by_row in told)
    scale = default_scale(Q.shape[-1]) if scale is None else scale
    see = Visibility(n, m, Q.device, None, causal, window)
    return Parts(Q, K, V, mask, by_row, scale, see, queries, keys, n_groups)


def groups(where: str, *arrays: torch.Tensor) -> int | None:
    """The number of heads of the keys, if they are fewer than those of the queries."""
    if min(X.ndim for X in arrays) < 3:
        return None
    h, h_kv, _ = (X.shape[-3] for X in arrays)
    if h == h_kv:
        return None
    require_divisible(where, "heads of Q", h, "heads of K", h_kv)
    return h_kv


def by_groups(
    n_groups: int,
    Q: torch.Tensor,
    K: torch.Tensor,
    V: torch.Tensor,
    mask: torch.Tensor | None,
) -> tuple[Any, ...]:
    """Heads in groups that share keys: (…, h_kv, h / h_kv, n, d), and keys (…, h_kv, 1, m, d)."""
    if mask is not None and mask.ndim > 2:
        mask = in_groups(mask, n_groups)
    return in_groups(Q, n_groups), K[..., None, :, :], V[..., None, :, :], mask


@functools.cache
def _checked(where: str) -> Callable[..., Any]:
    """The arrays, if their shapes fit; messages name the public function."""

    def same(
        Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        return Q, K, V

    same.__name__ = where
    return shapes("(n,d),(m,d),(m,d_v)->(n,d_v)", d=OTHER_WIDTHS)(same)
