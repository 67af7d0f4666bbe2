"""The tenth set: the block of chapter 9 and the time of a step of chapter 13."""

import numpy as np
import torch

from foreign import Solutions

TENTH = Solutions()
wrong, right = TENTH.wrong, TENTH.right


@wrong("block", "add(s|ed)? (it|to)|residual|on top")
def block_1(X, attention, mlp):
    """No residual connections: each part's result replaces the stream."""

    def norm(x):
        mu = x.mean(axis=-1, keepdims=True)
        var = x.var(axis=-1, keepdims=True)
        return (x - mu) / np.sqrt(var + 1e-5)

    x = attention(norm(X))
    x = mlp(norm(x))
    return x


@wrong("block", "add(s|ed)? (it|to)|residual|on top")
def block_2(X, attention, mlp):
    """The first addition is missing."""
    eps = 1e-5
    centred = X - X.mean(-1, keepdims=True)
    Y = attention(centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps))
    centred = Y - Y.mean(-1, keepdims=True)
    return Y + mlp(centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps))


@wrong("block", "add(s|ed)? (it|to)|residual|on top")
def block_3(X, attention, mlp):
    """The second addition is missing."""

    def norm(a):
        return (a - np.mean(a, -1)[..., None]) / np.sqrt(np.var(a, -1) + 1e-5)[
            ..., None
        ]  # noqa: E731 — as a student writes it

    hidden = X + attention(norm(X))
    return mlp(norm(hidden))


@wrong("block", "after each addition|2017")
def block_4(X, attention, mlp):
    """Post-norm: the norms come after the additions, as in the transformer of 2017."""

    def layer_norm(t):
        t = torch.as_tensor(t)
        return torch.nn.functional.layer_norm(t, t.shape[-1:], eps=1e-5).numpy()

    Y = layer_norm(X + attention(X))
    return layer_norm(Y + mlp(Y))


@wrong(
    "block",
    "without (the |a )?norm|no norm|not normalised|never normalise|norms? (is|are) missing|normalised copy",
)
def block_5(X, attention, mlp):
    """No norms at all."""
    out = X
    for part in (attention, mlp):
        out = out + part(out)
    return out


@wrong("block", "normalised copy|read|keeps? the normalised|adds? to the normalised")
def block_6(X, attention, mlp):
    """The normalised token is kept: the sums start from norm(X) and norm(Y)."""

    def normalize(z):
        n_features = z.shape[-1]
        m = z.sum(-1, keepdims=True) / n_features
        v = ((z - m) ** 2).sum(-1, keepdims=True) / n_features
        return (z - m) * (v + 1e-5) ** -0.5

    X = normalize(X)
    X = X + attention(X)
    X = normalize(X)
    X = X + mlp(X)
    return X


@wrong("block", r"read|norm\(Y\)|after the attention")
def block_7(X, attention, mlp):
    """The MLP reads norm(X) in place of norm(Y): the two parts run side by side."""
    mean = np.einsum("...d->...", X)[..., None] / X.shape[-1]
    diff = X - mean
    var = np.einsum("...d,...d->...", diff, diff)[..., None] / X.shape[-1]
    normed = diff / np.sqrt(var + 1e-5)
    Y = X + attention(normed)
    return Y + mlp(normed)


@wrong("block", "adds? .*X|added to X|on top|attention.{0,40}(lost|missing)")
def block_8(X, attention, mlp):
    """The MLP's result, computed from norm(Y), is added to X, so the attention's is lost."""

    def ln(x, eps=1e-5):
        return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps)

    residual = X
    h = residual + attention(ln(X))
    h = residual + mlp(ln(h))
    return h


@wrong("block", "order|attention.{0,30}first|MLP.{0,30}first|before|exchanged|swapped")
def block_9(X, attention, mlp):
    """The MLP comes first, the attention after it."""

    def sublayer(x, f):
        m = np.mean(x, axis=-1, keepdims=True)
        s = np.sqrt(np.mean(x * x, axis=-1, keepdims=True) - m * m + 1e-5)
        return x + f((x - m) / s)

    return sublayer(sublayer(X, mlp), attention)


@wrong("block", "MLP is missing|first half")
def block_10(X, attention, mlp):
    """Only the first half: Y is returned, the MLP is never called."""
    mu, sigma2 = X.mean(-1, keepdims=True), X.var(-1, keepdims=True)
    Y = X + attention((X - mu) / np.sqrt(sigma2 + 1e-5))
    return Y


@wrong("block", "last axis|each token")
def block_11(X, attention, mlp):
    """The norm runs over the tokens (axis -2), not over each token's numbers."""

    def norm(M):
        return (M - M.mean(axis=-2, keepdims=True)) / np.sqrt(
            M.var(axis=-2, keepdims=True) + 1e-5
        )

    Y = X + attention(norm(X))
    return Y + mlp(norm(Y))


@wrong("block", "0/0|1e-5")
def block_12(X, attention, mlp):
    """No 1e-5 below the root: a row of equal numbers gives 0/0."""

    def standardise(rows):
        rows = rows - rows.mean(-1, keepdims=True)
        return rows / rows.std(-1, keepdims=True)

    Y = X + attention(standardise(X))
    Z = Y + mlp(standardise(Y))
    return Z


