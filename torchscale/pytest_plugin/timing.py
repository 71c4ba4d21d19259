"""Time a function, and compare its times with those of a baseline file: what the fixture of the
pytest plugin does."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from numbers import Integral, Real
from pathlib import Path
from typing import Annotated

from pydantic import Field

from torchscale.analysis.stats.estimate import Estimate
from torchscale.analysis.stats.ratios import LogRatio, log_ratio
from torchscale.analysis.stats.sessions import session_noise, with_session_noise
from torchscale.errors import UsageError
from torchscale.launch.machine import usable_cores
from torchscale.schema.base import Frozen
from torchscale.util.cpu import cpu_name
from torchscale.util.gc import gc_paused
from torchscale.util.interval_text import format_change_ends, format_interval, with_interval
from torchscale.util.units import format_change, format_percent, format_seconds
from torchscale.version import __version__

ROUNDS = 20
"""Enough for an interval whose quantile of Student's t (2.09) is near that of any number of rounds
(1.96)."""
ROUND_SECONDS = 0.02
"""Thousands of times the resolution of the clock, and longer than a time slice of Linux's scheduler
(a few ms)."""
LIMIT_SECONDS = 10.0
"""A slow function gets fewer rounds, but :data:`MIN_ROUNDS`."""
MIN_ROUNDS = 3
"""Fewer give no usable interval."""
MAX_ROUNDS = 10_000
"""The baseline keeps every round: more would fill its file, and say no more."""
THRESHOLD = 0.1
"""One function takes some percent more or less from process to process (placement in memory, clock
rate of the CPU), which one process cannot see: smaller changes pass."""
LEVEL = 0.05
"""Level of significance, as in ``torchscale compare``."""
CONTENDED = 0.02
"""Share of the time that the thread waited for a core. Other work that takes so much also fills
caches and lowers clock rates, which slows a function by several times that share: near
:data:`THRESHOLD`."""
_SCHEDULER = Path("/proc/thread-self/schedstat")
"""The thread's scheduler counters, on Linux: nanoseconds that the thread ran, nanoseconds that it
was ready and waited for a core, time slices."""

Positive = Annotated[float, Field(gt=0)]


class TimingSession(Frozen):
    """One measurement of a function in one process.

    Attributes:
        measured_at: UTC.
        machine: Name of the CPU and number of usable cores.
        python, torchscale: Versions.
        calls: Number of calls in each round.
        seconds: Per call, the mean of each round.
        waited: Share of the time in which the thread was ready and had no core; ``None`` where the
            system does not say.
    """

    measured_at: str
    machine: str
    python: str
    torchscale: str
    calls: Annotated[int, Field(ge=1)]
    seconds: Annotated[tuple[Positive, ...], Field(min_length=2)]
    waited: Annotated[float, Field(ge=0)] | None = None

    @property
    def is_contended(self) -> bool:
        """Whether other processes took so much of the cores that the times say little."""
        return self.waited is not None and self.waited > CONTENDED


@dataclass(frozen=True)
class TimeChange:
    """A measurement against the baseline.

    Attributes:
        ratio: Time per call, new ÷ baseline.
        sessions: Number of sessions of the baseline.
        threshold: Changes up to this share count as none.
    """

    ratio: LogRatio
    sessions: int
    threshold: float

    @property
    def is_slower(self) -> bool:
        """Whether it is slower by more than the threshold, and by more than noise explains."""
        return self._is_significant and self.ratio.value > 1 + self.threshold

    @property
    def is_faster(self) -> bool:
        """Whether it is faster by more than the threshold, and by more than noise explains."""
        return self._is_significant and self.ratio.value < 1 / (1 + self.threshold)

    @property
    def _is_significant(self) -> bool:
        return self.ratio.p is not None and self.ratio.p < LEVEL

    def describe(self) -> str:
        """``time per call +12.3 % (95 % interval +10.1 to +14.5 %): slower; baseline of 5
        sessions``."""
        interval = self.ratio.interval
        spread = ""
        if interval is not None:
            spread = f" (95 % interval {format_change_ends(*interval)})"
        verdict = "within noise or the threshold"
        if self.is_slower:
            verdict = "slower"
        elif self.is_faster:
            verdict = "faster"
        noise = f"{self.sessions} sessions"
        if self.sessions == 1:
            noise = "1 session: noise between sessions is unknown"
        return (
            f"time per call {format_change(self.ratio.value - 1)}{spread}: {verdict}; baseline of "
            f"{noise}"
        )


def time_function(
    function: Callable[[], object],
    *,
    rounds: int = ROUNDS,
    round_seconds: float = ROUND_SECONDS,
    synchronize: Callable[[], object] | None = None,
) -> TimingSession:
    """Call a function in rounds of equally many calls and time each round.

    The first call warms up; further ones choose how many calls a round has. Python's garbage
    collector is paused.

    Args:
        function: What is measured.
        rounds: How many; fewer where they would take longer than :data:`LIMIT_SECONDS`, but
            :data:`MIN_ROUNDS`.
        round_seconds: The shortest that a round may be.
        synchronize: Called at the end of each round, within its time: ``torch.cuda.synchronize``
            for work on a GPU.

    Raises:
        UsageError: ``function`` is none, or ``rounds`` or ``round_seconds`` is out of range.
    """
    _check_arguments(function, rounds, round_seconds, synchronize)
    with gc_paused():
        _round(function, 1, synchronize)
        calls, taken = 1, _round(function, 1, synchronize)
        while taken < round_seconds:
            calls = max(
                2 * calls, min(100 * calls, int(1.1 * calls * round_seconds / max(taken, 1e-9)))
            )
            taken = _round(function, calls, synchronize)
        affordable = max(MIN_ROUNDS, min(rounds, int(LIMIT_SECONDS / taken)))
        start, before = time.perf_counter(), _seconds_waited()
        seconds = tuple(_round(function, calls, synchronize) / calls for _ in range(affordable))
        after, taken = _seconds_waited(), time.perf_counter() - start
    return TimingSession(
        measured_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        machine=f"{cpu_name()}, {len(usable_cores())} cores",
        python=platform.python_version(),
        torchscale=__version__,
        calls=calls,
        seconds=seconds,
        waited=None if before is None or after is None else max(0.0, after - before) / taken,
    )


def _check_arguments(
    function: object, rounds: object, round_seconds: object, synchronize: object
) -> None:
    """Raises: UsageError: one of the arguments of :func:`time_function`, which tests give, is
    wrong."""
    if not callable(function):
        raise UsageError(f"expected a function of no arguments, got {function!r}")
    if synchronize is not None and not callable(synchronize):
        raise UsageError(f"synchronize: expected a function of no arguments, got {synchronize!r}")
    if not isinstance(rounds, Integral):
        raise UsageError(f"rounds: expected a whole number, got {rounds!r}")
    if int(rounds) < MIN_ROUNDS:
        raise UsageError(f"rounds: {rounds} is below {MIN_ROUNDS}, which an interval needs")
    if int(rounds) > MAX_ROUNDS:
        raise UsageError(f"rounds: {rounds} is above {MAX_ROUNDS:,}")
    if not isinstance(round_seconds, Real) or not 0 < float(round_seconds) <= LIMIT_SECONDS:
        raise UsageError(
            f"round_seconds: expected a number above 0 and up to {LIMIT_SECONDS:g}, got "
            f"{round_seconds!r}"
        )


def _seconds_waited() -> float | None:
    """How long this thread was ready to run and waited for a core, since it began."""
    try:
        return int(_SCHEDULER.read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None


def _round(
    function: Callable[[], object], calls: int, synchronize: Callable[[], object] | None
) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        function()
    if synchronize is not None:
        synchronize()
    return time.perf_counter() - start


def describe_session(session: TimingSession) -> str:
    """``1.23 ms (1.22 to 1.24 ms) per call, 20 rounds of 17 calls``."""
    mean = Estimate.of_log_mean(session.seconds)
    level = format_seconds(mean.value)
    if mean.ends is not None:
        level = with_interval(level, format_interval(mean.value, mean.ends, format_seconds))
    waited = ""
    if session.is_contended:
        waited = f", {format_contention(session)}"
    return f"{level} per call, {len(session.seconds)} rounds of {session.calls} calls{waited}"


def format_contention(session: TimingSession) -> str:
    """``contended: it waited for a core 31.0 % of the time``."""
    return f"contended: it waited for a core {format_percent(session.waited or 0.0)} of the time"


def compare_times(
    session: TimingSession, baseline: Sequence[TimingSession], threshold: float = THRESHOLD
) -> TimeChange:
    """A measurement against sessions of the same test. Rounds are the unit within a session; where
    the baseline has several sessions, the noise between them widens the interval.

    Raises:
        UsageError: they were measured on another machine.
    """
    others = sorted({one.machine for one in baseline} - {session.machine})
    if others:
        raise UsageError(
            f"the baseline was measured on another machine ({others[0]}; this one: "
            f"{session.machine})"
        )
    sides = [[list(one.seconds) for one in baseline], [list(session.seconds)]]
    ratio = log_ratio(session.seconds, [seconds for one in baseline for seconds in one.seconds])
    noise = session_noise(sides)
    if noise is not None:
        ratio = with_session_noise(ratio, sides, noise)
    return TimeChange(ratio, len(baseline), threshold)
