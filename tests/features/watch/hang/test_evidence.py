"""Autopsies of real ranks that hang, by cause; and what is asked of processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from tests.features.watch.hang.test_flight_recorder import dump, entry
from torchscale.errors import OutputError
from torchscale.features.watch.hang import evidence as autopsy
from torchscale.features.watch.hang.evidence import (
    ask_ranks,
    failure_autopsy,
    hang_autopsy,
    inspect_hang,
    log_of,
    process_condition,
    rank_processes,
    read_facts,
)
from torchscale.schema.launch.hang import (
    FACTS_FILE,
    REQUEST_FILE,
    HangCause,
    HangFacts,
    RankCondition,
    RankDump,
    RankProcess,
    StackFrame,
    ThreadStack,
    dump_file,
)

BENCHMARK = Path(__file__).parents[4] / "benchmarks" / "hang_autopsy.py"
TWO_RANKS = ("sleep", "skip", "size", "loader", "gone", "teardown")
"""Causes of the short run; `make campaign` injects all of them in all places with the same
benchmark."""


def inject(*arguments: str) -> list[dict[str, Any]]:
    """What the benchmark prints of its cases."""
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), "--json", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode in (0, 1), done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def wrong(cases: Sequence[dict[str, Any]]) -> list[str]:
    """Cases whose rank, collective or cause is not the injected one, with the verdict."""
    checks = ("right_rank", "right_collective", "right_cause")
    return [
        f"{case['cause']} rank {case['rank']} of {case['world_size']} ({case['groups']}): "
        f"{case['autopsy']['summary']}"
        for case in cases
        if not all(case[check] for check in checks)
    ]


@pytest.mark.slow
def test_two_real_ranks_that_hang() -> None:
    cases = inject(
        "--ranks",
        "2",
        "--groups",
        "default",
        "--rank",
        "1",
        *(f"--cause={cause}" for cause in TWO_RANKS),
    )
    assert len(cases) == len(TWO_RANKS)
    assert wrong(cases) == []


@pytest.mark.slow
def test_four_real_ranks_that_hang_in_sub_groups() -> None:
    cases = inject(
        "--ranks",
        "4",
        "--groups",
        "sub",
        "--rank",
        "2",
        "--cause=sleep",
        "--cause=stop",
        "--cause=dtype",
    )
    assert len(cases) == 3
    assert wrong(cases) == []


def test_ranks_that_are_gone_are_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(autopsy, "_ANSWER_SECONDS", 0.2)
    monkeypatch.setenv("NCCL_RAS_ADDR", "127.0.0.1:1")
    process = subprocess.Popen(["/bin/sleep", "300"])
    try:
        ask_ranks(tmp_path, {0: psutil.Process(process.pid), 1: None})
    finally:
        process.kill()
        process.wait()
    facts = read_facts(tmp_path)
    assert [state.condition for state in facts.processes] == [
        RankCondition.RUNNING,
        RankCondition.GONE,
    ]
    assert not (tmp_path / REQUEST_FILE).exists(), "the request is withdrawn"
    verdict = hang_autopsy(tmp_path, 2)
    assert (verdict.cause, verdict.ranks) == (HangCause.RANK_GONE, (1,))
    assert failure_autopsy(tmp_path, 2) is None


def test_a_rank_that_answers_is_there_whatever_its_process_is_called(tmp_path: Path) -> None:
    frames = (StackFrame(file="/home/me/dataset.py", line=88, function="read"),)
    main = ThreadStack(name="MainThread", is_main=True, frames=frames)
    for rank in (0, 1):
        answer = RankDump(rank=rank, pid=1, time=1.0, since=0.0, threads=(main,))
        (tmp_path / dump_file(rank)).write_text(answer.model_dump_json())
    gone = RankProcess(rank=1, condition=RankCondition.GONE)
    (tmp_path / FACTS_FILE).write_text(
        HangFacts(processes=(RankProcess(rank=0), gone)).model_dump_json()
    )
    assert [position.condition for position in hang_autopsy(tmp_path, 2).positions] == [
        RankCondition.RUNNING
    ] * 2
    raised = RankDump(rank=1, pid=1, time=1.0, since=0.0, threads=(main,), error="ValueError: x")
    (tmp_path / dump_file(1)).write_text(raised.model_dump_json())
    assert hang_autopsy(tmp_path, 2).cause is HangCause.RANK_GONE, (
        "it wrote its dump when it raised"
    )


def test_states_of_processes() -> None:
    process = subprocess.Popen(["/bin/sleep", "300"])
    try:
        watched = psutil.Process(process.pid)
        assert process_condition(watched) is RankCondition.RUNNING
        watched.suspend()
        while watched.status() != psutil.STATUS_STOPPED:
            pass
        assert process_condition(watched) is RankCondition.STOPPED
    finally:
        process.kill()
        process.wait()
    assert process_condition(watched) is RankCondition.GONE
    assert process_condition(None) is RankCondition.GONE


def test_facts_of_all_nodes_are_joined(tmp_path: Path) -> None:
    stack = (StackFrame(file="train.py", line=3, function="step"),)
    first = HangFacts(
        processes=(RankProcess(rank=0, pid=7),), notes=("a note",), moved_seconds_ago=2.0
    )
    stopped = RankProcess(rank=1, pid=7, condition=RankCondition.STOPPED)
    (tmp_path / FACTS_FILE).write_text(first.model_dump_json())
    (tmp_path / f"node-1.{FACTS_FILE}").write_text(
        HangFacts(
            processes=(stopped,), stacks={1: stack}, notes=("a note", "another")
        ).model_dump_json()
    )
    (tmp_path / f"node-2.{FACTS_FILE}").write_text("{")
    facts = read_facts(tmp_path)
    assert facts.processes == (*first.processes, stopped)
    assert facts.stacks == {1: stack}
    assert facts.notes == ("a note", "another")
    assert facts.moved_seconds_ago == 2.0


@pytest.mark.parametrize("content", ["", "[]", '{"processes": 5}'])
def test_damaged_facts_are_no_facts(tmp_path: Path, content: str) -> None:
    (tmp_path / FACTS_FILE).write_text(content)
    assert read_facts(tmp_path).processes == ()


def test_only_ranks_that_do_not_answer_in_time_are_looked_into_from_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """py-spy stops a process while it reads it. A rank that writes its dump needs no such look, and
    it gets the time to write it."""
    looked_at: list[int] = []

    def answer(_: float) -> None:
        assert (tmp_path / REQUEST_FILE).exists()
        reply = RankDump(rank=0, pid=1, time=1.0, since=0.0)
        (tmp_path / dump_file(0)).write_text(reply.model_dump_json())
        clock.now += 0.05

    def look(pids: dict[int, int]) -> dict[int, tuple[StackFrame, ...]]:
        looked_at.extend(pids)
        return {}

    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(autopsy, "time", SimpleNamespace(monotonic=lambda: clock.now, sleep=answer))
    monkeypatch.setattr(autopsy, "py_spy_stacks", look)
    monkeypatch.setattr(autopsy, "nccl_notes", lambda pids: ())
    ask_ranks(tmp_path, {0: psutil.Process(), 1: psutil.Process(), 2: None})
    assert looked_at == [1]


def test_the_log_of_a_rank_that_raised_ends_with_a_collective_that_is_not_done() -> None:
    """gloo marks what failed as it marks what is done."""

    def calls(error: str, *entries: dict[str, Any]) -> list[bool]:
        content = dump(*entries)
        answer = RankDump(
            rank=0, pid=1, time=1.0, since=0.0, flight_recorders={"gloo": content}, error=error
        )
        log, problem = log_of(answer)
        assert (log is not None, problem) == (True, "")
        return [] if log is None else [call.is_done for call in log.calls]

    assert calls("RuntimeError: x", entry(3), entry(4)) == [True, False]
    assert calls("", entry(3), entry(4)) == [True, True]
    assert calls("RuntimeError: x", entry(3), entry(4, is_p2p=True)) == [True, True]
    assert calls("RuntimeError: x") == []
    silent = RankDump(rank=0, pid=1, time=1.0, since=0.0, problem="torch is too old")
    assert log_of(silent) == (None, "torch is too old")


FOREVER = "echo; while :; do sleep 300; done"
"""Says that it has started, and waits."""


@contextlib.contextmanager
def process(
    rank: str, script: str = FOREVER, *, program: str = "python", module: str = "torchscale.worker"
) -> Iterator[subprocess.Popen[bytes]]:
    """A shell with the name, the arguments and the environment of a rank."""
    started = subprocess.Popen(
        [program, "-c", script, module],
        executable="/bin/sh",
        env={"PATH": os.environ["PATH"], "RANK": rank},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert started.stdout is not None
        started.stdout.readline()
        yield started
    finally:
        with contextlib.suppress(ProcessLookupError):  # it may have ended before its sleep began
            os.killpg(started.pid, signal.SIGKILL)
        started.communicate()


def test_ranks_are_the_python_processes_that_are_nearest_to_the_launcher() -> None:
    """A profiler that starts a rank has its arguments, a loader's worker below a rank all that the
    rank has, and a program that is none of ours may have the environment of another job."""
    with contextlib.ExitStack() as started:
        rank = started.enter_context(process("1", f"({FOREVER}) & wait"))
        for other in (
            process("2", program="nsys"),
            process("3", module="somebody.else"),
            process("none"),
        ):
            started.enter_context(other)
        found = rank_processes(os.getpid())
    assert {number: one.pid for number, one in found.items()} == {1: rank.pid}
    assert rank_processes(rank.pid) == {}, "it has ended"


def test_stacks_are_asked_of_ranks_and_of_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signal ends a process that does not expect it."""
    monkeypatch.setattr(autopsy, "_ANSWER_SECONDS", 0.0)
    monkeypatch.setattr(autopsy, "py_spy_stacks", lambda pids: {})
    monkeypatch.setattr(autopsy, "nccl_notes", lambda pids: ())
    expecting = f"trap : USR1; {FOREVER}"
    with process("1", expecting) as rank, process("0", module="other") as other:
        with process("2") as unprepared:
            inspect_hang(tmp_path, os.getpid(), None, moved_seconds_ago=3.0)
            assert unprepared.wait(20) == -signal.SIGUSR1
        assert (rank.poll(), other.poll()) == (None, None)
        facts = read_facts(tmp_path)
        assert [state.rank for state in facts.processes] == [1, 2], "those that there are"
        assert facts.moved_seconds_ago == 3.0
        inspect_hang(tmp_path, os.getpid(), (1, 5))
    assert {state.rank: state.pid for state in read_facts(tmp_path).processes} == {
        1: rank.pid,
        5: None,
    }


