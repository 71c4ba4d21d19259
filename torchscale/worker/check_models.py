"""``python -m torchscale.worker.check_models`` checks the models of training cells, given as JSON
on its standard input, without training them.

Imports each model and builds it on the meta device, which allocates nothing. Prints one line of
JSON per cell, in order (:class:`~torchscale.schema.launch.model_check.ModelCheck`).
"""

from __future__ import annotations

import sys

import torch
from pydantic import TypeAdapter

from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.model_check import ModelCheck
from torchscale.worker.answers import open_answers
from torchscale.worker.models import build_workload, import_model

_CONCLUSIVE = (ImportError, SyntaxError, TypeError, ValueError, AssertionError)
"""What a model raises in every process alike. Other errors may come from the meta device or the
missing ranks."""
_OF_THE_CHECK = ("meta", "process group", "distributed")
"""Words of messages that are about this check's own circumstances."""
_REASON_CHARACTERS = 300


def check_model(cell: TrainingCell) -> ModelCheck:
    """Whether the cell's model can be built, and how it can be split."""
    try:
        import_model(cell)
        with torch.device("meta"):
            workload = build_workload(cell)
    except _CONCLUSIVE as error:
        text = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"[:_REASON_CHARACTERS]
        if any(word in text for word in _OF_THE_CHECK):
            return ModelCheck()
        if isinstance(error, ImportError | SyntaxError):
            return ModelCheck(problem=text)
        return ModelCheck(problem=f"cannot be built: {text}")
    except Exception:  # noqa: BLE001 - a user's model may raise anything; the launch decides
        return ModelCheck()
    return ModelCheck(
        built=True,
        heads=None if workload.tensor is None else workload.tensor.heads,
        takes_sequence=workload.tensor is not None and workload.tensor.takes_sequence,
        layers=None if workload.pipeline is None else workload.pipeline.layers,
        experts=workload.experts,
        sequence_length=None if workload.context is None else workload.context.length,
    )


def main() -> None:
    """Check each cell of the file and print its line at once, so that a timeout loses only the
    rest."""
    answers = open_answers()
    for cell in TypeAdapter(list[TrainingCell]).validate_json(sys.stdin.buffer.read()):
        answers.write(f"{check_model(cell).model_dump_json()}\n")


if __name__ == "__main__":
    main()
