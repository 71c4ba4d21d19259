"""The real Nsight Systems around CPU ranks and own programs: recordings, reports, exports, signals,
exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from tests.nsight import VERSIONS, nsys_path
from torchscale.worker.probe.host import nsys_facts

from .conftest import MODELS, Program

pytestmark = [pytest.mark.integration, pytest.mark.parametrize("version", VERSIONS)]

MARKED = [sys.executable, str(MODELS / "marked.py")]


class Nsight:
    """Runs torchscale with a real nsys on PATH, and a place of its own for temporary files."""

    def __init__(self, program: Program, version: str) -> None:
        self.program, self.path = program, nsys_path(version)
        self.temporary = program.directory / "temporary"
        self.temporary.mkdir()

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """To the end."""
        return self.program.run(*arguments, PATH=self.path, TMPDIR=str(self.temporary), **variables)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start, with all output in one pipe."""
        return subprocess.Popen(
            self.program.argv(*arguments),
            cwd=self.program.directory,
            env={**self.program.env(), "PATH": self.path, "TMPDIR": str(self.temporary)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def interrupt_when(self, running: subprocess.Popen[str], text: str, after: float) -> None:
        """Ctrl-C so long after the program printed ``text``."""
        log, deadline = self.program.directory / "out" / "output.log", time.monotonic() + 60
        while not (log.exists() and text in log.read_text()):
            assert time.monotonic() < deadline
            assert running.poll() is None
            time.sleep(0.05)
        time.sleep(after)
        os.kill(running.pid, signal.SIGINT)

    def assert_nothing_is_left(self) -> None:
        """No process, and no file of nsys's."""
        deadline = time.monotonic() + 10  # zombies of nsys wait for init
        while self.program.leftovers() and time.monotonic() < deadline:
            time.sleep(0.1)
        assert self.program.leftovers() == []
        assert [
            item.name
            for item in self.temporary.iterdir()
            if "nsys" in item.name or item.name == "nvidia"
        ] == []

    def recording(self) -> dict[str, Any]:
        """``recording.json`` of the recording in ``out``."""
        content: dict[str, Any] = json.loads(
            (self.program.directory / "out" / "recording.json").read_text()
        )
        return content


@pytest.fixture
def nsight(program: Program, version: str) -> Nsight:
    """torchscale with this nsys."""
    return Nsight(program, version)


def test_a_workload_on_cpu_ranks_is_recorded_and_the_late_rank_named(nsight: Nsight) -> None:
    config = nsight.program.config(
        models=[{"name": "straggling:build", "rank": 1, "extra": 0.02}], gpu_counts=[2]
    )
    arguments = [
        "--config",
        config,
        "--tool",
        "nsys",
        "--duration",
        "4s",
        "--max-steps",
        "30",
        "-o",
        "out",
    ]
    done = nsight.run("profile", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    analysis = json.loads(done.stdout)
    assert (analysis["recorder"], analysis["window"]["reasons"], analysis["world_size"]) == (
        "nsys",
        [],
        2,
    )
    straggler = next(item for item in analysis["findings"] if item["kind"] == "straggler")
    assert straggler["rank"] == 1
    assert straggler["cost_seconds"] == pytest.approx(0.02, rel=0.25)
    assert {item["op"] for item in analysis["collectives"]} == {"all_reduce"}
    (directory,) = (nsight.program.directory / "out" / "cells").glob("*/profile-0")
    assert {item.name for item in directory.glob("recording.*")} == {
        "recording.json", "recording.nsys-rep", "recording.sqlite"
    }  # fmt: skip
    report = ("report", "--source", "out", "--format", "md", "--output", "-")
    shown = nsight.program.here(*report).stdout
    assert "recorded with nsys" in shown
    nsight.assert_nothing_is_left()
    # The report by itself, as on another machine: exported there, and beside it nothing is written.
    alone = nsight.program.directory / "alone"
    alone.mkdir()
    (alone / "theirs.nsys-rep").write_bytes((directory / "recording.nsys-rep").read_bytes())
    again = nsight.run("profile", "analyze", "alone/theirs.nsys-rep", "--json")
    assert json.loads(again.stdout)["findings"] == analysis["findings"]
    assert len(list(alone.iterdir())) == 1


@pytest.mark.campaign
def test_a_sweep_records_its_cells_with_it(nsight: Nsight) -> None:
    profiling = {
        "enabled": True,
        "tool": "nsys",
        "trigger": "always",
        "seconds": 1.0,
        "max_steps": 20,
    }
    config = nsight.program.config(models=["tiny-resnet"], gpu_counts=[2], profiling=profiling)
    plan = nsight.run("benchmark", config, "--dry-run")
    assert "no cell will be profiled" not in plan.stdout + plan.stderr
    done = nsight.run("benchmark", config)
    assert done.returncode == 0, done.stderr
    assert "Sync stall time" in done.stderr
    (path,) = (nsight.program.directory / "results" / "run" / "cells").glob(
        "*/profile-0/analysis.json"
    )
    analysis = json.loads(path.read_text())
    assert analysis["recorder"] == "nsys"
    assert analysis["window"]["steps"] >= 3
    assert {item["op"] for item in analysis["collectives"]} == {"all_reduce", "broadcast"}
    nsight.assert_nothing_is_left()


def test_an_own_program_is_recorded_and_ended_and_its_copy_holds_no_secret(nsight: Nsight) -> None:
    canary = "canary8124"
    started = (
        f"import runpy, sys; print('{canary}'); sys.argv = ['x', '100000']; "
        f"runpy.run_path({MARKED[1]!r}, "
    )
    program = [sys.executable, "-c", f"{started}run_name='__main__')", f"--key={canary}"]
    arguments = ["--tool", "nsys", "--delay", "0", "--duration", "1s", "-o", "out", "--json"]
    done = nsight.run("profile", *arguments, "--", *program, MY_TOKEN=canary)
    assert done.returncode == 0, done.stderr
    assert "training begins" in done.stderr
    assert "training is over" not in done.stderr
    assert "Generating" not in done.stderr
    assert str(nsight.temporary) not in done.stderr
    assert json.loads(done.stdout)["window"]["steps"] > 20
    nsight.assert_nothing_is_left()

    strip = ("profile", "strip", "out/recording.sqlite", "--output", "share.sqlite")
    stripped = nsight.program.here(*strip)
    assert stripped.returncode == 0, stripped.stderr
    whole, copy = (
        nsight.program.directory / name for name in ("out/recording.sqlite", "share.sqlite")
    )
    assert canary.encode() in whole.read_bytes()
    assert canary.encode() not in copy.read_bytes()
    assert "TARGET_INFO_SYSTEM_ENV" in stripped.stderr
    assert (
        nsight.program.here("profile", "analyze", "share.sqlite", "--json").stdout.replace(
            "share", "recording"
        )
        == done.stdout
    )


@pytest.mark.parametrize(
    ("ending", "code", "said"),
    [
        ("7", 7, "the program exited with 7 after"),
        ("crash", 1, "its last output: ValueError: the loss is not finite"),
        ("0", 1, "the program ended after"),
    ],
)
def test_a_program_that_ends_before_it_is_recorded_is_told_so(
    nsight: Nsight, ending: str, code: int, said: str
) -> None:
    done = nsight.run("profile", "--tool", "nsys", "-o", "out", "--", *MARKED, "5", ending)
    assert done.returncode == code, done.stderr
    told = " ".join(done.stderr.split())
    assert said in told
    assert "before the recording began (--delay 30s)" in told
    assert nsight.recording()["exit_code"] == (1 if ending == "crash" else int(ending))
    nsight.assert_nothing_is_left()


def test_a_program_that_ends_while_it_is_recorded_passes_its_code_on(nsight: Nsight) -> None:
    arguments = ["--tool", "nsys", "--delay", "1", "--duration", "60s", "-o", "out", "--json"]
    done = nsight.run("profile", *arguments, "--", *MARKED, "150", "7")
    assert done.returncode == 7
    assert json.loads(done.stdout)["window"]["steps"] > 20
    assert "The program exited with 7: training is over" in done.stderr
    assert "Generating" not in done.stderr
    nsight.assert_nothing_is_left()


def test_a_program_that_is_kept_is_left_alone_until_it_ends(nsight: Nsight) -> None:
    arguments = [
        "--tool",
        "nsys",
        "--delay",
        "0",
        "--duration",
        "1s",
        "--keep-running",
        "-o",
        "out",
    ]
    done = nsight.run("profile", *arguments, "--", *MARKED, "300", "5")
    assert done.returncode == 5
    analyzed, over = done.stderr.index("The program goes on"), done.stderr.index("training is over")
    assert analyzed < over, "the analysis is shown while the program still runs"
    assert "No bottleneck found" in done.stdout
    nsight.assert_nothing_is_left()


def test_ctrl_c_ends_the_recording_and_analyzes_it(nsight: Nsight) -> None:
    arguments = ["--tool", "nsys", "--delay", "0", "--duration", "1h", "-o", "out"]
    running = nsight.start("profile", *arguments, "--", *MARKED, "100000")
    nsight.interrupt_when(running, "training begins", after=2.0)
    output, _ = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "Sync stall time: not measured (1 rank" in output
    assert "training is over" not in output
    nsight.assert_nothing_is_left()


def test_ctrl_c_leaves_a_program_that_is_kept_and_a_second_one_ends_it(nsight: Nsight) -> None:
    arguments = [
        "--tool",
        "nsys",
        "--delay",
        "0",
        "--duration",
        "1h",
        "--keep-running",
        "-o",
        "out",
    ]
    running = nsight.start("profile", *arguments, "--", *MARKED, "100000")
    nsight.interrupt_when(running, "training begins", after=2.0)
    analysis, deadline = nsight.program.directory / "out" / "analysis.json", time.monotonic() + 30
    while not analysis.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(1.0)
    assert running.poll() is None
    assert any("marked.py" in " ".join(process.cmdline()) for process in nsight.program.leftovers())
    os.kill(running.pid, signal.SIGINT)
    assert running.wait(timeout=30) == 130
    running.communicate()
    nsight.assert_nothing_is_left()


def test_ctrl_c_before_the_recording_ends_all(nsight: Nsight) -> None:
    running = nsight.start("profile", "--tool", "nsys", "-o", "out", "--", *MARKED, "100000")
    nsight.interrupt_when(running, "training begins", after=0.5)
    output, _ = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "Interrupted before anything was recorded" in output
    assert "Connection to Agent lost" not in output
    nsight.assert_nothing_is_left()


@pytest.mark.campaign
def test_what_it_cannot_read_is_told_with_the_version_it_takes(
    nsight: Nsight, version: str
) -> None:
    newest = max(VERSIONS)
    arguments = ["--tool", "nsys", "--delay", "0", "--duration", "1s", "-o", "out"]
    recorded = nsight.program.run(
        "profile", *arguments, "--", *MARKED, "100000", PATH=nsys_path(newest)
    )
    assert recorded.returncode == 0, recorded.stderr
    done = nsight.run("profile", "analyze", "out/recording.nsys-rep")
    told = " ".join(done.stderr.split())
    if version == newest:
        assert done.returncode == 0
        return
    assert done.returncode == 3
    assert f"was recorded by Nsight Systems {newest}" in told
    assert f"Nsight Systems {newest} or newer" in told


def test_auto_takes_torch_profiler_where_there_is_no_device(nsight: Nsight) -> None:
    done = nsight.run("profile", "-o", "out", "--", *MARKED, "5")
    assert "recording with torch.profiler: PyTorch finds no CUDA device here" in done.stderr
    assert "torchscale.step_profiler()" in done.stderr


def test_its_installation_is_fit(
    nsight: Nsight, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", nsight.path)
    facts = nsys_facts()
    assert (facts.can_export, facts.problem) == (True, "")
    assert (facts.version or "").startswith(f"{version}.")
