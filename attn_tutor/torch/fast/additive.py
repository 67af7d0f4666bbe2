"""Additive attention in tiles in which no tanh is left, so that no (n, m, h) tensor is ever stored.

tanh(a + b) = 1 − 2r with r = 1 / (1 + exp(2a) exp(2b)). The exponentials are taken once a query and once a key, and the
1 adds the same number to every score of a query, which softmax drops. A product, a sum and a quotient remain for each
query, key and feature. The gradient needs r alone too, dr/da = dr/db = −2 (r − r²), and computes it again.
"""

import functools
import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import library

from attn_tutor.torch._arrays import forward_mode
from attn_tutor.torch.visibility import Visibility

# Numbers in a tile of queries × features × keys, and queries in it where keys are many; a GPU needs larger ones.
ROOM, QUERIES = {"cpu": 2**20}, 32
# Scores of the queries whose softmax is taken at once, and of a compiled tile, which stores no features.
SCORES = 2**20
# exp(2 · REACH) is finite and exp(−2 · REACH) not yet subnormal; tanh beyond ±FLAT is ±1 in this precision.
REACH = {torch.float32: 43.0, torch.float64: 350.0}
FLAT = {torch.float32: 10.0, torch.float64: 20.0}
# Its square is finite, and r = 1 / LARGEST is as good as 0.
LARGEST = {torch.float32: 1e18, torch.float64: 1e150}


def additive_pool(
    a: torch.Tensor,
    b: torch.Tensor,
    w: torch.Tensor,
    V: torch.Tensor,
    see: Visibility,
    bias: torch.Tensor | None = None,
    dropout_p: float = 0.0,
) -> torch.Tensor:
    """Softmax of the scores w · tanh(a + b) + bias, times V: (…, n, h), (…, m, h), (…, h), (…, m, d_v) -> (…, n, d_v).

    In float32 or float64. What is hidden must already be finite. In a caller that is compiled, so are the tiles.
    """
    n, m = a.shape[-2], b.shape[-2]
    if bias is not None:
        bias = torch.atleast_2d(bias)[..., :m].to(a.dtype)
    causal = see.last is not None and see.mask is None
    if see.mask is not None:
        bias = see.masked(a.new_zeros(()) if bias is None else bias)
    arrays = [a, b, w[..., None, :], V, *([] if bias is None else [bias])]
    outer = torch.broadcast_shapes(*(X.shape[:-2] for X in arrays))
    batch = outer or (1,)
    a, b, w, V = (X.expand(*batch, *X.shape[-2:]).flatten(0, -3) for X in arrays[:4])
    if bias is not None:
        shape = *bias.shape[-2:-1], m
        if math.prod(bias.shape[:-2]) == 1:  # one for all is not copied
            bias = bias.expand(*bias.shape[:-1], m).reshape(1, *shape)
            bias = bias.expand(len(a), *shape)
        else:
            bias = bias.expand(*batch, *shape).flatten(0, -3)
    grown = None
    if dropout_p:
        grown = torch.dropout(a.new_ones(len(a), n, m), dropout_p, True)
    args = a, b, w, V, bias, grown, causal, see.window if causal else None
    if torch.compiler.is_compiling():
        output = pool(*args, True)[0]
    elif forward_mode():
        output = formula(*args)
    else:
        output = Pool.apply(*args, False)[0]
    return output.reshape(*outer, n, V.shape[-1])


# One operation to autograd, to torch.func and to torch.compile, as none of them follows a loop over tiles. The compiler
# takes its gradient from the operation itself, which torch.func refuses to do; that takes it from the classes.

TAKES = (
    "Tensor a, Tensor b, Tensor w, Tensor V, Tensor? bias, Tensor? grown,"
    " bool causal, SymInt? window, bool compiled"
)


