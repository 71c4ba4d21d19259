"""The attempts of a watched job, and why each ended."""

from __future__ import annotations

from torchscale.report.table import Column, Table
from torchscale.report.values import TableValue, optional_text, shortened
from torchscale.schema.watch.report import JobState, WatchedAttempt, WatchReport
from torchscale.util.units import format_coarse_seconds

_MOST_ROWS = 20
"""The last ones: a job may start again hundreds of times."""


def attempts_table(report: WatchReport) -> Table | None:
    """A row for each attempt; ``None`` of a job that had one."""
    attempts = report.attempts
    if len(attempts) < 2:
        return None
    headings = [("attempt", True), ("ranks", True), ("steps", True), ("ended by", False)]
    headings.append(("cost", True))
    rows = []
    for place, one in enumerate(attempts[-_MOST_ROWS:], max(0, len(attempts) - _MOST_ROWS)):
        following = attempts[place + 1] if place + 1 < len(attempts) else None
        rows.append(
            (
                TableValue(str(one.number), one.number),
                TableValue(str(one.world_size), one.world_size),
                TableValue(f"{one.steps:,}", one.steps),
                TableValue(shortened(_ended_by(report, one, following))),
                TableValue(
                    optional_text(one.lost_seconds, format_coarse_seconds), one.lost_seconds
                ),
            )
        )
    columns = tuple(Column(heading, is_number) for heading, is_number in headings)
    return Table("Attempts", columns, tuple(rows))


def _ended_by(report: WatchReport, one: WatchedAttempt, following: WatchedAttempt | None) -> str:
    """Why it ended, as far as that is known."""
    if one.failure is not None:
        return one.failure.summary
    if following is not None:
        return "not known" if following.run == one.run else "the end of its run"
    return "it runs" if report.state is JobState.RUNNING else "the end of the program"
