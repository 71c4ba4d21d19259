"""Sentences on a watched job, and the parts of its wall time."""

from __future__ import annotations

import math
from pathlib import Path

from torchscale.report.text.findings import finding_title
from torchscale.schema.profiles.finding import Confidence, Finding, FindingKind
from torchscale.schema.watch.failure import FailureCause, JobFailure
from torchscale.schema.watch.report import JobTime, WatchFinding, WatchReport
from torchscale.util.text import program_name
from torchscale.util.units import format_coarse_seconds, format_percent, format_seconds
from torchscale.util.words import plural, within_sentence

_PARTS = {
    "steps": "productive steps",
    "recomputed": "recomputed steps",
    "start": "start-up",
    "saving": "checkpoints",
    "evaluating": "evaluations",
    "stalls": "stalls",
    "unseen": "not seen",
    "restarts": "between attempts",
    "idle": "idle between runs",
    "end": "after the last step",
}
_WHOLE_DOLLARS, _TENTH = 100, 0.1
_LEAST_SHOWN = 0.5
"""Seconds of a part that has a row: what is less would be 0 s."""


def job_name(report: WatchReport) -> str:
    """``train.py``: the script, else the program; with its role ``trainer: train.py``."""
    name = program_name(report.command or ("program",))
    return f"{report.role}: {name}" if report.role else name


def headline(report: WatchReport) -> str:
    """``12,400 steps on 4 ranks in 14 min, 23.1 ms a step, goodput 83.1 %``; of a job that failed
    why it did: ``Failed after 1,240 steps: rank 3 raised …``."""
    if report.failure is None:
        return steps_line(report)
    return failure_line(report, report.failure)


def with_role(report: WatchReport) -> str:
    """:func:`headline`, after the role of a program that has one."""
    told = headline(report)
    return f"{report.role}: {told}" if report.role else told


def failure_line(report: WatchReport, failure: JobFailure) -> str:
    """``Failed after 1,240 steps (exit code 1): rank 3 raised RuntimeError: … at train.py:88``."""
    when = "before its first step"
    if report.steps:
        when = f"after {plural(report.steps, 'step')}"
    if failure.cause is FailureCause.INTERRUPTED:
        return f"Ended {when}: {failure.summary}"
    code = "" if report.exit_code is None else f" (exit code {report.exit_code})"
    return f"Failed {when}{code}: {failure.summary}"


def steps_line(report: WatchReport) -> str:
    """Steps, ranks, time and goodput."""
    lasted = format_coarse_seconds(report.seconds)
    if not report.steps:
        return f"No step was seen in {lasted}"
    share = goodput_text(report)
    if report.step_seconds is None:
        return f"{plural(report.steps, 'step')} in {lasted}, goodput {share}"
    ranks = plural(report.world_size, "rank")
    step = format_seconds(report.step_seconds)
    return f"{report.steps:,} steps on {ranks} in {lasted}, {step} a step, goodput {share}"


def limit_text(item: WatchFinding) -> str:
    """``straggler: rank 1, since step 600``."""
    title = within_sentence(finding_title(item.finding))
    return ", ".join(filter(None, (title, item.span)))


def summary_line(report: WatchReport) -> str:
    """``12,400 steps on 4 ranks …; straggler: rank 1, since step 600``: why it failed, if it did,
    its figures, and what was costliest, if anything was found."""
    failed = [] if report.failure is None else [failure_line(report, report.failure)]
    return "; ".join([*failed, steps_line(report), *map(limit_text, report.findings[:1])])


def status_line(report: WatchReport, step_seconds: float | None) -> str:
    """``torchscale: step 12,400 · 23.1 ms a step · goodput 83.1 % · straggler: rank 1, train.py:88
    (59 %)``: how a job goes that runs.

    Args:
        report: What is known of it.
        step_seconds: Of its last steps, where that is known.
    """
    parts = [f"step {report.steps:,}"]
    if step_seconds is not None:
        parts.append(f"{format_seconds(step_seconds)} a step")
    parts.append(f"goodput {goodput_text(report)}")
    if found := current_finding(report):
        parts.append(found)
    return f"torchscale: {' · '.join(parts)}"


