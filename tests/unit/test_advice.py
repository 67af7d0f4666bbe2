"""What an error advises is followed here, word for word, and must give the right number."""

import itertools
import re

import numpy as np
import pytest
import torch

import attn_tutor.numpy as an
import attn_tutor.torch as at

LENGTHS = range(1, 5)
MEANINGS = {  # the words beside an advised expression: what it says of sequence s, head h, query i and key j
    "row for each sequence": lambda X, s, h, i, j: X[s, j],
    "one for each sequence": lambda X, s, h, i, j: X[s, i, j],
    "one for each head": lambda X, s, h, i, j: X[h, i, j],
    "axis for heads is too many": lambda X, s, h, i, j: X[s, 0, i, j],
}
PATTERNS = [
    r"(?P<words>row for each sequence) is (?P<code>mask\[.*?\])\.",
    r"(?P<words>[Oo]ne for each sequence) is (?P<code>mask\[.*?\])\.",
    r"(?P<words>axis for heads is too many): (?P<code>mask\[.*?\])\.",
    r"(?P<code>(mask|Q)\[[^\]]*\]) for (?P<words>one for each (sequence|head))",
]


@pytest.fixture(params=[an, at], ids=["numpy", "torch"])
def lib(request):
    return request.param


def native(lib, x):
    return torch.from_numpy(x) if lib is at else x


def numbers(*shape):
    return np.random.default_rng(7).normal(size=shape)


def advised(message):
    """Each expression of a message, with the words that say what it means."""
    return [
        (x["words"].lower(), x["code"])
        for pattern in PATTERNS
        for x in re.finditer(pattern, message)
    ]


def spread(mask, words, sizes):
    """The mask that the words speak of, with every axis."""
    places = np.ogrid[tuple(map(slice, sizes))]
    return np.broadcast_to(MEANINGS[words](Clipped(mask), *places), sizes).copy()


class Clipped:
    """An array whose axes of length 1 may be indexed with any number."""

    def __init__(self, X):
        self.X = X

    def __getitem__(self, index):
        lengths = zip(index, self.X.shape, strict=True)
        return self.X[tuple(x * (size > 1) for x, size in lengths)]


def attention(lib, heads):
    """A call on a mask of sequences and heads."""
    b, h, n, m = heads
    Q, K, V = (native(lib, numbers(b, h, rows, 2)) for rows in (n, m, m))
    return lambda mask: lib.attention(Q, K, V, mask)


def multi_head_attention(lib, heads):
    b, h, n, m = heads
    Q, K = (native(lib, numbers(b, rows, 2 * h)) for rows in (n, m))
    W = [native(lib, numbers(2 * h, 2 * h) / (2 * h) ** 0.5) for _ in range(4)]
    return lambda mask: lib.multi_head_attention(Q, K, K, *W, h, mask)


def shapes_of(b, h, n, m):
    """Masks of every rank that people write: right ones, and such as lack an axis or have one too many."""
    rows = {(), (m,), (n, m), (1, m), (n, 1), (b, m), (h, m)}
    for core in ((n, m), (1, m)):
        rows |= {(b, *core), (h, *core), (b, 1, *core), (1, h, *core), (b, h, *core)}
    return sorted(rows)


@pytest.mark.parametrize("call", [attention, multi_head_attention], ids=lambda f: f.__name__)  # fmt: skip
def test_what_is_advised_of_a_mask_gives_what_it_says(lib, call):
    followed = set()
    for sizes in itertools.product(LENGTHS, repeat=4):
        compute = call(lib, sizes)
        for shape in shapes_of(*sizes):
            mask = np.asarray(numbers(*shape) < 0.5)
            try:
                compute(native(lib, mask))
                continue
            except ValueError as error:
                message = str(error)
            for words, code in advised(message):
                full = spread(mask, words, sizes)
                better = eval(code, {"mask": native(lib, mask)})
                expected = compute(native(lib, full))
                np.testing.assert_allclose(
                    compute(better), expected, err_msg=f"{sizes} {shape}: {message}"
                )
                followed.add(words)
    in_heads = call is multi_head_attention  # where three axes are clear
    assert followed == {*MEANINGS} - {"axis for heads is too many"} - (
        {"one for each sequence", "one for each head"} if in_heads else set()
    )


