"""Laws over whole kinds of input: any strides, any options together, nothing at all, any rules."""

import inspect
import itertools
import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_definitions import agrees, gradients, numbers, oracle, results
from test_visibility import dense, problems, rule

import attn_tutor.numpy as an
import attn_tutor.torch as at

HALVES = pytest.mark.parametrize("half", [an, at], ids=["numpy", "torch"])
SHAPED = {
    name: fn.__shapes__
    for half in (an, at)
    for name in half.__all__
    if hasattr(fn := getattr(half, name), "__shapes__")
}
SHAPED.pop("check_mask")  # which gives the mask back
BOTH = [(half, name) for half in (an, at) for name in SHAPED if hasattr(half, name)]


def native(half, x):
    if not isinstance(x, np.ndarray):
        return x
    return torch.from_numpy(x.copy()) if half is at else x


def takes(fn, argument):
    return argument in inspect.signature(fn).parameters


def on(arrays, leaves):
    """The same arguments, with the arrays in ``leaves``."""
    return [leaves.get(k, x) for k, x in arrays.items()]


# Strides

VIEWS = {
    "columns first": lambda x: x.mT.contiguous().mT,
    "every second column": lambda x: torch.stack([x, x], -1).flatten(-2)[..., ::2],
    "every second row": lambda x: torch.stack([x, x], -2).flatten(-3, -2)[..., ::2, :],
    "one row for all": lambda x: x[..., :1, :].expand(x.shape),
    "one column for all": lambda x: x[..., :1].expand(x.shape),
    "a corner": lambda x: torch.nn.functional.pad(x, (1, 2, 3, 1))[..., 3:-1, 1:-2],
    "tokens before heads": lambda x: x.transpose(0, -2).contiguous().transpose(0, -2),
}
REVERSED = {
    "columns reversed": lambda x: x[..., ::-1].copy()[..., ::-1],
    "rows reversed": lambda x: x[..., ::-1, :].copy()[..., ::-1, :],
}


def viewed(view, x):
    """A view, of a vector as of a row."""
    return view(x[None])[0] if x.ndim == 1 else view(x)


def calls(fn):
    """Ways to call it: few tokens, and where there are rules more than fit one block."""
    yield {}, {}
    if takes(fn, "window"):
        for m in (14, 150):
            yield {"n": m, "m": m}, {"causal": True, "window": 5}


@pytest.mark.parametrize("name", [name for name in SHAPED if hasattr(at, name)])
@pytest.mark.parametrize("view", VIEWS)
def test_strides_change_no_number_in_torch(name, view, inputs):
    fn = getattr(at, name)
    for lengths, options in calls(fn):
        drawn = {k: native(at, x) for k, x in inputs(name, (2,), **lengths).items()}
        leaves = {
            k: x.requires_grad_()
            for k, x in drawn.items()
            if isinstance(x, torch.Tensor)
        }
        views = {k: viewed(VIEWS[view], x) for k, x in leaves.items()}
        copies = {k: x.contiguous() for k, x in views.items()}
        found, expected = (
            results(fn(*on(drawn, x), **options)) for x in (views, copies)
        )
        agrees(found, [x.detach().numpy() for x in expected])
        agrees(*(gradients(x, [*leaves.values()]) for x in (found, [*expected])))


@pytest.mark.parametrize("name", [name for name in SHAPED if hasattr(an, name)])
@pytest.mark.parametrize("view", {**VIEWS, **REVERSED})
def test_strides_change_no_number_in_numpy(name, view, inputs):
    fn = getattr(an, name)
    for lengths, options in calls(fn):
        drawn = inputs(name, (2,), **lengths)
        arrays = {k: x for k, x in drawn.items() if isinstance(x, np.ndarray)}
        if view in REVERSED:
            views = {k: viewed(REVERSED[view], x) for k, x in arrays.items()}
        else:
            views = {
                k: viewed(VIEWS[view], torch.from_numpy(x)).numpy()
                for k, x in arrays.items()
            }
        copies = {k: x.copy() for k, x in views.items()}
        found, expected = (
            results(fn(*on(drawn, x), **options)) for x in (views, copies)
        )
        agrees(found, expected)
        assert all((views[k] == copies[k]).all() for k in views)  # left as they were


