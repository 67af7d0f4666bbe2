"""Attention to keys that travel round a ring of processes: each holds one block of them at a time."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.autograd.function import once_differentiable

from attn_tutor._checks import require_divisible, require_size
from attn_tutor.rules import Rule, Window
from attn_tutor.torch._engine.hidden import harmless
from attn_tutor.torch._merge import merge, partial_attention
from attn_tutor.torch.distributed.parts import Parts, heads, parts
from attn_tutor.torch.distributed.peers import Group, waiting
from attn_tutor.torch.scoring import resolved_scale

__all__ = ["ring_attention"]

TILE = 256  # rows and keys whose scores are stored at once
HERE = "ring_attention"
Pair = tuple[torch.Tensor, ...]  # keys and values, or their gradients


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
    layout: str = "zigzag",
    node: int | None = None,
    group: Group = None,
) -> torch.Tensor:
    r"""Attention of tokens that are spread over processes: queries stay, keys and values travel round a ring.

    .. math:: O = \text{merge of } \operatorname{attention}(Q, K_r, V_r) \text{ over the processes } r

    Every process calls it with its own tokens. While it attends to one block of keys, that block is already on its way
    to the next process and another one arrives. The number is that of attention in one process, and so are the
    gradients, which travel with the keys; there are no second derivatives. For its share in them a block needs no more
    of the others than the output and its log-sums ℓ:

    .. math:: dS_r = A_r \circ (g V_r^\top - \operatorname{rowsum}(g \circ O)), \qquad A_r = \exp(S_r - \ell)

    Source: Liu, Zaharia & Abbeel (2023); for the double ring Gu et al. (2024), *LoongTrain*.

    Args:
        Q: queries of this process, (…, n_local, d), or (…, h, n_local, d) with heads.
        K: keys of this process, (…, m_local, d); of h_kv heads, where h_kv divides h.
        V: values of this process, (…, m_local, d_v).
        mask: boolean, broadcasts to (…, n_local, m): the rows of this process's queries, and all m keys in the order of
            the sequence; True = may attend. Or a :class:`~attn_tutor.torch.Rule`
            for the whole sequence, the same in all processes. None
            permits every key.
        causal: also forbid each query the keys after it, aligned lower right.
        window: most keys that a query sees, its own and those just before it; needs ``causal``.
            :class:`attn_tutor.torch.Window` adds sinks. None sets no limit.
        scale: factor on the dot product; None is 1/√d.
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
    if node is not None:
        require_size(HERE, "node", node, least=1)
    P = parts(HERE, Q, K, mask, causal, window, layout, group, scale=scale, node=node)
    near = len(P.keys) if node is None else node
    require_divisible(HERE, "processes", len(P.keys), "node", near)
    scale = resolved_scale(HERE, scale, Q.shape[-1])
    h_kv = K.shape[-3]
    queries = in_groups(Q, h_kv)  # (…, h_kv, h / h_kv, n, d)
    keys, values = K.unsqueeze(-3), V.unsqueeze(-3)  # (…, h_kv, 1, m, d)
    ring = Ring(P, near, h_kv, scale, group)
    output: torch.Tensor = _Ring.apply(queries, keys, values, ring)
    return output.flatten(-4, -3)


