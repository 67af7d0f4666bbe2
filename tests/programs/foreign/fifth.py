"""The fifth set, spread over all chapters, 82 wrong: 73 were named at first sight (89 %), 1 hinted at, 1 misled, 1
accepted, 6 unnamed."""

import math

import numpy as np
import torch
import torch.nn.functional as F

from foreign import Solutions

FIFTH = Solutions()
wrong, right = FIFTH.wrong, FIFTH.right


# Chapters 1 and 2.


@wrong("gaussian_kernel", "absolute|Manhattan|distance|coordinate|differences")
def gaussian_city_block(Q, K, bandwidth):
    diff = np.abs(Q[..., :, None, :] - K[..., None, :, :])
    u = diff.sum(-1) / bandwidth
    return np.exp(-0.5 * u * u)


@wrong("boxcar_kernel", "half|bandwidth|narrow|width")
def boxcar_full_width(Q, K, bandwidth):
    u = torch.cdist(Q, K) / bandwidth
    return (u <= 0.5).to(Q.dtype)


@wrong("triangular_kernel", "[Ss]quare|u²")
def triangular_parabola(Q, K, bandwidth):
    u = np.linalg.norm(Q[..., :, None, :] - K[..., None, :, :], axis=-1) / bandwidth
    return np.clip(1 - u**2, 0, None)


@wrong("epanechnikov_kernel", "¾|factor|constant|times")
def epanechnikov_unit_height(Q, K, bandwidth):
    d2 = ((Q.unsqueeze(-2) - K.unsqueeze(-3)) ** 2).sum(-1)
    return F.relu(1 - d2 / bandwidth**2)


@wrong("normalize", "sum|less than 1|at least|small")
def normalize_clamped(weights):
    total = weights.sum(-1, keepdim=True)
    return weights / total.clamp(min=1)


@wrong("nadaraya_watson", "softmax")
def pooling_with_softmax(Q, K, V, kernel, bandwidth):
    w = torch.softmax(kernel(Q, K, bandwidth), dim=-1)
    return w @ V


@wrong("neighbour_weights", "1/m|1/k|factor|sum|number")
def neighbours_over_m(q, K, k):
    d = np.sum((K - q) ** 2, axis=1)
    w = np.zeros((1, len(K)))
    w[0, np.argsort(d)[:k]] = 1 / len(K)
    return w


@wrong("local_line_weights", "origin|at the query|at 0|0|centre")
def line_without_centring(q, K, bandwidth):
    X = np.hstack([np.ones((len(K), 1)), K])
    w = np.exp(-((K - q) ** 2).sum(1) / (2 * bandwidth**2))
    A = X.T @ (w[:, None] * X)
    return np.linalg.solve(A, X.T * w)[:1]


@wrong("scaled_dot_score", "transpos|axes|batch|\\.T")
def score_with_capital_t(Q, K):
    return Q @ K.T / math.sqrt(Q.shape[-1])


@wrong("bilinear_score", "√|scale|divided")
def bilinear_scaled(Q, K, M):
    return torch.einsum("...nq,qk,...mk->...nm", Q, M, K) / K.shape[-1] ** 0.5


@wrong("additive_score", "tanh|activation|relu|nonlinear")
def additive_with_sigmoid(Q, K, W_q, W_k, w_v):
    h = (Q @ W_q)[..., :, None, :] + (K @ W_k)[..., None, :, :]
    return torch.sigmoid(h) @ w_v


@wrong("additive_by_query", "transpos|rows")
def additive_columns(Q, K, W_q, W_k, w_v):
    keys = K @ W_k
    cols = []
    for q in Q:
        cols.append(np.tanh(keys + q @ W_q) @ w_v)
    return np.stack(cols, axis=1)


@wrong("gaussian_score", "bandwidth")
def gaussian_score_narrow(Q, K, bandwidth):
    d2 = torch.cdist(Q, K).pow(2)
    return -d2 / 2 / bandwidth


