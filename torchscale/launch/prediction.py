"""Predicts the device memory of cells in a worker process."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from pydantic import TypeAdapter, ValidationError

from torchscale.schema.cells.memory import PredictedMemory
from torchscale.schema.cells.training import TrainingCell
from torchscale.util.extras import require
from torchscale.util.interpreter import module_command
from torchscale.util.processes.bounded import run_bounded
from torchscale.util.processes.subprocesses import adopt_orphans

_WITHOUT_EFFECT = {
    "seed": 0,
    "data_source": "synthetic",
    "loader": None,
    "num_samples": 1,
    "cudnn_benchmark": False,
}
"""Settings that change no tensor: cells that differ in them alone share a prediction."""


def predict_cells(
    cells: Sequence[TrainingCell], *, timeout_seconds: float, env: Mapping[str, str]
) -> dict[str, PredictedMemory]:
    """Predicted memory by cell id. Cells without a prediction, and those beyond the time limit, are
    left out; cells that take the same memory are predicted once. ``env``: variables that the
    launches will have.

    Raises:
        UsageError: torch is not installed.
    """
    require("torch", "a prediction of memory")
    adopt_orphans()
    alike: dict[str, list[TrainingCell]] = {}
    for cell in cells:
        key = cell.model_copy(update=_WITHOUT_EFFECT).model_dump_json(
            exclude={"measurement", "learning_rate"}
        )
        alike.setdefault(key, []).append(cell)
    finished = run_bounded(
        module_command("torchscale.worker.memory.predict"),
        timeout_seconds=timeout_seconds,
        env={**os.environ, **env},
        stdin=TypeAdapter(list[TrainingCell])
        .dump_json([members[0] for members in alike.values()])
        .decode(),
    )
    predictions: dict[str, PredictedMemory] = {}
    for line, members in zip(finished.stdout.splitlines(), alike.values(), strict=False):
        try:
            predicted = PredictedMemory.model_validate_json(line)
        except ValidationError:  # cut off, or a problem
            continue
        predictions.update({cell.id: predicted for cell in members})
    return predictions
