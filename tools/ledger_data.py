"""Write the numbers of `attn_tutor.ledger` where the moving figures of chapters 10, 12 and 13 read them.

python tools/ledger_data.py    writes book/_static/attn-ledger-data.js

Machines and layer as they are, and for the last 1, 2, 4, … of 131,072 tokens what each way of attention does.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import get_args

from attn_tutor.ledger import B200, H100, LLAMA_70B, Way, attention_bill

DATA = Path(__file__).resolve().parents[1] / "book" / "_static" / "attn-ledger-data.js"
KEYS = 2**17
COLUMNS = ("operations", "exponentials", "least_bytes", "most_bytes")


def text() -> str:
    bills = {
        way: [
            [round(getattr(bill, column)) for column in COLUMNS]
            for power in range(18)
            for bill in [attention_bill(2**power, KEYS, way=way)]
        ]
        for way in get_args(Way)
    }
    parts = {
        "machines": {"H100": asdict(H100), "B200": asdict(B200)},
        "layer": asdict(LLAMA_70B),
        "keys": KEYS,
        **bills,
    }
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(part)}" for name, part in parts.items())  # fmt: skip
    return (
        "/* The numbers of attn_tutor/ledger.py, written by tools/ledger_data.py. Of each way of attention, for the\n"
        f"   last 1, 2, 4, … of {KEYS:,} tokens: {', '.join(COLUMNS)}. */\n"
        f"attn.ledger = {{\n{lines}\n}};\n"
    )


if __name__ == "__main__":
    DATA.write_text(text(), encoding="utf-8")
