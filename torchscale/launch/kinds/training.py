"""Launches of training: digests of the ranks' steps, and whether something was trained."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from torchscale.analysis.stats.series import digest
from torchscale.analysis.training.digest import digest_signals
from torchscale.launch.exchanges import paired_waits
from torchscale.schema.base import LARGEST
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.rank import RankRecord
from torchscale.schema.launch.signals import SignalDigest
from torchscale.schema.launch.steps import EpochSample, RankSteps, StepDigest, StepSample
from torchscale.schema.launch.training import TrainingResult
from torchscale.util.files import read_bounded
from torchscale.util.optional import optional

M = TypeVar("M", bound=BaseModel)

_MAX_LINES_BYTES = 4 << 30
"""Maximum number of bytes: as many as a node may send of a launch."""


def environment(cell: TrainingCell) -> Mapping[str, str]:
    """Empty: these ranks need no variables of their own."""
    return {}


def collect_payload(directory: Path, ranks: Sequence[RankRecord]) -> TrainingResult:
    """The ranks' records, digests of their steps, and the epochs."""
    group, per_rank, signals = _digests(directory, ranks)
    return TrainingResult(
        ranks=tuple(ranks),
        steps=group,
        rank_steps=RankSteps.of(per_rank),
        signals=signals,
        epochs=tuple(_read_lines(directory / "epochs.jsonl", EpochSample)),
    )


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


def _digests(
    directory: Path, ranks: Sequence[RankRecord]
) -> tuple[StepDigest | None, tuple[StepDigest, ...], SignalDigest | None]:
    """Digest of the group's steps (per step the slowest rank), of each rank's, and of all for the
    diagnosis."""
    series = [
        _read_lines(directory / f"steps-rank-{record.rank}.jsonl", StepSample) for record in ranks
    ]
    if not series or not all(series):
        return None, (), None
    per_rank = tuple(
        _step_digest(samples, [sample.seconds for sample in samples], keep_values=False)
        for samples in series
    )
    whole = len(ranks) == ranks[0].world_size and len({len(samples) for samples in series}) == 1
    if not whole:
        return None, per_rank, None
    slowest = [max(step.seconds for step in steps) for steps in zip(*series, strict=True)]
    everything = [sample for samples in series for sample in samples]
    batch_steps = ranks[0].batches.steps
    signals = None
    if sum(batch_steps) == len(slowest):
        signals = digest_signals(series, batch_steps, paired_waits(directory, ranks))
    return _step_digest(everything, slowest), per_rank, signals


def _mean_of_all(known: Sequence[float], count: int) -> float | None:
    """``None`` where not all of ``count`` steps have the figure."""
    if len(known) != count:
        return None
    return math.fsum(known) / count


def _step_digest(
    samples: Sequence[StepSample], seconds: Sequence[float], *, keep_values: bool = True
) -> StepDigest:
    count = len(samples)

    def mean(read: Callable[[StepSample], float | None]) -> float | None:
        known = [value for sample in samples if (value := read(sample)) is not None]
        return _mean_of_all(known, count)

    return StepDigest(
        seconds=digest(seconds, keep_values=keep_values),
        mean_data_wait=math.fsum(sample.data_wait for sample in samples) / count,
        mean_forward=mean(lambda sample: sample.forward),
        mean_backward=mean(lambda sample: sample.backward),
        mean_optimizer=mean(lambda sample: sample.optimizer),
        mean_sync=mean(lambda sample: sample.sync),
        mean_bubble=mean(lambda sample: sample.bubble),
        mean_compute=mean(lambda sample: optional(lambda own: own.compute, sample.own)),
    )


def _read_lines(path: Path, model: type[M]) -> list[M]:
    """A file with an object on each line; nothing where it is missing or a line is cut off."""
    try:
        lines = read_bounded(path, _MAX_LINES_BYTES).splitlines()
        return [model.model_validate_json(line) for line in lines]
    except (OSError, ValidationError):
        return []


def clean_up(cell: TrainingCell, directory: Path) -> None:
    """Nothing: these ranks write into the launch's directory alone."""