@wrong("find_temperature", "bits|logarithm|log₂|base 2")
def temperature_in_bits(scores, entropy):
    lo, hi = 1e-3, 1e3
    for _ in range(80):
        mid = (lo * hi) ** 0.5
        z = (scores - scores.max(-1, keepdims=True)) / mid
        p = np.exp(z) / np.exp(z).sum(-1, keepdims=True)
        H = -(p * np.log2(p + 1e-30)).sum(-1).mean()
        if entropy > H:
            lo = mid
        else:
            hi = mid
    return mid


@wrong("widen", "query|queries|row")
def widen_keys_only(Q, K, bandwidth):
    ones = torch.ones(len(Q), 1, dtype=Q.dtype)
    wide_q = torch.cat([Q / bandwidth, ones], dim=1)
    norm = -(K**2).sum(1, keepdim=True) / 2 / bandwidth**2
    return wide_q, torch.cat([K / bandwidth, norm], dim=1)


@wrong("with_products", "square|a ≤ b|a = b|itself|own")
def products_without_squares(K):
    d = K.shape[-1]
    extra = [K[..., a] * K[..., b] for a in range(d) for b in range(a + 1, d)]
    return np.concatenate([K, np.stack(extra, -1)], -1) if extra else K


# Chapter 3.


@wrong("log_softmax", "axis|queries|columns|row")
def log_softmax_first_axis(scores):
    return scores - torch.logsumexp(scores, 0, keepdim=True)


@wrong("softmax", "changes its input|integer|dtype")
def softmax_in_the_same_array(x):
    x[:] = np.exp(x - x.max(axis=-1, keepdims=True))
    return x / x.sum(axis=-1, keepdims=True)


@wrong("masked_softmax", "score 0|0|multipl")
def masked_by_multiplied_scores(scores, mask):
    return torch.softmax(torch.nan_to_num(scores) * mask.float(), dim=-1)


@wrong("masked_softmax", "[Ii]nverted|[Ff]orbidden keys")
def masked_exponentials_inverted(scores, mask):
    e = torch.exp(scores - scores.nan_to_num().amax(-1, keepdim=True))
    e = e.masked_fill(mask, 0)
    return e / e.sum(-1, keepdim=True)


@wrong("softmax_vjp", "sum|p|weighted|dot|mean")
def vjp_with_plain_sum(p, g):
    return p * (g - g.sum(-1, keepdims=True))


@wrong("softmax_plus_one", "shift|maximum|1|exp")
def plus_one_after_shift(scores):
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / (1 + e.sum(-1, keepdims=True))


@wrong("causal_mask", "sign|lower right|align|last|wrong way|direction")
def causal_shift_the_other_way(n, m):
    return np.tril(np.ones((n, m)), k=n - m).astype(bool)


@wrong("padding_mask", "shape|axis|axes")
def padding_plain(valid_lens, m):
    return torch.arange(m) < valid_lens[:, None]


@wrong("left_padding_mask", "few|one|less|≥|>")
def left_strictly(lengths, m):
    return (np.arange(m) > m - lengths[:, None])[:, None, :]


@wrong("window_mask", "both|future|sides|after")
def window_to_both_sides(n, width):
    i = torch.arange(n)
    return (i[:, None] - i).abs() < width


# Chapter 4.


def table(rows, columns, entries):
    W = np.zeros((rows, columns))
    for i, j, x in entries:
        W[i, j] = x
    return W


@wrong("successor", "last|wrap|first|round")
def successor_without_wrap(a, n):
    d = a + n + 1
    W_q = table(d, n, [(a + p, p, 30) for p in range(n)])
    W_k = table(d, n, [(a + p, p, 30) for p in range(n)])
    return W_q, W_k, table(d, a, [(i, i + 1, 1) for i in range(a - 1)])


@wrong("reverse", "one|off|shift|cyclic|next")
def reverse_off_by_one(a, n):
    d = a + n + 1
    W_q = table(d, n, [(a + p, (n - p) % n, 30) for p in range(n)])
    W_k = table(d, n, [(a + p, p, 30) for p in range(n)])
    return W_q, W_k, table(d, a, [(i, i, 1) for i in range(a)])


