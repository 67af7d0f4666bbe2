"""The sixth set, 74 wrong, seen when the fifth was mended: 61 were named (82 %), 3 hinted at, 3 misled, 7 unnamed."""

import math

import numpy as np
import torch
import torch.nn.functional as F

from foreign import Solutions

SIXTH = Solutions()
wrong, right = SIXTH.wrong, SIXTH.right


# Chapters 1 and 2.


@wrong("gaussian_kernel", "bandwidth|exponent|power|½|twice")
def gaussian_of_twice_the_width(Q, K, bandwidth):
    return (-((torch.cdist(Q, K) / (2 * bandwidth)) ** 2)).exp()


@wrong("boxcar_kernel", "coordinate|first|dimension|column")
def boxcar_of_one_coordinate(Q, K, bandwidth):
    gap = np.abs(Q[..., :, None, 0] - K[..., None, :, 0])
    return np.where(gap <= bandwidth, 1.0, 0.0)


@wrong("triangular_kernel", "0|negative|clip|absolute")
def triangular_folded(Q, K, bandwidth):
    return (1 - torch.cdist(Q, K) / bandwidth).abs()


@wrong("epanechnikov_kernel", "bandwidth")
def epanechnikov_of_bare_distance(Q, K, bandwidth):
    d2 = ((Q[..., :, None, :] - K[..., None, :, :]) ** 2).sum(-1)
    return np.maximum(0.75 * (1 - d2), 0)


@wrong("normalize", "square|root|length|norm")
def normalize_to_unit_length(weights):
    return F.normalize(weights, dim=-1)


@wrong("nadaraya_watson", "keepdims|row|column|axis|broadcast|sum")
def pooling_keepdims(Q, K, V, kernel, bandwidth):
    w = kernel(Q, K, bandwidth)
    total = w.sum(-1)
    return np.nan_to_num(
        (w @ V) / total[..., None, :].swapaxes(-1, -2).mean(-2, keepdims=True)
    )


@wrong("neighbour_weights", "argsort|rank|place|order")
def neighbours_by_argsort(q, K, k):
    order = torch.cdist(q, K).argsort(-1)
    return (order < k).to(K.dtype) / k


@wrong("local_line_weights", "kernel|weight|bandwidth")
def line_unweighted(q, K, bandwidth):
    X = np.column_stack([np.ones(len(K)), K - q])
    return np.linalg.pinv(X)[:1]


@wrong("scaled_dot_score", "transpos|rows|queries")
def score_keys_by_queries(Q, K):
    return np.einsum("...nd,...md->...mn", Q, K) / np.sqrt(Q.shape[-1]).astype(Q.dtype)


@wrong("additive_score", "tanh|separately|each|sum")
def additive_of_two_tanhs(Q, K, W_q, W_k, w_v):
    q, k = torch.tanh(Q @ W_q), torch.tanh(K @ W_k)
    return (q[..., :, None, :] + k[..., None, :, :]) @ w_v


@wrong("gaussian_score", "half|½|factor|2")
def gaussian_score_without_half(Q, K, bandwidth):
    return -((torch.cdist(Q, K) / bandwidth) ** 2)


