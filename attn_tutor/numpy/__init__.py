"""Attention in NumPy: one module a chapter, the same names and signatures as ``attn_tutor.torch``.

These conventions hold for every function, whose docstring names only what goes beyond them:

- Tokens are rows, (…, n, d). Axes in front of the last two are batch axes, and they broadcast.
- Masks are boolean: True = may attend. A query that may attend to nothing gets weights 0 and output 0.
- ``causal`` is aligned lower right: of m keys, query i of n sees those up to i + m − n.
- Inputs are never changed. dtype and device of the result are those of the inputs; whole numbers become floats.
- Arguments are checked first. An array that is not this half's, or a count that is no whole number, is a ``TypeError``;
  a shape that does not fit, or a number out of range, is a ``ValueError``. The message names the function, the
  argument, what it got and what it needs.
"""

# ruff: noqa: F403 — what is public stands in each module's own __all__
# A module is private where a function of its name would hide it.

from attn_tutor.numpy._attention import *
from attn_tutor.numpy._linear_attention import *
from attn_tutor.numpy._merge import *
from attn_tutor.numpy._self_attention import *
from attn_tutor.numpy._softmax import *
from attn_tutor.numpy.cache import *
from attn_tutor.numpy.decoding import *
from attn_tutor.numpy.gradients import *
from attn_tutor.numpy.kernels import *
from attn_tutor.numpy.latent import *
from attn_tutor.numpy.masks import *
from attn_tutor.numpy.multi_head import *
from attn_tutor.numpy.positional import *
from attn_tutor.numpy.quantized import *
from attn_tutor.numpy.rules import *
from attn_tutor.numpy.scoring import *
from attn_tutor.numpy.sinks import *
from attn_tutor.numpy.speculative import *

__all__ = sorted(k for k, x in globals().items() if callable(x) and k[0] != "_")
