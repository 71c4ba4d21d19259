"""Why a watched job does not begin."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from torchscale.features.watch.job import starting
from torchscale.features.watch.job.starting import present_waits, why_not_begun
from torchscale.schema.launch.hang import HangCause
from torchscale.schema.watch.ends import ProcessWait


def _wait(rank: int | None = 0, what: str = "group", **fields: Any) -> ProcessWait:
    known = {
        "format": 1,
        "what": what,
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "since": time.time(),
        "rank": rank,
        "world_size": 4,
        "address": "here:1",
    }
    return ProcessWait.model_validate({**known, **fields})


def _write(directory: Path, *waits: ProcessWait) -> None:
    (directory / "waits").mkdir()
    for number, wait in enumerate(waits):
        (directory / "waits" / f"group-{number}.json").write_text(wait.model_dump_json())


def test_waits_of_processes_that_are_gone_are_over(tmp_path: Path) -> None:
    gone, reused = _wait(1, pid=2**22 + 1), _wait(2, since=1.0)
    _write(tmp_path, _wait(0), gone, reused, _wait(3, host="elsewhere", pid=2**22 + 1))
    assert {wait.rank for wait in present_waits(tmp_path, 0)} == {0, 3}


def test_waits_of_attempts_that_are_over_are_over(tmp_path: Path) -> None:
    _write(tmp_path, _wait(0), _wait(1, attempt=2))
    assert [wait.rank for wait in present_waits(tmp_path, 1)] == [1]


def _others(monkeypatch: pytest.MonkeyPatch, share: float) -> None:
    """Rank 3 runs and uses so much of a core."""
    process = SimpleNamespace(pid=4711)
    monkeypatch.setattr(starting, "ranks_below", lambda parent: {0: process, 3: process})
    monkeypatch.setattr(
        starting, "rank_activities", lambda found: ({}, dict.fromkeys(found, share))
    )
    monkeypatch.setattr(starting, "process_condition", lambda process: None)
    monkeypatch.setattr(starting, "py_spy_stacks", lambda pids: {})


def test_a_rank_that_computes_may_come_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    _others(monkeypatch, 0.9)
    assert why_not_begun([_wait(0), _wait(1), _wait(2)], (), {}) is None


def test_a_rank_that_is_idle_is_told_with_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    _others(monkeypatch, 0.0)
    found = why_not_begun([_wait(0), _wait(1), _wait(2)], (), {})
    assert found is not None
    assert found.evidence == ("rank 3: pid 4711 is idle",)


def test_ranks_that_nobody_started_are_missing() -> None:
    found = why_not_begun([_wait(0), _wait(1), _wait(2)], (), {})
    assert found is not None
    assert (found.cause, found.ranks) == (HangCause.RANK_MISSING, (3,))


def test_a_rank_that_has_ended_or_gone_on_is_told() -> None:
    found = why_not_begun([_wait(0), _wait(1)], (2,), {3: "it raised OSError: no"})
    assert found is not None
    assert (found.cause, found.ranks) == (HangCause.RANK_GONE, (3,))
    found = why_not_begun([_wait(0), _wait(1)], (2, 3), {})
    assert found is not None
    assert found.ranks == ()


def test_a_rendezvous_counts_where_no_rank_waits() -> None:
    meeting = _wait(None, "rendezvous", least_nodes=2, most_nodes=2, joined_nodes=1)
    found = why_not_begun([meeting], (), {})
    assert found is not None
    assert found.cause is HangCause.NODE_MISSING
    found = why_not_begun([meeting, _wait(0)], (), {})
    assert found is not None
    assert found.cause is HangCause.RANK_MISSING


def test_nobody_waits() -> None:
    assert why_not_begun([], (), {}) is None
