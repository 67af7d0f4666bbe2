"""The ways to torch's fused kernel: equal to the textbook, and no more work than the kernel itself.

How fast is for ``attn_tutor.bench`` to say; here work is counted, never time.
"""

from functools import partial

import numpy as np
import pytest
import torch

import attn_tutor.numpy as an
import attn_tutor.torch as at
from attn_tutor import _checks
from attn_tutor.torch import visibility
from attn_tutor.torch.fast import attention as fused
from attn_tutor.torch.visibility import Visibility, hide


@pytest.mark.parametrize("axes", [(11,), (3, 1, 11), (2, 1, 1, 7, 11), (5, 3, 7, 11)])
def test_masks_of_some_batch_axes(axes, draw, mask_of, close):
    Q, K, V = draw(2, 5, 3, 7, 13), draw(2, 5, 3, 11, 13), draw(2, 5, 3, 11, 17)
    mask = mask_of(*axes)
    expected = an.attend(an.scaled_dot_score(Q, K), V, mask)
    given = (torch.from_numpy(x) for x in (Q, K, V, mask))
    close(at.attention(*given), expected)


@pytest.fixture
def given(monkeypatch):
    """What the kernel was given last: queries, keys, values, and what is added to the scores."""
    last, kernel, flash = [], fused.scaled_dot_product_attention, fused.FLASH

    def spy(*args, **kwargs):
        last[:] = args
        return kernel(*args, **kwargs)

    def flash_spy(*args, attn_mask, **kwargs):
        last[:] = *args, attn_mask
        return flash(*args, attn_mask=attn_mask, **kwargs)

    monkeypatch.setattr(fused, "scaled_dot_product_attention", spy)
    monkeypatch.setattr(fused, "FLASH", flash_spy)
    return last


@pytest.mark.parametrize("axes", [(11,), (7, 11), (3, 1, 11)])
def test_masks_are_not_copied_for_each_head(axes, draw, mask_of, given):
    """The kernel adds numbers: it is given those of as many heads and sequences as the mask has."""
    Q, K = torch.from_numpy(draw(5, 3, 7, 13)), torch.from_numpy(draw(5, 3, 11, 13))
    mask = torch.from_numpy(mask_of(*axes))
    mask[..., -1] = True  # so that nothing is cut off
    at.attention(Q, K, K, mask)
    heads, n, m = (1, 1, 1, *axes)[-3:]
    assert given[3].shape == (1, heads, n, m) and given[3].dtype == Q.dtype


@pytest.mark.parametrize("learnt", [None, 0, 1, 2])
@pytest.mark.parametrize("axes", [None, (2, 1, 1, 11), (7, 11)])
@pytest.mark.parametrize("causal", [False, True])
def test_gaussian_keys_get_a_bias_or_grow_wider(
    learnt, axes, causal, draw, mask_of, close, device, given
):
    """A bias is quicker, but neither its gradient nor one for each query would be."""
    arrays = draw(2, 3, 7, 13), draw(2, 1, 11, 13), draw(2, 3, 11, 5)
    mask = None if axes is None else mask_of(*axes)
    may = an.causal_mask(7, 11) if causal else np.array(True)
    may = may if mask is None else may & mask
    expected = an.attend(an.gaussian_score(*arrays[:2], 1.5), arrays[2], may)

    tensors = [torch.from_numpy(x).to(device) for x in arrays]
    if learnt is not None:
        tensors[learnt].requires_grad_()
    mask = None if mask is None else torch.from_numpy(mask).to(device)
    output = at.gaussian_attention(*tensors, mask, causal=causal, bandwidth=1.5)
    close(output.detach(), expected)
    by_query = causal or axes == (7, 11)
    biased = not by_query and learnt != 1 and device == "cpu"
    assert given[1].shape[-1] == 13 + (not biased)
    if biased:
        assert given[3].numel() == 2 * given[1].shape[-2]  # one for a key, as it stands


