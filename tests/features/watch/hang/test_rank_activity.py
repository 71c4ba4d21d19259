"""Ranks that compute, sleep or spin, from a kernel made by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest

from torchscale.features.watch.hang import rank_activity
from torchscale.features.watch.hang.activity import Activity
from torchscale.features.watch.hang.rank_activity import SAMPLE_SECONDS, rank_activities


class Rank:
    """A process that uses ``share`` of a core and is found running whenever it is looked at, or
    never."""

    def __init__(self, pid: int, clock: SimpleNamespace, share: float) -> None:
        self.pid, self._clock, self._share = pid, clock, share

    def status(self) -> str:
        return psutil.STATUS_RUNNING if self._share > 0.5 else psutil.STATUS_SLEEPING

    def cpu_times(self) -> SimpleNamespace:
        used = 100.0 + self._share * self._clock.now
        return SimpleNamespace(user=0.75 * used, system=0.25 * used)


class Gone(Rank):
    """One that has ended."""

    def status(self) -> str:
        raise psutil.NoSuchProcess(self.pid)

    def cpu_times(self) -> SimpleNamespace:
        raise psutil.NoSuchProcess(self.pid)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock that sleeping moves."""
    made = SimpleNamespace(now=50.0)

    def sleep(seconds: float) -> None:
        made.now += seconds

    made.monotonic, made.sleep = lambda: made.now, sleep
    monkeypatch.setattr(rank_activity, "time", made)
    return made


@pytest.fixture
def maps(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """What is mapped into processes, by path; without an entry it cannot be read."""
    content: dict[str, bytes] = {f"/proc/{pid}/maps": b"/lib/libc.so.6" for pid in (1, 2, 3)}

    def read(path: object, limit: int) -> bytes:
        if str(path) not in content:
            raise PermissionError(str(path))
        return content[str(path)]

    monkeypatch.setattr(rank_activity, "read_bounded", read)
    return content


def watched(*ranks: Rank) -> tuple[dict[int, Activity | None], dict[int, float]]:
    return rank_activities(cast(Any, dict(enumerate(ranks))))


def test_a_rank_that_computes_is_told_from_those_that_sleep(
    clock: SimpleNamespace, maps: dict[str, bytes]
) -> None:
    """In about a second: nobody waits longer for a look, and clock ticks are 10 ms."""
    activities, shares = watched(Rank(1, clock, 1.0), Rank(2, clock, 0.0))
    assert activities == {0: Activity.BUSY, 1: Activity.IDLE}
    assert shares == pytest.approx({0: 1.0, 1: 0.0})
    assert clock.now - 50.0 == pytest.approx(SAMPLE_SECONDS)
    assert 0.5 <= SAMPLE_SECONDS <= 2.0


@pytest.mark.parametrize(
    "library", ["/usr/lib/libcuda.so.550.54", "/opt/libmpi.so.40", "/opt/libucp.so.0"]
)
def test_nobody_is_called_busy_where_waiting_ranks_may_spin(
    clock: SimpleNamespace, maps: dict[str, bytes], library: str
) -> None:
    """A rank that waits in NCCL or MPI keeps its core as busy as one that computes."""
    maps["/proc/2/maps"] = library.encode()
    activities, shares = watched(Rank(1, clock, 1.0), Rank(2, clock, 0.9))
    assert activities == {0: None, 1: None}
    assert shares == pytest.approx({0: 1.0, 1: 0.9})


def test_what_cannot_be_read_may_spin(clock: SimpleNamespace, maps: dict[str, bytes]) -> None:
    del maps["/proc/1/maps"]
    assert watched(Rank(1, clock, 1.0))[0] == {0: None}


def test_a_process_that_has_ended_does_nothing(
    clock: SimpleNamespace, maps: dict[str, bytes]
) -> None:
    activities, shares = watched(Gone(1, clock, 0.0), Rank(2, clock, 1.0))
    assert shares[0] == 0.0
    assert activities == {0: Activity.IDLE, 1: Activity.BUSY}


def test_a_rank_that_is_seen_to_run_now_and_then_is_neither(
    clock: SimpleNamespace, maps: dict[str, bytes]
) -> None:
    """Half of the looks: it may serve a loader, or poll."""

    class Polling(Rank):
        looks = 0

        def status(self) -> str:
            self.looks += 1
            return psutil.STATUS_RUNNING if self.looks % 2 else psutil.STATUS_SLEEPING

    activities, _ = watched(Polling(1, clock, 0.5), Rank(2, clock, 1.0))
    assert activities == {0: None, 1: Activity.BUSY}


@pytest.mark.parametrize(
    ("looks", "activity"),
    [(2, Activity.IDLE), (3, None), (15, None), (16, Activity.BUSY)],
)
def test_a_tenth_of_the_looks_is_asleep_and_four_fifths_are_busy(
    clock: SimpleNamespace, maps: dict[str, bytes], looks: int, activity: Activity | None
) -> None:
    class Once(Rank):
        left = looks

        def status(self) -> str:
            self.left -= 1
            return psutil.STATUS_RUNNING if self.left >= 0 else psutil.STATUS_SLEEPING

    assert watched(Once(1, clock, 0.05))[0] == {0: activity}


def test_processor_time_is_told_as_a_share_of_the_time_that_passed(
    clock: SimpleNamespace, maps: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rank_activity, "SAMPLE_SECONDS", 4.0)
    assert watched(Rank(1, clock, 0.5))[1] == pytest.approx({0: 0.5})


def test_a_process_whose_time_cannot_be_read_has_used_none(clock: SimpleNamespace) -> None:
    assert rank_activity._cpu_seconds(cast(Any, Gone(1, clock, 1.0))) == 0.0
