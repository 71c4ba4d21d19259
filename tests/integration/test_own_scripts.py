"""A script of one's own through a whole benchmark: plan, launches, resume, report, comparison."""

from __future__ import annotations

import csv
import json
import os
import time
from pathlib import Path

import pytest

from .conftest import Program

pytestmark = pytest.mark.integration

_EXAMPLE = Path(__file__).parents[2] / "examples" / "own_scripts" / "plain_loop.py"
_OPEN = """import os
import time

import torch

ENDED = open(f"ended-{os.environ['WORLD_SIZE']}-{os.environ['RANK']}", "w", buffering=1)
"""
_NOTE = "print(time.perf_counter(), file=ENDED)\n"
_QUICK = ["--benchmark.warmup_seconds=0.5", "--benchmark.min_seconds=0.5"]


def _rows(directory: Path) -> list[dict[str, str]]:
    with (directory / "results/run/summary.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """A script on one rank and on two, which notes by its own clock when steps have ended: the same
    steps, so that no host's noise comes between."""
    directory = tmp_path_factory.mktemp("measured")
    program = Program(directory, f"{directory.name}-{os.getpid()}")
    text = _EXAMPLE.read_text()
    noting = f"        optimizer.step()\n        {_NOTE}"
    assert text.count("        optimizer.step()\n") == 1
    timed = text.replace("        optimizer.step()\n", noting).replace("import torch\n", _OPEN, 1)
    (directory / "train.py").write_text(timed)
    script = {"script": "train.py --batch-size {batch_size} --width 64", "steps": 50}
    config = program.config(models=[script], gpu_counts=[1, 2])

    planned = program.run("benchmark", config, "--dry-run")
    assert "train.py" in planned.stdout
    assert planned.returncode == 0
    done = program.run("benchmark", config, *_QUICK)
    assert done.returncode == 0, done.stderr
    assert not program.leftovers()
    return program


def test_a_script_is_a_cell_like_any_other(measured: Program) -> None:
    one, two = _rows(measured.directory)
    assert (one["state"], two["state"]) == ("ok", "ok")
    assert float(two["samples_per_second"]) > 0
    assert 0 < float(two["efficiency"]) < 2
    assert (two["precision"], two["optimizer"], two["compile"]) == ("own", "own", "")
    assert two["mfu"] == ""

    train = measured.directory / "train.py"
    os.utime(train, (time.time() + 60, time.time() + 60))
    again = measured.run("benchmark", "config.json", *_QUICK)
    assert "2 done before" in again.stdout + again.stderr
    assert "train.py was changed after launches that are kept" in again.stdout + again.stderr

    measured.here("report", "results/run", "--format", "json", "-o", "report.json")
    report = json.loads((measured.directory / "report.json").read_text())
    figures = report["cells"][1]["figures"]
    assert figures["phases"]["forward"] is None
    assert figures["phases"]["compute"] > 0
    assert figures["first_loss"] is None
    told = measured.here("report", "results/run", "--cell", two["cell_id"]).stdout
    assert "script" in told
    for claim in ("fp32", "ddp", "adamw"):
        assert claim not in told
    page = measured.here("report", "results/run", "--format", "html", "-o", "page.html")
    assert page.returncode == 0, page.stderr

    compared = measured.here("compare", "results/run", "results/run")
    assert "samples/s" in compared.stdout


def test_its_steps_are_as_long_as_the_script_itself_finds(measured: Program) -> None:
    _, two = _rows(measured.directory)
    launch = measured.directory / "results/run/cells" / two["cell_id"] / "launch-0"
    for rank in range(2):
        lines = (launch / f"steps-rank-{rank}.jsonl").read_text().splitlines()
        steps = [json.loads(line) for line in lines]
        noted = (measured.directory / f"ended-2-{rank}").read_text().split()
        ended = [float(line) for line in noted]
        first = json.loads((launch / f"rank-{rank}.json").read_text())["warmup"]["steps"]
        own = ended[first + len(steps)] - ended[first]
        assert sum(step["seconds"] for step in steps) == pytest.approx(own, rel=0.01)


def test_without_a_batch_size_there_are_steps_and_no_samples(program: Program) -> None:
    script = {"script": f"{_EXAMPLE} --width {{width}}", "width": [64, 96]}
    config = program.config(models=[script], gpu_counts=[1])

    done = program.run("benchmark", config, *_QUICK)
    assert done.returncode == 0, done.stderr
    assert "steps/s" in done.stdout + done.stderr
    rows = _rows(program.directory)
    assert len(rows) == 2
    for row in rows:
        assert row["state"] == "ok"
        assert row["batch_size"] == row["samples_per_second"] == row["efficiency"] == ""
        assert float(row["step_time_mean_ms"]) > 0

    page = program.here("report", "results/run", "--format", "html", "-o", "page.html")
    assert page.returncode == 0, page.stderr
    compared = program.here("compare", "results/run", "results/run")
    assert "steps/s" in compared.stdout
    assert program.here("export", "--to", "prometheus", "results/run").returncode == 0


def test_a_script_that_is_not_there_is_told_before_anything_runs(program: Program) -> None:
    config = program.config(models=[{"script": "absent.py"}], gpu_counts=[1])

    done = program.run("benchmark", config)

    assert done.returncode == 2
    assert "absent.py: no such file" in done.stderr
    assert not (program.directory / "results").exists()
