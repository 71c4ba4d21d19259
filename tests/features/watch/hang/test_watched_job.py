"""A watched job that makes no progress: whom its command asks, and what it concludes."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from tests.features.watch.job.folders import FACTS
from torchscale.features.watch.hang import evidence, watched_job
from torchscale.features.watch.hang.evidence import ask_ranks, read_facts
from torchscale.features.watch.hang.watched_job import FOLDER, ask_starting_ranks, job_autopsy
from torchscale.schema.launch.hang import HangCause, RankCondition
from torchscale.schema.watch.rank import RankFacts


def rank_facts(rank: int, pid: int, began: float) -> RankFacts:
    place = {"rank": rank, "world_size": 2, "local_world_size": 2, "pid": pid, "began": began}
    return RankFacts.model_validate({**FACTS, **place, "state": "running"})


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[int, psutil.Process | None]:
    """The processes that are asked; they do not answer."""
    found: dict[int, psutil.Process | None] = {}

    def ask(
        directory: Path,
        processes: Mapping[int, psutil.Process | None],
        moved_seconds_ago: float | None = None,
    ) -> None:
        found.update(processes)
        ask_ranks(directory, processes, moved_seconds_ago)

    monkeypatch.setattr(watched_job, "ask_ranks", ask)
    monkeypatch.setattr(evidence, "_ANSWER_SECONDS", 0.0)
    monkeypatch.setattr(evidence, "py_spy_stacks", lambda pids: {})
    monkeypatch.setattr(evidence, "nccl_notes", lambda pids: ())
    return found


def test_a_rank_that_has_ended_is_named_and_what_an_earlier_look_left_is_gone(
    tmp_path: Path, asked: dict[int, psutil.Process | None]
) -> None:
    folder = tmp_path / FOLDER
    folder.mkdir()
    (folder / "autopsy-rank-1.json").write_text("of an earlier hang")
    ranks = {0: rank_facts(0, os.getpid(), time.time()), 1: rank_facts(1, 4_194_304, time.time())}
    found = job_autopsy(tmp_path, ranks)
    assert (found.cause, found.ranks) == (HangCause.RANK_GONE, (1,))
    assert asked == {0: psutil.Process(), 1: None}
    assert not (folder / "autopsy-rank-1.json").exists()


def test_another_process_with_the_number_of_a_rank_that_ended_is_not_asked(
    tmp_path: Path, asked: dict[int, psutil.Process | None]
) -> None:
    """The rank began before the process that has its number now."""
    began = psutil.Process().create_time()
    job_autopsy(tmp_path, {0: rank_facts(0, os.getpid(), began - 2)})
    assert asked == {0: None}
    asked.clear()
    job_autopsy(tmp_path, {0: rank_facts(0, os.getpid(), began - 1)})
    assert asked == {0: psutil.Process()}, "both are times of clocks that differ by little"


def test_a_job_that_moved_lately_may_be_slow_and_nobody_is_named(
    tmp_path: Path, asked: dict[int, psutil.Process | None]
) -> None:
    ranks = {0: rank_facts(0, os.getpid(), time.time()), 1: rank_facts(1, 4_194_304, time.time())}
    assert job_autopsy(tmp_path, ranks, moved_seconds_ago=90.0).cause is HangCause.UNKNOWN
    assert read_facts(tmp_path / FOLDER).moved_seconds_ago == 90.0
    assert len(asked) == 2


@pytest.mark.parametrize("rank", ["1", "one"])
def test_ranks_below_a_launcher_are_known_by_their_variable(
    tmp_path: Path, asked: dict[int, psutil.Process | None], rank: str
) -> None:
    process = subprocess.Popen(["/bin/sleep", "300"], env={**os.environ, "RANK": rank})
    try:
        ask_starting_ranks(tmp_path, os.getpid(), 2)
    finally:
        process.kill()
        process.wait()
    assert asked[0] is None
    assert (asked[1] is not None) is (rank == "1")
    conditions = [state.condition for state in read_facts(tmp_path).processes]
    assert conditions[0] is RankCondition.GONE


def test_the_rank_is_the_oldest_of_the_processes_that_have_its_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a rank starts has its variables as well, and torchrun's agent is between."""

    def process(created: float, **variables: str) -> SimpleNamespace:
        return SimpleNamespace(create_time=lambda: created, environ=lambda: variables)

    agent, rank = process(1.0), process(2.0, RANK="1")
    below = [process(4.0, RANK="1"), rank, process(3.0, RANK="1")]
    launcher = SimpleNamespace(
        children=lambda recursive=False: [agent, *below] if recursive else [agent]
    )
    asked: dict[int, object] = {}
    monkeypatch.setattr(psutil, "Process", lambda pid: launcher)
    monkeypatch.setattr(watched_job, "ask_ranks", lambda folder, found: asked.update(found))
    ask_starting_ranks(tmp_path, 7, 2)
    assert asked == {0: None, 1: rank}
