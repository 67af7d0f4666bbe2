"""Attention to keys that travel round a ring of processes: each holds one block of them at a time."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.autograd.function import once_differentiable

from attn_tutor._checks import require_chance, require_size
from attn_tutor.torch.distributed.dropout import growth
from attn_tutor.torch.distributed.merge import finite, merge, part, scores
from attn_tutor.torch.distributed.parts import Parts, by_groups, parts
from attn_tutor.torch.distributed.peers import Group, waiting
from attn_tutor.torch.visibility import Visibility, hide

__all__ = ["ring_attention"]

TILE = 512  # rows and keys whose scores are stored at once
HERE = "ring_attention"


def ring_attention(
    Q: torch.Tensor,
    K: torch.Tensor,
    V: torch.Tensor,
    mask: torch.Tensor | None = None,
    *,
    causal: bool = False,
    window: int | None = None,
    scale: float | None = None,
    dropout_p: float = 0.0,
    seed: int = 0,
    layout: str = "zigzag",
    group: Group = None,
) -> torch.Tensor:
    r"""Attention of tokens that are spread over processes: queries stay, keys and values travel round a ring.

    .. math:: O_i = \text{merge of } \operatorname{attention}(Q_i, K_j, V_j) \text{ over the blocks } j

    Every process calls it with its own tokens. While it attends to one block of keys, that block is already on its way
    to the next process and another one arrives. The number is that of attention in one process, and so are the
    gradients, which travel with the keys; there are no second derivatives. Source: Liu, Zaharia & Abbeel (2023).

    Args:
        Q: queries of this process, (…, n_local, d), or (…, h, n_local, d) with heads.
        K: keys of this process, (…, m_local, d); of h_kv heads, where h_kv divides h.
        V: values of this process, (…, m_local, d_v).
        mask: boolean, broadcasts to (…, n_local, m): the rows of this process's queries, and all m keys in the order of
            the sequence; True = may attend. None permits every key.
        causal: also forbid each query the keys after it, aligned lower right.
        window: most keys that a query sees, its own and those just before it; needs ``causal``. None sets no limit.
        scale: factor on the dot product; None is 1/√d.
        dropout_p: chance to drop each weight, the others growing by 1/(1 − dropout_p); 0 drops none.
        seed: of dropout, the same in all processes. Which weights are dropped depends on the seed and on their places
            in the whole problem, so that any number of processes drops the same.
        layout: which tokens a process holds: "blocks", "striped" or "zigzag", as the functions of these names say.
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
    P = parts(HERE, (Q, K, V), mask, causal, window, scale, layout, group)
    Q, K, V, mask = P.Q, P.K, P.V, P.mask
    if P.n_groups:
        Q, K, V, mask = by_groups(P.n_groups, Q, K, V, mask)
    ring = Ring(P._replace(mask=mask), dropout_p, seed, group)
    output: torch.Tensor = _Ring.apply(Q, K, V, ring)
    return output.flatten(-4, -3) if P.n_groups else output


class Ring(NamedTuple):
    """Who holds what, and what is dropped."""

    P: Parts
    dropout_p: float
    seed: int
    group: Group

    def around(self, block: torch.Tensor) -> Iterator[tuple[int, torch.Tensor]]:
        """The block of each process with its owner, our own first; the next one travels while one is used."""
        rank, size = dist.get_rank(self.group), dist.get_world_size(self.group)
        for step in range(1, size + 1):
            owner, arrive = (rank - step + 1) % size, None
            if step < size:
                arrive = self.pass_on(block, (owner - 1) % size, step, 0)
            yield owner, block
            if arrive:
                block = arrive()

    def pass_on(
        self, block: torch.Tensor, owner: int, step: int, tag: int
    ) -> Callable[[], torch.Tensor]:
        """Start to send a block to the next process; what is returned waits for the one of ``owner`` to arrive."""
        rank, size = dist.get_rank(self.group), dist.get_world_size(self.group)
        new = block.new_empty(
            *block.shape[:-2], len(self.P.keys[owner]), block.shape[-1]
        )
        after, before = (rank + 1) % size, (rank - 1) % size
        world: Any = self.group or dist.group.WORLD
        ways = (dist.isend, block.contiguous(), after), (dist.irecv, new, before)
        # Both are started before either is waited for: if all sent first, nobody would receive.
        travel = [
            dist.P2POp(way, X, dist.get_global_rank(world, peer), self.group, tag)
            for way, X, peer in ways
        ]
        what = f"at step {step} of {size - 1}, to send to process {after} and to receive from process {before}"
        with waiting(HERE, what, self.group):
            works = dist.batch_isend_irecv(travel)

        def arrive() -> torch.Tensor:
            with waiting(HERE, what, self.group):
                for work in works:
                    work.wait()
            return new

        return arrive

    def tiles(self, owner: int) -> Iterator[tuple[slice, slice, Visibility, Any, Any]]:
        """Rows and keys of each tile in which something is seen, what is seen, and the places of both."""
        P = self.P
        mine = P.queries[dist.get_rank(self.group)]
        for rows in cut(mine):
            for keys in cut(P.keys[owner]):
                i, j = mine[rows], P.keys[owner][keys]
                seen = P.mask
                if seen is not None:
                    seen = seen[..., rows, :] if seen.shape[-2] > 1 else seen
                    seen = seen[..., j] if seen.shape[-1] > 1 else seen
                seen = P.see.between(i, j, seen)
                if seen is not False:
                    yield (
                        rows,
                        keys,
                        Visibility(len(i), len(j), P.see.device, seen),
                        i,
                        j,
                    )

    def grown(
        self, batch: tuple[int, ...], i: torch.Tensor, j: torch.Tensor
    ) -> torch.Tensor | None:
        """What dropout multiplies the weights of a tile by."""
        if not self.dropout_p:
            return None
        see = self.P.see
        i, j = i.to(see.device), j.to(see.device)
        return growth(batch, (see.n, see.m), i, j, self.dropout_p, self.seed)


