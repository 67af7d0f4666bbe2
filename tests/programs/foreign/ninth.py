"""The ninth set, 120 wrong: before it was seen 94 were named (78 %), 12 hinted at, 4 misled, 8 unnamed, 2
accepted, and 6 of 40 right refused."""

import math
from functools import partial, reduce
from itertools import accumulate

import numpy as np
import torch

import attn_tutor.numpy as an
import attn_tutor.torch as at
from foreign import Solutions

NINTH = Solutions()
wrong, right = NINTH.wrong, NINTH.right

# Chapter 1.


@right("gaussian_kernel")
def gaussian_kernel_1(Q, K, bandwidth):
    """cdist by hand with nested loops, math.exp, nested lists."""
    if np.ndim(Q) > 2:
        return np.array(
            [gaussian_kernel_1(q, k, bandwidth) for q, k in zip(Q, K, strict=False)]
        )
    out = []
    for q in Q:
        row = []
        for k in K:
            d2 = sum((a - b) ** 2 for a, b in zip(q, k, strict=False))
            row.append(math.exp(-d2 / bandwidth**2 / 2))
        out.append(row)
    return out


@wrong("gaussian_kernel", "bandwidth not squared")
def gaussian_kernel_2(Q, K, bandwidth):
    """The bandwidth is not squared, the distance is; with u = distance/bandwidth both are."""
    dist2 = ((Q[..., :, None, :] - K[..., None, :, :]) ** 2).sum(-1)
    return np.exp(-dist2 / (2 * bandwidth))


@wrong("gaussian_kernel", "axis 0 in place of axis −1")
def gaussian_kernel_3(Q, K, bandwidth):
    """The sum of the squares is taken over axis 0, which is the batch or the query, not the entries."""
    diff = Q[..., :, None, :] - K[..., None, :, :]
    return np.exp(-0.5 * np.sum(diff**2, axis=0) / bandwidth**2)


@wrong("boxcar_kernel", "the edge left out")
def boxcar_kernel_1(Q, K, bandwidth):
    """A key exactly on the edge of the window is left out, and "at most the bandwidth" lets it in."""
    d = np.linalg.norm(Q[..., :, None, :] - K[..., None, :, :], axis=-1)
    return (d < bandwidth).astype(float)


@right("boxcar_kernel")
def boxcar_kernel_2(Q, K, bandwidth):
    """np.vectorize with a signature, one pair of vectors at a time."""
    near = np.vectorize(
        lambda q, k: float(math.dist(q, k) <= bandwidth), signature="(d),(d)->()"
    )
    return near(Q[..., :, None, :], K[..., None, :, :])


@wrong("triangular_kernel", "negative outside the window")
def triangular_kernel_1(Q, K, bandwidth):
    """Nothing is cut off at 0, so far keys get negative weights."""
    return (
        1
        - np.sqrt(((np.expand_dims(Q, -2) - np.expand_dims(K, -3)) ** 2).sum(-1))
        / bandwidth
    )


@wrong("triangular_kernel", "another number of axes")
def triangular_kernel_2(Q, K, bandwidth):
    """max reads its second argument as the axis instead of comparing with 0; np.maximum was meant."""
    u = np.sqrt(((Q[..., :, None, :] - K[..., None, :, :]) ** 2).sum(-1)) / bandwidth
    return np.max(1 - u, 0)


@wrong("epanechnikov_kernel", "one number everywhere")
def epanechnikov_kernel_1(Q, K, bandwidth):
    """3 // 4 is a whole number, 0, so every weight is 0."""
    delta = Q[..., :, None, :] - K[..., None, :, :]
    u2 = np.einsum("...d,...d->...", delta, delta) / bandwidth**2
    return 3 // 4 * np.clip(1 - u2, 0, None)


@wrong("normalize", "keepdims forgotten")
def normalize_1(weights):
    """keepdims is forgotten, so each column and not each row is divided by a sum."""
    total = weights.sum(-1)
    return weights / np.where(total == 0, 1, total)


@wrong("normalize", "a small number added to the sum")
def normalize_2(weights):
    """Adding a small number to the sum spares the empty rows, but makes the rows with small weights sum to less than
    1."""
    return weights / (weights.sum(axis=-1, keepdims=True) + 1e-12)


@right("normalize")
def normalize_3(weights):
    """In-place division of a copy, with out= and where=."""
    total = np.add.reduce(weights, axis=-1)[..., np.newaxis]
    return np.divide(
        weights, total, out=np.zeros_like(weights, dtype=float), where=total != 0
    )


@wrong("normalize", "changes its input")
def normalize_4(weights):
    """The given array is divided in place, so the caller's weights are changed."""
    total = weights.sum(-1, keepdims=True)
    total[total == 0] = 1
    weights /= total
    return weights


@wrong("nadaraya_watson", "NaN in an empty window")
def nadaraya_watson_1(Q, K, V, kernel, bandwidth):
    """An empty window divides 0 by 0 and gives NaN in place of 0."""
    w = kernel(Q, K, bandwidth)
    return w @ V / w.sum(-1, keepdims=True)


@right("nadaraya_watson")
def nadaraya_watson_2(Q, K, V, kernel, bandwidth):
    """One query after the other, np.average where the window is not empty."""
    if Q.ndim > 2:
        return np.stack(
            [
                nadaraya_watson_2(*x, kernel, bandwidth)
                for x in zip(Q, K, V, strict=False)
            ]
        )

    def for_one(q):
        w = kernel(q[None], K, bandwidth)[0]
        return np.average(V, axis=0, weights=w) if w.any() else np.zeros(V.shape[1])

    return np.array(list(map(for_one, Q)))


@wrong("neighbour_weights", "the farthest keys")
def neighbour_weights_1(q, K, k):
    """argsort of the distances from the largest on: these are the farthest keys."""
    distance = np.linalg.norm(q - K, axis=1)
    far_to_near = np.argsort(distance)[::-1]
    w = np.zeros(len(K))
    w[far_to_near[:k]] = 1 / k
    return w[None]


@wrong("neighbour_weights", "an axis of length 1")
def neighbour_weights_2(q, K, k):
    """The weights have the shape (m,), the exercise asks for (1, m)."""
    d = ((K - q) ** 2).sum(1)
    return np.where(d <= np.sort(d)[k - 1], 1 / k, 0.0)


@wrong("local_line_weights", None)
def local_line_weights_1(q, K, bandwidth):
    """The last row holds the weights of a slope; the line's value at the query is the first coefficient."""
    X = np.hstack([np.ones((len(K), 1)), K - q])
    w = np.exp(-((K - q) ** 2).sum(1) / (2 * bandwidth**2))
    XtW = X.T @ np.diag(w)
    return np.linalg.solve(XtW @ X, XtW)[-1:]


@right("local_line_weights")
def local_line_weights_2(q, K, bandwidth):
    """Least squares with the roots of the weights, through the pseudo-inverse."""
    shifted = K - q
    root = np.exp(-(shifted**2).sum(-1) / (4 * bandwidth**2))
    design = np.column_stack([np.ones(len(K)), shifted])
    return (np.linalg.pinv(root[:, None] * design) * root)[0][None, :]


@wrong("local_line_weights", "read off at the origin")
def local_line_weights_3(q, K, bandwidth):
    """The line is fitted around the origin and not around the query, so its value at the query is not its first
    coefficient."""
    X = np.c_[np.ones(len(K)), K]
    W = np.diag(an.gaussian_kernel(q, K, bandwidth)[0])
    beta = np.linalg.inv(X.T @ W @ X) @ X.T @ W
    return beta[0:1]


# Chapter 2.


@wrong("scaled_dot_score", "d in place of √d")
def scaled_dot_score_1(Q, K):
    """Divided by d and not by the root of d."""
    d = Q.shape[-1]
    return np.einsum("...id,...jd->...ij", Q, K) / d


