"""One training loop for all models of the book: seeded, to be stopped and taken up again at any time."""

import math
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import nn

from attn_tutor._checks import require_positive, require_size
from attn_tutor.torch.models.weights import read, require_folder, write

__all__ = ["History", "train"]

WARM_UP = 0.05  # of the steps
LARGEST_GRADIENT = 1.0
QUIET = "ATTN_TUTOR_QUIET"  # set, in the environment, where nobody watches


@dataclass
class History:
    """What :func:`train` saw at its checks.

    Args:
        steps: how many steps were done at each check.
        losses: mean training loss since the check before.
        scores: of the model then; empty without a score.
        best: the steps after which the weights were that the model has now.
        stopped: whether it was interrupted.

    Example:
        >>> History(steps=[10, 20], losses=[0.5, 0.1], best=20).losses[-1]
        0.1
    """

    steps: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    best: int = 0
    stopped: bool = False

    def latest(self) -> str:
        """The last loss and score, in words."""
        words = [f"loss {x:.3g}" for x in self.losses[-1:]]
        return ", ".join(words + [f"score {x:.3g}" for x in self.scores[-1:]])


def train(
    model: nn.Module,
    loss: Callable[[Any, Any], torch.Tensor],
    draw: Callable[[torch.Generator], Any],
    *,
    steps: int,
    lr: float = 3e-3,
    seed: int = 0,
    score: Callable[[Any], float] | None = None,
    every: int = 100,
    checkpoint: str | PathLike[str] | None = None,
    progress: bool = True,
) -> History:
    """Minimise a loss by AdamW, with a warm-up and a cosine fall of the learning rate, and clipped gradients.

    The model ends with its best weights, by score or else the last, in evaluation mode. An interrupt (Ctrl-C, or the
    stop button of a notebook) ends the training early and keeps the best weights until then. The same arguments give
    the same weights; the global random state stays as it was.

    Args:
        model: what to train, on whatever device it is; batches are moved there.
        loss: takes the model and a batch, returns a scalar.
        draw: makes a batch, a tensor or tensors in a tuple, list or dict, with the random numbers of the generator
            that it gets.
        steps: how many batches.
        lr: the highest learning rate.
        seed: of the generator, and of dropout.
        score: judges the model on data held out, in evaluation mode and without gradients; lower is better.
        every: steps from one check to the next. A check scores, keeps the best weights and writes the checkpoint.
        checkpoint: a file, whose folder must exist. If it is there, training goes on from it, on the CPU bit for bit
            as if never stopped.
            The file of a whole run keeps the best weights and the history alone, and serves every device.
        progress: show a bar, where there is a terminal or a notebook to show it in and ``ATTN_TUTOR_QUIET`` is not
            set in the environment.

    Returns:
        The losses and scores at the checks.

    Raises:
        ValueError: sizes that make no sense, a model with nothing to learn, or a checkpoint that is damaged or of
            another run.
        FileNotFoundError: the checkpoint's folder does not exist.
        FloatingPointError: the loss is not finite at a check, or the score NaN. The model keeps its best weights.

    Example:
        >>> line = torch.nn.Linear(1, 1)
        >>> def square(model, x):
        ...     return (model(x) - 2 * x).square().mean()
        >>> def numbers(generator):
        ...     return torch.randn(16, 1, generator=generator)
        >>> history = train(line, square, numbers, steps=300, lr=0.1)
        >>> round(line.weight.item(), 2)
        2.0
    """
    require_size("train", "steps", steps, least=1)
    require_size("train", "every", every, least=1)
    require_positive("train", "lr", lr)
    device = next((x.device for x in model.parameters() if x.requires_grad), None)
    if device is None:
        raise ValueError("train: the model has no parameters to learn")
    if checkpoint is not None:
        require_folder("train", checkpoint)
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        run: dict[str, Any] = {"steps": steps, "lr": lr, "seed": seed, "every": every}
        run |= {"score": score is not None, "device": device.type}
        state = State(model, device, run)
        for generator in state.generators:
            generator.manual_seed(seed)
        if checkpoint is not None and Path(checkpoint).exists():
            state.load(checkpoint)
        try:
            with progress_bar(steps, state.step, progress) as bar:
                while state.step < steps:
                    state.learn(loss, to(draw(state.generators[0]), device), lr)
                    if state.step % every == 0 or state.step == steps:
                        state.check(score)
                        if checkpoint is not None:
                            state.save(checkpoint)
                    if bar is not None:
                        bar.set_postfix_str(state.history.latest(), refresh=False)
                        bar.update()
        except KeyboardInterrupt:
            state.history.stopped = True
        finally:
            model.load_state_dict(state.best)
            model.eval()
    if state.history.stopped:
        print(
            f"Interrupted after step {state.step} of {steps}. The model has the weights of step {state.history.best}."
        )
    return state.history


def rate(step: int, steps: int) -> float:
    """The learning rate of a step as a share of the highest: a line up, then half a cosine down to almost 0."""
    warm = math.ceil(WARM_UP * steps)
    if step < warm:
        return (step + 1) / warm
    return (1 + math.cos(math.pi * (step - warm + 1) / (steps - warm + 1))) / 2