@pytest.mark.parametrize("batch", [(), (3, 3)])
def test_a_multi_head_mask_that_could_be_two_things(lib, batch):
    X = native(lib, numbers(*batch, 5, 6))
    W = [native(lib, numbers(6, 6)) for _ in range(4)]
    mask = native(lib, np.asarray(numbers(*(batch or (3,)), 1, 5) < 0.5))

    def compute(mask, X=X):
        return np.asarray(lib.multi_head_attention(X, X, X, *W, 3, mask))

    with pytest.raises(ValueError) as error:
        compute(mask)
    codes = dict(advised(str(error.value)))
    for_heads = compute(eval(codes["one for each head"], {"mask": mask}))
    by_sequence = codes["one for each sequence"]
    if batch:  # masks with every axis are clear
        np.testing.assert_array_equal(for_heads, compute(mask[None]))
        for_sequences = compute(eval(by_sequence, {"mask": mask}))
        np.testing.assert_array_equal(for_sequences, compute(mask[:, :, None]))
        return
    for_sequences = compute(mask, eval(by_sequence, {"Q": X}))
    np.testing.assert_allclose(for_sequences, [compute(x) for x in mask])
    heads = lib.attention(*(lib.split_heads(X @ w, 3) for w in W[:3]), mask)
    np.testing.assert_allclose(for_heads[0], lib.merge_heads(heads) @ W[3])


def test_a_row_for_each_sequence_beside_heads(lib):
    Q = native(lib, numbers(4, 4, 6, 8))
    with pytest.raises(ValueError, match=re.escape("is mask[:, None, None, :].")):
        lib.attention(Q, Q, Q, native(lib, np.ones((4, 6), bool)))


def test_an_axis_for_heads_that_is_too_many(lib):
    for b, n, m in itertools.product(range(2, 5), LENGTHS, LENGTHS):
        Q, K = (native(lib, numbers(b, rows, 2)) for rows in (n, m))
        mask = native(lib, np.asarray(numbers(b, 1, n, m) < 0.5))
        with pytest.raises(ValueError) as error:
            lib.attention(Q, K, K, mask)
        ((words, code),) = advised(str(error.value))
        assert words == "axis for heads is too many"
        output = lib.attention(Q, K, K, eval(code, {"mask": mask}))
        np.testing.assert_array_equal(output, lib.attention(Q, K, K, mask[:, 0]))


def test_heads_that_share_keys(lib):
    for b, h_kv, times, n in itertools.product(LENGTHS, range(2, 4), range(2, 4), LENGTHS):  # fmt: skip
        Q, K = (native(lib, numbers(b, h, n, 2)) for h in (h_kv * times, h_kv))
        with pytest.raises(ValueError, match="give n_kv_heads, how many K has"):
            lib.attention(Q, K, K)
        wide = native(lib, np.repeat(np.asarray(K), times, 1))
        output = lib.attention(Q, K, K, n_kv_heads=K.shape[1])
        np.testing.assert_allclose(output, lib.attention(Q, wide, wide))


def test_an_array_of_a_rule(lib):
    for b, h, n in itertools.product(range(2, 5), LENGTHS, LENGTHS):
        Q = native(lib, numbers(b, h, n, 2))
        lengths = np.arange(b) % (n + 1)
        with pytest.raises(ValueError) as error:
            lib.attention(Q, Q, Q, lib.valid(native(lib, lengths)))
        match = re.search(r"array(\[.*?\]) has one for each sequence", str(error.value))
        better = eval(f"array{match[1]}", {"array": native(lib, lengths)})
        mask = native(lib, np.arange(n) < lengths[:, None, None, None])
        np.testing.assert_allclose(
            lib.attention(Q, Q, Q, lib.valid(better)), lib.attention(Q, Q, Q, mask)
        )


def test_a_flag_given_as_the_mask(lib):
    Q = native(lib, numbers(3, 2))
    with pytest.raises(TypeError, match="got bool; causal=True hides later keys"):
        lib.attention(Q, Q, Q, True)
    with pytest.raises(TypeError, match="got bool; mask=None hides nothing"):
        lib.attention(Q, Q, Q, False)


