"""Checks of what a call of a model needs: one answer for one input, finite numbers, order, and room for its text."""

import copy
from functools import partial
from typing import Any

import torch
from torch import nn

from attn_tutor.failures.finding import Finding, explain
from attn_tutor.failures.program import (
    Model,
    Side,
    answer,
    at_words,
    batch,
    changed,
    drawn,
    dtype_of,
    modules_of,
    moved,
    sample,
    shrunk,
    titled,
)

__all__ = ["changes_in_eval", "gives_nan", "loses_order", "runs_out_of_positions"]


def changes_in_eval(model: Model, tokens: Any, pads: Side | None = None) -> Finding:
    """Whether two calls with the same input disagree in evaluation mode.

    Args:
        model: takes tokens and returns a tensor, or a tuple, dict or object that has one.
        tokens: ids (b, n), or vectors (b, n, d).
        pads: on which side there are pads, as in :func:`gives_nan`.

    Returns:
        A finding, true if they disagree: for chance, if they agree once both have the same seed, or else for a state
        that a call leaves behind.

    Raises:
        ValueError: there is only one sentence or token, or all tokens are the same.

    Example:
        >>> changes_in_eval(lambda X: X + torch.rand(()), torch.rand(2, 5, 3)).cause
        'random in eval'
    """
    name, (X, words) = titled("changes_in_eval", pads), batch(tokens, pads)
    one, other, same = (answer(model, X, words, seed=seed) for seed in (0, 1, 0))
    apart, again = (
        at_words(moved(one, x, dtype_of(model, X)), words) for x in (other, same)
    )
    if not apart.any():
        return Finding(name)
    cause = "state between calls" if again.any() else "random in eval"
    says = f"Two calls in eval() differ at {apart.sum()} of {apart.numel()} places."
    return Finding(name, cause, says)


def loses_order(model: Model, tokens: Any, pads: Side | None = None) -> Finding:
    r"""Whether the last output is the same for another order of the earlier tokens.

    .. math:: f(PX)_{n-1} = f(X)_{n-1} \quad \text{for a permutation } P \text{ of the tokens } 0 \dots n - 2

    A causal model of several layers can tell order without positions, and is not found.

    Args:
        model: takes ids and returns a tensor (b, n, …) or (b, …), or a tuple, dict or object that has one.
        tokens: ids (b, n).
        pads: on which side there are pads, as in :func:`gives_nan`.

    Returns:
        A finding, true if order makes no difference, or if the last output depends on no earlier token at all.

    Raises:
        ValueError: there is only one sentence or token, or all tokens are the same.

    Example:
        >>> ids = torch.tensor([[1, 2, 3, 4], [4, 3, 1, 2]])
        >>> loses_order(lambda x: x[..., None].double().cumsum(1), ids).cause
        'order is lost'
    """
    name, (X, words) = titled("loses_order", pads), batch(tokens, pads)
    b, n = X.shape[:2]
    earlier = torch.ones(b, n, dtype=torch.bool) if words is None else words.cpu()
    ends = n - 1 - earlier.int().flip(1).argmax(1)  # the last word of each sentence
    earlier = earlier & (torch.arange(n) != ends[:, None])
    turned, others = X.clone(), X.clone()
    for c in range(b):
        turned[c, earlier[c]] = X[c, earlier[c]].flip(0)
        others[c, earlier[c]] = changed(X)[c, earlier[c]]
    rows = (turned != X).flatten(1).any(1)  # a sentence may read alike both ways
    if not rows.any():
        return Finding(name)

    def last(ids: torch.Tensor) -> torch.Tensor:
        out = answer(model, ids, words)
        each = out.ndim > 2 and out.shape[1] == n
        return (out[torch.arange(b), ends][:, None] if each else out)[rows]

    one, two, kind = last(X), last(turned), dtype_of(model, X)
    if moved(one, two, kind).any() or not one.isfinite().all():
        return Finding(name)
    if not moved(one, last(others), kind).any():
        says = "The last output depends on no earlier token: heads taken for tokens, or the batch?"
        return Finding(name, "no earlier token is read", says)
    says = "The earlier tokens turned round give the same last output."
    return Finding(name, "order is lost", says)


