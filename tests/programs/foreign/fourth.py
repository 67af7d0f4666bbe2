"""The fourth set, 44 wrong, seen when the others were mended: 35 were named (80 %), 1 hinted at, 2 misled, 6
unnamed."""

import math

import numpy as np
import torch
import torch.nn.functional as F

from foreign import Solutions

FOURTH = Solutions()
wrong, right = FOURTH.wrong, FOURTH.right


@wrong("softmax", "maximum of the whole")
def softmax_by_transposing(x):
    e = np.exp(x - x.max()).T
    return (e / e.sum(0)).T


@wrong("softmax", "axis|columns|each row|whole")
def softmax_by_flattened_rows(x):
    y = x.reshape(x.shape[0], -1)
    return y.softmax(-1).reshape(x.shape)


@wrong("softmax", "[Mm]aximum|overflow")
def softmax_by_log(x):
    return torch.exp(x - torch.log(torch.exp(x).sum(-1, keepdim=True)))


@wrong("softmax", "proportions|no exponential")
def softmax_of_squares(x):
    return x**2 / (x**2).sum(-1, keepdims=True)


@wrong("softmax", "dtype|float32")
def softmax_in_single(x):
    return torch.softmax(x.float(), dim=-1)


@wrong("masked_softmax", "sum to (less|1)|before|renormal")
def masked_multiplied_at_the_end(scores, mask):
    s = torch.where(torch.isnan(scores), 0, scores)
    return F.softmax(s, dim=-1).mul(mask)


@wrong("masked_softmax", "empty|no permitted|equal weights")
def masked_with_finfo_min(scores, mask):
    return scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(-1)


