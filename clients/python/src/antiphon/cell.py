"""Something that is waited for."""

from __future__ import annotations

from collections.abc import Callable


class Cell:
    """Whoever waits puts a function into `wakers`, and looks again when it is called."""

    def __init__(self) -> None:
        self.wakers: list[Callable[[], object]] = []

    def changed(self) -> None:
        for waker in self.wakers.copy():
            waker()