def test_functions_given_as_mask_and_bias(lib):
    Q = native(lib, numbers(3, 2))
    for name, value in (("mask", lambda i, j: j <= i), ("bias", lambda i, j: j - i)):
        with pytest.raises(TypeError, match=f"{name}=(Rule|Bias)") as error:
            lib.attention(Q, Q, Q, **{name: value})
        code = re.search(r"=((Rule|Bias)\(\w+\)) takes", str(error.value))[1]
        scope = {"Rule": lib.Rule, "Bias": lib.Bias, name: value}
        i, j = (native(lib, np.arange(3).reshape(x)) for x in ((3, 1), (3,)))
        np.testing.assert_allclose(
            lib.attention(Q, Q, Q, **{name: eval(code, scope)}),
            lib.attention(Q, Q, Q, **{name: value(i, j)}),
        )
    with pytest.raises(TypeError, match=re.escape("mask=Causal() is one")):
        lib.attention(Q, Q, Q, lib.Causal)


def test_a_layer_given_as_a_matrix(lib):
    X = native(lib, numbers(3, 4))
    layers = [torch.nn.Linear(4, k, bias=False).double() for k in (2, 2, 3)]
    W = {name: x for name, x in zip(("W_q", "W_k", "W_v"), layers, strict=True)}
    for _ in W:
        with pytest.raises(TypeError) as error:
            lib.self_attention(X, **W)
        name, code = re.search(r"(W_.) must .*; (.*) is its matrix", str(error.value)).groups()  # fmt: skip
        W[name] = eval(code, {name: W[name]})
    tokens = torch.from_numpy(np.asarray(X))
    with torch.no_grad():
        expected = at.attention(*(layer(tokens) for layer in layers))
        np.testing.assert_allclose(lib.self_attention(X, **W), expected)


def test_a_mask_of_ones_and_zeros(lib):
    Q, ones = native(lib, numbers(3, 2)), np.array([1, 0, 1])
    with pytest.raises(TypeError) as error:
        lib.attention(Q, Q, Q, native(lib, ones))
    code = re.search(r"; (mask\..*?\)) makes one", str(error.value))[1]
    better = eval(code, {"mask": native(lib, ones)})
    expected = lib.attention(Q, Q, Q, native(lib, ones > 0))
    np.testing.assert_array_equal(lib.attention(Q, Q, Q, better), expected)


def test_lists_and_arrays_of_the_other_half(lib):
    Q = native(lib, numbers(3, 2))
    scope = {"torch": torch, "numpy": np}
    for K in (Q.tolist(), native(an if lib is at else at, numbers(3, 2))):
        with pytest.raises(TypeError) as error:
            lib.dot_score(Q, K)
        code = re.search(r"; (.*) makes one", str(error.value))[1]
        better = eval(code, scope | {"K": K})
        np.testing.assert_allclose(
            lib.dot_score(*([better] * 2)), lib.dot_score(Q, Q), rtol=1e-6
        )


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_and_small_tensors():
    rows = [torch.ones(3, 4), torch.full((5, 4), 2.0)]
    for layout in (torch.jagged, torch.strided):
        nested = torch.nested.nested_tensor(rows, layout=layout)
        for call in (
            lambda Q: at.attention(Q, Q, Q, at.valid(torch.tensor([3, 5]))),
            lambda Q: at.MultiHeadAttention(4, 2)(Q),
        ):
            with pytest.raises(TypeError, match="Q is a nested tensor") as error:
                call(nested)
            code = re.search(r"; (torch.*?\)) makes", str(error.value))[1]
            call(eval(code, {"torch": torch, "Q": nested}))
        padded = eval(code, {"torch": torch, "Q": nested})
        output = at.attention(padded, padded, padded, at.valid(torch.tensor([3, 5])))
        torch.testing.assert_close(output[0, :3], rows[0])
    Q = rows[0].to(torch.float8_e4m3fn)
    with pytest.raises(TypeError, match="is for storage") as error:
        at.attention(Q, Q, Q)
    code = re.search(r"; (Q.*?\)) can", str(error.value))[1]
    assert at.attention(*[eval(code, {"Q": Q})] * 3).dtype == torch.bfloat16


