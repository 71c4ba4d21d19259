"""Times of training steps: raw samples, batches of them, and digests."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from functools import cached_property
from operator import attrgetter

from pydantic import model_validator

from torchscale.schema.base import (
    Count,
    Frozen,
    NotNegative,
    PositiveCount,
    PositiveSeconds,
    Real,
    Seconds,
)
from torchscale.schema.launch.documents import DocumentStep
from torchscale.schema.launch.experts import ExpertStep


class StopRule(str, Enum):
    """What ended the measurement."""

    CONVERGED = "converged"
    MAX_STEPS = "max_steps"
    MAX_SECONDS = "max_seconds"
    MEASURE_STEPS = "measure_steps"
    MEASURE_SECONDS = "measure_seconds"
    EPOCHS = "epochs"
    BUDGET = "budget"
    PROGRAM = "program"
    """A script of the user's own ended by itself."""


class Batch(Frozen):
    """A batch of contiguous steps: the unit of the stop rule and of throughput. ``seconds`` is its
    wall time."""

    steps: PositiveCount
    seconds: PositiveSeconds


class BatchTimes(Frozen):
    """Batches in columns: a launch has tens of them on each rank, and records of thousands of ranks
    are read often.

    Attributes:
        steps: Number of steps of each batch.
        seconds: Wall time of each batch.
    """

    steps: tuple[PositiveCount, ...]
    seconds: tuple[PositiveSeconds, ...]

    @classmethod
    def of(cls, batches: Iterable[Batch]) -> BatchTimes:
        """The columns of these."""
        kept = tuple(batches)
        return cls(
            steps=tuple(batch.steps for batch in kept),
            seconds=tuple(batch.seconds for batch in kept),
        )

    @model_validator(mode="after")
    def _same_length(self) -> BatchTimes:
        if len(self.steps) != len(self.seconds):
            raise ValueError(f"steps of {len(self.steps)} batches, seconds of {len(self.seconds)}")
        return self

    def __len__(self) -> int:
        return len(self.steps)

    @cached_property
    def total_seconds(self) -> float:
        """Seconds of all batches together."""
        return sum(self.seconds)

    @property
    def total_steps(self) -> int:
        """Steps of all batches together."""
        return sum(self.steps)


class Warmup(Frozen):
    """Steps before the measurement. ``steady`` is false when the cap ended it."""

    steps: Count
    seconds: Seconds
    steady: bool
    batches: BatchTimes


class OwnStep(Frozen):
    """What the collector saw of a step of a user's script; seconds.

    Attributes:
        compute: Neither blocked nor waiting for data.
        calm: Of it, what neither collectives nor other programs disturb.
        wait: For ranks that came later to a collective; ``None`` where arrivals are not known. The
            same for what follows.
        transfer: Blocked, once all had come.
        blame: The others' waiting for this rank.
    """

    compute: Seconds
    calm: Seconds
    wait: Seconds | None = None
    transfer: Seconds | None = None
    blame: Seconds | None = None


class StepSample(Frozen):
    """One step of one rank, a line of ``steps-rank-R.jsonl``; times in seconds, phases add up to
    the step.

    Attributes:
        step: Counted from the launch's first.
        seconds: Seconds from the end of the step before to the end of this one.
        data_wait: Seconds until the batch is there.
        forward: The forward pass; ``None``, as the passes and the optimizer that follow, in a
            user's script, whose compute is not divided.
        backward: The backward pass; where ``exposed_sync`` is measured, until the last gradient is
            computed.
        optimizer: The optimizer's step.
        bubble: Time, in a pipeline, in which this rank's stages computed nothing: waiting for
            others, and transfers that nothing hides; ``None`` elsewhere.
        exposed_sync: Seconds from the last gradient until all gradients are exchanged; ``None``
            where it is not measured and ``backward`` contains it.
        buffer_sync: Sending the module's buffers (batch-norm statistics) before the forward pass;
            ``None`` without any.
        blocked: Waiting for collectives within the passes and the optimizer's step, where the
            strategy waits there; ``None`` where that is not measured and the phases contain it.
        loss: ``None`` where it was not finite.
        own: Of a user's script.
        experts: Of a model with experts.
        documents: Where samples have different lengths.
    """

    step: Count
    seconds: Seconds
    data_wait: Real
    forward: Real | None
    backward: Real | None
    optimizer: Real | None
    bubble: Real | None = None
    exposed_sync: Real | None = None
    buffer_sync: Real | None = None
    blocked: Real | None = None
    loss: Real | None = None
    own: OwnStep | None = None
    experts: ExpertStep | None = None
    documents: DocumentStep | None = None

    @property
    def sync(self) -> float | None:
        """All exchange that the step waited for; ``None`` where it was not measured."""
        if self.own is not None:
            if self.own.wait is None or self.own.transfer is None:
                return None
            return self.own.wait + self.own.transfer
        if self.exposed_sync is None and self.blocked is None:
            return None
        return (self.exposed_sync or 0.0) + (self.buffer_sync or 0.0) + (self.blocked or 0.0)

    @property
    def compute(self) -> float:
        """Forward, backward and optimizer: everything but waiting for data and for other ranks."""
        if self.own is not None:
            return self.own.compute
        return (self.forward or 0.0) + (self.backward or 0.0) + (self.optimizer or 0.0)


