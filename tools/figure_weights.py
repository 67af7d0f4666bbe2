"""Write the trained models of chapter 9 as scripts, for the figures that run them in the page.

python tools/figure_weights.py    writes book/_static/attn-lm-data.js and attn-induction-data.js from book/trained
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


def trained(name: str, *sizes: int) -> at.LanguageModel:
    """One of the chapter's models, with its weights rounded to half precision."""
    model = at.LanguageModel(*sizes, positions="rotary")
    weights = torch.load(BOOK / "trained" / f"{name}.pt", weights_only=True)
    model.load_state_dict(weights.get("best", weights))
    return model.half().float().eval()


def language_model() -> at.LanguageModel:
    return trained("language_model_rotary", len(alphabet), 64, 4, 2)


def induction(blocks: int) -> at.LanguageModel:
    return trained(f"induction_{'one' if blocks == 1 else 'two'}", 26, 32, 2, blocks)


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
        # mypy: what a ModuleList holds is any module, and its attributes may be tensors
        "n_heads": model.blocks[0].attention.n_heads,  # type: ignore[union-attr]
        "n_layers": len(model.blocks),
        "weights": b64encode(numbers.half().numpy().astype("<f2").tobytes()).decode(),
    }


def scripts() -> dict[str, str]:
    """The text of each file, by its name."""
    lm = language_model()
    known = {"alphabet": "".join(alphabet), "held_out": round(loss(lm), 3)}
    content = {
        "lm": known | written(lm),
        "induction": {blocks: written(induction(blocks)) for blocks in (1, 2)},
    }
    # Scripts: a page that is read from a file may not load JSON.
    return {
        f"attn-{name}-data.js": f"attn.{name} = {json.dumps(data, separators=(',', ':'))};\n"
        for name, data in content.items()
    }


def main() -> None:
    for name, text in scripts().items():
        (STATIC / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
