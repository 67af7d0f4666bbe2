"""What processes tell one another besides their numbers: how long their parts are, and who does not answer."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist

Group = dist.ProcessGroup | None


@contextmanager
def waiting(where: str, what: str, group: Group) -> Iterator[None]:
    """Say in words who waited for what when a peer is lost or silent for longer than the group's time-out."""
    try:
        yield
    except RuntimeError as error:
        raise RuntimeError(
            f"{where}: process {dist.get_rank(group)} of {dist.get_world_size(group)} waited in vain, {what}: {error}"
        ) from error


def everyones(
    where: str, numbers: tuple[int, ...], like: torch.Tensor, group: Group
) -> list[tuple[int, ...]]:
    """What each process gives, in the order of their ranks."""
    mine = torch.tensor(numbers, device=like.device)
    all_of_them = [torch.empty_like(mine) for _ in range(dist.get_world_size(group))]
    with waiting(where, "while all compared the lengths of their parts", group):
        dist.all_gather(all_of_them, mine, group=group)
    return [tuple(x.tolist()) for x in all_of_them]
