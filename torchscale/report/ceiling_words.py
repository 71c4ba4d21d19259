"""What came of the machine's own cells, in words and lines of text."""

from __future__ import annotations

from torchscale.analysis.ceilings import CeilingSummary, CollectivesSummary, HardwareSummary, MemorySummary
from torchscale.analysis.collectives import Curve
from torchscale.analysis.hardware import CopyRate
from torchscale.schema.record import State
from torchscale.units import format_byte_rate, format_bytes, format_flops, format_percent, format_seconds


def ceiling_outcome(summary: CeilingSummary) -> str:
    """The figure or two that matter most; the state and its reason where there are none."""
    if summary.state is not State.OK:
        return f"{summary.state.value}: {summary.reason}"
    if isinstance(summary, CollectivesSummary):
        curves = [] if summary.figures is None else [c for c in summary.figures.curves if c.operation != "barrier"]
        if not curves:
            return "ok"
        best = max(curves, key=lambda curve: curve.peak.busbw)
        size = format_bytes(best.peak.payload_bytes)
        return f"up to {format_byte_rate(best.peak.busbw)} of bus bandwidth ({best.operation} of {size})"
    if isinstance(summary, HardwareSummary):
        figures = summary.figures
        parts = [f"{rates.dtype} {format_flops(rates.peak)}" for rates in (figures.matmuls if figures else ())]
        copies = None if figures is None else figures.memory_bytes_per_second
        return ", ".join([*parts, *([f"copies {format_byte_rate(copies)}"] if copies else [])])
    return memory_words(summary)


def memory_words(summary: MemorySummary) -> str:
    """``4.79 GiB at its peak, predicted 0.1 % more``."""
    fullest = summary.fullest
    if fullest is None:
        return "nothing measured"
    words = f"{format_bytes(fullest.peak_bytes)} at its peak"
    error = summary.prediction_error
    if error is None:
        return words
    return f"{words}, predicted {format_percent(abs(error))} {'more' if error >= 0 else 'less'}"


def fit_words(curve: Curve) -> str:
    """``34 µs + bytes ÷ 3.1 GB/s (off by 12 %)``; empty where there is no fit."""
    fit = curve.fit
    if fit is None:
        return ""
    rate = format_byte_rate(fit.bytes_per_second)
    return f"{format_seconds(fit.latency_seconds)} + bytes ÷ {rate} (off by {format_percent(fit.residual, 0)})"


def copy_words(rate: CopyRate) -> str:
    """What a copy goes between."""
    memory = {True: ", pinned", False: ", pageable", None: ""}[rate.pinned]
    return {
        "device": "within the device, read + written",
        "host_to_device": f"host to device{memory}",
        "device_to_host": f"device to host{memory}",
        "device_to_device": f"GPU {rate.source} to GPU {rate.peer}",
    }[rate.kind]


def share_words(share: float) -> str:
    """The slowest device against the mean; a dash where all are equal."""
    return "–" if share > -0.0005 else format_percent(share)
