"""Texts of different lengths in one batch: each token gets what it gets where its text stands alone."""

from functools import partial
from itertools import accumulate

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import attn_tutor.torch as at
from attn_tutor.rules import Rule

PAD, N_TOKENS = 0, 13
KINDS = ["sinusoidal", "rotary", "alibi", None]
each_kind = pytest.mark.parametrize("kind", KINDS)
ROTARY = {"base": 50.0, "factor": 1.3, "rates": torch.tensor([1.0, 0.3])}
DTYPES = {  # atol of logits of order 1
    torch.float64: 1e-12,
    torch.float32: 2e-5,
    torch.bfloat16: 0.15,
}


def model_of(kind, window=None, dtype=torch.float64, n_layers=2):
    torch.manual_seed(3)
    turned = ROTARY if kind == "rotary" else {}
    return at.LanguageModel(
        N_TOKENS, 16, 4, n_layers, positions=kind, n_kv_heads=2, window=window, dtype=dtype, **turned
    ).eval()  # fmt: skip


def texts_of(*lengths):
    generator = torch.Generator().manual_seed(sum(lengths))
    return [torch.randint(1, N_TOKENS, (n,), generator=generator) for n in lengths]


# Ways to put texts into a batch: ids, (…, m); where each token of each text is, as indices; a mask of the first tokens


