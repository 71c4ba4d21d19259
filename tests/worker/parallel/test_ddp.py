"""When DDP's buckets are ready; what DDP trains is tested beside the other strategies."""

from __future__ import annotations

import pytest

from torchscale.worker.parallel.ddp import ReadyTimes


def test_ready_times_are_medians_over_steps_of_as_many_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first step had one bucket more, as before DDP rebuilds them."""
    clock = iter([1.0, 2.0, 3.0, 4.0, 10.0, 10.1, 10.3, 20.0, 20.2, 20.5])
    monkeypatch.setattr("torchscale.worker.parallel.ddp.perf_counter", lambda: next(clock))
    times = ReadyTimes()
    assert times.medians() == ()
    for buckets in (4, 3, 3):
        for index in range(buckets):
            times.note(is_first=index == 0)
    assert times.medians() == pytest.approx((0.0, 0.15, 0.4))
