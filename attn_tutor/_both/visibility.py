"""Who sees whom in one call: its mask, ``causal``, ``window`` and bias, read once and given out block by block."""

import functools
import operator
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

from attn_tutor._both.definition import index_of
from attn_tutor._checks import Shape, broadcast, lacks_heads, require_size
from attn_tutor.rules import Bias, Causal, Rule, Window


class Fields(NamedTuple):
    """What a call says, once it is read."""

    n: int
    m: int
    device: Any
    rule: Rule | None
    mask: Any  # a boolean array, which broadcasts to (…, n, m), or None
    bias: Any  # an array like it, a Bias, or None


class Visibility(Fields):
    """Which of m keys n queries see, and what is added to their scores. Each half sets its backend."""

    xp: ClassVar[Any]

    @classmethod
    def read(
        cls,
        where: str,
        shape: Shape,
        device: Any,
        mask: Any = None,
        causal: bool = False,
        window: Any = None,
        bias: Any = None,
    ) -> Self:
        """What a call on scores (…, n, m) is given, checked."""
        *batch, n, m = shape
        xp = cls.xp
        rule, mask = read_mask(where, n, mask, causal, window)
        if rule is not None:
            ready = partial(xp.to_device, where, "a rule's array", device)
            rule = checked_rule(where, rule, (*batch,), n, m, ready)
        if mask is not None:
            xp.require_boolean(where, mask, device)
            xp.require_fit(where, "mask", mask.shape, shape)
            mask = xp.atleast_2d(mask)
        if isinstance(bias, Bias):
            ready = partial(xp.to_device, where, "a bias's array", device)
            bias = bias.map(lambda X, _: ready(X))
        elif bias is not None:
            xp.require_bias(where, bias, device)
            xp.require_fit(where, "bias", bias.shape, shape)
            bias = xp.atleast_2d(bias)
            if xp.may_hold_minus_infinity(bias):  # a key with score −∞ is not seen
                mask = permitted_by_both(mask, bias != -float("inf"))
        return cls(n, m, device, rule, mask, bias)

    def positions(self, rows: slice) -> Any:
        """Where these queries stand, (rows, 1): the last of all at the last key."""
        i = self._arange(rows, self.n)[:, None]
        return i + (self.m - self.n)

    def _arange(self, part: slice, size: int) -> Any:
        # Not part.indices(size), which would tie a compiled graph to the size.
        stop = size if part.stop is None else part.stop
        return self.xp.arange(part.start or 0, stop, device=self.device)

    def keys(self, rows: slice) -> Any:
        """Index of the keys that these queries see, and maybe of some more."""
        xp = self.xp
        if self.rule is None:
            return slice(0, self.m)
        offset = self.m - self.n
        first, last = rows.start + offset, rows.stop - 1 + offset
        spans = self.rule.keys(first, last, self.m) or [slice(0, 0)]
        if len(spans) == 1:
            return spans[0]
        spans = [xp.arange(x.start, x.stop, device=self.device) for x in spans]
        return xp.concatenate(spans)

    def mask_and_bias(self, rows: slice, keys: Any) -> tuple[Any, Any]:
        """Mask and bias of these queries and keys, which broadcast to (…, rows, keys); None where there is none."""
        xp, i, j = self.xp, self.positions(rows), keys
        if isinstance(keys, slice):
            j = self._arange(keys, self.m)
        mask, bias = self.mask, self.bias
        if mask is not None:
            mask = mask[index_of(mask, "nm", rows, keys, broadcasts=True)]
        if self.rule is not None:
            pairs = xp.atleast_2d(xp.asarray(self.rule.pairs(i, j)))
            mask = permitted_by_both(mask, pairs)
        if isinstance(bias, Bias):
            may_hide = bias.may_hide
            bias = xp.atleast_2d(xp.asarray(bias.added(i, j)))
            if may_hide:
                mask = permitted_by_both(mask, bias != -float("inf"))
        elif bias is not None:
            bias = bias[index_of(bias, "nm", rows, keys, broadcasts=True)]
        return mask, bias

    @property
    def dense(self) -> tuple[Any, Any]:
        """Mask and bias of all queries and keys."""
        if self.rule is None and not isinstance(self.bias, Bias):
            return self.mask, self.bias
        return self.mask_and_bias(slice(None), slice(None))


def permitted_by_both(a: Any, b: Any) -> Any:
    """Two masks in one; None permits everything."""
    if a is None or b is None:
        return b if a is None else a
    return a & b


def read_mask(
    where: str, n: int, mask: Any, causal: bool, window: Any
) -> tuple[Any, Any]:
    """All that a call says of who sees whom, as one rule and one boolean array; None where there is none.

    Raises:
        TypeError: the window is not a whole number.
        ValueError: there is a window and no causality, or it is below 1.
    """
    if window is not None and not isinstance(window, Window):
        require_size(where, "window", window, least=1)
        window = Window(window)
    if window is not None and not causal:
        raise ValueError(
            f"{where}: window={window.width} is how many keys a query sees up to its own; it needs causal=True"
        )
    # A lone query is the newest and sees every key.
    rules = [window or Causal()] if causal and (n != 1 or window) else []
    if isinstance(mask, Rule):
        rules.append(mask)
        mask = None
    return functools.reduce(operator.and_, rules) if rules else None, mask


def checked_rule(
    where: str, rule: Rule, batch: Shape, n: int, m: int, ready: Callable[[Any], Any]
) -> Rule:
    """The rule, its arrays made ready for one half, once they fit the call's batch axes.

    Raises:
        ValueError: they do not fit, or could be read in two ways.
    """

    def fits(X: Any, own: int) -> Any:
        lead = tuple(X.shape[: X.ndim - own])
        if own and (X.shape[-1] != m or n > m):
            raise ValueError(
                f"{where}: a rule's array has {X.shape[-1]} tokens, but there are {m} keys, of which the last {n} ask"
            )
        if set(lead) - {1} and len(lead) < len(batch):
            index = ", ".join([":"] * len(lead) + ["None"] * (len(batch) - len(lead)))
            raise ValueError(
                f"{where}: a rule's array has batch axes {lead}, but the call has {batch}; "
                f"array[{index}] has one for each sequence, whatever the head"
            )
        if broadcast(lead, batch) is None:
            raise ValueError(
                f"{where}: a rule's array has batch axes {lead}, which do not broadcast to {batch}"
            )
        return ready(X)

    return rule.map(fits)


def for_heads(where: str, mask: Any, queries: Any, keys: Any) -> Any:
    """A multi-head call's mask for queries (…, h, n, d) and keys (…, h or h_kv, m, d), with an axis for the heads."""
    batch = broadcast(queries.shape[:-3], keys.shape[:-3]) or ()
    if isinstance(mask, Rule):
        return mask.map(lambda X, own: _same_in_heads(X, own, len(batch)))
    own = getattr(mask, "ndim", 0) < 3
    if own or not lacks_heads(where, mask.shape, batch, queries.shape[-3]):
        return mask
    return mask[..., None, :, :]


def _same_in_heads(X: Any, own: int, batch: int) -> Any:
    lead = X.ndim - own
    return X.reshape(*X.shape[:lead], 1, *X.shape[lead:]) if 0 < lead == batch else X
