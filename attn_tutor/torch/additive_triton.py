"""The engine behind additive attention on a GPU: kernels in Triton, which keep a tile of scores in registers.

A program of the first kernel has a block of queries and goes through the keys with a running maximum, as in
FlashAttention (Dao et al., 2022): a larger maximum shrinks what was summed before. It keeps log Σ exp of the scores,
from which the gradient gets the weights back. A second kernel has a block of queries too, and computes da and dw; a
third has a block of keys, for db and dV. Each sum belongs to one program, so that no two write to one place, and
results repeat.
"""

from typing import Any

import torch
import triton
import triton.language as tl

from attn_tutor.torch import additive
from attn_tutor.torch.additive import Problem, factors

# How many queries (or keys) a program has, and how many keys (or queries) it looks at together. Larger tiles spill
# registers on an H100 (as compiled; none was at hand), and fewer programs leave a GPU idle at a few thousand queries.
OWN, OTHERS = 16, 32
VALUES = 128  # wider values would spill too


@triton.jit
def element(e, x, y, w, V, mask, n, m, h, d, mask_b):
    """Where element e of the batch begins."""
    return x + e * n * h, y + e * m * h, w + e * h, V + e * m * d, mask + e * mask_b


@triton.jit
def quotients(x, y, k, i, j, n, m):
    """r of feature k, for queries i and keys j."""
    xk = tl.load(x + k * n + i, i < n, 0.0)
    yk = tl.load(y + k * m + j, j < m, 0.0)
    return 1 / (1 + xk[:, None] * yk[None, :])


@triton.jit
def tile_of_scores(
    x, y, w, mask, i, j, n, m, h, mask_i, causal: tl.constexpr, masked: tl.constexpr
):  # fmt: skip  # one kind of argument a line
    """Σ −2w r of queries i and keys j, −∞ where unseen, and beyond the ends."""
    S = tl.zeros((i.shape[0], j.shape[0]), tl.float32)
    for k in range(h):
        S += tl.load(w + k) * quotients(x, y, k, i, j, n, m)
    seen = (i < n)[:, None] & (j < m)[None, :]
    if causal:
        seen = seen & (j[None, :] <= i[:, None] + m - n)
    if masked:
        at = mask + i[:, None] * mask_i + j[None, :]
        seen = seen & (tl.load(at, seen, 0) != 0)
    return tl.where(seen, S, float("-inf"))


@triton.jit
def block_of(X, i, n, d, D: tl.constexpr):
    """Rows i of an (n, d) matrix, filled up with zeros."""
    c = tl.arange(0, D)
    return tl.load(
        X + i[:, None] * d + c[None, :], (i < n)[:, None] & (c < d)[None, :], 0.0
    )


@triton.jit
def store_block(X, i, n, d, block, D: tl.constexpr):
    c = tl.arange(0, D)
    tl.store(
        X + i[:, None] * d + c[None, :], block, (i < n)[:, None] & (c < d)[None, :]
    )


@triton.jit
def forward_kernel(
    x, y, w, V, mask, output, lse, n, m, h, d, mask_b, mask_i,
    causal: tl.constexpr, masked: tl.constexpr,
    N: tl.constexpr, M: tl.constexpr, D: tl.constexpr,
):  # fmt: skip  # one kind of argument a line
    e = tl.program_id(0).to(tl.int64)  # which element of the batch
    x, y, w, V, mask = element(e, x, y, w, V, mask, n, m, h, d, mask_b)
    i = tl.program_id(1) * N + tl.arange(0, N)
    top = tl.full((N,), float("-inf"), tl.float32)
    total = tl.zeros((N,), tl.float32)
    pooled = tl.zeros((N, D), tl.float32)
    last = m
    if causal:
        last = tl.minimum(m, (tl.program_id(1) + 1) * N + m - n)
    for start in range(0, last, M):
        j = start + tl.arange(0, M)
        S = tile_of_scores(x, y, w, mask, i, j, n, m, h, mask_i, causal, masked)
        higher = tl.maximum(top, tl.max(S, 1))
        base = tl.where(higher == float("-inf"), 0.0, higher)  # nothing seen yet
        E, shrink = tl.exp(S - base[:, None]), tl.exp(top - base)
        total = total * shrink + tl.sum(E, 1)
        pooled = pooled * shrink[:, None] + tl.dot(
            E, block_of(V, j, m, d, D), input_precision="ieee"
        )
        top = higher
    empty = total == 0
    pooled = pooled / tl.where(empty, 1.0, total)[:, None]
    store_block(output + e * n * d, i, n, d, pooled, D)
    # +∞ makes each weight of an empty row exp(−∞) = 0.
    tl.store(
        lse + e * n + i,
        tl.where(empty, float("inf"), top + tl.log(total + empty)),
        i < n,
    )