@library.custom_op(
    "attn_tutor::additive", mutates_args=(), schema=f"({TAKES}) -> (Tensor, Tensor)"
)
def pool(
    a: Any, b: Any, w: Any, V: Any, bias: Any, grown: Any,
    causal: bool, window: int | None, compiled: bool,
) -> Any:  # fmt: skip
    """The output, and log Σ exp(score) of each query."""
    (B, n, _), m = a.shape, b.shape[1]
    see = Visibility(n, m, a.device, None, causal, window)
    x, y, w, tile = prepared(a, b, w, compiled)
    output, level = V.new_zeros(B, n, V.shape[-1]), a.new_zeros(B, n, 1)
    for group, block in blocks(see, B, tile):
        S = a.new_full((len(x[group]), block.stop - block.start, m), -torch.inf)
        for rows, keys in cut(see, block, tile):
            here = S[:, rows.start - block.start : rows.stop - block.start, keys]
            here[:] = tile.score(x[group, rows], y[group, :, keys], w[group])
            adjust(here, see, bias, group, rows, keys)
        level[group, block] = S.logsumexp(-1, keepdim=True)
        A = torch.softmax(S, -1, out=S)
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
def pool_gradient(
    g: Any, output: Any, level: Any, learnt: bool,
    a: Any, b: Any, w: Any, V: Any, bias: Any, grown: Any,
    causal: bool, window: int | None, compiled: bool,
) -> Any:  # fmt: skip
    """The gradients of a, b, w, V and, if it is learnt, of the bias."""
    (B, n, h), m = a.shape, b.shape[1]
    see = Visibility(n, m, a.device, None, causal, window)
    x, y, w, tile = prepared(a, b, w, compiled)
    da, db, dw, dV = (torch.zeros_like(X) for X in (x, y, w, V))
    dbias = a.new_zeros(bias.shape if learnt else 0)
    along = (g * output).sum(-1, keepdim=True)
    for group, block in blocks(see, B, tile):
        for rows, keys in cut(see, block, tile):
            q, k, do = x[group, rows], y[group, :, keys], g[group, rows]
            S = tile.score(q, k, w[group])
            adjust(S, see, bias, group, rows, keys)
            A = S.sub_(level[group, rows]).exp_()
            dA = do @ V[group, keys].mT
            dropped = A
            if grown is not None:
                dropped, dA = (
                    A * grown[group, rows, keys],
                    dA * grown[group, rows, keys],
                )
            dV[group, keys] += dropped.mT @ do
            dS = dA.sub_(along[group, rows]).mul_(A)
            if learnt:
                part = part_of(dbias, group, rows, keys)
                part += dS.sum_to_size(part.shape)
            more = tile.gradient(q, k, dS)
            da[group, rows] += more[0]
            db[group, :, keys] += more[1]
            dw[group] += more[2]
    found = -2 * w * da, -2 * w * db.mT, -2 * dw
    return *(X[..., :h].contiguous() for X in found), dV, dbias


class Pool(torch.autograd.Function):
    """The operation with its gradient."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*args: Any) -> Any:
        return pool(*args)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.options = inputs[6:]
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*output, *inputs[:6])

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor, _: Any) -> tuple[Any, ...]:
        gradient = pool_gradient if ctx.options[-1] else PoolGradient.apply
        learnt = ctx.needs_input_grad[4]
        *found, dbias = gradient(
            *(g, *ctx.saved_tensors[:2], learnt), *ctx.saved_tensors[2:], *ctx.options
        )
        return *found, dbias if learnt else None, *[None] * 4


class PoolGradient(torch.autograd.Function):
    """The gradient; its own, which few ask for, is that of the formula."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*args: Any) -> Any:
        return pool_gradient(*args)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.learnt, ctx.options = inputs[3], inputs[9:12]
        ctx.save_for_backward(inputs[0], *inputs[4:10])

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> tuple[Any, ...]:
        g, *inputs, grown = ctx.saved_tensors
        fixed = () if ctx.learnt else (inputs.pop(),)

        def gradient(g: torch.Tensor, *inputs: torch.Tensor) -> Any:
            def output(*inputs: torch.Tensor) -> torch.Tensor:
                return formula(*inputs, *fixed, grown, *ctx.options)

            return torch.func.vjp(output, *inputs)[1](g)

        pull = torch.func.vjp(gradient, g, *inputs)[1]
        dg, *found = pull(cotangents[: len(inputs)])
        return dg, None, None, None, *found, *[None] * (9 - len(found))


