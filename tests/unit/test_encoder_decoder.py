"""The translator without recurrence: padding and later symbols reach nothing, and writing step by step is the same."""

import pytest
import torch

import attn_tutor.torch as at

END = 6


@pytest.fixture
def model(device):
    torch.manual_seed(2)
    made = at.TransformerTranslator(11, END + 1, 12, n_heads=3, n_layers=2)
    return made.double().to(device).eval()


@pytest.fixture
def pairs(device):
    generator = torch.Generator().manual_seed(4)
    words = torch.randint(1, 11, (3, 7), generator=generator)
    lengths = torch.tensor([7, 3, 5])
    words[torch.arange(7) >= lengths[:, None]] = 0
    target = torch.randint(END, (3, 5), generator=generator)
    target[1, 2:] = END
    return words.to(device), lengths.to(device), target.to(device)


def test_padding_has_no_influence(model, pairs, close):
    words, lengths, target = pairs
    logits, weights = model(*pairs)
    other = words.clone()
    other[1, 3:], other[2, 5:] = 9, 4
    close(model(other, lengths, target)[0], logits)
    for i, m in enumerate(lengths.tolist()):
        alone = model(words[i : i + 1, :m], lengths[i : i + 1], target[i : i + 1])
        close(alone[0][0], logits[i])
        close(alone[1][0], weights[i, :, :m])
        assert not weights[i, :, m:].any()


def test_each_step_sees_the_symbols_before_it_alone(model, pairs):
    """Logits t are those of symbol t: they may know symbols 0 to t − 1, and the end that stands in front."""
    words, lengths, target = pairs
    before, _ = model(*pairs)
    for t in range(5):
        other = target.clone()
        other[:, t] = (other[:, t] + 1) % END
        change = (model(words, lengths, other)[0] - before).abs().amax((0, 2))
        assert not change[: t + 1].any()
        assert t == 4 or change[t + 1] > 0


def test_every_word_is_seen(model, pairs):
    words, lengths, target = pairs
    before, _ = model(*pairs)
    for j in range(7):
        other = words.clone()
        other[0, j] = other[0, j] % 10 + 1
        assert (model(other, lengths, target)[0] - before)[0].abs().amin(0).max() > 0


def test_reading_knows_the_order_of_words(model, pairs):
    words, lengths, target = pairs
    before, _ = model(*pairs)
    turned = words.clone()
    turned[0] = words[0].flip(0)
    assert (model(turned, lengths, target)[0][0] - before[0]).abs().max() > 1e-3


def test_weights_are_the_mean_over_the_heads_of_the_last_block(model, pairs, close):
    _, weights = model(*pairs)
    close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    read = model.encode(*pairs[:2])
    previous = torch.cat([model.begin(pairs[2]), pairs[2][:, :-1]], 1)
    Y = model.encoding(model.symbols(previous))
    for block in model.writers:
        Y, each = block(Y, read)
    assert each.shape == (3, 3, 5, 7)
    close(weights, each.mean(1))


def test_what_is_looked_up_is_added(model, pairs, close):
    """With nothing looked up, a writer is a causal block."""
    writer = model.writers[0]
    with torch.no_grad():
        writer.cross.out_proj.weight.zero_()
        Y = model.symbols(pairs[2])
        close(writer(Y, model.encode(*pairs[:2]))[0], writer.block(Y))


def test_translating_takes_the_likeliest_symbol_each_time(model, pairs):
    words, lengths, _ = pairs
    tokens, scores = model.translate(words, lengths, 5)
    written = torch.full((3, 5), END, device=words.device)
    total = torch.zeros(3, dtype=torch.float64, device=words.device)
    for t in range(5):
        log_p = model(words, lengths, written)[0][:, t].log_softmax(-1)
        over = (written[:, :t] == END).any(-1)
        written[:, t] = torch.where(over, END, log_p.argmax(-1))
        total += torch.where(over, 0, log_p.amax(-1))
    assert torch.equal(tokens[:, 0], written[:, : tokens.shape[-1]])
    torch.testing.assert_close(scores[:, 0].double(), total, rtol=1e-5, atol=1e-5)


def test_a_beam_keeps_each_sentence_with_its_own_words(model, pairs):
    words, lengths, _ = pairs
    together = model.translate(words, lengths, 4, beam_width=3)
    for i, m in enumerate(lengths.tolist()):
        alone = model.translate(words[i : i + 1, :m], lengths[i : i + 1], 4, 3)
        T = alone[0].shape[-1]
        assert torch.equal(together[0][i, :, :T], alone[0][0])
        torch.testing.assert_close(together[1][i], alone[1][0])


def test_a_gradient_reaches_every_parameter(model, pairs):
    model.train()
    at.translation_loss(model, pairs).backward()
    for name, parameter in model.named_parameters():
        dead = name.endswith("k_proj.bias")  # it adds the same to all scores of a query
        assert (parameter.grad.abs().max() > 1e-9) != dead, name


