"""Additive attention in tiles in which no tanh is left, so that no (n, m, h) tensor is ever stored.

tanh(a + b) = 1 − 2r with r = 1 / (1 + exp(2a) exp(2b)). The exponentials are taken once a query and once a key, and the
1 adds the same number to every score of a query, which softmax drops. A product, a sum and a quotient remain for each
query, key and feature. The gradient needs r alone too, dr/da = dr/db = −2 (r − r²), and computes it again.
"""

import functools
import math
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import library

from attn_tutor.geometry import Runs
from attn_tutor.torch._arrays import transformed
from attn_tutor.torch.fast.attention import weights
from attn_tutor.torch.visibility import Visibility

# Numbers in a tile of queries × features × keys, and queries in it where keys are many; a GPU needs larger ones.
ROOM, QUERIES = {"cpu": 2**20}, 32
# Scores whose softmax is taken at once, and in a compiled tile, which stores no features.
SCORES = 2**18
# exp(2 · REACH) is finite and exp(−2 · REACH) not yet subnormal; tanh beyond ±FLAT is ±1 in this precision.
REACH = {torch.float32: 43.0, torch.float64: 350.0}
FLAT = {torch.float32: 10.0, torch.float64: 20.0}
LARGEST = 1e18  # the square of anything below is finite


def additive_pool(
    a: torch.Tensor,
    b: torch.Tensor,
    w: torch.Tensor,
    V: torch.Tensor,
    see: Visibility,
    dropout_p: float = 0.0,
) -> torch.Tensor:
    """Softmax of the scores w · tanh(a + b) + bias, times V: (…, n, h), (…, m, h), (…, h), (…, m, d_v) -> (…, n, d_v).

    Computed in float32 at least. What is hidden must already be finite. In a caller that is compiled, so are the tiles.
    """
    dtype, wide = V.dtype, torch.promote_types(V.dtype, torch.float32)
    a, b, w, V = (X.to(wide) for X in (a, b, w, V))
    n, m, d_v = a.shape[-2], *V.shape[-2:]
    mapped, compiled = transformed(), torch.compiler.is_compiling()
    said: dict[str, Any] = dict(see.arrays)
    if mapped or any(X.requires_grad for X in said.values()):
        bias = see.added(slice(0, n), slice(0, m))
        bias = bias if bias is None else bias.expand(*bias.shape[:-2], n, m)
        said = {"mask": said.get("mask"), "bias": bias}
    ends = [X for run in see.runs.runs for X in run] if see.ruled else []
    arrays = [a, b, w[..., None, :], V]
    rules = [said.get(name) for name in ("bias", "mask", "slopes")]
    batches = [X.shape[:-2] for X in (*arrays, *rules, *ends) if X is not None]
    outer = torch.broadcast_shapes(*batches)
    B = math.prod(outer)

    def flat(X: Any) -> Any:
        """With one batch axis, which stays 1 where that of a rule is."""
        if X is None or X.ndim < 3:
            return X if X is None else X[None]
        return X.expand(*outer, *X.shape[-2:]).reshape(B, *X.shape[-2:])

    grown = None
    if dropout_p:
        grown = torch.dropout(a.new_ones(B, n, m), dropout_p, True)
    given: Any = [X.expand(*outer, *X.shape[-2:]).reshape(B, *X.shape[-2:]) for X in arrays]  # fmt: skip
    bias, mask, slopes = map(flat, rules)
    if mapped:
        args = [*given, bias, flat(see.dense()), grown]
        output = formula(*args)
    else:
        if bias is not None and bias.requires_grad:
            bias = bias.expand(B, -1, -1)
        rest = mask, slopes, [*map(flat, ends)], see.offset, compiled
        output = pool(*given, bias, grown, *rest)[0]
    return output.reshape(*outer, n, d_v).to(dtype)


# One operation to autograd and to torch.compile, neither of which follows a loop over tiles.
TAKES = (
    "Tensor a, Tensor b, Tensor w, Tensor V, Tensor? bias, Tensor? grown,"
    " Tensor? mask, Tensor? slopes, Tensor[] ends, SymInt offset, bool compiled"
)


