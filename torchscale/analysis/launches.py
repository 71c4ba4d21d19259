"""Figures of one launch from its raw batches."""

from __future__ import annotations

import math

from torchscale.schema.record import LaunchRecord


def batch_seconds(record: LaunchRecord) -> list[float]:
    """Wall time of each batch for the group: the slowest rank's."""
    series = [[batch.seconds for batch in rank.batches] for rank in record.ranks]
    return [max(batch) for batch in zip(*series, strict=False)]  # all ranks have as many: they decide together


def batch_step_seconds(record: LaunchRecord) -> list[float]:
    """Mean step of each batch for the group; batches of a fixed number of steps may differ by one step."""
    steps = [batch.steps for batch in record.ranks[0].batches]
    return [seconds / count for seconds, count in zip(batch_seconds(record), steps, strict=False)]


def measured_steps(record: LaunchRecord) -> int:
    """Steps of the measurement."""
    return sum(batch.steps for batch in record.ranks[0].batches[: _batch_count(record)])


def samples_per_second(record: LaunchRecord) -> float:
    """Of the group: global samples ÷ summed wall time of the batches, so that stalls count."""
    samples_per_step = sum(rank.samples_per_step for rank in record.ranks)
    return measured_steps(record) * samples_per_step / math.fsum(batch_seconds(record))


def startup_seconds(record: LaunchRecord) -> float:
    """Wall time of the launch outside warm-up and measurement."""
    return max(0.0, record.seconds - record.ranks[0].warmup.seconds - math.fsum(batch_seconds(record)))


def _batch_count(record: LaunchRecord) -> int:
    """Batches that every rank has: all of them, since the ranks decide together."""
    return min(len(rank.batches) for rank in record.ranks)
