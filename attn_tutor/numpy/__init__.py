"""Attention in NumPy: one module a chapter, the same names and signatures as ``attn_tutor.torch``."""

# ruff: noqa: F403 — what is public stands in each module's own __all__

from attn_tutor.numpy.attention import *
from attn_tutor.numpy.cache import *
from attn_tutor.numpy.decoding import *
from attn_tutor.numpy.gradients import *
from attn_tutor.numpy.kernels import *
from attn_tutor.numpy.latent import *
from attn_tutor.numpy.linear_attention import *
from attn_tutor.numpy.masks import *
from attn_tutor.numpy.merge import *
from attn_tutor.numpy.multi_head import *
from attn_tutor.numpy.positional import *
from attn_tutor.numpy.quantized import *
from attn_tutor.numpy.rules import *
from attn_tutor.numpy.scoring import *
from attn_tutor.numpy.self_attention import *
from attn_tutor.numpy.softmax import *
from attn_tutor.numpy.speculative import *

__all__ = sorted(k for k, x in globals().items() if callable(x) and k[0] != "_")
