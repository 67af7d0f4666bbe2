"""A sink that is a learnt score, beside the formula: one more column of scores, whose value is 0."""

import numpy as np
import pytest
import torch
from test_definitions import (
    ADDS,
    D_V,
    HALVES,
    HIDES,
    SIZES,
    B,
    D,
    H,
    agrees,
    gradients,
    numbers,
    problem,
)

import attn_tutor.numpy as an
import attn_tutor.torch as at
from attn_tutor.torch.distributed import tensor_parallel

FEW = ["everything", "causal", "sinks", "lengths per sequence", "a mask of pairs", "no key"]  # fmt: skip
PAIRS = [(hides, "nothing") for hides in HIDES]
PAIRS += [(hides, adds) for hides in FEW for adds in ADDS if adds != "nothing"]
LOGITS = {
    "a number for all": lambda: np.array(0.5),
    "one for each head": lambda: numbers(H),
    "one for each sequence and head": lambda: 2 * numbers(B, H),
    "from far below to far above": lambda: np.array([-800.0, 0.0, 800.0]),
}
PER_HEAD = "one for each head"
CASES = [(*pair, PER_HEAD) for pair in PAIRS]
CASES += [(x, "nothing", logits) for x in FEW for logits in LOGITS if logits != PER_HEAD]  # fmt: skip


def formula(Q, K, V, s, mask=None, bias=None, scale=None):
    """Softmax over the scores and one column more, which is then left out."""
    scores = Q @ K.mT * (D**-0.5 if scale is None else scale)
    scores = scores if bias is None else scores + bias
    scores = scores if mask is None else scores.masked_fill(~mask, -torch.inf)
    s = s[..., None, None].expand(*scores.shape[:-1], 1)
    return torch.cat([scores, s], -1).softmax(-1)[..., :-1] @ V


def tensors(*arrays, grad=False):
    """Booleans as they are, numbers in double precision."""
    return [x if x is None else torch.tensor(x, requires_grad=grad) for x in arrays]


def oracle(given, s, mask, bias, **options):
    """The formula's values, and its gradients with respect to Q, K, V and the sink's scores."""
    leaves = tensors(*given, s, grad=True)
    mask, bias = tensors(mask, bias)
    output = formula(*leaves, mask=mask, bias=bias, **options)
    return output.detach().numpy(), [x.numpy() for x in gradients([output], leaves)]


def arrays(n, m, heads=H):
    """One head of keys or ``heads`` of them, for H heads of queries."""
    return numbers(B, H, n, D), numbers(B, heads, m, D), numbers(B, heads, m, D_V)


def give(half, x):
    return torch.from_numpy(x) if half is at and isinstance(x, np.ndarray) else x


# It is the formula


@HALVES
@pytest.mark.parametrize(("hides", "adds", "logits"), CASES)
def test_it_is_one_more_column_of_scores(half, hides, adds, logits):
    s = LOGITS[logits]()
    for n, m in SIZES:
        if n > m and "documents" in hides:
            continue
        options, mask, bias = problem(half, hides, adds, n, m)
        given = arrays(n, m)
        expected, slopes = oracle(given, s, mask, bias)
        for call in (half.sink_attention, half.sink_attention.__wrapped__):
            leaves = [give(half, x) for x in (*given, s)]
            if half is at:
                leaves = [x.requires_grad_() for x in leaves]
            output = call(*leaves[:3], **options, sink_logits=leaves[3])
            agrees([output], [expected])
            if half is at:
                agrees(gradients([output], leaves), slopes)


@HALVES
@pytest.mark.parametrize("scale", [None, 1.0, 0.0, -0.3])
@pytest.mark.parametrize("hides", FEW)
@pytest.mark.parametrize("n_kv_heads", [None, 1])
def test_scales_and_heads_that_share_keys(half, hides, scale, n_kv_heads):
    for n, m in SIZES[:2]:
        options, mask, bias = problem(half, hides, "an array", n, m)
        given, s = arrays(n, m, n_kv_heads or H), numbers(H)
        expected, _ = oracle(given, s, mask, bias, scale=scale)
        output = half.sink_attention(
            *(give(half, x) for x in given),
            **options,
            scale=scale,
            n_kv_heads=n_kv_heads,
            sink_logits=give(half, s),
        )
        agrees([output], [expected])


ROUNDED = {"float32": (1e-4, 2e-6), "float16": (2e-2, 2e-3), "bfloat16": (8e-2, 2e-2)}
COARSE = [(half, x) for half in (an, at) for x in ROUNDED if (half, x) != (an, "bfloat16")]  # fmt: skip


