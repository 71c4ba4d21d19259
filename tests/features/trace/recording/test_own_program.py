"""A user's program and what is passed on of it; nsys itself is in
tests/integration/test_nsys.py."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from torchscale.config.choices import ProfileTarget, Tool
from torchscale.errors import MachineError
from torchscale.features.trace.recording.nsys import Nsys
from torchscale.features.trace.recording.own_program import record_program
from torchscale.features.trace.recording.user_program import UserRun, _Output, program_failure
from torchscale.launch.control import StopRequest
from torchscale.schema.profiles.recording import Recording
from torchscale.schema.profiles.request import RecordRequest
from torchscale.schema.state import State

CLOSING = b"Generating '/tmp/torchscale-nsys-x"


def test_what_nsys_prints_after_the_program_is_not_passed_on() -> None:
    passed: list[bytes] = []
    source = io.BytesIO()
    output = _Output(source, passed.append, CLOSING)

    def printed(text: bytes) -> None:
        place = source.tell()
        source.write(text)
        source.seek(place)
        output.pass_on()

    printed(b"step 1\nGenerating text\nGen")
    assert b"".join(passed) == b"step 1\nGenerating text\n", (
        "what may be the beginning of that line is held"
    )
    printed(b"erally good\n")
    assert b"".join(passed).endswith(b"Generally good\n")
    printed(b"over\nGenerating '/tmp/torch")
    closed = [output.is_closed]
    printed(b"scale-nsys-x/report.qdstrm'\n[1/1] [==50%]\nGenerated:\n")
    closed.append(output.is_closed)
    assert closed == [False, True]
    printed(b"more of nsys\n")
    assert b"".join(passed) == b"step 1\nGenerating text\nGenerally good\nover\n"


def test_a_silent_program_is_not_heard() -> None:
    passed: list[bytes] = []
    output = _Output(io.BytesIO(b"Connection to Agent lost"), passed.append, CLOSING)
    output.is_silent = True
    output.pass_on()
    assert passed == []


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        ("epoch 1\nloss 3.0\n", "loss 3.0"),
        ("Traceback (most recent call last):\n  File 'x'\nValueError: not finite\n", "ValueError: "
                                                                                     "not finite"),
        (
            "[rank1]: Traceback (most recent call last):\n[rank1]: torch.OutOfMemoryError: CUDA "
            "out of memory\n"
            "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \ntrain.py "
            "FAILED\n",
            "torch.OutOfMemoryError: CUDA out of memory",
        ),
        ("KeyboardInterrupt\n", "KeyboardInterrupt"),
        ("Error rate 0.3\nan Error: no\n", "an Error: no"),
        ("", ""),
    ],
)  # fmt: skip
def test_the_error_that_counts_is_the_programs(text: str, failure: str) -> None:
    assert program_failure(text) == failure


def record(
    directory: Path,
    *command: str,
    nsys: Nsys | None = None,
    stop: StopRequest | None = None,
    heard: list[bytes] | None = None,
) -> Recording:
    directory.mkdir(exist_ok=True)
    request = RecordRequest(
        tool=Tool.KINETO,
        target=ProfileTarget.SYNC_STALLS,
        directory=str(directory),
        seconds=1,
        max_steps=10,
    )
    run = UserRun(
        command=command,
        delay_seconds=0,
        keep_running=False,
        timeout_seconds=60,
        on_output=(heard if heard is not None else []).append,
    )
    return record_program(run, request, nsys, stop or StopRequest())


@pytest.mark.slow
def test_a_program_that_fails_before_a_step_is_told_with_its_code(tmp_path: Path) -> None:
    recording = record(
        tmp_path / "out", sys.executable, "-c", "import sys; sys.exit('the data is not there')"
    )
    assert (recording.state, recording.exit_code, recording.failure) == (
        State.CRASHED,
        1,
        "the data is not there",
    )
    assert "before a step was recorded; its last output: the data is not there" in recording.reason
    killed = record(tmp_path / "out", sys.executable, "-c", "import os; os.kill(os.getpid(), 9)")
    assert killed.exit_code == 137
    well = record(tmp_path / "out", sys.executable, "-c", "print('over')")
    assert (well.state, well.exit_code, well.failure) == (State.INCOMPLETE, 0, "")
    assert Recording.model_validate_json((tmp_path / "out" / "recording.json").read_bytes()) == well


@pytest.mark.slow
def test_a_request_to_stop_ends_it(tmp_path: Path) -> None:
    stop = StopRequest()
    stop.count = 1
    recording = record(
        tmp_path / "out", sys.executable, "-c", "import time; time.sleep(600)", stop=stop
    )
    assert (recording.state, recording.exit_code) == (State.INTERRUPTED, None)


RECORDED_AND_TALKATIVE = """
import pathlib, signal, sys, time
print("step 1", flush=True)
signal.signal(signal.SIGTERM, lambda *_: sys.exit("Traceback: got signal 15"))
rank = '{"rank": 0, "world_size": 1, "pid": 1, "trace": "rank-0.json", "steps": 3, "seconds": 1}'
pathlib.Path(sys.argv[1], "recorded-rank-0.json").write_text(rank)
time.sleep(600)
"""


@pytest.mark.slow
def test_what_a_program_says_to_its_end_after_the_recording_is_in_its_log_alone(
    tmp_path: Path,
) -> None:
    heard: list[bytes] = []
    directory = tmp_path / "out"
    recording = record(
        directory,
        sys.executable,
        "-c",
        RECORDED_AND_TALKATIVE,
        str(directory),
        heard=heard,
    )
    assert (recording.state, recording.exit_code) == (State.OK, None)
    assert b"".join(heard) == b"step 1\n"
    assert "got signal 15" in (directory / "output.log").read_text()


def test_under_nsys_a_program_that_is_not_there_is_not_started(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="cannot start no-such-program"):
        record(tmp_path / "out", "no-such-program", nsys=Nsys("nsys", (2024, 2)))
