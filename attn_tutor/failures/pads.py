"""Checks that pads change nothing."""

from typing import Any

import torch
from torch import Tensor

from attn_tutor.failures.calls import gives_nan
from attn_tutor.failures.finding import Finding
from attn_tutor.failures.leaks import HEADS
from attn_tutor.failures.program import (
    Model,
    Side,
    answer,
    dtype_of,
    modules_of,
    moved,
    square,
    words_of,
)
from attn_tutor.failures.reach import DEEPEST, reach, stacked

__all__ = ["misplaces_words", "reads_pads"]


def reads_pads(
    model: Model, tokens: Any, pads: Side = "right", *, causal: bool = True
) -> Finding:
    r"""Whether a word's output depends on what stands at a pad.

    .. math:: \exists\, i \text{ a word}, j \text{ a pad}: \quad f(X)_i \ne f(X')_i, \qquad
        X' = X \text{ with another token } j

    The batch is square, as many sentences as tokens, and the table of which output moves with which token is compared
    with those of masks that are inverted, read as (n, m), or dealt to the wrong heads. An inverted mask of large
    numbers may show only with pads on the left, which are tried too.

    Args:
        model: takes tokens and a mask, and returns a tensor (b, n, …), or a tuple, dict or object that has one. The
            mask is boolean, (b, n), True at words; an argument called ``attention_mask``, ``key_padding_mask`` or
            ``src_key_padding_mask`` gets it as Hugging Face or torch means it.
        tokens: ids (b, n), or vectors (b, n, d), of which the batch is drawn.
        pads: on which side they stand.
        causal: whether the model is to see the past alone.

    Returns:
        A finding, true if pads are read or words are not.

    Raises:
        ValueError: there is only one sentence or token, or all tokens are the same.

    Example:
        >>> reads_pads(lambda X, words: X.cumsum(1), torch.rand(4, 5, 3), "left").cause
        'mask not used'
    """
    X = square(tokens)
    n = len(X)
    words = words_of(n, pads).to(X.device)
    ways = [False, True] if modules_of(model) else [False]
    tables = [reach(model, X, words, training=way).cpu() for way in ways]
    kept = words.cpu()
    found = [why for table in tables if (why := cause_of_pads(table, kept, causal))]
    vague = set(found) <= {"pads are read"}
    out = answer(model, X, words)
    if vague and (nan := not_finite("reads_pads", model, tokens, pads, out)):
        return nan
    unnamed = pads == "right" and vague
    if unnamed and inverts_on_the_left(model, X, words, causal):
        says = "With pads on the left words read pads alone; on the right of a causal mask they cannot."
        return Finding("reads_pads", "inverted mask", says)
    if not found:
        return Finding("reads_pads")
    if found[0] == "mask not used" and heeds(model, X, words, pads):
        each = tables[0].shape[1] == n  # one output for each token
        found[0] = "mask hides nothing" if each else "pads are counted"
    if len(found) < len(tables):
        found[0] = "one path differs"
    says = {
        "mask not used": "Outputs of words move with every pad, and not with the mask: unused, or it hides queries.",
        "mask hides nothing": "Outputs of words move with every pad, and with the mask, in scores or in positions.",
        "inverted mask": "Outputs of words move with pads, and, where a sentence has some, with no other word.",
        "mask of (b, m) read as (n, m)": "Query i has the mask of sentence i, whatever sentence it stands in.",
        "mask repeated for the wrong heads": "Each head has the mask of another sentence.",
        "answer read at a pad": "The answer moves with one column where that is a pad, and with no other pad.",
        "pads are counted": "Every pad moves the answer, and so does the mask: a mean over pads, or a mask added.",
        "one path differs": "In one of training and evaluation mode alone, outputs of words move with pads.",
    }.get(found[0], "Outputs of words move with some pads, or not with some words.")
    return Finding("reads_pads", found[0], says)


def not_finite(
    name: str, model: Model, tokens: Any, pads: Side, out: Tensor
) -> Finding | None:
    """A NaN among what words give is no move of theirs, and has a check of its own."""
    if out.isfinite().all():
        return None
    seen = gives_nan(model, tokens, pads)
    return Finding(name, seen.cause, seen.says) if seen else None


def inverts_on_the_left(model: Model, X: Tensor, words: Tensor, causal: bool) -> bool:
    """Whether words read pads alone once these stand on the left: right of a causal mask, no word reaches a pad."""
    left = words.flip(1)
    try:
        table = reach(model, X, left).cpu()
    except Exception:  # pads on the left may be an error
        return False
    return cause_of_pads(table, left.cpu(), causal) == "inverted mask"


def heeds(model: Model, X: Tensor, words: Tensor, pads: Side) -> bool:
    """Whether the mask changes a word's output: a pad and the word next to it change places, so that no other word
    has another position. With pads on the left, ``cumsum(-1) - 1``, at least 0, gives these two the same one."""
    swapped, told = words.clone(), words.clone()
    for c in range(len(X)):
        edges = (words[c, 1:] != words[c, :-1]).nonzero()
        if len(edges):
            edge = int(edges[0])
            swapped[c, edge : edge + 2] = words[c, edge : edge + 2].flip(0)
            told[c, edge : edge + 2] = False
    one, other = answer(model, X, words), answer(model, X, swapped)
    apart = moved(one, other, dtype_of(model, X))
    differs = bool((apart & told).any() if apart.shape == told.shape else apart.any())
    if not differs or pads == "left":
        return differs
    try:
        return heeds(model, X, words.flip(1), "left")
    except Exception:  # pads on the left may be an error
        return True