@wrong("scaled_dot_score", "wrong for a batch")
def scaled_dot_score_2(Q, K):
    """K.T turns round all axes, also the batch; for one text it is right."""
    return Q @ K.T / np.sqrt(K.shape[-1])


@wrong("scaled_dot_score", "wrong dtype")
def scaled_dot_score_3(Q, K):
    """Half precision: float16 keeps three digits and overflows above 65504."""
    q, k = Q.astype(np.float16), K.astype(np.float16)
    return q @ np.swapaxes(k, -1, -2) / np.float16(Q.shape[-1] ** 0.5)


@right("scaled_dot_score")
def scaled_dot_score_4(Q, K):
    """Both sides divided by the fourth root, one multiplication and a sum over the last axis."""
    fourth = Q.shape[-1] ** 0.25
    return ((Q / fourth)[..., :, None, :] * (K / fourth)[..., None, :, :]).sum(-1)


@wrong("bilinear_score", "Mᵀ in place of M")
def bilinear_score_1(Q, K, M):
    """The matrix is transposed by the subscripts ("kq" for M); a shape error unless queries and keys are equally wide,
    a wrong score if they are."""
    return np.einsum("...nq,kq,...mk->...nm", Q, M, K)


@right("bilinear_score")
def bilinear_score_2(Q, K, M):
    """One-line lambda on tensordot."""
    return np.tensordot(Q, M, axes=1) @ np.moveaxis(K, -1, -2)


@wrong("additive_score", "queries and keys do not meet")
def additive_score_1(Q, K, W_q, W_k, w_v):
    """tanh is applied to each projection alone and not to their sum."""
    q = np.tanh(Q @ W_q)[..., :, None, :]
    k = np.tanh(K @ W_k)[..., None, :, :]
    return (q + k) @ w_v


@wrong("additive_score", "transposed")
def additive_score_2(Q, K, W_q, W_k, w_v):
    """The new axes are the wrong way round, so rows are keys and columns are queries."""
    hidden = np.tanh((Q @ W_q)[..., None, :, :] + (K @ W_k)[..., :, None, :])
    return (hidden * w_v).sum(-1)


@wrong("additive_by_query", "wrong in some places")
def additive_by_query_1(Q, K, W_q, W_k, w_v):
    """The inner loop runs over the queries a second time, not over the keys."""
    scores = np.zeros((len(Q), len(K)))
    for i in range(len(Q)):
        for j in range(len(Q)):
            scores[i, j] = w_v @ np.tanh(Q[i] @ W_q + K[j] @ W_k)
    return scores


@wrong("additive_by_query", "too long or too short")
def additive_by_query_2(Q, K, W_q, W_k, w_v):
    """return stands inside the loop, so only the first query is scored."""
    keys = K @ W_k
    rows = []
    for q in Q:
        rows.append(np.tanh(q @ W_q + keys) @ w_v)
        return np.array(rows)


class _OneQuery:
    def __call__(self, q, keys, w):
        return np.tanh(np.add(q, keys)).dot(w)


@right("additive_by_query")
def additive_by_query_3(Q, K, W_q, W_k, w_v):
    """A class with __call__, an iterator over queries and functools.partial."""
    score = partial(_OneQuery(), keys=K.dot(W_k), w=w_v)
    return np.vstack([score(q) for q in Q.dot(W_q)])


@wrong("gaussian_score", "minus `Q`")
def gaussian_score_1(Q, K, bandwidth):
    """The two squared norms and the product are added; the product has to be taken away twice."""
    q2 = (Q**2).sum(-1, keepdims=True)
    k2 = (K**2).sum(-1)[..., None, :]
    return -(q2 + k2 + 2 * Q @ np.swapaxes(K, -1, -2)) / (2 * bandwidth**2)


