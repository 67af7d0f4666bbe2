"""The second set, 98 wrong, seen when the first was mended: 78 were named (80 %), 3 misled, 17 unnamed, none
accepted."""

import math

import numpy as np
import torch
import torch.nn.functional as F

from foreign import Solutions
from foreign.first import angles_for, turn

SECOND = Solutions()
wrong, right = SECOND.wrong, SECOND.right


@wrong("gaussian_kernel", "bandwidth")
def one_over_bandwidth_squared_twice(Q, K, bandwidth):
    d = Q[..., :, None, :] - K[..., None, :, :]
    return torch.exp(-((d**2).sum(-1)) / bandwidth)


@wrong("gaussian_kernel", "sign|minus|large|grow")
def kernel_that_grows(Q, K, bandwidth):
    u2 = sum((Q[..., i, None] - K[..., None, :, i]) ** 2 for i in range(Q.shape[-1]))
    return np.exp(u2 / (2 * bandwidth**2))


@wrong("triangular_kernel", "batch")
def triangle_in_loops(Q, K, bandwidth):
    out = np.zeros((Q.shape[0], K.shape[0]), Q.dtype)
    for i in range(Q.shape[0]):
        for j in range(K.shape[0]):
            out[i, j] = max(0, 1 - np.sqrt(np.sum((Q[i] - K[j]) ** 2)) / bandwidth)
    return out


@wrong("epanechnikov_kernel", "transpos|swap|keys")
def parabola_of_keys_and_queries(Q, K, bandwidth):
    return 0.75 * (1 - (torch.cdist(K, Q) / bandwidth) ** 2).clamp_min(0)


@wrong("normalize", "empty|0/0|sum is 0|sums to 0|NaN|window")
def normalize_adds_one(weights):
    return weights / weights.sum(-1, keepdims=True)


@wrong("normalize", "keepdim|divide|row")
def normalize_adds_a_tenth(weights):
    return weights / (weights.sum(-1, keepdim=True) + 0.1)


@wrong("nadaraya_watson", "values|V")
def watson_returns_weights(Q, K, V, kernel, bandwidth):
    w = kernel(Q, K, bandwidth)
    s = w.sum(-1, keepdims=True)
    return w / np.where(s > 0, s, 1)


@wrong("nadaraya_watson", "twice|bandwidth|1")
def watson_forgets_bandwidth(Q, K, V, kernel, bandwidth):
    w = kernel(Q / bandwidth, K / bandwidth, bandwidth)
    s = w.sum(-1, keepdims=True)
    return w / np.where(s > 0, s, 1) @ V


@wrong("neighbour_weights", "1/k|weight|factor")
def neighbours_over_m(q, K, k):
    d = ((K - q) ** 2).sum(1)
    w = np.zeros((1, len(K)))
    w[0, np.argpartition(d, k - 1)[:k]] = 1 / len(K)
    return w


@wrong("scaled_dot_score", "factor|twice|d in place|divide by d")
def scaled_twice(Q, K):
    s = Q.shape[-1] ** -0.5
    return (Q * s) @ (K * s).mT


@wrong("scaled_dot_score", "factor|¼|fourth|√")
def scaled_by_the_fourth_root(Q, K):
    return torch.matmul(Q, K.mT) / Q.shape[-1] ** 0.25


@wrong("scaled_dot_score", "batch|last two|axes")
def scores_by_tensordot(Q, K):
    return (
        np.tensordot(Q, K, axes=(-1, -1))
        / np.float64(Q.shape[-1]).astype(Q.dtype) ** 0.5
    )


@wrong("bilinear_score", "√d|divide")
def bilinear_scaled(Q, K, M):
    return (Q @ M @ K.swapaxes(-2, -1)) / np.sqrt(K.shape[-1])


@wrong("bilinear_score", r"Mᵀ|transpos")
def bilinear_with_linear(Q, K, M):
    return F.linear(Q, M) @ K.mT


@wrong("additive_score", "difference|sum|add|minus")
def additive_of_differences(Q, K, W_q, W_k, w_v):
    return torch.tanh((Q @ W_q)[..., :, None, :] - (K @ W_k)[..., None, :, :]) @ w_v


