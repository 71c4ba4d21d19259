"""Sentences on a watched job."""

from __future__ import annotations

from torchscale.report.text.labels import plural
from torchscale.schema.watch.report import WatchReport
from torchscale.util.units import format_coarse_seconds, format_percent, format_seconds


def headline(report: WatchReport) -> str:
    """``12,400 steps on 4 ranks in 14 min, 23.1 ms a step``."""
    lasted = format_coarse_seconds(report.seconds)
    if not report.steps or report.step_seconds is None:
        return f"No step was seen in {lasted}"
    ranks = plural(report.world_size, "rank")
    step = format_seconds(report.step_seconds)
    return f"{report.steps:,} steps on {ranks} in {lasted}, {step} a step"


def time_line(report: WatchReport) -> str:
    """Where the wall time went."""
    time = report.time
    parts = [
        (time.start, "start"),
        (time.saving, "checkpoints"),
        (time.evaluating, "evaluations"),
        (time.restarts, "restarts"),
        (time.end, "end"),
    ]
    others = ", ".join(
        f"{what} {format_coarse_seconds(seconds)}" for seconds, what in parts if seconds >= 1
    )
    share = format_percent(time.goodput)
    beside = f" ({others})" if others else ""
    return f"{share} of the wall time in steps{beside}"
