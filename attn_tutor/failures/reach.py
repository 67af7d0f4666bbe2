"""Which outputs move when a token changes: a table of True and False in which many bugs leave their own pattern."""

import torch
from torch import Tensor

from attn_tutor.failures.program import Model, answer, changed, dtype_of, moved

__all__ = ["reach"]

DEEPEST = 6  # layers whose patterns are known


def reach(
    model: Model,
    tokens: Tensor,
    words: Tensor | None = None,
    *,
    sentence: int | None = None,
    training: bool = False,
) -> Tensor:
    r"""Change each token, and see which outputs move.

    .. math:: R_{c\,ij} = \bigl[\, f(X)_{ci} \ne f(X')_{ci} \,\bigr], \qquad X' = X \text{ with another token } j

    All sentences change at once, or one of them alone. Every call has the same seed, so that dropout drops the same.

    Args:
        model: takes tokens and returns a tensor (b, n, …), or a tuple, dict or object that has one.
        tokens: ids (b, n), or vectors (b, n, d).
        words: (b, n), True at words; goes to the model's mask. None calls the model without.
        sentence: the only one whose tokens change; None is all.
        training: whether the model is called in training mode, with gradients.

    Returns:
        Booleans (b, n, n): output i of sentence c moved when token j changed. A model that gives one vector for each
        sentence has (b, 1, n); numbers (b, n) are one for each token if a shorter text has fewer.

    Raises:
        TypeError: the model returns no tensor of real numbers.

    Example:
        >>> reach(lambda X: X.cumsum(1), torch.ones(1, 3, 2)).int().tolist()
        [[[1, 0, 0], [1, 1, 0], [1, 1, 1]]]
    """
    way = {"training": training, "grad": training}
    before, other = answer(model, tokens, words, **way).detach(), changed(tokens)
    rows = slice(None) if sentence is None else slice(sentence, sentence + 1)
    n, columns = tokens.shape[1], []
    # Numbers (b, n) are one for each token if a shorter text has fewer of them.
    each = before.shape == tokens.shape[:2] and n > 2
    cut = None if words is None else words[:, :-1]
    each = each and answer(model, tokens[:, :-1], cut, **way).shape[1] == n - 1
    kind, last = dtype_of(model, tokens), (..., None) if each else ...
    for j in range(n):
        touched = tokens.clone()
        touched[rows, j] = other[rows, j]
        after = answer(model, touched, words, **way).detach()
        columns.append(moved(before[last], after[last], kind))
    return torch.stack(columns, -1)


def stacked(pattern: Tensor) -> list[Tensor]:
    """What one layer reaches, then two layers of it, and so on, each with a residual connection."""
    n = pattern.shape[-1]
    step = pattern | torch.eye(n, dtype=torch.bool)
    found = [step]
    for _ in range(DEEPEST - 1):
        found.append((found[-1].double() @ step.double()) > 0)
    return found


def shows(table: Tensor, pattern: Tensor) -> bool:
    """Whether the table is the pattern's, for some number of layers; a token's own output counts neither way."""
    own = torch.eye(table.shape[-1], dtype=torch.bool)
    table = table.cpu() | own
    return any(torch.equal(table, x) for x in stacked(pattern))


def reshaped(n: int, heads: int, split: bool, merge: bool) -> Tensor:
    """Causal attention whose heads are cut, or merged, by ``reshape`` alone."""
    places = torch.arange(heads * n)  # (head, token) in the order of memory
    holder = places // heads if split else places % n  # the token that stands there
    goes_to = places // heads if merge else places % n
    head, rank = places // n, places % n
    sees = (head[:, None] == head) & (rank[:, None] >= rank)
    table = torch.zeros(n, n, dtype=torch.bool)
    for a, b in sees.nonzero().tolist():
        table[goes_to[a], holder[b]] = True
    return table
