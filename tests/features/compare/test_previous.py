from __future__ import annotations

from pathlib import Path

import pytest

from tests.features.compare.test_compare import folder
from torchscale.features.compare.previous import against_previous


def test_the_newest_earlier_run_of_the_same_plan_is_compared_with(tmp_path: Path) -> None:
    folder(tmp_path / "monday", 1, seconds=9.0)
    folder(tmp_path / "tuesday", 2, seconds=1.0)
    folder(tmp_path / "wednesday", 3, seconds=2.0)
    folder(tmp_path / "thursday", 4, seconds=1.0)
    text = against_previous(tmp_path / "wednesday")
    assert text.startswith(
        "Against the previous run of this config: wednesday is slower than tuesday"
    )
    assert "samples/s -50.0 %" in text
    assert text.endswith(
        f"Details: torchscale compare {tmp_path / 'tuesday'} {tmp_path / 'wednesday'}"
    )
    assert against_previous(tmp_path / "monday") == ""


def test_another_plan_another_device_and_damaged_folders_are_none(tmp_path: Path) -> None:
    folder(tmp_path / "other", 1, batch_sizes=[4])
    folder(tmp_path / "new", 3)
    assert against_previous(tmp_path / "new") == ""
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged/experiment.json").write_text("{")
    assert against_previous(tmp_path / "new") == ""
    folder(tmp_path / "gpu", 2, device="NVIDIA H100")
    assert against_previous(tmp_path / "new") == ""


def test_a_folder_as_the_user_wrote_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder(tmp_path / "results/a", 1)
    folder(tmp_path / "results/b", 2)
    monkeypatch.chdir(tmp_path)
    assert against_previous(Path("results/b")).endswith("torchscale compare results/a results/b")
