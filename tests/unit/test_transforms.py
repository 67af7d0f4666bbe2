"""Derivatives of any kind, mapped functions, garbage behind a mask, shapes without numbers, and torch's compiler."""

from functools import partial

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.nn.attention import SDPBackend, sdpa_kernel

import attn_tutor.numpy as an
import attn_tutor.torch as at

pytestmark = [
    # torch itself uses what it deprecates.
    pytest.mark.filterwarnings("ignore:.torch.jit.script"),
    pytest.mark.filterwarnings("ignore:There is a performance drop"),  # of torch.vmap
]
generator = torch.Generator().manual_seed(0)
W = [torch.randn(5, 5, generator=generator, dtype=torch.float64) / 2 for _ in range(2)]
w_v = torch.randn(5, generator=generator, dtype=torch.float64)
POOLS = {
    "attention": at.attention,
    "Gaussian": at.gaussian_attention,
    "additive": lambda Q, K, V, *mask, **options: at.additive_attention(
        Q, K, V, *W, w_v, *mask, **options
    ),
    "bilinear": lambda Q, K, V, *mask, **options: at.bilinear_attention(
        Q, K, V, W[0], *mask, **options
    ),
    "partial": lambda *args, **options: at.partial_attention(*args, **options)[0],
}
OPTIONS = {
    "plain": {},
    "causal": {"causal": True},
    "window": {"causal": True, "window": at.Window(3, sinks=1)},
    "lengths": {"mask": at.valid(torch.tensor(5))},
    "mask": {"mask": torch.arange(11) % 3 > 0, "causal": True},
}
every = pytest.mark.parametrize("pool", POOLS.values(), ids=POOLS)
under = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)


def arrays(draw, n=7, m=11, *batch):
    return [torch.from_numpy(draw(*batch, k, 5)) for k in (n, m, m)]


@every
@under
def test_derivatives_along_a_direction(pool, options, draw, close):
    Q, K, V = arrays(draw)

    def total(Q):
        return pool(Q, K, V, **options).square().sum()

    direction = torch.from_numpy(draw(7, 5))
    gradient = torch.func.grad(total)(Q)
    q = Q.clone().requires_grad_()
    close(gradient, torch.autograd.grad(total(q), q)[0])
    close(torch.func.jvp(total, (Q,), (direction,))[1], (gradient * direction).sum())
    hessian = torch.func.hessian(total)(Q)
    eps = 1e-5 * direction
    change = torch.func.grad(total)(Q + eps) - torch.func.grad(total)(Q - eps)
    close(2e-5 * torch.tensordot(hessian, direction, 2), change, "float32")


@every
@under
def test_second_derivatives(pool, options, draw):
    """With respect to queries, keys and values; torch's plain kernel has them, and blocks take it."""
    fn = partial(pool, **options)
    leaves = [x.requires_grad_() for x in arrays(draw, 4, 11)]
    with sdpa_kernel(SDPBackend.MATH):
        assert gradcheck(fn, leaves)
        assert gradgradcheck(fn, leaves)


@every
@under
def test_mapped_functions_and_their_gradients(pool, options, draw, close):
    """Inside torch.vmap a tensor does not say that it needs a gradient."""
    Q, K, V = arrays(draw, 7, 11, 3)
    fn = partial(pool, **options)
    close(torch.vmap(fn)(Q, K, V), fn(Q, K, V))
    close(torch.vmap(fn, (0, None, 1), 1)(Q, K[0], V.transpose(0, 1)), fn(Q, K[0], V).transpose(0, 1))  # fmt: skip

    def gradient(fn):
        return torch.func.grad(lambda K: fn(Q, K, V).cos().sum())(K)

    close(gradient(torch.vmap(fn)), gradient(fn))


def test_windows_in_many_blocks_under_func(draw, close):
    Q, V = (torch.from_numpy(draw(2, 300, 4)) for _ in range(2))
    fn = partial(at.attention, causal=True, window=7)
    expected = fn(Q, Q, V)
    close(torch.vmap(fn)(Q, Q, V), expected)
    output, along = torch.func.jvp(partial(fn, Q, Q), (V,), (V,))
    close(output, expected)
    close(along, expected)  # the output is linear in the values


