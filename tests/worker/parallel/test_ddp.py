"""When DDP's buckets are ready; and compressed gradients. What DDP trains is tested beside the
other strategies."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.worker.forks import Forks
from tests.worker.trainers import cell, run_trainers
from torchscale.worker.parallel.ddp import ReadyTimes


def test_ready_times_are_medians_over_steps_of_as_many_buckets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first step had one bucket more, as before DDP rebuilds them."""
    clock = iter([1.0, 2.0, 3.0, 4.0, 10.0, 10.1, 10.3, 20.0, 20.2, 20.5])
    monkeypatch.setattr("torchscale.worker.parallel.ddp.perf_counter", lambda: next(clock))
    times = ReadyTimes()
    assert times.medians() == ()
    for buckets in (4, 3, 3):
        for index in range(buckets):
            times.note(is_first=index == 0)
    assert times.medians() == pytest.approx((0.0, 0.15, 0.4))


def test_compressed_gradients_in_many_buckets_keep_ranks_equal(
    forks: Forks, tmp_path: Path
) -> None:
    """PowerSGD begins after ten steps. Its all-reduces of several buckets at once would meet in
    another order on each rank, which hangs or crashes within a few steps."""
    found = [
        cell(2, {"name": "ddp", "comm_hook": hook, "bucket_cap_mb": 0.002})
        for hook in ("powersgd", "fp16")
    ]
    for result in run_trainers(forks, tmp_path, found, steps=30):
        assert result["differing"] is None
        assert result["losses"][-1] < result["losses"][0] - 0.1
