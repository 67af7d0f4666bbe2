"""Attention in torch: the names and signatures of ``attn_tutor.numpy``, with autograd, CUDA and modules."""

from attn_tutor.torch.attention import (
    additive_attention,
    attend,
    attention,
    attention_weights,
    bilinear_attention,
    gaussian_attention,
    nadaraya_watson,
)
from attn_tutor.torch.cache import KVCache
from attn_tutor.torch.decoding import beam_search, exhaustive_search, greedy_search
from attn_tutor.torch.kernels import (
    boxcar_kernel,
    epanechnikov_kernel,
    gaussian_kernel,
    triangular_kernel,
)
from attn_tutor.torch.layers.attention import (
    AdditiveAttention,
    BilinearAttention,
    SelfAttention,
)
from attn_tutor.torch.layers.block import Block
from attn_tutor.torch.layers.multi_head import MultiHeadAttention
from attn_tutor.torch.layers.positional import PositionalEncoding
from attn_tutor.torch.masks import causal_mask, padding_mask
from attn_tutor.torch.models.encoder_decoder import EncoderDecoder, translation_loss
from attn_tutor.torch.models.language_model import LanguageModel
from attn_tutor.torch.models.training import History, train
from attn_tutor.torch.models.transformer_translator import TransformerTranslator
from attn_tutor.torch.models.translator import Translator
from attn_tutor.torch.models.weights import load_weights, save_weights
from attn_tutor.torch.multi_head import (
    merge_heads,
    multi_head_attention,
    multi_head_weights,
    split_heads,
)
from attn_tutor.torch.positional import alibi_bias, rotary, sinusoidal_encoding
from attn_tutor.torch.scoring import (
    additive_score,
    bilinear_score,
    dot_score,
    gaussian_score,
    scaled_dot_score,
)
from attn_tutor.torch.self_attention import cross_attention, self_attention
from attn_tutor.torch.softmax import masked_softmax, normalize, softmax

__all__ = [
    "AdditiveAttention",
    "BilinearAttention",
    "Block",
    "EncoderDecoder",
    "History",
    "KVCache",
    "LanguageModel",
    "MultiHeadAttention",
    "PositionalEncoding",
    "SelfAttention",
    "TransformerTranslator",
    "Translator",
    "additive_attention",
    "additive_score",
    "alibi_bias",
    "attend",
    "attention",
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
    "load_weights",
    "masked_softmax",
    "merge_heads",
    "multi_head_attention",
    "multi_head_weights",
    "nadaraya_watson",
    "normalize",
    "padding_mask",
    "rotary",
    "save_weights",
    "scaled_dot_score",
    "self_attention",
    "sinusoidal_encoding",
    "softmax",
    "split_heads",
    "train",
    "translation_loss",
    "triangular_kernel",
]
