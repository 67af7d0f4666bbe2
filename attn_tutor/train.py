"""Train the language model of chapter 9 in several processes.

torchrun --nproc-per-node 2 -m attn_tutor.train --checkpoints DIR

Started again, it goes on from the last checkpoint, with as many processes as then or with others, or for more steps.
"""

import argparse
import json
import os
import shlex
import shutil
import warnings
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

try:
    import torch
except ImportError:
    raise ImportError(
        'attn_tutor.train needs torch: pip install "attn-tutor[torch]"'
    ) from None
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from attn_tutor.data import load_book
from attn_tutor.torch.distributed.peers import waiting
from attn_tutor.torch.models.language_model import LanguageModel
from attn_tutor.torch.models.training import LARGEST_GRADIENT, progress_bar, rate

LENGTH = 64  # tokens that the model reads at once
SAMPLE = "Attention ", 120  # what the model goes on with at the end, and letters
KEPT = 2  # checkpoints: the last, and the one before, should that be damaged


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    place: dict[str, Any] = {"timeout": timedelta(seconds=options.timeout)}
    # torchrun tells each process its rank; without it this one is alone.
    if "RANK" not in os.environ:
        # mypy: torch's stubs do not list it
        store = dist.HashStore()  # type: ignore[attr-defined]
        place |= {"store": store, "rank": 0, "world_size": 1}
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", **place)
    try:
        fit(options, device)
    finally:
        dist.destroy_process_group()


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    return parser().parse_args(arguments)


def parser() -> argparse.ArgumentParser:
    words = (__doc__ or "").splitlines()
    made = argparse.ArgumentParser(
        prog="torchrun --nproc-per-node N -m attn_tutor.train",
        description=words[0],
        epilog=words[-1],
    )
    add = made.add_argument
    add("--checkpoints", type=Path, required=True, metavar="DIR", help="their folder")
    add("--parallel", choices=["ddp", "fsdp"], default="ddp",
        help="ddp: each process holds all weights; fsdp: a share of them (default: ddp)")  # fmt: skip
    add("--steps", type=int, default=800, help="batches in all (default: 800)")
    add("--batch", type=int, default=16, help="texts of a batch, in all processes together (default: 16)")  # fmt: skip
    add("--lr", type=float, default=6e-3, help="highest learning rate (default: 0.006)")
    add("--every", type=int, default=50, help="steps from one checkpoint to the next (default: 50)")  # fmt: skip
    add("--seed", type=int, default=0, help="of weights and batches (default: 0)")
    add("--timeout", type=float, default=60, metavar="S",
        help="seconds that a process waits for the others (default: 60)")  # fmt: skip
    return made


