"""What ``watch`` saw of a program over time: since which step it is limited by what, at which line,
and where the wall time went."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torchscale.analysis.summary.run import RunSummary
from torchscale.features.watch.text import goodput_text, headline, time_rows
from torchscale.report.document import (
    Block,
    Column,
    Group,
    Paragraph,
    Section,
    Table,
    TableValue,
    shortened,
)
from torchscale.report.table import ColumnOf, table_of
from torchscale.report.text.labels import cell_label
from torchscale.schema.run.content import LaunchDetail
from torchscale.schema.watch.report import WatchFinding, WatchReport
from torchscale.util.units import format_percent, format_seconds


def watched_section(summary: RunSummary, details: Mapping[str, LaunchDetail]) -> Section:
    """A table of findings with their steps for each program that was watched; empty without any."""
    seen = [
        (cell_label(cell.cell), detail.watched)
        for cell in summary.cells
        if (detail := details.get(cell.cell.id)) is not None and detail.watched is not None
    ]
    blocks = [block for label, report in seen for block in watched_blocks(label, report)]
    key = ""
    if len(seen) == 1:
        key = f"goodput {goodput_text(seen[0][1])}"
    return Section("Over the job", "watched", tuple(blocks), Group.CAUSES, key)


def watched_blocks(label: str, report: WatchReport) -> list[Block]:
    """What was seen of one program: sentences, and tables of findings and of the wall time."""
    text = f"{label}: {headline(report)}."
    if report.changes:
        steps = ", ".join(f"{step:,}" for step in report.changes)
        text += f" The level changed at step {steps}."
    if report.autopsy is not None:
        text += f" It hung: {report.autopsy.summary}."
    blocks: list[Block] = [Paragraph(shortened(text))]
    blocks += [Paragraph(shortened(f"Note: {note}.")) for note in report.notes]
    if report.findings:
        caption = f"What limits it over time: {label}"
        blocks.append(table_of(caption, _FINDINGS, report.findings))
    if report.time.total:
        blocks.append(_wall_time(label, report))
    return blocks


def _wall_time(label: str, report: WatchReport) -> Table:
    """Parts of the wall time; the last row is of all."""
    columns = [Column("part"), Column("time", True), Column("share", True)]
    columns += [Column("cost", True)] * (report.cost is not None)
    rows = tuple(tuple(TableValue(text) for text in row) for row in time_rows(report))
    return Table(f"Where the wall time went: {label}", tuple(columns), rows)


def _where(item: WatchFinding) -> str:
    """The collective that others wait at, and the lines at which the rank is longer."""
    places = [item.collective] if item.collective else []
    places += [
        f"{Path(line.file).name}:{line.line} ({format_seconds(seconds, 2)} a step more)"
        for line, seconds in item.lines
    ]
    return ", ".join(places)


def _rank(item: WatchFinding) -> TableValue:
    rank = item.finding.rank
    return TableValue("" if rank is None else str(rank), rank)


_FINDINGS: tuple[ColumnOf[WatchFinding], ...] = (
    ColumnOf("since", lambda item: TableValue(item.span or "the whole job", item.first_step or 0)),
    ColumnOf("what", lambda item: item.finding.kind.label),
    ColumnOf("rank", _rank, numeric=True),
    ColumnOf("costs", lambda item: item.finding.cost_percent, lambda of: format_percent(of / 100)),
    ColumnOf("finding", lambda item: shortened(item.finding.summary)),
    ColumnOf("where", lambda item: shortened(_where(item))),
)
