"""One attempt of a watched job: its steps, where its time went, and from which step it went on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field

import numpy as np

from torchscale.analysis.exchanges.steps import JobSteps, Waited
from torchscale.errors import StoreError
from torchscale.features.watch.analysis.evidence import ShownByRank
from torchscale.features.watch.analysis.resume import AttemptStart, find_origin, repeated_steps
from torchscale.features.watch.analysis.startup import StartPoints, rank_start
from torchscale.features.watch.analysis.step_log import StepLog
from torchscale.features.watch.analysis.wall_time import StepClock, find_spans, tail_parts
from torchscale.features.watch.job.follow import JobFollower, NewSteps, Remainder
from torchscale.features.watch.job.stream import RankStream
from torchscale.schema.watch.attempt import AttemptRecord, CheckpointCall, RankCheckpoints
from torchscale.schema.watch.failure import JobFailure
from torchscale.schema.watch.report import JobTime, WatchedAttempt
from torchscale.schema.watch.start import RankStart

_MOST_SAVES = 1_000
"""Of a record: some hundred kilobytes. A job restarts from one of its last checkpoints."""
_NS = 1e-9


@dataclass
class Attempt:
    """One attempt of the job.

    Attributes:
        number: From 0 on, over all runs of the command.
        follower: Its files.
        on_steps: Called with its steps as they become complete.
        log: Its steps, as soon as there are some.
        clock: When they ended.
        collector: Seconds; the mean of the ranks.
        waits: (Row that came last, collective) → seconds that others waited.
        first_ends: When the first step of each rank ended, in nanoseconds since the epoch.
    """

    number: int
    follower: JobFollower
    on_steps: Callable[[JobSteps], None] = lambda _: None
    log: StepLog | None = None
    clock: StepClock | None = None
    collector: float = 0.0
    waits: Counter[tuple[int, int]] = field(default_factory=Counter)
    first_ends: tuple[int, ...] = ()

    def advance(self) -> None:
        """Read what its ranks have written.

        Raises:
            StoreError: a file of a rank is damaged.
        """
        while (stretch := self.follower.advance()) is not None:
            self._add(stretch)

    def _add(self, stretch: NewSteps) -> None:
        steps = stretch.steps
        if self.log is None:
            hosts = tuple(stream.facts.host for stream in self.follower.streams.values())
            self.log = StepLog(self.follower.ranks, hosts)
        if self.clock is None:
            self.clock = StepClock(stretch.begin_ns)
            self.first_ends = tuple(int(edge[0]) for edge in stretch.edges)
        for place, stream in enumerate(self.follower.streams.values()):
            stream.evidence.share(len(stretch.edges))
            stream.evidence.assign(stretch.edges[place], steps.first, stretch.parts[place])
        self.log.stages = self.follower.stages
        self.log.sends = self.follower.sends >= self.follower.steps
        self.clock.add(stretch.spans)
        self.collector += float(steps.collector.mean(axis=0).sum())
        self._note_waits(stretch.waited)
        self.log.add(steps)
        self.on_steps(steps)

    def _note_waits(self, waited: Sequence[Waited]) -> None:
        """Who is waited for, and at what: seconds of all waits."""
        for waits in waited:
            known = waits.last >= 0
            pairs = zip(waits.last[known].tolist(), waits.what[known].tolist(), strict=True)
            seconds = ((waits.until - waits.start)[known] * _NS).tolist()
            for pair, time in zip(pairs, seconds, strict=True):
                self.waits[pair] += time

    @property
    def evidence(self) -> tuple[ShownByRank, ...]:
        """What each rank shows beside its steps, in the order of rows."""
        return tuple(
            stream.evidence.evidence(_checkpoints(stream).saves)
            for stream in self.follower.streams.values()
        )

    @property
    def startup(self) -> tuple[RankStart, ...]:
        """Where the start of each rank went, in the order of rows; empty before the first steps."""
        if not self.first_ends:
            return ()
        streams = self.follower.streams.items()
        return tuple(
            rank_start(rank, _start_points(stream, first_end))
            for (rank, stream), first_end in zip(streams, self.first_ends, strict=True)
        )

    @property
    def process_began(self) -> float | None:
        """When the first of its processes began, in seconds since the epoch; ``None`` before a rank
        has reported."""
        facts = [stream.facts for stream in self.follower.streams.values()]
        return min((one.process_began or one.began for one in facts), default=None)

    def record(
        self,
        run: int,
        began: float,
        until: float,
        earlier: Sequence[AttemptRecord],
        failure: JobFailure | None = None,
    ) -> AttemptRecord:
        """What is known of it, as it is now.

        Args:
            run: Of the command.
            began: When it began, in seconds since the epoch.
            until: When the run of the command ended, or now.
            earlier: All attempts before it.
            failure: Why it ended.
        """
        remainder = self.follower.remainder()
        if remainder is None:
            return AttemptRecord(
                attempt=WatchedAttempt(
                    number=self.number,
                    run=run,
                    world_size=1 if failure is None else failure.world_size,
                    began=began,
                    last_seen=until,
                    origin="no rank reported",
                    time=JobTime(start=max(0.0, until - began)),
                    failure=failure,
                )
            )
        streams = self.follower.streams.values()
        clock = _whole(self.clock, remainder)
        steps = 0 if clock is None else clock.steps
        origin, saves = self._origin(earlier)
        repeated = repeated_steps(origin, steps, earlier)
        seen = until if remainder.is_torn else min(until, remainder.last_seen * _NS)
        seen = max(began, seen)
        return AttemptRecord(
            attempt=WatchedAttempt(
                number=self.number,
                run=run,
                world_size=max(stream.facts.world_size for stream in streams),
                began=began,
                last_seen=seen,
                steps=steps,
                first_step=origin.step,
                repeated_steps=repeated,
                origin=origin.reason,
                time=_parts(clock, remainder, began, seen, repeated or 0),
                failure=failure,
            ),
            first_step_at=None if clock is None else clock.first_end * _NS,
            saves=saves,
        )

    def _origin(
        self, earlier: Sequence[AttemptRecord]
    ) -> tuple[AttemptStart, tuple[CheckpointCall, ...]]:
        """Where it went on, and what it saved."""
        try:
            ranks = [stream.read_checkpoints() for stream in self.follower.streams.values()]
        except StoreError as error:
            return AttemptStart(None, error.message), ()
        has_optimizer = self.follower.round is None
        origin = find_origin(ranks, earlier, has_optimizer=has_optimizer)
        return origin, _merged([save for one in ranks for save in one.saves])


def _checkpoints(stream: RankStream) -> RankCheckpoints:
    """What the rank saved and loaded; nothing where its file is damaged, which the record of the
    attempt says."""
    try:
        return stream.read_checkpoints()
    except StoreError:
        return RankCheckpoints()


def _start_points(stream: RankStream, first_end: int) -> StartPoints:
    facts = stream.facts
    loads = _checkpoints(stream).loads
    return StartPoints(
        began=round((facts.process_began or facts.began) / _NS),
        first_end=first_end,
        startup=facts.startup,
        first_call=stream.first_call_ns,
        loads=tuple((load.began_ns, load.ended_ns) for load in loads),
        compiles=tuple(stream.evidence.first_compiles),
        samples=stream.evidence.start_samples,
    )


def _whole(clock: StepClock | None, remainder: Remainder) -> StepClock | None:
    """The clock with the steps that ended on one rank at least; ``None`` without any."""
    edges = remainder.edges
    if clock is None:
        if not len(edges):
            return None
        clock, edges = StepClock(int(edges[0])), edges[1:]
    if not len(edges):
        return clock
    whole = copy(clock)
    # Ranks end a step at different times.
    edges = np.maximum(np.append(clock.last_end, edges), clock.last_end)
    whole.add(find_spans(remainder.events, edges))
    return whole


def _parts(
    clock: StepClock | None, remainder: Remainder, began: float, seen: float, repeated: int
) -> JobTime:
    """Where the time went from ``began`` to ``seen``."""
    if clock is None:
        return JobTime(start=seen - began)
    first, last = clock.first_end * _NS, clock.last_end * _NS
    start = JobTime(start=max(0.0, first - began))
    if remainder.is_torn:
        return start + clock.parts(repeated) + JobTime(unseen=max(0.0, seen - last))
    tail = tail_parts(
        remainder.events,
        clock.last_end,
        round(max(seen, last) / _NS),
        clock.typical,
        in_order=remainder.in_order,
    )
    return start + clock.parts(repeated) + tail


def _merged(saves: Sequence[CheckpointCall]) -> tuple[CheckpointCall, ...]:
    """Each file once, as it was written last; the last ones of all."""
    by_file: dict[tuple[str, int], CheckpointCall] = {}
    for save in sorted(saves, key=lambda save: save.ended_ns):
        by_file[save.path, 0 if save.path else save.began_ns] = save
    ordered = sorted(by_file.values(), key=lambda save: save.ended_ns)
    return tuple(ordered[-_MOST_SAVES:])
