from __future__ import annotations

from pathlib import Path

import pytest

from tests.factories import cells
from torchscale.launch.prediction import predict_cells

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
