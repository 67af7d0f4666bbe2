"""Kinds of bugs that the checks once passed over or gave another's name, each in several programs."""

from functools import partial

import pytest
import torch
from planted.hugging import ForCausalLM
from planted.mingpt import GPT
from torch import nn
from torch.nn.functional import dropout, scaled_dot_product_attention

from attn_tutor import failures
from attn_tutor.failures import __main__ as command
from attn_tutor.torch import LanguageModel

IDS = torch.randint(13, (4, 9), generator=torch.Generator().manual_seed(1))
X = torch.randn(3, 7, 16, generator=torch.Generator().manual_seed(2))


def causes(found):
    return [finding.cause for finding in found]


def full(n):
    return torch.ones(n, n, dtype=torch.bool)


class Masked(nn.Module):
    """Two causal layers; ``sees`` makes what a query may see of the causal mask and of the words, or None."""

    def __init__(self, sees, low=-1e9, after=lambda x, words: x, layers=2):
        super().__init__()
        torch.manual_seed(0)
        self.sees, self.low, self.after = sees, low, after
        self.table, self.places = nn.Embedding(13, 16), nn.Embedding(64, 16)
        self.maps = nn.ModuleList(nn.Linear(16, 48) for _ in range(layers))

    def forward(self, ids, words=None):
        n = ids.shape[1]
        count = torch.ones_like(ids) if words is None else words
        x = self.table(ids) + self.places((count.cumsum(-1) - 1).clamp(min=0))
        past = full(n).tril()
        may = past if words is None else self.sees(past, words[:, None])
        for layer in self.maps:
            q, k, v = layer(x).chunk(3, -1)
            S = (q @ k.mT / 4).masked_fill(~may, self.low)
            x = x + S.softmax(-1) @ v
        return self.after(x, words)


def right(past, words):
    return past & words


SEES = {
    "the padding mask in place of the causal": lambda past, words: words.expand(-1, *past.shape),
    "one or the other": lambda past, words: past | words,
    "off by one": lambda past, words: full(len(past)).tril(1) & words,
    "the future": lambda past, words: past.mT & words,
    "a window on both sides": lambda past, words: (past | full(len(past)).triu(-2).tril(2)) & words,
    "from 8 tokens on": lambda past, words: (past if len(past) < 8 else full(len(past))) & words,
}  # fmt: skip


@pytest.mark.parametrize("pads", ["left", "right"])
@pytest.mark.parametrize("low", [-1e9, -torch.inf])
@pytest.mark.parametrize("bug", SEES)
def test_causality_lost_with_a_mask(bug, low, pads):
    model = Masked(SEES[bug], low)
    ids = IDS.repeat(1, 2) if bug.startswith("from") else IDS
    assert not failures.check_all(model, ids)
    assert failures.check_all(model, ids, pads=pads)
    assert not failures.check_all(Masked(right), ids, pads=pads)
    if bug.startswith("the padding"):
        found = failures.leaks_future(model, ids, pads)
        assert found.cause == "future is read" and "with pads" in str(found)


def mixed(x, words):
    return x if words is None else x + x.mean(0, keepdim=True)


def drawn(x, words):
    return x if words is None else dropout(x, 0.5)


def test_what_a_mask_alone_brings_about():
    mixes = failures.check_all(Masked(right, after=mixed), IDS, pads="right")
    assert "mixes_sentences with pads" in [x.check for x in mixes]
    chance = failures.check_all(Masked(right, after=drawn), IDS, pads="left")
    assert causes(chance) == ["random in eval"]
    model = Masked(right, layers=1)
    model.places = nn.Embedding.from_pretrained(torch.zeros(64, 16))
    assert failures.loses_order(model, IDS, "right").cause == "order is lost"
    assert failures.loses_order(model, IDS, "left").cause == "order is lost"


@pytest.mark.parametrize("pads", ["left", "right"])
def test_rows_of_nan_are_not_counted_pads(pads):
    """A pad's row is 0/0, and in the next layer so is all that meets it."""
    model = Masked(lambda past, words: past & words & words.mT, -torch.inf)
    found = failures.check_all(model, IDS, pads=pads)
    assert causes(found) == ["empty row is NaN"]
    for check in failures.misplaces_words, failures.reads_pads:
        assert check(model, IDS, pads).cause in ("", "empty row is NaN")


