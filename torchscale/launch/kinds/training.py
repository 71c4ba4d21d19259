"""Launches of training: digests of the ranks' steps, and whether something was trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from torchscale.analysis.training.result import training_result
from torchscale.launch.exchanges import paired_waits
from torchscale.schema.base import LARGEST
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.rank import RankRecord
from torchscale.schema.launch.steps import EpochSample, StepSample
from torchscale.schema.launch.training import TrainingResult
from torchscale.util.files import read_bounded

M = TypeVar("M", bound=BaseModel)

_MAX_LINES_BYTES = 4 << 30
"""Maximum number of bytes: as many as a node may send of a launch."""


def environment(cell: TrainingCell) -> Mapping[str, str]:
    """Empty: these ranks need no variables of their own."""
    return {}


def collect_payload(directory: Path, ranks: Sequence[RankRecord]) -> TrainingResult:
    """The ranks' records, digests of their steps, and the epochs."""
    series = [
        _read_lines(directory / f"steps-rank-{record.rank}.jsonl", StepSample) for record in ranks
    ]
    epochs = tuple(_read_lines(directory / "epochs.jsonl", EpochSample))
    if not series or not all(series):
        return TrainingResult(ranks=tuple(ranks), epochs=epochs)
    result = training_result(ranks, series, paired=partial(paired_waits, directory, ranks))
    return result.model_copy(update={"epochs": epochs})


def measured_window(payload: TrainingResult) -> tuple[float, float] | None:
    """Start and end of the time in which all ranks measured: from the last rank's first measured
    step to the first rank's last one."""
    ranks = payload.ranks
    starts = [rank.measured_from for rank in ranks if rank.measured_from is not None]
    ends = [rank.measured_until for rank in ranks if rank.measured_until is not None]
    if not starts or len(ends) < ranks[0].world_size:
        return None
    return max(starts), min(ends)


def invalid_reason(payload: TrainingResult) -> str:
    """A loss that is not finite, ranks that hold different parameters, or nothing trained; empty
    otherwise."""
    for record in payload.ranks:
        if record.losses_finite is False:
            return f"the loss of rank {record.rank} was not a finite number, or above {LARGEST:g}"
        if record.parameters_equal is False:
            return (
                "after the first steps the ranks held different parameters: "
                f"{record.parameters_differing}; "
                "gradients were not reduced"
            )
        if record.parameters_changed is False:
            return "no parameter changed during warm-up: nothing was trained"
    return ""


def _read_lines(path: Path, model: type[M]) -> list[M]:
    """A file with an object on each line; nothing where it is missing or a line is cut off."""
    try:
        lines = read_bounded(path, _MAX_LINES_BYTES).splitlines()
        return [model.model_validate_json(line) for line in lines]
    except (OSError, ValidationError):
        return []


def clean_up(cell: TrainingCell, directory: Path) -> None:
    """Nothing: these ranks write into the launch's directory alone."""
