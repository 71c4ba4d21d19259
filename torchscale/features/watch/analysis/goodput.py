"""The wall time of a whole job: of its attempts, between them, and between runs of the command; and
what it cost."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, zip_longest

from torchscale.schema.watch.attempt import CommandRun
from torchscale.schema.watch.report import (
    JobCost,
    JobTime,
    WatchedAttempt,
    WatchFinding,
    WatchReport,
)

_HOUR = 3600.0


def job_times(
    runs: Sequence[CommandRun], attempts: Sequence[WatchedAttempt], now: float
) -> tuple[JobTime, JobTime]:
    """Seconds and device-seconds of each part, from the start of the first run to ``now``. Between
    two attempts, and between two runs, the devices of the earlier one count.

    Args:
        runs: In order; one without an end counts until the next one, the last until ``now``.
        attempts: In order, each with its run; the first of a run begins as the run does.
        now: Seconds since the epoch.
    """
    starts = [*(run.started for run in runs[1:]), now]
    ends = [now if run.ended is None else run.ended for run in runs]
    ends = [min(end, start) for end, start in zip(ends, starts, strict=True)]
    seconds, of_devices = JobTime(), JobTime()
    devices = attempts[0].world_size if attempts else 1
    for number, (run, end, start) in enumerate(zip(runs, ends, starts, strict=True)):
        mine = [attempt for attempt in attempts if attempt.run == number]
        if not mine:
            parts = [(JobTime(start=max(0.0, end - run.started)), devices)]
        else:
            parts = _of_run(mine, end)
            devices = mine[-1].world_size
        if number + 1 < len(runs):
            parts.append((JobTime(idle=max(0.0, start - end)), devices))
        for part, count in parts:
            seconds, of_devices = seconds + part, of_devices + part.times(count)
    return seconds, of_devices


def _of_run(attempts: Sequence[WatchedAttempt], end: float) -> list[tuple[JobTime, int]]:
    parts = [(attempt.time, attempt.world_size) for attempt in attempts]
    for before, after in pairwise(attempts):
        between = max(0.0, after.began - before.last_seen)
        parts.append((JobTime(restarts=between), before.world_size))
    last = attempts[-1]
    parts.append((JobTime(end=max(0.0, end - last.last_seen)), last.world_size))
    return parts


def repeated_in_all(attempts: Sequence[WatchedAttempt]) -> int | None:
    """Steps that repeat those of an earlier attempt; ``None`` where one of them is not known."""
    counts = [attempt.repeated_steps for attempt in attempts]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def with_price(report: WatchReport, price: float | None) -> WatchReport:
    """The report with what the job cost, at ``price`` dollars for a device and hour."""
    if price is None:
        return report
    cost = JobCost(price=price, parts=report.device_time.times(price / _HOUR))
    findings = tuple(_with_cost(item, report, price) for item in report.findings)
    return report.model_copy(update={"cost": cost, "findings": findings})


def _with_cost(item: WatchFinding, report: WatchReport, price: float) -> WatchFinding:
    """Of all devices, over the steps of the last attempt that the finding is about."""
    last = item.last_step
    if last is None:
        last = report.attempts[-1].steps if report.attempts else report.steps
    steps = max(0, last - (item.first_step or 0))
    seconds = max(0.0, item.finding.cost_seconds) * steps * report.world_size
    return item.model_copy(update={"cost_dollars": seconds / _HOUR * price})


def with_losses(attempts: Sequence[WatchedAttempt]) -> list[WatchedAttempt]:
    """The attempts with what the end of each cost: the time until the next one began, that one's
    start, and its steps that repeat others."""
    found = []
    for one, following in zip_longest(attempts, attempts[1:]):
        lost = None
        if following is not None:
            between = max(0.0, following.began - one.last_seen)
            lost = between + following.time.start + following.time.recomputed
        found.append(one.model_copy(update={"lost_seconds": lost}))
    return found
