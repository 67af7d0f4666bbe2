"""Bugs planted in programs of other styles are found and named; right programs in the same styles raise no alarm."""

# ruff: noqa: NPY002 — the state looked after is the one that programs without a Generator draw from

import random
from functools import partial

import numpy as np
import pytest
import torch
from planted import einsums, functions
from planted.hugging import ForCausalLM
from planted.mingpt import GPT
from planted.others import (
    ByRow,
    Classifier,
    HalfRight,
    Padded,
    Rotated,
    Translator,
    Upper,
    by_distance,
    step_of,
    step_with,
)
from planted.torchs_layers import Encoder, LeftPadded, Reader
from planted.two_layers import TwoLayers

from attn_tutor import failures

IDS = torch.randint(13, (3, 7), generator=torch.Generator().manual_seed(1))
X = torch.randn(3, 7, 16, generator=torch.Generator().manual_seed(2))


def made(kind, *args, **options):
    torch.manual_seed(0)
    return kind(*args, **options)


def everything(model, tokens=IDS, **options):
    return failures.check_all(model, tokens, **options)


def of_attention(bug="", **options):
    return failures.check_attention(einsums.attention(bug), **options)


def mapped(bug=""):
    """Weights of a layer of torch's, with the matrices on the right: transposed, or as they are."""
    layer = made(torch.nn.MultiheadAttention, 16, 2, bias=False, batch_first=True)
    maps = [*layer.in_proj_weight.detach().chunk(3), layer.out_proj.weight.detach()]
    q, k, v, o = maps if bug else [W.T for W in maps]

    def mine(X):
        Q, K, V = ((X @ W).unflatten(-1, (2, 8)).swapaxes(1, 2) for W in (q, k, v))
        return einsums.attention()(Q, K, V).swapaxes(1, 2).flatten(2) @ o

    return failures.differs_from_original(mine, lambda X: layer(X, X, X)[0], X)


PLANTED = [
    # torch's own layers
    (
        "batch taken for tokens",
        lambda: everything(made(Encoder, "batch", causal=False), causal=False),
    ),
    (
        "order is lost",
        lambda: everything(made(Encoder, "order", causal=False), causal=False),
    ),
    ("future is read", lambda: everything(made(Encoder, causal=False))),
    ("inverted mask", lambda: everything(made(Encoder, "inverted"))),
    (
        "inverted mask",
        lambda: everything(
            made(Encoder, "inverted pads", causal=False), causal=False, pads="right"
        ),
    ),
    (
        "mask repeated for the wrong heads",
        lambda: everything(made(Reader, "heads"), X, causal=False, pads="right"),
    ),
    ("empty row is NaN", lambda: everything(made(LeftPadded), X, pads="left")),
    ("weights differ", lambda: [mapped("as they are")]),
    # minGPT's layout
    ("heads cut by reshape", lambda: everything(made(GPT, "view"))),
    ("heads cut by reshape", lambda: everything(made(GPT, "merge"))),
    ("mask looks ahead", lambda: everything(made(GPT, "off by one"))),
    ("random in eval", lambda: everything(made(GPT, "dropout"))),
    ("one path differs", lambda: everything(made(GPT, "flash"))),
    ("position past the table", lambda: everything(made(GPT), length=33)),
    # Hugging Face's
    (
        "positions count pads",
        lambda: everything(made(ForCausalLM, "columns"), pads="left"),
    ),
    ("mask not used", lambda: everything(made(ForCausalLM, "unused"), pads="left")),
    (
        "mask hides nothing",
        lambda: everything(made(ForCausalLM, "float"), pads="left"),
    ),
    (
        "causal mask upper left",
        lambda: [failures.differs_step_by_step(made(ForCausalLM, "upper left"), IDS)],
    ),
    (
        "cache differs",
        lambda: [failures.differs_step_by_step(made(ForCausalLM, "from 0"), IDS)],
    ),
    # einsum
    ("no √d", lambda: of_attention("no root")),
    ("√ of another width", lambda: of_attention("model width")),
    ("softmax over the wrong axis", lambda: of_attention("queries")),
    ("scores multiplied by the mask", lambda: of_attention("times", masked=True)),
    ("mask as a large number", lambda: of_attention("large", masked=True)),
    ("groups by repeat", lambda: of_attention("groups", kv_heads=2)),
    (
        "mask of (b, m) read as (n, m)",
        lambda: [failures.misreads_batch_mask(einsums.pads_by_row)],
    ),
    # plain functions
    ("documents mixed", lambda: [failures.mixes_documents(functions.packed(False), X)]),
    (
        "targets not moved",
        lambda: [failures.misses_the_next_token(functions.targets_in_place)],
    ),
    ("pads are counted", lambda: [failures.counts_pads(functions.mean_over_columns)]),
    (
        "far positions differ",
        lambda: [failures.blurs_far_positions(functions.rope(None))],
    ),
]


