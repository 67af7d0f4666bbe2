"""Attention in torch: the names and signatures of ``attn_tutor.numpy``, with autograd, CUDA and modules."""

# ruff: noqa: F403 — what is public stands in each module's own __all__

from attn_tutor.torch.attention import *
from attn_tutor.torch.cache import *
from attn_tutor.torch.decoding import *
from attn_tutor.torch.encoder_decoder import *
from attn_tutor.torch.kernels import *
from attn_tutor.torch.language_model import *
from attn_tutor.torch.masks import *
from attn_tutor.torch.modules import *
from attn_tutor.torch.multi_head import *
from attn_tutor.torch.positional import *
from attn_tutor.torch.scoring import *
from attn_tutor.torch.self_attention import *
from attn_tutor.torch.seq2seq import *
from attn_tutor.torch.softmax import *
from attn_tutor.torch.training import *
from attn_tutor.torch.transformer import *
from attn_tutor.torch.weights import *

__all__ = sorted(k for k, x in globals().items() if callable(x) and k[0] != "_")
