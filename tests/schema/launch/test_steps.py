from __future__ import annotations

import pytest
from pydantic import ValidationError

from torchscale.schema.launch.steps import Batch, BatchTimes, Digest, RankSteps, StepDigest


def test_columns_of_batches() -> None:
    times = BatchTimes.of([Batch(steps=10, seconds=1.5), Batch(steps=5, seconds=0.5)])
    assert times.steps == (10, 5)
    assert times.seconds == (1.5, 0.5)
    assert len(times) == 2
    assert times.total_steps == 15
    assert times.total_seconds == 2.0


@pytest.mark.parametrize(
    ("steps", "seconds", "told"),
    [
        ((10, 5), (1.0,), "steps of 2 batches, seconds of 1"),
        ((0,), (1.0,), "greater than or equal to 1"),
        ((1,), (0.0,), "greater than or equal to 0.0"),
        ((1,), (float("nan"),), "finite"),
    ],
)
def test_what_is_no_batch_is_refused(
    steps: tuple[int, ...], seconds: tuple[float, ...], told: str
) -> None:
    with pytest.raises(ValidationError, match=told):
        BatchTimes(steps=steps, seconds=seconds)


def a_digest(**changes: float | None) -> StepDigest:
    seconds = Digest(
        count=2, mean=1.5, minimum=1, p50=1.5, p95=1.9, p99=1.99, maximum=2, values=(1, 2)
    )
    times = {
        "mean_data_wait": 0.1,
        "mean_forward": 0.4,
        "mean_backward": 0.6,
        "mean_optimizer": 0.4,
        **changes,
    }
    return StepDigest.model_validate({"seconds": seconds, **times})


def test_columns_of_the_steps_of_ranks() -> None:
    columns = RankSteps.of([a_digest(), a_digest(mean_sync=0.2)])
    assert len(columns) == 2
    assert columns.count == (2, 2)
    assert columns.p95 == (1.9, 1.9)
    assert columns.mean_sync == (None, 0.2)
    assert len(RankSteps()) == 0


def test_columns_are_of_one_length() -> None:
    with pytest.raises(ValidationError, match="columns of different lengths: count 2, mean 1"):
        RankSteps.model_validate({**RankSteps.of([a_digest()] * 2).model_dump(), "mean": (1.0,)})
