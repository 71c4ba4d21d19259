"""Who watches a command: messages and long waits, wherever they are shown. What is told of the
launches of a sweep: ``measure/listener.py``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol


class Observer(Protocol):
    """Receives what a command reports while it runs. The command line shows it; programs may ignore
    it."""

    def status(self, text: str) -> AbstractContextManager[Callable[[str], None]]:
        """Something that may take seconds runs inside the context; calls of what it gives say what
        it is doing now."""
        ...

    def note(self, text: str) -> None:
        """One line that every user should see."""

    def detail(self, text: str) -> None:
        """One line for users who ask for details."""


class SilentObserver:
    """Shows nothing. Base for observers that show some of it."""

    @contextmanager
    def status(self, text: str) -> Iterator[Callable[[str], None]]:
        """Nothing is shown."""
        del text
        yield lambda _: None

    def note(self, text: str) -> None:
        """Nothing is shown."""

    def detail(self, text: str) -> None:
        """Nothing is shown."""


SILENT = SilentObserver()
