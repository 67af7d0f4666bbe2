"""What changes the function (linear attention, the delta rule, latents, windows with sinks, eight bits, drafts) against
the words, written slowly.
"""

import numpy as np
import pytest
import torch

import attn_tutor.numpy as an
import attn_tutor.torch as at


def slow_linear(Q, K, V, causal, phi):
    """Query by query: weights are products of features, divided by their sum."""
    n, m = len(Q), len(K)
    out = np.zeros((n, V.shape[1]))
    for i in range(n):
        seen = [j for j in range(m) if not causal or j <= i + m - n]
        weights = np.array([phi(Q[i]) @ phi(K[j]) for j in seen])
        if seen:
            out[i] = weights @ V[seen] / weights.sum()
    return out


def phi(x):
    return np.array([y + 1 if y > 0 else np.exp(y) for y in x])


# 64 rows share a chunk: one row, a chunk, a row more, several
@pytest.mark.parametrize(
    ("n", "m"), [(7, 11), (11, 7), (1, 5), (64, 64), (65, 67), (131, 140), (70, 3)]
)
@pytest.mark.parametrize("causal", [False, True])
def test_linear_attention(half, close, draw, n, m, causal):
    Q, K, V = draw(n, 5), draw(m, 5), draw(m, 3)
    expected = slow_linear(Q, K, V, causal, phi)
    close(half.linear_attention(Q, K, V, causal=causal), expected)


def test_linear_attention_takes_other_features(halves, close, draw):
    """Squares, two of them twice: the features need not have the width of the keys."""
    Q, K, V = draw(7, 5), draw(11, 5), draw(11, 3)

    def squares(X):
        return X[..., [0, 1, 2, 3, 4, 0, 1]] ** 2

    expected = slow_linear(Q, K, V, True, squares)
    for half in halves:
        found = half.module.linear_attention(
            *map(half.give, (Q, K, V)), causal=True, feature_map=squares
        )
        close(found, expected)


def test_linear_attention_refuses_negative_features(halves, draw):
    for half in halves:
        args = [half.give(draw(4, 3)) for _ in "QKV"]
        for wrong, message in (
            (lambda X: X, "some features are negative"),
            (lambda X: X[..., :1, :] ** 2, "it must keep the rows"),
        ):
            with pytest.raises(ValueError, match=f"linear_attention: .*{message}"):
                half.module.linear_attention(*args, feature_map=wrong)


def test_delta_rule(half, close, draw):
    Q, K, V, beta = draw(7, 5), draw(7, 5), draw(7, 3), draw(7)
    S, expected = np.zeros((5, 3)), []
    for q, k, v, b in zip(Q, K, V, beta, strict=True):
        k = k / np.sqrt(k @ k)
        S = (np.eye(5) - b * np.outer(k, k)) @ S + b * np.outer(k, v)
        expected.append(q @ S)
    close(half.delta_rule(Q, K, V, beta), np.array(expected))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", [(), (2, 7, 11), (2, 3, 7, 11)])
def test_latent_attention(half, close, draw, mask_of, causal, mask):
    """Keys and values of each head made of the latents, as the paper's formulas have them, position by position."""
    h, d_h, d_hv, r, c = 3, 5, 7, 2, 11
    X, C, R = draw(2, 7, 13), draw(2, 11, c), draw(2, 11, r)
    W_q, W_r, W_k, W_v = (draw(13, h * d_h), draw(13, h * r), draw(c, h * d_h), draw(c, h * d_hv))  # fmt: skip
    W_q, W_r, W_k, W_v, W_o = (W / 4 for W in (W_q, W_r, W_k, W_v, draw(h * d_hv, 19)))
    seen = mask_of(*mask) if mask else np.array(True)
    by_head = seen if len(mask) == 4 else seen[..., None, :, :] if mask else seen
    may = np.broadcast_to(by_head, (2, h, 7, 11)) & (
        np.tri(7, 11, 4) > 0 if causal else True
    )
    expected = np.zeros((2, 7, 19))
    for b, i, g in np.ndindex(2, 7, h):
        q = X[b, i] @ W_q[:, g * d_h : (g + 1) * d_h]
        turned = X[b, i] @ W_r[:, g * r : (g + 1) * r]
        a = i + 4  # the query's position: the last query stands at the last key
        turn = np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]])
        keys = C[b] @ W_k[:, g * d_h : (g + 1) * d_h]
        values = C[b] @ W_v[:, g * d_hv : (g + 1) * d_hv]
        scores = (keys @ q + R[b] @ (turn @ turned)) / np.sqrt(d_h + r)
        weights = np.exp(scores) * may[b, g, i]
        if weights.any():
            head = weights / weights.sum() @ values
            expected[b, i] += head @ W_o[g * d_hv : (g + 1) * d_hv]
    found = half.latent_attention(
        X, C, R, W_q, W_r, W_k, W_v, W_o, h, seen if mask else None, causal=causal
    )
    close(found, expected)


