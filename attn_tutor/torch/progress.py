"""A progress bar that is gone when the work is done."""

import os
import sys
from time import monotonic

QUIET = "ATTN_TUTOR_QUIET"  # set, in the environment, where nobody watches


class Bar:
    """A line that is written over and over, and gone at the end. Nothing at all where nobody watches."""

    def __init__(self, steps: int, done: int, wanted: bool) -> None:
        in_notebook = type(sys.stderr).__module__.startswith("ipykernel")
        watched = in_notebook or sys.stderr.isatty()
        self.shown = wanted and watched and QUIET not in os.environ
        self.steps, self.first, self.start, self.next = steps, done, monotonic(), 0.0

    def show(self, step: int, words: list[str]) -> None:
        now = monotonic()
        if not self.shown or now < self.next:
            return
        self.next = now + 0.2
        left = (now - self.start) / (step - self.first) * (self.steps - step)
        text = ", ".join([f"{step} of {self.steps}", *words, f"{left:.0f} s left"])
        self.write(f"[{'#' * (30 * step // self.steps):<30}] {text}")

    def clear(self) -> None:
        if self.shown:
            self.write("")

    def write(self, line: str) -> None:
        print(f"\r{line:<79}", end="\r", file=sys.stderr, flush=True)