def test_a_full_disk_ends_no_inspection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The launcher goes on to end the ranks, and their stacks may be in the logs."""

    def full(*_: object) -> None:
        raise OutputError("no space left")

    monkeypatch.setattr(autopsy, "atomic_write_text", full)
    monkeypatch.setattr(autopsy, "atomic_write_model", full)
    monkeypatch.setattr(autopsy, "nccl_notes", lambda pids: ())
    ask_ranks(tmp_path, {0: None})
    assert list(tmp_path.iterdir()) == []


def test_the_services_of_a_machine_are_asked_about_the_processes_that_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What NCCL says of other jobs on the machine is not evidence of this one."""
    asked: list[int] = []

    def notes(pids: Iterator[int]) -> tuple[str, ...]:
        asked.extend(pids)
        return ("a note",)

    monkeypatch.setattr(autopsy, "_ANSWER_SECONDS", 0.0)
    monkeypatch.setattr(autopsy, "py_spy_stacks", lambda pids: {})
    monkeypatch.setattr(autopsy, "nccl_notes", notes)
    ask_ranks(tmp_path, {0: psutil.Process(), 1: None})
    assert asked == [os.getpid()]
    assert read_facts(tmp_path).notes == ("a note",)


MAIN = (StackFrame(file="/home/me/main.py", line=1, function="f"),)
SEEN = (StackFrame(file="/home/me/seen.py", line=2, function="f"),)
LOGGED = 'Thread 0x1 (most recent call first):\n  File "/home/me/logged.py", line 3 in f\n'


