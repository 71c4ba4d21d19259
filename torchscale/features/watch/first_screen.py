"""The first screen of a watched job: how it ended, how fast it was, and what limited it since
when."""

from __future__ import annotations

from pathlib import Path

from torchscale.features.watch.job.settled import LEFT_OUT
from torchscale.features.watch.text import (
    cost_of_a_step,
    goodput_text,
    job_name,
    limit_text,
    summary_line,
    time_rows,
)
from torchscale.report.charts import AnyChart
from torchscale.report.document import Failure, Headline, LostTime, Overview, QuestionAnswer
from torchscale.report.text.findings import confidence_text, finding_title
from torchscale.report.values import Tone, shortened
from torchscale.schema.profiles.finding import FindingKind
from torchscale.schema.watch.report import JobState, WatchFinding, WatchReport
from torchscale.util.units import format_seconds
from torchscale.util.words import listed, plural, sentence

_TONES = {JobState.DONE: Tone.GOOD, JobState.FAILED: Tone.BAD, JobState.LOST: Tone.CAUTION}
_MOST_CAUSES = 3
"""Side by side; the table has all."""
_MOST_PARTS = 2
"""Parts of the wall time that are named; the table has all."""


def job_headline(report: WatchReport) -> Headline:
    """``train.py: 1,200 steps on 2 ranks in 1 min, 40.1 ms a step, goodput 83.1 %; straggler: rank
    1, since step 600.``"""
    ended = ""
    if report.state is JobState.LOST:
        ended = " (lost)"
    elif report.state is JobState.FAILED and report.failure is None:
        ended = f" (failed: {_why(report)})"
    return Headline(shortened(f"{job_name(report)}{ended}: {summary_line(report)}."))


def job_overview(report: WatchReport, chart: AnyChart | None = None) -> Overview:
    """All of the first screen; ``chart`` where one is drawn."""
    rows = (_state(report), _speed(report), _limited(report), _goodput(report), _hang(report))
    return Overview(
        headline=job_headline(report),
        statuses=tuple(row for row in rows if row is not None),
        chart=chart,
        causes=tuple(_cause(report, item) for item in report.findings[:_MOST_CAUSES]),
        failures=_failures(report),
    )


def _why(report: WatchReport) -> str:
    """Why it failed, or who ended it."""
    if report.failure is not None:
        return report.failure.summary
    return f"exit code {report.exit_code}"


def _state(report: WatchReport) -> QuestionAnswer:
    parts = [plural(report.steps, "step")]
    if report.failure is not None:
        parts.insert(0, report.failure.summary)
    if report.exit_code is not None:
        parts.append(f"exit code {report.exit_code}")
    if report.restarts:
        parts.append(plural(report.restarts, "restart"))
    parts += report.notes
    tone = _TONES.get(report.state, Tone.PLAIN)
    return QuestionAnswer(
        "Ended?", report.state.value, shortened("; ".join(parts)), tone, "watched"
    )


def _speed(report: WatchReport) -> QuestionAnswer:
    if report.step_seconds is None:
        why = "no step was seen"
        if report.steps:
            why = f"it made {plural(report.steps, 'step')}, and the first {LEFT_OUT} count in none"
        return QuestionAnswer("How fast?", "no figure", why)
    which = "all steps"
    if report.left_out_steps:
        which += f" after the first {report.left_out_steps}"
    if report.restarts:
        which += " of the last attempt"
    step = format_seconds(report.step_seconds)
    return QuestionAnswer("How fast?", f"{step} a step", f"mean of {which}", anchor="steps")


def _limited(report: WatchReport) -> QuestionAnswer | None:
    if not report.findings:
        if report.step_seconds is None:
            return None
        return QuestionAnswer("Limited by?", "nothing found", "no rule found a bottleneck")
    first, *others = report.findings
    parts = [_cost(first), f"confidence {confidence_text(first.finding)}", *places(first)[:1]]
    if others:
        parts.append(f"then {listed([limit_text(item) for item in others[: _MOST_CAUSES - 1]])}")
    text = shortened("; ".join(filter(None, parts)))
    return QuestionAnswer("Limited by?", limit_text(first), text, Tone.CAUTION, "watched")


def _goodput(report: WatchReport) -> QuestionAnswer | None:
    if not report.time.total:
        return None
    parts = [row for row in time_rows(report)[1:-1] if row[2]]
    parts.sort(key=lambda row: -float(row[2].split()[0]))
    text = listed([f"{row[0]} {row[2]}" for row in parts[:_MOST_PARTS]])
    return QuestionAnswer("Goodput?", goodput_text(report), text, anchor="watched")


def _hang(report: WatchReport) -> QuestionAnswer | None:
    if report.autopsy is None:
        return None
    return QuestionAnswer("Hung?", "yes", shortened(report.autopsy.summary), Tone.BAD, "watched")


def _cause(report: WatchReport, item: WatchFinding) -> LostTime:
    finding = item.finding
    seen = [sentence(f"{span_text(item)}: {finding.summary.removesuffix('.')}")]
    where = places(item)
    if where:
        seen.append(f"Where: {', '.join(where)}.")
    seen.append(f"Confidence: {confidence_text(finding)}.")
    return LostTime(
        title=finding_title(finding),
        cost=_cost(item),
        cells=job_name(report),
        text=shortened(" ".join(seen)),
        advice=shortened(sentence(finding.advice)),
    )


def _cost(item: WatchFinding) -> str:
    """``up to 58.6 % of a step``; empty where it costs nothing of steps that is known."""
    share = cost_of_a_step(item.finding)
    return f"up to {share} of a step" if share else ""


def span_text(item: WatchFinding) -> str:
    """``since step 600``, ``the whole job``."""
    whole = "the whole job"
    if item.finding.kind is FindingKind.SLOW_START:
        whole = "the start"
    return item.span or whole


def places(item: WatchFinding) -> list[str]:
    """Lines at which the rank is longer, and the collective that others wait at."""
    found = [
        f"{Path(line.file).name}:{line.line} ({format_seconds(seconds, 2)} a step more)"
        for line, seconds in item.lines
    ]
    return [*found, *filter(None, [item.collective])]


def _failures(report: WatchReport) -> tuple[Failure, ...]:
    if report.state is not JobState.FAILED:
        return ()
    excerpt = () if report.failure is None else report.failure.evidence
    lines = tuple(map(shortened, excerpt))
    return (Failure(job_name(report), report.state.value, shortened(_why(report)), lines),)
