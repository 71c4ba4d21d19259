"""Which changes keep a run folder from being resumed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.factories import environment, experiment, experiment_file
from tests.store.test_run_folder import folder_with
from torchscale.errors import StoreError
from torchscale.store import resume
from torchscale.store.run_folder import RunFolder


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({"training": {"seed": 3}}, r"training.seed \(0 there, 3 here\)"),
        ({"scaling": "strong"}, r"scaling \(weak there, strong here\)"),
        ({"benchmark": {"warmup_steps": 3}}, r"benchmark.warmup_steps \(20 there, 3 here\)"),
    ],
)
def test_another_setting_is_refused_by_name(
    tmp_path: Path, content: dict[str, object], told: str
) -> None:
    folder_with(tmp_path / "run")
    before = (tmp_path / "run" / "experiment.json").read_text()
    with pytest.raises(StoreError, match=told):
        folder_with(tmp_path / "run", **content)
    assert (tmp_path / "run" / "experiment.json").read_text() == before


def test_another_machine_is_refused(tmp_path: Path) -> None:
    first = folder_with(tmp_path / "run").experiment
    with pytest.raises(StoreError, match=r"threads per rank \(1 there, 4 here\)"):
        RunFolder.create(tmp_path / "run", first.model_copy(update={"threads_per_rank": 4}))
    versions = first.environment.versions.model_copy(update={"torch": "9.9"})
    moved = first.environment.model_copy(update={"versions": versions})
    with pytest.raises(StoreError, match=r"torch \(2.13.0 there, 9.9 here\)"):
        RunFolder.create(tmp_path / "run", first.model_copy(update={"environment": moved}))


def test_cells_join_only_what_was_measured_on_the_same_machine(tmp_path: Path) -> None:
    """Figures of two machines in one report would be compared as if they were of one."""
    first = folder_with(tmp_path / "run").experiment
    versions = first.environment.versions.model_copy(update={"torch": "9.9"})
    moved = first.environment.model_copy(update={"versions": versions})
    other = first.model_copy(update={"environment": moved, "threads_per_rank": 4})
    with pytest.raises(StoreError, match=r"on another machine; it differs in threads .*; torch "):
        RunFolder.join(tmp_path / "run", other)
    assert RunFolder.open(tmp_path / "run").experiment == first


@pytest.mark.parametrize("devices", [0, 2])
def test_the_device_is_the_gpu_and_without_one_the_processor(tmp_path: Path, devices: int) -> None:
    """Another processor beside the same GPUs is no other machine; on a CPU it is all."""
    first = experiment_file(experiment(), [], environment=environment(devices))
    RunFolder.create(tmp_path / "run", first)
    upgraded = first.environment.model_copy(update={"cpu": "Another CPU"})
    other = first.model_copy(update={"environment": upgraded})
    if devices:
        RunFolder.create(tmp_path / "run", other)
        return
    with pytest.raises(StoreError, match=r"device \(.* there, Another CPU here\)"):
        RunFolder.create(tmp_path / "run", other)


def test_what_is_declared_of_the_hardware_may_be_added_later(tmp_path: Path) -> None:
    """It changes how figures are judged and none of them."""
    path = tmp_path / "run"
    first = folder_with(path, hardware={"link_bytes_per_second": 1e9}).experiment
    plain = RunFolder.join(path, first.model_copy(update={"config": experiment()})).experiment
    assert plain.config == first.config
    declaring = experiment(hardware={"peak_flops": {"bf16": 9e14}})
    found = RunFolder.join(path, first.model_copy(update={"config": declaring})).experiment
    assert found.config.hardware.link_bytes_per_second == 1e9
    assert found.config.hardware.peak_flops == declaring.hardware.peak_flops


def test_a_link_that_cannot_be_followed_may_lead_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(root: Path, path: Path) -> bool:
        raise PermissionError

    folder = folder_with(tmp_path / "run")
    monkeypatch.setattr(resume, "leads_out", failing)
    with pytest.raises(StoreError, match="a link that leads out"):
        folder.record(folder.experiment.plan[0].cell, 0)
