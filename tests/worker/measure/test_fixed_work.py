from __future__ import annotations

from torchscale.worker.measure.fixed_work import FixedWork


def test_it_takes_little_processor_time_and_gives_medians_of_its_parts() -> None:
    work = FixedWork()
    assert work.read() is None
    for _ in range(5):
        work.sample()
    found = work.read()
    assert found is not None
    assert all(0 < seconds < 0.05 for seconds in found)