@wrong("find_temperature", "near|accura|step|fine|rough|off by|approximation")
def temperature_on_a_grid(scores, entropy):
    def H(T):
        z = scores / T
        p = np.exp(z - z.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        return -(p * np.log(p + 1e-12)).sum(-1).mean()

    grid = np.geomspace(0.01, 1000, 500)
    return float(grid[np.argmin([abs(H(T) - entropy) for T in grid])])


@wrong("widen", "bandwidth|σ")
def widen_by_root(Q, K, bandwidth):
    s = bandwidth**0.5
    Q, K = Q / s, K / s
    one = torch.ones_like(Q[:, :1])
    many = torch.ones_like(K[:, :1])
    q2, k2 = -0.5 * (Q * Q).sum(1, keepdim=True), -0.5 * (K * K).sum(1, keepdim=True)
    return torch.hstack([Q, one, q2]), torch.hstack([K, k2, many])


@wrong("with_products", "twice|both|order|a ≤ b|all")
def products_of_all_pairs(K):
    d = K.shape[-1]
    return np.concatenate(
        [K, (K[..., :, None] * K[..., None, :]).reshape(*K.shape[:-1], d * d)], -1
    )


# Chapter 3.


@wrong("log_softmax", "maximum|shift|twice|once|subtract")
def log_softmax_shifted_once(scores):
    top = scores.max(-1, keepdims=True)
    return scores - top - np.log(np.exp(scores).sum(-1, keepdims=True))


@wrong("softmax", "length|norm|sum|square")
def softmax_to_unit_length(x):
    e = torch.exp(x - x.amax(-1, keepdim=True))
    return e / e.norm(dim=-1, keepdim=True)


@wrong("masked_softmax", "before|all|hidden|forbidden|renormal|less|denominator|sum")
def masked_denominator_of_all(scores, mask):
    s = np.nan_to_num(scores)
    e = np.exp(s - s.max(-1, keepdims=True))
    return np.where(mask, e, 0) / e.sum(-1, keepdims=True)


@wrong("masked_softmax", "inverted|forbidden|exchanged")
def masked_fill_of_the_mask(scores, mask):
    out = scores.masked_fill(mask, float("-inf")).softmax(-1)
    return torch.nan_to_num(out)


@wrong("softmax_vjp", "diagonal|off|other|Jacobian|own")
def vjp_of_the_diagonal(p, g):
    return g * p * (1 - p)


@wrong("softmax_plus_one", "front|first|shift|place|early|column|order")
def plus_one_in_front(scores):
    zero = np.zeros_like(scores[..., :1])
    s = np.concatenate([zero, scores], -1)
    e = np.exp(s - s.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True))[..., :-1]


@wrong("causal_mask", "inverted|future|upper|opposite|after")
def causal_upper(n, m):
    return torch.ones(n, m, dtype=torch.bool).triu(m - n)


@wrong("padding_mask", "[Ii]nverted|opposite|exchanged|marks")
def padding_marks_the_padding(valid_lens, m):
    return (np.arange(m) >= valid_lens[:, None])[:, None, :]


@wrong("left_padding_mask", "first|right|left|end|side")
def left_as_right(lengths, m):
    return torch.arange(m)[None, None] < lengths[:, None, None]


@wrong("window_mask", "one|many|width|more|itself")
def window_one_wider(n, width):
    return np.array([[0 <= i - j <= width for j in range(n)] for i in range(n)])


# Chapter 4.


@wrong("attention", "−∞|hidden|forbidden|added|mask")
def attention_mask_added(Q, K, V, mask):
    S = (Q @ K.swapaxes(-1, -2)) / Q.shape[-1] ** 0.5 + mask
    S = np.exp(S - S.max(-1, keepdims=True))
    return S / S.sum(-1, keepdims=True) @ np.nan_to_num(V)


@wrong("attention", "divided|sum|normalis|proportion|unnormalised|weights")
def attention_not_divided(Q, K, V, mask):
    S = torch.where(mask, Q @ K.mT / Q.shape[-1] ** 0.5, -torch.inf)
    top = S.amax(-1, keepdim=True).nan_to_num(neginf=0)
    return torch.exp(S - top) @ V.nan_to_num()


@wrong("self_attention", "added|residual|tokens|X")
def self_attention_with_residual(X, W_q, W_k, W_v):
    out = F.scaled_dot_product_attention(X @ W_q, X @ W_k, X @ W_v)
    return X + out if X.shape == out.shape else out


@wrong("self_attention", "batch|first|raises")
def self_attention_for_one_batch(X, W_q, W_k, W_v):
    n = X.shape[0]
    Q, K, V = X @ W_q, X @ W_k, X @ W_v
    out = np.zeros((n, V.shape[-1]))
    for i in range(n):
        s = np.array([Q[i] @ K[j] for j in range(n)]) / math.sqrt(K.shape[1])
        w = np.exp(s - s.max())
        out[i] = (w / w.sum()) @ V
    return out


@wrong("self_attention", "softmax of what is asked")
def self_attention_projected_twice(X, W_q, W_k, W_v):
    Q, K = X @ W_q, X @ W_k
    A = torch.softmax(Q @ K.mT / K.shape[-1] ** 0.5, -1)
    return torch.softmax(A, -1) @ (X @ W_v)


@wrong("step", "√|number|length|cache|t")
def step_scaled_by_length(x, K, V, W_q, W_k, W_v):
    K, V = np.r_[K, [x @ W_k]], np.r_[V, [x @ W_v]]
    s = K @ (x @ W_q) / np.sqrt(len(K))
    w = np.exp(s - s.max())
    return w / w.sum() @ V, K, V


