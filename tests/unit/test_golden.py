"""Numbers that a person can check with a pencil, in both halves."""

import re
from math import cos, log, pi, sin, sqrt
from pathlib import Path

import numpy as np
import pytest

import attn_tutor.numpy as an

LN3 = log(3)  # e^LN3 : e^0 = 3 : 1, so the softmax of [ln 3, 0] is [3/4, 1/4]
LN9 = log(9)  # and that of [ln 9, 0] is [9/10, 1/10]


def row(*numbers):
    return np.array([numbers], dtype=float)


def column(*numbers):
    return row(*numbers).T


def test_every_function_has_an_example():
    source = Path(__file__).read_text(encoding="utf-8")
    # Names with tests of their own.
    searches = {"KVCache", "greedy_search", "exhaustive_search", "beam_search"}
    missing = [x for x in an.__all__ if not re.search(rf"\b{x}\b", source)]
    assert set(missing) <= searches, (
        f"tests/unit/test_golden.py lacks some of {missing}"
    )


# Scores


def test_dot_score(half, close):
    Q, K = np.array([[1.0, 2], [0, -1]]), np.array([[3.0, 1], [1, 0], [2, 2]])
    close(half.dot_score(Q, K), np.array([[3.0 + 2, 1, 2 + 4], [-1, 0, -2]]))


def test_scaled_dot_score_divides_by_the_root_of_the_width(half, close):
    # 1·2 + 1·4 + 1·6 + 1·8 = 20; √4 = 2
    close(half.scaled_dot_score(row(1, 1, 1, 1), row(2, 4, 6, 8)), row(10))
    close(half.scaled_dot_score(row(1, 1, 1, 1), row(2, 4, 6, 8), scale=0.25), row(5))
    # nine ones: 9 / √9
    close(half.scaled_dot_score(np.ones((1, 9)), np.ones((1, 9))), row(3))


def test_bilinear_score(half, close):
    # [1, 2] M = [1, 6, 2]; · [1, 1, 1] = 9; · [0, 1, −1] = 4
    M = np.array([[1.0, 0, 2], [0, 3, 0]])
    close(
        half.bilinear_score(row(1, 2), np.array([[1.0, 1, 1], [0, 1, -1]]), M),
        row(9, 4),
    )


def test_additive_score(half, close):
    # tanh(x) = (e^2x − 1)/(e^2x + 1): tanh(½ ln 3) = 2/4 and tanh(ln 3) = 8/10.
    # q W_q + k W_k = [½ ln 3 + ½ ln 3, 0 − ½ ln 3]; 10 · 0.8 + 2 · (−0.5) = 7
    q, k, W_q, W_k = row(LN3 / 2), row(LN3 / 2), row(1, 0), row(1, -1)
    close(half.additive_score(q, k, W_q, W_k, np.array([10.0, 2])), row(7))


def test_gaussian_score(half, close):
    # squared distances 3² + 4² = 25 and 1
    Q, K = row(0, 0), np.array([[3.0, 4], [0, 1]])
    close(half.gaussian_score(Q, K), row(-12.5, -0.5))
    close(half.gaussian_score(Q, K, bandwidth=5.0), row(-0.5, -0.02))


# Kernels. Keys at distance 5, 2.5 and 0 from the query; with bandwidth 5 that is u = 1, ½ and 0.

KEYS = np.array([[3.0, 4], [1.5, 2], [0, 0]])


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        ("gaussian_kernel", [np.exp(-1 / 2), np.exp(-1 / 8), 1]),
        ("boxcar_kernel", [1, 1, 1]),  # the edge belongs to the window
        ("triangular_kernel", [0, 1 / 2, 1]),
        ("epanechnikov_kernel", [0, 3 / 4 * 3 / 4, 3 / 4]),
    ],
)
def test_kernels(half, close, kernel, expected):
    close(getattr(half, kernel)(row(0, 0), KEYS, bandwidth=5.0), row(*expected))


@pytest.mark.parametrize(
    "kernel", ["boxcar_kernel", "triangular_kernel", "epanechnikov_kernel"]
)
def test_windows_are_empty_outside(half, close, kernel):
    close(getattr(half, kernel)(row(0, 0), KEYS[:2], bandwidth=2.4), row(0, 0))


