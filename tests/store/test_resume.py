"""Which changes keep a run folder from being resumed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.store.test_run_folder import folder_with
from torchscale.errors import StoreError
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
