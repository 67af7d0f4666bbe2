"""Searches over a model of the next token: what they find, what they cost, and how ends are kept, in both halves."""

import itertools
import math
import re

import numpy as np
import pytest
import torch

import attn_tutor.numpy as an
import attn_tutor.torch as at

END = 2
NO_PREFIX = np.zeros((1, 0), dtype=np.int64)
SEARCHES = ["greedy_search", "exhaustive_search", "beam_search"]


class Table:
    """Probabilities of the next token after each beginning; counts the continuations that it is asked to score."""

    def __init__(self, probabilities, half):
        self.probabilities, self.half, self.scored = probabilities, half, 0

    def __call__(self, tokens):
        rows = self.half.back(tokens)
        assert rows.dtype == np.int64
        p = np.array([[self.probabilities(*row) for row in rows_] for rows_ in rows])
        self.scored += p[..., 0].size * p.shape[-1]
        with np.errstate(divide="ignore"):
            return self.half.give(np.log(p))


def search(half, name, table, prefix=NO_PREFIX, max_len=3, **options):
    fn = getattr(half, name)
    tokens, scores = fn(table, prefix, END, max_len, **options)
    return tokens, scores


def random_model(seed, n_tokens=3):
    """Any beginning has its own next-token probabilities, the same each time."""

    def probabilities(*tokens):
        rng = np.random.default_rng([seed, 77, *tokens])
        p = np.exp(rng.normal(size=n_tokens))
        return p / p.sum()

    return probabilities


def by_hand(probabilities, max_len, n_tokens=3, prefix=()):
    """Every sentence with its probability, by a loop over all sequences."""
    found = {}
    for tokens in itertools.product(range(n_tokens), repeat=max_len):
        stop = tokens.index(END) + 1 if END in tokens else max_len
        p = math.prod(
            probabilities(*prefix, *tokens[:t])[tokens[t]] for t in range(stop)
        )
        found[tokens[:stop] + (END,) * (max_len - stop)] = p
    return found


def trap(*tokens):
    """Greedy begins with 0, the likelier one; after 1 the sentence is all but certain. 0.6 · 0.5 < 0.4 · 0.9."""
    return {
        (): (0.6, 0.4, 0.0),
        (0,): (0.3, 0.2, 0.5),
        (1,): (0.1, 0.0, 0.9),
    }.get(tokens, (0.0, 0.0, 1.0))


@pytest.mark.parametrize(
    ("name", "options", "tokens", "p"),
    [
        ("greedy_search", {}, [0, 2], 0.3),
        ("exhaustive_search", {}, [1, 2, 2], 0.36),
        ("beam_search", {"beam_width": 2}, [1, 2], 0.36),
    ],
)
def test_where_greedy_fails(half, name, options, tokens, p):
    found, scores = search(half, name, Table(trap, half), **options)
    if name == "beam_search":
        assert found.tolist() == [[tokens, [0, 2]]]
        assert np.exp(scores[0]) == pytest.approx([p, 0.3])
    else:
        assert found.tolist() == [tokens] and np.exp(scores) == pytest.approx([p])


@pytest.mark.parametrize("seed", range(5))
def test_exhaustive_finds_the_likeliest_of_all(half, seed):
    model = random_model(seed)
    tokens, scores = search(half, "exhaustive_search", Table(model, half))
    every = by_hand(model, 3)
    best = max(every, key=every.get)
    assert tuple(tokens[0].tolist()) == best
    assert np.exp(scores[0]) == pytest.approx(every[best])
    assert sum(every.values()) == pytest.approx(1)


@pytest.mark.parametrize("seed", range(5))
def test_a_beam_of_one_is_greedy(half, seed):
    model = random_model(seed)
    greedy = search(half, "greedy_search", Table(model, half), max_len=5)
    beam = search(half, "beam_search", Table(model, half), max_len=5, beam_width=1)
    assert beam[0][:, 0].tolist() == greedy[0].tolist()
    np.testing.assert_array_equal(beam[1][:, 0], greedy[1])


@pytest.mark.parametrize("seed", range(5))
def test_a_beam_of_all_is_exhaustive_and_in_order(half, seed):
    """27 places for 15 sentences: all of them, likeliest first; the other places are marked as empty."""
    model = random_model(seed)
    tokens, scores = search(half, "beam_search", Table(model, half), beam_width=27)
    best, score = search(half, "exhaustive_search", Table(model, half))
    assert tokens[:, 0].tolist() == best.tolist()
    assert scores[:, 0] == pytest.approx(score)
    every = sorted(by_hand(model, 3).items(), key=lambda item: -item[1])
    assert [tuple(x) for x in tokens[0, :15].tolist()] == [x for x, _ in every]
    assert np.exp(scores[0, :15]) == pytest.approx([p for _, p in every])
    assert np.isneginf(scores[0, 15:]).all() and (tokens[0, 15:] == END).all()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("k", [2, 4])
