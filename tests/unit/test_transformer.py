"""The block and the language model: no leak, nothing lost by the cache, torch's own layer, and clear refusals."""

import inspect

import pytest
import torch
from torch import nn
from torch.nn.functional import relu

import attn_tutor.torch as at

POSITIONS = ["sinusoidal", "rotary", "alibi", None]
PLACES = ["rotary", "alibi", None]
each_kind = pytest.mark.parametrize("positions", POSITIONS)


@pytest.fixture
def tensor(draw, device):
    return lambda *shape: torch.from_numpy(draw(*shape)).to(device)


@pytest.fixture
def model(device):
    """Two blocks of three heads of width 4 over 13 tokens, with weights of order 1 in every matrix."""

    def make(positions, **options):
        torch.manual_seed(3)
        made = at.LanguageModel(13, 12, 3, 2, positions=positions, **options)
        return made.double().to(device).eval()

    return make


@pytest.fixture
def ids(device):
    generator = torch.Generator().manual_seed(1)
    return torch.randint(13, (2, 11), generator=generator).to(device)


def block(device, **options):
    torch.manual_seed(5)
    made = at.Block(12, 3, **options).double().to(device).eval()
    with torch.no_grad():  # biases and norms that show where they are left out
        for parameter in made.parameters():
            if parameter.ndim == 1:
                parameter += 0.5 * torch.randn(parameter.shape).to(parameter)
    return made


# What a block computes


def textbook(made, X, bias=None, mask=None, turn=lambda heads: heads):
    """The formulas word by word, with all scores stored."""
    layer = made.attention
    N = nn.functional.layer_norm(X, (12,), made.norm_1.weight, made.norm_1.bias)
    Q, K, V = (
        at.split_heads(N @ proj.weight.mT + proj.bias, 3)
        for proj in (layer.q_proj, layer.k_proj, layer.v_proj)
    )
    scores = at.scaled_dot_score(turn(Q), turn(K))
    heads = at.attend(scores if bias is None else scores + bias, V, mask)
    Y = X + at.merge_heads(heads) @ layer.out_proj.weight.mT + layer.out_proj.bias
    N = nn.functional.layer_norm(Y, (12,), made.norm_2.weight, made.norm_2.bias)
    hidden = made.activation(N @ made.widen.weight.mT + made.widen.bias)
    return Y + hidden @ made.narrow.weight.mT + made.narrow.bias


def test_a_block_is_its_formula(tensor, close, device, mask_of):
    X = tensor(2, 7, 12)
    mask = torch.from_numpy(mask_of(2, 1, 7, 7)).to(device)
    made = block(device, activation=relu, d_hidden=19)
    close(made(X, mask), textbook(made, X, mask=mask))


def test_rotary_turns_queries_and_keys_of_each_head(tensor, close, device):
    X, seen = tensor(2, 7, 12), at.causal_mask(7, device=device)
    made = block(device, causal=True, positions="rotary")
    close(made(X), textbook(made, X, mask=seen, turn=at.rotary))


def test_alibi_adds_its_bias(tensor, close, device):
    X, seen = tensor(2, 7, 12), at.causal_mask(7, device=device)
    made = block(device, causal=True, positions="alibi")
    bias = at.alibi_bias(3, 7, device=device, dtype=X.dtype)
    close(made(X), textbook(made, X, bias, seen))


def test_alibi_with_slopes_that_are_no_powers_of_two(tensor, close, device):
    torch.manual_seed(5)
    made = at.Block(32, 16, causal=True, positions="alibi").double().to(device)
    plain = at.Block(32, 16, causal=True).double().to(device)
    plain.load_state_dict(made.state_dict())
    X = tensor(7, 32)
    biased = plain.weights(X) * at.alibi_bias(16, 7, device=device, dtype=X.dtype).exp()
    close(made.weights(X), at.normalize(biased))


@pytest.mark.parametrize("positions", PLACES)
def test_the_weights_are_those_that_are_used(tensor, close, device, positions):
    """With an output projection of 1 and no network, the output less the input is the weighted sum of the values."""
    X = tensor(2, 7, 12)
    made = block(device, causal=True, positions=positions)
    layer = made.attention
    with torch.no_grad():
        layer.out_proj.weight.copy_(torch.eye(12))
        layer.out_proj.bias.zero_()
        made.narrow.weight.zero_()
        made.narrow.bias.zero_()
    V = at.split_heads(layer.v_proj(made.norm_1(X)), 3)
    close(X + at.merge_heads(made.weights(X) @ V), made(X))


