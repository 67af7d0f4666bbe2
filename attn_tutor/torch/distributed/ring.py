"""Attention to keys that travel round a ring of processes: each holds one block of them at a time."""

import contextlib
import itertools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.autograd.function import once_differentiable

from attn_tutor._checks import require_chance, require_divisible, require_size
from attn_tutor.rules import Rule, Window
from attn_tutor.torch.distributed.dropout import growth
from attn_tutor.torch.distributed.parts import Parts, grouped, heads, parts
from attn_tutor.torch.distributed.peers import Group, waiting
from attn_tutor.torch.fast.attention import Core, finite, join
from attn_tutor.torch.merge import part
from attn_tutor.torch.visibility import Visibility

__all__ = ["ring_attention"]

TILE = 256  # rows and keys whose scores are stored at once
HERE = "ring_attention"
Pair = tuple[torch.Tensor, torch.Tensor]  # keys and values


@heads
def ring_attention(
    Q: torch.Tensor,
    K: torch.Tensor,
    V: torch.Tensor,
    mask: torch.Tensor | Rule | None = None,
    *,
    causal: bool = False,
    window: int | Window | None = None,
    scale: float | None = None,
    dropout_p: float = 0.0,
    seed: int = 0,
    layout: str = "zigzag",
    node: int | None = None,
    group: Group = None,
) -> torch.Tensor:
    r"""Attention of tokens that are spread over processes: queries stay, keys and values travel round a ring.

    .. math:: O_i = \text{merge of } \operatorname{attention}(Q_i, K_j, V_j) \text{ over the blocks } j

    Every process calls it with its own tokens. While it attends to one block of keys, that block is already on its way
    to the next process and another one arrives. The number is that of attention in one process, and so are the
    gradients, which travel with the keys; there are no second derivatives. Source: Liu, Zaharia & Abbeel (2023); for
    the double ring Gu et al. (2024), *LoongTrain*.

    Args:
        Q: queries of this process, (…, n_local, d), or (…, h, n_local, d) with heads.
        K: keys of this process, (…, m_local, d); of h_kv heads, where h_kv divides h.
        V: values of this process, (…, m_local, d_v).
        mask: boolean, broadcasts to (…, n_local, m): the rows of this process's queries, and all m keys in the order of
            the sequence; True = may attend. Or rules for the whole sequence, the same in all processes. None permits
            every key.
        causal: also forbid each query the keys after it, aligned lower right.
        window: most keys that a query sees, its own and those just before it; needs ``causal``.
            :class:`attn_tutor.torch.Window` adds sinks. None sets no limit.
        scale: factor on the dot product; None is 1/√d.
        dropout_p: chance to drop each weight, the others growing by 1/(1 − dropout_p); 0 drops none.
        seed: of dropout, the same in all processes. Which weights are dropped depends on the seed and on their places
            in the whole problem, so that any number of processes drops the same.
        layout: which tokens a process holds: "blocks", "striped" or "zigzag", as the functions of these names say.
        node: processes that are close to one another, neighbours by rank; it divides their number. Keys go round a ring
            inside each node, and while they do, those with which the round began travel to the next node: a double
            ring, whose slow links carry a ``node``-th of the bytes. None is one ring.
        group: the processes; None is all.

    Returns:
        Output for the queries of this process, (…, n_local, d_v); a query with nothing to attend to gets 0.

    Raises:
        TypeError: an argument is not an array of this half, or the mask is not boolean.
        ValueError: the shapes do not fit, or the lengths are not those of the layout.
        RuntimeError: another process is lost, or silent for longer than the time-out of the group; the message has the
            ranks and the step.

    Example:
        >>> from attn_tutor.torch.distributed import run, zigzag
        >>> def attend(rank, size):
        ...     V = torch.tensor([[1.0], [3.0]])[zigzag(2, size)[rank]]
        ...     return ring_attention(0 * V, 0 * V, V, causal=True).flatten().tolist()
        >>> run(attend, 2)
        [[1.0], [2.0]]
    """
    require_chance(HERE, "dropout_p", dropout_p)
    require_size(HERE, "seed", seed)
    if node is not None:
        require_size(HERE, "node", node, least=1)
    same: Any = dict(scale=scale, dropout_p=dropout_p, seed=seed, node=node)
    P = parts(HERE, Q, K, mask, causal, window, layout, group, **same)
    size = len(P.keys)
    near = size if node is None else node
    require_divisible(HERE, "processes", size, "node", near)
    Q, K, V, rows = grouped(HERE, Q, K, V, P.mask)
    P = P._replace(see=P.see.in_groups(K.shape[-4]))
    if rows is not None:
        rows = rows.expand(*rows.shape[:-2], Q.shape[-2], P.see.m)
    ring = Ring(P, near, rows, scale, dropout_p, seed, group)
    output: torch.Tensor = _Ring.apply(Q, K, V, ring)
    return output.flatten(-4, -3)


