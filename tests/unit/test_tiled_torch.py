"""Attention in plain torch operations: the textbook's number and gradient at every edge of a tile."""

import pytest
import torch
from torch.autograd import gradcheck

import attn_tutor.torch as at
from attn_tutor.torch import tiled
from attn_tutor.torch.masks import shield, spoil
from attn_tutor.torch.tiled import tiled_attention


@pytest.fixture
def small_tiles(monkeypatch):
    """Tiles of 7 keys and 2 × 3 queries, or more queries of fewer heads, so that a few tokens make many."""
    monkeypatch.setattr(tiled, "SCORES", 2 * 3 * 7)
    monkeypatch.setattr(tiled, "QUERIES", 3)
    monkeypatch.setattr(tiled, "KEYS", 7)


def textbook(Q, K, V, mask=None, causal=False, scale=None):
    if causal:
        seen = at.causal_mask(Q.shape[-2], K.shape[-2], device=Q.device)
        mask = seen if mask is None else mask & seen
    return at.attend(at.scaled_dot_score(Q, K, scale), V, mask)


@pytest.fixture(params=["harmless", "online"])
def way(request, monkeypatch):
    """Whether scores are known to be small, or their maximum must be kept."""
    if request.param == "online":
        monkeypatch.setattr(tiled, "HARMLESS", dict.fromkeys(tiled.HARMLESS, -1.0))


def leaves(draw, device, *sizes):
    return [torch.from_numpy(draw(*x)).to(device).requires_grad_() for x in sizes]


def gradients(fn, args, **options):
    output = fn(*args, **options)
    g = torch.linspace(-1, 2, output.numel(), dtype=output.dtype, device=output.device)
    return [output, *torch.autograd.grad(output, args, g.view(output.shape))]


def same(args, close, **options):
    """In output and gradient."""
    found, expected = (gradients(fn, args, **options) for fn in FUNCTIONS)
    for ours, theirs in zip(found, expected, strict=True):
        top = max(1.0, theirs.abs().max().item())
        close(ours / top, theirs / top)


FUNCTIONS = tiled_attention, textbook


@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize(
    ("n", "m"), [(1, 1), (3, 7), (4, 7), (3, 8), (2, 6), (13, 29), (29, 13), (1, 29)]
)
@pytest.mark.usefixtures("small_tiles", "way")
def test_tiles_join_without_a_seam(device, draw, close, n, m, causal):
    args = leaves(draw, device, (2, n, 5), (2, m, 5), (2, m, 3))
    same(args, close, causal=causal)


@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
def test_tiles_of_their_usual_size(device, draw, close, causal):
    n, m = 2 * tiled.QUERIES + 3, 2 * tiled.KEYS + 7
    args = leaves(draw, device, (11, n, 5), (m, 5), (m, 3))
    same(args, close, causal=causal, scale=0.3)


MASKS = {
    "pairs": (13, 17),
    "padding": (3, 1, 1, 17),
    "queries": (13, 1),
    "a head each": (2, 13, 17),
    "more batch": (5, 3, 2, 13, 17),
}


@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.usefixtures("small_tiles", "way")
def test_masks_with_empty_rows(device, draw, close, mask_of, kind, causal):
    args = leaves(draw, device, (3, 2, 13, 5), (2, 17, 5), (3, 1, 17, 3))
    mask = mask_of(*MASKS[kind])
    mask[..., 4:5, :] = False  # an empty row, or with padding nothing at all
    mask[..., :8] &= mask.shape[-1] == 1  # nothing is seen in a tile of keys
    same(args, close, mask=torch.from_numpy(mask).to(device), causal=causal)


@pytest.mark.usefixtures("small_tiles", "way")
def test_an_empty_row_is_0_and_so_is_its_gradient(device, draw):
    Q, K, V = leaves(draw, device, (4, 5), (2, 5), (2, 3))
    output, dQ, *_ = gradients(tiled_attention, [Q, K, V], causal=True)
    assert not output[:2].any() and not dQ[:2].any()
    assert output[2:].all() and dQ[3].any()


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("size", [1, 30, 900, 1e5])
def test_scores_of_any_size(device, draw, close, size):
    """2 to the power of a large score is infinite; what softmax makes of it is not."""
    args = [
        torch.from_numpy(x).to(device)
        for x in (size * draw(13, 5), draw(29, 5), draw(29, 3))
    ]
    close(tiled_attention(*args), textbook(*args), "float32")


