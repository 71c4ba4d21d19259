from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.factories import cells, cpu_task, rank_record, training_result
from torchscale.launch.collect import collect_launch
from torchscale.launch.judge import EndingKind, LaunchEnding, LaunchEvidence, classify
from torchscale.schema.launch.failure import FailureKind, RankFailure
from torchscale.schema.launch.hang import HangCause
from torchscale.schema.launch.nodes import LaunchNode
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.launch.steps import RankSteps, StepSample
from torchscale.schema.launch.training import TrainingResult
from torchscale.schema.state import State

TWO = cells()[1]
ENDED = LaunchEnding(EndingKind.FINISHED, 1, "")


def failure(
    rank: int, kind: FailureKind, time: float = 1.0, message: str = "why\nmore"
) -> RankFailure:
    return RankFailure(rank=rank, kind=kind, type="SomeError", message=message, time=time)


def judge(
    ranks: tuple[int, ...] = (), failures: tuple[RankFailure, ...] = (), **changes: Any
) -> tuple[State, str]:
    defaults: dict[str, Any] = {
        "ending": ENDED,
        "world_size": 2,
        "payload": TrainingResult(ranks=tuple(rank_record(TWO, rank) for rank in ranks)),
        "failures": tuple(sorted(failures, key=lambda item: item.time)),
        "exit_codes": {},
        "oom_kills": 0,
    }
    return classify(LaunchEvidence(**{**defaults, **changes}))


LOST = failure(0, FailureKind.PEER_LOST)


def test_all_records_are_there() -> None:
    assert judge((0, 1), ending=LaunchEnding(EndingKind.FINISHED, 0, "")) == (State.OK, "")


def test_a_rank_that_aborts_after_its_record_is_written_has_done_its_work() -> None:
    assert judge((0, 1), exit_codes={1: -6}) == (State.OK, "")


def test_a_launch_that_is_done_when_its_time_runs_out_is_done() -> None:
    assert judge((0, 1), ending=LaunchEnding(EndingKind.TIMEOUT, None, "slow end"))[0] is State.OK