@triton.jit
def slopes(
    x, y, w, V, g, mask, lse, along, i, j, n, m, h, d, mask_i,
    causal: tl.constexpr, masked: tl.constexpr, D: tl.constexpr,
):  # fmt: skip  # one kind of argument a line
    """Weights of queries i and keys j, and the gradient of their scores; and g of the queries."""
    S = tile_of_scores(x, y, w, mask, i, j, n, m, h, mask_i, causal, masked)
    A = tl.exp(S - tl.load(lse + i, i < n, float("inf"))[:, None])
    gi = block_of(g, i, n, d, D)
    dA = tl.dot(gi, tl.trans(block_of(V, j, m, d, D)), input_precision="ieee")
    return A, A * (dA - tl.load(along + i, i < n, 0.0)[:, None]), gi


@triton.jit
def query_kernel(
    x, y, w, V, g, mask, lse, along, da, dw, n, m, h, d, mask_b, mask_i,
    causal: tl.constexpr, masked: tl.constexpr,
    N: tl.constexpr, M: tl.constexpr, D: tl.constexpr,
):  # fmt: skip  # one kind of argument a line
    """Σ dS (r − r²) over keys, to be added up in da, and Σ dS r over these queries and all keys, in a row of dw."""
    e, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    x, y, w, V, mask = element(e, x, y, w, V, mask, n, m, h, d, mask_b)
    g, lse, along, da = g + e * n * d, lse + e * n, along + e * n, da + e * n * h
    dw += (e * tl.num_programs(1) + block) * h
    i = block * N + tl.arange(0, N)
    last = m
    if causal:
        last = tl.minimum(m, (block + 1) * N + m - n)
    for start in range(0, last, M):
        j = start + tl.arange(0, M)
        A, dS, gi = slopes(
            x, y, w, V, g, mask, lse, along, i, j, n, m, h, d, mask_i, causal, masked, D
        )
        for k in range(h):
            r = quotients(x, y, k, i, j, n, m)
            drawn = dS * r
            at = da + k * n + i
            tl.store(at, tl.load(at, i < n, 0.0) + tl.sum(drawn - drawn * r, 1), i < n)
            tl.store(dw + k, tl.load(dw + k) + tl.sum(drawn))
        tl.debug_barrier()  # what one thread has stored, another may load next