class EpochSample(Frozen):
    """One epoch, a line of ``epochs.jsonl``.

    Attributes:
        epoch: Number of the epoch; 0 is the first that was measured.
        steps: Optimizer steps.
        seconds: Wall time of its steps on rank 0, without what lies between batches of steps.
        samples: Samples of all ranks.
        samples_per_second: ``samples`` ÷ ``seconds``.
        mean_loss: Over its steps on rank 0; ``None`` where no loss was read.
    """

    epoch: Count
    steps: Count
    seconds: Seconds
    samples: Count
    samples_per_second: NotNegative | None = None
    mean_loss: Real | None = None


MAX_VALUES = 500
"""Values that a digest keeps. More than the 400 steps at which an adaptive measurement ends, so
that quantiles over all steps of several launches are exact for these; 5 KB of JSON."""


class Digest(Frozen):
    """A series of times in seconds.

    Attributes:
        count: Length of the series.
        mean: Arithmetic mean.
        minimum, p50, p95, p99, maximum: Order statistics of the series, linear between neighbours.
        values: The series in ascending order, all of it up to :data:`MAX_VALUES`; of a longer one
            as many at equal distances, its ends included. Empty where only the figures above are
            kept.
    """

    count: PositiveCount
    mean: Seconds
    minimum: Seconds
    p50: Seconds
    p95: Seconds
    p99: Seconds
    maximum: Seconds
    values: tuple[Seconds, ...] = ()


class StepDigest(Frozen):
    """Step times of one rank, or of the group (per step the maximum over ranks), and the mean of
    each phase.

    ``mean_sync`` is the exposed exchange; where it is ``None``, ``mean_backward`` contains it.
    ``mean_compute`` stands for the passes and the optimizer where they are not told apart.
    """

    seconds: Digest
    mean_data_wait: Real
    mean_forward: Real | None
    mean_backward: Real | None
    mean_optimizer: Real | None
    mean_sync: Real | None = None
    mean_bubble: Real | None = None
    mean_compute: Real | None = None


class RankSteps(Frozen):
    """Step times of each rank in columns, a value for each rank: what a :class:`StepDigest` says
    without single values.

    The phases that a rank did not measure are ``None``. ``mean_compute`` is empty in older records.
    """

    count: tuple[PositiveCount, ...] = ()
    mean: tuple[Seconds, ...] = ()
    minimum: tuple[Seconds, ...] = ()
    p50: tuple[Seconds, ...] = ()
    p95: tuple[Seconds, ...] = ()
    p99: tuple[Seconds, ...] = ()
    maximum: tuple[Seconds, ...] = ()
    mean_data_wait: tuple[Real, ...] = ()
    mean_forward: tuple[Real | None, ...] = ()
    mean_backward: tuple[Real | None, ...] = ()
    mean_optimizer: tuple[Real | None, ...] = ()
    mean_sync: tuple[Real | None, ...] = ()
    mean_bubble: tuple[Real | None, ...] = ()
    mean_compute: tuple[Real | None, ...] = ()

    @classmethod
    def of(cls, ranks: Iterable[StepDigest]) -> RankSteps:
        """The columns of these."""
        kept = tuple(ranks)
        times = {name: tuple(getattr(rank.seconds, name) for rank in kept) for name in _OF_SECONDS}
        phases = {name: tuple(getattr(rank, name) for rank in kept) for name in _OF_PHASES}
        compute = tuple(rank.mean_compute for rank in kept)
        if any(mean is not None for mean in compute):
            phases["mean_compute"] = compute
        return cls(**times, **phases)

    @model_validator(mode="after")
    def _same_length(self) -> RankSteps:
        lengths = dict(zip(_COLUMNS, map(len, _columns(self)), strict=True))
        if not self.mean_compute:
            del lengths["mean_compute"]
        if len(set(lengths.values())) > 1:
            raise ValueError(
                "columns of different lengths: "
                f"{', '.join(f'{name} {n}' for name, n in lengths.items())}"
            )
        return self

    def __len__(self) -> int:
        return len(self.count)


_OF_SECONDS = ("count", "mean", "minimum", "p50", "p95", "p99", "maximum")
_OF_PHASES = (
    "mean_data_wait",
    "mean_forward",
    "mean_backward",
    "mean_optimizer",
    "mean_sync",
    "mean_bubble",
)
_COLUMNS = (*_OF_SECONDS, *_OF_PHASES, "mean_compute")
_columns = attrgetter(*_COLUMNS)
