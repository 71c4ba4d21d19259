"""What a launch leaves behind: raw samples per rank, digests of its steps, its state. Never an interpretation."""

from __future__ import annotations

from enum import Enum
from functools import cached_property

from pydantic import Field

from torchscale.schema.base import SCHEMA_VERSION, Count, Frozen, NotNegative
from torchscale.schema.collectives import CollectivesRank, NcclLog
from torchscale.schema.environment import RankPlace
from torchscale.schema.hardware import HardwareRank
from torchscale.schema.memory import MemoryRank
from torchscale.schema.telemetry import Telemetry


class State(str, Enum):
    """How a launch, or a cell, ended. Exactly one."""

    OK = "ok"
    OOM = "oom"
    """Out of memory: the allocator said so, or the kernel ended a rank for it."""
    TIMEOUT = "timeout"
    """Our bound on the launch or on the time without progress was reached."""
    CRASHED = "crashed"
    """A rank raised, or died of a fault."""
    KILLED = "killed"
    """A rank was ended by a signal that was not ours."""
    INCOMPLETE = "incomplete"
    """Fewer rank records than ranks, and no error that explains it; or not run yet."""
    INTERRUPTED = "interrupted"
    """Ended by Ctrl-C or a termination signal to torchscale; runs again on resume."""
    INVALID = "invalid"
    """It ran, but its figures cannot be trusted: a loss that is not finite, ranks that hold different parameters."""
    SKIPPED = "skipped"
    """Not run, for a reason known beforehand."""


class StopRule(str, Enum):
    """What ended the measurement."""

    CONVERGED = "converged"
    MAX_STEPS = "max_steps"
    MAX_SECONDS = "max_seconds"
    MEASURE_STEPS = "measure_steps"
    MEASURE_SECONDS = "measure_seconds"
    EPOCHS = "epochs"
    BUDGET = "budget"


class Batch(Frozen):
    """A batch of contiguous steps: the unit of the stop rule and of throughput. ``seconds`` is its wall time."""

    steps: int = Field(ge=1)
    seconds: float = Field(gt=0)


class Warmup(Frozen):
    """Steps before the measurement. ``steady`` is false when the cap ended it."""

    steps: Count
    seconds: NotNegative
    steady: bool
    batches: tuple[Batch, ...]


class StepSample(Frozen):
    """One step of one rank, a line of ``steps-rank-R.jsonl``; times in seconds, phases add up to the step.

    Attributes:
        step: Counted from the launch's first.
        seconds: From the end of the step before to the end of this one.
        data_wait: Until the batch is there.
        forward: The forward pass.
        backward: The backward pass; where ``exposed_sync`` is measured, until the last gradient is computed.
        optimizer: The optimizer's step.
        bubble: In a pipeline, the time in which this rank's stages computed nothing: waiting for others, and
        exchange that
            nothing hides; ``None`` elsewhere.
        exposed_sync: From the last gradient until all gradients are exchanged; ``None`` where it is not measured and
            ``backward`` contains it.
        buffer_sync: Sending the module's buffers (batch-norm statistics) before the forward pass; ``None`` without any.
        loss: ``None`` where it was not finite.
    """

    step: int
    seconds: float
    data_wait: float
    forward: float
    backward: float
    optimizer: float
    bubble: float | None = None
    exposed_sync: float | None = None
    buffer_sync: float | None = None
    loss: float | None = None

    @property
    def sync(self) -> float | None:
        """All exchange that the step waited for; ``None`` where it was not measured."""
        return None if self.exposed_sync is None else self.exposed_sync + (self.buffer_sync or 0.0)

    @property
    def own(self) -> float:
        """What the rank did by itself: everything but waiting for data and exchanging."""
        return self.forward + self.backward + self.optimizer


class EpochSample(Frozen):
    """One epoch, a line of ``epochs.jsonl``: wall time of its batches, mean loss over its steps on rank 0."""

    epoch: int
    steps: int
    seconds: float
    samples: int
    mean_loss: float | None = None


class MemoryUse(Frozen):
    """Bytes. CUDA: the allocator's peaks. CPU: resident memory before the model was built and at its peak."""

    peak_allocated_bytes: Count | None = None
    peak_reserved_bytes: Count | None = None
    resident_before_bytes: Count | None = None
    resident_peak_bytes: Count | None = None

    @property
    def peak_bytes(self) -> int | None:
        """The allocator's peak on CUDA, the growth of resident memory on CPU."""
        if self.peak_allocated_bytes is not None:
            return self.peak_allocated_bytes
        if self.resident_before_bytes is None or self.resident_peak_bytes is None:
            return None
        return self.resident_peak_bytes - self.resident_before_bytes


class HostLoad(Frozen):
    """Processor time over the measurement.

    Attributes:
        wall_seconds: From the first batch's start to the last one's end.
        busy_seconds: Of the cores in ``cores``: everything that was not idle, stolen time included.
        own_seconds: Of this rank's process and its loader's.
        cores: Cores that ``busy_seconds`` covers.
        pinned: Whether this rank was bound to those cores, so that the rest of them is foreign.
    """

    wall_seconds: NotNegative
    busy_seconds: NotNegative
    own_seconds: NotNegative
    cores: Count
    pinned: bool