# Weights


def test_softmax(half, close):
    close(half.softmax(np.array([LN3, 0])), np.array([3 / 4, 1 / 4]))
    close(
        half.softmax(np.array([1000 + LN3, 1000])), np.array([3 / 4, 1 / 4]), "float32"
    )
    close(
        half.softmax(np.array([[LN3, 5], [0, 5]]), axis=0),
        np.array([[3 / 4, 1 / 2], [1 / 4, 1 / 2]]),
    )
    close(
        half.softmax(np.array([[LN3, 0], [LN9, 0]])),
        np.array([[3 / 4, 1 / 4], [9 / 10, 1 / 10]]),
    )


def test_masked_softmax(half, close):
    scores = np.array([[LN3, 0, 99], [LN3, 5, LN9], [1, 2, 3]])
    mask = np.array([[True, True, False], [True, False, True], [False, False, False]])
    # e^ln3 : e^ln9 = 3 : 9 = 1 : 3
    close(
        half.masked_softmax(scores, mask),
        np.array([[3 / 4, 1 / 4, 0], [1 / 4, 0, 3 / 4], [0, 0, 0]]),
    )


def test_normalize(half, close):
    close(
        half.normalize(np.array([[1.0, 3], [0, 0], [2, 2]])),
        np.array([[1 / 4, 3 / 4], [0, 0], [1 / 2, 1 / 2]]),
    )


# Attention and its kin: weights 3/4 and 1/4 on the values 4 and 8 give 5.

VALUES = column(4, 8)


def test_attend(half, close):
    # ¾ [4, 0] + ¼ [0, 8] = [3, 2]
    V = np.array([[4.0, 0], [0, 8]])
    close(half.attend(row(LN3, 0), V), row(3, 2))
    close(half.attend(row(LN3, 0), V, np.array([[False, True]])), row(0, 8))


def test_attention_and_its_weights(half, close):
    # d = 4: the dot product 2 ln 3 is scaled by ½; unscaled it is ln 9
    Q, K = row(2, 0, 0, 0), np.array([[LN3, 7, 7, 7], [0, 7, 7, 7]])
    close(half.attention_weights(Q, K), row(3 / 4, 1 / 4))
    close(half.attention(Q, K, VALUES), row(5))
    close(half.attention_weights(Q, K, scale=1.0), row(9 / 10, 1 / 10))
    close(half.attention(Q, K, VALUES, scale=1.0), row(4.4))


def test_partial_attention_and_merge(half, close):
    # exp of the scores: 3 and 1, then 9 and 3. Outputs ¾ 4 + ¼ 8 = 5 twice; sums 4 and 12.
    one, two = column(LN3, 0), column(LN9, LN3)
    first = half.partial_attention(row(1), one, VALUES)
    second = half.partial_attention(row(1), two, VALUES + 8)
    close(first[0], row(5))
    close(first[1], row(log(4)))
    # ¼ 5 + ¾ 13 = 11, and 4 + 12 = 16
    output, log_sum = half.merge(*first, *second)
    close(output, row(11))
    close(log_sum, row(log(16)))
    hidden = np.array([[True, False]])
    close(half.partial_attention(row(1), one, VALUES, hidden, scale=2.0)[0], row(4))
    close(half.partial_attention(row(1), one, VALUES, hidden, scale=2.0)[1], row(LN9))


def test_a_sink_takes_its_share_of_the_weight(half, close):
    # exp of the scores: 3 and 1; beside a sink of exp 0 = 1 the weights are 3/5 and 1/5, and 12/5 + 8/5 = 4.
    keys = column(LN3, 0)
    close(half.sink_attention(row(1), keys, VALUES), row(4))
    # A sink of 4 takes half of 5, one of 12 three quarters; one that scores −∞ nothing.
    for s, output in ((log(4), 5 / 2), (log(12), 5 / 4), (-np.inf, 5)):
        close(half.sink_attention(row(1), keys, VALUES, sink_logits=s), row(output))
    # Two heads, each with its own; the second sees the second key alone, 8/(1 + 1), and the last query nothing.
    Q, K, V = (np.stack([x, x]) for x in (column(1, 1), keys, VALUES))
    mask = np.array([[[True, True], [False, False]], [[False, True], [False, False]]])
    output = half.sink_attention(Q, K, V, mask, sink_logits=np.array([log(4), 0]))
    close(output, np.array([[[5 / 2], [0]], [[4], [0]]]))


