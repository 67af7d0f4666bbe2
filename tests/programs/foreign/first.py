"""The first set, 165 wrong: 23 were named (14 %), 9 hinted at, 2 misled, 123 unnamed, 8 accepted, and 3 of 42 right
refused."""

import itertools
import math

import numpy as np
import torch
import torch.nn.functional as F

from foreign import Solutions

FIRST = Solutions()
wrong, right = FIRST.wrong, FIRST.right

# Chapter 1.


@wrong("gaussian_kernel", "factor|2π|density")
def kernel_as_a_density(Q, K, bandwidth):
    d2 = ((Q[..., :, None, :] - K[..., None, :, :]) ** 2).sum(-1)
    return np.exp(-d2 / (2 * bandwidth**2)) / (bandwidth * np.sqrt(2 * np.pi))


@wrong("gaussian_kernel", "mean|average")
def kernel_of_the_mean_square(Q, K, bandwidth):
    u = (Q.unsqueeze(-2) - K.unsqueeze(-3)) / bandwidth
    return torch.exp(-0.5 * u.pow(2).mean(-1))


@wrong("gaussian_kernel", "absolute|Euclidean|sum of squares")
def kernel_of_city_blocks(Q, K, bandwidth):
    return torch.exp(-(torch.cdist(Q, K, p=1) ** 2) / (2 * bandwidth**2))


@wrong("gaussian_kernel", "batch")
def kernel_for_two_axes(Q, K, bandwidth):
    return np.array(
        [[math.exp(-((q - k) @ (q - k)) / 2 / bandwidth**2) for k in K] for q in Q]
    ).astype(Q.dtype)


@wrong("boxcar_kernel", "factor|½|half|twice")
def boxcar_as_a_density(Q, K, bandwidth):
    near = torch.cdist(Q, K) <= bandwidth
    return near.to(Q.dtype) / 2


@wrong("triangular_kernel", "largest|1 −|bandwidth")
def triangle_in_the_scale_of_the_bandwidth(Q, K, bandwidth):
    return torch.relu(bandwidth - torch.cdist(Q, K))


@wrong("triangular_kernel", "negative|outside|max")
def triangle_with_absolute_value(Q, K, bandwidth):
    u = np.linalg.norm(Q[..., :, None, :] - K[..., None, :, :], axis=-1) / bandwidth
    return np.abs(1 - u)


@wrong("epanechnikov_kernel", "squared|u²|parabola")
def parabola_of_the_wrong_thing(Q, K, bandwidth):
    u = torch.cdist(Q, K) / bandwidth
    return 0.75 * (1 - u).clamp(min=0) ** 2


@wrong("normalize", "axis|batch")
def normalize_axis_one(weights):
    total = weights.sum(axis=1, keepdims=True)
    return np.divide(weights, total, out=np.zeros_like(weights), where=total != 0)


@wrong("normalize", "largest|maximum|sum")
def normalize_by_the_largest(weights):
    top = weights.amax(-1, keepdim=True)
    return torch.where(top > 0, weights / top, weights)


@wrong("normalize", "length|norm|root|squares")
def normalize_as_a_vector(weights):
    return F.normalize(weights, dim=-1)


@wrong("normalize", "keepdims|broadcast|axis")
def normalize_without_keepdims(weights):
    total = weights.sum(-1)
    total[total == 0] = 1
    return weights / total


@wrong("nadaraya_watson", "normalis|sum of|number of keys|divide")
def mean_over_the_keys(Q, K, V, kernel, bandwidth):
    return np.einsum("...nm,...mv->...nv", kernel(Q, K, bandwidth), V) / K.shape[-2]


@wrong("nadaraya_watson", "shape|axis|axes")
def average_squeezed(Q, K, V, kernel, bandwidth):
    w = kernel(Q, K, bandwidth)
    w = w / np.maximum(w.sum(-1, keepdims=True), 1e-12)
    return (w @ V).squeeze()


@wrong("nadaraya_watson", "over queries|columns")
def asks_the_keys(Q, K, V, kernel, bandwidth):
    w = kernel(K, Q, bandwidth).swapaxes(-1, -2)
    w = w / w.sum(-2, keepdims=True)
    return np.nan_to_num(w) @ V


@wrong("neighbour_weights", r"\(1, m\)|axis|shape")
def neighbours_in_a_vector(q, K, k):
    w = np.zeros(len(K))
    w[np.argsort(((K - q) ** 2).sum(1))[:k]] = 1 / k
    return w


@wrong("neighbour_weights", "farthest")
def neighbours_by_topk(q, K, k):
    d = torch.cdist(q, K)
    w = torch.zeros_like(d)
    return w.scatter(-1, d.topk(k).indices, 1 / k)


@wrong("neighbour_weights", "1/k|equal|the same weight")
def neighbours_by_closeness(q, K, k):
    d = np.linalg.norm(K - q, axis=1)
    w = np.zeros((1, len(K)))
    for j in np.argsort(d)[:k]:
        w[0, j] = 1 / (1 + d[j])
    return w / w.sum()


# Chapter 2.


@wrong("scaled_dot_score", "batch|last two")
def scores_with_T(Q, K):
    return Q.dot(K.T) / Q.shape[1] ** 0.5


@wrong("scaled_dot_score", "length|cosine|norms")
def scores_as_cosines(Q, K):
    return F.normalize(Q, dim=-1) @ F.normalize(K, dim=-1).transpose(-1, -2)


@wrong("scaled_dot_score", "weights|softmax|sum to 1")
def scores_already_weights(Q, K):
    return F.softmax(Q @ K.mT / math.sqrt(Q.shape[-1]), dim=-1)


@wrong("scaled_dot_score", "number of queries|√n")
def scores_by_the_root_of_the_length(Q, K):
    return torch.einsum("...nd,...md->...nm", Q, K) / math.sqrt(Q.size(-2))


@wrong("bilinear_score", "keys by queries|rows are queries|transpos")
def bilinear_transposed(Q, K, M):
    return torch.einsum("...nq,qk,...mk->...mn", Q, M, K)


@wrong("bilinear_score", "batch")
def bilinear_entry_by_entry(Q, K, M):
    S = np.empty((len(Q), len(K)))
    for i, q in enumerate(Q):
        for j, k in enumerate(K):
            S[i, j] = q.dot(M).dot(k)
    return S


@wrong("additive_score", "tanh")
def additive_with_relu(Q, K, W_q, W_k, w_v):
    return torch.relu((Q @ W_q).unsqueeze(-2) + (K @ W_k).unsqueeze(-3)) @ w_v


@wrong("additive_score", "batch")
def additive_for_two_axes(Q, K, W_q, W_k, w_v):
    return np.tanh((Q @ W_q)[:, None] + (K @ W_k)[None]) @ w_v


@wrong("additive_by_query", "tanh")
def additive_with_a_sigmoid(Q, K, W_q, W_k, w_v):
    return np.stack([1 / (1 + np.exp(-(q @ W_q + K @ W_k))) @ w_v for q in Q])


@wrong("additive_by_query", "factor|mean")
def additive_averaged(Q, K, W_q, W_k, w_v):
    rows = [(w_v * torch.tanh(q @ W_q + K @ W_k)).mean(1) for q in Q]
    return torch.stack(rows)


