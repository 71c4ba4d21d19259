"""How long the rest of a sweep takes, from the launches that have ended."""

from __future__ import annotations

from collections.abc import Callable

from torchscale.util.units import format_coarse_seconds


class TimeLeft:
    """An estimate that follows the sweep.

    A cell that was launched before should take as long again; any other as long as the mean of
    those that have ended.
    The running launch counts down, and never below 0: one that takes longer than expected delays
    the rest.

    Args:
        total: Launches of the sweep.
        clock: Seconds, monotonic.
    """

    def __init__(self, total: int, clock: Callable[[], float]) -> None:
        self._total, self._clock = total, clock
        self._seconds: dict[str, list[float]] = {}
        self._running: tuple[str, float] | None = None

    def started(self, cell_id: str) -> None:
        """A launch of this cell starts."""
        self._running = cell_id, self._clock()

    def finished(self, cell_id: str) -> None:
        """The launch has ended; it took as long as since the start."""
        if self._running is not None and self._running[0] == cell_id:
            self._seconds.setdefault(cell_id, []).append(self._clock() - self._running[1])
        self._running = None

    @property
    def seconds(self) -> float | None:
        """The estimate; ``None`` before the first launch has ended."""
        ended = [seconds for launches in self._seconds.values() for seconds in launches]
        waiting = self._total - len(ended)
        if not ended or waiting <= 0:
            return None
        mean = sum(ended) / len(ended)
        if self._running is None:
            return mean * waiting
        cell_id, since = self._running
        before = self._seconds.get(cell_id)
        expected = mean
        if before is not None:
            expected = sum(before) / len(before)
        return mean * (waiting - 1) + max(0.0, expected - (self._clock() - since))

    @property
    def text(self) -> str:
        """``about 12 min left``; empty before the first launch has ended, and where nothing is left
        of the estimate."""
        seconds = self.seconds
        if seconds is None or seconds < 1:
            return ""
        return f"about {format_coarse_seconds(seconds)} left"