@pytest.mark.parametrize("learnt", [False, True])
def test_a_hidden_key_does_not_overflow_once_centred(learnt):
    """The key that is seen is the centre, so that one cleared to 0 would be far from it."""
    Q, K, V = torch.zeros(1, 2), torch.full((2, 2), 1e20), torch.tensor([[9.0], [3.0]])
    K.requires_grad_(learnt)
    output = at.gaussian_attention(Q, K, V, torch.tensor([False, True]))
    assert output.item() == 3


@pytest.mark.parametrize("axes", [(7, 1), (2, 1, 1), (), (11,)])
def test_a_mask_that_broadcasts_equals_its_expansion(axes, draw, mask_of, close):
    Q, K, V = (torch.from_numpy(draw(2, n, 5)) for n in (7, 11, 11))
    mask = torch.from_numpy(mask_of(*axes))
    expected = at.gaussian_attention(Q, K, V, mask.expand(2, 7, 11))
    close(at.gaussian_attention(Q, K, V, mask), expected)


@pytest.mark.slow
@pytest.mark.parametrize("m", [1009, 5003])
@pytest.mark.parametrize(("first", "causal"), [(0.0, True), (1e20, False)])
def test_gaussian_keys_far_apart(m, first, causal, draw):
    """In single precision alone, a score would be off by 10⁻⁷ times the squared distance."""
    K, V = torch.arange(m)[:, None].float(), torch.from_numpy(draw(m, 3))
    Q, K[0] = K + 0.3, first
    mask = at.causal_mask(m) if causal else None
    exact = at.attend(at.gaussian_score(Q.double(), K.double()), V, mask)
    found = at.gaussian_attention(Q, K, V.float(), causal=causal)
    assert (found - exact).abs().max() < 2e-6


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


def test_no_keys_hide_a_nan(draw):
    Q, nothing = torch.full((3, 5), torch.nan), torch.empty(0, 5)
    for pool in (at.attention, at.gaussian_attention):
        assert not pool(Q, nothing, nothing).any()


@pytest.mark.filterwarnings("ignore:.torch.jit.script")  # which torch itself uses
@pytest.mark.parametrize("pool", [at.attention, at.gaussian_attention])
@pytest.mark.parametrize("causal", [False, True])
def test_derivatives_along_a_direction(pool, causal, draw, close):
    Q, K, V = (torch.from_numpy(draw(*axes)) for axes in ((3, 5), (7, 5), (7, 2)))

    def total(Q):
        return pool(Q, K, V, causal=causal).square().sum()

    direction = torch.from_numpy(draw(3, 5))
    gradient = torch.func.grad(total)(Q)
    close(torch.func.jvp(total, (Q,), (direction,))[1], (gradient * direction).sum())
    hessian = torch.func.hessian(total)(Q)
    eps = 1e-5 * direction
    change = torch.func.grad(total)(Q + eps) - torch.func.grad(total)(Q - eps)
    close(2e-5 * torch.tensordot(hessian, direction, 2), change, "float32")


def test_the_kernel_has_something_to_attend_to(draw, given):
    """Not every kernel copes with a row of −∞."""
    X, mask = torch.from_numpy(draw(7, 5)), torch.arange(7) > 2
    at.attention(X, X, X, mask[:, None].expand(7, 7))
    assert given[3].isfinite().any(-1).all()


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # of torch.vmap
@pytest.mark.parametrize("pool", [at.attention, at.gaussian_attention])
def test_gradient_of_a_mapped_function(pool, draw, close):
    """Inside torch.vmap a tensor does not say that it needs a gradient."""
    Q, K, V = (
        torch.from_numpy(draw(*axes)) for axes in ((3, 7, 5), (3, 11, 5), (3, 11, 4))
    )

    def gradient(pool):
        return torch.func.grad(lambda K: pool(Q, K, V).cos().sum())(K)

    close(gradient(torch.vmap(pool)), gradient(pool))