class Ring(NamedTuple):
    """Who holds what, and how it is attended to."""

    P: Parts
    near: int  # processes of a node
    mask: torch.Tensor | None  # (…, n_local, m)
    scale: float | None
    dropout_p: float
    seed: int
    group: Group

    @property
    def far(self) -> int:
        """How many nodes there are."""
        return len(self.P.keys) // self.near

    def away(self, nodes: int, places: int) -> int:
        """The process so many nodes and places on from this one, round the rings."""
        node, place = divmod(self.P.rank, self.near)
        return (node + nodes) % self.far * self.near + (place + places) % self.near

    def around(self, kv: Pair) -> Iterator[tuple[int, int, Pair]]:
        """The keys and values of each process, our own first, and how many nodes and places away it is.

        The next travel while these are used.
        """
        stay = contextlib.nullcontext(kv)
        for turn in range(self.far):
            last = turn + 1 == self.far
            with stay if last else self.passing(kv, turn + 1, 0) as following:
                for step in range(self.near):
                    last = step + 1 == self.near
                    with stay if last else self.passing(kv, turn, step + 1) as new:
                        yield turn, step, kv
                    kv = new
            kv = following

    @contextlib.contextmanager
    def passing(self, kv: Pair, turn: int, step: int, tag: int = 0) -> Iterator[Pair]:
        """Send keys and values on, to the next place for a step, else to the next node; others are here at the end."""
        hop = (0, 1) if step else (1, 0)
        after, before = self.away(*hop), self.away(-hop[0], -hop[1])
        m = len(self.P.keys[self.away(-turn, -step)])
        k, v = (X.new_empty(*X.shape[:-2], m, X.shape[-1]) for X in kv)
        ways: list[Any] = [(dist.isend, X.contiguous(), after) for X in kv]
        ways += [(dist.irecv, X, before) for X in (k, v)]
        ranks = dist.get_process_group_ranks(self.group or dist.group.WORLD)
        steps = f"{turn * self.near + step} of {len(self.P.keys) - 1}"
        what = f"at step {steps}, to send to process {after} and to receive from process {before}"
        with waiting(HERE, what, self.group):
            # All are started before any is waited for: if all sent first, nobody would receive.
            works = dist.batch_isend_irecv(
                [dist.P2POp(way, X, ranks[to], self.group, tag) for way, X, to in ways]
            )
            yield k, v
            for work in works:
                work.wait()

    def tiles(
        self, owner: int, batch: torch.Size
    ) -> Iterator[tuple[slice, slice, Visibility, torch.Tensor | None]]:
        """Rows and keys of each tile in which something is seen, what is seen, and what multiplies its weights."""
        see, queries, keys = self.P.see, self.P.queries[self.P.rank], self.P.keys[owner]
        for at, to in itertools.product(cut(queries), cut(keys)):
            i, j = queries[at], keys[to]
            mask = None if self.mask is None else self.mask[..., at, :][..., j]
            seen = see.between(i, j, mask)
            if seen is False:
                continue
            grown = None
            if self.dropout_p:
                first = torch.arange(math.prod(batch)).view(*batch, 1, 1) * see.n
                place = (first + i[:, None]) * see.m + j
                grown = growth(place.to(see.device), self.dropout_p, self.seed)
            some = None if isinstance(seen, bool) else seen
            yield at, to, Visibility(len(i), len(j), see.device, some), grown