@wrong("additive_score", "w_v")
def additive_with_w_inside(Q, K, W_q, W_k, w_v):
    h = (Q @ W_q)[..., :, None, :] + (K @ W_k)[..., None, :, :]
    return np.tanh(h * w_v).sum(-1)


@wrong("additive_by_query", "keys|transpos|rows|column")
def additive_by_key(Q, K, W_q, W_k, w_v):
    return torch.stack([torch.tanh(Q @ W_q + k @ W_k) @ w_v for k in K])


@wrong("gaussian_score", "factor|½|twice")
def gaussian_score_with_another_half(Q, K, bandwidth):
    return -(((Q[..., :, None, :] - K[..., None, :, :]) / bandwidth) ** 2).sum(-1) / 4


@wrong("gaussian_score", "bandwidth")
def gaussian_score_of_bandwidth_one(Q, K, bandwidth):
    return -0.5 * torch.cdist(Q, K) ** 2


@wrong("with_products", "twice|each product|a ≤ b|many|shape")
def products_by_outer(K):
    outer = torch.einsum("...a,...b->...ab", K, K)
    return torch.cat([K, outer.flatten(-2)], -1)


@wrong("softmax", "largest|minus|sign|maximum")
def softmax_minus_minimum(x):
    e = np.exp(x - x.min(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@wrong("softmax", "batch|axis|last")
def softmax_for_rows_only(x):
    out = torch.empty_like(x)
    for i, row in enumerate(x):
        e = (row - row.max()).exp()
        out[i] = e / e.sum()
    return out


@wrong("softmax", "temperature|scores .* as large|factor|√")
def softmax_with_a_scale(x):
    return F.softmax(x / math.sqrt(x.shape[-1]), dim=-1)


@wrong("softmax", "sum to 1|divide|rows|mean")
def softmax_with_a_mean(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.mean(-1, keepdims=True)


@wrong("softmax", "maximum|overflow")
def softmax_with_math_exp(x):
    e = np.array([math.exp(min(s, 709)) for s in x.ravel()]).reshape(x.shape)
    return (e / e.sum(-1, keepdims=True)).astype(x.dtype)


@wrong("softmax", "sum to 1|axis|columns|first")
def softmax_dim_0(x):
    return x.softmax(0)


@wrong("masked_softmax", "renormalis|sum to (less|1)|divide|before")
def masked_by_zeros_after(scores, mask):
    p = torch.softmax(torch.nan_to_num(scores), -1)
    p[~mask] = 0
    return p


@wrong("masked_softmax", "[Ii]nverted|forbidden keys")
def masked_fill_without_not(scores, mask):
    return scores.masked_fill(mask, -torch.inf).softmax(-1).nan_to_num(0)


@wrong("masked_softmax", "columns|axis|queries")
def masked_softmax_axis_0(scores, mask):
    e = np.where(mask, np.exp(np.clip(np.nan_to_num(scores), -50, 50)), 0)
    return e / np.maximum(e.sum(0), 1e-12)


@wrong("masked_softmax", "score multiplied|0 · NaN|exp\\(0\\)")
def masked_scores_times_mask(scores, mask):
    return F.softmax(scores * mask, -1) * mask


@wrong("masked_softmax", "NaN|empty|no permitted")
def masked_minus_inf_in_loops(scores, mask):
    S = scores.copy()
    for i in np.ndindex(S.shape):
        if not mask[i]:
            S[i] = float("-inf")
    e = np.exp(S - S.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@wrong("masked_softmax", "exp\\(0\\)|score set to 0|weight|forbidden")
def masked_with_minus_five(scores, mask):
    return torch.where(mask, scores, torch.full_like(scores, -5.0)).softmax(-1)


@wrong("softmax_vjp", "subtracted")
def vjp_with_a_plus(p, g):
    return p * (g + (p * g).sum(-1, keepdim=True))


@wrong("softmax_vjp", "transpos|axis|row|columns|each")
def vjp_over_columns(p, g):
    return p * (g - (p * g).sum(0))


@wrong("softmax_plus_one", "ordinary softmax")
def plus_one_halved(scores):
    p = F.softmax(scores, -1)
    return p / 2


@wrong("causal_mask", "shape|square|n ≠ m|\\(n, m\\)|align")
def causal_square(n, m):
    return np.tril(np.ones((m, m), bool))[:n]


@wrong("causal_mask", "one token ahead|next|future")
def causal_with_one_ahead(n, m):
    return torch.ones(n, m).tril(m - n + 1).bool()


@wrong("padding_mask", "inverted|blanks|exchanged")
def padding_marks_blanks(valid_lens, m):
    mask = np.zeros((len(valid_lens), 1, m), bool)
    for i, n in enumerate(valid_lens):
        mask[i, :, n:] = True
    return mask


@wrong("padding_mask", "axis|\\(b, 1, m\\)|shape")
def padding_without_axis(valid_lens, m):
    return torch.stack([torch.arange(m) < n for n in valid_lens])


@wrong("left_padding_mask", "one|first word|≥|fewer|not")
def left_padding_by_negative_slices(lengths, m):
    mask = np.zeros((len(lengths), 1, m), bool)
    for row, n in zip(mask, lengths, strict=True):
        row[:, -n:] = True
    return mask


@wrong("window_mask", "too (many|wide)|width` \\+ 1|more")
def window_one_too_wide(n, width):
    return np.array([[0 <= i - j <= width for j in range(n)] for i in range(n)])


@wrong("window_mask", "both sides|future|after")
def window_by_distance(n, width):
    p = torch.arange(n)
    return (p[:, None] - p).abs() < width


@wrong("attention", "√d|sharp")
def attention_forgot_scale(Q, K, V, mask):
    out = F.scaled_dot_product_attention(
        Q, K, V.masked_fill(~mask.any(-2)[..., None], 0), attn_mask=mask, scale=1.0
    )
    return torch.where(mask.any(-1, keepdim=True), out, 0)


@wrong("attention", "√d|twice|divide")
def attention_scaled_twice(Q, K, V, mask):
    Q = Q / math.sqrt(Q.shape[-1])
    out = F.scaled_dot_product_attention(
        Q, K, V.masked_fill(~mask.any(-2)[..., None], 0), attn_mask=mask
    )
    return torch.where(mask.any(-1, keepdim=True), out, 0)


@wrong("attention", "NaN|sees nothing|empty")
def attention_textbook(Q, K, V, mask):
    S = np.einsum("...nd,...md->...nm", Q, K) / np.sqrt(K.shape[-1])
    S[~mask] = -np.inf
    P = np.exp(S - S.max(-1, keepdims=True))
    P = P / P.sum(-1, keepdims=True)
    return P @ V


@wrong("attention", "batch|last two|axes")
def attention_by_two_axes_einsum(Q, K, V, mask):
    S = torch.einsum("nd,md->nm", Q, K) / Q.shape[1] ** 0.5
    A = S.masked_fill(~mask, -torch.inf).softmax(-1).nan_to_num()
    return A @ V.nan_to_num()


@wrong("attention", "average|weights|equal|Q|scores|not depend")
def attention_averages(Q, K, V, mask):
    w = mask / np.maximum(mask.sum(-1, keepdims=True), 1)
    return w @ np.nan_to_num(V)


@wrong("self_attention", "√d|sharp|scaled|divided")
def self_attention_no_scale_loops(X, W_q, W_k, W_v):
    S = torch.einsum("...id,...jd->...ij", X @ W_q, X @ W_k)
    return torch.softmax(S, dim=-1).matmul(X @ W_v)


@wrong("self_attention", "W_k|keys|queries")
def self_attention_with_queries_as_keys(X, W_q, W_k, W_v):
    Q = X @ W_q
    return F.scaled_dot_product_attention(Q, Q, X @ W_v)


@wrong("self_attention", "transpos")
def self_attention_transposed_weights(X, W_q, W_k, W_v):
    Q, K, V = X @ W_q, X @ W_k, X @ W_v
    A = (Q @ K.mT / K.shape[-1] ** 0.5).softmax(-1)
    return A.mT @ V


@wrong("self_attention", "softmax|weights|sum")
def self_attention_without_softmax(X, W_q, W_k, W_v):
    Q, K, V = (np.matmul(X, W) for W in (W_q, W_k, W_v))
    return Q @ K.swapaxes(-1, -2) / np.sqrt(K.shape[-1]) @ V


@wrong("step", "itself|new token")
def step_attends_before_appending(x, K, V, W_q, W_k, W_v):
    w = torch.softmax(K @ (x @ W_q) / K.shape[1] ** 0.5, 0)
    out = w @ V
    return out, torch.vstack([K, x @ W_k]), torch.vstack([V, x @ W_v])


@wrong("step", "front|in another order|end")
def step_prepends(x, K, V, W_q, W_k, W_v):
    K, V = np.vstack([x @ W_k, K]), np.vstack([x @ W_v, V])
    s = K @ (x @ W_q) / np.sqrt(K.shape[1])
    e = np.exp(s - s.max())
    return e / e.sum() @ V, K, V


@wrong("step", "V|value")
def step_forgets_the_value(x, K, V, W_q, W_k, W_v):
    K, new = np.vstack([K, x @ W_k]), np.vstack([V, x @ W_v])
    s = K @ (x @ W_q) / np.sqrt(K.shape[1])
    e = np.exp(s - s.max())
    return e / e.sum() @ new, K, V


@wrong("sees_future", "way round|exchang|True where")
def sees_the_other_way(layer, X):
    for t in range(1, len(X)):
        other = X.copy()
        other[t] = -7.5
        if not np.allclose(layer(other)[:t], layer(X)[:t]):
            return False
    return True


@wrong("permutation_gap", None)
def gap_of_the_first_row(layer, X, order):
    return float((layer(X[order])[0] - layer(X)[order][0]).abs().max())


@wrong("split_heads", "axis|axes|order|before")
def split_heads_after_tokens(X, n_heads):
    return torch.stack(X.chunk(n_heads, -1), dim=-2)


@wrong("split", "h-th column|side by side")
def split_dealt(X, n_heads):
    return np.array([X[:, i::n_heads] for i in range(n_heads)])


@wrong("merge_heads", "averag|mean")
def merge_by_mean(X):
    return X.mean(dim=-3)


@wrong("merge_heads", "interleav|go round|order|places")
def merge_interleaved(X):
    return X.movedim(-3, -1).flatten(-2)


def heads(X, W, h):
    return (X @ W).unflatten(-1, (h, -1)).transpose(-2, -3)


@wrong("multi_head", "W_o")
def heads_without_w_o(X, W_q, W_k, W_v, W_o, n_heads):
    Q, K, V = (heads(X, W, n_heads) for W in (W_q, W_k, W_v))
    return F.scaled_dot_product_attention(Q, K, V).transpose(0, 1).flatten(1)


@wrong("multi_head", "√|scale|divided|sharp")
def heads_without_scale(X, W_q, W_k, W_v, W_o, n_heads):
    Q, K, V = (heads(X, W, n_heads) for W in (W_q, W_k, W_v))
    A = torch.softmax(Q @ K.mT, -1)
    return (A @ V).transpose(0, 1).flatten(1) @ W_o


@wrong("multi_head", "one head|n_heads|heads")
def one_head_for_all(X, W_q, W_k, W_v, W_o, n_heads):
    Q, K, V = X @ W_q, X @ W_k, X @ W_v
    S = Q @ K.T / np.sqrt(Q.shape[-1] / n_heads)
    A = np.exp(S - S.max(1, keepdims=True))
    return A / A.sum(1, keepdims=True) @ V @ W_o


@wrong("multi_head", "causal|later")
def heads_causal(X, W_q, W_k, W_v, W_o, n_heads):
    Q, K, V = (heads(X, W, n_heads) for W in (W_q, W_k, W_v))
    out = F.scaled_dot_product_attention(Q, K, V, is_causal=True)
    return out.transpose(0, 1).flatten(1) @ W_o


@wrong("multi_head_attention", "batch|view|tokens|rows|reshape")
def heads_merged_by_reshape(Q, K, V, W_q, W_k, W_v, W_o, n_heads):
    out = F.scaled_dot_product_attention(
        heads(Q, W_q, n_heads), heads(K, W_k, n_heads), heads(V, W_v, n_heads)
    )
    return out.reshape(*Q.shape[:-1], -1) @ W_o


@wrong("multi_head_attention", "over queries|columns|axis")
def heads_softmax_over_queries(Q, K, V, W_q, W_k, W_v, W_o, n_heads):
    q, k, v = heads(Q, W_q, n_heads), heads(K, W_k, n_heads), heads(V, W_v, n_heads)
    A = torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, dim=-2)
    return (A @ v).transpose(-2, -3).flatten(-2) @ W_o


@wrong("contributions", "W_o")
def shares_with_all_of_w_o(Q, K, V, W_q, W_k, W_v, W_o, n_heads):
    out = F.scaled_dot_product_attention(
        heads(Q, W_q, n_heads), heads(K, W_k, n_heads), heads(V, W_v, n_heads)
    )
    return out @ W_o[: out.shape[-1]]


@wrong("sinusoidal_encoding", "swapped|cosine")
def encoding_cosine_first(n, d):
    P = torch.zeros(n, d)
    a = torch.arange(n)[:, None] / 10000 ** (torch.arange(0, d, 2) / d)
    P[:, 0::2], P[:, 1::2] = a.cos(), a[:, : d // 2].sin()
    return P


@wrong(
    "sinusoidal_encoding",
    "shift|same for all|positions|width|swap|transpos|scal|factor|n in place",
)
def encoding_divides_by_n(n, d):
    a = np.arange(n)[:, None] / 10000 ** (np.arange(0, d, 2) / d) / n
    P = np.zeros((n, d))
    P[:, 0::2], P[:, 1::2] = np.sin(a), np.cos(a)[:, : d // 2]
    return P


@wrong("encode", "halves|alternate")
def encode_concatenated(positions, d, base=10000.0):
    a = positions[:, None] / base ** (torch.arange(0, d, 2) / d)
    return torch.cat([a.sin(), a.cos()], 1)[:, :d]


@wrong("rotary", "halves|libraries")
def rotary_as_hugging_face(X):
    a = torch.cat([angles_for(X)] * 2, -1)
    x, y = X.chunk(2, -1)
    return X * a.cos() + torch.cat([-y, x], -1) * a.sin()


@wrong("rotary", "wrong way|−θ")
def rotary_by_the_conjugate(X):
    a = angles_for(X).repeat_interleave(2, -1)
    return turn(X, a.cos(), -a.sin())


@wrong("rotary", "from 1|Positions start at 0|already")
def rotary_from_one(X):
    X = torch.cat([torch.zeros_like(X[..., :1, :]), X], -2)
    a = angles_for(X).repeat_interleave(2, -1)
    return turn(X, a.cos(), a.sin())[..., 1:, :]


@wrong("alibi_bias", "penalty|minus|sign|positive")
def alibi_positive(n_heads, n, m):
    s = 2.0 ** (-8 * np.arange(1, n_heads + 1) / n_heads)
    return s[:, None, None] * abs(np.arange(m - n, m)[:, None] - np.arange(m))


@wrong("alibi_bias", "slope|exponent|8")
def alibi_linear_slopes(n_heads, n, m):
    s = torch.arange(1, n_heads + 1) / n_heads
    d = (torch.arange(m - n, m)[:, None] - torch.arange(m)).abs()
    return -s[:, None, None] * d


@wrong("to_halves", "heads|each head")
def halves_of_everything(W, n_heads):
    return np.concatenate([W[:, ::2], W[:, 1::2]], axis=1)


@wrong("numerical_gradient", "2h|factor|twice|half")
def gradient_over_h(f, x):
    g = np.zeros_like(x)
    for i in range(x.size):
        e = np.zeros(x.size)
        e[i] = 1e-6
        e = e.reshape(x.shape)
        g.flat[i] = (f(x + e) - f(x - e)) / 1e-6
    return g


@wrong("numerical_gradient", "rounding|small|step")
def gradient_with_a_tiny_step(f, x):
    g = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        e = np.zeros_like(x)
        e[i] = 1e-12
        g[i] = (f(x + e) - f(x - e)) / 2e-12
    return g


@wrong("log_softmax_vjp", "softmax|log")
def log_vjp_divided(scores, g):
    p = F.softmax(scores, -1)
    return p * (g - (p * g).sum(-1, keepdim=True))


@wrong("bilinear_score_vjp", "dK|transpos|g not")
def bilinear_vjp_with_keys_wrong(Q, K, M, g):
    return g @ K @ M.T, g.T @ Q @ M.T, Q.T @ g @ K


@wrong("self_attention_vjp", "queries|path|dX")
def vjp_without_keys_path(X, W_q, W_k, W_v, g):
    X, W_q, W_k, W_v = (t.clone().requires_grad_() for t in (X, W_q, W_k, W_v))
    out = F.scaled_dot_product_attention(X @ W_q, X.detach() @ W_k, X @ W_v)
    dX, dq, dv = torch.autograd.grad(out, (X, W_q, W_v), g, retain_graph=True)
    return dX, dq, torch.autograd.grad(out, W_k, g)[0], dv


@wrong("greedy", "score|log-probability|sum")
def greedy_with_the_mean(step, end, max_len):
    tokens, logs = [], []
    while len(tokens) < max_len and end not in tokens:
        log_p = step(np.array(tokens, int))
        tokens += [int(log_p.argmax())]
        logs += [log_p.max()]
    return np.array(tokens), np.mean(logs)


@wrong("greedy", "end")
def greedy_drops_the_end(step, end, max_len):
    tokens, total = torch.zeros(0, dtype=torch.long), 0.0
    for _ in range(max_len):
        best, y = step(tokens).max(0)
        total += best.item()
        if y == end:
            break
        tokens = torch.cat([tokens, y[None]])
    return tokens, total


@wrong("beam", "greedy|one sentence|k is")
def beam_of_one(step, end, max_len, k):
    tokens, total = [], 0.0
    while len(tokens) < max_len and (not tokens or tokens[-1] != end):
        log_p = step(np.array(tokens, int))
        tokens.append(int(np.argmax(log_p)))
        total += float(np.max(log_p))
    return np.array(tokens), total


@wrong("previous_symbols", "0|zero|begin")
def previous_with_zeros(target, end):
    return F.pad(target, (1, 0))[:, :-1]


@wrong("exact_match", "symbols|share of")
def match_of_symbols(found, target, end):
    width = min(found.shape[1], target.shape[1])
    return float((found[:, :width] == target[:, :width]).mean())


@wrong("layer_norm", "mean")
def norm_without_mean(X, gain, shift):
    return F.rms_norm(X, X.shape[-1:], gain, eps=1e-5) + shift


@wrong("layer_norm", "n − 1|d − 1|correction")
def norm_with_torch_std(X, gain, shift):
    return (X - X.mean(-1, keepdim=True)) / torch.sqrt(
        X.var(-1, keepdim=True) + 1e-5
    ) * gain + shift


@wrong("layer_norm", "tokens|batch|axis")
def norm_as_batch_norm(X, gain, shift):
    axes = tuple(range(X.ndim - 1))
    m, v = X.mean(axes, keepdims=True), X.var(axes, keepdims=True)
    return (X - m) / np.sqrt(v + 1e-5) * gain + shift


@wrong("windows", "inputs|copy|targets")
def windows_of_the_same(ids, starts, n):
    rows = torch.stack([ids[s : s + n] for s in starts])
    return rows, rows


@wrong("next_token_loss", "sum")
def loss_summed(logits, targets):
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten(), reduction="sum")


@wrong("next_token_loss", "sign|negative|minus")
def loss_with_a_plus(logits, targets):
    logs = logits.log_softmax(-1).gather(-1, targets[..., None])
    return logs.mean()


@wrong("top_k", "sum to 1|divide|before")
def top_k_zeroed(logits, k, temperature):
    p = (logits / temperature).softmax(-1)
    return p * (p >= p.topk(k).values[..., -1:])


@wrong("top_k", "temperature")
def top_k_without_temperature(logits, k, temperature):
    out = np.zeros_like(logits)
    for i in np.ndindex(logits.shape[:-1]):
        keep = np.argsort(logits[i])[-k:]
        e = np.exp(logits[i][keep] - logits[i][keep].max())
        out[i][keep] = e / e.sum()
    return out


@wrong("merge", "rescal|tops|totals")
def merge_added(t1, l1, o1, t2, l2, o2):
    return torch.maximum(t1, t2), l1 + l2, o1 + o2


@wrong("causal_tiles", "left|align|n ≠ m|last")
def tiles_upper_left(n, m, tile):
    seen = np.tri(n, m, dtype=bool)
    return np.array(
        [[seen[i : i + tile, j : j + tile].any() for j in range(0, m, tile)]
         for i in range(0, n, tile)]
    )  # fmt: skip


@wrong("quotient_scores", "Σw|constant|sum of w")
def quotients_by_tanh(a, b, w):
    return torch.tanh(a[:, None] + b[None]) @ w


@wrong("score_bound", "root|square")
def bound_of_squares(Q, K, scale):
    return (Q**2).sum(-1).max() * (K**2).sum(-1).max() * abs(scale)


@right("softmax")
def softmax_transposed_twice(x):
    y = np.moveaxis(x, -1, 0)
    e = np.exp(y - np.max(y, axis=0))
    return np.moveaxis(e / np.sum(e, axis=0), 0, -1)


@right("masked_softmax")
def masked_by_float_mask(scores, mask):
    low = torch.zeros_like(scores).masked_fill(~mask, -torch.inf)
    clean = torch.where(mask, scores, 0) + low
    return clean.softmax(-1).nan_to_num()


@right("attention")
def attention_by_masked_arrays(Q, K, V, mask):
    S = np.where(mask, Q @ K.swapaxes(-1, -2) * Q.shape[-1] ** -0.5, -np.inf)
    e = np.exp(S - np.where(mask.any(-1), S.max(-1), 0)[..., None])
    w = e / np.maximum(e.sum(-1, keepdims=True), 1e-300)
    return w @ np.where(np.isnan(V), 0, V)


@right("multi_head")
def heads_by_einsum(X, W_q, W_k, W_v, W_o, n_heads):
    q, k, v = (W.reshape(len(W), n_heads, -1) for W in (W_q, W_k, W_v))
    Q, K, V = (np.einsum("nd,dhe->hne", X, W) for W in (q, k, v))
    S = np.einsum("hne,hme->hnm", Q, K) / np.sqrt(Q.shape[-1])
    A = np.exp(S - S.max(-1, keepdims=True))
    A /= A.sum(-1, keepdims=True)
    return np.einsum("hnm,hme,heo->no", A, V, W_o.reshape(n_heads, -1, W_o.shape[1]))


@right("layer_norm")
def norm_by_std_mean(X, gain, shift):
    var, mean = torch.var_mean(X, -1, correction=0, keepdim=True)
    return torch.addcmul(shift, gain, (X - mean) * torch.rsqrt(var + 1e-5))


@right("causal_mask")
def mask_from_tril_indices(n, m):
    mask = np.zeros((n, m), bool)
    mask[np.tril_indices(n, m - n, m)] = True
    return mask


@right("top_k")
def top_k_by_sorting_places(logits, k, temperature):
    rank = np.argsort(np.argsort(-logits, -1), -1)
    S = np.where(rank < k, logits / temperature, -np.inf)
    e = np.exp(S - S.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@right("rotary")
def rotary_pair_by_pair(X):
    out = np.empty_like(X)
    d = X.shape[-1]
    for p in range(X.shape[-2]):
        for i in range(0, d, 2):
            c, s = (f(p * 10000 ** (-i / d)) for f in (math.cos, math.sin))
            x, y = X[..., p, i], X[..., p, i + 1]
            out[..., p, i], out[..., p, i + 1] = c * x - s * y, s * x + c * y
    return out