def test_a_mask_hides_padding(tensor, device, close):
    X = tensor(2, 7, 12)
    lengths = torch.tensor([3, 5], device=device)
    mask = at.padding_mask(lengths, 7)
    other = X.clone()
    other[0, 3:], other[1, 5:] = tensor(4, 12) + 3, tensor(2, 12) - 9
    for positions in ("rotary", None):
        made = block(device, positions=positions)
        for i, n in enumerate(lengths.tolist()):
            close(made(other, mask)[i, :n], made(X, mask)[i, :n])
            close(made(X[i, :n]), made(X, mask)[i, :n])


@pytest.mark.parametrize("positions", PLACES)
def test_dropout_only_while_training(tensor, device, positions):
    X = tensor(7, 12)
    made = block(device, causal=True, positions=positions, dropout=0.5)
    assert torch.equal(made(X), made(X))
    made.train()
    assert not torch.allclose(made(X), made(X))


@pytest.mark.parametrize("positions", PLACES)
def test_dropout_reaches_the_weights(tensor, device, positions):
    """The first token sees itself alone: its weight is 1, and dropped or doubled."""
    made = block(device, causal=True, positions=positions, dropout=0.5).train()
    made.drop = nn.Identity()
    X = tensor(7, 12)
    first = torch.stack([made(X)[0] for _ in range(30)])
    assert len(first.unique(dim=0)) == 8  # of three heads each


# Masks, windows, grouped heads


def test_three_axes_of_a_mask_are_one_for_each_sequence(tensor, device, close):
    """As many sequences as heads: the lengths of a batch, and not of its heads."""
    X, made = tensor(3, 7, 12), block(device)
    lengths = torch.tensor([2, 4, 7], device=device)
    together = made(X, at.padding_mask(lengths, 7))
    for i, n in enumerate(lengths.tolist()):
        close(together[i, :n], made(X[i, :n]))


@pytest.mark.parametrize("positions", PLACES)
def test_a_window_is_a_mask(tensor, device, close, positions):
    X = tensor(2, 7, 12)
    near = at.causal_mask(7, device=device).triu(-2)  # itself and the two before
    made = block(device, causal=True, window=3, positions=positions)
    close(made(X), block(device, causal=True, positions=positions)(X, near))
    cache = at.KVCache()
    with torch.no_grad():
        rows = [made(X[:, i : i + 1], cache=cache) for i in range(7)]
    close(torch.cat(rows, 1), made(X))


@pytest.mark.parametrize("positions", PLACES)
def test_grouped_heads_are_heads_with_copies(tensor, device, close, positions):
    options = dict(causal=True, positions=positions)
    torch.manual_seed(5)
    grouped = at.Block(24, 6, n_kv_heads=2, **options).to(tensor(1))
    plain = at.Block(24, 6, **options).to(tensor(1))
    state = grouped.state_dict()
    for name in ("k_proj", "v_proj"):  # each head of keys three times
        for part in ("weight", "bias"):
            x = state[f"attention.{name}.{part}"].unflatten(0, (2, 4))
            x = x.repeat_interleave(3, 0).flatten(0, 1)
            state[f"attention.{name}.{part}"] = x
    plain.load_state_dict(state)
    X = tensor(2, 7, 24)
    close(grouped(X), plain(X))
    close(grouped.weights(X), plain.weights(X))
    cache = at.KVCache()
    with torch.no_grad():
        rows = [grouped(X[:, i : i + 1], cache=cache) for i in range(7)]
    close(torch.cat(rows, 1), plain(X))


def test_alibi_knows_far_positions_in_half_precision(device):
    """Where the bias alone decides, each key back has e^−½ of the weight, in the head of slope ½."""
    made = at.Block(16, 8, causal=True, positions="alibi").to(device)
    X = torch.ones(1002, 16, device=device)
    with torch.no_grad():
        made.attention.q_proj.weight.zero_()
        last = made.bfloat16().weights(X.bfloat16())[0, -1, -5:]
    expected = torch.tensor([-2.0, -1.5, -1.0, -0.5, 0.0], device=device).exp()
    expected = (1 - torch.tensor(-0.5).exp()) * expected
    torch.testing.assert_close(last.float(), expected, rtol=0.02, atol=0)


