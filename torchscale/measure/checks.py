"""Checks of a plan that need more than the plan: the user's own models, and files that must be
there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from torchscale.catalog.model_facts import CONTEXT, EXPERT, PIPELINE, SEQUENCE, TENSOR, OptionValue
from torchscale.catalog.models import MODELS
from torchscale.config.experiment import Experiment
from torchscale.config.secrets import hidden_environment
from torchscale.config.strategies.model_parallel import PipelineBase
from torchscale.errors import ConfigError
from torchscale.launch.model_check import check_models
from torchscale.observer import Observer
from torchscale.plan.expand import Plan
from torchscale.plan.obstacles import chunks_problem
from torchscale.schema.cells.checkpoint import CheckpointCell
from torchscale.schema.cells.hardware import HardwareCell
from torchscale.schema.cells.kinds import as_kind, training_workload
from torchscale.schema.cells.script import Script
from torchscale.schema.cells.training import TrainingCell, model_key
from torchscale.schema.launch.model_check import ModelCheck
from torchscale.schema.run.experiment_file import PlannedCell
from torchscale.util.length_file import parse_lengths

_CHECK_SECONDS = 60.0
"""Time limit for all models of a plan: imports of torch and of a user's package take some seconds;
a builder that reads files takes longer, and its model is then checked by its first launch."""
_CIFAR_FILES = ("train.bin", "cifar-100-binary/train.bin")


def checked(plan: Plan, experiment: Experiment, observer: Observer) -> Plan:
    """The plan with a reason to skip each cell whose model cannot be imported, built or split, or
    whose data is not there. Models of the catalogue are not imported: what they support is
    known.

    Raises:
        ConfigError: a script of the user's own is not there.
    """
    for entry in plan.cells:
        planned = training_workload(entry.cell)
        if planned is not None and planned.script is not None:
            _require_program(planned.script)
    cells = [cell for cell in map(training_workload, plan.to_run) if cell is not None]
    foreign = [cell for cell in cells if cell.model not in MODELS and cell.script is None]
    checks: Mapping[str, ModelCheck] = {}
    if foreign:
        with observer.status("Checking models"):
            checks = check_models(
                foreign, timeout_seconds=_CHECK_SECONDS, env=hidden_environment(experiment)
            )
    return replace(
        plan, cells=tuple(_checked_cell(entry, checks, experiment.hidden) for entry in plan.cells)
    )


def _require_program(script: Script) -> None:
    """
    Raises:
        ConfigError: the file of a script, or the program of a command, is not there.
    """
    if script.file is not None and not Path(script.file).is_file():
        raise ConfigError(
            f"models: script: {script.file}: no such file in {Path.cwd()}",
            hint="name it from the directory in which you start torchscale, or with its whole path",
        )
    program = script.program
    if program is not None and shutil.which(program) is None:
        raise ConfigError(
            f"models: command: {program}: no such program",
            hint="is its environment active? Or give its whole path",
        )


def disk_problem(directory: str) -> str | None:
    """Why a disk cannot be measured in ``directory``; ``None`` where it can."""
    if not Path(directory).is_dir():
        return f"{directory}: not a directory"
    if os.access(directory, os.W_OK | os.X_OK):
        return None
    return f"{directory}: cannot be written"


def _checked_cell(
    entry: PlannedCell, checks: Mapping[str, ModelCheck], hidden: Mapping[str, OptionValue]
) -> PlannedCell:
    hardware = as_kind(entry.cell, HardwareCell)
    if hardware is not None and hardware.disk_path is not None and entry.skip_reason is None:
        problem = disk_problem(hardware.disk_path)
        if problem is None:
            return entry
        return entry.model_copy(update={"skip_reason": f"hardware.disk_path: {problem}"})
    checkpoint = as_kind(entry.cell, CheckpointCell)
    if checkpoint is not None and checkpoint.path is not None and entry.skip_reason is None:
        problem = disk_problem(checkpoint.path)
        if problem is not None:
            return entry.model_copy(update={"skip_reason": f"checkpoint.path: {problem}"})
    cell = training_workload(entry.cell)
    if cell is None or entry.skip_reason is not None:
        return entry
    check = checks.get(model_key(cell))
    reason = (
        (None if check is None else model_problem(cell, check))
        or _missing_data(cell, hidden)
        or _lengths_problem(cell, hidden)
    )
    if reason is None:
        return entry
    return entry.model_copy(update={"skip_reason": reason})


def model_problem(cell: TrainingCell, check: ModelCheck) -> str | None:
    """Why the cell's model cannot be trained as asked; ``None`` where nothing is known against it.
    Pure."""
    if check.problem:
        return f"{cell.model}: {check.problem}"
    if not check.built:
        return None
    return _missing_split(cell, check) or _uneven_split(cell, check)


def _missing_split(cell: TrainingCell, check: ModelCheck) -> str | None:
    """A way to split the model that the strategy needs and the model does not define."""
    splits = cell.strategy.splits
    if PIPELINE in splits and check.layers is None:
        return f"{cell.model} cannot be cut into pipeline stages: it has no pipeline_split()"
    if TENSOR in splits and check.heads is None:
        return f"{cell.model} cannot be split by tensor parallelism: it has no tensor_split()"
    if EXPERT in splits and check.experts is None:
        return f"{cell.model} has no experts that can be spread over devices; use a moe model"
    if CONTEXT in splits and check.sequence_length is None:
        return f"{cell.model} cannot be split by context parallelism: it has no context_split()"
    if SEQUENCE in splits and not check.takes_sequence:
        return (
            f"{cell.model} cannot be split along the sequence: its tensor_split() does not support "
            "it"
        )
    return None


def _uneven_split(cell: TrainingCell, check: ModelCheck) -> str | None:
    """Layers, heads and tokens that the degrees do not divide."""
    degrees, strategy = cell.degrees, cell.strategy
    if (
        isinstance(strategy, PipelineBase)
        and check.layers is not None
        and check.layers < strategy.stages(degrees)
    ):
        return f"{check.layers} layers are too few for {strategy.stages(degrees)} pipeline stages"
    if check.heads is not None and check.heads % degrees.tensor:
        return (
            f"{check.heads} attention heads do not divide over {degrees.tensor} tensor-parallel "
            "devices"
        )
    if CONTEXT in strategy.splits and check.sequence_length is not None:
        return chunks_problem(check.sequence_length, degrees.context)
    return None


def _missing_data(cell: TrainingCell, hidden: Mapping[str, OptionValue]) -> str | None:
    """CIFAR-100 that is neither there nor to be downloaded."""
    loader = cell.loader
    if cell.data_source != "cifar100" or loader is None or loader.download:
        return None
    directory = Path(str(hidden.get(loader.data_dir, loader.data_dir)))
    if any((directory / name).is_file() for name in _CIFAR_FILES):
        return None
    return (
        f"no CIFAR-100 in {loader.data_dir}: add --data.download=true, or unpack "
        "cifar-100-binary.tar.gz there"
    )


def _lengths_problem(cell: TrainingCell, hidden: Mapping[str, OptionValue]) -> str | None:
    """A file of lengths that is not there, or is none."""
    if cell.lengths is None or cell.lengths.file is None:
        return None
    file = cell.lengths.file
    try:
        parse_lengths(Path(str(hidden.get(file, file))).read_text(encoding="utf-8"))
    except OSError as error:
        return f"data.lengths.file: {file}: {error.strerror or error}"
    except ValueError as error:
        return f"data.lengths.file: {file}: {error}"
    return None