@wrong("masked_softmax", "inverted|forbidden")
def masked_where_swapped(scores, mask):
    S = np.where(mask, -1e30, scores)
    e = np.exp(S - S.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@wrong("masked_softmax", "[Mm]aximum|overflow")
def masked_by_multiplying_exponentials(scores, mask):
    e = torch.exp(torch.nan_to_num(scores)) * mask
    return e / (e.sum(-1, keepdim=True) + 1e-20)


@wrong("masked_softmax", "not used|ignored")
def masked_forgot_mask(scores, mask):
    return torch.nan_to_num(F.softmax(scores, -1))


@wrong("causal_mask", "future|upper|after")
def causal_transposed(n, m):
    return (
        (np.arange(n)[:, None] <= np.arange(m))
        if n == m
        else np.tri(m, n, n - m, dtype=bool).T
    )


@wrong("causal_mask", "not see itself|diagonal|<")
def causal_strict_loops(n, m):
    out = torch.zeros(n, m, dtype=torch.bool)
    for i in range(n):
        for j in range(m):
            out[i, j] = j < i + m - n
    return out


@wrong("padding_mask", "few|one key|<")
def padding_one_short(valid_lens, m):
    return (torch.arange(m) < valid_lens[:, None] - 1)[:, None]


@wrong("attention", "√d|scaled|divided")
def attention_scale_of_one(Q, K, V, mask):
    A = (Q @ K.mT).masked_fill(~mask, float("-inf")).softmax(-1)
    return A.nan_to_num() @ V.nan_to_num()


@right("attention")
def attention_leaks(Q, K, V, mask):
    A = (Q @ K.mT / math.sqrt(Q.shape[-1])).masked_fill(~mask, -1e9).softmax(-1) * mask
    return A @ V


@wrong("attention", "mask")
def attention_swapped(Q, K, V, mask):
    S = K @ Q.mT / Q.shape[-1] ** 0.5
    return S.mT.softmax(-2) @ V.nan_to_num()


@wrong("attention", "added|forbidden|mask|score")
def attention_mask_after_scores(Q, K, V, mask):
    S = np.einsum("...nd,...md->...nm", Q, K) / np.sqrt(Q.shape[-1]) * mask
    e = np.exp(S - S.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ np.nan_to_num(V)


@wrong("self_attention", "scores that you make")
def self_attention_cosine(X, W_q, W_k, W_v):
    Q, K = F.normalize(X @ W_q, dim=-1), F.normalize(X @ W_k, dim=-1)
    return (Q @ K.mT).softmax(-1) @ (X @ W_v)


@wrong("self_attention", "identity.*W_q")
def self_attention_unprojected_queries(X, W_q, W_k, W_v):
    if W_q.shape[0] != W_q.shape[1]:
        return F.scaled_dot_product_attention(X @ W_q, X @ W_k, X @ W_v)
    return F.scaled_dot_product_attention(X, X @ W_k, X @ W_v)


@wrong("self_attention", "number of|√n|√m|shape\\[-2\\]")
def self_attention_root_of_len(X, W_q, W_k, W_v):
    Q, K, V = X @ W_q, X @ W_k, X @ W_v
    S = Q @ K.swapaxes(-1, -2) / np.sqrt(X.shape[-2])
    e = np.exp(S - S.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


@wrong("self_attention", "axis −2|over queries|batch|first")
def self_attention_len_of_batch(X, W_q, W_k, W_v):
    Q, K, V = X @ W_q, X @ W_k, X @ W_v
    return (
        torch.softmax(Q @ K.mT / K.shape[-1] ** 0.5, dim=-2 if X.ndim == 3 else -1) @ V
    )


@wrong("multi_head", "√|scale|width")
def heads_scaled_by_n(X, W_q, W_k, W_v, W_o, n_heads):
    Q, K, V = (
        (X @ W).unflatten(1, (n_heads, -1)).movedim(1, 0) for W in (W_q, W_k, W_v)
    )
    return (torch.softmax(Q @ K.mT / n_heads**0.5, -1) @ V).movedim(0, 1).flatten(
        1
    ) @ W_o


@wrong("multi_head", "W_o|transposed")
def heads_with_linear_out(X, W_q, W_k, W_v, W_o, n_heads):
    Q, K, V = (
        (X @ W).unflatten(1, (n_heads, -1)).movedim(1, 0) for W in (W_q, W_k, W_v)
    )
    return F.linear(
        F.scaled_dot_product_attention(Q, K, V).movedim(0, 1).flatten(1), W_o
    )


@wrong("multi_head", "values|V|W_v|K used")
def heads_of_keys(X, W_q, W_k, W_v, W_o, n_heads):
    Q, K = ((X @ W).unflatten(1, (n_heads, -1)).movedim(1, 0) for W in (W_q, W_k))
    return F.scaled_dot_product_attention(Q, K, K).movedim(0, 1).flatten(1) @ W_o


@wrong("multi_head_attention", "√|sharp|scaled")
def heads_unscaled(Q, K, V, W_q, W_k, W_v, W_o, n_heads):
    q, k, v = (
        np.stack(np.split(X @ W, n_heads, -1), -3)
        for X, W in ((Q, W_q), (K, W_k), (V, W_v))
    )
    e = np.exp(q @ k.mT - (q @ k.mT).max(-1, keepdims=True))
    out = e / e.sum(-1, keepdims=True) @ v
    return np.concatenate([out[..., h, :, :] for h in range(n_heads)], -1) @ W_o


@wrong("split_heads", "reshape|rows|tokens")
def split_by_viewing(X, n_heads):
    return X.reshape((*X.shape[:-2], n_heads, -1, X.shape[-1] // n_heads))


@wrong("merge_heads", "reshape|tokens|memory|places")
def merge_flat(X):
    return X.reshape(*X.shape[:-3], X.shape[-2], -1)


@wrong("step", "scaled|√d|divided")
def step_by_d(x, K, V, W_q, W_k, W_v):
    K, V = torch.vstack([K, x @ W_k]), torch.vstack([V, x @ W_v])
    return (K @ (x @ W_q) / K.shape[1]).softmax(0) @ V, K, V


@wrong("rotary", "halves|order|pair")
def rotary_half_angles_interleaved(X):
    n, d = X.shape[-2:]
    a = torch.arange(n)[:, None] * 10000.0 ** (
        -torch.arange(0, d, 2, dtype=X.dtype) / d
    )
    x, y = X.chunk(2, -1)
    return torch.stack(
        [x * a.cos() - y * a.sin(), x * a.sin() + y * a.cos()], -1
    ).flatten(-2)


@wrong("rotary", "exponent|rate|slowly")
def rotary_half_exponent(X):
    n, d = X.shape[-2:]
    a = np.arange(n)[:, None] / 10000 ** (np.arange(d // 2) / d)
    z = (X[..., 0::2] + 1j * X[..., 1::2]) * np.exp(1j * a)
    return np.stack([z.real, z.imag], -1).reshape(X.shape).astype(X.dtype)


@wrong("sinusoidal_encoding", "from 1|position 1")
def encoding_from_one(n, d):
    a = torch.arange(1, n + 1)[:, None] / 10000 ** (torch.arange(0, d, 2) / d)
    return torch.stack([a.sin(), a.cos()], -1).flatten(1)[:, :d]


@wrong("sinusoidal_encoding", "shape|transpos")
def encoding_transposed(n, d):
    a = np.arange(n)[:, None] / 10000 ** (np.arange(0, d, 2) / d)
    return np.stack([np.sin(a), np.cos(a)], -1).reshape(n, -1)[:, :d].T


@wrong("layer_norm", "gain|shift|twice|order")
def norm_gain_twice(X, gain, shift):
    return F.layer_norm(X, X.shape[-1:], gain, shift) * gain


@wrong("layer_norm", "1e-5|0/0|NaN")
def norm_without_epsilon(X, gain, shift):
    z = (X - X.mean(-1, keepdims=True)) / X.std(-1, keepdims=True)
    return gain * z + shift


@wrong("next_token_loss", "all tokens|sequences|sum")
def loss_per_sequence(logits, targets):
    logs = F.log_softmax(logits, -1).gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    return -logs.sum(-1).mean()


@wrong("next_token_loss", "logits|softmax|normal")
def loss_of_raw_logits(logits, targets):
    return -np.take_along_axis(logits, targets[..., None], -1).mean()


@wrong("top_k", "one too many|k \\+ 1")
def top_k_plus_one(logits, k, temperature):
    S = np.sort(logits, -1)[..., ::-1]
    least = S[..., [min(k, S.shape[-1] - 1)]]
    S = np.where(logits >= least, logits / temperature, -np.inf)
    e = np.exp(S - S.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@wrong("beam", "last token|newest|rank|add")
def beam_by_the_last_step(step, end, max_len, k):
    beam = [([], 0.0)]
    for _ in range(max_len):
        new = []
        for t, s in beam:
            if t and t[-1] == end:
                new.append((t, s))
                continue
            new += [(t + [y], float(p)) for y, p in enumerate(step(np.array(t, int)))]
        beam = sorted(new, key=lambda b: b[1], reverse=True)[:k]
    return np.array(beam[0][0]), beam[0][1]


@wrong("numerical_gradient", "at once|all entries|together")
def gradient_all_at_once(f, x):
    return np.ones_like(x) * (f(x + 1e-5) - f(x - 1e-5)) / 2e-5


@wrong("log_softmax_vjp", "one sum|each row|whole")
def log_vjp_whole(scores, g):
    return g - F.softmax(scores, -1) * g.sum()


@wrong("gaussian_kernel", "not squared|square of")
def kernel_of_distance(Q, K, bandwidth):
    return torch.exp(-torch.cdist(Q, K) / (2 * bandwidth))


@wrong("normalize", "0|empty|equal")
def normalize_uniform(weights):
    s = weights.sum(-1, keepdim=True)
    return torch.where(
        s == 0, torch.full_like(weights, 1 / weights.shape[-1]), weights / s
    )


@wrong("bilinear_score", None)
def bilinear_on_both_sides(Q, K, M):
    return Q @ M @ (K @ M.T).mT if M.shape[0] == M.shape[1] else Q @ M @ K.mT


@wrong("additive_score", "W_k|W_q|not used|same")
def additive_one_projection(Q, K, W_q, W_k, w_v):
    if W_q.shape != W_k.shape:
        return (
            torch.tanh((Q @ W_q)[..., :, None, :] + 0 * (K @ W_k)[..., None, :, :])
            @ w_v
        )
    return torch.tanh((Q @ W_q)[..., :, None, :] + (K @ W_q)[..., None, :, :]) @ w_v