@pytest.mark.parametrize(
    ("evidence", "state", "reason"),
    [
        (
            {"failures": (LOST, failure(1, FailureKind.ERROR, 2.0))},
            State.CRASHED,
            "rank 1: SomeError: why",
        ),
        (
            {"failures": (failure(0, FailureKind.ERROR, 5.0), failure(1, FailureKind.ERROR, 4.0))},
            State.CRASHED,
            "rank 1: SomeError: why",
        ),
        ({"failures": (LOST, failure(1, FailureKind.OOM, 9.0))}, State.OOM, "rank 1: why"),
        (
            {"failures": (LOST,), "exit_codes": {1: -9}},
            State.KILLED,
            "rank 1 was killed by SIGKILL",
        ),
        (
            {"failures": (LOST,), "exit_codes": {1: -9}, "oom_kills": 1},
            State.OOM,
            "the host ran out of memory",
        ),
        (
            {"failures": (LOST,), "exit_codes": {1: -11}},
            State.CRASHED,
            "rank 1 crashed with SIGSEGV",
        ),
        (
            {"failures": (LOST,), "exit_codes": {1: -15}},
            State.KILLED,
            "rank 1 was killed by SIGTERM",
        ),
        ({"exit_codes": {0: -15, 1: -11}}, State.CRASHED, "rank 1 crashed with SIGSEGV"),
        ({"exit_codes": {0: -6, 1: -9}}, State.KILLED, "rank 1 was killed by SIGKILL"),
        ({"exit_codes": {0: -15, 1: -6}}, State.CRASHED, "rank 1 crashed with SIGABRT"),
        (
            {"failures": (failure(1, FailureKind.ERROR),), "exit_codes": {0: -6}},
            State.CRASHED,
            "rank 1: SomeError: why",
        ),
        ({"ranks": (0,), "exit_codes": {1: -9}}, State.KILLED, "rank 1 was killed by SIGKILL"),
        ({"exit_codes": {0: -64}}, State.KILLED, "SIGRTMAX"),
        (
            {"failures": (failure(1, FailureKind.ERROR),), "exit_codes": {0: -15}},
            State.CRASHED,
            "rank 1: SomeError: why",
        ),
        (
            {"failures": (LOST,), "exit_codes": {1: 3}},
            State.CRASHED,
            "rank 1 exited with 3 and wrote no error",
        ),
        (
            {"failures": (LOST,)},
            State.INCOMPLETE,
            "rank 1 exited before the measurement was complete",
        ),
        (
            {"failures": (failure(1, FailureKind.LEFT_EARLY), LOST)},
            State.INCOMPLETE,
            "rank 1 exited before the measurement was complete",
        ),
        (
            {"ranks": (0,), "ending": LaunchEnding(EndingKind.FINISHED, 0, "")},
            State.INCOMPLETE,
            "rank 1 exited",
        ),
        (
            {"failures": (LOST, failure(1, FailureKind.PEER_LOST))},
            State.CRASHED,
            "rank 0: SomeError: why",
        ),
        (
            {"ending": LaunchEnding(EndingKind.FINISHED, -9, "")},
            State.KILLED,
            "torchrun was killed by SIGKILL",
        ),
        (
            {"ending": LaunchEnding(EndingKind.FINISHED, -15, ""), "failures": (LOST,)},
            State.KILLED,
            "torchrun was killed by SIGTERM",
        ),
        (
            {"failures": (LOST,), "exit_codes": {1: 1}, "logged_errors": {1: "OSError: no space"}},
            State.CRASHED,
            "rank 1 exited with 1 and its log ends with OSError: no space",
        ),
        (
            {"exit_codes": {1: 1}, "torchrun_error": "OSError: no space"},
            State.CRASHED,
            "rank 1 exited with 1 and wrote no error; torchrun's log ends with OSError: no space",
        ),
        (
            {"torchrun_error": "OSError: no space"},
            State.CRASHED,
            "torchrun failed: OSError: no space",
        ),
        (
            {"torchrun_error": "OSError: x", "exit_codes": {1: -11}},
            State.CRASHED,
            "rank 1 crashed with SIGSEGV",
        ),
        ({"ending": LaunchEnding(EndingKind.TIMEOUT, None, "too long")}, State.TIMEOUT, "too long"),
        (
            {"ending": LaunchEnding(EndingKind.INTERRUPTED, None, "stopped")},
            State.INTERRUPTED,
            "stopped",
        ),
        (
            {"ending": LaunchEnding(EndingKind.NOT_STARTED, None, "no python")},
            State.CRASHED,
            "no python",
        ),
    ],
)
def test_the_true_cause(evidence: dict[str, Any], state: State, reason: str) -> None:
    found = judge(**evidence)
    assert found[0] is state
    assert reason in found[1]
    assert "\n" not in found[1]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"losses_finite": False}, "the loss of rank 1 was not a finite number"),
        (
            {"parameters_equal": False, "parameters_differing": "fc.weight (2 of 9)"},
            "fc.weight (2 of 9)",
        ),
        ({"parameters_changed": False}, "nothing was trained"),
    ],
)
def test_figures_that_cannot_be_trusted(changes: dict[str, Any], reason: str) -> None:
    ranks = (rank_record(TWO, 0), rank_record(TWO, 1, **changes))
    state, told = classify(LaunchEvidence(ENDED, 2, TrainingResult(ranks=ranks), (), {}, 0))
    assert state is State.INVALID
    assert reason in told


TORCHRUN_LOG = """
torchscale.worker FAILED
Failures:
[1]:
  time      : 2026-01-02_03:04:05
  host      : node-1
  rank      : 1 (local_rank: 1)
  exitcode  : -9 (pid: 4711)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 4711
"""
STACKS = """Thread 0x00007f11 (most recent call first):
  File "/lib/python3/threading.py", line 320 in wait

Current thread 0x00007f12 (most recent call first):
  File "/home/me/net.py", line 12 in forward
  File "/home/me/train.py", line 1 in step
"""


def left_behind(
    directory: Path, *, seconds: dict[int, list[float]], failures: tuple[RankFailure, ...] = ()
) -> None:
    """Files as ranks leave them: a record and steps of these lengths for each rank in ``seconds``, and failures."""
    for rank, series in seconds.items():
        (directory / f"rank-{rank}.json").write_text(rank_record(TWO, rank).model_dump_json())
        steps = [
            StepSample(
                step=index,
                seconds=value,
                data_wait=0,
                forward=0.25 * value,
                backward=0.5 * value,
                optimizer=0,
            )
            for index, value in enumerate(series)
        ]
        (directory / f"steps-rank-{rank}.jsonl").write_text(
            "".join(step.model_dump_json() + "\n" for step in steps)
        )
    for item in failures:
        (directory / f"error-rank-{item.rank}.json").write_text(item.model_dump_json())


