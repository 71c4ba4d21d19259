"""What a rank shows beside its steps, while it runs: each sample gets its step as soon as that is
known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.exchanges.events import Times
from torchscale.features.watch.analysis.evidence import (
    UNKNOWN,
    Compilation,
    MemorySeries,
    SeenLines,
    ShownByRank,
    StartSamples,
)
from torchscale.features.watch.analysis.step_parts import NO_BEGINS, PartBegins, StepShares
from torchscale.schema.watch.attempt import CheckpointCall
from torchscale.schema.watch.rank import CompiledFrame, NamedPlace, ProgramLine

Rows = NDArray[np.int64]
MOST_SAMPLES, MOST_READINGS = 200_000, 4_000
"""Of a rank: nearly three hours of all samples, 8 MB; of memory an hour, and each reading stands
for many of a growth that matters."""
_OF_A_JOB = 20
"""Ranks that may have as many; more of them share that: 160 MB."""
_LEAST_SHARE = 500
"""Rows of a rank, however many ranks there are: levels and lines show in as many."""
_MOST_PLACES = 10_000
"""Of a rank, whose collector tells 2,000 apart."""
_MOST_FRAMES = 10_000
"""Compilations of a rank, whose collector notes 2,000."""
_NS = 1e-9


class StepRows:
    """Rows of numbers in order of time, and the step of each. At most so many are kept: of more
    every second one is dropped, again and again, also of those to come."""

    def __init__(self, columns: int, most: int) -> None:
        self._most = most
        self._table = np.zeros((64, 2 + columns), np.int64)  # step, time, columns
        self._count = self._assigned = 0
        self._offered, self._stride = 0, 1

    def limit(self, most: int) -> None:
        """Keep at most so many."""
        self._most = most
        self._thin()

    def add(self, rows: Rows) -> None:
        """Rows that came next: time, columns."""
        kept = rows[-self._offered % self._stride :: self._stride]
        self._offered += len(rows)
        end = self._count + len(kept)
        if end > len(self._table):
            longer = np.zeros((max(end, 2 * len(self._table)), self._table.shape[1]), np.int64)
            longer[: self._count] = self._table[: self._count]
            self._table = longer
        self._table[self._count : end, 1:] = kept
        self._count = end
        self._thin()

    def assign(self, edges: Times, first: int) -> Rows:
        """The steps between ``edges`` are complete, of which the first one has this number; what
        came before it is of the step before. The rows of these steps, to be filled."""
        pending = self._table[self._assigned : self._count]
        ready = int(np.searchsorted(pending[:, 1], edges[-1]))
        pending[:ready, 0] = _steps_of(pending[:ready, 1], edges, first)
        self._assigned += ready
        return pending[:ready]

    @property
    def rows(self) -> Rows:
        """Rows whose step is known: step, time, columns."""
        return np.array(self._table[: self._assigned])

    def _thin(self) -> None:
        while self._count > self._most:
            kept = self._table[: self._count : 2].copy()
            self._assigned = (self._assigned + 1) // 2
            self._count = len(kept)
            self._table[: self._count] = kept
            self._stride *= 2


class EvidenceLog:
    """Of one rank.

    Attributes:
        first_compiles: When each compilation before the first step began and ended, in nanoseconds
            since the epoch.
    """

    def __init__(self) -> None:
        self._samples = StepRows(3, MOST_SAMPLES)
        self._memory = StepRows(3, MOST_READINGS)
        self._places: list[ProgramLine] = []
        self._frames: list[CompiledFrame] = []
        self._compiled: list[Compilation] = []
        self._last: dict[str, int] = {}
        self._noted = 0
        self._edges: Times = np.zeros(0, np.int64)
        self._begins = NO_BEGINS
        self.first_compiles: list[tuple[int, int]] = []

    def share(self, ranks: int) -> None:
        """Keep what one of so many ranks may."""
        share = max(1.0, ranks / _OF_A_JOB)
        self._samples.limit(max(_LEAST_SHARE, int(MOST_SAMPLES / share)))
        self._memory.limit(max(_LEAST_SHARE, int(MOST_READINGS / share)))

    def name(self, place: NamedPlace) -> None:
        """A place by its number; one that is out of order is none."""
        if place.place == len(self._places) < _MOST_PLACES:
            line = place.model_dump(exclude={"place"})
            self._places.append(ProgramLine(**line, samples=0))

    def add(self, samples: Rows, memory: Rows, frames: Sequence[CompiledFrame]) -> None:
        """What the rank wrote since the last call."""
        self._samples.add(np.pad(samples, ((0, 0), (0, 2))))
        self._memory.add(memory)
        self._frames += frames[: max(0, _MOST_FRAMES - self._noted)]
        self._noted += len(frames)

    def assign(
        self,
        edges: Times,
        first: int,
        begins: PartBegins = NO_BEGINS,
    ) -> None:
        """Steps of the rank are complete.

        Args:
            edges: When they ended, the first one of the step before.
            first: Number of the first step.
            begins: Of parts of its steps, at least from the first edge to the last.
        """
        # What began before the last stretch ended may be written after it.
        before = self._edges[:-1]
        whole, first = np.concatenate([before, edges]), first - len(before)
        parts = StepShares(self._begins.until(int(edges[0]), begins), whole)
        self._edges, self._begins = edges, begins
        samples = self._samples.assign(whole, first)
        samples[:, 3], samples[:, 4] = parts.at(samples[:, 1]), parts.shares(samples[:, 1])
        self._memory.assign(whole, first)
        known = [frame for frame in self._frames if frame.began_ns < edges[-1]]
        self._frames = [frame for frame in self._frames if frame.began_ns >= edges[-1]]
        began = np.array([frame.began_ns for frame in known], np.int64)
        for frame, step in zip(known, _steps_of(began, whole, first).tolist(), strict=True):
            self._add_compilation(frame, step)

    def _add_compilation(self, frame: CompiledFrame, step: int) -> None:
        """A backward graph that is compiled later is a part of the compilation of its frame."""
        if step < 0:
            end = frame.began_ns + round(frame.seconds / _NS)
            self.first_compiles.append((frame.began_ns, end))
        place = self._last.get(frame.id)
        if frame.is_backward and place is not None:
            whole = self._compiled[place]
            self._compiled[place] = replace(whole, seconds=whole.seconds + frame.seconds)
            return
        self._last[frame.id] = len(self._compiled)
        self._compiled.append(
            Compilation(
                step=step,
                began_ns=frame.began_ns,
                seconds=frame.seconds,
                function=frame.function,
                file=frame.file,
                line=frame.line,
                reason=frame.reason,
                has_failed=frame.has_failed,
            )
        )

    def evidence(self, saves: Sequence[CheckpointCall]) -> ShownByRank:
        """All of steps that are complete.

        Args:
            saves: Checkpoints that the rank completed.
        """
        samples = self._known_samples
        step, time, *memory = np.maximum(self._memory.rows, UNKNOWN).T
        return ShownByRank(
            SeenLines(
                samples[:, 0],
                samples[:, 2],
                tuple(self._places),
                samples[:, 3],
                samples[:, 4],
            ),
            MemorySeries(step, time, *memory),
            tuple(self._compiled),
            tuple(saves),
        )

    @property
    def start_samples(self) -> StartSamples:
        """Samples before the first step had ended."""
        samples = self._known_samples
        samples = samples[samples[:, 0] < 0]
        return StartSamples(samples[:, 1], samples[:, 2], tuple(self._places))

    @property
    def _known_samples(self) -> Rows:
        """Those of places that have names."""
        samples = self._samples.rows
        return samples[(samples[:, 2] >= 0) & (samples[:, 2] < len(self._places))]


def _steps_of(times: Times, edges: Times, first: int) -> Rows:
    """The step of each time; -1 before the first step of all."""
    return np.maximum(first - 1 + np.searchsorted(edges, times, side="right"), -1)
