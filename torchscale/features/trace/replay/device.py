"""A rank with a device as two lines of moments: the host, which launches and waits, and the device,
which computes.

Which event a stream waits for is not recorded. A collective follows the kernels that were launched
before it; kernels follow a collective where the device ran out of work, the next kernel had been
launched, and a collective ended in between. Where no wait of the host for the device is recorded,
it cannot be told when the host would have launched: the device's line is then replayed alone, and
idle time before a late launch stays with the kernel that follows it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from torchscale.analysis.stats.intervals import IntervalSet
from torchscale.features.trace.analysis.windows import RankWindow
from torchscale.features.trace.replay.device_work import ROUNDING_NS, WAITED_NS, DeviceWork, Times
from torchscale.features.trace.replay.graph import EdgeKind, RankFrame, only
from torchscale.features.trace.span import SpanKind


class DeviceLine:
    """One rank with a device."""

    def __init__(self, rank: RankWindow) -> None:
        self.rank, self._work = rank, DeviceWork(rank)
        self.calls, self.ends = self._work.calls, rank.trace.collectives.end

    def add(self, frame: RankFrame) -> list[int]:
        """Add the rank's moments; returns those at which its steps start, and that at which the
        last one ends. The first step starts with the window, the others where the first kernel that
        they launched does."""
        waits = self._host_waits()
        host = self._add_host(frame, waits)
        producers = self._producers(frame.begins)
        boundaries = self._boundaries()
        last = max(
            self.rank.start,
            min(self.rank.end, int(self._work.blocks.end.max(initial=self.rank.start))),
        )
        cuts = self._cuts(
            [
                last,
                *producers.values(),
                *boundaries,
                *(work for work in waits.values() if work >= 0),
            ]
        )
        moments = {int(time): frame.moment(time) for time in cuts}
        steps = np.array(boundaries[:-1], dtype=np.int64)
        passed = np.sort(np.array(list(producers.values()), dtype=np.int64))
        befores, in_step = cuts[:-1], np.searchsorted(steps, cuts[:-1], side="right") - 1
        since = np.where(in_step >= 0, steps[np.maximum(in_step, 0)], befores)
        segments = np.searchsorted(passed, befores, side="right") - np.searchsorted(passed, since)
        pieces = zip(
            befores.tolist(),
            cuts[1:].tolist(),
            in_step.tolist(),
            segments.tolist(),
            self._parts(befores, cuts[1:]),
            strict=True,
        )
        for before, after, step, segment, parts in pieces:
            at = step, segment
            number = self._work.gap_of.get(after)
            idle = before == last and after == self.rank.end
            if idle or (number is not None and self._work.waits[number]):
                over = frame.join(moments[before], *self._ended(frame.ends, before, after))
                ended = round(frame.builder.recorded(over)) + frame.shift
                frame.edge(over, moments[after], self._gap_parts(ended, after), at=at)
                continue
            frame.edge(moments[before], moments[after], parts, at=at)
            for source, launched in self._launches(host, before, after):
                frame.edge(source, moments[after], launched, at=at, launch=True)
        self._add_collectives(frame, host, producers, moments)
        for (_, end), work in waits.items():
            source = moments[work] if work >= 0 else frame.ends.get(-1 - work, -1)
            if source >= 0:
                frame.edge(source, host[1][end], frame.lag(source, host[1][end]))
        return [moments[time] for time in boundaries]

    def _parts(self, before: Times, after: Times) -> list[tuple[float, ...]]:
        """The device's time between cuts."""
        parts = np.zeros((len(before), len(EdgeKind)))
        parts[:, EdgeKind.WORK] = self._work.amount(after) - self._work.amount(before)
        parts[:, EdgeKind.INPUT], parts[:, EdgeKind.HOST_GAP] = self._work.idle(before, after)
        return [tuple(row) for row in parts.tolist()]

    def _gap_parts(self, ended: int, after: int) -> tuple[float, ...]:
        """What follows the end of the collective that kernels waited for."""
        data, host = self._work.idle(np.array([ended]), np.array([after]))
        parts = [0.0] * len(EdgeKind)
        parts[EdgeKind.INPUT], parts[EdgeKind.HOST_GAP] = float(data[0]), float(host[0])
        parts[EdgeKind.OTHER] = max(0.0, float(after - ended - data[0] - host[0]))
        return tuple(parts)

    def _ended(self, ends: Mapping[int, int], before: int, after: int) -> list[int]:
        """The ends of what kernels waited for in a gap: of the tied collectives in it the last.
        Others that ended in it may be of no concern to the kernels."""
        over = self.rank.trace.collectives.end[self._work.by_end]
        first, last = np.searchsorted(over, [before, after + ROUNDING_NS], side="right")
        inside = [place for place in self._work.by_end[first:last].tolist() if place in ends]
        recorded = self.rank.trace.collectives.end
        latest = max((int(recorded[place]) for place in inside), default=0)
        return [ends[place] for place in inside if recorded[place] >= latest - ROUNDING_NS]

    def _cuts(self, more: list[int]) -> Times:
        """Times at which the device's line is cut: ``more``, and around each wait for a
        collective."""
        waits = np.flatnonzero(self._work.waits)
        around = [self._work.blocks.start[waits], self._work.before[waits]]
        return np.unique(np.concatenate([np.array([self.rank.start, *more]), *around])).astype(
            np.int64
        )

    def _producers(self, begins: Mapping[int, int]) -> dict[int, int]:
        """When the last kernel ended that each collective follows: of those launched before it, or
        before its start."""
        collectives = self.rank.trace.collectives
        ordered = np.sort(self._work.end)
        by_call = np.argsort(self._work.called, kind="stable")
        called, done = self._work.called[by_call], np.maximum.accumulate(self._work.end[by_call])
        producers: dict[int, int] = {}
        for place in begins:
            latest = collectives.start[place] + ROUNDING_NS
            number = int(np.searchsorted(ordered, latest, side="right")) - 1
            if number < 0:
                continue
            producers[place] = int(ordered[number])
            launched = self._work.calls_of.get(place, -1)
            earlier = int(np.searchsorted(called, launched, side="right")) - 1
            if launched >= 0 and earlier >= 0 and called[earlier] >= 0:
                producers[place] = min(producers[place], int(done[earlier]))
        return {place: time for place, time in producers.items() if time >= self.rank.start}

    def _boundaries(self) -> list[int]:
        """The window's start, where the first kernel that each further step launched starts, and
        the window's end."""
        known = self._work.called >= 0
        times = [self.rank.start]
        for begin in self.rank.steps.start[1:].tolist():
            launched = known & (self._work.called >= begin)
            after = launched if launched.any() else self._work.start >= begin
            start = int(self._work.start[after].min()) if after.any() else self.rank.end
            times.append(min(max(start, times[-1]), self.rank.end))
        return [*times, self.rank.end]

    def _host_waits(self) -> dict[tuple[int, int], int]:
        """Calls of the host, start and end, that waited for the device, and what for: the last work
        that ended before the call did. A time is the end of a kernel, a number below 0 a
        collective's place as -1 - place."""
        rank, spans, collectives = self.rank, self.rank.trace.spans, self.rank.trace.collectives
        chosen = (
            spans.of(SpanKind.HOST_SYNC) & (spans.start >= rank.start) & (spans.end <= rank.end)
        )
        kernels = np.sort(self._work.end)
        by_end = self._work.by_end
        over = collectives.end[by_end]
        waits: dict[tuple[int, int], int] = {}
        for start, end in zip(
            spans.start[chosen].tolist(), spans.end[chosen].tolist(), strict=True
        ):
            number = int(np.searchsorted(kernels, end, side="right")) - 1
            kernel = int(kernels[number]) if number >= 0 else -1
            number = int(np.searchsorted(over, end, side="right")) - 1
            latest = int(over[number]) if number >= 0 else -1
            if max(kernel, latest) > start:
                waits[start, end] = -1 - int(by_end[number]) if latest > kernel else kernel
        return waits

    def _add_host(
        self, frame: RankFrame, waits: Mapping[tuple[int, int], int]
    ) -> tuple[Times, dict[int, int]]:
        """The host's moments, cut where it waits for data or the device and where it goes on;
        times, and moments by time. Waits for the device take no time of the host's own."""
        rank, spans = self.rank, self.rank.trace.spans
        pauses = spans.of(SpanKind.PAUSE)
        pause = IntervalSet(spans.start[pauses], spans.end[pauses]).clipped(rank.start, rank.end)
        called = np.array(list(waits), dtype=np.int64).reshape(-1, 2)
        sync = IntervalSet(called[:, 0], called[:, 1])
        data = rank.waiting_for_data
        edges = [
            np.array([rank.start]),
            called[:, 0],
            called[:, 1],
            data.start,
            data.end,
            pause.start,
            pause.end,
        ]
        times = np.unique(np.concatenate(edges)).astype(np.int64)
        moments = {int(time): frame.moment(time) for time in times}
        within = [cover.within(times[:-1], times[1:]).tolist() for cover in (data, pause, sync)]
        steps = np.searchsorted(rank.steps.start, times, side="right") - 1
        for number, (before, after) in enumerate(
            zip(times[:-1].tolist(), times[1:].tolist(), strict=True)
        ):
            length = after - before
            part = EdgeKind.HOST_GAP
            if within[0][number]:
                part = EdgeKind.INPUT
            elif within[1][number]:
                part = EdgeKind.PAUSE
            own = only(part, 0.0 if within[2][number] else float(length))
            frame.edge(moments[before], moments[after], own, at=(int(steps[number]), 0))
        return times, moments

    def _launches(
        self, host: tuple[Times, dict[int, int]], before: int, after: int
    ) -> Iterator[tuple[int, tuple[float, ...]]]:
        """A stretch of work is done no sooner than each launch of it plus what follows: for each
        stretch of the host its first moment, and the time from there by the launch that matters
        most."""
        if not self._work.host_known:
            return
        first, last = np.searchsorted(self._work.start, [before, after])
        places = np.arange(first, last)
        places = places[self._work.called[places] >= host[0][0]]
        if not len(places):
            return
        called, starts = self._work.called[places], self._work.start[places]
        block = np.searchsorted(self._work.blocks.start, starts, side="right") - 1
        late = self._work.late[block] & (self._work.blocks.start[block] == starts)
        delay = np.maximum(
            0, np.where(late, starts - called, np.minimum(self._work.delay, starts - called))
        )
        rest = self._work.amount(np.array([after]))[0] - self._work.amount(starts)
        since = np.searchsorted(host[0], called, side="right") - 1
        for number in np.unique(since).tolist():
            mine = np.flatnonzero(since == number)
            time = host[0][number]
            best = mine[(called[mine] + delay[mine] + rest[mine]).argmax()]
            parts = [0.0] * len(EdgeKind)
            parts[EdgeKind.HOST_GAP] = float(called[best] - time)
            parts[EdgeKind.OTHER], parts[EdgeKind.WORK] = float(delay[best]), float(rest[best])
            yield host[1][int(time)], tuple(parts)

    def _add_collectives(
        self,
        frame: RankFrame,
        host: tuple[Times, dict[int, int]],
        producers: Mapping[int, int],
        moments: Mapping[int, int],
    ) -> None:
        """Collectives follow the kernels before them, their launch and what was on their stream.
        Where that does not explain when they start, they follow the collective that had ended by
        then; what is left of the delay stays."""
        collectives = self.rank.trace.collectives
        free: dict[int, int] = {}
        tied = np.array(sorted(frame.ends), dtype=np.int64)
        by_end = tied[np.argsort(collectives.end[tied], kind="stable")]
        over = collectives.end[by_end]
        for place, moment in sorted(frame.begins.items()):
            start, queue = int(collectives.start[place]), int(collectives.queue[place])
            explained = free.get(queue, -1)
            free[queue] = int(collectives.end[place])
            called = self._work.calls_of.get(place, -1)
            if self._work.host_known and called >= host[0][0]:
                time = int(host[0][int(np.searchsorted(host[0], called, side="right")) - 1])
                parts = [0.0] * len(EdgeKind)
                parts[EdgeKind.HOST_GAP] = float(called - time)
                parts[EdgeKind.OTHER] = float(max(0, min(self._work.delay, start - called)))
                frame.edge(host[1][time], moment, tuple(parts), launch=True)
                explained = max(explained, called + int(parts[EdgeKind.OTHER]))
            if place not in producers:
                continue
            explained = max(explained, producers[place])
            number = int(np.searchsorted(over, start + ROUNDING_NS, side="right")) - 1
            follows = (
                int(by_end[number])
                if number >= 0 and over[number] > explained + WAITED_NS
                else place
            )
            if follows != place:  # no kernel in between: what its input comes from
                frame.edge(
                    frame.ends[follows],
                    moment,
                    only(EdgeKind.OTHER, start - int(collectives.end[follows])),
                )
                explained = start
            frame.edge(moments[producers[place]], moment, only(EdgeKind.OTHER, start - explained))