def test_latent_attention_decodes_from_a_cache_of_latents(halves, close, draw):
    """Token by token, with what one cache holds, as all at once."""
    X, C, R = draw(7, 13), draw(7, 11), draw(7, 2)
    W = [draw(13, 15) / 4, draw(13, 6) / 4, draw(11, 15) / 4, draw(11, 21) / 4]
    W.append(draw(21, 17) / 4)
    for half in halves:
        whole = half.latent_attention(X, C, R, *W, 3, causal=True)
        cache = half.module.KVCache()
        for t in range(7):
            held = cache.append(half.give(C[t : t + 1]), half.give(R[t : t + 1]))
            one = half.latent_attention(
                X[t : t + 1], *map(half.back, held), *W, 3, causal=True
            )
            close(one, whole[t : t + 1])


def test_latent_attention_refuses(half, draw):
    X, C, R = draw(7, 13), draw(11, 11), draw(11, 2)
    W_q, W_k, W_v, W_o = draw(13, 15), draw(11, 15), draw(11, 21), draw(21, 17)
    with pytest.raises(ValueError, match="W_r has 5 columns but 3 heads as wide as R need 6"):  # fmt: skip
        half.latent_attention(X, C, R, W_q, draw(13, 5), W_k, W_v, W_o, 3)
    with pytest.raises(ValueError, match="latent_attention: the width of W_q=15"):
        half.latent_attention(X, C, R, W_q, draw(13, 4), W_k, W_v, W_o, 2)


@pytest.mark.parametrize(("window", "sinks"), [(3, 0), (1, 2), (4, 2), (100, 3)])
@pytest.mark.parametrize("step", [1, 3])
def test_a_cache_with_a_window_and_sinks(halves, close, draw, window, sinks, step):
    """What each query gets is attention under the mask: the last ``window`` keys, and the sinks."""
    Q, K, V = draw(2, 12, 5), draw(2, 12, 5), draw(2, 12, 3)
    i, j = np.arange(12)[:, None], np.arange(12)
    mask = (j <= i) & ((j > i - window) | (j < sinks))
    for half in halves:
        whole = half.attention(Q, K, V, mask)
        cache, parts = half.module.KVCache(window=window, sinks=sinks), []
        for t in range(0, 12, step):
            new = slice(t, t + step)
            keys, values = map(
                half.back,
                cache.append(half.give(K[:, new]), half.give(V[:, new])),
            )
            assert len(cache) == keys.shape[-2] <= sinks + window + step - 1
            held, late = list(range(t + step)), t - (window - 1)
            held = held[:sinks] + held[late:] if late > sinks else held
            seen = mask[new][:, held]
            parts.append(half.attention(Q[:, new], keys, values, seen))
        close(np.concatenate(parts, 1), whole)


def test_a_window_that_nobody_can_use(half):
    with pytest.raises(ValueError, match="KVCache: window must be 1 or more, got 0"):
        half.module.KVCache(window=0)
    with pytest.raises(ValueError, match="KVCache: sinks=2 are kept when others are"):
        half.module.KVCache(sinks=2)


@pytest.mark.parametrize("axis", [-1, -2])
def test_eight_bits(half, close, draw, axis):
    """Half a step off at most, in each row (or column) by its own step; zeros stay zeros."""
    X = draw(2, 7, 5) * 10.0 ** np.arange(5)
    X[0, 3] = X[..., 2] = 0
    codes, scales = half.quantize(X, axis=axis)
    assert codes.dtype == np.int8
    close(scales, abs(X).max(axis, keepdims=True) / 127)
    assert (abs(codes * scales - X) <= scales / 2 * (1 + 1e-9)).all()
    assert abs(codes).max() == 127 and not codes[X == 0].any()


def test_eight_bits_refuse(half):
    with pytest.raises(TypeError, match="quantize: X must hold floating-point numbers"):
        half.quantize(np.arange(6).reshape(2, 3))
    with pytest.raises(ValueError, match="quantize: X holds NaN or infinity"):
        half.quantize(np.array([[1.0, np.nan]]))