class Scored(nn.Module):
    """Scores of ``size``, in the dtype of its parameters."""

    def __init__(self, size):
        super().__init__()
        self.table, self.size = nn.Embedding(13, 16), nn.Parameter(torch.tensor(size))

    def forward(self, ids):
        x = self.table(ids)
        S = (x * self.size) @ x.mT
        S = S.masked_fill(~full(ids.shape[1]).tril(), -torch.inf)
        return S.softmax(-1) @ x


@pytest.mark.parametrize("ids", [IDS, IDS[:2, :5]])
def test_half_precision_is_tried_as_it_is(ids):
    torch.manual_seed(0)
    model = Scored(3e4)
    for kind in torch.float32, torch.bfloat16:
        assert "numbers out of range" not in causes(
            failures.check_all(model.to(kind), ids)
        )
    found = failures.check_all(model.half(), ids)
    assert found[0].check == "gives_nan" and found[0].cause == "numbers out of range"
    assert "65,504" in found[0].says
    assert model.size.dtype == torch.float16
    torch.manual_seed(0)
    assert not failures.gives_nan(Scored(1.0).half(), ids)
    vectors = nn.Linear(16, 16).half()
    assert not failures.check_all(vectors, X, causal=False)
    assert not failures.check_all(vectors, X.half(), causal=False)


# Functions that are causal by themselves


def causal(Q, K, V, mask=None, *, scale=None, past=0, axis=-1, corner=True, p=0.0):
    (n, d), m = Q.shape[-2:], K.shape[-2]
    S = Q @ K.mT * (d**-0.5 if scale is None else scale)
    may = torch.ones(n, m, dtype=torch.bool)
    may = may.triu() if past is None else may.tril(past + (m - n) * corner)
    S = S.masked_fill(~(may if mask is None else may & mask), -1e30)
    return dropout(S.softmax(axis), p) @ V


CAUSAL = {
    "": causal,
    "future is read": partial(causal, past=9),
    "mask off by one": partial(causal, past=1),
    "token sees nothing": partial(causal, past=-1),
    "inverted mask": partial(causal, past=None),
    "causal mask upper left": partial(causal, corner=False),
    "no √d": partial(causal, scale=1.0),
    "√d too many": partial(causal, scale=1 / 8),
    "times √d": partial(causal, scale=8**0.5),
    "softmax over the wrong axis": partial(causal, axis=-2),
    "random in eval": partial(causal, p=0.3),
    "values are the keys": lambda Q, K, V, *mask: causal(Q, K, K, *mask),
    "mask not used": lambda Q, K, V, mask=None: causal(Q, K, V),
    "another formula": lambda Q, K, V, *mask: causal(Q, K, V, *mask) * 3,
}


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("cause", CAUSAL)
def test_a_causal_function_is_held_to_the_formula(cause, masked):
    if cause == "mask not used" and not masked:
        return
    found = failures.check_attention(CAUSAL[cause], causal=True, masked=masked)
    assert cause in [*causes(found), ""] and len(found) == (cause != ""), found


def test_causal_functions_of_other_shapes():
    def sdpa(Q, K, V, **options):
        may = (
            torch.ones(Q.shape[-2], K.shape[-2]).bool().tril(K.shape[-2] - Q.shape[-2])
        )
        return scaled_dot_product_attention(Q, K, V, may, **options)

    check = partial(failures.check_attention, causal=True)
    assert not check(sdpa, heads=None)
    assert not check(partial(sdpa, enable_gqa=True), kv_heads=2)
    assert not check(partial(sdpa, scale=1.0), scale=1.0)
    assert causes(check(sdpa, scale=1.0)) == ["√d too many"]
    upper = partial(scaled_dot_product_attention, is_causal=True)
    assert causes(check(upper)) == ["causal mask upper left"]
    both = [*causes(check(partial(causal, corner=False, scale=1.0)))]
    assert both == ["no √d", "causal mask upper left"]
    window = partial(
        failures.wrong_corner, lambda Q, K, V: causal(Q, K, V) * len(Q.mT[0, 0].mT)
    )
    assert not window() or window().cause == "another formula"


@pytest.mark.parametrize("masked", [False, True])
def test_a_scale_that_multiplies(masked):
    def times(Q, K, V, mask=None):
        S = Q @ K.mT * Q.shape[-1] ** 0.5
        return (S if mask is None else S.masked_fill(~mask, -1e9)).softmax(-1) @ V

    found = failures.differs_from_formula(times, masked=masked)
    assert found.cause == "times √d" and "no sqrt of d" in found.read


# What is random has no other name


def shaky(Q, K, V, *mask):
    return dropout(causal(Q, K, V), 0.3)


