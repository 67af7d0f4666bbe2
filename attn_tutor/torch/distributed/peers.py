"""What processes tell one another besides their numbers, and who does not answer."""

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


def gather(where: str, what: str, X: torch.Tensor, group: Group) -> list[torch.Tensor]:
    """What each process gives, in the order of their ranks."""
    parts = [torch.empty_like(X) for _ in range(dist.get_world_size(group))]
    with waiting(where, what, group):
        dist.all_gather(parts, X, group=group)
    return parts