def collect(
    directory: Path,
    ending: LaunchEnding = ENDED,
    *,
    log_step_times: bool = True,
    nodes: tuple[LaunchNode, ...] = (),
    was_removed: bool = False,
) -> LaunchRecord:
    task = cpu_task(TWO, log_step_times=log_step_times)
    if not was_removed:
        (directory / "task.json").write_text("{}")
    return collect_launch(
        task,
        directory,
        ending,
        command=("torchrun",),
        started_at="",
        seconds=9.0,
        oom_kills=0,
        nodes=nodes,
    )


def torchrun_told(directory: Path, rank: int, exit_code: int) -> None:
    """torchrun's summary of a rank that failed."""
    text = f"  rank      : {rank} (local_rank: {rank})\n  exitcode  : {exit_code} (pid: 7)\n"
    (directory / "torchrun.log").write_text(text)


def script(exit_code: int | None, shortfall: str = "") -> LaunchEnding:
    return LaunchEnding(EndingKind.FINISHED, exit_code, "", program="train.sh", shortfall=shortfall)


@pytest.mark.parametrize(
    ("evidence", "state", "reason"),
    [
        ({"ending": script(0, "too few steps")}, State.INVALID, "too few steps"),
        ({"ending": script(7)}, State.CRASHED, "train.sh exited with 7"),
        ({"ending": script(-9)}, State.KILLED, "train.sh was killed by SIGKILL"),
        (
            {
                "ending": script(1),
                "exit_codes": {0: -15, 1: 1},
                "logged_errors": {1: "KeyError: x"},
            },
            State.CRASHED,
            "rank 1 exited with 1 and its log ends with KeyError: x",
        ),
        (
            {
                "ending": script(1),
                "exit_codes": {1: 1},
                "logged_errors": {1: "OutOfMemoryError: y"},
            },
            State.OOM,
            "rank 1: OutOfMemoryError: y",
        ),
        (
            {"ending": script(1), "torchrun_error": "torch.OutOfMemoryError: y"},
            State.OOM,
            "train.sh failed: torch.OutOfMemoryError: y",
        ),
    ],
)
def test_the_true_cause_of_a_script_that_writes_no_errors(
    evidence: dict[str, Any], state: State, reason: str
) -> None:
    assert judge(**evidence) == (state, reason)


@pytest.mark.parametrize(
    ("exit_code", "log", "reason"),
    [
        (
            -6,
            "what():  [enforce fail at pair.cc:456] op.preamble.length <= op.nbytes. 1056 vs 4. Received data size "
            "doesn't match\nFatal Python error: Aborted\n" + "  File x, line 1\n" * 2000,
            "rank 1 crashed with SIGABRT; rank 1 received 1.03 KiB in a collective of 4.00 B: another rank called "
            "another one",
        ),
        (
            1,
            "Traceback (most recent call last):\n  File x\nOSError: [Errno 28] No space left on device: 'y'\n",
            "rank 1 exited with 1 and its log ends with OSError: [Errno 28] No space left on device: 'y'",
        ),
        (
            1,
            "[rank1]: Traceback (most recent call last):\n[rank1]: ValueError: no more\n",
            "rank 1 exited with 1 and its log ends with ValueError: no more",
        ),
        (1, "Error without a colon\nfine\n", "rank 1 exited with 1 and wrote no error"),
    ],
)
def test_where_no_rank_wrote_why_its_log_tells(
    tmp_path: Path, exit_code: int, log: str, reason: str
) -> None:
    torchrun_told(tmp_path, 1, exit_code)
    (tmp_path / "rank-1.stderr.log").write_text(log)
    record = collect(tmp_path, LaunchEnding(EndingKind.FINISHED, 1, ""))
    assert (record.state, record.reason) == (State.CRASHED, reason)


def test_a_torchrun_that_fails_itself_is_quoted(tmp_path: Path) -> None:
    (tmp_path / "torchrun.log").write_text(
        "Traceback:\n  File x\ntorch.distributed.DistStoreError: Failed to init\n"
    )
    record = collect(tmp_path, LaunchEnding(EndingKind.FINISHED, 1, ""))
    assert record.reason == "torchrun failed: torch.distributed.DistStoreError: Failed to init"


