"""How the reader's program is called: found in what it returns, and left as it was."""

# ruff: noqa: NPY002 — the state looked after is the one that programs without a Generator draw from

import inspect
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

Model = Callable[..., Any]
Side = Literal["left", "right"]
ENOUGH = 4, 12  # sentences and tokens that a check looks at, at most
WRAPPERS = nn.DataParallel, nn.parallel.DistributedDataParallel
NAMES = "logits", "last_hidden_state", "prediction_logits"
MASKS: dict[str, Callable[[Tensor], Tensor]] = {  # as each library means it
    "attention_mask": lambda words: words.long(),
    "src_key_padding_mask": lambda words: ~words,
    "key_padding_mask": lambda words: ~words,
}


def modules_of(model: Model) -> list[nn.Module]:
    """The module itself, or those that a function names or holds."""
    if isinstance(model, nn.Module):
        return [model]
    model = getattr(model, "func", model)  # of a functools.partial
    held: list[Any] = [model, getattr(model, "__self__", None)]
    if inspect.isfunction(model):
        seen = inspect.getclosurevars(model)
        held += [*seen.nonlocals.values(), *seen.globals.values()]
    return [x for x in held if isinstance(x, nn.Module)]


@contextmanager
def undisturbed(model: Model, training: bool, seed: int | None) -> Iterator[None]:
    """Modes, buffers and the random states of torch, NumPy and Python are afterwards what they were."""
    owners = modules_of(model)
    modules = [m for owner in owners for m in owner.modules()]
    modes = [m.training for m in modules]
    buffers = [
        (m, name, b, b.clone())
        for m in modules
        for name, b in m._buffers.items()
        if b is not None
    ]
    states = random.getstate(), np.random.get_state()
    devices = {p.device for m in modules for p in m.parameters(recurse=False)}
    cuda = [d for d in devices if d.type == "cuda"]
    try:
        with torch.random.fork_rng(cuda):
            if seed is not None:
                torch.manual_seed(seed), random.seed(seed), np.random.seed(seed)
            for owner in owners:
                owner.train(training)  # its own train() may keep a part in eval
            yield
    finally:
        for m, mode in zip(modules, modes, strict=True):
            m.training = mode
        for m, name, buffer, value in buffers:
            m._buffers[name] = buffer  # a call may put another in its place
            buffer.data.copy_(value)  # unseen by autograd, which may still go backward
        random.setstate(states[0]), np.random.set_state(states[1])


def numbers_of(out: Any) -> Tensor:
    """The logits or hidden states in what a model returns: a tensor, a tuple, a dict, an object with names."""
    if isinstance(out, np.ndarray):
        return torch.from_numpy(out)
    if isinstance(out, Tensor):
        return out
    for name in NAMES:
        if (found := getattr(out, name, None)) is not None:
            return numbers_of(found)
        if isinstance(out, Mapping) and name in out:
            return numbers_of(out[name])
    parts = list(out.values() if isinstance(out, Mapping) else out)
    for part in parts:
        if (
            isinstance(part, Tensor | np.ndarray)
            and part.ndim  # a loss has none
            and numbers_of(part).is_floating_point()
        ):
            return numbers_of(part)
    raise TypeError(
        f"no tensor of real numbers in what the model returned: {type(out).__name__}"
    )


def answer(
    model: Model,
    tokens: Tensor,
    words: Tensor | None = None,
    *,
    training: bool = False,
    grad: bool = False,
    seed: int | None = 0,
) -> Tensor:
    """What the model says to tokens (b, n) or (b, n, d): (b, n, …), in double precision.

    ``words`` (b, n) is True at words and goes to the model's mask in the meaning of its library.
    """
    parameters = [p for m in modules_of(model) for p in m.parameters()]
    if parameters:
        tokens = tokens.to(parameters[0].device)
    positional, named = arguments(model, tokens, words)
    with undisturbed(model, training, seed), torch.set_grad_enabled(grad):
        out = numbers_of(model(*positional, **named))
    return out.double()


def shrunk(
    model: Model,
    tokens: Tensor,
    words: Tensor | None = None,
    *,
    training: bool = False,
    times: float = 0.01,
) -> Tensor:
    """The answer with a hundredth of all parameters, which are then put back, and of tokens that are vectors."""
    kept = {p: p.detach().clone() for m in modules_of(model) for p in m.parameters()}
    try:
        for p in kept:
            p.data.mul_(times)
        X = tokens.detach() * times if tokens.is_floating_point() else tokens
        return answer(model, X, words, training=training)
    finally:
        for p, value in kept.items():
            p.data.copy_(value)