@triton.jit
def key_kernel(
    x, y, w, V, g, mask, lse, along, db, dV, n, m, h, d, mask_b, mask_i,
    causal: tl.constexpr, masked: tl.constexpr,
    N: tl.constexpr, M: tl.constexpr, D: tl.constexpr,
):  # fmt: skip  # one kind of argument a line
    """Σ dS (r − r²) over queries, to be added up in db, and Σ A g, which is dV."""
    e = tl.program_id(0).to(tl.int64)
    x, y, w, V, mask = element(e, x, y, w, V, mask, n, m, h, d, mask_b)
    g, lse, along, db = g + e * n * d, lse + e * n, along + e * n, db + e * m * h
    j = tl.program_id(1) * M + tl.arange(0, M)
    pooled = tl.zeros((M, D), tl.float32)
    first = 0
    if causal:  # the first query that sees the first of these keys
        first = tl.maximum(0, tl.program_id(1) * M + n - m) // N * N
    for start in range(first, n, N):
        i = start + tl.arange(0, N)
        A, dS, gi = slopes(
            x, y, w, V, g, mask, lse, along, i, j, n, m, h, d, mask_i, causal, masked, D
        )
        pooled += tl.dot(tl.trans(A), gi, input_precision="ieee")
        for k in range(h):
            r = quotients(x, y, k, i, j, n, m)
            drawn = dS * r
            at = db + k * m + j
            tl.store(at, tl.load(at, j < m, 0.0) + tl.sum(drawn - drawn * r, 0), j < m)
        tl.debug_barrier()
    store_block(dV + e * m * d, j, m, d, pooled, D)


def operands(P: Problem) -> tuple[Any, ...] | None:
    """What every kernel takes first and last; None where torch must compute: in other precisions, say."""
    if P.a.dtype != torch.float32 or P.kept is not None or P.V.shape[-1] > VALUES:
        return None
    x, y, product = factors(P.a, P.b)
    if not product:
        return None
    mask, strides = x, (0, 0)
    if P.mask is not None:
        mask = P.mask.contiguous()
        strides = mask.stride(0), mask.stride(1) if mask.shape[1] > 1 else 0
    # A feature of neighbours stands side by side: (B, h, n) and (B, h, m).
    arrays = x.mT.contiguous(), y.mT.contiguous(), -2 * P.w, P.V.contiguous(), mask
    n, m, (h, d) = x.shape[1], y.shape[1], (x.shape[2], P.V.shape[2])
    options = {"causal": P.causal, "masked": P.mask is not None}
    options["D"] = max(16, triton.next_power_of_2(d))
    return arrays, (n, m, h, d, *strides), options


def stored_width(P: Problem) -> int:
    """How many numbers of each query are kept for the gradient: its log Σ exp."""
    return 1


def pool(P: Problem) -> tuple[torch.Tensor, torch.Tensor]:
    lse = P.a.new_zeros(*P.a.shape[:-1], stored_width(P))
    if (taken := operands(P)) is None:
        return additive.pool(P._replace(graded=False))[0], lse
    arrays, sizes, options = taken
    output = P.V.new_empty(*P.a.shape[:-1], P.V.shape[-1])
    grid = len(P.a), triton.cdiv(P.a.shape[1], OWN)
    with torch.cuda.device_of(P.a):
        forward_kernel[grid](*arrays, output, lse, *sizes, **options, N=OWN, M=OTHERS)
    return output, lse


def pool_gradient(
    g: torch.Tensor, output: torch.Tensor, lse: torch.Tensor, P: Problem
) -> tuple[torch.Tensor, ...]:
    if (taken := operands(P)) is None:
        return additive.pool_gradient(g, output, lse[..., :0], P)
    (x, y, w, V, mask), sizes, options = taken
    da, db, dV = torch.zeros_like(x), torch.zeros_like(y), torch.empty_like(V)
    blocks, blocks_of_keys = (triton.cdiv(X.shape[2], OWN) for X in (x, y))
    dw = w.new_zeros(len(w), blocks, w.shape[-1])
    given = x, y, w, V, g.contiguous(), mask, lse, (g * output).sum(-1)
    with torch.cuda.device_of(g):
        query_kernel[len(x), blocks](*given, da, dw, *sizes, **options, N=OWN, M=OTHERS)
        key_kernel[len(x), blocks_of_keys](
            *given, db, dV, *sizes, **options, N=OTHERS, M=OWN
        )
    da, db = ((4 * P.w * X.mT).contiguous() for X in (da, db))
    return da, db, -2 * dw.sum(1, keepdim=True), dV
