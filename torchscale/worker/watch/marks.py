"""The moments that a rank notes while it trains: one integer each, 0.2 µs to note one."""

from __future__ import annotations

from collections import deque
from time import monotonic_ns

from . import clock

STEP, OPTIMIZER, BACKWARD, BACKWARD_END, DATA, DATA_END, WAIT, WAIT_END = range(8)
COLLECTION, COLLECTION_END, DRAIN, DRAIN_END, REPLICATED = range(8, 13)
SAVE, SAVE_END, EVALUATION, TRAINING = range(13, 17)
COMPILE, COMPILE_END = range(17, 19)
"""What a moment is.

STEP: an optimizer's step has ended. OPTIMIZER: one begins. BACKWARD, BACKWARD_END: around a
backward pass. DATA, DATA_END: around a wait for the data loader. WAIT, WAIT_END: around a wait for
a collective. COLLECTION, COLLECTION_END: around a garbage collection. DRAIN, DRAIN_END: around what
the collector itself does in the main thread. REPLICATED: DistributedDataParallel's forward pass
begins. SAVE, SAVE_END: around the writing of a checkpoint. EVALUATION, TRAINING: a module is
switched to evaluation, or back to training. COMPILE, COMPILE_END: around a compilation by
torch.compile, in whichever thread.
"""
KIND_BITS = 5
DETAIL_BITS = 3
"""A mark is ``nanoseconds since the start << 8 | detail << 5 | kind``; the detail of STEP and
OPTIMIZER is the number of the optimizer, at most 7."""
_SHIFT = KIND_BITS + DETAIL_BITS
_MOST = 1 << 20
"""Moments that are held, 40 MB: a disk that does not answer takes none of them."""
_BEFORE_START = 10_000
"""Moments that are kept of a process that may never train, such as a launcher."""


class Marks:
    """The moments of a rank that were not written yet, in order.

    Attributes:
        start_ns: What the times count from, on the clock of the job.
        has_lost: Whether moments were not noted, because none were taken for long.
    """

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Begin anew, as in a process that has been forked."""
        self.start_ns = clock.now_ns()
        self._start = monotonic_ns()
        self.has_lost = False
        self._noted: list[int] | deque[int] = deque(maxlen=_BEFORE_START)

    def note(self, kind: int, detail: int = 0) -> None:
        """Note that ``kind`` is now, unless there is no memory for it."""
        try:
            if len(self._noted) < _MOST:
                since = monotonic_ns() - self._start
                self._noted.append(since << _SHIFT | detail << KIND_BITS | kind)
            else:
                self.has_lost = True
        except MemoryError:
            self.has_lost = True

    def start(self) -> None:
        """Keep all moments from now on, and the last ones before."""
        self._noted = list(self._noted)

    def stop(self) -> None:
        """Keep none from now on: nobody takes them."""
        self._noted = deque(maxlen=1)

    def take(self) -> list[int]:
        """What was noted since the last call. Other threads may note meanwhile."""
        if isinstance(self._noted, deque):
            return []
        count = len(self._noted)
        taken = self._noted[:count]
        del self._noted[:count]  # notes that came meanwhile lie behind it
        return taken

    def __len__(self) -> int:
        return len(self._noted)


def moment(mark: int) -> tuple[int, int]:
    """Its kind, and its nanoseconds since the start."""
    return mark & (1 << KIND_BITS) - 1, mark >> _SHIFT
