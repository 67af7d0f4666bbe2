"""Every form of attention, in both halves, against the textbook written slowly: one query of one sequence at a time.

Every shape of mask, causal or not, fewer, as many and more queries than keys, and lengths across the edges of tiles.
"""

import itertools
from math import sqrt

import numpy as np
import pytest

BLOCK, MORE = 256, 1024  # queries and keys, at and around which engines cut


def pool(scores, V, mask):
    """Weights and output of every query, from the words: of the permitted keys, in proportion to exp(score)."""
    weights = np.zeros(mask.shape)
    for i, may in enumerate(mask):
        if may.any():
            top = max(scores[i][may])
            weights[i][may] = np.exp(scores[i][may] - top)
            weights[i] /= weights[i].sum()
    return weights, weights @ V


def dot(Q, K, scale):
    return np.array([[scale * sum(q * k) for k in K] for q in Q]).reshape(
        len(Q), len(K)
    )


def dot_scores(Q, K, V):
    return dot(Q, K, 1 / sqrt(Q.shape[1])), V


def bilinear_scores(Q, K, V, M):
    return np.einsum("iq,qk,jk->ij", Q, M, K), V


def gaussian_scores(Q, K, V):
    return -(abs(Q[:, None] - K[None]) ** 2).sum(2) / 2, V


def additive_scores(Q, K, V, W_q, W_k, w_v):
    scores = np.zeros((len(Q), len(K)))
    for i, j in np.ndindex(*scores.shape):
        scores[i, j] = w_v @ np.tanh(Q[i] @ W_q + K[j] @ W_k)
    return scores, V


def self_scores(X, W_q, W_k, W_v):
    return dot_scores(X @ W_q, X @ W_k, X @ W_v)


def cross_scores(X, Y, W_q, W_k, W_v):
    return dot_scores(X @ W_q, Y @ W_k, Y @ W_v)


SCORES = {
    "attend": lambda scores, V: (scores, V),
    "attention": dot_scores,
    "bilinear_attention": bilinear_scores,
    "gaussian_attention": gaussian_scores,
    "additive_attention": additive_scores,
    "self_attention": self_scores,
    "cross_attention": cross_scores,
}
NOT_CAUSAL = {"cross_attention"}
MASKS = {
    "none": None,
    "all": lambda b, n, m: (),
    "keys": lambda b, n, m: (m,),
    "one row": lambda b, n, m: (1, m),
    "one column": lambda b, n, m: (n, 1),
    "pairs": lambda b, n, m: (n, m),
    "padding": lambda b, n, m: (b, 1, m),
    "batch": lambda b, n, m: (b, n, m),
}


def permission(mask, causal, n, m, window=None):
    """What the words say: not masked; causally, no key after the query, the last standing level; a few of them."""
    # By how many places a key stands before a query.
    behind = np.arange(n)[:, None] - n - (np.arange(m) - m)
    may = np.broadcast_to(True if mask is None else mask, (n, m))
    may = may & (behind >= 0) if causal else may
    return may if window is None else may & (behind < window)


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("name", SCORES)
def test_attention_is_what_the_words_say(half, close, inputs, mask_of, name, kind):
    for (n, m), causal in itertools.product(
        [(7, 11), (11, 7), (7, 7), (1, 5)], [False, True]
    ):
        if causal and name in NOT_CAUSAL:
            continue
        m = n if name == "self_attention" else m
        args = inputs(name, batch=(2,), n=n, m=m)
        mask = MASKS[kind] and mask_of(*MASKS[kind](2, n, m))
        flags = {} if name in NOT_CAUSAL else {"causal": causal}
        output = getattr(half, name)(**args, mask=mask, **flags)
        for b in range(2):
            here = mask if mask is None or mask.ndim < 3 else mask[b]
            scores, V = SCORES[name](*(x[b] for x in args.values()))
            close(output[b], pool(scores, V, permission(here, causal, n, m))[1])


@pytest.mark.parametrize("window", [1, 2, 5, 11, 30])
@pytest.mark.parametrize("kind", ["none", "padding", "batch"])
@pytest.mark.parametrize("name", [name for name in SCORES if name not in NOT_CAUSAL])
def test_a_window_is_what_the_words_say(
    half, close, inputs, mask_of, name, kind, window
):
    for n, m in [(7, 11), (11, 7), (7, 7), (1, 5)]:
        m = n if name == "self_attention" else m
        args = inputs(name, batch=(2,), n=n, m=m)
        mask = MASKS[kind] and mask_of(*MASKS[kind](2, n, m))
        output = getattr(half, name)(**args, mask=mask, causal=True, window=window)
        for b in range(2):
            here = mask if mask is None else mask[b]
            scores, V = SCORES[name](*(x[b] for x in args.values()))
            may = permission(here, True, n, m, window)
            close(output[b], pool(scores, V, may)[1])


