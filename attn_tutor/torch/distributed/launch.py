"""Processes from one call, for a notebook or a test; ``torchrun`` starts those of a program."""

import logging
import pickle
import sys
import tempfile
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.multiprocessing.spawn import ProcessException, start_processes

from attn_tutor._checks import require_positive, require_size

__all__ = ["run"]


def run(
    function: Callable[..., Any],
    size: int,
    *args: Any,
    backend: str = "gloo",
    timeout: float = 60.0,
) -> list[Any]:
    """Call ``function(rank, size, *args)`` in several processes that can talk to one another, and collect the results.

    Processes are started by fork, which takes less than half a second and works for functions of a notebook. Where
    there is no fork (Windows), or with a backend for GPUs, whose state cannot be forked, each starts a new interpreter;
    the function must then be imported from a file. However the call ends, by an error or an interrupt too, no process
    is left.

    Args:
        function: what each process does; its process group is ready, and torch computes with one thread.
        size: number of processes.
        args: what the function gets besides its rank and ``size``.
        backend: that of ``torch.distributed``: "gloo" for CPUs, "nccl" for GPUs.
        timeout: seconds that a process waits for the others before it gives up with an error.

    Returns:
        What each process returned, in the order of their ranks.

    Raises:
        ValueError: there is no process to start, or no time.
        RuntimeError: a process failed or was killed; the message has its rank, and its traceback or the signal.

    Example:
        >>> def add(rank, size):
        ...     x = torch.tensor(rank + 1)
        ...     dist.all_reduce(x)
        ...     return x.item()
        >>> run(add, 2)
        [3, 3]
    """
    require_size("run", "size", size, least=1)
    require_positive("run", "timeout", timeout)
    method = _start_method(function, backend)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        # Python warns of threads before a fork; a child that keeps to one thread is safe.
        warnings.filterwarnings("ignore", ".*fork", DeprecationWarning)
        work = function, size, args, backend, timeout, folder
        started: Any = start_processes(
            _work, work, nprocs=size, join=False, daemon=True, start_method=method
        )
        log = logging.getLogger(start_processes.__module__)
        level = log.level
        log.setLevel(logging.ERROR)  # which others it ends then need not be said
        try:
            while not started.join():
                pass
        except ProcessException as error:
            raise RuntimeError(f"run: {str(error).strip()}") from None
        finally:
            log.setLevel(level)
            for process in started.processes:
                process.kill()
                process.join()
        results = [_result(folder, rank) for rank in range(size)]
        for rank, result in enumerate(results):
            if not result.exists():
                raise RuntimeError(
                    f"run: process {rank} ended without a result, as sys.exit ends one"
                )
        return [pickle.loads(result.read_bytes()) for result in results]


def _work(
    rank: int,
    function: Callable[..., Any],
    size: int,
    args: tuple[Any, ...],
    backend: str,
    timeout: float,
    folder: str,
) -> None:
    torch.set_num_threads(1)  # threads of before a fork are gone, and waited for
    dist.init_process_group(
        backend,
        init_method=f"file://{folder}/rendezvous",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=timeout),
    )
    if backend == "gloo":
        dist.barrier()  # lest a quick one leaves while others still connect to it
    result = function(rank, size, *args)
    _result(folder, rank).write_bytes(pickle.dumps(result))
    dist.destroy_process_group()


def _result(folder: str, rank: int) -> Path:
    return Path(folder) / f"result_{rank}"


def _start_method(function: Callable[..., Any], backend: str) -> str:
    if backend == "gloo" and "fork" in mp.get_all_start_methods():
        return "fork"
    in_a_file = hasattr(sys.modules.get(function.__module__), "__file__")
    if not in_a_file:
        raise RuntimeError(
            f"run: {function.__name__} was defined in a notebook or a prompt, and without fork a new process cannot "
            "see it. Put it in a .py file and import it from there"
        )
    return "spawn"