# The compiler


LENGTHS = range(5, 17)
tokens_of = {
    "layer": lambda n: (torch.ones(3, n, 12),),
    "ids": lambda n: (torch.ones(3, n, dtype=torch.long),),
    "pairs": lambda n: (
        torch.ones(3, n, dtype=torch.long),
        torch.tensor([n, 2, 3]),
        torch.ones(3, n + 2, dtype=torch.long),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "given"),
    [
        (lambda: at.Block(12, 3, causal=True, positions="rotary"), "layer"),
        (lambda: at.Block(12, 3, causal=True, window=3), "layer"),
        (lambda: at.MultiHeadAttention(12, 6, causal=True, n_kv_heads=2), "layer"),
        (lambda: at.PositionalEncoding(12), "layer"),
        (lambda: at.LanguageModel(13, 12, 3, 1, positions="sinusoidal"), "ids"),
        (lambda: at.LanguageModel(13, 12, 3, 1, positions="alibi"), "ids"),
        (lambda: at.TransformerTranslator(11, 7, 12, 3, 1), "pairs"),
    ],
    ids=["rotary", "window", "heads", "encoding", "sinusoidal", "alibi", "translator"],
)
def test_twelve_lengths_are_two_graphs(make, given):
    """One for the first length and one for all others, as of torch's own layer; fullgraph allows no break."""
    from torch._dynamo.testing import CompileCounter  # here: it loads the compiler

    torch.compiler.reset()
    made, counter = make().eval(), CompileCounter()
    compiled = torch.compile(made, backend=counter, fullgraph=True)
    with torch.no_grad():
        for n in LENGTHS:
            found, expected = (fn(*tokens_of[given](n)) for fn in (compiled, made))
            torch.testing.assert_close(found, expected)
    assert counter.frame_count <= 2


@pytest.mark.full
@each_kind
def test_a_model_is_exported_for_any_batch_and_length(positions):
    made = at.LanguageModel(13, 12, 3, 1, positions=positions).eval()
    b, n = (torch.export.Dim(name, min=2, max=99) for name in "bn")
    given = torch.ones(5, 7, dtype=torch.long)
    program = torch.export.export(made, (given,), dynamic_shapes=({0: b, 1: n},))
    ids = torch.arange(33).reshape(3, 11) % 13
    torch.testing.assert_close(program.module()(ids), made(ids))


# torch's own layer


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_the_layer_of_torch(tensor, close, device, bias, activation):
    torch.manual_seed(2)
    theirs = nn.TransformerEncoderLayer(
        12, 3, 19, activation=activation, norm_first=True, batch_first=True,
        bias=bias, layer_norm_eps=1e-3, dtype=torch.float64, device=device,
    ).eval()  # fmt: skip  # a table of its settings
    with torch.no_grad():
        for parameter in theirs.parameters():
            if parameter.ndim == 1:
                parameter += 0.5 * torch.randn(parameter.shape).to(parameter)
    X = tensor(2, 7, 12)
    ours = at.Block.from_torch(theirs)
    close(ours(X), theirs(X))
    padded = torch.arange(7, device=device) >= torch.tensor([[3], [6]], device=device)
    expected = theirs(X, src_key_padding_mask=padded)[~padded]
    close(ours(X, ~padded[:, None, :])[~padded], expected)
    forbidden = ~at.causal_mask(7, device=device)
    expected = theirs(X, src_mask=forbidden)
    close(at.Block.from_torch(theirs, causal=True)(X), expected)


@pytest.mark.parametrize("training", [True, False])
def test_state_and_gradient_travel(tensor, close, device, training):
    theirs = nn.TransformerEncoderLayer(
        12, 3, 19, 0.0, norm_first=True, batch_first=True, dtype=torch.float64
    ).to(device)
    ours = at.Block.from_torch(theirs.train(training))
    assert {x.training for x in ours.modules()} == {training}
    X = tensor(2, 7, 12)
    (theirs(X) ** 2).sum().backward()
    (ours(X) ** 2).sum().backward()
    close(ours.widen.weight.grad, theirs.linear1.weight.grad)
    close(ours.attention.out_proj.weight.grad, theirs.self_attn.out_proj.weight.grad)
    with torch.no_grad():  # copies, not views
        ours.narrow.weight.zero_()
    assert theirs.linear2.weight.any()