def cached(bug=""):
    step = step_of(made(torch.nn.Linear, 16, 48), bug)
    return [failures.differs_step_by_step(lambda x: step(x, None)[0], X, step)]


def turned(bug=""):
    return [failures.differs_from_original(made(Rotated, bug), made(Rotated), IDS)]


BLIND = [  # written after the checks
    ("future is read", lambda: everything(made(Translator, "none"))),
    ("positions differ", lambda: turned("halves")),
    ("inverted mask", lambda: everything(made(Upper))),
    ("cache differs", lambda: cached("newest")),
    (
        "pads are counted",
        lambda: everything(made(Classifier, "mean"), causal=False, pads="right"),
    ),
    (
        "answer read at a pad",
        lambda: everything(made(Classifier, "last"), causal=False, pads="right"),
    ),
    (
        "gradient not finite",
        lambda: everything(by_distance("outside"), X, causal=False),
    ),
    (
        "mask of (b, m) read as (n, m)",
        lambda: everything(made(Padded, "rows"), X, causal=False, pads="right"),
    ),
    (
        "mask of the wrong dtype",
        lambda: everything(made(Padded, "dtype"), X, causal=False, pads="right"),
    ),
    ("heads cut by reshape", lambda: everything(made(HalfRight, "keys"), X)),
]


MISSED = [  # which the checks did not find, or gave another name, until a reader planted them
    (
        "pads are counted",
        lambda: everything(made(Classifier, "columns"), causal=False, pads="right"),
    ),
    (
        "positions count pads",
        lambda: everything(made(Classifier), causal=False, pads="left"),
    ),
    (
        "answer read at a pad",
        lambda: everything(made(Classifier, "first"), causal=False, pads="left"),
    ),
    ("batch taken for tokens", lambda: everything(made(ByRow))),
    ("softmax over the wrong axis", lambda: of_attention("heads", masked=True)),
]


@pytest.mark.parametrize(("cause", "check"), [*PLANTED, *BLIND, *MISSED])
def test_a_bug_is_named(cause, check):
    found = check()
    assert cause in [finding.cause for finding in found], found