@pytest.mark.parametrize(("half", "dtype"), COARSE)
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("hides", FEW)
def test_other_dtypes(half, dtype, hides, own):
    """The sink's scores may have the dtype of the tokens or keep their own; the result has that of the tokens."""
    for n, m in ((7, 11), (130, 140)):
        options, mask, bias = problem(half, hides, "nothing", n, m)
        *given, s = (torch.from_numpy(x) for x in (*arrays(n, m), numbers(H)))
        given = [x.to(getattr(torch, dtype)) for x in given]
        s = s.to(given[0].dtype) if own else s
        exact, _ = oracle([x.double().numpy() for x in (*given,)], s.double().numpy(), mask, bias)  # fmt: skip
        if half is an:
            *given, s = (x.numpy() for x in (*given, s))
        output = half.sink_attention(*given, **options, sink_logits=s)
        assert output.dtype == given[0].dtype
        output = output.double().numpy() if half is at else output.astype(float)
        agrees([output], [exact], *ROUNDED[dtype])


# What follows from it


@HALVES
def test_without_a_sink_it_is_attention_and_with_a_score_of_0_softmax_plus_one(half):
    Q, K, V = (give(half, x) for x in arrays(7, 11))
    none = give(half, np.full(H, -np.inf))
    for options in ({}, {"causal": True}, {"mask": half.First(0)}):
        plain = np.asarray(half.attention(Q, K, V, **options))
        for s in (none, -np.inf):
            agrees([half.sink_attention(Q, K, V, **options, sink_logits=s)], [plain])
        zero = np.asarray(half.sink_attention(Q, K, V, **options))
        assert (np.asarray(half.sink_attention(Q, K, V, **options, sink_logits=np.inf)) == 0).all()  # fmt: skip
        expected, _ = oracle([*map(np.asarray, (Q, K, V))], np.zeros(()), *dense(half, options))  # fmt: skip
        agrees([zero], [expected])


def dense(half, options):
    i, j = np.arange(7)[:, None] + 4, np.arange(11)
    if "mask" in options:
        return np.zeros((7, 11), bool), None
    return (j <= i, None) if options else (None, None)


@HALVES
def test_it_is_merged_with_a_key_of_value_0(half):
    Q, K, V = (give(half, x) for x in arrays(7, 11))
    part = half.partial_attention(Q, K, V, causal=True)
    s = give(half, np.broadcast_to(numbers(H)[:, None, None], (B, H, 7, 1)).copy())
    merged, _ = half.merge(*part, 0 * part[0], s)
    found = half.sink_attention(Q, K, V, causal=True, sink_logits=s[0, :, 0, 0])
    agrees([found], [np.asarray(merged)])


@HALVES
def test_weights_add_up_to_the_share_of_the_keys(half):
    Q, K, V = (give(half, x) for x in arrays(7, 11))
    s = give(half, numbers(H))
    share = np.asarray(half.sink_attention(Q, K, 0 * V[..., :1] + 1, sink_logits=s))
    assert (share > 0).all() and (share < 1).all()
    output = np.asarray(half.sink_attention(Q, K, V, sink_logits=s))
    agrees([output], [share * np.asarray(half.attention(Q, K, V))])


@HALVES
def test_what_is_not_finite_reaches_those_who_may_see_it(half):
    Q, K, V = arrays(7, 7)
    for spoilt in (K, V):
        spoilt = spoilt.copy()
        spoilt[..., 4, :] = np.nan
        args = (Q, spoilt, V) if spoilt.shape[-1] == D else (Q, K, spoilt)
        given = [give(half, x) for x in args]
        output = half.sink_attention(*given, causal=True, sink_logits=give(half, numbers(H)))  # fmt: skip
        assert (np.isnan(np.asarray(output)).any((0, 1, 3)) == (np.arange(7) >= 4)).all()  # fmt: skip


@pytest.mark.filterwarnings("ignore:.torch.jit.script")
def test_derivatives():
    small = (x[0, :2, :, :2] for x in arrays(3, 4))  # a call for each entry
    given = tensors(*small, numbers(2), grad=True)
    mask = torch.tensor([[True, True, False, False], [False] * 4, [True, False, False, True]])  # fmt: skip
    for options in ({}, {"causal": True}, {"mask": mask}, {"causal": True, "window": 2}):  # fmt: skip

        def call(Q, K, V, s, options=options):
            return at.sink_attention(Q, K, V, **options, sink_logits=s)

        assert torch.autograd.gradcheck(call, given)
        assert torch.autograd.gradgradcheck(call, given, fast_mode=True)
        still = [x.detach() for x in given]
        _, along = torch.func.jvp(call, (*still,), (*still,))
        step = [call(*((1 + d) * x for x in still)) for d in (1e-6, -1e-6)]
        agrees([along], [(step[0] - step[1]).numpy() / 2e-6], 1e-6, 1e-8)


