"""What a query sees, tile by tile, is what the words say; it decides the query's row, and nothing else does."""

import inspect
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import attn_tutor.numpy as an
import attn_tutor.torch as at
from attn_tutor.geometry import Rule, Seen
from attn_tutor.numpy import visibility as numpy_side
from attn_tutor.numpy.fast import tiles as numpy_tiles
from attn_tutor.torch import visibility as torch_side
from attn_tutor.torch.fast import attention as torch_side_engine


def dense(n, m, causal, window, sinks, said, mask):
    """Word for word, without a thought of memory."""
    i, j = np.arange(n)[:, None] + m - n, np.arange(m)
    seen = np.ones((n, m), bool)
    if causal:
        seen = j <= i
        if window is not None:
            seen = seen & ((j > i - window) | (j < sinks))
        if "prefix" in said:
            seen = seen | (j < said["prefix"])
    if "valid" in said:
        seen = seen & (j < said["valid"])
    if "documents" in said:
        ids = said["documents"]
        seen = seen & (ids[m - n :, None] == ids)
    return seen if mask is None else seen & mask


@st.composite
def problems(draw):
    """Any rules together, for any numbers of queries and keys."""
    n, m = draw(st.integers(0, 13)), draw(st.integers(1, 13))
    causal = draw(st.booleans())
    width = st.one_of(st.none(), st.integers(1, 15))
    window, sinks = draw(width) if causal else None, 0
    if window is not None:
        sinks = draw(st.integers(0, 5))
    rules = {"valid": st.integers(0, m), "prefix": st.integers(0, m)}
    said = {k: np.array(draw(x)) for k, x in rules.items() if draw(st.booleans())}
    if n <= m and draw(st.booleans()):
        ids = draw(st.lists(st.integers(0, 3), min_size=m, max_size=m))
        said["documents"] = np.array(sorted(ids) if draw(st.booleans()) else ids)
    shapes = st.sampled_from([None, None, (n, m), (1, m), (n, 1), (m,)])
    shape = draw(shapes)
    mask = None if shape is None else np.random.default_rng(n * m).random(shape) < 0.6
    return n, m, causal, window, sinks, said, mask


def visibility(half, n, m, causal, window, sinks, said, mask):
    native = torch.from_numpy if half is at else np.asarray
    told = {k: native(x) for k, x in said.items()}
    if mask is not None:
        told["mask"] = native(mask)
    Q, K = native(np.zeros((n, 2))), native(np.zeros((m, 2)))
    side = torch_side if half is at else numpy_side
    rule = None if window is None else half.Window(window, sinks)
    options = {"mask": Rule(**told) if told else None, "causal": causal, "window": rule}
    return side.Visibility.of("here", Q, K, **options)


@settings(max_examples=1000)
@given(problems(), st.data())
def test_every_tile(problem, data):
    """Both halves at once, since drawing a problem takes longer than looking at it."""
    n, m, *_ = problem
    third = data.draw(st.integers(0, 2))
    start, first = (
        data.draw(st.integers(0, max(n - 1, 0))),
        data.draw(st.integers(0, m - 1)),
    )
    rows = slice(start, data.draw(st.integers(start + 1, max(n, 1))))
    cut = slice(first, data.draw(st.integers(first + 1, m)))
    for half in (an, at):
        is_what_the_words_say(half, problem, third, rows, cut)