class Setup(Frozen):
    """Seconds from the rank's start to its first step, and the first step itself.

    ``compile_seconds`` is what torch's compiler took, in whichever step; ``None`` where nothing is compiled.
    """

    import_seconds: NotNegative
    process_group_seconds: NotNegative
    build_seconds: NotNegative
    first_step_seconds: NotNegative
    compile_seconds: float | None = None


class DataUse(Frozen):
    """The files that batches came from.

    Attributes:
        source: As in the config.
        path: Of the file or directory.
        size_bytes: Of all its data.
        epochs: How often the launch went through it, all steps counted: beyond 1, pages come from memory where they
        fit.
        shards_written, shards_repaired, shards_reused: What had to be done before it could be used.
        asked_cold: Whether the kernel was asked to forget its pages.
        resident_share: Share of its pages in memory before the first step; ``None`` where the kernel does not say.
    """

    source: str
    path: str
    size_bytes: int
    epochs: float | None = None
    shards_written: int = 0
    shards_repaired: int = 0
    shards_reused: int = 0
    asked_cold: bool = False
    resident_share: float | None = None


class LinkSample(Frozen):
    """All-reduces timed with nothing else under way; medians over ``repeats``.

    Attributes:
        payload_bytes: Gradients of a step.
        as_bucketed_seconds: In the buckets that training uses.
        merged_seconds: In buckets of 25 MiB.
        repeats: How often each was timed.
        interface: The network interface, where it is known.
        rated_bytes_per_second: What its driver says it is rated at.
    """

    payload_bytes: Count
    as_bucketed_seconds: NotNegative
    merged_seconds: NotNegative
    repeats: int
    interface: str | None = None
    rated_bytes_per_second: float | None = None


class RankSignals(Frozen):
    """What a rank noticed beside its steps, for the diagnosis. ``None`` was not measured.

    Attributes:
        alone_seconds: Forward and backward of steps without any exchange, in windows before and after the measurement.
        alone_wall_seconds: What those windows took, with all they discard; none of it counts in throughput.
        bucket_bytes: Gradients of a step as they were sent.
        link: The link alone.
        collections: Garbage collections while measuring.
        collection_seconds: What they took.
        longest_collection_seconds: The longest of them.
        page_faults: Pages read back from disk while measuring.
        allocation_retries: Of the CUDA allocator.
        throttle_reasons: What the driver gave between batches.
    """

    alone_seconds: tuple[float, ...] | None = None
    alone_wall_seconds: float | None = None
    bucket_bytes: tuple[int, ...] | None = None
    link: LinkSample | None = None
    collections: int
    collection_seconds: float
    longest_collection_seconds: float
    page_faults: int
    allocation_retries: int | None = None
    throttle_reasons: tuple[str, ...] | None = None


class FlopCount(Frozen):
    """What the model's passes take, counted on the meta device without activation checkpointing.

    Attributes:
        forward, backward: Floating-point operations of one sample; a multiply-add is two.
        sample_bytes: What all operators of both passes read and write for each sample, as if nothing stayed in a cache
            and all were in fp32; ``None`` where it is not known.
        fixed_bytes: The same for each pass, whatever the batch: weights and their gradients.
        blocks_forward: Of ``forward``, what the repeated blocks take: full activation checkpointing computes it again.
    """

    forward: NotNegative
    backward: NotNegative
    sample_bytes: float | None = None
    fixed_bytes: float | None = None
    blocks_forward: float | None = None


class RankRecord(RankPlace):
    """Raw samples of one rank: ``rank-R.json``, written by the worker before it tears anything down.

    ``samples_per_step`` and ``tokens_per_step`` are the rank's share, also where several work on the same samples;
    ``parameters`` are of the whole model. ``parameters_equal`` is ``None`` where every rank has parts of its own.
    ``flops`` is rank 0's alone, ``measured_from`` and ``measured_until`` are seconds since the epoch.
    """

    schema_version: int = SCHEMA_VERSION
    parameters: Count
    samples_per_step: int = Field(ge=1)
    tokens_per_step: int | None
    setup: Setup
    warmup: Warmup
    batches: tuple[Batch, ...]
    stop_rule: StopRule
    memory: MemoryUse
    host_load: HostLoad
    first_loss: float | None
    last_loss: float | None
    losses_finite: bool
    parameters_changed: bool
    parameters_equal: bool | None
    parameters_differing: str | None = None
    signals: RankSignals | None = None
    data: DataUse | None = None
    flops: FlopCount | None = None
    measured_from: float | None = None
    measured_until: float | None = None


class Digest(Frozen):
    """A series of times in seconds, without the series. ``histogram`` counts lie between consecutive ``edges``."""

    count: int = Field(ge=1)
    mean: NotNegative
    minimum: NotNegative
    p50: NotNegative
    p95: NotNegative
    p99: NotNegative
    maximum: NotNegative
    edges: tuple[float, ...] = ()
    histogram: tuple[Count, ...] = ()