@wrong("block", "d . 1|divides by d|ddof")
def block_13(X, attention, mlp):
    """The variance divides by d - 1."""

    def norm(x):
        return (x - np.mean(x, axis=-1, keepdims=True)) / np.sqrt(
            np.var(x, axis=-1, ddof=1, keepdims=True) + 1e-5
        )

    x = X + attention(norm(X))
    x = x + mlp(norm(x))
    return x


@wrong("block", "d . 1|divides by d|ddof")
def block_14(X, attention, mlp):
    """The variance divides by d - 1, as torch.var does unless told otherwise."""

    def norm(a):
        t = torch.tensor(a)
        t = (t - t.mean(dim=-1, keepdim=True)) / torch.sqrt(
            t.var(dim=-1, keepdim=True) + 1e-5
        )
        return t.numpy()

    Y = X + attention(norm(X))
    return Y + mlp(norm(Y))


@right("block")
def block_15(X, attention, mlp):
    """torch inside, NumPy for the two functions."""

    def norm(t):
        mean = t.mean(dim=-1, keepdim=True)
        var = t.var(dim=-1, keepdim=True, unbiased=False)
        return (t - mean) * torch.rsqrt(var + 1e-5)

    x = torch.from_numpy(np.array(X))
    x = x + torch.from_numpy(np.array(attention(norm(x).numpy())))
    x = x + torch.from_numpy(np.array(mlp(norm(x).numpy())))
    return x.numpy()


@right("block")
def block_16(X, attention, mlp):
    """A loop over the batch, and over the rows in the norm."""

    def norm_rows(M):
        out = np.empty_like(M)
        for i, row in enumerate(M):
            mu = sum(row) / len(row)
            var = sum((v - mu) ** 2 for v in row) / len(row)
            out[i] = (row - mu) / np.sqrt(var + 1e-5)
        return out

    n, d = X.shape[-2:]
    results = []
    for text in X.reshape(-1, n, d):
        Y = text + attention(norm_rows(text))
        results.append(Y + mlp(norm_rows(Y)))
    return np.stack(results).reshape(X.shape)


@right("block")
def block_17(X, attention, mlp):
    """einsum for the mean and the variance."""
    d = X.shape[-1]

    def norm(x):
        c = x - np.einsum("...i->...", x)[..., np.newaxis] / d
        v = np.einsum("...i,...i->...", c, c) / d
        return c / np.sqrt(v + 1e-5)[..., np.newaxis]

    for f in [attention, mlp]:
        X = X + f(norm(X))
    return X


@wrong("step_seconds", "for each text|whole batch")
def step_seconds_1(texts, parameters, weights, cache, peak, bandwidth):
    """The weights are fetched once per text."""
    fetch = texts * weights / bandwidth
    compute = 2 * texts * parameters / peak
    return max(fetch, compute) + texts * cache / bandwidth


@wrong("step_seconds", "one cache|its own")
def step_seconds_2(texts, parameters, weights, cache, peak, bandwidth):
    """One cache for all the texts."""
    t_mem = weights / bandwidth
    t_flop = (2.0 * parameters * texts) / peak
    t_cache = cache / bandwidth
    return (t_mem if t_mem > t_flop else t_flop) + t_cache


@wrong("step_seconds", "overlap|longer")
def step_seconds_3(texts, parameters, weights, cache, peak, bandwidth):
    """Arithmetic and weights are added, as if they did not overlap."""
    bytes_moved = weights + texts * cache
    operations = 2 * texts * parameters
    return bytes_moved / bandwidth + operations / peak


@wrong("step_seconds", "two operations|multiplication and an addition")
def step_seconds_4(texts, parameters, weights, cache, peak, bandwidth):
    """One operation per parameter and text instead of two."""
    return float(
        np.maximum(weights / bandwidth, texts * parameters / peak)
        + texts * cache / bandwidth
    )


@wrong("step_seconds", "add its time|between")
def step_seconds_5(texts, parameters, weights, cache, peak, bandwidth):
    """The attention is put inside the maximum."""
    times = {
        "weights": weights / bandwidth,
        "arithmetic": 2 * texts * parameters / peak,
        "attention": texts * cache / bandwidth,
    }
    return max(times.values())


@right("step_seconds")
def step_seconds_6(texts, parameters, weights, cache, peak, bandwidth):
    """Named parts and an if."""
    reading_weights = weights / bandwidth
    multiplying = texts * 2 * parameters / peak
    matrices = reading_weights if reading_weights >= multiplying else multiplying
    return matrices + texts * (cache / bandwidth)


@right("step_seconds")
def step_seconds_7(texts, parameters, weights, cache, peak, bandwidth):
    """torch in double precision for the maximum."""
    both = torch.tensor(
        [weights / bandwidth, 2 * texts * parameters / peak], dtype=torch.float64
    )
    return both.max().item() + cache * texts / bandwidth
