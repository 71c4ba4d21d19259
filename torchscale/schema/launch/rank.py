"""What one rank of a training launch measured: ``rank-R.json``."""

from __future__ import annotations

from torchscale.schema.base import (
    SCHEMA_VERSION,
    Count,
    EpochSeconds,
    Frozen,
    NotNegative,
    PositiveCount,
    Real,
    Seconds,
    Share,
)
from torchscale.schema.launch.documents import DocumentUse
from torchscale.schema.launch.experts import ExpertUse
from torchscale.schema.launch.signals import RankSignals
from torchscale.schema.launch.steps import BatchTimes, StopRule, Warmup
from torchscale.schema.node.environment import RankIdentity


class MemoryUse(Frozen):
    """Bytes. CUDA: the allocator's peaks. CPU: resident memory before the model was built and at
    its peak."""

    peak_allocated_bytes: Count | None = None
    peak_reserved_bytes: Count | None = None
    resident_before_bytes: Count | None = None
    resident_peak_bytes: Count | None = None

    @property
    def peak_bytes(self) -> int | None:
        """The allocator's peak on CUDA, the growth of resident memory on CPU; ``None`` where a
        peak is below what was there before."""
        if self.peak_allocated_bytes is not None:
            return self.peak_allocated_bytes
        before, peak = self.resident_before_bytes, self.resident_peak_bytes
        if before is None or peak is None or peak < before:
            return None
        return peak - before


class RunQueue(Frozen):
    """Time in which threads of a rank could have run and had no core, as the kernel counts it.

    Attributes:
        seconds: Seconds of all threads of the rank and of its loader's processes, added up.
        main_seconds: Seconds of the rank's main thread.
        main_cpu_seconds: Time that the main thread spent on a core.
    """

    seconds: Seconds
    main_seconds: Seconds
    main_cpu_seconds: Seconds


class HostLoad(Frozen):
    """Processor time over the measurement.

    Attributes:
        wall_seconds: Wall time from the first batch's start to the last one's end.
        busy_seconds: Busy time of the cores in ``cores``: everything that was not idle, stolen time
            included.
        process_seconds: CPU time of this rank's process and its loader's.
        cores: Cores that ``busy_seconds`` covers.
        pinned: Whether this rank was bound to those cores, so that the rest of their time went to
            other processes.
        interrupted_seconds: The part of ``busy_seconds`` that was stolen by the hypervisor, or in
            interrupts; ``None`` in records of earlier versions.
        stolen_seconds: The part of ``interrupted_seconds`` that the hypervisor took; ``None`` in
            records of earlier versions.
        run_queue: Time that the rank's threads waited for a core; ``None`` where the kernel does
            not count it.
        fixed_work_seconds: Processor time of a fixed piece of work between batches, on CPUs: median
            of its matrix products, and of its copy.
    """

    wall_seconds: Seconds
    busy_seconds: Seconds
    process_seconds: Seconds
    cores: Count
    pinned: bool
    interrupted_seconds: Seconds | None = None
    stolen_seconds: Seconds | None = None
    run_queue: RunQueue | None = None
    fixed_work_seconds: tuple[Seconds, Seconds] | None = None

    @property
    def occupied_seconds(self) -> float:
        """Busy time without interrupts, which a rank's own messages cause: what processes used, and
        what the hypervisor took."""
        interrupts = (self.interrupted_seconds or 0.0) - (self.stolen_seconds or 0.0)
        return max(0.0, self.busy_seconds - max(0.0, interrupts))


class Setup(Frozen):
    """Seconds from the rank's start to its first step, and the first step itself.

    ``compile_seconds`` is what torch's compiler took, in whichever step; ``None`` where nothing is
    compiled.
    """

    import_seconds: Seconds
    process_group_seconds: Seconds
    build_seconds: Seconds
    first_step_seconds: Seconds
    compile_seconds: Seconds | None = None


class DataUse(Frozen):
    """The files that batches came from.

    Attributes:
        source: Source as in the config.
        path: Path of the file or directory.
        size_bytes: Size of all its data.
        epochs: How often the launch went through it, all steps counted: beyond 1, pages come from
        memory where they fit. shards_written, shards_repaired, shards_reused: What had to be done
        before it could be used.
        asked_cold: Whether the kernel was asked to forget its pages.
        resident_share: Share of its pages in memory before the first step; ``None`` where the
            kernel does not say.
    """

    source: str
    path: str
    size_bytes: Count
    epochs: Real | None = None
    shards_written: Count = 0
    shards_repaired: Count = 0
    shards_reused: Count = 0
    asked_cold: bool = False
    resident_share: Share | None = None


class FlopCount(Frozen):
    """What the model's passes take, counted on the meta device without activation checkpointing.

    Attributes:
        forward, backward: Floating-point operations of one sample; a multiply-add is two.
        sample_bytes: What all operators of both passes read and write for each sample, as if
            nothing stayed in a cache and all were in fp32; ``None`` where it is not known.
        fixed_bytes: The same for each pass, whatever the batch: weights and their gradients.
        blocks_forward: The part of ``forward`` that the repeated blocks take: full activation
            checkpointing computes it again.
        attention_share: The part of both passes that grows with the square of a sample's length;
            counted only where samples have different lengths.
    """

    forward: NotNegative
    backward: NotNegative
    sample_bytes: Real | None = None
    fixed_bytes: Real | None = None
    blocks_forward: Real | None = None
    attention_share: Real | None = None


class RankRecord(RankIdentity):
    """Raw samples of one rank: ``rank-R.json``, written by the worker before it tears anything
    down.

    ``samples_per_step`` and ``tokens_per_step`` are the rank's share, also where several work on
    the same samples; ``parameters`` are of the whole model. ``parameters_equal`` is ``None`` where
    every rank has parts of its own. ``flops`` is rank 0's alone, ``flops_unknown`` says why they
    could not be counted. ``active_parameters`` are those that a token is computed with, of a model
    with experts; ``experts`` is rank 0's alone, too. ``documents`` stands for ``tokens_per_step``
    where samples have different lengths: those that the rank works on, also where several do.
    ``measured_from`` and ``measured_until`` are seconds since the epoch. What cannot be seen of a
    user's script is ``None``; ``samples_unknown`` says why its samples are.
    """

    schema_version: Count = SCHEMA_VERSION
    parameters: Count | None
    samples_per_step: PositiveCount | None
    tokens_per_step: Count | None
    setup: Setup | None
    warmup: Warmup
    batches: BatchTimes
    stop_rule: StopRule
    memory: MemoryUse
    host_load: HostLoad
    first_loss: Real | None
    last_loss: Real | None
    losses_finite: bool | None
    parameters_changed: bool | None
    parameters_equal: bool | None
    parameters_differing: str | None = None
    signals: RankSignals | None = None
    data: DataUse | None = None
    flops: FlopCount | None = None
    flops_unknown: str = ""
    active_parameters: Count | None = None
    experts: ExpertUse | None = None
    documents: DocumentUse | None = None
    samples_unknown: str = ""
    measured_from: EpochSeconds | None = None
    measured_until: EpochSeconds | None = None
