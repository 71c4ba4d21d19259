"""Predicts the device memory of cells in a worker process."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress

from pydantic import TypeAdapter, ValidationError

from torchscale.catalog.models import find_model
from torchscale.launch.kept_predictions import KeptPredictions
from torchscale.schema.cells.memory import PredictedMemory, why_unpredicted
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
_OF_FILE = "hf:"
"""How models begin that a file describes."""


def predicting(timeout_seconds: float) -> str:
    """What a user reads while cells are predicted for the first time."""
    return f"Predicting memory, which is then kept: a few seconds, {timeout_seconds:.0f} at most"


def predict_cells(
    cells: Sequence[TrainingCell], *, timeout_seconds: float, env: Mapping[str, str]
) -> dict[str, PredictedMemory]:
    """Predicted memory by cell id. Cells without a prediction, and those beyond the time limit, are
    left out; cells that take the same memory are predicted once, and those of built-in models are
    kept for the next run. ``env``: variables that the launches will have.

    Raises:
        UsageError: torch is not installed.
    """
    require("torch", "a prediction of memory")
    alike: dict[str, list[TrainingCell]] = {}
    for cell in cells:
        if not why_unpredicted(cell):
            alike.setdefault(_content(cell), []).append(cell)
    kept = KeptPredictions(env)
    found = {content: kept.find(content) for content in alike if _is_built_in(alike[content][0])}
    known = {content: predicted for content, predicted in found.items() if predicted is not None}
    new = {content: members[0] for content, members in alike.items() if content not in known}
    if new:
        predicted = _predict(new, timeout_seconds, env)
        kept.keep({content: one for content, one in predicted.items() if content in found})
        known |= predicted
    return {cell.id: predicted for content, predicted in known.items() for cell in alike[content]}


def _content(cell: TrainingCell) -> str:
    """What a cell's memory depends on, as JSON."""
    return cell.model_copy(update=_WITHOUT_EFFECT).model_dump_json(
        exclude={"measurement", "learning_rate"}
    )


def _is_built_in(cell: TrainingCell) -> bool:
    """Whether the prediction of its model depends on nothing but what is known: code of a user's may
    read anything, and a file may change."""
    return find_model(cell.model) is not None and not cell.model.startswith(_OF_FILE)


def _predict(
    cells: Mapping[str, TrainingCell], timeout_seconds: float, env: Mapping[str, str]
) -> dict[str, PredictedMemory]:
    """Predictions by the keys of ``cells``, from a process of their own."""
    adopt_orphans()
    finished = run_bounded(
        module_command("torchscale.worker.memory.predict"),
        timeout_seconds=timeout_seconds,
        env={**os.environ, **env},
        stdin=TypeAdapter(list[TrainingCell]).dump_json(list(cells.values())).decode(),
    )
    predictions: dict[str, PredictedMemory] = {}
    for line, content in zip(finished.stdout.splitlines(), cells, strict=False):
        with suppress(ValidationError):  # cut off, or a problem
            predictions[content] = PredictedMemory.model_validate_json(line)
    return predictions
