"""The engine behind additive attention: tiles in which no tanh is left, so that no (n, m, h) tensor is ever stored.

tanh(a + b) = 1 − 2r with r = 1 / (1 + exp(2a) exp(2b)). The exponentials are taken once a query and once a key, and the
1 adds the same number to every score of a query, which softmax drops. A product, a sum and a quotient remain for each
query, key and feature. The gradient needs r alone too, dr/da = dr/db = −2 (r − r²), and computes it again.
"""

import functools
import warnings
from collections.abc import Iterator
from typing import Any

import torch

from attn_tutor.torch.softmax import masked_softmax

# Tiles of one block of queries and one of keys; a GPU is only filled by larger ones.
QUERIES, KEYS = {"cpu": 32}, 512
# How many scores a compiled piece computes at once; it stores no tile of h × n × m.
SCORES = 2**19
# exp(2 · REACH) is finite and exp(−2 · REACH) not yet subnormal; tanh beyond ±FLAT is ±1 in this precision.
REACH = {torch.float32: 43.0, torch.float64: 350.0}
FLAT = {torch.float32: 10.0, torch.float64: 20.0}


def tiled_additive(
    a: torch.Tensor,
    b: torch.Tensor,
    w: torch.Tensor,
    V: torch.Tensor,
    mask: torch.Tensor | None = None,
    causal: bool = False,
    dropout_p: float = 0.0,
) -> torch.Tensor:
    """Softmax of the scores w · tanh(a + b), times V, a tile at a time.

    a: (…, n, h), b: (…, m, h), w: (…, h), V: (…, m, d_v), float32 or float64; what is hidden must already be finite.
    mask: (…, n or 1, m or 1), and not together with causal. In a caller that is compiled, so is the loop over features.
    """
    n, m = a.shape[-2], b.shape[-2]
    arrays = [a, b, w[..., None, :], V]
    if mask is not None:
        arrays.append(mask.expand(*mask.shape[:-1], m))
    outer = torch.broadcast_shapes(*(X.shape[:-2] for X in arrays))
    batch = outer or (1,)
    flat = [X.expand(*batch, *X.shape[-2:]).flatten(0, -3) for X in arrays]
    a, b, w, V = flat[:4]
    kept = None
    if dropout_p:
        kept = torch.rand(len(a), n, m, device=a.device) >= dropout_p
    mask = flat[4] if mask is not None else None
    compiled = torch.compiler.is_compiling()
    apply = pool if compiled else Pool.apply
    output = apply(a, b, w, V, mask, kept, dropout_p, causal, compiled)
    return output.reshape(*outer, n, V.shape[-1])


# To torch.compile and to autograd the loop over tiles is one operation, whose inside they do not follow. The operation
# brings its gradient to the compiler; the classes Pool and PoolGradient bring it to autograd and to torch.func.


@torch.library.custom_op("attn_tutor::tiled_additive", mutates_args=())
def pool(
    a: torch.Tensor,
    b: torch.Tensor,
    w: torch.Tensor,
    V: torch.Tensor,
    mask: torch.Tensor | None,
    kept: torch.Tensor | None,
    dropout_p: float,
    causal: bool,
    compiled: bool,
) -> torch.Tensor:
    """Weighted sums of the values, (B, n, d_v): weights are those of a block of queries, and are dropped after it."""
    x, y, product = factors(a, b)
    output = a.new_empty(*a.shape[:-1], V.shape[-1])
    score, _ = pieces(product, compiled)
    for group, rows, keys, seen in blocks(a, b, mask, causal, compiled):
        A = masked_softmax(score(x[group, rows], y[group, keys], -2 * w[group]), seen)
        if kept is not None:
            A = A * kept[group, rows, keys] / (1 - dropout_p)
        output[group, rows] = A @ V[group, keys]
    return output