@pytest.mark.parametrize("batch", [(), (2,), (3, 2)], ids=str)
@pytest.mark.usefixtures("small_tiles", "way")
def test_gradcheck(device, draw, batch):
    args = leaves(draw, device, (*batch, 5, 2), (8, 2), (*batch[:-1], 1, 8, 1)[-3:])
    mask = torch.ones(5, 8, dtype=torch.bool, device=device)
    mask[2], mask[:, 3] = False, False
    assert gradcheck(lambda *xs: tiled_attention(*xs, mask, scale=0.7), args)


def test_a_learnt_scale_has_its_gradient(device, draw):
    args = leaves(draw, device, (3, 2), (5, 2), (5, 2), ())
    assert gradcheck(lambda *xs: tiled_attention(*xs[:3], scale=xs[3]), args)


def test_second_derivatives_are_refused(device, draw):
    args = leaves(draw, device, (3, 2), (5, 2), (5, 2))
    output = tiled_attention(*args).square().sum()
    (first,) = torch.autograd.grad(output, args[:1], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


@pytest.mark.parametrize(("n", "m"), [(0, 5), (5, 0), (0, 0)])
def test_empty_axes(device, draw, n, m):
    args = leaves(draw, device, (2, n, 3), (2, m, 3), (2, m, 7))
    found = gradients(tiled_attention, args)
    for ours, shape in zip(found, [(2, n, 7), *(x.shape for x in args)], strict=True):
        assert ours.shape == shape and not ours.any()


@pytest.mark.usefixtures("small_tiles", "way")
@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
def test_nan_spreads_as_in_attention(device, draw, close, causal):
    """Behind a mask it is cleared before the engine; where it is seen, it is NaN there alone."""
    Q, K, V = (draw(13, 5), draw(17, 5), draw(17, 3))
    K[9], V[11], Q[2] = float("nan"), float("inf"), float("nan")
    Q, K, V = (torch.from_numpy(x).to(device) for x in (Q, K, V))
    mask = None if causal else torch.arange(17, device=device) < 9
    q, k, v, spoiled = shield(mask if causal else mask[None], causal, Q, K, V)
    output = spoil(tiled_attention(q, k, v, mask, causal), spoiled)
    close(output, at.attention(Q, K, V, mask, causal=causal))
    assert output.isnan().any() and not output.isnan().all()
    assert tiled_attention(Q, K, V).isnan().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.usefixtures("way")
def test_half_precision(device, draw, close, dtype):
    """Sums are kept in single: 5003 weights of about 1/5003 add up to 1."""
    args = [
        torch.from_numpy(x).to(device, dtype).requires_grad_()
        for x in (draw(3, 5), draw(5003, 5), draw(5003, 2) + 1)
    ]
    exact = [x.detach().double().requires_grad_() for x in args]
    for ours, theirs in zip(
        gradients(tiled_attention, args), gradients(textbook, exact), strict=True
    ):
        assert ours.dtype == dtype
        close(ours / theirs.abs().max(), theirs / theirs.abs().max())


@pytest.mark.usefixtures("way")
def test_single_precision_is_as_accurate_as_the_textbook(device, draw):
    single = [
        torch.from_numpy(x).float().to(device).requires_grad_()
        for x in (draw(2, 97, 64), draw(1009, 64), draw(1009, 31))
    ]
    exact = [x.detach().double().requires_grad_() for x in single]
    found = gradients(tiled_attention, single), gradients(textbook, single)
    for ours, usual, truth in zip(*found, gradients(textbook, exact), strict=True):
        error, allowed = (
            ((x - truth).abs().max() / truth.abs().max()).item() for x in (ours, usual)
        )
        assert error < min(2e-6, 2 * allowed + 1e-7)


def test_causal_tiles_that_nobody_sees_are_left_out(monkeypatch):
    """And so are keys that are padding; what remains is little more than what is seen."""
    monkeypatch.setattr(tiled, "SCORES", 64 * 16)
    monkeypatch.setattr(tiled, "QUERIES", 64)
    monkeypatch.setattr(tiled, "KEYS", 16)
    n = 256
    Q = torch.zeros(1, n, 3)

    def computed(mask, causal):
        return sum(
            Q[rows].shape[1] * Q[keys].shape[1]
            for heads, block in tiled.blocks(Q, n)
            for rows, keys, _ in tiled.tiles(Q, Q, heads, block, mask, causal)
        )

    assert computed(None, False) == n * n
    assert computed(None, True) <= n * (n + 16) / 2
    mask = (torch.arange(n) < 48).expand(1, n, n)
    assert computed(mask, False) == n * 48
    assert computed(mask, True) <= 48 * n - 48 * 32 / 2
