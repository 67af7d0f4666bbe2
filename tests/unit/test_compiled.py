"""Under torch.compile and torch.export: one graph for the first length, one for all others, no break, one number."""

import pytest
import torch
from torch import nn

import attn_tutor.torch as at

pytestmark = [
    pytest.mark.slow,
    # torch itself uses what it deprecates.
    pytest.mark.filterwarnings("ignore:.torch.jit.script"),
]
LENGTHS = 3, 5, 8, 9, 13, 17, 21, 30, 31, 64, 65, 100
generator = torch.Generator().manual_seed(0)
W = [torch.randn(12, 12, generator=generator) / 3 for _ in range(4)]
w_v = torch.randn(12, generator=generator)

CALLS = {
    "attention": lambda X: at.attention(X, X, X, causal=True),
    "window": lambda X: at.attention(X, X, X, causal=True, window=4),
    "sinks": lambda X: at.attention(X, X, X, causal=True, window=at.Window(4, sinks=2)),
    "lengths": lambda X: at.attention(
        X, X, X, at.valid(torch.full((len(X),), 2)), causal=True
    ),
    "a rule": lambda X: at.attention(X, X, X, at.Rule(lambda i, j: (i - j) % 2 == 0)),
    "slopes": lambda X: at.attention(
        X[:, None], X[:, None], X[:, None], bias=at.alibi(1), causal=True
    ),
    "partial": lambda X: at.partial_attention(X, X, X, causal=True)[0],
    "bias": lambda X: at.attention(X, X, X, bias=at.alibi_bias(1, X.shape[1])),
    "Gaussian": lambda X: at.gaussian_attention(X, X, X, causal=True),
    "additive": lambda X: at.additive_attention(X, X, X, *W[:2], w_v, causal=True),
    "self": lambda X: at.self_attention(X, *W[:3], causal=True),
    "heads": lambda X: at.multi_head_attention(X, X, X, *W, 3, causal=True),
    "grouped heads": lambda X: at.multi_head_attention(
        X, X, X, W[0], W[1][:, :4], W[2][:, :4], W[3], 3, causal=True, n_kv_heads=1
    ),
    "weights": lambda X: at.multi_head_weights(X, X, *W[:2], 3, causal=True),
    "padding": lambda X: at.attention(
        X, X, X, at.padding_mask(torch.full((len(X),), 2), X.shape[1])
    ),
    "rotary": lambda X: at.rotary(X),
    "partial rotary": lambda X: at.rotary(X, rates=W[0][0, :4], interleaved=False),
    "sinusoidal": lambda X: X + at.sinusoidal_encoding(X.shape[1], 12),
}
# Functions of each run, one a way through the package; the rest by `make full`: the compiler takes seconds for each.
FIRST = "attention", "additive", "heads", "padding", "mask and causal", "block"


def each(names):
    marks = {name: () if name in FIRST else pytest.mark.full for name in names}
    return pytest.mark.parametrize(
        "name", [pytest.param(name, marks=mark) for name, mark in marks.items()]
    )


def graphs_and_breaks(fn):
    """Of twelve lengths."""
    from torch._dynamo.utils import counters  # here: it loads the compiler

    torch.compiler.reset()
    counters.clear()
    graphs = []

    def count(graph, _):
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(fn, backend=count)
    for n in LENGTHS:
        X = torch.randn(2, n, 12, generator=generator)
        torch.testing.assert_close(compiled(X), fn(X), rtol=1e-4, atol=1e-5)
    return len(graphs), sum(counters["graph_break"].values())


@each(CALLS)
def test_two_graphs_serve_all_lengths(name):
    assert graphs_and_breaks(CALLS[name]) == (2, 0)


def test_torch_itself_needs_two():
    layer = nn.TransformerEncoderLayer(12, 3, batch_first=True, dropout=0.0)
    assert graphs_and_breaks(layer) == (2, 0)


@each(sorted(set(CALLS) - {"padding"}))
def test_exports_with_any_batch_and_length(name):
    from torch.export import Dim, export

    class Module(nn.Module):
        def forward(self, X):
            return CALLS[name](X)

    X = torch.randn(2, 9, 12, generator=generator)
    axes = {0: Dim("b", min=1), 1: Dim("n", min=2)}
    exported = export(Module(), (X,), dynamic_shapes=(axes,)).module()
    for b, n in ((1, 2), (3, 7), (9, 9)):
        X = torch.randn(b, n, 12, generator=generator)
        torch.testing.assert_close(exported(X), CALLS[name](X), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.uint32])
def test_lengths_of_any_dtype_make_a_mask_without_a_look(dtype, close):
    lengths = torch.tensor([3, 0, 7]).to(dtype)
    expected = torch.arange(300) < torch.tensor([[[3]], [[0]], [[7]]])
    assert torch.equal(at.padding_mask(lengths, 300), expected)
    compiled = torch.compile(at.padding_mask, backend="eager", fullgraph=True)
    assert torch.equal(compiled(lengths, 300), expected)
    rows = torch.vmap(lambda x: at.padding_mask(x[None], 300))(lengths)
    assert torch.equal(rows, expected[:, None])
    assert at.padding_mask(lengths.to("meta"), 300).shape == (3, 1, 300)


