"""Search for a likely sentence, token by token: greedy, exhaustive and beam search over any model of the next token."""

from collections.abc import Callable

import torch
from torch.nn.functional import pad

from attn_tutor._checks import require_log_p, require_search, require_size
from attn_tutor.torch._arrays import require_array, require_whole

__all__ = ["beam_search", "exhaustive_search", "greedy_search"]

Step = Callable[[torch.Tensor], torch.Tensor]
MOST_SENTENCES = 10**6  # sentences that an exhaustive search looks at


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
    prefix, tokens, scores = _begin("greedy_search", prefix, end, max_len)
    for _ in range(max_len):
        total = _totals("greedy_search", step, prefix, tokens, scores, end)
        last, scores = total.argmax(-1), total.amax(-1)  # (b, 1)
        tokens = torch.cat([tokens, last[..., None]], -1)
        if (last == end).all():
            break
    return tokens[:, 0], scores[:, 0]


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
    prefix, tokens, scores = _begin("exhaustive_search", prefix, end, max_len)
    for _ in range(max_len):
        total = _totals("exhaustive_search", step, prefix, tokens, scores, end)
        b, k, n_tokens = total.shape
        # At most 2^20 as the power: a million is passed by then, and 10^(10^9) takes years.
        if n_tokens ** min(max_len, 20) > MOST_SENTENCES:
            raise ValueError(
                f"exhaustive_search: {n_tokens}^{max_len} sentences are more than {MOST_SENTENCES}; use beam_search"
            )
        # Every sentence so far with every next token, in the order of the scores.
        before = tokens.repeat_interleave(n_tokens, 1)
        last = torch.arange(n_tokens, device=tokens.device)[:, None].repeat(b, k, 1)
        tokens = torch.cat([before, last], -1)
        scores = total.reshape(b, k * n_tokens)
    best = scores.argmax(-1)
    rows = torch.arange(b, device=tokens.device)
    return tokens[rows, best], scores[rows, best]


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
    require_size("beam_search", "beam_width", beam_width, least=1)
    prefix, tokens, scores = _begin("beam_search", prefix, end, max_len)
    for _ in range(max_len):
        total = _totals("beam_search", step, prefix, tokens, scores, end)
        b, k, n_tokens = total.shape
        # Of equal ones the first.
        every = total.reshape(b, k * n_tokens).sort(descending=True, stable=True)
        order, scores = every.indices[:, :beam_width], every.values[:, :beam_width]
        parents, last = order // n_tokens, order % n_tokens  # (b, k)
        rows = torch.arange(b, device=tokens.device)[:, None]
        tokens = torch.cat([tokens[rows, parents], last[..., None]], -1)
        impossible = scores == -torch.inf
        if ((last == end) | impossible).all():
            break
    tokens = torch.where(impossible[..., None], end, tokens)
    empty = beam_width - scores.shape[1]  # places for which there are no sentences
    tokens = pad(tokens, (0, 0, 0, empty), value=end)
    return tokens, pad(scores, (0, empty), value=-torch.inf)


def _begin(
    where: str, prefix: torch.Tensor, end: int, max_len: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The prefix, and one empty sentence for each row of the batch, with probability 1."""
    require_whole(where, "prefix", prefix, "holds tokens, whole numbers;")
    require_search(where, prefix.shape, end, max_len)
    prefix = prefix.long()
    b = len(prefix)
    scores = torch.zeros(b, 1, device=prefix.device)
    return prefix, prefix.new_empty(b, 1, 0), scores


def _totals(
    where: str,
    step: Step,
    prefix: torch.Tensor,
    tokens: torch.Tensor,
    scores: torch.Tensor,
    end: int,
) -> torch.Tensor:
    """Log-probabilities with each next token, (b, k, n_tokens). After an end comes only another, at no cost."""
    k = tokens.shape[1]
    before = torch.broadcast_to(prefix[:, None], (len(prefix), k, prefix.shape[1]))
    log_p = step(torch.cat([before, tokens], -1))
    require_array(where, "what step returns", log_p)
    require_log_p(where, log_p, tokens.shape, end)
    over = (tokens == end).any(-1, keepdim=True)  # (b, k, 1)
    is_end = torch.arange(log_p.shape[-1], device=log_p.device) == end
    stay = torch.where(is_end, scores[..., None], -torch.inf)
    return torch.where(over, stay, scores[..., None] + log_p)
