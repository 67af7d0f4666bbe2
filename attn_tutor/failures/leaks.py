"""Checks that no output depends on a later token, another sentence or another document."""

from typing import Any

import torch
from torch import Tensor

from attn_tutor.failures.finding import Finding
from attn_tutor.failures.program import (
    Model,
    Side,
    answer,
    at_words,
    batch,
    changed,
    dtype_of,
    modules_of,
    moved,
    sample,
    titled,
    uncut,
    words_of,
)
from attn_tutor.failures.reach import reach, reshaped, shows

__all__ = ["leaks_future", "mixes_documents", "mixes_sentences"]

HEADS = 2, 3, 4, 6, 8, 12, 16


def leaks_future(model: Model, tokens: Any, pads: Side | None = None) -> Finding:
    r"""Whether an output depends on a later token.

    .. math:: \exists\, i < j: \quad f(X)_i \ne f(X')_i, \qquad X' = X \text{ with another token } j

    The table of which output moves with which token tells an absent mask from one that is off by one, an inverted one,
    or heads cut by a reshape. It is made from the first 12 tokens of the first 4 sentences; if there are more, the
    middle and the last token are changed among all of them too. A module is tried in evaluation and in training mode.

    Args:
        model: takes tokens and returns a tensor (b, n, …), or a tuple, dict or object that has one.
        tokens: ids (b, n), or vectors (b, n, d).
        pads: on which side there are pads, with a mask as in :func:`reads_pads`; what pads give does not count.

    Returns:
        A finding, true if there is a leak. It is false, and says why, if there is not one output for each token.

    Raises:
        ValueError: there is only one sentence or token, or all tokens are the same.

    Example:
        >>> str(leaks_future(lambda X: X.cumsum(1), torch.rand(2, 5, 3)))
        'leaks_future: no'
        >>> leaks_future(lambda X: X + X.sum(1, keepdim=True), torch.rand(2, 5, 3)).cause
        'future is read'
    """
    full, (tokens, words) = uncut(tokens), batch(tokens, pads)
    name = titled("leaks_future", pads)
    ways = [False, True] if modules_of(model) else [False]
    reached = [reach(model, tokens, words, training=way).cpu() for way in ways]
    tables = [at_words(x, words).any(0) for x in reached]
    if len(tables[0]) != tokens.shape[1]:
        says = "not checked: there is not one output for each token; return all logits"
        return Finding(name, says=says)
    leaky = [x for x in tables if x.triu(1).any()]
    if not leaky and full.shape != sample(full).shape:
        return leaks_at_length(model, full, ways, pads, name)
    if not leaky:
        return Finding(name)
    cause, seen = pattern_of_leak(leaky[0])
    sound = [x for x in tables if not x.triu(1).any() and x.tril(-1).any()]
    if sound and cause != "inverted mask":
        mode = "evaluation" if tables[0] is leaky[0] else "training"
        cause, seen = "one path differs", f"In {mode} mode alone, {seen}"
    return Finding(name, cause, seen[0].upper() + seen[1:])


def leaks_at_length(
    model: Model, tokens: Tensor, ways: list[bool], pads: Side | None, name: str
) -> Finding:
    b, n = tokens.shape[:2]
    words = None if pads is None else words_of(n, pads)[torch.arange(b) % n]
    other, kind = changed(tokens), dtype_of(model, tokens)
    for way in ways:
        before = answer(model, tokens, words, training=way)[:, :, None]
        for j in n // 2, n - 1:
            touched = tokens.clone()
            touched[:, j] = other[:, j]
            after = answer(model, touched, words, training=way)[:, :, None]
            apart = moved(before, after, kind)
            if apart.shape == (b, n) and at_words(apart, words)[:, :j].any():
                says = f"Token {j} of {b} sentences of {n} moves an earlier one; in a smaller batch none does."
                return Finding(name, "one path differs", says)
    return Finding(name)


