"""What a watched job shows beside its steps, each with the step in which it was: lines of the
program, memory, compilations, checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.stats.intervals import IntervalSet
from torchscale.features.watch.analysis.step_parts import PARTS, mean_shares
from torchscale.schema.watch.attempt import CheckpointCall
from torchscale.schema.watch.rank import ProgramLine

Steps = NDArray[np.int64]
"""Numbers of steps, counted as in :class:`~torchscale.analysis.exchanges.steps.JobSteps`; -1 for
what came before the first."""
K = TypeVar("K", bound=Hashable)
_PSEUDO = 0.5
"""Samples for and against a line that a share's chance is told with: one of one is no certainty."""
_MOST_TIMES_SEEN = 2.0
"""That a part may be longer than its samples say, for them to stand for all of it."""
UNKNOWN = -1
"""In place of bytes that a rank does not have."""


@dataclass(frozen=True)
class TimeShare:
    """What a line, or a function, has of the time of some steps.

    Attributes:
        samples: There.
        share: Of the time.
        variance: Of ``share``, by chance of the samples.
    """

    samples: int = 0
    share: float = 0.0
    variance: float = 0.0


@dataclass(frozen=True)
class SeenLines:
    """Where a rank was seen, some times a second.

    Attributes:
        step: Of each sample.
        place: Of each sample: index into ``places``.
        places: Lines of the program; their own ``samples`` are 0.
        part: Of each sample: the part of the step that it is in.
        parts: Of each sample: the shares of all parts of its step, packed.
    """

    step: Steps
    place: NDArray[np.int64]
    places: tuple[ProgramLine, ...]
    part: NDArray[np.int64]
    parts: NDArray[np.int64]

    def time_shares(
        self, chosen: NDArray[np.bool_], key: Callable[[ProgramLine], K]
    ) -> dict[K, TimeShare]:
        """Shares of the time by a key of lines; empty without samples.

        How long each part of a step takes is measured, and where the rank is in that part is
        sampled (post-stratification): a line that is nearly all of its part has its share without
        the chance of few samples. Code that keeps Python's lock is sampled where it lets go of it:
        of a part with too few samples, lines have no more than twice what the samples say.

        Args:
            chosen: By step, from step 0 on; steps beyond its end are not chosen.
            key: What to tell apart.
        """
        inside = self._inside(chosen)
        by_place = np.zeros((PARTS, len(self.places)), np.int64)
        np.add.at(by_place, (self.part[inside], self.place[inside]), 1)
        seen_places = np.flatnonzero(by_place.any(axis=0)).tolist()
        keys = [key(self.places[place]) for place in seen_places]
        numbers = {one: number for number, one in enumerate(dict.fromkeys(keys))}
        counts = np.zeros((PARTS, len(numbers)), np.int64)
        for one, place in zip(keys, seen_places, strict=True):
            counts[:, numbers[one]] += by_place[:, place]
        totals = counts.sum(axis=1, keepdims=True)
        seen = totals / max(1, int(totals.sum()))
        length = np.minimum(mean_shares(self.parts[inside])[:, None], _MOST_TIMES_SEEN * seen)
        of_part = counts / np.maximum(totals, 1)
        nearly = (counts + _PSEUDO) / (totals + 2 * _PSEUDO)
        variance = length**2 * nearly * (1 - nearly) / np.maximum(totals, 1)
        samples, share = counts.sum(axis=0), (length * of_part).sum(axis=0)
        rows = zip(numbers, samples.tolist(), share.tolist(), variance.sum(axis=0), strict=True)
        return {one: TimeShare(*rest) for one, *rest in rows}

    def part_shares(self, chosen: NDArray[np.bool_]) -> NDArray[np.float64]:
        """The mean share of each part in these steps."""
        return mean_shares(self.parts[self._inside(chosen)])

    def _inside(self, chosen: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Samples in these steps."""
        inside = (self.step >= 0) & (self.step < len(chosen))
        inside[inside] = chosen[self.step[inside]]
        return inside


@dataclass(frozen=True)
class StartSamples:
    """Where a rank was seen before its first step had ended.

    Attributes:
        time_ns: Of each sample, ascending; nanoseconds since the epoch.
        place: Of each sample: index into ``places``.
        places: Lines of the program.
    """

    time_ns: NDArray[np.int64]
    place: NDArray[np.int64]
    places: tuple[ProgramLine, ...]

    def within(self, span: IntervalSet) -> list[ProgramLine]:
        """The line of each sample in one of the intervals."""
        inside = span.within(self.time_ns, self.time_ns + 1) > 0
        return [self.places[number] for number in self.place[inside].tolist()]


@dataclass(frozen=True)
class MemorySeries:
    """Memory of a rank over time, in bytes; at most some thousand readings.

    Attributes:
        step: In which it was read.
        time_ns: When, in nanoseconds since the epoch.
        resident: Of the process.
        allocated, reserved: Of torch's allocator on the device; :data:`UNKNOWN` without.
    """

    step: Steps
    time_ns: NDArray[np.int64]
    resident: NDArray[np.int64]
    allocated: NDArray[np.int64]
    reserved: NDArray[np.int64]


@dataclass(frozen=True)
class Compilation:
    """One compilation by torch.compile of a frame of the program.

    Attributes:
        step: In which it began; -1 before the first.
        began_ns: Nanoseconds since the epoch.
        seconds: How long it took.
        function, file, line: What was compiled; of torch's own code, from where it was called.
        reason: Why again: the guard that failed; empty for a first compilation.
        has_failed: Whether torch could not compile it, or would not again: it runs as it is.
    """

    step: int
    began_ns: int
    seconds: float
    function: str
    file: str
    line: int
    reason: str
    has_failed: bool = False


@dataclass(frozen=True)
class ShownByRank:
    """Of one rank.

    Attributes:
        lines: Where it was seen.
        memory: Over time.
        compilations: In order.
        saves: Checkpoints that it completed; ``steps`` of each counts from its first step on.
    """

    lines: SeenLines
    memory: MemorySeries
    compilations: tuple[Compilation, ...] = ()
    saves: tuple[CheckpointCall, ...] = ()
