"""Write models as scripts for the figures: chapter 9's, which run in the page, and where SmolLM2's heads look.

python tools/figure_weights.py    writes book/_static/attn-lm-data.js and attn-induction-data.js from book/trained,
                                  and attn-published-data.js with SmolLM2, which requirements-models.txt installs
"""

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy

import attn_tutor.torch as at
from attn_tutor.data import load_book
from attn_tutor.models.smollm2 import SmolLM2

BOOK = Path(__file__).resolve().parents[1] / "book"
STATIC = BOOK / "_static"
CONTEXT = 64  # as in the chapter
SENTENCES = {  # of the figure with SmolLM2: their name in the list, and their text
    "it": (
        "the trophy and “it”",
        "The trophy does not fit into the suitcase because it is too large.",
    ),
    "name": ("an invented name", "Mr Otto Quarndon sat down. Mr Otto Quarndon"),
    "twice": (
        "eight words, twice",
        2 * " river lamp seven goat paper moon stone bread",
    ),
    "quote": ("two quotations", 'He said: "I am late," and she said: "So am I."'),
}

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


def chapter_9() -> dict[str, Any]:
    """What the figures with its models need."""
    lm = language_model()
    known = {"alphabet": "".join(alphabet), "held_out": round(loss(lm), 3)}
    return {
        "lm": known | written(lm),
        "induction": {blocks: written(induction(blocks)) for blocks in (1, 2)},
    }


def sentence(model: SmolLM2, name: str, text: str) -> dict[str, Any]:
    """A text as SmolLM2 reads it: its tokens, the loss of each after the first, where each head looks.

    A weight is one byte, in 255ths, so none is off by more than 1/510. Layer by layer, head by head, query by query
    stands what lies on and below the diagonal; the rest is 0.
    """
    ids = model.encode(text)
    losses = cross_entropy(model(ids)[:-1], ids[1:], reduction="none")
    seen = torch.ones(len(ids), len(ids)).tril().bool()
    codes = (255 * model.weights(ids)[..., seen]).round().byte()
    return {
        "name": name,
        "tokens": [model.decode(token) for token in ids],
        "losses": [round(x, 2) for x in losses.tolist()],
        "weights": b64encode(codes.numpy().tobytes()).decode(),
    }


def published(model: SmolLM2) -> dict[str, Any]:
    """What the figure of its heads needs."""
    return {key: sentence(model, *named) for key, named in SENTENCES.items()}


def script(name: str) -> Path:
    return STATIC / f"attn-{name}-data.js"


def read(name: str) -> Any:
    """What the page has."""
    return json.loads(script(name).read_text("utf-8").partition(" = ")[2].rstrip(";\n"))


def main() -> None:
    for name, data in (chapter_9() | {"published": published(SmolLM2.load())}).items():
        # Scripts: a page that is read from a file may not load JSON.
        text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
        script(name).write_text(f"attn.{name} = {text};\n", encoding="utf-8")


if __name__ == "__main__":
    main()