@wrong("largest_so_far", "smallest|least")
def largest_but_smallest(a, n):
    d = a + n + 1
    W_q = table(d, 1, [(d - 1, 0, 1)])
    W_k = table(d, 1, [(i, 0, -60 * i) for i in range(a)])
    return W_q, W_k, table(d, a, [(i, i, 1) for i in range(a)])


@wrong("same_letter", "places|letter")
def same_letter_writes_letters(a, n):
    d = a + n + 1
    W = table(d, a, [(i, i, 30) for i in range(a)])
    return W, W, table(d, a, [(i, i, 1) for i in range(a)])


@wrong("first_token", "sharp|large|weight|spread|scores")
def first_token_too_gentle(a, n):
    d = a + n + 1
    W_q = table(d, 1, [(d - 1, 0, 1)])
    W_k = table(d, 1, [(a, 0, 1)])
    return W_q, W_k, table(d, a, [(i, i, 1) for i in range(a)])


@right("attention")
def attention_with_zeroed_weights(Q, K, V, mask):
    S = np.where(mask, np.einsum("...nd,...md->...nm", Q, K), -1e30)
    S = S / np.sqrt(Q.shape[-1])
    E = np.exp(S - S.max(-1, keepdims=True)) * mask
    return E @ V / np.maximum(E.sum(-1, keepdims=True), 1e-30)


@wrong("self_attention", "√d|width of|d_in|input")
def self_attention_scaled_by_input(X, W_q, W_k, W_v):
    q, k, v = X @ W_q, X @ W_k, X @ W_v
    return F.softmax(q @ k.transpose(-1, -2) / X.size(-1) ** 0.5, dim=-1) @ v


@wrong("self_attention", "causal|future|mask|later")
def self_attention_causal_by_habit(X, W_q, W_k, W_v):
    return F.scaled_dot_product_attention(X @ W_q, X @ W_k, X @ W_v, is_causal=True)


@wrong("step", "itself|new token|own|before|grow")
def step_before_appending(x, K, V, W_q, W_k, W_v):
    q, k, v = x @ W_q, x @ W_k, x @ W_v
    s = K @ q / np.sqrt(len(q))
    w = np.exp(s - s.max())
    w /= w.sum()
    return w @ V, np.vstack([K, k]), np.vstack([V, v])


@wrong("step", "front|beginning|end|order")
def step_prepends(x, K, V, W_q, W_k, W_v):
    K = torch.cat([(x @ W_k)[None], K])
    V = torch.cat([(x @ W_v)[None], V])
    return torch.softmax(K @ (x @ W_q) / K.shape[-1] ** 0.5, 0) @ V, K, V


@wrong("sees_future", None)
def sees_no_future(layer, X):
    Y = X.copy()
    Y[-1] += 1
    return bool(np.allclose(layer(X)[:-1], layer(Y)[:-1]))


@wrong("permutation_gap", "absolute|sign|negative")
def gap_without_absolute(layer, X, order):
    return float((layer(X[order]) - layer(X)[order]).max())


# Chapters 5 and 6.


@wrong("split_heads", "axis|order|heads before|tokens|shape")
def split_without_swap(X, n_heads):
    return X.unflatten(-1, (n_heads, -1))


@wrong("merge_heads", "order|interleav|columns|side by side")
def merge_interleaved(X):
    return np.moveaxis(X, -3, -1).reshape(*X.shape[:-3], X.shape[-2], -1)


@wrong("multi_head", "over heads|axis|heads")
def heads_softmax_over_heads(X, W_q, W_k, W_v, W_o, n_heads):
    n = len(X)
    q, k, v = ((X @ W).reshape(n, n_heads, -1).transpose(0, 1) for W in (W_q, W_k, W_v))
    A = torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, dim=0)
    return (A @ v).transpose(0, 1).reshape(n, -1) @ W_o


