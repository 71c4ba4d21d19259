"""What cells are predicted to take of a device's memory, asked of a worker process."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from torchscale.launch.process import run_bounded
from torchscale.schema.cell import Cell
from torchscale.schema.memory import PredictedMemory

_LOCAL = {"seed": 0, "data_source": "synthetic", "loader": None, "num_samples": 1, "cudnn_benchmark": False}
"""Settings that change no tensor."""


def predict_cells(cells: Sequence[Cell], *, timeout_seconds: float) -> dict[str, PredictedMemory]:
    """By cell id, as far as there is a prediction and the time reaches; what takes as much is worked out once."""
    alike: dict[str, list[Cell]] = {}
    for cell in cells:
        key = cell.model_copy(update=_LOCAL).model_dump_json(exclude={"measurement", "learning_rate"})
        alike.setdefault(key, []).append(cell)
    with tempfile.TemporaryDirectory(prefix="torchscale-") as scratch:
        asked = Path(scratch) / "cells.json"
        asked.write_bytes(TypeAdapter(list[Cell]).dump_json([members[0] for members in alike.values()]))
        finished = run_bounded(
            [sys.executable, "-m", "torchscale.worker.predict", str(asked)], timeout_seconds=timeout_seconds
        )
    found: dict[str, PredictedMemory] = {}
    for line, members in zip(finished.stdout.splitlines(), alike.values(), strict=False):
        try:
            predicted = PredictedMemory.model_validate_json(line)
        except ValidationError:  # cut off, or a problem
            continue
        found.update({cell.id: predicted for cell in members})
    return found
