"""Who takes part: a name and a call each; and the other packages, where they are installed."""

from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

from attn_tutor.bench.case import Case
from attn_tutor.bench.limits import Call, moved

HEADS, WIDTH, HIDDEN = 8, 64, 64
MODEL = HEADS * WIDTH
PEERS = {
    "d2l": "d2l.torch",
    "x-transformers": "x_transformers",
    "keras": "keras",
    "FlexAttention": "torch.nn.attention.flex_attention",
}


class Contestant(NamedTuple):
    role: str  # ours, textbook, peer or limit
    name: str
    call: Call
    stores: int = 0  # numbers in what it builds between input and output, where that may be too many


@cache
def why_missing(peer: str) -> str | None:
    """None where the peer can be used."""
    if find_spec(PEERS[peer].partition(".")[0]) is None:
        return "not installed"
    try:
        import_module(PEERS[peer])
    except Exception as error:  # another's package may fail in any way
        return f"does not import here: {type(error).__name__}: {error}"
    return None


def peer(name: str) -> Any:
    """Its module, or None."""
    return None if why_missing(name) else import_module(PEERS[name])


def made(build: Callable[[], Call]) -> Call:
    """A call whose parts are built when it is first made: building another's layer may fail as its call may."""
    built = cache(build)
    return lambda: built()()


def traffic(case: Case, numbers: int) -> Iterator[Contestant]:
    yield Contestant("limit", "reading and writing alone", moved(case, numbers))
