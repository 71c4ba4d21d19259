"""Ranks of a running job: processes that have a rank in their environment, as torchrun gives it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.hang.test_flight_recorder import dump, entry
from torchscale.errors import UsageError
from torchscale.hang import rank_activity
from torchscale.hang.explain import explain_hang
from torchscale.hang.running_job import inspect_job
from torchscale.schema.launch.hang import HangCause, RankCondition

START_SECONDS = 20.0


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_activity, "SAMPLE_SECONDS", 0.05)
    monkeypatch.setenv("NCCL_RAS_ADDR", "127.0.0.1:1")  # nobody listens there


@contextlib.contextmanager
def job(
    ranks: int, world_size: int, local: int
) -> Iterator[tuple[subprocess.Popen[bytes], dict[int, psutil.Process]]]:
    """A shell with ``ranks`` sleeping children, each with a child of its own."""
    starts = "".join(
        f"RANK={rank} LOCAL_RANK={rank} WORLD_SIZE={world_size} LOCAL_WORLD_SIZE={local} sh -c "
        "'sleep 300 & wait' & "
        for rank in range(ranks)
    )
    environment = {
        name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")
    }
    shell = subprocess.Popen(
        ["/bin/sh", "-c", f"{starts}wait"], env=environment, start_new_session=True
    )
    try:
        deadline = time.monotonic() + START_SECONDS
        while len(children := psutil.Process(shell.pid).children(recursive=True)) < 2 * ranks:
            assert time.monotonic() < deadline, children
            time.sleep(0.02)
        yield (
            shell,
            {int(child.environ()["RANK"]): child for child in psutil.Process(shell.pid).children()},
        )
    finally:
        os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()


def test_the_ranks_below_a_launcher() -> None:
    with job(2, world_size=2, local=2) as (shell, children):
        evidence, notes = inspect_job(shell.pid)
        assert {found.rank: found.pid for found in evidence} == {
            rank: child.pid for rank, child in children.items()
        }
        beside, _ = inspect_job(children[1].pid)
        assert {found.pid for found in beside} == {found.pid for found in evidence}, (
            "of a rank: its whole job"
        )
    assert {found.condition for found in evidence} == {RankCondition.RUNNING}
    assert any("rank 0: pid" in note and "mostly idle" in note for note in notes)


def test_a_stopped_rank_is_named() -> None:
    with job(2, world_size=2, local=2) as (shell, children):
        children[1].suspend()
        evidence, notes = inspect_job(shell.pid)
    verdict = explain_hang(evidence, notes)
    assert (verdict.cause, verdict.ranks) == (HangCause.RANK_STOPPED, (1,))
    assert f"kill -CONT {children[1].pid}" in " ".join(verdict.evidence)


def test_a_rank_that_has_ended_is_named() -> None:
    with job(2, world_size=3, local=3) as (shell, _):
        evidence, notes = inspect_job(shell.pid)
    verdict = explain_hang(evidence, notes)
    assert (verdict.cause, verdict.ranks) == (HangCause.RANK_GONE, (2,))


def test_ranks_on_other_machines_are_not_taken_for_gone() -> None:
    with job(2, world_size=8, local=2) as (shell, _):
        evidence, notes = inspect_job(shell.pid)
    assert [found.rank for found in evidence] == [0, 1]
    assert "6 ranks are on other machines and were not looked at" in notes


def test_dumps_that_torch_wrote_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_FR_DUMP_TEMP_FILE", str(tmp_path / "rank_"))
    for rank in (0, 1):
        (tmp_path / f"rank_{rank}").write_text(json.dumps(dump(entry(3), entry(4, retired=False))))
        os.utime(tmp_path / f"rank_{rank}", (1.0, 1.0))
    with job(2, world_size=2, local=2) as (shell, _):
        assert all(found.log is None for found in inspect_job(shell.pid)[0]), "of an earlier job"
        for rank, entries in ((0, [entry(3), entry(4, retired=False)]), (1, [entry(3)])):
            (tmp_path / f"rank_{rank}").write_text(json.dumps(dump(*entries)))
        verdict = explain_hang(*inspect_job(shell.pid))
    assert (verdict.cause, verdict.ranks) == (HangCause.RANK_MISSING, (1,))
    assert verdict.summary == "all_reduce #4 (25.0 MiB): rank 1 never called it"


def test_what_is_no_job_is_an_error() -> None:
    with pytest.raises(UsageError, match="no process 4194304"):
        inspect_job(2**22)
    process = subprocess.Popen(["/bin/sleep", "300"])
    try:
        with pytest.raises(UsageError, match=f"process {process.pid} has no ranks"):
            inspect_job(process.pid)
    finally:
        process.kill()
        process.wait()
