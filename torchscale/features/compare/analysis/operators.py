"""Two recordings of one workload: which operators or kernels are new, gone, slower or faster, and
what each makes of the difference of the recorded step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from torchscale.features.trace.analysis.operators import MeanRecordedStep, OperatorUse

_LONGER = 0.1
"""Share by which a call must take longer to be called slower: profiled calls of one operator differ
by some percent from recording to recording."""
_NONE = OperatorUse(0.0, 0.0)


class OperatorFate(str, Enum):
    """What became of an operator; values are what files and tables show."""

    NEW = "new"
    GONE = "gone"
    MORE_CALLS = "more calls"
    FEWER_CALLS = "fewer calls"
    SLOWER = "slower"
    FASTER = "faster"
    ALIKE = "alike"


@dataclass(frozen=True)
class OperatorChange:
    """One operator on both sides; ``before`` and ``after`` are 0 where that side has none."""

    name: str
    before: OperatorUse
    after: OperatorUse

    @property
    def calls(self) -> tuple[float, float]:
        """How often it is called in a step of each side."""
        return self.before.count, self.after.count

    @property
    def seconds(self) -> float:
        """How much longer it takes in a step of the other side."""
        return self.after.seconds - self.before.seconds

    @property
    def fate(self) -> OperatorFate:
        """What became of it."""
        if not self.before.count:
            return OperatorFate.NEW
        if not self.after.count:
            return OperatorFate.GONE
        calls = self.after.count / self.before.count
        if calls > 1 + _LONGER:
            return OperatorFate.MORE_CALLS
        if calls < 1 - _LONGER:
            return OperatorFate.FEWER_CALLS
        if self.after.seconds > self.before.seconds * calls * (1 + _LONGER):
            return OperatorFate.SLOWER
        if self.after.seconds < self.before.seconds * calls * (1 - _LONGER):
            return OperatorFate.FASTER
        return OperatorFate.ALIKE


@dataclass(frozen=True)
class RecordingComparison:
    """Two recorded steps.

    Attributes:
        before, after: Their mean steps.
        operators: All operators of either side, the largest difference first.
        collectives: Exposed communication by operation and size, likewise. All these differences and
            that of the rest sum to that of the step.
    """

    before: MeanRecordedStep
    after: MeanRecordedStep
    operators: tuple[OperatorChange, ...]
    collectives: tuple[OperatorChange, ...]

    @property
    def other_ranks(self) -> str:
        """In what their ranks differ: ``1 of 8 ranks against 1 of 2``; empty where they do not."""
        before, after = self.before, self.after
        if (before.ranks, before.job_ranks) == (after.ranks, after.job_ranks):
            return ""
        return (
            f"{before.ranks} of {before.job_ranks} ranks against {after.ranks} of {after.job_ranks}"
        )


def compare_recorded(before: MeanRecordedStep, after: MeanRecordedStep) -> RecordingComparison:
    """Match operators by their name, which may have shapes in it."""
    return RecordingComparison(
        before,
        after,
        _changes(before.operators, after.operators),
        _changes(before.collectives, after.collectives),
    )


def _changes(
    before: Mapping[str, OperatorUse], after: Mapping[str, OperatorUse]
) -> tuple[OperatorChange, ...]:
    changes = [
        OperatorChange(name, before.get(name, _NONE), after.get(name, _NONE))
        for name in dict.fromkeys((*before, *after))
    ]
    return tuple(sorted(changes, key=lambda change: (-abs(change.seconds), change.name)))


@dataclass(frozen=True)
class ComparedRecording:
    """Two recordings with the name of what they are of; ``problem`` says why they could not be
    compared."""

    label: str
    comparison: RecordingComparison | None
    problem: str = ""
