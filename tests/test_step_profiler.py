"""The one line in a user's loop."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import torchscale
from torchscale.config.choices import ProfileTarget, Tool
from torchscale.features.trace.readers.recordings import read_recordings
from torchscale.schema.profiles.recording import RecordedRank
from torchscale.schema.profiles.request import RecordRequest
from torchscale.step_profiler import RECORD_VARIABLE

LOOP = """
import torch, torchscale
layer = torch.nn.Linear(8, 8)
with torchscale.step_profiler() as p:
    for step in range({steps}):
        layer(torch.randn(2, 8)).sum().backward()
        p.step()
"""


@pytest.mark.slow
def test_without_a_request_it_does_nothing_and_imports_no_torch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(RECORD_VARIABLE, raising=False)
    with torchscale.step_profiler() as profiler:
        profiler.step()
    code = (
        "import sys, torchscale\nwith torchscale.step_profiler() as p: p.step()\nassert 'torch' not "
        "in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.slow
@pytest.mark.parametrize(("steps", "recorded"), [(60, 12), (14, 7)])
def test_it_records_whole_steps_once_and_what_there_is_when_the_loop_ends_early(
    steps: int, recorded: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = RecordRequest(
        tool=Tool.KINETO,
        target=ProfileTarget.MEMORY,
        directory=str(tmp_path),
        seconds=60,
        max_steps=12,
        skip_steps=5,
    )
    monkeypatch.setenv(RECORD_VARIABLE, request.model_dump_json())
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    subprocess.run(
        [sys.executable, "-c", LOOP.format(steps=steps)],
        check=True,
        timeout=120,
        capture_output=True,
    )
    told = RecordedRank.model_validate_json((tmp_path / "recorded-rank-1.json").read_text())
    assert (told.rank, told.world_size, told.steps, told.trace) == (
        1,
        2,
        recorded,
        "rank1.pt.trace.json.gz",
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "rank1.pt.trace.json.gz",
        "recorded-rank-1.json",
    ]
    (rank,) = read_recordings([tmp_path / "rank1.pt.trace.json.gz"]).ranks
    assert rank.rank == 1  # from the file's name: this loop has no process group
    assert abs(len(rank.steps) - recorded) <= 1
    assert rank.peak_bytes is not None
    assert rank.peak_bytes > 0


def test_a_request_that_cannot_be_read_is_an_error_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RECORD_VARIABLE, json.dumps({"tool": "stopwatch"}))
    with pytest.raises(ValueError, match="tool"), torchscale.step_profiler():
        pass
