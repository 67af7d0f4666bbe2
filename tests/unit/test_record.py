"""record_weights: what each layer weighs, and a model that does not notice."""

import inspect

import pytest
import torch
from torch import nn

import attn_tutor.torch as at


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(3)


X = torch.linspace(-2, 2, 3 * 5 * 8, dtype=torch.float32).sin().reshape(3, 5, 8)
MASK = at.padding_mask(torch.tensor([5, 2, 4]), 5)


def recorded_from(model, *args, **kwargs):
    """What is recorded, once the model has returned the same with and without it, and afterwards."""
    plain = model(*args, **kwargs)
    with at.record_weights(model) as recorded:
        watched = model(*args, **kwargs)
    torch.testing.assert_close(watched, plain)
    torch.testing.assert_close(model(*args, **kwargs), plain)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    return recorded


def test_layers_of_this_package(close):
    layer = at.MultiHeadAttention(8, 2, causal=True)
    recorded = recorded_from(layer, X, mask=MASK)
    (weights,) = recorded.pop("")
    assert not recorded
    close(weights, layer(X, mask=MASK, need_weights=True)[1].detach())
    assert not weights.requires_grad
    asked = {"need_weights": True}
    close(recorded_from(layer, X, mask=MASK, **asked)[""][0], weights)
    layer = at.SelfAttention(8, 3, causal=True)
    (weights,) = recorded_from(layer, X, MASK)[""]
    close(weights, layer(X, MASK, need_weights=True)[1].detach())
    layer = at.AdditiveAttention(8, 8, 6)
    (weights,) = recorded_from(layer, X, X, X, mask=MASK)[""]
    close(weights, layer(X, X, X, MASK, need_weights=True)[1].detach())
    layer = at.BilinearAttention(8, 8)
    (weights,) = recorded_from(layer, X, X[..., :4, :], X[..., :4, :])[""]
    expected = at.softmax(at.bilinear_score(X, X[..., :4, :], layer.M))
    close(weights, expected.detach())


def test_language_model(close):
    model = at.LanguageModel(11, 8, 4, 2, positions="rotary", n_kv_heads=2)
    ids = torch.tensor([[3, 1, 4, 1, 5, 9]])
    recorded = recorded_from(model, ids)
    assert list(recorded) == ["blocks.0.attention", "blocks.1.attention"]
    close(torch.stack([w for (w,) in recorded.values()]), model.weights(ids).detach())
    with at.record_weights(model) as recorded:
        model.generate(ids, 3)
    shapes = [tuple(w.shape) for w in recorded["blocks.1.attention"]]
    assert shapes == [(1, 4, 6, 6), (1, 4, 1, 7), (1, 4, 1, 8)]
    assert inspect.ismethod(model.blocks[0].attend)


def test_translators():
    words, lengths = torch.tensor([[2, 3, 1], [4, 1, 1]]), torch.tensor([3, 2])
    symbols = torch.tensor([[1, 2, 2, 0], [3, 1, 0, 0]])
    recorded = recorded_from(at.Translator(5, 4, 6), words, lengths, symbols)
    assert len(recorded["decoder.attention"]) == 4  # steps
    model = at.TransformerTranslator(5, 4, 8, 2, 1)
    recorded = recorded_from(model, words, lengths, symbols)
    assert {name: tuple(w.shape) for name, (w,) in recorded.items()} == {
        "readers.0.attention": (2, 2, 3, 3),
        "writers.0.block.attention": (2, 2, 4, 4),
        "writers.0.cross": (2, 2, 4, 3),
    }
    (cross,) = recorded["writers.0.cross"]
    assert (cross[1, ..., 2] == 0).all() and (cross[1, ..., :2] > 0).all()


@pytest.mark.parametrize("need", [{}, {"need_weights": False}, {"average_attn_weights": False}])  # fmt: skip
def test_torchs_layer(need, close):
    layer = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    recorded = recorded_from(layer, X, X, X, **need)
    expected = layer(X, X, X, average_attn_weights=False)[1]
    close(recorded[""][0], expected.detach())


def test_torchs_encoder_whose_fast_path_has_no_layers(close):
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    with torch.no_grad():
        recorded = recorded_from(encoder, X, src_key_padding_mask=~MASK[:, 0])
    assert list(recorded) == ["layers.0.self_attn", "layers.1.self_attn"]
    (weights,) = recorded["layers.0.self_attn"]
    assert weights.shape == (3, 2, 5, 5)
    close(weights.sum(-1), torch.ones(3, 2, 5))
    assert (weights[1, ..., 2:] == 0).all()


def test_models_without_weights():
    with pytest.raises(ValueError, match="Linear has no attention layer"):  # fmt: skip
        at.record_weights(nn.Linear(2, 3)).__enter__()
    with pytest.raises(TypeError, match=r"must be a torch.nn.Module, got int"):
        at.record_weights(3).__enter__()


SIZES = dict(
    vocab_size=13, hidden_size=12, num_hidden_layers=2, num_attention_heads=3, intermediate_size=7,
    max_position_embeddings=16,
)  # fmt: skip


def transformers_model(kind, **options):
    import transformers

    config = getattr(transformers, f"{kind}Config")(**SIZES | options)
    return getattr(transformers, f"{kind}Model")(config).eval()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "options", "names"),
    [
        ("Llama", {"num_key_value_heads": 1}, ["layers.0.self_attn", "layers.1.self_attn"]),
        ("Bert", {}, ["encoder.layer.0.attention.self", "encoder.layer.1.attention.self"]),
        ("GPT2", {}, ["h.0.attn", "h.1.attn"]),
        ("Albert", {"embedding_size": 5}, ["encoder.albert_layer_groups.0.albert_layers.0.attention"]),
    ],
)  # fmt: skip
def test_transformers(kind, options, names, close):
    model = transformers_model(kind, attn_implementation="eager", **options)
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    with torch.no_grad():
        expected = model(ids, output_attentions=True).attentions
        with at.record_weights(model) as recorded:
            model(ids)
    assert list(recorded) == names
    calls = [weights for calls in recorded.values() for weights in calls]
    close(torch.stack(calls), torch.stack(expected))


@pytest.mark.slow
def test_transformers_without_eager_attention():
    model = transformers_model("Llama", attn_implementation="sdpa")
    with (
        pytest.raises(ValueError, match='LlamaAttention keeps.*"eager"'),
        at.record_weights(model),
    ):
        model(torch.tensor([[3, 1]]))


def test_recordings_within_recordings():
    torch.manual_seed(3)
    block, X = at.Block(8, 2, causal=True), torch.randn(5, 8)
    expected = block.weights(X)
    with at.record_weights(block) as outer:
        with at.record_weights(block) as inner:
            block(X)
        block(X)
    assert len(outer["attention"]) == 2 and len(inner["attention"]) == 1
    torch.testing.assert_close(inner["attention"][0], expected.detach())
    assert "attend" not in vars(block)