class _Ring(torch.autograd.Function):
    """Once round for the output, once more for the gradients: no block but one's own is kept between the two."""

    @staticmethod
    def forward(
        ctx: Any, Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, ring: Ring
    ) -> torch.Tensor:
        batch = torch.broadcast_shapes(Q.shape[:-2], K.shape[:-2])
        wide = torch.promote_types(Q.dtype, torch.float32)
        output = Q.new_zeros(*batch, Q.shape[-2], V.shape[-1], dtype=wide)
        log_sum = output.new_full((*output.shape[:-1], 1), -torch.inf)
        for owner, block in ring.around(torch.cat([K, V], -1)):
            k, v = block.split([K.shape[-1], V.shape[-1]], -1)
            for rows, keys, see, i, j in ring.tiles(owner):
                q, grown = Q[..., rows, :], ring.grown(batch, i, j)
                new = part(
                    q, k[..., keys, :], v[..., keys, :], see, ring.P.scale, grown
                )
                merged = merge(output[..., rows, :], log_sum[..., rows, :], *new)
                output[..., rows, :], log_sum[..., rows, :] = merged
        ctx.save_for_backward(Q, K, V, output, log_sum)
        ctx.ring = ring
        return output.to(Q.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: torch.Tensor) -> tuple[Any, ...]:
        Q, K, V, output, log_sum = ctx.saved_tensors
        ring, batch, scale = ctx.ring, output.shape[:-2], ctx.ring.P.scale
        size = dist.get_world_size(ring.group)
        # An output of NaN depends on nothing.
        g = g.to(output.dtype).masked_fill(output.isnan().any(-1, keepdim=True), 0)
        along = (g * output).sum(-1, keepdim=True)  # Σ dA · A of each query
        dQ = torch.zeros_like(Q, dtype=output.dtype)
        dblock = torch.zeros_like(torch.cat([K, V], -1), dtype=output.dtype)
        for step, (owner, block) in enumerate(ring.around(torch.cat([K, V], -1)), 1):
            k, v = block.split([K.shape[-1], V.shape[-1]], -1)
            dk, dv = dblock.split([K.shape[-1], V.shape[-1]], -1)
            for rows, keys, see, i, j in ring.tiles(owner):
                q, kk, vv, _ = hide(
                    see, *(X[..., at, :] for X, at in ((Q, rows), (k, keys), (v, keys)))
                )
                do, grown = g[..., rows, :], ring.grown(batch, i, j)
                A = torch.exp(scores(q, kk, see, scale) - finite(log_sum[..., rows, :]))
                dA, dropped = do @ vv.mT.to(do.dtype), A
                if grown is not None:
                    dA, dropped = dA * grown, A * grown
                dS = A * (dA - along[..., rows, :]) * scale
                dQ[..., rows, :] += (dS @ kk.to(dS.dtype)).sum_to_size(q.shape)
                dk[..., keys, :] += (dS.mT @ q.to(dS.dtype)).sum_to_size(kk.shape)
                dv[..., keys, :] += (dropped.mT @ do).sum_to_size(vv.shape)
            if size > 1:  # on with the block that they belong to, and home at last
                dblock = ring.pass_on(dblock, (owner - 1) % size, step, 1)()
        dK, dV = dblock.split([K.shape[-1], V.shape[-1]], -1)
        return dQ.to(Q.dtype), dK.to(K.dtype), dV.to(V.dtype), None


def cut(positions: torch.Tensor) -> Iterator[slice]:
    """The rows of tiles: at most so many, and none across a gap, so that more tiles are seen whole or not at all."""
    gaps = positions.diff()
    jumps = (gaps > gaps.min()).nonzero() + 1 if len(gaps) else gaps
    edges = [0, *jumps.flatten().tolist(), len(positions)]
    for start, stop in zip(edges, edges[1:], strict=False):
        for first in range(start, stop, TILE):
            yield slice(first, min(first + TILE, stop))
