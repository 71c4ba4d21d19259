"""The moments at which all ranks do what takes time."""

from __future__ import annotations

import pytest

from torchscale.worker.watch import beats


@pytest.mark.parametrize(
    ("now", "seconds", "number", "left"),
    [(10.0, 0.5, 20, 0.5), (10.2, 0.5, 20, 0.3), (11.9, 2.0, 5, 2.1), (10.49, 0.5, 20, 0.51)],
)
def test_intervals_are_those_of_the_wall_clock(
    monkeypatch: pytest.MonkeyPatch, now: float, seconds: float, number: int, left: float
) -> None:
    """Who wakes up just before an interval's end waits for the next one's."""
    monkeypatch.setattr(beats, "time", lambda: now)

    assert beats.beat(seconds) == number
    assert beats.until_next(seconds) == pytest.approx(left)
