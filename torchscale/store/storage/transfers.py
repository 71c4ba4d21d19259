"""Several files at the same time, to or from an object store."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from torchscale.store.storage import service as bounds
from torchscale.store.storage.service import Service
from torchscale.util.units import format_bytes

Item = TypeVar("Item")

THREADS = 8
"""Transfers at the same time: a small file is all waiting, and one connection to S3 gives a tenth
of a 10 GbE link."""
_LOOK_SECONDS = 0.2
"""Time between two looks for a transfer that stands still, or a stop."""
_LEAVE_SECONDS = 1.0
"""Time for threads to notice that they are no longer wanted; one that waits for a server is left
behind."""


class _Unwanted(Exception):
    """The transfers are given up: ends a thread, and is shown to nobody."""


@dataclass
class Moved:
    """What has been transferred so far."""

    files: int = 0
    size: int = 0

    def text(self, of: Moved) -> str:
        """``3 of 512 files, 1.2 of 3.4 GB``."""
        return f"{self.files} of {of.files} files, {format_bytes(self.size)} of {format_bytes(of.size)}"


@dataclass
class Transfers(Generic[Item]):
    """Items that threads transfer by ``transfer(item, moved)``, which calls ``moved`` with each
    number of bytes.

    ``on_done`` is called for each by the thread that waits, and returns the number of files that are
    whole with it; ``cancelled`` is asked a few times a second. A transfer in which nothing moves
    for ``idle_seconds`` (:data:`~torchscale.store.storage.service.ANSWER_SECONDS` by default) is
    given up.
    """

    service: Service
    transfer: Callable[[Item, Callable[[int], None]], None]
    on_done: Callable[[Item], int]
    cancelled: Callable[[], bool] = lambda: False
    idle_seconds: float | None = None
    moved: Moved = field(default_factory=Moved)
    _stop: threading.Event = field(default_factory=threading.Event)
    _active: dict[int, float] = field(default_factory=dict)

    def run(self, items: Sequence[Item], say: Callable[[Moved], None]) -> bool:
        """Transfer all; ``say`` is told how far it is. Returns whether it was not cancelled.

        Raises:
            UsageError: there is no such object.
            FileSystemError: one failed or stood still.
        """
        waiting: queue.SimpleQueue[Item] = queue.SimpleQueue()
        ended: queue.SimpleQueue[tuple[Item, BaseException | None]] = queue.SimpleQueue()
        for item in items:
            waiting.put(item)
        threads = [
            threading.Thread(target=self._work, args=(number, waiting, ended), daemon=True)
            for number in range(min(THREADS, len(items)))
        ]
        left = len(items)
        try:
            for thread in threads:
                thread.start()
            while left:
                answer = self._next(ended, say)
                if answer is None:
                    return False
                item, error = answer
                if error is not None:
                    raise self.service.explained(error) from error
                left -= 1
                self.moved.files += self.on_done(item)
            return True
        finally:
            self._stop.set()
            deadline = time.monotonic() + _LEAVE_SECONDS
            for thread in threads:
                if thread.ident is not None:
                    thread.join(max(0.0, deadline - time.monotonic()))
            self._stop.clear()

    def _next(
        self,
        ended: queue.SimpleQueue[tuple[Item, BaseException | None]],
        say: Callable[[Moved], None],
    ) -> tuple[Item, BaseException | None] | None:
        """The item that has ended next, and its error; ``None`` where it was cancelled."""
        while True:
            say(self.moved)
            if self.cancelled():
                return None
            try:
                return ended.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                pass
            oldest = min(self._active.copy().values(), default=time.monotonic())
            bound = bounds.ANSWER_SECONDS if self.idle_seconds is None else self.idle_seconds
            if time.monotonic() - oldest > bound:
                raise self.service.no_answer(bound)

    def _work(
        self,
        number: int,
        waiting: queue.SimpleQueue[Item],
        ended: queue.SimpleQueue[tuple[Item, BaseException | None]],
    ) -> None:
        """One thread. ``_active`` holds when each last moved something."""
        lock = _COUNT

        def moved(size: int) -> None:
            if self._stop.is_set():
                raise _Unwanted
            self._active[number] = time.monotonic()
            with lock:
                self.moved.size += size

        while not self._stop.is_set():
            try:
                item = waiting.get_nowait()
            except queue.Empty:
                return
            self._active[number] = time.monotonic()
            try:
                self.transfer(item, moved)
                error: BaseException | None = None
            except BaseException as raised:  # noqa: BLE001 - raised again in the thread that waits
                error = raised
            self._active.pop(number, None)
            ended.put((item, error))


_COUNT = threading.Lock()