def test_a_beam_keeps_the_best_k_of_each_length(half, seed, k):
    """Beside a beam that is written as in the definition, one sentence at a time."""
    model, beam = random_model(seed), [((), 1.0)]
    for _ in range(5):
        longer = [
            (tokens + (y,), p * model(*tokens)[y])
            for tokens, p in beam
            if END not in tokens
            for y in range(3)
        ]
        ended = [(tokens + (END,), p) for tokens, p in beam if END in tokens]
        beam = sorted(longer + ended, key=lambda item: -item[1])[:k]
    found, scores = search(
        half, "beam_search", Table(model, half), max_len=5, beam_width=k
    )
    expected = [list(tokens)[: found.shape[-1]] for tokens, _ in beam]
    assert found[0].tolist() == expected
    assert np.exp(scores[0]) == pytest.approx([p for _, p in beam])


def test_cost_is_counted(half):
    """Continuations scored: |Y| T, |Y| + k |Y| (T − 1), and |Y| + |Y|² + … + |Y|^T."""

    def never_ends(*tokens):
        return (0.5, 0.3, 0.2) if len(tokens) % 2 else (0.3, 0.5, 0.2)

    costs = {}
    for name, options in (
        ("greedy_search", {}),
        ("exhaustive_search", {}),
        ("beam_search", {"beam_width": 2}),
    ):
        table = Table(never_ends, half)
        search(half, name, table, max_len=4, **options)
        costs[name] = table.scored
    assert costs["greedy_search"] == 3 * 4
    assert costs["exhaustive_search"] == 3 + 9 + 27 + 81
    assert costs["beam_search"] == 3 + 2 * 3 * 3 <= 2 * 3 * 4


def test_an_ended_sentence_keeps_its_score_and_its_place(half):
    """The end after 0 is likely; whatever the model says after it counts for nothing."""

    def probabilities(*tokens):
        return {(0,): (0.1, 0.1, 0.8), (1,): (0.5, 0.4, 0.1)}.get(
            tokens, (0.7, 0.2, 0.1)
        )

    tokens, scores = search(
        half, "beam_search", Table(probabilities, half), max_len=5, beam_width=3
    )
    expected = {
        (0, 2, 2, 2, 2): 0.7 * 0.8,
        (2,) * 5: 0.1,
        (1, 0, 0, 0, 0): 0.1 * 0.7**3,
    }
    assert tokens[0].tolist() == list(map(list, expected))
    assert np.exp(scores[0]) == pytest.approx(list(expected.values()))


def test_the_search_stops_when_all_have_ended(half):
    def ends_at(length):
        return lambda *tokens: (0, 0, 1) if len(tokens) >= length else (0.9, 0.1, 0)

    for name, options in (("greedy_search", {}), ("beam_search", {"beam_width": 2})):
        table = Table(ends_at(2), half)
        tokens, _ = search(half, name, table, max_len=50, **options)
        assert tokens.shape[-1] == 3
        assert table.scored == (9 if name == "greedy_search" else 3 + 2 * 3 * 2)


@pytest.mark.parametrize("name", SEARCHES)
def test_a_batch_is_as_one_by_one(half, name):
    """The prefix tells the rows apart; it is no part of the answer, and its end ends nothing."""
    model = random_model(3)
    options = {"beam_width": 4} if name == "beam_search" else {}
    prefix = np.array([[END, 0], [1, END], [END, END], [0, 1], [2, 1]])
    both = search(half, name, Table(model, half), prefix, max_len=4, **options)
    for i, row in enumerate(prefix):
        tokens, scores = search(
            half, name, Table(model, half), row[None], max_len=4, **options
        )
        T = tokens.shape[-1]
        assert both[0][i][..., :T].tolist() == tokens[0].tolist()
        assert (both[0][i][..., T:] == END).all()
        np.testing.assert_allclose(both[1][i], scores[0], rtol=1e-12)
    assert prefix[0].tolist() == [END, 0]


@pytest.mark.parametrize("name", SEARCHES)
def test_the_halves_agree(halves, name):
    """A batch of five beginnings with five tokens, and sentences that end early and late."""
    model, options = random_model(6, n_tokens=5), {}
    if name == "beam_search":
        options = {"beam_width": 3}
    prefix = np.array([[0, 1], [4, 2], [3, 3], [1, 0], [2, 4]])
    (tokens, scores), (others, theirs) = (
        search(half, name, Table(model, half), prefix, max_len=4, **options)
        for half in halves
    )
    assert tokens.tolist() == others.tolist()
    np.testing.assert_allclose(scores, theirs, rtol=1e-12)


