"""Attention in NumPy: one module a chapter, the same names and signatures as ``attn_tutor.torch``."""

from attn_tutor.numpy.attention import (
    additive_attention,
    attend,
    attention,
    attention_weights,
    bilinear_attention,
    gaussian_attention,
    nadaraya_watson,
)
from attn_tutor.numpy.cache import KVCache
from attn_tutor.numpy.decoding import beam_search, exhaustive_search, greedy_search
from attn_tutor.numpy.gradients import additive_score_vjp, attention_vjp, softmax_vjp
from attn_tutor.numpy.kernels import (
    boxcar_kernel,
    epanechnikov_kernel,
    gaussian_kernel,
    triangular_kernel,
)
from attn_tutor.numpy.masks import causal_mask, padding_mask
from attn_tutor.numpy.multi_head import (
    merge_heads,
    multi_head_attention,
    multi_head_weights,
    split_heads,
)
from attn_tutor.numpy.positional import alibi_bias, rotary, sinusoidal_encoding
from attn_tutor.numpy.scoring import (
    additive_score,
    bilinear_score,
    dot_score,
    gaussian_score,
    scaled_dot_score,
)
from attn_tutor.numpy.self_attention import cross_attention, self_attention
from attn_tutor.numpy.softmax import masked_softmax, normalize, softmax

__all__ = [
    "KVCache",
    "additive_attention",
    "additive_score",
    "additive_score_vjp",
    "alibi_bias",
    "attend",
    "attention",
    "attention_vjp",
    "attention_weights",
    "beam_search",
    "bilinear_attention",
    "bilinear_score",
    "boxcar_kernel",
    "causal_mask",
    "cross_attention",
    "dot_score",
    "epanechnikov_kernel",
    "exhaustive_search",
    "gaussian_attention",
    "gaussian_kernel",
    "gaussian_score",
    "greedy_search",
    "masked_softmax",
    "merge_heads",
    "multi_head_attention",
    "multi_head_weights",
    "nadaraya_watson",
    "normalize",
    "padding_mask",
    "rotary",
    "scaled_dot_score",
    "self_attention",
    "sinusoidal_encoding",
    "softmax",
    "softmax_vjp",
    "split_heads",
    "triangular_kernel",
]
