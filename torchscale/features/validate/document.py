"""What ``validate`` found, as a document for whoever sold, bought or runs the node: in a bundle, and
as the report of an acceptance's folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from torchscale.features.validate.acceptance.asked import asked_for, policy_text, return_text
from torchscale.features.validate.first_screen import PART_TONES, validation_overview
from torchscale.features.validate.health.answer import gravity
from torchscale.features.validate.health.disposition import has_kernel_log
from torchscale.features.validate.rounds_section import rounds_section
from torchscale.report.document import Bullets, Document, Paragraph, Section
from torchscale.report.table import Column, Table
from torchscale.report.values import TableValue, Tone, only_if, shortened, text_value
from torchscale.schema.node.check import Check, Status
from torchscale.schema.node.policy import Policy
from torchscale.schema.node.validation import Disposition, PartVerdict, Validation

CHECK_TONES: Mapping[Status, Tone] = MappingProxyType(
    {
        Status.PASS: Tone.GOOD,
        Status.WARN: Tone.CAUTION,
        Status.FAIL: Tone.BAD,
        Status.NOT_APPLICABLE: Tone.DIM,
    }
)
_NO = TableValue("no", None, Tone.CAUTION)


def validation_document(validation: Validation, hostname: str, created_at: str) -> Document:
    """The verdict with its action, what *keep* asks for, the rounds of an acceptance, what was not
    looked at, and every check.

    Args:
        validation: The whole answer.
        hostname: Of the node.
        created_at: When it was made, for one without an acceptance, which has a time of its own.
    """
    acceptance = validation.acceptance
    title = f"Validation of {hostname}"
    if acceptance is not None:
        title = f"Acceptance of {hostname}"
        created_at = next((each.started_at for each in acceptance.run.rounds), created_at)
    return Document(
        title=title,
        subtitle=created_at,
        verdict=(),
        key_figures=(),
        sections=tuple(sections_of(validation)),
        overview=validation_overview(validation),
    )


def sections_of(validation: Validation) -> Iterator[Section]:
    """Everything below the first screen."""
    policy = validation.policy or Policy()
    yield Section("Verdicts", "parts", (parts_table(validation.parts),))
    yield Section(
        "What keep asks for",
        "asked",
        (
            _asked_table(validation, policy),
            Paragraph(f"Keep asks for: {policy_text(policy)}."),
            Paragraph(f"Returned is {return_text(policy)}."),
        ),
    )
    if validation.acceptance is not None:
        yield rounds_section(validation.acceptance)
    if validation.unseen:
        yield Section("Not looked at", "unseen", (Bullets(validation.unseen),))
    yield Section("Checks", "checks", (checks_table(validation.checks),))


def _asked_table(validation: Validation, policy: Policy) -> Table:
    asked = asked_for(
        policy,
        validation.acceptance,
        validation.burn_in,
        kernel_log=has_kernel_log(validation.facts),
    )
    columns = (
        Column("there"),
        Column("asked for", prose=True),
        Column("seen", prose=True),
        Column("what to do", prose=True),
    )
    rows = tuple(
        (
            TableValue("yes", None, Tone.GOOD) if each.is_met else _NO,
            TableValue(each.what),
            TableValue(shortened(each.seen)),
            text_value(each.action),
        )
        for each in asked
    )
    return Table("Asked for, and seen", columns, rows)


def parts_table(parts: Sequence[PartVerdict]) -> Table:
    """What to do with each part and why, what is kept last."""
    columns = (
        Column("verdict"),
        Column("part", prose=True),
        Column("what to do", prose=True),
        Column("because", prose=True),
    )
    gravest = sorted(parts, key=lambda part: -gravity(part.disposition))
    return Table("What to do", columns, tuple(map(_part_row, _alike_together(gravest))))


def _alike_together(parts: Sequence[PartVerdict]) -> Iterator[PartVerdict]:
    """Parts that are kept, and undecided ones for the same reasons, as one."""
    alike: dict[tuple[object, ...], list[PartVerdict]] = {}
    for part in parts:
        key: tuple[object, ...] = (part.disposition, part.action, part.reasons)
        if part.disposition in (Disposition.RETEST, Disposition.RETURN):
            key = (part.part,)
        alike.setdefault(key, []).append(part)
    for group in alike.values():
        yield group[0].model_copy(update={"part": part_names(group)})


def part_names(parts: Sequence[PartVerdict]) -> str:
    """``GPU 0, 1, 2, node``; of a single part its whole name."""
    if len(parts) == 1:
        return parts[0].part
    numbers = ", ".join(str(part.gpu) for part in parts if part.gpu is not None)
    others = [part.part for part in parts if part.gpu is None]
    return ", ".join([*only_if(numbers, f"GPU {numbers}"), *others])


def _part_row(part: PartVerdict) -> tuple[TableValue, ...]:
    return (
        TableValue(part.disposition.value, None, PART_TONES[part.disposition]),
        TableValue(shortened(part.part)),
        text_value(shortened(part.action)),
        text_value(shortened("; ".join(part.reasons))),
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
