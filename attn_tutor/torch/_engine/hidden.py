"""Nothing hidden leaks: NaN and infinity in keys, values and queries that a call hides reach no output and no gradient.

Numbers are looked at first, since that is cheap beside attention; on a GPU it waits for them.
"""

from functools import partial
from typing import Any

import torch

from attn_tutor._both.definition import Definition, Letters
from attn_tutor.torch._arrays import repeat_heads, value_of
from attn_tutor.torch._engine.visibility import Visibility

LARGEST = 1e15  # the dot product of rows of smaller numbers is finite


def nan_safe(
    definition: Definition,
    arrays: list[torch.Tensor],
    visibility: Visibility,
    options: dict[str, Any],
    all_harmless: bool = False,
) -> tuple[torch.Tensor, ...]:
    """What the body gives, but NaN only for queries that may see one, and no gradient of those that see nothing.

    ``all_harmless``: the arrays are parts of some that were looked at.
    """
    run = partial(by_kernels_or_body, definition, visibility, options)
    if all_harmless or (visibility.hides and value_of(harmless, *arrays, wait=True)):
        results = run(arrays, known_harmless=True)
    elif not visibility.hides:
        results = run(arrays)
    else:
        n_kv_heads = options.get("n_kv_heads")
        arrays, nan = zero_bad_rows(arrays, definition.cores, visibility, n_kv_heads)
        if definition.returns_weights:  # a hidden key gets 0, even of such a query
            nan = nan & visibility.dense[0]
        results = tuple(torch.where(nan, torch.nan, X) for X in run(arrays))
    if len(results) == 1 and results[0].requires_grad and visibility.mask is not None:
        sees_some = visibility.dense[0].any(-1, keepdim=True)
        results = (torch.where(sees_some, results[0], 0),)
    return results


def by_kernels_or_body(
    definition: Definition,
    visibility: Visibility,
    options: dict[str, Any],
    arrays: list[torch.Tensor],
    known_harmless: bool = False,
) -> tuple[torch.Tensor, ...]:
    """What torch's kernels give where they compute the same, and else the body."""
    Q, K, scale = arrays[0], arrays[1], options.get("scale")
    agree = known_harmless and scale is None
    if definition.fused and (agree or kernels_agree(visibility, Q, K, scale)):
        results: Any = definition.fused(visibility, *arrays, **options)
    else:
        visible, B = visibility.dense
        results = definition.body(*arrays, mask=visible, bias=B, **options)
    return results if isinstance(results, tuple) else (results,)


def project(X: torch.Tensor, W: torch.Tensor) -> torch.Tensor:
    """X W; rows that are not finite, which may be hidden further on, give W no gradient."""
    bad = ~X.isfinite().all(-1, keepdim=True)  # (…, n, 1)
    product = torch.where(bad, 0, X) @ W
    return torch.where(bad, X.detach() @ W.detach(), product)


def harmless(*arrays: torch.Tensor) -> torch.Tensor:
    """Whether nothing hidden can do harm: numbers are finite, and so are the dot products of rows."""
    ends = [end for X in arrays if X.numel() for end in X.detach().aminmax()]
    wide = (
        torch.stack([end.float() for end in ends]) if ends else arrays[0].new_zeros(1)
    )
    return (wide.abs() < LARGEST).all()


def kernels_agree(
    visibility: Visibility, Q: torch.Tensor, K: torch.Tensor, scale: Any
) -> bool:
    """Whether kernels give what the formula does: they lose rows of nothing but NaN, and hidden infinite scores."""
    Q = Q if scale is None else scale * Q
    K = K if visibility.hides else K[..., :1, :]
    return value_of(harmless, Q, K) is not False


def zero_bad_rows(
    arrays: list[torch.Tensor],
    cores: list[Letters],
    visibility: Visibility,
    n_kv_heads: int | None,
) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Rows that are not finite or that nobody sees, set to 0: a weight of 0 comes too late, as 0 · NaN is NaN.

    The mask that comes with them, (…, n, 1), marks the queries that see such a key, or are such and see something.
    """
    visible, unseen = None, False
    if not visibility.is_causal:
        visible, _ = visibility.dense
        if n_kv_heads is None or visible.shape[-3:-2] in ((), (1,)):
            unseen = ~visible.any(-2)[..., None]  # (…, m, 1)
    bad_rows: dict[str, Any] = {"n": False, "m": False}
    clean = []
    for X, core in zip(arrays, cores, strict=True):
        if core[0] in bad_rows and len(core) > 1:
            bad = ~X.isfinite().all(-1, keepdim=True)  # (…, n or m, 1)
            bad_rows[core[0]] = bad_rows[core[0]] | bad
            X = torch.where(bad | unseen if core[0] == "m" else bad, 0, X)
        clean.append(X)
    if n_kv_heads is not None:
        bad_rows["m"] = repeat_heads(
            bad_rows["m"], bad_rows["n"].shape[-3] // n_kv_heads
        )
    if visible is None:  # causal: who sees a key has seen those before it
        return clean, bad_rows["n"] | (bad_rows["m"].cumsum(-2) > 0)
    nan_queries = visible & (bad_rows["n"] | bad_rows["m"].mT)  # (…, n, m)
    return clean, nan_queries.any(-1, keepdim=True)
