from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.program import torchscale
from tests.factories import experiment as config
from tests.factories import experiment_file, machine
from tests.features.trace.readers.builders import host, kineto, step
from torchscale.errors import TraceError
from torchscale.features.compare.analysis.compare import compare
from torchscale.features.compare.inputs import load_source
from torchscale.features.compare.recordings import (
    are_recordings,
    compare_cells,
    compare_folders,
    recording_names,
)
from torchscale.plan.expand import make_plan
from torchscale.schema.profiles.recording import Recording
from torchscale.store.run_folder import RunFolder


def record(directory: Path, matmul: float) -> Path:
    """A recording of one rank on the CPU, whose product takes so many microseconds."""
    events: list[dict[str, Any]] = []
    for number in range(4):
        origin = number * 1000.0
        shapes: dict[str, Any] = {"Input Dims": [[8, 32], [32, 4]]}
        events += [
            step(number, origin, 1000.0),
            host("cpu_op", "aten::mm", origin + 10, matmul, **shapes),
        ]
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "rank0.pt.trace.json"
    path.write_text(kineto(events, 0, 1, backend="gloo"))
    return directory


def profiled(directory: Path, *lengths: float) -> Path:
    """A run folder of one cell that was only profiled, once for each of ``lengths``."""
    plan = make_plan(config(gpu_counts=[1]), machine()).cells
    folder = RunFolder.create(directory, experiment_file(config(gpu_counts=[1]), plan))
    for length in lengths:
        profile = folder.begin_profile(plan[0].cell)
        record(profile, length)
        recording = Recording.model_validate(
            {
                "tool": "kineto",
                "target": "sync_stalls",
                "state": "ok",
                "started_at": "2026-01-02T03:04:05+00:00",
                "seconds": 1.0,
                "command": [],
                "ranks": [],
                "files": ["rank0.pt.trace.json"],
            }
        )
        (profile / "recording.json").write_text(recording.model_dump_json())
    return directory


def test_two_folders_of_recordings_are_compared_by_their_operators(tmp_path: Path) -> None:
    sources = [str(record(tmp_path / name, 200.0 + 300 * (name == "b"))) for name in "ab"]
    assert are_recordings(sources)
    found = compare_folders(*sources)
    assert found.label == "b against a"
    assert found.comparison is not None
    (change,) = found.comparison.operators
    assert change.name == "aten::mm [8×32, 32×4]"
    assert change.seconds == pytest.approx(300e-6)


def test_runs_and_baselines_are_no_recordings(tmp_path: Path) -> None:
    run, recording = profiled(tmp_path / "run", 200.0), record(tmp_path / "a", 200.0)
    assert not are_recordings([str(run), str(recording)])
    assert not are_recordings([str(recording)])
    assert not are_recordings([str(recording), str(tmp_path / "none")])
    baseline = tmp_path / "main.json"
    baseline.write_text("{}")
    assert not are_recordings([str(recording), str(baseline)])


def test_a_recording_that_is_none_is_told(tmp_path: Path) -> None:
    good, bad = record(tmp_path / "a", 200.0), record(tmp_path / "b", 200.0)
    (bad / "rank0.pt.trace.json").write_text('{"traceEvents": [')
    with pytest.raises(TraceError):
        compare_folders(str(good), str(bad))


def test_the_newest_recording_of_each_cell_counts(tmp_path: Path) -> None:
    sides = [profiled(tmp_path / "a", 200.0), profiled(tmp_path / "b", 900.0, 500.0)]
    pair = compare(*(load_source(str(side)) for side in sides))
    (found,) = compare_cells(pair, str(sides[0]), str(sides[1]))
    assert found.comparison is not None
    assert found.comparison.operators[0].seconds == pytest.approx(300e-6)
    assert compare_cells(pair, str(sides[0]), "main") == (), "a baseline holds no recording"


def test_a_recording_of_a_cell_that_cannot_be_read_leaves_the_others(tmp_path: Path) -> None:
    sides = [profiled(tmp_path / "a", 200.0), profiled(tmp_path / "b", 500.0)]
    for file in sides[1].glob("cells/*/profile-0/rank0.pt.trace.json"):
        file.write_text("[]")
    pair = compare(*(load_source(str(side)) for side in sides))
    (found,) = compare_cells(pair, str(sides[0]), str(sides[1]))
    assert found.comparison is None
    assert found.problem


def test_names_are_short_where_they_differ() -> None:
    assert recording_names("x/a", "y/b") == ("a", "b")
    assert recording_names("x/traces", "y/traces") == ("x/traces", "y/traces")


def test_the_command_compares_recordings_with_and_without_runs(tmp_path: Path) -> None:
    for name, length in (("a", 200.0), ("b", 500.0)):
        record(tmp_path / name, length)
        profiled(tmp_path / f"run-{name}", length)
    done = torchscale(tmp_path, "compare", "--why", "a", "b")
    assert done.returncode == 0, done.stderr
    assert "b against a: the recorded step takes" in done.stdout
    assert "aten::mm [8×32, 32×4]" in done.stdout
    of_json = json.loads(torchscale(tmp_path, "compare", "--why", "a", "b", "--json").stdout)
    assert of_json["operators"][0]["fate"] == "slower"
    runs = torchscale(tmp_path, "compare", "--why", "run-a", "run-b")
    assert runs.returncode == 0, "recordings were asked for, and compared"
    assert "aten::mm [8×32, 32×4]" in runs.stdout
    assert torchscale(tmp_path, "compare", "run-a", "run-b").returncode == 1
    assert torchscale(tmp_path, "compare", "a", "b").returncode == 2
