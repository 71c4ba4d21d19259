"""How often each size of a sweep of collectives is called, so that the sweep ends in its time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

LEAST_TIMED = 5
"""Calls of a timed loop: fewer say little of their scatter, see ``analysis/machine/collectives.py``."""
_LEAST_WARMUP = 2
"""A first call allocates; the second one is as the next."""


@dataclass(frozen=True)
class CallCounts:
    """Calls at one size: before the timed loop, and in it. As many again are timed one by one."""

    warmup: int
    timed: int

    @property
    def all(self) -> int:
        """All of them, with the two whose results are checked."""
        return self.warmup + 2 * self.timed + 2

    def fewer(self, timed: int) -> CallCounts:
        """So many timed ones, or all if these are fewer, and as large a share of the others."""
        timed = min(timed, self.timed)
        warmup = max(_LEAST_WARMUP, round(self.warmup * timed / self.timed))
        return CallCounts(min(self.warmup, warmup), timed)


class CallBudget:
    """The time of a sweep, shared out over what it measures. Each part gets an equal share, and more
    where others took less; not less where they took more, or the last ones would be measured worse
    than the first. Of its share each size gets half of what is left, the largest all of it: sizes
    double, and so do times, so that small ones are called as often as they were asked for."""

    def __init__(
        self,
        full: CallCounts,
        seconds: float | None,
        parts: int,
        now: Callable[[], float] = perf_counter,
    ) -> None:
        """Begin.

        Args:
            full: Calls at each size where time suffices.
            seconds: Time of all parts; ``None`` for no limit.
            parts: Parts: operations in each dtype.
            now: A clock, in seconds.
        """
        self._full, self._seconds, self._parts, self._now = full, seconds, parts, now
        self._started = self._part_started = now()
        self._share = self._least = 0.0 if seconds is None else seconds / max(1, parts)

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit."""
        return self._seconds is not None

    def begin_part(self) -> None:
        """The next part begins."""
        if self._seconds is None:
            return
        self._part_started = self._now()
        left = self._seconds - (self._part_started - self._started)
        self._share = max(self._least, left / max(1, self._parts))
        self._parts -= 1

    def timed(self, call_seconds: float, check_seconds: float, *, is_largest: bool) -> int:
        """Calls of the timed loop at the size that is measured now; 0 where the fewest take longer
        than all sizes of a part should.

        Args:
            call_seconds: Of a call at this size.
            check_seconds: Of a call with the check of its result; a second one follows.
            is_largest: Whether no larger size follows.
        """
        fewest = self._full.fewer(LEAST_TIMED)
        if fewest.all * call_seconds > self._least:
            return 0
        room = self._share - (self._now() - self._part_started)
        if not is_largest:
            room /= 2
        possible = (room - check_seconds) / call_seconds
        share = self._full.timed / self._full.all
        return min(self._full.timed, max(fewest.timed, int(possible * share)))

    def messages(self, most: int, call_seconds: float, groups: int) -> int:
        """Messages of each of so many groups, one after the other: ``most``, fewer if they take
        longer than the part may, and at least two."""
        if self._seconds is None:
            return most
        return max(min(2, most), min(most, int(self._share / groups / call_seconds)))
