"""Write models as scripts for the figures: chapter 9's, which run in the page, how two heads of one of them came to be,
and where SmolLM2's heads look.

python tools/figure_weights.py    writes book/_static/attn-lm-data.js and attn-induction-data.js from book/trained,
                                  attn-birth-data.js by training anew, and attn-published-data.js with SmolLM2, which
                                  requirements-models.txt installs
"""

import contextlib
import io
import json
from base64 import b64encode
from itertools import count
from pathlib import Path
from typing import Any

import nbformat
import torch
from torch.nn.functional import cross_entropy

import attn_tutor.torch as at
from attn_tutor.data import load_book
from attn_tutor.models.smollm2 import SmolLM2

BOOK = Path(__file__).resolve().parents[1] / "book"
STATIC = BOOK / "_static"
INDUCTION = BOOK / "09_transformer" / "induction_heads.ipynb"
CONTEXT = 64  # as in the chapter
# of the training in which two heads form: dense where they do, up to the step whose weights the page keeps
BIRTH = [0, 40, 80, 120, 140, 150, 160, 165, 170, 175, 180, 185, 190, 200, 220, 260, 340, 500]  # fmt: skip
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


def page_of_induction() -> dict[str, Any]:
    """The names of the page on induction heads, once its cells have trained or read its models."""
    names: dict[str, Any] = {}
    cells = nbformat.read(INDUCTION, as_version=4).cells
    # The chapter's folder, in which a notebook runs: it reads what was trained from a folder near it.
    with contextlib.chdir(INDUCTION.parent), contextlib.redirect_stdout(io.StringIO()):
        for cell in cells:
            if cell.cell_type == "code" and "seen" not in names:
                exec(cell.source, names)
    return names


def birth() -> dict[str, Any]:
    """The page's training of two blocks, seed 0, once more: what the model is at some steps, on texts that judge it."""
    page = page_of_induction()
    torch.manual_seed(0)
    model = page["small_model"]("two")
    found, steps = [measured(page, model)], count(5, 5)

    def look(model: at.LanguageModel) -> float:
        if next(steps) in BIRTH:
            found.append(measured(page, model))
        return 0.0

    run: dict[str, Any] = {"steps": 600, "lr": 6e-3, "seed": 0, "every": 5}
    at.train(model, page["loss"], page["draw_repeated"], score=look, **run)
    texts = [
        {
            "letters": "".join(chr(ord("a") + i) for i in page["judging"][k].tolist()),
            "losses": [each["losses"][k] for each in found],
            "weights": b64encode(b"".join(each["weights"][k] for each in found)).decode(),
        }
        for k in range(3)
    ]  # fmt: skip
    means = [each["means"] for each in found]
    return {"steps": BIRTH, "means": means, "texts": texts}


@torch.no_grad()
def measured(page: dict[str, Any], model: at.LanguageModel) -> dict[str, Any]:
    """On 200 texts, the loss in both copies, the weight of head 0.0 one back and of head 1.1 15 back; on the first
    three, each letter's loss, and where these heads look, a byte a weight."""
    texts = page["judging"]
    lost, (one_back, back_15) = page["each_loss"](model, texts), page["looks"](model, texts)  # fmt: skip
    copies = lost[:, :15].mean(), lost[:, 16:].mean()
    A = model.weights(texts[:3, :-1])  # (layers, b, h, n, n)
    return {
        "means": rounded([*copies, one_back[0, 0], back_15[1, 1]], 3),
        "losses": [rounded(row, 2) for row in lost[:3]],
        "weights": [bytes_of(torch.stack([A[0, k, 0], A[1, k, 1]])) for k in range(3)],
    }


def rounded(numbers: Any, digits: int) -> list[float]:
    return [round(float(x), digits) for x in numbers]


def bytes_of(weights: torch.Tensor) -> bytes:
    """Causal weights, a byte each, in 255ths, so that none is off by more than 1/510: query by query what lies on and
    below the diagonal; the rest is 0."""
    seen = torch.ones(weights.shape[-2:]).tril().bool()
    return bytes((255 * weights[..., seen]).round().byte().flatten().tolist())


def sentence(model: SmolLM2, name: str, text: str) -> dict[str, Any]:
    """A text as SmolLM2 reads it: its tokens, the loss of each after the first, where each head of each layer looks."""
    ids = model.encode(text)
    losses = cross_entropy(model(ids)[:-1], ids[1:], reduction="none")
    return {
        "name": name,
        "tokens": [model.decode(token) for token in ids],
        "losses": [round(x, 2) for x in losses.tolist()],
        "weights": b64encode(bytes_of(model.weights(ids))).decode(),
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
    made = {"birth": birth(), "published": published(SmolLM2.load())}
    for name, data in (chapter_9() | made).items():
        # Scripts: a page that is read from a file may not load JSON.
        text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
        script(name).write_text(f"attn.{name} = {text};\n", encoding="utf-8")


if __name__ == "__main__":
    main()