def test_nothing_hidden_costs_nothing(draw):
    """Without NaN behind the mask, queries, keys and values come through as they are."""
    Q, K = torch.from_numpy(draw(7, 5)), torch.from_numpy(draw(7, 5))
    for mask, causal in ((None, True), (torch.eye(7, dtype=torch.bool), False)):
        see = Visibility.of("attention", Q, K, mask=mask, causal=causal)
        queries, keys, spoiled = hide(see, Q, K)
        assert queries is Q and keys is K and spoiled is None


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # of torch.vmap
@pytest.mark.parametrize("hidden", [3e38, float("inf"), float("nan")])
@pytest.mark.parametrize("keyed", [(1,), (2,), (1, 2)])
def test_garbage_behind_a_mask(hidden, keyed, draw, close):
    """With NaN, and with what is finite but overflows; also mapped and compiled, where nobody can look first."""
    arrays = Q, K, V = [torch.from_numpy(draw(2, 7, 5)).float() for _ in range(3)]
    mask = torch.arange(7) >= 2  # at the end it would be cut off
    expected = at.attention(Q, K[:, 2:], V[:, 2:])
    for i in keyed:
        arrays[i][:, :2] = hidden
    fn = partial(at.attention, mask=mask)
    ways = (fn, torch.vmap(fn), torch.compile(fn, backend="eager", fullgraph=True))
    for way in ways:
        given = [X.clone().requires_grad_() for X in arrays]
        output = way(*given)
        close(output, expected)
        output.sum().backward()
        assert all(X.grad.isfinite().all() for X in given)
        assert not given[1].grad[:, :2].any() and not given[2].grad[:, :2].any()


def test_finite_garbage_whose_sum_is_finite(draw, close):
    """The quick look at sums does not see it, but its product with a query overflows."""
    signs = torch.from_numpy(np.sign(draw(7, 4))).float()
    Q, K, V = 30 * signs, torch.from_numpy(draw(2, 7, 4)).float() / 30, signs
    mask, expected = torch.arange(7) >= 2, at.attention(Q, K[:, 2:], V[2:])
    K[:, :2] = 3e37 * signs[:2]
    assert K.sum().isfinite() and not (Q @ K.mT).isfinite().all()
    close(at.attention(Q, K, V, mask), expected)


@pytest.mark.parametrize("which", [0, 1, 2])
def test_nan_in_one_of_the_three(which, draw, close):
    """In the last row, which causal queries before it do not see."""
    given = [torch.from_numpy(draw(7, 5)) for _ in range(3)]
    expected = at.attention(*given, causal=True)[:-1]
    given[which][-1, 2] = torch.nan
    output = at.attention(*given, causal=True)
    close(output[:-1], expected)
    assert output[-1].isnan().all()


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
def test_no_graph_break(causal, draw, mask_of, close):
    X, mask = torch.from_numpy(draw(2, 7, 6)), torch.from_numpy(mask_of(7, 7))
    layer = at.MultiHeadAttention(6, 2, causal=causal).double()
    gaussian = partial(at.gaussian_attention, X, X, causal=causal)
    whole = partial(at.attention, X, X, causal=causal)
    shared = at.MultiHeadAttention(6, 3, causal=causal, n_kv_heads=1).double()
    padded = partial(shared, mask=torch.arange(7) < 5)
    for fn in (layer, shared, padded, whole, gaussian, partial(whole, mask=mask)):
        torch.compiler.reset()  # each anew: there is a limit to versions of one function
        compiled = torch.compile(fn, backend="eager", fullgraph=True)
        close(compiled(X), fn(X))


# Padding


