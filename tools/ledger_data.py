"""Write the numbers of `attn_tutor.ledger` where the moving figures of chapters 12 and 13 read them.

python tools/ledger_data.py    writes book/_static/attn-ledger-data.js
"""

import json
from dataclasses import asdict
from pathlib import Path

from attn_tutor.ledger import B200, H100, LLAMA_70B

DATA = Path(__file__).resolve().parents[1] / "book" / "_static" / "attn-ledger-data.js"


def text() -> str:
    parts = {
        "machines": {"H100": asdict(H100), "B200": asdict(B200)},
        "layer": asdict(LLAMA_70B),
    }
    return (
        "/* The machines and the layer of attn_tutor/ledger.py, written by tools/ledger_data.py. */\n"
        f"attn.ledger = {json.dumps(parts, indent=2)};\n"
    )


if __name__ == "__main__":
    DATA.write_text(text(), encoding="utf-8")
