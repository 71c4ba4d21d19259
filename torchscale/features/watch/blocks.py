"""What was seen of one watched program, as blocks of a document."""

from __future__ import annotations

from torchscale.features.watch.analysis.startup import differs
from torchscale.features.watch.attempts_table import attempts_table
from torchscale.features.watch.first_screen import places, span_text
from torchscale.features.watch.text import cost_of_a_step, headline, steps_line, time_rows
from torchscale.report.document import Block, Bullets, Details, Paragraph
from torchscale.report.table import Column, Table
from torchscale.report.text.findings import confidence_text
from torchscale.report.values import TableValue, shortened
from torchscale.schema.watch.report import WatchFinding, WatchReport
from torchscale.schema.watch.start import PARTS
from torchscale.util.units import format_seconds

_LONG_START = 20.0
"""Seconds of a start from which its parts are shown: torch, its imports and a process group take
less on a disk that is near."""
_SHOWN = 0.05
"""Seconds of a part on any rank from which it has a column."""


def watched_blocks(label: str, report: WatchReport) -> list[Block]:
    """What was seen of one program: sentences, and tables of findings and of the wall time."""
    text = f"{label}: {headline(report)}."
    if report.autopsy is not None:
        text += f" It hung: {report.autopsy.summary}."
    blocks: list[Block] = [Paragraph(shortened(text))]
    if report.failure is not None:
        blocks += [Paragraph(shortened(f"{line}.")) for line in report.failure.evidence]
        blocks.append(Paragraph(f"{steps_line(report)}."))
    blocks += [Paragraph(shortened(f"Note: {note}.")) for note in report.notes]
    if report.findings:
        columns = (
            Column("since"),
            Column("what"),
            Column("rank", True),
            Column("costs", True),
            Column("finding", prose=True),
            Column("where"),
            Column("confidence"),
        )
        rows = tuple(_row(item) for item in report.findings)
        blocks.append(Table(f"What limits it over time: {label}", columns, rows))
    if report.time.total:
        blocks.append(wall_time_table(f"Where the wall time went: {label}", report))
    attempts = attempts_table(report)
    if attempts is not None:
        blocks.append(attempts)
    startup = startup_table(report)
    if startup is not None:
        blocks.append(startup)
    if report.abstentions:
        reasons = tuple(f"{item.kind.label}: {item.reason}." for item in report.abstentions)
        blocks.append(Details("What was not judged, and why", (Bullets(reasons),)))
    return blocks


def wall_time_table(caption: str, report: WatchReport) -> Table:
    """Parts of the wall time; the last row is of all."""
    columns = [Column("part"), Column("time", True), Column("share", True)]
    columns += [Column("cost", True)] * (report.cost is not None)
    rows = tuple(tuple(TableValue(text) for text in row) for row in time_rows(report))
    return Table(caption, tuple(columns), rows)


def startup_table(report: WatchReport) -> Table | None:
    """Where the start of each rank went; ``None`` of starts that are short and alike."""
    starts = report.startup
    is_long = any(one.total > _LONG_START for one in starts)
    if not is_long and not differs(starts):
        return None
    shown = [name for name in PARTS if any(one.part(name) >= _SHOWN for one in starts)]
    headings = ("rank", *(PARTS[name] for name in shown), "all")
    rows = tuple(
        (
            TableValue(str(one.rank), one.rank),
            *(_seconds(one.part(name)) for name in shown),
            _seconds(one.total),
        )
        for one in starts
    )
    return Table("Start-up by rank", tuple(Column(name, True) for name in headings), rows)


def _seconds(value: float) -> TableValue:
    return TableValue(format_seconds(value, 2), value)


def _row(item: WatchFinding) -> tuple[TableValue, ...]:
    finding = item.finding
    rank = "" if finding.rank is None else str(finding.rank)
    seen = f"{finding.summary}. Evidence: {'; '.join(finding.evidence)}."
    return (
        TableValue(span_text(item), item.first_step or 0),
        TableValue(finding.kind.label),
        TableValue(rank, finding.rank),
        TableValue(cost_of_a_step(finding), finding.cost_percent),
        TableValue(shortened(seen if finding.evidence else finding.summary)),
        TableValue(shortened(", ".join(places(item)))),
        TableValue(confidence_text(finding)),
    )