def fit(options: argparse.Namespace, device: torch.device) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    if options.batch % size:
        refuse(f"a batch of {options.batch} cannot be shared by {size} processes")
    text = load_book()
    letters = {letter: i for i, letter in enumerate(sorted(set(text)))}
    ids = torch.tensor([letters[letter] for letter in text])
    ids = ids[: 9 * len(ids) // 10]
    torch.manual_seed(options.seed)
    whole = LanguageModel(len(letters), d_model=64, n_heads=4, n_layers=2)
    model = spread(whole.to(device), options.parallel)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    step = resume(options, model, optimizer)
    total, seen = torch.zeros((), device=device), 0
    with progress_bar(options.steps, step, wanted=rank == 0) as bar:
        while step < options.steps:
            batch = draw(ids, options, step)[rank::size].to(device)
            optimizer.param_groups[0]["lr"] = options.lr * rate(step, options.steps)
            with waiting("train", f"at step {step + 1}", None):
                total += learn(model, optimizer, batch)
                step, seen = step + 1, seen + 1
                if step % options.every == 0 or step == options.steps:
                    save(options, model, optimizer, step)
                    dist.all_reduce(total)
                    mean = total.item() / seen / size
                    if rank == 0:
                        print(f"step {step} of {options.steps}: loss {mean:.3f}")
                    total.zero_()
                    seen = 0
            if bar is not None:
                bar.update()
    written = sample(model, letters, device)
    if rank == 0:
        print(f"{written}\nto train on: {command(options, size)}")


def sample(model: nn.Module, letters: dict[str, int], device: torch.device) -> str:
    """What the model writes. Each process must ask for it, as each may hold a share of the weights."""
    begin, count = SAMPLE
    ids = torch.tensor([letters[letter] for letter in begin], device=device)
    own: Any = model.module if isinstance(model, DistributedDataParallel) else model
    chance = torch.Generator(device).manual_seed(0)
    found = own.generate(ids, count, temperature=0.7, generator=chance)
    return "".join([*letters][i] for i in found.tolist())


def command(options: argparse.Namespace, size: int) -> str:
    """The one that goes on where this one ends, for as many steps again."""
    given = vars(options) | {"steps": 2 * options.steps}
    changed = (x for x in given.items() if x[1] != parser().get_default(x[0]))
    words = (f"--{name} {shlex.quote(str(value))}" for name, value in changed)
    start = f"torchrun --nproc-per-node {size}" if size > 1 else "python"
    return " ".join([start, "-m attn_tutor.train", *words])


def refuse(why: str) -> NoReturn:
    """End every process, with the reason once."""
    raise SystemExit(f"train: {why}" if dist.get_rank() == 0 else 1)


def spread(model: LanguageModel, parallel: str) -> nn.Module:
    if parallel == "ddp":
        return DistributedDataParallel(model)
    kind = next(model.parameters()).device.type
    mesh = init_device_mesh(kind, (dist.get_world_size(),))
    # A block's last layer returns a view, and nothing is written into it.
    warnings.filterwarnings("ignore", ".*returned a view tensor")
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def draw(ids: torch.Tensor, options: argparse.Namespace, step: int) -> torch.Tensor:
    """The batch of a step, (batch, LENGTH + 1): the same however many processes share it, and after a new start."""
    generator = torch.Generator().manual_seed(options.seed * 2**32 + step)
    starts = torch.randint(len(ids) - LENGTH, (options.batch, 1), generator=generator)
    return ids[starts + torch.arange(LENGTH + 1)]


def learn(
    model: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor
) -> torch.Tensor:
    logits = model(batch[:, :-1])  # (batch, LENGTH, n_tokens)
    loss = cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()  # which takes the mean of the processes' gradients
    nn.utils.clip_grad_norm_(model.parameters(), LARGEST_GRADIENT)
    optimizer.step()
    return loss.detach()


def save(
    options: argparse.Namespace,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    step: int,
) -> None:
    folder = options.checkpoints / f"step_{step:06}"
    weights, moments = get_state_dict(model, optimizer)
    state = {"model": weights, "optimizer": moments}
    state_dict_saver.save(state, checkpoint_id=folder)
    if dist.get_rank() == 0:
        for old in complete(options.checkpoints)[:-KEPT]:
            shutil.rmtree(old)


def resume(
    options: argparse.Namespace, model: nn.Module, optimizer: torch.optim.Optimizer
) -> int:
    """Load the last checkpoint, and return its step; 0 if there is none."""
    own = {name: getattr(options, name) for name in ("batch", "lr", "seed")}
    note = options.checkpoints / "run.json"
    if dist.get_rank() == 0 and not note.exists():
        options.checkpoints.mkdir(parents=True, exist_ok=True)
        note.write_text(json.dumps(own) + "\n")
    dist.barrier()
    there = json.loads(note.read_text())
    if other := [name for name in own if there.get(name) != own[name]]:
        was = ", ".join(f"--{name} {there.get(name)}" for name in other)
        refuse(
            f"the checkpoints in {options.checkpoints} are of another run, with {was}. Give the same to go on with it, "
            "or another folder to start anew"
        )
    found = complete(options.checkpoints)
    if not found:
        return 0
    weights, moments = get_state_dict(model, optimizer)
    state = {"model": weights, "optimizer": moments}
    state_dict_loader.load(state, checkpoint_id=found[-1])
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
    step = int(found[-1].name.removeprefix("step_"))
    if dist.get_rank() == 0:
        print(f"goes on after step {step}")
    return step


def complete(folder: Path) -> list[Path]:
    """Checkpoints that are whole, the oldest first: torch writes their list of contents last."""
    return sorted(path.parent for path in folder.glob("step_*/.metadata"))


if __name__ == "__main__":
    main()
