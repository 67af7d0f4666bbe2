"""Search for a likely sentence, token by token: greedy, exhaustive and beam search over any model of the next token."""

from collections.abc import Callable

import torch

from attn_tutor._both import decoding
from attn_tutor.torch import _backend as xp

__all__ = ["beam_search", "exhaustive_search", "greedy_search"]

Step = Callable[[torch.Tensor], torch.Tensor]


def greedy_search(
    step: Step, prefix: torch.Tensor, end: int, max_len: int
) -> tuple[torch.Tensor, torch.Tensor]:
    r"""Take the likeliest next token, again and again.

    .. math:: y_t = \operatorname{arg\,max}_{y} \log p(y \mid y_1, \dots, y_{t-1})

    Source: beam search of width 1 in Sutskever et al. (2014), section 3.2.

    Args:
        step: takes the tokens so far, (b, k, t), and returns log-probabilities of the next one, (b, k, n_tokens).
        prefix: tokens that stand before the sentences, (b, t); t may be 0.
        end: the token that ends a sentence.
        max_len: how many tokens a sentence may have, its end included.

    Returns:
        The tokens without the prefix, (b, T), ``end`` after the first ``end``; and their log-probabilities, (b,).
        As soon as all sentences have ended the search stops, so that T is at most ``max_len``.

    Raises:
        TypeError: ``prefix`` or ``end`` is not of whole numbers, or ``step`` returns no array of this half.
        ValueError: ``step`` returns another shape, or what cannot be log-probabilities; ``end`` is no token.

    Example:
        >>> def step(tokens):  # 0, or 1 that ends: 0 is three times as likely
        ...     return torch.tensor([[[-0.29, -1.39]] * tokens.shape[1]])
        >>> tokens, scores = greedy_search(step, torch.tensor([[1]]), end=1, max_len=3)
        >>> tokens.tolist(), round(scores.item(), 2)
        ([[0, 0, 0]], -0.87)
    """
    return decoding.greedy_search(xp, step, prefix, end, max_len)


def exhaustive_search(
    step: Step, prefix: torch.Tensor, end: int, max_len: int
) -> tuple[torch.Tensor, torch.Tensor]:
    r"""Score every sentence, and take the likeliest.

    .. math:: \hat y = \operatorname{arg\,max}_{y_1 \dots y_T} \sum_t \log p(y_t \mid y_1, \dots, y_{t-1})

    Source: what beam search approximates in Sutskever et al. (2014), section 3.2. It scores n_tokens^T sentences.

    Args:
        step: takes the tokens so far, (b, k, t), and returns log-probabilities of the next one, (b, k, n_tokens).
        prefix: tokens that stand before the sentences, (b, t); t may be 0.
        end: the token that ends a sentence.
        max_len: how many tokens a sentence may have, its end included.

    Returns:
        The tokens without the prefix, (b, max_len), ``end`` after the first ``end``; and their log-probabilities, (b,).
        No sentence of at most ``max_len`` tokens has a higher one.

    Raises:
        TypeError: ``prefix`` or ``end`` is not of whole numbers, or ``step`` returns no array of this half.
        ValueError: as in :func:`greedy_search`; or there are more than a million sentences.

    Example:
        >>> def step(tokens):  # 0, or 1 that ends: 0 is three times as likely
        ...     return torch.tensor([[[-0.29, -1.39]] * tokens.shape[1]])
        >>> tokens, scores = exhaustive_search(step, torch.tensor([[1]]), end=1, max_len=3)
        >>> tokens.tolist(), round(scores.item(), 2)
        ([[0, 0, 0]], -0.87)
    """
    return decoding.exhaustive_search(xp, step, prefix, end, max_len)


def beam_search(
    step: Step, prefix: torch.Tensor, end: int, max_len: int, beam_width: int
) -> tuple[torch.Tensor, torch.Tensor]:
    r"""Keep the k likeliest beginnings, and in each step the k likeliest of all their continuations.

    A sentence that has ended keeps its score and its place among the k, for as long as no k others are likelier.

    .. math:: B_t = \operatorname{top}_k \{ (y, y_t) : y \in B_{t-1},\ y_t \in Y \}
        \quad\text{by}\quad \sum_{i \le t} \log p(y_i \mid y_1, \dots, y_{i-1})

    Source: Sutskever et al. (2014), section 3.2. It scores at most k · n_tokens · T continuations.

    Args:
        step: takes the tokens so far, (b, k, t), and returns log-probabilities of the next one, (b, k, n_tokens).
        prefix: tokens that stand before the sentences, (b, t); t may be 0.
        end: the token that ends a sentence.
        max_len: how many tokens a sentence may have, its end included.
        beam_width: how many sentences to keep, k. With 1 this is :func:`greedy_search`.

    Returns:
        The k sentences, the likeliest first, without the prefix, (b, k, T), ``end`` after the first ``end``; and their
        log-probabilities, (b, k). Where there are fewer sentences than k, the rest has −inf and holds ``end`` alone.

    Raises:
        TypeError: ``prefix`` or ``end`` is not of whole numbers, or ``step`` returns no array of this half.
        ValueError: as in :func:`greedy_search`; or ``beam_width`` is below 1.

    Example:
        >>> def step(tokens):  # 0, or 1 that ends: 0 is three times as likely
        ...     return torch.tensor([[[-0.29, -1.39]] * tokens.shape[1]])
        >>> tokens, scores = beam_search(step, torch.tensor([[1]]), end=1, max_len=3, beam_width=2)
        >>> tokens.tolist(), [round(score, 2) for score in scores[0].tolist()]
        ([[[0, 0, 0], [1, 1, 1]]], [-0.87, -1.39])
    """
    return decoding.beam_search(xp, step, prefix, end, max_len, beam_width)
