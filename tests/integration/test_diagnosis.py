"""Lost time and its cause, through the real program on real gloo ranks."""

from __future__ import annotations

import functools
import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.program import torchscale
from tests.nsight import path_without_nsys

from .conftest import MODELS, Program

pytestmark = pytest.mark.integration

MEASURED = {
    "preset": "quick",
    "warmup_steps": 5,
    "warmup_seconds": 0.1,
    "warmup_max_seconds": 1.0,
    "measure_steps": 60,
}
TORCHRUN = [
    sys.executable,
    "-m",
    "torch.distributed.run",
    "--standalone",
    "--local-addr=127.0.0.1",
    "--nproc-per-node=2",
]


def once_more(test: Callable[[Program], None]) -> Callable[[Program], None]:
    """A figure that others on the machine disturbed is measured once more, in a directory of its
    own."""

    @functools.wraps(test)
    def measured(program: Program) -> None:
        try:
            test(program)
        except AssertionError:
            again = program.directory / "again"
            again.mkdir()
            test(Program(again, program.mark))

    return measured


def cells(program: Program, *causes: dict[str, Any]) -> list[dict[int, dict[str, Any]]]:
    """Results by count of a benchmark of ``straggling`` with each of these causes on 1 and 2
    ranks."""
    config = program.config(
        models=[{"name": "straggling:build", **options} for options in causes],
        gpu_counts=[1, 2],
        benchmark=MEASURED,
        profiling={"enabled": False},
    )
    done = program.run("benchmark", config, "--json")
    assert done.returncode == 0, done.stderr
    results: list[dict[int, dict[str, Any]]] = [{} for _ in causes]
    for cell in json.loads(done.stdout)["cells"]:
        cause = next(
            number
            for number, options in enumerate(causes)
            if options.items() <= cell["cell"]["model_options"].items()
        )
        results[cause][cell["cell"]["world_size"]] = cell
    return results


def parts(cell: dict[str, Any]) -> dict[str, float]:
    return dict(cell["decomposition"])


def assert_it_adds_up(lost: dict[str, float]) -> None:
    names = (
        "ideal",
        "compute",
        "data_wait",
        "straggler_wait",
        "exposed_communication",
        "unexplained",
    )
    assert sum(lost[name] for name in names) == pytest.approx(lost["step"], rel=1e-9)
    assert abs(lost["unexplained"]) < 0.05 * lost["step"]


@pytest.mark.quiet
@once_more
def test_a_straggler_and_a_slow_loader_are_named_and_cost_what_was_injected(
    program: Program,
) -> None:
    extra = 0.01
    found, loading = cells(program, {"rank": 1, "extra": extra}, {"loader": 0.01})
    lost = parts(found[2])
    assert_it_adds_up(lost)
    # Rank 1 computes longer, which is half a rank's mean; rank 0 waits as long, which is the other
    # half.
    assert lost["straggler_wait"] == pytest.approx(extra / 2, rel=0.25)
    first = next(item for item in found[2]["diagnosis"]["findings"] if item["kind"] == "straggler")
    assert first["rank"] == 1
    assert first["cost_seconds"] == pytest.approx(extra, rel=0.25)
    assert found[1]["decomposition"] is None
    record = next(
        value for key, value in program.records().items() if key.startswith(found[2]["cell_id"])
    )
    for rank in record["payload"]["ranks"]:
        signals = rank["signals"]
        assert len(signals["unsynchronized_seconds"]) == 12
        assert 0 < signals["unsynchronized_wall_seconds"] < 5
        assert sum(signals["bucket_bytes"]) == 4 * (64 * 64 + 64)
        assert signals["link"]["merged_seconds"] > 0

    lost = parts(loading[2])
    assert_it_adds_up(lost)
    assert lost["data_wait"] == pytest.approx(0.01, rel=0.2)
    named = {item["kind"]: item["rank"] for item in loading[2]["diagnosis"]["findings"]}
    assert named["input_pipeline"] is None
    assert "straggler" not in named


