"""What everybody forgets is named whatever the exercise: the function runs again with it mended, and is right then."""

import numpy as np
import pytest
import torch

import attn_tutor.numpy as an
from attn_tutor.check import EXERCISES


def softmax(x):
    e = np.exp(x - x.max(-1))
    return e / e.sum(-1)


def masked_softmax(scores, mask):
    scores = scores.masked_fill(~mask, -torch.inf)
    e = torch.exp(scores - scores.amax(-1, keepdim=True).nan_to_num(neginf=0))
    total = e.sum(-1)
    return e / torch.where(total == 0, 1, total)


def softmax_vjp(p, g):
    return p * (g - (p * g).sum(-1))


def log_softmax(scores):
    scores = scores - scores.max(-1, keepdims=True)
    return scores - np.log(np.sum(np.exp(scores), axis=-1))


def log_softmax_vjp(scores, g):
    return g - torch.softmax(scores, -1) * torch.sum(g, dim=-1)


def normalize(weights):
    total = weights.sum(-1)
    out = np.zeros_like(weights)
    return np.divide(weights, total, out=out, where=total > 0)


def nadaraya_watson(Q, K, V, kernel, bandwidth):
    w = kernel(Q, K, bandwidth)
    total = w.sum(axis=1) if w.ndim == 2 else w.sum(axis=2)
    return w / np.where(total == 0, 1, total) @ V


def layer_norm(X, gain, shift):
    return (X - X.mean(-1)) / np.sqrt(X.var(-1, keepdims=True) + 1e-5) * gain + shift


def softmax_plus_one(scores):
    top = np.maximum(scores.max(-1), 0)
    e = np.exp(scores - top[..., None])
    return e / (np.exp(-top) + e.sum(-1))


def attention(Q, K, V, mask):
    S = (Q @ K.mT / Q.shape[-1] ** 0.5).masked_fill(~mask, -1e30)
    E = torch.exp(S - S.max(-1, keepdim=True).values) * mask
    return E @ V / E.sum(-1).clamp(min=1e-30)


def self_attention(X, W_q, W_k, W_v):
    S = X @ W_q @ (X @ W_k).mT / W_q.shape[-1] ** 0.5
    E = np.exp(S - np.max(S, -1, keepdims=True))
    return E / np.sum(E, -1) @ (X @ W_v)


FORGOTTEN = [
    softmax, masked_softmax, softmax_vjp, log_softmax, log_softmax_vjp, normalize, nadaraya_watson, layer_norm,
    softmax_plus_one, attention, self_attention,
]  # fmt: skip


@pytest.mark.parametrize("fn", FORGOTTEN, ids=lambda fn: fn.__name__)
def test_a_forgotten_keepdims_is_named_in_every_exercise(fn):
    report = EXERCISES[fn.__name__].examine(fn)
    assert report.title == "keepdims forgotten", report.text
    assert "keepdims=True" in report.text


def test_what_is_wrong_besides_is_named_too():
    def mine(x):
        return np.exp(x) / np.exp(x).sum(-1)

    report = EXERCISES["softmax"].examine(mine)
    assert report.title == "keepdims forgotten; no maximum subtracted", report.text


def pairs(Q, K):
    return Q[..., :, None, :] - K[..., None, :, :]


MENDED = [
    ("softmax_vjp", lambda p, g: p * (g - (p * g).sum(0)), "axis 0 in place of axis −1"),
    ("softmax_vjp", lambda p, g: p * (g - (p * g).mean() * p.shape[-1]), None),
    ("nadaraya_watson", lambda Q, K, V, kernel, h: (w := kernel(Q, K, h)) / max(w.sum(), 1e-9) @ V, None),
    ("log_softmax", lambda scores: torch.log_softmax(scores, 0), "axis 0 in place of axis −1"),
    ("log_softmax", lambda scores: scores.log_softmax(dim=1), "axis 1 in place of axis −1"),
    ("gaussian_kernel", lambda Q, K, h: np.exp(-(pairs(Q, K) ** 2).sum(0) / 2 / h**2), "axis 0 in place of axis −1"),
    ("gaussian_kernel", lambda Q, K, h: np.exp(-pairs(Q, K) ** 2 / 2 / h**2), "another number of axes"),
]  # fmt: skip


@pytest.mark.parametrize(("exercise", "fn", "title"), MENDED)
def test_a_wrong_axis_is_named(exercise, fn, title):
    report = EXERCISES[exercise].examine(fn)
    assert not report.right
    if title:
        assert report.title == title, report.text
    else:
        assert "keepdims forgotten" not in report.title, report.text


def test_what_the_package_does_is_not_mended():
    """Its own sums keep and lose their axes as they should; the axis that is handed to it is the reader's mistake."""
    report = EXERCISES["softmax"].examine(lambda x: an.softmax(x, axis=-2))
    assert report.title == "normalised over queries"


def test_sizes_of_the_keys_laid_along_the_columns_are_no_mistake():
    def mine(Q, K, bandwidth):
        squares = (Q**2).sum(-1)[..., None] + (K**2).sum(-1)[..., None, :]
        return np.exp(-(squares - 2 * Q @ K.mT) / bandwidth)

    assert "keepdims" not in EXERCISES["gaussian_kernel"].examine(mine).text