@pytest.mark.parametrize("hidden", [3e38, float("inf"), float("nan")])
@pytest.mark.parametrize("keyed", [(1,), (2,), (1, 2)])
@pytest.mark.parametrize("n", [7, 140])
def test_garbage_behind_a_mask(hidden, keyed, n, draw, close):
    """With NaN, and with what is finite but overflows; also mapped and compiled, where nobody can look first."""
    given = Q, K, V = [torch.from_numpy(draw(2, n, 5)).float() for _ in range(3)]
    mask = torch.arange(n) >= 2
    expected = at.attention(Q, K[:, 2:], V[:, 2:])
    for i in keyed:
        given[i][:, :2] = hidden
    for rule in (mask, at.Rule(lambda i, j: j >= 2)):
        fn = partial(at.attention, mask=rule)
        ways = [fn, torch.vmap(fn)]
        if n == 7 and rule is mask:
            ways.append(torch.compile(fn, backend="eager", fullgraph=True))
        for way in ways:
            leaves = [X.clone().requires_grad_() for X in given]
            output = way(*leaves)
            close(output, expected)
            output.sum().backward()
            assert all(X.grad.isfinite().all() for X in leaves)
            assert not leaves[1].grad[:, :2].any() and not leaves[2].grad[:, :2].any()


def test_finite_garbage_whose_sum_is_finite(draw, close):
    """A quick look at sums does not see it, but its product with a query overflows."""
    signs = torch.from_numpy(np.sign(draw(7, 4))).float()
    Q, K, V = 30 * signs, torch.from_numpy(draw(2, 7, 4)).float() / 30, signs
    mask, expected = torch.arange(7) >= 2, at.attention(Q, K[:, 2:], V[2:])
    K[:, :2] = 3e37 * signs[:2]
    assert K.sum().isfinite() and not (Q @ K.mT).isfinite().all()
    close(at.attention(Q, K, V, mask), expected)


@pytest.mark.parametrize("bilinear", [False, True])
def test_a_large_key_is_hidden_from_those_who_may_not_see_it(bilinear, draw, close):
    """Its score is infinite, and −∞ does not take that away."""
    Q, K, V = (torch.from_numpy(draw(n, 5)).float() for n in (3, 7, 7))
    mask = torch.ones(3, 7, dtype=torch.bool)
    mask[1:, 2] = False
    pool = partial(at.bilinear_attention, M=torch.eye(5)) if bilinear else at.attention
    expected = pool(Q, K, V, mask=mask)[1:]
    K[2] = 1e38
    close(pool(Q, K, V, mask=mask)[1:], expected)


@pytest.mark.slow
@pytest.mark.parametrize("m", [1009, 5003])
@pytest.mark.parametrize(("first", "causal"), [(0.0, True), (1e20, False)])
def test_gaussian_keys_far_apart(m, first, causal, draw):
    K, V = torch.arange(m)[:, None].float(), torch.from_numpy(draw(m, 3))
    Q, K[0] = K + 0.3, first
    mask = at.causal_mask(m) if causal else None
    exact = at.attend(at.gaussian_score(Q.double(), K.double()), V, mask)
    found = at.gaussian_attention(Q, K, V.float(), causal=causal)
    assert (found - exact).abs().max() < 2e-6


@pytest.mark.parametrize("name", ["attention", "gaussian_attention"])
def test_shapes_alone(name):
    X = torch.ones(7, 5, device="meta")
    for options in OPTIONS.values():
        if "mask" not in options:
            assert getattr(at, name)(X, X, X, **options).shape == (7, 5)
    U, w = torch.ones(5, 3, device="meta"), torch.ones(3, device="meta")
    assert at.AdditiveAttention(5, 5, 3, device="meta")(X, X, X).shape == (7, 5)
    assert at.additive_score(X, X, U, U, w).shape == (7, 7)


@pytest.mark.parametrize("half", [an, at], ids=["numpy", "torch"])
@pytest.mark.parametrize("n_kv_heads", [1, 2, 3])
@pytest.mark.parametrize("axes", [None, (11,), (7, 11), (1, 7, 11), (1, 6, 7, 11), (5, 6, 1, 11)])  # fmt: skip
def test_sharing_heads_is_repeating_them(half, axes, n_kv_heads, draw, mask_of, close):
    give = torch.from_numpy if half is at else np.asarray
    X, Y = give(draw(5, 7, 13)), give(draw(5, 11, 13))
    W_q, W_o = (give(draw(*axes) / 5) for axes in ((13, 24), (24, 17)))
    few = [draw(13, n_kv_heads, 4) / 5 for _ in range(2)]
    shared = [give(W.reshape(13, -1)) for W in few]
    repeated = [give(W.repeat(6 // n_kv_heads, 1).reshape(13, -1)) for W in few]
    mask = None if axes is None else give(mask_of(*axes))
    for causal in (False, True):
        options = {"mask": mask, "causal": causal}
        pool = partial(half.multi_head_attention, X, Y, Y, W_q)
        found = pool(*shared, W_o, 6, n_kv_heads=n_kv_heads, **options)
        close(found, pool(*repeated, W_o, 6, **options))
        weights = partial(half.multi_head_weights, X, Y, W_q)
        found = weights(shared[0], 6, n_kv_heads=n_kv_heads, **options)
        close(found, weights(repeated[0], 6, **options))
