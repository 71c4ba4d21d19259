"""Figures of one launch from its raw batches."""

from __future__ import annotations

from torchscale.analysis.stats.estimate import relative_half_width
from torchscale.schema.launch.record import LaunchRecord, payload
from torchscale.schema.launch.training import TrainingResult
from torchscale.util.optional import complete, optional


def batch_step_seconds(result: TrainingResult) -> list[float]:
    """Mean step of each batch for the group; batches of a fixed number of steps may differ by one
    step."""
    return [
        seconds / count
        for seconds, count in zip(result.batch_seconds, result.ranks[0].batches.steps, strict=False)
    ]


def mean_step_seconds(result: TrainingResult) -> float:
    """Mean step of the group: summed wall time of the batches ÷ steps."""
    return result.measured_seconds / result.measured_steps


def batch_half_width(result: TrainingResult) -> float | None:
    """Half-width of the 95 % interval of the mean step, as a share of it, from the batches of this
    launch."""
    return relative_half_width(batch_step_seconds(result))


def step_samples(result: TrainingResult) -> int | None:
    """Samples of all ranks in a step; ``None`` where a user's script is not told its batch."""
    return optional(sum, complete(rank.samples_per_step for rank in result.ranks))


def samples_per_second(result: TrainingResult) -> float | None:
    """Samples per second of the group: global samples ÷ summed wall time of the batches, so that
    stalls count; ``None`` where samples are not known."""
    samples = step_samples(result)
    if samples is None:
        return None
    return result.measured_steps * samples / result.measured_seconds


def steps_per_second(result: TrainingResult) -> float:
    """Steps per second of the group."""
    return 1 / mean_step_seconds(result)


def startup_seconds(record: LaunchRecord) -> float:
    """Wall time of the launch outside warm-up and measurement."""
    result = payload(record, TrainingResult)
    warmed = result.ranks[0].warmup.seconds
    return max(0.0, record.seconds - warmed - result.measured_seconds)