@wrong("find_temperature", "nearly right")
def find_temperature_1(scores, entropy):
    """A list of T tried one after the other; the nearest of the list is not the T that is asked for."""
    best, gap = None, 1e9
    for T in np.linspace(0.1, 10, 100):
        z = scores / T
        p = np.exp(z - z.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        h = -(p * np.log(p + 1e-12)).sum(1).mean()
        if abs(h - entropy) < gap:
            best, gap = T, abs(h - entropy)
    return best


@wrong("find_temperature", "scores not used")
def find_temperature_2(scores, entropy):
    """The halving goes the wrong way: where the entropy is too small the temperature must rise, and here it falls."""
    lo, hi = 1e-3, 1e6
    for _ in range(100):
        T = (lo * hi) ** 0.5
        A = an.softmax(scores / T)
        H = -(A * np.log(np.maximum(A, 1e-300))).sum(-1).mean()
        if entropy > H:
            hi = T
        else:
            lo = T
    return T


@right("find_temperature")
def find_temperature_3(scores, entropy, low=-9.21, high=16.12, depth=80):
    """Recursion in place of a loop, an interval in log T."""
    middle = (low + high) / 2
    if depth == 0:
        return math.exp(middle)
    z = scores * math.exp(-middle)
    z = z - z.max(axis=1, keepdims=True)
    log_p = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
    h = -np.mean(np.sum(np.exp(log_p) * log_p, axis=1))
    if h < entropy:
        return find_temperature_3(scores, entropy, middle, high, depth - 1)
    return find_temperature_3(scores, entropy, low, middle, depth - 1)


@wrong("widen", "without the ½")
def widen_1(Q, K, bandwidth):
    """The half is missing in the squared norms, while the product has its factor 1."""
    Q = Q / bandwidth
    K = K / bandwidth
    ones_q, ones_k = np.ones((len(Q), 1)), np.ones((len(K), 1))
    Q2 = np.hstack([Q, -(Q**2).sum(1)[:, None], ones_q])
    K2 = np.hstack([K, ones_k, -(K**2).sum(1)[:, None]])
    return Q2, K2


@wrong("with_products", "squares alone")
def with_products_1(K):
    """Only the squares of the entries, the mixed products k_a k_b with a < b are missing."""
    return torch.cat([K, K**2], dim=-1)


# Chapter 3.


@wrong("log_softmax", "the logarithm of the weights")
def log_softmax_1(scores):
    """The logarithm is taken of a softmax that has underflowed, which gives -inf."""
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return np.log(e / e.sum(-1, keepdims=True))


@wrong("log_softmax", "a constant for each row")
def log_softmax_2(scores):
    """The maximum is subtracted for the sum but not from the scores, so each row is off by its maximum."""
    top = scores.max(axis=-1, keepdims=True)
    return scores - np.log(np.exp(scores - top).sum(axis=-1, keepdims=True))


@right("log_softmax")
def log_softmax_3(scores):
    """np.logaddexp folded along the row."""
    return scores - np.logaddexp.reduce(scores, axis=-1, keepdims=True)


@wrong("softmax", "normalised over the whole array")
def softmax_1(x):
    """Softmax over the whole array: all entries together sum to 1, not each row."""
    e = np.exp(x - x.max())
    return e / e.sum()


@wrong("softmax", "the maximum of the whole array")
def softmax_2(x):
    """The maximum is taken over the whole array, so a row far below it underflows to 0/0."""
    e = np.exp(x - np.max(x))
    return e / np.sum(e, axis=-1, keepdims=True)


@wrong("softmax", "no maximum subtracted")
def softmax_3(x):
    """No maximum is subtracted, so the exponential of a large score overflows."""
    return np.exp(x) / np.exp(x).sum(-1)[..., None]


@right("softmax")
def softmax_4(x):
    """1 over the sum of exponentials of differences, one for each pair."""
    gaps = x[..., None, :] - x[..., :, None]
    with np.errstate(over="ignore"):
        return 1 / np.exp(gaps).sum(axis=-1)


@wrong("softmax", "keepdims forgotten")
def softmax_5(x):
    """keepdims is forgotten twice: for a square array the columns are shifted and divided, for any other it is an
    error."""
    e = np.exp(x - x.max(-1))
    return e / e.sum(-1)


@wrong("masked_softmax", "inverted mask")
def masked_softmax_1(scores, mask):
    """The mask is inverted: True means allowed, and the allowed keys are hidden."""
    scores, mask = torch.as_tensor(scores), torch.as_tensor(mask)
    w = scores.masked_fill(mask, -torch.inf).softmax(-1)
    return torch.nan_to_num(w)


@wrong("masked_softmax", "returns None")
def masked_softmax_2(scores, mask):
    """Nothing is returned: the last line is an expression, the return is forgotten."""
    scores, mask = torch.as_tensor(scores), torch.as_tensor(mask)
    weights = torch.where(mask, scores, -torch.inf).softmax(-1)
    torch.where(mask, weights, 0)


@wrong("masked_softmax", "equal weights in an empty row")
def masked_softmax_3(scores, mask):
    """-1e9 in place of minus infinity: a row that may see nothing gets equal weights, not 0."""
    s = np.where(mask, scores, -1e9)
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


@right("masked_softmax")
def masked_softmax_4(scores, mask):
    """Torch in its own steps: filled, shifted by the row's largest, and an empty row divided by 1."""
    scores, mask = torch.as_tensor(scores), torch.as_tensor(mask)
    hidden = scores.masked_fill(~mask, -torch.inf)
    top = hidden.detach().amax(dim=-1, keepdim=True).nan_to_num(neginf=0.0)
    e = torch.exp(hidden - top)
    total = torch.einsum("...m->...", e).unsqueeze(-1)
    return e / torch.where(total == 0, torch.ones_like(total), total)


@wrong("softmax_vjp", "one sum for all rows")
def softmax_vjp_1(p, g):
    """The sum of p * g runs over the whole array (no axis), not over each row."""
    return p * (g - (p * g).sum())


@right("softmax_vjp")
def softmax_vjp_2(p, g):
    """The mean gradient of each row as a batched product of a row and a column."""
    mean = (p[:, None, :] @ g[:, :, None])[:, 0]
    return np.multiply(p, np.subtract(g, mean))


@wrong("softmax_plus_one", "the 1 not shifted")
def softmax_plus_one_1(scores):
    """The 1 in the denominator is added after the maximum is subtracted; it should become exp(-max)."""
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / (1 + e.sum(-1, keepdims=True))


@wrong("causal_mask", "aligned upper left")
def causal_mask_1(n, m):
    """Aligned upper left: with fewer queries than keys the last query does not see every key."""
    return np.arange(m)[None, :] <= np.arange(n)[:, None]


@wrong("padding_mask", "returns None")
def padding_mask_1(valid_lens, m):
    """The mask is printed and not returned."""
    mask = np.arange(m)[None, None, :] < np.asarray(valid_lens)[:, None, None]
    print(mask)


@wrong("padding_mask", "no axis for the queries")
def padding_mask_2(valid_lens, m):
    """The middle axis is missing: (b, m) instead of (b, 1, m)."""
    return np.array([[j < L for j in range(m)] for L in valid_lens])


@right("left_padding_mask")
def left_padding_mask_1(lengths, m):
    """Nested list comprehensions, then np.array with the middle axis written as a one-entry list."""
    return np.array(
        [[[m - j <= int(L) for j in range(m)]] for L in lengths], dtype=bool
    )


@wrong("left_padding_mask", "a length of 0")
def left_padding_mask_2(lengths, m):
    """A slice from -length: for length 0 it is the whole row and not nothing."""
    mask = np.zeros((len(lengths), 1, m), dtype=bool)
    for b, length in enumerate(lengths):
        mask[b, :, -length:] = True
    return mask


@wrong("window_mask", r"`width` \+ 1")
def window_mask_1(n, width):
    """One token too many: the window is width + 1 tokens wide."""
    i, j = np.indices((n, n))
    return (j <= i) & (i - j <= width)


# Chapter 4.


@right("successor")
def successor_1(a, n):
    """The three matrices filled entry by entry."""
    rows = a + n + 1
    W_q, W_k, W_v = np.zeros((rows, n)), np.zeros((rows, n)), np.zeros((rows, a))
    for place in range(n):
        W_q[a + place, place] = 20.0 * n
        W_k[a + place, place] = 1.0
    for letter in range(a):
        W_v[letter, (letter + 1) % a] = 1.0
    return W_q, W_k, W_v


@wrong("successor", "nothing after the last letter")
def successor_2(a, n):
    """np.eye(a, k=1) drops the last letter in place of going round to the first."""
    I = np.eye(a + n + 1)
    T, P = I[:, :a], I[:, a:-1]
    return 50 * P, P, T @ np.eye(a, k=1)


@wrong("first_token", "too soft")
def first_token_1(a, n):
    """Without the factor the scores are too small for a sharp softmax: the first token gets more weight than the
    others, but far from all."""
    W_q = np.zeros((a + n + 1, 1))
    W_q[-1] = 1
    W_k = np.zeros((a + n + 1, 1))
    W_k[a] = 1
    W_v = np.eye(a + n + 1, a)
    return W_q, W_k, W_v


@right("first_token")
def first_token_2(a, n):
    """Negative scores: the later the place, the lower."""
    q = np.zeros((a + n + 1, 1))
    q[-1, 0] = -40.0
    k = np.concatenate([np.zeros(a), np.arange(n), [0]])[:, None]
    return q, k, np.vstack([np.identity(a), np.zeros((n + 1, a))])


@wrong("letter_shares", "only itself")
def letter_shares_1(a, n):
    """Letters match with letters, so a token averages over its own letter only and always writes a 1."""
    T = np.eye(a + n + 1)[:, :a]
    return 50 * T, T, T


@wrong("previous_token", "queries and keys swapped")
def previous_token_1(a, n):
    """np.eye(n, k=1) is the shift the other way: each token asks for the one after it."""
    I = np.eye(a + n + 1)
    letters, places = I[:, :a], I[:, a : a + n]
    return 50 * places @ np.eye(n, k=1), places, letters


@wrong("reverse", None)
def reverse_1(a, n):
    """The order of the returned matrices is W_q, W_k, W_v; here W_v comes first."""
    I = np.eye(a + n + 1)
    T, P = I[:, :a], I[:, a:-1]
    return T, 50 * P[:, ::-1], P


@wrong("same_letter", "the wrong part written")
def same_letter_1(a, n):
    """Letters are written, and the exercise asks for places."""
    T = np.vstack([np.eye(a), np.zeros((n + 1, a))])
    return 50 * T, T, T


@wrong("largest_so_far", "the smallest")
def largest_so_far_1(a, n):
    """The key numbers the letters backwards, so it is the smallest letter that wins."""
    one = np.zeros((a + n + 1, 1))
    one[-1] = 50
    size = np.zeros((a + n + 1, 1))
    size[:a, 0] = np.arange(a)[::-1]
    return one, size, np.eye(a + n + 1)[:, :a]


@wrong("latest_a", "the place outbids the letter")
def latest_a_1(a, n):
    """The bonus for the letter is 1, no larger than the slope, so a later place outbids it."""
    I = np.eye(a + n + 1)
    key = I[:, :1] + I[:, a:-1] @ np.arange(n)[:, None]
    return 50 * I[:, -1:], key, I[:, a:-1]


@wrong("argsort", "queries and keys swapped")
def argsort_1(n):
    """Query and key are swapped: letters ask and places answer, which gives the ranks and not the order."""
    I = np.eye(2 * n + 1)
    letter, place = I[:, :n], I[:, n : 2 * n]
    return 50 * letter, place, place


@wrong("after_a", None)
def after_a_1(a, n):
    """The first W_v leaves the letter in its own place, so nothing comes into the zeros and no key answers to an a."""
    I = np.eye(2 * a + n + 1)
    letter, free, place, one = np.split(I, np.cumsum([a, a, n]), axis=1)
    first = (50 * n**0.5 * place @ np.eye(n, k=-1), place, letter @ letter.T)
    second = (50 * one, n * free[:, :1] + place @ np.arange(n)[:, None], letter)
    return *first, *second


@wrong("induction", "the first token says that it follows itself")
def induction_1(a, n):
    """The first token reads itself in the first layer and counts as its own successor; it must be left out of the
    keys."""
    I = np.eye(2 * a + n + 1)
    T, F, P = I[:, :a], I[:, a : 2 * a], I[:, 2 * a : -1]
    W_q1 = 60 * np.sqrt(n) * P @ np.eye(n, k=-1)
    return W_q1, P, T @ F.T, 50 * a * T, F, T


d = 16


@wrong("attention", "weights: too sharp or too flat")
def attention_1(Q, K, V, mask):
    """D is the width of the notebook's last example and not that of Q."""
    return an.masked_softmax(Q @ K.swapaxes(-1, -2) / np.sqrt(d), mask) @ V


@wrong("self_attention", "no √d")
def self_attention_1(X, W_q, W_k, W_v):
    """The division by the root of the width is missing."""
    Q = np.einsum("...nd,dk->...nk", X, W_q)
    K = np.einsum("...nd,dk->...nk", X, W_k)
    V = np.einsum("...nd,dk->...nk", X, W_v)
    S = np.einsum("...ik,...jk->...ij", Q, K)
    S = S - S.max(axis=-1, keepdims=True)
    return np.einsum(
        "...ij,...jv->...iv", np.exp(S) / np.exp(S).sum(-1, keepdims=True), V
    )


@wrong("self_attention", "softmax over queries")
def self_attention_2(X, W_q, W_k, W_v):
    """The softmax runs over the queries (dim=-2), so the columns of the weights sum to 1 and not the rows."""
    X, W_q, W_k, W_v = (torch.as_tensor(x) for x in (X, W_q, W_k, W_v))
    scores = (X @ W_q) @ (X @ W_k).mT / W_q.shape[1] ** 0.5
    return (torch.softmax(scores, dim=-2) @ (X @ W_v)).numpy()


@right("self_attention")
def self_attention_3(X, W_q, W_k, W_v):
    """All in one line with M = W_q W_kᵀ, divided by the root, weights as quotients."""
    M = W_q @ W_k.T / math.sqrt(W_k.shape[-1])
    S = (X @ M) @ X.swapaxes(-1, -2)
    E = np.exp(S - np.amax(S, axis=-1)[..., None])
    return (E @ (X @ W_v)) / E.sum(axis=-1)[..., None]


@wrong("step", "the new token does not see itself")
def step_1(x, K, V, W_q, W_k, W_v):
    """The new key and value are appended after the attention, so the new token does not see itself."""
    q = x @ W_q
    s = K @ q / np.sqrt(len(q))
    e = np.exp(s - s.max())
    o = (e / e.sum()) @ V
    return o, np.vstack([K, x @ W_k]), np.vstack([V, x @ W_v])


@wrong("sees_future", "a shift that a layer norm undoes")
def sees_future_1(layer, X):
    """A later token is only shifted by 1 in all entries, and a layer that first takes away each token's mean does not
    notice that."""
    before = layer(X)
    for t in range(1, len(X)):
        changed = X.copy()
        changed[t] += 1.0
        if not np.allclose(layer(changed)[:t], before[:t]):
            return True
    return False


@wrong("sees_future", "changes its input")
def sees_future_2(layer, X):
    """Without a copy the tokens of the caller are changed, and all changes pile up."""
    old = layer(X)
    rng = np.random.default_rng(1)
    for t in range(len(X) - 1, 0, -1):
        X[t] = rng.normal(size=X.shape[1]) * 10
        if np.abs(layer(X)[:t] - old[:t]).max() > 1e-9:
            return True
    return False


@wrong("permutation_gap", "the mean in place of the largest")
def permutation_gap_1(layer, X, order):
    """The mean difference and not the largest."""
    return np.mean(np.abs(layer(X[order]) - layer(X)[order]))


@wrong("permutation_gap", "the sign kept")
def permutation_gap_2(layer, X, order):
    """No absolute value: a negative difference never counts."""
    return np.max(layer(X[order]) - layer(X)[order])


@right("permutation_gap")
def permutation_gap_3(layer, X, order):
    """A permutation matrix in place of an index."""
    P = np.eye(len(X))[list(order)]
    return float(np.linalg.norm((layer(P @ X) - P @ layer(X)).ravel(), ord=np.inf))


@right("step")
def step_2(x, K, V, W_q, W_k, W_v):
    """Plain lists and math.exp, one key at a time."""
    keys, values = list(K), list(V)
    keys.append(x @ W_k)
    values.append(x @ W_v)
    q = x @ W_q
    scores = [float(q @ k) / len(q) ** 0.5 for k in keys]
    top = max(scores)
    parts = [math.exp(s - top) for s in scores]
    out = sum(p * v for p, v in zip(parts, values, strict=False)) / sum(parts)
    return out, np.array(keys), np.array(values)


# Chapter 5.


@wrong("split_heads", "reshaped in place of transposed")
def split_heads_1(X, n_heads):
    """A plain reshape to (h, n, d_h) cuts the tokens and not the columns; the axes must be exchanged after it."""
    *batch, n, d = X.shape
    return X.reshape(*batch, n_heads, n, d // n_heads)


@right("split_heads")
def split_heads_2(X, n_heads):
    """Einops in the head, one einsum without a sum."""
    cut = X.reshape(X.shape[:-1] + (n_heads, X.shape[-1] // n_heads))
    return np.einsum("...nhc->...hnc", cut)


@wrong("split", "heads after tokens")
def split_1(X, n_heads):
    """The list comprehension is nested the wrong way, tokens outside and heads inside: (n, h, d_h)."""
    w = X.shape[1] // n_heads
    return np.array([[row[h * w : (h + 1) * w] for h in range(n_heads)] for row in X])


@right("split")
def split_2(X, n_heads):
    """A nested list of lists, read column by column."""
    width = X.shape[1] // n_heads
    return [
        [[X[i, h * width + c] for c in range(width)] for i in range(len(X))]
        for h in range(n_heads)
    ]


@wrong("merge_heads", None)
def merge_heads_1(X):
    """The shapes are written for three heads of width 2."""
    X = X.swapaxes(-3, -2)
    return X.reshape(*X.shape[:-2], 3 * 2)


@right("merge_heads")
def merge_heads_2(X):
    """The heads one after the other, concatenated along the columns."""
    heads = np.moveaxis(X, -3, 0)
    return np.concatenate([*heads], axis=-1)


@wrong("merge_heads", "reshaped without moving the heads back")
def merge_heads_3(X):
    """The heads are not moved behind the tokens before the reshape, so tokens are mixed."""
    *batch, h, n, w = X.shape
    return X.reshape(*batch, n, h * w)


@wrong("multi_head_attention", "√ of the model's width")
def multi_head_attention_1(Q, K, V, W_q, W_k, W_v, W_o, n_heads):
    """Divided by the root of the whole width and not of the width of a head."""

    def cut(X):
        return np.swapaxes(X.reshape(*X.shape[:-1], n_heads, -1), -3, -2)

    q, k, v = Q @ W_q, K @ W_k, V @ W_v
    scores = cut(q) @ np.swapaxes(cut(k), -1, -2) / np.sqrt(q.shape[-1])
    out = np.swapaxes(an.softmax(scores) @ cut(v), -3, -2)
    return out.reshape(*out.shape[:-2], -1) @ W_o


@wrong("multi_head", "W_q not used")
def multi_head_1(X, W_q, W_k, W_v, W_o, n_heads):
    """In the second einsum the values carry the query's letter i in place of j, so each token takes its own value and
    the weights only sum to 1."""
    n = len(X)
    q, k, v = [(X @ W).reshape(n, n_heads, -1) for W in (W_q, W_k, W_v)]
    s = np.einsum("nhc,mhc->hnm", q, k) / q.shape[-1] ** 0.5
    a = np.exp(s - s.max(-1, keepdims=True))
    a /= a.sum(-1, keepdims=True)
    return np.einsum("hij,ihc->ihc", a, v).reshape(n, -1) @ W_o


@wrong("contributions", "another number of axes")
def contributions_1(Q, K, V, W_q, W_k, W_v, W_o, n_heads):
    """The heads are averaged before the projection; what each head adds by itself is asked for, with its own rows of
    W_o."""
    heads = at.attention(
        *(at.split_heads(x @ w, n_heads) for x, w in ((Q, W_q), (K, W_k), (V, W_v)))
    )
    return heads.mean(-3) @ W_o[: heads.shape[-1]]


# Chapter 6.


@wrong("sinusoidal_encoding", "exponent i in place of 2i")
def sinusoidal_encoding_1(n, d):
    """The exponent counts i and not 2i."""
    P = np.zeros((n, d))
    for p in range(n):
        for c in range(d):
            rate = 1 / 10000 ** ((c // 2) / d)
            P[p, c] = np.sin(p * rate) if c % 2 == 0 else np.cos(p * rate)
    return P


@right("sinusoidal_encoding")
def sinusoidal_encoding_2(n, d):
    """One sine for all columns, shifted by a quarter turn."""
    c = np.arange(d)
    angle = np.outer(np.arange(n), 10000.0 ** (-(c - c % 2) / d))
    return np.sin(angle + (c % 2) * np.pi / 2)


@wrong("encode", "sines and cosines in halves")
def encode_1(positions, d, base=10000.0):
    """Sines first and then cosines, in halves; the exercise has them column by column in turn."""
    p = np.asarray(positions, dtype=float)[:, None]
    half = (d + 1) // 2
    angle = p / base ** (2 * np.arange(half) / d)
    return np.concatenate([np.sin(angle), np.cos(angle)[:, : d // 2]], axis=1)


@wrong("encode", "positions cut to whole numbers")
def encode_2(positions, d, base=10000.0):
    """Positions become whole numbers, so 2.5 is read as 2."""
    positions = np.array(positions, dtype=int)
    angle = positions[:, None] / base ** (np.arange(0, d, 2) / d)
    P = np.empty((len(positions), d))
    P[:, ::2] = np.sin(angle)
    P[:, 1::2] = np.cos(angle)[:, : d // 2]
    return P


@wrong("rotary", "turned the wrong way")
def rotary_1(X):
    """The sign of one sine is turned round, so the pair is turned backwards."""
    n, d = X.shape[-2:]
    a = np.arange(n)[:, None] / 10000 ** (np.arange(0, d, 2) / d)
    x, y = X[..., ::2], X[..., 1::2]
    out = np.empty_like(X)
    out[..., ::2] = x * np.cos(a) + y * np.sin(a)
    out[..., 1::2] = y * np.cos(a) - x * np.sin(a)
    return out


@wrong("rotary", "lengths not kept")
def rotary_2(X):
    """The second line already uses the entry that the first one has overwritten (and X is changed in place)."""
    n, d = X.shape[-2:]
    theta = np.arange(n)[:, None] * 10000.0 ** (-np.arange(0, d, 2) / d)
    X[..., 0::2] = X[..., 0::2] * np.cos(theta) - X[..., 1::2] * np.sin(theta)
    X[..., 1::2] = X[..., 0::2] * np.sin(theta) + X[..., 1::2] * np.cos(theta)
    return X


@right("rotary")
def rotary_3(X):
    """The neighbours swapped by a reversed view, the sign in the sines."""
    n, d = X.shape[-2:]
    angle = np.outer(np.arange(n), 10000.0 ** -(np.arange(d) // 2 * 2 / d))
    partner = X.reshape(*X.shape[:-1], d // 2, 2)[..., ::-1].reshape(X.shape)
    sign = np.where(np.arange(d) % 2, 1, -1)
    return X * np.cos(angle) + partner * (sign * np.sin(angle))


@wrong("alibi_bias", "aligned upper left")
def alibi_bias_1(n_heads, n, m):
    """The distance is counted from the upper left: with fewer queries than keys the last query does not stand at the
    last key."""
    slopes = 2.0 ** (-8 * np.arange(1, n_heads + 1) / n_heads)
    distance = np.abs(np.arange(n)[:, None] - np.arange(m)[None])
    return -slopes[:, None, None] * distance


@right("previous_weights")
def previous_weights_1(n, d, scale):
    """Angles to the previous place: the queries are the encoding of one place less."""
    omega = 10000.0 ** (-np.arange(0, d, 2) / d)
    place = np.arange(n)
    gap = place[:, None] - 1 - place[None, :]
    S = scale * np.cos(gap[..., None] * omega).sum(-1)
    E = np.exp(S - S.max(1, keepdims=True))
    return E / E.sum(1, keepdims=True)


@wrong("previous_weights", "one step ahead")
def previous_weights_2(n, d, scale):
    """Turned the wrong way: the queries ask for the next place, so most of the weight is on the token after."""
    place = np.arange(n)
    rate = 10000.0 ** (-np.arange(0, d, 2) / d)
    lag = place[None, :] - place[:, None] - 1
    S = scale * np.cos(lag[..., None] * rate).sum(-1)
    return an.softmax(S)


@wrong("to_halves", "heads forgotten")
def to_halves_1(W, n_heads):
    """Even and odd columns are gathered over the whole width, not in each head."""
    return np.concatenate([W[:, ::2], W[:, 1::2]], axis=1)


@wrong("squeezed", "short texts stretched")
def squeezed_1(w, ids, longest):
    """Positions are also stretched in short texts: min(1, ...) is missing."""
    X = w["words"][ids]
    n = ids.shape[1]
    pos = torch.arange(n, dtype=X.dtype) * longest / n
    Q, K, V = [at.split_heads(X @ w[name], 4) for name in ("W_q", "W_k", "W_v")]
    O = at.attention(at.rotary(Q, pos), at.rotary(K, pos), V)
    return at.merge_heads(O)[:, -1] @ w["W_o"]


# Chapter 7.


@wrong("numerical_gradient", "a constant factor")
def numerical_gradient_1(f, x):
    """One step on one side only, but divided by two steps: half the gradient."""
    h = 1e-6
    g = np.zeros_like(x, dtype=float)
    f0 = f(x)
    for i in np.ndindex(*x.shape):
        shifted = x.astype(float)
        shifted[i] += h
        g[i] = (f(shifted) - f0) / (2 * h)
    return g


@wrong("numerical_gradient", None)
def numerical_gradient_2(f, x):
    """Float32 for the shifted array: the step of 1e-6 is lost in the rounding."""
    h = 1e-6
    grad = np.zeros(x.shape)
    for idx in np.ndindex(x.shape):
        up = x.astype(np.float32).copy()
        down = x.astype(np.float32).copy()
        up[idx] += h
        down[idx] -= h
        grad[idx] = (f(up) - f(down)) / (2 * h)
    return grad


@right("numerical_gradient")
def numerical_gradient_3(f, x, h=1e-5):
    """The moves are the rows of an identity, a list comprehension and a reshape."""
    moves = h * np.identity(x.size)
    slopes = [
        (f(x + e.reshape(x.shape)) - f(x - e.reshape(x.shape))) / (h + h) for e in moves
    ]
    return np.reshape(slopes, x.shape)


@wrong("log_softmax_vjp", "g not summed")
def log_softmax_vjp_1(scores, g):
    """The softmax is multiplied with g, and not with the sum of g over the row: this is the vjp of another function."""
    return g - an.softmax(scores) * g


@right("log_softmax_vjp")
def log_softmax_vjp_2(scores, g):
    """np.apply_along_axis on a row of scores and its gradient laid end to end."""
    m = scores.shape[-1]

    def row(both):
        s, dy = both[:m], both[m:]
        p = np.exp(s - s.max())
        return dy - p / p.sum() * dy.sum()

    return np.apply_along_axis(row, -1, np.concatenate([scores, g], axis=-1))


@wrong("log_softmax_vjp", "keepdims forgotten")
def log_softmax_vjp_3(scores, g):
    """The sum of g loses its axis (no keepdims), so row i is multiplied with the sums of all rows, one for each
    column."""
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p = p / p.sum(-1, keepdims=True)
    return g - p * g.sum(-1)


@wrong("bilinear_score_vjp", "values in the order 1, 3, 2")
def bilinear_score_vjp_1(Q, K, M, g):
    """The gradients come in the order dQ, dM, dK: the exercise wants dQ, dK, dM."""
    dQ = g @ (K @ M.T)
    dM = np.einsum("iq,ij,jk->qk", Q, g, K)
    dK = (Q @ M).T @ g
    return dQ, dM, dK.T


@wrong("self_attention_vjp", "the queries' path alone")
def self_attention_vjp_1(X, W_q, W_k, W_v, g):
    """X is used three times, and here only its use in the queries is counted for dX."""
    Q, K, V = X @ W_q, X @ W_k, X @ W_v
    s = 1 / np.sqrt(Q.shape[1])
    A = an.softmax(s * Q @ K.T)
    dA = g @ V.T
    dS = A * (dA - np.sum(dA * A, axis=1, keepdims=True))
    dQ, dK, dV = s * dS @ K, s * dS.T @ Q, A.T @ g
    return dQ @ W_q.T, X.T @ dQ, X.T @ dK, X.T @ dV


@right("self_attention_vjp")
def self_attention_vjp_2(X, W_q, W_k, W_v, g):
    """Einsum for every product, letters for every axis."""
    E = np.einsum
    Q, K, V = E("nd,dk->nk", X, W_q), E("nd,dk->nk", X, W_k), E("nd,dv->nv", X, W_v)
    root = Q.shape[1] ** 0.5
    S = E("ik,jk->ij", Q, K) / root
    A = np.exp(S - S.max(1)[:, None])
    A = A / A.sum(1)[:, None]
    dA = E("iv,jv->ij", g, V)
    dS = (E("ij,ij->ij", A, dA) - A * E("ij,ij->i", A, dA)[:, None]) / root
    dQ, dK, dV = E("ij,jk->ik", dS, K), E("ij,ik->jk", dS, Q), E("ij,iv->jv", A, g)
    dX = E("nk,dk->nd", dQ, W_q) + E("nk,dk->nd", dK, W_k) + E("nv,dv->nd", dV, W_v)
    return (dX, *(E("nd,nk->dk", X, x) for x in (dQ, dK, dV)))


@wrong("grouped_attention_vjp", "the mean of the group")
def grouped_attention_vjp_1(Q, K, V, g):
    """The gradients of the heads that share a key are averaged and not added."""
    size = Q.shape[0] // K.shape[0]
    dQ, dK, dV = an.attention_vjp(
        Q, np.repeat(K, size, axis=0), np.repeat(V, size, axis=0), g
    )

    def mean(x):
        return x.reshape(-1, size, *x.shape[1:]).mean(1)

    return dQ, mean(dK), mean(dV)


@wrong("masked_attention_vjp", "NaN not cleared")
def masked_attention_vjp_1(Q, K, V, mask, g):
    """Hidden scores are set to a large negative number and nothing is cleared: where a pad holds NaN, NaN times 0
    spoils all gradients."""
    s = Q.shape[-1] ** -0.5
    S = np.where(mask, s * Q @ K.T, -1e30)
    A = np.exp(S - S.max(-1, keepdims=True)) * mask
    A = A / np.maximum(A.sum(-1, keepdims=True), 1e-30)
    dA = g @ V.T
    dS = A * (dA - (A * dA).sum(-1, keepdims=True))
    return s * dS @ K, s * dS.T @ Q, A.T @ g


# Chapter 8.


@wrong("greedy", r"`max_len` \+ 1")
def greedy_1(step, end, max_len):
    """The tokens are added after the loop has looked at max_len, so one token too many is written."""
    tokens, total = [], 0.0
    while True:
        log_p = step(np.array(tokens, dtype=int))
        y = int(np.argmax(log_p))
        tokens.append(y)
        total += log_p[y]
        if y == end or len(tokens) > max_len:
            return np.array(tokens), total


@right("greedy")
def greedy_2(step, end, max_len, so_far=(), score=0.0):
    """Recursion, one token a call."""
    if len(so_far) == max_len or end in so_far:
        return np.array(so_far, dtype=int), score
    log_p = step(np.array(so_far, dtype=int))
    best = max(range(len(log_p)), key=log_p.__getitem__)
    return greedy_2(step, end, max_len, (*so_far, best), score + float(log_p[best]))


@wrong("greedy", "another answer each time")
def greedy_3(step, end, max_len, tokens=[]):  # noqa: B006 — the mistake
    """The list is a mutable default, so a second call begins with the tokens of the first."""
    score = 0.0
    while len(tokens) < max_len and end not in tokens:
        log_p = step(np.array(tokens, dtype=int))
        tokens.append(int(log_p.argmax()))
        score += log_p.max()
    return np.array(tokens, dtype=int), score


@wrong("beam", None)
def beam_1(step, end, max_len, k):
    """Sentences that have ended leave the beam, so an unfinished, worse one takes their place."""
    beams = [([], 0.0)]
    for _ in range(max_len):
        cand = []
        for toks, s in beams:
            lp = step(np.array(toks, dtype=int))
            cand += [(toks + [y], s + lp[y]) for y in range(len(lp))]
        cand.sort(key=lambda c: c[1], reverse=True)
        beams = []
        for c in cand[:k]:
            if c[0][-1] != end:
                beams.append(c)
        if not beams:
            return np.array(cand[0][0]), cand[0][1]
    best = max(beams, key=lambda c: c[1])
    return np.array(best[0]), best[1]


@wrong("previous_symbols", "rolled")
def previous_symbols_1(target, end):
    """roll moves the last symbol of each sentence to the front, in place of the end."""
    return np.roll(target, 1, axis=1)


@right("previous_symbols")
def previous_symbols_2(target, end):
    """np.pad and a cut."""
    return np.pad(target, ((0, 0), (1, 0)), constant_values=end)[:, :-1]


@wrong("exact_match", "share of the symbols")
def exact_match_1(found, target, end):
    """zip stops at the shorter row, so a sentence that goes on in the other counts as right."""
    good = 0
    for f, t in zip(found, target, strict=False):
        good += 1
        for x, y in zip(f, t, strict=False):
            if x != y:
                good -= 1
                break
            if x == end:
                break
    return good / len(found)


@wrong("nucleus", "the token that reaches the share left out")
def nucleus_1(p, share):
    """Tokens are kept while the sum is at most share, so the one that crosses it is lost."""
    order = np.argsort(p)[::-1]
    keep = order[np.cumsum(p[order]) <= share]
    q = np.zeros_like(p)
    q[keep] = p[keep]
    return q / q.sum()


@right("nucleus")
def nucleus_2(p, share):
    """A heap and a generator."""
    import heapq

    heap = [(-x, i) for i, x in enumerate(p)]
    heapq.heapify(heap)
    kept, so_far = {}, 0.0
    while heap and so_far < share:
        x, i = heapq.heappop(heap)
        kept[i] = -x
        so_far += -x
    return np.array([kept.get(i, 0.0) for i in range(len(p))]) / so_far


@wrong("may_stop", "divided by the length so far")
def may_stop_1(finished, running, length, max_len):
    """The sum is divided by the length so far and not by the longest possible; what follows may all be certain, log-
    probability 0."""
    return bool(max(running / length) <= finished)


@wrong("path_lengths", "returns None")
def path_lengths_1(m, backwards):
    """Both branches are printed and nothing is returned, and the step into the decoder is missing."""
    for j in range(m):
        print(j + j if backwards else m - 1, end=" ")


# Chapter 9.


@wrong("layer_norm", "1e-5 outside the root")
def layer_norm_1(X, gain, shift):
    """eps is added outside the root."""
    mean = X.mean(axis=-1, keepdims=True)
    var = X.var(axis=-1, keepdims=True)
    return (X - mean) / (np.sqrt(var) + 1e-5) * gain + shift


@wrong("layer_norm", "n − 1 in the variance")
def layer_norm_2(X, gain, shift):
    """ddof=1 divides the squares by d - 1 and not by d."""
    mu = X.mean(-1)[..., None]
    sd = np.sqrt(X.var(-1, ddof=1)[..., None] + 1e-5)
    return gain * (X - mu) / sd + shift


@wrong("layer_norm", "rounding")
def layer_norm_3(X, gain, shift):
    """Float32: torch's own, cast to float32 and back."""
    x, g, s = (torch.tensor(a, dtype=torch.float32) for a in (X, gain, shift))
    return torch.layer_norm(x, x.shape[-1:], g, s, 1e-5).double().numpy()


@wrong("windows", "targets are the inputs")
def windows_1(ids, starts, n):
    """The targets are the inputs themselves, not the tokens that follow them."""
    x = np.array([ids[s : s + n] for s in starts])
    y = np.array([ids[s : s + n] for s in starts])
    return x, y


@right("windows")
def windows_2(ids, starts, n):
    """A sliding view on the text."""
    view = np.lib.stride_tricks.sliding_window_view(ids, n + 1)[starts]
    return view[..., :n], view[..., 1:]


@wrong("next_token_loss", "a constant factor")
def next_token_loss_1(logits, targets):
    """The mean is taken over the whole table, all words, and not only over the target of each token."""
    top = logits.max(axis=-1, keepdims=True)
    lp = logits - top - np.log(np.exp(logits - top).sum(-1, keepdims=True))
    one_hot = np.eye(logits.shape[-1])[targets]
    return -(one_hot * lp).mean()


@wrong("top_k", "more than k where logits are equal")
def top_k_1(logits, k, temperature):
    """With >= all the equal ones of the smallest kept logit stay, which may be more than k."""
    least = np.sort(logits, axis=-1)[..., -k, None]
    z = np.where(logits >= least, logits / temperature, -np.inf)
    z = np.exp(z - z.max(-1, keepdims=True))
    return z / z.sum(-1, keepdims=True)


@wrong("join_pair", "a token used twice")
def join_pair_1(ids, pair, new):
    """I goes on by one also after a join, so the second token of a pair is used again."""
    out = []
    for i in range(len(ids)):
        if i + 1 < len(ids) and (ids[i], ids[i + 1]) == tuple(pair):
            out.append(new)
        else:
            out.append(ids[i])
    return np.array(out)


@wrong("induction_score", "the same letter")
def induction_score_1(A, period):
    """The key i - period is the earlier copy itself, and the induction head looks one later."""
    n = A.shape[-1]
    total = sum(A[..., i, i - period] for i in range(period, n))
    return total / (n - period)


# Chapter 10.


@wrong("causal_linear_attention", "elu without the 1")
def causal_linear_attention_1(Q, K, V):
    """phi is elu alone; the + 1 is missing, so weights can be negative."""

    def elu(x):
        return np.where(x > 0, x, np.exp(np.minimum(x, 0)) - 1)

    W = np.tril(elu(Q) @ elu(K).T)
    return W @ V / W.sum(-1, keepdims=True)


@wrong("causal_linear_attention", "the last row of `K` not used")
def causal_linear_attention_2(Q, K, V):
    """The new key is added after the output of its token, so no token reads itself."""

    def phi(x):
        return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))

    S, z = np.zeros((K.shape[1], V.shape[1])), np.zeros(K.shape[1])
    out = []
    for q, k, v in zip(phi(Q), phi(K), V, strict=False):
        out.append(q @ S / (q @ z + 1e-12))
        S += np.outer(k, v)
        z += k
    return np.array(out)


@right("causal_linear_attention")
def causal_linear_attention_3(Q, K, V):
    """itertools.accumulate carries the state, elu from torch."""
    q, k = (torch.nn.functional.elu(torch.tensor(x)).numpy() + 1 for x in (Q, K))
    totals = accumulate(k, np.add)
    pooled = accumulate((np.outer(a, v) for a, v in zip(k, V, strict=False)), np.add)
    return np.array(
        [(a @ S) / (a @ z) for a, S, z in zip(q, pooled, totals, strict=False)]
    )


@wrong("merge", "NaN from two empty sets")
def merge_1(t1, z1, u1, t2, z2, u2):
    """Two sets without keys give -inf minus -inf, which is NaN."""
    t = np.maximum(t1, t2)
    a, b = np.exp(t1 - t), np.exp(t2 - t)
    return t, a * z1 + b * z2, a * u1 + b * u2


@wrong("causal_tiles", "the first query of a block asked")
def causal_tiles_1(n, m, tile):
    """The first query of a tile is asked, not the last, so tiles on the diagonal are left out."""
    return np.array(
        [
            [j * tile <= i * tile + m - n for j in range(-(-m // tile))]
            for i in range(-(-n // tile))
        ]
    )


@wrong("score_bound", "the scale's sign kept")
def score_bound_1(Q, K, scale):
    """A negative scale makes the bound negative."""
    norms = [np.linalg.norm(X, axis=-1).max() for X in (Q, K)]
    return norms[0] * norms[1] * scale


@right("score_bound")
def score_bound_2(Q, K, scale):
    """Hypot reduced along the columns."""
    q, k = (max(np.hypot.reduce(row) for row in X) for X in (Q, K))
    return float(np.abs(scale * q * k))


@wrong("quotient_scores", "exponentials that overflow")
def quotient_scores_1(a, b, w):
    """Exp(2a) overflows near 800 and exp(2b) underflows near -800: infinity times 0."""
    x, y = np.exp(2 * a)[:, None, :], np.exp(2 * b)[None, :, :]
    return (-2 * w / (1 + x * y)).sum(-1)


# Chapter 11.


@wrong("received_weight", "a token's weight on itself counted")
def received_weight_1(A):
    """The diagonal is counted: the weight that a token gives to itself is not received from later queries."""
    n = A.shape[-1]
    counts = np.arange(n, 0, -1)
    return A.sum(-2) / counts


@right("received_weight")
def received_weight_2(A):
    """A loop over keys, ellipsis slices."""
    out = np.zeros(A.shape[:-1])
    for j in range(A.shape[-1] - 1):
        out[..., j] = A[..., j + 1 :, j].mean(axis=-1)
    return out


@wrong("prefix_matching_score", "all queries counted")
def prefix_matching_score_1(A, ids):
    """The mean runs over all queries, also those whose token has never stood before."""
    n = len(ids)
    total = 0
    for i in range(n):
        for j in range(i):
            if ids[i] == ids[j]:
                total = total + A[..., i, j + 1]
    return total / n


@right("prefix_matching_score")
def prefix_matching_score_2(A, ids):
    """A set of earlier places for each query."""
    seen, sums = {}, []
    for i, token in enumerate(np.asarray(ids).tolist()):
        if token in seen:
            sums.append(sum(A[..., i, j + 1] for j in seen[token]))
        seen.setdefault(token, []).append(i)
    return np.mean(sums, axis=0)


@wrong("without_heads", "changes its input")
def without_heads_1(O, W_o, off):
    """The given outputs are zeroed in place, so the heads stay off for the caller."""
    O[off] = 0
    h, n, d_h = O.shape
    return np.transpose(O, (1, 0, 2)).reshape(n, h * d_h) @ W_o


@wrong("dequantise", "high codes first")
def dequantise_1(blocks):
    """The nibbles are swapped: the low four bits belong to the first sixteen numbers."""
    scale, low = (
        np.ascontiguousarray(blocks[:, :4]).view(np.float16).astype(float).T[..., None]
    )
    b = blocks[:, 4:]
    return scale * np.hstack([b >> 4, b & 0x0F]) + low


# Chapter 12.


@wrong("merge_parts", "no maximum subtracted")
def merge_parts_1(outputs, levels):
    """Without subtracting the largest level, 1000 overflows."""
    share = np.exp(levels)
    total = share.sum(0)
    return np.where(
        total > 0, (share * outputs).sum(0) / np.where(total > 0, total, 1), 0
    )


@wrong("merge_parts", "outputs added up")
def merge_parts_2(outputs, levels):
    """The softmax runs over the last axis, which has one entry, so every process counts with weight 1."""
    with np.errstate(invalid="ignore"):
        w = torch.softmax(torch.from_numpy(levels), dim=-1).nan_to_num().numpy()
    return (w * outputs).sum(axis=0)


@right("merge_parts")
def merge_parts_3(outputs, levels):
    """Two at a time with functools.reduce, and a fold in logaddexp."""

    def join(a, b):
        (o1, l1), (o2, l2) = a, b
        l = np.logaddexp(l1, l2)
        safe = np.where(np.isneginf(l), 0.0, l)
        return np.exp(l1 - safe) * o1 + np.exp(l2 - safe) * o2, l

    start = np.zeros_like(outputs[0]), np.full_like(levels[0], -np.inf)
    return reduce(join, zip(outputs, levels, strict=False), start)[0]


@wrong("zigzag_positions", "tokens of the back reversed")
def zigzag_positions_1(n, size):
    """The chunk from the back is written backwards, token by token."""
    front = np.arange(n // 2).reshape(size, -1)
    back = np.arange(n // 2, n)[::-1].reshape(size, -1)
    return np.hstack([front, back])


@wrong("bytes_sent", "keys without values")
def bytes_sent_1(n, size, heads, kv_heads, width, number):
    """Only the keys are sent on in the ring; the values travel too, so twice the bytes."""
    ring = (size - 1) * (n // size) * kv_heads * width * number
    each = (heads + max(kv_heads, size)) * 2
    return ring, (size - 1) * (n // size) * each * width * number // size


@wrong("ring", "total not rescaled")
def ring_1(Q, K, V, size):
    """The total is not shrunk when the maximum rises, only the pooled values are."""
    blocks = np.array_split(np.arange(len(Q)), size)
    out = np.zeros((len(Q), V.shape[1]))
    for r in range(size):
        rows = blocks[r]
        m = np.full((len(rows), 1), -np.inf)
        z = np.zeros((len(rows), 1))
        u = np.zeros((len(rows), V.shape[1]))
        for step in range(size):
            cols = blocks[(r - step) % size]
            S = Q[rows] @ K[cols].T / math.sqrt(Q.shape[1])
            S[rows[:, None] < cols] = -np.inf
            new = np.maximum(m, S.max(1, keepdims=True))
            e = np.exp(S - new)
            u = np.exp(m - new) * u + e @ V[cols]
            z = z + e.sum(1, keepdims=True)
            m = new
        out[rows] = u / z
    return out


# Chapter 13.


@wrong("window_with_sinks", "a sink in the future")
def window_with_sinks_1(n, m, window, sinks):
    """The sinks are also seen by queries that stand before them, which is the future."""
    i = np.arange(n)[:, None] + (m - n)
    j = np.arange(m)[None, :]
    near = (j <= i) & (i - j < window)
    return near | (j < sinks)


@wrong("linear_in_chunks", "the chunk counted twice")
def linear_in_chunks_1(Q, K, V, size):
    """The state is brought up to date before the chunk is read, so the chunk's own keys count twice."""

    def phi(x):
        return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))

    S, z, rows = 0.0, 0.0, []
    for a in range(0, len(Q), size):
        q, k, v = phi(Q[a : a + size]), phi(K[a : a + size]), V[a : a + size]
        S, z = S + k.T @ v, z + k.sum(0)
        W = np.tril(q @ k.T)
        rows.append((W @ v + q @ S) / (W.sum(1) + q @ z)[:, None])
    return np.concatenate(rows)


@right("linear_in_chunks")
def linear_in_chunks_2(Q, K, V, size):
    """A generator of chunks, the total kept as a last column of the state."""

    def phi(x):
        return np.maximum(x, 0) + np.exp(np.minimum(x, 0))

    def pieces():
        state = np.zeros((K.shape[1], V.shape[1] + 1))
        for a in range(0, len(Q), size):
            q, k, v = phi(Q[a : a + size]), phi(K[a : a + size]), V[a : a + size]
            inside = np.tril(q @ k.T)
            top = inside @ v + q @ state[:, :-1]
            yield top / (inside.sum(1) + q @ state[:, -1])[:, None]
            state[:, :-1] += k.T @ v
            state[:, -1] += k.sum(0)

    return np.concatenate(list(pieces()))


@wrong("fading_in_chunks", "the past fades once too little")
def fading_in_chunks_1(Q, K, V, size, fade):
    """The first query of a chunk reads the state as it was left."""
    q, k = (np.where(X > 0, X + 1, np.exp(np.minimum(X, 0))) for X in (Q, K))
    S, z, rows = np.zeros((K.shape[1], V.shape[1])), np.zeros(K.shape[1]), []
    for a in range(0, len(Q), size):
        b = min(a + size, len(Q))
        for i in range(a, b):
            w = fade ** np.arange(i - a, -1, -1) * (k[a : i + 1] @ q[i])
            past = fade ** (i - a) * q[i]
            rows.append((w @ V[a : i + 1] + past @ S) / (w.sum() + past @ z))
        late = fade ** np.arange(b - a - 1, -1, -1)[:, None] * k[a:b]
        S, z = fade ** (b - a) * S + late.T @ V[a:b], fade ** (b - a) * z + late.sum(0)
    return np.array(rows)


@right("fading_in_chunks")
def fading_in_chunks_2(Q, K, V, size, fade):
    """Token by token."""
    S = np.zeros((K.shape[1], V.shape[1] + 1))
    rows = []
    for q, k, v in zip(Q, K, V, strict=True):
        q, k = (np.where(x > 0, x + 1, np.exp(np.minimum(x, 0))) for x in (q, k))
        S = fade * S + np.outer(k, np.append(v, 1))
        rows.append(q @ S)
    rows = np.array(rows)
    return rows[:, :-1] / rows[:, -1:]


@wrong("delta_step", "the key as it is")
def delta_step_1(S, k, v, beta):
    """The key is not scaled to length 1."""
    error = v - k @ S
    return S + beta * k[:, None] * error[None, :]


@right("delta_step")
def delta_step_2(S, k, v, beta):
    """The state as a product with a projector, beta in between."""
    k = k / np.linalg.norm(k)
    column = k.reshape(-1, 1)
    return (np.eye(len(k)) - beta * column @ column.T) @ S + beta * column @ v.reshape(
        1, -1
    )


@wrong("keep_guess", "the ratio upside down")
def keep_guess_1(p, q, guess, coin, draw):
    """p and q are swapped in the test: the guess is kept with probability min(1, q/p)."""
    if coin < min(1, q[guess] / p[guess]):
        return guess
    rest = np.maximum(p - q, 0)
    rest = rest / rest.sum()
    return int(np.argmax(np.cumsum(rest) > draw))