def gives_nan(model: Model, tokens: Any, pads: Side | None = None) -> Finding:
    """Whether outputs at words, or the gradient of what is made of them, are not all finite.

    Args:
        model: takes tokens, and a mask if there are pads, as in :func:`reads_pads`.
        tokens: ids (b, n), or vectors (b, n, d).
        pads: on which side there are pads; None is without.

    Returns:
        A finding, true if there is a NaN or an infinity.

    Raises:
        ValueError: there is only one sentence or token, or all tokens are the same.

    Example:
        >>> gives_nan(lambda X: (X - X).sqrt(), torch.rand(2, 5, 3)).cause
        'gradient not finite'
    """
    name, (X, words) = titled("gives_nan", pads), batch(tokens, pads)
    if X.is_floating_point():
        X.requires_grad_()
    parameters = [
        p for m in modules_of(model) for p in m.parameters() if p.requires_grad
    ]
    wanted = [*parameters, *([X] if X.requires_grad else [])]
    learns = bool(parameters)
    try:
        out = answer(model, X, words, training=learns, grad=bool(wanted))
    except RuntimeError as error:
        if "numpy()" not in str(error):
            raise
        X = X.detach()  # the program has no gradient
        out = answer(model, X, words, training=learns)

    def counted(numbers: torch.Tensor) -> torch.Tensor:
        each = words is not None and out.shape[:2] == words.shape
        return numbers[words] if each else numbers

    for training in (learns, False):
        numbers = counted(answer(model, X, words, training=training))
        if bad := int((~numbers.isfinite()).sum()):
            cause, says = "NaN", f"{bad} of {numbers.numel()} outputs are not finite"
            small = partial(shrunk, model, training=training)
            if not all(p.isfinite().all() for p in parameters):
                says += ", and parameters are not finite themselves"
            elif counted(small(X, words)).isfinite().all():
                cause = "numbers out of range"
                says += ", but all are with numbers a hundred times smaller; exp needs the row's maximum subtracted, "
                says += "and in float16 a score past 65,504 is infinite: scale the queries before the product"
            elif not small(X[:, :1]).isfinite().all():
                says += ", and a sentence of one token gives NaN"
                if wanted:  # or else nothing could be made smaller
                    cause = "token sees nothing"
                    says += ", with small numbers too: a mask inverted or off by one"
            elif words is not None and answer(model, X).isfinite().all():
                cause = "empty row is NaN"
                says += ", though without pads they are"
            return Finding(name, cause, f"{says}.")
    if not out.requires_grad:
        return Finding(name)
    # The mean: a sum over many outputs may itself be too large for float16.
    slopes = torch.autograd.grad(
        counted(out).square().mean(), wanted, allow_unused=True
    )
    bad = sum(int((~g.isfinite()).sum()) for g in slopes if g is not None)
    if not bad:
        return Finding(name)
    cause = "gradient not finite" if pads is None else "empty row is NaN"
    says = f"The outputs are finite, but {bad} numbers of the gradient are not."
    return Finding(name, cause, says)


def runs_out_of_positions(model: Model, tokens: Any, length: int) -> Finding:
    """Whether a text of a promised length is an error: a position past the table.

    A module on a GPU is copied to the CPU first, since there an index out of range ends the process.

    Args:
        model: takes tokens.
        tokens: ids (b, n), or vectors (b, n, d), of which the text is drawn.
        length: tokens of the longest text that the model is to read.

    Returns:
        A finding, true if the call raises.

    Raises:
        ValueError: there is only one sentence or token, or all tokens are the same.

    Example:
        >>> table = torch.nn.Embedding(8, 3)
        >>> model = lambda ids: table(torch.arange(ids.shape[1]).expand(ids.shape))
        >>> runs_out_of_positions(model, torch.tensor([[1, 2], [2, 1]]), 9).cause
        'position past the table'
    """
    X = sample(tokens).cpu()
    if isinstance(model, nn.Module):
        model = copy.deepcopy(model).cpu()
    try:
        answer(model, drawn(X, 1, length))
    except Exception as error:
        says = f"At {length} tokens: {explain(error).says or type(error).__name__}"
        cause = "position past the table"
        try:
            answer(model, X.flatten(0, 1)[:, None])
        except Exception as alone:  # one token alone is an error, too
            cause = explain(alone).cause.replace("position", "token")
        return Finding("runs_out_of_positions", cause, says)
    return Finding("runs_out_of_positions")


def has_no_row(model: Model, tokens: Any) -> bool:
    """Whether a token alone is an index past a table: none of positions, then, but of tokens."""
    X = sample(tokens)
    try:
        answer(model, X.flatten(0, 1)[:, None])
    except IndexError:
        return True
    return False