def formula(
    a: Any, b: Any, w: Any, V: Any, bias: Any, grown: Any,
    causal: bool, window: int | None,
) -> Any:  # fmt: skip
    """The output as torch can differentiate it, again and again, with all features of all pairs."""
    S = (torch.tanh(a[:, :, None] + b[:, None]) * w[:, None]).sum(-1)
    S = S if bias is None else S + bias
    see = Visibility(a.shape[1], b.shape[1], a.device, None, causal, window)
    A = torch.softmax(see.masked(S), -1)
    return (A if grown is None else A * grown) @ V


def _batched(op: Any, info: Any, in_dims: tuple[Any, ...], *args: Any) -> Any:
    """For torch.vmap: an axis more is a longer batch."""
    size = info.batch_size

    def longer(X: Any, dim: int | None) -> Any:
        if not isinstance(X, torch.Tensor):
            return X
        X = X.expand(size, *X.shape) if dim is None else X.movedim(dim, 0)
        return X.flatten(0, 1)

    found = op(*(longer(X, dim) for X, dim in zip(args, in_dims, strict=True)))
    split = (X.unflatten(0, (size, len(X) // size)) for X in found)
    return tuple(split), (0,) * len(found)


for _op in (pool, pool_gradient):
    _op.register_vmap(functools.partial(_batched, _op))
pool.register_autograd(Pool.backward, setup_context=Pool.setup_context)


@pool.register_fake
def _(a: Any, b: Any, w: Any, V: Any, *_: Any) -> Any:
    return V.new_empty(*a.shape[:2], V.shape[-1]), a.new_empty(*a.shape[:2], 1)


@pool_gradient.register_fake
def _(g: Any, output: Any, level: Any, learnt: bool, *args: Any) -> Any:
    dbias = args[4] if learnt else g.new_empty(0)
    return tuple(X.new_empty(X.shape) for X in (*args[:4], dbias))


# Tiles: some queries with some keys, and all features.


def blocks(see: Visibility, B: int, tile: Any) -> Iterator[tuple[slice, slice]]:
    """Elements of the batch, and those of their queries whose softmax is taken at once."""
    together = max(1, tile.height // max(1, see.n))
    most = max(tile.height, SCORES // max(1, see.m))
    first = 0 if see.last is None else max(0, -see.last)  # those before see nothing
    for i in range(0, B, together):
        for r in range(first, see.n, most):
            yield slice(i, i + together), slice(r, min(r + most, see.n))


def cut(see: Visibility, block: slice, tile: Any) -> Iterator[tuple[slice, slice]]:
    """The tiles of a block in which somebody may see something."""
    for r in range(block.start, block.stop, tile.height):
        rows = slice(r, min(r + tile.height, block.stop))
        keys = see.keys(rows)
        for j in range(keys.start, keys.stop, tile.width):
            yield rows, slice(j, min(j + tile.width, keys.stop))


def adjust(
    S: Any, see: Visibility, bias: Any, group: Any, rows: Any, keys: Any
) -> None:
    """Add the bias to the scores of a tile, and hide what is hidden."""
    if bias is not None:
        S += part_of(bias, group, rows, keys)
    seen = see.tile(rows, keys)
    if seen is not None:
        S.masked_fill_(~seen, -torch.inf)


def part_of(bias: Any, group: slice, rows: slice, keys: slice) -> Any:
    return bias[group, rows if bias.shape[1] > 1 else slice(1), keys]


def prepared(a: Any, b: Any, w: Any, compiled: bool) -> Any:
    """What stands for queries, (B, n, h), for keys, (B, h, m), the weights of r, and what computes tiles."""
    if compiled and a.shape[-1] % 2:  # features come in pairs there
        a, b, w = (torch.nn.functional.pad(X, (0, 1)) for X in (a, b, w))
    x, y, product = factors(a, b)
    loops = compiled_loops() if compiled and product else None
    tile = Compiled(loops, b) if loops else Tile(b, product)
    return x, y.mT.contiguous(), -2 * w, tile


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
    shift = torch.zeros_like(low).clamp(high - radius, low + radius)
    return shift, high - low <= 2 * radius


class Tile:
    """r of every query, feature and key, (g, R, h, keys); or r − 1/2, where tanh gives it. All take the same space."""

    def __init__(self, b: torch.Tensor, product: bool) -> None:
        _, m, h = b.shape
        self.product = product
        room = ROOM.get(b.device.type, 2**24) // max(1, h)
        # Few keys leave room for more queries, and many are cut.
        self.height = max(QUERIES, room // max(1, m))
        self.width = max(1, room // self.height)
        self.space = b.new_empty(self.height * h * min(self.width, m))
        # As a row, not as a number: torch's loops are faster so.
        self.one = b.new_ones(min(self.width, m))

    def score(self, x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        shape = *x.shape, y.shape[-1]
        self.r = r = self.space[: math.prod(shape)].view(shape)
        x, y = x[..., None], y[:, None]
        if self.product:
            torch.addcmul(self.one[: shape[-1]], x, y, out=r).reciprocal_()
        else:
            torch.add(x, y, out=r).tanh_().mul_(-0.5)
        return (w[:, None] @ r)[:, :, 0]

    def gradient(self, x: Any, y: Any, dS: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Σ dS (r − r²) over keys, the same over queries, and Σ dS r over both, in the tile of the last scores."""
        r, dS = self.r, dS[:, :, None]
        dw = (dS @ r.mT).sum(1)  # (g, 1, h)
        if self.product:
            torch.addcmul(r, r, r, value=-1, out=r)
        else:
            r.square_().neg_().add_(0.25)
        r.mul_(dS)
        return r.sum(-1), r.sum(1), dw


class Compiled:
    """The same without space for r: the compiler's loops keep in registers what is summed."""

    def __init__(self, loops: tuple[Any, Any, Any], b: torch.Tensor) -> None:
        m = b.shape[1]
        self.height, self.width = max(1, SCORES // max(1, m)), max(1, m)
        self._score, self._pull, self._pull_keys = loops

    def score(self, x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return self._score(x, y, w)

    def gradient(self, x: Any, y: Any, dS: torch.Tensor) -> tuple[torch.Tensor, ...]:
        da, dw = self._pull(x, y, dS)
        return da, self._pull_keys(x, y, dS), dw.sum(1, keepdim=True)


@functools.cache
def compiled_loops() -> tuple[Any, Any, Any] | None:
    """Scores, and both halves of the gradient. None without a compiler.

    What these loops spend is quotients, and two features share one: u/d + v/e = (u·e + v·d)/(d·e).
    """
    # Left alone, the compiler would store what several sums need: (n, m, h).
    stored = "reads", "opcount", "acc_reads"
    never: dict[str, Any] = {f"realize_{what}_threshold": 10**6 for what in stored}

    def loops(fn: Callable[..., Any]) -> Any:
        return torch.compile(fn, dynamic=True, options=never)

    def pairs(x: Any, y: Any) -> Any:
        """1/r of even and of odd features, (g, R, h/2, keys)."""
        d = (1 + x[..., None] * y[:, None]).clamp(max=LARGEST[x.dtype])
        return d[:, :, 0::2], d[:, :, 1::2]

    def quotients(x: Any, y: Any) -> Any:
        d, e = pairs(x, y)
        one = 1 / (d * e)
        return e * one, d * one

    @loops
    def score(x: Any, y: Any, w: Any) -> Any:
        d, e = pairs(x, y)
        u, v = w[:, :, 0::2, None], w[:, :, 1::2, None]
        return ((u * e + v * d) / (d * e)).sum(2)

    @loops
    def pull(x: Any, y: Any, dS: Any) -> Any:
        sums = []
        for r in quotients(x, y):
            part = dS[:, :, None] * r
            sums.append(torch.stack([(part - part * r).sum(3), part.sum(3)]))
        return torch.stack(sums, -1).flatten(-2)  # (2, g, R, h)

    @loops
    def pull_keys(x: Any, y: Any, dS: Any) -> Any:
        sums = [(dS[:, :, None] * (r - r * r)).sum(1) for r in quotients(x, y)]
        return torch.stack(sums, 2).flatten(1, 2)  # (g, h, keys)

    try:
        x, y, dS = torch.ones(2, 3, 6), torch.ones(2, 6, 5), torch.ones(2, 3, 5)
        score(x, y, x[:, :1]), pull(x, y, dS), pull_keys(x, y, dS)
    except Exception as error:  # what is missing: a compiler, headers, a place to write
        reason = str(error).strip().splitlines()[0]
        warnings.warn(
            f"additive_attention: computes without a compiler, as torch.compile finds none that works: {reason}",
            stacklevel=2,
        )
        return None
    return score, pull, pull_keys