def test_names_of_other_libraries(lib):
    X = native(lib, numbers(2, 3, 4))
    hidden = native(lib, np.array([[False, False, True], [False, True, True]]))
    expected = lib.attention(X, X, X, ~hidden[:, None, :])
    heads = X[:, None] if lib is an else X[:, None].expand(2, 2, 3, 4)
    for word, value in (("key_padding_mask", hidden), ("attention_mask", ~hidden)):
        for Q in (X, heads):
            with pytest.raises(TypeError, match=f"attention: {word} is") as error:
                lib.attention(Q, Q, Q, **{word: value})
            code = re.search(r"is mask=(.*) here", str(error.value))[1]
            if lib is an:
                code = code.replace(".bool()", "")
            output = lib.attention(Q, Q, Q, eval(code, {word: value}))
            np.testing.assert_allclose(output, expected if Q is X else expected[:, None] + 0 * Q)  # fmt: skip
    with pytest.raises(TypeError, match="rotary: theta is base here"):
        lib.rotary(X, theta=500.0)


def test_names_of_other_layers():
    for names, advice in (
        ({"embed_dim": 4, "num_heads": 2}, "(d_model|n_heads) here"),
        ({"d_model": 4, "n_heads": 2, "batch_first": True}, "always true here"),
        (
            {"d_model": 4, "n_heads": 2, "head_dim": 3},
            "d_h here, in MultiHeadAttention",
        ),
    ):
        for layer in (at.MultiHeadAttention, at.Block):
            with pytest.raises(TypeError, match=f"^{layer.__name__}: .* is {advice}"):
                layer(**names)
    model = at.LanguageModel(5, 4, 2, 1)
    with pytest.raises(TypeError, match="max_new_tokens is n_new here"):
        model.generate(torch.tensor([[1]]), max_new_tokens=2)


@torch.no_grad()
def test_caches_that_are_none():
    model, X = at.LanguageModel(5, 4, 2, 2), torch.ones(1, 1, 4)
    with pytest.raises(TypeError, match="^LanguageModel: caches holds a tuple, not a KVCache"):  # fmt: skip
        model(torch.tensor([[1]]), caches=[(X, X), (X, 2 * X)])


@torch.no_grad()
@pytest.mark.parametrize("make", [at.Block, at.MultiHeadAttention])
def test_a_mask_that_does_not_span_the_cache(make):
    """It is refused before the cache grows, so that the right call can follow."""
    layer, X = make(8, 2, causal=True), torch.randn(1, 5, 8)
    whole = layer(X)
    for kept in {}, {"window": 9}:
        cache = at.KVCache(**kept)
        layer(X[:, :3], cache=cache)
        for m in 2, 6:
            words = f"^MultiHeadAttention: mask has {m} keys, but the cache keeps 3 and 2 come"
            with pytest.raises(ValueError, match=words):
                layer(X[:, 3:], mask=torch.ones(1, 2, m).bool(), cache=cache)
        assert len(cache) == 3
        output = layer(X[:, 3:], mask=torch.ones(1, 2, 5).bool(), cache=cache)
        torch.testing.assert_close(output, whole[:, 3:])


def test_names_that_nobody_knows(lib):
    X = native(lib, np.ones((3, 2)))
    with pytest.raises(TypeError, match=r"^attention\(\) got an unexpected keyword"):
        lib.attention(X, X, X, width=3)
    with pytest.raises(TypeError, match=r"^attention: softcap is attend\(c \* tanh"):
        lib.attention(X, X, X, softcap=3.0)


@torch.no_grad()
def test_a_tuple_given_as_a_cache():
    layer, X = at.MultiHeadAttention(4, 2, causal=True), torch.ones(1, 3, 4)
    whole = at.KVCache()
    layer(X, cache=whole)
    pair = K, V = whole.append(torch.zeros(1, 2, 0, 2), torch.zeros(1, 2, 0, 2))
    with pytest.raises(TypeError, match="cache must be a KVCache, got tuple") as error:
        layer(X[:, :1], cache=pair)
    code = re.search(r"(cache = .*) fills one", str(error.value))[1]
    scope = {"KVCache": at.KVCache, "K": K, "V": V}
    exec(code, scope)
    cache = scope["cache"]
    torch.testing.assert_close(
        layer(X[:, :1], cache=cache), layer(X[:, :1], cache=whole)
    )
