"""An analysis on the terminal: the one figure, then causes by cost, then where each rank's time
went."""

from __future__ import annotations

from dataclasses import replace

from rich.console import Console

from torchscale.config.choices import ProfileTarget
from torchscale.report.document import Block, Document, Paragraph, Section, Table, only_if
from torchscale.report.formats.console import print_blocks, print_document
from torchscale.report.profile_blocks import (
    collectives_table,
    kernels_table,
    prediction_tables,
    rank_tables,
)
from torchscale.report.text.findings import finding_text, not_judged
from torchscale.report.text.profile import MIN_GAIN_PERCENT, stall_line, what_if_line
from torchscale.schema.profiles.analysis import ProfileAnalysis
from torchscale.schema.profiles.finding import Confidence, Finding
from torchscale.util.words import plural

_MAX_OPERATIONS = 10
"""Rows of operations, those with most time: half a screen; the report has all."""
_TARGETS = {
    ProfileTarget.SYNC_STALLS: (collectives_table,),
    ProfileTarget.KERNELS: (kernels_table,),
    ProfileTarget.ALL: (collectives_table, kernels_table),
}


def print_analysis(
    analysis: ProfileAnalysis, console: Console, target: ProfileTarget = ProfileTarget.ALL
) -> None:
    """The whole analysis, with the tables that ``target`` asks for."""
    unsure = f"Low confidence: {'; '.join(analysis.window.reasons)}."
    verdict = (
        *only_if(analysis.window.confidence is not Confidence.HIGH, unsure),
        *finding_lines(analysis.findings),
        *(f"note: {note}" for note in analysis.notes),
    )
    blocks: list[Block] = [*rank_tables(analysis, "")]
    for operations in _TARGETS.get(target, ()):
        blocks += _first_rows(operations(analysis))
    if analysis.abstentions:
        blocks.append(Paragraph(not_judged(analysis.abstentions)))
    sections = (Section("", "recording", tuple(blocks)),)
    print_document(Document(stall_line(analysis), "", verdict, (), sections), console)


def print_predictions(analysis: ProfileAnalysis, console: Console) -> None:
    """What the step would be without each of its faults."""
    what_if = analysis.what_if
    if what_if is None:
        return
    blocks: list[Block] = [*prediction_tables(analysis, "")]
    if not blocks:
        blocks.append(Paragraph(what_if_line(what_if)))
        none = f"No change would gain {MIN_GAIN_PERCENT:g} % of the step or more."
        blocks += only_if(what_if.refused is None, Paragraph(none))
    blocks += [Paragraph(f"note: {note}") for note in what_if.notes]
    console.print()
    print_blocks(blocks, console)


def finding_lines(findings: tuple[Finding, ...]) -> list[str]:
    """``Found 2 bottlenecks:`` and each with its evidence and what to do."""
    if not findings:
        return ["No bottleneck found."]
    lines = [f"Found {plural(len(findings), 'bottleneck')}:"]
    for number, finding in enumerate(findings, 1):
        lines.append(f"  {number}. {finding_text(finding)}")
        lines += [f"     evidence: {item}" for item in finding.evidence]
        lines.append(f"     what to do: {finding.advice}")
    return lines


def _first_rows(table: Table | None) -> list[Block]:
    if table is None:
        return []
    left = len(table.rows) - _MAX_OPERATIONS
    more = Paragraph(f"… and {left} more, in the report")
    return [replace(table, rows=table.rows[:_MAX_OPERATIONS]), *only_if(left > 0, more)]
