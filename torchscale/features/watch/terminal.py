"""A watched job on the terminal."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from torchscale.features.watch.attempts_table import attempts_table
from torchscale.features.watch.blocks import startup_table, wall_time_table
from torchscale.features.watch.document import ranks_table
from torchscale.features.watch.hang.terminal import indented_evidence
from torchscale.features.watch.text import (
    cost_of_a_step,
    format_dollars,
    steps_line,
    with_role,
)
from torchscale.report.document import Block, Document, Paragraph, Section
from torchscale.report.formats.console import print_document
from torchscale.report.text.findings import not_judged
from torchscale.report.values import only_if
from torchscale.schema.watch.report import WatchFinding, WatchReport
from torchscale.util.units import format_seconds
from torchscale.util.words import in_brackets, plural


def print_watch(report: WatchReport, console: Console) -> None:
    """Why the job failed, what limits it, then where the wall time and each rank's step went."""
    verdict = [*_failure_lines(report), *_finding_lines(report)]
    if report.autopsy is not None:
        verdict += [report.autopsy.summary, *indented_evidence(report.autopsy)]
    verdict += [f"note: {note}" for note in report.notes]
    blocks: list[Block] = []
    if report.time.total:
        blocks.append(wall_time_table("Where the wall time went", report))
    attempts = attempts_table(report)
    if attempts is not None:
        blocks.append(attempts)
    startup = startup_table(report)
    if startup is not None:
        blocks.append(startup)
    if report.per_rank:
        blocks.append(ranks_table(report))
    left_out = not_judged(report.abstentions, on_device=report.device != "cpu")
    blocks += only_if(bool(left_out), Paragraph(left_out))
    sections = (Section("", "job", tuple(blocks)),)
    print_document(Document(with_role(report), "", tuple(verdict), (), sections), console)


def _failure_lines(report: WatchReport) -> list[str]:
    """What the failure rests on, and below it what was seen of the job until then."""
    if report.failure is None:
        return []
    return [*(f"    {line}" for line in report.failure.evidence), steps_line(report)]


def _finding_lines(report: WatchReport) -> list[str]:
    if report.step_seconds is None:
        return []
    if not report.findings:
        return ["No bottleneck found."] * (report.failure is None)
    found = [f"Found {plural(len(report.findings), 'bottleneck')}:"]
    for number, item in enumerate(report.findings, 1):
        found += finding_lines(number, item)
    return found


def finding_lines(number: int, item: WatchFinding) -> list[str]:
    """A finding, its evidence and what to do."""
    finding = item.finding
    span = f", {item.span}" if item.span else ""
    money = "" if item.cost_dollars is None else f", {format_dollars(item.cost_dollars)} in all"
    share = cost_of_a_step(finding)
    costs = f"; costs up to {share} of a step{money}" if share else ""
    lines = [
        f"  {number}. {finding.kind.label}{span}: {finding.summary}{costs} "
        f"({finding.confidence.value} confidence{in_brackets(', '.join(finding.doubts))})"
    ]
    lines += [f"     evidence: {text}" for text in finding.evidence]
    if item.collective:
        lines.append(f"     evidence: the others wait for it most at {item.collective}")
    lines += [
        f"     evidence: {Path(line.file).name}:{line.line} in {line.function}: about "
        f"{format_seconds(seconds, 2)} a step longer there, by samples"
        for line, seconds in item.lines
    ]
    lines.append(f"     what to do: {finding.advice}")
    return lines