LAYERS = {
    "MultiHeadAttention": lambda: at.MultiHeadAttention(12, 3, causal=True, window=4),
    "shared heads": lambda: at.MultiHeadAttention(12, 4, n_kv_heads=2),
    "Block": lambda: at.Block(12, 2, causal=True, positions="rotary"),
    "SelfAttention": lambda: at.SelfAttention(12, 5, causal=True),
    "PositionalEncoding": lambda: at.PositionalEncoding(12),
    "AdditiveAttention": lambda: at.AdditiveAttention(12, 12, 5),
    "BilinearAttention": lambda: at.BilinearAttention(12, 12),
}


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("view", VIEWS)
def test_strides_change_no_number_in_layers(layer, view):
    torch.manual_seed(0)
    fn = LAYERS[layer]().double()
    for n in (7, 140):
        leaf = torch.from_numpy(numbers(2, n, 12)).requires_grad_()
        X = VIEWS[view](leaf)
        times = 3 if layer in ("AdditiveAttention", "BilinearAttention") else 1
        found, expected = (fn(*[x] * times) for x in (X, X.contiguous()))
        agrees([found], [expected.detach().numpy()])
        leaves = [leaf, *fn.parameters()]
        agrees(
            gradients([found], leaves),
            [x.numpy() for x in gradients([expected], leaves)],
        )


# Options together

OPTIONS = [
    "causal",
    "window",
    "sinks",
    "documents",
    "lengths",
    "mask",
    "bias",
    "learnt bias",
    "slopes",
    "dropout",
    "shared heads",
]
ONE_OF = [{"bias", "learnt bias", "slopes"}, {"window", "sinks"}]
TRIPLES = [
    x
    for x in itertools.combinations(OPTIONS, 3)
    if all(len(one & {*x}) < 2 for one in ONE_OF)
]