SHAKY = {
    "wrong_corner": lambda: failures.wrong_corner(shaky),
    "differs_from_formula": lambda: failures.differs_from_formula(shaky),
    "reads_hidden_keys": lambda: failures.reads_hidden_keys(shaky),
    "misreads_batch_mask": lambda: failures.misreads_batch_mask(shaky),
    "differs_from_original": lambda: failures.differs_from_original(
        lambda x: dropout(x, 0.3), lambda x: x, X
    ),
    "from a random original": lambda: failures.differs_from_original(
        lambda x: x, lambda x: dropout(x, 0.3), X
    ),
    "differs_step_by_step": lambda: failures.differs_step_by_step(
        lambda x: dropout(x, 0.3), X, lambda x, cache: (x, None)
    ),
    "a random step": lambda: failures.differs_step_by_step(
        lambda x: x, X, lambda x, cache: (dropout(x, 0.3), None)
    ),
    "a random model with a cache": lambda: failures.differs_step_by_step(Shaken(), IDS),
}


class Shaken(ForCausalLM):
    def forward(self, *tokens, **options):
        out = super().forward(*tokens, **options)
        out.logits = dropout(out.logits, 0.2)
        return out


@pytest.mark.parametrize("name", SHAKY)
def test_what_is_random_is_called_so(name):
    assert SHAKY[name]().cause == "random in eval"


def test_softmax_over_queries_is_no_corner():
    for axis in -2, (-2, -1):

        def over(Q, K, V, axis=axis):
            e = (Q @ K.mT / Q.shape[-1] ** 0.5).exp()
            return e / e.sum(axis, keepdim=True) @ V

        assert failures.wrong_corner(over).cause == "softmax over the wrong axis"


def test_a_batch_mask_that_hides_rightly_in_another_formula():
    def unscaled(Q, K, V, mask):
        return (Q @ K.mT).masked_fill(~mask[:, None], -1e9).softmax(-1) @ V

    assert failures.misreads_batch_mask(unscaled).cause == "another formula"
    thrown = failures.misreads_batch_mask(
        lambda Q, K, V, mask: (Q @ K.mT).softmax(-1) @ V
    )
    assert thrown.cause == "mask not used"


def left_out(ids):
    return ids, torch.cat([ids[:, 1:], torch.full_like(ids[:, :1], -100)], 1)


def over_the_rows(ids):
    return ids, ids.flatten().roll(-1).view_as(ids)


@pytest.mark.parametrize(
    ("cause", "pairs"),
    [
        ("", lambda ids: (ids[:, :-1], ids[:, 1:])),
        ("", left_out),
        ("", lambda ids: (ids[:, 2:-1], ids[:, 3:])),
        ("targets not moved", lambda ids: (ids, ids)),
        ("targets one back", lambda ids: (ids[:, 1:], ids[:, :-1])),
        ("targets one back", lambda ids: (ids, ids.roll(1, 1))),
        ("targets moved twice", lambda ids: (ids[:, :-2], ids[:, 2:])),
        ("targets wrap round", lambda ids: (ids, ids.roll(-1, 1))),
        ("targets wrap round", over_the_rows),
        ("shapes do not fit", lambda ids: (ids, ids[:, 1:])),
    ],
)
def test_targets(cause, pairs):
    assert failures.misses_the_next_token(pairs).cause == cause


class Table(nn.Module):
    """Logits from tokens and positions, each with a table."""

    def __init__(self, tokens=13, length=12):
        super().__init__()
        self.tokens, self.places = nn.Embedding(tokens, 5), nn.Embedding(length, 5)

    def forward(self, ids):
        places = self.places(torch.arange(ids.shape[1]))
        return (self.tokens(ids) * places).cumsum(1)


@pytest.mark.parametrize(
    ("cause", "model", "length"),
    [
        ("token past the table", Table(tokens=12), None),
        ("token past the table", Table(tokens=12, length=99), 99),
        ("token past the table", Table(tokens=12, length=4), 30),
        ("position past the table", Table(length=4), None),
        ("position past the table", Table(), 13),
    ],
)
def test_a_token_or_a_position_past_the_table(cause, model, length):
    assert IDS.max() == 12
    found = failures.check_all(model, IDS, length=length)
    assert causes(found)[0] == cause and {*causes(found)} == {cause}
    if length:
        assert failures.runs_out_of_positions(model, IDS, length).cause == cause


