from __future__ import annotations

from pathlib import Path

import pytest

from tests.factories import cells, rank_record
from torchscale.schema.launch.progress import Progress
from torchscale.schema.launch.rank import RankRecord
from torchscale.schema.launch.steps import EpochSample, StepSample
from torchscale.worker import rank_files
from torchscale.worker.rank_files import RankFiles


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_progress_is_told_at_once_for_a_new_phase_and_sparingly_within_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(rank_files, "monotonic", lambda: now)
    files = RankFiles(tmp_path, 0)
    files.progress(Progress(phase="starting"))
    files.progress(Progress(phase="building"))
    for steps in (1, 2, 3):
        files.progress(Progress(phase="measuring", steps=steps))
    now += 0.6
    files.progress(Progress(phase="measuring", steps=4))
    told = [Progress.model_validate_json(line) for line in lines(tmp_path / "progress.jsonl")]
    assert [(progress.phase, progress.steps) for progress in told] == [
        ("starting", 0),
        ("building", 0),
        ("measuring", 1),
        ("measuring", 4),
    ]


def test_only_rank_0_speaks_of_progress_and_epochs(tmp_path: Path) -> None:
    files = RankFiles(tmp_path, 1)
    files.progress(Progress(phase="starting"))
    files.epoch(EpochSample(epoch=0, steps=1, seconds=1.0, samples=1))
    files.steps(
        [StepSample(step=0, seconds=1, data_wait=0, forward=0.5, backward=0.5, optimizer=0)] * 2
    )
    assert [path.name for path in tmp_path.iterdir()] == ["steps-rank-1.jsonl"]
    assert len(lines(tmp_path / "steps-rank-1.jsonl")) == 2


def test_a_record_arrives_whole(tmp_path: Path) -> None:
    record = rank_record(cells()[1], rank=1)
    RankFiles(tmp_path, 1).record(record)
    assert RankRecord.model_validate_json((tmp_path / "rank-1.json").read_text()) == record
    assert [path.name for path in tmp_path.iterdir()] == ["rank-1.json"]
