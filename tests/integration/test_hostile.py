"""Secrets, and models that do things to their process, through the real program."""

from __future__ import annotations

import contextlib
import re
import statistics
import subprocess
import time
from collections.abc import Callable

import psutil
import pytest

from tests.campaign import cases, tell_fault
from tests.factories import machine
from torchscale.config.load import load_experiment
from torchscale.plan.expand import make_plan

from .conftest import FAST, Program

pytestmark = pytest.mark.integration

SECRET = "correct-horse-7"  # noqa: S105 - made up
OTHER = "battery-staple-9"


def everything_written(program: Program) -> dict[str, str]:
    files = (
        path
        for path in program.directory.rglob("*")
        if path.is_file() and path.name != "config.json"
    )
    return {str(path): path.read_bytes().decode("utf-8", "replace") for path in files}


@pytest.mark.parametrize("isolation", cases(["auto"], ["group", "cell"]))
def test_no_secret_reaches_a_file_or_the_terminal(program: Program, isolation: str) -> None:
    """In an exception, the ranks' output, options, data_dir, variables and the command line; and
    the model gets it."""
    address = f"https://bob:{SECRET}@hub/x"
    models = [
        {
            "name": "hostile:build",
            "kind": kind,
            "address": address,
            "expects": "HUB_ADDRESS",
            "api_token": OTHER,
        }
        for kind in ("none", "raises")
    ]
    config = program.config(
        models=models,
        gpu_counts=[1],
        data={"data_dir": f"s3://key:{SECRET}@bucket/x"},
        launch={"env": {"DB_PASS": OTHER}, "isolation": isolation},
    )
    variables = {"HUB_TOKEN": SECRET, "HUB_ADDRESS": address}
    done = program.run(
        "--verbose", "benchmark", config, f"--launch.env.OTHER_PASS={OTHER}", **variables
    )
    assert done.returncode == 1, done.stderr
    states = {record["state"] for record in program.records().values()}
    assert states == {"ok", "crashed"}
    again = program.run("benchmark", config, f"--launch.env.OTHER_PASS={OTHER}", **variables)
    assert "2 done before" in again.stderr.replace("\n", " "), (
        again.stderr
    )  # the cells are the same, secrets aside
    outputs = [done.stdout, done.stderr, again.stdout, again.stderr]
    for kind in ("html", "md", "csv", "json"):
        shown = program.here("report", "results/run", "--format", kind)
        assert shown.returncode == 0, shown.stderr
        outputs += [shown.stdout, shown.stderr]
    outputs.append(program.here("report", "results/run", "--format", "terminal").stdout)
    written = everything_written(program)
    assert any(
        "cannot fetch https://<redacted>@hub/x with <redacted>" in text for text in written.values()
    )
    assert any("s3://<redacted>@bucket/x" in text for text in written.values())
    for name, text in [
        *written.items(),
        *((f"output {place}", text) for place, text in enumerate(outputs)),
    ]:
        for secret in (SECRET, OTHER):
            assert secret not in text, (name, text[max(0, text.index(secret) - 200) :][:400])


KINDS = [
    "none",
    "clocks",
    "chdir",
    "signals",
    "prints",
    "daemon",
    *cases([], ["closes", "forks", "starts a session"]),
]


@pytest.mark.real
def test_models_that_do_things_to_their_process(
    program: Program, record_property: Callable[[str, object], None]
) -> None:
    """Clocks that go slower, another directory, other signal handlers, 20 MB of output: none of it
    ends the launch. The process that one leaves is named."""
    models = [{"name": "hostile:build", "kind": kind} for kind in KINDS]
    config = program.config(
        models=models, gpu_counts=[1], launch={"isolation": "group"}, benchmark=FAST
    )
    done = program.run("benchmark", config)
    end_the_process_that_is_named(done)
    assert done.returncode == 0, done.stderr
    for name, record in program.records().items():
        task = (program.directory / "results/run/cells" / name / "task.json").read_text()
        kind = next(kind for kind in KINDS if f'"kind": "{kind}"' in task)
        (rank,) = record["payload"]["ranks"]
        times = [
            seconds / steps
            for seconds, steps in zip(
                rank["batches"]["seconds"], rank["batches"]["steps"], strict=True
            )
        ]
        step = statistics.median(times)
        measured = sum(rank["batches"]["seconds"])
        assert rank["measured_until"] - rank["measured_from"] >= 0.9 * measured
        size = sum(
            path.stat().st_size
            for path in (program.directory / "results/run/cells" / name).glob("*.log")
        )
        assert size < 17 * 2**20
        seen = f"{record['state']}, {step * 1e3:.2f} ms a step, {size:,} bytes of logs"
        tell_fault(record_property, f"a model: {kind}", "hostile.py in its fifth step", "ok", seen)
    assert program.leftovers() == []


