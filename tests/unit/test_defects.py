"""What outside tests broke: each of these failed before it was mended."""

import sys

import numpy as np
import pytest
import torch

import attn_tutor.numpy as an
import attn_tutor.torch as at
from attn_tutor.torch.distributed import ring_attention, run, ulysses_attention

nan, inf = float("nan"), float("inf")


def meets(error, words, call, *args, **options):
    with pytest.raises(error, match=words):
        call(*args, **options)


# Guesses and codes


def test_a_replacement_is_always_a_token(half):
    """p ≤ q everywhere, by rounding, leaves nothing to draw from."""
    p = np.array([[0.5, 0.4999999], [0.5, 0.5]])
    q, uniform = np.array([[0.5, 0.5]]), np.array([0.99999999, 0.3])
    assert half.accept_draft(p, q, np.array([1]), uniform).tolist() == [0]


@pytest.mark.parametrize("token", [-1, 7])
def test_guesses_are_tokens(half, token):
    p, q = np.full((2, 2), 0.5), np.full((1, 2), 0.5)
    args = p, q, np.array([token]), np.array([0.5, 0.5])
    meets(ValueError, r"tokens must lie in 0 … 1, got", half.accept_draft, *args)


@pytest.mark.parametrize("number", [1.0, -0.1, nan])
def test_chances_of_a_draft(half, number):
    p, q = np.full((2, 2), 0.5), np.full((1, 2), 0.5)
    args = p, q, np.array([0]), np.array([0.5, number])
    meets(ValueError, r"outside \[0, 1\)", half.accept_draft, *args)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("size", [1e-5, 1.0])
def test_quantize_keeps_its_promise_in_half_precision(dtype, size):
    """In float16 the scale of small numbers would be subnormal, in bfloat16 the product too coarse."""
    torch.manual_seed(3)
    X = (size * torch.randn(40, 64)).to(getattr(torch, dtype))
    for half, given in ((at, X), (an, X.numpy() if dtype == "float16" else None)):
        if given is not None:
            codes, scales = half.quantize(given)
            error = abs(X.double().numpy() - np.asarray(codes * scales, float))
            assert (error <= np.asarray(scales) * 0.501).all()


# Linear attention


@pytest.mark.parametrize("garbage", [nan, inf])
@pytest.mark.parametrize(("n", "m", "at_key"), [(70, 70, 5), (70, 70, 66), (9, 4, 2)])
def test_linear_attention_does_not_look_ahead(half, draw, garbage, n, m, at_key):
    Q, K, V = draw(n, 5), draw(m, 5), draw(m, 3)
    clean = half.linear_attention(Q, K, V, causal=True)
    V[at_key] = garbage
    spoilt = half.linear_attention(Q, K, V, causal=True)
    first = at_key + n - m
    np.testing.assert_allclose(spoilt[:first], clean[:first], rtol=1e-12)
    assert not np.isfinite(spoilt[first:]).any()


# Models and their files


def test_weights_of_a_model_made_otherwise(tmp_path):
    torch.manual_seed(3)
    path, sizes = tmp_path / "weights.pt", (11, 8)
    at.save_weights(at.LanguageModel(*sizes, n_heads=2, n_layers=1), path)
    at.load_weights(at.LanguageModel(*sizes, n_heads=2, n_layers=1, dropout=0.5), path)
    for n_heads, positions in ((4, "rotary"), (2, "alibi"), (2, None)):
        other = at.LanguageModel(*sizes, n_heads, n_layers=1, positions=positions)
        before = other.head.weight.clone()
        meets(ValueError, "was made with", at.load_weights, other, path)
        assert torch.equal(other.head.weight, before)


@pytest.mark.parametrize("cached", [True, False])
def test_a_sentence_ends(cached):
    torch.manual_seed(3)
    model = at.LanguageModel(5, 8, 2, 1).eval()
    ids = torch.tensor([[1], [2], [4]])
    free = model.generate(ids, 12, cached=cached)
    end = int(free[0, 3])
    written = model.generate(ids, 12, cached=cached, end=end)
    for row, open_row in zip(
        written[:, 1:].tolist(), free[:, 1:].tolist(), strict=True
    ):
        stop = open_row.index(end) + 1 if end in open_row else len(open_row)
        assert row[:stop] == open_row[: len(row)][:stop]
        assert set(row[stop:]) <= {end}
    alone = model.generate(ids[:1], 12, cached=cached, end=end)
    assert alone.shape[-1] <= 4 and alone[0, -1] == end


