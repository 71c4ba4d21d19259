from __future__ import annotations

from pathlib import Path

import pytest

from tests.factories import cells
from torchscale.errors import MachineError
from torchscale.launch import prediction
from torchscale.launch.prediction import predict_cells
from torchscale.util.processes.bounded import Finished

NET = """
import os
import torch
from torch import nn

print("a line of the user's own")
os.write(1, b"{}\\n")

class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)
    def make_batch(self, batch_size, generator):
        return {"x": torch.randn(batch_size, self.layer.in_features, generator=generator)}
    def forward(self, x):
        return self.layer(x).square().mean()

def build(width):
    return Net(width)
"""


@pytest.mark.slow
def test_what_a_model_prints_shifts_no_prediction_to_another_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "printing_net.py").write_text(NET)
    models = [{"name": "printing_net:build", "width": width} for width in (1000, 10)]
    planned = cells(models=models, gpu_counts=[1], batch_sizes=[2])
    predicted = predict_cells(planned, timeout_seconds=120, env={})
    large, small = (predicted[cell.id].peak_bytes for cell in planned)
    assert large > 1000 * 1000 * 4
    assert small < 100 * 1000


@pytest.mark.slow
def test_the_memory_of_a_built_in_model_is_predicted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    planned = cells(models=["tiny-decoder"], gpu_counts=[1, 2])
    before = predict_cells(planned, timeout_seconds=120, env={})
    refuse_processes(monkeypatch)
    assert predict_cells(planned, timeout_seconds=120, env={}) == before
    assert len(before) == len(planned) == 2


def test_that_of_a_users_model_is_predicted_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (planned,) = cells(models=[{"name": "net:build"}], gpu_counts=[1])
    line = '{"parts": {"parameters": 1, "buffers": 0, "gradients": 1, "optimizer_states": 2, '
    line += '"activations": 0}, "peak_bytes": 4, "method": "by hand"}\n'
    finished = Finished(0, line, "", timed_out=False, seconds=1.0)
    monkeypatch.setattr(prediction, "require", lambda *_: None)
    monkeypatch.setattr(prediction, "run_bounded", lambda *_, **__: finished)
    assert predict_cells([planned], timeout_seconds=120, env={})[planned.id].peak_bytes == 4
    refuse_processes(monkeypatch)
    with pytest.raises(MachineError, match="a process"):
        predict_cells([planned], timeout_seconds=120, env={})


def test_for_cells_without_a_prediction_nothing_is_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refuse_processes(monkeypatch)
    monkeypatch.setattr(prediction, "require", lambda *_: None)
    (planned,) = cells(models=["tiny-decoder"], gpu_counts=[1])
    compiled = planned.model_copy(update={"compile": True})
    assert predict_cells([compiled], timeout_seconds=120, env={}) == {}


def refuse_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise MachineError("a process was started")

    monkeypatch.setattr(prediction, "run_bounded", refuse)


def test_what_a_file_describes_is_not_kept() -> None:
    (catalogued,) = cells(models=["tiny-decoder"], gpu_counts=[1])
    of_file = catalogued.model_copy(update={"model": "hf:model/config.json"})
    assert prediction._is_built_in(catalogued)
    assert not prediction._is_built_in(of_file)
