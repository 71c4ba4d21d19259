"""What the rules of the diagnosis look at, wherever it was measured: the always-on signals, or a
recording."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from torchscale.schema.exports.experts import HotExpert

SignalSeries = NDArray[np.float64]
"""One value per sample; a sample is a batch of steps (always-on signals) or a step (recordings)."""
Matrix = NDArray[np.float64]
"""Rows are ranks, columns samples."""


MIN_COMPARED = 20
"""Steps or collectives below which no share of them is judged: of 20 fair coin flips one side gets
15 or more in 4 % of cases, of fewer flips more often."""


class SignalOrigin(Enum):
    """Where signals come from."""

    LAUNCH = "always-on signals"
    JOB = "watched job"
    LENGTHS = "watched job, by the lengths of its collectives"
    TRACE = "recording"


@dataclass(frozen=True)
class LinkProbe:
    """All-reduces of the gradients with nothing else running: in the buckets that training uses,
    and in buckets of 25 MiB."""

    payload_bytes: int
    as_bucketed_seconds: float
    merged_seconds: float


@dataclass(frozen=True)
class Pauses:
    """Rare long steps of each rank: those over 1.5 times its median, where they are at most a tenth
    of its steps.

    Attributes:
        count: Number of pauses, per rank; 0 where they are not rare.
        seconds_per_step: What they exceed the median by, per step, for the rank with most.
        collection_seconds_per_step: Python's garbage collection, for the rank with most; ``None``
            if not measured.
        by_rank: ``seconds_per_step`` of each rank; ``None`` if not recorded.
    """

    count: tuple[int, ...]
    seconds_per_step: float
    collection_seconds_per_step: float | None
    by_rank: tuple[float, ...] | None = None


@dataclass(frozen=True)
class SlowPeriod:
    """Steps that are long again and again.

    Attributes:
        row: Of the rank; ``None`` where all ranks are slow together.
        steps: From one time to the next.
        excess: Seconds by which such a step is longer; a rank's than that of the others.
        cost: Seconds a step that all lose by it, mean over all steps.
        times: How often it came.
        length: Steps that one time takes.
        is_exact: Whether it comes in exactly so many steps.
        first: Step in which it came first; ``None`` where it came from the beginning.
        slow: Which steps are long, from step 0 on; ``None`` in what a record holds.
    """

    row: int | None
    steps: int
    excess: float
    cost: float
    times: int
    length: int = 1
    is_exact: bool = True
    first: int | None = None
    slow: NDArray[np.bool_] | None = None


@dataclass(frozen=True)
class Windows:
    """Stretches of consecutive steps, without pauses; seconds per step.

    Attributes:
        steps: Number of steps of each window.
        wall: Mean step of each window.
        compute: Compute per rank and window.
        quiet: The part of ``compute`` that no communication disturbs; ``None`` where that is not
            known.
    """

    steps: SignalSeries
    wall: SignalSeries
    compute: Matrix
    quiet: Matrix | None = None

    def __len__(self) -> int:
        return len(self.steps)

    def of(self, rows: Sequence[int]) -> Windows:
        """The windows of the ranks in ``rows``."""
        chosen = list(rows)
        windows = replace(self, compute=self.compute[chosen])
        if self.quiet is None:
            return windows
        return replace(windows, quiet=self.quiet[chosen])


@dataclass(frozen=True)
class FetchedMemory:
    """Memory that every step takes from the kernel anew, for the rank that loses most by it.

    Attributes:
        rank: The rank that loses most.
        pages_per_step: Pages fetched, without those by which the process grew.
        seconds_per_step: At least this long: pages times the cost of the smallest page, and at most
            the time that the rank spent in the kernel.
        setting: Setting of glibc's allocator
            (:class:`~torchscale.schema.node.environment.HostAllocator`); ``None`` for other
            allocators.
    """

    rank: int
    pages_per_step: float
    seconds_per_step: float
    setting: str | None = None


@dataclass(frozen=True)
class DeviceUse:
    """How busy the ranks' devices were, as their driver says.

    Attributes:
        busy: Share of the time in which each rank's device ran a kernel, mean over readings.
        readings: Number of readings of each device.
    """

    busy: tuple[float, ...]
    readings: int


@dataclass(frozen=True)
class MicroBatchLengths:
    """How long the micro-batches of a pipeline's steps compute beside each other.

    Attributes:
        relative: Lengths by place in the step, over the mean of the step's micro-batches; mean over
            steps.
        longest: The longest of a step over the mean of its micro-batches; mean over steps.
        shared_variance: Variance, in each step, of the relative lengths on which the stages agree.
            What a single stage shows is noise, or that stage's.
        seconds: Both passes of a micro-batch on a stage, mean.
    """

    relative: SignalSeries
    longest: float
    shared_variance: SignalSeries
    seconds: float


@dataclass(frozen=True)
class ExpertLoad:
    """What the experts on each rank compute, where experts are spread over ranks.

    Attributes:
        tokens: Tokens per step, per rank and sample.
        seconds: What they take, per rank and sample.
        uneven_tokens: Tokens by which the rank with most exceeds an even share, added up over
            layers: ranks wait for each other in each layer. Per rank, in the layers in which it is
            the one with most.
        hottest: Per rank, its experts with most tokens, the hottest first.
    """

    tokens: Matrix
    seconds: Matrix
    uneven_tokens: SignalSeries
    hottest: tuple[tuple[HotExpert, ...], ...]


@dataclass(frozen=True)
class LengthLoad:
    """What ranks compute where samples have different lengths.

    Attributes:
        wait_seconds: Seconds a step by which the rank with the longest samples of the step exceeds
            the mean of all.
        tokens: Tokens of a step with padding, per rank.
    """

    wait_seconds: float
    tokens: tuple[float, ...]


class CopyRoute(str, Enum):
    """The memories between which a device copies."""

    HOST_TO_DEVICE = "host to device"
    DEVICE_TO_HOST = "device to host"
    WITHIN_DEVICE = "within the device"
    BETWEEN_DEVICES = "between devices"
    OTHER = "other"


@dataclass(frozen=True)
class CopyUse:
    """Copies of one route, mean over ranks; per step, or in all where no steps are marked.

    Attributes:
        route: The memories between which it copies.
        bytes_per_step: ``None`` where the recording does not say.
        bytes_per_second: While copying, each copy by itself.
        busy_seconds: Seconds in which at least one runs.
        exposed_seconds: The part of these under neither compute nor communication.
        overlap: Share of ``busy_seconds`` under compute.
        is_pinned: Whether the host's memory is; ``None`` where it is not known, differs, or none is
            used.
    """

    route: CopyRoute
    bytes_per_step: float | None
    bytes_per_second: float | None
    busy_seconds: float
    exposed_seconds: float
    overlap: float
    is_pinned: bool | None


@dataclass(frozen=True)
class Signals:
    """Everything that a rule may ask for; ``None`` was not measured, and rules that need it
    abstain.

    Times are seconds per step.

    Attributes:
        origin: Signals or recording.
        ranks: Global ranks, in the order of rows.
        job_ranks: How many ranks the job has, where a recording says so.
        step_seconds: The group's mean step.
        steps: Number of steps that the means are over.
        collectives: How many were compared; ``None`` for the always-on signals, which go by steps.
        weights: What each sample counts in a mean, for instance its steps; ``None`` where all count
            the same.
        compute: Time that a rank neither waits (for other ranks, for data) nor synchronizes
            gradients.
        unsynchronized: Compute that communication does not disturb. Always-on signals: forward and
            backward of steps without gradient synchronization, measured in separate windows.
            Recordings on CPUs: ``compute`` without what ran during a transfer; on devices ``None``.
        data_wait: Waiting for data.
        wait: Waiting for ranks that arrive later at the gradient synchronization.
        estimated_share: Of all ``wait``: what is an estimate.
        blame: Share of all waiting for which each rank was the last to arrive; sums to 1, or all 0.
        transfer: Gradient synchronization that no compute hides, once all have arrived; mean over
            ranks.
        exposed: Communication that no compute hides, where waiting and transfer cannot be told
            apart; mean over ranks.
        exposed_p50, exposed_p95: Quantiles over steps of the transfer; of waiting and transfer
            where the two cannot be told apart. Mean over ranks.
        overlap: Share of communication under compute.
        bucket_bytes: Gradient buckets of a step.
        probe: All-reduces timed with nothing else running.
        link_bytes_per_second: What the link is rated at.
        pauses: Rare long steps.
        windows: Stretches of consecutive steps.
        periods: What comes back every so many steps: the rank's that costs most by it, or that of
            all; none where single steps are not known.
        other_processes: Share of each rank's cores that other processes used.
        host_bound: The device idle because the host launches late; on CPU, time between operators.
        busy: Time in kernels, or on CPU in operators; recordings alone tell it from the rest of
            ``compute``.
        readbacks: Values read back from the device, per step.
        readback_wait: The host's waiting for them.
        pageable: Copies from or to memory that is not pinned, outside compute.
        copies: Copies by the device, by route; ``None`` for ranks without one.
        throttled: Names of the reasons for lowered clocks, per rank.
        allocation_retries: Retries of the device's allocator while measuring, summed over ranks.
        page_faults: Pages read back from disk per step, for the rank with most.
        fetched_memory: Memory fetched anew in each step: on CPUs alone, where the host's memory
            holds the tensors.
        device_use: How busy the ranks' devices were.
        on_device: Whether the work runs on a device beside the host.
        experts: What the experts on each rank compute; ``None`` where experts are not spread over
            ranks. ``compute`` and ``windows`` are then as if the experts of all ranks took as long.
        split_sequences: Whether ranks have parts of the same sequences, and gather each other's
            keys and values.
        lengths: Where samples have different lengths; ``None`` elsewhere. ``compute``, ``windows``
            and ``pauses`` are then as if all steps of all ranks had the mean load.
        staged: Whether ranks send to and receive from each other, as the stages of a pipeline do:
            they hold different work and wait for one another by design.
        stages: Rows of the ranks of each stage, in the order of the pipeline: ranks of a stage hold
            equal work; ``None`` where ``staged`` is false, or which ranks belong together is not
            known.
        why_no_stages: What is missing to know the stages, where they are not known.
        micro_batches: Number of micro-batches that pass through the pipeline in a step; ``None``
            where it is not known.
        micro_batch_lengths: How long each of them computes.
        trusted: Whether the recording is good enough to name a rank.
        hosts: Machine of each rank, in the order of rows.
    """

    origin: SignalOrigin
    ranks: tuple[int, ...]
    step_seconds: float
    steps: int
    collectives: int | None = None
    weights: SignalSeries | None = None
    compute: Matrix | None = None
    unsynchronized: tuple[SignalSeries, ...] | None = None
    data_wait: Matrix | None = None
    wait: Matrix | None = None
    estimated_share: float = 0.0
    blame: SignalSeries | None = None
    transfer: SignalSeries | None = None
    exposed: SignalSeries | None = None
    exposed_p50: float | None = None
    exposed_p95: float | None = None
    overlap: float | None = None
    bucket_bytes: tuple[int, ...] | None = None
    probe: LinkProbe | None = None
    link_bytes_per_second: float | None = None
    pauses: Pauses | None = None
    windows: Windows | None = None
    periods: tuple[SlowPeriod, ...] = ()
    other_processes: SignalSeries | None = None
    host_bound: SignalSeries | None = None
    busy: SignalSeries | None = None
    readbacks: float | None = None
    readback_wait: float | None = None
    pageable: float | None = None
    copies: tuple[CopyUse, ...] | None = None
    throttled: tuple[tuple[str, ...], ...] | None = None
    allocation_retries: int | None = None
    page_faults: float | None = None
    fetched_memory: FetchedMemory | None = None
    device_use: DeviceUse | None = None
    on_device: bool = True
    staged: bool = False
    stages: tuple[tuple[int, ...], ...] | None = None
    why_no_stages: str = ""
    micro_batches: int | None = None
    micro_batch_lengths: MicroBatchLengths | None = None
    trusted: bool = True
    hosts: tuple[str, ...] | None = None
    experts: ExpertLoad | None = None
    split_sequences: bool = False
    lengths: LengthLoad | None = None
    job_ranks: int | None = None

    @property
    def is_alone(self) -> bool:
        """Whether one rank of several is here: there is nobody to compare it with."""
        return len(self.ranks) == 1 and (self.job_ranks or 1) > 1

    def mean(self, values: Matrix | SignalSeries) -> SignalSeries:
        """Mean over samples, of each rank where ``values`` has a row for each: seconds per step."""
        if self.weights is None:
            return np.asarray(values.mean(axis=-1))
        return np.asarray(
            values @ self.weights / self.weights.sum()
        )  # np.average takes five times as long
