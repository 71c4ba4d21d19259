"""Models, one file per family, and one for those that transformers has; :func:`build_workload`
builds the one that a cell names."""

from __future__ import annotations

import importlib
from types import ModuleType

from torchscale.catalog.model_facts import ModelFacts
from torchscale.catalog.models import find_model
from torchscale.schema.cells.training import TrainingCell
from torchscale.worker.models import custom
from torchscale.worker.models.interface import Workload
from torchscale.worker.secrets import reveal

_PUBLISHED = frozenset({"bert", "gpt2", "llama", "resnet", "t5", "vit"})
"""Families that ``published`` builds; it is slow to import."""


def import_model(cell: TrainingCell) -> None:
    """Import what builds the cell's model, so that building it allocates the model alone.

    Raises:
        ImportError: the user's module cannot be imported or has no such function, or a library is
            not installed.
        TypeError: the import path names something else than a function.
    """
    facts = find_model(cell.model)
    if facts is None:
        custom.resolve(cell.model)
    else:
        module_of(facts)


def build_workload(cell: TrainingCell) -> Workload:
    """The cell's model, on CPU. Weights come from torch's current seed; nothing is downloaded."""
    facts = find_model(cell.model)
    if facts is None:
        return custom.build(
            cell.model, {name: reveal(value, name) for name, value in cell.model_options.items()}
        )
    builder = module_of(facts)
    workload = builder.build(cell.model, cell.model_options)
    assert isinstance(workload, Workload)  # noqa: S101 - narrows the dynamic import for the type checker
    return workload


def module_of(facts: ModelFacts) -> ModuleType:
    """The module whose ``build`` makes a model, with all that it imports."""
    if facts.family not in _PUBLISHED:
        return importlib.import_module(f"{__name__}.{facts.family}")
    published = importlib.import_module(f"{__name__}.published")
    published.load(facts.family)
    return published