@pytest.mark.parametrize("isolation", cases(["auto"], ["group", "cell"]))
def test_a_model_that_removes_the_folder_of_its_launch_ends_its_cell_alone(
    program: Program, isolation: str
) -> None:
    models = [{"name": "hostile:build", "kind": kind} for kind in ("removes its folder", "none")]
    config = program.config(
        models=models, gpu_counts=[1], launch={"isolation": isolation}, benchmark=FAST
    )
    experiment = load_experiment(program.directory / config, [])
    first = make_plan(experiment, machine()).cells[0].cell
    removed = program.directory / "results/run/cells" / first.id
    done = program.here("benchmark", config, REMOVED=str(removed))
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr.partition("log:")[0]
    states = {record["state"] for record in program.records().values()}
    assert "ok" in states
    assert len(states) == 2
    assert "was emptied or removed meanwhile" in " ".join(done.stderr.split())


@pytest.mark.campaign
def test_a_resumed_run_says_what_it_sets_aside(program: Program) -> None:
    config = program.config(models={"name": "hostile:build"}, gpu_counts=[1])
    assert program.run("benchmark", config).returncode == 0
    (name,) = program.records()
    path = program.directory / "results/run/cells" / name / "record.json"
    path.write_text(path.read_text().replace('"schema_version": 2', '"schema_version": 3', 1))
    done = program.run("benchmark", config)
    assert done.returncode == 0, done.stderr
    told = done.stderr.replace("\n", " ")
    assert "schema version 3; this torchscale reads up to 2" in told
    assert "moved to quarantine/" in told

    outside = program.directory / "other-disk"
    (program.directory / "results/run/cells").rename(outside)
    (program.directory / "results/run/cells").symlink_to(outside)
    before = sorted(str(path) for path in outside.rglob("*"))
    refused = program.run("benchmark", config, "--rerun", "all")
    assert refused.returncode == 2
    assert "a link that leads out" in refused.stderr.replace("\n", " ")
    assert sorted(str(path) for path in outside.rglob("*")) == before


@pytest.mark.campaign
def test_a_gigabyte_of_output_takes_little_space(
    program: Program, record_property: Callable[[str, object], None]
) -> None:
    """While it is printed, and afterwards."""
    config = program.config(
        models={"name": "hostile:build", "kind": "prints a gigabyte"}, gpu_counts=[1]
    )
    process = program.start("benchmark", config)
    largest = 0
    while process.poll() is None:
        largest = max(largest, log_bytes(program))
        time.sleep(0.01)
    output, _ = process.communicate()
    assert process.returncode == 0, output
    kept = log_bytes(program)
    seen = f"ok, at most {largest / 1e6:.0f} MB on disk, {kept / 1e6:.0f} MB kept"
    tell_fault(
        record_property,
        "a model: prints a gigabyte",
        "hostile.py in its fifth step",
        "ok, below 300 MB",
        seen,
    )
    assert kept < 20e6
    assert 10e6 < largest < 300e6
    assert program.leftovers() == []


def log_bytes(program: Program) -> int:
    """Space that all logs take."""
    total = 0
    for path in (program.directory / "results").rglob("*.log"):
        with contextlib.suppress(OSError):
            total += path.stat().st_blocks * 512
    return total


@pytest.mark.campaign
def test_a_process_that_a_model_leaves_is_named(program: Program) -> None:
    """Its launch has processes of its own; above it was in a group."""
    models = [{"name": "hostile:build", "kind": "daemon"}]
    config = program.config(
        models=models, gpu_counts=[1], launch={"isolation": "cell"}, benchmark=FAST
    )
    done = program.run("benchmark", config)
    end_the_process_that_is_named(done)
    assert done.returncode == 0, done.stderr


def end_the_process_that_is_named(done: subprocess.CompletedProcess[str]) -> None:
    """It has a session of its own, no parent of ours and a clean environment."""
    told = re.findall(r"warning: pid (\d+) \(sleep 300\) still runs", " ".join(done.stderr.split()))
    for pid in told:
        psutil.Process(int(pid)).kill()
    assert len(told) == 1, done.stderr
