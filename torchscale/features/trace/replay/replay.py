"""A recording of all ranks as one graph of moments, and whether it gives back what was measured."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from torchscale.features.trace.analysis.paired import Paired, Places
from torchscale.features.trace.analysis.stages import StageLayout
from torchscale.features.trace.analysis.windows import NS, RankWindow, step_periods
from torchscale.features.trace.replay.device import DeviceLine
from torchscale.features.trace.replay.graph import (
    EdgeKind,
    EventGraph,
    GraphBuilder,
    RankFrame,
    ReplayError,
    Times,
    only,
)
from torchscale.features.trace.replay.host import HostLine, find_waits
from torchscale.features.trace.replay.ties import Ties, find_ties
from torchscale.features.trace.span import SEND_RECV
from torchscale.util.units import format_change, format_percent

MAX_ERROR = 0.05
"""Largest error, as a share of a step. A replay that misses what was measured by more says nothing
of what was not."""
_MIN_STEPS = 3
"""Fewer do not tell what a step takes when nothing is changed."""
_MAX_OPERATIONS = 300_000
"""Collectives, sends and receives of all ranks: each takes a few kilobytes in a replay."""
_LEAVES_EARLY = {"broadcast", "reduce", "gather", "scatter"}
"""Ranks may leave these before the last one has arrived."""


@dataclass(frozen=True)
class Replay:
    """Recorded steps that can be replayed.

    Attributes:
        ranks: Windows of the ranks.
        graph: Moments of all ranks.
        ties: What ties ranks together; rows are what ``graph.edges.tie`` counts.
        tie_steps: Step of each tie, by its first member.
        tie_begins: The moment at which each edge of a tie's transfer could begin on its rank, in
            the order of edges.
        boundaries: Starts of the steps and the end of the last, a row a rank.
        layout: The stages of a pipeline.
        origin: Nanoseconds on the first clock at which the times of the graph begin.
        offsets: Offsets of the ranks' clocks, nanoseconds.
        measured: Seconds: mean over steps of the group's step.
        error: Error of the replay as recorded: the rank and share by which its mean step is missed
            most.
    """

    ranks: Sequence[RankWindow]
    graph: EventGraph
    ties: Ties
    tie_steps: NDArray[np.int64]
    tie_begins: NDArray[np.int64]
    boundaries: NDArray[np.int64]
    layout: StageLayout
    origin: int
    offsets: NDArray[np.int64]
    measured: float
    error: tuple[int, float]

    def steps_of(self, weights: Times) -> Times:
        """Seconds of the group's step in each variant: mean from the start of the first step to the
        end of the last, each that of the rank that comes last. Ranks begin the window as far apart
        as they were recorded, which a change may take away: what a rank then waits in the first
        step is not counted.

        Raises:
            ReplayError: moments follow each other in a circle.
        """
        edges = self.graph.times(weights)[self.boundaries[:, [0, -1]]].max(axis=0)
        return np.asarray((edges[1] - edges[0]) / (self.boundaries.shape[1] - 1) * NS)

    def periods(self, weights: Times) -> Times:
        """Nanoseconds of each rank's steps: rank × step × variant."""
        return np.asarray(np.diff(self.graph.times(weights)[self.boundaries], axis=1))


def build_replay(
    ranks: Sequence[RankWindow], paired: Paired, layout: StageLayout, offsets: NDArray[np.int64]
) -> Replay:
    """The replay of the ranks' windows.

    Args:
        ranks: All ranks, with steps.
        paired: Their collectives, on one clock.
        layout: The stages of a pipeline.
        offsets: Offsets of the ranks' clocks, nanoseconds.

    Raises:
        ReplayError: it has too few steps, its communication cannot be tied, or what it gives back
            is not what was measured.
    """
    if len(ranks[0].steps) < _MIN_STEPS:
        raise ReplayError(
            f"{len(ranks[0].steps)} steps can be compared; a replay needs {_MIN_STEPS}"
        )
    operations = sum(len(rank.trace.collectives) for rank in ranks)
    if operations > _MAX_OPERATIONS:
        raise ReplayError(
            f"the recordings hold {operations:,} collectives, sends and receives; at most "
            f"{_MAX_OPERATIONS:,} can be replayed: record fewer steps"
        )
    ties = find_ties(ranks, paired, layout)
    builder = GraphBuilder()
    origin = min(rank.start - int(offset) for rank, offset in zip(ranks, offsets, strict=True))
    lines = [DeviceLine(rank) if rank.trace.on_device else HostLine(rank) for rank in ranks]
    find_waits([line for line in lines if isinstance(line, HostLine)])
    shifts = [origin + int(offset) for offset in offsets]
    begins, ends = _add_ties(builder, ranks, ties, shifts, [line.ends for line in lines])
    boundaries = [
        line.add(RankFrame(builder, column, shifts[column], begins[column], ends[column]))
        for column, line in enumerate(lines)
    ]
    graph = builder.build()
    recorded = step_periods(list(ranks))
    replay = Replay(
        ranks=ranks,
        graph=graph,
        ties=ties,
        tie_steps=_steps_of(ranks, ties.column[ties.first[:-1]], ties.place[ties.first[:-1]]),
        tie_begins=np.array(
            [
                begins[column][place]
                for column, place in zip(ties.column.tolist(), ties.place.tolist(), strict=True)
            ],
            dtype=np.int64,
        ),
        boundaries=np.array(boundaries, dtype=np.int64),
        layout=layout,
        origin=origin,
        offsets=offsets,
        measured=float(recorded.max(axis=0).mean()) * NS,
        error=(0, 0.0),
    )
    return _checked(replay, recorded)


