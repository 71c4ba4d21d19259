"""What ``export:`` in a config writes while a sweep runs, and that no exporter ends or delays a
sweep."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyarrow import parquet

from tests.factories import cells, experiment
from tests.fake_launches import FakeLaunches, Recorder
from tests.features.export.formats.exposition import parse
from tests.features.export.formats.stores import run_folder
from torchscale.config.choices import ExportTarget
from torchscale.config.secrets import hide_secrets
from torchscale.errors import ExitCode
from torchscale.features.export import cell_exports
from torchscale.features.export.cell_exports import CellExports
from torchscale.launch.control import StopRequest
from torchscale.measure.benchmark import benchmark
from torchscale.results.reader import read_summary
from torchscale.schema.state import State
from torchscale.store.run_folder import RunFolder
from torchscale.util.processes.bounded import Finished


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long exporters take, they run after every cell."""
    monkeypatch.setattr(cell_exports, "_SHARE", float("inf"))


class Commands:
    """Stands for ``torchscale export`` in a process: keeps what was started, and ends as told."""

    def __init__(self) -> None:
        self.started: list[tuple[list[str], Mapping[str, str]]] = []
        self.result = Finished(0, "", "", timed_out=False, seconds=0.1)

    def __call__(
        self,
        argv: Sequence[str],
        *,
        timeout_seconds: float,
        env: Mapping[str, str],
        cancelled: Callable[[], bool],
    ) -> Finished:
        self.started.append((list(argv)[list(argv).index("export") :], env))
        assert timeout_seconds == 60
        assert not cancelled()
        return self.result


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> Commands:
    """In place of processes."""
    fake = Commands()
    monkeypatch.setattr(cell_exports, "run_bounded", fake)
    return fake


def measured(path: Path) -> set[str]:
    return {
        sample.labels["cell"]
        for sample in parse(path.read_text())
        if sample.name == "torchscale_samples_per_second"
    }


def ended(path: Path) -> set[str]:
    return {
        sample.labels["cell"]
        for sample in parse(path.read_text())
        if sample.labels.get("state") == "ok"
    }