def test_a_text_that_is_long_enough_and_one_that_is_not():
    def of_seven(ids):  # and of no other length
        return ids[..., None] * torch.eye(7).expand(len(ids), 7, 7)

    assert not failures.runs_out_of_positions(of_seven, IDS, 7)
    ours = LanguageModel(12, 8, 2, 1)  # which says itself that there is no token 12
    found = failures.runs_out_of_positions(ours, IDS, 99)
    assert found.cause == "ValueError" and "must lie in 0 … 11" in found.says


# A comparison with an original


@pytest.mark.parametrize("layers", [1, 2])
def test_a_window_off_by_one_is_a_mask(layers):
    def window(width, past=0):
        def sees(may, words):
            return may.tril(past).triu(1 - width) if width else may

        model = Masked(lambda past, words: past, layers=layers)
        return lambda ids: model_with(model, ids, sees)

    def model_with(model, ids, sees):
        model.sees = lambda past, words: sees(full(len(past)), words)
        return model(ids, torch.ones_like(ids))

    compare = failures.differs_from_original
    for other in window(3), window(5), window(4, past=1), window(0, past=0):
        found = compare(other, window(4), IDS)
        assert found.cause == "mask differs" and "rotary" not in found.read.lower()
        assert "a window" in found.says and "Masked softmax" in found.read
    assert not compare(window(4), window(4), IDS)


@pytest.mark.parametrize("positions", ["rotary", "alibi"])
def test_a_window_off_by_one_in_two_blocks(positions):
    torch.manual_seed(0)
    one, other = (
        LanguageModel(13, 16, 4, 2, window=width, positions=positions) for width in (3, 4)
    )  # fmt: skip
    other.load_state_dict(one.state_dict())
    ids = torch.randint(1, 13, (3, 12))
    found = failures.differs_from_original(other.eval(), one.eval(), ids)
    assert found.cause == "mask differs"


@pytest.mark.parametrize("scale", [1.0, 8.0, 50.0])
def test_another_scale_is_no_other_mask(scale):
    def of(scale):
        return lambda x: causal(x, x, x, scale=scale)

    assert (
        failures.differs_from_original(of(scale), of(0.25), X).cause
        == "positions differ"
    )


# Models whose forward takes names alone


class Named(Masked):
    def forward(self, *, input_ids, attention_mask=None):
        words = None if attention_mask is None else attention_mask.bool()
        return super().forward(input_ids, words)


class MaskFirst(Masked):
    def forward(self, *, key_padding_mask=None, ids, **options):
        return super().forward(
            ids, None if key_padding_mask is None else ~key_padding_mask
        )


class OtherNames(Masked):
    def forward(self, *, tokens=None, words=None):
        return super().forward(tokens, words)


class CachedByName(ForCausalLM):
    def forward(
        self, *, input_ids, attention_mask=None, past_key_values=None, use_cache=False
    ):
        return super().forward(input_ids, attention_mask, past_key_values, use_cache)


@pytest.mark.parametrize("kind", [Named, MaskFirst, OtherNames])
def test_a_forward_of_names_alone(kind):
    assert failures.check_all(kind(right), IDS, pads="right", length=30) == []
    bug = kind(SEES["off by one"])
    assert failures.leaks_future(bug, IDS, "left").cause == "mask looks ahead"
    assert (
        failures.check_all(kind(lambda past, words: past), IDS, pads="left")[0].cause
        == "mask not used"
    )
    assert not failures.learns_noise(kind(right), 13, steps=5)


def test_a_cache_of_names_alone():
    torch.manual_seed(0)
    assert not failures.differs_step_by_step(CachedByName(), IDS)
    assert failures.differs_step_by_step(CachedByName("upper left"), IDS)


# What is said besides


def test_what_was_not_asked_is_said_and_is_no_finding(capsys):
    torch.manual_seed(0)
    assert failures.check_all(GPT(), IDS) == []
    *_, last, command = capsys.readouterr().out.splitlines()
    assert last.startswith("not asked:")
    named = {x for x in failures.__all__ if x in last}
    assert "python -m attn_tutor.failures" in command
    assert {"check_attention", "differs_step_by_step", "misses_the_next_token"} <= named


def test_the_command_lists_every_check(capsys):
    command.main()
    lines = capsys.readouterr().out.splitlines()
    listed = {line.partition("(")[0] for line in lines if line[0] != " "}
    assert listed == {*failures.__all__} - {"Finding"}
    assert all(line.startswith("    ") and line.strip() for line in lines[1::2])