RIGHT = {
    "encoder": lambda: everything(made(Encoder), pads="right"),
    "encoder that reads both ways": lambda: everything(
        made(Encoder, causal=False), causal=False, pads="right"
    ),
    "masks for heads": lambda: everything(made(Reader), X, causal=False, pads="right"),
    "minGPT": lambda: everything(made(GPT), length=32),
    "causal model with a mask, left": lambda: everything(
        made(ForCausalLM), pads="left"
    ),
    "causal model with a mask, right": lambda: everything(
        made(ForCausalLM), pads="right"
    ),
    "cache": lambda: [failures.differs_step_by_step(made(ForCausalLM), IDS)],
    "einsum": lambda: of_attention(),
    "einsum, grouped": lambda: of_attention(kv_heads=2),
    "weights of another library": lambda: [mapped()],
    "nn.Transformer": lambda: everything(made(Translator)),
    "pairs of neighbours": turned,
    "list as a cache": cached,
    "classifier": lambda: everything(made(Classifier), causal=False, pads="right"),
    "distances": lambda: everything(by_distance(), X, causal=False),
    "mask without heads": lambda: everything(
        made(Padded), X, causal=False, pads="right"
    ),
    "heads of vectors": lambda: everything(made(HalfRight), X),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_program_raises_no_alarm(name):
    assert not any(RIGHT[name]()), name


def by_hand(Q, K, V, mask=None):
    """Softmax without the row's maximum subtracted."""
    e = (Q @ K.mT / Q.shape[-1] ** 0.5).exp() * (1 if mask is None else mask)
    return e / e.sum(-1, keepdim=True) @ V


def of_words(X, words):
    """Positions from the mask, which the attention does not get."""
    X = X + torch.arange(7)[(words.cumsum(-1) - 1).clamp(min=0), None] / 7
    return torch.softmax(X @ X.mT / 16, -1) @ X


def broken():
    model = made(GPT)
    torch.nn.init.constant_(model.lm_head.weight, torch.nan)
    return everything(model)


def two_ahead(X):
    """Two tokens ahead of what is causal."""
    may = torch.ones(7, 7).tril(2).bool()
    return (X @ X.mT / 16).masked_fill(~may, -torch.inf).softmax(-1) @ X


ALONE = {  # a wrong name, or a second one, was given to these
    "mask not used": lambda: of_attention("unused", masked=True),
    "values are the keys": lambda: failures.check_attention(
        lambda Q, K, V, mask: einsums.attention()(Q, K, K, mask), masked=True
    ),
    "softmax over the wrong axis": lambda: of_attention("queries", masked=True),
    "numbers out of range": lambda: everything(
        lambda X: by_hand(X, X, X), 30 * X, causal=False
    ),
    "NaN": broken,
    "mask looks ahead": lambda: everything(two_ahead, X),
    "random in eval": lambda: everything(
        lambda X, words: torch.dropout(X, 0.5, True), X, pads="left"
    ),
}


@pytest.mark.parametrize("cause", ALONE)
def test_a_bug_has_one_name(cause):
    assert [finding.cause for finding in ALONE[cause]()] == [cause]


def test_a_mask_that_only_moves_positions_is_not_used():
    for pads in ("left", "right"):
        found = failures.reads_pads(of_words, X, pads, causal=False)
        assert found.cause == "mask not used", pads


def test_large_scores_that_give_nan_are_no_large_mask():
    found = failures.reads_hidden_keys(by_hand)
    assert found.cause == "numbers out of range"


def test_new_keys_before_the_old_ones_are_no_corner():
    step = step_with("before")
    found = failures.differs_step_by_step(lambda x: step(x, None)[0], X, step)
    assert found.cause == "cache differs" and "before the old" in found.says


LATER = {  # planted by a reader: the first name with and without a causal mask
    "": ("", ""),
    "thrown away": ("future is read", "mask not used"),
    "dropout": ("random in eval", "random in eval"),
    "row": ("batch taken for tokens", "batch taken for tokens"),
    "no positions": ("", "order is lost"),
    "window": ("mask looks ahead", "pads are read"),
    "1e-9": ("future is read", "mask hides nothing"),
    "queries": ("future is read", "mask hides nothing"),
    "merge": ("future is read", "pads are read"),
    "pads of queries": ("pads are read", "mask hides nothing"),
    "or": ("pads are read", "mask not used"),
    "exchanged": ("", ""),
    "values": ("", ""),
}


@pytest.mark.parametrize("bug", LATER)
def test_what_is_named_first_and_what_is_not_seen(bug):
    ids = torch.randint(17, (4, 9), generator=torch.Generator().manual_seed(0))
    for causal, cause in zip((True, False), LATER[bug], strict=True):
        pads = "left" if causal else "right"
        found = everything(made(TwoLayers, bug, causal), ids, causal=causal, pads=pads)
        assert (found[0].cause if found else "") == cause, causal
        assert "positions count pads" not in [x.cause for x in found]


@pytest.mark.parametrize(("bug", "first"), [("front", 1), ("turned", 2)])
def test_a_cache_that_is_read_in_another_order_or_turned_again(bug, first):
    def found(step):
        return failures.differs_step_by_step(lambda x: step(x, None)[0], X, step)

    assert not found(step_with())
    says = found(step_with(bug)).says
    assert f"output {first} is the first" in says and "no longer in one order" in says


class Heads(torch.nn.Module):
    """Heads of (b, n, h, d), as FlashAttention takes them, or of (b, h, n, d) with pads."""

    def __init__(self, bug, causal=True):
        super().__init__()
        self.bug, self.causal, self.table = bug, causal, torch.nn.Embedding(13, 16)

    def forward(self, ids, words=None):
        n, q = ids.shape[1], self.table(ids).unflatten(-1, (2, 8))
        if self.bug == "layout":
            y = torch.nn.functional.scaled_dot_product_attention(
                q, q, q, is_causal=True
            )
            return y.flatten(2)
        q = q.swapaxes(1, 2)
        may = torch.ones(n, n).bool()
        may = may.tril(-(self.bug == "first")) if self.causal else may
        if words is not None:
            may = may & (words if self.bug == "columns" else ~words)[:, None, None]
        scores = q @ q.mT / (n if self.bug == "columns" else 8) ** 0.5
        return (
            (scores.masked_fill(~may, -1e9).softmax(-1) @ q).swapaxes(1, 2).flatten(2)
        )


class RightPadded(torch.nn.Module):
    """Causal with -inf; pads get -1e9, in place of a score or added to it, before or with the causal mask."""

    def __init__(self, hides, layers=1):
        super().__init__()
        self.hides, self.table = hides, torch.nn.Embedding(13, 16)
        self.places = torch.nn.Embedding(16, 16)
        self.maps = torch.nn.ModuleList(torch.nn.Linear(16, 48) for _ in range(layers))

    def forward(self, ids, words=None):
        n = ids.shape[1]
        x = self.table(ids) + self.places(torch.arange(n))
        words = torch.ones_like(ids).bool() if words is None else words
        later = torch.ones(n, n).bool().triu(1)
        for layer in self.maps:
            q, k, v = layer(x).chunk(3, -1)
            s = self.hides(q @ k.mT / 4, words[:, None], later)
            x = x + s.softmax(-1) @ v
        return x


HIDES = {
    "filled": lambda s, pads, later: s.masked_fill(pads, -1e9).masked_fill(
        later, -torch.inf
    ),
    "added": lambda s, pads, later: (s - 1e9 * pads).masked_fill(later, -torch.inf),
    "together": lambda s, pads, later: s.masked_fill(pads | later, -1e9),
}


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("how", HIDES)
def test_an_inverted_mask_of_large_numbers_right_of_a_causal_model(how, layers):
    def of(inverted):
        hide = HIDES[how]
        turn = (lambda words: words) if inverted else torch.logical_not
        model = made(RightPadded, lambda s, w, later: hide(s, turn(w), later), layers)
        return failures.reads_pads(model, IDS, "right")

    assert of(True).cause == "inverted mask"
    assert not of(False)


def test_lengths_that_are_counted_are_no_inverted_mask():
    """The mask read as lengths alone makes no sense with pads on the left: right or inverted, it is not seen."""

    def model(X, words, inverted=False):
        n = X.shape[1]
        hidden = (torch.arange(n) < words.sum(-1)[:, None]) == inverted
        S = (X @ X.mT / 4).masked_fill(hidden[:, None], -1e9)
        later = torch.ones(n, n).bool().triu(1)
        return S.masked_fill(later, -torch.inf).softmax(-1) @ X

    assert not failures.reads_pads(model, X, "right")
    assert not failures.reads_pads(partial(model, inverted=True), X, "right")


@pytest.mark.parametrize(
    ("cause", "heading", "call"),
    [
        (
            "view after a transpose",
            "view size is not compatible",
            lambda x: x.unflatten(-1, (2, 8)).transpose(1, 2).view(x.shape),
        ),
        (
            "widths differ",
            "mat1 and mat2 shapes cannot be multiplied",
            lambda x: x @ torch.ones(8, 8),
        ),
        (
            "mask of another shape",
            "A mask of shape (b, m)",
            lambda x: made(torch.nn.MultiheadAttention, 16, 2, batch_first=True)(
                x, x, x, attn_mask=torch.ones(3, 7).bool()
            ),
        ),
        ("shapes do not fit", "Find it by its symptom", lambda x: x + torch.ones(5, 1)),
        ("shapes do not fit", "Find it by its symptom", lambda x: x.reshape(3, 7, 5)),
    ],
)
def test_an_error_about_shapes_is_no_mask(cause, heading, call):
    found = everything(call, X)
    assert [x.cause for x in found] == [cause] and heading in found[0].read


@pytest.mark.parametrize(
    ("cause", "bug", "causal", "pads"),
    [
        ("no earlier token is read", "layout", True, None),
        ("inverted mask", "pads", True, "left"),
        ("inverted mask", "pads", False, "right"),
        ("pads are counted", "columns", True, "left"),
        ("pads are counted", "columns", False, "right"),
        ("leak", "first", True, None),
    ],
)
def test_heads_pads_and_columns_that_were_planted(cause, bug, causal, pads):
    found = everything(made(Heads, bug, causal), causal=causal, pads=pads)
    names = [x.cause for x in found if x.cause != "order is lost"]
    assert names == [cause]


def test_what_reads_no_earlier_token_is_not_said_to_lose_order():
    finding = failures.loses_order(made(Encoder, "batch", causal=False), IDS)
    assert finding.cause == "no earlier token is read"


def test_a_token_that_may_not_see_itself_has_no_surer_name():
    strict = torch.ones(7, 7).bool().tril(-1)

    def hidden(X):
        n = X.shape[1]
        return (X @ X.mT).masked_fill(~strict[:n, :n], -torch.inf).softmax(-1) @ X

    assert failures.gives_nan(hidden, X).cause == "token sees nothing"


def test_chance_in_evaluation_is_not_a_row_of_the_batch():
    assert not failures.mixes_sentences(lambda ids: torch.rand(*ids.shape, 3), IDS)


def test_nan_without_pads_leads_to_the_table():
    def over_heads(X):
        Q = X.unflatten(-1, (2, 8)).swapaxes(1, 2)
        S = (Q @ Q.mT).masked_fill(
            ~torch.ones(2 * X.shape[1:2]).bool().tril(), -torch.inf
        )
        return (S.softmax(1) @ Q).swapaxes(1, 2).flatten(2)

    assert "by its symptom" in failures.gives_nan(over_heads, X).read


class Output:
    def __init__(self, logits):
        self.logits = logits


@pytest.mark.parametrize(
    "wrap",
    [
        Output,
        lambda x: (torch.tensor(1), x),
        lambda x: {"logits": x},
        lambda x: x.numpy(),
    ],
)
def test_whatever_a_model_returns(wrap):
    finding = failures.leaks_future(lambda X: wrap(X + X.sum(1, keepdim=True)), X)
    assert finding.cause == "future is read"


def test_all_is_left_as_it_was():
    torch.manual_seed(0)
    parts = torch.nn.Linear(16, 16), torch.nn.Dropout(0.5), torch.nn.BatchNorm1d(7)
    model = torch.nn.Sequential(*parts)
    parts[0].eval()
    model(X).sum().backward()
    slopes = [p.grad.clone() for p in model.parameters()]
    before = {name: x.clone() for name, x in model.state_dict().items()}
    modes, state = [m.training for m in model.modules()], torch.get_rng_state()
    assert not everything(model, X)  # which trains it, and batch norm counts
    assert [m.training for m in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())
    for p, slope in zip(model.parameters(), slopes, strict=True):
        assert torch.equal(p.grad, slope)


def test_a_function_that_holds_a_module_is_evaluated():
    model = made(torch.nn.Sequential, torch.nn.Dropout(0.5))
    assert not failures.changes_in_eval(lambda X: model(X), X)
    assert model.training


@pytest.mark.parametrize("tokens", [IDS[:1], IDS[0], torch.ones_like(IDS), X[0]])
def test_what_tokens_are_needed(tokens):
    with pytest.raises(ValueError, match="tokens"):
        failures.leaks_future(made(GPT), tokens)


@pytest.mark.parametrize("seed", range(5))
def test_many_layers_hide_no_name(seed):
    """What goes through four layers is small, and may be lost in rounding."""
    torch.manual_seed(seed)
    model = GPT("off by one", heads=4, layers=4)
    assert failures.leaks_future(model, IDS).cause == "mask looks ahead"


@pytest.mark.parametrize(
    ("bug", "causes"), [("", []), ("view", ["heads cut by reshape"])]
)
def test_half_precision(bug, causes):
    model = made(GPT, bug).bfloat16()
    assert [finding.cause for finding in everything(model)] == causes
    assert model.lm_head.weight.dtype == torch.bfloat16


class Emb(torch.nn.Module):
    """Logits that read no other token."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(13, 5)

    def forward(self, ids):
        return self.table(ids)


class Options(Emb):
    def forward(self, ids, **options):
        return super().forward(ids)


class Anything(Emb):
    def forward(self, *args, **options):
        return super().forward(*args)


class Later(Emb):
    """Each output reads the mean of all tokens, where a batch or a text is large enough."""

    def __init__(self, b=0, n=0):
        super().__init__()
        self.least = b, n

    def forward(self, ids):
        out = super().forward(ids)
        large = all(x > least for x, least in zip(ids.shape, self.least, strict=True))
        return out + out.mean(1, keepdim=True) if large else out


class Skips(Emb):
    def __init__(self, draw):
        super().__init__()
        self.draw = draw

    def forward(self, ids):
        out = super().forward(ids)
        return 2 * out if self.training and self.draw() < 0.5 else out


class Frozen(Emb):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(5)

    def train(self, mode=True):
        super().train(mode)
        self.norm.eval()
        return self

    def forward(self, ids):
        return self.norm(super().forward(ids).mT).mT


class Average(Emb):
    def __init__(self):
        super().__init__()
        self.register_buffer("average", torch.zeros(5))

    def forward(self, ids):
        out = super().forward(ids)
        self.average = 0.9 * self.average + out.detach().mean((0, 1))
        return out + random.random() * 0 + np.random.rand() * 0


def compiled(model):
    return torch.compile(model, backend="eager")


CALLED = {
    "compile": lambda: compiled(made(Emb)),
    "DataParallel": lambda: torch.nn.DataParallel(made(Emb)),
    "options": lambda: made(Options),
    "anything": lambda: made(Anything),
    "anything in a function": lambda: lambda *args: made(Emb)(*args),
    "LayerDrop by Python": lambda: made(Skips, random.random),
    "LayerDrop by NumPy": lambda: made(Skips, np.random.rand),
    "frozen batch norm": lambda: made(Frozen),
    "last token's logits": lambda: lambda ids: made(Emb)(ids)[:, [-1]],
    "value head": lambda: lambda ids: made(Emb)(ids)[..., 0],
    "class from the last token": lambda: lambda ids: made(Emb)(ids)[:, -1, :3],
    "loss and logits": lambda: lambda ids: (torch.tensor(1.0), made(Emb)(ids)),
}


@pytest.mark.parametrize("name", CALLED)
def test_other_calls_and_outputs_raise_no_alarm(name):
    model = CALLED[name]()
    assert not failures.leaks_future(model, IDS)
    assert not failures.changes_in_eval(model, IDS)
    assert not failures.gives_nan(model, IDS)


@pytest.mark.parametrize("wrap", [compiled, torch.nn.DataParallel])
def test_a_wrapped_model_gets_its_mask(wrap):
    assert not failures.reads_pads(wrap(made(ForCausalLM)), IDS, "left")


def test_one_output_a_sentence_is_said_to_be_unchecked():
    finding = failures.leaks_future(lambda ids: made(Emb)(ids)[:, [-1]], IDS)
    assert "not checked" in str(finding)


@pytest.mark.parametrize(
    ("b", "n", "least"), [(4, 32, (0, 16)), (8, 7, (4, 0)), (2, 130, (0, 64))]
)
def test_a_leak_beyond_the_first_tokens(b, n, least):
    ids = torch.randint(13, (b, n), generator=torch.Generator().manual_seed(3))
    finding = failures.leaks_future(made(Later, *least), ids)
    assert finding.cause == "one path differs", finding
    assert not failures.leaks_future(made(Emb), ids)


def test_random_states_and_new_buffers_are_left_as_they_were():
    model = made(Average)
    buffer, states = model.average, (random.getstate(), np.random.get_state()[1].copy())
    failures.check_all(model, IDS)
    assert model.average is buffer and not buffer.any()
    assert random.getstate() == states[0]
    assert (np.random.get_state()[1] == states[1]).all()


def test_an_error_of_the_program_is_told_once(capsys):
    def broken(ids):
        raise KeyError("no such thing")

    assert [x.cause for x in failures.check_all(broken, IDS)] == ["KeyError"]
    assert failures.runs_out_of_positions(broken, IDS, 99)


def test_functions_of_other_kinds():
    def rows(X):
        return X[..., :1].numpy() * 2

    def soft(Q, K, V):
        return (Q @ K.mT / Q.shape[-1] ** 0.5).softmax(-1) @ V, None

    assert not failures.gives_nan(rows, X)
    assert not failures.differs_from_formula(soft)
    odd = failures.differs_from_formula(lambda Q, K, V: soft(Q, K, V)[0] ** 2)
    assert odd.cause == "another formula"
    ahead = failures.leaks_future(lambda X: X + X.roll(-1, 1) + X.roll(-2, 1), X)
    assert ahead.cause == "mask looks ahead" and "up to 2" in ahead.says
    odd = failures.leaks_future(lambda X: X + X.roll(-2, 1), X)
    assert odd.cause == "leak"
