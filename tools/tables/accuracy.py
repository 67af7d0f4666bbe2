"""Measure how far each function lies from its float64 number: python tools/tables/accuracy.py

Writes book/_tables/accuracy.markdown. The number is that of the textbook line in float64 for the same inputs, which are
first rounded to the lower precision; scores are of order 1.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import attn_tutor.numpy as an
import attn_tutor.torch as at

BOOK = Path(__file__).resolve().parents[2] / "book"
TABLE = BOOK / "_tables" / "accuracy.markdown"  # Sphinx takes .md for a page
TOKENS, WIDTH, HIDDEN, HEADS, SEEDS = 1024, 64, 16, 4, 2
BANDWIDTH = WIDTH**0.25  # scores of order 1 from keys √d apart
HALVES = {"NumPy": an, "torch": at}
DTYPES = ["float32", "float16", "bfloat16"]


def heads(half: Any, X: Any, *W: Any) -> Any:
    """Multi-head attention as its formula says it."""
    Q, K, V = (half.split_heads(X @ w, HEADS) for w in W[:3])
    return half.merge_heads(half.attend(half.scaled_dot_score(Q, K), V)) @ W[3]


def weights(half: Any, scores: Any, mask: Any) -> Any:
    """Masked softmax as its formula says it."""
    e = (np if half is an else torch).exp(scores) * mask
    return e / e.sum(-1)[..., None]


# Functions, the line each stands for, and the shapes of what both take; matrices of learnt weights come last.
TOKENS_OF_ONE_WIDTH = [(TOKENS, WIDTH)] * 3
FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any], list[Any]]] = {
    "masked_softmax": (
        lambda half, *x: half.masked_softmax(*x),
        weights,
        [(TOKENS, TOKENS), (TOKENS, TOKENS, bool)],
    ),
    "attention": (
        lambda half, *x: half.attention(*x),
        lambda half, Q, K, V: half.attend(half.scaled_dot_score(Q, K), V),
        TOKENS_OF_ONE_WIDTH,
    ),
    "gaussian_attention": (
        lambda half, *x: half.gaussian_attention(*x, bandwidth=BANDWIDTH),
        lambda half, Q, K, V: half.attend(half.gaussian_score(Q, K, BANDWIDTH), V),
        [(TOKENS, HIDDEN)] * 3,
    ),
    "additive_attention": (
        lambda half, *x: half.additive_attention(*x),
        lambda half, Q, K, V, *W: half.attend(half.additive_score(Q, K, *W), V),
        [*TOKENS_OF_ONE_WIDTH, (WIDTH, HIDDEN), (WIDTH, HIDDEN), (HIDDEN,)],
    ),
    "multi_head_attention": (
        lambda half, X, *W: half.multi_head_attention(X, X, X, *W, HEADS),
        heads,
        [(TOKENS, WIDTH), *[(WIDTH, WIDTH)] * 4],
    ),
}


def inputs(shapes: list[Any], dtype: str, seed: int) -> list[torch.Tensor]:
    rng = np.random.default_rng(seed)
    found = []
    for shape in shapes:
        if bool in shape:
            found += [torch.from_numpy(rng.random(shape[:-1]) < 0.5)]
            continue
        learnt = (
            shape[0] < TOKENS
        )  # learnt matrices keep the variance of what they project
        x = rng.normal(size=shape) / (shape[0] ** 0.5 if learnt else 1)
        found += [torch.from_numpy(x).to(getattr(torch, dtype))]
    return found


def errors(name: str, half: Any, dtype: str) -> tuple[float, float]:
    """The largest error of the function and of its textbook line, each divided by the largest number there is."""
    ours, textbook, shapes = FUNCTIONS[name]
    found = []
    for seed in range(SEEDS):
        rounded = inputs(shapes, dtype, seed)
        exact = [
            x.double().numpy() if x.is_floating_point() else x.numpy() for x in rounded
        ]
        truth = textbook(an, *exact)
        given = [x.numpy() for x in rounded] if half is an else rounded
        outputs = [
            torch.as_tensor(line(half, *given)).double().numpy()
            for line in (ours, textbook)
        ]
        top = abs(truth).max()
        found += [[float(abs(output - truth).max() / top) for output in outputs]]
    own, usual = (max(column) for column in zip(*found, strict=True))
    return own, usual


def page() -> str:
    titles = [title for dtype in DTYPES for title in (dtype, "textbook")]
    lines = [["function", "half", *titles], ["---", "---", *["---:"] * len(titles)]]
    for name in FUNCTIONS:
        for half in HALVES:
            row = [f"`{name}`", half]
            for dtype in DTYPES:
                known = half == "torch" or dtype != "bfloat16"  # NumPy has none
                cells = errors(name, HALVES[half], dtype) if known else ()
                row += [f"{x:.0e}" for x in cells] or ["–", "–"]
            lines += [row]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


if __name__ == "__main__":
    TABLE.write_text(page(), encoding="utf-8")