@pytest.mark.slow
def test_drafts_leave_the_distribution_as_it_is(half):
    """Every guess and a fine grid of random numbers: the first token has the large model's probabilities."""
    p = np.array([[0.5, 0.3, 0.2, 0.0], [0.1, 0.2, 0.3, 0.4]])
    q = np.array([[0.1, 0.6, 0.2, 0.1]])
    steps = 40
    grid = (np.arange(steps) + 0.5) / steps
    written, second = np.zeros(4), np.zeros(4)
    for guess in range(4):
        for u in grid:
            for w in grid:
                tokens = half.accept_draft(p, q, np.array([guess]), np.array([u, w]))
                written[tokens[0]] += q[0, guess] / steps**2
                if len(tokens) > 1:
                    second[tokens[1]] += q[0, guess] / steps**2
    np.testing.assert_allclose(written, p[0], atol=0.01)
    np.testing.assert_allclose(second / second.sum(), p[1], atol=0.01)
    np.testing.assert_allclose(second.sum(), np.minimum(p, q)[0].sum(), atol=0.01)


def test_guesses_after_a_refused_one_are_dropped(half, close):
    p = np.full((4, 2), 0.5)
    q = np.array([[0.5, 0.5], [0.1, 0.9], [0.5, 0.5]])
    tokens = half.accept_draft(p, q, np.array([1, 1, 0]), np.array([0.9, 0.9, 0, 0]))
    close(tokens, np.array([1, 0]))  # 0.9 · 0.9 ≥ 0.5; what is left of p − q is token 0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"target": np.ones((2, 3))}, "target has shape .2, 3. but 2 guesses need"),
        ({"draft": np.ones((2, 4))}, "draft has shape .2, 4. but 2 guesses need"),
        ({"uniform": np.ones(2)}, "uniform has shape .2,. but 2 guesses need .3,."),
    ],
)
def test_drafts_that_do_not_fit(half, wrong, message):
    right = {
        "target": np.ones((3, 3)) / 3,
        "draft": np.ones((2, 3)) / 3,
        "tokens": np.array([0, 1]),
        "uniform": np.zeros(3),
    }
    with pytest.raises(ValueError, match=f"accept_draft: {message}"):
        half.accept_draft(**right | wrong)
    with pytest.raises(TypeError, match="accept_draft: tokens must be whole numbers"):
        half.accept_draft(**right | {"tokens": np.array([0.0, 1.0])})


def test_a_replacement_is_always_a_token(half):
    """p ≤ q everywhere, by rounding, leaves nothing to draw from."""
    p = np.array([[0.5, 0.4999999], [0.5, 0.5]])
    q, uniform = np.array([[0.5, 0.5]]), np.array([0.99999999, 0.3])
    assert half.accept_draft(p, q, np.array([1]), uniform).tolist() == [0]


@pytest.mark.parametrize("token", [-1, 7])
def test_guesses_are_tokens(half, token):
    p, q = np.full((2, 2), 0.5), np.full((1, 2), 0.5)
    args = p, q, np.array([token]), np.array([0.5, 0.5])
    with pytest.raises(ValueError, match=r"tokens must lie in 0 … 1, got"):
        half.accept_draft(*args)


@pytest.mark.parametrize("number", [1.0, -0.1, np.nan])
def test_chances_of_a_draft(half, number):
    p, q = np.full((2, 2), 0.5), np.full((1, 2), 0.5)
    args = p, q, np.array([0]), np.array([0.5, number])
    with pytest.raises(ValueError, match=r"outside \[0, 1\)"):
        half.accept_draft(*args)


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


@pytest.mark.parametrize("garbage", [np.nan, np.inf])
@pytest.mark.parametrize(("n", "m", "at_key"), [(70, 70, 5), (70, 70, 66), (9, 4, 2)])
def test_linear_attention_does_not_look_ahead(half, draw, garbage, n, m, at_key):
    Q, K, V = draw(n, 5), draw(m, 5), draw(m, 3)
    clean = half.linear_attention(Q, K, V, causal=True)
    V[at_key] = garbage
    spoilt = half.linear_attention(Q, K, V, causal=True)
    first = at_key + n - m
    np.testing.assert_allclose(spoilt[:first], clean[:first], rtol=1e-12)
    assert not np.isfinite(spoilt[first:]).any()