class StepDigest(Frozen):
    """Step times of one rank, or of the group (per step the maximum over ranks), and the mean of each phase.

    ``mean_sync`` is the exposed exchange; where it is ``None``, ``mean_backward`` contains it.
    """

    seconds: Digest
    mean_data_wait: float
    mean_forward: float
    mean_backward: float
    mean_optimizer: float
    mean_sync: float | None = None
    mean_bubble: float | None = None


class SignalDigest(Frozen):
    """The steps of all ranks as the diagnosis needs them. Series are means per step over each batch; seconds.

    Attributes:
        own: Per rank and batch: forward, backward, optimizer.
        data_wait: Per rank and batch.
        wait: Per rank and batch: exposed exchange beyond that of the step's last rank, who waited for nobody.
        transfer: Per batch: exposed exchange of the step's last rank.
        charge: Per rank: share of all waiting for which it was the last; sums to 1, or all 0.
        exposed_p50, exposed_p95: Of the mean over ranks, over steps.
        long_steps: Per rank: steps over 1.5 times its median, where they are rare.
        long_step_seconds: What they exceed the median by, per step, for the rank with most.
    """

    own: tuple[tuple[float, ...], ...]
    data_wait: tuple[tuple[float, ...], ...]
    wait: tuple[tuple[float, ...], ...] | None = None
    transfer: tuple[float, ...] | None = None
    charge: tuple[float, ...] | None = None
    exposed_p50: float | None = None
    exposed_p95: float | None = None
    long_steps: tuple[int, ...] | None = None
    long_step_seconds: float | None = None


class FailureKind(str, Enum):
    """What a rank died of."""

    OOM = "oom"
    """It ran out of memory."""
    PEER_LOST = "peer_lost"
    """A collective failed because another rank had gone: a symptom, not the cause."""
    LEFT_EARLY = "left_early"
    """Something called ``sys.exit`` before the measurement was done."""
    ERROR = "error"
    """Anything else that was raised."""


class RankFailure(Frozen):
    """What a rank said before it died: ``error-rank-R.json``.

    Attributes:
        rank: Who.
        kind: What it was.
        type: The exception's class.
        message: Its text.
        traceback: The last lines of it.
        time: Seconds since the epoch: the earliest failure is the cause.
    """

    schema_version: int = SCHEMA_VERSION
    rank: int
    kind: FailureKind
    type: str
    message: str
    traceback: str = ""
    time: float


class LaunchRecord(Frozen):
    """``record.json``: its presence says that the launch is complete. Written once, atomically, never changed.

    Attributes:
        schema_version: Of this file.
        cell_id: Of the cell.
        launch: Which repeat, from 0.
        state: How it ended.
        reason: One line for people; empty when ``ok``.
        started_at: UTC, ISO 8601.
        seconds: Wall time of the torchrun.
        command: argv of the torchrun.
        ranks: Records of the ranks that left one, by rank.
        failures: What ranks said before they died, earliest first.
        exit_code: torchrun's; negative for a signal; ``None`` if it could not be started.
        steps: Digest of the group's steps; ``None`` unless every rank left its steps.
        rank_steps: Digest per rank, in the order of ``ranks``.
        signals: Digest of the steps for the diagnosis; ``None`` unless every rank left its steps.
        epochs: Where epochs bound the run.
        grouped: Whether other cells ran before it in the same processes; ``seconds`` is then its own part.
        log_tail: Last lines that the ranks and torchrun printed; kept only when not ``ok``.
        collectives, hardware, memory: Records of the ranks of such cells, by rank; ``ranks`` is empty then.
        nccl_log: What NCCL said about its choices, where it was asked to.
        telemetry: What was read beside the ranks; ``None`` where nothing was.
    """

    schema_version: int = SCHEMA_VERSION
    cell_id: str
    launch: Count
    state: State
    reason: str = ""
    started_at: str
    seconds: NotNegative
    command: tuple[str, ...] = ()
    ranks: tuple[RankRecord, ...] = ()
    failures: tuple[RankFailure, ...] = ()
    exit_code: int | None = None
    steps: StepDigest | None = None
    rank_steps: tuple[StepDigest, ...] = ()
    signals: SignalDigest | None = None
    epochs: tuple[EpochSample, ...] = ()
    grouped: bool = False
    log_tail: str = ""
    collectives: tuple[CollectivesRank, ...] = ()
    hardware: tuple[HardwareRank, ...] = ()
    memory: tuple[MemoryRank, ...] = ()
    nccl_log: NcclLog | None = None
    telemetry: Telemetry | None = None

    @cached_property
    def batch_seconds(self) -> tuple[float, ...]:
        """Wall time of each batch for the group, the slowest rank's: ranks decide together when one ends."""
        series = [[batch.seconds for batch in rank.batches] for rank in self.ranks]
        return tuple(map(max, zip(*series, strict=False)))

    @cached_property
    def measured_steps(self) -> int:
        """Steps of the measurement."""
        return sum(batch.steps for batch in self.ranks[0].batches[: len(self.batch_seconds)])
