"""Words, symbols and lengths as models take them: whole numbers of any kind, checked before they are looked up."""

from typing import Any

import torch

from attn_tutor.torch._arrays import require_whole, value_of


def require_ids(
    where: str, name: str, ids: Any, stop: int, start: int = 0
) -> torch.Tensor:
    """Whole numbers from ``start`` to ``stop`` − 1, as torch looks them up.

    A GPU does not wait to be looked at, nor does the compiler: there torch itself says what lies outside.
    """
    require_whole(where, name, ids)
    ids = ids.long()
    inside = (ids >= start) & (ids < stop)
    if value_of(torch.all, inside) is False:
        raise ValueError(
            f"{where}: {name} must lie in {start} … {stop - 1}, got {int(ids[~inside][0])}"
        )
    return ids