@pytest.mark.quiet
@once_more
def test_the_sweep_profiles_what_calls_for_it_and_the_report_shows_it(program: Program) -> None:
    config = program.config(
        models=[{"name": "straggling:build", "rank": 1, "extra": 0.02}],
        gpu_counts=[1, 2],
        benchmark=MEASURED,
        profiling={"enabled": True, "tool": "kineto", "seconds": 2.0, "max_steps": 30},
    )
    done = program.run("benchmark", config)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Sync stall time") == 1
    (directory,) = (program.directory / "results" / "run" / "cells").glob("*/profile-0")
    assert "-n2-" in directory.parent.name
    analysis = json.loads((directory / "analysis.json").read_text())
    straggler = next(item for item in analysis["findings"] if item["kind"] == "straggler")
    assert (straggler["rank"], straggler["cost_seconds"]) == (1, pytest.approx(0.02, rel=0.25))
    events = json.loads(gzip.decompress((directory / "timeline.perfetto.json.gz").read_bytes()))[
        "traceEvents"
    ]
    assert any("Straggler" in event["name"] for event in events)
    before = program.records()
    again = program.here("benchmark", config)
    assert again.returncode == 0
    assert "Sync stall time" not in again.stderr
    assert program.records() == before
    shown = program.here(
        "report", "--source", "results/run", "--format", "md", "--output", "-"
    ).stdout
    assert "## Profiles" in shown
    assert "Sync stall time" in shown
    assert "## Where the time goes" in shown
    assert program.leftovers() == []


@pytest.mark.campaign
def test_a_workload_of_ours_is_profiled_into_a_run_folder(program: Program) -> None:
    """A sweep records with torch.profiler above, and `profile` a workload with nsys in
    test_nsys.py."""
    arguments = [
        "--model",
        "tiny-resnet",
        "--batch-size",
        "4",
        "--gpus",
        "2",
        "--duration",
        "1s",
        "--max-steps",
        "24",
    ]
    done = program.run("profile", *arguments, "--output-dir", "out", "--json")
    assert done.returncode == 0, done.stderr
    analysis = json.loads(done.stdout)
    assert analysis["window"]["kind"] == "steps"
    assert analysis["world_size"] == 2
    assert {item["op"] for item in analysis["collectives"]} == {"all_reduce", "broadcast"}
    assert all(item["payload_bytes"] for item in analysis["collectives"])
    report = program.here("report", "--source", "out", "--format", "md", "--output", "-")
    assert "no throughput is taken from it" in report.stdout
    assert "Sync stall time" in report.stdout
    assert program.leftovers() == []


