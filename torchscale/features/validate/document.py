"""What ``validate`` found, as a document: two pages for whoever sold or runs the node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from torchscale.features.validate.acceptance.judge import is_suspected, undisturbed
from torchscale.features.validate.acceptance.verdict import figure_text, limit_text
from torchscale.report.document import Document, Paragraph, Section
from torchscale.report.table import Column, Table
from torchscale.report.values import TableValue, Tone, only_if, shortened, text_value
from torchscale.schema.node.acceptance import FigureStatus, JudgedFigure
from torchscale.schema.node.check import Check, Status
from torchscale.schema.node.validation import Disposition, PartVerdict, Validation

CHECK_TONES: Mapping[Status, Tone] = MappingProxyType(
    {
        Status.PASS: Tone.GOOD,
        Status.WARN: Tone.CAUTION,
        Status.FAIL: Tone.BAD,
        Status.NOT_APPLICABLE: Tone.DIM,
    }
)
PART_TONES = {
    Disposition.KEEP: Tone.GOOD,
    Disposition.RETEST: Tone.CAUTION,
    Disposition.RETURN: Tone.BAD,
}

_FIGURE_TONES = {
    FigureStatus.WITHIN: Tone.GOOD,
    FigureStatus.UNCLEAR: Tone.CAUTION,
    FigureStatus.FLAPPING: Tone.BAD,
    FigureStatus.LOW: Tone.BAD,
    FigureStatus.NO_LIMIT: Tone.DIM,
}


def validation_document(validation: Validation, hostname: str, created_at: str) -> Document:
    """The verdict, what to do with each part, and every check."""
    return Document(
        title=f"Validation of {hostname}",
        subtitle=created_at,
        verdict=(shortened(validation.verdict),),
        key_figures=(),
        sections=(
            Section("What to do", "parts", (parts_table(validation.parts), *_unseen(validation))),
            *_speeds(validation),
            Section("Checks", "checks", (checks_table(validation.checks),)),
        ),
    )


def parts_table(parts: Sequence[PartVerdict]) -> Table:
    """What to do with each part and why, what is kept last."""
    columns = (
        Column("verdict"),
        Column("part", prose=True),
        Column("what to do", prose=True),
        Column("because", prose=True),
    )
    gravest = sorted(parts, key=lambda part: part.disposition is Disposition.KEEP)
    return Table("Keep, retest or return", columns, tuple(_part_row(part) for part in gravest))


def _part_row(part: PartVerdict) -> tuple[TableValue, ...]:
    return (
        TableValue(part.disposition.value, None, PART_TONES[part.disposition]),
        TableValue(shortened(part.part)),
        text_value(shortened(part.action)),
        text_value(shortened("; ".join(part.reasons))),
    )


def _unseen(validation: Validation) -> list[Paragraph]:
    if not validation.unseen:
        return []
    return [Paragraph(f"Not looked at: {', '.join(validation.unseen)}.")]


def _speeds(validation: Validation) -> list[Section]:
    """The figures of an acceptance: of each the slowest part, and every part that is not within its
    limit."""
    acceptance = validation.acceptance
    if acceptance is None:
        return []
    slowest: dict[str, JudgedFigure] = {}
    for figure in acceptance.figures:
        other = slowest.setdefault(figure.figure, figure)
        if (figure.rate or 0.0) < (other.rate or 0.0):
            slowest[figure.figure] = figure
    shown = [
        figure
        for figure in acceptance.figures
        if is_suspected(figure) or slowest[figure.figure] is figure
    ]
    run = acceptance.run
    text = (
        f"{len(run.rounds)} rounds, {len(undisturbed(run))} of them undisturbed. Of each figure the "
        "slowest part is shown, and every part that is not within its limit; validation.json has "
        "all, by round."
    )
    columns = (
        Column("result"),
        Column("figure"),
        Column("part"),
        Column("rate and 95 % interval", prose=True),
        Column("limit", prose=True),
        Column("cause", prose=True),
    )
    table = Table("Speeds", columns, tuple(_figure_row(figure) for figure in shown))
    return [Section("Speeds", "speeds", (Paragraph(text), table))]


def _figure_row(figure: JudgedFigure) -> tuple[TableValue, ...]:
    cause = figure.because
    if figure.cause is not None:
        cause = f"{figure.cause.value}: {figure.because}"
    return (
        TableValue(figure.status.value, None, _FIGURE_TONES[figure.status]),
        TableValue(figure.figure),
        TableValue(shortened(figure.part)),
        text_value(figure_text(figure)),
        text_value(shortened(limit_text(figure))),
        text_value(shortened(cause)),
    )


def checks_table(checks: Sequence[Check], *, with_advice: bool = False) -> Table:
    """A row for each check."""
    columns = (
        Column("result"),
        Column("group"),
        Column("check", prose=True),
        Column("seen", prose=True),
        *only_if(with_advice, Column("do", prose=True)),
    )
    rows = tuple(
        (*_check_row(check), *only_if(with_advice, text_value(check.advice))) for check in checks
    )
    return Table("All checks", columns, rows)


def _check_row(check: Check) -> tuple[TableValue, ...]:
    seen = check.seen
    if check.expected:
        seen += f" (expected: {check.expected})"
    return (
        TableValue(check.status.value, None, CHECK_TONES[check.status]),
        TableValue(check.group),
        TableValue(check.title),
        TableValue(shortened(seen)),
    )
