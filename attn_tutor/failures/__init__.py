"""The tests of the failure gallery: each takes the reader's own function or model and says which bug is in it.

``check_all(model, tokens)`` runs those that need a model and some tokens, ``check_attention(function)`` those of a
function of queries, keys and values; the others take what their first argument says. All return a :class:`Finding`,
which is true if there is a bug: ``assert not leaks_future(model, tokens)`` is a test.
"""

# ruff: noqa: E402, F403 — what is public stands in each module's own __all__

from importlib.util import find_spec as _find

if _find("torch") is None:
    raise ImportError(
        'attn_tutor.failures needs torch: pip install "attn-tutor[torch]"'
    )

from attn_tutor.failures.attentions import *
from attn_tutor.failures.calls import *
from attn_tutor.failures.cost import *
from attn_tutor.failures.everything import *
from attn_tutor.failures.finding import *
from attn_tutor.failures.leaks import *
from attn_tutor.failures.numbers import *
from attn_tutor.failures.pads import *
from attn_tutor.failures.processes import *
from attn_tutor.failures.reach import *
from attn_tutor.failures.training import *
from attn_tutor.failures.twins import *

__all__ = sorted(k for k, x in globals().items() if callable(x) and k[0] != "_")
