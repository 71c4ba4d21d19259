"""Times of a function: what is measured, and when a change counts."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from torchscale.errors import OutputError, UsageError
from torchscale.pytest_plugin.timing import (
    MIN_ROUNDS,
    TimingSession,
    compare_times,
    describe_session,
    time_function,
)
from torchscale.pytest_plugin.timing_baseline import MAX_SESSIONS, read_times, update_times


def session(seconds: Sequence[float], machine: str = "CPU, 2 cores") -> TimingSession:
    return TimingSession(
        measured_at="2026-01-01T00:00:00+00:00",
        machine=machine,
        python="3.12.0",
        torchscale="1",
        calls=3,
        seconds=tuple(seconds),
    )


def noisy(level: float, generator: random.Random, rounds: int = 20) -> TimingSession:
    return session([level * generator.lognormvariate(0, 0.01) for _ in range(rounds)])


def test_a_call_takes_what_it_sleeps() -> None:
    measured = time_function(lambda: time.sleep(0.002), rounds=5, round_seconds=0.01)
    assert len(measured.seconds) == 5
    assert all(seconds >= 0.002 for seconds in measured.seconds)


def test_a_round_has_as_many_calls_as_fill_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that only the calls move: a busy machine makes each of them longer."""
    clock = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])

    def call() -> None:
        clock[0] += 0.002

    measured = time_function(call, rounds=7, round_seconds=0.01)
    assert measured.calls == 5
    assert measured.seconds == pytest.approx((0.002,) * 7)


def test_what_synchronizes_is_called_once_a_round_and_its_time_counts() -> None:
    waited = []

    def synchronize() -> None:
        waited.append(1)
        time.sleep(0.005)

    measured = time_function(lambda: None, rounds=4, round_seconds=0.001, synchronize=synchronize)
    assert measured.calls == 1
    assert len(waited) == 2 + 4  # to warm up, to choose the calls of a round, and the rounds
    assert all(seconds >= 0.005 for seconds in measured.seconds)


def test_too_few_rounds_are_refused() -> None:
    with pytest.raises(UsageError, match=f"rounds: 2 is below {MIN_ROUNDS}"):
        time_function(lambda: None, rounds=2)
    with pytest.raises(UsageError, match="round_seconds"):
        time_function(lambda: None, round_seconds=0.0)


def test_a_planted_slowdown_is_found_and_noise_is_not() -> None:
    generator = random.Random(7)
    before = noisy(1e-3, generator)
    assert compare_times(noisy(1.2e-3, generator), [before]).is_slower
    assert compare_times(noisy(1e-3 / 1.2, generator), [before]).is_faster
    alarms = [compare_times(noisy(1e-3, generator), [before]).is_slower for _ in range(100)]
    assert not any(alarms)


def test_a_change_below_the_threshold_passes() -> None:
    generator = random.Random(8)
    change = compare_times(noisy(1.05e-3, generator), [noisy(1e-3, generator)])
    assert change.ratio.p is not None
    assert change.ratio.p < 0.05
    assert not change.is_slower
    assert compare_times(
        noisy(1.05e-3, generator), [noisy(1e-3, generator)], threshold=0.02
    ).is_slower


def test_noise_between_the_sessions_of_a_baseline_widens_the_interval() -> None:
    """Levels of sessions that differ by 20 % make a change of 15 % no regression, where one session
    would."""
    generator = random.Random(9)
    levels = [0.8e-3, 1e-3, 1.2e-3]
    change = compare_times(noisy(1.15e-3, generator), [noisy(level, generator) for level in levels])
    assert not change.is_slower
    assert "3 sessions" in change.describe()
    alone = compare_times(noisy(1.15e-3, generator), [noisy(1e-3, generator)])
    assert alone.is_slower
    assert "noise between sessions is unknown" in alone.describe()


def test_another_machine_is_refused() -> None:
    with pytest.raises(
        UsageError, match=r"another machine \(Other, 8 cores; this one: CPU, 2 cores\)"
    ):
        compare_times(session([1.0, 1.0]), [session([1.0, 1.0], "Other, 8 cores")])


def test_the_file_keeps_the_newest_sessions_of_this_machine(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "times.json"
    update_times(
        path, {"a": session([9.0, 9.0], "Other, 8 cores"), "b": session([5.0, 5.0])}, add=False
    )
    for number in range(MAX_SESSIONS + 2):
        update_times(path, {"a": session([1.0 + number, 1.0])}, add=True)
    kept = read_times(path).tests
    assert [one.seconds[0] for one in kept["a"]] == [3.0 + number for number in range(MAX_SESSIONS)]
    assert len(kept["b"]) == 1
    update_times(path, {"a": session([7.0, 7.0])}, add=False)
    assert [one.seconds for one in read_times(path).tests["a"]] == [(7.0, 7.0)]


@pytest.mark.parametrize(
    ("waited", "contended"), [(None, False), (0.0, False), (0.02, False), (0.31, True)]
)
def test_a_session_that_waited_for_a_core_is_contended(
    waited: float | None, contended: bool
) -> None:
    measured = session([0.001, 0.001]).model_copy(update={"waited": waited})
    assert measured.is_contended is contended
    assert (
        "contended: it waited for a core 31.0 % of the time" in describe_session(measured)
    ) is contended


def test_a_session_reads_as_a_sentence() -> None:
    assert (
        describe_session(session([0.0012, 0.0012]))
        == "1.20 ms (1.20 to 1.20 ms) per call, 2 rounds of 3 calls"
    )


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "Invalid JSON"),
        ('{"schema_version": 2}', "schema_version"),
        ('{"tests": {"a": [{"seconds": [0, 1]}]}}', "tests.a.0"),
    ],
)
def test_a_file_that_is_no_baseline_is_refused(tmp_path: Path, content: str, reason: str) -> None:
    path = tmp_path / "times.json"
    path.write_text(content)
    with pytest.raises(UsageError, match=reason) as caught:
        read_times(path)
    assert "\n" not in caught.value.message


def test_sessions_that_end_at_once_keep_each_other(tmp_path: Path) -> None:
    path = tmp_path / "pytest.json"
    names = [f"test_{number}" for number in range(24)]
    with ThreadPoolExecutor(len(names)) as pool:
        list(
            pool.map(lambda name: update_times(path, {name: session([1.0, 2.0])}, add=True), names)
        )
    assert sorted(read_times(path).tests) == sorted(names)


def test_a_baseline_that_is_held_for_long_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchscale.pytest_plugin.timing_baseline._UPDATE_SECONDS", 0.05)
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with pytest.raises(OutputError, match="is held by another process"):
            update_times(tmp_path / "pytest.json", {"test": session([1.0, 2.0])}, add=True)
    finally:
        os.close(descriptor)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "lockless", [OSError(errno.ENOLCK, "No locks available"), OSError(errno.EINVAL, "x")]
)
def test_a_file_system_without_locks_is_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lockless: OSError
) -> None:
    def refuse(*_: object) -> None:
        raise lockless

    monkeypatch.setattr(fcntl, "flock", refuse)
    update_times(tmp_path / "pytest.json", {"test": session([1.0, 2.0])}, add=True)
    assert list(read_times(tmp_path / "pytest.json").tests) == ["test"]
