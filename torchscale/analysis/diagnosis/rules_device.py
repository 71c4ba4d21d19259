"""Rules about the device and its host."""

from __future__ import annotations

from torchscale.analysis.diagnosis.rule import (
    FETCHED_MEMORY,
    HOST_BOUND,
    MEMORY_COUNTS,
    READBACK_WAIT,
    READBACKS,
    THROTTLED,
    Judgement,
    in_host_memory,
    rule,
)
from torchscale.analysis.diagnosis.shared import (
    COST_FLOOR,
    high_if,
    per_step,
    percent,
)
from torchscale.analysis.diagnosis.signals import (
    MIN_COMPARED,
    FetchedMemory,
    Signals,
    SignalSeries,
)
from torchscale.schema.profiles.finding import Confidence, Finding, FindingKind
from torchscale.util.units import format_seconds

HOST_FLOOR = 0.10
"""Share of the step that the device idles on every rank. Chosen: gaps of a few per cent between
kernels are ordinary in eager training."""
_MAX_SHOWN_RANKS = 16
"""Ranks whose values are listed as evidence; a report of a thousand ranks stays readable."""
KEEPING = "MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=1099511627776"
"""Makes glibc keep what a program frees."""
_ALLOCATOR_ADVICE = {
    "system": f"set `launch.malloc: keep`, the default; for your own programs export {KEEPING}",
    "environment": f"remove the variables MALLOC_* and GLIBC_TUNABLES, or set {KEEPING}",
    "keep": "glibc keeps what is freed, so something else maps memory in every step: look for "
    "mmap, shared memory and arrays read through files",
    None: "make the allocator keep freed memory (jemalloc: MALLOC_CONF=dirty_decay_ms:-1), or use "
    "glibc's",
}
"""Advice by the allocator's setting."""


@rule(FindingKind.HOST_BOUND, HOST_BOUND)
def host_bound(signals: Signals, idle: SignalSeries) -> Judgement:
    """The device waits for work on every rank; one rank that waits more is a straggler."""
    cost = float(idle.min())
    if cost < HOST_FLOOR * signals.step_seconds:
        return None
    return Finding(
        kind=FindingKind.HOST_BOUND,
        cost_percent=percent(cost, signals),
        cost_seconds=cost,
        confidence=high_if(signals.steps >= MIN_COMPARED, Confidence.LOW),
        summary=f"the device has nothing to do for {per_step(cost, signals)} because the host "
        "hands out work late"
        if signals.on_device
        else f"{per_step(cost, signals)} go to host work between operators",
        evidence=(
            f"by rank: {', '.join(format_seconds(float(value)) for value in idle[:_MAX_SHOWN_RANKS])}",
        ),
        advice="move Python work out of the step (logging, metrics, checks), use torch.compile"
        + (" or CUDA graphs" if signals.on_device else "")
        + ", fused optimizers, larger batches",
    )


@rule(FindingKind.HOST_SYNC, READBACKS, READBACK_WAIT)
def host_sync(signals: Signals, count: float, cost: float) -> Judgement:
    """Values read back inside the step, after which the device runs dry."""
    if count < 1 or cost < COST_FLOOR * signals.step_seconds:
        return None
    return Finding(
        kind=FindingKind.HOST_SYNC,
        cost_percent=percent(cost, signals),
        cost_seconds=cost,
        confidence=Confidence.MEDIUM,
        summary=f"the step reads values back from the device {count:.0f} times (.item(), bool(), "
        "printing a tensor); "
        f"the device then idles {format_seconds(cost)} a step",
        evidence=(f"over {signals.steps} steps",),
        advice="read losses and metrics every many steps, after the step; keep decisions on the "
        "device",
    )


@rule(FindingKind.THROTTLING, THROTTLED)
def throttling(signals: Signals, throttled: tuple[tuple[str, ...], ...]) -> Judgement:
    """Lowered clocks, with the driver's reasons."""
    hit = [
        (rank, reasons) for rank, reasons in zip(signals.ranks, throttled, strict=True) if reasons
    ]
    if not hit:
        return None
    return Finding(
        kind=FindingKind.THROTTLING,
        rank=hit[0][0] if len(hit) == 1 else None,
        cost_percent=0.0,
        cost_seconds=0.0,
        confidence=Confidence.HIGH,
        summary="clocks were lowered while it was measured: "
        + "; ".join(
            f"rank {rank}: {', '.join(reasons)}" for rank, reasons in hit[:_MAX_SHOWN_RANKS]
        ),
        evidence=(
            "the driver's reasons, read between batches; its cost cannot be derived from it",
        ),
        advice="check cooling, power limits and the fans; `nvidia-smi -q -d "
        "PERFORMANCE,TEMPERATURE,POWER`",
    )


@rule(FindingKind.MEMORY_PRESSURE, MEMORY_COUNTS)
def memory_pressure(_: Signals, counts: tuple[int | None, float | None]) -> Judgement:
    """Memory that ran short."""
    retries, faults = counts
    if not retries and (faults is None or faults < 1):
        return None
    what = (
        f"the allocator emptied its cache and tried again {retries} times"
        if retries
        else f"{faults:.0f} pages a step came back from disk"
    )
    return Finding(
        kind=FindingKind.MEMORY_PRESSURE,
        cost_percent=0.0,
        cost_seconds=0.0,
        confidence=Confidence.HIGH,
        summary=f"memory ran short: {what}",
        evidence=("counted while measuring; its cost cannot be derived from it",),
        advice="lower the batch size, checkpoint activations, or set "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
        if retries
        else "free memory on the host, or lower the batch size",
    )


@rule(FindingKind.MEMORY_RETURNED, FETCHED_MEMORY, where=(in_host_memory,))
def memory_returned(signals: Signals, fetched: FetchedMemory) -> Judgement:
    """The host's allocator returns what a step frees, and the next step takes it from the kernel
    again."""
    cost = fetched.seconds_per_step
    if cost < COST_FLOOR * signals.step_seconds:
        return None
    return Finding(
        kind=FindingKind.MEMORY_RETURNED,
        cost_percent=percent(cost, signals),
        cost_seconds=cost,
        confidence=high_if(signals.steps >= MIN_COMPARED, Confidence.LOW),
        summary=f"the allocator returns what a step frees: {fetched.pages_per_step:,.0f} minor "
        f"page faults a step on rank {fetched.rank} cost at least {format_seconds(cost)}",
        evidence=(
            "median over batches, without the pages by which the process grows",
            "cost of a fault: measured in the same process after the steps",
        ),
        advice=_ALLOCATOR_ADVICE[fetched.setting],
    )
