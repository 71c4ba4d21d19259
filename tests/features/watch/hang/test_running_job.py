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
from types import SimpleNamespace

import psutil
import pytest

from tests.features.watch.hang.test_flight_recorder import dump, entry
from torchscale.errors import UsageError
from torchscale.features.watch.hang import rank_activity, running_job
from torchscale.features.watch.hang.activity import Activity
from torchscale.features.watch.hang.explain import explain_hang
from torchscale.features.watch.hang.job import RankEvidence
from torchscale.features.watch.hang.running_job import inspect_job
from torchscale.schema.launch.hang import HangCause, RankCondition, StackFrame

START_SECONDS = 20.0


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_activity, "SAMPLE_SECONDS", 0.05)
    monkeypatch.setenv("NCCL_RAS_ADDR", "127.0.0.1:1")  # nobody listens there


def started(
    monkeypatch: pytest.MonkeyPatch, *environments: dict[str, object], created: float = 1000.0
) -> list[RankEvidence]:
    """The evidence of processes with these environments below a launcher, all as if from the
    kernel."""

    def process(pid: int, variables: dict[str, object]) -> SimpleNamespace:
        texts = {name: str(value) for name, value in variables.items()}
        return SimpleNamespace(
            pid=pid,
            name=lambda: "python",
            environ=lambda: texts,
            status=lambda: psutil.STATUS_SLEEPING,
            create_time=lambda: created,
            parent=lambda: None,
        )

    children = [process(8 + place, variables) for place, variables in enumerate(environments)]
    launcher = process(7, {})
    launcher.children = lambda recursive: children if recursive else []
    monkeypatch.setattr(psutil, "Process", lambda pid: launcher)
    activities(monkeypatch, dict.fromkeys(range(8)), dict.fromkeys(range(8), 0.0))
    monkeypatch.setattr(running_job, "py_spy_stacks", lambda pids: {})
    evidence, _ = inspect_job(7)
    return evidence


def conditions(evidence: list[RankEvidence]) -> dict[int, RankCondition]:
    return {found.rank: found.condition for found in evidence}


RUNNING, GONE = RankCondition.RUNNING, RankCondition.GONE


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        # As launchers set it that number no machine: none of its ranks is known to have ended.
        ({"RANK": 3, "LOCAL_RANK": 1, "WORLD_SIZE": 4}, {3: RUNNING}),
        ({"RANK": 3, "LOCAL_WORLD_SIZE": 1, "WORLD_SIZE": 4}, {3: RUNNING}),
        # Of the second of two machines.
        (
            {"RANK": 2, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 2, "WORLD_SIZE": 4},
            {2: RUNNING, 3: GONE},
        ),
        (
            {"RANK": 3, "LOCAL_RANK": 1, "LOCAL_WORLD_SIZE": 2, "WORLD_SIZE": 4},
            {3: RUNNING, 2: GONE},
        ),
        ({"RANK": 0, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1, "WORLD_SIZE": 1}, {0: RUNNING}),
    ],
)
def test_ranks_of_this_machine_without_a_process_have_ended(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, object], expected: dict[int, object]
) -> None:
    assert conditions(started(monkeypatch, variables)) == expected


@pytest.mark.parametrize(
    ("rank", "local", "size"), [(1, -1, 2), (-1, -1, 2), (0, 1, 2), (2, 0, 2), (1, "x", 2)]
)
def test_numbers_that_no_rank_has_are_of_none(
    monkeypatch: pytest.MonkeyPatch, rank: int, local: object, size: int
) -> None:
    with pytest.raises(UsageError, match="has no ranks"):
        started(monkeypatch, {"RANK": rank, "LOCAL_RANK": local, "WORLD_SIZE": size})


@pytest.mark.parametrize(("time", "is_read"), [(999.0, False), (1000.0, True), (1001.0, True)])
def test_a_dump_is_of_this_job_if_it_was_written_since_the_rank_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, time: float, is_read: bool
) -> None:
    path = tmp_path / "rank_0"
    path.write_text(json.dumps(dump(entry(3))))
    os.utime(path, (time, time))
    named = {"TORCH_FR_DUMP_TEMP_FILE": tmp_path / "rank_"}
    (rank,) = started(monkeypatch, {"RANK": 0, "WORLD_SIZE": 1, **named})
    assert (rank.log is not None) is is_read


