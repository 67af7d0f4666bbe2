"""The rows of the benchmark and their sizes."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from attn_tutor.bench import attentions, pieces
from attn_tutor.bench.case import Case
from attn_tutor.bench.contestants import HEADS, HIDDEN, MODEL, WIDTH, Contestant


class Row(NamedTuple):
    title: str
    shape: str
    compete: Callable[[Case], Iterator[Contestant]]
    sizes: tuple[int, ...] = (512, 2048)
    trained: bool = False  # torch is also measured with its backward pass


LONG = 512, 2048, 8192
HEADED = f"{HEADS} heads of width {WIDTH}"
ROWS = {
    "attention": Row(
        "Dot-product attention", HEADED, attentions.attention, LONG, trained=True
    ),
    "causal": Row(
        "Causal attention", HEADED, attentions.causal_attention, LONG, trained=True
    ),
    "additive": Row(
        "Additive attention",
        f"1 head of width {WIDTH}, hidden width {HIDDEN}",
        attentions.additive,
        (1024, 2048, 4096),
        True,
    ),
    "gaussian": Row("Gaussian attention", HEADED, attentions.gaussian, trained=True),
    "bilinear": Row("Bilinear attention", HEADED, attentions.bilinear, trained=True),
    "multi-head": Row(
        "Multi-head self-attention",
        f"{HEADED}, four projections",
        attentions.multi_head,
        trained=True,
    ),
    "softmax": Row(
        "Masked softmax",
        f"{HEADS} × n × n scores, half hidden",
        pieces.masked_softmax,
    ),
    "table": Row("Table of sinusoids", f"n × {MODEL}", pieces.table, (10_000, 100_000)),
    "decoding": Row(
        "Decoding n tokens with a cache",
        f"{HEADED}, four projections",
        pieces.decoding,
        (256, 1024),
    ),
}
