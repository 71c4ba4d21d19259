"""Finds out why a watched job stands still: it makes no progress, or does not begin."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torchscale.features.watch.job.job import WatchedJob
from torchscale.schema.launch.hang import Autopsy
from torchscale.worker.watch import clock

_LOOK_SECONDS = 15.0
"""Between two looks at processes that others wait for: each takes a second or two."""


@dataclass
class Standing:
    """A job that may stand still.

    Attributes:
        job: Which.
        stall_seconds: After which it is asked.
        on_hang: Called with why, and for how many seconds.
        write: Writes down what is known: the job may never end.
        program: PID of the program; ``None`` where it is not ours.
        looked_at: When this was last tried of a job that has not begun.
    """

    job: WatchedJob
    stall_seconds: float
    on_hang: Callable[[Autopsy, float], None]
    write: Callable[[], None]
    program: int | None = None
    looked_at: float = -_LOOK_SECONDS

    def is_explained(self, seconds: float | None) -> bool:
        """Whether the job stands still for long, and somebody has been told.

        Args:
            seconds: Since the last sign of progress; ``None`` where there was none yet.
        """
        if seconds is not None and seconds > self.stall_seconds:
            self.job.guarded(partial(self._look_why, seconds))
            return True
        found: list[bool] = []
        self.job.guarded(lambda: found.append(self._does_not_begin()))
        return any(found)

    def _does_not_begin(self) -> bool:
        """Whether processes wait for others that do not come: one that computes may come yet, and
        is looked at again."""
        seconds = self.job.waited(clock.now())
        now = time.monotonic()
        if seconds <= self.stall_seconds or now - self.looked_at < _LOOK_SECONDS:
            return False
        self.looked_at = now
        return self._look_why(seconds)

    def _look_why(self, seconds: float) -> bool:
        autopsy = self.job.look_why(program=self.program)
        if autopsy is not None:
            self.on_hang(autopsy, seconds)
        self.write()
        return autopsy is not None