def test_recordings_within_recordings():
    torch.manual_seed(3)
    block, X = at.Block(8, 2, causal=True), torch.randn(5, 8)
    expected = block.weights(X)
    with at.record_weights(block) as outer:
        with at.record_weights(block) as inner:
            block(X)
        block(X)
    assert len(outer["attention"]) == 2 and len(inner["attention"]) == 1
    torch.testing.assert_close(inner["attention"][0], expected.detach())
    assert "attend" not in vars(block)


# Layers


def test_what_a_block_is_given():
    block = at.Block(8, 2)
    meets(
        ValueError,
        r"^Block: X has shape \(5, 7\) but needs \(…, n, 8\)",
        block,
        torch.ones(5, 7),
    )
    for layer, name in (
        (block, "Block: X"),
        (at.MultiHeadAttention(8, 2), "MultiHeadAttention: Q"),
        (at.SelfAttention(8, 2), "SelfAttention: X"),
        (lambda X: at.AdditiveAttention(8, 8, 2)(X, X, X), "AdditiveAttention: Q"),
    ):
        words = f"^{name} is torch.float64 but the layer is torch.float32; cast one"
        meets(TypeError, words, layer, torch.ones(5, 8, dtype=torch.float64))
        words = f"^{name} is on meta but the layer is on cpu; move one"
        meets(ValueError, words, layer, torch.ones(5, 8, device="meta"))


@pytest.mark.parametrize("name", ["attention", "gaussian_attention"])
def test_shapes_alone(name):
    X = torch.ones(7, 5, device="meta")
    assert getattr(at, name)(X, X, X, causal=True).shape == (7, 5)
    W, w = torch.ones(5, 3, device="meta"), torch.ones(3, device="meta")
    assert at.AdditiveAttention(5, 5, 3, device="meta")(X, X, X).shape == (7, 5)
    assert at.additive_score(X, X, W, W, w).shape == (7, 7)


# Processes


def test_a_process_that_leaves_early():
    def leave(rank, size):
        if rank:
            sys.exit(0)

    meets(RuntimeError, "process 1 ended without a result", run, leave, 2)


@pytest.mark.parametrize("pool", [ring_attention, ulysses_attention])
@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("causal", {"causal": True}),
        ("window", {"causal": True, "window": 3}),
        ("layout", {"layout": "striped"}),
        ("scale", {"scale": 2.0}),
        ("the dtype", {"dtype": torch.float16}),
        ("the axes of Q and K", {"d": 7}),
        ("the axes of Q and K", {"heads": 4}),
    ],
)
def test_processes_that_are_told_otherwise(pool, what, change):
    def attend(rank, size):
        mine = {
            "d": 5,
            "heads": 2,
            "dtype": torch.bfloat16,
            "causal": False,
            **(change if rank else {}),
        }
        if what == "window":
            mine["causal"] = True
        X = torch.ones(mine.pop("heads"), 4, mine.pop("d"), dtype=mine.pop("dtype"))
        return pool(X, X, X, **mine)

    meets(RuntimeError, f"processes differ in {what}", run, attend, 2)


def test_heads_that_do_not_split():
    def attend(rank, size):
        Q, K = torch.ones(8, 4, 5), torch.ones(6, 4, 5)
        ulysses_attention(Q, K, K)

    meets(RuntimeError, "heads of Q=8 does not split into heads of K=6", run, attend, 2)


# NaN is lost nowhere, and infinity behind a mask spoils nothing


@pytest.mark.parametrize(
    "name",
    [
        "attention",
        "bilinear_attention",
        "attention_weights",
        "gaussian_attention",
        "self_attention",
        "multi_head_attention",
    ],
)
@pytest.mark.parametrize("which", [0, -1])
def test_a_nan_that_all_see(half, inputs, name, which):
    """Nothing is hidden: a query full of NaN, and a NaN in a key or value."""
    args = inputs(name)
    own = [x for x in args if x in "QKVX"]
    args[own[which]][2] = nan
    found = getattr(half, name)(**args)
    lost = np.isnan(found)
    assert (
        lost[..., 2, :].all()
        if which == 0
        else lost.all() or name == "attention_weights"
    )


@pytest.mark.parametrize("scale", [nan, inf])
def test_scales_that_are_not_finite(half, draw, scale):
    Q, K = draw(3, 4), draw(5, 4)
    with np.errstate(all="ignore"):
        assert np.isnan(half.attention(Q, K, K, scale=scale)).all()


def test_an_infinite_key_in_half_precision():
    Q, K = torch.ones(3, 8), torch.ones(20, 8)
    K[4] = inf
    given = (X.bfloat16() for X in (Q, K, K[:, :3]))
    assert at.attention(*given).isnan().all()


