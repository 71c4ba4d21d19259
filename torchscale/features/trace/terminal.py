"""An analysis on the terminal: the one figure, then causes by cost, then where each rank's time
went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console

from torchscale.config.choices import ProfileTarget
from torchscale.report.document import Block, Document, Paragraph, Section
from torchscale.report.formats.console import print_blocks, print_document
from torchscale.report.profile_blocks import (
    collectives_table,
    kernels_table,
    prediction_tables,
    rank_tables,
)
from torchscale.report.table import Column, Table
from torchscale.report.text.findings import finding_text, not_judged
from torchscale.report.text.profile import MIN_GAIN_PERCENT, is_of_devices, stall_line, what_if_line
from torchscale.report.text.rank_table import shown_ranks
from torchscale.report.values import TableValue, only_if, optional_value
from torchscale.schema.profiles.analysis import ProfileAnalysis
from torchscale.schema.profiles.finding import Confidence, Finding
from torchscale.util.units import format_byte_rate, format_bytes
from torchscale.util.words import plural

_MAX_OPERATIONS = 10
"""Rows of operations, those with most time: half a screen; the report has more."""


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
    *distribution, ranks = rank_tables(analysis, "")
    blocks: list[Block] = [*distribution, _with_memory(ranks, analysis)]
    for operations in _TARGETS.get(target, ()):
        blocks += _first_rows(operations(analysis))
    left_out = not_judged(analysis.abstentions, on_device=is_of_devices(analysis))
    blocks += only_if(bool(left_out), Paragraph(left_out))
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


def _with_memory(ranks: Table, analysis: ProfileAnalysis) -> Table:
    """With the peak of allocated memory of each rank, where it was recorded."""
    peaks = [rank.peak_memory_bytes for rank in shown_ranks(analysis.per_rank)]
    if not any(peak is not None for peak in peaks):
        return ranks
    return _with_column(ranks, "peak memory", [optional_value(one, format_bytes) for one in peaks])


def _collectives(analysis: ProfileAnalysis) -> Table | None:
    """With the bus bandwidth of each, where its size is known."""
    table = collectives_table(analysis)
    rates = [one.bus_bytes_per_second for one in analysis.collectives]
    if table is None or not any(rate is not None for rate in rates):
        return table
    values = [optional_value(rate, format_byte_rate) for rate in rates]
    return _with_column(table, "busbw", values)


def _with_column(table: Table, title: str, values: Sequence[TableValue]) -> Table:
    rows = tuple((*row, value) for row, value in zip(table.rows, values, strict=False))
    return replace(table, columns=(*table.columns, Column(title, True)), rows=rows)


def _first_rows(table: Table | None) -> list[Block]:
    """Without a count of the others: an analysis holds those with most time alone."""
    if table is None:
        return []
    more = Paragraph("… and more, in the report")
    is_cut = len(table.rows) > _MAX_OPERATIONS
    return [replace(table, rows=table.rows[:_MAX_OPERATIONS]), *only_if(is_cut, more)]


_TARGETS = {
    ProfileTarget.SYNC_STALLS: (_collectives,),
    ProfileTarget.KERNELS: (kernels_table,),
    ProfileTarget.ALL: (_collectives, kernels_table),
}