def test_causal_attention_is_aligned_lower_right(half, close):
    # Zero queries attend evenly to what they may see: the last query to all keys, the one before to all but one.
    V = column(6, 12, 18)
    close(
        half.attention(np.zeros((2, 1)), np.ones((3, 1)), V, causal=True), column(9, 12)
    )
    # The first query sees nothing where keys are fewer than queries.
    close(
        half.attention(np.zeros((3, 1)), np.ones((2, 1)), V[:2], causal=True),
        column(0, 6, 9),
    )
    close(
        half.attention_weights(np.zeros((2, 1)), np.ones((3, 1)), causal=True),
        np.array([[3, 3, 0], [2, 2, 2]]) / 6,
    )


def test_bilinear_attention(half, close):
    # q M = [2, 2]; scores 2 · ½ ln 3 and 0
    K = np.array([[LN3 / 2, 0], [0, 0]])
    close(half.bilinear_attention(row(1), K, VALUES, row(2, 2)), row(5))


def test_gaussian_attention(half, close):
    # distances 0 and √(2 ln 3): scores 0 and −ln 3; at twice the distance half as far in units of σ = 2
    far = sqrt(2 * LN3)
    close(half.gaussian_attention(row(1), column(1, 1 + far), VALUES), row(5))
    close(
        half.gaussian_attention(row(1), column(1, 1 - 2 * far), VALUES, bandwidth=2.0),
        row(5),
    )


def test_additive_attention(half, close):
    # 2 ln 3 · tanh(½ ln 3) = ln 3, and tanh 0 = 0; only the key differs
    q, K, one, w_v = row(0), column(LN3 / 2, 0), row(1), np.array([2 * LN3])
    close(half.additive_attention(q, K, VALUES, one, one, w_v), row(5))


def test_nadaraya_watson(halves, close):
    for half in halves:
        # triangular: u = ¼ and ¾ give weights ¾ and ¼; boxcar: the mean; nothing within reach: 0
        Q, K = column(0, 100), column(1, -3)
        triangular, boxcar = half.module.triangular_kernel, half.module.boxcar_kernel
        close(half.nadaraya_watson(Q, K, VALUES, triangular, 4.0), column(5, 0))
        close(half.nadaraya_watson(Q, K, VALUES, boxcar, 4.0), column(6, 0))
        close(half.nadaraya_watson(row(0), column(0, sqrt(2 * LN3)), VALUES), row(5))


def test_self_attention(half, close):
    # q = [1, 2] from the first column, k = [0, ln 3] from the second, v = 4 · the first = [4, 8]
    X, W_q, W_k, W_v = (
        np.array([[1, 0], [2, LN3]]),
        column(1, 0),
        column(0, 1),
        column(4, 0),
    )
    # scores [0, ln 3] and [0, ln 9]: ¼ · 4 + ¾ · 8 = 7 and 0.1 · 4 + 0.9 · 8 = 7.6
    close(half.self_attention(X, W_q, W_k, W_v), column(7, 7.6))
    close(half.self_attention(X, W_q, W_k, W_v, causal=True), column(4, 7.6))
    close(
        half.self_attention(
            X, W_q, W_k, W_v, np.array([[True, False], [False, False]])
        ),
        column(4, 0),
    )


def test_cross_attention(half, close):
    Y = np.array([[0, 4], [LN3, 8]])
    close(half.cross_attention(row(1), Y, row(1), column(1, 0), column(0, 1)), row(7))


# What changes the function


