from __future__ import annotations

import pytest

from tests.factories import cells, launch_record, rank_record, training_result
from torchscale.analysis.training.flags import Flag, launch_flags
from torchscale.analysis.training.throughput import batch_step_seconds, samples_per_second
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.launch.steps import Batch, BatchTimes

TWO = cells(batch_sizes=[8], gpu_counts=[2])[0]


def record_of(first: list[tuple[int, float]], second: list[tuple[int, float]]) -> LaunchRecord:
    """A launch of two ranks with these batches of (steps, seconds)."""
    ranks = [
        rank_record(TWO, rank).model_copy(
            update={
                "batches": BatchTimes.of(
                    Batch(steps=steps, seconds=seconds) for steps, seconds in batches
                )
            }
        )
        for rank, batches in enumerate((first, second))
    ]
    return launch_record(TWO, ranks=ranks)


def test_a_batch_takes_as_long_as_its_slowest_rank_and_stalls_count() -> None:
    """20 steps of 2 × 8 samples; the ranks are slow in different batches: 2 s + 3 s, not the 4 s
    that each saw."""
    record = record_of([(10, 1.0), (10, 3.0)], [(10, 2.0), (10, 2.0)])
    assert training_result(record).batch_seconds == (2.0, 3.0)
    assert samples_per_second(training_result(record)) == pytest.approx(20 * 16 / 5.0)


def test_batches_that_differ_by_a_step_are_no_noise_and_no_drift() -> None:
    batches = [(7 if index < 5 else 8, 0.1 * (7 if index < 5 else 8)) for index in range(10)]
    record = record_of(batches, batches)
    assert training_result(record).measured_steps == 75
    assert batch_step_seconds(training_result(record)) == pytest.approx([0.1] * 10)
    assert not {Flag.DRIFTING, Flag.NOISY} & launch_flags(record, TWO.measurement)
