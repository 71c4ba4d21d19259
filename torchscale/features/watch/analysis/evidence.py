"""What a watched job shows beside its steps, each with the step in which it was: lines of the
program, memory, compilations, checkpoints."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from torchscale.schema.watch.attempt import CheckpointCall
from torchscale.schema.watch.rank import ProgramLine

Steps = NDArray[np.int64]
"""Numbers of steps, counted as in :class:`~torchscale.analysis.exchanges.steps.JobSteps`; -1 for
what came before the first."""
UNKNOWN = -1
"""In place of bytes that a rank does not have."""


@dataclass(frozen=True)
class SeenLines:
    """Where a rank was seen, some times a second.

    Attributes:
        step: Of each sample.
        place: Of each sample: index into ``places``.
        places: Lines of the program; their own ``samples`` are 0.
    """

    step: Steps
    place: NDArray[np.int64]
    places: tuple[ProgramLine, ...]

    def counts(self, chosen: NDArray[np.bool_]) -> Counter[ProgramLine]:
        """Samples by line.

        Args:
            chosen: By step, from step 0 on; steps beyond its end are not chosen.
        """
        inside = (self.step >= 0) & (self.step < len(chosen))
        inside[inside] = chosen[self.step[inside]]
        totals = np.bincount(self.place[inside], minlength=len(self.places))
        pairs = zip(self.places, totals.tolist(), strict=True)
        return Counter({line: count for line, count in pairs if count})


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
