"""The mean step of a launch as parts that add up to it.

Each rank's phases add up to its step, and all ranks take part in every step. A part is therefore a
mean over ranks, and splits in two: what the typical rank takes, and what slower ranks add. The
typical rank of a phase is the lower median over ranks, so that one of two ranks, or few of many,
change ``SLOWER_RANKS`` alone and not the phase in which they are slow.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from torchscale.analysis.diagnosis.signals import Signals
from torchscale.analysis.training.throughput import mean_step_seconds
from torchscale.schema.launch.record import LaunchRecord, payload
from torchscale.schema.launch.steps import RankSteps
from torchscale.schema.launch.training import TrainingResult
from torchscale.schema.run.step_parts import OutsidePart, StepPart, StepParts
from torchscale.util.optional import complete, optional

_LEAST_OUTSIDE = 1e-3
"""Seconds: no process starts in less, so that the launch's wall time is not known."""
_DECIMALS = 9
"""Nanoseconds, below what any clock here resolves."""
_ByPhase = Mapping[StepPart, Sequence[float]]
"""Mean seconds of a step in a phase, for each rank."""


def step_parts(record: LaunchRecord, signals: Signals | None) -> StepParts | None:
    """Parts of a launch's mean step; ``None`` where its ranks left no steps.

    Args:
        record: A training launch that ended ``ok``.
        signals: Those of the launch.

    Raises:
        ValueError: the record is of another kind of cell, or has values that no measurement has.
    """
    result = payload(record, TrainingResult)
    phases = _phases(result.rank_steps)
    if signals is None or not phases or len(result.rank_steps) != len(result.ranks):
        return None
    waiting, communication = _waiting(signals), _communication(signals)
    outside_seconds, outside = _outside(record, result)
    common: dict[StepPart, float]
    if waiting is None or communication is None:
        common = {phase: statistics.fmean(ranks) for phase, ranks in phases.items()}
        exchange = complete(result.rank_steps.mean_sync)
        if exchange and len(exchange) > 1:
            common[StepPart.EXCHANGE] = statistics.fmean(exchange)
        by_rank, later_in = [], {}
    else:
        common = {phase: statistics.median_low(ranks) for phase, ranks in phases.items()}
        common[StepPart.COMMUNICATION] = communication
        by_rank = _by_rank(phases, common, waiting)
        later_in = {
            phase: statistics.fmean(ranks) - common[phase] for phase, ranks in phases.items()
        }
    return StepParts(
        step=mean_step_seconds(result),
        parts=_rounded(common),
        by_rank=tuple(round(seconds, _DECIMALS) for seconds in by_rank),
        later_in=_rounded(later_in),
        waiting=round(math.fsum(waiting or ()), _DECIMALS),
        outside_seconds=outside_seconds,
        outside={part: round(seconds, _DECIMALS) for part, seconds in outside.items()},
        gradient_bytes=optional(sum, signals.bucket_bytes),
        buckets=optional(len, signals.bucket_bytes),
        link_seconds=optional(lambda probe: probe.merged_seconds, signals.probe),
    )


def _rounded(parts: Mapping[StepPart, float]) -> dict[StepPart, float]:
    return {part: round(seconds, _DECIMALS) for part, seconds in parts.items()}


def _phases(steps: RankSteps) -> dict[StepPart, Sequence[float]]:
    """Phases that every rank measured; none where compute is in no phase of theirs."""
    measured = {
        StepPart.DATA_WAIT: steps.mean_data_wait,
        StepPart.FORWARD: steps.mean_forward,
        StepPart.BACKWARD: steps.mean_backward,
        StepPart.OPTIMIZER: steps.mean_optimizer,
        StepPart.COMPUTE: steps.mean_compute,
        StepPart.BUBBLE: steps.mean_bubble,
    }
    known = {phase: complete(ranks) for phase, ranks in measured.items()}
    phases: dict[StepPart, Sequence[float]] = {
        phase: ranks for phase, ranks in known.items() if ranks
    }
    if StepPart.FORWARD not in phases and StepPart.COMPUTE not in phases:
        return {}
    return phases


def _waiting(signals: Signals) -> list[float] | None:
    """By rank: how long the others wait for it in a step, mean over ranks. A single rank waits for
    nobody; ``None`` where waiting is not told from communication."""
    if len(signals.ranks) == 1:
        return [0.0]
    if signals.wait is None or signals.blame is None:
        return None
    mean = float(signals.mean(signals.wait).mean())
    return [mean * float(share) for share in signals.blame]


def _communication(signals: Signals) -> float | None:
    if len(signals.ranks) == 1:
        return 0.0
    if signals.transfer is None:
        return None
    return float(signals.mean(signals.transfer))


def _by_rank(
    phases: _ByPhase, common: Mapping[StepPart, float], waiting: Sequence[float]
) -> list[float]:
    """What each rank adds to the mean step: what it takes longer than the typical rank, as its share
    of the mean over ranks, and the others' waiting for it. Below 0 for a faster rank."""
    count = len(waiting)
    if count == 1:
        return []
    return [
        math.fsum(ranks[rank] - common[phase] for phase, ranks in phases.items()) / count + waited
        for rank, waited in enumerate(waiting)
    ]


def _outside(
    record: LaunchRecord, result: TrainingResult
) -> tuple[float | None, dict[OutsidePart, float]]:
    """The launch without its measured steps, and the known parts of it; of a user's script neither
    is known."""
    setups = complete(rank.setup for rank in result.ranks)
    outside = record.seconds - result.measured_seconds
    if not setups or outside < _LEAST_OUTSIDE:
        return None, {}
    parts = {
        OutsidePart.IMPORTS: statistics.fmean([setup.import_seconds for setup in setups]),
        OutsidePart.PROCESS_GROUP: statistics.fmean(
            [setup.process_group_seconds for setup in setups]
        ),
        OutsidePart.BUILD: statistics.fmean([setup.build_seconds for setup in setups]),
        OutsidePart.FIRST_STEP: statistics.fmean([setup.first_step_seconds for setup in setups]),
    }
    warmed = statistics.fmean([rank.warmup.seconds for rank in result.ranks])
    parts[OutsidePart.WARM_UP] = max(0.0, warmed - parts[OutsidePart.FIRST_STEP])
    probes = [
        rank.signals.unsynchronized_wall_seconds
        for rank in result.ranks
        if rank.signals is not None and rank.signals.unsynchronized_wall_seconds is not None
    ]
    if probes:
        parts[OutsidePart.PROBES] = math.fsum(probes) / len(result.ranks)
    return outside, parts
