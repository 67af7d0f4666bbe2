"""Decoding: what earlier tokens are asked for is kept, so that a new token costs one row of attention."""

import torch

from attn_tutor._both import cache
from attn_tutor.torch import _backend as xp
from attn_tutor.torch._arrays import shapes

__all__ = ["KVCache"]


class KVCache(cache.KVCache[torch.Tensor]):
    r"""Keys and values of all tokens so far, for attention that decodes one token after the other.

    .. math:: K \leftarrow \begin{pmatrix} K \\ K_{\text{new}} \end{pmatrix}, \qquad
        V \leftarrow \begin{pmatrix} V \\ V_{\text{new}} \end{pmatrix}

    Causally, keys and values of a token depend on no later token, so they are computed once. The room for them
    doubles when it is full: m tokens one by one copy fewer than 2m rows, where concatenating copies m²/2.
    With a window, older tokens are dropped, except the first ones, which many heads use as a sink. Token by token, in
    chunks and all at once are the same if attention has the window, too, and positions start at ``n_seen``.
    Source: Shazeer (2019), section 2.4, incremental attention; sinks: Xiao et al. (2024), section 3.2.

    Args:
        max_len: most tokens that it may hold; None sets no bound.
        window: how many tokens a query sees at most, its own included, besides the sinks; None drops none.
        sinks: how many of the first tokens are never dropped; needs a window.

    Raises:
        TypeError: a number is not a whole number.
        ValueError: a number is negative, the window is below 1, or there are sinks without a window.

    Example:
        >>> cache = KVCache()
        >>> K, V = cache.append(torch.tensor([[1.0, 2.0]]), torch.tensor([[5.0]]))
        >>> K, V = cache.append(torch.tensor([[3.0, 4.0]]), torch.tensor([[6.0]]))
        >>> K.tolist(), V.tolist(), len(cache)
        ([[1.0, 2.0], [3.0, 4.0]], [[5.0], [6.0]], 2)
    """

    _xp = xp
    _checked = staticmethod(shapes(cache.SHAPES)(cache.append))