def test_it_is_compiled_mapped_and_lowered_by_autocast():
    Q, K, V, s = tensors(*arrays(7, 11), numbers(H))

    def call(Q, K, V, s):
        return at.sink_attention(Q, K, V, causal=True, sink_logits=s)

    expected = call(Q, K, V, s)
    compiled = torch.compile(call, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(Q, K, V, s), expected)
    mapped = torch.func.vmap(call, in_dims=(0, 0, 0, None))(Q, K, V, s)
    torch.testing.assert_close(mapped, expected)
    with torch.autocast("cpu", torch.bfloat16):
        lowered = call(*(x.float() for x in (Q, K, V)), s.float())
    torch.testing.assert_close(lowered.double(), expected, rtol=5e-2, atol=3e-2)


@HALVES
def test_sink_logits_that_do_not_fit(half):
    Q, K, V = (give(half, x) for x in arrays(7, 11))
    words = r"^sink_attention: sink_logits has shape \({}\) but must broadcast to the batch axes, \(2,3\)"
    for shape, text in (((2,), "2,"), ((3, 1), "3,1"), ((4, 2, 3), "4,2,3")):
        with pytest.raises(ValueError, match=words.format(text)):
            half.sink_attention(Q, K, V, sink_logits=give(half, np.zeros(shape)))
    for wrong in ([0.0], None, "0"):
        with pytest.raises(TypeError, match="^sink_attention: sink_logits must be a"):
            half.sink_attention(Q, K, V, sink_logits=wrong)


# The layer


def layer(**options):
    torch.manual_seed(0)
    layer = at.MultiHeadAttention(16, 4, sink_logits=True, dtype=torch.float64, **options)  # fmt: skip
    with torch.no_grad():
        layer.sink_logits.normal_()
    return layer