def together(half, names, b, h, n):
    """The arguments that say all of it, for queries and keys of n tokens."""
    i, rules, options = np.arange(n), [], {}
    if {"causal", "window", "sinks"} & {*names}:
        options["causal"] = True
    if "window" in names or "sinks" in names:
        options["window"] = half.Window(7, sinks=2 if "sinks" in names else 0)
    if "documents" in names:
        ids = np.stack([(i + 5 * k) // 11 for k in range(b)])[:, None]
        rules.append(half.documents(native(half, ids)))
    if "lengths" in names:
        rules.append(half.valid(native(half, n - 3 * np.arange(b)[:, None])))
    if "mask" in names:
        pairs = native(half, numbers(h, n, n) < 0.8)
        rules.append(half.Rule(lambda i, j: pairs[:, i, j]) if rules else pairs)
    if rules:
        options["mask"] = rules[0] if len(rules) == 1 else rules[0] & rules[1]
        if len(rules) == 3:
            options["mask"] &= rules[2]
    if "bias" in names or "learnt bias" in names:
        options["bias"] = native(half, numbers(h, n, n))
    if "learnt bias" in names and half is at:
        options["bias"].requires_grad_()
    if "slopes" in names:
        options["bias"] = half.alibi(native(half, 0.5 ** np.arange(1.0, h + 1)))
    if "shared heads" in names:
        options["n_kv_heads"] = h // 2
    return options


@pytest.mark.parametrize("names", TRIPLES, ids="+".join)
def test_any_three_options_are_the_definition(names):
    b, h, d = 2, 4, 5
    for n in (13, 150):
        h_kv = h // 2 if "shared heads" in names else h
        drawn = [numbers(b, k, n, d) for k in (h, h_kv, h_kv)]
        if "dropout" not in names:
            options = together(an, names, b, h, n)
            agrees(
                [an.attention(*drawn, **options)],
                [an.attention.__wrapped__(*drawn, **options)],
            )
        options = together(at, names, b, h, n)
        leaves = [torch.from_numpy(x).requires_grad_() for x in drawn]
        learnt = [options["bias"]] if "learnt bias" in names else []
        plain = at.attention.__wrapped__(*leaves, **options)
        found = at.attention(*leaves, **options, dropout_p=0.0)
        agrees([found], [plain.detach().numpy()])
        slopes = gradients([found], leaves + learnt)
        agrees(slopes, [x.numpy() for x in gradients([plain], leaves + learnt)])
        assert all(x.isfinite().all() and x.any() for x in slopes)
        if "dropout" in names:
            drops_weights(leaves, options, plain)


def drops_weights(leaves, options, plain):
    """The output is linear in the values, so that their gradient tells whether the same weights were dropped."""
    torch.manual_seed(1)
    found = at.attention(*leaves, **options, dropout_p=0.3)
    g = torch.from_numpy(numbers(*found.shape))
    learnt = [
        x for x in options.values() if isinstance(x, torch.Tensor) and x.requires_grad
    ]
    slopes = torch.autograd.grad(found, leaves + learnt, g)
    assert all(x.isfinite().all() for x in slopes)
    assert not torch.allclose(found, plain)
    torch.testing.assert_close((slopes[2] * leaves[2]).sum(), (found * g).sum())
    # Each weight keeps its mean.
    with torch.no_grad():
        ones = [*leaves[:2], torch.ones_like(leaves[2])]
        whole = at.attention(*ones, **options)
        some = at.attention(*ones, **options, dropout_p=0.3)
    assert abs(some[whole > 0.5].mean() - 1) < 0.1


IN_LAYERS = [
    "causal",
    "window",
    "documents",
    "lengths",
    "bias",
    "slopes",
    "dropout",
    "shared heads",
]


@pytest.mark.parametrize(
    "names",
    [x for x in itertools.combinations(IN_LAYERS, 3) if not {"bias", "slopes"} <= {*x}],
    ids="+".join,
)
def test_any_three_options_in_a_layer(names):
    """Those of the function; a rule's arrays have one for each sequence, (b, …)."""
    b, h, n = 3, 4, 130
    torch.manual_seed(0)
    options = together(at, {*names} - {"shared heads"}, b, h, n)
    made = {k: options.pop(k) for k in ("causal", "window") if k in options}
    h_kv = h // 2 if "shared heads" in names else h
    layer = at.MultiHeadAttention(
        8,
        h,
        n_kv_heads=h_kv,
        bias=False,
        dropout=0.2 if "dropout" in names else 0.0,
        dtype=torch.float64,
        **made,
    )
    X = torch.from_numpy(numbers(b, n, 8)).requires_grad_()
    weights = [
        x.weight.mT for x in (layer.q_proj, layer.k_proj, layer.v_proj, layer.out_proj)
    ]
    expected = at.multi_head_attention(
        X, X, X, *weights, h, n_kv_heads=h_kv, **options, **made
    )
    agrees([layer.eval()(X, **options)], [expected.detach().numpy()])
    output = layer.train()(X, **options)
    assert torch.allclose(output, expected) == ("dropout" not in names)
    assert all(
        x.isfinite().all() for x in gradients([output], [X, *layer.parameters()])
    )


# Nothing to do


def letters(name):
    left, right = SHAPED[name].split("->")
    inside = [
        [x.split(",") for x in re.findall(r"\((.*?)\)", side)] for side in (left, right)
    ]
    return inside[0], inside[1]


def shape_of(core, sizes):
    """(n, d/h) in numbers."""
    whole = {k: x for k, x in sizes.items() if k.isidentifier()}
    return tuple(int(eval(x.replace("/", "//"), {}, whole)) for x in core)


EMPTY = [
    (half, name, letter)
    for half, name in BOTH
    for letter in dict.fromkeys(itertools.chain(*letters(name)[0]))
    if letter != "1"
]


# Where the width is in the scale, or where zeros have features that are not 0.
NOT_BY_ZEROS = "latent_attention", "merge_heads", "split_heads", "linear_attention"
LINKED = {("latent_attention", "r"): "re", ("latent_attention", "e"): "re"}
for several in ("multi_head_attention", "multi_head_weights"):  # which heads must fit
    LINKED |= {(several, x): both for both in ("ab", "ce") for x in both}


@pytest.mark.parametrize(("half", "name", "letter"), EMPTY)
def test_an_axis_of_length_0(half, name, letter, inputs):
    """Without keys the output is 0; without entries a vector counts as one of zeros; without queries there is none."""
    fn, (cores, outputs) = getattr(half, name), letters(name)
    lengths = dict.fromkeys(LINKED.get((name, letter), [letter]), 0)
    drawn = {k: native(half, x) for k, x in inputs(name, (2,), **lengths).items()}
    found = results(fn(*drawn.values()))
    sizes = {"1": 1, "h": 2}
    for core, x in zip(cores, drawn.values(), strict=False):
        sizes |= zip(core, x.shape[x.ndim - len(core) :], strict=True)
    for x, core in zip(found, outputs, strict=True):
        assert tuple(x.shape) in [((2,) * k + shape_of(core, sizes)) for k in (0, 1)]
        x = np.asarray(x)
        is_log = core == ["n", "1"] and letter == "m"
        assert np.isneginf(x).all() if is_log else np.isfinite(x).all()
        if letter == "m" and not is_log:
            assert not x.any()
    contracted = (
        len(cores[0]) > 1
        and letter not in "nm"
        and letter not in {*itertools.chain(*outputs)}
    )
    if contracted and name not in NOT_BY_ZEROS:
        wider = inputs(name, (2,), **dict.fromkeys(lengths, 2))
        for k, core in zip(wider, cores, strict=False):
            if {*lengths} & {*core}:
                wider[k][...] = 0
            else:
                wider[k][...] = np.asarray(drawn[k])
        zeros = results(fn(*(native(half, x) for x in wider.values())))
        agrees(found, [np.asarray(x) for x in zeros])


@pytest.mark.parametrize(("half", "name"), BOTH)
@pytest.mark.parametrize("batch", [(0,), (2, 0), (0, 3)], ids=str)
def test_no_sequence_at_all(half, name, batch, inputs):
    """Batch axes of length 0 come through."""
    fn = getattr(half, name)
    for lengths, options in calls(fn):
        drawn = {k: native(half, x) for k, x in inputs(name, batch, **lengths).items()}
        for x in results(fn(*drawn.values(), **options)):
            assert math.prod(x.shape) == 0 or not len(x.shape)
            assert tuple(x.shape[: len(batch)]) == batch


@HALVES
@pytest.mark.parametrize(
    "name",
    ["attention", "partial_attention", "gaussian_attention", "attention_weights"],
)
@pytest.mark.parametrize(
    "sizes",
    [
        (0, 2, 300, 300),
        (2, 0, 300, 300),
        (2, 2, 0, 300),
        (2, 2, 300, 0),
        (0, 0, 1800, 1800),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "kind", ["window", "lengths", "documents", "prefix", "slopes", "mask", "bias"]
)
def test_nothing_under_any_rule(half, name, sizes, kind):
    """Forward, and in torch backward."""
    b, h, n, m = sizes
    count = native(half, np.full((b, 1), m // 2))
    options = {
        "window": lambda: {"causal": True, "window": half.Window(9, sinks=2)},
        "lengths": lambda: {"mask": half.valid(count), "causal": True},
        "documents": lambda: {
            "mask": half.documents(native(half, np.zeros((b, 1, m), int)))
        },
        "prefix": lambda: {"mask": half.prefix(count)},
        "slopes": lambda: {
            "bias": half.alibi(native(half, np.ones(h))),
            "causal": True,
        },
        "mask": lambda: {"mask": native(half, np.ones((n, m), bool))},
        "bias": lambda: {"bias": native(half, np.ones((n, m))), "causal": True},
    }[kind]()
    if kind == "documents" and n > m:
        return
    arrays = [native(half, np.ones((b, h, k, 4))) for k in (n, m, m)]
    arrays = arrays[:2] if name == "attention_weights" else arrays
    if half is at:
        arrays = [x.requires_grad_() for x in arrays]
    found = results(getattr(half, name)(*arrays, **options))
    width = m if name == "attention_weights" else 4
    assert tuple(found[0].shape) == (b, h, n, width)
    if half is at:
        slopes = torch.autograd.grad(found[0].sum(), arrays, allow_unused=True)
        assert not any(x is not None and x.any() for x in slopes)
        found = [x.detach() for x in found]
    assert not np.asarray(found[0]).any()


# One for each sequence, beside an axis for heads

PER_SEQUENCE = {
    "valid": lambda half, m: half.valid(native(half, np.array([1, 2]))),
    "prefix": lambda half, m: half.prefix(native(half, np.array([1, 2]))),
    "documents": lambda half, m: half.documents(
        native(half, np.arange(2 * m).reshape(2, m) // 3)
    ),
    "both": lambda half, m: half.valid(native(half, np.array([1, 2]))) & half.Causal(),
    "padding_mask": lambda half, m: half.padding_mask(
        native(half, np.array([1, 2])), m
    ),
}


@HALVES
@pytest.mark.parametrize("kind", PER_SEQUENCE)
@pytest.mark.parametrize("h", [2, 3])
@pytest.mark.parametrize(
    "name",
    [
        "attention",
        "attention_weights",
        "partial_attention",
        "gaussian_attention",
        "attend",
        "attention_vjp",
        "check_mask",
    ],
)
def test_lengths_of_sequences_are_not_read_by_head(half, kind, h, name):
    if not hasattr(half, name):
        return
    n = 5
    arrays = [native(half, numbers(2, h, n, n)) for _ in range(4)]
    count = {"attention_weights": 2, "attend": 2, "check_mask": 2, "attention_vjp": 4}
    with pytest.raises(ValueError, match=r"None|must broadcast|do not broadcast"):
        getattr(half, name)(*arrays[: count.get(name, 3)], PER_SEQUENCE[kind](half, n))


@HALVES
@pytest.mark.parametrize("kind", PER_SEQUENCE)
@pytest.mark.parametrize("h", [2, 3])
def test_lengths_of_sequences_in_many_heads(half, kind, h):
    """Each sequence by itself gives the same."""
    X, W = numbers(2, 5, 6), [numbers(6, 6) / 2 + k for k in range(4)]
    given = [native(half, x) for x in (X, X, X, *W)]
    mask = PER_SEQUENCE[kind](half, 5)
    found = half.multi_head_attention(*given, h, mask)
    words = {
        "valid": lambda i, j, s: j < s + 1,
        "prefix": lambda i, j, s: (j < s + 1) | (j <= i),
        "documents": lambda i, j, s: (5 * s + i) // 3 == (5 * s + j) // 3,
        "both": lambda i, j, s: (j < s + 1) & (j <= i),
        "padding_mask": lambda i, j, s: (j < s + 1) & (i >= 0),
    }[kind]
    i, j = np.ogrid[:5, :5]
    for s in range(2):
        one = [native(half, x[s]) for x in (X, X, X)]
        alone = half.multi_head_attention(
            *one, *given[3:], h, native(half, words(i, j, s))
        )
        agrees([found[s]], [np.asarray(alone)])
    if half is at:
        block = at.Block(6, h, positions="alibi", causal=True).double()
        for layer in (block.attention, block):
            together = layer(given[0], mask=mask)
            for s in range(2):
                alone = layer(given[0][s], mask=native(at, words(i, j, s)))
                agrees([together[s]], [alone.detach().numpy()])


# Rules together


@HALVES
@given(problem=problems(), causal=st.booleans(), window=st.none() | st.integers(1, 9))
def test_rules_together_are_their_dense_mask(half, problem, causal, window):
    words, n, m = problem
    mask, options = dense(words, n, m), {"mask": rule(half, words)}
    if causal:
        options |= {"causal": True, "window": window and half.Window(window, sinks=2)}
        mask = mask & dense(("window", window, 2) if window else ("causal",), n, m)
    is_the_formula(half, options, mask, n, m)


@HALVES
@pytest.mark.parametrize(
    "words",
    [
        (
            "and",
            ("first", 120),
            ("or", ("prefix", 20), ("documents", *[k // 40 for k in range(300)])),
        ),
        ("or", ("window", 3, 4), ("and", ("dilated",), ("first", 200))),
        ("and", ("or", ("islands",), ("window", 5, 1)), ("prefix", 150)),
        ("or", ("islands",), ("and", ("odd",), ("causal",))),
    ],
    ids=[
        "lengths, prefix, documents",
        "window or dilated",
        "islands or a window",
        "islands or odd",
    ],
)
def test_rules_together_in_many_blocks(half, words):
    for n in (300, 140):
        is_the_formula(half, {"mask": rule(half, words)}, dense(words, n, 300), n, 300)


def is_the_formula(half, options, mask, n, m):
    given = [numbers(n, 3), numbers(m, 3), numbers(m, 2)]
    for name in ("attention", "partial_attention"):
        scaled = [given[0] * (4 / 3) ** 0.5, *given[1:]]  # to the width of its oracle
        expected, slopes = oracle(name, scaled, mask, None)
        if half is an:
            agrees(results(getattr(an, name)(*given, **options)), expected)
            continue
        leaves = [torch.from_numpy(x).requires_grad_() for x in given]
        outputs = results(getattr(at, name)(*leaves, **options))
        agrees(outputs, expected)
        slopes[0] *= (4 / 3) ** 0.5
        agrees(gradients(outputs, leaves), slopes)


# Half precision


@HALVES
@pytest.mark.parametrize(
    "kind", ["plain", "bias", "alibi", "window", "lengths", "mask", "shared heads"]
)
@pytest.mark.parametrize(
    "name",
    ["attention", "gaussian_attention", "bilinear_attention", "attention_weights"],
)
def test_half_precision_errs_by_little_more_than_rounding(half, kind, name, inputs):
    """Queries times 4 and 512 tokens: what is before the softmax is computed in single precision."""
    n, dtype = 512, torch.bfloat16 if half is at else torch.float16
    if kind == "shared heads" and name != "attention":
        return
    args = inputs(name, (2,), n=n, m=n)
    args[next(iter(args))] *= 4
    rounded = [torch.from_numpy(x).to(dtype) for x in args.values()]
    if kind == "shared heads":
        rounded[1:] = [x[:1] for x in rounded[1:]]
    exact = [x.double().numpy() for x in rounded]
    bias = 3 * numbers(n, n).astype(np.float32)

    def options(half, bias=bias):
        kinds = {
            "bias": {"bias": native(half, bias)},
            "alibi": {"bias": half.alibi(2), "causal": True},
            "window": {"causal": True, "window": 64},
            "lengths": {"mask": half.valid(native(half, np.array(400)))},
            "mask": {"mask": native(half, numbers(n, n) < 0.5)},
            "shared heads": {"n_kv_heads": 1, "causal": True},
        }
        return kinds.get(kind, {})

    expected = getattr(an, name)(*exact, **options(an))
    ready = rounded if half is at else [x.numpy() for x in rounded]
    found = getattr(half, name)(*ready, **options(half))
    found = found.double().numpy() if half is at else found.astype(float)
    rounding = abs(torch.from_numpy(expected).to(dtype).double().numpy() - expected)
    assert abs(found - expected).max() <= 2.2 * rounding.max()


def test_a_hidden_nan_reaches_no_gradient_of_a_bilinear_matrix():
    M = torch.ones(1, 1, requires_grad=True)
    Q, K = torch.tensor([[1.0], [torch.nan]]), torch.ones(2, 1)
    seen = torch.tensor([[True, True], [False, False]])
    at.bilinear_attention(Q, K, K, M, seen).sum().backward()
    assert M.grad.isfinite().all()


@pytest.mark.parametrize("dropped", [0, 1, 7])
def test_documents_beside_a_cache_that_drops_tokens(dropped):
    """The rule's numbers are those of all tokens, whatever the cache holds."""
    torch.manual_seed(0)
    layer, n = at.MultiHeadAttention(8, 2, causal=True, window=4), 4 + dropped
    X, ids = torch.randn(n, 8), torch.arange(n) // 3
    cache, outputs = at.KVCache(window=4), []
    with torch.no_grad():
        for stop in range(1, n + 1):
            rule = at.documents(ids[:stop])
            outputs.append(layer(X[stop - 1 : stop], mask=rule, cache=cache))
        assert torch.allclose(torch.cat(outputs), layer(X, mask=at.documents(ids)), atol=1e-6)  # fmt: skip


@pytest.mark.parametrize("lib", [an, at])
def test_a_permitted_score_of_minus_infinity_is_0_over_0(lib):
    give = np.array if lib is an else torch.tensor
    scores = give([[-np.inf, 1.0], [-np.inf, -np.inf], [0.0, -np.inf]])
    seen = give([[True, False], [True, True], [True, True]])
    assert lib.masked_softmax(scores, seen).tolist() == [[0, 0], [0, 0], [1, 0]]


def test_half_precision_beside_double_is_double():
    output = an.attention(np.ones((1, 1), np.float16), np.ones((1, 1)), np.full((1, 1), 1e6))  # fmt: skip
    assert output.dtype == np.float64 and output.tolist() == [[1e6]]


def test_a_count_may_be_a_number_of_numpy():
    X, lengths = np.arange(10.0).reshape(5, 2), np.array([3, 2])
    assert an.attention(X * 0, X, X, an.First(lengths.max()))[0].tolist() == [2, 3]
    assert an.attention(X * 0, X, X, an.valid(lengths[1]))[0].tolist() == [1, 2]


def test_an_array_before_a_rule_is_told_what_to_write():
    with pytest.raises(TypeError, match="an array is a rule as"):
        np.ones((2, 2), bool) & an.Causal()
