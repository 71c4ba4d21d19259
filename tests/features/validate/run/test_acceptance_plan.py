"""What a round measures."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.factories import machine
from tests.features.validate.acceptance.runs import a_run, baseline_of
from torchscale.errors import UsageError
from torchscale.features.validate.run.acceptance_plan import (
    plan_rounds,
    refuse_other,
    what_is_asked,
)
from torchscale.schema.cells.collectives import CollectivesCell
from torchscale.schema.cells.hardware import HardwareCell
from torchscale.schema.cells.kinds import of_kind


def test_all_gpus_are_measured_at_once_and_their_links_in_pairs(tmp_path: Path) -> None:
    cells = plan_rounds(machine(gpus=8), tmp_path, {}).plan.to_run
    assert [cell.kind for cell in cells] == ["hardware", "collectives", "training"]
    assert {cell.world_size for cell in cells} == {8}
    (collectives,) = of_kind(cells, CollectivesCell)
    assert "pairs" in collectives.operations
    assert not collectives.logs_choices
    (hardware,) = of_kind(cells, HardwareCell)
    assert "bf16" in hardware.matmul_dtypes
    assert hardware.disk_path == str(tmp_path)


def test_a_single_gpu_has_no_links(tmp_path: Path) -> None:
    cells = plan_rounds(machine(gpus=1), tmp_path, {}).plan.to_run
    assert [cell.kind for cell in cells] == ["hardware", "training"]


@pytest.mark.parametrize(("cores", "ranks"), [(1, 1), (4, 4), (64, 8)])
def test_cores_are_at_most_eight_groups(tmp_path: Path, cores: int, ranks: int) -> None:
    planned = plan_rounds(machine(cores=cores), tmp_path, {})
    assert {cell.world_size for cell in planned.plan.to_run} == {ranks}
    assert planned.plan.threads_per_rank == cores // ranks


def test_what_is_asked_is_equal_on_another_disk_and_with_fewer_devices(tmp_path: Path) -> None:
    def asked(gpus: int, directory: Path, **sizes: object) -> dict[str, str]:
        return what_is_asked(plan_rounds(machine(gpus=gpus), directory, sizes).plan.to_run)

    assert asked(8, tmp_path) == asked(7, tmp_path / "more")
    single = asked(1, tmp_path)
    assert single["hardware"] == asked(8, tmp_path)["hardware"]
    assert "collectives" not in single
    assert asked(8, tmp_path) != asked(8, tmp_path, **{"hardware.seconds": 0.1})


def test_a_baseline_of_another_kind_of_device_is_refused(tmp_path: Path) -> None:
    planned = plan_rounds(machine(cores=4), tmp_path, {})
    own = a_run({("a", "node"): (1.0,)}, device="cpu", asked=what_is_asked(planned.plan.to_run))
    refuse_other(None, planned)
    refuse_other(baseline_of(own), planned)
    with pytest.raises(UsageError, match="measured on cuda"):
        refuse_other(baseline_of(own.model_copy(update={"device": "cuda"})), planned)
