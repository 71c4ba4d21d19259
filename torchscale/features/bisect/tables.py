"""What a bisection found or would do, for the terminal."""

from __future__ import annotations

from rich.console import Console

from torchscale.features.bisect.change_verdict import number_text
from torchscale.features.bisect.equality import REPEATS
from torchscale.features.bisect.export_schema import (
    BisectionExport,
    BisectionPlanExport,
    ChangeExport,
    EnvironmentExport,
    ExpectedExport,
)
from torchscale.report.document import Block, Document, Paragraph, Section
from torchscale.report.formats.console import print_document
from torchscale.report.table import Column, Table
from torchscale.report.values import TableValue, text_value
from torchscale.util.interval_text import format_estimate, format_interval, with_interval
from torchscale.util.units import format_coarse_seconds, format_percent, format_seconds

_KNOWN = 0.005
"""Probabilities nearer to 0 or 1 are shown as no and yes."""
_MOST_UNLAUNCHED = 3
"""Environments in a row that were not launched, before they become one line."""


def print_bisection(result: BisectionExport, console: Console) -> None:
    """The verdict, what it rests on, and the line that gives it again."""
    columns = (
        Column("environment", prose=True),
        Column("launches", numeric=True),
        Column("mean" if result.change is None else "number", numeric=True),
        Column("slow" if result.change is None else "changed", numeric=True),
        Column("state", prose=True),
    )
    table = Table("", columns, tuple(_rows(result)))
    again = Paragraph(f"Again: {result.command}", code=True)
    blocks: tuple[Block, ...] = (table, *map(Paragraph, _basis(result)), again)
    sections = (Section("", "environments", blocks),)
    print_document(Document(result.verdict, "", result.notes, (), sections), console)


def print_plan(plan: BisectionPlanExport, console: Console) -> None:
    """What would be launched, and how often."""
    last = len(plan.environments) - 1
    lines = []
    for place, (label, is_built) in enumerate(zip(plan.environments, plan.built, strict=True)):
        role = {0: "good", last: "bad"}.get(place, "")
        state = "" if is_built else "to be built when it is asked for"
        said = ", ".join(part for part in (role, state) if part)
        lines.append(f"  {label}{said and f' ({said})'}")
    if plan.exact_launches is not None:
        lines.append(
            f"Where launches repeat their number: about {plan.exact_launches} launches; "
            f"{2 * REPEATS} where both ends agree"
        )
    origin = "measured in this folder" if plan.noise_measured else "assumed: nothing was launched"
    if plan.noise is not None:
        lines.append(f"Noise of a launch: {format_percent(plan.noise)} ({origin})")
    lines += [_expected(one, plan.most_launches) for one in plan.expected]
    title = f"What differs: {'; '.join(plan.changes)}"
    print_document(Document(title, "", tuple(lines), (), ()), console)


def _expected(one: ExpectedExport, most_launches: int) -> str:
    text = f"  slower by {format_percent(one.cost, 0)}: about {one.launches} launches"
    if one.most > one.launches:
        text += f", nine times in ten at most {one.most}"
    if one.answered < 1:
        text += f"; an answer within {most_launches} in {format_percent(one.answered, 0)} of cases"
    if one.seconds is not None:
        text += f"; {format_coarse_seconds(one.seconds)}"
    return text


def _rows(result: BisectionExport) -> list[tuple[TableValue, ...]]:
    """A row for each environment; long runs of those that were not launched in one."""
    rows: list[tuple[TableValue, ...]] = []
    skipped: list[EnvironmentExport] = []
    for one in (*result.environments, None):
        if one is not None and one.state == "not launched":
            skipped.append(one)
            continue
        if len(skipped) > _MOST_UNLAUNCHED:
            rows.append(_values(f"… {len(skipped)} more", 0, state="not launched"))
        else:
            rows += [_row(left, result) for left in skipped]
        skipped = []
        if one is not None:
            rows.append(_row(one, result))
    return rows


def _row(one: EnvironmentExport, result: BisectionExport) -> tuple[TableValue, ...]:
    if result.change is None:
        figure = _mean(one, result.unit)
    else:
        figure = _numbers(one, result.change)
    return _values(one.label, one.launches, figure, _slow(one), _state(one))


def _values(
    label: str, launches: int, mean: str = "", slow: str = "", state: str = ""
) -> tuple[TableValue, ...]:
    return tuple(map(text_value, (label, str(launches), mean, slow, state)))


def _mean(one: EnvironmentExport, unit: str) -> str:
    if one.mean is None:
        return "–"
    text = format_seconds if unit == "s" else _number
    if one.low is None or one.high is None:
        return text(one.mean, 4)
    return with_interval(text(one.mean, 4), format_interval(one.mean, (one.low, one.high), text))


def _numbers(one: EnvironmentExport, change: ChangeExport) -> str:
    scatter = change.scatter or change.least
    if one.mean is None or scatter is None:
        return ", ".join(one.numbers) or "–"
    ends = None if one.low is None or one.high is None else (one.low, one.high)
    return format_estimate(one.mean, ends, number_text(scatter))


def _number(value: float, digits: int = 3) -> str:
    return f"{value:.{digits}g}"


def _slow(one: EnvironmentExport) -> str:
    if one.slow is None:
        return "–"
    if one.level is not None and one.level > 1:
        return "yes, another"
    if one.slow < _KNOWN:
        return "no"
    if one.slow > 1 - _KNOWN:
        return "yes"
    return format_percent(one.slow, 0)


def _state(one: EnvironmentExport) -> str:
    if one.reason:
        return one.reason
    if one.modes is not None:
        longer = format_percent(one.modes.ratio)
        return f"two states: {one.modes.slow} of {one.modes.launches} launches take {longer} longer"
    return one.state


def _basis(result: BisectionExport) -> list[str]:
    if result.change is not None:
        return _basis_of_change(result, result.change)
    lines = []
    if result.noise is not None:
        measured = (
            f"{result.launches} launches in {format_seconds(result.seconds)}; noise of a launch "
            f"{format_percent(result.noise)}."
        )
        if result.ending in ("found", "no difference"):
            error = format_percent(result.error_probability, 0)
            measured += f" Wrong with a probability of at most {error} (torchscale docs bisect)."
        lines.append(measured)
    return lines


def _basis_of_change(result: BisectionExport, change: ChangeExport) -> list[str]:
    measured = (
        f"{change.why} {result.launches} launches in {format_seconds(result.seconds)}".strip()
    )
    if change.rule != "mean":
        return [f"{measured}."]
    if change.scatter is not None:
        measured += f"; scatter of a launch {change.scatter:.3g}"
    if result.ending in ("found", "no difference"):
        error = format_percent(result.error_probability, 0)
        measured += f". Wrong with a probability of at most {error} (torchscale docs bisect)"
    return [f"{measured}."]
