"""The seventh set, many with two mistakes, 49 wrong, seen when the sixth was mended: 44 were named (90 %), 1 accepted,
4 unnamed."""

import numpy as np
import torch
import torch.nn.functional as F

from foreign import Solutions

SEVENTH = Solutions()
wrong, right = SEVENTH.wrong, SEVENTH.right


@wrong("gaussian_kernel", "mean|average|width|d|coordinate|exponent")
def gaussian_of_mean_square(Q, K, bandwidth):
    d2 = ((Q[..., :, None, :] - K[..., None, :, :]) ** 2).mean(-1)
    return np.exp(-d2 / (2 * bandwidth**2))


@wrong("epanechnikov_kernel", "0|negative|clip|outside|window")
def epanechnikov_not_cut(Q, K, bandwidth):
    u = torch.cdist(Q, K) / bandwidth
    return 0.75 * (1 - u**2)


@wrong("normalize", "columns|axis|queries|each row")
def normalize_with_broadcast(weights):
    total = weights.sum(-2, keepdims=True)
    return np.divide(weights, total, out=np.zeros_like(weights), where=total != 0)


@wrong("nadaraya_watson", None)
def pooling_with_swapped_kernel(Q, K, V, kernel, bandwidth):
    w = kernel(Q, Q, bandwidth)
    return w @ V / w.sum(-1, keepdim=True)


@wrong("neighbour_weights", "k|one|few|many|smaller")
def neighbours_one_short(q, K, k):
    d = ((K - q) ** 2).sum(1)
    w = np.zeros((1, len(K)))
    w[0, np.argsort(d)[: k - 1]] = 1 / k
    return w


@wrong("scaled_dot_score", "√|scale|divided|twice|d in place|fourth|d\\b")
def score_scaled_on_both(Q, K):
    return (Q / Q.shape[-1] ** 0.5) @ (K / K.shape[-1] ** 0.5).mT


@wrong("additive_score", "scale|√|factor|divided")
def additive_scaled(Q, K, W_q, W_k, w_v):
    h = torch.tanh((Q @ W_q).unsqueeze(-2) + (K @ W_k).unsqueeze(-3))
    return h @ w_v / W_q.shape[-1] ** 0.5


@wrong("gaussian_score", "factor: -2")
def gaussian_score_positive_and_whole(Q, K, bandwidth):
    return torch.cdist(Q, K) ** 2 / bandwidth**2


@wrong("bilinear_score", "Mᵀ in place of M.*(half of|factor)")
def bilinear_with_two_mistakes(Q, K, M):
    return Q @ M.T @ K.swapaxes(-1, -2) / 2


@wrong("log_softmax", "whole|all|each row|axis")
def log_softmax_of_everything(scores):
    top = scores.max()
    return scores - top - np.log(np.exp(scores - top).sum())


@wrong("softmax", "minus|sign|other way|opposite|small")
def softmin(x):
    return F.softmin(x, -1)


@wrong("masked_softmax", "√|scale|factor|sharp|flat|twice|half")
def masked_with_halved_scores(scores, mask):
    s = (scores / 2).masked_fill(~mask, -torch.inf)
    return s.softmax(-1).nan_to_num()


@wrong("masked_softmax", "transpos|key|column|inverted|mask")
def masked_by_transpose(scores, mask):
    m = mask.swapaxes(-1, -2) if mask.shape[-1] == mask.shape[-2] else mask
    s = np.where(m, np.nan_to_num(scores), -np.inf)
    t = s.max(-1, keepdims=True)
    e = np.exp(s - np.where(np.isinf(t), 0, t))
    z = e.sum(-1, keepdims=True)
    return e / np.where(z == 0, 1, z)


@wrong("softmax_vjp", "p|g|exchanged|softmax|missing|times")
def vjp_without_outer_p(p, g):
    return g - (p * g).sum(-1, keepdim=True)


@wrong("softmax_plus_one", None)
def plus_one_twice(scores):
    m = np.maximum(scores.max(-1, keepdims=True), 0)
    e = np.exp(scores - m)
    return e / (2 * np.exp(-m) + e.sum(-1, keepdims=True))


@wrong("causal_mask", "exchanged|queries by|rows|shape|transpos|order")
def causal_with_sizes_swapped(n, m):
    return np.tril(np.ones((m, n), bool), n - m)


@wrong("padding_mask", "shape|axis|row|queries")
def padding_for_all_queries(valid_lens, m):
    keep = torch.arange(m) < valid_lens[:, None]
    return keep[:, None, :].expand(-1, m, -1)


@wrong("window_mask", "future|both|after|one")
def window_of_half_on_each_side(n, width):
    i = np.arange(n)
    return np.abs(i[:, None] - i) <= width // 2


