"""The key–value cache: what it holds, when it grows and what it drops."""

from typing import Any, Generic, TypeVar

from attn_tutor._checks import require_size

Array = TypeVar("Array", bound=Any)
SHAPES = "(n,d),(n,d_v)->(m,d),(m,d_v)"  # of what append takes and gives


class KVCache(Generic[Array]):
    """A cache over the arrays of one half, which sets its backend and the check of shapes."""

    _xp: Any
    _checked: Any

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
        self._len = self._n_seen = 0
        self._buffers: list[Array] = []  # keys and values, with room for more
        self._layout: list[Any] = []  # of the K and V that came last

    def __len__(self) -> int:
        """Number of tokens held."""
        return self._len

    def __bool__(self) -> bool:
        """True: an empty cache is a cache, too."""
        return True

    @property
    def n_seen(self) -> int:
        """How many tokens ever came, with those that were dropped; so the next one has this position."""
        return self._n_seen

    def append(self, K: Array, V: Array) -> tuple[Array, Array]:
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
        if _layout(K, V) != self._layout:  # the same as last need no second check
            K, V = self._checked(K, V)
            self._require_fit(K, V)
            self._layout = _layout(K, V)
        if self._xp.needs_gradient(K, V):
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
        buffers = self._buffers or [X[..., :0, :] for X in (K, V)]
        if stop > buffers[0].shape[-2]:
            buffers = [self._wider(buffer, stop) for buffer in buffers]
        keys, values = [buffer[..., :stop, :] for buffer in buffers]
        keys[..., start:, :], values[..., start:, :] = K, V
        self._buffers, self._len = buffers, stop
        self._n_seen += stop - start
        return keys, values

    def reorder(self, order: Array) -> None:
        """Keep the sequences that ``order`` names, in its order and each as often as named, as a beam does.

        Args:
            order: indices along the first batch axis of the keys and values, (k,).

        Raises:
            TypeError: ``order`` is not an array of this half, or not of whole numbers.
            ValueError: it has more axes than one, names a sequence that is not there, or there is no batch axis.
        """
        self._xp.require_whole("KVCache", "order", order, "holds whole numbers,")
        for buffer in self._buffers:
            sequences = len(buffer) if buffer.ndim > 2 else 0
            if order.ndim != 1 or not ((order >= 0) & (order < sequences)).all():
                raise ValueError(
                    f"KVCache: order must be (k,) numbers below {sequences}, the number of sequences held"
                )
        rows = self._xp.asarray(order, dtype=self._xp.int64)
        self._buffers = [buffer[rows] for buffer in self._buffers]
        self._layout = []

    def _drop(self, sinks: int, recent: int) -> None:
        """Keep the first tokens and the most recent ones; to copy them costs no more than attention reads."""
        late = self._len - recent
        if late > sinks:
            held = [buffer[..., : self._len, :] for buffer in self._buffers]
            self._buffers = [
                self._xp.concatenate([X[..., :sinks, :], X[..., late:, :]], -2)
                for X in held
            ]
            self._len = sinks + recent

    def _require_fit(self, K: Array, V: Array) -> None:
        for name, X, buffer in zip("KV", (K, V), self._buffers, strict=False):
            if _row_type(X) != _row_type(buffer):
                got, held = (" ".join(map(str, _row_type(x))) for x in (X, buffer))
                raise ValueError(f"KVCache: {name} is {got} but the cache holds {held}")

    def _wider(self, buffer: Array, stop: int) -> Array:
        """A buffer of twice the length, or as long as is needed, but no longer than may ever be used."""
        *batch, length, d = buffer.shape
        length = max(stop, 2 * length)
        if self.max_len is not None:
            length = min(length, self.max_len)
        shape, dtype, device = (*batch, length, d), buffer.dtype, buffer.device
        wider: Array = self._xp.empty(shape, dtype=dtype, device=device)
        wider[..., : self._len, :] = buffer[..., : self._len, :]
        return wider


def append(K: Any, V: Any) -> tuple[Any, Any]:
    """Both, once they are checked."""
    return K, V


def _layout(*arrays: Any) -> list[Any]:
    """All that the check of an array looks at; of what is no array its type."""
    names = "shape", "dtype", "device"
    return [(type(X), *(getattr(X, name, None) for name in names)) for X in arrays]


def _row_type(X: Any) -> tuple[object, ...]:
    """What may not change from token to token: batch axes, width, dtype and device."""
    return *X.shape[:-2], "…", X.shape[-1], X.dtype, X.device