def by_hand(layer, X, mask, rotate):
    projections = layer.q_proj, layer.k_proj, layer.v_proj
    split = [at.split_heads(proj(X), proj.out_features // 4) for proj in projections]
    Q, K, V = (x.repeat_interleave(4 // x.shape[-3], -3) for x in split)
    Q, K = (Q, K) if rotate is None else (rotate(Q), rotate(K))
    heads = formula(Q, K, V, layer.sink_logits, mask)
    return layer.out_proj(at.merge_heads(heads))


@pytest.mark.parametrize("n_kv_heads", [4, 2, 1])
@pytest.mark.parametrize("rotate", [None, at.rotary], ids=["plain", "rotary"])
@pytest.mark.parametrize("window", [None, 3, at.Window(3, sinks=2)], ids=str)
def test_a_layer_learns_one_for_each_head(n_kv_heads, rotate, window):
    mine = layer(causal=True, window=window, n_kv_heads=n_kv_heads)
    X = torch.randn(2, 13, 16, dtype=torch.float64, requires_grad=True)
    mask = at.causal_mask(13)
    if window is not None:
        i, j = torch.arange(13)[:, None], torch.arange(13)
        near = j > i - 3
        mask = mask & (near if window == 3 else near | (j < 2))
    output, weights = mine(X, rotate=rotate, need_weights=True)
    torch.testing.assert_close(mine(X, rotate=rotate), output)
    expected = by_hand(mine, X, mask, rotate)
    torch.testing.assert_close(output, expected)
    leaves = [X, *mine.parameters()]
    assert any(x is mine.sink_logits for x in leaves)
    for x, y in zip(gradients([output], leaves), gradients([expected], leaves), strict=True):  # fmt: skip
        torch.testing.assert_close(x, y)
    assert ((weights > 0) == mask).all() and (weights.sum(-1) < 1).all()
    with at.record_weights(mine) as recorded:
        mine(X, rotate=rotate)
    torch.testing.assert_close(recorded[""][0], weights.detach())


WINDOWS = [None, at.Window(4), at.Window(4, sinks=2), at.Window(1, sinks=1)]


@pytest.mark.parametrize("sizes", [[1] * 13, [4, 1, 5, 3], [13]], ids=str)
@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("rotary", [False, True])
@torch.no_grad()
def test_token_by_token_is_all_at_once(sizes, window, rotary):
    mine = layer(causal=True, window=window, n_kv_heads=2)
    X = torch.randn(2, 13, 16, dtype=torch.float64)
    kept = {} if window is None else {"window": window.width, "sinks": window.sinks}
    cache, found = at.KVCache(**kept), []
    for part in X.split(sizes, 1):
        at_places = torch.arange(cache.n_seen, cache.n_seen + part.shape[1])
        rotate = (lambda Q, p=at_places: at.rotary(Q, p)) if rotary else None
        found.append(mine(part, cache=cache, rotate=rotate))
    expected = mine(X, rotate=at.rotary if rotary else None)
    torch.testing.assert_close(torch.cat(found, 1), expected)


def test_a_layer_with_a_score_of_0_is_torchs_with_add_zero_attn():
    theirs = torch.nn.MultiheadAttention(16, 4, add_zero_attn=True, batch_first=True, dtype=torch.float64)  # fmt: skip
    mine = at.MultiHeadAttention(16, 4, sink_logits=True, dtype=torch.float64)
    assert (mine.sink_logits == 0).all()
    with torch.no_grad():
        packed = theirs.in_proj_weight.chunk(3), theirs.in_proj_bias.chunk(3)
        for name, W, b in zip("qkv", *packed, strict=True):
            proj = getattr(mine, f"{name}_proj")
            proj.weight.copy_(W), proj.bias.copy_(b)
    mine.out_proj.load_state_dict(theirs.out_proj.state_dict())
    X, Y = torch.randn(2, 5, 16).double(), torch.randn(2, 7, 16).double()
    mask = torch.rand(5, 7) < 0.5
    for hidden in (None, ~mask):
        shown = None if hidden is None else ~hidden
        output, weights = mine(X, Y, mask=shown, need_weights=True)
        expected, averaged = theirs(X, Y, Y, attn_mask=hidden)
        torch.testing.assert_close(output, expected)
        torch.testing.assert_close(weights.mean(-3), averaged[..., :-1])


def test_heads_of_a_width_of_their_own():
    """With 0 in what is wider it is the narrow layer, which torch's own layer is, too."""
    torch.manual_seed(0)
    narrow = at.MultiHeadAttention(12, 4, n_kv_heads=2, bias=False, dtype=torch.float64)
    wide = at.MultiHeadAttention(12, 4, n_kv_heads=2, d_h=5, bias=False, dtype=torch.float64)  # fmt: skip
    assert wide.q_proj.weight.shape == wide.out_proj.weight.mT.shape == (20, 12)
    assert wide.k_proj.weight.shape == wide.v_proj.weight.shape == (10, 12)
    with torch.no_grad():
        for name, heads, axis in (("q", 4, 0), ("k", 2, 0), ("v", 2, 0), ("out", 4, 1)):
            layers = [x.get_submodule(f"{name}_proj") for x in (narrow, wide)]
            part, whole = (x.weight.unflatten(axis, (heads, -1)) for x in layers)
            layers[1].weight.zero_()
            whole.narrow(axis + 1, 0, 3).copy_(part)
        wide.q_proj.weight *= (5 / 3) ** 0.5  # scores are divided by √5 there
    X = torch.randn(2, 7, 12, dtype=torch.float64)
    torch.testing.assert_close(wide(X), narrow(X))
    for wrong, words in ((0, "d_h must be 1 or more"), (2.5, "d_h must be a whole")):
        with pytest.raises((TypeError, ValueError), match=words):
            at.MultiHeadAttention(12, 4, d_h=wrong)
    with pytest.raises(ValueError, match="torch needs d_h = d_model / n_heads, got 5"):
        at.MultiHeadAttention(12, 4, d_h=5).to_torch()
    five = at.MultiHeadAttention(12, 5, d_h=4, dtype=torch.float64)
    assert five(X).shape == X.shape


def test_a_layer_that_drops_weights_keeps_their_mean():
    mine = layer(dropout=0.3)
    X = torch.randn(1, 5, 16, dtype=torch.float64)
    torch.manual_seed(0)
    rows = mine.train()(X.expand(4000, 5, 16)).mean(0, keepdim=True)
    torch.testing.assert_close(rows, mine.eval()(X), rtol=0, atol=0.05)
    assert not torch.equal(mine.train()(X), mine(X))


def test_half_precision_of_a_layer_and_autocast():
    mine = layer(causal=True)
    X = torch.randn(2, 13, 16, dtype=torch.float64)
    expected = mine(X)
    for dtype in (torch.bfloat16, torch.float16):
        found = layer(causal=True).to(dtype)(X.to(dtype))
        assert found.dtype == dtype
        torch.testing.assert_close(found.double(), expected, rtol=8e-2, atol=3e-2)
    with torch.autocast("cpu", torch.bfloat16):
        found = layer(causal=True).float()(X.float())
    torch.testing.assert_close(found.double(), expected, rtol=8e-2, atol=3e-2)


def test_a_layer_is_saved_and_refuses_what_has_no_place_for_it():
    mine = layer()
    other = at.MultiHeadAttention(16, 4, sink_logits=True, dtype=torch.float64)
    other.load_state_dict(mine.state_dict())
    assert torch.equal(other.sink_logits, mine.sink_logits)
    assert "sink_logits" not in at.MultiHeadAttention(16, 4).state_dict()
    with pytest.raises(ValueError, match="to_torch: torch's layer has no sink logits"):
        mine.to_torch()
    with pytest.raises(ValueError, match="tensor_parallel: it does not split sink_log"):
        tensor_parallel(mine, None)
