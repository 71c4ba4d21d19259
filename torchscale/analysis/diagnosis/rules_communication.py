"""Rules about gradient synchronization."""

from __future__ import annotations

import numpy as np

from torchscale.analysis.diagnosis.rule import (
    BUCKET_BYTES,
    EARLIER,
    EXPOSED,
    EXPOSED_QUANTILES,
    LINK_RATE,
    PROBE,
    TRANSFER,
    Earlier,
    Judgement,
    rule,
    several_ranks,
    unsplit,
)
from torchscale.analysis.diagnosis.shared import (
    COST_FLOOR,
    high_if,
    per_step,
    percent,
)
from torchscale.analysis.diagnosis.signals import (
    MIN_COMPARED,
    LinkProbe,
    SignalOrigin,
    Signals,
    SignalSeries,
)
from torchscale.schema.profiles.finding import Confidence, Finding, FindingKind
from torchscale.util.units import format_byte_rate, format_bytes, format_percent, format_seconds

EXPOSED_FLOOR = 0.05
"""Share of the step. Chosen above :data:`COST_FLOOR`, since some exposed communication remains in
every run: the last bucket cannot overlap with anything."""
VARIANCE_FLOOR = 0.20
"""(p95 − p50) ÷ p50 of exposed synchronization (docs/diagnosis.md)."""
SMALL_BUCKET_BYTES = 1 << 20
"""DDP's own first bucket is 1 MiB (dist._DEFAULT_FIRST_BUCKET_BYTES); smaller buckets are
somebody's choice."""
MIN_BUCKETS = 4
"""Chosen: with fewer buckets there is little to merge."""
BUCKET_GAIN = 1.3
"""How much faster merged buckets must be when both are timed. Chosen to be beyond the scatter of
medians of a few all-reduces; 12 clean runs of docs/tested-on.md have none."""
SLOW_LINK_SHARE = 0.5
"""Share of the rated bandwidth. Chosen below the 70 % that
:mod:`torchscale.analysis.machine.link_verdict` expects of large messages, since gradients are
smaller ones."""
VERY_SLOW_LINK_SHARE = 0.3
"""Chosen: below this share protocol overhead and message size do not explain it, and the confidence
is high."""


@rule(FindingKind.SMALL_BUCKETS, BUCKET_BYTES, PROBE, TRANSFER, where=(several_ranks,))
def small_buckets(
    signals: Signals, buckets: tuple[int, ...], probe: LinkProbe, transfer: SignalSeries
) -> Judgement:
    """Gradients in pieces so small that latency decides, measured against larger ones."""
    typical = float(np.median(buckets))
    gain = probe.as_bucketed_seconds - probe.merged_seconds
    if len(buckets) < MIN_BUCKETS or typical >= SMALL_BUCKET_BYTES:
        return None
    if probe.as_bucketed_seconds < BUCKET_GAIN * probe.merged_seconds:
        return None
    cost = min(gain, float(signals.mean(transfer)))
    if cost < COST_FLOOR * signals.step_seconds:
        return None
    return Finding(
        kind=FindingKind.SMALL_BUCKETS,
        cost_percent=percent(cost, signals),
        cost_seconds=cost,
        confidence=Confidence.HIGH,
        summary=f"gradients go in {len(buckets)} buckets of {format_bytes(typical)} (median); the "
        f"same bytes in buckets of 25 MiB take {format_seconds(probe.merged_seconds)} instead of "
        f"{format_seconds(probe.as_bucketed_seconds)}",
        evidence=(
            f"both timed with nothing else running, {format_bytes(probe.payload_bytes)} of "
            "gradients",
            "exposed synchronization in training: "
            f"{format_seconds(float(signals.mean(transfer)))} a step",
        ),
        advice="raise bucket_cap_mb of DistributedDataParallel (its default is 25)",
    )


@rule(FindingKind.SLOW_LINK, PROBE, LINK_RATE, TRANSFER, where=(several_ranks,))
def slow_link(
    signals: Signals, probe: LinkProbe, rated: float, transfer: SignalSeries
) -> Judgement:
    """All-reduce with nothing else running, against what the link is rated at."""
    ranks = len(signals.ranks)
    reached = probe.payload_bytes * 2 * (ranks - 1) / ranks / probe.merged_seconds
    cost = float(signals.mean(transfer))
    if reached >= SLOW_LINK_SHARE * rated or cost < EXPOSED_FLOOR * signals.step_seconds:
        return None
    gain = cost * (1 - reached / rated)
    return Finding(
        kind=FindingKind.SLOW_LINK,
        cost_percent=percent(gain, signals),
        cost_seconds=gain,
        confidence=Confidence.HIGH if reached < VERY_SLOW_LINK_SHARE * rated else Confidence.MEDIUM,
        summary=f"all-reduce reaches {format_byte_rate(reached)} bus bandwidth; the link is rated "
        f"at {format_byte_rate(rated)}",
        evidence=(
            f"{format_bytes(probe.payload_bytes)} of gradients take "
            f"{format_seconds(probe.merged_seconds)} with nothing else running",
            f"exposed synchronization in training: {format_seconds(cost)} a step",
        ),
        advice="measure the link by itself (`iperf3`, `ib_write_bw`, nccl-tests); look for "
        "shaping, a wrong interface (NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME), negotiated speed, "
        "cables",
    )


