"""A watched job on the terminal."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from torchscale.features.trace.terminal import titled_table
from torchscale.features.watch.hang.terminal import print_autopsy
from torchscale.features.watch.text import format_dollars, headline, time_rows
from torchscale.report.document import optional_text
from torchscale.report.text.profile import not_judged
from torchscale.report.text.words import plural
from torchscale.schema.watch.report import WatchFinding, WatchReport
from torchscale.util.units import (
    format_bytes,
    format_percent,
    format_seconds,
)


def print_watch(report: WatchReport, console: Console) -> None:
    """What limits the job, then where the wall time and each rank's step went."""
    console.print(headline(report), markup=False, soft_wrap=True, style="bold")
    _print_findings(report, console)
    if report.autopsy is not None:
        print_autopsy(report.autopsy, console)
    for note in report.notes:
        console.print(f"note: {note}", markup=False, soft_wrap=True, style="dim")
    if report.time.total:
        console.print()
        console.print(_time_table(report))
    if report.per_rank:
        console.print()
        console.print(_ranks_table(report))
    if report.abstentions:
        console.print()
        console.print(not_judged(report.abstentions), markup=False, soft_wrap=True, style="dim")


def _print_findings(report: WatchReport, console: Console) -> None:
    if report.step_seconds is None:
        return
    if not report.findings:
        console.print("No bottleneck found.")
        return
    found = plural(len(report.findings), "bottleneck")
    console.print(f"Found {found}:", markup=False)
    for number, item in enumerate(report.findings, 1):
        for line in finding_lines(number, item):
            console.print(line, markup=False, soft_wrap=True)


def finding_lines(number: int, item: WatchFinding) -> list[str]:
    """A finding, its evidence and what to do."""
    finding = item.finding
    span = f", {item.span}" if item.span else ""
    money = "" if item.cost_dollars is None else f", {format_dollars(item.cost_dollars)} in all"
    lines = [
        f"  {number}. {finding.kind.label}{span}: {finding.summary}; costs up to "
        f"{format_percent(finding.cost_percent / 100)} of a step{money} "
        f"({finding.confidence.value} confidence)"
    ]
    lines += [f"     evidence: {text}" for text in finding.evidence]
    if item.collective:
        lines.append(f"     evidence: the others wait for it most at {item.collective}")
    lines += [
        f"     evidence: {Path(line.file).name}:{line.line} in {line.function}: about "
        f"{format_seconds(seconds, 2)} a step more than the others, by samples of the whole job"
        for line, seconds in item.lines
    ]
    lines.append(f"     what to do: {finding.advice}")
    return lines


def _time_table(report: WatchReport) -> Table:
    table = titled_table("Where the wall time went")
    table.add_column("part", no_wrap=True)
    for heading in ("time", "share", *["cost"] * (report.cost is not None)):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in time_rows(report):
        table.add_row(*row)
    return table


def _ranks_table(report: WatchReport) -> Table:
    table = titled_table("Mean step of each rank")
    has_bubble = any(rank.bubble_seconds for rank in report.per_rank)
    headings = ["rank", "own", "data", "waits for ranks", "transfer"]
    headings += ["bubble"] * has_bubble
    for heading in (*headings, "came last", "memory"):
        table.add_column(heading, justify="right", no_wrap=True)
    for rank in report.per_rank:
        times = [rank.own_seconds, rank.data_seconds, rank.wait_seconds, rank.transfer_seconds]
        times += [rank.bubble_seconds] * has_bubble
        table.add_row(
            str(rank.rank),
            *(optional_text(seconds, format_seconds) for seconds in times),
            optional_text(rank.blame, lambda share: format_percent(share, 0)),
            format_bytes(rank.peak_memory_bytes),
        )
    return table