@torch.library.custom_op("attn_tutor::tiled_additive_gradient", mutates_args=())
def pool_gradient(
    g: torch.Tensor,
    output: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    w: torch.Tensor,
    V: torch.Tensor,
    mask: torch.Tensor | None,
    kept: torch.Tensor | None,
    dropout_p: float,
    causal: bool,
    compiled: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The gradients of a, b, w and V for the cotangent g of the output."""
    x, y, product = factors(a, b)
    da, db, dw, dV = (torch.zeros_like(X) for X in (a, b, w, V))
    score, gradient = pieces(product, compiled)
    along = (g * output).sum(-1, keepdim=True)
    for group, rows, keys, seen in blocks(a, b, mask, causal, compiled):
        q, k, gr = x[group, rows], y[group, keys], g[group, rows]
        A = masked_softmax(score(q, k, -2 * w[group]), seen)
        dA = gr @ V[group, keys].mT
        dropped = A
        if kept is not None:
            grown = kept[group, rows, keys] / (1 - dropout_p)
            dropped, dA = A * grown, dA * grown
        dV[group, keys] += dropped.mT @ gr
        dS = dA.sub_(along[group, rows]).mul_(A)
        parts = gradient(q, k, dS)
        da[group, rows] += parts[0]
        db[group, keys] += parts[1]
        dw[group] += parts[2]
    return 4 * w * da, 4 * w * db, -2 * dw, dV


class Pool(torch.autograd.Function):
    """The operation with its gradient, which computes the weights again instead of storing them."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*args: Any) -> torch.Tensor:
        return pool(*args)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        a, b, w, V, mask, kept, *ctx.options = inputs
        ctx.save_for_backward(output, a, b, w, V, mask, kept)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> tuple[Any, ...]:
        found = PoolGradient.apply(g, *ctx.saved_tensors, *ctx.options)
        return *found, None, None, None, None, None


class PoolGradient(torch.autograd.Function):
    """The gradient, which has none of its own."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*args: Any) -> tuple[torch.Tensor, ...]:
        return pool_gradient(*args)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *_: Any) -> None:
        raise NotImplementedError(
            "additive_attention: has no second derivatives; attend(additive_score(...), V, mask) has them"
        )


def _backward(ctx: Any, g: torch.Tensor) -> tuple[Any, ...]:
    return *pool_gradient(g, *ctx.saved_tensors, *ctx.options), *[None] * 5


pool.register_autograd(_backward, setup_context=Pool.setup_context)


@pool.register_fake
def _(a: torch.Tensor, b: Any, w: Any, V: torch.Tensor, *_: Any) -> torch.Tensor:
    return a.new_empty(*a.shape[:-1], V.shape[-1])


@pool_gradient.register_fake
def _(g: Any, output: Any, *arrays: Any) -> Any:
    return tuple(torch.empty_like(X) for X in arrays[:4])


def _vmap(op: Any, info: Any, in_dims: tuple[Any, ...], *args: Any) -> Any:
    """An axis more is a longer batch."""
    size = info.batch_size

    def longer(X: Any, dim: int | None) -> Any:
        if not isinstance(X, torch.Tensor):
            return X
        X = X.expand(size, *X.shape) if dim is None else X.movedim(dim, 0)
        return X.flatten(0, 1)

    def back(X: torch.Tensor) -> torch.Tensor:
        return X.unflatten(0, (size, len(X) // size))

    found = op(*(longer(X, dim) for X, dim in zip(args, in_dims, strict=True)))
    if isinstance(found, torch.Tensor):
        return back(found), 0
    return tuple(map(back, found)), (0,) * len(found)


for _op in (pool, pool_gradient):
    _op.register_vmap(functools.partial(_vmap, _op))


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
    low, high = X.flatten(0, 1).aminmax(dim=0)
    shift = torch.zeros_like(low).clamp(high - radius, low + radius)
    return shift, high - low <= 2 * radius


def blocks(
    a: torch.Tensor,
    b: torch.Tensor,
    mask: torch.Tensor | None,
    causal: bool,
    compiled: bool,
) -> Iterator[tuple[slice, slice, slice, torch.Tensor | None]]:
    """Elements of the batch, their queries, the keys between the first and last seen, and who sees which."""
    (B, n, h), m = a.shape, b.shape[1]
    R = QUERIES.get(a.device.type, 512)
    space = R * KEYS * max(1, h)
    if compiled:
        R, space = max(1, SCORES // max(1, m)), SCORES * max(1, h)
    together = max(1, space // max(1, n * m * h))
    for i in range(0, B, together):
        group = slice(i, i + together)
        for r in range(0, n, R):
            rows = slice(r, min(r + R, n))
            keys, seen = slice(m), None
            if causal:
                keys = slice(max(0, rows.stop + m - n))
                seen = a.new_ones(rows.stop - r, keys.stop, dtype=torch.bool)
                seen = seen.tril(r + m - n)
            elif mask is not None:
                seen = mask[group, rows] if mask.shape[1] > 1 else mask[group]
                some = seen.any(1).any(0).nonzero()[:, 0].tolist() or [-1]
                keys = slice(max(0, some[0]), some[-1] + 1)
                seen = seen[..., keys]
            yield group, rows, keys, seen


# The pieces that take the time: scores, and the gradient of their Σ dS · S. One block of queries, (g, R, h), and the
# keys, (g, m, h), give scores (g, R, m), short of one number for each query.


def pieces(product: bool, compiled: bool) -> tuple[Any, Any]:
    if product and compiled and (fast := compiled_pieces()):
        return fast
    return (
        functools.partial(tiled_scores, product=product),
        functools.partial(tiled_gradient, product=product),
    )


def tiles(
    x: torch.Tensor, y: torch.Tensor, product: bool
) -> Iterator[tuple[slice, torch.Tensor]]:
    """r, or r − 1/2 where tanh gives it, of some keys at a time: (g, h, R, keys), each in the space of the last."""
    (g, R, h), m = x.shape, y.shape[1]
    x, y = x.mT[..., None].contiguous(), y.mT[:, :, None].contiguous()
    space = x.new_empty(g * h * R * min(m, KEYS))
    # As a row, not as a number: torch's loops are faster so.
    one = x.new_ones(min(m, KEYS))
    for j in range(0, m, KEYS):
        keys = slice(j, min(j + KEYS, m))
        size = keys.stop - j
        tile = space[: g * h * R * size].view(g, h, R, size)
        if product:
            torch.addcmul(one[:size], x, y[..., keys], out=tile).reciprocal_()
        else:
            torch.add(x, y[..., keys], out=tile).tanh_().mul_(-0.5)
        yield keys, tile


def tiled_scores(
    x: torch.Tensor, y: torch.Tensor, w: torch.Tensor, product: bool
) -> torch.Tensor:
    S = x.new_empty(*x.shape[:-1], y.shape[1])
    for keys, r in tiles(x, y, product):
        S[..., keys] = (w @ r.flatten(2)).view(S[..., keys].shape)
    return S


def tiled_gradient(
    x: torch.Tensor, y: torch.Tensor, dS: torch.Tensor, product: bool
) -> tuple[torch.Tensor, ...]:
    """Σ dS (r − r²) over keys, the same over queries, and Σ dS r over both: (g, R, h), (g, m, h), (g, 1, h)."""
    da, db = torch.zeros_like(x), torch.zeros_like(y)
    dw = x.new_zeros(len(x), 1, x.shape[-1])
    for keys, r in tiles(x, y, product):
        part = dS[..., keys]
        dw += (r.flatten(2) @ part.flatten(1)[..., None]).mT
        if product:
            r.addcmul_(r, r, value=-1)
        else:  # r − r² = 1/4 − (r − 1/2)²
            r.square_().neg_().add_(0.25)
        r *= part[:, None]
        da += r.sum(3).mT
        db[:, keys] = r.sum(2).mT
    return da, db, dw


@functools.cache
def compiled_pieces() -> tuple[Any, Any] | None:
    """The same pieces without tiles: the compiler's loops keep what they need in registers. None without a compiler."""

    @functools.partial(torch.compile, dynamic=True)
    def score(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (w[:, None] / (1 + x[:, :, None] * y[:, None])).sum(-1)

    @functools.partial(torch.compile, dynamic=True)
    def pull(x: torch.Tensor, y: torch.Tensor, dS: torch.Tensor) -> torch.Tensor:
        r = 1 / (1 + x[:, :, None] * y[:, None])
        return (dS[..., None] * (r - r * r)).sum(2)

    @functools.partial(torch.compile, dynamic=True)
    def pull_both(x: torch.Tensor, y: torch.Tensor, dS: torch.Tensor) -> Any:
        r = 1 / (1 + x[:, :, None] * y[:, None])
        weighted = dS[..., None] * r
        return (weighted - weighted * r).sum(2), weighted.sum(2)

    def gradient(x: torch.Tensor, y: torch.Tensor, dS: torch.Tensor) -> Any:
        da, dw = pull_both(x, y, dS)
        # A sum over queries is quicker as one over keys, of all exchanged.
        return da, pull(y, x, dS.mT.contiguous()), dw.sum(1, keepdim=True)

    try:
        score(*(torch.ones(2, 3, 5), torch.ones(2, 7, 5), torch.ones(2, 1, 5)))
    except (
        Exception
    ) as error:  # whatever is missing: a compiler, its headers, a place to write
        reason = str(error).strip().splitlines()[0]
        warnings.warn(
            f"additive_attention: computes without a compiler, as torch.compile finds none that works: {reason}",
            stacklevel=2,
        )
        return None
    return score, gradient