def test_the_chances_to_drop_travel():
    theirs = nn.TransformerEncoderLayer(12, 3, dropout=0.3, norm_first=True)
    ours = at.Block.from_torch(theirs)
    assert ours.drop.p == ours.attention.dropout == 0.3


# The language model


@each_kind
def test_no_logit_sees_a_later_token(model, ids, positions):
    made = model(positions)
    before = made(ids)
    for t in range(1, 11):
        other = ids.clone()
        other[:, t] = (other[:, t] + 5) % 13
        change = (made(other) - before).abs().amax((0, 2))
        assert not change[:t].any() and change[t] > 0


def test_who_knows_the_order(model, ids):
    """One causal layer without positions sees a set behind each token; with positions it does not."""
    swapped = ids[:, [1, 0, *range(2, 11)]]
    for positions in POSITIONS:
        made = model(positions)
        del made.blocks[1]
        last = [made(x)[:, -1] for x in (ids, swapped)]
        assert torch.allclose(*last, atol=1e-12) == (positions is None)


@each_kind
def test_logits_with_a_cache_are_those_without(model, ids, close, positions):
    made, caches = model(positions), [at.KVCache(), at.KVCache()]
    with torch.no_grad():
        parts = [
            made(ids[:, a:b], caches=caches)
            for a, b in ((0, 4), (4, 5), (5, 8), (8, 11))
        ]
        close(torch.cat(parts, 1), made(ids))


@each_kind
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_the_cache_writes_the_same_tokens(model, ids, device, positions, temperature):
    written = []
    for cached in (True, False):
        generator = torch.Generator(device).manual_seed(4)
        options = dict(temperature=temperature, generator=generator, cached=cached)
        written.append(model(positions).generate(ids, 40, **options))
    assert torch.equal(*written)
    assert written[0].shape == (2, 51) and torch.equal(written[0][:, :11], ids)
    assert len(written[0][:, 11:].unique()) > 2


def test_greedy_takes_the_largest_logit_each_time(model, ids):
    made = model("rotary")
    for _ in range(9):
        ids = torch.cat([ids, made(ids)[:, -1:].argmax(-1)], -1)
    assert torch.equal(made.generate(ids[:, :11], 9), ids)


def test_temperature_divides_the_logits(model, device):
    """Frequencies of 20,000 drawn tokens beside the probabilities; their standard error is at most 0.0036."""
    made = model("rotary")
    generator = torch.Generator(device).manual_seed(0)
    start = torch.full((20_000, 1), 7, device=device)
    drawn = made.generate(start, 1, temperature=0.4, generator=generator)[:, 1]
    expected = (made(start[0]) / 0.4).softmax(-1)[0]
    found = torch.bincount(drawn, minlength=13) / 20_000
    assert (found - expected).abs().max() < 0.015
    assert (made(start[0]).softmax(-1)[0] - expected).abs().max() > 0.05


@each_kind
def test_the_cache_saves_work(model, ids, positions, monkeypatch):
    """Rows that go through a block: 11 and then 1 a step, where without the cache it is 11, 12, 13, …"""
    rows = []
    made = model(positions)
    made.blocks[0].register_forward_hook(
        lambda _, given, __: rows.append(given[0].shape[1])
    )
    made.generate(ids, 4)
    made.generate(ids, 4, cached=False)
    assert rows == [11, 1, 1, 1, 11, 12, 13, 14]


@each_kind
def test_weights_of_every_head(model, ids, close, positions):
    weights = model(positions).weights(ids)
    assert weights.shape == (2, 2, 3, 11, 11)
    close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    assert not weights.triu(1).any()
    made = model(positions)
    X = (
        made.embedding(ids)
        if positions != "sinusoidal"
        else made.encoding(made.embedding(ids))
    )
    close(weights[0], made.blocks[0].weights(X))
    close(weights[1], made.blocks[1].weights(made.blocks[0](X)))


@each_kind
def test_a_gradient_reaches_every_parameter(model, ids, positions):
    made = model(positions)
    nn.functional.cross_entropy(made(ids).flatten(0, 1), ids.flatten()).backward()
    for name, parameter in made.named_parameters():
        # A bias of the keys adds the same to all scores of a query. Rotary turns it, so that it counts there.
        dead = name.endswith("k_proj.bias") and positions != "rotary"
        assert (parameter.grad.abs().max() > 1e-9) != dead, name