def answer(directory: Path, rank: int, **fields: Any) -> None:
    content = RankDump(rank=rank, pid=1, time=1.0, since=0.0, **fields)
    (directory / dump_file(rank)).write_text(content.model_dump_json())


def test_a_rank_is_where_it_says_itself_and_else_where_it_was_seen(tmp_path: Path) -> None:
    """Its own main thread is the newest and surest; the log may hold an older stack. Other threads
    of a rank do not say what it waits for."""
    other = ThreadStack(name="loader", is_main=False, frames=SEEN)
    main = ThreadStack(name="MainThread", is_main=True, frames=MAIN)
    answer(tmp_path, 0, threads=(other, main))
    answer(tmp_path, 1, threads=(other,))
    for rank in range(4):
        (tmp_path / f"rank-{rank}.stderr.log").write_text(LOGGED)
    facts = HangFacts(
        processes=tuple(RankProcess(rank=rank) for rank in range(3)), stacks={2: SEEN}
    )
    (tmp_path / FACTS_FILE).write_text(facts.model_dump_json())
    found = hang_autopsy(tmp_path, 4)
    assert [position.place for position in found.positions] == [
        "main.py:1 `f`",
        "logged.py:3 `f`",
        "seen.py:2 `f`",
        "logged.py:3 `f`",
    ]
    assert any("rank 2" in line and "it left no dump" in line for line in found.evidence)