def test_linear_attention_and_its_features(half, close):
    # features 1 and 3 of the keys, 2 of the query: weights 2 : 6; causally the first query sees the first key alone
    close(half.elu_features(row(0, 2, -LN3)), row(1, 3, 1 / 3))
    Q, K = column(1, 1), column(0, 2)
    close(half.linear_attention(Q, K, VALUES), column(7, 7))
    close(half.linear_attention(Q, K, VALUES, causal=True), column(4, 7))


def test_delta_rule(half, close):
    # The same key twice: half of the way from 0 to 4 is 2, then from 2 to 8 it is 5. Plain sums would hold 2 + 4.
    found = half.delta_rule(column(1, 1), column(3, 5), VALUES, np.array([0.5, 0.5]))
    close(found, column(2, 5))


def test_latent_attention(half, close):
    # The query 1 asks latents [0, √3 ln 3] (width 1, and 2 for the position: the scale is 1/√3); values are latents.
    one, none, R = row(1), np.zeros((1, 2)), np.zeros((2, 2))
    C = column(0, sqrt(3) * LN3)
    found = half.latent_attention(one, C, R, one, none, one, row(4), one, 1)
    close(found, row(4 * 3 / 4 * sqrt(3) * LN3))


def test_quantize(half, close):
    codes, scales = half.quantize(row(12.7, -25.4, 0))
    close(codes.astype(float), row(64, -127, 0))  # 63.5 is rounded to the even number
    close(scales, row(0.2))


def test_accept_draft(half, close):
    # The guess 1 has p = 0.3 and q = 0.6: kept for a random number below 0.5; else token 0, as p − q is [0.3, −0.3].
    p, q = np.array([[0.7, 0.3], [0.25, 0.75]]), row(0.4, 0.6)
    kept = half.accept_draft(p, q, np.array([1]), np.array([0.49, 0.3]))
    close(kept, np.array([1, 1]))
    refused = half.accept_draft(p, q, np.array([1]), np.array([0.51, 0.9]))
    close(refused, np.array([0]))


# Heads


def test_heads_are_cut_from_the_width_of_each_token(half, close):
    tokens = np.array([[1.0, 2, 3, 4, 5, 6], [7, 8, 9, 10, 11, 12]])
    heads = np.array([[[1.0, 2], [7, 8]], [[3, 4], [9, 10]], [[5, 6], [11, 12]]])
    close(half.split_heads(tokens, 3), heads)
    close(half.merge_heads(heads), tokens)


def test_multi_head_attention(half, close):
    # Two heads of width 1. Head 1: scores 1 · [0, ln 3], ¼ · 4 + ¾ · 8 = 7;
    # head 2: scores 2 · [0, ln 3], 0.1 · 40 + 0.9 · 80 = 76.
    Q, K, V, eye = (
        row(1, 2),
        np.array([[0, 0], [LN3, LN3]]),
        np.array([[4.0, 40], [8, 80]]),
        np.eye(2),
    )
    close(
        half.multi_head_weights(Q, K, eye, eye, 2),
        np.array([[[1 / 4, 3 / 4]], [[1 / 10, 9 / 10]]]),
    )
    W_o = np.array([[1.0, 0], [1, 10]])
    close(half.multi_head_attention(Q, K, V, eye, eye, eye, W_o, 2), row(7 + 76, 760))


def test_neighbouring_heads_share_keys_and_values(half, close):
    # Four heads of queries 1, 2, 1, 2; keys [0, ln 3] serve the first two heads, [ln 3, 0] the last two.
    Q, K, V = (
        row(1, 2, 1, 2),
        np.array([[0, LN3], [LN3, 0]]),
        np.array([[4.0, 40], [8, 80]]),
    )
    weights = np.array(
        [[[1 / 4, 3 / 4]], [[1 / 10, 9 / 10]], [[3 / 4, 1 / 4]], [[9 / 10, 1 / 10]]]
    )
    close(half.multi_head_weights(Q, K, np.eye(4), np.eye(2), 4, n_kv_heads=2), weights)
    output = half.multi_head_attention(
        Q, K, V, np.eye(4), np.eye(2), np.eye(2), np.eye(4), 4, n_kv_heads=2
    )
    close(output, row(7, 7.6, 50, 44))


# Masks


