"""Checkers for your own solutions of the book's exercises, in NumPy or in torch.

``check.softmax(my_softmax)`` tries the function on chosen inputs. It prints one line and returns True if all is right;
otherwise it says which mistake it sees, with the smallest input that shows it, and returns False.

``python -m attn_tutor.check`` lists the exercises, ``python -m attn_tutor.check my_solutions.py`` checks a file.
"""

from attn_tutor.check.backwards import (
    bilinear_score_vjp,
    log_softmax_vjp,
    numerical_gradient,
    self_attention_vjp,
)
from attn_tutor.check.decoding import beam, exact_match, greedy, previous_symbols
from attn_tutor.check.exercise import Exercise
from attn_tutor.check.heads import (
    contributions,
    merge_heads,
    multi_head,
    multi_head_attention,
    split,
    split_heads,
)
from attn_tutor.check.pooling import (
    boxcar_kernel,
    epanechnikov_kernel,
    gaussian_kernel,
    nadaraya_watson,
    neighbour_weights,
    normalize,
    triangular_kernel,
)
from attn_tutor.check.positions import (
    alibi_bias,
    encode,
    previous_weights,
    rotary,
    sinusoidal_encoding,
    squeezed,
    to_halves,
)
from attn_tutor.check.regression import local_line_weights
from attn_tutor.check.scores import (
    additive_by_query,
    additive_score,
    bilinear_score,
    find_temperature,
    gaussian_score,
    scaled_dot_score,
    widen,
    with_products,
)
from attn_tutor.check.tiles import (
    causal_tiles,
    merge,
    quotient_scores,
    score_bound,
)
from attn_tutor.check.tokens import (
    attention,
    permutation_gap,
    sees_future,
    self_attention,
    step,
)
from attn_tutor.check.transformer import (
    layer_norm,
    next_token_loss,
    top_k,
    windows,
)
from attn_tutor.check.visibility import (
    causal_mask,
    left_padding_mask,
    padding_mask,
    window_mask,
)
from attn_tutor.check.weights import (
    masked_softmax,
    softmax,
    softmax_plus_one,
    softmax_vjp,
)

EXERCISES: dict[str, Exercise] = {
    x.name: x for x in list(vars().values()) if isinstance(x, Exercise)
}

__all__ = [
    "additive_by_query",
    "additive_score",
    "alibi_bias",
    "attention",
    "beam",
    "bilinear_score",
    "bilinear_score_vjp",
    "boxcar_kernel",
    "causal_mask",
    "causal_tiles",
    "contributions",
    "encode",
    "epanechnikov_kernel",
    "exact_match",
    "find_temperature",
    "gaussian_kernel",
    "gaussian_score",
    "greedy",
    "layer_norm",
    "left_padding_mask",
    "local_line_weights",
    "log_softmax_vjp",
    "masked_softmax",
    "merge",
    "merge_heads",
    "multi_head",
    "multi_head_attention",
    "nadaraya_watson",
    "neighbour_weights",
    "next_token_loss",
    "normalize",
    "numerical_gradient",
    "padding_mask",
    "permutation_gap",
    "previous_symbols",
    "previous_weights",
    "quotient_scores",
    "rotary",
    "scaled_dot_score",
    "score_bound",
    "sees_future",
    "self_attention",
    "self_attention_vjp",
    "sinusoidal_encoding",
    "softmax",
    "softmax_plus_one",
    "softmax_vjp",
    "split",
    "split_heads",
    "squeezed",
    "step",
    "to_halves",
    "top_k",
    "triangular_kernel",
    "widen",
    "window_mask",
    "windows",
    "with_products",
]