def is_what_the_words_say(half, problem, third, rows, cut):
    n, m, *_ = problem
    whole, see = dense(*problem), visibility(half, *problem)
    found = see.dense()
    assert (np.broadcast_to(True if found is None else found, (n, m)) == whole).all()
    marked = np.arange(m) % 3 == third
    who = see.who(torch.from_numpy(marked) if half is at else marked)
    assert (
        np.broadcast_to(np.asarray(who)[..., 0], n) == (whole & marked).any(1)
    ).all()
    some = see.anyone()
    some = np.ones(m, bool) if some is None else np.asarray(some)
    assert not (whole.any(0) & ~some).any()
    numbers = [i for block in see.blocks(3) for i in range(n)[block]]
    assert numbers == [*range(n)]
    if not n:
        return
    runs = see.keys(rows)
    outside = np.ones(m, bool)
    for run in runs:
        outside[run] = False
    assert not whole[rows, outside].any()
    assert all(run.start < run.stop for run in runs)
    assert all(a.stop < b.start for a, b in itertools.pairwise(runs))
    tile, expected = see.tile(rows, cut), whole[rows, cut]
    assert (np.broadcast_to(tile, expected.shape) == np.asarray(expected)).all()
    if see.ruled and problem[-1] is None:  # and rules alone know how much
        exact = visibility(half, *problem[:-1], None)
        sure = exact.sure(rows, cut) if "mask" not in exact.arrays else None
        assert sure is None or (expected == sure).all()


@pytest.mark.parametrize("half", [an, at])
def test_blocks_end_with_documents(half):
    """All but the short ones, which share a block."""
    said = {"documents": np.repeat(np.arange(5), [10, 4, 1, 1, 9])}
    see = visibility(half, 23, 25, True, None, 0, said, None)
    assert [block.stop for block in see.blocks(8)] == [8, 14, 22, 23]


def test_one_contract():
    """What engines, layers and processes ask of either half's class has one signature, and says what it gives."""
    sides = numpy_side.Visibility, torch_side.Visibility
    for name in (name for name in vars(Seen) if name[0] != "_"):
        shared = inspect.getattr_static(Seen, name)
        contract = terms(shared)
        assert contract[1] not in ("Any", ""), f"{name} does not say what it gives"
        for side in sides:
            parameters, gives = terms(inspect.getattr_static(side, name))
            assert parameters == contract[0], f"{side.__module__}.{name}"
            assert gives in contract[1] or "A" in contract[1], f"{side.__module__}.{name}"  # fmt: skip
    left = [
        name for name, x in vars(Seen).items() if "NotImplementedError" in source(x)
    ]
    for side in sides:
        assert {*left} <= vars(side).keys(), f"{side.__module__} lacks some of {left}"
        for name in ("tile", "keys", "added", "part", "dense", "map", "everything"):
            assert name not in vars(side), f"{name} is said once, for both"
        for name, x in vars(side).items():
            assert name[:2] == "__" or terms(x)[1] != "Any", f"{side.__module__}.{name}"


def bare(x):
    """The function of a property, a class method or a static one."""
    return getattr(x, "fget", None) or getattr(x, "__func__", x)


def terms(x):
    """Names and defaults of what it takes, and what it gives, in the words of neither half."""
    if not inspect.isfunction(bare(x)):
        return None, None
    signature = inspect.signature(bare(x))
    names = [(p.name, p.kind, p.default) for p in signature.parameters.values()]
    gives = signature.return_annotation
    gives = gives if isinstance(gives, str) else inspect.formatannotation(gives)
    for native in ("numpy.ndarray", "np.ndarray", "torch.Tensor"):
        gives = gives.replace(native, "A")
    return names, gives.replace("~A", "A").replace("typing.", "")


def source(x):
    return inspect.getsource(bare(x)) if inspect.isfunction(bare(x)) else ""