def test_causal_mask(half, close):
    close(half.causal_mask(2, 3), np.array([[True, True, False], [True, True, True]]))
    close(
        half.causal_mask(3, 2), np.array([[False, False], [True, False], [True, True]])
    )
    close(half.causal_mask(2), np.array([[True, False], [True, True]]))
    assert half.causal_mask(2).dtype == bool


def test_padding_mask(half, close):
    close(
        half.padding_mask(np.array([0, 2, 3]), 3),
        np.array([[[0, 0, 0]], [[1, 1, 0]], [[1, 1, 1]]]),
    )
    close(
        half.padding_mask(np.array([[1, 0], [2, 1]]), 2),
        np.array([[[1, 0], [0, 0]], [[1, 1], [1, 0]]]),
    )
    assert half.padding_mask(np.array([1]), 2).dtype == bool


def test_document_mask(half, close):
    close(
        half.document_mask(np.array([4, 4, 9])),
        np.array([[1, 1, 0], [1, 1, 0], [0, 0, 1]]),
    )
    assert half.document_mask(np.array([4])).dtype == bool


# Rules: with queries of 0 each draws the mean of what it sees


def means(half, close, expected, **rules):
    values = column(1, 2, 4, 8)
    found = half.attention(np.zeros((4, 1)), np.zeros((4, 1)), values, **rules)
    close(found, column(*expected))


def test_window_with_sinks(half, close):
    # Query 3 sees itself, the key before it, and the first: (1 + 4 + 8)/3
    expected = 1, 3 / 2, 7 / 3, 13 / 3
    means(half, close, expected, causal=True, window=half.Window(2, sinks=1))
    close(half.Window(2).width, np.array(2))


def test_documents(half, close):
    rule = half.documents(np.array([5, 5, 9, 9]))
    means(half, close, (3 / 2, 3 / 2, 6, 6), mask=rule)
    means(half, close, (1, 3 / 2, 4, 6), mask=rule, causal=True)


def test_documents_that_come_back(half, close):
    rule = half.documents(np.array([5, 9, 9, 5]))
    means(half, close, (9 / 2, 3, 3, 9 / 2), mask=rule)


def test_valid(half, close):
    rule = half.valid(np.array(3))
    means(half, close, (7 / 3, 7 / 3, 7 / 3, 7 / 3), mask=rule)
    last = half.Rule(lambda i, j: j == 3)
    means(half, close, (0, 0, 0, 0), mask=rule & last)


def test_prefix(half, close):
    # The first two keys are seen by all, the others causally.
    rule = half.prefix(np.array(2))
    means(half, close, (3 / 2, 3 / 2, 7 / 3, 15 / 4), mask=rule)
    one = half.valid(np.array(1))
    means(half, close, (1, 1, 1, 1), mask=rule & one)


def test_rule(half, close):
    # Queries 0 and 2 see the keys 0 and 2, of values 1 and 4; the others 1 and 3, of values 2 and 8.
    even = half.Rule(lambda i, j: (i - j) % 2 == 0)
    means(half, close, (5 / 2, 5, 5 / 2, 5), mask=even)
    means(half, close, (1, 2, 5 / 2, 5), mask=half.Causal() & even)
    # Or the first key besides: 0 and 2; 0, 1 and 3.
    means(half, close, (5 / 2, 11 / 3, 5 / 2, 11 / 3), mask=even | half.First(1))


def test_bias(half, close):
    # Each key nearer to the first weighs three times as much: 1 : 3 for keys 1 and 0, so that (2 + 3 · 1)/4.
    falls = half.Bias(lambda i, j: -LN3 * j)
    found = half.attention(np.zeros((1, 1)), np.zeros((2, 1)), column(1, 2), bias=falls)
    # torch makes single precision of a Python number beside whole ones.
    close(found, row(5 / 4), "float32")


def test_check_mask(half):
    # The second sequence has no key, as if ~mask had been meant.
    mask, X = np.array([[[True, False]], [[False, False]]]), np.ones((2, 3, 1))
    assert half.check_mask(X[:1], X[:1, :2], mask[:1]).tolist() == [[[True, False]]]
    with pytest.raises(ValueError, match="1 of 2 sequences"):
        half.check_mask(X, X[:, :2], mask)