def progress_bar(steps: int, done: int, wanted: bool) -> AbstractContextManager[Any]:
    """A bar that is gone at the end, or None where nobody watches."""
    in_notebook = type(sys.stderr).__module__.startswith("ipykernel")
    watched = (in_notebook or sys.stderr.isatty()) and QUIET not in os.environ
    if not (wanted and watched):
        return nullcontext()
    from tqdm import tqdm  # here, so that nothing else needs it

    return tqdm(total=steps, initial=done, leave=False)


def to(batch: Any, device: torch.device) -> Any:
    """A batch on a device: its tensors, in whatever tuples, lists and dicts they stand."""
    if isinstance(batch, torch.Tensor):
        return batch.to(device)
    if isinstance(batch, dict):
        return {name: to(part, device) for name, part in batch.items()}
    if isinstance(batch, tuple | list):
        parts = [to(part, device) for part in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else tuple(parts)
    return batch


class State:
    """All that a training needs to go on from where it is."""

    def __init__(
        self, model: nn.Module, device: torch.device, run: dict[str, Any]
    ) -> None:
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters())
        # The state of the batches' generator, and the global ones, which dropout uses.
        self.generators = [torch.Generator(), torch.default_generator]
        if device.type == "cuda":
            self.generators.append(torch.cuda.default_generators[device.index])
        self.step, self.history, self.best = 0, History(), copy(model)
        # Sum of the losses since the last check.
        self.total = torch.zeros((), device=device)
        shapes = {name: list(x.shape) for name, x in self.best.items()}
        self.run = run | {"shapes": shapes}

    def learn(
        self, loss: Callable[[Any, Any], torch.Tensor], batch: Any, lr: float
    ) -> None:
        """One step: the gradient of the loss on a batch, cut to length, moves the weights."""
        self.model.train()
        share = rate(self.step, self.run["steps"])
        self.optimizer.param_groups[0]["lr"] = lr * share
        value = loss(self.model, batch)
        self.optimizer.zero_grad()
        value.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), LARGEST_GRADIENT)
        self.optimizer.step()
        self.step += 1
        self.total += value.detach()

    def check(self, score: Callable[[Any], float] | None) -> None:
        """Note loss and score, and keep the weights if they are the best so far."""
        history = self.history
        last = history.steps[-1] if history.steps else 0
        mean, value = self.total.item() / (self.step - last), 0.0
        self.total.zero_()
        if score is not None and math.isfinite(mean):
            self.model.eval()
            with torch.no_grad():
                value = float(score(self.model))
        if not math.isfinite(mean) or math.isnan(value):
            raise FloatingPointError(
                f"train: after {self.step} steps the loss is {mean} and the score {value}. Try a smaller lr. "
                f"The model has the weights of step {history.best}"
            )
        if score is None or all(value < x for x in history.scores):
            history.best, self.best = self.step, copy(self.model)
        history.scores += [] if score is None else [value]
        history.losses.append(mean)
        history.steps.append(self.step)

    def save(self, path: str | PathLike[str]) -> None:
        content = {"run": self.run, "step": self.step, "history": asdict(self.history)}
        content |= {"best": self.best}
        if self.step == self.run["steps"]:
            anywhere = {k: x for k, x in self.run.items() if k != "device"}
            content |= {"run": anywhere}
        else:  # what it takes to go on
            content |= {"model": self.model.state_dict()}
            content |= {"optimizer": self.optimizer.state_dict()}
            content |= {"generators": [x.get_state() for x in self.generators]}
        write(path, content)

    def load(self, path: str | PathLike[str]) -> None:
        content = read(path)
        there = content.get("run")
        if not isinstance(there, dict):
            raise ValueError(f"train: {path} is no checkpoint; choose another name")
        for name, value in there.items():
            if value != self.run.get(name):
                found = (
                    f"{name} = {value} there and {self.run.get(name)} here"
                    if name != "shapes"
                    else "its parameters have other names or shapes"
                )
                raise ValueError(
                    f"train: the checkpoint {path} is of another run: {found}. "
                    "Give the same arguments to go on with it, or delete it to start anew"
                )
        before = self.best
        try:
            self.step, self.best = content["step"], content["best"]
            require_size("train", "step", self.step)
            self.history = History(**content["history"])
            self.model.load_state_dict(self.best)
            if self.step == self.run["steps"]:
                return
            self.optimizer.load_state_dict(content["optimizer"])
            pairs = zip(self.generators, content["generators"], strict=True)
            for generator, state in pairs:
                generator.set_state(state)
            self.model.load_state_dict(content["model"])
        except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
            self.model.load_state_dict(before)
            raise ValueError(
                f"train: the checkpoint {path} is incomplete or garbled ({error!r:.80}); delete it to start anew"
            ) from None


def copy(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: x.detach().clone() for name, x in model.state_dict().items()}