def test_scores_follow_the_model(device):
    for name in SEARCHES:
        options = {"beam_width": 2} if name == "beam_search" else {}
        for dtype in (torch.float32, torch.float64):

            def step(tokens, dtype=dtype):
                p = torch.tensor([0.5, 0.3, 0.2], dtype=dtype, device=device)
                return p.log().expand(*tokens.shape[:2], 3)

            begin = torch.zeros(2, 1, dtype=torch.long, device=device)
            tokens, scores = getattr(at, name)(step, begin, END, 4, **options)
            assert scores.dtype == dtype and tokens.dtype == torch.long
            assert scores.device.type == tokens.device.type == device


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize(
    ("step", "options", "error", "message"),
    [
        (lambda x: np.zeros((1, 3)), {}, ValueError, "step returned shape (1, 3) but must return (1,1,|Y|)"),
        (lambda x: np.full((1, 1, 3), 0.5), {}, ValueError,
         "step must return log-probabilities, none above 0; got 0.5"),
        (lambda x: np.full((1, 1, 3), np.nan), {}, ValueError,
         "step must return log-probabilities, none above 0; got nan."),
        (lambda x: [[[0.0]]], {}, TypeError, "what step returns must be a numpy.ndarray, got list"),
        (lambda x: np.full((1, 1, 3), -1.0), {"end": 3}, ValueError, "end=3 is none of the 3 tokens"),
        (None, {"prefix": np.zeros((1, 1))}, TypeError, "prefix holds tokens, whole numbers; got float64"),
        (None, {"prefix": np.zeros(3, int)}, ValueError, "prefix has shape (3,) but needs (b,t)"),
        (None, {"prefix": [[0]]}, TypeError, "prefix must be a numpy.ndarray, got list"),
        (None, {"end": 1.5}, TypeError, "end must be a whole number, got float"),
        (None, {"max_len": 0}, ValueError, "max_len must be 1 or more, got 0"),
    ],
)  # fmt: skip  # a table reads as lines
def test_errors(name, step, options, error, message):
    given = {"prefix": np.zeros((1, 1), dtype=int), "end": 2, "max_len": 4} | options
    if name == "beam_search":
        given["beam_width"] = 2
    with pytest.raises(error, match=re.escape(f"{name}: {message}")):
        getattr(an, name)(step, **given)


def test_errors_of_one():
    def step(tokens):
        return np.full((*tokens.shape[:2], 10), -2.3)

    with pytest.raises(ValueError, match="beam_width must be 1 or more, got 0"):
        an.beam_search(step, NO_PREFIX, 0, 3, 0)
    with pytest.raises(
        ValueError, match=re.escape("10^7 sentences are more than 1000000; use beam")
    ):
        an.exhaustive_search(step, NO_PREFIX, 0, 7)
    for half, found in ((an, step), (at, lambda x: torch.from_numpy(step(x)))):
        prefix = torch.zeros(1, 0, dtype=torch.long) if half is at else NO_PREFIX
        with pytest.raises(ValueError, match="^exhaustive_search: 10.1000000000 sent"):
            half.exhaustive_search(found, prefix, 0, 10**9)  # and at once


def test_errors_in_torch():
    begin = torch.zeros(1, 0, dtype=torch.long)
    for wrong, found in ((0.5, "0.5"), (torch.nan, "nan")):
        with pytest.raises(ValueError, match=f"none above 0; got {found}"):
            at.greedy_search(lambda _, p=wrong: torch.full((1, 1, 3), p), begin, 0, 3)
    with pytest.raises(TypeError, match="prefix holds tokens, whole numbers; got"):
        at.greedy_search(print, torch.zeros(1, 1), 0, 3)


@pytest.mark.parametrize(("max_len", "sentences"), [(1, 3), (2, 7)])
def test_places_without_a_sentence(half, max_len, sentences):
    """Nine places, and fewer sentences of at most one or two tokens: the rest is marked, as the docstring says."""
    table = Table(random_model(1), half)
    prefix = np.array([[0], [1]])
    tokens, scores = search(
        half, "beam_search", table, prefix, max_len=max_len, beam_width=9
    )
    assert tokens.shape == (2, 9, max_len) and scores.shape == (2, 9)
    assert np.isfinite(np.asarray(scores[:, :sentences])).all()
    assert np.isneginf(np.asarray(scores[:, sentences:])).all()
    assert (tokens[:, sentences:] == END).all()


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "uint64"])
def test_prefixes_of_any_whole_numbers(half, name, dtype):
    options = {"beam_width": 2} if name == "beam_search" else {}
    prefix = np.array([[0, 1], [2, 1]])
    model = Table(random_model(2), half)
    expected = search(half, name, model, prefix, **options)
    found = search(half, name, model, prefix.astype(dtype), **options)
    for one, other in zip(found, expected, strict=True):
        assert one.tolist() == other.tolist() and one.dtype == other.dtype