@wrong("multi_head_attention", "W_o|projection|last")
def heads_without_output(Q, K, V, W_q, W_k, W_v, W_o, n_heads):
    q, k, v = (
        (X @ W).unflatten(-1, (n_heads, -1)).transpose(-3, -2)
        for X, W in zip((Q, K, V), (W_q, W_k, W_v), strict=True)
    )
    return F.scaled_dot_product_attention(q, k, v).transpose(-3, -2).flatten(-2)


@wrong("contributions", "sum|heads|total")
def contributions_summed(Q, K, V, W_q, W_k, W_v, W_o, n_heads):
    total = 0
    for q, k, v, o in zip(
        (Q @ W_q).chunk(n_heads, -1),
        (K @ W_k).chunk(n_heads, -1),
        (V @ W_v).chunk(n_heads, -1),
        W_o.chunk(n_heads, 0),
        strict=True,
    ):
        total = total + F.scaled_dot_product_attention(q, k, v) @ o
    return total


@wrong("sinusoidal_encoding", "100|base|10000|rate")
def encoding_with_small_base(n, d):
    P = np.zeros((n, d))
    for p in range(n):
        for c in range(d):
            angle = p / 1000 ** (2 * (c // 2) / d)
            P[p, c] = math.sin(angle) if c % 2 == 0 else math.cos(angle)
    return P


@right("encode")
def encode_by_column(positions, d):
    c = torch.arange(d)
    a = positions[:, None] / 10000.0 ** (2 * (c // 2) / d)
    return torch.where(c % 2 == 0, a.sin(), a.cos())


@wrong("rotary", "way|direction|backward|sign|−")
def rotary_backwards(X):
    n, d = X.shape[-2:]
    a = np.arange(n)[:, None] * 10000.0 ** (-np.arange(0, d, 2) / d)
    even, odd = X[..., ::2], X[..., 1::2]
    out = np.zeros_like(X)
    out[..., ::2] = even * np.cos(a) + odd * np.sin(a)
    out[..., 1::2] = odd * np.cos(a) - even * np.sin(a)
    return out


@wrong("alibi_bias", "h \\+ 1|first head|from 0|slope|one head")
def alibi_from_zero(n_heads, n, m):
    slopes = 2.0 ** (-8 * np.arange(n_heads) / n_heads)
    dist = np.abs(np.arange(n)[:, None] + m - n - np.arange(m))
    return -slopes[:, None, None] * dist


@wrong("previous_weights", "forward|next|way|direction|later")
def previous_turned_forward(n, d, scale):
    w = 10000.0 ** (-np.arange(0, d, 2) / d)

    def at(p):
        a = p[:, None] * w
        return np.stack([np.sin(a), np.cos(a)], -1).reshape(len(p), -1)

    S = scale * at(np.arange(n) + 1.0) @ at(np.arange(n) * 1.0).T
    E = np.exp(S - S.max(1, keepdims=True))
    return E / E.sum(1, keepdims=True)


@wrong("to_halves", "heads forgotten")
def halves_of_the_whole(W, n_heads):
    return torch.cat([W[:, 0::2], W[:, 1::2]], dim=1)


# Chapters 7 to 9.


@wrong("numerical_gradient", "one-sided|one side|forward|h|accurate|half|2")
def gradient_over_h(f, x):
    g = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        e = np.zeros_like(x)
        e[i] = 1e-5
        g[i] = (f(x + e) - f(x - e)) / 1e-5
    return g


@wrong("log_softmax_vjp", "softmax|p|exp|scores")
def log_vjp_of_softmax(scores, g):
    p = torch.softmax(scores, -1)
    return p * (g - (p * g).sum(-1, keepdim=True))


@wrong("bilinear_score_vjp", "order|exchanged|swapped|dQ|dK")
def bilinear_vjp_order(Q, K, M, g):
    return g.T @ Q @ M, g @ K @ M.T, Q.T @ g @ K


@wrong("self_attention_vjp", "√|scale|divided|factor")
def attention_vjp_unscaled(X, W_q, W_k, W_v, g):
    Q, K, V = X @ W_q, X @ W_k, X @ W_v
    A = torch.softmax(Q @ K.T / K.shape[-1] ** 0.5, -1)
    dV = A.T @ g
    dA = g @ V.T
    dS = A * (dA - (A * dA).sum(-1, keepdim=True))
    dQ, dK = dS @ K, dS.T @ Q
    return dQ @ W_q.T + dK @ W_k.T + dV @ W_v.T, X.T @ dQ, X.T @ dK, X.T @ dV


@wrong("greedy", "mean|average|length|divided")
def greedy_mean_log(step, end, max_len):
    ids, logs = [], []
    while len(ids) < max_len and (not ids or ids[-1] != end):
        p = step(np.array(ids, dtype=int))
        ids.append(int(np.argmax(p)))
        logs.append(float(np.max(p)))
    return np.array(ids), np.mean(logs)


@wrong("previous_symbols", "end|first|shape|longer|one")
def previous_with_end_put_before(target, end):
    first = np.full((len(target), 1), end)
    return np.concatenate([first, target], axis=1)


@wrong("exact_match", "symbol|token|position|sentence")
def match_of_symbols(found, target, end):
    t = min(found.shape[1], target.shape[1])
    return (found[:, :t] == target[:, :t]).double().mean()


@wrong("nucleus", "renormal|sum|divided")
def nucleus_not_renormalised(p, share):
    order = np.argsort(-p)
    total = np.cumsum(p[order])
    count = np.searchsorted(total, share) + 1
    out = np.zeros_like(p)
    out[order[:count]] = p[order[:count]]
    return out


@wrong("nucleus", "reaches the share")
def nucleus_one_short(p, share):
    values, order = torch.sort(p, descending=True)
    keep = values.cumsum(0) <= share
    out = torch.zeros_like(p)
    out[order[keep]] = values[keep]
    return out / out.sum()


@wrong("may_stop", "length|max_len|shortest|longest|now")
def stop_by_the_present_mean(finished, running, length, max_len):
    return bool(finished >= max(running) / length)


@wrong("path_lengths", "backward|direction|ignored|same")
def lengths_forwards_only(m, backwards):
    return np.full(m, m)


@wrong("layer_norm", "keys|tokens|axis|last|row")
def norm_over_tokens(X, gain, shift):
    m, v = X.mean(-2, keepdims=True), X.var(-2, keepdims=True)
    return (X - m) / np.sqrt(v + 1e-5) * gain + shift


@wrong("windows", "[Tt]argets are the inputs")
def windows_without_shift(ids, starts, n):
    x = torch.stack([ids[s : s + n] for s in starts])
    return x, x.clone()


@wrong("next_token_loss", "sum|mean")
def loss_summed(logits, targets):
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten(), reduction="sum")


@wrong("top_k", "renormal|sum|1|all")
def top_k_of_the_softmax(logits, k, temperature):
    p = torch.softmax(logits / temperature, -1)
    least = p.topk(k).values[..., -1:]
    return torch.where(p >= least, p, 0)


@wrong("join_pair", "overlap|twice|both|neighbour|left")
def join_overlapping(ids, pair, new):
    out = []
    for i, t in enumerate(ids):
        if i + 1 < len(ids) and (t, ids[i + 1]) == tuple(pair):
            out.append(new)
        elif i and (ids[i - 1], t) == tuple(pair):
            continue
        else:
            out.append(t)
    return np.array(out)


@wrong("induction_score", "period|one|diagonal|token before|copy")
def induction_on_the_copy(A, period):
    n = A.shape[-1]
    i = torch.arange(period, n)
    return A[..., i, i - period].mean(-1)


# Chapters 10 to 13.


@wrong("causal_linear_attention", "causal|future|later|j ≤ i")
def linear_not_causal(Q, K, V):
    q, k = F.elu(Q) + 1, F.elu(K) + 1
    return q @ (k.T @ V) / (q @ k.sum(0))[:, None]


@wrong("merge", "rescal|exp|factor|top")
def merge_without_rescaling(t1, z1, u1, t2, z2, u2):
    return torch.maximum(t1, t2), z1 + z2, u1 + u2


@wrong("causal_tiles", "some|all|every|partly|diagonal|full")
def tiles_wholly_visible(n, m, tile):
    mask = np.arange(n)[:, None] + m - n >= np.arange(m)
    return np.array(
        [
            [mask[i : i + tile, j : j + tile].all() for j in range(0, m, tile)]
            for i in range(0, n, tile)
        ]
    )


@wrong("score_bound", "[Ss]quare|√|root|norm")
def bound_of_squares(Q, K, scale):
    return abs(scale) * (Q**2).sum(1).max() * (K**2).sum(1).max()


@wrong("received_weight", "diagonal|itself|own")
def received_with_own(A):
    n = A.shape[-1]
    return A.sum(-2) / torch.arange(n, 0, -1)


@wrong("prefix_matching_score", "copies|after|itself|next")
def matching_on_the_copies(A, ids):
    same = np.tril(ids[:, None] == ids, -1)
    rows = same.any(1)
    return (A * same).sum(-1)[..., rows].mean(-1)


@wrong("without_heads", "inverted|only|kept|others|rest|on")
def only_heads(O, W_o, off):
    P = torch.zeros_like(O)
    P[off] = O[off]
    return P.transpose(0, 1).flatten(1) @ W_o


@wrong("dequantise", "side by side")
def dequantise_interleaved(blocks):
    scale = blocks[:, 0:2].copy().view(np.float16).astype(np.float32)
    least = blocks[:, 2:4].copy().view(np.float16).astype(np.float32)
    low, high = blocks[:, 4:] & 15, blocks[:, 4:] >> 4
    return scale * np.stack([low, high], -1).reshape(len(blocks), 32) + least


@wrong("merge_parts", "average|mean|equal|level")
def parts_averaged(outputs, levels):
    return outputs.mean(0)


@wrong("zigzag_positions", "back|blocks|neighbour|contiguous|zigzag")
def positions_in_blocks(n, size):
    return np.arange(n).reshape(size, n // size)


@wrong("bytes_sent", "kv_heads|as many heads")
def bytes_of_all_heads(n, size, heads, kv_heads, width, number):
    local = n // size
    ring = (size - 1) * 2 * local * heads * width * number
    part = local * width * number * (size - 1) // size
    return ring, part * (heads * 2 + kv_heads * 2)


@wrong("ring", "causal|future|mask|later")
def ring_not_causal(Q, K, V, size):
    A = torch.softmax(Q @ K.T / Q.shape[-1] ** 0.5, -1)
    return A @ V


@wrong("window_with_sinks", "future|causal|after itself|later")
def sinks_in_the_future(n, m, window, sinks):
    i = np.arange(m - n, m)[:, None]
    j = np.arange(m)
    return ((i - j < window) & (j <= i)) | (j < sinks)


@wrong("linear_in_chunks", "state|earlier|chunk|before")
def chunks_forget(Q, K, V, size):
    q, k = F.elu(Q) + 1, F.elu(K) + 1
    out = []
    for i in range(0, len(Q), size):
        w = (q[i : i + size] @ k[i : i + size].T).tril()
        out.append(w @ V[i : i + size] / w.sum(1, keepdim=True))
    return torch.cat(out)


@wrong("delta_step", "length|norm|unit")
def delta_without_norm(S, k, v, beta):
    return S + beta * np.outer(k, v - k @ S)


@wrong("keep_guess", "q/p|ratio|wrong way|inverted|upside")
def keep_upside_down(p, q, guess, coin, draw):
    if coin < min(1, q[guess] / p[guess]):
        return guess
    rest = np.clip(p - q, 0, None)
    return int(np.searchsorted(np.cumsum(rest / rest.sum()), draw, side="right"))


# Right ones, in unusual styles.


@right("softmax")
def softmax_by_loops(x):
    out = np.empty_like(x)
    for i in np.ndindex(x.shape[:-1]):
        e = np.exp(x[i] - max(x[i]))
        out[i] = e / sum(e)
    return out


@right("masked_softmax")
def masked_in_logarithms(scores, mask):
    s = scores.where(mask, -torch.inf)
    total = torch.logsumexp(s, -1, keepdim=True)
    return torch.where(mask, (s - total).exp(), torch.zeros_like(s))


@right("attention")
def attention_by_rows(Q, K, V, mask):
    mask = np.broadcast_to(mask, (*Q.shape[:-1], K.shape[-2]))
    out = np.zeros((*Q.shape[:-1], V.shape[-1]), V.dtype)
    for i in np.ndindex(Q.shape[:-1]):
        see = mask[i]
        if see.any():
            s = K[i[:-1]][see] @ Q[i] / Q.shape[-1] ** 0.5
            e = np.exp(s - s.max())
            out[i] = e @ V[i[:-1]][see] / e.sum()
    return out


@right("self_attention")
def self_attention_einsum(X, W_q, W_k, W_v):
    S = torch.einsum("...ia,ab,cb,...jc->...ij", X, W_q, W_k, X)
    A = (S * W_k.shape[-1] ** -0.5).log_softmax(-1).exp()
    return torch.einsum("...ij,...jc,cv->...iv", A, X, W_v)


@right("rotary")
def rotary_complex(X):
    n, d = X.shape[-2:]
    z = torch.view_as_complex(X.unflatten(-1, (-1, 2)).contiguous())
    a = torch.outer(
        torch.arange(n, dtype=X.dtype),
        10000.0 ** (-torch.arange(0, d, 2, dtype=X.dtype) / d),
    )
    return torch.view_as_real(z * torch.polar(torch.ones_like(a), a)).flatten(-2)


@right("causal_mask")
def causal_by_comparison(n, m):
    return np.array([[j - m <= i - n for j in range(m)] for i in range(n)])


@right("layer_norm")
def norm_with_sums(X, gain, shift):
    d = X.shape[-1]
    c = X - X.sum(-1, keepdims=True) / d
    return (
        c * (np.einsum("...d,...d->...", c, c)[..., None] / d + 1e-5) ** -0.5 * (gain)
        + shift
    )


@right("nucleus")
def nucleus_loop(p, share):
    out, total = np.zeros_like(p), 0.0
    for i in np.argsort(-p, kind="stable"):
        out[i] = p[i]
        total += p[i]
        if total >= share:
            break
    return out / out.sum()


@right("next_token_loss")
def loss_by_logsumexp(logits, targets):
    right = np.take_along_axis(logits, targets[..., None], -1)
    top = logits.max(-1, keepdims=True)
    return (top + np.log(np.exp(logits - top).sum(-1, keepdims=True)) - right).mean()


@right("merge_parts")
def parts_through_softmax(outputs, levels):
    w = torch.softmax(levels, 0)
    return (torch.where(torch.isnan(w), 0, w) * outputs).sum(0)


@right("ring")
def ring_as_plain_attention(Q, K, V, size):
    return F.scaled_dot_product_attention(Q[None], K[None], V[None], is_causal=True)[0]


@right("zigzag_positions")
def positions_by_lists(n, size):
    c = n // (2 * size)
    rows = []
    for r in range(size):
        last = n - (r + 1) * c
        rows.append([*range(r * c, (r + 1) * c), *range(last, last + c)])
    return torch.tensor(rows)


@right("delta_step")
def delta_as_matrix(S, k, v, beta):
    k = (k / k.norm())[:, None]
    return S - beta * k @ (k.T @ S) + beta * k * v


@right("window_mask")
def window_from_ones(n, width):
    ones = torch.ones(n, n, dtype=torch.bool)
    return ones.tril() & ones.triu(1 - width)


@right("previous_symbols")
def previous_with_pad(target, end):
    return F.pad(target[:, :-1], (1, 0), value=end)