def arguments(
    model: Model, tokens: Tensor, words: Tensor | None = None
) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Tokens and mask, by place or by name. A model that insists on a mask gets one without pads."""
    call: Any = model
    while isinstance(call, nn.Module):  # of torch.compile, of DataParallel
        inner = getattr(call, "_orig_mod", getattr(call, "module", None))
        wraps = isinstance(call, WRAPPERS) or hasattr(call, "_orig_mod")
        call = inner if wraps else call.forward
    try:
        first, *others = inspect.signature(call).parameters.values()
    except ValueError:  # a function written in C, or one that takes all in **options
        first, others = None, []
    positional, named = [tokens], dict[str, Tensor]()
    if first is not None and first.kind == first.KEYWORD_ONLY:  # so are all others
        every = [x for x in (first, *others) if x.kind == x.KEYWORD_ONLY]
        free = [x for x in every if x.name not in MASKS]
        first = min(free, key=lambda x: x.default is not x.empty)  # one that it needs
        positional, named = [], {first.name: tokens}
        others = [x for x in every if x is not first]
    others = [x for x in others if x.kind not in (x.VAR_POSITIONAL, x.VAR_KEYWORD)]
    if words is None:
        if not others or others[0].default is not inspect.Parameter.empty:
            return positional, named
        words = torch.ones(tokens.shape[:2], dtype=torch.bool)
    words = words.to(tokens.device)
    for other in others:
        if other.name in MASKS:
            return positional, named | {other.name: MASKS[other.name](words)}
    if not positional and others:
        return [], named | {others[0].name: words}
    return [*positional, words], named


def words_of(n: int, pads: Side) -> Tensor:
    """As many sentences as tokens, of all lengths, the first of them whole."""
    lengths = torch.randperm(n - 1, generator=torch.Generator().manual_seed(0)) + 1
    right = torch.arange(n) < torch.cat([torch.tensor([n]), lengths])[:, None]
    return right if pads == "right" else right.flip(1)


def square(tokens: Any) -> Tensor:
    """A batch as large as its sentences are long, so that a mask of (b, m) fits where (n, m) is meant."""
    tokens = sample(tokens)
    n = min(tokens.shape[1], 7)
    return drawn(tokens, n, n)


def batch(tokens: Any, pads: Side | None) -> tuple[Tensor, Tensor | None]:
    """What a check looks at: some tokens without a mask, or sentences among pads, and the mask that tells."""
    if pads is None:
        return sample(tokens), None
    X = square(tokens)
    return X, words_of(len(X), pads).to(X.device)


def titled(check: str, pads: Side | None) -> str:
    return check + " with pads" * (pads is not None)


def at_words(table: Tensor, words: Tensor | None) -> Tensor:
    """Of a table (b, n, …), or one without an output for each token, what lies at words; elsewhere False."""
    if words is None or table.shape[:2] != words.shape:
        return table
    return table & words.to(table.device).view(*words.shape, *[1] * (table.ndim - 2))


def sample(tokens: Any) -> Tensor:
    """The first 12 tokens of the first 4 sentences, where each token is changed by itself."""
    b, n = ENOUGH
    return uncut(tokens)[:b, :n].clone()


def uncut(tokens: Any) -> Tensor:
    """All the reader's tokens, as a tensor."""
    tokens = torch.as_tensor(tokens)
    vectors = tokens.is_floating_point()
    if tokens.ndim != 2 + vectors or min(tokens.shape[:2]) < 2:
        raise ValueError(
            f"tokens have shape {tuple(tokens.shape)} but need (b, n) of ids or (b, n, d) of vectors, b and n above 1"
        )
    if not vectors and len(tokens.unique()) < 2:
        raise ValueError("tokens are all the same; give some that differ")
    return tokens


def drawn(tokens: Tensor, b: int, n: int) -> Tensor:
    """Other tokens of the same kind, (b, n, …): ids that occur in these, or vectors as large."""
    generator = torch.Generator().manual_seed(7)
    if tokens.is_floating_point():
        shape = b, n, tokens.shape[-1]
        noise = torch.randn(shape, generator=generator, dtype=torch.float64)
        return (noise * tokens.double().std().cpu()).to(tokens)
    kinds = tokens.unique()
    picked = torch.randint(len(kinds), (b, n), generator=generator)
    return kinds[picked.to(kinds.device)]


def changed(tokens: Tensor) -> Tensor:
    """Each token replaced by another of its kind."""
    if tokens.is_floating_point():
        return tokens.roll(1, -1) * -1 + tokens.std()
    kinds = tokens.unique()
    return kinds[(torch.searchsorted(kinds, tokens.contiguous()) + 1) % len(kinds)]


def moved(
    one: Tensor, other: Tensor, like: torch.dtype, roundings: float = 1000
) -> Tensor:
    """(b, n, …) twice -> (b, n): where they lie apart by more than rounding in the dtype of the parameters."""
    slack = min(roundings * torch.finfo(like).eps, 0.05)
    size = torch.nan_to_num(one, 0, 0, 0).abs().max().clamp(min=1e-6)
    gap = (one - other).abs()
    gap = torch.where(one.isnan() != other.isnan(), torch.inf, gap.nan_to_num(0.0))
    apart = gap > slack * size
    return apart.flatten(2).any(-1) if apart.ndim > 2 else apart.any(-1, keepdim=True)


def dtype_of(model: Model, tokens: Tensor) -> torch.dtype:
    kinds = [p.dtype for m in modules_of(model) for p in m.parameters()]
    kinds += [tokens.dtype] if tokens.is_floating_point() else []
    return kinds[0] if kinds else torch.float32
