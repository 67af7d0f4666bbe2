"""Guards on complexity: memory grows with the tokens and not with their square, and what nobody sees is not computed.

Both are counted, never timed: bytes that NumPy and torch take and give back, and numbers that are exponentiated.
"""

import itertools
import shutil
import tracemalloc
from functools import partial

import attention_cost
import numpy as np
import pytest
import torch
from test_visibility import Islands

import attn_tutor.numpy as an
import attn_tutor.torch as at

HEADS, WIDTH = 2, 16
HALVES = pytest.mark.parametrize("half", [an, at], ids=["numpy", "torch"])


def draw(half, *shape):
    x = np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)
    return torch.from_numpy(x).requires_grad_() if half is at else x


def tokens(half, n):
    return [draw(half, HEADS, n, WIDTH) for _ in range(3)]


def projections(half):
    return [draw(half, *shape) / 4 for shape in [(WIDTH, WIDTH)] * 2 + [(WIDTH,)]]


def peak(call):
    """The most bytes that a call holds at any time, the gradient included where there is one."""
    if isinstance(call(), torch.Tensor):  # a first call, which also loads code
        taken = attention_cost.allocations(lambda: call().sum().backward())
        return max(itertools.accumulate(taken))
    tracemalloc.start()
    call()
    found = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return found


def padding(half, n):
    lengths = np.array([n // 2, n // 3])
    return half.padding_mask(torch.from_numpy(lengths) if half is at else lengths, n)


CALLS = {
    "attention": lambda half, *Q: half.attention(*Q),
    "causal": lambda half, *Q: half.attention(*Q, causal=True),
    "padded": lambda half, *Q: half.attention(*Q, padding(half, Q[0].shape[1])),
    "Gaussian": lambda half, *Q: half.gaussian_attention(*Q, bandwidth=4.0),
    "additive": lambda half, *Q: half.additive_attention(*Q, *projections(half)),
}


@HALVES
@pytest.mark.parametrize("name", CALLS)
def test_memory_grows_with_n_and_not_with_its_square(half, name):
    needs_linear_memory(lambda *Q: CALLS[name](half, *Q), half)


def needs_linear_memory(call, half):
    small, large = (peak(partial(call, *tokens(half, n))) for n in (512, 2048))
    # Growth with four times the tokens, whose scores would take 32 MiB.
    output, scores = HEADS * 2048 * WIDTH * 4, HEADS * 2048**2 * 4
    assert output <= large < scores  # counted at all, and no matrix of scores
    assert large < 6 * max(small, output)


@HALVES
def test_memory_of_the_textbook_grows_with_the_square(half):
    """What the guard above would see, were the engines to store their scores."""

    def textbook(Q, K, V):
        return half.attend(half.scaled_dot_score(Q, K), V)

    small, large = (peak(partial(textbook, *tokens(half, n))) for n in (256, 1024))
    assert large > 12 * small


@HALVES
@pytest.mark.parametrize("causal", [False, True])
def test_a_step_of_decoding_copies_no_keys(half, causal):
    """Its memory is that of the scores of one query, far less than that of the keys which it reads."""
    n = 4096
    cache = half.KVCache(max_len=n + 2)
    K, Q = draw(half, HEADS, n, WIDTH), draw(half, HEADS, 1, WIDTH)
    with torch.no_grad():
        cache.append(K, K)

        def step():
            keys, values = cache.append(Q, Q)
            return half.attention(Q, keys, values, causal=causal)

        if half is at:
            step()
            taken = max(itertools.accumulate(attention_cost.allocations(step)))
        else:
            taken = peak(step)
    assert 0 < taken < K.nbytes / 2


# Work. Every score is exponentiated once, whatever the engine does with it.


@pytest.fixture
def exponentials(monkeypatch):
    """A call that counts how many numbers np.exp takes in another call."""
    sizes, exp = [], np.exp

    def counted(x, *args, **kwargs):
        sizes.append(np.size(x))  # from any thread
        return exp(x, *args, **kwargs)

    monkeypatch.setattr(np, "exp", counted)

    def count(call):
        sizes.clear()
        call()
        return sum(sizes)

    return count


def test_scores_that_nobody_sees_are_not_computed_in_numpy(exponentials):
    n = 4096
    Q, K, V = (draw(an, n, WIDTH) for _ in range(3))
    everything = exponentials(lambda: an.attention(Q, K, V))
    assert n * n <= everything < 1.1 * n * n
    assert exponentials(lambda: an.attention(Q, K, V, causal=True)) < 0.6 * n * n
    short = an.valid(np.array(n // 8))
    assert exponentials(lambda: an.attention(Q, K, V, short)) < 0.2 * n * n


def test_one_exponential_a_query_and_one_a_key_in_numpy(exponentials):
    """In each block of queries, besides those of the softmax: none for each of 16 features of each pair."""
    n = 512
    Q, K, V = (draw(an, n, WIDTH) for _ in range(3))
    W = projections(an)
    taken = exponentials(lambda: an.additive_attention(Q, K, V, *W))
    assert n * n <= taken <= 2 * n * n
    taken = exponentials(lambda: an.additive_attention(Q, K, V, *W, causal=True))
    assert taken < 1.2 * n * n


# Any rule at 16,384 tokens, whose scores would take 8 GiB


LONG = 16384
RULES = {
    "window and sinks": lambda half: {
        "causal": True,
        "window": half.Window(256, sinks=4),
    },
    "documents": lambda half: {
        "mask": half.documents(whole(half, np.arange(LONG) // 1000))
    },
    "lengths": lambda half: {
        "mask": half.valid(whole(half, np.array([1900, 800] * 4)))
    },
    "islands": lambda half: {"mask": Islands() | half.First(3)},
    "causal": lambda half: {"causal": True},
    "prefix": lambda half: {"mask": half.prefix(whole(half, np.array(900)))},
    "dilated": lambda half: {"mask": half.Rule(lambda i, j: (i - j) % 2 == 0)},
    "slopes": lambda half: {"bias": half.alibi(8), "causal": True},
}
LEAVE_OUT = [*RULES][
    :4
]  # most keys; to others the newest 2,048 queries are put, as all would take a minute


def whole(half, x):
    return torch.from_numpy(x) if half is at else x


@HALVES
@pytest.mark.slow
@pytest.mark.parametrize("name", RULES)
def test_a_rule_at_16384_tokens_takes_less_than_200_mib(half, name):
    """Beyond what comes in and goes out, in torch with the gradient."""
    n = LONG if name in LEAVE_OUT else 2048
    Q, K, V = (draw(half, 8, k, 64) for k in (n, LONG, LONG))
    options = RULES[name](half)
    taken = peak(lambda: half.attention(Q, K, V, **options))
    gradients = Q.nbytes + K.nbytes + V.nbytes if half is at else 0
    assert Q.nbytes <= taken < Q.nbytes + gradients + 200 * 2**20


@pytest.mark.skipif(not shutil.which("cc"), reason="chapter 4's cost needs cc")
def test_the_recurrence_in_c_is_torchs() -> None:
    x, W, U = draw(an, 20, 64), draw(an, 64, 64) / 8, draw(an, 64, 64) / 9
    rnn = torch.nn.RNN(64, 64, bias=False)
    rnn.weight_ih_l0.data = torch.from_numpy(W.T)
    rnn.weight_hh_l0.data = torch.from_numpy(U.T)
    by_torch = rnn(torch.from_numpy(x))[0].detach()
    np.testing.assert_allclose(
        attention_cost.recurrence(x, W, U), by_torch, rtol=1e-5, atol=1e-6
    )