def test_a_rank_that_could_not_begin_is_explained_by_what_torch_logs(tmp_path: Path) -> None:
    torchrun_told(tmp_path, 1, 1)
    with (tmp_path / "torchrun.log").open("a") as log:
        log.write(
            "E1125 12:47:51.514000 8617 torch/api.py:836] Traceback (most recent call last):\n"
        )
        log.write(
            "E1125 12:47:51.514000 8617 torch/api.py:836] OSError: [Errno 28] No space left\n"
        )
    record = collect(tmp_path, LaunchEnding(EndingKind.FINISHED, 1, ""))
    said = "; torchrun's log ends with OSError: [Errno 28] No space left"
    assert record.reason == f"rank 1 exited with 1 and wrote no error{said}"


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=4096))
    record = collect(tmp_path, LaunchEnding(EndingKind.FINISHED, 1, ""))
    assert record.reason.endswith("; the disk of the results has 4.00 KiB free")


def test_a_step_of_the_group_is_the_slowest_ranks(tmp_path: Path) -> None:
    left_behind(tmp_path, seconds={0: [1.0, 4.0, 1.0], 1: [2.0, 2.0, 3.0]})
    record = collect(tmp_path, LaunchEnding(EndingKind.FINISHED, 0, ""))
    assert (record.state, record.reason, record.log_tail) == (State.OK, "", "")
    result = training_result(record)
    assert result.steps is not None
    assert result.steps.seconds.mean == pytest.approx((2 + 4 + 3) / 3)
    assert result.rank_steps.mean == pytest.approx((2.0, 7 / 3))
    assert result.rank_steps.mean_backward == pytest.approx((1.0, 7 / 6))
    assert (tmp_path / "steps-rank-0.jsonl").exists()


def test_steps_that_nobody_wants_are_removed_and_their_digest_stays(tmp_path: Path) -> None:
    left_behind(tmp_path, seconds={0: [1.0], 1: [2.0]})
    record = collect(tmp_path, log_step_times=False)
    assert training_result(record).steps is not None
    assert not list(tmp_path.glob("steps-*"))


def test_steps_of_different_number_or_cut_off_give_no_digest_of_the_group(tmp_path: Path) -> None:
    left_behind(tmp_path, seconds={0: [1.0, 1.0], 1: [2.0]})
    record = collect(tmp_path)
    assert training_result(record).steps is None
    assert len(training_result(record).rank_steps) == 2
    with (tmp_path / "steps-rank-0.jsonl").open("a") as file:
        file.write('{"step": 2, "sec')
    assert training_result(collect(tmp_path)).rank_steps == RankSteps()