@wrong("gaussian_score", "mean|average")
def gaussian_score_averaged(Q, K, bandwidth):
    return -F.mse_loss(
        *torch.broadcast_tensors(Q[..., :, None, :], K[..., None, :, :]),
        reduction="none",
    ).mean(-1) / (2 * bandwidth**2)


@wrong("gaussian_score", "√|root|constant|log")
def gaussian_log_density(Q, K, bandwidth):
    d2 = ((Q[..., :, None, :] - K[..., None, :, :]) ** 2).sum(-1)
    return -d2 / (2 * bandwidth**2) - math.log(bandwidth * math.sqrt(2 * math.pi))


@wrong("find_temperature", "mean|sum|first row")
def temperature_of_the_whole_array(scores, entropy):
    def entropy_at(T):
        p = np.exp((scores - scores.max(-1, keepdims=True)) / T)
        p /= p.sum(-1, keepdims=True)
        return -(p * np.log(p + 1e-300)).sum()

    low, high = 1e-3, 1e4
    for _ in range(100):
        T = math.sqrt(low * high)
        low, high = (T, high) if entropy_at(T) < entropy else (low, T)
    return T


@wrong("widen", "partner|opposite|‖q‖²|1 in the")
def widen_with_the_ones_on_one_side(Q, K, bandwidth):
    Q, K = Q / bandwidth, K / bandwidth
    one = np.ones((len(Q), 1)), np.ones((len(K), 1))
    q2, k2 = (-0.5 * np.sum(X * X, axis=1, keepdims=True) for X in (Q, K))
    return np.hstack([Q, q2, one[0]]), np.hstack([K, k2, one[1]])


@wrong("widen", "bandwidth")
def widen_by_the_root_of_the_bandwidth(Q, K, bandwidth):
    Q, K = Q / bandwidth**0.5, K / bandwidth**0.5
    q2, k2 = (-(X**2).sum(-1, keepdim=True) / 2 for X in (Q, K))
    return (
        torch.cat([Q, q2, torch.ones_like(q2)], -1),
        torch.cat([K, torch.ones_like(k2), k2], -1),
    )


@wrong("with_products", "squares|a = b")
def products_of_combinations(K):
    pairs = list(itertools.combinations(range(K.shape[-1]), 2))
    more = [K[..., a] * K[..., b] for a, b in pairs]
    return np.concatenate([K, np.stack(more, axis=-1)], axis=-1)


# Chapter 3.


@wrong("softmax", "axis|batch|last")
def softmax_dim_1(x):
    return F.softmax(x, dim=1)


@wrong("softmax", "axis|maximum")
def softmax_axis_1_without_maximum(x):
    e = np.exp(x)
    return e / e.sum(axis=1, keepdims=True)


@wrong("softmax", "clip|cut")
def softmax_clipped(x):
    e = np.exp(np.clip(x, -500, 500))
    return e / e.sum(-1, keepdims=True)