def test_alibi(half, close):
    # Slope ln 3: a key before the query weighs a third of its own, so that query 1 draws (1 + 3 · 2)/4.
    rule = half.alibi(np.array([LN3]))
    found = half.attention(
        np.zeros((1, 2, 1)), np.zeros((1, 2, 1)), column(1, 2), causal=True, bias=rule
    )
    close(found[0], column(1, 7 / 4))
    close(half.alibi(2).slopes * 256, np.array([16.0, 1.0]))


# Positions


def test_sinusoidal_encoding(half, close):
    # base 100, d = 4: the second pair turns √100 = 10 times slower
    expected = [[sin(p), cos(p), sin(p / 10), cos(p / 10)] for p in range(3)]
    close(half.sinusoidal_encoding(3, 4, base=100.0), np.array(expected))
    # base 1000, d = 3: 1000^(2/3) = 100, and the last sine has no cosine
    close(
        half.sinusoidal_encoding(3, 3, base=1000.0),
        np.array([[sin(p), cos(p), sin(p / 100)] for p in range(3)]),
    )
    # base 10000 unless told
    close(half.sinusoidal_encoding(2, 4)[1, 2:], np.array([sin(1 / 100), cos(1 / 100)]))


def test_rotary_turns_neighbouring_pairs_from_the_first_axis_to_the_second(half, close):
    # base 100, d = 4, position 5π: the first pair turns by 5π, that is half round; the second by 5π/10 = 90°.
    turned = half.rotary(row(1, 2, 3, 4), np.array([5 * pi]), base=100.0)
    close(turned, row(-1, -2, -4, 3))
    # position 0 does not turn, position 1 turns by 1 radian
    close(
        half.rotary(np.array([[1.0, 0], [1, 0]])), np.array([[1, 0], [cos(1), sin(1)]])
    )
    close(
        half.rotary(row(1, 0, 1, 0), np.array([1]))[0, 2:],
        np.array([cos(1 / 100), sin(1 / 100)]),
    )
    # what turns grows by the factor, and what stays does not
    half_round = {"positions": np.array([pi]), "rates": np.array([1.0])}
    close(half.rotary(row(1, 2, 3), **half_round, factor=2.0), row(-2, -4, 3))


def test_rotary_rates(half):
    """Base 10,000 and d = 8, so rates of 1, 0.1, 0.01, 0.001; 200π positions turn them 100, 10, 1 and 0.1 times."""

    def rates(kind, n=None, *, L=200 * pi, **settings):
        settings |= {"rope_theta": 10_000.0, "original_max_position_embeddings": L}
        rates, factor = half.rotary_rates({"rope_type": kind, **settings}, 8, n)
        return np.round(np.asarray(rates), 9).tolist(), factor

    plain = [1, 0.1, 0.01, 0.001]
    assert rates("default") == (plain, 1)
    assert rates("linear", factor=4) == ([0.25, 0.025, 0.0025, 0.00025], 1)
    # twice the length: 7·2 − 7 + 1 = 8, and 10,000 · 8^(8/6) = 20^4; up to the length trained on nothing
    grown = {"factor": 7, "max_position_embeddings": 100}
    assert rates("dynamic", 200, **grown) == ([1, 1 / 20, 1 / 400, 1 / 8000], 1)
    assert rates("dynamic", 99, **grown) == rates("dynamic", **grown) == (plain, 1)
    # 10 turns lie halfway between 1 and 19, so pair 1 keeps half and takes a fourth of the other half
    some = {"factor": 4, "low_freq_factor": 1, "high_freq_factor": 19}
    assert rates("llama3", **some) == ([1, 0.0625, 0.0025, 0.00025], 1)
    # pair 0 turns 100 times and pair 3 0.1 times, and between them 2/3 and 1/3 are kept: 2/3 + 1/12, 1/3 + 2/12
    some = {"factor": 4, "beta_fast": 100, "beta_slow": 0.1, "truncate": False}
    slow = [1, 0.075, 0.005, 0.00025]
    assert rates("yarn", **some) == (slow, 0.1 * log(4) + 1)
    assert rates("yarn", **some, attention_factor=3.0) == (slow, 3)
    # s = 16³, so √(1 + 3 ln 16 / ln 16) = 2
    some = {"long_factor": [1, 2, 4, 8], "short_factor": [1, 1, 1, 1]}
    some["max_position_embeddings"] = 16**4
    assert rates("longrope", 17, L=16, **some) == ([1, 0.05, 0.0025, 0.000125], 2)
    assert rates("longrope", 16, L=16, **some) == (plain, 2)
    # a fourth of each head turns, so that it has one pair; and config.json holds the recipe in a part of its own
    config = {"rope_theta": 10_000.0, "partial_rotary_factor": 0.25}
    config["rope_scaling"] = {"type": "linear", "factor": 2}
    assert np.asarray(half.rotary_rates(config, 8)[0]).tolist() == [0.5]


