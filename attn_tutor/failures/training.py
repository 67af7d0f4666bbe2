"""Checks of what stands round a model in training and in writing: targets, losses, labels, scores of sentences."""

import copy
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from attn_tutor.failures.finding import Finding
from attn_tutor.failures.program import arguments, numbers_of, undisturbed

__all__ = [
    "counts_pads",
    "depends_on_cut",
    "hides_the_end",
    "learns_noise",
    "misses_the_next_token",
    "prefers_short",
]

Pairs = Callable[[Tensor], tuple[Tensor, Tensor]]


def next_token(ids: Tensor) -> tuple[Tensor, Tensor]:
    return ids[:, :-1], ids[:, 1:]


def misses_the_next_token(pairs: Pairs) -> Finding:
    """Whether the target of a position is another than the token after it.

    Args:
        pairs: takes ids (b, n) and returns inputs and targets.

    Returns:
        A finding, true if targets are the inputs, the tokens after the next or before, or begin the text anew.

    Example:
        >>> misses_the_next_token(lambda ids: (ids, ids)).cause
        'targets not moved'
    """
    inputs, targets = pairs(torch.arange(9) + torch.tensor([[0], [50]]))
    if inputs.shape != targets.shape:
        says = f"Inputs are {tuple(inputs.shape)} and targets {tuple(targets.shape)}."
        return Finding("misses_the_next_token", "shapes do not fit", says)
    wrong = (targets != inputs + 1) & (targets >= 0)  # a negative one is left out
    if not wrong.any():
        return Finding("misses_the_next_token")
    inputs, targets = inputs[wrong], targets[wrong]
    ahead = int((targets - inputs).mode().values)
    cause = {0: "targets not moved", -1: "targets one back", 2: "targets moved twice"}
    says = f"To token {inputs[0]} belongs the target {targets[0]}."
    return Finding(
        "misses_the_next_token", cause.get(ahead, "targets wrap round"), says
    )


def learns_noise(
    model: nn.Module,
    vocabulary: int,
    pairs: Pairs = next_token,
    *,
    steps: int = 100,
    lr: float = 0.01,
    n: int = 9,
) -> Finding:
    r"""Whether a copy of the model, trained on random tokens, gets below the loss of a blind guess.

    .. math:: L < 0.9\, \ln(\text{vocabulary})

    Args:
        model: takes ids and returns logits (b, n, vocabulary), or a tuple, dict or object that has them.
        vocabulary: number of tokens.
        pairs: takes ids and returns inputs and targets.
        steps: of Adam, with 64 texts each.
        lr: its learning rate.
        n: tokens of each text.

    Returns:
        A finding, true if it learns: the answer leaks.

    Example:
        >>> table = torch.nn.Embedding(5, 5)
        >>> bool(learns_noise(table, 5)), bool(learns_noise(table, 5, lambda ids: (ids, ids), lr=0.1))
        (False, True)
    """
    pupil, losses = copy.deepcopy(model), []
    generator = torch.Generator().manual_seed(0)
    device = next(pupil.parameters()).device
    adam = torch.optim.Adam(pupil.parameters(), lr)
    with undisturbed(pupil, True, 0), torch.enable_grad():
        for _ in range(steps):
            ids = torch.randint(vocabulary, (64, n), generator=generator).to(device)
            inputs, targets = pairs(ids)
            positional, named = arguments(pupil, inputs)
            logits = numbers_of(pupil(*positional, **named))
            loss = cross_entropy(logits.flatten(0, -2), targets.flatten())
            adam.zero_grad(), loss.backward(), adam.step()
            losses.append(loss.item())
    share = sum(losses[-10:]) / len(losses[-10:]) / math.log(vocabulary)
    if share > 0.9:
        return Finding("learns_noise")
    says = (
        f"On random tokens the loss falls to {share:.1f} times that of a blind guess."
    )
    return Finding("learns_noise", "noise is learnt", says)


def counts_pads(mean: Callable[[Tensor, Tensor], Tensor]) -> Finding:
    """Whether a mean over words changes with one more column of pads.

    Args:
        mean: takes numbers (b, n) and booleans (b, n), True at words.

    Returns:
        A finding, true if it changes.

    Example:
        >>> counts_pads(lambda losses, words: (losses * words).mean()).cause
        'pads are counted'
    """
    losses = torch.tensor([[1.0, 1, 0, 0, 0], [3, 3, 3, 3, 3]])
    words = torch.arange(5) < torch.tensor([[2], [5]])
    wider = [nn.functional.pad(x, (0, 1)) for x in (losses, words)]
    one, other = float(mean(losses, words)), float(mean(*wider))
    if math.isclose(one, other, rel_tol=1e-5):
        return Finding("counts_pads")
    says = f"One more column of pads changes the mean from {one:.2f} to {other:.2f}."
    return Finding("counts_pads", "pads are counted", says)


def depends_on_cut(loss: Callable[[Sequence[Tensor]], Tensor]) -> Finding:
    """Whether a loss changes with how its batch is cut into micro-batches.

    Args:
        loss: takes the losses of tokens, a tensor for each micro-batch, and returns that of the step.

    Returns:
        A finding, true if it changes.

    Example:
        >>> depends_on_cut(lambda parts: sum(x.mean() for x in parts) / len(parts)).cause
        'loss depends on the cut'
    """
    losses = torch.tensor([1.0, 1, 3, 3, 3, 3, 3])
    whole, cut = (float(loss(x)) for x in ([losses], losses.split([2, 5])))
    if math.isclose(whole, cut, rel_tol=1e-5):
        return Finding("depends_on_cut")
    says = f"Seven tokens at once have the loss {whole:.2f}, in parts of two and five {cut:.2f}."
    return Finding("depends_on_cut", "loss depends on the cut", says)


def hides_the_end(
    labels: Callable[[Tensor, Tensor, int], Tensor], end: int = 2
) -> Finding:
    """Whether labels leave out the end of a text, because it looks like a pad.

    Args:
        labels: takes ids (b, n), the lengths of the texts with their end, and the end token, which is the pad too;
            returns labels (b, n) in which what is not learnt is negative.
        end: the end token.

    Returns:
        A finding, true if a text has not exactly one end to learn.

    Example:
        >>> hides_the_end(lambda ids, lengths, end: ids.masked_fill(ids == end, -100)).cause
        'end never taught'
    """
    ids = torch.tensor([[end + 5, end + 6, end + 7, end], [end + 3, end, end, end]])
    ends = (labels(ids, torch.tensor([4, 2]), end) == end).sum(-1).tolist()
    if ends == [1, 1]:
        return Finding("hides_the_end")
    says = f"Two texts with one end each have {ends[0]} and {ends[1]} to learn."
    return Finding("hides_the_end", "end never taught", says)


def prefers_short(score: Callable[[Sequence[float]], float]) -> Finding:
    """Whether a sentence scores higher for being shorter.

    Args:
        score: takes the probabilities of a sentence's tokens.

    Returns:
        A finding, true if two equally likely tokens score higher than seven.

    Example:
        >>> prefers_short(lambda p: sum(map(math.log, p))).cause
        'short is better'
    """
    short, long = float(score([0.5] * 2)), float(score([0.5] * 7))
    if short <= long + 1e-6:
        return Finding("prefers_short")
    says = f"Two tokens of probability ½ score {short:.2f}, seven {long:.2f}."
    return Finding("prefers_short", "short is better", says)