def current_finding(report: WatchReport) -> str:
    """``straggler: rank 1, train.py:88 (59 %)``: the costliest that goes on; empty before there is
    a verdict."""
    if report.step_seconds is None:
        return ""
    for item in report.findings:
        share = cost_of_a_step(item.finding, decimals=0)
        if item.last_step is not None or not share:
            continue
        where = "".join(f", {Path(line.file).name}:{line.line}" for line, _ in item.lines[:1])
        doubt = ", low confidence" if item.finding.confidence is Confidence.LOW else ""
        return f"{within_sentence(finding_title(item.finding))}{where} ({share}{doubt})"
    return "no bottleneck found"


def span_and_summary(item: WatchFinding) -> str:
    """``since step 12,400: rank 1 …``."""
    return f"{item.span}: {item.finding.summary}" if item.span else item.finding.summary


def goodput_text(report: WatchReport) -> str:
    """``83.1 %``; ``at most 83.1 %`` where it is not known how many steps repeat others, and ``at
    least`` where some of the time was not seen."""
    share = format_percent(report.goodput)
    if report.time.unseen < _LEAST_SHOWN:
        return f"at most {share}" if report.repeated_steps is None else share
    return "not known" if report.repeated_steps is None else f"at least {share}"


def time_rows(report: WatchReport) -> list[tuple[str, ...]]:
    """Part, time, share of the wall time and, with a price, dollars; the last row is of all."""
    total = report.time.total
    rows = [
        _row(report, _label(report, name), name, total)
        for name in _PARTS
        if _is_shown(report, name)
    ]
    if report.repeated_steps is None:
        rows.insert(1, ("recomputed steps", "not known", "", *[""] * (report.cost is not None)))
    whole = ("all", format_coarse_seconds(total), format_percent(1.0))
    if report.cost is None:
        return [*rows, whole]
    return [*rows, (*whole, format_dollars(report.cost.parts.total))]


def _is_shown(report: WatchReport, name: str) -> bool:
    """Steps are shown always; recomputed steps and restarts where there are some."""
    if name == "recomputed" and report.repeated_steps:
        return True
    if name == "restarts" and report.time.restarts:
        return True
    return name == "steps" or _part(report.time, name) >= _LEAST_SHOWN


def _label(report: WatchReport, name: str) -> str:
    """``recomputed steps (1,200)``, ``between attempts (3)``, ``idle between runs (2)``."""
    label = _PARTS[name]
    if name == "recomputed" and report.repeated_steps:
        return f"{label} ({report.repeated_steps:,})"
    if name == "idle":
        return f"{label} ({report.runs})"
    if name == "steps" and report.repeated_steps is None:
        return "steps"
    return label


def _row(report: WatchReport, label: str, name: str, total: float) -> tuple[str, ...]:
    seconds = _part(report.time, name)
    row = (label, format_coarse_seconds(seconds), format_percent(seconds / total if total else 0.0))
    if report.cost is None:
        return row
    return (*row, format_dollars(_part(report.cost.parts, name)))


def _part(time: JobTime, name: str) -> float:
    return float(getattr(time, name))


def cost_of_a_step(finding: Finding, decimals: int = 1) -> str:
    """``12.3 %``; empty of a start, which comes once."""
    if finding.kind is FindingKind.SLOW_START:
        return ""
    return format_percent(finding.cost_percent / 100, decimals)


def format_dollars(amount: float) -> str:
    """``$1,250``, ``$12.30``, ``$0.0042``: cents, and below ten cents two digits."""
    if amount >= _WHOLE_DOLLARS:
        return f"${amount:,.0f}"
    if amount >= _TENTH or amount == 0:
        return f"${amount:.2f}"
    digits = 1 - math.floor(math.log10(amount))
    return f"${amount:.{digits}f}"
