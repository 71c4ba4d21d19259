"""Figures of one launch from its raw batches."""

from __future__ import annotations

import math

from torchscale.analysis.stats.series import relative_half_width
from torchscale.schema.launch.record import LaunchRecord, payload
from torchscale.schema.launch.training import TrainingResult


def batch_step_seconds(result: TrainingResult) -> list[float]:
    """Mean step of each batch for the group; batches of a fixed number of steps may differ by one
    step."""
    return [
        seconds / count
        for seconds, count in zip(result.batch_seconds, result.ranks[0].batches.steps, strict=False)
    ]


def mean_step_seconds(result: TrainingResult) -> float:
    """Mean step of the group: summed wall time of the batches ÷ steps."""
    return math.fsum(result.batch_seconds) / result.measured_steps


def batch_half_width(result: TrainingResult) -> float | None:
    """Half-width of the 95 % interval of the mean step, as a share of it, from the batches of this
    launch."""
    return relative_half_width(batch_step_seconds(result))


def samples_per_second(result: TrainingResult) -> float:
    """Samples per second of the group: global samples ÷ summed wall time of the batches, so that
    stalls count."""
    samples_per_step = sum(rank.samples_per_step for rank in result.ranks)
    return result.measured_steps * samples_per_step / math.fsum(result.batch_seconds)


def startup_seconds(record: LaunchRecord) -> float:
    """Wall time of the launch outside warm-up and measurement."""
    result = payload(record, TrainingResult)
    return max(
        0.0, record.seconds - result.ranks[0].warmup.seconds - math.fsum(result.batch_seconds)
    )