def test_a_rank_record_that_cannot_be_read_counts_as_not_written(tmp_path: Path) -> None:
    left_behind(tmp_path, seconds={0: [1.0], 1: [2.0]})
    text = (tmp_path / "rank-1.json").read_text()
    (tmp_path / "rank-1.json").write_text(text[: len(text) // 2])
    record = collect(tmp_path)
    assert record.state is State.INCOMPLETE
    assert [rank.rank for rank in training_result(record).ranks] == [0]
    assert training_result(record).steps is None


def test_exit_codes_are_read_from_what_torchrun_prints(tmp_path: Path) -> None:
    left_behind(tmp_path, seconds={}, failures=(LOST,))
    (tmp_path / "torchrun.log").write_text(TORCHRUN_LOG)
    (tmp_path / "rank-0.stderr.log").write_text("Traceback: connection closed\n")
    record = collect(tmp_path)
    assert record.state is State.KILLED
    assert "rank 1 was killed by SIGKILL" in record.reason
    assert [item.rank for item in record.failures] == [0]
    assert "connection closed" in record.log_tail
    assert "torchscale.worker FAILED" in record.log_tail


@pytest.mark.parametrize("number", ["9" * 5000, "1" * 12])
@pytest.mark.parametrize(
    "log",
    [
        "  rank      : {} (local_rank: 0)\n  exitcode  : 1 (pid: 7)\n",
        "  rank      : 0 (local_rank: 0)\n  exitcode  : -{} (pid: 7)\n",
        "SignalException: Process 77 got signal: {}\n",
    ],
)
def test_a_log_with_numbers_that_are_none_is_no_evidence(
    tmp_path: Path, log: str, number: str
) -> None:
    """The log can come from another node, and ranks print into it."""
    (tmp_path / "torchrun.log").write_text(log.format(number))
    record = collect(tmp_path, LaunchEnding(EndingKind.FINISHED, 1, ""))
    assert record.state is State.INCOMPLETE
    assert record.exit_code == 1


def test_a_folder_that_user_code_removed_is_named(tmp_path: Path) -> None:
    record = collect(tmp_path, was_removed=True)
    assert record.state is State.INCOMPLETE
    assert record.reason.endswith("; the folder of the launch was emptied or removed meanwhile")


def test_torchrun_that_was_asked_to_end_was_killed(tmp_path: Path) -> None:
    (tmp_path / "torchrun.log").write_text("SignalException: Process 77 got signal: 15\n")
    record = collect(tmp_path)
    assert (record.state, record.reason) == (State.KILLED, "torchrun was killed by SIGTERM")
    assert record.exit_code == -15


def test_our_own_ending_of_torchrun_is_no_signal_of_a_strangers(tmp_path: Path) -> None:
    (tmp_path / "torchrun.log").write_text("SignalException: Process 77 got signal: 15\n")
    assert collect(tmp_path, LaunchEnding(EndingKind.TIMEOUT, 1, "too long")).state is State.TIMEOUT


def test_a_timeout_says_where_ranks_were_and_what_is_left(tmp_path: Path) -> None:
    (tmp_path / "rank-1.stderr.log").write_text(STACKS)
    record = collect(
        tmp_path, LaunchEnding(EndingKind.TIMEOUT, None, "no progress for 9 s", ("pid 7 (python)",))
    )
    assert record.reason == (
        "no progress for 9 s; no rank is known to wait in a collective; rank 1 is in net.py:12 `forward`; "
        "still running: pid 7 (python)"
    )
    assert record.autopsy is not None
    assert record.autopsy.cause is HangCause.UNKNOWN
    assert record.autopsy.positions[1].place == "net.py:12 `forward`"


def test_a_launch_that_did_not_hang_has_no_autopsy(tmp_path: Path) -> None:
    left_behind(tmp_path, seconds={}, failures=(LOST,))
    (tmp_path / "rank-1.stderr.log").write_text(STACKS)
    assert collect(tmp_path).autopsy is None


def test_each_node_is_read_over_the_same_time_by_its_own_clock(tmp_path: Path) -> None:
    """The second node's clock is 100 s ahead; both ranks measured from 10 to 20 s on the first node's."""
    left_behind(tmp_path, seconds={0: [1.0], 1: [1.0]})
    for rank, ahead in ((0, 0.0), (1, 100.0)):
        measured = rank_record(TWO, rank, measured_from=10.0 + ahead, measured_until=20.0 + ahead)
        (tmp_path / f"rank-{rank}.json").write_text(measured.model_dump_json())
    for name, ahead, busy in (("telemetry.jsonl", 0, 0.25), ("node-1.telemetry.jsonl", 100, 0.75)):
        lines = [
            f'{{"time": {time + ahead}, "cpu_busy": {busy if 10 <= time <= 20 else 0}, "memory_used_bytes": 1}}\n'
            for time in range(5, 26)
        ]
        (tmp_path / name).write_text("".join(lines))
    here = LaunchNode(node_rank=0, hostname="h0", address="10.0.0.1", first_rank=0, ranks=1)
    ahead_of_it = {"node_rank": 1, "hostname": "h1", "first_rank": 1, "clock_offset_seconds": 100.0}
    nodes = (here, here.model_copy(update=ahead_of_it))
    record = collect(tmp_path, nodes=nodes)
    assert [(use and use.readings, use and use.cpu_busy) for use in record.node_telemetry] == [
        (11, 0.25),
        (11, 0.75),
    ]
    assert record.telemetry == record.node_telemetry[0]
    (tmp_path / "node-1.telemetry.jsonl").unlink()
    assert collect(tmp_path, nodes=nodes).machine_telemetry[1] is None


def test_a_record_reads_back_from_its_file(tmp_path: Path) -> None:
    left_behind(tmp_path, seconds={0: [1.0, 2.0], 1: [2.0, 2.0]}, failures=(LOST,))
    record = collect(tmp_path)
    assert LaunchRecord.model_validate(json.loads(record.model_dump_json())) == record
