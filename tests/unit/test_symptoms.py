"""What is said of a wrong answer that no exercise knows: each symptom on an answer that shows it and little else."""

from itertools import count

import numpy as np
import pytest

import attn_tutor.numpy as an
from attn_tutor.check import EXERCISES
from attn_tutor.check.chapters.ch06_positions import waves


def stop(broken):
    if broken:
        raise ValueError("not for this")


def of_squares(scores, mask):
    w = np.where(mask, 1 + scores**2, 0)
    return w / np.maximum(w.sum(-1, keepdims=True), 1e-300)


def softmax_where(right, x):
    stop(not right)
    return an.softmax(x)


def masked_where(right, *args):
    stop(not right)
    return an.masked_softmax(*args)


def attention_where(right, *args):
    stop(not right)
    return an.attention(*args)


def steeper(n_heads, n, m):
    return an.alibi_bias(n_heads, n, m) * np.arange(2, n_heads + 2)[:, None, None]


def first_row_wrong(*args):
    out = an.additive_score(*args)
    out[..., 0, :] += np.arange(out.shape[-1]) ** 2 + 1
    return out


CALLS = count()


def sums(x):
    return x.sum(-1)


SHOWN = [
    ("softmax", lambda x: an.softmax(x)[..., None, :], "an axis of length 1"),
    ("encode", lambda p, d: waves(p, d).T, "transposed"),
    ("split", lambda X, h: an.split_heads(X, h).reshape(h, -1), "cut into another shape"),
    ("scaled_dot_score", lambda Q, K: an.scaled_dot_score(Q, K)[..., ::-1], "in another order"),
    ("causal_mask", lambda n, m: np.where(an.causal_mask(n, m), 0, -np.inf), "a mask to be added"),
    ("causal_mask", lambda n, m: an.causal_mask(n, m) * 2, "numbers for True and False"),
    ("causal_mask", lambda n, m: np.tri(n, m, m - n + 2, dtype=bool), "sees the future"),
    ("causal_mask", lambda n, m: np.tri(n, m, m - n - 2, dtype=bool), "a token does not see itself"),
    ("padding_mask", lambda v, m: np.arange(m) < v[:, None, None] - 1, "too few permitted"),
    ("padding_mask", lambda v, m: np.arange(m) <= v[:, None, None] + 1, "too many permitted"),
    ("masked_softmax", lambda S, mask: an.masked_softmax(3 * S, ~mask), "inverted mask"),
    ("masked_softmax", of_squares, "other proportions"),
    ("softmax", lambda x: an.softmax(x) * 0.9, "rows not divided by their sum"),
    ("softmax", lambda x: an.softmax(3 * x), "too sharp or too flat"),
    ("nucleus", lambda p, share: an.softmax(np.where(p < (1 - share) * p.max(), -np.inf, np.log(p))), "others kept"),
    ("rotary", lambda X: an.rotary(X) + X, "an argument added"),
    ("scaled_dot_score", lambda Q, K: sums(Q)[..., None] ** 3 + sums(K)[..., None, :], "queries and keys do not meet"),
    ("scaled_dot_score", lambda Q, K: an.scaled_dot_score(Q, K) + sums(Q**2)[..., None], "a constant for each row"),
    ("rotary", lambda X: an.rotary(X) + next(CALLS), "another answer each time"),
    ("scaled_dot_score", lambda Q, K: np.sin(Q[..., :1] @ K[..., :1].mT), "all columns but the first of `Q` not used"),
    ("scaled_dot_score", lambda Q, K: -an.scaled_dot_score(Q, K), "the sign"),
    ("scaled_dot_score", lambda Q, K: an.scaled_dot_score(Q, K) ** 2, "a step too many or too few"),
    ("scaled_dot_score", lambda Q, K: an.scaled_dot_score(Q, K) * 7, "a constant factor"),
    ("scaled_dot_score", lambda Q, K: an.scaled_dot_score(Q, K) + 7, "a constant added"),
    ("alibi_bias", steeper, "a factor for each head or row"),
    ("sinusoidal_encoding", lambda n, d: waves(np.arange(-1, n - 1), d), "shifted by one"),
    ("rotary", lambda X: an.rotary(X) ** 3, "lengths not kept"),
    ("additive_score", lambda *args: an.additive_score(*args) * (1 + 1e-3 * np.sin(args[0]).mean()), "nearly right"),
    ("additive_score", first_row_wrong, "wrong in some places"),
    ("layer_norm", lambda X, gain, shift: np.flip(X) * gain + shift, "rows that depend on each other"),
    ("self_attention", lambda X, *W: an.self_attention(X, *W, causal=True) ** 3, "a causal mask"),
    ("attention", lambda Q, K, V, mask: an.attention(Q, K, V) ** 3, "mask not used"),
    ("attention", lambda Q, K, V, mask: an.attention(Q, K, V, mask, scale=0.123), "weights: too sharp or too flat"),
    ("softmax", lambda x: softmax_where(x.ndim == 2, x), "wrong for a batch"),
    ("softmax", lambda x: softmax_where(abs(x).max() < 90, x), "wrong for large numbers"),
    ("softmax", lambda x: softmax_where(x.dtype == float, x), "wrong in float32"),
    ("masked_softmax", lambda *args: masked_where(not np.isnan(args[0]).any(), *args), "wrong where a NaN is hidden"),
    ("attention", lambda *args: attention_where(args[3].any(-1).all(), *args), "wrong where nothing is permitted"),
]  # fmt: skip


@pytest.mark.parametrize(("exercise", "fn", "title"), SHOWN)
def test_a_symptom_is_told(exercise, fn, title):
    report = EXERCISES[exercise].examine(fn)
    assert report.title == title, report.text
    assert report.text.splitlines()[1].endswith((".", "?", ")"))
