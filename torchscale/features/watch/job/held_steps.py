"""What a rank has written of steps that are not complete on all ranks yet."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.exchanges.events import (
    Calls,
    CollectiveDurations,
    CoreTime,
    MomentKind,
    Moments,
    RankEvents,
    Times,
)
from torchscale.features.watch.job.stream import RankStream

NO_TIMES: Times = np.zeros(0, np.int64)
_MAX_HELD = 4_000_000
"""Moments and collectives of a rank that are held for steps that are not complete: 100 MB. A job
whose ranks are so far apart has no common steps."""


class HeldSteps:
    """What a rank has written of steps that are not complete yet."""

    def __init__(self, stream: RankStream) -> None:
        self.stream = stream
        self.events = RankEvents(
            Moments(NO_TIMES, NO_TIMES, NO_TIMES),
            Calls(NO_TIMES, NO_TIMES, NO_TIMES, NO_TIMES),
            CoreTime(NO_TIMES, NO_TIMES),
        )
        self.read_until = 0
        self.last_seen = round(stream.facts.began * 1e9)

    def read(self) -> int:
        """Read on; how much there was. Collectives are known up to the last time that the recorder
        was read, and their lengths somewhat less far."""
        new = self.stream.read()
        self.events = _joined(self.events, new)
        for times in (new.moments.time, new.calls.time, new.core_time.time):
            self.last_seen = max(self.last_seen, int(times[-1]) if len(times) else 0)
        if len(self.events.moments.time) > _MAX_HELD:
            self.drop_before(int(self.events.moments.time[-_MAX_HELD // 2]))
        drains = new.moments.at(MomentKind.DRAIN)
        if len(drains):
            self.read_until = int(drains[-1])
        facts, time = self.stream.facts, self.events.moments.time
        if facts.state != "running" or not facts.has_recorder or not facts.backend:
            self.read_until = int(time[-1]) if len(time) else 0
        if self.stream.settled_ns:  # lengths come later than calls
            self.read_until = min(self.read_until, self.stream.settled_ns)
        return int((new.moments.kind <= MomentKind.WAIT_END).sum()) + len(new.calls)

    def drop_before(self, time: int) -> None:
        """Forget what is older."""
        moments, calls, core = self.events.moments, self.events.calls, self.events.core_time
        kept = moments.time >= time
        # The reading before is needed to interpolate.
        first = max(0, int(np.searchsorted(core.time, time)) - 1)
        self.events = RankEvents(
            Moments(moments.time[kept], moments.kind[kept], moments.detail[kept]),
            calls.only(calls.time >= time),
            CoreTime(core.time[first:], core.delayed[first:]),
            self.events.lengths.of_calls_after(calls.only(calls.time < time)),
        )


def _joined(before: RankEvents, new: RankEvents) -> RankEvents:
    parts = [
        [np.concatenate(pair) for pair in zip(_columns(old), _columns(added), strict=True)]
        for old, added in (
            (before.moments, new.moments),
            (before.calls, new.calls),
            (before.core_time, new.core_time),
            (before.lengths, new.lengths),
        )
    ]
    return RankEvents(
        Moments(*parts[0]), Calls(*parts[1]), CoreTime(*parts[2]), CollectiveDurations(*parts[3])
    )


def _columns(table: Moments | Calls | CoreTime | CollectiveDurations) -> list[NDArray[np.int64]]:
    return [getattr(table, column.name) for column in fields(table)]
