"""``torchscale benchmark`` as the command of a bisection."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.factories import failed_record, launch_record, run, trained
from torchscale.errors import UsageError
from torchscale.features.bisect.cell import cell_seconds, check_benchmark, is_benchmark, one_launch
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.state import State
from torchscale.store.run_folder import RunFolder


def test_a_launch_is_one_repeat_in_a_folder_of_its_own(tmp_path: Path) -> None:
    command = ("env/bin/torchscale", "benchmark", "config.yaml")
    assert is_benchmark(command)
    assert one_launch(command, tmp_path / "launch-001") == (
        *command,
        f"--output-dir={tmp_path}/launch-001",
        "--benchmark.repeats=1",
    )
    assert not is_benchmark(("python", "benchmark"))


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("torchscale", "validate"), "torchscale validate is no cell"),
        (("torchscale",), "is no cell"),
        (("torchscale", "benchmark", "a.yaml", "-o", "x"), "a folder of its own"),
        (("torchscale", "benchmark", "--output-dir=x"), "a folder of its own"),
    ],
)
def test_what_is_no_cell(command: tuple[str, ...], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        check_benchmark(command)
    check_benchmark(("python", "-o", "x"))


def folder_with(path: Path, record: LaunchRecord) -> Path:
    """The folder of one launch of the first cell of a run."""
    whole = run(gpu_counts=[1])
    folder = RunFolder.create(path, whole.experiment)
    cell = trained(whole.cells[0].planned)
    folder.begin_launch(cell, 0)
    folder.finish_launch(cell, record)
    return path


def test_the_mean_step_of_the_launch(tmp_path: Path) -> None:
    cell = trained(run(gpu_counts=[1]).cells[0].planned)
    seconds, problem = cell_seconds(
        folder_with(tmp_path / "run", launch_record(cell, batches=(2.0, 4.0)))
    )
    assert seconds == pytest.approx(0.3)
    assert problem == ""


def test_a_launch_that_failed_says_why(tmp_path: Path) -> None:
    cell = trained(run(gpu_counts=[1]).cells[0].planned)
    record = failed_record(cell, State.OOM, "rank 0 ran out of memory")
    assert cell_seconds(folder_with(tmp_path / "run", record)) == (
        None,
        "oom: rank 0 ran out of memory",
    )


def test_a_run_without_launches_has_no_figure(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run", run(gpu_counts=[1]).experiment)
    assert cell_seconds(tmp_path / "run") == (None, "no training cell was launched")


def test_a_folder_that_cannot_be_read_is_a_launch_that_failed(tmp_path: Path) -> None:
    seconds, reason = cell_seconds(tmp_path / "nothing")
    assert seconds is None
    assert "nothing" in reason
