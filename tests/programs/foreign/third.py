"""The third set, 71 wrong, seen when both were mended: 57 were named (80 %), 3 hinted at, 1 misled, 10 unnamed."""

import math

import numpy as np
import torch
import torch.nn.functional as F

from foreign import Solutions

THIRD = Solutions()
wrong, right = THIRD.wrong, THIRD.right


@wrong("softmax", "columns|axis|queries")
def softmax_1(x):
    x = torch.exp(x - x.max())
    return (
        (x.T / x.T.sum(-1, keepdim=True)).T
        if x.ndim == 2
        else x / x.sum(-2, keepdim=True)
    )


@wrong("softmax", "sum to 1|divide|rows")
def softmax_2(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / (e.sum(-1, keepdims=True) + 1)


@wrong("softmax", "exponential|exp|scores")
def softmax_3(x):
    x = x - x.min(-1, keepdims=True)
    return x / np.maximum(x.sum(-1, keepdims=True), 1e-9)


@wrong("softmax", "largest|one|maximum|sharp|hard|weights")
def softmax_4(x):
    return F.one_hot(x.argmax(-1), x.shape[-1]).to(x.dtype)


@wrong("softmax", "returns None|return")
def softmax_5(x):
    e = np.exp(x)
    e /= e.sum(-1, keepdims=True)
    print(e.shape)


@wrong("softmax", "axis|first|each row|maximum")
def softmax_6(x):
    return np.array([np.exp(r - x.max()) / np.exp(r - x.max()).sum() for r in x])


@wrong("softmax", "changes its input")
def softmax_7(x):
    x -= x.max(-1, keepdims=True)
    np.exp(x, out=x)
    x /= x.sum(-1, keepdims=True)
    return x


@wrong("masked_softmax", "[Ii]nverted|forbidden keys")
def masked_softmax_1(scores, mask):
    S = scores.copy()
    S[mask] = -np.inf
    e = np.exp(S - S.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@wrong("masked_softmax", "inverted|forbidden|mask")
def masked_softmax_2(scores, mask):
    return F.softmax(scores + (mask == 1) * -1e4, -1)


@wrong("masked_softmax", "columns|keys|hidden|query")
def masked_softmax_3(scores, mask):
    seen = mask.any(-2, keepdims=True)
    S = np.where(seen, np.nan_to_num(scores), -np.inf)
    t = S.max(-1, keepdims=True)
    e = np.exp(S - np.where(np.isinf(t), 0, t))
    s = e.sum(-1, keepdims=True)
    return e / np.where(s == 0, 1, s)


@wrong("masked_softmax", "over queries|columns|axis|queries")
def masked_softmax_4(scores, mask):
    return scores.masked_fill(~mask, -1e9).softmax(-2) * mask


@right("masked_softmax")
def masked_softmax_5(scores, mask):
    S = np.where(mask, scores.astype(float), -np.inf)
    t = S.max(-1, keepdims=True)
    e = np.exp(S - np.where(np.isinf(t), 0, t))
    s = e.sum(-1, keepdims=True)
    return e / np.where(s == 0, 1, s)


@wrong("attention", "√d|scale")
def attention_1(Q, K, V, mask):
    return torch.nan_to_num(
        torch.where(mask, Q @ K.mT * Q.shape[-1] ** 0.5, -torch.inf).softmax(-1)
    ) @ torch.nan_to_num(V)


@wrong("attention", "[Ii]nverted|forbidden")
def attention_2(Q, K, V, mask):
    return F.scaled_dot_product_attention(Q, K, V, attn_mask=~mask)


@wrong("attention", "K|keys")
def attention_3(Q, K, V, mask):
    S = torch.where(mask, Q @ K.mT / math.sqrt(Q.shape[-1]), -torch.inf)
    return S.softmax(-1).nan_to_num() @ K


@wrong("attention", "softmax|scores|weights")
def attention_4(Q, K, V, mask):
    return np.where(mask, Q @ K.mT / Q.shape[-1] ** 0.5, 0) @ np.nan_to_num(V)


@wrong("attention", "after|renormal|before|sum")
def attention_5(Q, K, V, mask):
    S = Q @ K.mT / Q.shape[-1] ** 0.5
    e = np.exp(S - S.max(-1, keepdims=True))
    A = e / e.sum(-1, keepdims=True)
    return (A * mask) @ np.nan_to_num(V)


@wrong("attention", "√d|number|twice|queries and keys|d in place")
def attention_6(Q, K, V, mask):
    S = torch.where(mask, Q @ K.mT / (Q.shape[-1] * K.shape[-1]), -torch.inf)
    return S.softmax(-1).nan_to_num() @ V.nan_to_num()


@wrong("attention", "−∞")
def attention_7(Q, K, V, mask):
    S = Q @ K.mT / Q.shape[-1] ** 0.5 - (~mask) * 10.0
    return S.softmax(-1) @ V.nan_to_num() * mask.any(-1, keepdim=True)


@wrong("self_attention", "√d.*softmax over|over queries")
def self_attention_1(X, W_q, W_k, W_v):
    Q, K, V = X @ W_q, X @ W_k, X @ W_v
    return (Q @ K.mT).softmax(-2) @ V


@wrong("self_attention", "tokens|W_v|V = X W_v")
def self_attention_2(X, W_q, W_k, W_v):
    Q, K = X @ W_q, X @ W_k
    return F.scaled_dot_product_attention(Q, K, X)


@wrong("self_attention", "swapped|KQ|keys")
def self_attention_3(X, W_q, W_k, W_v):
    Q, K, V = X @ W_k, X @ W_q, X @ W_v
    S = Q @ K.swapaxes(-1, -2) / K.shape[-1] ** 0.5
    e = np.exp(S - S.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


@wrong("self_attention", "diagonal|itself|own")
def self_attention_4(X, W_q, W_k, W_v):
    S = X @ W_q @ (X @ W_k).mT / W_k.shape[1] ** 0.5
    S = S.masked_fill(torch.eye(S.shape[-1], dtype=torch.bool), -torch.inf)
    return S.softmax(-1) @ (X @ W_v)


@wrong("multi_head", "√.*model|d_model|width")
def multi_head_1(X, W_q, W_k, W_v, W_o, n_heads):
    Q, K, V = (np.stack(np.split(X @ W, n_heads, 1)) for W in (W_q, W_k, W_v))
    S = Q @ K.mT / np.sqrt(W_q.shape[1])
    e = np.exp(S - S.max(-1, keepdims=True))
    A = e / e.sum(-1, keepdims=True)
    return np.hstack(list(A @ V)) @ W_o


@wrong("multi_head", "averag")
def multi_head_2(X, W_q, W_k, W_v, W_o, n_heads):
    Q, K, V = (
        (X @ W).unflatten(-1, (n_heads, -1)).transpose(0, 1) for W in (W_q, W_k, W_v)
    )
    return F.scaled_dot_product_attention(Q, K, V).mean(0).repeat(1, n_heads) @ W_o


@wrong("multi_head", "order|backward|revers")
def multi_head_3(X, W_q, W_k, W_v, W_o, n_heads):
    Q, K, V = (
        (X @ W).unflatten(-1, (n_heads, -1)).transpose(0, 1) for W in (W_q, W_k, W_v)
    )
    return (
        F.scaled_dot_product_attention(Q, K, V).flip(0).transpose(0, 1).flatten(1) @ W_o
    )


@wrong("multi_head", "reshape|rows|cuts")
def multi_head_4(X, W_q, W_k, W_v, W_o, n_heads):
    Q, K, V = ((X @ W).view(n_heads, len(X), -1) for W in (W_q, W_k, W_v))
    return (
        F.scaled_dot_product_attention(Q, K, V).transpose(0, 1).reshape(len(X), -1)
        @ W_o
    )


@wrong("multi_head_attention", "`K` in place of `V`")
def multi_head_attention_1(Q, K, V, W_q, W_k, W_v, W_o, n_heads):
    Q, K, V = (
        (X @ W).unflatten(-1, (n_heads, -1)).transpose(-2, -3)
        for X, W in ((Q, W_q), (K, W_k), (K if K.shape[-1] == W_v.shape[0] else V, W_v))
    )
    return F.scaled_dot_product_attention(Q, K, V).transpose(-2, -3).flatten(-2) @ W_o


@wrong("split_heads", "width|n_heads")
def split_heads_1(X, n_heads):
    return X.reshape(*X.shape[:-1], -1, n_heads).swapaxes(-2, -3)


@wrong("merge_heads", "below|shape|side by side|tokens")
def merge_heads_1(X):
    return np.concatenate(np.moveaxis(X, -3, 0), axis=-2)


@wrong("contributions", "W_o|columns")
def contributions_1(Q, K, V, W_q, W_k, W_v, W_o, n_heads):
    Q, K, V = (
        (X @ W).unflatten(-1, (n_heads, -1)).transpose(-2, -3)
        for X, W in ((Q, W_q), (K, W_k), (V, W_v))
    )
    return F.scaled_dot_product_attention(Q, K, V)


@wrong("step", "√d|divided|sharp")
def step_1(x, K, V, W_q, W_k, W_v):
    K, V = np.concatenate([K, (x @ W_k)[None]]), np.concatenate([V, (x @ W_v)[None]])
    s = K @ (x @ W_q)
    e = np.exp(s - max(s))
    return e / sum(e) @ V, K, V


@wrong("step", "cache|old K|grow|shorter")
def step_2(x, K, V, W_q, W_k, W_v):
    k, v = torch.cat([K, (x @ W_k)[None]]), torch.cat([V, (x @ W_v)[None]])
    return (k @ (x @ W_q) / k.shape[1] ** 0.5).softmax(0) @ v, K, V


@wrong("sinusoidal_encoding", "halves|alternate")
def sinusoidal_encoding_1(n, d):
    a = torch.arange(n)[:, None] / 10000 ** (torch.arange(0, d, 2) / d)
    return torch.cat([a.sin(), a.cos()], -1)[:, :d]


@wrong("sinusoidal_encoding", "each column|frequenc|pair")
def sinusoidal_encoding_2(n, d):
    return np.array(
        [
            [(np.sin, np.cos)[i % 2](p / 10000 ** (i / d)) for i in range(d)]
            for p in range(n)
        ]
    )


@wrong("sinusoidal_encoding", "odd")
def sinusoidal_encoding_3(n, d):
    P = np.zeros((n, d))
    a = np.outer(np.arange(n), np.exp(-np.log(1e4) * np.arange(0, d, 2) / d))
    P[:, ::2] = np.sin(a)
    P[:, 1::2] = np.cos(a)
    return P


@wrong("rotary", "added|multipl|turn")
def rotary_1(X):
    n, d = X.shape[-2:]
    a = torch.arange(n)[:, None] / 10000 ** (torch.arange(0, d, 2) / d)
    return X + torch.stack([a.sin(), a.cos()], -1).flatten(-2).to(X.dtype)


@wrong("rotary", "sine|minus|rotation|angle|only")
def rotary_2(X):
    n, d = X.shape[-2:]
    a = np.arange(n)[:, None] / 10000 ** (np.arange(0, d, 2) / d)
    x, y = X[..., ::2], X[..., 1::2]
    out = np.empty_like(X)
    out[..., ::2] = x * np.cos(a) - y * np.sin(a)
    out[..., 1::2] = out[..., ::2] * np.sin(a) + y * np.cos(a)
    return out


@wrong("rotary", "speed|rate")
def rotary_3(X):
    a = torch.arange(X.shape[-2], dtype=X.dtype)[:, None]
    x, y = X[..., ::2], X[..., 1::2]
    return torch.stack(
        [x * a.cos() - y * a.sin(), x * a.sin() + y * a.cos()], -1
    ).flatten(-2)


@wrong("alibi_bias", "upper left|align|last")
def alibi_bias_1(n_heads, n, m):
    s = 2.0 ** (-8 * torch.arange(1, n_heads + 1) / n_heads)
    return -s[:, None, None] * (torch.arange(n)[:, None] - torch.arange(m)).abs()


@wrong("causal_mask", "diagonal|itself")
def causal_mask_1(n, m):
    return np.fromfunction(lambda i, j: j < i + m - n, (n, m))


@wrong("causal_mask", "upper left|align|last")
def causal_mask_2(n, m):
    return torch.tril(torch.ones(n, m, dtype=torch.bool))


@wrong("window_mask", "[Ii]nverted|exchanged")
def window_mask_1(n, width):
    return torch.ones(n, n).triu(1).bool() | torch.ones(n, n).tril(-width).bool()


@wrong("layer_norm", "variance")
def layer_norm_1(X, gain, shift):
    m = X.mean(-1, keepdims=True)
    return (X - m) / (((X - m) ** 2).mean(-1, keepdims=True) + 1e-5) * gain + shift


@wrong("layer_norm", "1e-5|outside")
def layer_norm_2(X, gain, shift):
    return (X - X.mean(-1, keepdims=True)) / (
        X.std(-1, keepdims=True) + 1e-5
    ) * gain + shift


@wrong("layer_norm", "keepdims|axis|row")
def layer_norm_3(X, gain, shift):
    return (
        gain * (X - X.mean(-1)[..., None]) / np.sqrt(X.var(-2, keepdims=True) + 1e-5)
        + shift
    )


@wrong("next_token_loss", "0|inf")
def next_token_loss_1(logits, targets):
    p = logits.softmax(-1).gather(-1, targets[..., None])
    return -p.log().mean()


@wrong("next_token_loss", "overflow|maximum|large")
def next_token_loss_2(logits, targets):
    e = np.exp(logits)
    p = e / e.sum(-1, keepdims=True)
    return -np.log(np.take_along_axis(p, targets[..., None], -1)).mean()


@wrong("top_k", "smallest|least")
def top_k_1(logits, k, temperature):
    i = logits.topk(k, largest=False).indices
    return torch.zeros_like(logits).scatter(
        -1, i, (logits.gather(-1, i) / temperature).softmax(-1)
    )


@wrong("top_k", "temperature")
def top_k_2(logits, k, temperature):
    v, i = logits.topk(k)
    return torch.zeros_like(logits).scatter(-1, i, v.softmax(-1) / temperature)


@wrong("top_k", "1|k|equal|temperature|proportion|flat")
def top_k_3(logits, k, temperature):
    v, i = logits.topk(k)
    return torch.zeros_like(logits).scatter(-1, i, torch.full_like(v, 1 / k))


@wrong("greedy", "last token|fed|all tokens")
def greedy_1(step, end, max_len):
    out, total = [], 0.0
    while len(out) < max_len:
        p = step(np.array(out[-1:], int))
        out.append(int(p.argmax()))
        total += p.max()
        if out[-1] == end:
            break
    return np.array(out), total


@wrong("greedy", "goes on|after the end|Stop")
def greedy_2(step, end, max_len):
    out, total = [], 0.0
    for _ in range(max_len):
        p = step(np.array(out, int))
        out.append(int(p.argmax()))
        total += p.max()
    return np.array(out), total


@wrong("greedy", "probabilit|logarithm")
def greedy_3(step, end, max_len):
    out, total = [], 1.0
    for _ in range(max_len):
        p = np.exp(step(np.array(out, int)))
        out.append(int(p.argmax()))
        total *= p.max()
        if out[-1] == end:
            break
    return np.array(out), total


@wrong("beam", "ended|dropped|end")
def beam_1(step, end, max_len, k):
    beam, done = [((), 0.0)], []
    for _ in range(max_len):
        new = [
            (t + (y,), s + float(p))
            for t, s in beam
            for y, p in enumerate(step(np.array(t, int)))
        ]
        new.sort(key=lambda x: -x[1])
        done += [x for x in new[:k] if x[0][-1] == end]
        beam = [x for x in new[:k] if x[0][-1] != end]
        if done:
            break
    t, s = max(done or beam, key=lambda x: x[1])
    return np.array(t), s


@wrong("context_vector", "weight is 1|plain sum|words")
def context_vector_1(s, H, W_q, W_k, w_v):
    e = torch.tanh(s @ W_q + H @ W_k) @ w_v[:, None]
    return (torch.softmax(e, -1) * H).sum(0)


@wrong("context_vector", "[Ss]oftmax")
def context_vector_2(s, H, W_q, W_k, w_v):
    scores = torch.tanh(s @ W_q + H @ W_k) @ w_v
    return scores @ H


@wrong("context_vector", "tanh")
def context_vector_3(s, H, W_q, W_k, w_v):
    weights = torch.softmax((s @ W_q + H @ W_k) @ w_v, -1)
    return weights @ H


@right("context_vector")
def context_vector_4(s, H, W_q, W_k, w_v):
    e = np.array([w_v @ np.tanh(s @ W_q + h @ W_k) for h in H])
    a = np.exp(e) / np.exp(e).sum()
    return sum(x * h for x, h in zip(a, H, strict=True))


@wrong("exact_match", "after the end|whole rows")
def exact_match_1(found, target, end):
    w = max(found.shape[1], target.shape[1])
    return (
        (
            F.pad(found, (0, w - found.shape[1]), value=end)
            == F.pad(target, (0, w - target.shape[1]), value=end)
        )
        .all(1)
        .double()
        .mean()
    )


@wrong("numerical_gradient", "one-sided|other side")
def numerical_gradient_1(f, x):
    base, g = f(x), np.zeros_like(x)
    for i in np.ndindex(x.shape):
        y = x.copy()
        y[i] += 1e-3
        g[i] = (f(y) - base) / 1e-3
    return g


@wrong("log_softmax_vjp", "subtracted")
def log_softmax_vjp_1(scores, g):
    return g + scores.softmax(-1) * g.sum(-1, keepdim=True)


@wrong("self_attention_vjp", "transposed|W")
def self_attention_vjp_1(X, W_q, W_k, W_v, g):
    Q, K, V = X @ W_q, X @ W_k, X @ W_v
    c = K.shape[1] ** -0.5
    A = (Q @ K.T * c).softmax(1)
    dA = g @ V.T
    dS = A * (dA - (dA * A).sum(1, keepdim=True)) * c
    dQ, dK, dV = dS @ K, dS @ Q, A.T @ g
    return dQ @ W_q.T + dK @ W_k.T + dV @ W_v.T, X.T @ dQ, X.T @ dK, X.T @ dV


@wrong("merge", "way|sign|smaller|exponent")
def merge_1(t1, l1, o1, t2, l2, o2):
    t = np.maximum(t1, t2)
    a, b = np.exp(t - t1), np.exp(t - t2)
    return t, a * l1 + b * l2, a * o1 + b * o2


@wrong("quotient_scores", "overflow")
def quotient_scores_1(a, b, w):
    return -2 * torch.einsum(
        "nmh,h->nm", 1 / (1 + (2 * a).exp()[:, None] * (2 * b).exp()), w
    )


@wrong("score_bound", "scale")
def score_bound_1(Q, K, scale):
    return Q.norm(dim=1).max() * K.norm(dim=1).max() * scale


@wrong("previous_symbols", "roll|last symbol")
def previous_symbols_1(target, end):
    return torch.roll(target, 1, 1)


@wrong("windows", "too far|after the next|one")
def windows_1(ids, starts, n):
    i = starts[:, None] + np.arange(n)
    return ids[i], ids[i + 2]


@wrong("gaussian_kernel", "½|exp\\(-u²\\)")
def gaussian_kernel_1(Q, K, bandwidth):
    return torch.exp(-((torch.cdist(Q, K) / bandwidth) ** 2))


@wrong("gaussian_kernel", "sum to 1|normalis")
def gaussian_kernel_2(Q, K, bandwidth):
    return (-0.5 * (torch.cdist(Q, K) / bandwidth) ** 2).softmax(-1)


@wrong("boxcar_kernel", "edge|≤")
def boxcar_kernel_1(Q, K, bandwidth):
    return (torch.cdist(Q, K) < bandwidth).to(Q.dtype)


@wrong("normalize", "whole|all rows|each")
def normalize_1(weights):
    return weights / weights.sum()


@wrong("nadaraya_watson", "not normalis|raw weights")
def nadaraya_watson_1(Q, K, V, kernel, bandwidth):
    return torch.einsum("...nm,...mv->...nv", kernel(Q, K, bandwidth), V)


@wrong("additive_score", "√|factor|scale")
def additive_score_1(Q, K, W_q, W_k, w_v):
    return (
        torch.tanh((Q @ W_q)[..., :, None, :] + (K @ W_k)[..., None, :, :])
        @ w_v
        / len(w_v) ** 0.5
    )


@wrong("find_temperature", "1/T|divided")
def find_temperature_1(scores, entropy):
    lo, hi = 1e-4, 1e4
    for _ in range(100):
        b = math.sqrt(lo * hi)
        p = np.exp((scores - scores.max(-1, keepdims=True)) * b)
        p /= p.sum(-1, keepdims=True)
        H = -(p * np.log(p + 1e-300)).sum(-1).mean()
        lo, hi = (b, hi) if entropy < H else (lo, b)
    return b