@pytest.mark.parametrize("longest", [0, 1, 64, 65, 127, 128, 130, 191, 193])
def test_padding_is_cut_off_in_whole_blocks(longest, draw, close, given):
    Q, K, V = (torch.from_numpy(draw(n, 5)) for n in (3, 193, 193))
    mask = torch.arange(193) < longest
    close(at.attention(Q, K, V, mask), at.attention(Q, K[:longest], V[:longest]))
    block = visibility.BLOCK
    kept = -(-longest // block) * block if longest <= 193 - block else 193
    at.attention(Q, K, V, mask)
    assert given[1].shape[-2] == kept


@pytest.mark.parametrize("lengths", [(3, 5), (5, 0), (0, 0), (11, 2)])
def test_padding_is_cut_off(lengths, draw, close, given, monkeypatch):
    """The kernel is given the keys of the longest sequence, and what stands behind them does not matter."""
    monkeypatch.setattr(visibility, "BLOCK", 1)
    Q, K, V = (torch.from_numpy(draw(2, 3, n, 13)) for n in (7, 11, 11))
    mask = at.padding_mask(torch.tensor(lengths), 11)[:, None]  # (b, 1, 1, m)
    expected = at.attend(at.scaled_dot_score(Q, K), V, mask)
    longest = max(lengths)
    K[:, :, longest:] = V[:, :, longest:] = torch.nan
    K.requires_grad_()
    output = at.attention(Q, K, V, mask)
    close(output.detach(), expected)
    assert given[1].shape[-2] == given[2].shape[-2] == given[3].shape[-1] == longest
    output.sum().backward()
    assert K.grad.shape == K.shape and not K.grad[:, :, longest:].any()


def test_padding_is_cut_off_wherever_values_are_pooled(draw, given, monkeypatch):
    """Before the projections too."""
    monkeypatch.setattr(visibility, "BLOCK", 1)
    X, Y, W = (torch.from_numpy(draw(*axes)) for axes in ((7, 6), (11, 6), (6, 6)))
    mask, projected = torch.arange(11) < 5, []
    monkeypatch.setattr(
        torch.Tensor,
        "__matmul__",
        lambda x, w: projected.append(x) or torch.matmul(x, w),
    )
    for pool in (
        lambda: at.gaussian_attention(X, Y, Y, mask),
        lambda: at.bilinear_attention(X, Y, Y, W, mask),
        lambda: at.cross_attention(X, Y, W, W, W, mask),
        lambda: at.self_attention(Y, W, W, W, mask),
        lambda: at.multi_head_attention(X, Y, Y, W, W, W, W, 2, mask),
        lambda: at.multi_head_attention(X, Y, Y, W[None], W, W, W, 2, mask[None, None]),
    ):
        projected.clear()
        pool()
        assert given[1].shape[-2] == 5
        assert all(len(x) != 11 for x in projected[1:])


def test_keys_that_another_query_or_sequence_sees_stay(draw, close, monkeypatch):
    monkeypatch.setattr(visibility, "BLOCK", 1)
    Q, K, V = (torch.from_numpy(draw(2, n, 5)) for n in (3, 7, 7))
    rows = torch.arange(7) < torch.tensor([[2], [7], [3]])
    sequences = torch.arange(7) < torch.tensor([[[2]], [[6]]])
    for mask in (rows, sequences, torch.tensor([[True]]), torch.tensor([False])):
        expected = at.attend(at.scaled_dot_score(Q, K), V, mask)
        close(at.attention(Q, K, V, mask), expected)


# Heads that share keys


@pytest.mark.parametrize(
    "axes", [None, (11,), (7, 11), (1, 7, 11), (1, 6, 7, 11), (5, 6, 1, 11)]
)
@pytest.mark.parametrize("n_kv_heads", [1, 2, 3])
def test_sharing_is_repeating(axes, n_kv_heads, draw, mask_of, close):
    X, Y = torch.from_numpy(draw(5, 7, 13)), torch.from_numpy(draw(5, 11, 13))
    W_q, W_o = (torch.from_numpy(draw(*axes)) / 5 for axes in ((13, 24), (24, 17)))
    W_k, W_v = (torch.from_numpy(draw(2, 13, 4 * n_kv_heads)) / 5).unbind()
    mask = None if axes is None else torch.from_numpy(mask_of(*axes))
    leaves = [x.requires_grad_() for x in (X, Y, W_q, W_k, W_v, W_o)]

    def repeated(W):
        return W.unflatten(-1, (n_kv_heads, 4)).repeat_interleave(6 // n_kv_heads, 1)

    whole = [repeated(W).flatten(1) for W in (W_k, W_v)]
    for causal in (False, True):
        pool = partial(at.multi_head_attention, X, Y, Y, W_q)
        options = {"n_heads": 6, "mask": mask, "causal": causal}
        output = pool(W_k, W_v, W_o, n_kv_heads=n_kv_heads, **options)
        expected = pool(*whole, W_o, **options)
        close(output.detach(), expected.detach())
        g = torch.randn_like(output)
        got, wanted = (
            torch.autograd.grad(o, leaves, g, retain_graph=True)
            for o in (output, expected)
        )
        for x, y in zip(got, wanted, strict=True):
            close(x, y)
        weights = at.multi_head_weights(
            X, Y, W_q, W_k, n_kv_heads=n_kv_heads, **options
        )
        close(weights, at.multi_head_weights(X, Y, W_q, whole[0], **options))


@pytest.mark.parametrize("mask", [None, torch.ones(7, 11, dtype=torch.bool)])
def test_shared_keys_are_not_copied(mask, draw, given):
    X, Y = torch.from_numpy(draw(5, 7, 12)), torch.from_numpy(draw(5, 11, 12))
    layer = at.MultiHeadAttention(12, 6, n_kv_heads=2).double()
    layer(X, Y, mask=mask)
    for x in given[1:3]:
        assert x.shape == (5 * 2, 3, 11, 2)
        assert x.untyped_storage().nbytes() == 5 * 2 * 11 * 2 * x.itemsize


# Windows


@pytest.mark.parametrize(
    "n, m, window, axes",
    [
        (700, 700, 5, None),
        (391, 391, 130, (2, 1, 1, 391)),
        (517, 530, 128, (3, 517, 530)),
        (300, 900, 1, (2, 1, 300, 1)),
        (291, 331, 7, (2, 1, 1, 331)),
    ],
)
def test_windows_go_block_by_block(
    n, m, window, axes, draw, mask_of, close, device, given
):
    """The number and the gradients of a mask, but none of n × m is given to the kernel."""
    Q, K, V = draw(2, 3, n, 4), draw(2, 1, m, 4), draw(3, m, 5)
    leaves = [torch.from_numpy(X).to(device).requires_grad_() for X in (Q, K, V)]
    mask, band = None, Visibility(n, m, device, causal=True, window=window).dense()
    if axes:
        mask = torch.from_numpy(mask_of(*axes)).to(device)
        mask[..., 40:60] = False  # some queries see nothing
        mask[..., -1:] = True  # so that nothing is cut off
        band = band & mask
    output = at.attention(*leaves, mask, causal=True, window=window, scale=0.3)
    rows, keys = given[3].shape[-2:]
    assert rows <= fused.ROWS and keys < fused.ROWS + window
    close(output, an.attention(Q, K, V, band.cpu().numpy(), scale=0.3))
    expected = at.attention(*leaves, band, scale=0.3)
    g = torch.from_numpy(draw(*output.shape))
    got, wanted = (
        torch.autograd.grad(o, leaves, g.to(device)) for o in (output, expected)
    )
    for x, y in zip(got, wanted, strict=True):
        close(x, y)


def test_a_long_window_is_a_few_batches_of_blocks(draw, given, monkeypatch):
    """Not a call for each block, and no key is copied."""
    K, calls, spy = torch.from_numpy(draw(2, 900, 4)), [], fused.FLASH
    monkeypatch.setattr(
        fused,
        "FLASH",
        lambda *args, **kwargs: calls.append(args) or spy(*args, **kwargs),
    )
    at.attention(K, K, K, causal=True, window=at.Window(7, sinks=2))
    assert (
        len(calls) <= 4
    )  # queries that see less than a window, the others, and all of these with the sinks
    assert given[1].untyped_storage().data_ptr() == K.untyped_storage().data_ptr()


MORE = {
    "documents": lambda m: {"mask": at.documents(torch.arange(m) // 90)},
    "lengths and a mask": lambda m: {
        "mask": at.valid(torch.tensor([m - 60, m])[:, None]) & (torch.arange(m) % 7 > 0)
    },
    "a bias of keys": lambda m: {"bias": torch.arange(m).sin().double()},
    "slopes": lambda m: {"bias": at.alibi(torch.tensor([0.5, 0.25]))},
    "a cap": lambda m: {"softcap": 2.0},
    "a prefix": lambda m: {"mask": at.prefix(torch.tensor(9))},
}


@pytest.mark.parametrize("sinks", [0, 3])
@pytest.mark.parametrize("more", MORE.values(), ids=MORE)
def test_windows_beside_other_rules(more, sinks, draw, close):
    given = draw(2, 2, 300, 4), draw(2, 2, 333, 4), draw(2, 2, 333, 5)
    Q, K, V = (torch.from_numpy(X).requires_grad_() for X in given)
    options = {"causal": True, "window": at.Window(40, sinks), **more(333)}
    found = at.attention(Q, K, V, **options)
    expected = at.attention_weights(Q, K, **options) @ V
    close(found.detach(), expected.detach())
    g = torch.from_numpy(draw(*found.shape))
    for x, y in zip(*(torch.autograd.grad(o, (Q, K, V), g) for o in (found, expected)), strict=True):  # fmt: skip
        close(x, y)


def test_long_windows_beside_a_bias(draw, close):
    Q, V, bias = draw(300, 4), draw(300, 5), draw(300, 300)
    given = [torch.from_numpy(X) for X in (Q, Q, V)]
    options = {"causal": True, "window": 7}
    output = at.attention(*given, **options, bias=torch.from_numpy(bias))
    close(output, an.attention(Q, Q, V, **options, bias=bias))


def test_long_windows_drop_weights(draw):
    """The mean of ones is 1 wherever no weight is dropped."""
    X, ones = torch.from_numpy(draw(300, 4)), torch.ones(300, 1, dtype=torch.float64)
    see = Visibility(300, 300, X.device, causal=True, window=7)
    output = fused.fused_attention(X, X, ones, see, dropout_p=0.5)
    assert (output[7:] - 1).abs().median() > 0.1


def test_windows_beside_long_padding(draw, close):
    """The last keys, which nobody sees, are cut off, and some queries are left with none."""
    Q, V, mask = draw(2, 300, 4), draw(2, 300, 5), np.arange(300) < [[[90]], [[50]]]
    given = map(torch.from_numpy, (Q, Q, V, mask))
    output = at.attention(*given, causal=True, window=20)
    close(output, an.attention(Q, Q, V, mask, causal=True, window=20))
    assert not output[0, 109:].any() and output[0, 108].any()


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # of torch.vmap
@pytest.mark.filterwarnings("ignore:.torch.jit.script")  # which torch itself uses
def test_windows_in_blocks_under_func(draw, close):
    Q, V = (torch.from_numpy(draw(2, 300, 4)) for _ in range(2))
    seen = partial(at.attention, causal=True, window=7)
    expected = seen(Q, Q, V)
    close(torch.vmap(seen)(Q, Q, V), expected)
    output, along = torch.func.jvp(partial(seen, Q, Q), (V,), (V,))
    close(output, expected)
    close(along, expected)  # the output is linear in the values


# The usual arguments


@pytest.mark.parametrize("half", [an, at])
def test_usual_arguments_pass_at_once(half, draw, monkeypatch):
    """The search for a clear message begins only where something is unusual: decoding cannot afford it."""
    Q, K, V = (draw(2, 3, n, 5) for n in (1, 7, 7))
    W = draw(5, 5)
    if half is at:
        Q, K, V, W = map(torch.from_numpy, (Q, K, V, W))
    monkeypatch.setattr(_checks, "_match", None)
    half.attention(Q, K, V)
    half.bilinear_attention(Q, K, V, W)
    half.KVCache().append(K, V)
    with pytest.raises(TypeError, match="not callable"):
        half.attention(Q, K[0], V)


@pytest.mark.parametrize("name", ["attention", "gaussian_attention"])
def test_shapes_alone(name):
    X = torch.ones(7, 5, device="meta")
    assert getattr(at, name)(X, X, X, causal=True).shape == (7, 5)
    W, w = torch.ones(5, 3, device="meta"), torch.ones(3, device="meta")
    assert at.AdditiveAttention(5, 5, 3, device="meta")(X, X, X).shape == (7, 5)
    assert at.additive_score(X, X, W, W, w).shape == (7, 7)