def test_rules_combine(half):
    one, other = half.valid(np.array(2)), half.prefix(np.array(1))
    mask = half.give(np.ones((3, 3), bool))
    for rule in (one & other & mask, mask & (one & other), (mask & one) & other):
        assert set(rule.said) == {"valid", "prefix", "mask"}
    with pytest.raises(ValueError, match="&: valid is said on both sides"):
        one & one


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("size", [1.0, 30.0], ids=["small scores", "large scores"])
@pytest.mark.parametrize("n", [5, 700, 1300])
def test_a_hidden_key_changes_no_bit(n, size, dtype):
    """The last of n causal tokens is moved far away: the rows before it stay as they are, to the bit."""
    rng = np.random.default_rng(n)
    Q, K, V = (size * rng.normal(size=(2, n, 5)).astype(dtype) for _ in range(3))
    before = an.attention(Q, K, V, causal=True)
    far_K, far_V = K.copy(), V.copy()
    far_K[:, -1] = 9 * Q[:, -1]
    far_V[:, -1] -= 30
    after = an.attention(Q, far_K, far_V, causal=True)
    np.testing.assert_array_equal(after[:, :-1], before[:, :-1])
    assert (after[:, -1] != before[:, -1]).all()
    mask = np.ones((n, n), bool)
    mask[: n // 2, -1] = False
    before, after = (an.attention(Q, *KV, mask) for KV in ((K, V), (far_K, far_V)))
    np.testing.assert_array_equal(after[:, : n // 2], before[:, : n // 2])


# In blocks


RULES = {
    "window": lambda half, n: {"causal": True, "window": 5},
    "sinks": lambda half, n: {"causal": True, "window": half.Window(5, sinks=3)},
    "documents": lambda half, n: {"mask": half.documents(np.arange(n) // 17)},
    "valid": lambda half, n: {"mask": half.valid(np.array([n - 9, n // 2])[:, None])},
    "prefix": lambda half, n: {"mask": half.prefix(np.array(11)), "causal": True},
    "alibi": lambda half, n: {"bias": half.alibi(3), "causal": True},
    "both sides": lambda half, n: {"bias": half.alibi(3)},
    "row": lambda half, n: {"mask": np.arange(n) % 7 > 0, "causal": True},
    "bias": lambda half, n: {"bias": np.sin(np.arange(n))[None]},
    "softcap": lambda half, n: {"softcap": 0.7},
}


def said(half, names, n):
    """Rules together; None if two of them are the same argument and cannot be."""
    told = {}
    for name in names:
        for key, value in RULES[name](half, n).items():
            if key == "mask" and "mask" in told:
                told["mask"] = half.give(told["mask"]) & half.give(value)
            elif key != "causal" and key in told:
                return None
            else:
                told[key] = value
    return told


@pytest.mark.parametrize(
    "pair", [*itertools.combinations_with_replacement(RULES, 2)], ids="+".join
)
def test_rules_in_pairs(half, close, draw, monkeypatch, pair):
    """The number and the gradients are those of the dense mask and bias, in blocks as in one piece."""
    n = 90
    told = said(half, dict.fromkeys(pair), n)
    if told is None:
        return
    Q, K, V = draw(2, 3, n, 4), draw(2, 1, n, 4), draw(2, 3, n, 5)
    g = torch.from_numpy(draw(2, 3, n, 5))

    def attend(small):
        monkeypatch.setattr(torch_side_engine, "PAIRS", 300 if small else 2**21)
        monkeypatch.setattr(torch_side_engine, "FEW", 60 if small else 2**19)
        monkeypatch.setattr(torch_side_engine, "ROWS", 16 if small else 256)
        monkeypatch.setattr(numpy_tiles, "KEYS", 16 if small else 256)
        if half.device is None:
            return half.attention(Q, K, V, **told), []
        leaves = [half.give(X).requires_grad_() for X in (Q, K, V)]
        given = {k: half.give(x) for k, x in told.items()}
        output = at.attention(*leaves, **given)
        gradients = torch.autograd.grad(output, leaves, g.to(half.device))
        return half.back(output), [half.back(X) for X in gradients]

    whole, gradients = attend(small=False)
    blocks, others = attend(small=True)
    close(blocks, whole)
    for one, other in zip(others, gradients, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)
    words = {k: told[k] for k in ("mask", "causal", "window") if k in told}
    native = [half.give(X) for X in (Q, K, V)]
    side = numpy_side if half.device is None else torch_side
    given = {k: half.give(x) for k, x in words.items()}
    seen = side.Visibility.of("here", *native, **given).dense()
    rest = {k: told[k] for k in ("bias", "softcap") if k in told}
    if "alibi" in pair or "both sides" in pair:
        rest["bias"] = np.asarray(half.alibi_bias(3, n), float)
    plain = half.attention_weights(
        Q, K, None if seen is None else half.back(seen), **rest
    )
    np.testing.assert_allclose(whole, plain @ V, rtol=1e-5, atol=1e-6)
