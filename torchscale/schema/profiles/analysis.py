"""What was worked out from a recording: where time went, collectives, findings, one step as a
picture."""

from __future__ import annotations

from enum import Enum

from torchscale.schema.base import (
    SCHEMA_VERSION,
    Count,
    Frozen,
    Integer,
    Real,
)
from torchscale.schema.exports.base import PublishedDocument
from torchscale.schema.profiles.finding import Abstention, Confidence, Finding
from torchscale.schema.profiles.what_if import WhatIf


class WindowKind(str, Enum):
    """What part of a recording is analyzed."""

    STEPS = "steps"
    """The recorded steps, from the start of the first to the end of the last."""
    DEVICE_SPAN = "device_span"
    """Time from each rank's first to its last device span (on CPU: operator or collective)."""


class Window(Frozen):
    """What the shares are shares of.

    Attributes:
        kind: Steps, or from the first to the last span.
        steps: Recorded steps in the window; ``None`` without step annotations.
        seconds: Summed over ranks.
        first_step_left_out: The first step carries the skew of the profiler's start.
        confidence: Confidence of every share.
        reasons: Why it is not high.
    """

    kind: WindowKind
    steps: Count | None
    seconds: Real
    first_step_left_out: bool = False
    confidence: Confidence = Confidence.HIGH
    reasons: tuple[str, ...] = ()


class Idle(Frozen):
    """Seconds in which a rank neither computed nor communicated nor copied."""

    total_seconds: Real
    host_bound_seconds: Real | None
    input_seconds: Real | None
    other_seconds: Real | None


class RankBreakdown(Frozen):
    """Where the time of a rank's window went.

    Attributes:
        rank: Who.
        host: ``None`` where the recording does not say.
        source: The file.
        window_seconds: Length of its window.
        compute_seconds: Union of its compute spans.
        communication_seconds: Union of its communication.
        exposed_communication_seconds: The part of that which no compute hides: stall and transfer.
        overlap: Share of communication under compute; ``None`` without communication.
        sync_stall_seconds: Exposed waiting for ranks that arrive later.
        transfer_seconds: Exposed communication once all had arrived.
        copy_seconds: Union of its copies, device traces alone.
        exposed_copy_seconds: The part of that which neither compute nor communication hides;
            ``None`` in analyses of versions that did not measure it.
        idle: The rest, split.
        blame_percent: Share of all waiting for which it was the last to arrive; ``None`` without
            waiting.
        peak_memory_bytes: Most that was allocated at once; ``None`` unless allocations were
            recorded.
        arrives_late_seconds: Mean by which it comes after the first rank, over collectives.
    """

    rank: Count
    host: str | None
    source: str
    window_seconds: Real
    compute_seconds: Real
    communication_seconds: Real
    exposed_communication_seconds: Real
    overlap: Real | None
    sync_stall_seconds: Real | None
    transfer_seconds: Real | None
    copy_seconds: Real | None
    idle: Idle
    blame_percent: Real | None = None
    arrives_late_seconds: Real | None = None
    exposed_copy_seconds: Real | None = None
    peak_memory_bytes: Count | None = None


class CollectiveSummary(Frozen):
    """All collectives of one operation, group and size, over the window.

    Attributes:
        op: ``all_reduce`` …
        group: Process group; empty where the recording has none.
        payload_bytes: Payload as nccl-tests counts it; ``None`` where the recording does not have
            it.
        count: How many, over the group.
        mean_seconds: Mean duration over ranks.
        wait_seconds: Mean wait over collectives and ranks; ``None`` where they could not be paired.
        transfer_seconds: Mean transfer over collectives and ranks; ``None`` where they could not be
            paired.
        bus_bytes_per_second: Bus bandwidth from the transfer time; ``None`` without size, pairing
            or factor.
        last_rank: The rank that arrived last most often.
        last_percent: Percentage of them in which it arrived last.
    """

    op: str
    group: str
    payload_bytes: Count | None
    count: Count
    mean_seconds: Real
    wait_seconds: Real | None = None
    transfer_seconds: Real | None = None
    bus_bytes_per_second: Real | None = None
    last_rank: Count | None = None
    last_percent: Real | None = None


class KernelSummary(Frozen):
    """A kernel, or on CPU an operator, with its time summed over ranks."""

    name: str
    count: Count
    seconds: Real
    percent_of_compute: Real


class TimelineBar(Frozen):
    """A stretch of one kind; seconds since the step's start."""

    kind: str
    start: Real
    end: Real


class TimelineRank(Frozen):
    """The bars of one rank within the worst step."""

    rank: Count
    bars: tuple[TimelineBar, ...]


class Timeline(Frozen):
    """The step with the longest time, all ranks on one clock. ``step`` is ``None`` where there are
    no steps."""

    step: Count | None
    seconds: Real
    ranks: tuple[TimelineRank, ...]


class StepExcess(Frozen):
    """How much longer ranks compute in steps than ranks of equal work.

    Attributes:
        ranks: Those that differ most, and others evenly over all.
        steps: Number of the first step of each column.
        percent: By rank and column: the most by which a step of the column is longer than the
            median.
    """

    ranks: tuple[Count, ...]
    steps: tuple[Count, ...]
    percent: tuple[tuple[Integer, ...], ...]


class ProfileAnalysis(Frozen):
    """``analysis.json``.

    Attributes:
        recorder: ``nsys`` or ``torch.profiler``.
        sources: Files, by rank.
        sync_stall_percent: Waiting for later ranks that no compute hides, as a share of the window;
            ``None`` where ranks could not be compared.
        window: What it is a share of.
        per_rank: One a rank.
        collectives: The costliest first.
        kernels: The costliest first.
        step_seconds: Mean over steps of the group's step (its slowest rank).
        findings, abstentions: The diagnosis.
        timeline: The worst step; ``None`` where there is nothing to draw.
        notes: What to know of the recording.
        what_if: What the step would be without its faults; ``None`` in analyses of versions that
            did not predict it.
        step_excess: Of very many ranks, how much longer they compute in each step; else ``None``.
    """

    schema_version: Count = SCHEMA_VERSION
    recorder: str
    sources: tuple[str, ...]
    world_size: Count
    sync_stall_percent: Real | None
    window: Window
    step_seconds: Real | None
    per_rank: tuple[RankBreakdown, ...]
    collectives: tuple[CollectiveSummary, ...]
    kernels: tuple[KernelSummary, ...]
    findings: tuple[Finding, ...]
    abstentions: tuple[Abstention, ...]
    timeline: Timeline | None = None
    notes: tuple[str, ...] = ()
    what_if: WhatIf | None = None
    step_excess: StepExcess | None = None


DOCUMENT = PublishedDocument(
    ProfileAnalysis,
    SCHEMA_VERSION,
    "torchscale profile",
    "A recording analyzed: `torchscale profile --json`, `torchscale profile analyze --json`, "
    "`analysis.json`.",
)