def test_what_the_launcher_saw_is_said(tmp_path: Path) -> None:
    facts = HangFacts(processes=(RankProcess(rank=0),), notes=("a note",), moved_seconds_ago=2.0)
    (tmp_path / FACTS_FILE).write_text(facts.model_dump_json())
    found = hang_autopsy(tmp_path, 1)
    assert found.summary.startswith("the last progress was 2.00 s earlier")
    assert found.evidence[-1] == "a note"


def test_ranks_that_failed_because_their_calls_differ_are_named(tmp_path: Path) -> None:
    """Each wrote its dump when gloo raised. The group in it has the ranks that the rank itself
    knows: gloo's recorder knows none."""
    group = {"0": (0, 1, 2)}
    for rank, sizes in enumerate(([[10]], [[20]], [[10]])):
        recorded = dump(entry(3), entry(4, input_sizes=sizes))
        answer(
            tmp_path,
            rank,
            flight_recorders={"gloo": recorded},
            groups=group,
            error="RuntimeError: x",
        )
    found = failure_autopsy(tmp_path, 3)
    assert found is not None
    assert (found.cause, found.ranks) == (HangCause.SIZE_MISMATCH, (1,))
    assert found.collective is not None and found.collective.sequence == 4


def test_a_rank_that_gloo_ended_says_so_in_its_dump_or_its_log(tmp_path: Path) -> None:
    """And is then the one whose call was too small, though its recorder shows nothing."""
    message = "op.preamble.length <= op.nbytes. 1024 vs 512. Received data"
    answer(tmp_path, 0, flight_recorders={"gloo": dump(entry(3), entry(4, retired=False))})
    states = (RankProcess(rank=0), RankProcess(rank=1, condition=RankCondition.GONE))
    (tmp_path / FACTS_FILE).write_text(HangFacts(processes=states).model_dump_json())
    assert hang_autopsy(tmp_path, 2).cause is HangCause.RANK_GONE
    answer(tmp_path, 1, error=message)
    assert hang_autopsy(tmp_path, 2).cause is HangCause.SIZE_MISMATCH
    (tmp_path / dump_file(1)).unlink()
    (tmp_path / "rank-1.stderr.log").write_text(message)
    assert hang_autopsy(tmp_path, 2).cause is HangCause.SIZE_MISMATCH