def test_axes_before_the_tokens(model, ids, close):
    made = model("alibi")
    many = torch.stack([ids, ids.flip(0), ids.flip(1)])
    close(made(many)[1], made(ids.flip(0)))
    close(made(ids[0]), made(ids)[0])
    assert torch.equal(made.generate(many, 5)[2], made.generate(ids.flip(1), 5))
    assert made.generate(ids[0], 3, temperature=1.0).shape == (14,)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32])
def test_ids_of_any_whole_numbers(model, ids, dtype):
    made = model("sinusoidal")
    assert torch.equal(made(ids.to(dtype)), made(ids))
    written = made.generate(ids.to(dtype), 3)
    assert written.dtype == torch.long and torch.equal(written, made.generate(ids, 3))


def test_a_model_of_grouped_heads_in_a_dtype(device):
    options = dict(device=device, dtype=torch.float64)
    made = at.LanguageModel(13, 12, 6, 2, n_kv_heads=2, **options)
    assert {x.dtype for x in made.parameters()} == {torch.float64}
    assert {x.device.type for x in made.parameters()} == {device}
    assert made.blocks[1].attention.k_proj.out_features == 4
    assert "n_kv_heads=2" in repr(made)


def test_nothing_is_dropped_while_writing(model, ids):
    made = at.LanguageModel(13, 12, 3, 2, dropout=0.9).to(ids.device)
    written = made.eval().generate(ids, 20)
    for cached in True, False:
        assert torch.equal(made.train().generate(ids, 20, cached=cached), written)
    with pytest.raises(ValueError, match="no token"):
        made.generate(ids[..., :0], 1)
    assert all(x.training for x in made.modules())


def test_state_is_put_back_and_inputs_are_left_alone(model, ids):
    made, before = model("rotary").train(), ids.clone()
    made.blocks[0].eval()
    modes = {x: x.training for x in made.modules()}
    made.generate(ids, 3)
    assert {x: x.training for x in made.modules()} == modes
    assert made.training and torch.is_grad_enabled() and torch.equal(ids, before)


def test_marks_are_those_of_the_table():
    """To the last bit: both take angles in double precision."""
    marked = at.PositionalEncoding(7)(torch.zeros(301, 7))
    assert torch.equal(marked, at.sinusoidal_encoding(301, 7))


def test_marks_from_a_later_position_on(device, close):
    encode = at.PositionalEncoding(6)
    X = torch.zeros(9, 6, dtype=torch.float64, device=device)
    whole = encode(X)
    close(encode(X[4:], 4), whole[4:])
    fresh = at.PositionalEncoding(6)
    close(torch.cat([fresh(X[i : i + 1], i) for i in range(9)]), whole)


# Errors


def test_what_a_block_refuses():
    with pytest.raises(
        ValueError,
        match="^Block: positions must be 'rotary', 'alibi' or None, got 'sin'",
    ):
        at.Block(12, 3, positions="sin")
    with pytest.raises(ValueError, match="^Block: 'alibi' needs causal=True"):
        at.Block(12, 3, positions="alibi")
    with pytest.raises(
        ValueError, match="^Block: d_model=9 does not split into 2·n_heads=6"
    ):
        at.Block(9, 3, positions="rotary")
    with pytest.raises(ValueError, match="^Block: d_hidden must be 1 or more, got 0"):
        at.Block(12, 3, d_hidden=0)
    with pytest.raises(
        ValueError, match="^MultiHeadAttention: d_model=13 does not split"
    ):
        at.Block(13, 3)
    with pytest.raises(
        TypeError,
        match="^from_torch: needs a torch.nn.TransformerEncoderLayer, got Linear",
    ):
        at.Block.from_torch(nn.Linear(2, 2))
    with pytest.raises(
        ValueError, match="something else, so that it cannot be taken over$"
    ):
        at.Block.from_torch(nn.TransformerEncoderLayer(12, 3))


