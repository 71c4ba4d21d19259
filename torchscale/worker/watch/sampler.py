"""What the thread in which a rank trains does, looked at some times a second: which line of the
user's program it is at, and how long it was ready to run and had no core."""

from __future__ import annotations

import os
import sys
from types import FrameType

from . import clock
from .places import Place, user_place
from .program_thread import is_in_thread, program_thread

SAMPLE_NS = 50_000_000
"""Between two looks of the collector."""
_MAX_LINES = 2_000
"""Different places that are told apart; a program has some tens."""
_SCHEDSTAT_BYTES = 128
"""More than three numbers take."""


class LineSampler:
    """Notes at which lines of the user's program the main thread is, or the one that stands for it
    (``program_thread.py``).

    Attributes:
        places: All places, by their numbers.
        main: Identity of that thread.
        shares: Rows of two: when (nanoseconds since the epoch), and how long the thread had been
            ready without a core (nanoseconds since its start).
    """

    def __init__(self) -> None:
        self.places: list[Place] = []
        self._numbers: dict[Place, int] = {}
        self._samples: list[int] = []
        self.shares: list[int] = []
        self.main = program_thread().ident
        self._schedstat = _Schedstat()

    def follow_program(self) -> None:
        """Look at another thread, which has become the program's."""
        self._schedstat.close()
        self.main, self._schedstat = program_thread().ident, _Schedstat()

    def sample(self) -> None:
        """Look once."""
        innermost = sys._current_frames().get(self.main or 0)
        place = user_place(innermost)
        if place is not None:
            self._note(place)
        self._read_shares()

    def note_held(self, frame: FrameType, lasted: int) -> None:
        """Note where the main thread was while it kept all others from running, for so many
        nanoseconds: as often as :meth:`sample` would have seen it."""
        place = user_place(frame)
        if place is not None:
            for _ in range(max(1, lasted // SAMPLE_NS)):
                self._note(place)

    def _note(self, place: Place) -> None:
        number = self._numbers.get(place)
        if number is None:
            if len(self.places) >= _MAX_LINES:
                return
            number = self._numbers[place] = len(self.places)
            self.places.append(place)
        self._samples += (clock.now_ns(), number)

    def _read_shares(self) -> None:
        """The kernel's count; nothing where it keeps none."""
        waited = self._schedstat.read()
        if waited is not None:
            self.shares += (clock.now_ns(), waited)

    def close(self) -> None:
        """Leave the descriptor to others."""
        self._schedstat.close()

    def take_shares(self) -> list[int]:
        """The rows since the last call."""
        taken, self.shares = self.shares, []
        return taken

    def take_samples(self) -> list[int]:
        """Rows of two since the last call: when (nanoseconds since the epoch), number of the
        place."""
        taken, self._samples = self._samples, []
        return taken


class _Schedstat:
    """The thread's file, kept open: to open it at each sample takes ten times as long as to read
    it.

    A program may close files that it did not open, and then get the descriptor for one of its own.
    """

    def __init__(self) -> None:
        self._descriptor: int | None = None
        try:
            # Of a main thread in a fork, Python still has the number that it had in the parent.
            thread = program_thread().native_id if is_in_thread() else os.getpid()
            path = f"/proc/self/task/{thread}/schedstat"
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            self._file = os.fstat(self._descriptor)
        except OSError:
            return

    def read(self) -> int | None:
        """Nanoseconds that the thread was ready and had no core; ``None`` where nothing says."""
        if self._descriptor is None or not self._is_own():
            return None
        try:
            _, waited, _ = os.pread(self._descriptor, _SCHEDSTAT_BYTES, 0).split()
            return int(waited)
        except (OSError, ValueError):
            return None

    def close(self) -> None:
        """Close it, unless it is another file by now."""
        if self._descriptor is not None and self._is_own():
            os.close(self._descriptor)
        self._descriptor = None

    def _is_own(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._descriptor or 0), self._file)
        except OSError:
            return False