@wrong("attention", "exchanged|K|keys|V")
def attention_keys_as_values(Q, K, V, mask):
    S = np.where(mask, Q @ K.mT / Q.shape[-1] ** 0.5, -np.inf)
    t = S.max(-1, keepdims=True)
    e = np.exp(S - np.where(np.isinf(t), 0, t))
    z = e.sum(-1, keepdims=True)
    return e / np.where(z == 0, 1, z) @ np.resize(K, V.shape)


@wrong("attention", "√|scale.*[Ii]nverted|[Ii]nverted.*scale|[Ii]nverted")
def attention_inverted_and_unscaled(Q, K, V, mask):
    S = (Q @ K.transpose(-1, -2)).masked_fill(mask, -torch.inf)
    return S.softmax(-1).nan_to_num() @ V.nan_to_num()


@wrong("self_attention", "transpos|W_q|W_k|W_v|raises|x @ W.T")
def self_attention_as_linear(X, W_q, W_k, W_v):
    return F.scaled_dot_product_attention(
        F.linear(X, W_q), F.linear(X, W_k), F.linear(X, W_v)
    )


@wrong("self_attention", "dropout|random|each time")
def self_attention_with_dropout(X, W_q, W_k, W_v):
    Q, K, V = X @ W_q, X @ W_k, X @ W_v
    A = F.dropout((Q @ K.mT / K.shape[-1] ** 0.5).softmax(-1), 0.2)
    return A @ V