def test_dropout_only_while_training(pairs, device):
    model = at.TransformerTranslator(11, 7, 12, 3, 1, dropout=0.5).to(device)
    for training in (True, False):
        model.train(training)
        same = torch.equal(model(*pairs)[0], model(*pairs)[0])
        assert same != training


@pytest.mark.slow
def test_it_learns_to_copy(device):
    """Three words from each of which a symbol follows: cross-attention must find its place."""

    def draw(generator):
        target = torch.randint(END, (32, 4), generator=generator)
        target[:, 3] = END
        return target[:, :3] + 1, torch.full((32,), 3), target

    torch.manual_seed(0)
    model = at.TransformerTranslator(END + 1, END + 1, 16, 2, 1).to(device)
    at.train(model, at.translation_loss, draw, steps=200, lr=1e-2, progress=False)
    words, lengths, target = draw(torch.Generator().manual_seed(9))
    tokens, _ = model.translate(words.to(device), lengths.to(device), 4)
    assert (tokens[:, 0].cpu() == target).all(1).double().mean() > 0.9


@pytest.fixture(params=[at.Translator, at.TransformerTranslator])
def either(request):
    sizes = (12,) if request.param is at.Translator else (12, 3, 1)
    return request.param(11, 7, *sizes).eval()


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        (torch.tensor([2]), r"needs words \(b, m\) and lengths \(b,\), got \(2, 3\) and \(1,\)"),
        (torch.tensor([2, 0]), "lengths must lie in 1 … 3, got 0"),
        (torch.tensor([2, 4]), "lengths must lie in 1 … 3, got 4"),
        (torch.tensor([2.0, 1.0]), "lengths must be whole numbers, got torch.float32"),
        ([2, 1], "lengths must be a torch.Tensor, got list"),
    ],
)  # fmt: skip  # a table reads as lines
def test_lengths_that_do_not_fit(either, lengths, message):
    words = torch.ones(2, 3, dtype=torch.long)
    message = f"^{type(either).__name__}: {message}"
    with pytest.raises((TypeError, ValueError), match=message):
        either(words, lengths, words)
    with pytest.raises((TypeError, ValueError), match=message):
        either.translate(words, lengths, 4)


def test_nothing_is_dropped_while_writing(pairs):
    model = at.TransformerTranslator(11, END + 1, 12, 3, 2, dropout=0.9)
    words, lengths, _ = (x.cpu() for x in pairs)
    right = model.eval().translate(words, lengths, 6, 2)
    for one, other in zip(
        model.train().translate(words, lengths, 6, 2), right, strict=True
    ):
        assert torch.equal(one, other)
    assert all(x.training for x in model.modules())


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32])
def test_words_of_any_whole_numbers(either, dtype, pairs):
    pairs = [x.cpu() for x in pairs]
    small = [x.to(dtype) for x in pairs]
    assert torch.equal(either(*small)[0], either(*pairs)[0])
    tokens, _ = either.translate(*small[:2], 4)
    assert torch.equal(tokens, either.translate(*pairs[:2], 4)[0])
    assert torch.equal(
        at.translation_loss(either, small), at.translation_loss(either, pairs)
    )


def test_words_that_there_are_not(either, pairs):
    words, lengths, target = (x.cpu() for x in pairs)
    with pytest.raises(ValueError, match="words must lie in 0 … 10, got 11"):
        either(words + (words == 10), lengths, target)
    with pytest.raises(ValueError, match="target must lie in 0 … 6, got 7"):
        either(words, lengths, target + (target == 6))


@pytest.mark.full
def test_a_translator_is_exported_for_any_lengths(pairs):
    """Words and targets of other numbers and lengths than those it was exported with."""
    torch.manual_seed(2)
    model = at.TransformerTranslator(11, END + 1, 12, n_heads=3, n_layers=1).eval()
    words, lengths, target = (x.cpu() for x in pairs)
    b, m, T = (torch.export.Dim(name, min=3, max=50) for name in ("b", "m", "T"))
    shapes = ({0: b, 1: m}, {0: b}, {0: b, 1: T})
    program = torch.export.export(
        model, (words, lengths, target), dynamic_shapes=shapes
    )
    other = (
        torch.ones(4, 6, dtype=torch.long),
        torch.tensor([6, 1, 2, 5]),
        words[:1].expand(4, -1)[:, :3] % 7,
    )
    torch.testing.assert_close(program.module()(*other), model(*other))


def test_what_it_refuses():
    with pytest.raises(ValueError, match="^TransformerTranslator: n_layers must be 1"):
        at.TransformerTranslator(11, 7, 12, 3, 0)
    with pytest.raises(ValueError, match="^TransformerTranslator: n_words must be 1"):
        at.TransformerTranslator(0, 7, 12, 3, 1)
    with pytest.raises(ValueError, match="^MultiHeadAttention: d_model=12 does not"):
        at.TransformerTranslator(11, 7, 12, 5, 1)
