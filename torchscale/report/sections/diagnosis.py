"""What the always-on signals found in each cell: bottlenecks, their cost and advice."""

from __future__ import annotations

from torchscale.analysis.summary.run import RunSummary
from torchscale.analysis.training.summary import TrainingSummary
from torchscale.report.document import (
    DASH,
    Block,
    Column,
    Paragraph,
    Section,
    Table,
    TableValue,
    Tone,
    shortened,
)
from torchscale.report.text.labels import (
    identity_columns,
    identity_values,
    sentence,
)
from torchscale.report.text.profile import not_judged
from torchscale.schema.profiles.finding import Confidence, Diagnosis, Finding
from torchscale.util.units import format_percent, format_seconds

_CONFIDENCE_TONE = {Confidence.HIGH: Tone.PLAIN, Confidence.MEDIUM: Tone.PLAIN, Confidence.LOW: Tone.DIM}


def diagnosis_section(summary: RunSummary) -> Section:
    """Findings from the always-on signals of each cell."""
    diagnosed = [(cell, cell.diagnosis) for cell in summary.measured if cell.diagnosis is not None]
    if not diagnosed:
        return Section("What holds it back", "diagnosis", ())
    text = (
        "Based on signals recorded in every launch with several ranks, without a profiler. A cost is the upper "
        "limit of the "
    )
    blocks: list[Block] = [
        Paragraph(text + "gain from a fix, as a share of the step; costs overlap and do not add up.")
    ]
    windows = [seconds for cell in summary.cells for seconds in cell.facts.unsynchronized_wall_seconds]
    if windows:
        spread = format_seconds(max(windows))
        if min(windows) < max(windows):
            spread = f"{format_seconds(min(windows))} to {spread}"
        blocks.append(
            Paragraph(
                f"The windows for unsynchronized compute took {spread} per launch; they are excluded from throughput."
            )
        )
    rows = [_finding_row(cell, finding) for cell, diagnosis in diagnosed for finding in diagnosis.findings]
    clean = sum(1 for _, diagnosis in diagnosed if not diagnosis.findings)
    if clean:
        blocks.append(Paragraph(f"No bottleneck found in {clean} of {len(diagnosed)} cells."))
    if rows:
        columns = (
            *identity_columns(summary),
            Column("cost", True),
            Column("finding", prose=True),
            Column("what to do", prose=True),
            Column("confidence, warnings"),
        )
        blocks.append(Table("Findings", columns, tuple(rows), searchable=True))
    abstentions = dict.fromkeys(item for _, diagnosis in diagnosed for item in diagnosis.abstentions)
    blocks += abstention_blocks(Diagnosis(abstentions=tuple(abstentions)))
    return Section("What holds it back", "diagnosis", tuple(blocks))


def abstention_blocks(diagnosis: Diagnosis) -> list[Block]:
    """The rules that gave no judgement, with reasons; empty where all did."""
    if not diagnosis.abstentions:
        return []
    return [Paragraph(f"{not_judged(diagnosis.abstentions)}.")]


def _finding_row(cell: TrainingSummary, finding: Finding) -> tuple[TableValue, ...]:
    cost = TableValue(format_percent(finding.cost_percent / 100), finding.cost_percent)
    tone = Tone.CAUTION if cell.flags else _CONFIDENCE_TONE[finding.confidence]
    return (
        *identity_values(cell.cell),
        cost if finding.cost_percent else DASH,
        TableValue(shortened(f"{finding.kind.label}: {finding.summary}. Evidence: {'; '.join(finding.evidence)}.")),
        TableValue(shortened(sentence(finding.advice))),
        TableValue(", ".join([finding.confidence.value, *(flag.value for flag in cell.flags)]), None, tone),
    )
