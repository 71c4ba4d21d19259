"""Figures of one launch from its raw batches."""

from __future__ import annotations

import math

from torchscale.schema.record import LaunchRecord


def batch_step_seconds(record: LaunchRecord) -> list[float]:
    """Mean step of each batch for the group; batches of a fixed number of steps may differ by one step."""
    steps = [batch.steps for batch in record.ranks[0].batches]
    return [seconds / count for seconds, count in zip(record.batch_seconds, steps, strict=False)]


def samples_per_second(record: LaunchRecord) -> float:
    """Of the group: global samples ÷ summed wall time of the batches, so that stalls count."""
    samples_per_step = sum(rank.samples_per_step for rank in record.ranks)
    return record.measured_steps * samples_per_step / math.fsum(record.batch_seconds)


def startup_seconds(record: LaunchRecord) -> float:
    """Wall time of the launch outside warm-up and measurement."""
    return max(0.0, record.seconds - record.ranks[0].warmup.seconds - math.fsum(record.batch_seconds))
