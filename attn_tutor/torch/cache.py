"""Decoding: what earlier tokens are asked for is kept, so that a new token costs one row of attention."""

from typing import Any

import torch

from attn_tutor._checks import require_size
from attn_tutor.torch._arrays import require_whole, shapes

__all__ = ["KVCache"]


class KVCache:
    r"""Keys and values of all tokens so far, for attention that decodes one token after the other.

    .. math:: K \leftarrow \begin{pmatrix} K \\ K_{\text{new}} \end{pmatrix}, \qquad
        V \leftarrow \begin{pmatrix} V \\ V_{\text{new}} \end{pmatrix}

    Causally, keys and values of a token depend on no later token, so they are computed once. The room for them
    doubles when it is full: m tokens one by one copy fewer than 2m rows, where concatenating copies m²/2.
    With a window, older tokens are dropped, except the first ones, which many heads use as a sink. Token by token, in
    chunks and all at once are the same if attention has the window, too, and positions start at ``seen``.
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

    def __init__(
        self, max_len: int | None = None, *, window: int | None = None, sinks: int = 0
    ) -> None:
        if max_len is not None:
            require_size("KVCache", "max_len", max_len)
        if window is not None:
            require_size("KVCache", "window", window, least=1)
        require_size("KVCache", "sinks", sinks)
        if sinks and window is None:
            raise ValueError(
                f"KVCache: sinks={sinks} are kept when others are dropped; give window= too"
            )
        self.max_len, self.window, self.sinks = max_len, window, sinks
        self._len = self._seen = 0
        self._rooms: list[torch.Tensor] = []
        self._last: list[Any] = []  # what kind of K and V came last

    def __len__(self) -> int:
        """Number of tokens held."""
        return self._len

    @property
    def seen(self) -> int:
        """How many tokens ever came, with those that were dropped; so the next one has this position."""
        return self._seen

    def append(
        self, K: torch.Tensor, V: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Add the keys and values of new tokens; all so far come back, as views that later calls leave unchanged.

        Args:
            K: new keys, (…, n, d).
            V: new values, (…, n, d_v).

        Returns:
            All keys, (…, m, d), and all values, (…, m, d_v), the newest last. With a window: those of the sinks and
            of the tokens that some new one sees.

        Raises:
            TypeError: an argument is not an array of this half.
            ValueError: more tokens than ``max_len``, or shapes or dtypes that do not fit those held.
        """
        if _kinds(K, V) != self._last:  # tokens like the last ones need no second look
            K, V = append(K, V)
            self._require_fit(K, V)
            self._last = _kinds(K, V)
        if torch.is_grad_enabled() and (K.requires_grad or V.requires_grad):
            raise ValueError(
                "KVCache: what is held gets no gradient; decode under torch.no_grad()"
            )
        if self.window is not None:
            self._drop(self.sinks, self.window - 1)
        start, stop = self._len, self._len + K.shape[-2]
        if self.max_len is not None and stop > self.max_len:
            raise ValueError(
                f"KVCache: {stop} tokens are more than max_len={self.max_len}"
            )
        rooms = self._rooms or [X[..., :0, :] for X in (K, V)]
        if stop > rooms[0].shape[-2]:
            rooms = [self._wider(room, stop) for room in rooms]
        keys, values = [room.narrow(-2, 0, stop) for room in rooms]
        keys[..., start:, :], values[..., start:, :] = K, V
        self._rooms, self._len = rooms, stop
        self._seen += stop - start
        return keys, values

    def reorder(self, order: torch.Tensor) -> None:
        """Keep the sequences that ``order`` names, in its order and each as often as named, as a beam does.

        Args:
            order: indices along the first batch axis of the keys and values, (k,).

        Raises:
            TypeError: ``order`` is not an array of this half, or not of whole numbers.
            ValueError: it has more axes than one, names a sequence that is not there, or there is no batch axis.
        """
        require_whole("KVCache", "order", order, "holds whole numbers,")
        for room in self._rooms:
            sequences = len(room) if room.ndim > 2 else 0
            if order.ndim != 1 or not ((order >= 0) & (order < sequences)).all():
                raise ValueError(
                    f"KVCache: order must be (k,) numbers below {sequences}, the number of sequences held"
                )
        self._rooms = [room.index_select(0, order.long()) for room in self._rooms]
        self._last = []

    def _drop(self, sinks: int, recent: int) -> None:
        """Keep the first tokens and the most recent ones; to copy them costs no more than attention reads."""
        late = self._len - recent
        if late > sinks:
            held = [room[..., : self._len, :] for room in self._rooms]
            self._rooms = [
                torch.cat([X[..., :sinks, :], X[..., late:, :]], -2) for X in held
            ]
            self._len = sinks + recent

    def _require_fit(self, K: torch.Tensor, V: torch.Tensor) -> None:
        for name, X, room in zip("KV", (K, V), self._rooms, strict=False):
            if _kind(X) != _kind(room):
                got, held = (" ".join(map(str, _kind(x))) for x in (X, room))
                raise ValueError(f"KVCache: {name} is {got} but the cache holds {held}")

    def _wider(self, room: torch.Tensor, stop: int) -> torch.Tensor:
        """Twice the room, or as much as is needed, but no more than may ever be used."""
        *batch, length, d = room.shape
        length = max(stop, 2 * length)
        if self.max_len is not None:
            length = min(length, self.max_len)
        wider = room.new_empty(*batch, length, d)
        wider[..., : self._len, :] = room[..., : self._len, :]
        return wider


@shapes("(n,d),(n,d_v)->(m,d),(m,d_v)")
def append(K: torch.Tensor, V: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Both, once they are checked."""
    return K, V


def _kind(X: torch.Tensor) -> tuple[object, ...]:
    """What may not change from token to token: batch axes, width, dtype and device."""
    return *X.shape[:-2], "…", X.shape[-1], X.dtype, X.device


def _kinds(*arrays: Any) -> list[Any]:
    """All that the check of an array looks at; None stands for what is no array."""
    return [
        (X.shape, X.dtype, X.device) if isinstance(X, torch.Tensor) else None
        for X in arrays
    ]
