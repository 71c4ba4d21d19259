"""The clock that a job and its ranks share."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from torchscale.worker.watch import clock
from torchscale.worker.watch.marks import STEP, Marks, moment

SECOND_NS = 1_000_000_000
HOUR_NS = 3_600 * SECOND_NS


@pytest.fixture
def of_this_job() -> None:
    clock.begin()


def set_wall_clock(monkeypatch: pytest.MonkeyPatch, by_ns: int) -> None:
    monkeypatch.setattr(clock, "time_ns", lambda: time.time_ns() + by_ns)


@pytest.mark.usefixtures("of_this_job")
@pytest.mark.parametrize("by_ns", [HOUR_NS, -HOUR_NS, -30 * 366 * 24 * HOUR_NS])
def test_a_wall_clock_that_is_set_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, by_ns: int
) -> None:
    noted = Marks()
    noted.start()
    noted.note(STEP)
    began = clock.now_ns()
    set_wall_clock(monkeypatch, by_ns)
    noted.note(STEP)
    first, second = (since for _, since in map(moment, noted.take()))
    assert 0 <= second - first < SECOND_NS
    assert 0 <= clock.now_ns() - began < SECOND_NS
    assert abs(clock.set_by_ns() - by_ns) < SECOND_NS


@pytest.mark.usefixtures("of_this_job")
def test_it_begins_with_the_wall_clock() -> None:
    assert abs(clock.now() - time.time()) < 1
    assert abs(clock.set_by_ns()) < SECOND_NS


def read_by_a_rank(told: str) -> float:
    """What a process that is told this says the time is."""
    asks = "import clock; print(clock.now())"
    said = subprocess.run(
        [sys.executable, "-S", "-c", asks],
        cwd=Path(clock.__file__).parent,
        env={clock.VARIABLE: told},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return float(said.stdout)


@pytest.mark.slow
@pytest.mark.usefixtures("of_this_job")
def test_a_rank_goes_by_the_clock_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was started after the wall clock had been set."""
    monkeypatch.setattr(clock._Clock, "start_ns", clock._Clock.start_ns - HOUR_NS)
    assert abs(read_by_a_rank(clock.told()) - (time.time() - 3_600)) < 60


@pytest.mark.slow
@pytest.mark.usefixtures("of_this_job")
@pytest.mark.parametrize(
    "told",
    [
        *("", " 5", "5", "another-boot time:[1] 5", "{monotonic} ", "{monotonic} 1e9"),
        *("{monotonic} ٣", "{monotonic} " + "9" * 30, "{monotonic} --5"),
    ],
)
def test_what_is_told_of_another_host_is_not_used(told: str) -> None:
    """Its monotonic clock began at another moment."""
    monotonic = clock.told().rpartition(" ")[0]
    assert abs(read_by_a_rank(told.format(monotonic=monotonic)) - time.time()) < 60
