"""Checks of two programs that should agree: a model and its original, all at once and step by step."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from attn_tutor.failures.calls import changes_in_eval
from attn_tutor.failures.finding import Finding
from attn_tutor.failures.program import (
    MASKS,
    Model,
    answer,
    arguments,
    changed,
    drawn,
    dtype_of,
    moved,
    numbers_of,
    sample,
    shrunk,
    undisturbed,
)

__all__ = ["differs_from_original", "differs_step_by_step"]

Step = Callable[[Tensor, Any], tuple[Any, Any]]


def differs_from_original(
    model: Model, original: Model, tokens: Any, *, far: int | None = None
) -> Finding:
    """Whether two programs that have the same weights give other outputs, and from how many tokens on.

    One token meets only projections, norms and embeddings; two meet scores as well, so that scale, mask, heads and
    positions count; a far position counts only in a long text.

    Args:
        model: takes tokens and returns a tensor (b, n, …), or a tuple, dict or object that has one.
        original: the same, and right.
        tokens: ids (b, n), or vectors (b, n, d).
        far: a length that a text must have for far positions to count; None leaves them out.

    Returns:
        A finding, true if they differ.

    Raises:
        ValueError: there is only one sentence or token, or all tokens are the same.

    Example:
        >>> W = torch.rand(3, 3)
        >>> differs_from_original(lambda X: X @ W, lambda X: X @ W.mT, torch.rand(2, 5, 3)).cause
        'weights differ'
    """
    tokens = sample(tokens)
    n, kind = tokens.shape[1], dtype_of(model, tokens)
    texts = [tokens[:, :1], tokens[:, :2], tokens]
    texts += [] if far is None else [drawn(tokens, 1, far)]
    for program in model, original:
        if chance := is_random(program, tokens, "differs_from_original"):
            return chance
    for X in texts:
        one, other = answer(model, X), answer(original, X)
        if one.shape != other.shape:
            says = (
                f"Outputs have the shapes {tuple(one.shape)} and {tuple(other.shape)}."
            )
            return Finding("differs_from_original", "shapes do not fit", says)
        if moved(other, one.to(other.device), kind).any():
            length, gap = X.shape[1], (one - other.to(one.device)).abs().max().item()
            cause = (
                "weights differ"
                if length == 1
                else "positions differ"
                if length <= n
                else "far positions differ"
            )
            if cause == "positions differ" and reads_others(model, original, X):
                cause = "mask differs"
            what = {
                "weights differ": "so a projection, a norm or an embedding is another.",
                "mask differs": "and an output depends on a token in one of them alone: a mask, a window or a reshape.",
                "positions differ": "and not at one: positions, scale, heads or mask are others.",
                "far positions differ": "and not in a short text: far positions or long sums are others.",
            }[cause]
            says = f"Outputs lie apart by {gap:.2g} at {length} token{'s' * (length > 1)}, {what}"
            return Finding("differs_from_original", cause, says)
    return Finding("differs_from_original")


def is_random(model: Model, tokens: Tensor, check: str) -> Finding | None:
    """What differs from itself differs from everything."""
    found = changes_in_eval(model, tokens)
    return replace(found, check=check) if found else None


def reads_others(model: Model, original: Model, X: Tensor) -> bool:
    """Whether an output moves with a token in one program, and in the other not by the last digit.

    A large score leaves others no weight: parameters are a tenth, so that none is large.
    """

    def moves(program: Model, j: int) -> tuple[Tensor, Tensor]:
        touched = X.clone()
        touched[:, j] = changed(X)[:, j]
        one, other = (shrunk(program, x, times=0.1) for x in (X, touched))
        # What comes through several layers is small, but no rounding is as large.
        for_sure = moved(one, other, dtype_of(program, X), roundings=20)
        return for_sure.cpu(), moved(one, other, torch.float64).cpu()

    for j in range(X.shape[1]):
        (ours, any_ours), (theirs, any_theirs) = moves(model, j), moves(original, j)
        if (ours & ~any_theirs | theirs & ~any_ours).any():
            return True
    return False


def cached(model: Model) -> Step:
    """A step of a model that takes and returns ``past_key_values``, as Hugging Face's do."""

    def step(tokens: Tensor, cache: Any) -> tuple[Any, Any]:
        positional, named = arguments(model, tokens)
        named = {k: x for k, x in named.items() if k not in MASKS}
        out = model(*positional, **named, past_key_values=cache, use_cache=True)
        return out, out["past_key_values"] if isinstance(
            out, dict
        ) else out.past_key_values

    return step


