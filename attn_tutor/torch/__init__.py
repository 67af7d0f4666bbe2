"""Attention in torch: the names and signatures of ``attn_tutor.numpy``, with autograd, CUDA and modules.

These conventions hold for every function, whose docstring names only what goes beyond them:

- Tokens are rows, (…, n, d). Axes in front of the last two are batch axes, and they broadcast.
- Masks are boolean: True = may attend. A query that may attend to nothing gets weights 0 and output 0.
- ``causal`` is aligned lower right: of m keys, query i of n sees those up to i + m − n.
- Inputs are never changed. dtype and device of the result are those of the inputs; whole numbers become floats.
- Arguments are checked first. An array that is not this half's, or a count that is no whole number, is a ``TypeError``;
  a shape that does not fit, or a number out of range, is a ``ValueError``. The message names the function, the
  argument, what it got and what it needs.
"""

# ruff: noqa: E402, F403 — what is public stands in each module's own __all__
# A module is private where a function of its name would hide it.

from importlib.util import find_spec as _find

if _find("torch") is None:
    raise ImportError('attn_tutor.torch needs torch: pip install "attn-tutor[torch]"')

from attn_tutor.torch._attention import *
from attn_tutor.torch._linear_attention import *
from attn_tutor.torch._merge import *
from attn_tutor.torch._self_attention import *
from attn_tutor.torch._softmax import *
from attn_tutor.torch.cache import *
from attn_tutor.torch.decoding import *
from attn_tutor.torch.kernels import *
from attn_tutor.torch.latent import *
from attn_tutor.torch.layers.attention import *
from attn_tutor.torch.layers.block import *
from attn_tutor.torch.layers.multi_head import *
from attn_tutor.torch.layers.positional import *
from attn_tutor.torch.layers.record import *
from attn_tutor.torch.masks import *
from attn_tutor.torch.models.encoder_decoder import *
from attn_tutor.torch.models.language_model import *
from attn_tutor.torch.models.training import *
from attn_tutor.torch.models.transformer_translator import *
from attn_tutor.torch.models.translator import *
from attn_tutor.torch.models.weights import *
from attn_tutor.torch.multi_head import *
from attn_tutor.torch.positional import *
from attn_tutor.torch.quantized import *
from attn_tutor.torch.rules import *
from attn_tutor.torch.scoring import *
from attn_tutor.torch.sinks import *
from attn_tutor.torch.speculative import *

__all__ = sorted(k for k, x in globals().items() if callable(x) and k[0] != "_")
