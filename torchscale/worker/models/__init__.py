"""One file per family of models; :func:`build_workload` finds the right one."""

from __future__ import annotations

import importlib

from torchscale.catalog.models import MODELS
from torchscale.schema.cell import Cell
from torchscale.worker.models import custom
from torchscale.worker.models.interface import Workload


def build_workload(cell: Cell) -> Workload:
    """The cell's model, on CPU. Weights come from torch's current seed; nothing is downloaded."""
    facts = MODELS.get(cell.model)
    if facts is None:
        return custom.build(cell.model, cell.model_options)
    family = importlib.import_module(f"{__name__}.{facts.family}")
    workload = family.build(cell.model, cell.model_options)
    assert isinstance(workload, Workload)  # noqa: S101 - narrows the dynamic import for the type checker
    return workload