def pattern_of_leak(table: Tensor) -> tuple[str, str]:
    n = len(table)
    past = torch.ones(n, n, dtype=torch.bool).tril()
    if shows(table, past.mT) and not (table.tril(-1)).any():
        return "inverted mask", "outputs depend on later tokens and on no earlier one."
    for heads in HEADS:
        for split, merge in (True, True), (True, False), (False, True):
            known = shows(table, reshaped(n, heads, split, merge))
            if known and not table.all():
                part = "cut" if split else "merged"
                says = f"outputs depend on the tokens that {heads} heads reach if a reshape has {part} them."
                return "heads cut by reshape", says
    if table.all():
        says = (
            "every output depends on every token: no mask or one that hides nothing, a first query without keys, "
            "a mask after the softmax, a softmax over queries, a norm over tokens, or layers of reshaped heads."
        )
        return "future is read", says
    ahead = table.triu(1)
    if table[0].all() and not ahead[1:].any():
        says = "output 0 alone depends on later tokens: a query without keys, and a mask of large numbers?"
        return "leak", says
    far = ahead.sum(-1)
    unbroken = torch.arange(n) <= torch.arange(n)[:, None] + far[:, None]
    if far[:-1].all() and torch.equal(ahead, unbroken.triu(1)) and not table[0, -1]:
        if far.max() == 1:
            says = "each output depends on the token after it: the mask, or a convolution, looks one ahead."
            return "mask off by one", says
        says = f"each output depends on up to {far.max()} tokens after it: layers whose masks are off by one, "
        return (
            "mask looks ahead",
            says + "a mask that is off by as many, or a window on both sides.",
        )
    return (
        "leak",
        f"{ahead.sum()} outputs depend on a later token, in no pattern known here.",
    )


def mixes_sentences(model: Model, tokens: Any, pads: Side | None = None) -> Finding:
    r"""Whether an output depends on another sentence of the batch, or on the row in which its own stands.

    .. math:: \exists\, c \ne 0: \quad f(X)_c \ne f(X')_c, \qquad X' = X \text{ with another sentence } 0

    Args:
        model: takes tokens and returns a tensor (b, …), or a tuple, dict or object that has one.
        tokens: ids (b, n), or vectors (b, n, d), b at least 2.
        pads: on which side there are pads, as in :func:`leaks_future`.

    Returns:
        A finding, true if a sentence depends on another one or on its row.

    Raises:
        ValueError: there is only one sentence or token, or all tokens are the same.

    Example:
        >>> mixes_sentences(lambda X: X.softmax(0), torch.rand(2, 5, 3)).cause
        'batch taken for tokens'
    """
    tokens, words = batch(tokens, pads)
    name = titled("mixes_sentences", pads)
    table = at_words(reach(model, tokens, words, sentence=0).cpu(), words)
    others, own = table[1:].any(0), table[0]
    if not others.any():
        return depends_on_row(model, tokens, words, name)
    n = tokens.shape[1]
    if n == len(own) and not (others | own)[~torch.eye(n, dtype=torch.bool)].any():
        says = "A token changes its own position in other sentences, but no other token of its own."
        return Finding(name, "batch taken for tokens", says)
    says = f"An output depends on a token of another sentence in {others.sum()} of {others.numel()} pairs of positions."
    return Finding(name, "sentences mixed", says)


def depends_on_row(
    model: Model, tokens: Tensor, words: Tensor | None, name: str
) -> Finding:
    """Whether a sentence gives another output in another row of the batch; not asked of a model that draws numbers."""
    kind = dtype_of(model, tokens)
    here, again = (answer(model, tokens, words, seed=seed) for seed in (0, 1))
    turned = None if words is None else words.flip(0)
    there = answer(model, tokens.flip(0), turned).flip(0)
    apart = at_words(moved(here, there, kind), words)
    if moved(here, again, kind).any() or not apart.any():
        return Finding(name)
    says = "A sentence changes its outputs in another row of the batch: are its positions counted along the batch?"
    return Finding(name, "batch taken for tokens", says)


def mixes_documents(model: Model, tokens: Any) -> Finding:
    """Whether a document that is packed behind another depends on it.

    Args:
        model: takes tokens (b, n) or (b, n, d) and the number of each token's document, (b, n); returns a tensor
            (b, n, …), or a tuple, dict or object that has one.
        tokens: ids (b, n), or vectors (b, n, d).

    Returns:
        A finding, true if the second document moves with the first.

    Raises:
        ValueError: there is only one sentence or token, or all tokens are the same.

    Example:
        >>> mixes_documents(lambda X, documents: X.cumsum(1), torch.rand(2, 5, 3)).cause
        'documents mixed'
    """
    tokens = sample(tokens)
    b, n = tokens.shape[:2]
    half = n // 2
    documents = (torch.arange(n, device=tokens.device) >= half).long().expand(b, -1)
    other = torch.cat([changed(tokens)[:, :half], tokens[:, half:]], 1)
    one, two = (answer(lambda x: model(x, documents), x) for x in (tokens, other))
    apart = moved(one[:, half:], two[:, half:], dtype_of(model, tokens))
    if not apart.any():
        return Finding("mixes_documents")
    says = f"{apart.sum()} of {apart.numel()} outputs of the second document move with the first."
    return Finding("mixes_documents", "documents mixed", says)
