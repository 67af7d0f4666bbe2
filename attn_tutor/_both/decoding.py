"""Greedy, exhaustive and beam search: k sentences for each of b prefixes, with their log-probabilities, (b, k)."""

from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any

from attn_tutor._checks import require_log_p, require_search, require_size

Step = Callable[[Any], Any]
MOST_SENTENCES = 10**6  # sentences that an exhaustive search looks at


def greedy_search(
    xp: Any, step: Step, prefix: Any, end: int, max_len: int
) -> tuple[Any, Any]:
    tokens, scores, totals = _begin(xp, "greedy_search", step, prefix, end, max_len)
    for _ in range(max_len):
        total = totals(tokens, scores)
        last, scores = total.argmax(-1), xp.amax(total, -1)  # (b, 1)
        tokens = xp.concatenate([tokens, last[..., None]], -1)
        if (last == end).all():
            break
    return tokens[:, 0], scores[:, 0]


def exhaustive_search(
    xp: Any, step: Step, prefix: Any, end: int, max_len: int
) -> tuple[Any, Any]:
    tokens, scores, totals = _begin(xp, "exhaustive_search", step, prefix, end, max_len)
    for _ in range(max_len):
        total = totals(tokens, scores)
        b, k, n_tokens = total.shape
        # At most 2^20 as the power: a million is passed by then, and 10^(10^9) takes years.
        if n_tokens ** min(max_len, 20) > MOST_SENTENCES:
            raise ValueError(
                f"exhaustive_search: {n_tokens}^{max_len} sentences are more than {MOST_SENTENCES}; use beam_search"
            )
        # Every sentence so far with every next token, in the order of the scores.
        before = xp.repeat(tokens, n_tokens, 1)
        last = xp.arange(n_tokens, device=tokens.device)[:, None]
        tokens = xp.concatenate([before, xp.tile(last, (b, k, 1))], -1)
        scores = total.reshape(b, k * n_tokens)
    best = scores.argmax(-1)
    rows = xp.arange(len(best), device=best.device)
    return tokens[rows, best], scores[rows, best]


def beam_search(
    xp: Any, step: Step, prefix: Any, end: int, max_len: int, beam_width: int
) -> tuple[Any, Any]:
    require_size("beam_search", "beam_width", beam_width, least=1)
    tokens, scores, totals = _begin(xp, "beam_search", step, prefix, end, max_len)
    for _ in range(max_len):
        total = totals(tokens, scores)
        b, k, n_tokens = total.shape
        scores = total.reshape(b, k * n_tokens)
        # Stable, so that of equal ones the first is taken.
        order = xp.argsort(-scores, stable=True)[:, :beam_width]
        parents, last = order // n_tokens, order % n_tokens  # (b, k)
        rows = xp.arange(b, device=order.device)[:, None]
        tokens = xp.concatenate([tokens[rows, parents], last[..., None]], -1)
        scores = scores[rows, order]
        if ((last == end) | (scores == -inf)).all():
            break
    b, k, T = tokens.shape
    missing = beam_width - k  # places for which there are no sentences
    nothing = xp.full((b, missing), -inf, dtype=scores.dtype, device=scores.device)
    scores = xp.concatenate([scores, nothing], -1)
    ends = xp.full((b, missing, T), end, dtype=tokens.dtype, device=tokens.device)
    tokens = xp.concatenate([tokens, ends], 1)
    return xp.where(scores[..., None] == -inf, end, tokens), scores


def _begin(
    xp: Any, where: str, step: Step, prefix: Any, end: int, max_len: int
) -> tuple[Any, Any, Callable[[Any, Any], Any]]:
    """One empty sentence for each prefix, with probability 1; and what scores its continuations."""
    xp.require_whole(where, "prefix", prefix, "holds tokens, whole numbers;")
    require_search(where, prefix.shape, end, max_len)
    prefix = xp.asarray(prefix, dtype=xp.int64)[:, None]
    scores = xp.zeros(prefix.shape[:2], dtype=xp.float32, device=prefix.device)
    return prefix[..., :0], scores, partial(_totals, xp, where, step, prefix, end)


def _totals(
    xp: Any, where: str, step: Step, prefix: Any, end: int, tokens: Any, scores: Any
) -> Any:
    """Log-probabilities with each next token, (b, k, n_tokens). After an end comes only another, at no cost."""
    before = xp.broadcast_to(prefix, (*tokens.shape[:2], prefix.shape[-1]))
    log_p = step(xp.concatenate([before, tokens], -1))
    xp.require_array(where, "what step returns", log_p)
    require_log_p(where, log_p, tokens.shape, end)
    over = (tokens == end).any(-1)[..., None]  # (b, k, 1)
    is_end = xp.arange(log_p.shape[-1], device=log_p.device) == end
    stay = xp.where(is_end, scores[..., None], -inf)
    return xp.where(over, stay, scores[..., None] + log_p)
