"""The ways to torch's fused kernel: equal to the textbook, and no more work than the kernel itself.

How fast is for ``attn_tutor.bench`` to say; here work is counted, never time.
"""

from functools import partial

import numpy as np
import pytest
import torch

import attn_tutor.numpy as an
import attn_tutor.torch as at
from attn_tutor.torch import fused, masks


@pytest.mark.parametrize("axes", [(11,), (3, 1, 11), (2, 1, 1, 7, 11), (5, 3, 7, 11)])
def test_masks_of_some_batch_axes(axes, draw, mask_of, close):
    Q, K, V = draw(2, 5, 3, 7, 13), draw(2, 5, 3, 11, 13), draw(2, 5, 3, 11, 17)
    mask = mask_of(*axes)
    expected = an.attend(an.scaled_dot_score(Q, K), V, mask)
    given = (torch.from_numpy(x) for x in (Q, K, V, mask))
    close(at.attention(*given), expected)


@pytest.mark.parametrize("axes", [(11,), (7, 11), (3, 1, 11)])
def test_masks_are_not_copied_for_each_head(axes, draw, mask_of, monkeypatch):
    """The kernel makes floats of the mask: it is given as many heads and sequences as the mask has."""
    given, kernel = [], fused.scaled_dot_product_attention
    monkeypatch.setattr(
        fused,
        "scaled_dot_product_attention",
        lambda *args, **kw: given.append(args[3]) or kernel(*args, **kw),
    )
    Q, K = torch.from_numpy(draw(5, 3, 7, 13)), torch.from_numpy(draw(5, 3, 11, 13))
    at.attention(Q, K, K, torch.from_numpy(mask_of(*axes)))
    heads, n, m = (1, 1, 1, *axes)[-3:]
    assert given[0].shape == (1, heads, n, m)


def test_nothing_hidden_costs_nothing(draw):
    """Without NaN behind the mask, queries, keys and values come through as they are."""
    Q, K = torch.from_numpy(draw(7, 5)), torch.from_numpy(draw(7, 5))
    for mask, causal in ((None, True), (torch.eye(7, dtype=torch.bool), False)):
        queries, keys, spoiled = masks.shield(mask, causal, Q, K)
        assert queries is Q and keys is K and spoiled is None


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # of torch.vmap
@pytest.mark.parametrize("hidden", [3e38, float("inf"), float("nan")])
def test_garbage_behind_a_mask(hidden, draw, close):
    """With NaN, and with what is finite but overflows; also mapped and compiled, where nobody can look first."""
    Q, K, V = (torch.from_numpy(draw(2, 7, 5)).float() for _ in range(3))
    mask = torch.arange(7) < 5
    expected = at.attention(Q, K[:, :5], V[:, :5])
    K[:, 5:], V[:, 5:] = hidden, hidden
    fn = partial(at.attention, mask=mask)
    ways = (fn, torch.vmap(fn), torch.compile(fn, backend="eager", fullgraph=True))
    for way in ways:
        given = [X.clone().requires_grad_() for X in (Q, K, V)]
        output = way(*given)
        close(output, expected)
        output.sum().backward()
        assert all(X.grad.isfinite().all() for X in given)
        assert not given[1].grad[:, 5:].any() and not given[2].grad[:, 5:].any()


def test_finite_garbage_whose_sum_is_finite(draw, close):
    """The quick look at sums does not see it, but its product with a query overflows."""
    signs = torch.from_numpy(np.sign(draw(7, 4))).float()
    Q, K, V = 30 * signs, torch.from_numpy(draw(2, 7, 4)).float() / 30, signs
    mask, expected = torch.arange(7) < 5, at.attention(Q, K[:, :5], V[:5])
    K[:, 5:] = 3e37 * signs[5:]
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


@pytest.mark.parametrize("causal", [False, True])
def test_no_graph_break(causal, draw, mask_of, close):
    X, mask = torch.from_numpy(draw(2, 7, 6)), torch.from_numpy(mask_of(7, 7))
    layer = at.MultiHeadAttention(6, 2, causal=causal).double()
    gaussian = partial(at.gaussian_attention, X, X, causal=causal)
    whole = partial(at.attention, X, X, causal=causal)
    for fn in (layer, whole, gaussian, partial(whole, mask=mask)):
        compiled = torch.compile(fn, backend="eager", fullgraph=True)
        close(compiled(X), fn(X))