@rule(FindingKind.EXPOSED_COMMUNICATION, TRANSFER, EARLIER, where=(several_ranks,))
def exposed_communication(signals: Signals, transfer: SignalSeries, earlier: Earlier) -> Judgement:
    """Communication that no compute hides, beyond what small buckets or a slow link explain."""
    cost = float(signals.mean(transfer))
    causes = (FindingKind.SMALL_BUCKETS, FindingKind.SLOW_LINK)
    cost -= sum(finding.cost_seconds for finding in earlier if finding.kind in causes)
    if cost < EXPOSED_FLOOR * signals.step_seconds:
        return None
    gradients = signals.origin is SignalOrigin.LAUNCH or signals.bucket_bytes is not None
    what = "synchronizing gradients" if gradients else "communication"
    evidence = [f"over {signals.steps} steps" if signals.steps else "over the whole recording"]
    if signals.overlap is not None:
        evidence.append(
            f"{format_percent(signals.overlap, 0)} of communication is hidden under compute"
        )
    overlap = (
        "have it start earlier, so that compute hides more of it (DistributedDataParallel: "
        "bucket_cap_mb; fully_shard: prefetching)"
    )
    if signals.experts is not None:
        what = "sending tokens to experts and synchronizing gradients"
        overlap = "spread experts over fewer devices, those of one node (ep: degree)"
    if signals.split_sequences:
        what = "gathering keys and values and synchronizing gradients"
        overlap = "split sequences over fewer devices, those of one node (cp: degree)"
    if signals.bucket_bytes is not None:
        overlap = "tune bucket_cap_mb so that more overlaps with the backward pass"
        total = format_bytes(float(sum(signals.bucket_bytes)))
        count = len(signals.bucket_bytes)
        evidence.append(f"{total} of gradients in {count} bucket{'s' * (count != 1)}")
    return Finding(
        kind=FindingKind.EXPOSED_COMMUNICATION,
        cost_percent=percent(cost, signals),
        cost_seconds=cost,
        confidence=high_if(signals.steps >= MIN_COMPARED and signals.trusted, Confidence.LOW),
        summary=f"{what} takes {per_step(cost, signals)} that no compute hides",
        evidence=tuple(evidence),
        advice="raise the batch size or accumulate gradients, send fewer bytes (bf16 gradients), "
        f"use a faster link, or {overlap}",
    )


@rule(FindingKind.EXPOSED_COMMUNICATION, EXPOSED, where=(unsplit,))
def unsplit_communication(signals: Signals, exposed: SignalSeries) -> Judgement:
    """Communication that no compute hides, of a rank that is not compared with the others."""
    cost = float(signals.mean(exposed))
    if cost < EXPOSED_FLOOR * signals.step_seconds:
        return None
    evidence = ["waiting for other ranks and transfer cannot be told apart here"]
    if signals.overlap is not None:
        evidence.append(
            f"{format_percent(signals.overlap, 0)} of communication is hidden under compute"
        )
    return Finding(
        kind=FindingKind.EXPOSED_COMMUNICATION,
        cost_percent=percent(cost, signals),
        cost_seconds=cost,
        confidence=Confidence.LOW,
        summary=f"communication takes {per_step(cost, signals)} that no compute hides",
        evidence=tuple(evidence),
        advice="record all ranks at the same time: a rank that is late makes the others wait, and "
        "looks the same on them as a slow link",
    )


@rule(FindingKind.SYNC_VARIANCE, EXPOSED_QUANTILES, EARLIER, where=(several_ranks,))
def sync_variance(signals: Signals, quantiles: tuple[float, float], earlier: Earlier) -> Judgement:
    """Transfers that vary from step to step, where nothing else explains it. A wait for a rank that
    is late is none of the link's."""
    p50, p95 = quantiles
    explained = (
        FindingKind.STRAGGLER,
        FindingKind.INTERMITTENT_STRAGGLER,
        FindingKind.LOAD_IMBALANCE,
        FindingKind.UNEVEN_LENGTHS,
        FindingKind.UNEVEN_STAGES,
        FindingKind.UNEVEN_MICRO_BATCHES,
        FindingKind.PAUSES,
        FindingKind.PERIODIC_WORK,
        FindingKind.INPUT_PIPELINE,
    )
    if any(finding.kind in explained for finding in earlier):
        return None
    if (
        p50 <= 0
        or (p95 - p50) / p50 <= VARIANCE_FLOOR
        or p50 <= EXPOSED_FLOOR * signals.step_seconds
    ):
        return None
    transfer = signals.exposed if signals.transfer is None else signals.transfer
    cost = 0.0 if transfer is None else max(0.0, float(signals.mean(transfer)) - p50)
    return Finding(
        kind=FindingKind.SYNC_VARIANCE,
        cost_percent=percent(cost, signals),
        cost_seconds=cost,
        confidence=Confidence.MEDIUM,
        summary=f"exposed synchronization takes {format_seconds(p50)} in the median step and "
        f"{format_seconds(p95)} in one of twenty",
        evidence=(
            f"(p95 − p50) ÷ p50 = {format_percent((p95 - p50) / p50, 0)}, over {signals.steps} "
            "steps",
        ),
        advice="look for traffic of others on the link, and for congestion",
    )