def test_files_follow_the_sweep_cell_by_cell(
    tmp_path: Path, launches: FakeLaunches, always: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "torchscale.prom"
    seen: list[int] = []
    call = FakeLaunches.__call__

    def looking(fake: FakeLaunches, *arguments: Any, **named: Any) -> Any:
        seen.append(len(ended(path)) if path.exists() else 0)
        return call(fake, *arguments, **named)

    monkeypatch.setattr(FakeLaunches, "__call__", looking)
    config = experiment(
        batch_sizes=[8, 16],
        benchmark={"repeats": 2},
        export={"prometheus": str(path), "junit": str(tmp_path / "j.xml")},
    )
    outcome = benchmark(config, output_dir=tmp_path / "run")
    assert seen == [0, 0, 0, 0, 0, 1, 2, 3], "a cell ends with its last launch"
    assert measured(path) == {cell.cell.id for cell in outcome.summary.cells}
    assert (tmp_path / "j.xml").read_text().count("<testcase") == 4
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["j.xml", "run", "torchscale.prom"]


def test_an_exporter_that_takes_long_runs_less_often_but_always_at_the_end(
    tmp_path: Path, launches: FakeLaunches, monkeypatch: pytest.MonkeyPatch
) -> None:
    exported: list[bool] = []
    now = [0.0]

    def slow(self: CellExports, target: ExportTarget, run: Any) -> None:
        now[0] += 10.0
        exported.append(all(cell.figures for cell in run.cells))

    monkeypatch.setattr(CellExports, "_write", slow)
    monkeypatch.setattr(cell_exports, "time", SimpleNamespace(monotonic=lambda: now[0]))
    path = tmp_path / "run"
    benchmark(
        experiment(batch_sizes=[1, 2, 3], export={"prometheus": str(tmp_path / "x")}),
        output_dir=path,
    )
    assert exported == [False, True], "after the first cell, and at the end"


def test_a_failing_exporter_is_one_warning_and_the_sweep_goes_on(
    tmp_path: Path, launches: FakeLaunches, recorder: Recorder, always: None
) -> None:
    config = experiment(
        export={
            "prometheus": str(tmp_path / "no" / "x.prom"),
            "github_benchmark_smaller": str(tmp_path / "small.json"),
            "openmetrics": str(tmp_path / "x.om"),
        }
    )
    outcome = benchmark(config, output_dir=tmp_path / "run", observer=recorder)
    assert outcome.exit_code is ExitCode.OK
    (warning,) = [note for note in recorder.notes if "export" in note]
    assert warning.startswith("warning: export to prometheus: cannot write ")
    assert (tmp_path / "x.om").exists()
    assert (tmp_path / "small.json").exists()


def test_nothing_to_say_is_a_warning_only_at_the_end(
    tmp_path: Path, launches: FakeLaunches, recorder: Recorder, always: None
) -> None:
    launches.states.update({cell.id: State.CRASHED for cell in cells()})
    config = experiment(export={"github_benchmark": str(tmp_path / "x.json")})
    benchmark(config, output_dir=tmp_path / "run", observer=recorder)
    (warning,) = [note for note in recorder.notes if "export" in note]
    assert "no cell has a figure of which more is better" in warning


def test_stores_get_a_process_with_the_report_at_the_end(
    tmp_path: Path, launches: FakeLaunches, commands: Commands, always: None
) -> None:
    places = {"mlflow": "sqlite:///x.db", "wandb": "auto", "parquet": "tables"}
    benchmark(experiment(export=places), output_dir=tmp_path / "run")
    source = ["--source", str(tmp_path / "run")]
    cell = [
        ["export", "--to", "parquet", *source, "--no-report", "--output", "tables"],
        ["export", "--to", "mlflow", *source, "--no-report"],
        ["export", "--to", "wandb", *source, "--no-report"],
    ]
    end = [[word for word in command if word != "--no-report"] for command in cell]
    assert [argv for argv, _ in commands.started] == [*cell, *end], (
        "the end follows the second cell at once"
    )
    assert commands.started[1][1]["MLFLOW_TRACKING_URI"] == "sqlite:///x.db"


def test_the_service_of_another_process_is_not_passed_on(
    tmp_path: Path, launches: FakeLaunches, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W&B's service would keep the run of an export that was ended as in use, and refuse the next
    export of it. All else of the environment is needed: proxies, API keys, paths."""
    monkeypatch.setenv("WANDB_SERVICE", "3-1234-unix-/tmp/socket")
    monkeypatch.setenv("WANDB_MODE", "offline")
    benchmark(experiment(export={"wandb": "auto"}), output_dir=tmp_path / "run")
    assert commands.started
    for _, env in commands.started:
        assert "WANDB_SERVICE" not in env
        assert env["WANDB_MODE"] == "offline"


def test_a_store_that_fails_says_what_its_command_said(
    tmp_path: Path, launches: FakeLaunches, commands: Commands, recorder: Recorder, always: None
) -> None:
    said = "Reading the run …\nerror: --to wandb needs wandb\nhint: pip install it\n"
    commands.result = Finished(3, "", said, timed_out=False, seconds=0.1)
    config = experiment(export={"wandb": "auto"})
    assert (
        benchmark(config, output_dir=tmp_path / "run", observer=recorder).exit_code is ExitCode.OK
    )
    assert recorder.notes[1:] == [
        "warning: export to wandb: --to wandb needs wandb; pip install it"
    ]
    recorder.notes.clear()
    for result, problem in (
        (Finished(-9, "", "", timed_out=False, seconds=0.1), "ended with -9"),
        (
            Finished(None, "", "", timed_out=True, seconds=60.0),
            "not done within 60 s (export.timeout_seconds)",
        ),
    ):
        commands.result = result
        benchmark(config, output_dir=tmp_path / "run", observer=recorder)
        assert recorder.notes.pop() == f"warning: export to wandb: {problem}"


def test_after_an_interrupt_no_store_is_waited_for(
    tmp_path: Path, launches: FakeLaunches, commands: Commands, recorder: Recorder
) -> None:
    launches.stop_after = 1
    path = tmp_path / "x.prom"
    config = experiment(export={"mlflow": "auto", "prometheus": str(path)})
    benchmark(config, output_dir=tmp_path / "run", observer=recorder)
    assert commands.started == []
    assert len(measured(path)) == 1
    assert f"torchscale export --to mlflow {tmp_path / 'run'}" in recorder.notes[-1]


def test_an_interrupt_ends_the_export_that_runs(
    tmp_path: Path, launches: FakeLaunches, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = StopRequest()

    def interrupted(*_: object, cancelled: Callable[[], bool], **__: object) -> Finished:
        assert not cancelled()
        stop.count += 1
        assert cancelled()
        return Finished(-15, "", "", timed_out=False, seconds=0.1)

    monkeypatch.setattr(cell_exports, "run_bounded", interrupted)
    config = experiment(export={"mlflow": "auto", "wandb": "auto"})
    summary = benchmark(experiment(), output_dir=tmp_path).summary
    CellExports(config, tmp_path, recorder, stop).sweep_ended(summary)
    assert recorder.notes == [
        f"warning: export to {target}: left out after the interrupt; torchscale export --to "
        f"{target} {tmp_path}"
        for target in ("mlflow", "wandb")
    ]


def test_a_password_in_an_address_reaches_the_store_and_no_file(
    tmp_path: Path, launches: FakeLaunches, commands: Commands
) -> None:
    config = hide_secrets(experiment(export={"mlflow": "https://me:verysecret@mlflow.example"}))
    benchmark(config, output_dir=tmp_path / "run")
    assert "verysecret" not in (tmp_path / "run" / "experiment.json").read_text()
    argv, env = commands.started[-1]
    assert env["MLFLOW_TRACKING_URI"] == "https://me:verysecret@mlflow.example"
    assert "verysecret" not in " ".join(argv)


def test_a_job_summary_keeps_what_others_wrote(
    tmp_path: Path, launches: FakeLaunches, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "step-summary"
    path.write_text("before, without an end of line")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    config = experiment(export={"github_summary": "auto"})
    benchmark(config, output_dir=tmp_path / "run")
    first = path.read_text()
    assert first.startswith("before, without an end of line\n<!-- torchscale run -->\n")
    assert first.count("## torchscale: run") == 1
    path.write_text(first + "after\n")
    benchmark(config, output_dir=tmp_path / "run")
    assert path.read_text() == first + "after\n"
    benchmark(config, output_dir=tmp_path / "other")
    assert path.read_text().startswith(first + "after\n<!-- torchscale other -->\n")


def test_outside_a_job_auto_is_a_warning(
    tmp_path: Path, launches: FakeLaunches, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    benchmark(experiment(export={"github_summary": "auto"}), output_dir=tmp_path, observer=recorder)
    assert "$GITHUB_STEP_SUMMARY is not set" in recorder.notes[-1]


@pytest.mark.slow
def test_the_real_command_is_run_and_bounded(
    tmp_path: Path, launches: FakeLaunches, recorder: Recorder
) -> None:
    config = experiment(export={"parquet": str(tmp_path / "tables")})
    benchmark(config, output_dir=tmp_path / "run", observer=recorder)
    assert len(recorder.notes) == 1, "no warning"
    assert parquet.read_table(tmp_path / "tables" / "cells.parquet").num_rows == 2
    hurried = experiment(export={"parquet": str(tmp_path / "late"), "timeout_seconds": 0.01})
    exports = CellExports(hurried, tmp_path / "run", recorder, StopRequest())
    exports.sweep_ended(read_summary(tmp_path / "run"))
    assert (
        recorder.notes[-1]
        == "warning: export to parquet: not done within 0.01 s (export.timeout_seconds)"
    )
    assert not (tmp_path / "late").exists()


KILLED = """
import os, pathlib, shutil, signal, sys
from torchscale.config.choices import ExportTarget
from torchscale.config.experiment import Experiment
from torchscale.launch.control import StopRequest
from torchscale.results.reader import read_summary
from torchscale.features.export.cell_exports import CellExports
from torchscale.features.export.export import export_to_store
from torchscale.observer import SILENT
from pyarrow import parquet

root = pathlib.Path(sys.argv[1])
summary = read_summary(root / "run")
for number in range(200):
    place = root / f"killed-{number}"
    shutil.copytree(root / "before", place)
    if (child := os.fork()) == 0:
        calls = 0
        def counted(call):
            def run(*arguments, **named):
                global calls
                calls += 1
                if calls > number:
                    os.kill(os.getpid(), signal.SIGKILL)
                return call(*arguments, **named)
            return run
        pathlib.Path.replace, os.fsync = counted(pathlib.Path.replace), counted(os.fsync)
        parquet.ParquetWriter.write_table = counted(parquet.ParquetWriter.write_table)
        parquet.ParquetWriter.close = counted(parquet.ParquetWriter.close)
        files = {"prometheus": str(place / "x.prom"), "github_summary": str(place / "summary.md")}
        config = Experiment.model_validate({"measure": "hardware", "export": files})
        CellExports(config, root / "run", SILENT, StopRequest()).sweep_ended(summary)
        export_to_store(ExportTarget.PARQUET, root / "run", str(place))
        os._exit(0)
    if os.waitpid(child, 0)[1] == 0:
        break
print(number)
"""


@pytest.mark.slow
def test_killed_at_any_write_every_file_is_the_old_or_the_new_one(tmp_path: Path) -> None:
    run_folder(tmp_path / "run")
    old = tmp_path / "before"
    old.mkdir()
    for name in ("x.prom", "summary.md", "cells.parquet", "launches.parquet", "steps.parquet"):
        (old / name).write_bytes(b"old")
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    kills = int(done.stdout)
    assert kills >= 15
    new = {path.name: path for path in (tmp_path / f"killed-{kills}").iterdir()}
    assert len(measured(new["x.prom"])) == 2
    readers: dict[str, Callable[[Path], object]] = {
        "x.prom": measured,
        "summary.md": lambda path: path.read_text().replace("old\n", ""),
        **{
            f"{name}.parquet": lambda path: parquet.read_table(path).to_pylist()
            for name in ("cells", "launches", "steps")
        },
    }
    replaced = 0
    for number in range(kills):
        for name, read in readers.items():
            path = tmp_path / f"killed-{number}" / name
            if path.read_bytes() != b"old":
                replaced += 1
                assert read(path) == read(new[name]), (number, name)
    assert 0 < replaced < kills * len(readers)


def test_a_run_without_exports_starts_nothing(
    tmp_path: Path, launches: FakeLaunches, commands: Commands
) -> None:
    benchmark(experiment(), output_dir=tmp_path / "run")
    assert commands.started == []
    assert RunFolder.open(tmp_path / "run").experiment.config.export.places == {}