def test_a_file_that_has_the_number_of_a_rank_is_no_dump_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no variable says that torch dumps anywhere."""
    (tmp_path / "0").write_text(json.dumps(dump(entry(3))))
    monkeypatch.chdir(tmp_path)
    (rank,) = started(monkeypatch, {"RANK": 0, "WORLD_SIZE": 1})
    assert rank.log is None


@contextlib.contextmanager
def job(
    ranks: int, world_size: int, local: int
) -> Iterator[tuple[subprocess.Popen[bytes], dict[int, psutil.Process]]]:
    """A shell with ``ranks`` sleeping children, each with a child of its own."""
    variables = [
        f"RANK={rank} LOCAL_RANK={rank} WORLD_SIZE={world_size} LOCAL_WORLD_SIZE={local}"
        for rank in range(ranks)
    ]
    with children(*variables) as shell:
        yield (
            shell,
            {int(child.environ()["RANK"]): child for child in psutil.Process(shell.pid).children()},
        )


@contextlib.contextmanager
def children(*variables: str) -> Iterator[subprocess.Popen[bytes]]:
    """A shell with a sleeping child for each of these environments, which have a child each."""
    starts = "".join(f"{ours} sh -c 'sleep 300 & wait' & " for ours in variables)
    environment = {
        name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")
    }
    shell = subprocess.Popen(
        ["/bin/sh", "-c", f"{starts}wait"], env=environment, start_new_session=True
    )
    try:
        deadline = time.monotonic() + START_SECONDS
        below = psutil.Process(shell.pid)
        while len(found := below.children(recursive=True)) < 2 * len(variables):
            assert time.monotonic() < deadline, found
            time.sleep(0.02)
        yield shell
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
    assert not any("other machines" in note for note in notes), "all of its ranks are here"


def test_two_jobs_below_a_process_are_told_apart() -> None:
    variables = [
        f"RANK={rank} LOCAL_RANK={rank} WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 "
        f"MASTER_PORT={port}"
        for port in (29500, 29501)
        for rank in (0, 1)
    ]
    with children(*variables) as shell:
        below = [child.pid for child in psutil.Process(shell.pid).children()]
        with pytest.raises(UsageError, match=f"process {shell.pid} has 2 jobs below it") as caught:
            inspect_job(shell.pid)
        of_second, _ = inspect_job(below[3])
    assert caught.value.hint == (
        f"name a rank of one: torchscale autopsy {below[0]}, torchscale autopsy {below[2]}"
    )
    assert [(found.rank, found.pid) for found in of_second] == [(0, below[2]), (1, below[3])]


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
    assert "ranks 2-7 were not found on this machine" in notes


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


def test_a_process_of_somebody_else_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(pid: int) -> None:
        raise psutil.AccessDenied(pid)

    monkeypatch.setattr(psutil, "Process", denied)
    with pytest.raises(UsageError, match="process 7 belongs to another user"):
        inspect_job(7)


@pytest.mark.parametrize(
    "variables",
    [
        "RANK=2 WORLD_SIZE=2",
        "RANK=-1 WORLD_SIZE=2",
        "RANK=1 LOCAL_RANK=2 WORLD_SIZE=4",
        "RANK=one WORLD_SIZE=2",
        "RANK=0",
        "WORLD_SIZE=2",
    ],
)
def test_an_environment_that_is_of_no_rank_is_passed_over(variables: str) -> None:
    """Variables of these names have other meanings elsewhere. What is no rank would be one of the
    job that has ended or is missing."""
    with children(variables, "RANK=0 WORLD_SIZE=1") as shell:
        evidence, _ = inspect_job(shell.pid)
    assert [found.rank for found in evidence] == [0]


def test_ranks_of_a_launcher_that_numbers_no_machine_are_all_there() -> None:
    """As ranks that a shell script starts: which belong to this machine is not known, so none of
    them is taken for gone."""
    with children("RANK=2 WORLD_SIZE=4", "RANK=3 WORLD_SIZE=4") as shell:
        evidence, notes = inspect_job(shell.pid)
    assert [(found.rank, found.condition) for found in evidence] == [
        (2, RankCondition.RUNNING),
        (3, RankCondition.RUNNING),
    ]
    assert "ranks 0 and 1 were not found on this machine" in notes


def test_a_machine_that_claims_a_million_ranks_takes_no_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(running_job, "_MAX_RANKS", 3)
    with job(4, world_size=10**6, local=10**6) as (shell, _):
        evidence, _ = inspect_job(shell.pid)
    assert [found.rank for found in evidence] == [0, 1, 2]


def activities(
    monkeypatch: pytest.MonkeyPatch, known: dict[int, Activity | None], shares: dict[int, float]
) -> None:
    monkeypatch.setattr(running_job, "rank_activities", lambda processes: (known, shares))


def test_what_ranks_do_is_told_by_their_processor_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where that says nothing about waiting: half a core and more is busy. A rank that is seen
    to compute is so whatever its share of a core that others take."""
    known = {0: None, 1: None, 2: Activity.BUSY}
    activities(monkeypatch, known, {0: 0.5, 1: 0.6, 2: 0.3})
    with job(3, world_size=3, local=3) as (shell, ranks):
        _, notes = inspect_job(shell.pid)
    said = ("mostly idle", "busy", "busy")
    assert notes[:3] == tuple(
        f"rank {rank}: pid {ranks[rank].pid}, {text}" for rank, text in enumerate(said)
    )


