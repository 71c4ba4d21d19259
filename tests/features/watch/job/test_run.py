"""Programs started under ``watch``: small ones, without torch."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from torchscale.features.watch.job.program_processes import (
    TIMING_VARIABLE,
    has_ended,
    watching_environment,
)
from torchscale.features.watch.job.read import read_watch
from torchscale.features.watch.job.relay import Relay
from torchscale.features.watch.job.run import Watched, WatchRequest, run_program
from torchscale.schema.watch.report import JobState, WatchReport
from torchscale.store.locations import WATCH_REPORT

pytestmark = pytest.mark.slow


def _watched(request: WatchRequest) -> Watched:
    relay = Relay()
    watched = run_program(request, relay).watched()
    relay.close()
    assert watched is not None
    return watched


def _watch(directory: Path, code: str) -> int | None:
    request = WatchRequest([sys.executable, "-c", code], directory / "job")
    return _watched(request).report.exit_code


@pytest.mark.parametrize(
    ("code", "expected", "state"),
    [("pass", 0, JobState.DONE), ("exit(3)", 3, JobState.FAILED)],
    ids=["ends", "fails"],
)
def test_the_exit_code_is_the_programs(
    tmp_path: Path, code: str, expected: int, state: JobState
) -> None:
    assert _watch(tmp_path, code) == expected
    assert read_watch(tmp_path / "job").state is state


@pytest.mark.parametrize(("timing", "expected"), [(True, "1"), (False, "None")])
def test_torch_is_asked_to_time_collectives_where_the_user_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, timing: bool, expected: str
) -> None:
    monkeypatch.delenv(TIMING_VARIABLE, raising=False)
    code = (
        f"import os; open('{tmp_path}/seen', 'w').write(str(os.environ.get('{TIMING_VARIABLE}')))"
    )
    _watched(WatchRequest([sys.executable, "-c", code], tmp_path / "job", timing=timing))

    assert (tmp_path / "seen").read_text() == expected


def test_a_program_that_a_signal_ended_has_128_and_its_number(tmp_path: Path) -> None:
    code = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"

    assert _watch(tmp_path, code) == 128 + signal.SIGKILL


def test_input_output_and_arguments_are_the_programs_own(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torchscale", "watch", "--no-live", "-o", "job", "--"]
    code = "import sys; print(sys.stdin.read().upper(), sys.argv[1:])"
    done = subprocess.run(
        [*command, sys.executable, "-c", code, "a", "--b", "--"],
        input="text",
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
        timeout=60,
    )

    assert done.stdout == "TEXT ['a', '--b', '--']\n"
    assert done.returncode == 0


def test_a_signal_reaches_the_program_and_its_exit_code_comes_back(tmp_path: Path) -> None:
    code = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        "print('here', flush=True)\n"
        "time.sleep(60)\n"
    )
    command = [sys.executable, "-m", "torchscale", "watch", "-o", "job", "--"]
    with subprocess.Popen(
        [*command, sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 7


def test_a_program_outlives_a_watcher_that_is_killed(tmp_path: Path) -> None:
    done = tmp_path / "done"
    code = (
        "import sys, time, pathlib\n"
        "print('here', flush=True)\n"
        f"sys.stdin.readline(); pathlib.Path({str(done)!r}).touch()\n"
    )
    command = [sys.executable, "-m", "torchscale", "watch", "-o", "job", "--"]
    read, write = os.pipe()
    with subprocess.Popen(
        [*command, sys.executable, "-c", code],
        cwd=tmp_path,
        stdin=read,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        os.close(read)
        assert process.stdout is not None
        process.stdout.readline()
        process.kill()
        process.wait(30)
        os.write(write, b"go on\n")
        os.close(write)
        deadline = time.monotonic() + 30
        while not done.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
    assert done.exists()


def test_a_watcher_that_is_killed_leaves_a_job_without_a_result(tmp_path: Path) -> None:
    code = "import sys, time\nprint('here', flush=True)\nsys.stdin.readline()\n"
    command = [sys.executable, "-m", "torchscale", "watch", "-o", "job", "--"]
    read, write = os.pipe()
    job = tmp_path / "job"
    with subprocess.Popen(
        [*command, sys.executable, "-c", code], cwd=tmp_path, stdin=read, stdout=subprocess.PIPE
    ) as process:
        os.close(read)
        assert process.stdout is not None
        process.stdout.readline()
        report = WatchReport(
            tool_version="1", command=("x",), started_at="2026-01-01T00:00:00", seconds=1
        )
        (job / WATCH_REPORT).write_text(
            report.model_dump_json()
        )  # as the first judgement, after 15 s
        assert read_watch(job).state is JobState.RUNNING
        process.kill()
        process.wait(30)
    os.write(write, b"go on\n")
    os.close(write)

    assert read_watch(job).state is JobState.LOST


def test_the_programs_own_path_stays_behind_ours() -> None:
    environment = watching_environment(Path("/job"), {"PYTHONPATH": "/mine", "HOME": "/root"})

    ours, mine = environment["PYTHONPATH"].split(os.pathsep)
    assert mine == "/mine"
    assert (Path(ours) / "sitecustomize.py").is_file()
    assert environment["TORCHSCALE_WATCH"] == "/job"
    assert environment["HOME"] == "/root"


def test_a_sitecustomize_of_the_users_still_runs(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "sitecustomize.py").write_text("import sys; sys.mine = True\n")
    environment = watching_environment(
        tmp_path / "job", {**os.environ, "PYTHONPATH": str(tmp_path / "mine")}
    )
    done = subprocess.run(
        [sys.executable, "-c", "import sys; print(sys.mine)"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert done.stdout == "True\n"
    assert done.stderr == ""


def test_what_cannot_be_read_or_written_leaves_the_exit_code(tmp_path: Path) -> None:
    rank = "import os, pathlib; d = pathlib.Path(os.environ['TORCHSCALE_WATCH'])"
    damaged = f"{rank}; (d / 'ranks' / '0.0').mkdir(parents=True); "
    damaged += "(d / 'ranks' / '0.0' / 'rank.json').write_text('{'); exit(4)"
    request = WatchRequest([sys.executable, "-c", damaged], tmp_path / "damaged")
    report = _watched(request).report
    assert report.exit_code == 4
    assert any("rank.json" in note for note in report.notes)

    gone = f"{rank}; import shutil; shutil.rmtree(d); d.write_text(''); exit(5)"
    report = _watched(WatchRequest([sys.executable, "-c", gone], tmp_path / "gone")).report
    assert report.exit_code == 5
    assert report.notes


def test_a_collector_that_could_not_start_is_noted(tmp_path: Path) -> None:
    code = "import os; open(os.environ['TORCHSCALE_WATCH'] + '/problem-1', 'w').write('no luck')"
    report = _watched(WatchRequest([sys.executable, "-c", code], tmp_path / "job")).report

    assert "a collector failed: no luck" in report.notes


def test_a_program_that_is_to_be_added_to_the_root_is_started(tmp_path: Path) -> None:
    """It has no folder beside it."""
    code = f"open('{tmp_path}/ran', 'w')"
    notes: list[str] = []
    request = WatchRequest(
        [sys.executable, "-c", code], Path("/"), appends=True, on_note=notes.append
    )
    watched = _watched(request)

    assert (tmp_path / "ran").exists()
    assert str(watched.directory).startswith(tempfile.gettempdir())
    assert "this run is in" in notes[0]
    shutil.rmtree(watched.directory)


def test_a_process_of_others_has_ended_once_it_does_nothing_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        assert not has_ended(process.pid, 0.01)
        with monkeypatch.context() as patch:
            patch.setattr(psutil.Process, "status", _raise_gone)
            assert has_ended(process.pid, 0.01)  # it ended after the wait was over
        process.kill()
        end = time.monotonic() + 30
        while not has_ended(process.pid, 0.01):  # nobody has asked for its exit code
            assert time.monotonic() < end
    assert has_ended(process.pid, 0.01)


def _raise_gone(process: psutil.Process) -> str:
    raise psutil.NoSuchProcess(process.pid)
