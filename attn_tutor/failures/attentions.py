"""Checks of a function of queries, keys and values."""

from collections.abc import Callable
from itertools import product

import torch
from torch import Tensor

from attn_tutor.failures.finding import Finding
from attn_tutor.failures.program import numbers_of

__all__ = [
    "breaks_on_empty_row",
    "differs_from_formula",
    "misreads_batch_mask",
    "reads_hidden_keys",
    "weighs_hidden_keys",
    "wrong_corner",
]

Attention = Callable[..., Tensor]


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def close(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, rtol=1e-4, atol=1e-5, equal_nan=True)


def is_random(attention: Attention, *given: Tensor) -> bool:
    """Whether two calls disagree, as with dropout left on: what differs from itself differs from every formula."""
    return not close(*(numbers_of(attention(*given)).detach() for _ in range(2)))


CHANCE = (
    "random in eval",
    "Two calls with the same arguments differ: is dropout left on?",
)


def formula(
    Q: Tensor,
    K: Tensor,
    V: Tensor,
    mask: Tensor | None = None,
    scale: float | None = None,
    axis: int = -1,
    use: str = "",
    low: float = -1e30,
    past: Tensor | None = None,
) -> Tensor:
    """Attention as the book has it, or with one use of the mask that is wrong; what is not ``past`` is hidden."""
    S = Q @ K.mT * (Q.shape[-1] ** -0.5 if scale is None else scale)
    if mask is not None and use == "times":
        S = S * mask
    elif mask is not None and use == "plus":
        S = S + mask
    elif mask is not None and use != "after":
        S = S.masked_fill(~mask, low)
    A = (S if past is None else S.masked_fill(~past, low)).softmax(axis)
    return (A if mask is None or use != "after" else A * mask) @ V


AXES = {
    -1: "",
    -2: "softmax over the wrong axis",
    1: "softmax over the wrong axis",
    0: "softmax over the wrong axis",
}
PASTS = {  # what a query of a causal function sees: the keys up to so many after its own
    0: "",
    9: "future is read",
    1: "mask off by one",
    -1: "token sees nothing",
    None: "inverted mask",
}
USES = {
    "": "",
    "none": "mask not used",
    "not": "inverted mask",
    "plus": "mask added as 0 and 1",
    "times": "scores multiplied by the mask",
    "after": "mask after softmax",
}


def differs_from_formula(
    attention: Attention,
    *,
    masked: bool = False,
    causal: bool = False,
    scale: float | None = None,
    heads: int | None = 4,
    kv_heads: int | None = None,
) -> Finding:
    r"""Whether attention gives other numbers than the formula, on entries of order 1.

    .. math:: O = \operatorname{softmax}\!\left(\frac{Q K^\top}{\sqrt{d}}\right) V

    If it does, it is compared with the wrong formulas that people write: other scales, other axes of the softmax, other
    uses of the mask, key-value heads in another order, keys for values, and any of these at once.

    Args:
        attention: takes Q, K, V, and a mask if ``masked``.
        masked: whether to hand over a boolean mask (n, m), True where a query may attend.
        causal: whether it is causal by itself; it then gets as many queries as keys.
        scale: of the scores, if it is not 1/√d: 1.0 for T5.
        heads: Q is (b, h, n, d); None makes it (b, n, d).
        kv_heads: heads of K and V, if fewer.

    Returns:
        A finding, true if the numbers differ. Where it has several causes, "and" joins them.

    Example:
        >>> differs_from_formula(lambda Q, K, V: (Q @ K.mT).softmax(-1) @ V).cause
        'no √d'
    """
    front = (3,) if heads is None else (3, heads)
    shared = front if kv_heads is None else (3, kv_heads)
    n, m, d = 7 if causal else 5, 7, 8
    Q, K, V = (
        normal(*front, n, d),
        normal(*shared, m, d, seed=1),
        normal(*shared, m, d, seed=2),
    )
    mask = normal(n, m, seed=3) > -0.3
    mask[torch.arange(n), torch.arange(n)] = True
    given = (Q, K, V, mask) if masked else (Q, K, V)
    if is_random(attention, *given):
        return Finding("differs_from_formula", *CHANCE)
    out = numbers_of(attention(*given)).detach().float()
    if out.shape != (*front, n, d):
        says = f"The output has shape {tuple(out.shape)} but needs {(*front, n, d)}."
        return Finding("differs_from_formula", "shapes do not fit", says)
    low = -1e30 if out.isfinite().all() else -torch.inf
    times = 1 if kv_heads is None or heads is None else heads // kv_heads
    root, wide = d**-0.5, (d * (heads or 1)) ** -0.5
    scales = {root if scale is None else scale: ""}
    names = {
        1.0: "no √d",
        1 / d: "√d too many",
        root: "√d too many",
        wide: "√ of another width",
        d**0.5: "times √d",
    }
    scales = {x: names[x] for x in names} | scales  # what is meant has no name
    tried = sorted(
        product(
            scales,
            AXES,
            USES if masked else [""],
            PASTS if causal else [9],
            [False, True] if times > 1 else [False],
            [False, True],
        ),
        key=lambda x: (
            (scales[x[0]] != "")
            + (x[1] != -1)
            + (x[2] != "")
            + (causal and x[3] != 0)
            + sum(x[4:])
        ),
    )
    for size, axis, use, after, repeat, same in tried:
        if axis == 1 and heads is None:
            continue
        k, v = (
            x.repeat(1, times, 1, 1)
            if repeat
            else x.repeat_interleave(times, 1)
            if times > 1
            else x
            for x in (K, K if same else V)
        )
        hidden = (
            None if not masked or use == "none" else ~mask if use == "not" else mask
        )
        past = torch.ones(n, m, dtype=torch.bool)
        past = past.triu() if after is None else past.tril(after)
        if close(out, formula(Q, k, v, hidden, size, axis, use, low, past)):
            causes = [
                scales[size],
                AXES[axis],
                USES[use],
                PASTS[after] if causal else "",
                "groups by repeat" if repeat else "",
                "values are the keys" if same else "",
            ]
            cause = " and ".join(filter(None, causes))
            says = (
                "Its numbers are those of the formula with this mistake."
                if cause
                else ""
            )
            return Finding("differs_from_formula", cause, says)
    says = "Its numbers are those of no formula known here, or rounded more coarsely than float32."
    return Finding("differs_from_formula", "another formula", says)