@wrong("self_attention", "W_q.*W_k|exchanged|same|place of|W_k")
def self_attention_keys_twice(X, W_q, W_k, W_v):
    Q, K, V = X @ W_k, X @ W_k, X @ W_v
    S = Q @ K.swapaxes(-1, -2) / Q.shape[-1] ** 0.5
    e = np.exp(S - S.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


@wrong("step", "K|cache|old|key")
def step_returns_old_keys(x, K, V, W_q, W_k, W_v):
    K2, V2 = np.vstack([K, x @ W_k]), np.vstack([V, x @ W_v])
    s = K2 @ (x @ W_q) / K.shape[1] ** 0.5
    w = np.exp(s - s.max())
    return w / w.sum() @ V2, K, V2


@wrong("permutation_gap", "mean|largest|average")
def gap_as_a_mean(layer, X, order):
    return (layer(X[order]) - layer(X)[order]).abs().mean()


@wrong("split", "reshape|rows|tokens|memory|order|places")
def split_by_moving_axes(X, n_heads):
    return X.reshape(X.shape[0], -1, n_heads).transpose(2, 1, 0).transpose(0, 2, 1)


@wrong("merge_heads", "transpos|order|reshape|tokens|places|swap")
def merge_without_transpose(X):
    return X.flatten(-2).transpose(-1, -2)


@wrong("multi_head", "W_o|heads|order|revers|interleav|dealt|column")
def heads_dealt_out(X, W_q, W_k, W_v, W_o, n_heads):
    def cut(M):
        return np.stack([M[:, h::n_heads] for h in range(n_heads)])

    Q, K, V = cut(X @ W_q), cut(X @ W_k), cut(X @ W_v)
    S = Q @ K.mT / Q.shape[-1] ** 0.5
    A = np.exp(S - S.max(-1, keepdims=True))
    A /= A.sum(-1, keepdims=True)
    return np.hstack(list(A @ V)) @ W_o


@wrong("multi_head_attention", "√|scale")
def heads_scaled_twice(Q, K, V, W_q, W_k, W_v, W_o, n_heads):
    q, k, v = (
        (X @ W).unflatten(-1, (n_heads, -1)).transpose(-3, -2)
        for X, W in ((Q, W_q), (K, W_k), (V, W_v))
    )
    q = q / q.shape[-1] ** 0.5
    return F.scaled_dot_product_attention(q, k, v).transpose(-3, -2).flatten(-2) @ W_o


@wrong("sinusoidal_encoding", "exponent|rate|2i|half|twice|slow|fast|i/d|frequenc")
def encoding_with_full_index(n, d):
    P = np.zeros((n, d))
    for p in range(n):
        for i in range(0, d, 2):
            a = p / 10000 ** (2 * i / d)
            P[p, i] = np.sin(a)
            if i + 1 < d:
                P[p, i + 1] = np.cos(a)
    return P


@wrong("rotary", None)
def rotary_by_rows_reversed(X):
    n, d = X.shape[-2:]
    a = torch.arange(n - 1, -1, -1)[:, None] * 10000.0 ** (-torch.arange(0, d, 2) / d)
    a = a.to(X.dtype)
    x, y = X[..., 0::2], X[..., 1::2]
    return torch.stack(
        [x * a.cos() - y * a.sin(), y * a.cos() + x * a.sin()], -1
    ).flatten(-2)


@wrong("alibi_bias", "slope|exponent|factor|head|2")
def alibi_with_linear_slopes(n_heads, n, m):
    slope = np.arange(1, n_heads + 1) / n_heads
    return -slope[:, None, None] * np.abs(np.arange(n)[:, None] + m - n - np.arange(m))


@wrong("numerical_gradient", "sign|minus|other way")
def gradient_backwards(f, x):
    g = torch.zeros_like(x)
    flat = x.flatten()
    for i in range(flat.numel()):
        a, b = flat.clone(), flat.clone()
        a[i] += 1e-5
        b[i] -= 1e-5
        g.view(-1)[i] = (f(b.view_as(x)) - f(a.view_as(x))) / 2e-5
    return g


@wrong("bilinear_score_vjp", "exchanged|order|dQ.*dK|swapped|1, 2|2, 1")
def bilinear_vjp_keys_first(Q, K, M, g):
    return g.T @ Q @ M, g @ K @ M.T, Q.T @ g @ K


@wrong("self_attention_vjp", "softmax|Jacobian|weights|A")
def attention_vjp_through_no_softmax(X, W_q, W_k, W_v, g):
    Q, K, V = X @ W_q, X @ W_k, X @ W_v
    c = K.shape[1] ** -0.5
    A = torch.softmax(Q @ K.T * c, 1)
    dS = g @ V.T * c
    dQ, dK, dV = dS @ K, dS.T @ Q, A.T @ g
    return dQ @ W_q.T + dK @ W_k.T + dV @ W_v.T, X.T @ dQ, X.T @ dK, X.T @ dV


@wrong("greedy", "least|smallest|argmin|unlikel|worst")
def greedy_of_the_unlikely(step, end, max_len):
    ids, total = [], 0.0
    while len(ids) < max_len:
        p = step(np.array(ids, int))
        ids.append(int(p.argmin()))
        total += p.min()
        if ids[-1] == end:
            break
    return np.array(ids), total


@wrong("exact_match", "number|count|share|mean|sum")
def match_counted(found, target, end):
    n = 0
    for f, t in zip(found.tolist(), target.tolist(), strict=True):
        f, t = ([*x, end] for x in (f, t))
        n += f[: f.index(end)] == t[: t.index(end)]
    return float(n)


@wrong("layer_norm", "shift|before|gain|order")
def norm_shift_inside(X, gain, shift):
    z = (X - X.mean(-1, keepdim=True)) / (
        X.var(-1, keepdim=True, correction=0) + 1e-5
    ).sqrt()
    return (z + shift) * gain


@wrong("next_token_loss", "sign|minus|negative")
def loss_positive(logits, targets):
    return F.log_softmax(logits, -1).gather(-1, targets[..., None]).mean()


@wrong("top_k", "square|temperature|√|T")
def top_k_temperature_squared(logits, k, temperature):
    v, i = logits.topk(k)
    return torch.zeros_like(logits).scatter(-1, i, (v / temperature**2).softmax(-1))


@wrong("top_k", "one too many|k \\+ 1|few|k − 1|smaller|greater")
def top_k_strictly_above(logits, k, temperature):
    least = np.sort(logits, -1)[..., [-k]]
    z = np.where(logits > least, logits / temperature, -np.inf)
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@wrong("windows", "many|n|short|one|long")
def windows_too_short(ids, starts, n):
    i = starts[:, None] + np.arange(n - 1)
    return ids[i], ids[i + 1]


@wrong("causal_linear_attention", "divided|normalis|sum|number|row")
def linear_divided_by_last(Q, K, V):
    q, k = F.elu(Q) + 1, F.elu(K) + 1
    w = (q @ k.T).tril()
    return w @ V / w.sum()


@wrong("merge_parts", "softmax|exp|levels|sum|log")
def parts_by_levels(outputs, levels):
    return (outputs * levels).sum(0) / levels.sum(0)


@wrong("ring", "block|causal|own|local|earlier|others")
def ring_of_own_blocks(Q, K, V, size):
    out = []
    for q, k, v in zip(Q.chunk(size), K.chunk(size), V.chunk(size), strict=True):
        out.append(
            F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]
        )
    return torch.cat(out)


@wrong("dequantise", "half|four|order|low|high|exchanged|swapped")
def dequantise_high_first(blocks):
    s = blocks[:, :4].copy().view(np.float16).astype(np.float32)
    return s[:, :1] * np.hstack([blocks[:, 4:] >> 4, blocks[:, 4:] & 15]) + s[:, 1:]


@wrong("window_with_sinks", "one|width|window")
def sinks_window_wider(n, m, window, sinks):
    i = torch.arange(m - n, m)[:, None]
    j = torch.arange(m)
    return (j <= i) & ((j >= i - window) | (j < sinks))


@wrong("delta_step", "beta|β|sign|minus|exchanged")
def delta_with_decay(S, k, v, beta):
    k = k / np.linalg.norm(k)
    return (1 - beta) * S + beta * np.outer(k, v)


@wrong("received_weight", None)
def received_by_rows(A):
    n = A.shape[-1]
    lower = torch.ones(n, n, dtype=A.dtype).tril(-1)
    return (A * lower).sum(-1) / lower.sum(-1).clamp(min=1)