@pytest.mark.parametrize(
    "name",
    ["attention", "gaussian_attention", "additive_attention", "multi_head_attention"],
)
@pytest.mark.parametrize("hidden", [nan, inf])
def test_a_bias_behind_a_mask_is_silent(half, inputs, name, hidden):
    args = inputs(name, n=7, m=7)
    above = np.triu(np.ones((7, 7)), 1) > 0
    bias = np.where(above, 0.0, np.sin(np.arange(7.0)))
    fn = getattr(half, name)
    expected = fn(**args, bias=bias, causal=True)
    with np.errstate(all="ignore"):
        found = fn(**args, bias=np.where(above, hidden, bias), causal=True)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    bias[4, 2] = nan
    spoilt = fn(**args, bias=bias, causal=True)
    assert np.isnan(spoilt[4]).all() and np.isfinite(np.delete(spoilt, 4, 0)).all()


def test_weights_in_half_precision_do_not_overflow(half):
    rng = np.random.default_rng(3)
    Q = (200 * rng.normal(size=(6, 16))).astype(np.float16)
    found = half.attention_weights(Q, Q)
    assert found.dtype == np.float16 and np.isfinite(found).all()
    wide = half.attention_weights(Q.astype(np.float32), Q.astype(np.float32))
    np.testing.assert_allclose(found, wide, atol=1e-3)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("far", [1e6, 1e7, 1e8])
def test_a_first_key_far_away(half, dtype, far):
    """Keys far, 0, 1, query 0: the weights of the last two are 1 and e^−½ in their sum."""
    K = np.array([[far], [0], [1]], dtype)
    found = half.gaussian_attention(
        np.zeros((1, 1), dtype), K, np.array([[0], [0], [1]], dtype)
    )
    np.testing.assert_allclose(found, 1 / (1 + np.exp(0.5)), rtol=1e-6)


@pytest.mark.parametrize("axes", [(), (1,), (5,)])
def test_a_bias_of_few_axes(half, draw, close, axes):
    Q, K, bias = draw(3, 4), draw(5, 4), draw(*axes) if axes else np.array(0.3)
    whole = np.broadcast_to(bias, (3, 5)).copy()
    close(
        half.attention_weights(Q, K, bias=bias),
        half.attention_weights(Q, K, bias=whole),
    )
    close(half.attention(Q, K, K, bias=bias), half.attention(Q, K, K, bias=whole))


def test_a_ring_with_an_infinite_key():
    """Whoever sees it gets NaN, among however many processes."""

    def attend(rank, size):
        from attn_tutor.torch.distributed import blocks

        mine = blocks(8, size)[rank]
        K = torch.ones(8, 4)
        K[5] = inf
        return (
            ring_attention(
                torch.ones(8, 4)[mine], K[mine], torch.ones(8, 4)[mine], layout="blocks"
            )
            .isnan()
            .all(-1)
        )

    assert all(torch.cat(run(attend, size)).all() for size in (1, 2, 3))


# The compiler


@pytest.mark.slow
def test_a_second_batch_size_is_no_new_error():
    layer, block = at.MultiHeadAttention(8, 2), at.Block(8, 2)
    for made, axes in ((layer, 2), (layer, 3), (block, 2), (block, 3)):
        torch.compiler.reset()
        whole = torch.compile(
            made,
            backend="eager",
            fullgraph=True,
            dynamic=True if made is block else None,
        )
        for b in (3, 5, 4):
            X, mask = (
                torch.randn(b, 7, 8),
                torch.ones((b, 7, 7)[-axes:], dtype=torch.bool).tril(),
            )
            options = {"mask": mask}
            torch.testing.assert_close(whole(X, **options), made(X, **options))


@pytest.mark.slow
def test_an_export_with_two_lengths():
    class Causal(torch.nn.Module):
        def forward(self, Q, K, V):
            return at.attention(Q, K, V, causal=True)

    n, m = torch.export.Dim("n", min=2), torch.export.Dim("m", min=2)
    given = tuple(torch.randn(2, k, 4) for k in (5, 9, 9))
    exported = torch.export.export(
        Causal(), given, dynamic_shapes=({1: n}, {1: m}, {1: m})
    ).module()
    for n, m in ((5, 9), (6, 6), (9, 5)):
        Q, K, V = (torch.randn(2, k, 4) for k in (n, m, m))
        torch.testing.assert_close(
            exported(Q, K, V), at.attention(Q, K, V, causal=True)
        )


@pytest.mark.parametrize("axes", [(7, 5), (20, 8)])
def test_queries_of_nothing_but_nan(half, draw, axes):
    K = draw(*axes).astype(np.float32)
    Q = np.full_like(K, nan)
    assert np.isnan(half.attention(Q, K, K)).all()
    eye = np.eye(axes[1], dtype=np.float32)
    assert np.isnan(half.bilinear_attention(Q, K, K, eye)).all()
