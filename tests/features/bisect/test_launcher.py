"""One launch of a command: its figure, or why there is none."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from torchscale.errors import MachineError, UsageError
from torchscale.features.bisect.launcher import CommandLauncher, Launch, LaunchMetric
from torchscale.features.bisect.printed import PrintedNumber
from torchscale.launch.control import StopRequest

RATE = LaunchMetric("number", r"rate: ([0-9.,]+)", higher_is_better=True)


def launch(
    tmp_path: Path,
    code: str,
    metric: LaunchMetric,
    *,
    seconds: float = 60,
    stop: StopRequest | None = None,
    cwd: Path | None = None,
) -> Launch:
    launcher = CommandLauncher(
        (sys.executable, "-c", code), metric, tmp_path / "logs", seconds, stop or StopRequest()
    )
    return launcher.run(3, {"PATH": "/usr/bin:/bin"}, cwd)


def test_the_last_number_that_matches_counts() -> None:
    assert RATE.printed("rate: 1,000\nrate: 2,500.5\n") == 2500.5
    assert RATE.printed("rate: 0\n") is None
    assert RATE.printed("rate: .\n") is None
    assert RATE.printed("nothing") is None
    assert RATE.printed(f"rate: {10**30}\n") is None
    assert RATE.printed("rate: 0." + "0" * 30 + "1\n") is None


@pytest.mark.parametrize(("pattern", "named"), [("(", "missing"), ("rate", "no group")])
def test_patterns_that_give_no_number(pattern: str, named: str) -> None:
    with pytest.raises(UsageError, match=named):
        LaunchMetric("number", pattern)


@pytest.mark.slow
def test_a_printed_number(tmp_path: Path) -> None:
    done = launch(tmp_path, "print('rate: 12.5')", RATE)
    assert (done.value, done.state) == (12.5, "ok")
    assert (tmp_path / "logs" / "launch-003.log").read_text() == "rate: 12.5\n"


@pytest.mark.slow
@pytest.mark.parametrize("number", ["-0.25", "0", "nan"])
def test_a_loss_of_any_sign(tmp_path: Path, number: str) -> None:
    done = launch(tmp_path, f"print('loss: {number}')", LaunchMetric("change"))
    assert (repr(done.value), done.state) == (repr(float(number)), "ok")
    none = launch(tmp_path, "print('done')", LaunchMetric("change"))
    assert (none.value, none.state) == (None, "failed")
    assert none.reason == "printed no number after a word that ends in loss"
    failed = launch(tmp_path, "print('loss: 1'); raise SystemExit(3)", LaunchMetric("change"))
    assert (failed.value, failed.reason) == (None, "exit code 3: loss: 1")


@pytest.mark.slow
def test_a_file_of_the_directory_of_the_launch(tmp_path: Path) -> None:
    metric = LaunchMetric("change", source=PrintedNumber("loss", file=Path("out.json")))
    write = """open('out.json', 'w').write('{"loss": 0.5}')"""
    assert launch(tmp_path, write, metric, cwd=tmp_path).value == 0.5
    assert "older than the launch" in launch(tmp_path, "", metric, cwd=tmp_path).reason


@pytest.mark.slow
def test_no_number_is_a_failure(tmp_path: Path) -> None:
    done = launch(tmp_path, "print('nothing')", RATE)
    assert (done.value, done.state) == (None, "failed")
    assert "printed no number" in done.reason


@pytest.mark.slow
def test_wall_time_ends_with_the_command_and_cpu_time_is_that_of_its_work(tmp_path: Path) -> None:
    wait = "import time; time.sleep(0.6)"
    wall = launch(tmp_path, wait, LaunchMetric("wall")).value
    cpu = launch(tmp_path, wait, LaunchMetric("cpu")).value
    assert wall is not None
    assert cpu is not None
    assert wall >= 0.6
    assert cpu < 0.6 <= wall
    busy = "import time\nwhile time.process_time() < 0.7: pass"
    worked = launch(tmp_path, busy, LaunchMetric("cpu")).value
    assert worked is not None
    assert 0.7 <= worked < 1.5


@pytest.mark.slow
def test_a_failure_is_named_by_its_error(tmp_path: Path) -> None:
    done = launch(tmp_path, "raise ValueError('too much')", LaunchMetric("wall"))
    assert (done.state, done.reason) == ("failed", "exit code 1: ValueError: too much")


@pytest.mark.slow
def test_a_signal_is_named(tmp_path: Path) -> None:
    done = launch(tmp_path, "import os; os.kill(os.getpid(), 9)", LaunchMetric("wall"))
    assert done.reason == "signal 9"


@pytest.mark.slow
def test_a_time_limit_ends_it(tmp_path: Path) -> None:
    done = launch(tmp_path, "import time; time.sleep(60)", LaunchMetric("wall"), seconds=0.3)
    assert done.state == "timeout"
    assert "--timeout" in done.reason
    assert done.seconds < 20


@pytest.mark.slow
def test_a_stop_ends_it(tmp_path: Path) -> None:
    stop = StopRequest()
    stop.count = 1
    done = launch(tmp_path, "import time; time.sleep(60)", LaunchMetric("wall"), stop=stop)
    assert done.state == "interrupted"


@pytest.mark.slow
def test_it_runs_in_the_directory_of_a_commit(tmp_path: Path) -> None:
    inside = tmp_path / "tree"
    inside.mkdir()
    launch(tmp_path, "open('here', 'w')", LaunchMetric("wall"), cwd=inside)
    assert (inside / "here").exists()


def test_a_command_that_is_not_there(tmp_path: Path) -> None:
    launcher = CommandLauncher(
        ("no-such-program",), LaunchMetric("wall"), tmp_path, 1.0, StopRequest()
    )
    with pytest.raises(MachineError, match="cannot start no-such-program"):
        launcher.run(0, {"PATH": "/usr/bin"}, None)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pipe", "link", "directory"])
def test_what_is_in_the_place_of_a_log_is_removed_and_not_written_to(
    tmp_path: Path, kind: str
) -> None:
    log, others = tmp_path / "logs" / "launch-003.log", tmp_path / "others"
    log.parent.mkdir()
    others.write_text("mine")
    if kind == "pipe":
        os.mkfifo(log)
    elif kind == "link":
        log.symlink_to(others)
    else:
        log.mkdir()
    assert launch(tmp_path, "print('rate: 1')", RATE).value == 1
    assert log.read_text() == "rate: 1\n"
    assert others.read_text() == "mine"


@pytest.mark.slow
def test_no_time_at_all_is_no_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock may not see the CPU time of what is soon done."""
    monkeypatch.setattr("torchscale.features.watch.job.logged_program._cpu_seconds", lambda: 5.0)
    done = launch(tmp_path, "", LaunchMetric("cpu"))
    assert (done.value, done.state) == (None, "failed")
    assert "too little to be timed" in done.reason
