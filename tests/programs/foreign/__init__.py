"""Solutions of the exercises as other people write them: wrong ones, with what must be said of them, and right ones.

Each set was written before the checkers had seen it. Keep it so: whoever adds a checker asks somebody else for these.
"""

from collections.abc import Callable
from typing import Any

Function = Callable[..., Any]
Add = Callable[[Function], Function]


class Solutions:
    def __init__(self) -> None:
        self.wrong_ones: list[tuple[str, Function, str | None]] = []
        self.right_ones: list[tuple[str, Function]] = []

    def wrong(self, exercise: str, says: str | None) -> Add:
        """``says`` is a pattern: words without which the diagnosis does not name this mistake; None if nothing can."""

        def add(fn: Function) -> Function:
            self.wrong_ones.append((exercise, fn, says))
            return fn

        return add

    def right(self, exercise: str) -> Add:
        def add(fn: Function) -> Function:
            self.right_ones.append((exercise, fn))
            return fn

        return add
