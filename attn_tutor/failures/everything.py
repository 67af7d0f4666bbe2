"""All checks that fit a model, or a function of queries, keys and values, one after another, with a report."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from attn_tutor.failures.attentions import (
    Attention,
    breaks_on_empty_row,
    differs_from_formula,
    reads_hidden_keys,
    wrong_corner,
)
from attn_tutor.failures.calls import (
    changes_in_eval,
    gives_nan,
    loses_order,
    runs_out_of_positions,
)
from attn_tutor.failures.finding import Finding
from attn_tutor.failures.leaks import leaks_future, mixes_sentences
from attn_tutor.failures.pads import Side, misplaces_words, reads_pads
from attn_tutor.failures.program import Model, uncut

__all__ = ["check_all", "check_attention", "explain"]

ERRORS = {  # part of a message → the bug
    "attn_mask dtype": "mask of the wrong dtype",
    "for attn_mask": "mask of the wrong dtype",
    "without overflow": "mask as a large number",
    "index out of range": "position past the table",
    "out of bounds": "position past the table",
    "out of memory": "scores are stored",
    "not enough memory": "scores are stored",
    "No available kernel": "slow kernel",
    "view size is not compatible": "view after a transpose",
    "cannot be multiplied": "widths differ",
    "D attn_mask is": "mask of another shape",
    "key_padded_mask": "mask of another shape",
    "must match": "shapes do not fit",
    "shape": "shapes do not fit",
    "size": "shapes do not fit",
}


def explain(error: BaseException, check: str = "explain") -> Finding:
    """The bug that an error message speaks of.

    Args:
        error: what was raised.
        check: who was looking.

    Returns:
        A finding; its cause is the error's own name if the message is none that is known here.

    Example:
        >>> explain(IndexError("index out of range in self")).cause
        'position past the table'
    """
    text = str(error)
    cause = next(
        (ERRORS[part] for part in ERRORS if part in text), type(error).__name__
    )
    return Finding(check, cause, (text.splitlines() or [""])[0])


def report(checks: list[Callable[[], Finding]], names: list[str]) -> list[Finding]:
    found: list[Finding] = []
    for name, check in zip(names, checks, strict=True):
        try:
            result = check()
        except Exception as error:  # of the reader's program
            result = explain(error, name)
            if any(result.cause == x.cause and result.says == x.says for x in found):
                continue
        # Outputs of a model that reads pads differ from those without pads for that reason alone.
        if name == "misplaces_words" and found and found[-1].check == "reads_pads":
            continue
        # A formula that is known says more than that it reads hidden keys.
        known = found and found[-1].cause != "another formula"
        if (
            name == "reads_hidden_keys"
            and result.cause == "mask hides nothing"
            and known
        ):
            continue
        print(result)
        found += [result] if result else []
        if result.cause in ("state between calls", "random in eval"):
            print("    what follows may come of that")
    return found


def check_all(
    model: Model,
    tokens: Any,
    *,
    causal: bool = True,
    pads: Side | None = None,
    length: int | None = None,
) -> list[Finding]:
    """Run the checks that need only a model and tokens, and print what each has found and where to read about it.

    The model is called in evaluation and in training mode; a module in half precision as a copy in float32, since a
    leak may be smaller than rounding. Its mode, its buffers, the gradients of its parameters and
    the random states of torch, NumPy and Python are afterwards what they were; plain attributes are not looked after.
    The first 12 tokens of the first 4 sentences are used; for leaks of the future all of them (:func:`leaks_future`).

    Args:
        model: takes tokens and returns a tensor (b, n, …), or a tuple, dict or object that has one, as Hugging Face's
            ``.logits``. With pads it takes a mask as well, as in :func:`reads_pads`.
        tokens: ids (b, n), or vectors (b, n, d); a few sentences that the model could meet.
        causal: whether no output may depend on a later token.
        pads: the side on which its batches have pads, for the checks that need some; None leaves them out.
        length: tokens of the longest text that it is to read; None leaves the check out.

    Returns:
        The findings that are true: an empty list if all is well.

    Raises:
        ValueError: there is only one sentence or token, or all tokens are the same.

    Example:
        >>> found = check_all(lambda X: X + X.sum(1, keepdim=True), torch.rand(2, 5, 3))
        changes_in_eval: no
        gives_nan: no
        mixes_sentences: no
        leaks_future: future is read
            Every output depends on every token: no mask or one that hides nothing, a first query without keys,
            a mask after the softmax, a softmax over queries, a norm over tokens, or layers of reshaped heads.
            read “Loss goes to zero and generated text is nonsense” in book/failure_gallery.ipynb
        >>> [finding.cause for finding in found]
        ['future is read']
    """
    if isinstance(model, nn.Module):
        half = {p.dtype for p in model.parameters()} & {torch.float16, torch.bfloat16}
        model = copy.deepcopy(model).float() if half else model
    checks: list[Callable[..., Finding]] = [changes_in_eval, gives_nan, mixes_sentences]
    checks += [leaks_future] if causal else []
    ids = not uncut(tokens).is_floating_point()
    checks += [loses_order] if ids else []
    names = [check.__name__ for check in checks]
    calls: list[Callable[[], Finding]] = [
        partial(check, model, tokens) for check in checks
    ]
    if pads is not None:
        calls.append(partial(reads_pads, model, tokens, pads, causal=causal))
        calls.append(partial(misplaces_words, model, tokens, pads))
        calls.append(partial(gives_nan, model, tokens, pads))
        names += ["reads_pads", "misplaces_words", "gives_nan"]
    if length is not None:
        calls.append(partial(runs_out_of_positions, model, tokens, length))
        names.append("runs_out_of_positions")
    return report(calls, names)


def check_attention(
    attention: Attention,
    *,
    masked: bool = False,
    causal: bool = False,
    scale: float | None = None,
    heads: int | None = 4,
    kv_heads: int | None = None,
) -> list[Finding]:
    """Run the checks of a function of queries, keys and values; masks are tried only if ``masked``.

    Args:
        attention: takes Q, K, V, and a boolean mask (n, m) if ``masked``, True where a query may attend.
        masked: whether to hand over masks.
        causal: whether it is causal by itself. It is then compared with itself alone, the last queries with all.
        scale: of the scores, if it is not 1/√d.
        heads: Q is (b, h, n, d); None makes it (b, n, d).
        kv_heads: heads of K and V, if fewer.

    Returns:
        The findings that are true: an empty list if all is well.

    Example:
        >>> found = check_attention(lambda Q, K, V: (Q @ K.mT).softmax(-1) @ V)
        differs_from_formula: no √d
            Its numbers are those of the formula with this mistake.
            read “Missing scale, no sqrt of d” in book/failure_gallery.ipynb
    """
    calls: list[Callable[[], Finding]] = []
    names = []
    if causal:
        calls, names = [partial(wrong_corner, attention, heads=heads)], ["wrong_corner"]
    else:
        options: dict[str, Any] = {"scale": scale, "heads": heads, "kv_heads": kv_heads}
        calls.append(partial(differs_from_formula, attention, masked=masked, **options))
        names.append("differs_from_formula")
    if masked:
        calls.append(partial(reads_hidden_keys, attention, heads=heads))
        calls.append(partial(breaks_on_empty_row, attention, heads=heads))
        names += ["reads_hidden_keys", "breaks_on_empty_row"]
    return report(calls, names)
