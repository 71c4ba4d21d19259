"""What the always-on signals found: causes with cost and advice, the evidence in each cell, what
was not judged."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.analysis.summary.run import RunSummary
from torchscale.analysis.training.summary import TrainingSummary
from torchscale.report.document import Block, Details, LostTime, Paragraph, ReportPart, Section
from torchscale.report.sections.first_screen.causes import (
    CauseGroup,
    CostlyCell,
    cause_groups,
    causes,
    top_groups,
)
from torchscale.report.table import Column, ColumnOf, Table, table_of
from torchscale.report.text.findings import confidence_text, not_judged
from torchscale.report.text.labels import cell_label, identity_values
from torchscale.report.text.run_labels import identity_columns
from torchscale.report.values import DASH, TableValue, Tone, shortened, text_value
from torchscale.schema.profiles.finding import Abstention, Confidence
from torchscale.util.units import format_percent, format_seconds
from torchscale.util.words import by_count, capped, format_range, listed, plural

_CONFIDENCE_TONE = {
    Confidence.HIGH: Tone.PLAIN,
    Confidence.MEDIUM: Tone.PLAIN,
    Confidence.LOW: Tone.DIM,
}
_LEFT_OUT = "What was not judged, and why"
_MAX_CELLS = 3
"""Cells that a rule without a judgement names."""


def diagnosis_section(summary: RunSummary) -> Section:
    """Causes, and in which cells they were seen; empty where no cell could be diagnosed, and for a
    watched job, whose findings have steps and a section of their own."""
    diagnosed = [cell for cell in summary.measured if cell.diagnosis is not None]
    groups = cause_groups(summary)
    if not diagnosed or summary.job is not None:
        return Section("What holds it back", "diagnosis", ())
    blocks: list[Block] = [
        Paragraph(
            "Based on signals recorded in every launch with several ranks, without a profiler. A "
            "cost is the upper limit of the gain from a fix, as a share of the step; costs overlap "
            "and do not add up."
        )
    ]
    if len(top_groups(groups)) < len(groups):
        blocks.append(_causes_table(summary, groups))
    if groups:
        blocks.append(
            Details("Where each cause was seen", (_cells_table(summary, groups),), unfolded=True)
        )
    clean = _clean_text(diagnosed, groups)
    if clean:
        blocks.append(Paragraph(clean))
    blocks += _limits(summary, diagnosed)
    key = "nothing found"
    if groups:
        key = f"{plural(len(groups), 'cause')}"
    return Section("What holds it back", "diagnosis", tuple(blocks), ReportPart.CAUSES, key)


def _clean_text(diagnosed: Sequence[TrainingSummary], groups: Sequence[CauseGroup]) -> str:
    """Says in how many cells no cause was seen, apart from cells of one rank that others are
    compared with: most rules are about several ranks. Empty where every cell is listed under a
    cause."""
    listed = {costly.cell.cell.id for group in groups for costly in group.cells}
    compared = {cell.cell.series for cell in diagnosed if cell.cell.world_size > 1}
    clean = [cell for cell in diagnosed if cell.cell.id not in listed]
    references = [
        cell for cell in clean if cell.cell.world_size == 1 and cell.cell.series in compared
    ]
    judged, found = len(diagnosed) - len(references), len(clean) - len(references)
    sentences = []
    if found:
        sentences.append(f"No bottleneck found in {found} of {plural(judged, 'cell')}.")
    if references:
        count = len(references)
        verb = by_count(count, "is", "are")
        sentences.append(
            f"{plural(count, 'one-rank cell')} {verb} the reference: nothing was found there."
        )
    return " ".join(sentences)


def abstention_blocks(abstentions: Sequence[Abstention], *, on_device: bool) -> list[Block]:
    """The rules that gave no judgement in a line, and folded their reasons; empty where all did."""
    line = not_judged(abstentions, on_device=on_device)
    if not line:
        return []
    columns: tuple[ColumnOf[Abstention], ...] = (
        ColumnOf("rule", lambda item: item.kind.label),
        ColumnOf("why not", lambda item: shortened(item.reason), prose=True),
    )
    reasons = table_of("Rules without a judgement", columns, list(abstentions))
    return [Paragraph(shortened(f"{line}.")), Details(_LEFT_OUT, (reasons,))]


def _causes_table(summary: RunSummary, groups: Sequence[CauseGroup]) -> Table:
    columns: tuple[ColumnOf[tuple[CauseGroup, LostTime]], ...] = (
        ColumnOf("cause", lambda row: row[1].title),
        ColumnOf("cost", lambda row: text_value(row[1].cost, row[0].largest), numeric=True),
        ColumnOf("cells", lambda row: len(row[0].cells), str),
        ColumnOf("what to do", lambda row: row[1].advice, prose=True),
    )
    rows = list(zip(groups, causes(summary, groups), strict=True))
    return table_of("Causes", columns, rows)


def _cells_table(summary: RunSummary, groups: Sequence[CauseGroup]) -> Table:
    columns = (
        Column("cause"),
        *identity_columns(summary),
        Column("cost", True),
        Column("what was seen", prose=True),
        Column("confidence"),
    )
    rows = tuple(_row(group.title, costly) for group in groups for costly in group.cells)
    return Table("Findings by cell", columns, rows, searchable=True)


def _row(title: str, costly: CostlyCell) -> tuple[TableValue, ...]:
    finding = costly.finding
    evidence = ""
    if finding is not None and finding.evidence:
        evidence = f" Evidence: {'; '.join(finding.evidence)}."
    cost = sure = DASH
    if costly.share:
        cost = TableValue(format_percent(costly.share), costly.share)
    if finding is not None:
        tone = _CONFIDENCE_TONE[finding.confidence]
        if costly.cell.flags:
            tone = Tone.CAUTION
        sure = TableValue(confidence_text(finding), None, tone)
    return (
        TableValue(title),
        *identity_values(costly.cell.cell),
        cost,
        TableValue(shortened(f"{costly.text}.{evidence}")),
        sure,
    )


def _limits(summary: RunSummary, diagnosed: Sequence[TrainingSummary]) -> list[Block]:
    """Which rules gave no judgement of which cells, and what the windows without gradient sync
    took."""
    cells: dict[tuple[str, str], list[TrainingSummary]] = {}
    for cell in diagnosed:
        for item in cell.diagnosis.abstentions if cell.diagnosis else ():
            cells.setdefault((item.kind.label, item.reason), []).append(cell)
    blocks: list[Paragraph | Table] = []
    if cells:
        columns: tuple[ColumnOf[tuple[tuple[str, str], list[TrainingSummary]]], ...] = (
            ColumnOf("rule", lambda row: row[0][0]),
            ColumnOf("why not", lambda row: shortened(row[0][1]), prose=True),
            ColumnOf("cells", lambda row: _names(row[1], len(diagnosed)), prose=True),
        )
        blocks.append(table_of("Rules without a judgement", columns, sorted(cells.items())))
    windows = [
        seconds for cell in summary.cells for seconds in cell.facts.unsynchronized_wall_seconds
    ]
    if windows:
        blocks.append(
            Paragraph(
                "Each rank's compute was also timed without gradient sync, before and after the "
                "measured steps: "
                f"{format_range(windows, format_seconds)} per launch, excluded from throughput."
            )
        )
    if blocks:
        return [Details(_LEFT_OUT, tuple(blocks))]
    return []


def _names(cells: Sequence[TrainingSummary], total: int) -> str:
    if len(cells) == total:
        return "all"
    return listed(capped([cell_label(cell.cell) for cell in cells], _MAX_CELLS))
