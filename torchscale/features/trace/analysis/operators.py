"""What a recorded step consists of: each operator or kernel by its name, exposed communication, and
the rest."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from torchscale.analysis.stats.intervals import IntervalSet
from torchscale.config.choices import WindowChoice
from torchscale.features.trace.analysis.windows import (
    NS,
    RankWindow,
    choose_window,
    job_size,
    rank_windows,
)
from torchscale.features.trace.span import Trace
from torchscale.util.units import format_bytes


@dataclass(frozen=True)
class OperatorUse:
    """An operator, or a kernel of a device, in a step: means over ranks and steps.

    Attributes:
        count: How often.
        seconds: All of these together.
    """

    count: float
    seconds: float


@dataclass(frozen=True)
class MeanRecordedStep:
    """The mean step of a recording, over ranks and steps.

    Attributes:
        steps: Number of recorded steps.
        seconds: From the start of a step to that of the next.
        operators: Kernels by name where the work is on a device; else the outermost operators that
            hand nothing to the network.
        collectives: Communication that none of these hides, by operation and size.
        ranks: How many ranks it is the mean of.
        job_ranks: How many the job had, as far as the recording tells.
    """

    steps: int
    seconds: float
    operators: Mapping[str, OperatorUse]
    collectives: Mapping[str, OperatorUse]
    ranks: int = 1
    job_ranks: int = 1

    @property
    def communication(self) -> float:
        """All exposed communication."""
        return math.fsum(use.seconds for use in self.collectives.values())

    @property
    def rest(self) -> float:
        """Gaps between operators, less what runs at the same time."""
        work = math.fsum(use.seconds for use in self.operators.values())
        return self.seconds - work - self.communication


def recorded_step(trace: Trace) -> MeanRecordedStep:
    """The mean step of all ranks of a recording.

    Raises:
        TraceError: it has no step that all ranks share.
    """
    kind, numbers, _ = choose_window(trace, WindowChoice.STEPS)
    ranks = rank_windows(trace, kind, numbers)
    steps = len(numbers)
    per_step = 1 / (steps * len(ranks))
    return MeanRecordedStep(
        steps,
        math.fsum(rank.length for rank in ranks) * NS * per_step,
        _means(map(_operators, ranks), per_step),
        _means(map(_collectives, ranks), per_step),
        len(ranks),
        job_size(trace),
    )


_Uses = Mapping[str, tuple[int, float]]
"""Count and nanoseconds by name, of what lies in the window of a rank."""


def _means(ranks: Iterable[_Uses], per_step: float) -> dict[str, OperatorUse]:
    seconds: dict[str, float] = defaultdict(float)
    counts: dict[str, float] = defaultdict(float)
    for uses in ranks:
        for name, (count, time) in uses.items():
            counts[name] += count * per_step
            seconds[name] += time * NS * per_step
    return {name: OperatorUse(counts[name], seconds[name]) for name in seconds}


def _collectives(rank: RankWindow) -> _Uses:
    """Time of each operation and size that no operator hides, and no collective before it in this
    list: of two at once the larger counts, so that they sum to the exposed time."""
    found = rank.trace.collectives
    inside = (found.end > rank.start) & (found.start < rank.end)
    kinds = sorted(
        set(zip(found.op[inside].tolist(), found.payload_bytes[inside].tolist(), strict=True)),
        key=lambda kind: (-kind[1], kind[0]),
    )
    left, uses = rank.exposed, {}
    for op, size in kinds:
        these = inside & (found.op == op) & (found.payload_bytes == size)
        others = IntervalSet(found.start[these], found.end[these]).clipped(rank.start, rank.end)
        remaining = left.minus(others)
        name = found.ops[op]
        if size >= 0:
            name = f"{name} {format_bytes(size)}"
        uses[name] = (int(these.sum()), float(left.length - remaining.length))
        left = remaining
    if left.length:  # by copy engines
        spans = rank.trace.spans
        count = int(
            (spans.between_devices & (spans.end > rank.start) & (spans.start < rank.end)).sum()
        )
        uses["copies between devices"] = (count, float(left.length))
    return uses


def _operators(rank: RankWindow) -> _Uses:
    spans, names = rank.trace.spans, rank.trace.names
    start = np.maximum(spans.start[rank.chosen], rank.start)
    end = np.minimum(spans.end[rank.chosen], rank.end)
    which = spans.name[rank.chosen]
    summed = np.bincount(which, weights=end - start, minlength=len(names))
    counts = np.bincount(which, minlength=len(names))
    return {
        names[number]: (int(counts[number]), float(summed[number]))
        for number in np.flatnonzero(counts)
    }