@pytest.mark.quiet
@once_more
def test_a_users_own_training_is_recorded_and_ended(program: Program) -> None:
    script = [*TORCHRUN, str(MODELS / "user_training.py"), "0.02", "100000"]
    done = program.run("profile", "--max-steps", "40", "-o", "out", "--", *script)
    assert done.returncode == 0, done.stderr
    assert "training begins" in done.stderr
    assert "training is over" not in done.stderr
    assert "Straggler: rank 1" in done.stdout
    assert program.leftovers() == []
    # What was recorded can be analyzed by itself, where there is no torch.
    blocked = (
        "import sys; sys.modules['torch'] = None; from torchscale.cli.main import main; main()"
    )
    alone = subprocess.run(
        [sys.executable, "-c", blocked, "profile", "analyze", "out", "--json"],
        cwd=program.directory,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert alone.returncode == 0, alone.stderr
    straggler = next(
        item for item in json.loads(alone.stdout)["findings"] if item["kind"] == "straggler"
    )
    assert straggler["rank"] == 1
    assert straggler["cost_seconds"] == pytest.approx(0.02, rel=0.25)
    shown = program.here("report", "--source", "out", "--format", "md", "--output", "-")
    assert "# Training profile: out" in shown.stdout
    assert "Straggler: rank 1" in shown.stdout
    rows = program.here("report", "--source", "out", "--format", "csv")
    assert rows.returncode == 2
    assert "no rows for a spreadsheet" in rows.stderr
    again = program.here("profile", "-o", "out", "--", "true")
    assert again.returncode == 2
    assert "holds a recording already" in again.stderr


def test_a_program_that_goes_on_and_one_that_records_nothing(program: Program) -> None:
    short = [*TORCHRUN, str(MODELS / "user_training.py"), "0.0", "60"]
    done = program.run(
        "profile", "--max-steps", "20", "--keep-running", "-o", "out", "--json", "--", *short
    )
    assert done.returncode == 0, done.stderr
    assert "training is over" in done.stderr
    assert json.loads(done.stdout)["window"]["steps"] == 19

    told = "--hub-token=planted-value"
    silent = program.here(
        "profile", "-o", "silent", "--", sys.executable, "-c", "print('hello')", told
    )
    assert silent.returncode == 1
    assert "planted-value" not in (program.directory / "silent" / "recording.json").read_text()
    assert "torchscale.step_profiler()" in silent.stderr
    broken = program.here(
        "profile", "-o", "broken", "--", sys.executable, "-c", "raise ValueError('mine')"
    )
    assert broken.returncode == 1
    assert "exited with 1" in broken.stderr
    assert "ValueError: mine" in broken.stderr
    absent = program.here("profile", "-o", "absent", "--", "no-such-program")
    assert absent.returncode == 3
    assert "cannot start no-such-program" in absent.stderr


def test_ctrl_c_ends_a_users_program_and_leaves_nothing(program: Program) -> None:
    script = [*TORCHRUN, str(MODELS / "user_training.py"), "0.0", "100000"]
    running = program.start(
        "profile", "--max-steps", "1000000", "--duration", "1h", "-o", "out", "--", *script
    )
    log = program.directory / "out" / "output.log"
    deadline = time.monotonic() + 60
    while not (log.exists() and b"training begins" in log.read_bytes()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(running.pid, signal.SIGINT)
    assert running.wait(timeout=60) == 130
    running.communicate()
    assert program.leftovers() == []


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--duration", "soon"], 2, "'soon' is not a duration"),
        (["--duration", "0s"], 2, "--duration: 0s is not above 0"),
        (["--gpus", "4096"], 3, "needs 4096 devices"),
        (["--gpus", "2", "--", "true"], 2, "for torchscale's own workloads"),
        (["--"], 2, "nothing follows --"),
        (["analyze", "absent.json"], 2, "no such file"),
        (["analyze", "broken.json"], 2, "cut off"),
        (["strip", "absent.sqlite", "-o", "x"], 2, "no such file"),
    ],
)
def test_what_cannot_be_done_is_said(
    tmp_path: Path, arguments: list[str], code: int, said: str
) -> None:
    (tmp_path / "broken.json").write_text('{"traceEvents": [{"ph": "X"')
    done = torchscale(tmp_path, "profile", *arguments)
    assert done.returncode == code, done.stderr
    assert said in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "x").exists()


def test_without_nsys_it_cannot_be_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", path_without_nsys())
    done = torchscale(tmp_path, "profile", "--tool", "nsys", "--gpus", "1")
    assert done.returncode == 3
    assert "nsys is not on PATH" in done.stderr


def test_memory_that_every_step_returns_is_named_and_keeping_it_ends_that(program: Program) -> None:
    found = {}
    for setting in ("system", "keep"):
        config = program.config(
            models=["returning:build"],
            gpu_counts=[1],
            benchmark=MEASURED,
            profiling={"enabled": False},
            launch={"malloc": setting},
        )
        done = program.here("benchmark", config, "--json", "-o", f"results/{setting}")
        assert done.returncode == 0, done.stderr
        (cell,) = json.loads(done.stdout)["cells"]
        found[setting] = {finding["kind"]: finding for finding in cell["diagnosis"]["findings"]}
    returned = found["system"]["memory_returned"]
    pages = 40 * 2**20 / os.sysconf("SC_PAGE_SIZE")
    assert f"{pages / 1000:.0f}," in returned["summary"], "every page of the 40 MiB, in every step"
    assert returned["cost_seconds"] > 0
    assert "malloc" in returned["advice"] or "MALLOC" in returned["advice"]
    assert "memory_returned" not in found["keep"]
