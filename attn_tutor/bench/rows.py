"""The rows of the benchmark and their sizes."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from attn_tutor.bench import attentions, pieces, rules
from attn_tutor.bench.case import HEADS, HIDDEN, MODEL, WIDTH, Case, Contestants


class Row(NamedTuple):
    title: str
    shape: str
    compete: Callable[[Case], Contestants]
    sizes: tuple[int, ...] = (512, 2048)
    trained: bool = True  # torch is also measured with its backward pass


LONG, WINDOW = (512, 2048, 8192), 256
HEADED = f"{HEADS} heads of width {WIDTH}"
ONE_HEAD = f"1 head of width {WIDTH}, hidden width {HIDDEN}"
PROJECTED = f"{HEADED}, four projections"
SCORES = f"{HEADS} × n × n scores, half hidden"

plain = attentions.attention
causal, biased = partial(plain, causal=True), partial(plain, biased=True)
window = partial(causal, window=WINDOW)


def ruled(*names: str) -> Row:
    title = f"Attention under {' and '.join(names)}"
    return Row(title, HEADED, partial(rules.attention, names=names), (2048, 8192))


ROWS = {
    "attention": Row("Dot-product attention", HEADED, plain, LONG),
    "causal": Row("Causal attention", HEADED, causal, LONG),
    "window": Row(f"Causal attention to {WINDOW} keys", HEADED, window, LONG),
    "bias": Row("Attention with ALiBi's bias", HEADED, biased),
    "additive": Row(
        "Additive attention", ONE_HEAD, attentions.additive, (1024, 2048, 4096)
    ),
    "gaussian": Row("Gaussian attention", HEADED, attentions.gaussian),
    "bilinear": Row("Bilinear attention", HEADED, attentions.bilinear),
    "multi-head": Row("Multi-head self-attention", PROJECTED, attentions.multi_head),
    "softmax": Row("Masked softmax", SCORES, pieces.masked_softmax, trained=False),
    "table": Row(
        "Table of sinusoids", f"n × {MODEL}", pieces.table, (10_000, 100_000), False
    ),
    "decoding": Row(
        "Decoding n tokens with a cache", PROJECTED, pieces.decoding, (256, 1024), False
    ),
}
DEFAULT = [*ROWS]
# Rows of rules are asked for by name, since all take hours: "rule-window", "rule-window+valid".
EACH = [(name,) for name in rules.NAMES]
ROWS |= {f"rule-{'+'.join(names)}": ruled(*names) for names in [*EACH, *rules.PAIRS]}
