"""Checks models in a worker process before a sweep."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from pydantic import TypeAdapter, ValidationError

from torchscale.schema.cells.training import TrainingCell, model_key
from torchscale.schema.launch.model_check import ModelCheck
from torchscale.util.extras import require
from torchscale.util.interpreter import module_command
from torchscale.util.processes.bounded import run_bounded
from torchscale.util.processes.subprocesses import adopt_orphans

_AS_A_RANK = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "CUDA_VISIBLE_DEVICES": ""}
"""Models may read their rank when they are built; none may take memory of a GPU."""


def check_models(
    cells: Sequence[TrainingCell], *, timeout_seconds: float, env: Mapping[str, str]
) -> dict[str, ModelCheck]:
    """What is known of each model, by :func:`~torchscale.schema.cells.training.model_key`; models
    beyond the time limit, or that end the process, are left out.

    Args:
        cells: One or more of each model.
        timeout_seconds: Time limit for all of them.
        env: Variables that the launches will have.

    Raises:
        UsageError: torch is not installed.
    """
    require("torch", "building a model")
    adopt_orphans()
    models = {model_key(cell): cell for cell in cells}
    finished = run_bounded(
        module_command("torchscale.worker.check_models"),
        timeout_seconds=timeout_seconds,
        env={**os.environ, **env, **_AS_A_RANK},
        stdin=TypeAdapter(list[TrainingCell]).dump_json(list(models.values())).decode(),
    )
    checks: dict[str, ModelCheck] = {}
    for line, key in zip(finished.stdout.splitlines(), models, strict=False):
        try:
            checks[key] = ModelCheck.model_validate_json(line)
        except ValidationError:  # cut off
            break
    return checks