def _checked(replay: Replay, recorded: NDArray[np.int64]) -> Replay:
    """The replay with its error.

    Raises:
        ReplayError: it is larger than :data:`MAX_ERROR`.
    """
    replayed = replay.periods(replay.graph.edges.parts.sum(axis=1)[:, None])[:, :, 0].mean(axis=1)
    errors = replayed / recorded.mean(axis=1) - 1
    worst = int(np.abs(errors).argmax())
    rank, error = replay.ranks[worst].trace.rank, float(errors[worst])
    if not abs(error) <= MAX_ERROR:
        raise ReplayError(
            f"the replay of rank {rank} gives a step of {replayed[worst] * 1e-6:.4g} ms where "
            f"{recorded.mean(axis=1)[worst] * 1e-6:.4g} ms were measured ({format_change(error)}; "
            f"at most {format_percent(MAX_ERROR, 0)})"
        )
    return dataclasses.replace(replay, error=(rank, error))


def _steps_of(ranks: Sequence[RankWindow], column: Places, place: Places) -> Places:
    """The step in which each collective of a rank began; -1 before the first."""
    steps = np.empty(len(column), dtype=np.int64)
    order = np.argsort(column, kind="stable")
    bounds = np.searchsorted(column[order], np.arange(len(ranks) + 1))
    for number, rank in enumerate(ranks):
        mine = order[bounds[number] : bounds[number + 1]]
        begins = rank.trace.collectives.start[place[mine]]
        steps[mine] = np.searchsorted(rank.steps.start, begins, side="right") - 1
    return steps


def _add_ties(
    builder: GraphBuilder,
    ranks: Sequence[RankWindow],
    ties: Ties,
    shifts: Sequence[int],
    over: Sequence[NDArray[np.int64]],
) -> tuple[list[dict[int, int]], list[dict[int, int]]]:
    """Moments at which tied operations begin to run and end on each rank, by their place: they end
    after the last member has begun, by what each was recorded to take from there."""
    begins: list[dict[int, int]] = [{} for _ in ranks]
    ends: list[dict[int, int]] = [{} for _ in ranks]
    before = [_before_in_queue(rank, end) for rank, end in zip(ranks, over, strict=True)]
    steps = _steps_of(ranks, ties.column, ties.place).tolist()
    columns, places, firsts = ties.column.tolist(), ties.place.tolist(), ties.first.tolist()
    for number in range(len(ties)):
        op, mine = ties.ops[ties.op[number]], slice(firsts[number], firsts[number + 1])
        members = list(zip(columns[mine], places[mine], steps[mine], strict=True))
        began, ended = [], []
        for column, place, _ in members:
            collectives = ranks[column].trace.collectives
            began.append(int(collectives.began[place]) - shifts[column])
            ended.append(int(over[column][place]) - shifts[column])
        all_here = max(began)
        together = builder.moment(all_here)
        received = _received(ranks, members, ended) if op == SEND_RECV else None
        for member, (column, place, step) in enumerate(members):
            collectives = ranks[column].trace.collectives
            end = ended[member] if received is None else min(ended[member], received)
            possible = int(collectives.start[place])
            if place in before[column]:
                possible = max(possible, int(over[column][before[column][place]]))
            begin = begins[column][place] = builder.moment(possible - shifts[column])
            runs = builder.moment(began[member])
            builder.edge(
                begin,
                runs,
                only(EdgeKind.OTHER, began[member] - builder.recorded(begin)),
                rank=column,
            )
            builder.edge(runs, together)
            early = op in _LEAVES_EARLY and end < all_here
            finish = ends[column][place] = builder.moment(end if early else max(end, all_here))
            since, source = (began[member], runs) if early else (all_here, together)
            builder.edge(
                source,
                finish,
                only(EdgeKind.TRANSFER, end - since),
                rank=column,
                step=step,
                tie=number,
            )
    for column, previous in enumerate(before):
        for place, earlier in previous.items():
            if place in begins[column] and earlier in ends[column]:
                builder.edge(ends[column][earlier], begins[column][place])
    return begins, ends


def _before_in_queue(rank: RankWindow, end: NDArray[np.int64]) -> dict[int, int]:
    """What each operation follows on its stream or thread."""
    collectives = rank.trace.collectives
    latest: dict[int, int] = {}
    before: dict[int, int] = {}
    for place in np.argsort(collectives.began, kind="stable").tolist():
        queue = int(collectives.queue[place])
        if queue >= 0:
            if queue in latest and end[latest[queue]] <= collectives.began[place]:
                before[place] = latest[queue]
            latest[queue] = place
    return before


def _received(
    ranks: Sequence[RankWindow], members: Sequence[tuple[int, int, int]], ended: Sequence[int]
) -> int | None:
    """When a receive ended, of a send and a receive: that of the send, as gloo records it, is when
    it was waited for, which can be much later."""
    for (column, place, _), end in zip(members, ended, strict=True):
        if ranks[column].trace.collectives.direction[place] < 0:
            return end
    return None