def padded(texts, left):
    """A row for each text, with the padding on the left, on the right, or some on either side."""
    m = max(map(len, texts))
    m += left == "both"
    ids, mask = torch.full((len(texts), m), PAD), torch.zeros(len(texts), m).bool()
    places = []
    for b, text in enumerate(texts):
        room = m - len(text)
        start = {"left": room, "right": 0, "both": (room + 1) // 2}[left]
        places.append((torch.tensor(b), torch.arange(start, start + len(text))))
        ids[places[-1]], mask[places[-1]] = text, True
    return ids, places, lambda seen: mask[:, :seen]


def by_lengths(texts):
    ids, places, _ = padded(texts, "right")
    lengths = torch.tensor([len(text) for text in texts])
    return ids, places, lambda seen: at.valid(lengths)


def packed(texts, rows, batched=True, among=lambda rule: rule):
    """Texts one after the other in some rows, the rest of which is a document of padding."""
    parts = [texts[k::rows] for k in range(rows)]
    m = max(sum(map(len, part)) for part in parts) + 1
    ids, numbers = torch.full((rows, m), PAD), torch.full((rows, m), 99)
    places = [(torch.tensor(0), torch.arange(0))] * len(texts)
    for b, part in enumerate(parts):
        ends = list(accumulate(map(len, part)))
        for k, (text, end) in enumerate(zip(part, ends, strict=True)):
            at_ = (torch.tensor(b), torch.arange(end - len(text), end))
            ids[at_], numbers[at_], places[b + k * rows] = text, 7 - k, at_
    if not batched:
        places = [place for _, place in places]
        return ids[0], places, lambda seen: among(at.documents(numbers[0, :seen]))
    return ids, places, lambda seen: among(at.documents(numbers[:, :seen]))


WAYS = {
    "left": partial(padded, left="left"),
    "right": partial(padded, left="right"),
    "either side": partial(padded, left="both"),
    "lengths": by_lengths,
    "one row": partial(packed, rows=1, batched=False),
    "two rows": partial(packed, rows=2),
    "two rows, and a rule": partial(
        packed, rows=2, among=lambda rule: at.First(999) & (rule & at.Causal())
    ),
}


def require_as_alone(model, texts, way, sizes=None, atol=1e-12):
    """All at once, or in parts of these sizes with caches."""
    ids, places, mask = WAYS[way](texts)
    if sizes is None:
        logits = model(ids, mask(ids.shape[-1]))
    else:
        window = getattr(model.window, "width", model.window)
        caches = [at.KVCache(window=window) for _ in model.blocks]
        parts, seen = [], 0
        while seen < ids.shape[-1]:
            part = ids[..., seen : seen + sizes[len(parts) % len(sizes)]]
            seen += part.shape[-1]
            parts.append(model(part, mask(seen), caches=caches))
        logits = torch.cat(parts, -2)
    for text, place in zip(texts, places, strict=True):
        torch.testing.assert_close(logits[place], model(text), atol=atol, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("sizes", [None, [1], [4, 1, 5]], ids=str)
@pytest.mark.parametrize("window", [None, 3], ids=str)
@pytest.mark.parametrize("way", WAYS)
@each_kind
@torch.no_grad()
def test_texts_in_a_batch(kind, way, window, sizes, dtype):
    model = model_of(kind, window, dtype)
    require_as_alone(model, texts_of(5, 2, 7, 1), way, sizes, DTYPES[dtype])


@pytest.mark.parametrize("way", WAYS)
@each_kind
@torch.no_grad()
def test_texts_in_a_batch_in_chunks(kind, way):
    require_as_alone(model_of(kind, 3), texts_of(5, 2, 7, 1), way, [4, 1, 5])


@given(
    st.sampled_from(KINDS),
    st.sampled_from([*WAYS]),
    st.lists(st.integers(1, 9), min_size=1, max_size=5),
    st.sampled_from([None, 1, 2, 5]),
    st.none() | st.lists(st.integers(1, 6), min_size=1, max_size=3),
    st.booleans(),
)
@torch.no_grad()
def test_any_texts_in_a_batch(kind, way, lengths, window, sizes, nan):
    """The vector of the padding is NaN, or like the others."""
    model = model_of(kind, window)
    model.embedding.weight[PAD] = torch.nan if nan else 1.0
    require_as_alone(model, texts_of(*lengths), way, sizes)


@pytest.mark.parametrize("way", WAYS)
@each_kind
def test_gradients_of_texts_in_a_batch(kind, way):
    texts, gradients = texts_of(5, 2, 7, 1), []
    together, alone = model_of(kind), model_of(kind)
    ids, places, mask = WAYS[way](texts)
    logits = together(ids, mask(ids.shape[-1]))
    sum((logits[place] ** 2).sum() for place in places).backward()
    sum((alone(text) ** 2).sum() for text in texts).backward()
    for model in together, alone:
        gradients.append({k: x.grad for k, x in model.named_parameters()})
    torch.testing.assert_close(*gradients, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("way", WAYS)
@each_kind
@torch.no_grad()
def test_weights_of_texts_in_a_batch(kind, way):
    model, texts = model_of(kind), texts_of(5, 2, 7, 1)
    ids, places, mask = WAYS[way](texts)
    weights = model.weights(ids, mask(ids.shape[-1])).movedim(0, -3)  # (…, h, l, n, n)
    for text, place in zip(texts, places, strict=True):
        batch, tokens = place if isinstance(place, tuple) else (..., place)
        mine = weights[batch][..., tokens, :][..., tokens]
        torch.testing.assert_close(mine, model.weights(text).movedim(0, -3))


# Writing


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("window", [None, 4])
@each_kind
def test_beginnings_of_different_lengths(kind, window, cached):
    model, texts = model_of(kind, window), texts_of(5, 2, 7, 1)
    ids, _, mask = padded(texts, "left")
    before = mask(7).clone()
    written = model.generate(ids, 5, mask=mask(7), cached=cached)
    assert torch.equal(mask(7), before)
    for row, text in zip(written, texts, strict=True):
        assert torch.equal(row[7 - len(text) :], model.generate(text, 5))
    right, _, mask = padded(texts, "right")
    with pytest.raises(ValueError, match="^generate: a text ends with padding; pad it"):
        model.generate(right, 1, mask=mask(7))
    for wrong in torch.ones(4, 6).bool(), torch.ones(3, 7).bool():
        with pytest.raises(ValueError, match=r"^generate: mask has shape .* \(4, 7\)"):
            model.generate(ids, 1, mask=wrong)


# Positions of one's own


@each_kind
@torch.no_grad()
def test_positions_of_ones_own(kind):
    """Those that are counted are those that one would give; fractions are positions, too."""
    model, ids = model_of(kind), torch.arange(1, 13).reshape(2, 6)
    positions = torch.tensor([[0, 1, 2, 0, 1, 0], [0, 1, 0, 1, 2, 3]])
    numbers = torch.tensor([[0, 0, 0, 1, 1, 2], [0, 0, 1, 1, 1, 1]])
    if kind not in ("sinusoidal", "rotary"):
        with pytest.raises(ValueError, match=f"this model was made with {kind!r}"):
            model(ids, positions=positions)
        return
    rule = at.documents(numbers)
    torch.testing.assert_close(model(ids, rule, positions=positions), model(ids, rule))
    ordered = torch.arange(6)
    torch.testing.assert_close(model(ids, positions=ordered), model(ids))
    torch.testing.assert_close(model(ids, positions=ordered.expand(2, 6)), model(ids))
    for other in positions, ordered / 2, torch.tensor(3):
        assert not torch.allclose(model(ids, positions=other), model(ids), atol=1e-3)
    later = model(ids, positions=ordered + 40)  # rotary looks at distances alone
    assert torch.allclose(later, model(ids), atol=1e-9) == (kind == "rotary")
    for wrong in torch.arange(5), torch.zeros(3, 6):
        with pytest.raises(ValueError, match="^LanguageModel: positions have shape"):
            model(ids, positions=wrong)
    with pytest.raises(ValueError, match=r"\(2, 6\) but must broadcast to \(6,\)"):
        model(ids[0], positions=positions)
    with pytest.raises(TypeError, match="^LanguageModel: positions must be a torch"):
        model(ids, positions=[0] * 6)


@torch.no_grad()
def test_a_block_takes_positions_of_each_sequence():
    X = torch.randn(2, 6, 8, dtype=torch.float64)
    positions = torch.stack([torch.arange(6), 3 * torch.arange(6)])
    block = at.Block(8, 2, causal=True, positions="rotary", dtype=torch.float64)
    together = block(X, positions=positions)
    weights = block.weights(X, positions=positions)
    for b in range(2):
        torch.testing.assert_close(together[b], block(X[b], positions=positions[b]))
        alone = block.weights(X[b], positions=positions[b])
        torch.testing.assert_close(weights[b], alone)
    torch.testing.assert_close(together[0], block(X[0]))
    for kind in "alibi", None:
        block = at.Block(8, 2, causal=True, positions=kind, dtype=torch.float64)
        with pytest.raises(ValueError, match="^Block: positions are for 'rotary'"):
            block(X, positions=positions)


@torch.no_grad()
def test_marks_at_positions():
    encode, X = at.PositionalEncoding(6), torch.zeros(2, 3, 6, dtype=torch.float64)
    table = at.sinusoidal_encoding(9, 6, dtype=torch.float64)
    positions = torch.tensor([[4, 0, 8], [1, 1, 2]])
    torch.testing.assert_close(encode(X, positions=positions), table[positions])
    with pytest.raises(ValueError, match="^PositionalEncoding: positions have shape"):
        encode(X, positions=torch.arange(2))


@torch.no_grad()
@each_kind
def test_sinks_are_no_padding(kind):
    """They are the first of a row: right padding gives what texts give alone, and left padding is refused."""
    model = model_of(kind, at.Window(3, sinks=2))
    texts = texts_of(9, 4, 1)
    require_as_alone(model, texts, "right")
    refused = pytest.raises(ValueError, match="^LanguageModel: the window's sinks are the first 2 tokens")  # fmt: skip
    for way in "left", "either side":
        with refused:
            require_as_alone(model, texts, way)
    ids, _, mask = WAYS["left"](texts)
    with refused:
        model.generate(ids, 2, mask=mask(9))
    alone = model(texts[0])
    hidden = torch.arange(9) != 5  # no padding on the left, nor where a sink is
    torch.testing.assert_close(model(texts[0], hidden)[:5], alone[:5])
    caches, parts = [at.KVCache(window=3, sinks=2) for _ in model.blocks], []
    for start, stop in ((0, 6), (6, 9)):
        mask = torch.ones(stop).bool()
        parts.append(model(texts[0][start:stop], mask, caches=caches))
    torch.testing.assert_close(torch.cat(parts), alone)


# Base, rates and factor


@torch.no_grad()
def test_a_block_turns_by_base_rates_and_factor():
    X = torch.randn(2, 5, 8, dtype=torch.float64)
    rates = torch.tensor([0.7], dtype=torch.float64)
    for turned in ({"base": 30.0}, {"rates": rates, "factor": 1.5}, {"factor": 0.5}):
        torch.manual_seed(0)
        block = at.Block(8, 2, positions="rotary", dtype=torch.float64, **turned)
        torch.manual_seed(0)
        plain = at.Block(8, 2, dtype=torch.float64)
        expected = plain.attention(
            plain.norm_1(X), rotate=lambda heads, turned=turned: at.rotary(heads, **turned)
        )  # fmt: skip
        torch.testing.assert_close(block.attend(block.norm_1(X)), expected)


def test_rates_stay_exact():
    """In half precision, on a copy, after a round through a file; and they are no part of the state."""
    rates, factor = at.rotary_rates(
        {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 99}, 4
    )  # fmt: skip
    model = at.LanguageModel(N_TOKENS, 16, 4, 1, rates=rates, factor=factor)
    plain = at.LanguageModel(N_TOKENS, 16, 4, 1)
    assert model.state_dict().keys() == plain.state_dict().keys()
    for other in model.half(), model.bfloat16(), model.double():
        turn = other.blocks[0].turn.keywords
        assert turn["rates"].dtype == torch.float64 and torch.equal(turn["rates"], rates)  # fmt: skip
        assert turn["factor"] == factor


def test_what_blocks_refuse():
    rates = torch.tensor([1.0, 0.1])
    for make, words in (
        (lambda: at.Block(8, 2, rates=rates), "^Block: rates are for positions='rotary'"),
        (lambda: at.Block(4, 2, positions="rotary", rates=rates), r"^Block: rates have shape \(2,\)"),
        (lambda: at.Block(8, 2, positions="rotary", base=0), "^Block: base must be above 0"),
        (lambda: at.Block(8, 2, positions="rotary", factor=-1), "^Block: factor must be above 0"),
        (lambda: at.LanguageModel(5, 8, 2, 1, positions="alibi", rates=rates), "^Block: rates are for"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            make()
    with pytest.raises(TypeError, match=r"^Block: rates must be a torch.Tensor, got"):
        at.Block(8, 2, positions="rotary", rates=[1.0])


# Masks


@torch.no_grad()
def test_masks_of_other_shapes():
    model, ids = model_of("rotary"), torch.arange(1, 13).reshape(3, 4)
    rows = torch.ones(3, 4, 4).bool()
    rows[:, 2, 0] = False
    assert not torch.allclose(model(ids, rows), model(ids))
    torch.testing.assert_close(model(ids, rows)[:, :2], model(ids)[:, :2])
    torch.testing.assert_close(model(ids[0], rows[0]), model(ids, rows)[0])
    one = torch.tensor([True, False, True, True])  # the same for all
    torch.testing.assert_close(model(ids, one), model(ids, one.expand(3, 4)))
    even = Rule(lambda i, j: (i - j) % 2 == 0)  # which says nothing of positions
    dense = even.pairs(torch.arange(4)[:, None], torch.arange(4)).expand(3, 4, 4)
    torch.testing.assert_close(model(ids, even), model(ids, dense))
    for wrong in torch.ones(2, 4).bool(), torch.ones(3, 5).bool(), torch.ones(3, 1).bool():  # fmt: skip
        words = r"^LanguageModel: mask has shape .* but needs \(3, 4\)"
        with pytest.raises(ValueError, match=words):
            model(ids, wrong)
    with pytest.raises(ValueError, match="documents numbers 3 tokens, but there are 4"):
        model(ids, at.documents(torch.zeros(3, 3, dtype=torch.int64)))
    with pytest.raises(TypeError, match="^LanguageModel: masks are boolean"):
        model(ids, torch.ones(3, 4))
    caches = [at.KVCache() for _ in model.blocks]
    model(ids, caches=caches)
    with pytest.raises(ValueError, match=r"needs \(3, 5\).* in the caches count, too$"):
        model(ids[:, :1], torch.ones(3, 1).bool(), caches=caches)


def test_what_others_call_it():
    model, ids = model_of(None), torch.ones(2, 3).long()
    for name, words in {
        "attention_mask": r"mask=attention_mask.bool\(\) here: True = may attend",
        "key_padding_mask": "mask=~key_padding_mask here: True = may attend",
        "position_ids": "positions here",
        "past_key_values": "caches here, a KVCache for each block",
    }.items():
        with pytest.raises(TypeError, match=f"^LanguageModel: {name} is {words}$"):
            model(ids, **{name: None})
    with pytest.raises(TypeError, match="^LanguageModel: input_ids is ids here$"):
        model(input_ids=ids)