@pytest.mark.parametrize(("world_size", "named"), [(2, (1,)), (4, ())])
def test_the_busy_rank_of_one_machine_is_not_named_while_others_are_unseen(
    monkeypatch: pytest.MonkeyPatch, world_size: int, named: tuple[int, ...]
) -> None:
    """Ranks on other machines may compute as well, and this one is not late then."""
    known: dict[int, Activity | None] = {0: Activity.IDLE, 1: Activity.BUSY}
    activities(monkeypatch, known, {0: 0.0, 1: 1.0})
    with job(2, world_size=world_size, local=2) as (shell, _):
        verdict = explain_hang(*inspect_job(shell.pid))
    assert verdict.ranks == named


def test_a_stopped_rank_is_not_read_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """py-spy stops a process and lets it go on: somebody has stopped this one for a reason."""
    looked_at: list[int] = []

    def look(pids: dict[int, int]) -> dict[int, tuple[StackFrame, ...]]:
        looked_at.extend(pids)
        return {}

    monkeypatch.setattr(running_job, "py_spy_stacks", look)
    with job(2, world_size=2, local=2) as (shell, ranks):
        ranks[0].suspend()
        while ranks[0].status() != psutil.STATUS_STOPPED:
            pass
        inspect_job(shell.pid)
    assert looked_at == [1]


@pytest.mark.parametrize(
    ("installed", "frames", "said"),
    [
        (False, (), "py-spy is not installed"),
        (True, (), "py-spy could not read the ranks"),
        (True, (StackFrame(file="<frozen runpy>", line=1, function="f"),), ""),
    ],
)
def test_why_there_is_no_stack_is_said(
    monkeypatch: pytest.MonkeyPatch, installed: bool, frames: tuple[StackFrame, ...], said: str
) -> None:
    """Installing it, or more rights, is what helps; one stack shows that it works."""
    monkeypatch.setattr(running_job, "has_py_spy", lambda: installed)
    monkeypatch.setattr(running_job, "py_spy_stacks", lambda pids: {0: frames} if frames else {})
    with job(2, world_size=2, local=2) as (shell, _):
        _, notes = inspect_job(shell.pid)
    told = [note for note in notes if "py-spy" in note]
    assert [note.startswith(said) for note in told] == ([True] if said else [])


def test_the_loops_of_a_stack_are_read_from_the_sources_that_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "train.py"
    source.write_text("for step in range(3):\n    work()\n")
    os.utime(source, (1.0, 1.0))
    stack = (StackFrame(file=str(source), line=2, function="<module>"),)
    monkeypatch.setattr(running_job, "py_spy_stacks", lambda pids: {0: stack})
    with job(2, world_size=2, local=2) as (shell, _):
        first, second = inspect_job(shell.pid)[0]
    assert (first.frames, first.loops) == (stack, ((1, 2),))
    assert (second.frames, second.loops) == ((), ())


def test_the_loops_of_a_process_that_has_ended_are_not_known(tmp_path: Path) -> None:
    """Its files may be others than those that are there now."""
    (tmp_path / "train.py").write_text("while True:\n    work()\n")
    stack = (StackFrame(file=str(tmp_path / "train.py"), line=2, function="<module>"),)
    with subprocess.Popen(["/bin/true"]) as ended:
        process = psutil.Process(ended.pid)
    assert running_job._loops(process, stack) == ()


def test_the_dump_is_where_the_first_variable_that_is_set_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Older versions of torch know the other name alone."""
    for name in ("new", "old"):
        (tmp_path / f"{name}_0").write_text(json.dumps(dump(entry(3 if name == "new" else 7))))
        future = time.time() + 60
        os.utime(tmp_path / f"{name}_0", (future, future))
    monkeypatch.setenv("TORCH_FR_DUMP_TEMP_FILE", "")
    monkeypatch.setenv("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", f"{tmp_path}/old_")
    for prefix, sequence in (("", 7), (f"{tmp_path}/new_", 3), (f"{tmp_path}/none_", None)):
        monkeypatch.setenv("TORCH_FR_DUMP_TEMP_FILE", prefix)
        with job(1, world_size=1, local=1) as (shell, _):
            (rank,) = inspect_job(shell.pid)[0]
        calls = () if rank.log is None else rank.log.calls
        assert [call.sequence for call in calls] == ([] if sequence is None else [sequence])
