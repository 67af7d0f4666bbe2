"""Against torch itself: its fused attention, biases and multi-head layer; and our modules against our functions."""

import copy
import itertools

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import pad, scaled_dot_product_attention

import attn_tutor.numpy as an
import attn_tutor.torch as at


@pytest.fixture
def tensor(draw, device):
    return lambda *shape: torch.from_numpy(draw(*shape)).to(device)


def tensors(args, device="cpu", dtype=torch.float64):
    return {
        name: torch.from_numpy(x).to(device, dtype) if isinstance(x, np.ndarray) else x
        for name, x in args.items()
    }


# scaled_dot_product_attention


def test_fused_attention_of_torch(tensor, close):
    Q, K, V = tensor(2, 3, 7, 5), tensor(2, 3, 11, 5), tensor(2, 3, 11, 3)
    close(at.attention(Q, K, V), scaled_dot_product_attention(Q, K, V))
    mask = tensor(2, 1, 7, 11) < 0.5
    mask[..., 0] = True
    close(at.attention(Q, K, V, mask), scaled_dot_product_attention(Q, K, V, mask))
    close(
        at.attention(Q, K, V, scale=0.3),
        scaled_dot_product_attention(Q, K, V, scale=0.3),
    )
    weights = scaled_dot_product_attention(
        Q, K, torch.eye(11).to(Q).expand(2, 3, 11, 11)
    )
    close(at.attention_weights(Q, K), weights)


def test_causal_flag_of_torch(tensor, close):
    Q, K, V = tensor(2, 3, 7, 5), tensor(2, 3, 7, 5), tensor(2, 3, 7, 3)
    close(
        at.attention(Q, K, V, causal=True),
        scaled_dot_product_attention(Q, K, V, is_causal=True),
    )


@pytest.mark.parametrize(("n", "m"), [(2, 11), (7, 11), (1, 7)])
def test_lower_right_bias_of_torch(tensor, close, n, m):
    Q, K, V = tensor(2, 3, n, 5), tensor(2, 3, m, 5), tensor(2, 3, m, 5)
    expected = scaled_dot_product_attention(Q, K, V, causal_lower_right(n, m))
    close(at.attention(Q, K, V, causal=True), expected)
    upper_left = scaled_dot_product_attention(Q, K, V, is_causal=True)
    assert not torch.allclose(expected, upper_left)


def test_grouped_heads_of_torch(tensor, close):
    Q, K, V, eye = tensor(2, 7, 12), tensor(2, 11, 6), tensor(2, 11, 6), torch.eye
    heads = at.split_heads(Q, 6), at.split_heads(K, 3), at.split_heads(V, 3)
    expected = at.merge_heads(scaled_dot_product_attention(*heads, enable_gqa=True))
    W_q, W_kv = eye(12).to(Q), eye(6).to(Q)
    close(
        at.multi_head_attention(Q, K, V, W_q, W_kv, W_kv, W_q, 6, n_kv_heads=3),
        expected,
    )


