"""What a query sees, tile by tile, is what the words say; it decides the query's row, and nothing else does."""

import numpy as np
import pytest

import attn_tutor.numpy as an
from attn_tutor.numpy.visibility import Visibility


def brute(n, m, causal, window, mask):
    may = np.ones((n, m), bool) if mask is None else np.broadcast_to(mask, (n, m))
    behind = np.arange(n)[:, None] - n - np.arange(m) + m
    may = may & (behind >= 0) if causal else may
    return may if window is None else may & (behind < window)


@pytest.mark.parametrize("masked", ["none", "pairs", "keys", "queries"])
@pytest.mark.parametrize(
    ("causal", "window"),
    [(False, None), (True, None), (True, 1), (True, 4), (True, 99)],
)
@pytest.mark.parametrize(("n", "m"), [(7, 7), (5, 11), (11, 5), (1, 6)])
def test_every_tile(n, m, causal, window, masked, draw):
    shape = {"none": None, "pairs": (n, m), "keys": (1, m), "queries": (n, 1)}[masked]
    mask = None if shape is None else draw(*shape) < 0.3
    see = Visibility(n, m, mask, causal, window)
    whole = brute(n, m, causal, window, mask)
    dense = see.dense()
    np.testing.assert_array_equal(
        True if dense is None else np.broadcast_to(dense, (n, m)), whole
    )
    marked = draw(m) < 0
    np.testing.assert_array_equal(
        np.broadcast_to(see.who(marked)[..., 0], n), (whole & marked).any(1)
    )
    np.testing.assert_array_equal(see.anyone() | ~whole.any(0), True)
    for i in range(n):
        for rows in (slice(i, i + 1), slice(i, n)):
            keys = see.keys(rows)
            assert (
                not whole[rows, : keys.start].any()
                and not whole[rows, keys.stop :].any()
            )
            for j in range(m):
                for cut in (slice(j, j + 1), slice(j, m)):
                    found, expected = see.tile(rows, cut), whole[rows, cut]
                    found = True if found is None else found
                    np.testing.assert_array_equal(
                        np.broadcast_to(found, expected.shape), expected
                    )
                    some = see.rows(rows, cut)
                    outside = np.ones(n, bool)
                    outside[some] = False
                    assert not whole[rows, cut][outside[rows]].any()


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
