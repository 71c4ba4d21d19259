"""Labels and figures of collectives and copies as text."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial

from torchscale.analysis.summary.machine import MemorySummary
from torchscale.analysis.training.flags import OTHER_PROCESSES_LIMIT, Flag
from torchscale.schema.cells.collectives import CollectivesCell
from torchscale.schema.exports.machine import CollectiveFigures, CollectivePoint, Curve
from torchscale.util.units import (
    format_byte_rate,
    format_bytes,
    format_change,
    format_percent,
    format_seconds,
)
from torchscale.util.words import from_to, listed, plural


def format_fit(curve: Curve) -> str:
    """``34 µs + bytes ÷ 3.1 GB/s (off by 12 %)``; empty where there is no fit."""
    fit = curve.fit
    if fit is None:
        return ""
    rate = format_byte_rate(fit.bytes_per_second)
    return (
        f"{format_seconds(fit.latency_seconds)} + bytes ÷ {rate} (off by "
        f"{format_percent(fit.residual, 0)})"
    )


def predicted_text(summary: MemorySummary) -> str:
    """``4.80 GiB (+0.1 %)``: the predicted peak and how far it is from the measured one; – where
    there is none."""
    predicted, error = summary.predicted, summary.prediction_error
    if predicted is None or error is None:
        return "–"
    return f"{format_bytes(predicted.peak_bytes)} ({format_change(error)})"


def flagged_sizes(figures: CollectiveFigures) -> str:
    """``5 of 14 sizes contended or noisy, left out of the highest bandwidth``, of all operations
    together; empty where none is."""
    points = [point for curve in figures.curves for point in curve.points]
    flagged = [point for point in points if point.flags]
    names = " or ".join(sorted({flag for point in flagged for flag in point.flags}))
    if not flagged:
        return ""
    if len(flagged) == len(points):
        return f"every size {names}"
    text = (
        f"{len(flagged)} of {plural(len(points), 'size')} {names}, left out of the highest "
        "bandwidth"
    )
    without_others = list(
        dict.fromkeys(curve.operation for curve in figures.curves if curve.peak.flags)
    )
    if not without_others:
        return text
    return f"{text} where others are left: not of {listed(without_others)}"


def point_flag_lines(figures: CollectiveFigures) -> list[str]:
    """``noisy (its calls scatter …): all_reduce of 2 KiB``: each flag that a size has, what it
    says, and where."""
    lines = []
    for flag, text in _POINT_FLAGS.items():
        where = _where(figures, partial(_has_flag, flag))
        if where:
            lines.append(f"{flag.value} ({text}): {where}")
    return lines


def _has_flag(flag: Flag, point: CollectivePoint) -> bool:
    return flag in point.flags


def fewer_calls_line(cell: CollectivesCell, figures: CollectiveFigures) -> str:
    """At which sizes there were fewer calls than asked for; empty where there were nowhere."""
    points = [point for curve in figures.curves for point in curve.points]
    least = min((point.calls for point in points), default=cell.iterations)
    if cell.seconds is None or least >= cell.iterations:
        return ""
    return (
        f"fewer calls than {cell.iterations}, at least {least}, so that the sweep takes no longer "
        f"than about {format_seconds(cell.seconds)} (--full: all calls): "
        f"{_where(figures, lambda point: point.calls < cell.iterations)}"
    )


def _where(figures: CollectiveFigures, fits: Callable[[CollectivePoint], bool]) -> str:
    """``all_reduce of 2 KiB and barrier``: the sizes that fit."""
    several = len({curve.dtype for curve in figures.curves}) > 1
    return listed(
        [
            f"{curve.operation}{f' {curve.dtype}' * several} of {_sizes(curve, fits)}"
            if curve.points[-1].payload_bytes
            else curve.operation
            for curve in figures.curves
            if any(map(fits, curve.points))
        ]
    )


def _sizes(curve: Curve, fits: Callable[[CollectivePoint], bool]) -> str:
    """``2 KiB, 8 KiB to 32 KiB``: neighbouring sizes as a range."""
    ranges: list[tuple[int, int]] = []
    before = -1
    for place, point in enumerate(curve.points):
        if fits(point):
            if ranges and place == before + 1:
                start = ranges.pop()[0]
            else:
                start = point.payload_bytes
            ranges.append((start, point.payload_bytes))
            before = place
    return ", ".join(from_to(_whole(first), _whole(last)) for first, last in ranges)


def _whole(size: int) -> str:
    """``16 KiB``: sizes are mostly powers of two."""
    return re.sub(r"\.0+ ", " ", format_bytes(size))


def format_warning(flags: Sequence[str]) -> str:
    """``  warning: contended``, after a figure; empty without flags."""
    if flags:
        return f"  warning: {', '.join(flags)}"
    return ""


_POINT_FLAGS = {
    Flag.CONTENDED: f"other processes took over {format_percent(OTHER_PROCESSES_LIMIT, 0)} of the "
    "cores while it was measured",
    Flag.NOISY: "the 95 % interval of its calls' mean reaches over a third from it, the timed "
    "loop took over twice the median call, or a larger message took clearly less time",
}
"""What they say of one size of a collective (``docs/method.md``)."""
