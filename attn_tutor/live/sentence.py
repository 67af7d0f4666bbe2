"""The reader's own sentence, read by SmolLM2 in the kernel of chapter 11."""

from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from attn_tutor.models.smollm2 import SmolLM2
from attn_tutor.torch import KVCache

READ = "application/vnd.attn-tutor.sentence+json"
MOST = 48  # tokens: of more, the map of a head has squares too small to see
WRITTEN = 8  # tokens that the model adds, each in 70 ms on one core


@cache
def model() -> SmolLM2:
    return SmolLM2.load()


@contextmanager
def alone() -> Iterator[None]:
    """One thread is as fast as two for so small a model, and faster where others use the machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.no_grad():
            yield
    finally:
        torch.set_num_threads(threads)


@alone()
def read(text: str) -> None:
    """Show the page what the model makes of a text: tokens, losses, all weights, the lens, and then what it writes."""
    smol = model()
    ids = smol.encode(text)[:MOST]
    if len(ids) < 2:
        raise ValueError("the model needs two tokens or more: write a few words")
    caches = [KVCache() for _ in smol.layers]
    stream = smol.stream(ids, caches=caches)
    show(reading(ids, stream) | guesses(stream[:, -1]))
    # The steps of smol.generate, which would read the text once more.
    written = [smol.unembed(stream[-1, -1:]).argmax(-1)]
    while len(written) < WRITTEN:
        written.append(smol(written[-1], caches=caches).argmax(-1))
    show({"written": smol.decode(torch.cat(written))})


@alone()
def lens(text: str, at: int) -> None:
    """Show the page what the model would say after token ``at``, from the vector that enters each layer."""
    # No token after it has a part in this.
    show(guesses(model().stream(model().encode(text)[: at + 1])[:, -1]))


def show(found: dict[str, Any]) -> None:
    from IPython.display import display

    display({READ: found, "text/plain": ""}, raw=True)


def reading(ids: torch.Tensor, stream: torch.Tensor) -> dict[str, Any]:
    """Tokens, losses and weights in the form of the figure of its heads: a byte a weight, none above the diagonal."""
    smol = model()
    losses = cross_entropy(smol.unembed(stream[-1, :-1]), ids[1:], reduction="none")
    each = zip(smol.layers, stream, strict=False)
    A = torch.stack([layer.weights(X, None) for layer, X in each])  # (30, 9, n, n)
    below = A[..., *torch.tril_indices(len(ids), len(ids))]
    return {
        "name": "my sentence",
        "tokens": [smol.decode(token) for token in ids],
        "losses": losses.double().round(decimals=2).tolist(),
        "weights": b64encode((255 * below).round().byte().numpy().tobytes()).decode(),
    }


def guesses(stream: torch.Tensor) -> dict[str, Any]:
    """The likeliest next token at each of the 31 places of one token's stream, with its probability."""
    p, token = model().unembed(stream).softmax(-1).max(-1)
    words = [model().decode(x) for x in token]
    return {"lens": [*zip(words, p.double().round(decimals=2).tolist(), strict=True)]}