def reads_hidden_keys(attention: Attention, *, heads: int | None = 4) -> Finding:
    r"""Whether a hidden key gets weight once the permitted scores are low.

    .. math:: S_{ij} = -30\,000 \text{ for permitted keys}, \qquad S_{ij} = 0 \text{ for hidden ones}

    Args:
        attention: takes Q, K, V and a boolean mask, True where a query may attend.
        heads: Q is (b, h, n, d); None makes it (b, n, d).

    Returns:
        A finding, true if the output moves with the value of a hidden key, or is NaN: the mask is a number that is
        not low enough if the same key is hidden among scores of 0.

    Example:
        >>> soft = lambda Q, K, V, mask: (Q @ K.mT / 2 - 1e4 * ~mask).softmax(-1) @ V
        >>> reads_hidden_keys(soft).cause
        'mask as a large number'
    """
    front = (1,) if heads is None else (1, heads)
    Q, K, V = (
        -300 * torch.ones(*front, 3, 4),
        torch.zeros(*front, 3, 4),
        normal(*front, 3, 4),
    )
    mask = torch.ones(3, 3, dtype=torch.bool).tril()
    mask[:, 2] = False
    K[..., :2, :] = 50  # scores −30,000 at scale ½
    other = V.clone()
    other[..., 2, :] += 1
    if is_random(attention, 0 * Q, K, V, mask):
        return Finding("reads_hidden_keys", *CHANCE)
    easy, gap = (
        (attention(q, K, V, mask) - attention(q, K, other, mask)).abs().max().item()
        for q in (0 * Q, Q)
    )
    if easy < 1e-4 and gap < 1e-4:
        return Finding("reads_hidden_keys")
    if not easy < 1e-4:
        says = f"The output moves by {easy:.2f} with a hidden value, scores of 0 among themselves."
        return Finding(
            "reads_hidden_keys", "NaN" if easy != easy else "mask hides nothing", says
        )
    if gap != gap:
        says = "Scores of −30,000 give NaN: is the exponential taken before the row's maximum is subtracted?"
        return Finding("reads_hidden_keys", "numbers out of range", says)
    says = f"With permitted scores of −30,000 the output moves by {gap:.2f} with a hidden value."
    return Finding("reads_hidden_keys", "mask as a large number", says)


def breaks_on_empty_row(attention: Attention, *, heads: int | None = 4) -> Finding:
    """Whether a query that may attend to no key gives NaN, forwards or backwards.

    Args:
        attention: takes Q, K, V and a boolean mask, True where a query may attend.
        heads: Q is (b, h, n, d); None makes it (b, n, d).

    Returns:
        A finding, true if an output or a gradient is not finite.

    Example:
        >>> hard = lambda Q, K, V, mask: (Q @ K.mT).masked_fill(~mask, -torch.inf).softmax(-1) @ V
        >>> breaks_on_empty_row(hard).cause
        'empty row is NaN'
    """
    front = (1,) if heads is None else (1, heads)
    Q, K, V = (normal(*front, 3, 4, seed=s).requires_grad_() for s in range(3))
    mask = torch.ones(3, 3, dtype=torch.bool).tril(-1)  # the first query has none
    out = attention(Q, K, V, mask)
    slopes = torch.autograd.grad(out[..., 1:, :].sum(), (Q, K, V), allow_unused=True)
    where = "output" if not out.isfinite().all() else "gradient"
    if out.isfinite().all() and all(g is None or g.isfinite().all() for g in slopes):
        return Finding("breaks_on_empty_row")
    return Finding(
        "breaks_on_empty_row",
        "empty row is NaN",
        f"A query without keys makes the {where} NaN.",
    )


