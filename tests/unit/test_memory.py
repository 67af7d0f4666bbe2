"""What a cache weighs, against the bytes of a cache that is there."""

import numpy as np
import pytest

import attn_tutor.numpy as an
from attn_tutor.memory import cache_bytes


@pytest.mark.parametrize("kept", [{}, {"window": 7, "sinks": 3}])
def test_it_is_what_a_cache_holds(kept):
    caches = [an.KVCache(**kept) for _ in range(2)]  # one for each layer
    for _ in range(23):
        rows = np.ones((5, 1, 11), np.float32)  # of five heads
        held = [cache.append(rows, rows) for cache in caches]
    found = sum(X.nbytes for both in held for X in both)
    shape = dict(layers=2, kv_heads=5, width=11, bits=32)
    assert cache_bytes(23, **shape, **kept) == found


def test_published_sizes():
    # Llama 3 70B: 80 layers, 8 groups of width 128; DeepSeek-V2: 60 layers, 512 and 64 numbers
    assert cache_bytes(1, layers=80, kv_heads=8, width=128) == 2 * 80 * 8 * 128 * 2
    assert cache_bytes(1, layers=60, latent=512, width=64) == 60 * 576 * 2
    assert cache_bytes(1, layers=60, latent=512, width=64, bits=8) == 60 * 576


def test_it_refuses():
    with pytest.raises(ValueError, match="cache_bytes: tokens must be 0 or more"):
        cache_bytes(-1, layers=2, width=8)
    with pytest.raises(TypeError, match="cache_bytes: width must be a whole number"):
        cache_bytes(1, layers=2, width=8.0)
    with pytest.raises(ValueError, match="sinks=4 are kept besides a window"):
        cache_bytes(1, layers=2, width=8, sinks=4)