class Ring(NamedTuple):
    """Who holds what, and how it is attended to."""

    P: Parts
    near: int  # processes of a node
    h_kv: int
    scale: float
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
        for turn in range(self.far):
            from_node = self.passing(kv, turn + 1, 0)
            for step in range(self.near):
                from_place = self.passing(kv, turn, step + 1)
                yield turn, step, kv
                kv = from_place()
            kv = from_node()

    def passing(
        self, pair: Pair, turn: int, step: int, home: bool = False
    ) -> Callable[[], Pair]:
        """Start to send a pair on, to the next place for a step, else to the next node; the result waits for another.

        Gradients come home at last; keys and values need not.
        """
        hop = (0, 1) if step else (1, 0)
        after, before = self.away(*hop), self.away(-hop[0], -hop[1])
        is_home = turn == self.far or step == self.near
        if after == self.P.rank or (is_home and not home):
            return lambda: pair
        m = len(self.P.keys[self.away(-turn, -step)])
        others = (*(X.new_empty(*X.shape[:-2], m, X.shape[-1]) for X in pair),)
        ways: list[Any] = [(dist.isend, X.contiguous(), after) for X in pair]
        ways += [(dist.irecv, X, before) for X in others]
        ops = [
            dist.P2POp(way, X, group=self.group, tag=int(home), group_peer=peer)
            for way, X, peer in ways
        ]
        steps = f"{turn * self.near + step} of {len(self.P.keys) - 1}"
        what = f"at step {steps}, to send to process {after} and to receive from process {before}"
        with waiting(HERE, what, self.group):
            # All are started before any is waited for: if all sent first, nobody would receive.
            works = dist.batch_isend_irecv(ops)

        def arrived() -> Pair:
            with waiting(HERE, what, self.group):
                for work in works:
                    work.wait()
            return others

        return arrived

    def tiles(self, turn: int, step: int) -> Iterator[tuple[slice, slice, Any]]:
        """Rows and keys of each tile in which something is seen, and its mask, (…, h_kv, h / h_kv, rows, keys)."""
        P, who = self.P, self.P.who
        places, others = P.queries[P.rank], P.keys[self.away(-turn, -step)]
        for rows, keys in itertools.product(cut(places), cut(others)):
            i, j = places[rows, None].to(who.device), others[keys].to(who.device)
            mask = None if P.mask is None else P.mask[..., rows, :][..., j]
            if who.rule is not None:
                pairs = torch.atleast_2d(who.rule.pairs(i + who.m - who.n, j))
                mask = pairs if mask is None else pairs & mask
            if mask is None:
                yield rows, keys, None
            elif mask.any():
                yield rows, keys, in_groups(mask, self.h_kv)


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
            is_harmless = bool(harmless(Q, k, v))
            for rows, keys, mask in ring.tiles(turn, step):
                if is_harmless and mask is not None and mask.all():
                    mask = None
                tile = Q[..., rows, :], k[..., keys, :], v[..., keys, :]
                new = partial_attention(*tile, mask, scale=ring.scale)
                old = output[..., rows, :], log_sum[..., rows, :]
                output[..., rows, :], log_sum[..., rows, :] = merge(*old, *new)
        ctx.save_for_backward(Q, K, V, output, log_sum)
        ctx.ring = ring
        return output.to(Q.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: torch.Tensor) -> tuple[Any, ...]:
        Q, K, V, output, log_sum = ctx.saved_tensors
        ring: Ring = ctx.ring
        # An output of NaN depends on nothing, nor does that of a query that sees nothing: exp(S − ∞) = 0.
        lost = ~output.isfinite().all(-1, keepdim=True)
        log_sum = log_sum.masked_fill(lost | (log_sum == -torch.inf), torch.inf)
        output, g = output.masked_fill(lost, 0), g.to(output.dtype).masked_fill(lost, 0)
        total = (g * output).sum(-1, keepdim=True)  # (…, n, 1)
        dQ, dK, dV = (torch.zeros_like(X, dtype=g.dtype) for X in (Q, K, V))
        for turn, step, (k, v) in ring.around((K, V)):
            for rows, keys, mask in ring.tiles(turn, step):
                tile = Q[..., rows, :], k[..., keys, :], v[..., keys, :]
                of_rows = (X[..., rows, :] for X in (log_sum, total, g))
                new = gradients(*tile, mask, ring.scale, *of_rows)
                places = (dQ, rows), (dK, keys), (dV, keys)
                for (old, at), more in zip(places, new, strict=True):
                    old[..., at, :] += more
            # On with the keys that they belong to, and home.
            dK, dV = ring.passing((dK, dV), turn, step + 1, home=True)()
            if step + 1 == ring.near:
                dK, dV = ring.passing((dK, dV), turn + 1, 0, home=True)()
        return dQ.to(Q.dtype), dK.to(K.dtype), dV.to(V.dtype), None


def gradients(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
    log_sum: torch.Tensor,
    total: torch.Tensor,
    g: torch.Tensor,
) -> tuple[torch.Tensor, ...]:
    """The share of a tile in the gradients: of the other tiles it needs no more than log-sums and rowsum(g ∘ O)."""
    shapes = [X.shape for X in (q, k, v)]
    q, k, v = (X.to(g.dtype) for X in (q, k, v))
    if mask is not None:  # it may hide NaN, and 0 · NaN is NaN
        q, k, v = (X.nan_to_num(0, 0, 0) for X in (q, k, v))
    S = scale * q @ k.mT  # (…, n, m)
    if mask is not None:
        S = torch.where(mask, S, -torch.inf)
    A = torch.exp(S - log_sum)
    dS = A * (g @ v.mT - total)
    found = scale * dS @ k, scale * dS.mT @ q, A.mT @ g
    # What heads or sequences share gets the sum of their gradients.
    return (*(X.sum_to_size(shape) for X, shape in zip(found, shapes, strict=True)),)


def cut(positions: torch.Tensor) -> Iterator[slice]:
    """The rows of tiles: at most so many, and none across a gap, so that more tiles are seen whole or not at all."""
    gaps = positions.diff()
    jumps = (gaps > gaps.min()).nonzero() + 1 if len(gaps) else gaps
    edges = [0, *jumps.flatten().tolist(), len(positions)]
    for start, stop in itertools.pairwise(edges):
        for first in range(start, stop, TILE):
            yield slice(first, min(first + TILE, stop))


def in_groups(X: torch.Tensor, h_kv: int) -> torch.Tensor:
    """Heads that share keys side by side, (…, h, rows, columns) -> (…, h_kv, h / h_kv, rows, columns)."""
    if X.ndim < 3:
        return X
    return X.unsqueeze(-3) if X.shape[-3] == 1 else X.unflatten(-3, (h_kv, -1))