def misreads_batch_mask(attention: Attention, *, heads: int | None = None) -> Finding:
    """Whether a padding mask (b, m) hides keys by the query's place in place of its sentence.

    Args:
        attention: takes Q, K, V and a boolean mask of shape (b, m), True at words. It is called with b = n = m.
        heads: Q is (b, h, n, d); None makes it (b, n, d).

    Returns:
        A finding, true if sentence c has not the mask of row c.

    Example:
        >>> hide = lambda Q, K, V, mask: (Q @ K.mT / 2).masked_fill(~mask, -torch.inf).softmax(-1) @ V
        >>> misreads_batch_mask(hide).cause
        'mask of (b, m) read as (n, m)'
    """
    n = 5
    front = (n,) if heads is None else (n, heads)
    Q, K, V = (normal(*front, n, 4, seed=s) for s in range(3))
    words = torch.arange(n) < torch.tensor([5, 2, 4, 1, 3])[:, None]
    if is_random(attention, Q, K, V, words):
        return Finding("misreads_batch_mask", *CHANCE)
    out = attention(Q, K, V, words)
    right = words[:, None] if heads is None else words[:, None, None]
    if close(out, formula(Q, K, V, right)):
        return Finding("misreads_batch_mask")
    if close(out, formula(Q, K, V, words)):
        says = "Query i has the mask of sentence i, whatever sentence it stands in."
        return Finding("misreads_batch_mask", "mask of (b, m) read as (n, m)", says)
    pads = ~words[..., None] if heads is None else ~words[:, None, :, None]
    if close(out, attention(Q, K, V + pads, words)):
        says = "Hidden keys have no weight, but the numbers are not those of the mask (b, 1, m)."
        return Finding("misreads_batch_mask", "another formula", says)
    says = "The output moves with the values of hidden keys."
    return Finding("misreads_batch_mask", "mask not used", says)


def wrong_corner(attention: Attention, *, heads: int | None = 4) -> Finding:
    r"""Whether the last queries, asked alone, get another answer than among all.

    .. math:: f(Q_{n-2 \dots}, K, V) \ne f(Q, K, V)_{n-2 \dots}

    Args:
        attention: takes Q, K, V and is causal by itself.
        heads: Q is (b, h, n, d); None makes it (b, n, d).

    Returns:
        A finding, true if they differ, as with a causal mask that is aligned upper left.

    Example:
        >>> from torch.nn.functional import scaled_dot_product_attention as sdpa
        >>> wrong_corner(lambda Q, K, V: sdpa(Q, K, V, is_causal=True)).cause
        'causal mask upper left'
    """
    front = (2,) if heads is None else (2, heads)
    Q, K, V = (normal(*front, 5, 8, seed=s) for s in range(3))
    whole, last = attention(Q, K, V), attention(Q[..., -2:, :], K, V)
    if close(whole[..., -2:, :], last):
        return Finding("wrong_corner")
    if is_random(attention, Q, K, V):
        return Finding("wrong_corner", *CHANCE)
    later = V.clone()
    later[..., 2:, :] += 1  # upper left, two queries see the first two keys at most
    if close(last, attention(Q[..., -2:, :], K, later)):
        says = "The last two queries alone do not see what they see among all five."
        return Finding("wrong_corner", "causal mask upper left", says)
    other = Q.clone()
    other[..., 0, :] += 1
    if not close(whole[..., 1:, :], attention(other, K, V)[..., 1:, :]):
        says = "An output moves with another query: the softmax runs over queries, or over more than keys."
        return Finding("wrong_corner", "softmax over the wrong axis", says)
    says = "The last two queries alone have other outputs than among all five, and see keys from the third on."
    return Finding("wrong_corner", "another formula", says)


def weighs_hidden_keys(weights: Callable[[Tensor], Tensor], mask: Tensor) -> Finding:
    """Whether a hidden key has weight in any row, a row without permitted keys included.

    Args:
        weights: takes scores (n, m), hides keys by itself and returns weights (n, m).
        mask: boolean, (n, m), True where a query may attend: what is meant to be hidden.

    Returns:
        A finding, true if a hidden key has a weight other than 0.

    Example:
        >>> mask = torch.tensor([[True, False], [True, True]])
        >>> weighs_hidden_keys(lambda S: S.softmax(-1), mask).cause
        'masks add up'
    """
    A = weights(normal(*mask.shape))
    rows = (A.masked_fill(mask, 0) != 0).any(-1)
    if not rows.any():
        return Finding("weighs_hidden_keys")
    i = int(rows.nonzero()[0])
    says = f"Query {i} gives {A[i].masked_fill(mask[i], 0).sum():.2f} of its weight to hidden keys."
    return Finding("weighs_hidden_keys", "masks add up", says)