@pytest.mark.parametrize(
    ("n_heads", "exponents"),
    [(8, [1, 2, 3, 4, 5, 6, 7, 8]), (6, [2, 4, 6, 8, 1, 3]), (1, [8]), (3, [4, 8, 2])],
)
def test_alibi_slopes(half, close, n_heads, exponents):
    # the last query stands at the last key: distances 1 and 0
    close(
        half.alibi_bias(n_heads, 1, 2), np.array([[[-(2.0**-e), 0]] for e in exponents])
    )


def test_alibi_distances(half, close):
    # slope 1/256; queries at positions 1 and 2 of 3
    close(256 * half.alibi_bias(1, 2, 3), np.array([[[-1, 0, -1], [-2, -1, 0]]]))
    close(256 * half.alibi_bias(1, 2), np.array([[[0, -1], [-1, 0]]]))


# Gradients (NumPy only)


def test_softmax_vjp(close):
    # g · p = 4 · ¾ = 3; ¾ (4 − 3) and ¼ (0 − 3)
    close(
        an.softmax_vjp(np.array([3 / 4, 1 / 4]), np.array([4.0, 0])),
        np.array([3 / 4, -3 / 4]),
    )


def test_attention_vjp(close):
    # Weights ¾, ¼ and g = 1: dV = [¾, ¼]; gV = [4, 8] has mean 5, dS = [¾ (4 − 5), ¼ (8 − 5)] = [−¾, ¾].
    # s = ½ (d = 4): dQ = ½ (−¾ K₁ + ¾ K₂), dK = ½ [−¾ q, ¾ q]
    Q, K = row(2, 0, 0, 0), np.array([[LN3, 0, 1, 0], [0, 0, 0, 1]])
    dQ, dK, dV = an.attention_vjp(Q, K, VALUES, row(1))
    close(dV, column(3 / 4, 1 / 4))
    close(dQ, 3 / 8 * row(-LN3, 0, -1, 1))
    close(dK, np.array([[-3 / 4, 0, 0, 0], [3 / 4, 0, 0, 0]]))


def test_additive_score_vjp(close):
    # T = tanh(½ ln 3) = ½, 1 − T² = ¾; g = 2, w_v = 4: D = 2 · 4 · ¾ = 6
    half_ln3 = LN3 / 2
    gradients = an.additive_score_vjp(
        row(half_ln3), row(0), row(1), row(5), np.array([4.0]), row(2)
    )
    for gradient, expected in zip(
        gradients,
        (row(6), row(30), row(6 * half_ln3), row(0), np.array([1.0])),
        strict=True,
    ):
        close(gradient, expected)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("far", [1e6, 1e7, 1e8])
def test_a_first_key_far_away(half, dtype, far):
    """Keys far, 0, 1, query 0: the weights of the last two are 1 and e^−½ in their sum."""
    K = np.array([[far], [0], [1]], dtype)
    found = half.gaussian_attention(
        np.zeros((1, 1), dtype), K, np.array([[0], [0], [1]], dtype)
    )
    np.testing.assert_allclose(found, 1 / (1 + np.exp(0.5)), rtol=1e-6)