@wrong("step", "shape|axis|row")
def step_keeps_the_row(x, K, V, W_q, W_k, W_v):
    q, k, v = (x[None] @ W for W in (W_q, W_k, W_v))
    K, V = torch.cat([K, k]), torch.cat([V, v])
    return F.scaled_dot_product_attention(q[None], K[None], V[None])[0], K, V


@wrong("step", "key|value|exchanged|W_v|W_k")
def step_swaps_the_caches(x, K, V, W_q, W_k, W_v):
    K, V = np.vstack([K, x @ W_k]), np.vstack([V, x @ W_v])
    s = K @ (x @ W_q) / K.shape[1] ** 0.5
    w = np.exp(s - s.max())
    return w / w.sum() @ V, V, K


@wrong("permutation_gap", "order|permut|sorted|second")
def gap_without_sorting_the_output(layer, X, order):
    return np.max(np.abs(layer(X[order]) - layer(X)))


@right("previous_token")  # the first token asks for the last, which it cannot see
def previous_token_cyclic(a, n):
    d = a + n + 1
    W_q, W_k, W_v = np.zeros((d, n)), np.zeros((d, n)), np.zeros((d, a))
    for p in range(n):
        W_k[a + p, p] = 40
        W_q[a + p, (p - 1) % n] = 40
    W_v[:a] = np.eye(a)
    return W_q, W_k, W_v


@wrong("latest_a", "earliest|first|oldest")
def latest_is_earliest(a, n):
    d = a + n + 1
    W_q, W_k, W_v = np.zeros((d, 2)), np.zeros((d, 2)), np.zeros((d, n))
    W_q[-1, 0] = 1
    W_k[0, 0] = 4000
    for p in range(n):
        W_k[a + p, 0] -= 60 * p
        W_q[a + p, 1] = 0
    W_v[a : a + n] = np.eye(n)
    return W_q, W_k, W_v


# Chapters 5 and 6.


@wrong("split_heads", "another axis is cut")
def split_tokens(X, n_heads):
    return torch.stack(torch.tensor_split(X, n_heads, dim=-2), dim=-3)


@wrong("multi_head", None)
def heads_with_values_reversed(X, W_q, W_k, W_v, W_o, n_heads):
    def cut(M):
        return np.stack(np.split(M, n_heads, axis=1))

    Q, K, V = cut(X @ W_q), cut(X @ W_k), cut(X @ W_v)[::-1]
    S = Q @ K.swapaxes(1, 2) / Q.shape[-1] ** 0.5
    A = np.exp(S - S.max(-1, keepdims=True))
    A /= A.sum(-1, keepdims=True)
    return np.concatenate(list(A @ V), axis=1) @ W_o


@wrong("multi_head_attention", "one head|n_heads|not used|heads")
def heads_as_one(Q, K, V, W_q, W_k, W_v, W_o, n_heads):
    return F.scaled_dot_product_attention(Q @ W_q, K @ W_k, V @ W_v) @ W_o