def cause_of_pads(table: Tensor, words: Tensor, causal: bool) -> str:
    """Of a table (b, n, n), or (b, 1, n) where each sentence has one output."""
    b, n = words.shape
    keys = words[:, None].expand(-1, table.shape[1], -1)
    rows = (
        words[..., None]
        if table.shape[1] == n
        else torch.ones(b, 1, 1, dtype=torch.bool)
    )
    if not (table & rows & ~keys).any() and (table & rows & keys).any():
        return ""
    if table.shape[1] != n:
        at_pads = table & ~keys
        if at_pads.flatten(0, 1).any(0).sum() == 1:
            return "answer read at a pad"
        if not (table & keys).any():
            return "inverted mask"
        return "mask not used" if torch.equal(at_pads, ~keys) else "pads are read"
    past = torch.ones(n, n, dtype=torch.bool)
    past = past.tril() if causal else past

    own = torch.eye(n, dtype=torch.bool)

    def fits(masks: Tensor, empty: bool | Tensor = False) -> bool:
        """Masks (b, n, n) of one layer, or of several; a row without a key sees ``empty``."""
        deeper = [stacked(x | (empty & ~x.any(-1, keepdim=True))) for x in masks & past]
        return any(
            all(
                torch.equal((table[c] | own)[words[c]], deeper[c][k][words[c]])
                for c in range(b)
            )
            for k in range(DEEPEST)
        )

    if fits(torch.ones(b, n, n, dtype=torch.bool)):
        return "mask not used"
    if not (table & rows & keys & ~own).any():
        return "inverted mask"
    sees_all = (table | own)[words].all()  # as with no mask at all
    if not sees_all and any(fits(~keys, x) for x in (False, True, past)):
        return "inverted mask"
    if fits(words[None].expand(b, -1, -1)):
        return "mask of (b, m) read as (n, m)"
    for heads in HEADS:
        dealt = [[(c * heads + k) % b for k in range(heads)] for c in range(b)]
        if fits(
            torch.stack([words[d].any(0) for d in dealt])[:, None].expand(-1, n, -1)
        ):
            return "mask repeated for the wrong heads"
    return "pads are read"


def misplaces_words(model: Model, tokens: Any, pads: Side = "left") -> Finding:
    r"""Whether a sentence's outputs among pads are others than those without pads.

    .. math:: f(\text{pads}, X)_{\text{words}} \ne f(X)

    Args:
        model: takes tokens and a mask, as in :func:`reads_pads`.
        tokens: ids (b, n), or vectors (b, n, d), of which the batch is drawn.
        pads: on which side they stand.

    Returns:
        A finding, true if they differ. If pads are read, :func:`reads_pads` names it; or else pads are counted.
        It is false, and says so, if a sentence without pads differs as well, or two calls do.

    Raises:
        ValueError: there is only one sentence or token, or all tokens are the same.

    Example:
        >>> places = torch.arange(5.0)[:, None]
        >>> late = lambda X, words: words[..., None] * (X + places[: X.shape[1]])
        >>> misplaces_words(late, torch.rand(4, 5, 3)).cause
        'positions count pads'
    """
    X = square(tokens)
    n, kind = len(X), dtype_of(model, X)
    words = words_of(n, pads).to(X.device)
    together = answer(model, X, words)
    if nan := not_finite("misplaces_words", model, tokens, pads, together):
        return nan
    unsure = "not checked: what has no pads changes too"
    if moved(together, answer(model, X, words, seed=1), kind).any():
        return Finding("misplaces_words", says=unsure)
    for c in range(n):
        copies = [c] * n  # in the row that it has among the others
        alone = answer(model, X[copies][:, words[c]], words[copies][:, words[c]])
        alone = alone[c : c + 1]
        here = together[c : c + 1]
        here = here[:, words[c]] if here.shape[1] == n and here.ndim > 2 else here
        if moved(alone, here, kind).any():
            length = int(words[c].sum())
            if length == n:
                return Finding("misplaces_words", says=unsure)
            says = f"A sentence of {length} tokens with {n - length} pads on the {pads} changes its outputs"
            cause, why = cause_of_count(model, tokens, pads)
            return Finding("misplaces_words", cause, f"{says}{why}")
    return Finding("misplaces_words")


def cause_of_count(model: Model, tokens: Any, pads: Side) -> tuple[str, str]:
    """Why a sentence differs with pads. On the right they move no position that is counted from the left."""
    if seen := reads_pads(model, tokens, pads):
        return seen.cause, "."
    right = pads == "right" or misplaces_words(model, tokens, "right").cause
    if right in (True, "pads are counted"):
        return "pads are counted", ": a mean, a norm or a scale by columns?"
    return "positions count pads", ": positions, or a count from column 0?"
