"""Labels and figures of collectives and copies as text."""

from __future__ import annotations

from torchscale.analysis.machine.collectives import Curve
from torchscale.analysis.machine.hardware import CopyRate
from torchscale.util.units import format_byte_rate, format_percent, format_seconds


def format_fit(curve: Curve) -> str:
    """``34 µs + bytes ÷ 3.1 GB/s (off by 12 %)``; empty where there is no fit."""
    fit = curve.fit
    if fit is None:
        return ""
    rate = format_byte_rate(fit.bytes_per_second)
    return f"{format_seconds(fit.latency_seconds)} + bytes ÷ {rate} (off by {format_percent(fit.residual, 0)})"


def copy_label(rate: CopyRate) -> str:
    """Source and destination of a copy."""
    memory = {True: ", pinned", False: ", pageable", None: ""}[rate.pinned]
    return {
        "device": "within the device, read + written",
        "host_to_device": f"host to device{memory}",
        "device_to_host": f"device to host{memory}",
        "device_to_device": f"GPU {rate.source} to GPU {rate.peer}",
    }[rate.kind]


def format_slowest_share(share: float) -> str:
    """The slowest device relative to the mean; – where all are equal (within 0.05 %)."""
    return "–" if share > -0.0005 else format_percent(share)
