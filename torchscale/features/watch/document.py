"""A watched job while it runs: a page, and figures for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator

from torchscale.features.watch.blocks import watched_blocks
from torchscale.features.watch.first_screen import job_overview
from torchscale.features.watch.text import job_name
from torchscale.report.document import Document, Section
from torchscale.report.figures.figure import Figure
from torchscale.report.table import Column, Table
from torchscale.report.values import TableValue, optional_text
from torchscale.schema.watch.report import JobState, JobTime, WatchedRank, WatchReport
from torchscale.util.units import format_bytes, format_percent, format_seconds

_HEADINGS = {"wait": "waits for ranks"}
"""As the table on the terminal has them."""
_OF_A_STEP = {
    "own": "neither blocked nor waiting for data; all but waits where waits are by lengths",
    "data": "waiting for the data loader",
    "wait": "waiting for ranks that came later to a collective",
    "transfer": "blocked in collectives, once all ranks had come",
    "bubble": "blocked in sends and receives",
}


def watched_document(report: WatchReport) -> Document:
    """What is known of the job so far."""
    name = job_name(report)
    sections = [Section("Over the job", "watched", tuple(watched_blocks(name, report)))]
    if report.per_rank:
        sections.append(Section("Ranks", "ranks", (ranks_table(report),)))
    return Document(
        title=name,
        subtitle=f"{' '.join(report.command)} · since {report.started_at}",
        verdict=(),
        key_figures=(),
        sections=tuple(sections),
        overview=job_overview(report),
    )


def ranks_table(report: WatchReport) -> Table:
    """What each rank's step consists of."""
    shown = [name for name in _OF_A_STEP if any(_seconds(rank, name) for rank in report.per_rank)]
    headings = ("rank", *(_HEADINGS.get(name, name) for name in shown), "came last", "memory")
    rows = tuple(
        (
            TableValue(str(rank.rank), rank.rank),
            *(_cell(_seconds(rank, name)) for name in shown),
            TableValue(optional_text(rank.blame, _share), rank.blame),
            TableValue(format_bytes(rank.peak_memory_bytes), rank.peak_memory_bytes),
        )
        for rank in report.per_rank
    )
    columns = tuple(Column(heading, True) for heading in headings)
    return Table("Mean step of each rank", columns, rows)


def _share(value: float) -> str:
    return format_percent(value, 0)


def _cell(seconds: float | None) -> TableValue:
    return TableValue(optional_text(seconds, format_seconds), seconds)


def _seconds(rank: WatchedRank, name: str) -> float | None:
    seconds: float | None = getattr(rank, f"{name}_seconds")
    return seconds


def watched_figures(report: WatchReport) -> tuple[Figure, ...]:
    """Figures of the job so far. Names begin with ``watch_``."""
    return tuple(_figures(report))


def _figures(report: WatchReport) -> Iterator[Figure]:
    running = float(report.state is JobState.RUNNING)
    yield Figure("watch_running", "", "Whether the job is being watched", running)
    lost = float(report.state is JobState.LOST)
    told = "Whether the command that watched it is gone without a result"
    yield Figure("watch_lost", "", told, lost)
    yield Figure("watch_steps", "", "Optimizer steps of all attempts", report.steps)
    yield Figure("watch_restarts", "", "Attempts before the last", report.restarts)
    if report.step_seconds is not None:
        yield Figure("watch_step_seconds", "seconds", "Mean step", report.step_seconds)
    if report.time.total and report.repeated_steps is not None:
        told = "Share of the wall time in productive steps"
        yield Figure("watch_goodput", "", told, report.goodput)
    for part in JobTime.model_fields:
        told = "Where the wall time of the job went"
        seconds = float(getattr(report.time, part))
        yield Figure("watch_time_seconds", "seconds", told, seconds, labels={"part": part})
    for rank in report.per_rank:
        yield from _figures_of_rank(rank)
    for (kind, rank_text, since), seconds in _findings(report).items():
        labels = {"kind": kind, "rank": rank_text, "since_step": since}
        told = "What a finding costs of each step that it is about"
        yield Figure("watch_finding_seconds", "seconds", told, seconds, labels=labels)
    hangs = float(report.autopsy is not None)
    yield Figure("watch_hung", "", "Whether the job made no progress at a time", hangs)


def _figures_of_rank(rank: WatchedRank) -> Iterator[Figure]:
    for part, meaning in _OF_A_STEP.items():
        seconds = _seconds(rank, part)
        if seconds is not None:
            yield Figure(
                f"watch_rank_{part}_seconds",
                "seconds",
                f"Mean step of a rank: {meaning}",
                seconds,
                labels={"rank": str(rank.rank)},
            )


def _findings(report: WatchReport) -> dict[tuple[str, str, str], float]:
    """Kind, rank (empty for all) and first step (0 for the job's first) → seconds a step; each
    once, as Prometheus wants it."""
    found: dict[tuple[str, str, str], float] = {}
    for item in report.findings:
        finding = item.finding
        rank = "" if finding.rank is None else str(finding.rank)
        key = (finding.kind.value, rank, str(item.first_step or 0))
        found[key] = max(found.get(key, 0.0), finding.cost_seconds)
    return found
