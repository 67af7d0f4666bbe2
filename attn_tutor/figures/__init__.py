"""Pictures of weights, masks, heads and positional encodings. Computes nothing.

Rows are queries and columns are keys, as in the matrices. The colours stay apart for colour-blind readers.
The ground is white, so that a picture also reads on a dark page. Arrays may be NumPy's or torch's.
"""

# ruff: noqa: F403 — what is public stands in each module's own __all__

try:
    import matplotlib  # noqa: F401 — every module needs it
except ImportError as error:
    raise ImportError(
        'attn_tutor.figures needs matplotlib: pip install "attn-tutor[plot]"'
    ) from error

from attn_tutor.figures.head_view import *
from attn_tutor.figures.heat_maps import *

__all__ = sorted(k for k, x in globals().items() if callable(x) and k[0] != "_")