def test_what_the_model_refuses(model, ids):
    made = model("rotary")
    with pytest.raises(
        TypeError, match="^LanguageModel: ids must be whole numbers, got torch.float64"
    ):
        made(ids.double())
    with pytest.raises(
        TypeError, match="^LanguageModel: ids must be a torch.Tensor, got list"
    ):
        made([1, 2])
    if ids.device.type == "cpu":  # a GPU does not wait to be looked at
        for wrong in (13, -1):
            with pytest.raises(
                ValueError, match=f"ids must lie in 0 … 12, got {wrong}"
            ):
                made(torch.tensor([3, wrong]))
    with pytest.raises(ValueError, match="^LanguageModel: n_layers must be 1 or more"):
        at.LanguageModel(13, 12, 3, 0)
    choices = "'sinusoidal', 'rotary', 'alibi' or None, got 'rope'"
    with pytest.raises(
        ValueError, match=f"^LanguageModel: positions must be {choices}"
    ):
        at.LanguageModel(13, 12, 3, 1, positions="rope")
    with pytest.raises(ValueError, match="^generate: ids holds no token"):
        made.generate(ids[:, :0], 3)
    with pytest.raises(
        ValueError, match="^generate: temperature must be 0 or more, got -1"
    ):
        made.generate(ids, 3, temperature=-1)
    with pytest.raises(ValueError, match="^generate: n_new must be 0 or more"):
        made.generate(ids, -1)
    with pytest.raises(
        ValueError, match="^LanguageModel: 2 blocks need as many caches, each its own"
    ):
        made(ids, caches=[at.KVCache()])
    with pytest.raises(ValueError, match="caches, each its own, got 0"):
        made(ids, caches=[])
    with pytest.raises(ValueError, match="caches, each its own, got 1"):
        made(ids, caches=[at.KVCache()] * 2)


@pytest.mark.parametrize("model", [at.Block, at.LanguageModel])
def test_a_model_is_a_short_file(model):
    module = inspect.getmodule(model)
    assert module is not None and len(inspect.getsource(module).splitlines()) < 200


@pytest.mark.parametrize("positions", [None, "rotary"])
def test_what_stands_in_the_padding_does_not_matter(positions):
    block, X = at.Block(8, 2, positions=positions).eval(), torch.randn(2, 5, 8)
    mask = at.padding_mask(torch.tensor([3, 5]), 5)
    clean = block(X, mask)
    X[0, 3:] = torch.nan
    dirty = block(X, mask)
    torch.testing.assert_close(dirty[0, :3], clean[0, :3])
    torch.testing.assert_close(dirty[1], clean[1])
    assert dirty[0, 3:].isnan().all()  # a token sees itself in what it adds to


@pytest.mark.parametrize("cached", [True, False])
def test_a_sentence_ends(cached):
    torch.manual_seed(3)
    model = at.LanguageModel(5, 8, 2, 1).eval()
    ids = torch.tensor([[1], [2], [4]])
    free = model.generate(ids, 12, cached=cached)
    end = int(free[0, 3])
    written = model.generate(ids, 12, cached=cached, end=end)
    for row, open_row in zip(
        written[:, 1:].tolist(), free[:, 1:].tolist(), strict=True
    ):
        stop = open_row.index(end) + 1 if end in open_row else len(open_row)
        assert row[:stop] == open_row[: len(row)][:stop]
        assert set(row[stop:]) <= {end}
    alone = model.generate(ids[:1], 12, cached=cached, end=end)
    assert alone.shape[-1] <= 4 and alone[0, -1] == end


def test_what_a_block_is_given():
    block = at.Block(8, 2)
    with pytest.raises(
        ValueError, match=r"^Block: X has shape \(5, 7\) but needs \(…, n, 8\)"
    ):
        block(torch.ones(5, 7))
    for layer, name in (
        (block, "Block: X"),
        (at.MultiHeadAttention(8, 2), "MultiHeadAttention: Q"),
        (at.SelfAttention(8, 2), "SelfAttention: X"),
        (lambda X: at.AdditiveAttention(8, 8, 2)(X, X, X), "AdditiveAttention: Q"),
    ):
        words = f"^{name} is torch.float64 but the layer is torch.float32; cast one"
        with pytest.raises(TypeError, match=words):
            layer(torch.ones(5, 8, dtype=torch.float64))
        words = f"^{name} is on meta but the layer is on cpu; move one"
        with pytest.raises(ValueError, match=words):
            layer(torch.ones(5, 8, device="meta"))