@pytest.mark.parametrize("h_kv", [1, 2, 3, 6])
def test_heads_that_share_keys(tensor, close, h_kv):
    """As ``enable_gqa`` has it, with every rule as if each head had keys of its own, and the gradient too."""
    Q, K, V = tensor(2, 6, 7, 5), tensor(2, h_kv, 11, 5), tensor(2, h_kv, 11, 3)
    expected = scaled_dot_product_attention(Q, K, V, enable_gqa=True)
    close(at.attention(Q, K, V, n_kv_heads=h_kv), expected)
    each, bias = tensor(2, 6, 7, 11) < 0.7, tensor(6, 1, 11)
    leaves = [X.clone().requires_grad_() for X in (Q, K, V)]

    def cases(lib, give):
        hidden, lengths = (
            give(each[:1] < 1),
            give(torch.tensor([[9], [4]]).to(Q.device)),
        )
        # Query 6 is the last and stands at key 10.
        rules = lib.valid(lengths) & lib.Rule(lambda i, j: hidden[..., i - 4, j])
        return (
            {"mask": give(each)},
            {"mask": rules, "causal": True, "window": lib.Window(3, sinks=1)},
            {"bias": lib.alibi(6), "causal": True},
            {"bias": give(bias), "scale": 0.3, "mask": give(each[:, :1])},
        )

    for options, twin in zip(
        cases(at, lambda X: X), cases(an, lambda X: X.cpu().numpy()), strict=True
    ):
        q, k, v = leaves
        wide = [X.repeat_interleave(6 // h_kv, 1) for X in (k, v)]
        expected = at.attention(q, *wide, **options)
        output = at.attention(q, k, v, n_kv_heads=h_kv, **options)
        close(output, expected)
        g = torch.ones_like(output).cumsum(-2)
        theirs = torch.autograd.grad(expected, leaves, g)
        for one, other in zip(torch.autograd.grad(output, leaves, g), theirs, strict=True):  # fmt: skip
            close(one, other)
        if Q.device.type == "cpu":
            arrays = (X.numpy() for X in (Q, K, V))
            close(an.attention(*arrays, n_kv_heads=h_kv, **twin), expected)


# nn.MultiheadAttention, both ways


def torch_layer(device, **options):
    layer = nn.MultiheadAttention(
        12, 3, batch_first=True, dtype=torch.float64, device=device, **options
    )
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if "bias" in name:  # torch starts them at 0, where a mix-up goes unseen
                nn.init.normal_(parameter)
    return layer


OPTIONS = [
    {},
    {"bias": False},
    {"kdim": 5, "vdim": 7},
    {"kdim": 5, "vdim": 7, "bias": False},
    {"dropout": 0.25},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_layer_of_torch(tensor, close, device, options):
    theirs = torch_layer(device, **options).eval()
    ours = at.MultiHeadAttention.from_torch(theirs)
    Q = tensor(2, 7, 12)
    K, V = (
        tensor(2, 11, options.get("kdim", 12)),
        tensor(2, 11, options.get("vdim", 12)),
    )
    output, weights = theirs(Q, K, V, average_attn_weights=False)
    close(ours(Q, K, V), output)
    for found, expected in zip(
        ours(Q, K, V, need_weights=True), (output, weights), strict=True
    ):
        close(found, expected)
    close(ours(Q, K, V, need_weights=True)[1].mean(-3), theirs(Q, K, V)[1])
    learnt = with_biases(ours, "qk")
    close(at.multi_head_weights(*with_one(Q, K), *learnt, 3), weights)
    assert ours.dropout == theirs.dropout
    back = ours.to_torch()
    close(back(Q, K, V)[0], output)
    assert back.batch_first and back.dropout == theirs.dropout
    for name, parameter in theirs.state_dict().items():
        assert torch.equal(back.state_dict()[name], parameter), name


def test_masks_of_torch_are_the_opposite(tensor, close, device):
    theirs = torch_layer(device)
    ours = at.MultiHeadAttention.from_torch(theirs)
    X, Y = tensor(2, 7, 12), tensor(2, 11, 12)
    padded = torch.arange(11, device=device) >= torch.tensor(
        [[3], [9]], device=device
    )  # True = is padding
    valid = at.padding_mask(
        torch.tensor([3, 9], device=device), 11
    )  # True = may attend
    expected, weights = theirs(
        X, Y, Y, key_padding_mask=padded, average_attn_weights=False
    )
    output, heads = ours(X, Y, Y, valid, need_weights=True)
    close(output, expected)
    close(heads, weights)
    forbidden = ~at.causal_mask(7, device=device)
    close(ours(X, mask=~forbidden), theirs(X, X, X, attn_mask=forbidden)[0])
    close(
        at.MultiHeadAttention.from_torch(theirs, causal=True)(X),
        theirs(X, X, X, attn_mask=forbidden)[0],
    )


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_state_travels(device, training, dtype):
    theirs = nn.MultiheadAttention(12, 3, dtype=dtype, device=device).train(training)
    ours = at.MultiHeadAttention.from_torch(theirs)
    back = ours.to_torch()
    for layer in (ours, back):
        assert layer.training is training
        assert {p.dtype for p in layer.parameters()} == {dtype}
        assert {p.device.type for p in layer.parameters()} == {device}
    with torch.no_grad():  # copies, not views
        ours.q_proj.weight.zero_()
        ours.out_proj.bias.fill_(5)
    assert theirs.in_proj_weight.any() and not theirs.out_proj.bias.any()
    assert back.in_proj_weight[:12].any() and not back.out_proj.bias.any()


# Modules are their functions


def matrices(layer, names):
    """What the functions multiply tokens with, on the right; torch's linear layers hold the transposed."""
    return [getattr(layer, f"{name}_proj").weight.mT for name in names]


def with_biases(layer, names):
    """The same with a last row of biases, for tokens with a last entry of 1."""
    projections = [getattr(layer, f"{name}_proj") for name in names]
    return [
        pad(proj.weight.mT, (0, 0, 0, 1))
        if proj.bias is None
        else torch.cat([proj.weight.mT, proj.bias[None]])
        for proj in projections
    ]


def with_one(*arrays):
    return [pad(X, (0, 1), value=1.0) for X in arrays]


@pytest.mark.parametrize("causal", [False, True])
def test_modules_compute_what_the_functions_compute(
    tensor, close, device, mask_of, causal
):
    Q, K, V = tensor(2, 7, 5), tensor(2, 11, 13), tensor(2, 11, 3)
    mask = torch.from_numpy(mask_of(2, 7, 11)).to(device)
    pool = at.BilinearAttention(5, 13).to(Q)
    close(pool(Q, K, V, mask), at.bilinear_attention(Q, K, V, pool.M, mask))
    pool = at.AdditiveAttention(5, 13, 17).to(Q)
    close(
        pool(Q, K, V, mask),
        at.additive_attention(Q, K, V, *matrices(pool, "qk"), pool.w_v, mask),
    )
    layer = at.SelfAttention(13, 5, 3, causal=causal).to(Q)
    expected = at.self_attention(K, *matrices(layer, "qkv"), mask[:, :1], causal=causal)
    close(layer(K, mask[:, :1]), expected)
    Q = tensor(2, 7, 12)
    layer = at.MultiHeadAttention(
        12, 6, kdim=13, vdim=3, n_kv_heads=2, causal=causal
    ).to(Q)
    projections = layer.q_proj, layer.k_proj, layer.v_proj, layer.out_proj
    with torch.no_grad():
        for proj in projections:
            nn.init.normal_(proj.bias)
    learnt = *with_biases(layer, "qkv"), layer.out_proj.weight.mT
    expected = at.multi_head_attention(
        *with_one(Q, K, V), *learnt, 6, mask, causal=causal, n_kv_heads=2
    )
    close(layer(Q, K, V, mask), expected + layer.out_proj.bias)


def test_keys_are_the_queries_and_values_the_keys_unless_given(tensor, close):
    X, Y, Z = tensor(7, 12), tensor(11, 12), tensor(11, 12)
    layer = at.MultiHeadAttention(12, 3, bias=False).to(X)
    close(layer(X), layer(X, X, X))
    close(layer(X, Y), layer(X, Y, Y))
    assert not torch.allclose(layer(X, Y), layer(X, Y, Z))


def test_widths_of_the_learnt_matrices():
    layer = at.MultiHeadAttention(12, 6, kdim=13, vdim=3, n_kv_heads=2)
    widths = {
        "q_proj": (12, 12),
        "k_proj": (13, 4),
        "v_proj": (3, 4),
        "out_proj": (12, 12),
    }
    for name, proj in layer.named_children():
        assert type(proj) is nn.Linear  # quantisers look for just this
        assert (proj.in_features, proj.out_features) == widths.pop(name)
        assert proj.bias is not None
    assert not widths
    layer = at.SelfAttention(13, 5)
    assert {tuple(p.shape) for p in layer.parameters()} == {(5, 13)}
    assert not list(at.PositionalEncoding(4).parameters())


def test_matrices_start_with_variance_kept_in_both_directions():
    M = at.BilinearAttention(300, 500).M
    torch.testing.assert_close(M.var().item(), 2 / (300 + 500), rtol=0.02, atol=0)
    w_v = at.AdditiveAttention(2, 2, 5000).w_v
    torch.testing.assert_close(w_v.var().item(), 2 / (5000 + 1), rtol=0.1, atol=0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: at.BilinearAttention(5, 7),
        lambda: at.AdditiveAttention(5, 7, 3),
        lambda: at.SelfAttention(5, 3),
        lambda: at.MultiHeadAttention(12, 3),
        lambda: at.MultiHeadAttention(12, 6, n_kv_heads=2, bias=False),
        lambda: at.PositionalEncoding(4),
    ],
)
def test_state_dict_round_trip(make):
    one, other = make(), make()
    other.load_state_dict(one.state_dict())
    # Learnt numbers are saved, and nothing else: no table of positions.
    assert one.state_dict().keys() == dict(one.named_parameters()).keys()
    for name, parameter in one.named_parameters():
        assert torch.equal(other.get_parameter(name), parameter), name
    assert all(p.requires_grad and p.is_leaf for p in other.parameters())


# PositionalEncoding


def test_positional_encoding_adds_the_table(tensor, close):
    X = tensor(2, 7, 6)
    encode = at.PositionalEncoding(6)
    table = at.sinusoidal_encoding(30, 6, dtype=torch.float64).to(X.device)
    close(encode(X), X + table[:7])
    longer = tensor(30, 6)
    close(encode(longer), longer + table)
    close(encode(X), X + table[:7])  # shorter again


def test_positional_encoding_is_right_far_out():
    """Beside the angles in double precision: 10^6 in float32 knows its position to a sixteenth only."""
    p = torch.arange(10**6, 10**6 + 3, dtype=torch.float64)[:, None]
    angles = p / 10000.0 ** (torch.arange(0, 5, 2, dtype=torch.float64) / 5)
    pairs = torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)[:, :5]
    found = at.PositionalEncoding(5)(torch.zeros(3, 5), start=10**6)
    torch.testing.assert_close(found, pairs.float(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    "dtypes",
    list(itertools.permutations([torch.float64, torch.float16, torch.float32])),
)
def test_positional_encoding_follows_dtype_and_device(device, dtypes):
    """A precision that it had before leaves nothing behind."""
    encode = at.PositionalEncoding(5)
    table = at.sinusoidal_encoding(50, 5, dtype=torch.float64, device=device)
    for dtype in dtypes:
        output = encode.to(dtype)(torch.zeros(50, 5, dtype=dtype, device=device))
        assert (output.dtype, output.device.type) == (dtype, device)
        rounding = torch.finfo(dtype).eps
        torch.testing.assert_close(output, table.to(dtype), rtol=0, atol=rounding)


def test_positional_encoding_of_whole_numbers(close):
    close(
        at.PositionalEncoding(4)(torch.ones(3, 4, dtype=torch.int64)),
        1 + at.sinusoidal_encoding(3, 4),
    )


# Dropout


DROPPING = [
    "attention",
    "bilinear_attention",
    "gaussian_attention",
    "additive_attention",
]


@pytest.mark.parametrize("name", DROPPING)
def test_dropout_drops_weights_and_keeps_the_mean(inputs, device, name):
    """Over 4000 draws each dropped weight is 0 or a third larger, and the mean stays within five deviations."""
    torch.manual_seed(0)
    args = tensors(inputs(name), device)
    args["V"] = torch.eye(
        11, dtype=torch.float64, device=device
    )  # the output is then the weights
    exact = getattr(at, name)(**args)
    args["Q"] = args["Q"].expand(4000, 7, -1)
    dropped = getattr(at, name)(**args, dropout_p=0.25)
    grown = exact / 0.75
    assert (
        torch.isclose(dropped, torch.zeros_like(dropped))
        .logical_or(torch.isclose(dropped, grown))
        .all()
    )
    kept = (dropped != 0).double().mean((0, 1, 2)).item()
    assert abs(kept - 0.75) < 0.01
    torch.testing.assert_close(
        dropped.mean(0), exact, rtol=5 * (0.25 / 0.75 / 4000) ** 0.5, atol=0
    )


@pytest.mark.parametrize(
    "name", ["self_attention", "cross_attention", "multi_head_attention", *DROPPING]
)
def test_dropout_of_zero_drops_nothing(inputs, close, name):
    args = tensors(inputs(name))
    exact = getattr(at, name)(**args)
    close(getattr(at, name)(**args, dropout_p=0.0), exact)
    assert not torch.allclose(getattr(at, name)(**args, dropout_p=0.5), exact)


def test_dropout_only_while_training(tensor):
    X = tensor(2, 7, 12)
    for layer in (
        at.MultiHeadAttention(12, 3, dropout=0.5).to(X),
        at.PositionalEncoding(12, 0.5),
    ):
        assert not torch.equal(layer.train()(X), layer.train()(X))
        layer.eval()
        assert torch.equal(layer(X), layer(X))
    plain = copy.deepcopy(at.MultiHeadAttention(12, 3)).to(X).train()
    assert torch.equal(plain(X), plain(X))


# Autocast, and torch.compile


def test_autocast(close, device, inputs, masked):
    """Under autocast results are those of half precision, and Gaussian attention keeps single precision."""
    args = tensors(inputs(masked), device, torch.float32)
    exact = getattr(at, masked)(**args)
    with torch.autocast(device, torch.bfloat16):
        output = getattr(at, masked)(**args)
    close(
        output,
        exact,
        "float32" if masked in ("gaussian_attention", "masked_softmax") else "bfloat16",
    )


def test_autocast_of_a_module_between_linear_layers(tensor, device):
    X = tensor(2, 7, 12).float()
    layer = at.MultiHeadAttention(12, 3).to(X)
    with torch.autocast(device, torch.bfloat16):
        projected = nn.Linear(12, 12, device=device)(X)
        assert projected.dtype == torch.bfloat16
        output = layer(projected, X)  # bfloat16 meets float32
    assert output.isfinite().all()


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
def test_compiles_as_one_graph(close, causal):
    def both(Q, K, V, mask):
        heads = at.multi_head_attention(Q, K, V, *matrices, 3, mask, causal=causal)
        return at.attention(Q, K, V, mask, causal=causal), heads

    torch.manual_seed(0)
    matrices = [torch.randn(12, 12) / 12**0.5 for _ in range(4)]
    Q, K, V = torch.randn(7, 12), torch.randn(11, 12), torch.randn(11, 12)
    compiled = torch.compile(both, fullgraph=True, backend="eager")
    for mask in (None, torch.randn(7, 11) < 0.5):
        for ours, plain in zip(
            compiled(Q, K, V, mask), both(Q, K, V, mask), strict=True
        ):
            close(ours, plain)


# What users of torch expect of a layer


LAYERS = [
    lambda **kind: at.BilinearAttention(5, 7, **kind),
    lambda **kind: at.AdditiveAttention(5, 7, 60, **kind),
    lambda **kind: at.SelfAttention(50, 30, **kind),
    lambda **kind: at.MultiHeadAttention(12, 6, n_kv_heads=2, kdim=7, **kind),
    lambda **kind: at.Block(12, 3, **kind),
    lambda **kind: at.LanguageModel(13, 12, 3, 1, **kind),
]


@pytest.mark.parametrize("make", LAYERS)
def test_device_dtype_and_initialisation(make, device):
    """Made without memory, given memory, and drawn by reset_parameters: as those that were drawn at once."""
    torch.manual_seed(0)
    made = make(device="meta", dtype=torch.float64)
    kinds = {(x.device.type, x.dtype) for x in made.parameters()}
    assert kinds == {("meta", torch.float64)}
    made.to_empty(device=device)
    for module in made.modules():
        if list(module.parameters(recurse=False)):
            assert hasattr(module, "reset_parameters")
    made.apply(lambda x: x.reset_parameters() if hasattr(x, "reset_parameters") else 0)
    drawn = make(device=device, dtype=torch.float64)
    for one, other in zip(made.parameters(), drawn.parameters(), strict=True):
        spread = [x.detach().cpu().std(correction=0).item() for x in (one, other)]
        assert spread[0] == pytest.approx(spread[1], rel=0.5, abs=1e-9)
        assert one.shape == other.shape and one.isfinite().all()


def test_layers_say_what_they_are():
    assert "d_q=5, d_k=7" in repr(at.BilinearAttention(5, 7))
    assert "causal=True" in repr(at.SelfAttention(5, 3, causal=True))
    text = repr(at.MultiHeadAttention(12, 6, n_kv_heads=2, causal=True, window=3))
    assert (
        "d_model=12, n_heads=6, n_kv_heads=2, dropout=0.0, causal=True, window=3"
        in text
    )
    assert "(k_proj): Linear(in_features=12, out_features=4, bias=True)" in text


@pytest.mark.parametrize("causal", [False, True])
def test_weights_come_with_the_output(tensor, close, device, mask_of, causal):
    """Those of multi_head_weights and self_attention, and each projection is called once."""
    Q, K = tensor(2, 7, 12), tensor(2, 11, 13)
    mask = torch.from_numpy(mask_of(2, 7, 11)).to(device)
    layer = at.MultiHeadAttention(12, 6, kdim=13, vdim=13, n_kv_heads=2, causal=causal)
    layer.to(Q)
    calls = []
    for proj in layer.children():
        proj.register_forward_hook(lambda proj, *_: calls.append(proj))
    output, weights = layer(Q, K, mask=mask, need_weights=True)
    assert len(calls) == 4
    close(output, layer(Q, K, mask=mask))
    learnt = with_biases(layer, "qk")
    expected = at.multi_head_weights(
        *with_one(Q, K), *learnt, 6, mask, causal=causal, n_kv_heads=2
    )
    close(weights, expected)
    layer = at.SelfAttention(13, 5, 3, causal=causal).to(Q)
    output, weights = layer(K, need_weights=True)
    close(output, layer(K))
    close(weights @ (K @ layer.v_proj.weight.mT), output)
    pool = at.AdditiveAttention(12, 13, 5).to(Q)
    output, weights = pool(Q, K, K, mask, need_weights=True)
    close(output, pool(Q, K, K, mask))
    close(weights @ K, output)


def test_a_window_is_a_mask(tensor, close, device):
    X = tensor(2, 7, 12)
    layer = at.MultiHeadAttention(12, 3, causal=True, window=3).to(X)
    near = at.causal_mask(7, device=device).triu(-2)
    expected = at.MultiHeadAttention.from_torch(layer.to_torch())(X, mask=near)
    close(layer(X), expected)


def test_what_is_hidden_reaches_no_gradient(tensor):
    """A padded token of NaN reaches no output, and a large one neither output nor the gradient of any projection."""
    X = tensor(2, 7, 12)
    mask = at.padding_mask(torch.tensor([4, 6], device=X.device), 7)
    layer, gradients = at.MultiHeadAttention(12, 3).to(X), []
    for filling in (0.0, 1e9):
        Y = X.masked_fill(~mask.mT, filling)
        layer.zero_grad()
        output, weights = layer(X, Y, mask=mask, need_weights=True)
        (output.sum() + weights.square().sum()).backward()
        gradients.append([output, weights, *(x.grad.clone() for x in layer.parameters())])  # fmt: skip
    for clean, other in zip(*gradients, strict=True):
        torch.testing.assert_close(other, clean)
    Y = X.masked_fill(~mask.mT, torch.nan)
    for clean, other in zip(
        gradients[0][:2], layer(X, Y, mask=mask, need_weights=True), strict=True
    ):
        torch.testing.assert_close(other, clean)


def test_half_the_heads_on_each_of_two_devices(tensor, close):
    """As parallelize_module splits it: rows of q, k, v, columns of the output projection, and a sum over devices."""
    X = tensor(2, 7, 12)
    whole = at.MultiHeadAttention(12, 6, n_kv_heads=2, causal=True).to(X)
    parts = []
    for rank in range(2):
        part = copy.deepcopy(whole)
        for name in ("q_proj", "k_proj", "v_proj"):
            proj = getattr(part, name)
            for kind in ("weight", "bias"):
                split = getattr(proj, kind).chunk(2)[rank].detach()
                setattr(proj, kind, nn.Parameter(split))
        part.out_proj.weight = nn.Parameter(whole.out_proj.weight.chunk(2, 1)[rank])
        part.out_proj.bias = None if rank else whole.out_proj.bias
        parts.append(part(X))
    close(sum(parts), whole(X))


def test_tokens_that_a_layer_refuses():
    layer = at.MultiHeadAttention(12, 3, kdim=5)
    X, K, V = torch.ones(2, 7, 12), torch.ones(2, 11, 5), torch.ones(2, 11, 12)
    for given, message in (
        ((X[..., :5], K, V), r"Q has shape \(2, 7, 5\) but needs \(…, n, 12\)"),
        ((X, V, V), r"K has shape \(2, 11, 12\) but needs \(…, n, 5\)"),
        ((X, K, V[:, 1:]), "K holds 11 keys but V 10 values"),
        ((X.expand(3, 2, 7, 12), K[None].expand(2, 2, 11, 5), V), "batch axes do not"),
        ((X, K, V.double()), "V is torch.float64 but Q is torch.float32"),
        ((X.tolist(), K, V), "Q must be a torch.Tensor, got list"),
    ):
        with pytest.raises(
            (TypeError, ValueError), match=f"^MultiHeadAttention: {message}"
        ):
            layer(*given)
    assert layer(X.int(), K.int(), V.int()).dtype == torch.float32


def test_second_derivatives_work_or_are_refused_in_words(draw):
    """A penalty on the gradient: through the kernel of torch's textbook; the fused one refuses, and gives no zeros."""
    Q, K, V = (torch.from_numpy(draw(2, n, 5)) for n in (7, 11, 11))
    mask = torch.from_numpy(draw(7, 11)) < 0.5
    mask[3] = False

    def steepness(Q):
        (slope,) = torch.autograd.grad(
            at.attention(Q, K, V, mask).sin().sum(), Q, create_graph=True
        )
        return slope.square().sum()

    def textbook(Q):
        output = at.attend(at.scaled_dot_score(Q, K), V, mask)
        (slope,) = torch.autograd.grad(output.sin().sum(), Q, create_graph=True)
        return slope.square().sum()

    q = Q.clone().requires_grad_()
    with pytest.raises(RuntimeError, match="is not implemented"):
        torch.autograd.grad(steepness(q), q)
    with sdpa_kernel(SDPBackend.MATH):
        (found,) = torch.autograd.grad(steepness(q), q)
    (expected,) = torch.autograd.grad(textbook(q), q)
    torch.testing.assert_close(found, expected)
    assert found.abs().sum() > 0.1
