"""Write the trained translator of chapter 8 as a script, for the figure that runs it in the page.

python tools/translator_weights.py    writes book/_static/attn-beam-data.js from book/trained
"""

import json
from base64 import b64encode
from pathlib import Path

import torch

import attn_tutor.torch as at
from attn_tutor.data import numbers

BOOK = Path(__file__).resolve().parents[1] / "book"
SCRIPT = BOOK / "_static" / "attn-beam-data.js"


def translator() -> at.Translator:
    """The chapter's first with attention; each parameter is rounded to 255 steps, equally far apart."""
    model = at.Translator(len(numbers.WORDS), 11, 48)
    weights = torch.load(BOOK / "trained" / "translator_with_0.pt", weights_only=True)
    del weights["curve"]
    model.load_state_dict(weights)
    for parameter in model.float().eval().parameters():
        parameter.data = steps(parameter) * unit(parameter)
    return model


def unit(parameter: torch.Tensor) -> float:
    """One step, with six digits."""
    return float(f"{parameter.abs().max().item() / 127:.6g}")


def steps(parameter: torch.Tensor) -> torch.Tensor:
    return (parameter.detach() / unit(parameter)).round()


def script() -> str:
    """Words, units and the steps of every parameter in turn, as bytes in base64."""
    parameters = [*translator().parameters()]
    whole = torch.cat([steps(p).flatten() for p in parameters]).to(torch.int8)
    content = {
        "words": numbers.WORDS,
        "units": [unit(p) for p in parameters],
        "steps": b64encode(whole.numpy().tobytes()).decode(),
    }
    # A script: a page that is read from a file may not load JSON.
    return f"attn.translator = {json.dumps(content, separators=(',', ':'))};\n"


if __name__ == "__main__":
    SCRIPT.write_text(script(), encoding="utf-8")