def differs_step_by_step(
    model: Model, tokens: Any, step: Step | None = None
) -> Finding:
    r"""Whether tokens that are read one by one, or in two parts, with a cache give other outputs than all at once.

    .. math:: f(x_i \mid \text{cache of } x_0 \dots x_{i-1}) \ne f(x_0 \dots x_i)_i

    Args:
        model: takes tokens and returns a tensor (b, n, …), or a tuple, dict or object that has one.
        tokens: ids (b, n), or vectors (b, n, d).
        step: takes new tokens and a cache, at first None, and returns their outputs and the next cache; None is for a
            model with ``past_key_values`` as Hugging Face has it.

    Returns:
        A finding, true if they differ: in two parts alone, at the causal mask of the second, or else in what is kept.

    Raises:
        ValueError: there is only one sentence or token, or all tokens are the same.

    Example:
        >>> differs_step_by_step(lambda X: X.cumsum(1), torch.rand(2, 5, 3), lambda x, cache: (x, None)).cause
        'cache differs'
    """
    tokens = sample(tokens)
    if chance := is_random(model, tokens, "differs_step_by_step"):
        return chance
    n, kind = tokens.shape[1], dtype_of(model, tokens)
    whole, step = answer(model, tokens), step or cached(model)

    def in_parts(X: Tensor, *ends: int, seed: int = 0) -> Tensor:
        cache, start = None, 0
        found: list[Tensor] = []
        for end in ends:
            with undisturbed(model, False, seed), torch.no_grad():
                out, cache = step(X[:, start:end].to(whole.device), cache)
            found, start = [*found, numbers_of(out).double()], end
        return torch.cat(found, 1)

    one_by_one = range(1, n + 1)
    single = in_parts(tokens, *one_by_one)
    if moved(single, in_parts(tokens, *one_by_one, seed=1), kind).any():
        says = "Token by token, two calls with the same input differ."
        return Finding("differs_step_by_step", "random in eval", says)

    def reads(j: int, *ends: int) -> bool:
        other = tokens.clone()
        other[:, j] = changed(tokens)[:, j]
        one, two = (in_parts(x, *ends)[:, -1:] for x in (tokens, other))
        return bool(moved(one, two, kind).any())

    wrong = moved(whole, single, kind).any(0)
    if wrong.any():
        first = int(wrong.nonzero()[0])
        read = [reads(j, *one_by_one) for j in (0, n // 2)]
        cause = "causal mask upper left" if read == [True, False] else "cache differs"
        says = f"One by one, output {first} is the first that differs"
        says += {
            (False, False): ", and the last depends on no earlier token.",
            (True, False): ", and the last depends on the first token alone.",
            (
                True,
                True,
            ): ", though the last depends on the earlier tokens: one buffer for all keys, positions that start again, "
            "keys turned twice, or keys and values no longer in one order.",
            (False, True): ", and the last does not depend on the first token.",
        }[read[0], read[1]]
        return Finding("differs_step_by_step", cause, says)
    if moved(whole, in_parts(tokens, n // 2, n), kind).any():
        says = "One by one all is well, but not in two parts: the second part's "
        if not reads(n - 2, n // 2, n):
            says += "mask has the wrong corner."
            return Finding("differs_step_by_step", "causal mask upper left", says)
        says += "last output reads the token before it, so that its mask is absent, or its keys stand before the old."
        return Finding("differs_step_by_step", "cache differs", says)
    return Finding("differs_step_by_step")