@pytest.mark.parametrize("compiled", [False, True])
def test_additive_attention_with_nothing_to_see(compiled):
    fn = at.additive_attention
    if compiled:
        fn = torch.compile(fn, backend="aot_eager", fullgraph=True)
    X = torch.randn(2, 7, 12, generator=generator)
    mask = torch.zeros(2, 1, 7, dtype=torch.bool)
    assert not fn(X, X, X, *W[:2], w_v, mask).any()


def test_a_second_batch_size_is_no_new_error():
    layer, block = at.MultiHeadAttention(8, 2), at.Block(8, 2)
    for made, axes in ((layer, 2), (layer, 3), (block, 2), (block, 3)):
        torch.compiler.reset()
        whole = torch.compile(
            made,
            backend="eager",
            fullgraph=True,
            dynamic=True if made is block else None,
        )
        for b in (3, 5, 4):
            X, mask = (
                torch.randn(b, 7, 8),
                torch.ones((b, 7, 7)[-axes:], dtype=torch.bool).tril(),
            )
            options = {"mask": mask}
            torch.testing.assert_close(whole(X, **options), made(X, **options))


def test_an_export_with_two_lengths():
    class Causal(torch.nn.Module):
        def forward(self, Q, K, V):
            return at.attention(Q, K, V, causal=True)

    n, m = torch.export.Dim("n", min=2), torch.export.Dim("m", min=2)
    given = tuple(torch.randn(2, k, 4) for k in (5, 9, 9))
    exported = torch.export.export(
        Causal(), given, dynamic_shapes=({1: n}, {1: m}, {1: m})
    ).module()
    for n, m in ((5, 9), (6, 6), (9, 5)):
        Q, K, V = (torch.randn(2, k, 4) for k in (n, m, m))
        torch.testing.assert_close(
            exported(Q, K, V), at.attention(Q, K, V, causal=True)
        )


# torch's own compiler. Values and gradients are those of eager mode, at several lengths.


class Masked(nn.Module):
    def forward(self, X):
        mask = torch.arange(X.shape[1], device=X.device) % 5 != 1
        return at.attention(X, X, X, mask, causal=True)


class Windowed(nn.Module):
    def forward(self, X):
        return at.attention(X, X, X, causal=True, window=at.Window(4, sinks=2))


class Padded(nn.Module):
    def __init__(self, as_rule=False):
        super().__init__()
        self.as_rule = as_rule
        self.layer = at.MultiHeadAttention(12, 4, n_kv_heads=2, causal=True)

    def forward(self, X):
        lengths = torch.tensor([3, 2], device=X.device)
        if self.as_rule:
            return self.layer(X, mask=at.valid(lengths))
        return self.layer(X, mask=at.padding_mask(lengths, X.shape[1]))


class Additive(nn.Module):
    def forward(self, X):
        U = torch.eye(12, device=X.device)
        return at.additive_attention(X, X, X, U, U, X[0, 0], causal=True)


class LearntBias(nn.Module):
    def __init__(self):
        super().__init__()
        self.slope = nn.Parameter(torch.ones(()))

    def forward(self, X):
        bias = at.Bias(lambda i, j: -self.slope * abs(i - j))
        i = torch.arange(X.shape[1], device=X.device)
        array = self.slope * (i[:, None] - i).abs()
        return at.attention(X, X, X, bias=bias, causal=True) + at.attention(
            X, X, X, bias=array
        )


MODULES = {
    "learnt bias": LearntBias,
    "mask and causal": Masked,
    "window": Windowed,
    "padding": Padded,
    "lengths": lambda: Padded(as_rule=True),
    "block": lambda: at.Block(12, 2, causal=True, window=4, positions="rotary"),
    "slopes": lambda: at.Block(12, 2, causal=True, positions="alibi"),
    "Gaussian": lambda: Pool(at.gaussian_attention),
    "additive": Additive,
}


class Pool(nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, X):
        return self.fn(X, X, X, causal=True)


@each(MODULES)
@pytest.mark.filterwarnings("ignore")  # of the compiler's own parts
def test_the_compiler_gives_the_number_of_eager_mode(name):
    torch.manual_seed(0)
    torch.compiler.reset()
    module = MODULES[name]()
    compiled = torch.compile(module, fullgraph=True)
    for n in (7, 9, 130, 64):
        leaves = [torch.randn(2, n, 12).requires_grad_(), *module.parameters()]
        g = torch.randn(2, n, 12)
        found, expected = (fn(leaves[0]) for fn in (compiled, module))
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
        for one, other in zip(
            *(torch.autograd.grad(x, leaves, g) for x in (found, expected)), strict=True
        ):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