@wrong("sinusoidal_encoding", "cos|sin|exchanged|order|first")
def encoding_cosine_first(n, d):
    a = np.arange(n)[:, None] / 10000 ** (2 * (np.arange(d) // 2) / d)
    return np.where(np.arange(d) % 2, np.sin(a), np.cos(a))


@wrong("encode", "multipl|divid|fast|base|rate|exponent")
def encode_multiplied(positions, d, base=10000.0):
    c = np.arange(d)
    a = positions[:, None] * base ** (2 * (c // 2) / d)
    return np.where(c % 2, np.cos(a), np.sin(a))


@wrong("rotary", "from 1|position|one")
def rotary_from_one(X):
    n, d = X.shape[-2:]
    a = torch.arange(1, n + 1)[:, None] * 10000.0 ** (-torch.arange(0, d, 2) / d)
    a = a.to(X.dtype)
    x, y = X[..., 0::2], X[..., 1::2]
    return torch.stack(
        [x * a.cos() - y * a.sin(), y * a.cos() + x * a.sin()], -1
    ).flatten(-2)


@wrong("alibi_bias", "sign|minus|positive")
def alibi_rewards_distance(n_heads, n, m):
    slope = 0.5 ** (8 * np.arange(1, n_heads + 1) / n_heads)
    return slope[:, None, None] * np.abs(np.arange(m - n, m)[:, None] - np.arange(m))


@wrong("to_halves", "other way|back|inverse|opposite|interleav|way round|halves")
def from_halves(W, n_heads):
    H = W.reshape(len(W), n_heads, 2, -1)
    return H.transpose(0, 1, 3, 2).reshape(W.shape)


@wrong("squeezed", None)
def squeezed_to_whole_positions(w, ids, longest):
    n = ids.shape[-1]
    p = np.floor(np.arange(n) * min(1, longest / n))
    X = w["words"][ids]
    q, K, V = X[:, -1:] @ w["W_q"], X @ w["W_k"], X @ w["W_v"]

    def h(M):
        return M.reshape(*M.shape[:2], 4, -1).swapaxes(1, 2)

    def turn(M, p):
        d = M.shape[-1]
        a = p[:, None] / 10000 ** (np.arange(0, d, 2) / d)
        out = np.empty_like(M)
        out[..., ::2] = M[..., ::2] * np.cos(a) - M[..., 1::2] * np.sin(a)
        out[..., 1::2] = M[..., ::2] * np.sin(a) + M[..., 1::2] * np.cos(a)
        return out

    q, K, V = turn(h(q), p[-1:]), turn(h(K), p), h(V)
    S = q @ K.mT / q.shape[-1] ** 0.5
    A = np.exp(S - S.max(-1, keepdims=True))
    A /= A.sum(-1, keepdims=True)
    return (A @ V).swapaxes(1, 2).reshape(len(ids), -1) @ w["W_o"]


# Chapters 7 to 9.


@wrong("numerical_gradient", "step|h|accura|rounding|large|near")
def gradient_with_a_large_step(f, x):
    g = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        e = np.zeros_like(x)
        e[i] = 0.5
        g[i] = f(x + e) - f(x - e)
    return g


@wrong("log_softmax_vjp", "sum|g|times")
def log_vjp_without_sum(scores, g):
    return g - torch.softmax(scores, -1) * g


@wrong("bilinear_score_vjp", "transpos")
def bilinear_vjp_transposed(Q, K, M, g):
    return g @ K @ M.T, g.T @ Q @ M, (Q.T @ g @ K).T


@wrong("self_attention_vjp", "V|values|W_v|third|one of")
def attention_vjp_without_values(X, W_q, W_k, W_v, g):
    Q, K, V = X @ W_q, X @ W_k, X @ W_v
    c = 1 / math.sqrt(K.shape[-1])
    A = torch.softmax(c * Q @ K.T, -1)
    dA = g @ V.T
    dS = A * (dA - (A * dA).sum(-1, keepdim=True)) * c
    dQ, dK, dV = dS @ K, dS.T @ Q, A.T @ g
    return dQ @ W_q.T + dK @ W_k.T, X.T @ dQ, X.T @ dK, X.T @ dV


@wrong("greedy", "end|short|token")
def greedy_without_the_end(step, end, max_len):
    ids, total = [], 0.0
    for _ in range(max_len):
        p = step(np.array(ids, dtype=int))
        y = int(p.argmax())
        total += float(p[y])
        if y == end:
            break
        ids.append(y)
    return np.array(ids, dtype=int), total


@wrong("beam", "least|worst|sort|ascending|unlikel|smallest")
def beam_of_the_worst(step, end, max_len, k):
    beam = [((), 0.0)]
    for _ in range(max_len):
        grown = []
        for t, s in beam:
            if t and t[-1] == end:
                grown.append((t, s))
            else:
                grown += [
                    (t + (y,), s + float(p))
                    for y, p in enumerate(step(np.array(t, int)))
                ]
        beam = sorted(grown, key=lambda h: h[1])[:k]
    t, s = beam[0]
    return np.array(t), s


@wrong("previous_symbols", "next|direction|way|later|left|ahead")
def previous_is_next(target, end):
    out = np.full_like(target, end)
    out[:, :-1] = target[:, 1:]
    return out


@wrong("nucleus", "keep others")
def nucleus_by_threshold(p, share):
    kept = torch.where(p >= 1 - share, p, 0)
    return kept / kept.sum()


@wrong("may_stop", "any|one|all")
def stop_at_any(finished, running, length, max_len):
    return any(r / max_len <= finished for r in running)


@wrong("layer_norm", "n − 1|d − 1|ddof|unbiased|variance")
def norm_of_torch_std(X, gain, shift):
    z = (X - X.mean(-1, keepdim=True)) / torch.sqrt(X.var(-1, keepdim=True) + 1e-5)
    return torch.nan_to_num(z) * gain + shift


@wrong("layer_norm", "root|variance|√")
def norm_by_rms(X, gain, shift):
    return gain * X / np.sqrt((X**2).mean(-1, keepdims=True) + 1e-5) + shift


@wrong("windows", "start|0|one|early|first")
def windows_one_early(ids, starts, n):
    i = starts[:, None] + torch.arange(n) - 1
    return ids[i], ids[i + 1]


@wrong("next_token_loss", "log|base|bits|factor")
def loss_in_bits(logits, targets):
    logp = F.log_softmax(logits, -1) / math.log(2)
    return -logp.gather(-1, targets[..., None]).mean()


@wrong("top_k", "temperature")
def top_k_times_temperature(logits, k, temperature):
    i = np.argsort(-logits, -1, kind="stable")[..., :k]
    out = np.full_like(logits, -np.inf)
    np.put_along_axis(out, i, np.take_along_axis(logits, i, -1) * temperature, -1)
    e = np.exp(out - out.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@wrong("induction_score", "all|queries|mean|period|sum|number")
def induction_over_all_queries(A, period):
    n = A.shape[-1]
    i = np.arange(period, n)
    return A[..., i, i - period + 1].sum(-1) / n


# Chapters 10 to 13.


@wrong("causal_linear_attention", "φ|elu|feature|exp|relu|1")
def linear_without_the_one(Q, K, V):
    q, k = torch.relu(Q) + 1, torch.relu(K) + 1
    w = (q @ k.T).tril()
    return w @ V / w.sum(-1, keepdim=True)


@wrong("merge", "top|larger|max|mean|sum")
def merge_to_the_first_top(t1, z1, u1, t2, z2, u2):
    c = np.exp(t2 - t1)
    return t1, z1 + c * z2, u1 + c * u2


@wrong("causal_tiles", "upper left|align|last|m − n|lower right")
def tiles_upper_left(n, m, tile):
    rows, cols = -(-n // tile), -(-m // tile)
    i, j = torch.arange(rows)[:, None], torch.arange(cols)
    return i >= j


@wrong("score_bound", "sum|mean|largest|max|all")
def bound_of_frobenius(Q, K, scale):
    return abs(scale) * np.linalg.norm(Q) * np.linalg.norm(K)


@wrong("quotient_scores", "2|factor|half|tanh")
def quotient_of_single_exponentials(a, b, w):
    m = a.mean(0)
    ea, eb = torch.exp(a - m), torch.exp(b + m)
    return -2 * (w / (1 + ea[:, None] * eb)).sum(-1)


@wrong("received_weight", "n|all|number|mean|divid|factor")
def received_over_n(A):
    return np.tril(A, -1).sum(-2) / A.shape[-1]


@wrong("prefix_matching_score", "all queries")
def matching_over_all_queries(A, ids):
    n = len(ids)
    total = 0
    for i in range(n):
        for j in range(i):
            if ids[j] == ids[i]:
                total = total + A[..., i, j + 1]
    return total / n


@wrong("without_heads", "W_o|rows|raises|removed|taken out|shape|only")
def heads_taken_out(O, W_o, off):
    kept = [h for h in range(len(O)) if h not in off]
    M = np.concatenate([O[h] for h in kept], axis=1)
    return M @ W_o[: M.shape[1]]


@wrong("dequantise", "scale|minimum|exchanged|order")
def dequantise_minimum_first(blocks):
    low, scale = (
        np.ascontiguousarray(blocks[:, i : i + 2]).view(np.float16).astype(np.float32)
        for i in (0, 2)
    )
    return scale * np.hstack([blocks[:, 4:] & 15, blocks[:, 4:] >> 4]) + low


@wrong("merge_parts", "largest|best|softmax|max|one")
def parts_of_the_best(outputs, levels):
    best = levels.argmax(0)
    return torch.take_along_dim(outputs, best[None], 0)[0]


@wrong("zigzag_positions", "revers|order|backward|front")
def zigzag_back_reversed(n, size):
    chunks = np.arange(n).reshape(2 * size, -1)
    return np.stack([np.r_[chunks[r], chunks[-1 - r][::-1]] for r in range(size)])


@wrong("ring", "√|scale|divided|sharp")
def ring_without_scale(Q, K, V, size):
    S = Q @ K.T
    S[np.triu_indices(len(Q), 1)] = -np.inf
    E = np.exp(S - S.max(1, keepdims=True))
    return E @ V / E.sum(1, keepdims=True)


@wrong("window_with_sinks", "sinks|not used")
def window_without_sinks(n, m, window, sinks):
    i = torch.arange(m - n, m)[:, None]
    j = torch.arange(m)
    return (j <= i) & (j > i - window)


@wrong("linear_in_chunks", "twice|double|itself|own|state|chunk|future")
def chunks_counted_twice(Q, K, V, size):
    def f(X):
        return np.where(X > 0, X + 1, np.exp(np.minimum(X, 0)))

    q, k = f(Q), f(K)
    S, z = np.zeros((K.shape[1], V.shape[1])), np.zeros(K.shape[1])
    out = []
    for i in range(0, len(Q), size):
        a, b, c = q[i : i + size], k[i : i + size], V[i : i + size]
        S, z = S + b.T @ c, z + b.sum(0)
        w = np.tril(a @ b.T)
        out.append((w @ c + a @ S) / (w.sum(1) + a @ z)[:, None])
    return np.concatenate(out)


@wrong("delta_step", "added|subtract|answers|Hebb|difference|old")
def delta_only_adds(S, k, v, beta):
    return S + beta * torch.outer(F.normalize(k, dim=0), v)


@wrong("keep_guess", "rest|max|difference|drawn|p itself|from p")
def redraw_from_p(p, q, guess, coin, draw):
    if coin * q[guess] < p[guess]:
        return guess
    return int(np.searchsorted(np.cumsum(p), draw, side="right"))


# Right ones.


@right("gaussian_score")
def gaussian_by_squares(Q, K, bandwidth):
    q2, k2 = (Q**2).sum(-1)[..., None], (K**2).sum(-1)[..., None, :]
    return (Q @ K.swapaxes(-1, -2) - (q2 + k2) / 2) / bandwidth**2


@right("merge_heads")
def merge_by_concatenation(X):
    return torch.cat(X.unbind(-3), -1)


@right("multi_head_attention")
def heads_by_einsum(Q, K, V, W_q, W_k, W_v, W_o, n_heads):
    def cut(X, W):
        return np.einsum("...nd,dhc->...hnc", X, W.reshape(len(W), n_heads, -1))

    q, k, v = cut(Q, W_q), cut(K, W_k), cut(V, W_v)
    s = np.einsum("...nc,...mc->...nm", q, k) / q.shape[-1] ** 0.5
    a = np.exp(s - s.max(-1, keepdims=True))
    a /= a.sum(-1, keepdims=True)
    return np.einsum(
        "...hnm,...hmc,hco->...no", a, v, W_o.reshape(n_heads, -1, W_o.shape[-1])
    )


@right("top_k")
def top_k_by_rank(logits, k, temperature):
    rank = logits.argsort(dim=-1, descending=True, stable=True).argsort(dim=-1)
    z = logits.masked_fill(rank >= k, -torch.inf) / temperature
    return torch.exp(z - z.logsumexp(-1, keepdim=True))


@right("log_softmax_vjp")
def log_vjp_by_autograd(scores, g):
    return torch.func.vjp(lambda s: s.log_softmax(-1), scores)[1](g)[0]


@right("score_bound")
def bound_with_einsum(Q, K, scale):
    q, k = (np.sqrt(np.einsum("nd,nd->n", x, x)).max() for x in (Q, K))
    return float(abs(scale) * q * k)


@right("linear_in_chunks")
def chunks_of_one(Q, K, V, size):
    def f(x):
        return F.elu(x) + 1

    S = torch.zeros(K.shape[1], V.shape[1] + 1, dtype=V.dtype)
    rows = []
    for q, k, v in zip(f(Q), f(K), V, strict=True):
        S = S + torch.outer(k, torch.cat([v, v.new_ones(1)]))
        out = q @ S
        rows.append(out[:-1] / out[-1])
    return torch.stack(rows)


@right("received_weight")
def received_by_loop(A):
    n = A.shape[-1]
    out = np.zeros(A.shape[:-1])
    for j in range(n - 1):
        out[..., j] = A[..., j + 1 :, j].mean(-1)
    return out


@right("may_stop")
def stop_by_loop(finished, running, length, max_len):
    return not [1 for s in running if s > finished * max_len]
