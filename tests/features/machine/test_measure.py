"""What the commands that measure the machine plan, without measuring it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.factories import experiment, experiment_file, machine
from torchscale.config.experiment import Experiment
from torchscale.errors import MachineError, UsageError
from torchscale.features.machine.measure import plan_machine
from torchscale.observer import SILENT
from torchscale.util.files import atomic_write_model


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "torchscale.features.machine.measure.find_machine", lambda *_: machine(cores=8)
    )


def collectives(**changes: object) -> Experiment:
    return experiment(measure=["collectives"], gpu_counts="auto", **changes)


def test_without_a_count_the_largest_is_measured_alone() -> None:
    plan = plan_machine(collectives(), SILENT).plan
    assert [cell.world_size for cell in plan.to_run] == [8]


def test_over_nodes_the_largest_count_has_all_of_them() -> None:
    planned = plan_machine(collectives(launch={"nodes": 2}), SILENT)
    assert planned.experiment.gpu_counts == (16,)
    assert [
        (cell.world_size, planned.plan.nodes_of(cell.world_size)) for cell in planned.plan.to_run
    ] == [(16, 2)]


def test_cells_that_join_a_folder_use_its_threads(tmp_path: Path) -> None:
    atomic_write_model(
        tmp_path / "experiment.json", experiment_file(experiment(), (), threads_per_rank=3)
    )
    assert plan_machine(collectives(), SILENT).experiment.launch.threads_per_rank is None
    assert plan_machine(collectives(), SILENT, tmp_path).experiment.launch.threads_per_rank == 3
    assert (
        plan_machine(collectives(), SILENT, tmp_path / "new").experiment.launch.threads_per_rank
        is None
    )


def test_nothing_to_measure_is_an_error_with_its_reason() -> None:
    with pytest.raises(MachineError, match="16"):
        plan_machine(experiment(measure=["collectives"], gpu_counts=[16]), SILENT)


def test_a_disk_that_is_not_there_is_found_before_any_rate_is_measured(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    config = experiment(measure=["hardware"], hardware={"disk_path": missing})
    with pytest.raises(UsageError, match=r"--disk .*missing: not a directory"):
        plan_machine(config, SILENT, tmp_path / "run")