class _Ring(torch.autograd.Function):
    """Once round for the output, once more for the gradients: no keys but one's own are kept between the two."""

    @staticmethod
    def forward(
        ctx: Any, Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, ring: Ring
    ) -> torch.Tensor:
        batch = torch.broadcast_shapes(*(X.shape[:-2] for X in (Q, K, V)))
        wide = torch.promote_types(Q.dtype, torch.float32)
        output = Q.new_zeros(*batch, Q.shape[-2], V.shape[-1], dtype=wide)
        log_sum = output.new_full((*output.shape[:-1], 1), -torch.inf)
        for turn, step, (k, v) in ring.around((K, V)):
            owner = ring.away(-turn, -step)
            for at, to, see, grown in ring.tiles(owner, batch):
                q, k_, v_ = Q[..., at, :], k[..., to, :], v[..., to, :]
                new = part(q, k_, v_, see, ring.scale, grown)
                old = output[..., at, :], log_sum[..., at, :]
                output[..., at, :], log_sum[..., at, :] = join(*old, *new)
        ctx.save_for_backward(Q, K, V, output, log_sum)
        ctx.ring = ring
        return output.to(Q.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: torch.Tensor) -> tuple[Any, ...]:
        Q, K, V, output, log_sum = ctx.saved_tensors
        ring, g = ctx.ring, g.to(output.dtype)
        # An output of NaN depends on nothing: its tiles have no share in it.
        lost = ~output.isfinite().all(-1, keepdim=True)
        output = output.masked_fill(lost, 0)
        log_sum = finite(log_sum).masked_fill(lost, torch.inf)
        dQ, dK, dV = (torch.zeros_like(X, dtype=g.dtype) for X in (Q, K, V))
        for turn, step, (k, v) in ring.around((K, V)):
            owner = ring.away(-turn, -step)
            for at, to, see, grown in ring.tiles(owner, output.shape[:-2]):
                q, k_, v_ = tile = tuple(
                    X[..., rows, :].nan_to_num(0, 0, 0).requires_grad_()
                    for X, rows in ((Q, at), (k, to), (v, to))
                )
                with torch.enable_grad():
                    new = part(q, k_, v_, see, ring.scale, grown)
                    whole = output[..., at, :], log_sum[..., at, :]
                    change = Core.change(new, *whole)
                dq, dk, dv = torch.autograd.grad(change, tile, g[..., at, :])
                dQ[..., at, :] += dq
                dK[..., to, :] += dk
                dV[..., to, :] += dv
            # On with the keys that they belong to, and home.
            if ring.near > 1:
                with ring.passing((dK, dV), turn, step + 1, tag=1) as (dK, dV):
                    pass
            if ring.far > 1 and step + 1 == ring.near:
                with ring.passing((dK, dV), turn + 1, 0, tag=1) as (dK, dV):
                    pass
        return dQ.to(Q.dtype), dK.to(K.dtype), dV.to(V.dtype), None


def cut(positions: torch.Tensor) -> Iterator[slice]:
    """The rows of tiles: at most so many, and none across a gap, so that more tiles are seen whole or not at all."""
    gaps = positions.diff()
    jumps = (gaps > gaps.min()).nonzero() + 1 if len(gaps) else gaps
    edges = [0, *jumps.flatten().tolist(), len(positions)]
    for start, stop in itertools.pairwise(edges):
        for first in range(start, stop, TILE):
            yield slice(first, min(first + TILE, stop))
