"""What is computed by blocks is what the body says, and the body is the formula: values and gradients, over all rules.

A function's definition is ``f.__wrapped__``; the formula is written out once more below, in double precision.
"""

import numpy as np
import pytest
import torch
from test_visibility import Dilated, Islands

import attn_tutor.numpy as an
import attn_tutor.torch as at

B, H, D, D_V = 2, 3, 4, 5  # sequences, heads, widths
HALVES = pytest.mark.parametrize("half", [an, at], ids=["numpy", "torch"])


# The formula


def gaussian(Q, K, bandwidth=1.0):
    distance = Q[..., :, None, :] - K[..., None, :, :]
    return -distance.square().sum(-1) / (2 * bandwidth**2)


def additive(Q, K, W_q, W_k, w_v):
    hidden = (Q @ W_q)[..., :, None, :] + (K @ W_k)[..., None, :, :]
    return hidden.tanh() @ w_v


SCORES = {
    "attention": lambda Q, K: Q @ K.mT / D**0.5,
    "partial_attention": lambda Q, K: Q @ K.mT / D**0.5,
    "bilinear_attention": lambda Q, K, M: Q @ M @ K.mT,
    "gaussian_attention": gaussian,
    "additive_attention": additive,
}


def formula(name, Q, K, V, *learnt, mask=None, bias=None):
    """Softmax written out, over the keys that a query sees; of partial attention the log of its sum, too."""
    scores = SCORES[name](Q, K, *learnt)
    scores = scores if bias is None else scores + bias
    hidden = torch.tensor(False) if mask is None else ~mask
    scores = scores.masked_fill(hidden, -1e300)
    top = scores.detach().amax(-1, keepdim=True)
    e = (scores - top).exp().masked_fill(hidden, 0)
    total = e.sum(-1, keepdim=True)
    output = e / total.where(total > 0, 1) @ V
    if name != "partial_attention":
        return (output,)
    return output, (top + total.log()).where(total > 0, -torch.inf)


# The rules: what a call is given, and the mask and the bias that it means


def positions(n, m):
    return np.arange(n)[:, None] + m - n, np.arange(m)


def counts(m, *shape):
    return np.arange(7, 7 + np.prod(shape)).reshape(shape) * 5 % (m + 1)


def torn(m):
    return np.arange(m) * 7 // 3 % 4