BIASES = {
    "one": lambda b, n, m: (),
    "keys": lambda b, n, m: (m,),
    "one column": lambda b, n, m: (n, 1),
    "pairs": lambda b, n, m: (n, m),
    "batch": lambda b, n, m: (b, n, m),
}


@pytest.mark.parametrize("hides", [False, True], ids=["finite", "hides"])
@pytest.mark.parametrize("kind", BIASES)
@pytest.mark.parametrize("name", SCORES)
def test_a_bias_is_what_the_words_say(half, close, inputs, draw, name, kind, hides):
    for (n, m), causal in itertools.product([(7, 11), (11, 7), (1, 5)], [False, True]):
        if causal and name in NOT_CAUSAL:
            continue
        m = n if name == "self_attention" else m
        args = inputs(name, batch=(2,), n=n, m=m)
        bias = np.asarray(2 * draw(*BIASES[kind](2, n, m)))
        if hides:
            bias = np.where(bias > 0.5, -np.inf, bias)
        flags = {} if name in NOT_CAUSAL else {"causal": causal}
        output = getattr(half, name)(**args, bias=bias, **flags)
        added = np.broadcast_to(bias, (2, n, m))
        for b in range(2):
            scores, V = SCORES[name](*(x[b] for x in args.values()))
            may = permission(np.isfinite(added[b]), causal, n, m)
            close(output[b], pool(np.where(may, scores + added[b], 0), V, may)[1])


HEAD_MASKS = {
    "none": None,
    "pairs": lambda b, h, n, m: (n, m),
    "padding": lambda b, h, n, m: (b, 1, m),
    "batch": lambda b, h, n, m: (b, n, m),
    "heads": lambda b, h, n, m: (1, h, n, m),
    "padding, heads": lambda b, h, n, m: (b, 1, 1, m),
    "all": lambda b, h, n, m: (b, h, n, m),
}


@pytest.mark.parametrize("kind", HEAD_MASKS)
@pytest.mark.parametrize(("h", "h_kv"), [(1, 1), (3, 3), (6, 2), (5, 1)])
def test_multi_head_attention_is_what_the_words_say(
    half, close, inputs, draw, mask_of, h, h_kv, kind
):
    d_h, d_hv = 3, 2
    for (n, m), (causal, window) in itertools.product(
        [(7, 11), (11, 7), (5, 5)], [(False, None), (True, None), (True, 3)]
    ):
        sizes = dict(a=h * d_h, b=h_kv * d_h, c=h_kv * d_hv, e=h * d_hv)
        args = inputs("multi_head_attention", n=n, m=m, **sizes) | {"n_heads": h}
        for name in "QKV":
            args[name] = draw(2, *args[name].shape)
        mask = HEAD_MASKS[kind] and mask_of(*HEAD_MASKS[kind](2, h, n, m))
        bias = draw(h, n, m) if window else None
        common = dict(mask=mask, causal=causal, window=window, bias=bias)
        common["n_kv_heads"] = h_kv
        output = half.multi_head_attention(**args, **common)
        Q, K, V, W_q, W_k, W_v, W_o, _ = args.values()
        weights = half.multi_head_weights(Q, K, W_q, W_k, h, **common)
        if mask is not None and mask.ndim == 3:
            mask = mask[:, None]
        everywhere = np.broadcast_to(True if mask is None else mask, (2, h, n, m))
        for b in range(2):
            queries, keys, values = (
                X[b] @ W for X, W in zip((Q, K, V), (W_q, W_k, W_v), strict=True)
            )
            heads = []
            for i in range(h):
                shared = i * h_kv // h
                q, k = queries[:, i * d_h :][:, :d_h], keys[:, shared * d_h :][:, :d_h]
                v = values[:, shared * d_hv :][:, :d_hv]
                scores = dot(q, k, 1 / sqrt(d_h)) + (0 if bias is None else bias[i])
                may = permission(everywhere[b, i], causal, n, m, window)
                A, O = pool(scores, v, may)
                close(weights[b, i], A)
                heads.append(O)
            close(output[b], np.hstack(heads) @ W_o)


@pytest.mark.parametrize("fall", [1000.0, -1000.0])
def test_scores_that_fall_or_rise_by_a_thousand_from_tile_to_tile(half, close, fall):
    """exp(1000) is too much for any float: what was summed may shrink, and never grow."""
    m = 2 * BLOCK
    K = np.where(np.arange(m) < BLOCK, fall, 0)[:, None]
    V = np.arange(float(m))[:, None]
    best = V[:BLOCK] if fall > 0 else V[BLOCK:]
    close(half.attention(np.ones((1, 1)), K, V), best.mean(0, keepdims=True))


