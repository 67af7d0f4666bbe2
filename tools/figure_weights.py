"""Write a trained model of chapter 9 as a script, for the figures that run it in the page.

python tools/figure_weights.py    writes book/_static/attn-lm-data.js from book/trained
"""

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy

import attn_tutor.torch as at
from attn_tutor.data import load_book

BOOK = Path(__file__).resolve().parents[1] / "book"
STATIC = BOOK / "_static"
CONTEXT = 64  # as in the chapter

text = load_book()
alphabet = sorted(set(text))
ids = torch.tensor([alphabet.index(c) for c in text])
held_out = ids[9 * len(ids) // 10 :].unfold(0, CONTEXT + 1, CONTEXT)


def language_model() -> at.LanguageModel:
    """The chapter's best, with its weights rounded to half precision."""
    model = at.LanguageModel(len(alphabet), 64, 4, 2, positions="rotary")
    path = BOOK / "trained" / "language_model_rotary.pt"
    model.load_state_dict(torch.load(path, weights_only=True)["best"])
    return model.half().float().eval()


@torch.no_grad()
def loss(model: at.LanguageModel) -> float:
    logits = model(held_out[:, :-1])
    return cross_entropy(logits.flatten(0, 1), held_out[:, 1:].flatten()).item()


def written(model: at.LanguageModel) -> dict[str, Any]:
    """Sizes, and every parameter in turn in half precision, little-endian, as base64."""
    numbers = torch.cat([p.detach().flatten() for p in model.parameters()])
    return {
        "n_tokens": model.embedding.num_embeddings,
        "d": model.embedding.embedding_dim,
        "n_heads": model.blocks[0].attention.n_heads,  # type: ignore[union-attr]
        "n_layers": len(model.blocks),
        "weights": b64encode(numbers.half().numpy().astype("<f2").tobytes()).decode(),
    }


def script(name: str, content: dict[str, Any]) -> str:
    # A script: a page that is read from a file may not load JSON.
    return f"attn.{name} = {json.dumps(content, separators=(',', ':'))};\n"


def lm() -> str:
    model = language_model()
    known = {"alphabet": "".join(alphabet), "held_out": round(loss(model.double()), 3)}
    return script("lm", known | written(model))


def main() -> None:
    (STATIC / "attn-lm-data.js").write_text(lm(), encoding="utf-8")


if __name__ == "__main__":
    main()
