"""What the diagnosis needs beside step times: the signals of a rank, and a digest of all ranks'
steps."""

from __future__ import annotations

from torchscale.schema.base import (
    Count,
    Frozen,
    Integer,
    NotNegative,
    PositiveCount,
    Real,
    RoundedShare,
    Seconds,
)

MERGED_BYTES = 25 << 20
"""DDP's default bucket size, which is large enough for the bandwidth of common links."""


class LinkSample(Frozen):
    """All-reduces timed with nothing else under way; medians over ``repeats``.

    Attributes:
        payload_bytes: Gradients of a step.
        as_bucketed_seconds: Seconds in the buckets that training uses.
        merged_seconds: Seconds in buckets of :data:`MERGED_BYTES`.
        repeats: How often each was timed.
        interface: The network interface, where it is known.
        rated_bytes_per_second: What its driver says it is rated at.
    """

    payload_bytes: Count
    as_bucketed_seconds: Seconds
    merged_seconds: Seconds
    repeats: Count
    interface: str | None = None
    rated_bytes_per_second: Real | None = None


class MinorFaults(Frozen):
    """Pages that the kernel handed out to a rank while it measured.

    Attributes:
        per_step: Number of them, the median over batches.
        grown_pages_per_step: Pages by which resident memory grew: those stay, and are not fetched
            again.
        seconds_each: Seconds for the fault of a page of the smallest size, measured in the same
            process after the steps.
        kernel_seconds_per_step: All time that the rank spent in the kernel.
    """

    per_step: NotNegative
    grown_pages_per_step: NotNegative
    seconds_each: Seconds
    kernel_seconds_per_step: Seconds


class RankSignals(Frozen):
    """What a rank noticed beside its steps, for the diagnosis. ``None`` was not measured.

    Attributes:
        unsynchronized_seconds: Forward and backward of steps without gradient sync, in windows
            before and after the measurement.
        unsynchronized_wall_seconds: What those windows took, with all they discard; none of it
            counts in throughput.
        bucket_bytes: Gradients of a step as they were sent.
        bucket_ready_seconds: When each bucket of a step is ready, after the first; only of runs on
            CPUs that exchange nothing.
        link: The link alone.
        collections: Garbage collections while measuring.
        collection_seconds: What they took.
        longest_collection_seconds: The longest of them.
        page_faults: Pages read back from disk while measuring.
        minor_faults: Pages that came from the kernel without a disk.
        allocation_retries: Retries of the CUDA allocator.
        throttle_reasons: What the driver gave between batches.
    """

    unsynchronized_seconds: tuple[Seconds, ...] | None = None
    unsynchronized_wall_seconds: Seconds | None = None
    bucket_bytes: tuple[Count, ...] | None = None
    bucket_ready_seconds: tuple[Seconds, ...] | None = None
    link: LinkSample | None = None
    collections: Count
    collection_seconds: Seconds
    longest_collection_seconds: Seconds
    page_faults: Count
    minor_faults: MinorFaults | None = None
    allocation_retries: Count | None = None
    throttle_reasons: tuple[str, ...] | None = None


class StepWindows(Frozen):
    """The steps of a measurement in stretches of some consecutive steps, without pauses, to see
    what comes and goes. Whole microseconds: a step takes milliseconds, and a record of many ranks
    stays small.

    Attributes:
        steps: Number of steps of each window.
        wall_us: Mean step of each window, all phases; mean over ranks.
        compute_us: Per rank and window: mean compute of a step (in a pipeline without the
            optimizer).
        quiet_us: Per rank and window: what of it no communication disturbs, forward pass and
            optimizer (in a pipeline the forward pass).
    """

    steps: tuple[PositiveCount, ...]
    wall_us: tuple[Count, ...]
    compute_us: tuple[tuple[Integer, ...], ...]
    quiet_us: tuple[tuple[Integer, ...], ...]


class PeriodDigest(Frozen):
    """Steps that are long again and again.

    Attributes:
        rank: Place of the rank; ``None`` where all ranks are slow together.
        steps: From one time to the next.
        excess_seconds: By which such a step is longer; a rank's than that of the others.
        cost_seconds: What all lose by it, per step.
        times: How often it came.
        length: Steps that one time takes.
        is_exact: Whether it comes in exactly so many steps.
        first_step: In which it came first; ``None`` where it came from the beginning.
    """

    rank: Count | None
    steps: PositiveCount
    excess_seconds: Seconds
    cost_seconds: Seconds
    times: PositiveCount
    length: PositiveCount = 1
    is_exact: bool = True
    first_step: Count | None = None


class SignalDigest(Frozen):
    """The steps of all ranks as the diagnosis needs them. Series are means per step over each
    batch; seconds.

    Attributes:
        compute: Per rank and batch: forward, backward, optimizer.
        data_wait: Per rank and batch.
        wait: Per rank and batch: exposed sync beyond that of the step's last rank, which waited for
            nobody.
        transfer: Per batch: exposed sync of the step's last rank.
        blame: Per rank: share of all waiting for which it was the last to arrive; sums to 1, or all
            0.
        exposed_p50, exposed_p95: Quantiles of ``transfer`` over single steps.
        long_steps: Per rank: steps over 1.5 times its median, where they are rare.
        long_step_seconds: What they exceed the median by, per step, for the rank with most.
        long_step_seconds_by_rank: The same for each rank; ``None`` in older records.
        windows: The steps in stretches; ``None`` for fewer than 20 steps, and in older records.
            Of models with experts: as if those of all ranks took as long.
        periods: What comes back every so many steps, of single steps.
        expert_tokens_per_rank: Per rank and batch: tokens that a rank's experts computed; ``None`` for
            models without experts.
        expert_seconds: Per rank and batch: what they took.
        length_seconds: Per rank and batch: what of ``compute`` its samples take by their lengths,
            beyond those of the mean load; ``None`` where samples have one length. Windows and long
            steps are then as if all steps had the mean load.
        length_wait_seconds: What ranks wait for the one whose samples are longest in a step.
        computed_tokens_per_rank: Per rank: tokens of a step, with padding.
    """

    compute: tuple[tuple[Real, ...], ...]
    data_wait: tuple[tuple[Real, ...], ...]
    wait: tuple[tuple[Real, ...], ...] | None = None
    transfer: tuple[Real, ...] | None = None
    blame: tuple[RoundedShare, ...] | None = None
    exposed_p50: Real | None = None
    exposed_p95: Real | None = None
    long_steps: tuple[Count, ...] | None = None
    long_step_seconds: Real | None = None
    long_step_seconds_by_rank: tuple[Real, ...] | None = None
    windows: StepWindows | None = None
    periods: tuple[PeriodDigest, ...] = ()
    expert_tokens_per_rank: tuple[tuple[NotNegative, ...], ...] | None = None
    expert_seconds: tuple[tuple[Seconds, ...], ...] | None = None
    length_seconds: tuple[tuple[Real, ...], ...] | None = None
    length_wait_seconds: Seconds | None = None
    computed_tokens_per_rank: tuple[NotNegative, ...] | None = None