@wrong("softmax", "mean|maximum|overflow")
def softmax_minus_the_mean(x):
    e = torch.exp(x - x.mean(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True)


@wrong("softmax", "absolute|maximum|underflow")
def softmax_minus_the_largest_size(x):
    e = np.exp(x - np.abs(x).max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


@wrong("softmax", "keepdims")
def softmax_without_keepdims(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1)


@wrong("softmax", "maximum|shift|each row")
def softmax_minus_the_columns_maximum(x):
    e = np.exp(x - x.max(axis=-2, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


@wrong("softmax", "logarithm|log")
def softmax_in_logarithms(x):
    return F.log_softmax(x, dim=-1)


@wrong("softmax", "sign|minus|largest")
def softmax_of_minus(x):
    x = x - x.min(-1, keepdims=True)
    return np.exp(-x) / np.exp(-x).sum(-1, keepdims=True)


@wrong("softmax", "sum to 1|sigmoid|divide")
def softmax_as_sigmoids(x):
    return torch.sigmoid(x)


@wrong("softmax", "base|exp|2")
def softmax_to_base_two(x):
    e = 2 ** (x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@wrong("softmax", "columns|queries")
def softmax_by_einsum(x):
    e = np.exp(x - x.max(-2, keepdims=True))
    return np.einsum("...ij,...j->...ij", e, 1 / np.einsum("...ij->...j", e))


@wrong("softmax", "together|whole array|each row|each must")
def softmax_of_everything(x):
    return torch.softmax(x.flatten(), 0).view_as(x)


@wrong("softmax", "sum to 1|divide")
def softmax_not_divided(x):
    return np.exp(x - x.max(-1, keepdims=True))


@wrong("masked_softmax", "columns|queries|axis")
def masked_softmax_over_columns(scores, mask):
    e = np.exp(np.where(mask, scores, -np.inf))
    return e / e.sum(axis=-2, keepdims=True)


@wrong("masked_softmax", "axis|batch")
def masked_softmax_dim_1(scores, mask):
    return F.softmax(scores.masked_fill(~mask, -torch.inf), dim=1).nan_to_num()


@wrong("masked_softmax", "hidden|forbidden|added|adds? 1")
def mask_as_a_float_added(scores, mask):
    return F.softmax(scores + mask.to(scores.dtype), -1)


@wrong("masked_softmax", "[Ii]nverted|forbidden keys")
def mask_times_minus_a_billion(scores, mask):
    scores = scores.double() + mask * -1e9
    return scores.softmax(-1)


@wrong("masked_softmax", "score set to 0|exp\\(0\\)")
def mask_with_a_typo(scores, mask):
    return scores.masked_fill(~mask, 1e-9).softmax(-1)


@wrong("masked_softmax", "NaN|empty|no permitted|before")
def masked_then_renormalised(scores, mask):
    w = np.exp(scores - scores.max(-1, keepdims=True)) * mask
    return w / w.sum(-1, keepdims=True)


@wrong("masked_softmax", "large negative|number|−∞")
def masked_with_ten_thousand(scores, mask):
    p = torch.softmax(scores.masked_fill(mask.logical_not(), -1e4), -1)
    return p * mask.any(-1, keepdim=True)


@wrong("masked_softmax", "no permitted|empty")
def empty_rows_uniform(scores, mask):
    S = np.where(mask, scores, -np.inf)
    S[~mask.any(-1)] = 0
    e = np.exp(S - S.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@wrong("masked_softmax", "maximum|overflow")
def masked_by_product_without_maximum(scores, mask):
    e = torch.exp(scores.masked_fill(~mask, -torch.inf))
    return e / e.sum(-1, keepdim=True).clamp_min(1e-30)


@wrong("masked_softmax", "changes its input")
def masked_in_place(scores, mask):
    scores[~mask] = -np.inf
    top = np.nan_to_num(scores.max(-1, keepdims=True), neginf=0)
    e = np.exp(scores - top)
    total = e.sum(-1, keepdims=True)
    return e / np.where(total > 0, total, 1)


@wrong("masked_softmax", "maximum of|forbidden|permitted score|hidden")
def maximum_of_the_hidden_too(scores, mask):
    e = np.exp(scores - np.nanmax(scores, -1, keepdims=True))
    e = np.where(mask, e, 0)
    return e / np.maximum(e.sum(-1, keepdims=True), 1e-300)


@wrong("softmax_vjp", "mean|sum")
def vjp_with_a_mean(p, g):
    return p * (g - (p * g).mean(-1, keepdim=True))


@wrong("softmax_vjp", "keepdims|each row|all rows|axis")
def vjp_of_the_whole(p, g):
    return np.multiply(p, g - np.dot(p.ravel(), g.ravel()))


@wrong("softmax_vjp", "without p|times p|p ·|weight")
def vjp_without_the_weights(p, g):
    return g - np.einsum("nm,nm->n", p, g)[:, None]


@wrong("softmax_plus_one", "score 0|exp\\(0\\)|score of 1|score 1")
def plus_one_as_a_score(scores):
    one = torch.ones(*scores.shape[:-1], 1, dtype=scores.dtype)
    return F.softmax(torch.cat((scores, one), dim=-1), dim=-1)[..., :-1]


@wrong("softmax_plus_one", "clip|cut")
def plus_one_clipped(scores):
    e = np.exp(np.minimum(scores, 700))
    return e / (1 + e.sum(-1, keepdims=True))


@wrong("causal_mask", "boolean|−∞|added")
def mask_to_be_added(n, m):
    return torch.full((n, m), -torch.inf).triu(1 + m - n)


@wrong("causal_mask", "align|last query")
def offset_with_the_wrong_sign(n, m):
    return np.array([[j <= i + n - m for j in range(m)] for i in range(n)])


@wrong("causal_mask", "future|after|upper")
def upper_triangle(n, m):
    return np.triu(np.ones((n, m), dtype=bool), k=m - n)


@wrong("causal_mask", r"\(m, n\)|shape|keys by queries|transpos|rows are queries")
def loops_the_other_way(n, m):
    return np.array([[j <= i + m - n for i in range(n)] for j in range(m)])


@wrong("padding_mask", r"\(b, 1, m\)|axis")
def padding_with_two_axes_too_many(valid_lens, m):
    return (torch.arange(m)[None] < valid_lens[:, None])[:, None, None, :]


@wrong("padding_mask", r"\(b, 1, m\)|transpos|axis of length 1")
def padding_as_a_column(valid_lens, m):
    return np.array([[[j < length] for j in range(m)] for length in valid_lens])


@wrong("padding_mask", "one key too many|≤")
def padding_by_slices(valid_lens, m):
    mask = torch.zeros(len(valid_lens), 1, m, dtype=torch.bool)
    for row, length in zip(mask, valid_lens, strict=True):
        row[:, : length + 1] = True
    return mask


@wrong("left_padding_mask", "left|first|right")
def left_padding_by_a_flipped_batch(lengths, m):
    mask = np.zeros((len(lengths), 1, m), bool)
    for b, length in enumerate(lengths):
        mask[b, 0, :length] = True
    return mask


@wrong("window_mask", "future|after|later|j ≤ i")
def window_open_to_the_future(n, width):
    i = torch.arange(n)
    return i[:, None] - i[None, :] < width


@wrong("window_mask", "itself|diagonal|own")
def window_before_the_token(n, width):
    mask = np.zeros((n, n), dtype=bool)
    for i in range(n):
        mask[i, max(0, i - width) : i] = True
    return mask


# Chapter 4.


@wrong("attention", "added|adds? 1|boolean|not used|hidden|forbidden")
def attention_with_a_float_mask(Q, K, V, mask):
    return F.scaled_dot_product_attention(Q, K, V, attn_mask=mask.to(Q.dtype))


@wrong("attention", "maximum|overflow")
def attention_without_maximum(Q, K, V, mask):
    e = np.where(mask, np.exp(Q @ np.swapaxes(K, -1, -2) / Q.shape[-1] ** 0.5), 0)
    total = e.sum(-1, keepdims=True)
    V = np.where(mask.any(-2)[..., None], V, 0)
    return e / np.where(total == 0, 1, total) @ V


def clean_attention(Q, K, V, mask, scale, dim=-1):
    S = torch.einsum("...nd,...md->...nm", Q, K) * scale
    P = S.masked_fill(~mask, -torch.inf).softmax(dim).nan_to_num()
    return P @ V.masked_fill(~mask.any(-2)[..., None], 0.0)


@wrong("attention", "values|d_v")
def attention_by_the_values_width(Q, K, V, mask):
    return clean_attention(Q, K, V, mask, 1 / math.sqrt(V.shape[-1]))


@wrong("attention", "after (the )?softmax")
def attention_scaled_too_late(Q, K, V, mask):
    return clean_attention(Q, K, V, mask, 1.0) / math.sqrt(Q.shape[-1])


@wrong("attention", "number of keys|√m")
def attention_by_the_number_of_keys(Q, K, V, mask):
    return clean_attention(Q, K, V, mask, K.size(-2) ** -0.5)


@wrong("attention", "axis|batch|over queries")
def attention_dim_1(Q, K, V, mask):
    return clean_attention(Q, K, V, mask, Q.shape[-1] ** -0.5, dim=1)


@wrong("attention", "[Ii]nverted|sees? the forbidden|see the forbidden|hidden")
def attention_inverted_and_unscaled(Q, K, V, mask):
    S = (Q @ K.transpose(-1, -2)).masked_fill(mask, -1e9)
    return F.softmax(S, dim=-1) @ V


@wrong("attention", "batch|last two")
def attention_with_T(Q, K, V, mask):
    S = np.where(mask, Q @ K.T / math.sqrt(Q.shape[-1]), -np.inf)
    top = np.where(mask.any(-1, keepdims=True), S.max(-1, keepdims=True), 0)
    e = np.exp(S - top)
    total = e.sum(-1, keepdims=True)
    return e / np.where(total == 0, 1, total) @ np.nan_to_num(V)


@wrong(
    "attention",
    "mask (is )?(ignored|not used)|not use the mask|does not depend on the mask",
)
def attention_causal_whatever_the_mask(Q, K, V, mask):
    return F.scaled_dot_product_attention(Q, K, V, is_causal=True)


@wrong("attention", "sees nothing|nothing is permitted")
def attention_averages_if_blind(Q, K, V, mask):
    out = np.empty((*Q.shape[:-1], V.shape[-1]))
    for at in np.ndindex(Q.shape[:-1]):
        seen = mask[at] if mask[at].any() else np.ones_like(mask[at])
        keys, values = K[at[:-1]][seen], V[at[:-1]][seen]
        s = keys @ Q[at] / math.sqrt(Q.shape[-1])
        w = np.exp(s - s.max())
        out[at] = w / w.sum() @ values
    return out


@wrong("self_attention", r"W\.T|transpos")
def self_attention_as_linear_layers(X, W_q, W_k, W_v):
    Q, K, V = (F.linear(X, W) for W in (W_q, W_k, W_v))
    return F.scaled_dot_product_attention(Q, K, V)


@wrong("self_attention", "values|d_v")
def self_attention_by_the_values_width(X, W_q, W_k, W_v):
    Q, K, V = X @ W_q, X @ W_k, X @ W_v
    return F.scaled_dot_product_attention(Q, K, V, scale=V.shape[-1] ** -0.5)


@wrong("self_attention", "after (the )?softmax")
def self_attention_scaled_too_late(X, W_q, W_k, W_v):
    Q, K, V = X @ W_q, X @ W_k, X @ W_v
    return torch.softmax(Q @ K.mT, -1) / math.sqrt(K.shape[-1]) @ V


@wrong("self_attention", "axis|batch|over queries")
def self_attention_dim_1(X, W_q, W_k, W_v):
    Q, K, V = X @ W_q, X @ W_k, X @ W_v
    return F.softmax(Q @ K.mT / math.sqrt(K.shape[-1]), dim=1) @ V


@wrong("self_attention", "causal|later|future")
def self_attention_with_a_mask(X, W_q, W_k, W_v):
    return F.scaled_dot_product_attention(X @ W_q, X @ W_k, X @ W_v, is_causal=True)


@wrong("self_attention", "maximum|overflow")
def self_attention_by_loops(X, W_q, W_k, W_v):
    def one(X):
        Q, K, V = X @ W_q, X @ W_k, X @ W_v
        rows = []
        for q in Q:
            w = np.exp([q @ k / math.sqrt(len(q)) for k in K])
            rows.append(sum(a * v for a, v in zip(w, V, strict=True)) / w.sum())
        return np.array(rows)

    return one(X) if X.ndim == 2 else np.stack([one(x) for x in X])


@wrong("self_attention", "weights|values")
def self_attention_weights_returned(X, W_q, W_k, W_v):
    return ((X @ W_q) @ (X @ W_k).mT / W_k.shape[1] ** 0.5).softmax(-1)


@wrong("step", "maximum|overflow")
def step_without_maximum(x, K, V, W_q, W_k, W_v):
    K, V = np.append(K, [x @ W_k], axis=0), np.append(V, [x @ W_v], axis=0)
    w = np.exp(K @ (x @ W_q) / math.sqrt(K.shape[1]))
    return w / w.sum() @ V, K, V


@wrong("step", r"\(1, |axis|shape")
def step_with_a_row_too_many(x, K, V, W_q, W_k, W_v):
    x = x[None]
    K, V = torch.cat([K, x @ W_k]), torch.cat([V, x @ W_v])
    return F.scaled_dot_product_attention(x @ W_q, K, V), K, V


@wrong("step", "values|d_v")
def step_by_the_values_width(x, K, V, W_q, W_k, W_v):
    K, V = torch.vstack([K, x @ W_k]), torch.vstack([V, x @ W_v])
    w = (K @ (x @ W_q) / V.shape[1] ** 0.5).softmax(0)
    return w @ V, K, V


@wrong("step", "transpos|W.T")
def step_as_linear_layers(x, K, V, W_q, W_k, W_v):
    K, V = torch.vstack([K, W_k @ x]), torch.vstack([V, W_v @ x])
    w = (K @ (W_q @ x) / K.shape[1] ** 0.5).softmax(0)
    return w @ V, K, V


@wrong("sees_future", "past|before")
def changes_elsewhere(layer, X):
    out = layer(X)
    for t in range(len(X)):
        other = X.copy()
        other[t] = np.random.default_rng(t).normal(size=X.shape[1])
        rest = np.arange(len(X)) != t
        if not np.allclose(layer(other)[rest], out[rest]):
            return True
    return False


@wrong("sees_future", "last")
def never_asks_the_last(layer, X):
    for t in range(1, len(X) - 1):
        other = X.clone()
        other[t] = torch.randn_like(X[t])
        if not torch.allclose(layer(other)[:t], layer(X)[:t]):
            return True
    return False


@wrong("permutation_gap", "largest|sum|length|norm")
def gap_as_a_length(layer, X, order):
    return np.linalg.norm(layer(X[order]) - layer(X)[order])


@wrong("permutation_gap", "largest|sum")
def gap_summed(layer, X, order):
    return (layer(X[order]) - layer(X)[order]).abs().sum()


# Chapter 5.


@wrong("split_heads", "rows")
def split_rows(X, n_heads):
    return X.view(*X.shape[:-2], n_heads, X.shape[-2], X.shape[-1] // n_heads)


@wrong("split_heads", "batch")
def split_with_axes_from_the_front(X, n_heads):
    heads = X.reshape(*X.shape[:-1], n_heads, X.shape[-1] // n_heads)
    return heads.swapaxes(0, 1)


@wrong("split_heads", "h-th column|side by side")
def split_every_other(X, n_heads):
    heads = X.reshape(*X.shape[:-1], -1, n_heads)
    return np.moveaxis(heads, -1, -3)


@wrong("split", "transpos|last two|swap")
def split_and_turned(X, n_heads):
    return np.array(np.split(X.T, n_heads))


@wrong("split", "order|exchanged|permut|swap")
def split_backwards(X, n_heads):
    return torch.stack(X.chunk(n_heads, dim=1)[::-1])


@wrong("merge_heads", "batch")
def merge_two_axes(X):
    return np.concatenate(list(X), axis=-1)


@wrong("merge_heads", "add|sum|side by side")
def merge_by_adding(X):
    return X.sum(dim=-3)


@wrong("merge_heads", "rows mix|tokens|Swap")
def merge_by_view(X):
    *batch, h, n, d = X.shape
    return X.contiguous().view(*batch, n, h * d)


def many_heads(X, W_q, W_k, W_v, W_o, h, dim=-1, of=lambda W, s: W[:, s], maximum=True):
    out, width = [], W_q.shape[1] // h
    for i in range(h):
        s = slice(i * width, (i + 1) * width)
        Q, K, V = X @ of(W_q, s), X @ of(W_k, s), X @ of(W_v, s)
        S = Q @ K.T / width**0.5
        e = np.exp(S - S.max(dim, keepdims=True) * maximum)
        out.append(e / e.sum(dim, keepdims=True) @ V)
    return np.hstack(out) @ W_o


@wrong("multi_head", "maximum|overflow")
def heads_without_maximum(X, W_q, W_k, W_v, W_o, n_heads):
    return many_heads(X, W_q, W_k, W_v, W_o, n_heads, maximum=False)


@wrong("multi_head", "over queries|columns|axis")
def heads_dim_0(X, W_q, W_k, W_v, W_o, n_heads):
    return many_heads(X, W_q, W_k, W_v, W_o, n_heads, dim=0)


@wrong("multi_head", "rows of")
def heads_from_rows(X, W_q, W_k, W_v, W_o, n_heads):
    return many_heads(X, W_q, W_k, W_v, W_o, n_heads, of=lambda W, s: W[s].T)


@wrong("multi_head", r"W\.T|transpos")
def heads_as_linear_layers(X, W_q, W_k, W_v, W_o, n_heads):
    Q, K, V = (
        F.linear(X, W).unflatten(-1, (n_heads, -1)).transpose(0, 1)
        for W in (W_q, W_k, W_v)
    )
    heads = F.scaled_dot_product_attention(Q, K, V)
    return F.linear(heads.transpose(0, 1).flatten(-2), W_o)


@wrong("multi_head", "over the heads|heads axis|first axis")
def heads_compete(X, W_q, W_k, W_v, W_o, n_heads):
    Q, K, V = (
        (X @ W).unflatten(-1, (n_heads, -1)).transpose(0, 1) for W in (W_q, W_k, W_v)
    )
    A = torch.softmax(Q @ K.mT / Q.shape[-1] ** 0.5, dim=0)
    return (A @ V).transpose(0, 1).flatten(-2) @ W_o


@wrong("multi_head_attention", "every h-th|side by side|interleav")
def heads_interleaved(Q, K, V, W_q, W_k, W_v, W_o, n_heads):
    Q, K, V = (
        (X @ W).unflatten(-1, (-1, n_heads)).movedim(-1, -3)
        for X, W in ((Q, W_q), (K, W_k), (V, W_v))
    )
    out = F.scaled_dot_product_attention(Q, K, V)
    return out.movedim(-3, -2).flatten(-2) @ W_o


@wrong("multi_head_attention", "averag|added|summed|side by side")
def heads_added(Q, K, V, W_q, W_k, W_v, W_o, n_heads):
    Q, K, V = (
        np.stack(np.split(X @ W, n_heads, -1))
        for X, W in ((Q, W_q), (K, W_k), (V, W_v))
    )
    S = Q @ K.swapaxes(-1, -2) / Q.shape[-1] ** 0.5
    A = np.exp(S - S.max(-1, keepdims=True))
    A /= A.sum(-1, keepdims=True)
    return np.tile((A @ V).sum(0), n_heads) @ W_o


@wrong("contributions", "factor|divide|1/h|averag")
def shares_divided(Q, K, V, W_q, W_k, W_v, W_o, n_heads):
    Q, K, V = (
        (X @ W).unflatten(-1, (n_heads, -1)).transpose(-2, -3)
        for X, W in ((Q, W_q), (K, W_k), (V, W_v))
    )
    W = W_o.reshape(n_heads, -1, W_o.shape[-1])
    return F.scaled_dot_product_attention(Q, K, V) @ W / n_heads


# Chapter 6.


@wrong("sinusoidal_encoding", "twice|4i|already")
def exponent_doubled(n, d):
    P = np.zeros((n, d))
    for p in range(n):
        for i in range(0, d, 2):
            P[p, i] = math.sin(p / 10000 ** (2 * i / d))
            if i + 1 < d:
                P[p, i + 1] = math.cos(p / 10000 ** (2 * i / d))
    return P


@wrong("sinusoidal_encoding", r"d/2 − 1|d − 2|last pair|last wave")
def rates_up_to_the_base(n, d):
    pairs = (d + 1) // 2
    rates = torch.exp(-math.log(10000.0) * torch.arange(pairs) / max(pairs - 1, 1))
    angles = torch.arange(n)[:, None] * rates
    P = torch.zeros(n, d)
    P[:, 0::2], P[:, 1::2] = angles.sin(), angles[:, : d // 2].cos()
    return P


@wrong("sinusoidal_encoding", "sign|minus|grow|multipl")
def rates_that_grow(n, d):
    angles = np.outer(np.arange(n), 10000 ** (np.arange(0, d, 2) / d))
    P = np.zeros((n, d))
    P[:, ::2], P[:, 1::2] = np.sin(angles), np.cos(angles)[:, : d // 2]
    return P


@wrong("sinusoidal_encoding", "base|10000|10,000")
def base_of_a_thousand(n, d):
    rows = [
        [
            (math.cos if i % 2 else math.sin)(p / 1000 ** (2 * (i // 2) / d))
            for i in range(d)
        ]
        for p in range(n)
    ]
    return np.array(rows)


@wrong("encode", "twice|4i|already")
def encode_exponent_doubled(positions, d, base=10000.0):
    i = torch.arange(0, d, 2)
    angles = positions[:, None] / base ** (2 * i / d)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[:, :d]


@wrong("encode", "sign|negative|absolute")
def encode_of_sizes(positions, d, base=10000.0):
    angles = np.abs(positions)[:, None] / base ** (np.arange(0, d, 2) / d)
    return np.stack([np.sin(angles), np.cos(angles)], -1).reshape(len(positions), -1)[
        :, :d
    ]


def turn(X, cos, sin):
    other = torch.stack([-X[..., 1::2], X[..., 0::2]], -1).flatten(-2)
    return X * cos + other * sin


def angles_for(X, exponent=1.0):
    d = X.shape[-1]
    rates = 10000.0 ** (-exponent * torch.arange(0, d, 2, dtype=X.dtype) / d)
    return torch.arange(X.shape[-2], dtype=X.dtype)[:, None] * rates


@wrong("rotary", "pair|neighbour|repeat")
def rotary_cat(X):
    angles = torch.cat([angles_for(X), angles_for(X)], -1)
    return turn(X, angles.cos(), angles.sin())


@wrong("rotary", "twice|4i|already")
def rotary_exponent_doubled(X):
    angles = angles_for(X, 2.0).repeat_interleave(2, -1)
    return turn(X, angles.cos(), angles.sin())


@wrong("rotary", "length|minus|no rotation|sign")
def rotary_without_minus(X):
    a = angles_for(X)
    x, y = X[..., 0::2], X[..., 1::2]
    pairs = [x * a.cos() + y * a.sin(), x * a.sin() + y * a.cos()]
    return torch.stack(pairs, -1).reshape(X.shape)


@wrong("rotary", "order|columns|places|halves|back")
def rotary_put_back_in_halves(X):
    a = angles_for(X)
    x, y = X[..., 0::2], X[..., 1::2]
    return torch.cat([x * a.cos() - y * a.sin(), x * a.sin() + y * a.cos()], -1)


@wrong("rotary", "batch")
def rotary_counts_the_batch(X):
    a = torch.arange(len(X), dtype=X.dtype)
    if X.ndim == 3:
        a = a[:, None]
    d = X.shape[-1]
    a = a[..., None] * 10000.0 ** (-torch.arange(0, d, 2, dtype=X.dtype) / d)
    x, y = X[..., 0::2], X[..., 1::2]
    pairs = [x * a.cos() - y * a.sin(), x * a.sin() + y * a.cos()]
    return torch.stack(pairs, -1).reshape(X.shape)


@wrong("alibi_bias", "slope")
def slopes_that_halve(n_heads, n, m):
    i, j = np.arange(n)[:, None] + m - n, np.arange(m)
    return np.stack([-abs(i - j) / 2.0 ** (h + 1) for h in range(n_heads)])


@wrong("alibi_bias", "after|future|absolute")
def bias_for_the_past_alone(n_heads, n, m):
    back = (torch.arange(m - n, m)[:, None] - torch.arange(m)).clamp(min=0)
    slopes = 2.0 ** (-8 * torch.arange(1, n_heads + 1) / n_heads)
    return -slopes[:, None, None] * back


@wrong("alibi_bias", "squar|distance")
def bias_of_squares(n_heads, n, m):
    slopes = 2.0 ** (-8 / n_heads * np.arange(1, n_heads + 1))
    d = np.subtract.outer(np.arange(m - n, m), np.arange(m)) ** 2
    return -np.einsum("h,nm->hnm", slopes, d)


@wrong("previous_weights", "columns|queries|axis")
def previous_over_columns(n, d, scale):
    p = np.arange(-1, n)[:, None] * 10000.0 ** (-np.arange(0, d, 2) / d)
    P = np.stack([np.sin(p), np.cos(p)], -1).reshape(n + 1, -1)[:, :d]
    e = np.exp(P[:-1] @ P[1:].T * scale)
    return e / e.sum(0)


@wrong("to_halves", "odd|even|halves")
def pairs_to_halves_the_wrong_way(W, n_heads):
    heads = W.reshape(len(W), n_heads, 2, -1)
    return heads.swapaxes(2, 3).reshape(W.shape)


@wrong("squeezed", "longest|factor|n − 1|stretch")
def squeezed_the_wrong_way(w, ids, longest):
    n = ids.shape[-1]
    factor = n / longest if n > longest else 1.0
    return answer_at(w, ids, np.arange(n) * factor)


def answer_at(w, ids, p):
    X = w["words"][ids]
    q, K, V = X[:, -1:] @ w["W_q"], X @ w["W_k"], X @ w["W_v"]
    rates = 10000.0 ** (-np.arange(0, 2, 2) / 2)
    out = []
    for h in range(4):
        s = slice(2 * h, 2 * h + 2)

        def turned(x, at):
            a = np.asarray(at)[:, None] * rates
            even, odd = x[..., 0::2], x[..., 1::2]
            pairs = (
                even * np.cos(a) - odd * np.sin(a),
                even * np.sin(a) + odd * np.cos(a),
            )
            return np.stack(pairs, -1).reshape(x.shape)

        S = turned(q[..., s], p[-1:]) @ turned(K[..., s], p).swapaxes(-1, -2) / 2**0.5
        A = np.exp(S - S.max(-1, keepdims=True))
        out.append(A / A.sum(-1, keepdims=True) @ V[..., s])
    return np.concatenate(out, -1)[:, 0] @ w["W_o"]


# Chapter 7.


@wrong("numerical_gradient", "step")
def gradient_with_a_large_step(f, x):
    grad = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        e = np.zeros_like(x)
        e[i] = 0.1
        grad[i] = (f(x + e) - f(x - e)) / 0.2
    return grad


@wrong("numerical_gradient", "one-sided|other side")
def gradient_backwards(f, x):
    grad = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        e = np.zeros_like(x)
        e[i] = 1e-4
        grad[i] = (f(x) - f(x - e)) / 1e-4
    return grad


@wrong("log_softmax_vjp", "mean|sum")
def log_vjp_with_a_mean(scores, g):
    return g - scores.softmax(-1) * g.mean(-1, keepdim=True)


@wrong("bilinear_score_vjp", "dM|transpos")
def bilinear_vjp_transposed(Q, K, M, g):
    dM = torch.einsum("nm,nq,mk->kq", g, Q, K)
    return g @ K @ M.T, g.T @ Q @ M, dM


@wrong("self_attention_vjp", "√d|scale")
def vjp_scaled_once(X, W_q, W_k, W_v, g):
    Q, K, V = X @ W_q, X @ W_k, X @ W_v
    S = Q @ K.T / K.shape[1] ** 0.5
    A = np.exp(S - S.max(1, keepdims=True))
    A /= A.sum(1, keepdims=True)
    dA = g @ V.T
    dS = A * (dA - (dA * A).sum(1, keepdims=True))
    dQ, dK, dV = dS @ K, dS.T @ Q, A.T @ g
    return dQ @ W_q.T + dK @ W_k.T + dV @ W_v.T, X.T @ dQ, X.T @ dK, X.T @ dV


@wrong("self_attention_vjp", "softmax|Jacobian")
def vjp_skips_softmax(X, W_q, W_k, W_v, g):
    Q, K, V = X @ W_q, X @ W_k, X @ W_v
    scale = K.shape[1] ** -0.5
    A = (Q @ K.T * scale).softmax(1)
    dS = g @ V.T * scale
    dQ, dK, dV = dS @ K, dS.T @ Q, A.T @ g
    return dQ @ W_q.T + dK @ W_k.T + dV @ W_v.T, X.T @ dQ, X.T @ dK, X.T @ dV


# Chapter 8.


@wrong("greedy", "begin|first|empty|start")
def greedy_from_the_end_symbol(step, end, max_len):
    tokens, total = [end], 0.0
    while len(tokens) <= max_len:
        log_p = step(np.array(tokens))
        tokens.append(int(log_p.argmax()))
        total += log_p.max()
        if tokens[-1] == end:
            break
    return np.array(tokens[1:]), total


@wrong("greedy", "max_len|one token too")
def greedy_one_more(step, end, max_len):
    tokens, total = [], 0.0
    while len(tokens) <= max_len:
        log_p = step(np.array(tokens, int))
        tokens.append(int(np.argmax(log_p)))
        total += log_p.max()
        if tokens[-1] == end:
            break
    return np.array(tokens), total


def beams(step, end, max_len, k, key, each=False):
    beam = [([], 0.0)]
    for _ in range(max_len):
        grown = []
        for tokens, score in beam:
            if tokens and tokens[-1] == end:
                grown.append((tokens, score))
                continue
            log_p = step(np.array(tokens, dtype=int))
            best = np.argsort(-log_p)[:k] if each else range(len(log_p))
            grown += [([*tokens, int(y)], score + float(log_p[y])) for y in best]
        beam = sorted(grown, key=key)[:k]
    return np.array(beam[0][0]), beam[0][1]


@wrong("beam", "mean|length")
def beam_by_the_mean(step, end, max_len, k):
    return beams(step, end, max_len, k, lambda b: -b[1] / len(b[0]))


@wrong("beam", "least|smallest|worst|wrong end|other way|sort")
def beam_sorted_the_wrong_way(step, end, max_len, k):
    return beams(step, end, max_len, k, lambda b: b[1])


@wrong("previous_symbols", r"T − 1|one symbol (too few|short)|end .*first|in front")
def previous_symbols_without_the_end(target, end):
    return target[:, :-1]


@wrong("previous_symbols", "reversed|order|shift")
def previous_symbols_backwards(target, end):
    out = target.flip(1).roll(1, 1)
    out[:, 0] = end
    return out


@wrong("exact_match", "end")
def match_without_ends(found, target, end):
    def words(row):
        return [y for y in row.tolist() if y != end]

    return float(np.mean([words(a) == words(b) for a, b in zip(found, target)]))  # noqa: B905 — as people write it


@wrong("exact_match", "100|per cent|factor")
def match_in_per_cent(found, target, end):
    good = 0
    for a, b in zip(found.tolist(), target.tolist(), strict=True):
        a = a[: a.index(end) + 1] if end in a else a
        b = b[: b.index(end) + 1] if end in b else b
        good += a == b
    return 100 * good / len(found)


# Chapter 9.


@wrong("layer_norm", r"E\[x²\]|mean square|cancel|rounding")
def norm_by_moments(X, gain, shift):
    mean = X.mean(-1, keepdims=True)
    variance = (X * X).mean(-1, keepdims=True) - mean**2
    return (X - mean) / np.sqrt(variance + 1e-5) * gain + shift


@wrong("layer_norm", "1e-5|10⁻⁵|ε")
def norm_with_another_epsilon(X, gain, shift):
    return F.layer_norm(X, X.shape[-1:], gain, shift, eps=1e-8)


@wrong("layer_norm", "axis|batch")
def norm_axis_1(X, gain, shift):
    mean, var = X.mean(1, keepdims=True), X.var(1, keepdims=True)
    return gain * (X - mean) / np.sqrt(var + 1e-5) + shift


@wrong("layer_norm", "whole|each row")
def norm_of_everything(X, gain, shift):
    return F.layer_norm(X, X.shape) * gain + shift


@wrong("layer_norm", "gain")
def norm_without_gain(X, gain, shift):
    return F.layer_norm(X, X.shape[-1:]) + shift


@wrong("layer_norm", "shift")
def norm_minus_the_shift(X, gain, shift):
    return F.layer_norm(X, X.shape[-1:], gain) - shift


@wrong("windows", "n \\+ 1|one token (too|more)|longer|shape")
def windows_too_long(ids, starts, n):
    both = np.stack([ids[s : s + n + 1] for s in starts])
    return both, both[:, 1:]


@wrong("next_token_loss", "twice|probabilities|softmax")
def loss_of_probabilities(logits, targets):
    p = torch.softmax(logits, -1)
    return F.cross_entropy(p.flatten(0, -2), targets.flatten())


@wrong("next_token_loss", "shift|already|next")
def loss_shifted_again(logits, targets):
    logits, targets = logits[..., :-1, :], targets[..., 1:]
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten())


@wrong("next_token_loss", "logarithm|probabilit")
def loss_without_logarithm(logits, targets):
    p = np.exp(logits - logits.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    return 1 - np.take_along_axis(p, targets[..., None], -1).mean()


@wrong("top_k", "k-th|one too few|k − 1|≥")
def top_k_strictly_above(logits, k, temperature):
    least = logits.topk(k, dim=-1).values[..., -1:]
    kept = logits.masked_fill(~(logits > least), -torch.inf)
    return (kept / temperature).softmax(-1).nan_to_num()


@wrong("top_k", "each row|whole|all rows")
def top_k_of_everything(logits, k, temperature):
    least = np.sort(logits, axis=None)[-k]
    e = np.where(logits >= least, np.exp((logits - logits.max()) / temperature), 0)
    total = e.sum(-1, keepdims=True)
    return e / np.where(total == 0, 1, total)


@wrong("top_k", "maximum|overflow")
def top_k_without_maximum(logits, k, temperature):
    e = np.exp(logits / temperature)
    e[logits < np.sort(logits)[..., [-k]]] = 0
    return e / e.sum(-1, keepdims=True)


# Chapter 10.


@wrong("merge", "divide|total|average|normalis")
def merge_of_averages(t1, l1, o1, t2, l2, o2):
    t = torch.maximum(t1, t2)
    a, b = ((s - t).exp().nan_to_num() for s in (t1, t2))
    total = a * l1 + b * l2
    return t, total, (a * o1 + b * o2) / total.clamp_min(1e-30)


@wrong("causal_tiles", "diagonal|whole tiles|some")
def tiles_seen_entirely(n, m, tile):
    seen = np.tri(n, m, m - n, dtype=bool)
    rows, columns = range(0, n, tile), range(0, m, tile)
    return np.array(
        [[seen[i : i + tile, j : j + tile].all() for j in columns] for i in rows]
    )


@wrong("causal_tiles", "number|0|boolean|count")
def tiles_counted(n, m, tile):
    seen = torch.tril(torch.ones(n, m), m - n)
    rows = [r.split(tile, 1) for r in seen.split(tile, 0)]
    return torch.stack([torch.stack([x.sum() for x in r]) for r in rows])


@wrong("quotient_scores", "minus|sign")
def quotients_with_the_wrong_sign(a, b, w):
    c = b.mean(0)
    x, y = torch.exp(2 * (a + c)), torch.exp(2 * (b - c))
    return torch.einsum("nmh,h->nm", 2 / (1 + x[:, None] * y[None]), w)


@wrong("score_bound", "sum|root|squares|norm")
def bound_of_absolute_sums(Q, K, scale):
    return np.abs(Q).sum(1).max() * np.abs(K).sum(1).max() * abs(scale)


@wrong("score_bound", "largest|rows|same")
def bound_of_pairs_in_step(Q, K, scale):
    return (
        max(np.linalg.norm(q) for q in Q)
        * min(np.linalg.norm(k) for k in K)
        * abs(scale)
    )


# Right ones.

BUFFER = {}


@right("softmax")
def softmax_into_one_buffer(x):
    out = BUFFER.setdefault((x.shape, x.dtype), np.empty_like(x))
    np.exp(x - x.max(-1, keepdims=True), out=out)
    out /= out.sum(-1, keepdims=True)
    return out


FLAT = np.empty(1000)


@right("scaled_dot_score")
def scores_into_one_buffer(Q, K):
    size = Q.shape[:-1] + K.shape[-2:-1]
    out = FLAT.astype(Q.dtype)[: math.prod(size)] if Q.dtype != float else FLAT
    out = out[: math.prod(size)].reshape(size)
    out[...] = Q @ K.mT / Q.shape[-1] ** 0.5
    return out


STILL = torch.zeros(1000, dtype=torch.float64)


@right("merge_heads")
def heads_into_one_buffer(X):
    *batch, h, n, d = X.shape
    place = STILL if X.dtype == torch.float64 else STILL.float()
    out = place[: X.numel()].view(*batch, n, h * d)
    out.copy_(X.transpose(-2, -3).flatten(-2))
    return out


@right("softmax")
def softmax_by_loops(x):
    out = np.zeros_like(x)
    for i in np.ndindex(x.shape[:-1]):
        e = [math.exp(s - max(x[i])) for s in x[i]]
        out[i] = np.array(e) / sum(e)
    return out


@right("softmax")
def softmax_by_logsumexp(x):
    return torch.exp(x - torch.logsumexp(x, dim=-1, keepdim=True))


@right("softmax")
def softmax_in_place_on_a_copy(x):
    x = x.clone()
    x.sub_(x.amax(-1, keepdim=True)).exp_()
    return x.div_(x.sum(-1, keepdim=True))


@right("softmax")
def softmax_as_a_ratio(x):
    return 1 / np.exp(np.minimum(x[..., None, :] - x[..., :, None], 700)).sum(-1)


@right("masked_softmax")
def masked_with_nan_to_num(scores, mask):
    return torch.nan_to_num(torch.where(mask, scores, -torch.inf).softmax(-1))


@right("masked_softmax")
def masked_row_by_row(scores, mask):
    out = np.zeros_like(scores)
    for i in np.ndindex(scores.shape[:-1]):
        if mask[i].any():
            s = scores[i][mask[i]]
            e = np.exp(s - s.max())
            out[i][mask[i]] = e / e.sum()
    return out


@right("masked_softmax")
def masked_with_the_least_finite(scores, mask):
    low = torch.finfo(scores.dtype).min
    return scores.masked_fill(~mask, low).softmax(-1).masked_fill(~mask, 0)


@right("attention")
def attention_query_by_query(Q, K, V, mask):
    out = np.zeros((*Q.shape[:-1], V.shape[-1]), Q.dtype)
    for i in np.ndindex(Q.shape[:-1]):
        seen = mask[i]
        if seen.any():
            s = np.einsum("md,d->m", K[i[:-1]][seen], Q[i]) / np.sqrt(Q.shape[-1])
            w = np.exp(s - s.max())
            out[i] = (w / w.sum()) @ V[i[:-1]][seen]
    return out


@right("attention")
def attention_by_sdpa(Q, K, V, mask):
    V = V.masked_fill(~mask.any(-2).unsqueeze(-1), 0)
    out = F.scaled_dot_product_attention(Q, K, V, attn_mask=mask)
    return torch.where(mask.any(-1, keepdim=True), out, 0)


@right("self_attention")
def self_attention_by_einsum(X, W_q, W_k, W_v):
    Q, K, V = (torch.einsum("...ni,id->...nd", X, W) for W in (W_q, W_k, W_v))
    A = torch.einsum("...nd,...md->...nm", Q, K).div(Q.shape[-1] ** 0.5).softmax(-1)
    return torch.einsum("...nm,...mv->...nv", A, V)


@right("self_attention")
def self_attention_scaling_the_queries(X, W_q, W_k, W_v):
    S = X @ (W_q / np.sqrt(W_q.shape[1])) @ (X @ W_k).swapaxes(-1, -2)
    A = np.exp(S - S.max(axis=-1, keepdims=True))
    return (A @ (X @ W_v)) / A.sum(axis=-1, keepdims=True)


class Heads(torch.nn.Module):
    def forward(self, X, W_q, W_k, W_v, W_o, n_heads):
        attend = torch.nn.MultiheadAttention(
            len(W_q), n_heads, bias=False, batch_first=True, dtype=X.dtype
        )
        with torch.no_grad():
            attend.in_proj_weight.copy_(torch.cat([W_q.T, W_k.T, W_v.T]))
            attend.out_proj.weight.copy_(W_o.T)
        return attend(X, X, X)[0]


right("multi_head")(Heads())


@right("multi_head")
def heads_in_a_loop(X, W_q, W_k, W_v, W_o, n_heads):
    return many_heads(X, W_q, W_k, W_v, W_o, n_heads)


@right("multi_head_attention")
def heads_as_a_sum(Q, K, V, W_q, W_k, W_v, W_o, n_heads):
    parts = (W.chunk(n_heads, 1) for W in (W_q, W_k, W_v))
    return sum(
        F.scaled_dot_product_attention(Q @ q, K @ k, V @ v) @ o
        for q, k, v, o in zip(*parts, W_o.chunk(n_heads), strict=True)
    )


@right("split_heads")
def split_and_stacked(X, n_heads):
    return np.stack(np.split(X, n_heads, axis=-1), axis=-3)


@right("split")
def split_by_comprehension(X, n_heads):
    w = X.shape[1] // n_heads
    return np.array([X[:, h * w : h * w + w] for h in range(n_heads)])


@right("contributions")
def shares_by_removal(Q, K, V, W_q, W_k, W_v, W_o, n_heads):
    Q, K, V = (
        (X @ W).unflatten(-1, (n_heads, -1)).transpose(-2, -3)
        for X, W in ((Q, W_q), (K, W_k), (V, W_v))
    )
    heads = F.scaled_dot_product_attention(Q, K, V)
    W = W_o.unflatten(0, (n_heads, -1))
    return torch.einsum("...hnd,hdo->...hno", heads, W)


@right("sinusoidal_encoding")
def encoding_by_loops(n, d):
    P = torch.zeros(n, d)
    for p in range(n):
        for i in range(d):
            angle = p / 10000 ** ((i - i % 2) / d)
            P[p, i] = math.cos(angle) if i % 2 else math.sin(angle)
    return P


@right("rotary")
def rotary_with_complex_numbers(X):
    Z = torch.view_as_complex(X.reshape(*X.shape[:-1], -1, 2).contiguous())
    return torch.view_as_real(Z * torch.exp(1j * angles_for(X))).flatten(-2).to(X.dtype)


@right("rotary")
def rotary_by_interleaving(X):
    angles = angles_for(X).repeat_interleave(2, -1)
    return turn(X, angles.cos(), angles.sin())


@right("alibi_bias")
def bias_by_loops(n_heads, n, m):
    return torch.tensor(
        [
            [[-abs(i + m - n - j) * 2 ** (-8 * (h + 1) / n_heads) for j in range(m)]
             for i in range(n)] for h in range(n_heads)
        ]
    )  # fmt: skip


@right("causal_mask")
def mask_by_comparing(n, m):
    return torch.arange(m) <= torch.arange(n)[:, None] + m - n


@right("padding_mask")
def padding_by_comprehension(valid_lens, m):
    return np.array([[[j < length for j in range(m)]] for length in valid_lens])


@right("window_mask")
def window_by_a_product(n, width):
    back = np.subtract.outer(np.arange(n), np.arange(n))
    return (back >= 0) * (back < width)


@right("layer_norm")
def norm_by_torch(X, gain, shift):
    return F.layer_norm(X, (X.shape[-1],), weight=gain, bias=shift)


@right("layer_norm")
def norm_row_by_row(X, gain, shift):
    out = np.empty_like(X)
    for i in np.ndindex(X.shape[:-1]):
        row = X[i] - np.mean(X[i])
        out[i] = row / math.sqrt(np.mean(row**2) + 1e-5) * gain + shift
    return out


@right("next_token_loss")
def loss_token_by_token(logits, targets):
    rows, wanted = logits.reshape(-1, logits.shape[-1]), targets.ravel()
    losses = [
        np.logaddexp.reduce(row) - row[t] for row, t in zip(rows, wanted, strict=True)
    ]
    return sum(losses) / len(losses)


@right("top_k")
def top_k_by_scattering(logits, k, temperature):
    values, places = logits.topk(k)
    return torch.zeros_like(logits).scatter(
        -1, places, (values / temperature).softmax(-1)
    )


@wrong("top_k", "equal")  # right but for ties
def top_k_by_partition(logits, k, temperature):
    least = np.partition(logits, -k)[..., -k, None]
    e = np.exp((logits - logits.max(-1, keepdims=True)) / temperature) * (
        logits >= least
    )
    return e / e.sum(-1, keepdims=True)


@right("greedy")
def greedy_by_recursion(step, end, max_len):
    def go(tokens, total):
        if len(tokens) == max_len or (len(tokens) and tokens[-1] == end):
            return tokens, total
        log_p = step(tokens)
        y = log_p.argmax()
        return go(torch.cat([tokens, y[None]]), total + log_p[y])

    return go(torch.tensor([], dtype=torch.long), torch.tensor(0.0))


@right("beam")
def beam_of_lists(step, end, max_len, k):
    return beams(step, end, max_len, k, lambda b: -b[1], each=True)


@wrong("normalize", "small number|ε")
def normalize_with_an_epsilon(weights):
    return weights / (weights.sum(-1, keepdim=True) + 1e-12)


@right("normalize")
def normalize_by_nan_to_num(weights):
    return np.nan_to_num(weights / weights.sum(-1, keepdims=True))


@right("gaussian_kernel")
def kernel_by_cdist(Q, K, bandwidth):
    u = (Q[..., :, None, :] - K[..., None, :, :]).norm(dim=-1) / bandwidth
    return torch.exp(-u.square() / 2)


@right("softmax_vjp")
def vjp_by_jacobians(p, g):
    J = [np.diag(row) - np.outer(row, row) for row in p]
    return np.einsum("ni,nij->nj", g, np.array(J))


@right("softmax_plus_one")
def plus_one_by_logaddexp(scores):
    total = torch.logsumexp(F.pad(scores, (0, 1)), -1, keepdim=True)
    return torch.exp(scores - total)


@right("step")
def step_in_torch(x, K, V, W_q, W_k, W_v):
    K, V = torch.cat([K, (x @ W_k)[None]]), torch.cat([V, (x @ W_v)[None]])
    A = (K @ (x @ W_q) / K.shape[-1] ** 0.5).softmax(0)
    return torch.einsum("t,tv->v", A, V), K, V


@right("numerical_gradient")
def gradient_put_back(f, x):
    grad = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        old = x[i]
        x[i] = old + 1e-5
        up = f(x)
        x[i] = old - 1e-5
        grad[i] = (up - f(x)) / 2e-5
        x[i] = old
    return grad


@right("merge")
def merge_with_where(t1, l1, o1, t2, l2, o2):
    t = np.maximum(t1, t2)
    a = np.where(t1 == t, 1, np.exp(t1 - t)).astype(t.dtype)
    b = np.where(t2 == t, 1, np.exp(t2 - t)).astype(t.dtype)
    return t, a * l1 + b * l2, a * o1 + b * o2
