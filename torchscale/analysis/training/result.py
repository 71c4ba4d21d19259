"""What a launch of training measured, from the records of its ranks and their steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from torchscale.analysis.stats.series import digest
from torchscale.analysis.training.digest import digest_signals
from torchscale.analysis.training.exchange_waits import PairedWaits
from torchscale.schema.launch.rank import RankRecord
from torchscale.schema.launch.steps import RankSteps, StepDigest, StepSample
from torchscale.schema.launch.training import TrainingResult
from torchscale.util.optional import optional


def training_result(
    ranks: Sequence[RankRecord],
    series: Sequence[Sequence[StepSample]],
    *,
    per_sample: int = 1,
    paired: Callable[[], PairedWaits | None] = lambda: None,
) -> TrainingResult:
    """The ranks' records, and digests of the group's steps (per step the slowest rank), of each
    rank's, and of all for the diagnosis.

    Args:
        ranks: That left a record.
        series: Steps of each.
        per_sample: Steps that each sample is the mean of.
        paired: What they waited for, where arrivals at collectives were recorded.
    """
    digests = tuple(
        _step_digest(samples, [one.seconds for one in samples], per_sample, keep_values=False)
        for samples in series
    )
    result = TrainingResult(ranks=tuple(ranks), rank_steps=RankSteps.of(digests))
    if len(ranks) < ranks[0].world_size or len({len(samples) for samples in series}) > 1:
        return result
    slowest = [max(step.seconds for step in steps) for steps in zip(*series, strict=True)]
    everything = [sample for samples in series for sample in samples]
    batches = [steps // per_sample for steps in ranks[0].batches.steps]
    signals = None
    if sum(batches) == len(slowest):
        signals = digest_signals(series, batches, paired())
    steps = _step_digest(everything, slowest, per_sample)
    return result.model_copy(update={"steps": steps, "signals": signals})


def _mean_of_all(known: Sequence[float], count: int) -> float | None:
    """``None`` where not all of ``count`` steps have the figure."""
    if len(known) != count:
        return None
    return math.fsum(known) / count


def _step_digest(
    samples: Sequence[StepSample],
    seconds: Sequence[float],
    per_sample: int,
    *,
    keep_values: bool = True,
) -> StepDigest:
    count, of_seconds = len(samples), digest(seconds, keep_values=keep_values)

    def mean(read: Callable[[StepSample], float | None]) -> float | None:
        known = [value for sample in samples if (value := read(sample)) is not None]
        return _mean_of_all(known, count)

    return StepDigest(
        seconds=of_seconds.model_copy(update={"count": of_seconds.count * per_sample}),
        mean_data_wait=math.fsum(sample.data_wait for sample in samples) / count,
        mean_forward=mean(lambda sample: sample.forward),
        mean_backward=mean(lambda sample: sample.backward),
        mean_optimizer=mean(lambda sample: sample.optimizer),
        mean_sync=mean(lambda sample: sample.sync),
        mean_bubble=mean(lambda sample: sample.bubble),
        mean_compute=mean(lambda sample: optional(lambda own: own.compute, sample.own)),
    )
