"""Autopsies of real ranks that hang, by cause; and what is asked of processes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from tests.hang.test_flight_recorder import dump, entry
from torchscale.hang import evidence as autopsy
from torchscale.hang.evidence import (
    FACTS_FILE,
    ask_ranks,
    failure_autopsy,
    hang_autopsy,
    log_of,
    process_condition,
    read_facts,
)
from torchscale.schema.launch.hang import (
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

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "hang_autopsy.py"
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
        answer = RankDump(rank=0, pid=1, time=1.0, since=0.0, flight_recorder=content, error=error)
        log, problem = log_of(answer)
        assert (log is not None, problem) == (True, "")
        return [] if log is None else [call.is_done for call in log.calls]

    assert calls("RuntimeError: x", entry(3), entry(4)) == [True, False]
    assert calls("", entry(3), entry(4)) == [True, True]
    assert calls("RuntimeError: x", entry(3), entry(4, is_p2p=True)) == [True, True]
    assert calls("RuntimeError: x") == []
    silent = RankDump(rank=0, pid=1, time=1.0, since=0.0, problem="torch is too old")
    assert log_of(silent) == (None, "torch is too old")