@library.custom_op(
    "attn_tutor::additive", mutates_args=(), schema=f"({TAKES}) -> (Tensor, Tensor)"
)
def pool(*args: Any) -> Any:
    """The output, and log Σ exp(score) of each query."""
    a, _, _, V, _, grown, *_ = args
    tiles = Tiles(*args)
    output, level = V.new_zeros(*a.shape[:2], V.shape[-1]), a.new_zeros(*a.shape[:2], 1)
    for group, block in tiles.blocks():
        S = a.new_full((len(a[group]), block.stop - block.start, len(V[0])), -torch.inf)
        for rows, keys in tiles.cut(block):
            here = slice(rows.start - block.start, rows.stop - block.start)
            S[:, here, keys] = tiles.scores(group, rows, keys)
        level_here = S.logsumexp(-1, keepdim=True)
        empty = level_here == -torch.inf
        level[group, block] = level_here.masked_fill_(empty, 0)
        A = torch.softmax(S, -1, out=S).masked_fill_(empty, 0)
        if grown is not None:
            A *= grown[group, block]
        output[group, block] = A @ V[group]
    return output, level


@library.custom_op(
    "attn_tutor::additive_gradient",
    mutates_args=(),
    schema=f"(Tensor g, Tensor output, Tensor level, bool learnt, {TAKES})"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def pool_gradient(g: Any, output: Any, level: Any, learnt: bool, *args: Any) -> Any:
    """The gradients of a, b, w, V and, if it is learnt, of the bias."""
    a, b, w, V, bias, grown, *_ = args
    tiles = Tiles(*args)
    da, db, dw, dV = (torch.zeros_like(X) for X in (a, b, w, V))
    dbias = torch.zeros_like(bias) if learnt else a.new_empty(0)
    along = (g * output).sum(-1, keepdim=True)
    for group, block in tiles.blocks():
        for rows, keys in tiles.cut(block):
            do = g[group, rows]
            A = tiles.scores(group, rows, keys).sub_(level[group, rows]).exp_()
            dropped, dA = A, do @ V[group, keys].mT
            if grown is not None:
                dropped = A * grown[group, rows, keys]
                dA *= grown[group, rows, keys]
            dV[group, keys] += dropped.mT @ do
            dS = dA.sub_(along[group, rows]).mul_(A)
            if learnt:
                dbias[group, rows, keys] = dS
            more = tiles.gradient(group, rows, keys, dS)
            da[group, rows] += more[0]
            db[group, keys] += more[1]
            dw[group] += more[2]
    return 4 * w * da, 4 * w * db, -2 * dw, dV, dbias


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.options = inputs[9:]
    ctx.save_for_backward(*output, *inputs[:8], *inputs[8])


def _backward(ctx: Any, g: torch.Tensor, _: Any) -> tuple[Any, ...]:
    output, level, *arrays = ctx.saved_tensors
    arrays, ends, learnt = arrays[:8], arrays[8:], ctx.needs_input_grad[4]
    given = *arrays, ends, *ctx.options
    *found, dbias = pool_gradient(g, output, level, learnt, *given)
    others: Any = None, None, None, [None] * len(ends), None, None
    return *found, dbias if learnt else None, *others


def _refuse(*_: Any) -> None:
    raise NotImplementedError(
        "additive_attention: has no second derivatives; attend(additive_score(...), V, mask) has them"
    )


pool.register_autograd(_backward, setup_context=_keep)
pool_gradient.register_autograd(_refuse)


@pool.register_fake
def _(a: Any, b: Any, w: Any, V: Any, *_: Any) -> Any:
    return V.new_empty(*a.shape[:2], V.shape[-1]), a.new_empty(*a.shape[:2], 1)


@pool_gradient.register_fake
def _(g: Any, output: Any, level: Any, learnt: bool, *args: Any) -> Any:
    dbias = args[4] if learnt else g.new_empty(0)
    return tuple(X.new_empty(X.shape) for X in (*args[:4], dbias))


def formula(
    a: Any, b: Any, w: Any, V: Any, bias: Any, seen: Any, grown: Any
) -> torch.Tensor:
    """The output as torch can differentiate it any way, with all features of all pairs."""
    S = (torch.tanh(a[:, :, None] + b[:, None]) * w[:, None]).sum(-1)
    A = weights(S if bias is None else S + bias, seen)
    return (A if grown is None else A * grown) @ V


def factors(
    a: torch.Tensor, b: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, bool]:
    """exp(2a), exp(2b) and True, both shifted and cut so that they are finite; a, b and False where that cannot be.

    Added to a feature of all queries and taken from that of all keys, a shift changes no a + b. Let it bring the keys
    within REACH − FLAT of 0. Where a then lies beyond REACH, a + b lies beyond FLAT for every key, and still does
    when a is cut off at REACH: tanh is as flat as before. The same holds with queries and keys exchanged. So one of
    the two must fit in a window of width 2 (REACH − FLAT), in each feature; else only tanh itself is safe.
    """
    if not a.numel() or not b.numel():
        return a, b, False
    reach, flat = REACH[a.dtype], FLAT[a.dtype]
    (shift_a, a_fits), (shift_b, b_fits) = (window(X, reach - flat) for X in (a, b))
    if not (a_fits | b_fits).all():
        return a, b, False
    shift = torch.where(b_fits, shift_b, -shift_a)
    x, y = (a + shift).clamp(-reach, reach), (b - shift).clamp(-reach, reach)
    return torch.exp(2 * x), torch.exp(2 * y), True


def window(X: torch.Tensor, radius: float) -> tuple[torch.Tensor, torch.Tensor]:
    """What to take from each feature so that it lies within ±radius, 0 where it does already, and where that works."""
    low, high = X.amin((0, 1)), X.amax((0, 1))
    return (0 * low).clamp(high - radius, low + radius), high - low <= 2 * radius


class Tiles:
    """Scores and gradients of some queries with some keys. What stands in the tile, (g, R, h, keys), is r of every
    feature, or r − 1/2 where tanh gives it. A compiled tile stores nothing: its loops keep in registers what is summed.
    """

    def __init__(
        self, a: Any, b: Any, w: Any, V: Any, bias: Any, grown: Any, mask: Any, slopes: Any, ends: Any, offset: Any,
        compiled: Any,
    ) -> None:  # fmt: skip
        (self.B, n, h), m = a.shape, b.shape[1]
        runs = Runs([*zip(ends[::2], ends[1::2], strict=True)]) if ends else None
        self.see = Visibility(n, m, a.device, mask, bias=bias, slopes=slopes, runs=runs)
        self.see.offset = offset
        self.w = -2 * w
        self.x, y, self.product = factors(a, b)
        safe = self.product and (self.x.amax(1) * y.amax(1) < LARGEST).all()
        self.loops = loops() if compiled and safe and h % 2 == 0 else None
        self.y = y.mT.contiguous()  # (B, h, m)
        room = SCORES if self.loops else ROOM.get(a.device.type, 2**24) // max(1, h)
        # Few keys leave room for more queries, and many are cut.
        self.height = max(1 if self.loops else QUERIES, room // max(1, m))
        self.width = max(1, room // self.height)
        if not self.loops:
            # All take the same space, since the system is slow to hand out new pages.
            self.space = a.new_empty(self.height * h * min(self.width, m))
            # A row and not a number: torch's loops are faster so.
            self.one = a.new_ones(min(self.width, m))

    def blocks(self) -> Iterator[tuple[slice, slice]]:
        """Elements of the batch, and those of their queries whose softmax is taken at once."""
        together = max(1, self.height // max(1, self.see.n))
        most = max(self.height, SCORES // max(1, self.see.m))
        for i in range(0, self.B, together):
            for rows in self.see.blocks(most):
                yield slice(i, i + together), rows

    def cut(self, block: slice) -> Iterator[tuple[slice, slice]]:
        """The tiles of a block in which somebody may see something."""
        for r in range(block.start, block.stop, self.height):
            rows = slice(r, min(r + self.height, block.stop))
            for run in self.see.keys(rows):
                for j in range(run.start, run.stop, self.width):
                    yield rows, slice(j, min(j + self.width, run.stop))

    def scores(self, group: slice, rows: slice, keys: slice) -> torch.Tensor:
        x, y, w = self.x[group, rows], self.y[group, :, keys], self.w[group]
        if self.loops:
            S = self.loops[0](x, y, w)
        else:
            shape = *x.shape, y.shape[-1]
            self.r = r = self.space[: math.prod(shape)].view(shape)
            x, y = x[..., None], y[:, None]
            if self.product:
                torch.addcmul(self.one[: shape[-1]], x, y, out=r).reciprocal_()
            else:
                torch.add(x, y, out=r).tanh_().mul_(-0.5)
            S = (w[:, None] @ r)[:, :, 0]
        see = self.see
        if (added := see.added(rows, keys)) is not None:
            S += added if len(added) == 1 else added[group]
        seen = see.tile(rows, keys)
        if isinstance(seen, bool):
            return S if seen else S.fill_(-torch.inf)
        return S.masked_fill_(~(seen[group] if seen.ndim > 2 and len(seen) > 1 else seen), -torch.inf)  # fmt: skip

    def gradient(self, group: slice, rows: slice, keys: slice, dS: Any) -> Any:
        """Σ dS (r − r²) over keys, the same over queries, and Σ dS r over both, in the tile of the last scores."""
        if self.loops:
            x, y = self.x[group, rows], self.y[group, :, keys]
            da, dw = self.loops[1](x, y, dS)
            # A sum over keys is quicker than one over queries.
            db, _ = self.loops[1](*(X.mT.contiguous() for X in (y, x, dS)))
            return da, db, dw.sum(1, keepdim=True)
        r, dS = self.r, dS[:, :, None]
        dw = (dS @ r.mT).sum(1)  # (g, 1, h)
        rest = r if self.product else r.new_tensor(0.25)
        torch.addcmul(rest, r, r, value=-1, out=r).mul_(dS)
        return r.sum(-1), r.sum(1).mT, dw


@functools.cache
def loops() -> Any:
    """Scores, and sums over keys for their gradient, both compiled; or None where there is no compiler.

    Their time goes into quotients, and two features can share one: u/d + v/e = (u·e + v·d)/(d·e).
    """
    # Left alone, the compiler would store what several sums need: (n, m, h).
    stored = "reads", "opcount", "acc_reads"
    never: dict[str, Any] = {f"realize_{what}_threshold": 10**6 for what in stored}

    def halves(x: Any, y: Any) -> Any:
        """1/r for one half of the features and the other, (g, R, h/2, keys)."""
        h = x.shape[-1] // 2
        d = 1 + x[..., :h, None] * y[:, None, :h]
        return d, 1 + x[..., h:, None] * y[:, None, h:], h

    def score(x: Any, y: Any, w: Any) -> Any:
        d, e, h = halves(x, y)
        u, v = w[..., :h, None], w[..., h:, None]
        return ((u * e + v * d) / (d * e)).sum(2)

    def pull(x: Any, y: Any, dS: Any) -> Any:
        d, e, _ = halves(x, y)
        one = 1 / (d * e)
        r, s, dS = e * one, d * one, dS[:, :, None]
        p, q = dS * r, dS * s
        da = (p - p * r).sum(3), (q - q * s).sum(3)
        return torch.cat(da, 2), torch.cat((p.sum(3), q.sum(3)), 2)

    try:
        x, y, dS = torch.ones(2, 3, 6), torch.ones(2, 6, 5), torch.ones(2, 3, 5)
        made = [torch.compile(fn, dynamic=True, options=never) for fn in (score, pull)]
        made[0](x, y, x[:, :1]), made[1](x, y, dS)
    except Exception as error:  # what is missing: a compiler, headers, a place to write
        reason = str(error).strip().splitlines()[0]
        warnings.warn(f"additive_attention: no compiler works: {reason}", stacklevel=2)
        return None
    return made
