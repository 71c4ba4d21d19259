"""Rules about copies by the device."""

from __future__ import annotations

from torchscale.analysis.diagnosis.rule import (
    COPIES,
    EARLIER,
    PAGEABLE,
    Earlier,
    Judgement,
    rule,
)
from torchscale.analysis.diagnosis.shared import (
    COST_FLOOR,
    high_if,
    per_step,
    percent,
)
from torchscale.analysis.diagnosis.signals import MIN_COMPARED, CopyRoute, CopyUse, Signals
from torchscale.schema.profiles.finding import Confidence, Finding, FindingKind
from torchscale.util.units import format_byte_rate, format_bytes, format_percent

_ADVICE = {
    CopyRoute.HOST_TO_DEVICE: "copy the next batch on a stream of its own while this step "
    "computes (prefetch, pinned memory, non_blocking=True), keep on the device what does not "
    "change, copy smaller types; take back an offload of parameters or optimizer state that does "
    "not need to be",
    CopyRoute.DEVICE_TO_HOST: "keep activations, optimizer state and outputs on the device, or "
    "copy them on a stream of their own into pinned memory (non_blocking=True) while the next step "
    "computes",
    CopyRoute.WITHIN_DEVICE: "avoid clone(), contiguous() and copies between buffers: write into "
    "preallocated ones, fuse (torch.compile), keep one memory format",
    CopyRoute.BETWEEN_DEVICES: "compute where the data is, overlap these copies with compute, and "
    "see that devices reach each other directly: nvidia-smi topo -p2p r",
    CopyRoute.OTHER: "see in a timeline what is copied, and whether it can wait or run beside "
    "compute",
}
"""Advice by the route that costs most."""


@rule(FindingKind.PAGEABLE_COPIES, PAGEABLE)
def pageable_copies(signals: Signals, cost: float) -> Judgement:
    """Copies of memory that is not pinned, outside compute."""
    if cost < COST_FLOOR * signals.step_seconds:
        return None
    return Finding(
        kind=FindingKind.PAGEABLE_COPIES,
        cost_percent=percent(cost, signals),
        cost_seconds=cost,
        confidence=Confidence.HIGH,
        summary=f"copies from memory that is not pinned take {per_step(cost, signals)} outside "
        "compute",
        evidence=("the recording names the memory of each copy",),
        advice="pin_memory=True in the DataLoader and non_blocking=True in .to()",
    )


@rule(FindingKind.COPY_BOUND, COPIES, EARLIER)
def copy_bound(signals: Signals, copies: tuple[CopyUse, ...], earlier: Earlier) -> Judgement:
    """Copies during which nothing is computed or communicated; without those of memory that is not
    pinned, where a finding before says what they cost."""
    told = sum(
        finding.cost_seconds for finding in earlier if finding.kind is FindingKind.PAGEABLE_COPIES
    )
    cost = sum(use.exposed_seconds for use in copies) - told
    if not copies or cost < COST_FLOOR * signals.step_seconds:
        return None
    costliest = next((use for use in copies if not told or use.is_pinned is not False), copies[0])
    busy = sum(use.busy_seconds for use in copies) / signals.step_seconds
    return Finding(
        kind=FindingKind.COPY_BOUND,
        cost_percent=percent(cost, signals),
        cost_seconds=cost,
        confidence=high_if(signals.steps >= MIN_COMPARED, Confidence.MEDIUM),
        summary=f"the device copies for {per_step(cost, signals)} without computing or "
        f"communicating, most of it {costliest.route.value}",
        evidence=(
            *(_evidence(use, signals) for use in copies),
            f"copies run {format_percent(busy)} of the time",
        ),
        advice=_ADVICE[costliest.route],
    )


def _evidence(use: CopyUse, signals: Signals) -> str:
    """``host to device: 1.20 GiB a step at 24 GB/s, pinned, 3 % of it under compute``."""
    parts = []
    if use.bytes_per_step is not None:
        rate = (
            "" if use.bytes_per_second is None else f" at {format_byte_rate(use.bytes_per_second)}"
        )
        every = " a step" if signals.steps else ""
        parts.append(f"{format_bytes(round(use.bytes_per_step))}{every}{rate}")
    parts.append(per_step(use.busy_seconds, signals))
    if use.is_pinned is not None:
        parts.append("pinned" if use.is_pinned else "not pinned")
    parts.append(f"{format_percent(use.overlap, 0)} of it under compute")
    return f"{use.route.value}: {', '.join(parts)}"
