"""Kernels for the tests of the notebooks, forked from a process that has imported what the notebooks import.

A kernel takes 2.8 s of a core for its imports, most of them torch's, and there are fifty notebooks.
"""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any
from unittest.mock import patch

from jupyter_client.provisioning import local_provisioner

IMPORTED = ["ipykernel.kernelapp", "matplotlib.figure", "attn_tutor.torch"]
INLINE = "module://matplotlib_inline.backend_inline"  # what a kernel tells matplotlib, which is loaded before it


class Forked:
    """A process of multiprocessing, as jupyter_client asks it: in the words of subprocess.Popen."""

    stdin = stdout = stderr = None

    def __init__(self, process: Any) -> None:
        self.process, self.pid = process, process.pid
        self.kill, self.terminate = process.kill, process.terminate

    def poll(self) -> Any:
        return self.process.exitcode

    def wait(self, timeout: float | None = None) -> Any:
        self.process.join(timeout)
        return self.process.exitcode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)


@contextmanager
def forked() -> Iterator[None]:
    """Let jupyter_client fork its kernels; where forks are not safe, it starts each anew as ever."""
    if sys.platform != "linux":
        yield
        return
    context = get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)

    def launch(command: list[str], env: dict, cwd: str | None = None, **_: Any) -> Any:
        process: Any = context.Process(target=kernel, args=(command[3:], env, cwd))
        process.start()
        while os.getpgid(process.pid) != process.pid:  # until its group is its own
            time.sleep(0.001)
        return Forked(process)

    with (
        patch.dict(os.environ, MPLBACKEND=INLINE),
        patch.object(local_provisioner, "launch_kernel", launch),
    ):
        yield


def kernel(arguments: list[str], env: dict[str, str], cwd: str) -> None:
    from ipykernel.kernelapp import launch_new_instance

    os.setsid()  # jupyter_client sends its signals to a kernel's whole group
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    launch_new_instance(arguments)