def per_sequence(m):
    return np.stack([np.arange(m) * 4 // m, torn(m)])[:, None]


def few(*shape):
    return np.random.default_rng(sum(shape)).random(shape) < 0.4


def numbers(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape)


def same(ids, n):
    m = ids.shape[-1]
    return ids[..., m - n :, None] == ids[..., None, :]


def before(i, j):
    return j <= i


HIDES = {  # name: of a half, a way to give it arrays, n and m, what is given; and of positions, the mask
    "everything": (lambda h, x, n, m: {}, lambda i, j, n, m: None),
    "causal": (
        lambda h, x, n, m: {"causal": True},
        lambda i, j, n, m: j <= i,
    ),
    "window": (
        lambda h, x, n, m: {"causal": True, "window": 5},
        lambda i, j, n, m: (j <= i) & (j > i - 5),
    ),
    "sinks": (
        lambda h, x, n, m: {"causal": True, "window": h.Window(5, sinks=3)},
        lambda i, j, n, m: (j <= i) & ((j > i - 5) | (j < 3)),
    ),
    "documents": (
        lambda h, x, n, m: {"mask": h.documents(x(np.arange(m) * 4 // m))},
        lambda i, j, n, m: same(np.arange(m) * 4 // m, n),
    ),
    "torn documents": (
        lambda h, x, n, m: {"mask": h.documents(x(torn(m))), "causal": True},
        lambda i, j, n, m: same(torn(m), n) & (j <= i),
    ),
    "documents per sequence": (
        lambda h, x, n, m: {"mask": h.documents(x(per_sequence(m)))},
        lambda i, j, n, m: same(per_sequence(m), n),
    ),
    "one length": (
        lambda h, x, n, m: {"mask": h.valid(x(np.array(m // 2)))},
        lambda i, j, n, m: j + 0 * i < m // 2,
    ),
    "lengths per sequence": (
        lambda h, x, n, m: {"mask": h.valid(x(counts(m, B, 1))), "causal": True},
        lambda i, j, n, m: (j < counts(m, B, 1)[..., None, None]) & (j <= i),
    ),
    "lengths per head": (
        lambda h, x, n, m: {"mask": h.valid(x(counts(m, B, H)))},
        lambda i, j, n, m: j < counts(m, B, H)[..., None, None],
    ),
    "prefix": (
        lambda h, x, n, m: {"mask": h.prefix(x(counts(m, B, 1)))},
        lambda i, j, n, m: (j <= i) | (j < counts(m, B, 1)[..., None, None]),
    ),
    "dilated": (
        lambda h, x, n, m: {"mask": h.Rule(lambda i, j: (i - j) % 2 == 0)},
        lambda i, j, n, m: (i - j) % 2 == 0,
    ),
    "dilated, with keys": (
        lambda h, x, n, m: {"mask": Dilated()},
        lambda i, j, n, m: (j <= i) & (j > i - 36) & ((i - j) % 3 == 0),
    ),
    "islands": (
        lambda h, x, n, m: {"mask": Islands(), "causal": True},
        lambda i, j, n, m: (i // 10 == j // 10) & (j <= i),
    ),
    "islands or a window": (
        lambda h, x, n, m: {"mask": Islands() | h.Window(12) | h.First(2)},
        lambda i, j, n, m: (i // 10 == j // 10) | ((j <= i) & (j > i - 12)) | (j < 2),
    ),
    "prefix, lengths and a window": (
        lambda h, x, n, m: {
            "mask": h.prefix(x(np.array(m // 3))) & h.valid(x(counts(m, B, 1))),
            "causal": True,
            "window": h.Window(30, sinks=4),
        },
        lambda i, j, n, m: (
            ((j <= i) | (j < m // 3))
            & (j < counts(m, B, 1)[..., None, None])
            & (j <= i)
            & ((j > i - 30) | (j < 4))
        ),
    ),
    "a mask of pairs": (
        lambda h, x, n, m: {"mask": x(few(n, m)), "causal": True},
        lambda i, j, n, m: few(n, m) & (j <= i),
    ),
    "a mask of keys": (
        lambda h, x, n, m: {"mask": x(few(B, 1, 1, m))},
        lambda i, j, n, m: few(B, 1, 1, m),
    ),
    "a mask of queries": (
        lambda h, x, n, m: {"mask": x(few(n, 1)), "causal": True, "window": 9},
        lambda i, j, n, m: few(n, 1) & (j <= i) & (j > i - 9),
    ),
    "no key": (
        lambda h, x, n, m: {"mask": h.First(0)},
        lambda i, j, n, m: j + 0 * i < 0,
    ),
}
ADDS = {
    "nothing": (lambda h, x, n, m: None, lambda i, j, n, m: None),
    "an array": (
        lambda h, x, n, m: x(numbers(H, n, m)),
        lambda i, j, n, m: numbers(H, n, m),
    ),
    "a row": (lambda h, x, n, m: x(numbers(m)), lambda i, j, n, m: numbers(m)),
    "slopes": (
        lambda h, x, n, m: h.alibi(x(np.array([0.5, 0.25, 0.125]))),
        lambda i, j, n, m: -abs(i - j) / np.array([2, 4, 8])[:, None, None],
    ),
    "a function": (
        lambda h, x, n, m: h.Bias(lambda i, j: (i - 2 * j) / 64),
        lambda i, j, n, m: (i - 2 * j) / 64,
    ),
}
FEW = ["everything", "causal", "sinks", "lengths per sequence", "a mask of pairs"]
PAIRS = [(x, "nothing") for x in HIDES]
MORE = [(x, y) for x in FEW for y in ADDS if y != "nothing"]
CALLS = [("attention", *pair) for pair in PAIRS + MORE]
CALLS += [(x, *pair) for x in [*SCORES][1:] for pair in PAIRS + MORE[4:8]]


def problem(half, hides, adds, n, m):
    """What a call is given in one half's arrays, and the mask and bias that it means, as NumPy's."""
    give = torch.from_numpy if half is at else np.asarray
    i, j = positions(n, m)
    options = HIDES[hides][0](half, give, n, m)
    options["bias"] = ADDS[adds][0](half, give, n, m)
    return options, HIDES[hides][1](i, j, n, m), ADDS[adds][1](i, j, n, m)


def arrays(name, n, m, shared=False):
    """With batch axes that broadcast: keys are the same for all heads, or ``shared`` has one head for them."""
    drawn = numbers(B, H, n, D), numbers(B, 1, m, D), numbers(B, 1 if shared else H, m, D_V)  # fmt: skip
    learnt = {"bilinear_attention": [(D, D)], "additive_attention": [(D, 3), (D, 3), (3,)]}  # fmt: skip
    return [*drawn, *(numbers(*shape) / 2 for shape in learnt.get(name, []))]


def results(found):
    return found if isinstance(found, tuple) else (found,)


def gradients(outputs, leaves):
    """Of a sum in which every number has a weight of its own."""
    weights = [torch.linspace(-1, 2, x.numel()).to(x).view(x.shape) for x in outputs]
    total = sum((x * w)[x.isfinite()].sum() for x, w in zip(outputs, weights, strict=True))  # fmt: skip
    if not total.requires_grad:
        return [torch.zeros_like(x) for x in leaves]
    found = torch.autograd.grad(total, leaves, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, found, strict=True)]  # fmt: skip


def oracle(name, given, mask, bias):
    """Values of the formula, and its gradients with respect to all arrays and a bias."""
    leaves = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in given]
    bias = None if bias is None else torch.tensor(bias, requires_grad=True)
    mask = None if mask is None else torch.tensor(mask)
    outputs = formula(name, *leaves, mask=mask, bias=bias)
    leaves += [] if bias is None else [bias]
    return [x.detach().numpy() for x in outputs], [x.numpy() for x in gradients(outputs, leaves)]  # fmt: skip


def agrees(found, expected, rtol=1e-9, atol=1e-11):
    for pair in zip(found, expected, strict=True):
        x, y = (x.detach().double().numpy() if isinstance(x, torch.Tensor) else x for x in pair)  # fmt: skip
        size = np.abs(y[np.isfinite(y)]).max(initial=1)
        np.testing.assert_allclose(x, y, rtol, atol * size, strict=True)


SIZES = [(130, 140), (7, 5), (1, 140), (5, 7), (140, 7)]


@HALVES
@pytest.mark.parametrize(("name", "hides", "adds"), CALLS)
def test_blocks_are_the_definition_and_the_definition_is_the_formula(
    half, name, hides, adds
):
    fn = getattr(half, name)
    for n, m in SIZES if name == "attention" else SIZES[:3]:
        if n > m and "documents" in hides:
            continue
        options, mask, bias = problem(half, hides, adds, n, m)
        given = arrays(name, n, m)
        expected, slopes = oracle(name, given, mask, bias)
        if half is an:
            agrees(results(fn(*given, **options)), expected)
            agrees(results(fn.__wrapped__(*given, **options)), expected)
            continue
        leaves = [torch.from_numpy(x).requires_grad_() for x in given]
        if isinstance(options["bias"], torch.Tensor):
            options["bias"].requires_grad_()
            leaves.append(options["bias"])
        k = len(given)
        for call in (fn, fn.__wrapped__):
            outputs = results(call(*leaves[:k], **options))
            agrees(outputs, expected)
            agrees(gradients(outputs, leaves), slopes[: len(leaves)])


@HALVES
@pytest.mark.parametrize("hides", HIDES)
def test_heads_that_share_keys(half, hides):
    """Each head of keys and values serves three of queries, without and with a bias of their own."""
    for (n, m), adds in zip(SIZES, ["nothing", "an array"] * 3, strict=False):
        if n > m and "documents" in hides:
            continue
        options, mask, bias = problem(half, hides, adds, n, m)
        given = arrays("attention", n, m, shared=True)
        expected, slopes = oracle("attention", given, mask, bias)
        if half is an:
            for call in (an.attention, an.attention.__wrapped__):
                agrees([call(*given, **options, n_kv_heads=1)], expected)
            continue
        leaves = [torch.from_numpy(x).requires_grad_() for x in given]
        for call in (at.attention, at.attention.__wrapped__):
            output = call(*leaves, **options, n_kv_heads=1)
            agrees([output], expected)
            agrees(gradients([output], leaves), slopes[:3])


DTYPES = {"float32": (1e-4, 2e-6), "float16": (2e-2, 2e-3), "bfloat16": (8e-2, 2e-2)}
COARSE = [(half, dtype) for half in (an, at) for dtype in DTYPES if (half, dtype) != (an, "bfloat16")]  # fmt: skip


@pytest.mark.parametrize(("half", "dtype"), COARSE)
@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("hides", ["causal", "sinks", "prefix"])  # fmt: skip
def test_other_dtypes(half, dtype, name, hides):
    """The formula of what is left of the numbers once they are rounded; gradients are as good as the values."""
    for (n, m), adds in (((7, 11), "nothing"), ((130, 140), "an array")):  # fmt: skip
        options, mask, bias = problem(half, hides, adds, n, m)
        rounded = [torch.from_numpy(x).to(getattr(torch, dtype)) for x in arrays(name, n, m)]  # fmt: skip
        expected, slopes = oracle(name, [x.double().numpy() for x in rounded], mask, bias)  # fmt: skip
        if half is an:
            rounded = [x.numpy() for x in rounded]
            found = results(getattr(an, name)(*rounded, **options))
            agrees([x.astype(float) for x in found], expected, *DTYPES[dtype])
            continue
        leaves = [x.requires_grad_() for x in rounded]
        outputs = results(getattr(at, name)(*leaves, **options))
        agrees(outputs, expected, *DTYPES[dtype])
        if dtype != "float16":
            agrees(gradients(outputs, leaves), slopes[: len(leaves)], *DTYPES[dtype])


# A rule of one's own


OWN = {
    "dilated": (Dilated, HIDES["dilated, with keys"][1]),
    "islands": (Islands, lambda i, j, n, m: i // 10 == j // 10),
}


@HALVES
@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("shape", [(B,), (B, H)], ids=["sequence", "head"])
def test_a_rule_of_ones_own_in_many_heads(half, name, shape):
    """Beside lengths, one for each sequence or for each head, it is its dense mask."""
    n = 260
    give = torch.from_numpy if half is at else np.asarray
    X, W = give(numbers(B, n, 6)), [give(numbers(6, 6) / 2 + k) for k in range(4)]
    one, pairs = OWN[name]
    lengths = np.arange(60, 60 + 30 * np.prod(shape), 30).reshape(shape)
    mask = pairs(*positions(n, n), n, n) & (np.arange(n) < lengths[..., None, None])
    mask = mask[:, None] if shape == (B,) else mask
    rule = one() & half.valid(give(lengths))
    given = [X, X, X, *W, H]
    found = half.multi_head_attention(*given, rule)
    agrees([found], [np.asarray(half.multi_head_attention(*given, give(mask)))])
    weights = half.multi_head_weights(X, X, *W[:2], H, rule)
    assert not (np.asarray(weights) > 0)[~np.broadcast_to(mask, weights.shape)].any()
    if half is at:
        layer = at.MultiHeadAttention(6, H, dtype=torch.float64)
        agrees([layer(X, mask=rule)], [layer(X, mask=give(mask)).detach().numpy()])
