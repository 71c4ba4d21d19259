"""Where the wall time of an attempt went: into steps, checkpoints, evaluations and stalls.

One clock counts, that of the job's lowest rank. What any rank does meanwhile belongs to the step
of that clock in which it lies. Parts never overlap: a checkpoint counts before an evaluation, and
both before a stall.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.exchanges.events import MomentKind, Moments, RankEvents, Times
from torchscale.analysis.stats.intervals import union
from torchscale.schema.watch.report import JobTime

LEAST_STALL = 1.0
"""Seconds: shorter gaps are a host that was busy, or a collection of garbage."""
STALL_STEPS = 3.0
"""Median steps that a gap must exceed: a sound step is never without any sign of progress for
longer than itself, and steps of varying length are within this of their median."""
LEAST_STEPS = 5
"""Steps whose median says what a step takes."""
_MAX_POINTS = 16_384
"""Of a clock: with 32 bytes each half a megabyte."""
_MAX_GAPS = 10_000
"""The longest ones, of all over :data:`LEAST_STALL`."""
_NS = 1e-9
_IS_PROGRESS = np.ones(1 << 5, bool)
_IS_PROGRESS[
    [MomentKind.COLLECTION, MomentKind.COLLECTION_END, MomentKind.DRAIN, MomentKind.DRAIN_END]
] = False
"""By kind of a moment: a garbage collection, and what the collector does itself, are no sign."""

Seconds = NDArray[np.float64]


@dataclass(frozen=True)
class MomentGaps:
    """What lies between neighbouring moments of one clock.

    Attributes:
        ends: When each ends, in nanoseconds since the epoch.
        saving: Seconds in which a rank writes a checkpoint.
        evaluating: Seconds in which a rank evaluates and none writes a checkpoint.
        gaps: (Place, seconds) of times over :data:`LEAST_STALL` without a sign of progress on any
            rank, without what of them is above.
    """

    ends: Times
    saving: Seconds
    evaluating: Seconds
    gaps: tuple[tuple[int, float], ...]


def find_spans(ranks: Sequence[RankEvents], edges: Times) -> MomentGaps:
    """What ranks did between ``edges``, at least two."""
    begin, finish = edges[:-1], edges[1:]
    saving = union(rank.moments.between(MomentKind.SAVE, MomentKind.SAVE_END) for rank in ranks)
    evaluating = union(rank.moments.evaluations for rank in ranks).minus(saving)
    named = union([saving, evaluating])
    signs = np.unique(np.concatenate([edges, *(_signs(rank, edges) for rank in ranks)]))
    length = np.diff(signs) - named.within(signs[:-1], signs[1:])
    places = np.flatnonzero(length > LEAST_STALL / _NS)
    steps = np.searchsorted(finish, signs[places + 1])
    return MomentGaps(
        finish,
        np.asarray(saving.within(begin, finish) * _NS),
        np.asarray(evaluating.within(begin, finish) * _NS),
        tuple(zip(steps.tolist(), (length[places] * _NS).tolist(), strict=True)),
    )


def _signs(rank: RankEvents, edges: Times) -> Times:
    """When a rank showed progress between the edges."""
    moments = rank.moments
    times = np.concatenate([moments.time[_IS_PROGRESS[moments.kind]], rank.calls.time])
    return np.asarray(times[(times > edges[0]) & (times < edges[-1])])


@dataclass
class StepClock:
    """When the steps of an attempt ended, and what of the time was no step. Of attempts with more
    than 16,384 steps every second one is kept, every fourth one, and so on.

    Attributes:
        first_end: When the first step ended, in nanoseconds since the epoch.
        steps: Steps so far, the first one included.
    """

    first_end: int
    steps: int = 1
    _number: NDArray[np.int64] = field(default_factory=lambda: np.ones(1, np.int64))
    _table: NDArray[np.float64] = field(default_factory=lambda: np.zeros((3, 1)))
    """Seconds from the first step to the end of each: all, saving, evaluating."""
    _gaps: NDArray[np.float64] = field(default_factory=lambda: np.zeros((2, 0)))
    """Step and seconds of each gap."""

    @property
    def last_end(self) -> int:
        """When the last step ended, in nanoseconds since the epoch."""
        return self.first_end + round(float(self._table[0, -1]) / _NS)

    @property
    def typical(self) -> float | None:
        """Median seconds of a step without checkpoints and evaluations; ``None`` of too few."""
        if self.steps <= LEAST_STEPS:
            return None
        steps = self._table[0] - self._table[1] - self._table[2]
        return float(np.median(np.diff(steps) / np.diff(self._number)))

    def add(self, spans: MomentGaps) -> None:
        """The next steps."""
        count = len(spans.ends)
        numbers = self.steps + 1 + np.arange(count)
        rows = [
            (spans.ends - self.first_end) * _NS,
            self._table[1, -1] + np.cumsum(spans.saving),
            self._table[2, -1] + np.cumsum(spans.evaluating),
        ]
        self._number = np.concatenate([self._number, numbers])
        self._table = np.concatenate([self._table, np.stack(rows)], axis=1)
        gaps = np.array([(self.steps + 1 + place, length) for place, length in spans.gaps])
        self._gaps = np.concatenate([self._gaps, gaps.reshape(-1, 2).T], axis=1)
        self.steps += count
        self._thin()

    def parts(self, repeated: int) -> JobTime:
        """From the end of the first step to that of the last one; of these the first ``repeated``
        steps repeat what was done before."""
        until = [float(np.interp(repeated, self._number, row)) for row in self._table]
        total, saving, evaluating = map(float, self._table[:, -1])
        again, lost = self._stalls(repeated), self._stalls(self.steps)
        recomputed = max(0.0, until[0] - until[1] - until[2] - again)
        return JobTime(
            steps=max(0.0, total - saving - evaluating - lost - recomputed),
            recomputed=recomputed,
            saving=saving,
            evaluating=evaluating,
            stalls=lost,
        )

    def _stalls(self, last: int) -> float:
        """Seconds of stalls in the steps up to ``last``."""
        return stalled(self._gaps[1, self._gaps[0] <= last], self.typical)

    def _thin(self) -> None:
        if self._gaps.shape[1] > _MAX_GAPS:
            longest = np.sort(np.argsort(-self._gaps[1], kind="stable")[:_MAX_GAPS])
            self._gaps = self._gaps[:, longest]
        while len(self._number) > _MAX_POINTS:
            kept = np.arange(len(self._number)) % 2 == 0
            kept[-1] = True
            self._number, self._table = self._number[kept], self._table[:, kept]


def stalled(gaps: Seconds, typical: float | None) -> float:
    """Seconds of all gaps that are stalls, without what a step takes; 0 where that is not known."""
    if typical is None:
        return 0.0
    stalls = gaps[gaps > max(LEAST_STALL, STALL_STEPS * typical)]
    return float((stalls - typical).sum())


def tail_parts(
    ranks: Sequence[RankEvents], begin: int, finish: int, typical: float | None, *, in_order: bool
) -> JobTime:
    """What came after the last step of an attempt.

    Args:
        ranks: What they noted since.
        begin, finish: End of that step and last sign of life, in nanoseconds since the epoch.
        typical: Seconds of a step.
        in_order: Whether the ranks left the program by themselves: then its last work, without
            steps, is no stall.
    """
    if finish <= begin:
        return JobTime()
    closed = [_closed(rank, begin, finish) for rank in ranks]
    spans = find_spans(closed, np.array([begin, finish]))
    saving, evaluating = float(spans.saving[0]), float(spans.evaluating[0])
    lost = 0.0
    if not in_order:
        lost = stalled(np.array([length for _, length in spans.gaps]), typical)
    rest = (finish - begin) * _NS - saving - evaluating - lost
    return JobTime(saving=saving, evaluating=evaluating, stalls=lost, end=max(0.0, rest))


def _closed(rank: RankEvents, begin: int, finish: int) -> RankEvents:
    """With ends of what was under way: of a checkpoint as the rank was last seen, of an evaluation
    that began after the last step at its last sign of progress."""
    moments = rank.moments
    added: list[tuple[int, int]] = []
    if int((moments.kind == MomentKind.SAVE).sum()) > int(
        (moments.kind == MomentKind.SAVE_END).sum()
    ):
        added.append((finish, MomentKind.SAVE_END))
    modes = np.flatnonzero(
        (moments.kind == MomentKind.EVALUATION) | (moments.kind == MomentKind.TRAINING)
    )
    if len(modes) and moments.kind[modes[-1]] == MomentKind.EVALUATION:
        signs = np.append(moments.time[_IS_PROGRESS[moments.kind]], rank.calls.time)
        if moments.time[modes[-1]] >= begin:
            added.append((int(signs.max()), MomentKind.TRAINING))
    if not added:
        return rank
    times, kinds = np.array(added, np.int64).T
    longer = Moments(
        np.append(moments.time, times),
        np.append(moments.kind, kinds),
        np.append(moments.detail, np.zeros_like(kinds)),
    )
    return replace(rank, moments=longer)
