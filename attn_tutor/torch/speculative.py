"""Speculative decoding: a small model guesses several tokens, and a large one checks them all at once."""

import torch

from attn_tutor._checks import require_draft
from attn_tutor.torch._arrays import require_array, require_whole

__all__ = ["accept_draft"]


def accept_draft(
    target: torch.Tensor,
    draft: torch.Tensor,
    tokens: torch.Tensor,
    uniform: torch.Tensor,
) -> torch.Tensor:
    r"""Keep guessed tokens so that what is written has exactly the distribution of the large model.

    .. math:: P(\text{keep } y) = \min\left(1, \frac{p(y)}{q(y)}\right), \qquad
        \text{else draw from } \frac{\max(0, p - q)}{\sum_{y'} \max(0, p(y') - q(y'))}

    A token y comes up with q(y) · min(1, p(y)/q(y)) as a guess that is kept, and with max(0, p(y) − q(y)) as a
    replacement: together p(y). Source: Leviathan et al. (2023), algorithm 1.

    Args:
        target: p, the large model's probabilities of each guessed token and of one more, (k + 1, n_tokens).
        draft: q, the small model's probabilities that the guesses were drawn from, (k, n_tokens).
        tokens: the k guesses, (k,).
        uniform: random numbers in [0, 1), (k + 1,): one for each guess, and one to draw the last token.

    Returns:
        The guesses up to the first that is refused, and one token more, (1,) to (k + 1,).

    Raises:
        TypeError: an argument is not an array of this half, or the tokens are not whole numbers.
        ValueError: the shapes do not fit, a token is not in the vocabulary, or a number not in [0, 1).

    Example:
        >>> p, q = torch.tensor([[0.5, 0.5], [1.0, 0.0]]), torch.tensor([[0.25, 0.75]])
        >>> accept_draft(p, q, torch.tensor([1]), torch.tensor([0.6, 0.0])).tolist()  # 0.6 < 0.5/0.75
        [1, 0]
        >>> accept_draft(p, q, torch.tensor([1]), torch.tensor([0.7, 0.0])).tolist()
        [0]
    """
    arrays = {"target": target, "draft": draft, "tokens": tokens, "uniform": uniform}
    for name, x in arrays.items():
        require_array("accept_draft", name, x)
    require_whole("accept_draft", "tokens", tokens)
    require_draft(**arrays)
    k = len(tokens)
    guess = torch.arange(k, device=tokens.device), tokens
    refused = uniform[:k] * draft[guess] >= target[guess]
    kept = int(refused.int().argmax()) if refused.any() else k
    left = target[kept]
    if kept < k:
        left = (left - draft[kept]).clamp(min=0)
    # p ≤ q everywhere can only be by rounding, and then they are equal.
    if not left.any():
        left = target[kept]
    upto = left.cumsum(0)
    drawn = torch.searchsorted(upto, uniform[k:] * upto[-1], side="right")
    return torch.cat([tokens[:kept], drawn.to(tokens.dtype)])