@pytest.mark.parametrize("scale", [0.0, 0.3, -2.0])
def test_scale_replaces_the_root(half, close, draw, scale):
    Q, K, V = draw(7, 5), draw(11, 5), draw(11, 3)
    A, O = pool(dot(Q, K, scale), V, np.ones((7, 11), bool))
    close(half.attention(Q, K, V, scale=scale), O)
    close(half.attention_weights(Q, K, scale=scale), A)


@pytest.mark.parametrize("scale", [0.0, 0.3, -2.0])
@pytest.mark.parametrize(("n", "m"), [(7, 7), (7, 11), (11, 7)])
def test_scale_leaves_the_future_hidden(half, close, draw, scale, n, m):
    """Some kernels hide a score as scale · (−∞), which is NaN for scale 0 and shows everything below."""
    Q, K, V = draw(n, 5), draw(m, 5), draw(m, 3)
    A, O = pool(dot(Q, K, scale), V, permission(None, True, n, m))
    close(half.attention(Q, K, V, causal=True, scale=scale), O)
    close(half.attention_weights(Q, K, causal=True, scale=scale), A)


def test_a_mask_that_hides_nothing_changes_nothing(half, close):
    """Queries and keys far from 1, whose products are not: nothing may be cut to size."""
    Q, K, V = np.array([[1e25]]), np.array([[1e-25], [3e-25]]), np.array([[1.0], [2.0]])
    see_all = np.ones((1, 2), bool)
    close(half.attention(Q, K, V, see_all), half.attention(Q, K, V))
    close(half.attention(Q, K, V)[0, 0], 1 + 1 / (1 + np.exp(-2.0)))


def test_nan_is_not_an_empty_window(half):
    Q, K, V = np.array([[np.nan]]), np.array([[0.0], [2.0]]), np.array([[4.0], [8.0]])
    assert np.isnan(half.nadaraya_watson(Q, K, V)).all()
    assert np.isnan(half.normalize(np.array([[1.0, np.nan]]))).any()


@pytest.mark.parametrize("bandwidth", [0.5, 3.0])
def test_bandwidth_divides_distances(half, close, draw, bandwidth):
    Q, K, V = draw(7, 2), draw(11, 2), draw(11, 3)
    A, O = pool(gaussian_scores(Q, K, V)[0] / bandwidth**2, V, np.ones((7, 11), bool))
    close(half.gaussian_attention(Q, K, V, bandwidth=bandwidth), O)
    close(half.nadaraya_watson(Q, K, V, bandwidth=bandwidth), O)
    close(half.normalize(half.gaussian_kernel(Q, K, bandwidth)), A)


EDGES = [
    MORE - 1,
    MORE,
    MORE + 1,
    BLOCK - 1,
    BLOCK,
    BLOCK + 1,
    520,
]


@pytest.mark.parametrize(
    ("n", "m"),
    [(e, 2) for e in EDGES[:3]] + [(3, e) for e in EDGES] + [(520, 520), (520, 261)],
)
def test_tiles_join_without_a_seam(half, close, draw, mask_of, n, m):
    Q, K, V = 2 * draw(n, 3), draw(m, 3), draw(m, 2)
    K[:, 0] += np.linspace(
        -4, 4, m
    )  # the largest score moves from tile to tile, up for some queries, down for others
    mask = mask_of(n, m)
    mask[0] = False
    if m > BLOCK:
        mask[1, :BLOCK] = False  # nothing permitted in the first tile
    scores = Q @ K.T / sqrt(3)
    bias = draw(n, m)
    for allowed, causal, window, added in [
        (None, False, None, None),
        (None, True, None, None),
        (mask, False, None, None),
        (mask, True, None, bias),
        (None, True, 3, bias),
        (mask, True, 200, None),
    ]:
        may = permission(allowed, causal, n, m, window)
        biased = scores if added is None else scores + added
        unscaled = np.exp(biased - biased.max(1, keepdims=True)) * may
        total = unscaled.sum(1, keepdims=True)
        expected = unscaled @ V / np.where(total == 0, 1, total)
        options = dict(causal=causal, window=window, bias=added)
        close(half.attention(Q, K, V, allowed, **options), expected)


def test_weights_take_the_window_and_the_bias_of_attention(half, close, inputs, draw):
    """What attention does with them, each on its own, is held above by the words."""
    Q, K, V = inputs("attention", batch=(2,), n=7, m=11).values()
    for options in ({"causal": True, "window": 3}, {"bias": draw(2, 7, 11)}):
        weights = half.attention_weights(Q, K, **options)
        close(weights @ V, half.attention(Q, K, V, **options))
