"""The rule about devices that run nothing."""

from __future__ import annotations

from torchscale.analysis.diagnosis.rule import (
    DEVICE_USE,
    EARLIER,
    Earlier,
    Judgement,
    is_read,
    rule,
)
from torchscale.analysis.diagnosis.shared import EXPLAINED_SHARE, high_if, percent
from torchscale.analysis.diagnosis.signals import MIN_COMPARED, DeviceUse, Signals
from torchscale.schema.profiles.finding import Confidence, Finding, FindingKind
from torchscale.util.units import format_whole_percent
from torchscale.util.words import format_range

MOSTLY_IDLE = 0.5
"""Chosen: a GPU that computes half of the time can be twice as fast. Tiny models on an H200 were at
0.11 to 0.13, where the batch size changed nothing in the length of a step."""
MIN_READINGS = 5
"""Readings come about once a second, and each is of a window of the driver's own, up to a second
long: the first and the last may be of what was before or after the steps, and of three that is
most."""


@rule(FindingKind.IDLE_DEVICE, DEVICE_USE, EARLIER, where=(is_read,))
def idle_device(signals: Signals, use: DeviceUse, earlier: Earlier) -> Judgement:
    """Devices that run nothing for most of the time on every rank. A device that idles more than
    the others is what other rules look for. A finding that costs half of the idle time or more
    explains it."""
    if use.readings < MIN_READINGS:
        return f"fewer than {MIN_READINGS} readings of how busy each rank's device is"
    idle = 1.0 - max(use.busy)
    cost = idle * signals.step_seconds
    explained = max((finding.cost_seconds for finding in earlier), default=0.0)
    if idle <= MOSTLY_IDLE or explained >= EXPLAINED_SHARE * cost:
        return None
    return Finding(
        kind=FindingKind.IDLE_DEVICE,
        cost_percent=percent(cost, signals),
        cost_seconds=cost,
        confidence=high_if(use.readings >= MIN_COMPARED, Confidence.MEDIUM),
        summary=f"GPUs were busy {format_range(use.busy, format_whole_percent)} of the time, and "
        "no rule found why; often the host hands out work too slowly",
        evidence=(f"mean of {use.readings} readings of the driver during the measured steps",),
        advice="try larger batches, torch.compile or CUDA graphs",
    )
