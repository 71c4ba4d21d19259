"""Ranks that another program has started, followed by one process; whole jobs are followed in
``tests/test_watching.py``."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.features.watch.analysis.jobs import START_NS, job
from tests.features.watch.job.folders import write_job
from torchscale.features.watch.ends.files import EndFiles
from torchscale.features.watch.job import follow_ranks
from torchscale.features.watch.job.follow_ranks import _LocalRanks, _only_follower
from torchscale.features.watch.job.job import WatchedJob

GONE = 2_000_000_000
"""No process has this number."""


def _ranks(directory: Path, **facts: Any) -> _LocalRanks:
    """Two ranks that say they run here, as process :data:`GONE` and the next one."""
    write_job(directory, job(2, 40), host=socket.gethostname(), **facts)
    for path in directory.glob("ranks/*/rank.json"):
        known = json.loads(path.read_text())
        path.write_text(json.dumps({**known, "pid": GONE + known["rank"]}))
    watched = WatchedJob(directory, ("tuesday",), START_NS * 1e-9)
    return _LocalRanks(watched, directory, GONE)


def test_a_rank_that_is_gone_without_a_word_is_noted_once(tmp_path: Path) -> None:
    ranks = _ranks(tmp_path, state="running", is_in_thread=True)
    assert ranks.have_ended(0.0)
    assert ranks.have_ended(0.0)

    ends = EndFiles(tmp_path).of_attempt(0)
    assert sorted((end.rank, end.kind, end.pid) for end in ends) == [
        (0, "gone", GONE),
        (1, "gone", GONE + 1),
    ]
    ranks.job.explain_end(None)
    assert ranks.job.ends.failure is not None


@pytest.mark.parametrize(
    "facts",
    [
        {"state": "ended", "is_in_thread": True},
        {"state": "running", "is_in_thread": False},  # a program may leave by os._exit
    ],
)
def test_a_rank_that_noted_its_end_or_would_not_is_none(
    tmp_path: Path, facts: dict[str, object]
) -> None:
    assert _ranks(tmp_path, **facts).have_ended(0.0)
    assert EndFiles(tmp_path).of_attempt(0) == []


def test_all_ranks_of_this_machine_are_waited_for(tmp_path: Path) -> None:
    ranks = _ranks(tmp_path, state="running", is_in_thread=True)
    path = tmp_path / "ranks" / "1.0" / "rank.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "pid": os.getpid()}))

    assert not ranks.have_ended(0.0)
    assert [end.rank for end in EndFiles(tmp_path).of_attempt(0)] == [0]
    path.write_text(json.dumps({**json.loads(path.read_text()), "host": "elsewhere"}))
    assert ranks.have_ended(0.0)


def test_one_process_follows_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow_ranks, "_LOCK_SECONDS", 0.01)
    with _only_follower(tmp_path, GONE) as first:
        assert first  # also of a rank that has ended: nobody else has seen it
        with _only_follower(tmp_path, GONE) as second:
            assert not second
    with _only_follower(tmp_path, GONE) as third:
        assert third


def test_one_that_waited_follows_a_rank_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "follower.lock").open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        looks = []

        def alive(pid: int, seconds: float) -> bool:
            looks.append(pid)
            fcntl.flock(other, fcntl.LOCK_UN)
            return False

        monkeypatch.setattr(follow_ranks, "has_ended", alive)
        with _only_follower(tmp_path, 7) as follows:
            assert follows
    assert looks == [7, 7]
