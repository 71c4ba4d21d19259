"""Progress of a save or a load, of which torch reports nothing until it has ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

from torchscale.worker.measure.process_io import disk_bytes, transferred_bytes, unwritten_bytes

_LOOK_SECONDS = 2.0
"""Three small files of the kernel are read at each look: a tenth of a millisecond."""
_LEAST_BYTES = 1 << 20
"""A disk that a checkpoint is written to does more in the time between two looks, and the looks
themselves transfer a few kilobytes."""


class FileProgress:
    """Whether files are being written or read, from one look to the next."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._transferred, self._on_disk = transferred_bytes(), disk_bytes(directory)
        self._unwritten = unwritten_bytes()

    def moved(self) -> bool:
        """Whether this process has transferred bytes, or (during fsync) its disk has, since they
        last did. Without a disk that is known: or the kernel has less to write than at any time
        since this process transferred."""
        transferred, on_disk = transferred_bytes(), disk_bytes(self._directory)
        unwritten = unwritten_bytes()
        if transferred >= self._transferred + _LEAST_BYTES:
            self._transferred, self._unwritten = transferred, unwritten
            return True
        if on_disk is not None and self._on_disk is not None:
            has_moved = on_disk >= self._on_disk + _LEAST_BYTES
        else:
            has_moved = unwritten <= self._unwritten - _LEAST_BYTES
        if has_moved:
            self._on_disk, self._unwritten = on_disk, unwritten
        return has_moved


@contextmanager
def followed(
    report: Callable[[], None], directory: Path, seconds: float = _LOOK_SECONDS
) -> Iterator[None]:
    """Within the context, call ``report`` in a thread after every look that finds files moving.
    ``directory``: where they are."""
    over = Event()

    def follow() -> None:
        progress = FileProgress(directory)
        while not over.wait(seconds):
            if progress.moved():
                with suppress(OSError):  # the disk is full: what is measured says so
                    report()

    thread = Thread(target=follow, name="checkpoint-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
